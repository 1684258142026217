/* The KV cache: its size and layout, what is committed, that accepting a path moves exactly the
 * slots of the path, and copies between caches. */
#include "lm/kvcache.h"

#include "base/rng.h"
#include "rig.h"
#include "tensor/half.h"

#include <float.h>
#include <math.h>

static const struct config small = { .n_layers = 2, .n_kv_heads = 3, .head_dim = 16 };

struct fixture {
    struct device *dev;
    struct device_work *work;
    struct kvcache kv;
};

static bool fixture_open_at(struct fixture *f, enum dtype t, int context, uint64_t cpu)
{
    struct work_shape shape = { .rows = 64,
                                .in = 64,
                                .n_heads = 3,
                                .n_kv_heads = 3,
                                .head_dim = 16,
                                .context = context,
                                .kv_dtype = t };
    *f = (struct fixture){ 0 };
    return CHECK(!device_cpu_open(&f->dev, 2, cpu, NULL) &&
                 !f->dev->ops->work_open(f->dev, &f->work, &shape, NULL) &&
                 !kvcache_open(&f->kv, f->dev, &small, t, context, NULL));
}

static bool fixture_open(struct fixture *f, enum dtype t, int context)
{
    return fixture_open_at(f, t, context, cpu_flags());
}

static void fixture_close(struct fixture *f)
{
    kvcache_close(&f->kv);
    f->dev->ops->work_close(f->dev, &f->work);
    device_close(&f->dev);
}

/* The number written to element i of a slot, different everywhere; exact in all three types. */
static float mark(int layer, int head, int slot, int i, bool value)
{
    int n = ((slot * 3 + head) * 16 + i) * 4 + layer * 2 + value;
    return (float)(n % 251) - 125;
}

/* Write slots [from, from + n) of every layer by the device's own operation. */
static void write_slots(struct fixture *f, int from, int n)
{
    float k[64 * 48], v[64 * 48];
    for (int l = 0; l < 2; l++) {
        for (int r = 0; r < n; r++)
            for (int h = 0; h < 3; h++)
                for (int i = 0; i < 16; i++) {
                    k[(r * 3 + h) * 16 + i] = mark(l, h, from + r, i, false);
                    v[(r * 3 + h) * 16 + i] = mark(l, h, from + r, i, true);
                }
        f->dev->ops->kv_write(f->work, &f->kv.layer[l], from, k, v, n);
    }
}

static float element(enum dtype t, const void *p)
{
    uint16_t h;
    float x;
    memcpy(&h, p, 2);
    if (t == DTYPE_F32)
        memcpy(&x, p, 4);
    else
        x = t == DTYPE_F16 ? f16_to_f32(h) : bf16_to_f32(h);
    return x;
}

/* Slot `slot` must hold what was written for slot `was`. */
static bool holds(const struct fixture *f, int slot, int was)
{
    for (int l = 0; l < 2; l++) {
        const struct kv_layer *kv = &f->kv.layer[l];
        size_t size = dtype_row_size(kv->dtype, 1);
        for (int h = 0; h < 3; h++)
            for (int i = 0; i < 16; i++)
                if (element(kv->dtype, kv_key_at(kv, h, slot) + (size_t)i * size) !=
                        mark(l, h, was, i, false) ||
                    element(kv->dtype, kv_value_at(kv, h, slot, i)) != mark(l, h, was, i, true))
                    return false;
    }
    return true;
}

TEST(size_is_of_whole_chunks)
{
    size_t slot = 2 * 2 * 3 * 16; /* layers, K and V, heads, head_dim */
    CHECK_EQ(kvcache_size(&small, DTYPE_F16, 1), slot * 256 * 2);
    CHECK_EQ(kvcache_size(&small, DTYPE_BF16, 256), slot * 256 * 2);
    CHECK_EQ(kvcache_size(&small, DTYPE_F32, 257), slot * 512 * 4);
    for (int t = 0; t < 3; t++) {
        struct fixture f;
        if (!fixture_open(&f, (enum dtype[]){ DTYPE_F32, DTYPE_F16, DTYPE_BF16 }[t], 300))
            return;
        CHECK(f.kv.cap == 512 && f.kv.len == 0 && f.kv.n_layers == 2);
        CHECK_EQ(kvpool_size(f.kv.pool), kvcache_size(&small, f.kv.layer[0].dtype, 300));
        /* The last element of the last layer ends the block. */
        CHECK(kv_value_at(&f.kv.layer[1], 2, 511, 15) + dtype_row_size(f.kv.layer[0].dtype, 1) ==
              (uint8_t *)kvpool_memory(f.kv.pool, 0) + kvpool_size(f.kv.pool));
        fixture_close(&f);
        CHECK(f.kv.pool == NULL && f.kv.layer == NULL);
    }
}

