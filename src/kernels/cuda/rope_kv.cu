/* The step between the q, k and v products and attention, and moving slots of the KV cache.
 *
 * rope_kv is one kernel: it normalises heads of q and k (if the model does that), applies RoPE,
 * rounds q to BF16, and writes k and v as BF16 to the slots of the staged run, in the pages of its
 * table. Heads whose size is a power of two are handled by d / 8 threads with 4 pairs each, so that
 * all accesses are of 8 and 16 bytes; other heads by a warp, element by element. Which of the two
 * is used depends only on d.
 *
 * Moves and copies get the lists of slots as kernel arguments, some at a time: for each slot its
 * page and its row in the page, which the host has looked up. */
#include "kernels/cuda/f8.cuh"

enum {
    ROPE_THREADS = 128,
    PAIRS = 4,        /* pairs per thread */
    SPARE_ROWS = 512, /* surplus rows allowed in a launch for several runs */
    MOVE_BATCH = 16,  /* loads in flight before the first store */
    FEW_SLOTS = 32,
    MANY_SLOTS = 480 /* two lists of this length fit into kernel arguments */
};

/* Arguments of a launch. blockIdx.y is the run; all caches lie in one pool. */
struct rope_args {
    const float *q, *k, *v;
    const float *cos, *sin; /* [n, d / 2] */
    const float *q_norm, *k_norm;
    uint16_t *q16;
    struct kv_pages kv; /* with the page table of the first run */
    int table_size;     /* entries from one run's table to the next */
    const struct staged_run *run;
    int n_heads, n_kv, d;
    float eps;
};

/* A head of a row: its source, its destination and what to do with it. */
struct rope_head {
    const float *x, *norm;
    uint16_t *y;
    uint8_t *code, *exponent; /* F8: destination of k and v; NULL: y is it */
    bool turn;
};

/* Find a head of row i of the run. Reads staged memory only, so it may be called before dep_wait.
 */
template <bool F8>
__device__ static inline struct rope_head rope_find(const struct rope_args &a,
                                                    const struct staged_run &run, int i, int head)
{
    struct rope_head h = {};
    int row = run.row0 + i;
    if (head < a.n_heads) {
        size_t at = ((size_t)row * a.n_heads + head) * a.d;
        h.x = a.q + at;
        h.y = a.q16 + at;
        h.norm = a.q_norm;
        h.turn = true;
        return h;
    }
    head -= a.n_heads;
    h.turn = head < a.n_kv;
    h.norm = h.turn ? a.k_norm : NULL;
    head -= h.turn ? 0 : a.n_kv;
    h.x = (h.turn ? a.k : a.v) + ((size_t)row * a.n_kv + head) * a.d;
    struct kv_pages kv = a.kv;
    int slot = run.first_slot + run.pending + i;
    kv.page += (int)blockIdx.y * a.table_size;
    int page = page_of_row(kv, run, slot);
    if (F8) {
        struct f8_rows rows = f8_page(h.turn ? kv.k : kv.v, kv.step, page, head, a.d);
        h.code = (uint8_t *)rows.code + slot_row(slot) * a.d;
        h.exponent = (uint8_t *)rows.exponent + slot_row(slot);
    } else {
        h.y = (h.turn ? kv.k : kv.v) + slot_at(kv, page, head, slot, a.d);
    }
    return h;
}

__device__ static inline uint2 four_bf16(const float *x)
{
    return make_uint2(bf16_bits(x[0]) | bf16_bits(x[1]) << 16, bf16_bits(x[2]) | bf16_bits(x[3])
                                                                                     << 16);
}

