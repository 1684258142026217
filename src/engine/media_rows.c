/* The tower runs only for rows that no cache has. What it computes together, a window of some units
 * (frames, pairs of frames, whole pictures), is cached together in memory, and on disk as one entry
 * per unit. */
#include "engine/media_rows.h"

#include "base/mem.h"
#include "engine/disk_media.h"
#include "engine/media_open.h"

#include <string.h>

enum pv_status session_reserve_tower(struct pv_session *s, const struct media *m,
                                     struct pv_error *err)
{
    size_t held;
    enum pv_status st = task_lock(s->task, s->model->step_lock, err); /* another may use it */
    if (st)
        return st;
    held = atomic_load(&s->engine->tower_bytes);
    st = budget_claim_tower(&s->budget, s->engine->encoder, &held, m, err);
    atomic_store(&s->engine->tower_bytes, held);
    pthread_mutex_unlock(s->model->step_lock);
    return st;
}

uint64_t session_media_key(const struct pv_session *s, const struct media_item *m)
{
    return s->number << 32 | (uint32_t)m->key;
}

double session_tower_seconds(struct pv_session *s)
{
    return 1e-9 * (double)atomic_load(&s->tower_ns);
}

double session_take_tower(struct pv_session *s)
{
    return 1e-9 * (double)atomic_exchange(&s->tower_ns, 0);
}

/* In the functions below, the caller holds the lock. */

/* Write the units of the window that are not on disk yet. */
static void write_window(struct pv_session *s, const struct media_item *m, int row, int n)
{
    const struct media *a = &m->m;
    size_t width = (size_t)config_media_width(decoder_config(s->model->dec));
    float *rows = mem_alloc((size_t)media_unit(a, row).n * width * sizeof *rows);
    for (int at = row; rows && at < row + n;) { /* all units have the same size */
        struct media_unit u = media_unit(a, at);
        if (!disk_rows_there(&s->engine->disk, a, u.number) &&
            !encoder_rows(s->engine->encoder, a, session_media_key(s, m), u.first, u.n, rows, NULL))
            disk_rows_keep(&s->engine->disk, a, &u, rows, width);
        at = u.first + u.n;
    }
    mem_free(rows);
}

/* Cache the window that contains row `of`. */
static enum pv_status keep_window(struct pv_session *s, const struct media_item *m, int of,
                                  struct pv_error *err)
{
    struct encoder *e = s->engine->encoder;
    int row, n = encoder_window(e, &m->m, session_media_key(s, m), of, &row);
    float *to = n > 0 && !vision_cache_find(s->engine->tower_rows, m->m.digest, row, n)
                    ? vision_cache_keep(s->engine->tower_rows, m->m.digest, m->m.n_rows, row, n)
                    : NULL;
    if (n > 0 && s->engine->disk.cache)
        write_window(s, m, row, n);
    return to ? encoder_rows(e, &m->m, session_media_key(s, m), row, n, to, err) : PV_OK;
}

/* Whether to look for rows [row, row + n) on disk: not if the tower has just computed them. A
 * prompt is read from its beginning, so the last unit is the one most likely to be missing. */
static bool may_be_on_disk(struct pv_session *s, const struct media_item *m, int row, int n)
{
    const struct media *a = &m->m;
    int end = row + n, first, made;
    struct media_unit last = media_unit(a, end - 1);
    if (last.number < 0 && end - 1 > 0) /* the newline */
        last = media_unit(a, --end - 1);
    if (!s->engine->disk.cache)
        return false;
    made = encoder_window(s->engine->encoder, a, session_media_key(s, m), row, &first);
    if (row >= first && end <= first + made)
        return false;
    return disk_rows_there(&s->engine->disk, a, last.number);
}

/* Rows [row, row + n) if all of their units are on disk, in memory that the caller frees; otherwise
 * NULL. The newline after the last unit belongs to no unit: the tower provides it without running.
 */