TEST(rows_lie_where_the_layout_says)
{
    for (int t = 0; t < 3; t++) {
        struct fixture f;
        if (!fixture_open(&f, (enum dtype[]){ DTYPE_F32, DTYPE_F16, DTYPE_BF16 }[t], 600))
            return;
        for (int at = 0; at < 600; at += 60)
            write_slots(&f, at, 60);
        for (int slot = 0; slot < 600; slot++)
            if (!CHECK_MSG(holds(&f, slot, slot), "slot %d", slot))
                break;
        fixture_close(&f);
    }
}

/* Keys and values become 16 bits by rounding to nearest even, whatever the kernels. */
TEST(rows_are_rounded_to_nearest_even)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int t = 0; t < 2 && cpu_level_here(level); t++) {
            enum dtype type = t ? DTYPE_F16 : DTYPE_BF16;
            struct fixture f;
            struct rng r = { 3 };
            float x[48], y[48];
            if (!fixture_open_at(&f, type, 256, cpu_levels[level].flags))
                return;
            for (int i = 0; i < 48; i++) {
                x[i] = 100 * rng_normal(&r);
                y[i] = i % 5 ? rng_normal(&r) : 1 + 0x1p-9f * (float)i; /* ties among them */
            }
            f.dev->ops->kv_write(f.work, &f.kv.layer[0], 7, x, y, 1);
            for (int i = 0; i < 48; i++) {
                const uint8_t *k = kv_key_at(&f.kv.layer[0], i / 16, 7) + 2 * (i % 16);
                const uint8_t *v = kv_value_at(&f.kv.layer[0], i / 16, 7, i % 16);
                uint16_t want_k = t ? f16_from_f32(x[i]) : bf16_from_f32(x[i]);
                uint16_t want_v = t ? f16_from_f32(y[i]) : bf16_from_f32(y[i]);
                CHECK(!memcmp(k, &want_k, 2) && !memcmp(v, &want_v, 2));
            }
            fixture_close(&f);
        }
}

/* Or a row that must not see the slot would get 0 times infinity, or times NaN. */
TEST(a_cache_holds_finite_numbers_only)
{
    static const struct {
        enum dtype type;
        float most;
    } types[] = { { DTYPE_F16, 65504.0f }, { DTYPE_BF16, 0x1.fep127f }, { DTYPE_F32, FLT_MAX } };
    const float given[] = { NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1 };
    float row[48];
    for (int i = 0; i < 48; i++)
        row[i] = given[i % 6];
    for (int t = 0; t < 3; t++) {
        const float most = types[t].most, want[] = { most, most, -most, most, -most, 1 };
        struct fixture f;
        if (!fixture_open(&f, types[t].type, 256))
            return;
        f.dev->ops->kv_write(f.work, &f.kv.layer[0], 7, row, row, 1);
        for (int i = 0; i < 48; i++) {
            size_t size = dtype_row_size(types[t].type, 1);
            const uint8_t *k = kv_key_at(&f.kv.layer[0], i / 16, 7) + size * (size_t)(i % 16);
            const uint8_t *v = kv_value_at(&f.kv.layer[0], i / 16, 7, i % 16);
            CHECK(element(types[t].type, k) == want[i % 6]);
            CHECK(element(types[t].type, v) == want[i % 6]);
        }
        fixture_close(&f);
    }
}

TEST(advance_and_truncate_move_the_end_alone)
{
    struct fixture f;
    if (!fixture_open(&f, DTYPE_F16, 300))
        return;
    write_slots(&f, 0, 40);
    kvcache_advance(&f.kv, 40);
    CHECK_EQ(f.kv.len, 40);
    kvcache_advance(&f.kv, 0);
    kvcache_truncate(&f.kv, 12);
    CHECK_EQ(f.kv.len, 12);
    for (int slot = 0; slot < 40; slot++)
        CHECK(holds(&f, slot, slot));
    kvcache_truncate(&f.kv, 0);
    CHECK_EQ(f.kv.len, 0);
    fixture_close(&f);
}

/* Random ascending paths, around the border of a chunk too: the path's slots come together, those
 * before and behind it stay. */