__device__ static inline void load4(float *x, const float *p)
{
    float4 v = *(const float4 *)p;
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

/* Store the row of a head whose T threads have PAIRS numbers of either half each. All threads of
 * the warp take part; `there`: the head exists. */
template <int T>
__device__ static inline void store_f8(const struct rope_head &h, float x[2][PAIRS], int part,
                                       int half, bool there)
{
    float most = 0;
#pragma unroll
    for (int j = 0; j < 2 * PAIRS; j++) {
        x[j / PAIRS][j % PAIRS] = f8_limit_row(x[j / PAIRS][j % PAIRS]);
        most = fmaxf(most, fabsf(x[j / PAIRS][j % PAIRS]));
    }
#pragma unroll
    for (int bit = T / 2; bit > 0; bit /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bit));
    uint32_t exponent = f8_exponent_byte(most);
    float scale = f8_scale(exponent);
    if (!there || !h.code)
        return;
    *(uint32_t *)(h.code + part) = f8_round4(x[0], scale);
    *(uint32_t *)(h.code + half + part) = f8_round4(x[1], scale);
    if (part == 0)
        *h.exponent = (uint8_t)exponent;
}

/* T threads per head; T = d / 8 is a power of two. */
template <int T, bool F8>
__global__ __launch_bounds__(ROPE_THREADS) void rope_kv_few(struct rope_args a)
{
    int i = (int)(blockIdx.x * ROPE_THREADS + threadIdx.x), heads = a.n_heads + 2 * a.n_kv;
    int unit = i / T, part = i % T * PAIRS, row = unit / heads, half = a.d / 2;
    const struct staged_run run = a.run[blockIdx.y];
    bool there = row < run.n;
    float x[2][PAIRS] = {}, sum = 0;
    struct rope_head h = {};
    dep_launch();
    if (there)
        h = rope_find<F8>(a, run, row, unit % heads);
    row += run.row0;
    dep_wait();
    if (there) {
        load4(x[0], h.x + part);
        load4(x[1], h.x + half + part);
    }
#pragma unroll
    for (int j = 0; j < PAIRS; j++)
        sum += x[0][j] * x[0][j] + x[1][j] * x[1][j];
#pragma unroll
    for (int bit = T / 2; bit > 0; bit /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    if (!F8 && !there)
        return;
    if (h.norm) {
        float scale = 1.0f / sqrtf(sum / (float)a.d + a.eps), w[2][PAIRS];
        load4(w[0], h.norm + part);
        load4(w[1], h.norm + half + part);
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
            x[0][j] *= scale * w[0][j];
            x[1][j] *= scale * w[1][j];
        }
    }
    if (h.turn) {
        float c[PAIRS], s[PAIRS];
        load4(c, a.cos + (size_t)row * half + part);
        load4(s, a.sin + (size_t)row * half + part);
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
            float u = x[0][j], v = x[1][j];
            x[0][j] = fmaf(u, c[j], -(v * s[j])); /* as in matmul_few_thin.cu */
            x[1][j] = fmaf(v, c[j], u * s[j]);
        }
    }
    if (!F8 || h.y) {
        *(uint2 *)(h.y + part) = four_bf16(x[0]);
        *(uint2 *)(h.y + half + part) = four_bf16(x[1]);
    }
    if constexpr (F8) /* last: it changes x */
        store_f8<T>(h, x, part, half, there);
}

/* Numbers j and j + d / 2 of a head, normalised and rotated. */
__device__ static inline float2 rope_pair(const struct rope_args &a, const struct rope_head &h,
                                          int row, int j, float scale)
{
    int half = a.d / 2;
    float u = h.x[j], v = h.x[j + half];
    if (h.norm) {
        u *= scale * h.norm[j];
        v *= scale * h.norm[j + half];
    }
    if (h.turn) {
        float c = a.cos[(size_t)row * half + j], s = a.sin[(size_t)row * half + j];
        float turned = fmaf(u, c, -(v * s));
        v = fmaf(v, c, u * s);
        u = turned;
    }
    return make_float2(u, v);
}

