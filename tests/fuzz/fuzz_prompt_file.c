/* Any bytes as a prepared prompt, for a blind model and for two that see; then the same bytes with
 * a length and a checksum that hold, so that what lies behind them is reached. What is accepted
 * must be whole: ids of the vocabulary, media with all their pixels inside the file, positions that
 * an int can hold. */
#include "engine/prompt_file.h"
#include "family/families.h"

#include <stdlib.h>
#include <string.h>

enum { VOCAB = 300, SEALED = 24, MOST_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct vision_config llava = { .family = &family_llava_onevision,
                                            .patch = 4,
                                            .image = 8,
                                            .temporal = 1,
                                            .merge = 1,
                                            .n_grid = 3,
                                            .grid = { { 8, 16 }, { 16, 8 }, { 16, 16 } },
                                            .max_tiles = 9 };
static const struct vision_config qwen = { .family = &family_qwen2_5_vl,
                                           .patch = 4,
                                           .temporal = 2,
                                           .merge = 2,
                                           .min_pixels = 64,
                                           .max_pixels = 4096,
                                           .tokens_per_second = 2 };
static const struct pv_limits limits = { .frames = 64,
                                         .frame_pixels = 1 << 16,
                                         .video_seconds = 1e4 };

/* The positions of the rows go up, and none is below the first of its media item. */
static void check_positions(const struct prompt_file *f)
{
    int32_t(*pos)[3] = malloc((size_t)f->n_rows * sizeof *pos);
    int32_t next = 0;
    int row = 0;
    for (int i = 0; i < f->n_ids; i++) {
        int32_t id, first = next;
        memcpy(&id, f->ids + (size_t)i * 4, 4);
        if (id >= VOCAB || id < -f->n_media)
            abort();
        if (id >= 0) {
            row++;
            next++;
            continue;
        }
        next = media_positions(&f->media[-id - 1], next, 0, f->media[-id - 1].n_rows, pos + row);
        for (int r = 0; r < f->media[-id - 1].n_rows; r++, row++)
            for (int k = 0; k < 3; k++)
                if (pos[row][k] < first)
                    abort();
        if (next <= first)
            abort();
    }
    if (row != f->n_rows)
        abort();
    free(pos);
}

static void check_file(const uint8_t *data, size_t size, const struct vision_config *c)
{
    struct prompt_reader r = {
        .name = "input", .model = "model", .c = c, .limits = &limits, .vocab = VOCAB
    };
    struct pv_error err = { 0 };
    struct prompt_file f = { 0 };
    uint64_t sum = 0;

    if (prompt_file_parse(&f, data, size, &r, &err)) {
        if (!err.text[0] || f.n_ids)
            abort(); /* a failure must say why, and leave the output alone */
        return;
    }
    for (int i = 0; i < f.n_media; i++)
        for (size_t k = 0; k < media_size(&f.media[i]); k++)
            sum += f.pixels[i][k]; /* a sanitizer sees what is not there */
    if (f.n_rows < 1 || f.message0 > f.n_rows || sum > (uint64_t)size * UINT8_MAX)
        abort();
    check_positions(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct vision_config *const models[] = { NULL, &llava, &qwen };
    uint8_t *sealed = malloc(size ? size : 1);

    if (size > MOST_BYTES || !sealed) {
        free(sealed);
        return 0;
    }
    if (size)
        memcpy(sealed, data, size);
    if (size >= SEALED)
        prompt_file_seal(sealed, size);
    for (int i = 0; i < 3; i++) {
        check_file(data, size, models[i]);
        check_file(sealed, size, models[i]);
    }
    free(sealed);
    return 0;
}
