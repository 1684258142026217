/* What the Qwen families have in common: pictures of any size within an area, cut into patches that
 * are merged, and positions of three numbers. */
#include "family/family_parts.h"

const char *const qwen_tokens[VISION_TOKENS] = {
    [VISION_IMAGE_TOKEN] = "<|image_pad|>",
    [VISION_VIDEO_TOKEN] = "<|video_pad|>",
    [VISION_START_TOKEN] = "<|vision_start|>",
    [VISION_END_TOKEN] = "<|vision_end|>",
};

/* Areas in merged tokens, that is in (patch * merge) squared pixels. */
enum {
    MIN_TOKENS = 128,
    MAX_TOKENS = 768,
    BUDGET_TOKENS = 115200 /* of a whole video: nine tenths of 128000 */
};

/* Bounds of a frame's area among n frames. */
static void video_area(const struct pv_video_params *p, int factor, int n, int64_t *min,
                       int64_t *max)
{
    int64_t unit = (int64_t)factor * factor;
    double share = (double)BUDGET_TOKENS * (double)unit / n * 2;
    int64_t least = p->min_pixels ? p->min_pixels : MIN_TOKENS * unit;
    int64_t most = MAX_TOKENS * unit;
    if (share < (double)most)
        most = (int64_t)share;
    if (most < (int64_t)(1.05 * (double)least))
        most = (int64_t)(1.05 * (double)least);
    if (p->max_pixels && p->max_pixels < most)
        most = p->max_pixels;
    /* A caller who asks for less than the family's least means it. */
    *min = least < most ? least : most;
    *max = most;
}

enum pv_status qwen_frame_size(struct frame_size *out, const struct vision_config *c,
                               const struct pv_video_params *p, int height, int width, int n_frames,
                               struct pv_error *err)
{
    struct frame_size r = { .kind = n_frames > 0 ? RESIZE_FLOAT : RESIZE_PILLOW };
    int factor = c->patch * c->merge;
    int64_t min, max;
    enum pv_status s;
    if (n_frames > 0) {
        video_area(p, factor, n_frames, &min, &max);
    } else {
        max = p->max_pixels ? p->max_pixels : c->max_pixels;
        min = p->min_pixels ? p->min_pixels : c->min_pixels;
        min = min < max ? min : max;
    }
    s = smart_resize(&r.height, &r.width, height, width, factor, min, max, err);
    if (!s)
        *out = r;
    return s;
}

const struct family_frames qwen_utils_frames = {
    .rule = CHOOSE_QWEN,
    .fps = 2,
    .min_frames = 4,
    .max_frames = 768,
    .size = qwen_frame_size,
};

enum pv_status qwen_plan(struct media *m, const struct vision_config *c,
                         const struct pv_video_params *p, double sample_fps, bool alone,
                         struct pv_error *err)
{
    (void)alone, (void)err;
    m->n_views = (m->n_views + c->temporal - 1) / c->temporal * c->temporal;
    m->n_slices = m->n_units = m->n_views / c->temporal;
    m->h = m->height / c->patch;
    m->w = m->width / c->patch;
    m->merged_h = m->h / c->merge;
    m->merged_w = m->line = m->w / c->merge;
    m->unit_rows = m->merged_h * m->merged_w;
    m->slice_seconds = m->video && sample_fps > 0 ? (float)(c->temporal / sample_fps) : 0;
    m->tokens_per_second = c->tokens_per_second;
    m->time_rule = p->time_rule == PV_TIME_AUTO ? PV_TIME_SECONDS : p->time_rule;
    return PV_OK;
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

/* Text may follow at positions below the largest of this media item. */
static bool is_compact(const struct media *m)
{
    return m->time_rule == PV_TIME_COMPACT || m->time_rule == PV_TIME_SECONDS_COMPACT;
}

int32_t qwen_positions(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3])
{
    int side = m->merged_h > m->merged_w ? m->merged_h : m->merged_w;
    int first = row / m->unit_rows, last = (row + n - 1) / m->unit_rows;
    for (int i = 0; i < n; i++) {
        int unit = (row + i) / m->unit_rows, at = (row + i) % m->unit_rows;
        pos[i][0] = start + slice_time(m, unit) - slice_time(m, first);
        pos[i][1] = start + at / m->merged_w;
        pos[i][2] = start + at % m->merged_w;
    }
    if (is_compact(m))
        return start + side;
    return start + 1 +
           max3(slice_time(m, last) - slice_time(m, first), m->merged_h - 1, m->merged_w - 1);
}