TEST(gather_keeps_the_path)
{
    struct rng r = { test_seed };
    for (int round = 0; round < 60; round++) {
        struct fixture f;
        int path[60], n = 0, rows = 1 + (int)(rng_next(&r) % 60);
        int len = round % 3 ? (int)(rng_next(&r) % 400) : 256 - (int)(rng_next(&r) % 30);
        if (!fixture_open(&f, (enum dtype[]){ DTYPE_F32, DTYPE_F16, DTYPE_BF16 }[round % 3], 512))
            return;
        for (int at = 0; at < 512; at += 64)
            write_slots(&f, at, 64);
        for (int i = 0; i < rows; i++)
            if (rng_next(&r) % 3 == 0 || round % 7 == 0)
                path[n++] = i;
        f.kv.len = len;
        kvcache_gather(&f.kv, f.work, path, n);
        CHECK_EQ(f.kv.len, len + n);
        for (int slot = 0; slot < 512; slot++) {
            bool moved = slot >= len && slot < len + n;
            if (!CHECK_MSG(holds(&f, slot, moved ? len + path[slot - len] : slot),
                           "slot %d after a path of %d behind %d", slot, n, len))
                break;
        }
        fixture_close(&f);
    }
}

/* Slot `slot` was never written. */
static bool is_zero(const struct fixture *f, int slot)
{
    const struct kv_layer *kv = &f->kv.layer[1];
    size_t size = dtype_row_size(kv->dtype, 1);
    for (int h = 0; h < 3; h++)
        for (int i = 0; i < 16; i++)
            if (element(kv->dtype, kv_key_at(kv, h, slot) + (size_t)i * size) != 0 ||
                element(kv->dtype, kv_value_at(kv, h, slot, i)) != 0)
                return false;
    return true;
}

/* Attention of a few rows to the first n slots of a layer. */
static void attend(struct fixture *f, const struct kvcache *kv, int layer, int n, float *out)
{
    float q[4 * 48];
    struct rng r = { 9 };
    struct attn_run run = { .n = 4, .first_slot = n - 4, .kv = &kv->layer[layer] };
    struct attn_job job = {
        .out = out, .q = q, .n_heads = 3, .scale = 0.25f, .n_runs = 1, .runs = &run
    };
    for (int i = 0; i < 4 * 48; i++)
        q[i] = 0.01f * rng_normal(&r);
    f->dev->ops->attention(f->work, &job);
}

/* Slots copied between caches of different sizes: each lies where it was sent, nothing else has
 * changed, and attention to a whole copy has the same bits. */
static void check_copy(enum dtype t, int share, int shift)
{
    struct rng r = { test_seed };
    struct fixture f, g = { 0 };
    int to[600], from[600], was[1024], n = 0;
    if (!fixture_open(&f, t, 600) || !CHECK(!kvcache_open(&g.kv, f.dev, &small, t, 1000, NULL)))
        return;
    for (int at = 0; at < 600; at += 60)
        write_slots(&f, at, 60);
    for (int slot = 0; slot < 1024; slot++)
        was[slot] = -1;
    for (int slot = 0; slot < 600; slot++)
        if (rng_next(&r) % (uint64_t)share == 0) {
            to[n] = (n ^ 5) + shift; /* not in order */
            from[n] = slot;
            was[to[n++]] = slot;
        }
    for (int l = 0; l < 2; l++)
        kvcache_copy(&g.kv, &f.kv, f.work, l, to, from, n);
    CHECK_EQ(g.kv.len, 0);
    for (int slot = 0; slot < 1024; slot++)
        if (!CHECK_MSG(was[slot] >= 0 ? holds(&g, slot, was[slot]) : is_zero(&g, slot),
                       "slot %d of a copy of %d", slot, n))
            break;
    for (int i = 0; i < 600; i++)
        to[i] = from[i] = i;
    for (int l = 0; l < 2; l++) {
        float a[4 * 48], b[4 * 48];
        kvcache_copy(&g.kv, &f.kv, f.work, l, to, from, 600);
        attend(&f, &f.kv, l, 600, a);
        attend(&f, &g.kv, l, 600, b);
        CHECK(!memcmp(a, b, sizeof a));
    }
    kvcache_close(&g.kv);
    fixture_close(&f);
}

TEST(copy_takes_slots_to_another_cache)
{
    for (int t = 0; t < 3; t++) {
        enum dtype type = (enum dtype[]){ DTYPE_F32, DTYPE_F16, DTYPE_BF16 }[t];
        check_copy(type, 1, 0);
        check_copy(type, 2, 300);
        check_copy(type, 200, 250); /* a few, over the border of a chunk */
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
