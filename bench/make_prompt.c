/* make_prompt: writes a prepared prompt (.pvin, doc/formats.md) with a video of generated frames,
 * for timing a model on machines that have neither FFmpeg nor a tokenizer, for example GPU
 * machines.
 *
 *   make_prompt -m MODEL.gguf [--frames N] [--height N] [--width N] [--text N] [--seed S] OUT.pvin
 *
 * The model's family determines the size of the frames and the number of tokens they become. The
 * video is followed by N tokens of text. Pure noise would be the worst case for views that look for
 * changes, so each frame is a moving gradient with some noise. */
#include "base/load.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/prompt_file.h"
#include "family/families.h"
#include "format/family.h"
#include "format/model_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 68, RECORD = 40, BEFORE = 4, LIMIT = 1 << 20 };

struct args {
    const char *model, *out;
    int frames, height, width, text, seed;
};

static int usage(void)
{
    fputs("usage: make_prompt -m MODEL.gguf [--frames N] [--height N] [--width N] [--text N] "
          "[--seed S] OUT.pvin\n",
          stderr);
    return 2;
}

static bool parse_number(int *out, const char *text)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < 1 || v > LIMIT)
        return false;
    *out = (int)v;
    return true;
}

static bool parse(struct args *a, int argc, char **argv)
{
    const struct {
        const char *name;
        int *to;
    } numbers[] = { { "--frames", &a->frames },
                    { "--height", &a->height },
                    { "--width", &a->width },
                    { "--text", &a->text },
                    { "--seed", &a->seed } };
    for (int i = 1; i < argc; i++) {
        bool known = false;
        if (argv[i][0] != '-') {
            known = !a->out;
            a->out = argv[i];
        } else if (i + 1 < argc && !strcmp(argv[i], "-m")) {
            known = true;
            a->model = argv[++i];
        }
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers && !known && i + 1 < argc; k++)
            if (!strcmp(argv[i], numbers[k].name))
                known = parse_number(numbers[k].to, argv[++i]);
        if (!known)
            return false;
    }
    return a->model && a->out;
}

static void fill_pixels(uint8_t *p, const struct media *m, int seed)
{
    struct rng r = { (uint64_t)seed };
    for (int f = 0; f < m->n_views; f++)
        for (int y = 0; y < m->height; y++)
            for (int x = 0; x < m->width; x++) {
                uint64_t noise = rng_next(&r);
                for (int c = 0; c < 3; c++)
                    *p++ = (uint8_t)(3 * f + (c == 0 ? x : y) / 2 + (int)(noise >> 16 * c & 31));
            }
}

static void put(uint8_t *data, size_t at, int64_t value)
{
    store_le32(data + at, (uint32_t)value);
}

/* Write the header, the media item and the ids. Returns the offset where the pixels begin. */
static size_t fill_head(uint8_t *data, const struct vision_config *c, int vocab,
                        const struct media *m, const struct args *a)
{
    const int64_t tower[] = { c->family->number, c->patch, c->merge, c->temporal, c->image, vocab };
    const int64_t record[] = { m->video,        m->tiling.rows > 0, m->n_views,
                               m->height,       m->width,           m->source_height,
                               m->source_width, m->time_rule,       m->n_rows };
    int n_ids = BEFORE + 1 + a->text;
    memcpy(data, "PVIN", 4);
    put(data, 4, 3);
    for (size_t i = 0; i < sizeof tower / sizeof *tower; i++)
        put(data, 24 + 4 * i, tower[i]);
    put(data, 48, n_ids);
    put(data, 52, 1);
    put(data, 60, m->n_views);
    for (size_t i = 0; i < sizeof record / sizeof *record; i++)
        put(data, HEADER + 4 * i, record[i]);
    memcpy(data + HEADER + RECORD - 4, &m->slice_seconds, 4);
    for (int i = 0; i < n_ids; i++)
        put(data, HEADER + RECORD + 4 * (size_t)i, i == BEFORE ? -1 : 10 + i % 200);
    return HEADER + RECORD + 4 * (size_t)n_ids;
}

static int write_prompt(const struct args *a, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    struct pv_video_params p = pv_video_defaults();
    struct pv_error err = { 0 };
    struct media m = { 0 };
    size_t head = HEADER + RECORD + 4 * (size_t)(BEFORE + 1 + a->text), size;
    uint8_t *data;
    FILE *f;
    bool ok;
    if (!c->family || media_plan(&m, c, &p, a->height, a->width, a->frames, 1, true, &err)) {
        fprintf(stderr, "make_prompt: %s: %s\n", a->model,
                c->family ? err.text : "the model has no vision tower");
        return 1;
    }
    if (m.run_rows < m.n_rows - m.newline) {
        fprintf(stderr, "make_prompt: %s: text stands between the frames of this family\n",
                a->model);
        return 1;
    }
    size = head + media_size(&m);
    data = mem_zalloc(size);
    f = fopen(a->out, "wb");
    if (!data || !f) {
        fprintf(stderr, "make_prompt: %s: %s\n", a->out, strerror(data ? errno : ENOMEM));
        return 1;
    }
    fill_pixels(data + fill_head(data, c, model_file_config(mf)->vocab, &m, a), &m, a->seed);
    prompt_file_seal(data, size);
    ok = fwrite(data, 1, size, f) == size;
    ok = !fclose(f) && ok;
    printf("%s: %d frames of %d x %d, %d tokens, %zu bytes\n", a->out, m.n_views, m.width, m.height,
           m.n_rows + BEFORE + a->text, size);
    mem_free(data);
    media_clear(&m);
    if (!ok)
        fprintf(stderr, "make_prompt: %s: could not be written\n", a->out);
    return !ok;
}

int main(int argc, char **argv)
{
    struct args a = { .frames = 96, .height = 480, .width = 854, .text = 32, .seed = 1 };
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    int rc;
    if (!parse(&a, argc, argv))
        return usage();
    if (model_file_open(&mf, a.model, NULL, 0, families, &err)) {
        fprintf(stderr, "make_prompt: %s\n", err.text);
        return 1;
    }
    rc = write_prompt(&a, mf);
    model_file_close(&mf);
    return rc;
}
