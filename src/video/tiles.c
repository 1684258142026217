/* Still pictures for LLaVA-OneVision: choosing the resolution, then resizing (Pillow's way) and
 * cutting. All choices are in double, as in the Python original, since a pixel of the inner size
 * decides how many tokens remain when the border is taken off again. */
#include "video/tiles.h"

#include "base/mem.h"
#include "video/resize.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The picture's size after it is fitted into target_h x target_w. */
static void inner_size(struct tiling *t, int height, int width, int target_h, int target_w)
{
    double scale_w = (double)target_w / width, scale_h = (double)target_h / height;

    if (scale_w < scale_h) {
        t->inner_width = target_w;
        t->inner_height = (int)fmin(ceil(height * scale_w), target_h);
    } else {
        t->inner_height = target_h;
        t->inner_width = (int)fmin(ceil(width * scale_h), target_w);
    }
}

struct tiling tiling_choose(int height, int width, const int (*grid)[2], int n, int side)
{
    int64_t area = (int64_t)height * width, most = -1, least = 0;
    struct tiling t = { 0 };
    int best = 0;

    assert(n >= 1 && height >= 1 && width >= 1);
    for (int i = 0; i < n; i++) {
        double scale = fmin((double)grid[i][1] / width, (double)grid[i][0] / height);
        int64_t kept = (int64_t)(width * scale) * (int64_t)(height * scale), wasted;
        kept = kept < area ? kept : area;
        wasted = (int64_t)grid[i][0] * grid[i][1] - kept;
        if (kept > most || (kept == most && wasted < least)) {
            most = kept;
            least = wasted;
            best = i;
        }
    }
    t.rows = grid[best][0] / side;
    t.cols = grid[best][1] / side;
    inner_size(&t, height, width, grid[best][0], grid[best][1]);
    return t;
}

static enum pv_status resize_to(uint8_t *out, const struct image *picture, int height, int width,
                                struct pv_error *err)
{
    struct resizer *r = NULL;
    enum pv_status s =
        resizer_open(&r, RESIZE_PILLOW, picture->height, picture->width, height, width, err);
    if (s)
        return s;
    resizer_run(r, out, picture->rgb);
    resizer_close(&r);
    return PV_OK;
}

/* Copies the part of the inner picture that lies on tile (row, col); the rest of it is black. */
static void tile_cut(uint8_t *out, const struct tiling *t, const uint8_t *inner, int side, int row,
                     int col)
{
    int top = (t->rows * side - t->inner_height) / 2, left = (t->cols * side - t->inner_width) / 2;
    int from = col * side > left ? col * side : left;
    int right = left + t->inner_width, end = (col + 1) * side < right ? (col + 1) * side : right;

    memset(out, 0, (size_t)side * (size_t)side * 3);
    for (int i = 0; i < side && from < end; i++) {
        int y = row * side + i - top;
        if (y < 0 || y >= t->inner_height)
            continue;
        memcpy(out + ((size_t)i * (size_t)side + (size_t)(from - col * side)) * 3,
               inner + ((size_t)y * (size_t)t->inner_width + (size_t)(from - left)) * 3,
               (size_t)(end - from) * 3);
    }
}

enum pv_status tiles_make(uint8_t *out, const struct tiling *t, const struct image *picture,
                          int side, struct pv_error *err)
{
    size_t view = (size_t)side * (size_t)side * 3, size;
    uint8_t *inner;
    enum pv_status s;

    if (!mul_size((size_t)t->inner_height * 3, (size_t)t->inner_width, &size))
        return fail(err, PV_E_LIMIT, "a picture resized to %d x %d pixels does not fit in memory",
                    t->inner_width, t->inner_height);
    inner = mem_alloc(size);
    if (!inner)
        return fail_nomem(err, size);
    s = resize_to(inner, picture, t->inner_height, t->inner_width, err);
    if (!s)
        s = resize_to(out, picture, side, side, err);
    for (int i = 0; !s && i < t->rows * t->cols; i++)
        tile_cut(out + view * (size_t)(i + 1), t, inner, side, i / t->cols, i % t->cols);
    mem_free(inner);
    return s;
}

/* The square around a picture, row by row: as a whole a thin picture's would not fit in memory. */
struct square {
    const struct image *picture;
    int top, left;
    size_t row_len; /* of the picture, bytes */
    uint8_t *row;   /* [longer side, 3]: the picture's row between two borders */
    uint8_t *blank; /* the same, all border */
};

static const uint8_t *square_row(void *user, int y)
{
    const struct square *q = user;
    if (y < q->top || y >= q->top + q->picture->height)
        return q->blank;
    memcpy(q->row + (size_t)q->left * 3, q->picture->rgb + (size_t)(y - q->top) * q->row_len,
           q->row_len);
    return q->row;
}

/* int(255 * mean); a mean that is k / 255 may have become a little less than it in float. */
static uint8_t border_value(float mean)
{
    float v = mean * 255.0f + 1e-4f;
    return (uint8_t)(v > 0 ? v < 255 ? v : 255 : 0);
}

enum pv_status square_make(uint8_t *out, const struct image *picture, int side, const float mean[3],
                           struct pv_error *err)
{
    int longer = picture->height > picture->width ? picture->height : picture->width;
    struct square q = { .picture = picture, .row_len = (size_t)picture->width * 3 };
    struct resizer *r = NULL;
    enum pv_status s;

    if (picture->height < 1 || picture->width < 1)
        return fail(err, PV_E_ARG, "a picture of %d x %d pixels", picture->width, picture->height);
    s = resizer_open(&r, RESIZE_PILLOW, longer, longer, side, side, err);
    if (s)
        return s;
    q.row = mem_alloc((size_t)longer * 6);
    if (!q.row) {
        s = fail_nomem(err, (size_t)longer * 6);
        goto close;
    }
    q.blank = q.row + (size_t)longer * 3;
    q.top = (longer - picture->height) / 2;
    q.left = (longer - picture->width) / 2;
    for (size_t i = 0; i < (size_t)longer * 6; i++)
        q.row[i] = border_value(mean[i % 3]);
    resizer_run_rows(r, out, square_row, &q);
    mem_free(q.row);
close:
    resizer_close(&r);
    return s;
}
