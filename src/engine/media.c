/* Geometry of media. A LLaVA-OneVision frame is one slice of side x side patches, pooled to a
 * quarter; a video ends with a newline row. A Qwen2.5-VL slice is a pair of frames; its rows carry
 * three position numbers. */
#include "engine/media.h"

#include "base/mem.h"
#include "vision/llava.h"

#include <string.h>

enum { MAX_ASPECT = 200 };

static enum pv_status plan_llava(struct media *m, const struct vision_config *c, bool alone,
                                 struct pv_error *err)
{
    int side = vision_side(c);
    if (m->video) {
        m->n_slices = m->n_units = m->n_views;
        m->unit_rows = llava_frame_tokens(c);
        m->newline = true;
    } else {
        m->height = m->width = c->image;
        if (alone && c->n_grid > 0) {
            m->tiling = tiling_choose(m->source_height, m->source_width, (const int(*)[2])c->grid,
                                      c->n_grid, c->image);
            m->n_views = 1 + m->tiling.rows * m->tiling.cols;
            m->unit_rows = llava_image_tokens(c, &m->tiling, m->source_height, m->source_width);
        } else {
            m->n_views = 1;
            m->unit_rows = side * side + 1;
        }
        m->n_slices = m->n_views;
        m->n_units = 1;
    }
    if (m->unit_rows < 1)
        return fail(err, PV_E_ARG, "a picture of %d x %d pixels leaves no tokens", m->source_width,
                    m->source_height);
    m->h = m->w = side;
    return PV_OK;
}

static void plan_qwen(struct media *m, const struct vision_config *c,
                      const struct pv_video_params *p, double sample_fps)
{
    m->n_views = (m->n_views + c->temporal - 1) / c->temporal * c->temporal;
    m->n_slices = m->n_units = m->n_views / c->temporal;
    m->h = m->height / c->patch;
    m->w = m->width / c->patch;
    m->merged_h = m->h / c->merge;
    m->merged_w = m->w / c->merge;
    m->unit_rows = m->merged_h * m->merged_w;
    m->slice_seconds = m->video && sample_fps > 0 ? (float)(c->temporal / sample_fps) : 0;
    m->tokens_per_second = c->tokens_per_second;
    m->time_rule = p->time_rule == PV_TIME_AUTO ? PV_TIME_SECONDS : p->time_rule;
}

/* Qwen's rule, and for LLaVA a bound on the square a thin picture would be put on. */
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
    struct media r = { .kind = c->kind,
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
    if (c->kind == VISION_LLAVA)
        s = plan_llava(&r, c, alone, err);
    else
        plan_qwen(&r, c, p, sample_fps);
    if (s)
        return s;
    rows = (int64_t)r.n_units * r.unit_rows + r.newline;
    if (rows > CONFIG_MAX_CONTEXT)
        return fail(err, PV_E_LIMIT, "%d frames of %d x %d pixels are %lld tokens, too many",
                    r.n_views, r.width, r.height, (long long)rows);
    r.n_rows = (int)rows;
    *m = r;
    return PV_OK;
}

size_t media_size(const struct media *m)
{
    return (size_t)m->n_views * (size_t)m->height * (size_t)m->width * 3;
}

enum pv_status media_reserve(struct media *m, struct pv_error *err)
{
    m->rgb = mem_alloc(media_size(m));
    return m->rgb ? PV_OK : fail_nomem(err, media_size(m));
}

static void close_origin(struct media_origin *o)
{
    if (!o)
        return;
    mem_free(o->path);
    mem_free(o->data);
    mem_free(o);
}

void media_clear(struct media *m)
{
    mem_free(m->rgb);
    close_origin(m->origin);
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
    return a->kind == b->kind && a->video == b->video && a->height == b->height &&
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
    const int32_t plan[] = { (int32_t)m->kind, m->video,       m->height,      m->width,
                             m->n_views,       m->n_slices,    m->h,           m->w,
                             m->unit_rows,     m->n_units,     m->newline,     m->n_rows,
                             m->merged_h,      m->merged_w,    m->tiling.rows, m->tiling.cols,
                             m->source_height, m->source_width };
    struct digest d;
    digest_init(&d);
    digest_add(&d, plan, sizeof plan);
    digest_add(&d, m->rgb, media_size(m));
    digest_finish(&d, m->digest);
}

/* The time of slice t, in position units. */
static int32_t slice_time(const struct media *m, int t)
{
    if (m->time_rule == PV_TIME_SECONDS || m->time_rule == PV_TIME_SECONDS_COMPACT)
        return (int32_t)((float)t * m->slice_seconds * m->tokens_per_second);
    return (int32_t)((float)t * (float)(int64_t)m->slice_seconds * m->tokens_per_second);
}

static int32_t max3(int32_t a, int32_t b, int32_t c)
{
    int32_t ab = a > b ? a : b;
    return ab > c ? ab : c;
}

/* Text may follow at positions below the largest of this medium. */
static bool is_compact(const struct media *m)
{
    return m->time_rule == PV_TIME_COMPACT || m->time_rule == PV_TIME_SECONDS_COMPACT;
}

int media_grid_width(const struct media *m)
{
    int side = 1;
    while (side * side < m->unit_rows)
        side++;
    return m->kind == VISION_LLAVA ? side : m->merged_w;
}

int32_t media_positions(const struct media *m, int32_t start, int32_t (*pos)[3])
{
    int side = m->merged_h > m->merged_w ? m->merged_h : m->merged_w, row = 0;
    if (m->kind != VISION_QWEN2_5) {
        for (int i = 0; i < m->n_rows; i++)
            pos[i][0] = pos[i][1] = pos[i][2] = start + i;
        return start + m->n_rows;
    }
    for (int t = 0; t < m->n_slices; t++)
        for (int y = 0; y < m->merged_h; y++)
            for (int x = 0; x < m->merged_w; x++, row++) {
                pos[row][0] = start + slice_time(m, t);
                pos[row][1] = start + y;
                pos[row][2] = start + x;
            }
    if (is_compact(m))
        return start + side;
    return start + 1 + max3(slice_time(m, m->n_slices - 1), m->merged_h - 1, m->merged_w - 1);
}
