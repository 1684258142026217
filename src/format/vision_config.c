/* The bounds and relations every vision tower's configuration must satisfy, whichever file it came
 * from. After vision_config_check the products later code forms (side * side, hidden * merge *
 * merge, 3 * temporal * patch * patch, ...) fit an int, and their products with each other an
 * int64_t. */
#include "format/vision_config.h"

#include "format/family.h"

#include <math.h>

enum {
    MAX_HIDDEN = 1 << 14,
    MAX_FFN = 1 << 17,
    MAX_HEADS = 1024,
    MAX_HEAD_DIM = 256,
    MAX_IMAGE = 1 << 13,  /* pixels of a side */
    MAX_WINDOW = 1 << 13, /* the same */
    MAX_OUT = 1 << 17,
    MAX_GRID_SIDE = 1 << 15, /* pixels of a still picture's side */
    MAX_TILES = 1 << 10,
    MAX_TOKEN = 1 << 22
};

static const char whose[] = "the vision tower's";
static const int64_t max_pixels = UINT32_MAX; /* GGUF stores 32 bits */

static enum pv_status check_pixels(const struct vision_config *c, const char *where,
                                   struct pv_error *err)
{
    for (int i = 0; i < 3; i++) {
        if (!isfinite(c->mean[i]) || fabsf(c->mean[i]) > 1000)
            return fail(err, PV_E_FORMAT, "%s: the image mean is %g, outside -1000 to 1000", where,
                        (double)c->mean[i]);
        if (!isfinite(c->std[i]) || c->std[i] < 1e-4f || c->std[i] > 1000)
            return fail(err, PV_E_FORMAT,
                        "%s: the image standard deviation is %g, outside 0.0001 to 1000", where,
                        (double)c->std[i]);
    }
    return PV_OK;
}

static enum pv_status check_fixed(const struct vision_config *c, const char *where,
                                  struct pv_error *err)
{
    const struct config_bound bounds[] = {
        { "input size", c->image, 1, MAX_IMAGE },
        { "number of frames in a patch", c->temporal, 1, 1 },
        { "merge size", c->merge, 1, 1 },
        { "number of still resolutions", c->n_grid, 1, VISION_MAX_GRID },
        { "number of tiles", c->max_tiles, 1, MAX_TILES },
    };
    enum pv_status s =
        config_check_bounds(bounds, sizeof bounds / sizeof *bounds, whose, where, err);

    if (s)
        return s;
    if (c->image < c->patch || vision_side(c) > VISION_MAX_POSITIONS / vision_side(c))
        return fail(err, PV_E_FORMAT, "%s: pictures of %d pixels cannot be cut into patches of %d",
                    where, c->image, c->patch);
    for (int i = 0; i < c->n_grid; i++)
        for (int j = 0; j < 2; j++)
            if (c->grid[i][j] < c->image || c->grid[i][j] > MAX_GRID_SIDE ||
                c->grid[i][j] % c->image)
                return fail(err, PV_E_FORMAT,
                            "%s: a side of %d pixels in image_grid_pinpoints is not a multiple of "
                            "the input size %d",
                            where, c->grid[i][j], c->image);
    return PV_OK;
}

static enum pv_status check_any_size(const struct vision_config *c, const char *where,
                                     struct pv_error *err)
{
    const struct config_bound bounds[] = {
        { "number of frames in a patch", c->temporal, 2, 2 },
        { "merge size", c->merge, 2, 2 },
        { "window size", c->window, c->family->tower->windows, MAX_WINDOW },
        { "number of learned positions", c->positions, c->family->tower->interpolated,
          VISION_MAX_POSITIONS },
        { "number of deepstack layers", c->n_deepstack, 0, VISION_MAX_DEEPSTACK },
    };
    int side = 0;
    enum pv_status s =
        config_check_bounds(bounds, sizeof bounds / sizeof *bounds, whose, where, err);