/* One warp per head of any even size. */
template <bool F8> __global__ __launch_bounds__(ROPE_THREADS) void rope_kv_any(struct rope_args a)
{
    int i = (int)(blockIdx.x * ROPE_THREADS + threadIdx.x), heads = a.n_heads + 2 * a.n_kv;
    int unit = i / 32, lane = i % 32, row = unit / heads, half = a.d / 2;
    const struct staged_run run = a.run[blockIdx.y];
    float scale = 1, most = 0;
    dep_launch();
    dep_wait();
    if (row >= run.n)
        return;
    struct rope_head h = rope_find<F8>(a, run, row, unit % heads);
    row += run.row0;
    if (h.norm) {
        float sum = 0;
        for (int j = lane; j < a.d; j += 32)
            sum += h.x[j] * h.x[j];
        for (int bit = 16; bit > 0; bit /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, bit);
        scale = 1.0f / sqrtf(sum / (float)a.d + a.eps);
    }
    for (int j = lane; j < half && (!F8 || h.y); j += 32) {
        float2 x = rope_pair(a, h, row, j, scale);
        h.y[j] = (uint16_t)bf16_bits(x.x);
        h.y[j + half] = (uint16_t)bf16_bits(x.y);
    }
    if (!F8 || h.y)
        return;
    for (int j = lane; j < half; j += 32) {
        float2 x = rope_pair(a, h, row, j, scale);
        most = fmaxf(most, fmaxf(fabsf(f8_limit_row(x.x)), fabsf(f8_limit_row(x.y))));
    }
    for (int bit = 16; bit > 0; bit /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bit));
    uint32_t exponent = f8_exponent_byte(most);
    for (int j = lane; j < half; j += 32) {
        float2 x = rope_pair(a, h, row, j, scale);
        h.code[j] = (uint8_t)f8_round(f8_limit_row(x.x) * f8_scale(exponent));
        h.code[j + half] = (uint8_t)f8_round(f8_limit_row(x.y) * f8_scale(exponent));
    }
    if (lane == 0)
        *h.exponent = (uint8_t)exponent;
}

/* n: number of rows of the longest run. */
template <bool F8>
static cudaError_t rope_launch(const struct device_work *w, const struct rope_args &a, int n,
                               int n_runs)
{
    int threads = a.d / (2 * PAIRS), units = n * (a.n_heads + 2 * a.n_kv);
    bool few = a.d % (2 * PAIRS) == 0 && threads <= 32 && (threads & (threads - 1)) == 0;
    int per_block = ROPE_THREADS / (few ? threads : 32);
    dim3 grid((unsigned)((units + per_block - 1) / per_block), (unsigned)n_runs);
    dim3 block(ROPE_THREADS);
    if (!few)
        return launch(rope_kv_any<F8>, grid, block, 0, w->stream, a);
    switch (threads) {
    case 1:
        return launch(rope_kv_few<1, F8>, grid, block, 0, w->stream, a);
    case 2:
        return launch(rope_kv_few<2, F8>, grid, block, 0, w->stream, a);
    case 4:
        return launch(rope_kv_few<4, F8>, grid, block, 0, w->stream, a);
    case 8:
        return launch(rope_kv_few<8, F8>, grid, block, 0, w->stream, a);
    case 16:
        return launch(rope_kv_few<16, F8>, grid, block, 0, w->stream, a);
    default:
        return launch(rope_kv_few<32, F8>, grid, block, 0, w->stream, a);
    }
}

/* Find runs [first, *end) that one launch can handle: they lie in one pool and do not differ so
 * much in their rows that most blocks would be idle. Returns the rows of the longest. */
static int rope_together(const struct attn_block *b, int first, int *end)
{
    const struct attn_run *runs = b->runs;
    int most = 0, sum = 0, i;
    for (i = first; i < b->n_runs && same_pool(runs[first].kv, runs[i].kv); i++) {
        int n = runs[i].n > most ? runs[i].n : most;
        if (i > first && n * (i + 1 - first) > 2 * (sum + runs[i].n) + SPARE_ROWS)
            break;
        most = n;
        sum += runs[i].n;
    }
    *end = i;
    return most;
}

