/* A decoder set up for tests: file, device, decoder, state and one KV cache; steps in one call;
 * the CPU levels; and KV caches compared slot by slot. */
#ifndef PV_TESTS_RIG_H
#define PV_TESTS_RIG_H

#include "base/cpu.h"
#include "base/mem.h"
#include "family/families.h"
#include "lm/decoder.h"
#include "test.h"

struct cpu_level {
    const char *name;
    uint64_t flags;
};

/* Each level adds one instruction set to the one before, as in tests/kernels. */
static const struct cpu_level cpu_levels[] = {
    { "ref", 0 },
#if defined(__x86_64__)
    { "avx2", CPU_AVX2 },
    { "avx512", CPU_AVX2 | CPU_AVX512 },
    { "avx512bf16", CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16 },
    { "amx", CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16 | CPU_AMX },
#elif defined(__aarch64__)
    { "neon", CPU_NEON },
    { "dotprod", CPU_NEON | CPU_DOTPROD },
    { "i8mm", CPU_NEON | CPU_DOTPROD | CPU_I8MM },
    { "bf16", CPU_NEON | CPU_DOTPROD | CPU_I8MM | CPU_BF16 },
#endif
};

enum { N_CPU_LEVELS = sizeof cpu_levels / sizeof cpu_levels[0] };

/* Whether this machine can run level i. */
static inline bool cpu_level_here(int i)
{
    return (cpu_levels[i].flags & ~cpu_flags()) == 0;
}

/* The last level this machine can run: what a user gets. */
static inline int cpu_level_best(void)
{
    int best = 0;
    for (int i = 0; i < N_CPU_LEVELS; i++)
        best = cpu_level_here(i) ? i : best;
    return best;
}

struct rig {
    struct model_file *mf;
    struct device *dev;
    struct decoder *dec;
    struct decoder_state *st;
    struct kvcache kv;
    const struct config *c;
    int max_rows;
    int32_t (*pos)[3]; /* [max_rows] scratch of rig_run */
    int *rows;         /* [max_rows] 0, 1, 2, ... */
};

struct rig_shape {
    int level, threads;
    enum dtype kv;
    int max_rows, context;
    bool cuda;           /* not the CPU */
    int n_gpus, gpus[8]; /* several GPUs; 0: one, if `cuda` */
    bool draws;          /* random weights */
};

static inline void rig_close(struct rig *r)
{
    if (r->kv.pool)
        kvcache_close(&r->kv);
    decoder_state_close(&r->st);
    decoder_close(&r->dec);
    device_close(&r->dev);
    model_file_close(&r->mf);
    free(r->pos);
    free(r->rows);
    *r = (struct rig){ 0 };
}

/* Logits of every row of a step can be asked for. False (and a failed check) when it cannot open.
 */
static inline bool rig_open(struct rig *r, const char *path, struct rig_shape s)
{
    struct pv_error err = { 0 };
    enum pv_status st;
    *r = (struct rig){ .max_rows = s.max_rows };
    st = model_file_open(&r->mf, path, NULL, 0, families, &err);
    if (!st && s.n_gpus > 0)
        st = device_cuda_open_several(&r->dev, s.gpus, s.n_gpus, &err);
    else if (!st && s.cuda)
        st = device_cuda_open(&r->dev, 0, &err);
    else if (!st)
        st = device_cpu_open(&r->dev, s.threads, cpu_levels[s.level].flags, &err);
    if (!st) {
        r->dev->spreads = s.n_gpus > 0;
        r->dev->draws = s.draws;
    }
    if (!st)
        st = decoder_open(&r->dec, r->mf, r->dev, &err);
    if (!st)
        st = decoder_state_open(&r->st, r->dec, s.max_rows, s.max_rows, s.context, s.kv, &err);
    if (!st)
        st = kvcache_open(&r->kv, r->dev, decoder_config(r->dec), s.kv, s.context, &err);
    if (!CHECK_MSG(st == PV_OK, "%s: %s", path, err.text)) {
        rig_close(r);
        return false;
    }
    r->c = decoder_config(r->dec);
    r->pos = malloc(sizeof *r->pos * (size_t)s.max_rows);
    r->rows = malloc(sizeof *r->rows * (size_t)s.max_rows);
    for (int i = 0; i < s.max_rows; i++)
        r->rows[i] = i;
    return true;
}

/* From now on the device says of itself that chains in one step save time (device_ops.chains). The
 * table must outlive the rig. */
static inline void rig_chains(struct rig *r, struct device_ops *table)
{
    *table = *r->dev->ops;
    table->chains = true;
    r->dev->ops = table;
}

static inline int row_depth(const int *parent, int row)
{
    int depth = 0;
    for (int p = parent ? parent[row] : row - 1; p >= 0; p = parent ? parent[p] : p - 1)
        depth++;
    return depth;
}

/* One step of n rows after what the cache holds, at the plain positions, logits of all rows;
 * nothing is committed. parent NULL: a chain. */
