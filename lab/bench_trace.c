/* The "Trace Event Format": an array of objects, complete events (X) with microseconds, and
 * metadata (M) that names processes and threads. */
#include "bench_trace.h"

#include "command.h"

#include <stdio.h>
#include <string.h>

const char *side_name(enum pv_side side)
{
    return side == PV_SIDE_MODEL ? "model" : "drafter";
}

static void add_name(struct buf *b, const char *kind, int pid, int tid, const char *name)
{
    buf_puts(b, b->len ? ",\n" : "");
    buf_printf(b, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", kind,
               pid, tid);
    buf_json(b, name, strlen(name));
    buf_puts(b, "}}");
}

static void add_span(struct buf *b, int pid, const struct trial_span *s)
{
    buf_puts(b, ",\n{\"ph\":\"X\",\"name\":");
    buf_json(b, s->what, strlen(s->what));
    buf_printf(b,
               ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
               "\"args\":{\"rows\":%d}}",
               side_name(s->side), pid, (int)s->side + 1, s->begin * 1e6, (s->end - s->begin) * 1e6,
               s->rows);
}

void trace_events(struct buf *b, const char *clip, const struct contenders *who,
                  const struct trial_result *r, int *processes)
{
    for (int k = 0; k < who->n; k++) {
        int pid = ++*processes;
        char name[512], title[64];
        contender_title(title, sizeof title, &who->items[k]);
        snprintf(name, sizeof name, "%s, %.400s", title, path_name(clip));
        add_name(b, "process_name", pid, 0, name);
        for (int side = PV_SIDE_MODEL; side <= PV_SIDE_DRAFTER; side++)
            add_name(b, "thread_name", pid, side + 1, side_name((enum pv_side)side));
        for (size_t i = 0; i < r->n_spans[k]; i++)
            add_span(b, pid, &r->span[k][i]);
    }
}
