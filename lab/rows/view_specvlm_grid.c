/* The view `specvlm-grid`: SpecVLM's selection, thinned in two dimensions. Stage I is that of
 * specvlm. Stage II of specvlm spreads the rest of the budget evenly over the tokens by index,
 * which in a raster picks whole columns when the interval divides the width. Here the rest is
 * divided evenly among the frames, and within a frame over the cells of a grid whose cells are
 * about square. A cell takes the free token nearest to its centre. */
#include "base/mem.h"
#include "lab_views.h"

#include <math.h>

/* Keeps the free token of a frame nearest to (y, x), which are in units of tokens; the first of
 * equally near ones. A free token exists. */
static void keep_nearest(bool *kept, const struct view_input *in, double y, double x)
{
    int best = -1;
    double least = 0;
    for (int j = 0; j < in->frame_tokens; j++) {
        double dy = j / in->grid_width + 0.5 - y, dx = j % in->grid_width + 0.5 - x;
        double d = dy * dy + dx * dx;
        if (kept[j] || (best >= 0 && d >= least))
            continue;
        best = j;
        least = d;
    }
    kept[best] = true;
}

/* Keeps n more tokens of one frame; kept [frame_tokens] has room for them. */
static void keep_on_grid(bool *kept, const struct view_input *in, int n)
{
    int width = in->grid_width, height = in->frame_tokens / width;
    int rows = n > 0 ? (int)ceil(sqrt((double)n * height / width)) : 0;
    rows = rows > height ? height : rows;
    rows = rows > n ? n : rows;
    for (int r = 0; r < rows; r++) {
        int some = (int)((int64_t)(r + 1) * n / rows - (int64_t)r * n / rows);
        for (int i = 0; i < some; i++)
            keep_nearest(kept, in, (r + 0.5) * height / rows, (i + 0.5) * width / some);
    }
}

static int count_free(const bool *kept, int n)
{
    int count = 0;
    for (int j = 0; j < n; j++)
        count += !kept[j];
    return count;
}

/* n more tokens: an equal part from each frame, and from the next ones what a frame lacks. */
static void keep_in_frames(struct marks *k, const struct view_input *in, int n)
{
    int frames = in->n_frames, owed = 0;
    for (int f = 0; f < 2 * frames && (f < frames || owed > 0); f++) {
        int part = f < frames ? (int)((int64_t)(f + 1) * n / frames - (int64_t)f * n / frames) : 0;
        bool *kept = k->kept + (size_t)(f % frames) * (size_t)in->frame_tokens;
        int room = count_free(kept, in->frame_tokens), wanted = part + owed;
        int some = wanted < room ? wanted : room;
        keep_on_grid(kept, in, some);
        owed = wanted - some;
    }
}

enum pv_status view_specvlm_grid(const struct view_input *in, struct view_choice *out,
                                 struct pv_error *err)
{
    int m = view_tokens(in), budget = view_budget(m, in->ratio);
    size_t size = (size_t)m * sizeof(int);
    struct view_choice first = { .kept = mem_alloc(size) };
    struct view_input top = *in;
    struct marks k;
    enum pv_status s = first.kept ? marks_open(&k, m, 1, err) : fail_nomem(err, size);
    if (s) {
        mem_free(first.kept);
        return s;
    }
    s = view_specvlm(in, &first, err); /* for the size of stage I */
    top.ratio = 1 - (double)first.stage1 / m;
    if (!s)
        s = view_attention(&top, &first, err);
    for (int i = 0; i < first.n && !s; i++)
        k.kept[first.kept[i]] = true;
    if (!s) {
        keep_in_frames(&k, in, budget - first.n);
        marks_collect(&k, m, out);
        out->stage1 = first.n;
    }
    marks_close(&k);
    mem_free(first.kept);
    return s;
}
