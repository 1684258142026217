/* The sound of an uploaded file, as the heights of a drawing for a page. */
#include "media_part.h"
#include "server.h"

#include "base/mem.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

enum { JSON_LIMIT = 1 << 20, POINTS = 500, MAX_POINTS = 4000 };

struct sound_job {
    struct work work;
    struct call *call;
    struct stored_file file;
    struct pv_video_params params;
    int points;
    struct buf json;
    struct api_error error;
    atomic_bool left; /* the client has left: nothing has to be done */
};

/* The largest sample, by its distance from 0, of each of so many equal parts. */
static void add_peaks(struct buf *b, const float *samples, size_t n, int points)
{
    size_t at = 0;
    for (int i = 0; i < points; i++) {
        size_t end = (size_t)((uint64_t)n * (uint64_t)(i + 1) / (uint64_t)points);
        float most = 0;
        for (; at < end; at++)
            most = fabsf(samples[at]) > most ? fabsf(samples[at]) : most;
        buf_printf(b, "%s%.3g", i ? "," : "", (double)most);
    }
}

static void run_sound(struct work *w)
{
    struct sound_job *j = (struct sound_job *)((char *)w - offsetof(struct sound_job, work));
    struct media_part name = { .path = j->file.path, .fd = -1 };
    struct pv_error err = { 0 };
    float *samples = NULL;
    size_t n = 0;
    if (atomic_load(&j->left))
        return;
    if (pv_video_sound(j->file.path, &j->params, &samples, &n, &err)) {
        snprintf(name.name, sizeof name.name, "%s", j->file.id);
        media_part_hide(&name, err.text, sizeof err.text);
        api_fail_status(&j->error, err.code == PV_E_IO ? PV_E_FORMAT : err.code, NULL, err.text);
        return;
    }
    buf_printf(&j->json, "{\"object\":\"sound\",\"rate\":%d,\"samples\":%zu,\"peaks\":[",
               PV_SOUND_RATE, n);
    if (n > 0)
        add_peaks(&j->json, samples, n, j->points);
    buf_puts(&j->json, "]}");
    pv_free(samples);
}

static void sound_done(struct loop_task *t)
{
    struct sound_job *j = (struct sound_job *)((char *)t - offsetof(struct sound_job, work.done));
    if (j->error.status)
        call_fail(j->call, &j->error);
    else
        call_json(j->call, 200, &j->json);
    buf_clear(&j->json);
    call_release(j->call);
    mem_free(j);
}

static bool sound_wanted(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    (void)phase, (void)done, (void)total;
    return !atomic_load(&((struct sound_job *)user)->left);
}

static void sound_left(struct call *c)
{
    atomic_store(&((struct sound_job *)c->state)->left, true); /* the worker comes back soon */
}

void route_file_sound(struct call *c)
{
    struct sound_job *j;
    struct stored_file f;
    struct api_error e = { 0 };
    double points = POINTS;
    if (!call_file(c, &f))
        return;
    j = call_query_number(c, "points", 1, MAX_POINTS, &points, &e) ? mem_zalloc(sizeof *j) : NULL;
    if (!j) {
        if (!e.status)
            api_fail(&e, 503, NULL, "out of memory for the sound");
        call_fail(c, &e);
        return;
    }
    j->call = c;
    j->file = f;
    j->params = pv_video_defaults();
    j->params.limits = &c->s->limits;
    j->params.sandbox = c->s->c->sandbox;
    j->points = (int)points;
    buf_init(&j->json, JSON_LIMIT);
    j->work.run = run_sound;
    j->work.done.run = sound_done;
    j->params.progress = sound_wanted;
    j->params.progress_user = j;
    atomic_init(&j->left, false);
    c->pending = true;
    c->left = sound_left;
    c->state = j;
    workers_add(c->s->heavy, &j->work);
}
