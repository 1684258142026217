/* The size a Qwen processor gives a picture or the frames of a video: sides that are multiples of
 * the merged patch, an area within limits. The arithmetic is that of the Python original, double
 * for double and with its rounding half to even, because one pixel more or less on a side is
 * another number of tokens. */
#include "video/resize.h"

#include <math.h>

enum { MAX_ASPECT = 200, PAIR = 2 };

static enum pv_status check_sizes(int height, int width, int factor, int64_t max_pixels,
                                  struct pv_error *err)
{
    int longer = height > width ? height : width, shorter = height > width ? width : height;

    if (shorter < 1 || longer > RESIZE_MAX_SIDE)
        return fail(err, PV_E_ARG, "a picture of %d x %d pixels, sides must be 1 to %d", width,
                    height, RESIZE_MAX_SIDE);
    if (factor < 1 || factor > RESIZE_MAX_SIDE || max_pixels < 1)
        return fail(err, PV_E_ARG, "sides that are multiples of %d with at most %lld pixels",
                    factor, (long long)max_pixels);
    return PV_OK;
}

/* n pictures of h x w, counted as n_bar where sizes are rounded. Products of sizes are below 2^53:
 * exact. */
static enum pv_status fit(int *out_height, int *out_width, double n, double n_bar, double h,
                          double w, int factor, int64_t min_pixels, int64_t max_pixels,
                          struct pv_error *err)
{
    double f = factor, bar_h = rint(h / f) * f, bar_w = rint(w / f) * f, beta;

    if (fmax(h, w) / fmin(h, w) > MAX_ASPECT)
        return fail(err, PV_E_ARG,
                    "a picture of %.0f x %.0f pixels: one side is more than %d times the other", w,
                    h, MAX_ASPECT);
    if (n_bar * bar_h * bar_w > (double)max_pixels) {
        beta = sqrt(n * h * w / (double)max_pixels);
        bar_h = fmax(f, floor(h / beta / f) * f);
        bar_w = fmax(f, floor(w / beta / f) * f);
    } else if (n_bar * bar_h * bar_w < (double)min_pixels) {
        beta = sqrt((double)min_pixels / (n * h * w));
        bar_h = ceil(h * beta / f) * f;
        bar_w = ceil(w * beta / f) * f;
    }
    /* Without a lower limit the rounding above may have left nothing of a thin picture. */
    bar_h = fmax(f, bar_h);
    bar_w = fmax(f, bar_w);
    if (bar_h > RESIZE_MAX_SIDE || bar_w > RESIZE_MAX_SIDE)
        return fail(err, PV_E_LIMIT,
                    "at least %lld pixels make a picture of %.0f x %.0f %.0f x %.0f, "
                    "sides must be at most %d",
                    (long long)min_pixels, w, h, bar_w, bar_h, RESIZE_MAX_SIDE);
    *out_height = (int)bar_h;
    *out_width = (int)bar_w;
    return PV_OK;
}

enum pv_status smart_resize(int *out_height, int *out_width, int height, int width, int factor,
                            int64_t min_pixels, int64_t max_pixels, struct pv_error *err)
{
    enum pv_status s = check_sizes(height, width, factor, max_pixels, err);

    return s ? s
             : fit(out_height, out_width, 1, 1, height, width, factor, min_pixels, max_pixels, err);
}

enum pv_status smart_resize_video(int *out_height, int *out_width, int frames, int height,
                                  int width, int factor, int64_t min_pixels, int64_t max_pixels,
                                  struct pv_error *err)
{
    double h = height, w = width;
    enum pv_status s = check_sizes(height, width, factor, max_pixels, err);

    if (!s && (frames < PAIR || frames > RESIZE_MAX_FRAMES))
        s = fail(err, PV_E_ARG, "a video of %d frames, there must be %d to %d", frames, PAIR,
                 RESIZE_MAX_FRAMES);
    if (s)
        return s;
    if (height < factor || width < factor) {
        double scale = fmax(factor / h, factor / w);
        h = trunc(h * scale);
        w = trunc(w * scale);
    }
    return fit(out_height, out_width, frames, PAIR * rint((double)frames / PAIR), h, w, factor,
               min_pixels, max_pixels, err);
}
