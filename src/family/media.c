/* A media item: planned by its family, padded, sealed and compared. */
#include "family/media.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/work_queue.h"
#include "format/family.h"
#include "lm/positions.h"

#include <string.h>

enum { MAX_ASPECT = 200 };
enum { SEAL_THREADS = 16, SEAL_ALONE = 1 << 20 /* bytes: fewer are not worth threads */ };

/* The Qwen families' rule; elsewhere a bound on the square that a thin picture would be put on. */
static enum pv_status check_aspect(int height, int width, struct pv_error *err)
{
    int longer = height > width ? height : width, shorter = height > width ? width : height;
    if (longer > (int64_t)MAX_ASPECT * shorter)
        return fail(err, PV_E_ARG,
                    "a picture of %d x %d pixels is more than %d times as long as "
                    "it is wide",
                    width, height, MAX_ASPECT);
    return PV_OK;
}

/* Rules of models that hear, and of those that do not. */
static enum pv_status check_time_rule(const struct family *f, const struct pv_video_params *p,
                                      struct pv_error *err)
{
    bool hears = p->time_rule == PV_TIME_UPSTREAM || p->time_rule == PV_TIME_TRAINING;
    if (p->time_rule != PV_TIME_AUTO && hears != (f->audio_encoder != NULL))
        return fail(err, PV_E_ARG, "time rule %d is not one of %s", (int)p->time_rule, f->title);
    return PV_OK;
}

enum pv_status media_plan(struct media *m, const struct vision_config *c,
                          const struct pv_video_params *p, int height, int width, int n_frames,
                          double sample_fps, bool alone, struct pv_error *err)
{
    struct media r = { .family = c->family,
                       .video = n_frames > 0,
                       .n_views = n_frames > 0 ? n_frames : 1,
                       .source_height = height,
                       .source_width = width };
    struct frame_size size = { 0 };
    int64_t rows;
    enum pv_status s = check_aspect(height, width, err);
    if (!s)
        s = check_time_rule(c->family, p, err);
    if (!s)
        s = frame_policy_size(&size, c, p, height, width, n_frames, err);
    if (s)
        return s;
    r.height = size.height;
    r.width = size.width;
    r.resize = size.kind;
    s = c->family->media->plan(&r, c, p, sample_fps, alone, err);
    if (s)
        return s;
    rows = (int64_t)r.n_units * r.unit_rows + r.newline;
    if (rows > CONFIG_MAX_CONTEXT)
        return fail(err, PV_E_LIMIT, "%d frames of %d x %d pixels are %lld tokens, too many",
                    r.n_views, r.width, r.height, (long long)rows);
    r.n_rows = (int)rows;
    r.run_rows = r.run_rows ? r.run_rows : r.n_rows;
    *m = r;
    return PV_OK;
}

/* ---- sound ---- */

enum pv_status media_add_sound(struct media *m, const struct vision_config *c, int n_chunks,
                               struct pv_error *err)
{
    int64_t rows;
    if (n_chunks == 0)
        return PV_OK;
    rows = (int64_t)n_chunks * audio_chunk_tokens(&c->audio);
    if (rows + m->n_rows > CONFIG_MAX_CONTEXT)
        return fail(err, PV_E_LIMIT, "%d chunks of sound are %lld tokens, too many", n_chunks,
                    (long long)rows);
    m->sound = (struct media_sound){ .n_chunks = n_chunks,
                                     .chunk_rows = audio_chunk_tokens(&c->audio),
                                     .chunk_size = c->audio.mel * audio_chunk_frames(&c->audio) };
    m->n_rows += (int)rows;
    m->run_rows = m->n_rows;
    return PV_OK;
}

enum pv_status media_plan_sound(struct media *m, const struct vision_config *c,
                                const struct pv_video_params *p, int n_chunks, struct pv_error *err)
{
    struct media r = { .family = c->family };
    enum pv_status s = check_time_rule(c->family, p, err);
    if (s)
        return s;
    r.time_rule = p->time_rule == PV_TIME_AUTO ? PV_TIME_UPSTREAM : p->time_rule;
    s = media_add_sound(&r, c, n_chunks, err);
    if (!s)
        *m = r;
    return s;
}

int media_picture_rows(const struct media *m)
{
    return m->n_rows - media_sound_rows(m);
}

int media_sound_rows(const struct media *m)
{
    return m->sound.n_chunks * m->sound.chunk_rows;
}

/* Rows of sound before slice t: by the clock, and after the last slice all that is left. */
static int sound_before(const struct media *m, int t)
{
    int all = media_sound_rows(m);
    float at = (float)t * m->slice_seconds * m->tokens_per_second;
    return t >= m->n_units || at >= (float)all ? all : (int)at;
}

