/* tower_cli MODEL PATCHES SLICES H W OUT [pool | stitch HEIGHT WIDTH ROWS COLS]: what a model's
 * vision tower makes of given patches, for tools/golden/tower_check.py.
 *
 * PATCHES and OUT are raw floats; the one is [SLICES * H * W, row], the other the tokens, each with
 * its deepstack vectors behind it, with "pool" those of LLaVA's video frames, with "stitch" those
 * of a still picture of HEIGHT x WIDTH pixels cut into ROWS x COLS tiles. */
#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "family/families.h"
#include "pool_frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 2 };

struct call {
    const char *model, *patches, *out, *layout;
    int slices, h, w;
    int height, width;
    struct tiling tiling;
};

static int number(const char *text)
{
    return (int)strtol(text, NULL, 10);
}

static bool parse(struct call *c, int argc, char **argv)
{
    if (argc < 7)
        return false;
    *c = (struct call){ .model = argv[1],
                        .patches = argv[2],
                        .slices = number(argv[3]),
                        .h = number(argv[4]),
                        .w = number(argv[5]),
                        .out = argv[6],
                        .layout = argc > 7 ? argv[7] : "" };
    if (argc == 12 && !strcmp(c->layout, "stitch")) {
        c->height = number(argv[8]);
        c->width = number(argv[9]);
        c->tiling = (struct tiling){ .rows = number(argv[10]), .cols = number(argv[11]) };
        return true;
    }
    return argc == 7 || (argc == 8 && !strcmp(c->layout, "pool"));
}

static enum pv_status write_floats(const char *path, const float *x, size_t n, struct pv_error *err)
{
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(x, sizeof *x, n, f) == n;
    if (f && fclose(f))
        good = false;
    return good ? PV_OK : fail(err, PV_E_IO, "%s: cannot be written", path);
}

/* tokens [slices * per slice, out] laid out as asked for, in place of them. */
static size_t lay_out(const struct call *c, const struct vision *v, struct vision_state *st,
                      float **tokens, size_t n)
{
    const struct vision_config *config = vision_config(v);
    size_t rows = 0;
    float *out;
    if (!strcmp(c->layout, "pool"))
        rows = (size_t)c->slices * (size_t)llava_frame_tokens(config);
    else if (!strcmp(c->layout, "stitch"))
        rows = (size_t)llava_image_tokens(config, &c->tiling, c->height, c->width);
    if (rows == 0)
        return n;
    out = mem_alloc(sizeof *out * rows * (size_t)config->out);
    if (!out)
        abort();
    if (!strcmp(c->layout, "pool"))
        pool_frames(v, st, *tokens, c->slices, out);
    else
        llava_stitch(v, st, *tokens, &c->tiling, c->height, c->width, out);
    mem_free(*tokens);
    *tokens = out;
    return rows * (size_t)config->out;
}

static enum pv_status run(const struct call *c, const struct vision *v, const struct file_map *map,
                          struct pv_error *err)
{
    const struct vision_config *config = vision_config(v);
    size_t patches = (size_t)c->slices * (size_t)(c->h * c->w);
    size_t row = (size_t)(3 * config->temporal * config->patch * config->patch);
    size_t n =
        (size_t)(c->slices * vision_slice_tokens(v, c->h, c->w)) * (size_t)vision_row_size(config);
    struct vision_state *st = NULL;
    float *tokens;
    enum pv_status s;
    if (map->size != patches * row * sizeof(float))
        return fail(err, PV_E_ARG, "%s: %zu bytes, not %zu", c->patches, map->size,
                    patches * row * sizeof(float));
    tokens = mem_alloc(sizeof *tokens * n);
    if (!tokens)
        return fail_nomem(err, sizeof *tokens * n);
    s = vision_state_open(&st, v, (int)patches, err);
    if (!s)
        s = vision_encode(v, st, (const float *)(const void *)map->data, c->slices, c->h, c->w,
                          tokens, err);
    if (!s) {
        n = lay_out(c, v, st, &tokens, n);
        s = write_floats(c->out, tokens, n, err);
    }
    vision_state_close(&st);
    mem_free(tokens);
    return s;
}

int main(int argc, char **argv)
{
    struct call c;
    struct pv_error err = { 0 };
    struct file_map map = { 0 };
    struct model_file *mf = NULL;
    struct device *dev = NULL;
    struct vision *v = NULL;
    enum pv_status s;
    if (!parse(&c, argc, argv)) {
        fputs("usage: tower_cli MODEL PATCHES SLICES H W OUT [pool | stitch HEIGHT WIDTH ROWS "
              "COLS]\n",
              stderr);
        return 2;
    }
    s = model_file_open(&mf, c.model, NULL, 0, families, &err);
    if (!s)
        s = device_cpu_open(&dev, THREADS, cpu_flags(), &err);
    if (!s)
        s = vision_open(&v, mf, dev, &err);
    if (!s)
        s = file_map_open(&map, c.patches, (uint64_t)1 << 32, &err);
    if (!s)
        s = run(&c, v, &map, &err);
    if (s)
        fprintf(stderr, "tower_cli: %s\n", err.text);
    file_map_close(&map);
    vision_close(&v);
    device_close(&dev);
    model_file_close(&mf);
    return s ? 1 : 0;
}
