/* Pixels to patch rows. A byte has 256 values, so a table per channel holds what each becomes:
 * (x - 255 mean) / (255 std) in float, the arithmetic of Hugging Face's processors. Rows are
 * written one after the other; the reads stay within the lines of a few patches. */
#include "video/patches.h"

#include <assert.h>

void patches_table(float table[3][256], const struct patch_plan *p)
{
    for (int c = 0; c < 3; c++) {
        float mean = p->mean[c] * 255.0f, std = p->std[c] * 255.0f;
        for (int v = 0; v < 256; v++)
            table[c][v] = ((float)v - mean) / std;
    }
}

/* The row [3, temporal, patch, patch] of the patch whose first pixel is at (y, x). */
static float *row_make(float *out, const struct patch_plan *p, float table[3][256],
                       const uint8_t *const *frames, int width, int y, int x)
{
    size_t line = (size_t)width * 3, corner = (size_t)y * line + (size_t)x * 3;

    for (int c = 0; c < 3; c++) {
        const float *value = table[c];
        for (int t = 0; t < p->temporal; t++) {
            const uint8_t *from = frames[t] + corner + c;
            for (int i = 0; i < p->patch; i++, from += line) {
                for (int j = 0; j < p->patch; j++)
                    *out++ = value[from[3 * j]];
            }
        }
    }
    return out;
}

void patches_make(float *out, const struct patch_plan *p, const uint8_t *const *frames, int height,
                  int width)
{
    int rows = height / p->patch, cols = width / p->patch, m = p->merge;
    float table[3][256];

    assert(rows % m == 0 && cols % m == 0);
    patches_table(table, p);
    for (int y = 0; y < rows; y += m) {
        for (int x = 0; x < cols; x += m) {
            for (int k = 0; k < m * m; k++)
                out = row_make(out, p, table, frames, width, (y + k / m) * p->patch,
                               (x + k % m) * p->patch);
        }
    }
}
