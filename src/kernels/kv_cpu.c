/* The KV cache on the CPU: writes, moves and copies rows. K is stored slot by slot; V is transposed
 * within a chunk, so that a dimension's values of neighbouring slots lie side by side (struct
 * kv_layer). V is therefore written a block of slots at a time. */
#include "kernels/device_cpu.h"

#include "base/minmax.h"

#include <float.h>
#include <string.h>

enum { VALUE_BLOCK = 32 }; /* aligned slots of V: one cache line of 16-bit values, two of f32 */

/* Address of a slot's key, and (value_at) of the first element of its value. The other elements of
 * the value follow at intervals of KV_CHUNK elements. */
static uint8_t *key_at(const struct kv_layer *kv, int head, int slot)
{
    return (uint8_t *)kv_page_at(kv, kv->k, head, slot / KV_CHUNK) +
           dtype_row_size(kv->dtype, (int64_t)(slot % KV_CHUNK) * kv->d);
}

static void *value_at(const struct kv_layer *kv, int head, int slot)
{
    return (uint8_t *)kv_page_at(kv, kv->v, head, slot / KV_CHUNK) +
           dtype_row_size(kv->dtype, slot % KV_CHUNK);
}

/* The cache must hold finite numbers only. A masked slot has probability 0, but 0 times infinity or
 * NaN is not 0, so it would reach rows that must not see it; slots after the last row keep old
 * contents. Numbers are limited to [-most, most]; NaN becomes `most`. */
static void limit_to(float *y, const float *x, int n, float most)
{
    for (int i = 0; i < n; i++)
        y[i] = x[i] < most ? x[i] > -most ? x[i] : -most : most;
}

/* The largest finite number of a type. */
static float most_of(enum dtype t)
{
    return t == DTYPE_F16 ? 65504.0f : t == DTYPE_BF16 ? 0x1.fep127f : FLT_MAX;
}

void kv_round(const struct kernels *k, enum dtype t, void *y, const float *x, int n)
{
    float limited[DEVICE_MAX_HEAD_DIM];
    if (t == DTYPE_F32) {
        limit_to(y, x, n, most_of(t));
        return;
    }
    for (int i = 0; i < n; i += DEVICE_MAX_HEAD_DIM) {
        int part = min_int(n - i, DEVICE_MAX_HEAD_DIM);
        limit_to(limited, x + i, part, most_of(t));
        (t == DTYPE_F16 ? k->to_f16 : k->to_bf16)((uint16_t *)y + i, limited, (size_t)part);
    }
}