void rope_kv(struct device_work *w, const struct attn_block *b, const float *q, const float *k,
             const float *v, void *q16)
{
    const struct layer_shape *s = b->shape;
    struct rope_args a = {};
    a.q = q;
    a.k = k;
    a.v = v;
    a.cos = b->cos;
    a.sin = b->sin;
    a.q_norm = b->w->q_norm;
    a.k_norm = b->w->k_norm;
    a.q16 = (uint16_t *)q16;
    a.table_size = w->table_size;
    a.n_heads = q ? s->n_heads : 0;
    a.n_kv = s->n_kv_heads;
    a.d = s->head_dim;
    a.eps = s->eps;
    for (int r = 0, end; r < b->n_runs; r = end) {
        int n = rope_together(b, r, &end);
        if (n == 0)
            continue;
        a.kv = pages_of(w, b->runs[r].kv, r);
        a.run = &w->staged->run[r];
        bool f8 = b->runs[r].kv->dtype == DTYPE_F8;
        work_check(w, (f8 ? rope_launch<true> : rope_launch<false>)(w, a, n, end - r),
                   "rope and cache");
    }
}

/* ---- moving slots ---- */

/* Places of slots: page * KV_CHUNK + row. */
template <int N> struct slot_list {
    int n;
    uint32_t to[N], from[N];
};

struct slot_args {
    uint8_t *to_k, *to_v;
    const uint8_t *from_k, *from_v;
    size_t to_page, from_page; /* bytes from one page to the next */
    int n_kv;
    int row;          /* bytes per slot of one head */
    size_t head_size; /* bytes from one head to the next */
};

/* A unit is sizeof(T) bytes at the same offset in all slots of a head of K or V; these are its
 * addresses in slot 0. */
struct slot_unit {
    uint8_t *to;
    const uint8_t *from;
};

template <class T>
__device__ static inline bool unit_find(const struct slot_args &a, int unit, struct slot_unit *u)
{
    int pieces = a.row / (int)sizeof(T), head = unit / pieces;
    size_t at = (size_t)(unit % pieces) * sizeof(T);
    bool values = head >= a.n_kv;
    if (head >= 2 * a.n_kv)
        return false;
    head -= values ? a.n_kv : 0;
    at += (size_t)head * a.head_size;
    u->to = (values ? a.to_v : a.to_k) + at;
    u->from = (values ? a.from_v : a.from_k) + at;
    return true;
}

/* Offset of a slot's place from the address of a unit. */
__device__ static inline size_t place_at(const struct slot_args &a, uint32_t place, size_t page)
{
    return place / KV_CHUNK * page + (size_t)(place % KV_CHUNK) * a.row;
}

/* A thread owns its unit in all slots and processes the list in order, so a slot is read before it
 * is overwritten. Within a batch all loads come first, which changes nothing: to[i] <= from[i] <
 * from[i + 1], so no store hits a slot that a later move reads. */
template <class T, int N>
__global__ __launch_bounds__(32) void kv_move_slots(struct slot_args a, struct slot_list<N> list)
{
    struct slot_unit u;
    dep_launch();
    dep_wait();
    if (!unit_find<T>(a, (int)(blockIdx.x * 32 + threadIdx.x), &u))
        return;
    for (int i = 0; i < list.n; i += MOVE_BATCH) {
        T x[MOVE_BATCH];
#pragma unroll
        for (int j = 0; j < MOVE_BATCH; j++)
            if (i + j < list.n)
                x[j] = *(const T *)(u.from + place_at(a, list.from[i + j], a.from_page));
#pragma unroll
        for (int j = 0; j < MOVE_BATCH; j++)
            if (i + j < list.n)
                *(T *)(u.to + place_at(a, list.to[i + j], a.to_page)) = x[j];
    }
}

/* blockIdx.y is the entry of the list. */
template <class T, int N>
__global__ __launch_bounds__(128) void kv_copy_slots(struct slot_args a, struct slot_list<N> list)
{
    struct slot_unit u;
    dep_launch();
    dep_wait();
    if (!unit_find<T>(a, (int)(blockIdx.x * 128 + threadIdx.x), &u))
        return;
    *(T *)(u.to + place_at(a, list.to[blockIdx.y], a.to_page)) =
        *(const T *)(u.from + place_at(a, list.from[blockIdx.y], a.from_page));
}