static inline bool rig_run(struct rig *r, const int32_t *ids, int n, const int *parent,
                           float *logits)
{
    struct pv_error err = { 0 };
    struct step_seq seq = { .kv = &r->kv, .n = n, .parent = parent };
    for (int i = 0; i < n; i++)
        r->pos[i][0] = r->pos[i][1] = r->pos[i][2] = r->kv.len + row_depth(parent, i);
    struct step step = { .n = n,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])r->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = logits ? n : 0,
                         .logit_rows = r->rows,
                         .logits = logits };
    return CHECK_MSG(decoder_step(r->dec, r->st, &step, &err) == PV_OK, "%s", err.text);
}

/* Run and commit a long chain in steps of at most `chunk` rows; logits [n, vocab] or NULL. */
static inline bool rig_feed(struct rig *r, const int32_t *ids, int n, int chunk, float *logits)
{
    for (int at = 0; at < n; at += chunk) {
        int m = n - at < chunk ? n - at : chunk;
        float *out = logits ? logits + (size_t)at * (size_t)r->c->vocab : NULL;
        if (!rig_run(r, ids + at, m, NULL, out))
            return false;
        kvcache_advance(&r->kv, m);
    }
    return true;
}

/* ---- KV caches ---- */

static inline uint8_t *kv_key_at(const struct kv_layer *l, int head, int slot)
{
    return (uint8_t *)kv_page_at(l, l->k, head, slot / KV_CHUNK) +
           dtype_row_size(l->dtype, (int64_t)(slot % KV_CHUNK) * l->d);
}

/* Element i of a value: V lies transposed by chunks (tensor/device.h). */
static inline uint8_t *kv_value_at(const struct kv_layer *l, int head, int slot, int i)
{
    return (uint8_t *)kv_page_at(l, l->v, head, slot / KV_CHUNK) +
           dtype_row_size(l->dtype, (int64_t)i * KV_CHUNK + slot % KV_CHUNK);
}

/* F8: the exponents of a slot's key and of its value. */
static inline uint8_t *kv_exponent_at(const struct kv_layer *l, bool value, int head, int slot)
{
    return kv_exponents_at(l, value ? l->v : l->k, head, slot / KV_CHUNK) + slot % KV_CHUNK;
}

/* Copy slots [from, to) of one cache to the same place of another, or only compare them; false
 * when they differ. Slots of K, and of one row of V inside a chunk, lie side by side. */
static inline bool kv_range(const struct kvcache *dst, const struct kvcache *src, int from, int to,
                            bool copy)
{
    bool same = true;
    for (int n = 0; n < dst->n_layers; n++) {
        const struct kv_layer *x = &dst->layer[n], *y = &src->layer[n];
        size_t size = dtype_row_size(x->dtype, 1);
        for (int h = 0; h < x->n_kv; h++)
            for (int a = from, b; a < to; a = b) {
                b = (a / KV_CHUNK + 1) * KV_CHUNK;
                b = b < to ? b : to;
                size_t len = (size_t)(b - a) * size, key_len = len * (size_t)x->d;
                if (copy)
                    memcpy(kv_key_at(x, h, a), kv_key_at(y, h, a), key_len);
                else
                    same &= !memcmp(kv_key_at(x, h, a), kv_key_at(y, h, a), key_len);
                for (int i = 0; i < x->d; i++)
                    if (copy)
                        memcpy(kv_value_at(x, h, a, i), kv_value_at(y, h, a, i), len);
                    else
                        same &= !memcmp(kv_value_at(x, h, a, i), kv_value_at(y, h, a, i), len);
                for (int v = 0; v < 2 && x->dtype == DTYPE_F8; v++)
                    if (copy)
                        memcpy(kv_exponent_at(x, v, h, a), kv_exponent_at(y, v, h, a), len);
                    else
                        same &=
                            !memcmp(kv_exponent_at(x, v, h, a), kv_exponent_at(y, v, h, a), len);
            }
    }
    return same;
}

/* The first slot of [from, to) in which two caches differ, -1: none. */
static inline int kv_first_difference(const struct kvcache *a, const struct kvcache *b, int from,
                                      int to)
{
    int slot = from;
    if (kv_range(a, b, from, to, false))
        return -1;
    while (kv_range(a, b, slot, slot + 1, false))
        slot++;
    return slot;
}

/* Fill the slots from `from` on with large finite numbers, alternating in sign: whoever reads a
 * slot it should not see, or trusts what an earlier step left there, is found out. */
static inline void kv_poison(struct kvcache *kv, int from, int to)
{
    for (int n = 0; n < kv->n_layers; n++) {
        const struct kv_layer *l = &kv->layer[n];
        size_t size = dtype_row_size(l->dtype, 1);
        for (int slot = from; slot < to && slot < l->cap; slot++)
            for (int h = 0; h < l->n_kv; h++) {
                for (int v = 0; v < 2 && l->dtype == DTYPE_F8; v++)
                    *kv_exponent_at(l, v, h, slot) = 254;
                for (int i = 0; i < l->d; i++) {
                    /* 0x7341 is 14856 as f16, 1.5e31 as bf16; all four bytes as f32 likewise. */
                    uint8_t bytes[4] = { 0x41, 0x73, 0x41, (uint8_t)(slot % 2 ? 0x73 : 0xf3) };
                    const uint8_t *b = bytes + 4 - size;
                    memcpy(kv_key_at(l, h, slot) + (size_t)i * size, b, size);
                    memcpy(kv_value_at(l, h, slot, i), b, size);
                }
            }
    }
}

#endif
