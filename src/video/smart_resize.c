/* The size a Qwen processor gives a picture: sides that are multiples of the merged patch, an area
 * within limits. The arithmetic is that of the Python original, double for double and with its
 * rounding half to even, because one pixel more or less on a side is another number of tokens. */
#include "video/resize.h"

#include <math.h>

enum { MAX_ASPECT = 200 };

enum pv_status smart_resize(int *out_height, int *out_width, int height, int width, int factor,
                            int64_t min_pixels, int64_t max_pixels, struct pv_error *err)
{
    double h = height, w = width, f = factor, bar_h, bar_w, beta;
    int longer = height > width ? height : width, shorter = height > width ? width : height;

    if (shorter < 1 || longer > RESIZE_MAX_SIDE)
        return fail(err, PV_E_ARG, "a picture of %d x %d pixels, sides must be 1 to %d", width,
                    height, RESIZE_MAX_SIDE);
    if (longer > MAX_ASPECT * shorter)
        return fail(err, PV_E_ARG,
                    "a picture of %d x %d pixels: one side is more than %d times "
                    "the other",
                    width, height, MAX_ASPECT);
    if (factor < 1 || factor > RESIZE_MAX_SIDE || max_pixels < 1)
        return fail(err, PV_E_ARG, "sides that are multiples of %d with at most %lld pixels",
                    factor, (long long)max_pixels);

    /* All products are below 2^53: exact. */
    bar_h = rint(h / f) * f;
    bar_w = rint(w / f) * f;
    if (bar_h * bar_w > (double)max_pixels) {
        beta = sqrt(h * w / (double)max_pixels);
        bar_h = fmax(f, floor(h / beta / f) * f);
        bar_w = fmax(f, floor(w / beta / f) * f);
    } else if (bar_h * bar_w < (double)min_pixels) {
        beta = sqrt((double)min_pixels / (h * w));
        bar_h = ceil(h * beta / f) * f;
        bar_w = ceil(w * beta / f) * f;
    }
    /* Without a lower limit the rounding above may have left nothing of a thin picture. */
    bar_h = fmax(f, bar_h);
    bar_w = fmax(f, bar_w);
    if (bar_h > RESIZE_MAX_SIDE || bar_w > RESIZE_MAX_SIDE)
        return fail(err, PV_E_LIMIT,
                    "at least %lld pixels make a picture of %d x %d %.0f x %.0f, "
                    "sides must be at most %d",
                    (long long)min_pixels, width, height, bar_w, bar_h, RESIZE_MAX_SIDE);
    *out_height = (int)bar_h;
    *out_width = (int)bar_w;
    return PV_OK;
}