static float *read_rows(struct pv_session *s, const struct media_item *m, int row, int n)
{
    const struct media *a = &m->m;
    struct pv_engine *e = s->engine;
    size_t width = (size_t)config_media_width(decoder_config(s->model->dec));
    float *rows = may_be_on_disk(s, m, row, n) ? mem_alloc((size_t)n * width * sizeof *rows) : NULL;
    float *to;
    bool all = rows != NULL;
    for (int done = 0; done < n && all;) {
        struct media_unit u = media_unit(a, row + done);
        int at = row + done - u.first, some = u.n - at < n - done ? u.n - at : n - done;
        const float *from = NULL;
        if (u.number >= 0)
            from = disk_rows_find(&e->disk, a, &u, width);
        if (from)
            memcpy(rows + (size_t)done * width, from + (size_t)at * width,
                   (size_t)some * width * sizeof *rows);
        else
            all = u.number < 0 && !encoder_rows(e->encoder, a, session_media_key(s, m), row + done,
                                                some, rows + (size_t)done * width, NULL);
        done += some;
    }
    if (!all) {
        mem_free(rows);
        return NULL;
    }
    to = vision_cache_keep(e->tower_rows, a->digest, a->n_rows, row, n);
    if (to)
        memcpy(to, rows, (size_t)n * width * sizeof *rows);
    return rows;
}

/* Load the pixels, and make room in the tower. This was not done before for a media item whose rows
 * were expected on disk. */
static enum pv_status make_ready(struct pv_session *s, const struct media_item *m,
                                 struct pv_error *err)
{
    struct media *a = &s->seq.line.media[m - s->seq.line.media].m;
    enum pv_status st = media_open_pixels(a, s->engine, err);
    if (!st)
        st = encoder_reserve(s->engine->encoder, a, err);
    if (!st)
        atomic_store(&s->engine->tower_bytes, encoder_size(s->engine->encoder, a));
    return st;
}

/* Number of rows of a media item, from `row` on, that one window has: the present window, or else
 * at least the rest of the unit with which the next one begins. */
static int rows_of_window(const struct pv_session *s, const struct media_item *m, int row)
{
    int first, n = encoder_window(s->engine->encoder, &m->m, session_media_key(s, m), row, &first);
    struct media_unit u = media_unit(&m->m, row);
    if (row >= first && row < first + n)
        return first + n - row;
    return u.first + u.n - row;
}

/* Runs window by window, so that each can be cached before the next replaces it. */
static enum pv_status run_tower(struct pv_session *s, const struct media_item *m, int row, int n,
                                float *out, bool on_device, struct pv_error *err)
{
    struct encoder *e = s->engine->encoder;
    size_t width = (size_t)config_media_width(decoder_config(s->model->dec));
    uint64_t key = session_media_key(s, m);
    enum pv_status st = make_ready(s, m, err);
    encoder_watch(e, (struct vision_watch){ s->task ? task_goes_on : NULL, s->task });
    for (int done = 0; done < n && !st;) {
        int most = rows_of_window(s, m, row + done), some = most < n - done ? most : n - done;
        float *to = out + (size_t)done * width;
        st = on_device ? encoder_rows_on_device(e, &m->m, key, row + done, some, to, err)
                       : encoder_rows(e, &m->m, key, row + done, some, to, err);
        if (!st)
            st = keep_window(s, m, row + done, err);
        done += some;
    }
    encoder_watch(e, (struct vision_watch){ 0 });
    atomic_fetch_add(&s->tower_ns, (long long)(1e9 * encoder_take_seconds(e)));
    return st;
}

enum pv_status session_media_rows(struct pv_session *s, const struct media_item *m, int row, int n,
                                  float *out, bool on_device, struct pv_error *err)
{
    size_t size =
        (size_t)n * (size_t)config_media_width(decoder_config(s->model->dec)) * sizeof *out;
    const float *kept;
    float *read = NULL;
    enum pv_status st = task_lock(s->task, s->model->step_lock, err);
    if (st)
        return st;
    kept = vision_cache_find(s->engine->tower_rows, m->m.digest, row, n);
    if (!kept)
        kept = read = read_rows(s, m, row, n);
    if (kept && on_device)
        s->model->dev->ops->upload(s->model->dev, out, kept, size);
    else if (kept)
        memcpy(out, kept, size);
    else
        st = run_tower(s, m, row, n, out, on_device, err);
    mem_free(read);
    pthread_mutex_unlock(s->model->step_lock);
    return st;
}
