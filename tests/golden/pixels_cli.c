/* pixels_cli: pictures in, pixels out, for tools/golden/pixels_check.py.
 *
 * Input: requests, each eight 32-bit numbers (what, height, width, then five that depend on `what`,
 * below) and the pixels. Output: for each, eight numbers (the status, then sizes) and the result.
 * Numbers are little-endian. With a number N as argument each resizing is done N times and the
 * fastest is told on stderr. */
#include "base/mem.h"
#include "video/patches.h"
#include "video/resize.h"
#include "video/tiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum what {
    WHAT_PILLOW,  /* out_height, out_width -> pixels */
    WHAT_FLOAT,   /* the same */
    WHAT_TILES,   /* side, n: a grid of side * 1..n by side * 1..n -> tiling, views */
    WHAT_SQUARE,  /* side -> a view; mean 0.5 */
    WHAT_PATCHES, /* patch, temporal, merge -> rows of float; mean and std of CLIP */
    WHAT_SMART    /* factor, min, max -> height, width; no pixels */
};

enum { MAX_GRID = 8 };

static int repeats = 1;

/* CPU seconds: other programs disturb these less. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(size_t size)
{
    void *p = malloc(size ? size : 1);
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static void answer(int32_t *reply, const void *data, size_t size)
{
    fwrite(reply, sizeof *reply, 8, stdout);
    fwrite(data, 1, reply[0] ? 0 : size, stdout);
    fflush(stdout); /* the reader waits for it before it asks again */
}

static void do_resize(const int32_t *q, const uint8_t *rgb, struct pv_error *err)
{
    int32_t reply[8] = { 0, q[3], q[4] };
    size_t size = (size_t)q[3] * (size_t)q[4] * 3;
    uint8_t *out = need(size);
    struct resizer *r = NULL;
    double best = 1e9, began = now();
    enum resize_kind kind = q[0] == WHAT_FLOAT ? RESIZE_FLOAT : RESIZE_PILLOW;

    reply[0] = (int32_t)resizer_open(&r, kind, q[1], q[2], q[3], q[4], err);
    double opened = now() - began;
    for (int i = 0; r && i < repeats; i++) {
        began = now();
        resizer_run(r, out, rgb);
        best = now() - began < best ? now() - began : best;
    }
    if (repeats > 1)
        fprintf(stderr, "%s %d x %d to %d x %d: open %.3f ms, run %.3f ms\n",
                kind == RESIZE_FLOAT ? "float" : "pillow", (int)q[2], (int)q[1], (int)q[4],
                (int)q[3], 1e3 * opened, 1e3 * best);
    resizer_close(&r);
    answer(reply, out, size);
    free(out);
}

static void do_tiles(const int32_t *q, const struct image *picture, struct pv_error *err)
{
    int side = q[3], n = q[4] < MAX_GRID ? q[4] : MAX_GRID, grid[MAX_GRID * MAX_GRID][2];

    for (int i = 0; i < n * n; i++) {
        grid[i][0] = side * (i / n + 1);
        grid[i][1] = side * (i % n + 1);
    }
    struct tiling t =
        tiling_choose(picture->height, picture->width, (const int(*)[2])grid, n * n, side);
    size_t size = (size_t)(1 + t.rows * t.cols) * (size_t)side * (size_t)side * 3;
    uint8_t *out = need(size);
    int32_t reply[8] = { (int32_t)tiles_make(out, &t, picture, side, err), t.rows, t.cols,
                         t.inner_height, t.inner_width };
    answer(reply, out, size);
    free(out);
}

static void do_square(const int32_t *q, const struct image *picture, struct pv_error *err)
{
    static const float mean[3] = { 0.5f, 0.5f, 0.5f };
    size_t size = (size_t)q[3] * (size_t)q[3] * 3;
    uint8_t *out = need(size);
    int32_t reply[8] = { (int32_t)square_make(out, picture, q[3], mean, err), q[3], q[3] };
    answer(reply, out, size);
    free(out);
}

/* The frames lie one below the other: height is that of all `temporal` together. */
static void do_patches(const int32_t *q, const uint8_t *rgb)
{
    struct patch_plan p = { q[3],
                            q[4],
                            q[5],
                            { 0.48145466f, 0.4578275f, 0.40821073f },
                            { 0.26862954f, 0.26130258f, 0.27577711f } };
    int height = q[1] / p.temporal;
    int32_t reply[8] = { 0, height / p.patch * (q[2] / p.patch), patch_row_size(&p) };
    size_t size = (size_t)reply[1] * (size_t)reply[2] * sizeof(float);
    const uint8_t *frames[2] = { rgb, rgb + (size_t)(p.temporal - 1) * (size_t)height *
                                                (size_t)q[2] * 3 };
    float *out = need(size);
    patches_make(out, &p, frames, height, q[2]);
    answer(reply, out, size);
    free(out);
}

static void do_smart(const int32_t *q, struct pv_error *err)
{
    int height = 0, width = 0;
    int32_t reply[8] = { (int32_t)smart_resize(&height, &width, q[1], q[2], q[3], q[4], q[5],
                                               err) };
    reply[1] = height;
    reply[2] = width;
    answer(reply, "", 0);
}

int main(int argc, char **argv)
{
    int32_t q[8];
    bool ok = true;

    repeats = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    while (ok && fread(q, sizeof *q, 8, stdin) == 8) {
        struct pv_error err = { 0 };
        size_t size = q[0] == WHAT_SMART ? 0 : (size_t)q[1] * (size_t)q[2] * 3;
        uint8_t *rgb = need(size);
        struct image picture = { q[2], q[1], rgb };
        ok = fread(rgb, 1, size, stdin) == size;
        if (ok && q[0] <= WHAT_FLOAT)
            do_resize(q, rgb, &err);
        else if (ok && q[0] == WHAT_TILES)
            do_tiles(q, &picture, &err);
        else if (ok && q[0] == WHAT_SQUARE)
            do_square(q, &picture, &err);
        else if (ok && q[0] == WHAT_PATCHES)
            do_patches(q, rgb);
        else if (ok && q[0] == WHAT_SMART)
            do_smart(q, &err);
        if (err.code)
            fprintf(stderr, "pixels_cli: %s\n", err.text);
        free(rgb);
    }
    if (!ok)
        fputs("pixels_cli: the input is cut off\n", stderr);
    return ok ? 0 : 1;
}