static uint32_t place_of(const struct kv_layer *kv, int slot)
{
    return (uint32_t)kv->page[slot_chunk(slot)] * KV_CHUNK + (uint32_t)slot_row(slot);
}

/* A part of the lists of slots, with the layers whose page tables they refer to. */
struct slot_part {
    const struct kv_layer *to, *from;
    const int *to_slots, *from_slots;
    int n;
    bool move;
};

template <class T, int N>
static cudaError_t slots_launch(const struct device_work *w, const struct slot_args &a,
                                const struct slot_part &p)
{
    int units = 2 * a.n_kv * (a.row / (int)sizeof(T)), threads = p.move ? 32 : 128;
    dim3 grid((unsigned)((units + threads - 1) / threads), p.move ? 1u : (unsigned)p.n);
    struct slot_list<N> list;
    list.n = p.n;
    for (int i = 0; i < p.n; i++) {
        list.to[i] = place_of(p.to, p.to_slots[i]);
        list.from[i] = place_of(p.from, p.from_slots[i]);
    }
    return launch(p.move ? kv_move_slots<T, N> : kv_copy_slots<T, N>, grid, dim3((unsigned)threads),
                  0, w->stream, a, list);
}

template <class T>
static cudaError_t slots_any(const struct device_work *w, const struct slot_args &a,
                             const struct slot_part &p)
{
    return p.n <= FEW_SLOTS ? slots_launch<T, FEW_SLOTS>(w, a, p)
                            : slots_launch<T, MANY_SLOTS>(w, a, p);
}

/* Copy `row` bytes of each slot, which begin `at` bytes after the beginning of a head. */
static void slots_part(struct device_work *w, const struct kv_layer *to,
                       const struct kv_layer *from, const int *to_slots, const int *from_slots,
                       int n, bool move, size_t at, int row)
{
    struct slot_args a = {};
    a.to_k = (uint8_t *)to->k + at;
    a.to_v = (uint8_t *)to->v + at;
    a.from_k = (const uint8_t *)from->k + at;
    a.from_v = (const uint8_t *)from->v + at;
    a.to_page = to->page_size;
    a.from_page = from->page_size;
    a.n_kv = to->n_kv;
    a.row = row;
    a.head_size = kv_head_size(to->dtype, to->d);
    for (int i = 0; i < n; i += MANY_SLOTS) {
        struct slot_part p = { to, from, to_slots + i, from_slots + i, n - i, move };
        cudaError_t e;
        p.n = p.n < MANY_SLOTS ? p.n : MANY_SLOTS;
        if (a.row % 16 == 0)
            e = slots_any<uint4>(w, a, p);
        else if (a.row % 4 == 0)
            e = slots_any<uint32_t>(w, a, p);
        else
            e = slots_any<uint8_t>(w, a, p);
        work_check(w, e, move ? "slots of the cache moved" : "slots of the cache copied");
    }
}

static void slots_run(struct device_work *w, const struct kv_layer *to, const struct kv_layer *from,
                      const int *to_slots, const int *from_slots, int n, bool move)
{
    size_t row = dtype_row_size(to->dtype, to->d);
    slots_part(w, to, from, to_slots, from_slots, n, move, 0, (int)row);
    if (to->dtype == DTYPE_F8) /* the exponents */
        slots_part(w, to, from, to_slots, from_slots, n, move, KV_CHUNK * row, 1);
}

void kv_move(struct device_work *w, const struct kv_layer *kv, const int *to, const int *from,
             int n)
{
    int first = 0;
    while (first < n && to[first] == from[first])
        first++;
    slots_run(w, kv, kv, to + first, from + first, n - first, true);
}

void kv_copy(struct device_work *w, const struct kv_layer *to, const struct kv_layer *from,
             const int *to_slots, const int *from_slots, int n)
{
    slots_run(w, to, from, to_slots, from_slots, n, false);
}