    if (s)
        return s;
    if (c->head_dim % 4) /* pairs of the row's and of the column's angles */
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: the vision tower's head dimension %d is not a multiple of 4", where,
                    c->head_dim);
    if (c->window % (c->patch * c->merge))
        return fail(err, PV_E_FORMAT,
                    "%s: the window size %d is not a multiple of %d merged patches of %d pixels",
                    where, c->window, c->merge, c->patch);
    if (c->min_pixels < 1 || c->max_pixels < c->min_pixels || c->max_pixels > max_pixels)
        return fail(err, PV_E_FORMAT, "%s: pictures of %lld to %lld pixels are not possible", where,
                    (long long)c->min_pixels, (long long)c->max_pixels);
    if (c->family->tower->video_max_pixels &&
        (c->video_min_pixels < 1 || c->video_max_pixels < c->video_min_pixels ||
         c->video_max_pixels > max_pixels))
        return fail(err, PV_E_FORMAT, "%s: videos of %lld to %lld pixels are not possible", where,
                    (long long)c->video_min_pixels, (long long)c->video_max_pixels);
    while (side * side < c->positions)
        side++;
    if (side * side != c->positions)
        return fail(err, PV_E_FORMAT,
                    "%s: the vision tower's %d learned positions are not a square grid", where,
                    c->positions);
    for (int i = 0; i < c->n_deepstack; i++)
        if (c->deepstack[i] < 0 || c->deepstack[i] >= c->n_layers ||
            (i > 0 && c->deepstack[i] <= c->deepstack[i - 1]))
            return fail(err, PV_E_FORMAT,
                        "%s: deepstack layer %d is not one of the tower's %d layers in rising "
                        "order",
                        where, c->deepstack[i], c->n_layers);
    if (c->family->tower->clock && (!isfinite(c->tokens_per_second) || c->tokens_per_second <= 0 ||
                                    c->tokens_per_second > 1000))
        return fail(err, PV_E_FORMAT, "%s: tokens_per_second is %g, outside 0 to 1000", where,
                    (double)c->tokens_per_second);
    return PV_OK;
}

enum pv_status vision_config_check(const struct vision_config *c, const char *where,
                                   struct pv_error *err)
{
    const struct config_bound bounds[] = {
        { "hidden size", c->hidden, 1, MAX_HIDDEN },
        { "number of layers", c->n_layers, 1, VISION_MAX_LAYERS },
        { "number of attention heads", c->n_heads, 1, MAX_HEADS },
        { "head dimension", c->head_dim, 2, MAX_HEAD_DIM },
        { "feed-forward size", c->ffn, 1, MAX_FFN },
        { "patch size", c->patch, 1, VISION_MAX_PATCH },
        { "output size", c->out, 1, MAX_OUT },
        { "image token", c->image_token, -1, MAX_TOKEN },
        { "video token", c->video_token, -1, MAX_TOKEN },
        { "start token", c->vision_start, -1, MAX_TOKEN },
        { "end token", c->vision_end, -1, MAX_TOKEN },
    };
    enum pv_status s;

    if (!c->family)
        return PV_OK;
    s = config_check_bounds(bounds, sizeof bounds / sizeof *bounds, whose, where, err);
    if (s)
        return s;
    if ((int64_t)c->n_heads * c->head_dim != c->hidden || c->head_dim % 2)
        return fail(err, PV_E_FORMAT,
                    "%s: %d heads of the vision tower do not share its hidden size %d evenly",
                    where, c->n_heads, c->hidden);
    if (!isfinite(c->eps) || c->eps <= 0 || c->eps > 0.1f)
        return fail(err, PV_E_FORMAT, "%s: the vision tower's norm epsilon is %g, outside 0 to 0.1",
                    where, (double)c->eps);
    s = check_pixels(c, where, err);
    if (s)
        return s;
    return c->family->tower->fixed ? check_fixed(c, where, err) : check_any_size(c, where, err);
}

int vision_whole_ffn(const struct vision_config *c, enum dtype t)
{
    int block = dtype_block(t);
    return (c->ffn + block - 1) / block * block;
}
