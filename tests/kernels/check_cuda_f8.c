/* How a GPU reads the codes of an F8 cache: all of them, subnormal ones included, in values of a
 * slot that gets the whole attention of a row. */
#include "check_cuda_rows.h"
#include "tensor/f8.h"

#include <math.h>
#include <stdlib.h>

static const struct rig_shape shape = { 256, 128, 2, 2, 128, true, false, true };

/* A code that is not NaN. */
static uint8_t code_of(int i)
{
    return (uint8_t)((i & 0x7f) == F8_NAN ? 0 : i & 0xff);
}

/* Slot 0: keys in the direction of token 1's queries, and values of codes from `first` on times
 * 2^e. */
static void craft(const struct rig *g, const struct seq *s, uint8_t *saved, int first, int e)
{
    int d = shape.d;
    size_t head = kv_head_size(DTYPE_F8, d);
    for (int h = 0; h < shape.n_kv; h++) {
        uint8_t *k = saved + (size_t)h * head, *v = k + s->pool->half;
        const double *q = g->ref_q + (size_t)((shape.n_heads + h) * d);
        for (int i = 0; i < d; i++) {
            k[i] = f8_from_f32((float)(200 * q[i]));
            v[i] = code_of(first + h * d + i);
        }
        k[KV_CHUNK * d] = F8_EXPONENT_BIAS; /* slot 0 of the exponents */
        v[KV_CHUNK * d] = (uint8_t)(F8_EXPONENT_BIAS + e);
    }
}

void check_f8_codes(struct cuda_check *t)
{
    struct rig g;
    struct seq s;
    int tokens[] = { 0, 1 };
    float out[256];
    if (!rig_open(&g, t, &shape, DTYPE_BF16, RIG_ATTENTION, 2, KV_CHUNK, 2))
        return;
    rig_reference(&g);
    seq_open(&g, &s, KV_CHUNK);
    rig_chain(&g, &s, 0, tokens, 1, true, out);
    uint8_t *saved = seq_save(&s);
    for (int round = 0; round < 8; round++) {
        int e = round % 4 == 3 ? -20 : 7 - round, first = round * 77;
        bool bulk = round % 2;
        craft(&g, &s, saved, first, e);
        seq_load(&s, saved);
        rig_chain(&g, &s, 1, tokens + 1, 1, bulk, out);
        for (int i = 0; i < 256; i++) {
            double want = ldexp((double)f8_to_f32(code_of(first + i)), e);
            double got = (double)out[i] - g.token[256 + i];
            if (!(fabs(got - want) <= 0x1p-7 * fabs(want) + 1e-6))
                check_fail(&t->c, "code %d times 2^%d is %.8g, not %.8g", code_of(first + i), e,
                           got, want);
        }
    }
    free(saved);
    seq_close(&s);
    rig_close(&g);
}
