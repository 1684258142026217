/* Rows of results: each is printed as a line of the table as soon as it is known, together with the
 * time of the peer (Hugging Face transformers) for the same test, and written as CSV.
 *
 * The floor is the larger of bytes / bandwidth and operations / peak; "of floor" is floor / time.
 */
#include "gpu_rig.h"

#include "base/append.h"
#include "base/buf.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_CHARS = 1024, PEER_MAX = 512, COLUMNS = 19 };

/* peer_hf.py writes the same. */
static const char columns[] =
    "date,machine,commit,engine,device,model,type,test,context,rows,samples,ms,best_ms,tokens_s,"
    "floor_ms,of_floor,tflops,memory_gb,note\n";
enum { COL_MODEL = 5, COL_TEST = 7, COL_CONTEXT = 8, COL_ROWS = 9, COL_MS = 11 };

struct peer_row {
    char model[RIG_NAME], test[RIG_NAME];
    int context, rows;
    double ms;
};

/* ---- the peer ---- */

static void read_peer_line(struct results *r, char *line)
{
    char *field[COLUMNS] = { 0 };
    int n = 0;
    for (char *at = line; at && n < COLUMNS; n++) {
        char *comma = strchr(at, ',');
        field[n] = at;
        if (comma)
            *comma = 0;
        at = comma ? comma + 1 : NULL;
    }
    if (n <= COL_MS || r->n_peer == PEER_MAX || strtod(field[COL_MS], NULL) <= 0)
        return;
    struct peer_row *p = &r->peer[r->n_peer++];
    snprintf(p->model, sizeof p->model, "%s", field[COL_MODEL]);
    snprintf(p->test, sizeof p->test, "%s", field[COL_TEST]);
    p->context = (int)strtol(field[COL_CONTEXT], NULL, 10);
    p->rows = (int)strtol(field[COL_ROWS], NULL, 10);
    p->ms = strtod(field[COL_MS], NULL);
}

static enum pv_status read_peer(struct results *r, const char *path, struct pv_error *err)
{
    char line[LINE_MAX_CHARS];
    FILE *f = fopen(path, "r");
    if (!f)
        return fail(err, PV_E_IO, "%s: %s", path, strerror(errno));
    r->peer = mem_zalloc(sizeof *r->peer * PEER_MAX);
    while (r->peer && fgets(line, sizeof line, f))
        read_peer_line(r, line);
    fclose(f);
    return r->peer ? PV_OK : fail_nomem(err, sizeof *r->peer * PEER_MAX);
}

/* The last row counts: a file that was appended to ends with the newest run. The peer has no trees;
 * they are compared with as many rows in a chain. */
double results_peer(const struct results *r, const struct result *x)
{
    const char *test = strcmp(x->test, "tree") ? x->test : "decode";
    double ms = 0;
    for (int i = 0; i < r->n_peer; i++) {
        const struct peer_row *p = &r->peer[i];
        if (!strcmp(p->model, x->model) && !strcmp(p->test, test) && p->context == x->context &&
            p->rows == x->rows)
            ms = p->ms;
    }
    return ms;
}

/* ---- opening ---- */

enum pv_status results_open(struct results *r, struct rig *rig, const char *csv, const char *peer,
                            const char *commit, struct pv_error *err)
{
    static char machine[128], date[32];
    time_t now = time(NULL);
    struct tm tm;
    *r = (struct results){ .rig = rig, .machine = machine, .date = date, .commit = commit };
    rig->results = r;
    if (gethostname(machine, sizeof machine) != 0)
        snprintf(machine, sizeof machine, "unknown");
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (peer) {
        enum pv_status s = read_peer(r, peer, err);
        if (s)
            return s;
    }
    r->csv = csv;
    return csv ? file_append(csv, columns, "", 0, err) : PV_OK; /* before the work: fail early */
}

void results_close(struct results *r)
{
    mem_free(r->peer);
    *r = (struct results){ 0 };
}

/* ---- rows ---- */

void results_head(const struct results *r, const char *title)
{
    printf("\n%s\n%-14s %-5s %-12s %7s %5s %10s %10s %9s %6s %9s %7s", title, "model", "type",
           "test", "context", "rows", "ms", "best", "floor", "of it", "tokens/s", "TFLOP/s");
    if (r->n_peer)
        printf(" %10s %6s", "peer ms", "ratio");
    printf("  note\n");
}

static double floor_ms(const struct rig *rig, const struct result *x)
{
    double memory = rig->bandwidth > 0 ? x->bytes / rig->bandwidth : 0;
    double work = rig->peak > 0 ? x->operations / rig->peak : 0;
    return 1e3 * (memory > work ? memory : work);
}

static double tokens_per_second(const struct result *x)
{
    return x->tokens > 0 ? 1e3 * x->tokens / x->ms : 0;
}

void results_csv(const struct results *r, const struct result *x)
{
    double floor = floor_ms(r->rig, x);
    struct pv_error err = { 0 };
    struct buf line;
    if (!r->csv)
        return;
    buf_init(&line, LINE_MAX_CHARS);
    buf_printf(&line,
               "%s,%s,%s,prevue,%s,%s,%s,%s,%d,%d,%d,%.5f,%.5f,%.2f,%.5f,%.4f,%.2f,%.2f,%s\n",
               r->date, r->machine, r->commit, r->rig->dev->ops->name, x->model, x->type, x->test,
               x->context, x->rows, x->samples, x->ms, x->best_ms, tokens_per_second(x), floor,
               floor / x->ms, 1e-9 * x->operations / x->ms, 1e-9 * (double)x->memory,
               x->note ? x->note : "");
    if (line.failed)
        fail(&err, PV_E_LIMIT, "%s: a line would be longer than %d characters", r->csv,
             LINE_MAX_CHARS);
    else
        file_append(r->csv, columns, line.data, line.len, &err);
    if (err.code)
        fprintf(stderr, "bench_gpu: %s\n", err.text);
    buf_clear(&line);
}

void results_row(const struct results *r, const struct result *x)
{
    double floor = floor_ms(r->rig, x), peer = results_peer(r, x);
    printf("%-14s %-5s %-12s %7d %5d %10.3f %10.3f %9.3f %5.0f%% %9.1f %7.1f", x->model, x->type,
           x->test, x->context, x->rows, x->ms, x->best_ms, floor, 100 * floor / x->ms,
           tokens_per_second(x), 1e-9 * x->operations / x->ms);
    if (r->n_peer && peer > 0)
        printf(" %10.3f %6.2f", peer, peer / x->ms);
    else if (r->n_peer)
        printf(" %10s %6s", "-", "-");
    printf("  %s\n", x->note ? x->note : "");
    fflush(stdout);
    results_csv(r, x);
}