/* Where slice t begins in the prompt. */
static int slice_place(const struct media *m, int t)
{
    return t * m->unit_rows + sound_before(m, t);
}

/* The last slice of which `before` is at most n. */
static int last_slice(const struct media *m, int n, int (*before)(const struct media *m, int t))
{
    int low = 0, high = m->n_units - 1;
    while (low < high) {
        int mid = low + (high - low + 1) / 2;
        if (before(m, mid) <= n)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

int media_row(const struct media *m, int place, int *n)
{
    int t, at, row, left;
    if (media_sound_rows(m) == 0 || m->n_units == 0) {
        row = place;
        left = m->n_rows - place;
        if (m->run_rows < m->n_rows)
            left = m->run_rows - place % m->run_rows;
    } else {
        t = last_slice(m, place, slice_place);
        at = place - slice_place(m, t);
        row = t * m->unit_rows + at;
        left = m->unit_rows - at;
        if (left <= 0) {
            row = media_picture_rows(m) + sound_before(m, t) + at - m->unit_rows;
            left = slice_place(m, t + 1) - place;
        }
    }
    if (n)
        *n = left;
    return row;
}

int media_place(const struct media *m, int row)
{
    int sound = row - media_picture_rows(m);
    if (media_sound_rows(m) == 0 || m->n_units == 0)
        return row;
    if (sound < 0)
        return row + sound_before(m, row / m->unit_rows);
    return (last_slice(m, sound, sound_before) + 1) * m->unit_rows + sound;
}

int media_stretches(const struct media *m)
{
    if (media_sound_rows(m) == 0 || m->n_units == 0)
        return m->n_rows / m->run_rows;
    return 2 * m->n_units;
}

struct media_unit media_unit(const struct media *m, int row)
{
    int sound = row - media_picture_rows(m), chunk;
    if (sound >= 0) {
        chunk = sound / m->sound.chunk_rows;
        return (struct media_unit){ .number = m->n_units + chunk,
                                    .first = row - sound % m->sound.chunk_rows,
                                    .n = m->sound.chunk_rows };
    }
    if (row >= m->n_units * m->unit_rows)
        return (struct media_unit){ .number = -1, .first = row, .n = 1 };
    return (struct media_unit){ .number = row / m->unit_rows,
                                .first = row - row % m->unit_rows,
                                .n = m->unit_rows };
}

int media_units(const struct media *m)
{
    return m->n_units + m->sound.n_chunks;
}

/* ---- memory ---- */

size_t media_size(const struct media *m)
{
    return (size_t)m->n_views * (size_t)m->height * (size_t)m->width * 3;
}

size_t media_sound_size(const struct media *m)
{
    return (size_t)m->sound.n_chunks * (size_t)m->sound.chunk_size * sizeof *m->sound.mel;
}

bool media_is_loaded(const struct media *m)
{
    return (m->rgb || m->n_views == 0) && (m->sound.mel || m->sound.n_chunks == 0);
}

static enum pv_status open_store(struct media *m, struct pv_error *err)
{
    m->store = mem_zalloc(sizeof *m->store);
    if (!m->store)
        return fail_nomem(err, sizeof *m->store);
    atomic_init(&m->store->copies, 1);
    pthread_mutex_init(&m->store->lock, NULL);
    return PV_OK;
}

enum pv_status media_reserve(struct media *m, struct pv_error *err)
{
    enum pv_status s = open_store(m, err);
    if (s)
        return s;
    if (m->n_views > 0) {
        m->rgb = m->store->rgb = mem_alloc(media_size(m));
        if (!m->rgb)
            return fail_nomem(err, media_size(m));
    }
    if (m->sound.n_chunks > 0) {
        m->sound.mel = m->store->mel = mem_alloc(media_sound_size(m));
        if (!m->sound.mel)
            return fail_nomem(err, media_sound_size(m));
    }
    return PV_OK;
}

enum pv_status media_put_off(struct media *m, struct media_origin *o, struct pv_error *err)
{
    enum pv_status s = open_store(m, err);
    if (s)
        media_origin_close(o);
    else
        m->store->origin = o;
    return s;
}

struct media media_copy(const struct media *m)
{
    if (m->store)
        atomic_fetch_add(&m->store->copies, 1);
    return *m;
}

void media_origin_close(struct media_origin *o)
{
    if (!o)
        return;
    mem_free(o->path);
    mem_free(o->data);
    mem_free(o->allow_formats);
    mem_free(o->media_helper);
    mem_free(o);
}

void media_clear(struct media *m)
{
    struct media_store *store = m->store;
    if (store && atomic_fetch_sub(&store->copies, 1) == 1) {
        mem_free(store->rgb);
        mem_free(store->mel);
        media_origin_close(store->origin);
        pthread_mutex_destroy(&store->lock);
        mem_free(store);
    }
    *m = (struct media){ 0 };
}

uint8_t *media_view(const struct media *m, int i)
{
    return m->rgb + (size_t)i * (size_t)m->height * (size_t)m->width * 3;
}

void media_pad(struct media *m, int n_frames)
{
    for (int i = n_frames; i < m->n_views; i++)
        memcpy(media_view(m, i), media_view(m, n_frames - 1), media_size(m) / (size_t)m->n_views);
}

static bool plan_equal(const struct media *a, const struct media *b)
{
    return a->family == b->family && a->video == b->video && a->height == b->height &&
           a->width == b->width && a->n_views == b->n_views && a->n_rows == b->n_rows &&
           a->sound.n_chunks == b->sound.n_chunks && a->slice_seconds == b->slice_seconds &&
           a->time_rule == b->time_rule && a->tiling.rows == b->tiling.rows &&
           a->tiling.cols == b->tiling.cols && a->source_height == b->source_height &&
           a->source_width == b->source_width;
}

bool media_equal(const struct media *a, const struct media *b)
{
    return plan_equal(a, b) && !memcmp(a->digest, b->digest, DIGEST_SIZE);
}

/* The views, by whichever thread is free: copied from where they are given, and named each. */
struct sealing {
    struct media *m;
    const uint8_t *from;            /* NULL: they are there */
    uint8_t (*digest)[DIGEST_SIZE]; /* [n_views] */
    struct work_queue views;
};

static void seal_view(const struct sealing *s, int view, uint8_t digest[DIGEST_SIZE])
{
    const struct media *m = s->m;
    size_t size = (size_t)m->height * (size_t)m->width * 3;
    struct digest d;
    if (s->from)
        memcpy(media_view(m, view), s->from + (size_t)view * size, size);
    digest_init(&d);
    digest_add(&d, media_view(m, view), size);
    digest_finish(&d, digest);
}

static void seal_views(void *ctx, int thread, int n_threads)
{
    struct sealing *s = ctx;
    (void)thread, (void)n_threads;
    for (int i = work_next(&s->views); i >= 0; i = work_next(&s->views))
        seal_view(s, i, s->digest[i]);
}

/* False: not worth it, or no memory. */
static bool seal_together(struct sealing *s, int threads)
{
    struct pool *pool = NULL;
    threads = threads < SEAL_THREADS ? threads : SEAL_THREADS;
    threads = threads < s->m->n_views ? threads : s->m->n_views;
    if (threads < 2 || media_size(s->m) < SEAL_ALONE)
        return false;
    s->digest = mem_alloc((size_t)s->m->n_views * sizeof *s->digest);
    if (!s->digest || pool_open(&pool, threads, NULL)) {
        mem_free(s->digest);
        s->digest = NULL;
        return false;
    }
    work_init(&s->views, s->m->n_views);
    pool_run(pool, seal_views, s);
    pool_close(&pool);
    return true;
}

/* The digest of how it is cut and of the digests of its views, which can be made side by side. */
static void seal(struct sealing *s, int threads)
{
    struct media *m = s->m;
    const int32_t plan[] = { (int32_t)m->family->number,
                             m->video,
                             m->height,
                             m->width,
                             m->n_views,
                             m->n_slices,
                             m->h,
                             m->w,
                             m->unit_rows,
                             m->n_units,
                             m->newline,
                             m->n_rows,
                             m->merged_h,
                             m->merged_w,
                             m->tiling.rows,
                             m->tiling.cols,
                             m->source_height,
                             m->source_width };
    const int32_t sound[] = { m->sound.n_chunks, m->sound.chunk_rows, m->sound.chunk_size };
    uint8_t view[DIGEST_SIZE];
    struct digest d;
    bool made = seal_together(s, threads);
    digest_init(&d);
    digest_add(&d, plan, sizeof plan);
    for (int i = 0; i < m->n_views; i++) {
        if (!made)
            seal_view(s, i, view);
        digest_add(&d, made ? s->digest[i] : view, DIGEST_SIZE);
    }
    if (m->sound.n_chunks > 0) {
        digest_add(&d, sound, sizeof sound);
        digest_add(&d, m->sound.mel, media_sound_size(m));
    }
    digest_finish(&d, m->digest);
    mem_free(s->digest);
}

void media_seal(struct media *m)
{
    struct sealing s = { .m = m };
    seal(&s, 1);
}

void media_take_pixels(struct media *m, const uint8_t *rgb, int threads)
{
    struct sealing s = { .m = m, .from = rgb };
    seal(&s, threads);
}

int32_t media_positions(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3])
{
    if (m->family->media->positions)
        return m->family->media->positions(m, start, row, n, pos);
    return positions_text(pos, start, n);
}
