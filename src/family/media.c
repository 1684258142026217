/* A medium: planned by its family, padded, sealed and compared. */
#include "family/media.h"

#include "base/mem.h"
#include "format/family.h"
#include "lm/positions.h"

#include <string.h>

enum { MAX_ASPECT = 200 };

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

size_t media_size(const struct media *m)
{
    return (size_t)m->n_views * (size_t)m->height * (size_t)m->width * 3;
}

int media_run_left(const struct media *m, int row, int n)
{
    int left = m->run_rows - row % m->run_rows;
    return left < n ? left : n;
}

enum pv_status media_reserve(struct media *m, struct pv_error *err)
{
    m->rgb = mem_alloc(media_size(m));
    return m->rgb ? PV_OK : fail_nomem(err, media_size(m));
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
    mem_free(m->rgb);
    media_origin_close(m->origin);
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
           a->slice_seconds == b->slice_seconds && a->time_rule == b->time_rule &&
           a->tiling.rows == b->tiling.rows && a->tiling.cols == b->tiling.cols &&
           a->source_height == b->source_height && a->source_width == b->source_width;
}

bool media_equal(const struct media *a, const struct media *b)
{
    return plan_equal(a, b) && !memcmp(a->digest, b->digest, DIGEST_SIZE);
}

void media_seal(struct media *m)
{
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
    struct digest d;
    digest_init(&d);
    digest_add(&d, plan, sizeof plan);
    digest_add(&d, m->rgb, media_size(m));
    digest_finish(&d, m->digest);
}

int32_t media_positions(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3])
{
    if (m->family->media->positions)
        return m->family->media->positions(m, start, row, n, pos);
    return positions_text(pos, start, n);
}
