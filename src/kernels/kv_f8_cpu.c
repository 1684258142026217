/* Rows of an F8 cache on the CPU (tensor/f8.h): written once, and read as BF16, in which all of
 * their numbers are exact. So attention over an F8 cache has the bits of attention over a BF16
 * cache that holds the same numbers. */
#include "kernels/attn_chunk.h"
#include "kernels/device_cpu.h"
#include "tensor/f8.h"

#include <math.h>

enum dtype kv_read_type(enum dtype t)
{
    return t == DTYPE_F8 ? DTYPE_BF16 : t;
}

/* Store d numbers as codes that lie `stride` bytes apart, and their exponent. */
static void write_row(uint8_t *code, size_t stride, uint8_t *exponent, const float *x, int d)
{
    float most = 0, inverse;
    for (int i = 0; i < d; i++)
        most = fmaxf(most, fabsf(f8_limit(x[i])));
    *exponent = f8_exponent(most);
    inverse = f8_inverse(*exponent);
    for (int i = 0; i < d; i++)
        code[(size_t)i * stride] = f8_from_f32(f8_limit(x[i]) * inverse);
}

static uint8_t *key_at(const struct kv_layer *kv, int head, int slot)
{
    return (uint8_t *)kv_page_at(kv, kv->k, head, slot / KV_CHUNK) +
           (size_t)(slot % KV_CHUNK) * (size_t)kv->d;
}

static uint8_t *value_at(const struct kv_layer *kv, int head, int slot)
{
    return (uint8_t *)kv_page_at(kv, kv->v, head, slot / KV_CHUNK) + slot % KV_CHUNK;
}

/* Of K or V (`base`). */
static uint8_t *exponent_at(const struct kv_layer *kv, const void *base, int head, int slot)
{
    return kv_exponents_at(kv, base, head, slot / KV_CHUNK) + slot % KV_CHUNK;
}

void kv_f8_key(const struct kv_layer *kv, int head, int slot, const float *k)
{
    write_row(key_at(kv, head, slot), 1, exponent_at(kv, kv->k, head, slot), k, kv->d);
}

void kv_f8_value(const struct kv_layer *kv, int head, int slot, const float *v)
{
    write_row(value_at(kv, head, slot), KV_CHUNK, exponent_at(kv, kv->v, head, slot), v, kv->d);
}

void kv_f8_copy(const struct kv_layer *to, const struct kv_layer *from, int head, int to_slot,
                int from_slot)
{
    uint8_t *t = value_at(to, head, to_slot);
    const uint8_t *f = value_at(from, head, from_slot);
    memcpy(key_at(to, head, to_slot), key_at(from, head, from_slot), (size_t)to->d);
    *exponent_at(to, to->k, head, to_slot) = *exponent_at(from, from->k, head, from_slot);
    for (size_t i = 0; i < (size_t)to->d * KV_CHUNK; i += KV_CHUNK)
        t[i] = f[i];
    *exponent_at(to, to->v, head, to_slot) = *exponent_at(from, from->v, head, from_slot);
}

void kv_f8_keys(const struct kernels *k, uint16_t *to, const struct kv_layer *kv, int head,
                int slot, int n)
{
    const uint8_t *exponent = exponent_at(kv, kv->k, head, slot);
    float factor[DEVICE_MAX_HEAD_DIM]; /* all the same */
    for (int r = 0; r < n; r++, to += kv->d) {
        float f = f8_factor(exponent[r]);
        for (int i = 0; i < kv->d; i++)
            factor[i] = f;
        k->f8_to_bf16(to, key_at(kv, head, slot + r), factor, kv->d);
    }
}

void kv_f8_values(const struct kernels *k, uint16_t *to, size_t stride, const struct kv_layer *kv,
                  int head, int slot, int n)
{
    const uint8_t *code = value_at(kv, head, slot), *exponent = exponent_at(kv, kv->v, head, slot);
    float factor[KV_CHUNK];
    for (int r = 0; r < n; r++)
        factor[r] = f8_factor(exponent[r]);
    for (int i = 0; i < kv->d; i++, to += stride, code += KV_CHUNK)
        k->f8_to_bf16(to, code, factor, n);
}
