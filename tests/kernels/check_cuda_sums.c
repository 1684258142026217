/* Kernels for a lone row multiply by mma.sync where those for several rows have wgmma: both must
 * sum alike, to the bit, with either operand as the rows. NVIDIA does not promise it. */
#include "check_cuda.h"
#include "hopper_sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Exponents of the numbers, as BF16 has them. */
static const struct sums_kind {
    const char *name;
    int low, high;
    bool cancel; /* pairs of products that nearly cancel */
} kinds[] = { { "near 1", 124, 128, false },      { "near 1, cancelling", 124, 128, true },
              { "of 28 sizes", 113, 140, false }, { "of 28 sizes, cancelling", 113, 140, true },
              { "of 80 sizes", 87, 166, false },  { "with tiny products", 40, 99, false },
              { "denormal", 0, 2, false },        { "denormal and not", 0, 128, true } };

static uint16_t number(struct check *c, const struct sums_kind *k)
{
    int bits = check_int(c, 0, 255);
    return (uint16_t)((bits & 128) << 8 | check_int(c, k->low, k->high) << 7 | (bits & 127));
}

static void fill(struct check *c, const struct sums_kind *k, uint16_t *a, uint16_t *b, float *from,
                 int tiles)
{
    for (int i = 0; i < tiles * SUMS_TILE; i++) {
        bool again = k->cancel && i % 2;
        a[i] = again ? a[i - 1] : number(c, k);
        b[i] = again ? (uint16_t)(b[i - 1] ^ 0x8000 ^ check_int(c, 0, 1)) : number(c, k);
        from[i] = i / SUMS_TILE % 2 ? ldexpf((float)check_int(c, -1000, 1000), check_int(c, -30, 9))
                                    : 0.0f;
    }
}

static void compare(struct check *c, const float *want, const float *got, int n, const char *how)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&want[i], &got[i], sizeof *got)) {
            check_fail(c, "[%d] is %.9g by wgmma, %.9g by mma.sync%s", i, want[i], got[i], how);
            return;
        }
}

void check_cuda_sums(struct cuda_check *t)
{
    int tiles = t->full ? 2000 : 4, n = tiles * SUMS_TILE;
    uint16_t *a = malloc(sizeof *a * (size_t)n), *b = malloc(sizeof *b * (size_t)n);
    float *f = malloc(4 * sizeof *f * (size_t)n);
    if (!a || !b || !f)
        abort();
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && hopper_sums_there(); i++) {
        struct hopper_sums s = { a, b, f, f + n, f + 2 * n, f + 3 * n };
        int e;
        if (!check_begin(&t->c, "sums", kinds[i].name))
            continue;
        fill(&t->c, &kinds[i], a, b, f, tiles);
        e = hopper_sums_run(&s, tiles);
        if (e)
            check_fail(&t->c, "CUDA's error %d", e);
        if (!e) {
            compare(&t->c, s.wgmma, s.mma, n, "");
            compare(&t->c, s.wgmma, s.turned, n, ", operands exchanged");
        }
        check_end(&t->c);
    }
    free(a);
    free(b);
    free(f);
}