/* Tests the exponent bits, because the compiler can vectorise that. */
bool row_finite_cpu(const float *x, int n)
{
    unsigned bad = 0;
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

struct kv_op {
    struct device_work *work;
    const struct kernels *kernels;
    const struct kv_layer *kv;
    int first_slot, n;
    const float *k, *v;
    int blocks; /* blocks of VALUE_BLOCK slots that the rows touch */
};

/* Write V for rows [r, r + n) of one head; their slots are consecutive and in one chunk. */
static void write_values(const struct kv_op *op, int head, int r, int n)
{
    const struct kv_layer *kv = op->kv;
    size_t d = (size_t)kv->d, stride = (size_t)kv->n_kv * d;
    void *at = value_at(kv, head, op->first_slot + r);
    const float *v = op->v + (size_t)r * stride + (size_t)head * d;
    if (kv->dtype == DTYPE_F8) {
        for (int j = 0; j < n; j++)
            kv_f8_value(kv, head, op->first_slot + r + j, v + (size_t)j * stride);
        return;
    }
    enum { PART = 128 }; /* dimensions at a time, to limit the stack */
    uint16_t v16[VALUE_BLOCK][PART];
    if (kv->dtype == DTYPE_F32) {
        for (size_t i = 0; i < d; i++)
            for (int j = 0; j < n; j++)
                limit_to((float *)at + i * KV_CHUNK + j, v + (size_t)j * stride + i, 1, FLT_MAX);
        return;
    }
    for (size_t i0 = 0; i0 < d; i0 += PART) {
        size_t part = d - i0 < PART ? d - i0 : PART;
        for (int j = 0; j < n; j++)
            kv_round(op->kernels, kv->dtype, v16[j], v + (size_t)j * stride + i0, (int)part);
        for (size_t i = 0; i < part; i++)
            for (int j = 0; j < n; j++)
                ((uint16_t *)at)[(i0 + i) * KV_CHUNK + (size_t)j] = v16[j][i];
    }
}

/* Write blocks [b0, b1), counted over all heads. A block of V covers whole cache lines, so threads
 * do not share lines (no false sharing). */
static void write_blocks(void *ctx, int b0, int b1)
{
    const struct kv_op *op = ctx;
    const struct kv_layer *kv = op->kv;
    size_t d = (size_t)kv->d;
    int first = op->first_slot / VALUE_BLOCK * VALUE_BLOCK - op->first_slot;
    for (int b = b0; b < b1; b++) {
        int head = b / op->blocks, r = first + b % op->blocks * VALUE_BLOCK;
        int end = min_int(r + VALUE_BLOCK, op->n);
        r = r < 0 ? 0 : r;
        for (int j = r; j < end; j++) {
            size_t from = ((size_t)j * kv->n_kv + (size_t)head) * d;
            if (kv->dtype == DTYPE_F8)
                kv_f8_key(kv, head, op->first_slot + j, op->k + from);
            else
                kv_round(op->kernels, kv->dtype, key_at(kv, head, op->first_slot + j), op->k + from,
                         kv->d);
            if (!row_finite_cpu(op->k + from, kv->d) || !row_finite_cpu(op->v + from, kv->d))
                atomic_store_explicit(&op->work->not_finite, true, memory_order_relaxed);
        }
        write_values(op, head, r, end - r);
    }
}

void kv_write_cpu(struct device_work *w, const struct kv_layer *kv, int first_slot, const float *k,
                  const float *v, int n)
{
    struct kv_op op = {
        .work = w, .kernels = &w->cpu->k, .kv = kv, .first_slot = first_slot, .n = n, .k = k, .v = v
    };
    op.blocks = (first_slot + n - 1) / VALUE_BLOCK - first_slot / VALUE_BLOCK + 1;
    rows_parallel(w, write_blocks, &op, op.blocks * kv->n_kv, n * kv->d * 4 / op.blocks);
}

/* Copy slot `from_slot` of one layer to slot `to_slot` of another layer of the same type. */
static void copy_slot(const struct kv_layer *to, const struct kv_layer *from, int head, int to_slot,
                      int from_slot)
{
    if (to->dtype == DTYPE_F8) {
        kv_f8_copy(to, from, head, to_slot, from_slot);
        return;
    }
    void *t = value_at(to, head, to_slot);
    const void *f = value_at(from, head, from_slot);
    memcpy(key_at(to, head, to_slot), key_at(from, head, from_slot),
           dtype_row_size(to->dtype, to->d));
    for (size_t i = 0; i < (size_t)to->d * KV_CHUNK; i += KV_CHUNK) {
        if (to->dtype == DTYPE_F32)
            ((float *)t)[i] = ((const float *)f)[i];
        else
            ((uint16_t *)t)[i] = ((const uint16_t *)f)[i];
    }
}

void kv_move_cpu(struct device_work *w, const struct kv_layer *kv, const int *to, const int *from,
                 int n)
{
    (void)w;
    for (int h = 0; h < kv->n_kv; h++)
        for (int m = 0; m < n; m++)
            if (to[m] != from[m])
                copy_slot(kv, kv, h, to[m], from[m]);
}

struct kv_copy_op {
    const struct kv_layer *to, *from;
    const int *to_slots, *from_slots;
};

/* Copy entries [m0, m1) of the lists of slots. */
static void kv_copy_slots(void *ctx, int m0, int m1)
{
    const struct kv_copy_op *op = ctx;
    for (int h = 0; h < op->to->n_kv; h++)
        for (int m = m0; m < m1; m++)
            copy_slot(op->to, op->from, h, op->to_slots[m], op->from_slots[m]);
}

void kv_copy_cpu(struct device_work *w, const struct kv_layer *to, const struct kv_layer *from,
                 const int *to_slots, const int *from_slots, int n)
{
    struct kv_copy_op op = { to, from, to_slots, from_slots };
    rows_parallel(w, kv_copy_slots, &op, n, to->n_kv * to->d * 4);
}
