/* Products of few rows with Q8_0, Q4_0 and Q4_K weights on Hopper GPUs. TMA keeps a ring of packed
 * weights full. A lane's weights in the layout of planes.h are what the lane passes to mma: the
 * quants become BF16 integers in registers, exactly, and the sum of a block of 32 is scaled in f32
 * and added. No product is rounded before that.
 *
 * A block has a tile of rows of its own and sums over all of K. The exception is several rows of x,
 * where blocks may share the K of a tile (matmul_few_packed_group_hopper.cuh); the order of the
 * sums is the same. The number of rows of a tile is chosen by the shape so that the tiles form few,
 * equal waves, with one block per multiprocessor (two blocks of half the size for a lone row, which
 * has a kernel of its own). Two octets are a unit (one of gate and one of up in a gated product).
 * If a tile has few units, several warps share each unit, take its slots in turn (Q4_K: pairs of
 * slots, i.e. super-blocks), and are summed in order at the end. If there are more tiles than
 * blocks, a block takes several tiles, and the ring never runs empty between them. The bits of an
 * output depend on the matrices of the launch, never on the number of rows.
 *
 * Norms are applied as described in norm.h: x may be unscaled, and a product that adds to x
 * prepares it for the next norm.
 *
 * Weights are requested before the preceding kernel has ended. With one block per multiprocessor, a
 * block takes more than half of the shared memory; otherwise two could share a multiprocessor while
 * another one is idle. A lone row's blocks need little, but still ask for that much if there are no
 * more blocks than multiprocessors, and for a third if there are up to twice as many: otherwise
 * they would crowd onto the multiprocessors that the preceding kernel leaves first. (Tried on an
 * H200 without effect: prefetching the weights of the next products into L2, two units per warp,
 * one block per multiprocessor for a lone row, running its code once before the preceding kernel
 * has ended.) */
#include "kernels/cuda/matmul_few.h"

#include "kernels/cuda/matmul_few_packed_group_hopper.cuh"
#include "kernels/cuda/matmul_few_packed_hopper.cuh"
#include "kernels/cuda/matmul_few_packed_one_row_hopper.cuh"

enum {
    BLOCKS = 132,               /* blocks of a wave: the multiprocessors of an H200 */
    GROUP_MEMORY = 222 << 10,   /* several rows: bytes of stages and sums, */
    GROUP_STAGE = 30 << 10,     /* bytes of a stage, about, */
    GROUP_FLIGHT = 64 << 10,    /* bytes of weights in flight until x has arrived */
    ONE_ROW_MEMORY = 206 << 10, /* lone row: shared memory of a block, */
    ONE_ROW_HALF = 112 << 10,   /* the same if two blocks share a multiprocessor */
    ONE_ROW_STAGE = 24 << 10,   /* bytes of a stage, about */
    ONE_ROW_ONE = 116 << 10,    /* least bytes of a block that should be alone on its SM, */
    ONE_ROW_TWO = 77 << 10,     /* or be one of two; */
    ONE_ROW_SHORT = 2048,       /* not for larger K, where crowding matters less */
    ONE_ROW_FLIGHT = 20 << 10,  /* bytes of weights in flight until x has arrived, about, */
    LATE_Q8_0 = 2,              /* stages in flight after that; other types: all stages */
    ROOMY = 896, /* launch bound, above the real threads: leaves registers to the next kernel, */
    ROOMY_Q4_K = 768, /* the same for Q4_K, which needs more registers */
    MAX_BOX = 1024    /* bytes of scales in a row of a box */
};

/* Registers of a thread that multiplies, and (group_few) of the others. Both start with 80, or with
 * 96 for up to 64 rows. */
__host__ __device__ static constexpr int group_most(int n)
{
    return n > 4 ? 104 : 88;
}

__host__ __device__ static constexpr int group_few(int n)
{
    return n > 4 ? 56 : 40;
}

template <enum dtype T, int N>
__global__ void __launch_bounds__(group_threads(N), 1)
    group_kernel(const __grid_constant__ packed_args a)
{
#ifdef HOPPER_CODE
    TILE_MEMORY(raw);
    unsigned char *memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
    uint32_t base = shared_address(memory), bars = base + a.ring_size;
    float *scale = (float *)(memory + a.ring_size + BARS_SIZE);
    packed_feed f;
    group_begin<T, N>(f, a, base, bars);
    if ((int)threadIdx.x < a.warps * 32) {
        registers_raise<group_most(N)>();
        group_consume<T, N>(a, memory, bars, scale, group_scalers(T) * 32);
    } else {
        registers_lower<group_few(N)>();
        group_serve<T, N>(f, a, memory, bars, scale);
    }
#endif
}

template <enum dtype T, int N>
__global__ void __launch_bounds__(most_singles(N) * 32 + 128, 1)
    single_kernel(const __grid_constant__ packed_args a)
{
#ifdef HOPPER_CODE
    TILE_MEMORY(raw);
    unsigned char *memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
    uint32_t base = shared_address(memory), bars = base + a.ring_size;
    float *scale = (float *)(memory + a.ring_size + BARS_SIZE);
    packed_feed f;
    group_begin<T, N>(f, a, base, bars);
    if ((int)threadIdx.x < a.warps * 32)
        single_consume<T, N>(a, memory, bars, scale, group_scalers(T) * 32);
    else
        group_serve<T, N>(f, a, memory, bars, scale);
#endif
}

template <enum dtype T, int MODE, bool ALONE>
__global__ void __launch_bounds__(T == DTYPE_Q4_K ? ROOMY_Q4_K : ROOMY, 1)
    one_row_kernel(const __grid_constant__ packed_args a)
{
#ifdef HOPPER_CODE
    TILE_MEMORY(memory);
    uint32_t base = shared_address(memory), bars = base + a.ring_size + a.row_size;
    int warps = a.wm * a.wk;
    dep_launch();
    if (!ALONE)
        one_row_clear_sums<T>(a, memory);
    if ((int)threadIdx.x == warps * 32) {
#pragma unroll 1
        for (int i = 0; i < a.stages; i++) {
            barrier_init(full_bar(bars, i), 1);
            barrier_init(empty_bar(bars, i), warps);
        }
        barrier_init(bars + ONE_ROW_SCALED, 1);
        *(int *)(memory + a.ring_size + a.row_size + ONE_ROW_THERE) = 0;
        barrier_init_done();
    }
    __syncthreads();
    if ((int)threadIdx.x < warps * 32)
        one_row_consume<T, MODE, ALONE>(a, memory, bars);
    else if ((int)threadIdx.x == warps * 32)
        one_row_feed<T, MODE, ALONE>(a, memory, base, bars);
    else if ((int)threadIdx.x >= warps * 32 + 32)
        one_row_prepare<T, MODE>(a, memory, bars);
#endif
}

/* ---- host ---- */

static cudaError_t launch_args(struct device_work *w, void (*kernel)(const packed_args),
                               struct by_gpu *allowed, const packed_args &a, int blocks, int others,
                               int size)
{
    cudaError_t e = allow_smem(allowed, w->gpu->index, kernel, (size_t)size, true);
    if (e != cudaSuccess)
        return e;
    return launch(kernel, dim3((unsigned)blocks), dim3((unsigned)(a.wm * a.wk * 32 + others)),
                  (size_t)size, w->stream, a);
}

/* Bytes of shared memory for the sums at the end of a tile. */
static int group_sums_size(const packed_args *a, int n)
{
    return group_stride(a->octets * 8) * 8 * n * 4 * (a->parts == 1 ? a->wk : 1);
}

template <enum dtype T, int N>
static cudaError_t launch_group(struct device_work *w, const packed_args &a, int blocks)
{
    static struct by_gpu allowed[2];
    size_t size =
        (size_t)(a.ring_size + BARS_SIZE + 8 * N * 4 + 16 + 1024 + group_sums_size(&a, N));
    void (*kernel)(const packed_args) = a.single ? single_kernel<T, N> : group_kernel<T, N>;
    cudaError_t e = allow_smem(&allowed[a.single], w->gpu->index, kernel, size, true);
    if (e != cudaSuccess)
        return e;
    return launch(kernel, dim3((unsigned)blocks, (unsigned)a.parts),
                  dim3((unsigned)(a.warps * 32 + 128)), size, w->stream, a);
}

template <enum dtype T, int MODE, bool ALONE>
static cudaError_t launch_mode(struct device_work *w, const packed_args &a, int blocks)
{
    static struct by_gpu allowed;
    int size = a.ring_size + a.row_size + ONE_ROW_BARS;
    int least_size = blocks <= BLOCKS ? (int)ONE_ROW_ONE : 0;
    if (blocks > BLOCKS && blocks <= 2 * BLOCKS && a.in <= ONE_ROW_SHORT)
        least_size = ONE_ROW_TWO;
    if (size < least_size) /* against crowding: see the head of the file */
        size = least_size;
    return launch_args(w, one_row_kernel<T, MODE, ALONE>, &allowed, a, blocks,
                       a.norm.squares || MODE == ONE_ROW_PAIRED ? 64 : 32, size);
}

template <enum dtype T>
static cudaError_t launch_one_row(struct device_work *w, const packed_args &a, int blocks)
{
    if (a.paired)
        return launch_mode<T, ONE_ROW_PAIRED, false>(w, a, blocks);
    if (a.gated)
        return a.wk == 1 ? launch_mode<T, ONE_ROW_GATED, true>(w, a, blocks)
                         : launch_mode<T, ONE_ROW_GATED, false>(w, a, blocks);
    return a.wk == 1 ? launch_mode<T, ONE_ROW_PLAIN, true>(w, a, blocks)
                     : launch_mode<T, ONE_ROW_PLAIN, false>(w, a, blocks);
}

template <enum dtype T>
static cudaError_t launch_columns(struct device_work *w, const packed_args &a, int n, int blocks)
{
    switch (n) {
    case 0:
        return launch_one_row<T>(w, a, blocks);
    case 1:
        return launch_group<T, 1>(w, a, blocks);
    case 2:
        return launch_group<T, 2>(w, a, blocks);
    case 4:
        return launch_group<T, 4>(w, a, blocks);
    default:
        return launch_group<T, 8>(w, a, blocks);
    }
}

/* Whether these kernels support the call; must not depend on the rows. */
static bool suits(const struct device_work *w, const struct few_call *c)
{
    enum dtype t = cuda_of(c->w[0])->dtype;
    if (w->gpu->major != 9 || c->n_jobs > DEVICE_MAX_JOBS || !has_blocks(t) ||
        c->in % TILE_COLS != 0)
        return false;
    for (int i = 0; i < c->n_jobs; i++)
        if (cuda_of(c->w[i])->dtype != t || cuda_of(c->w[i])->in != c->in)
            return false;
    return true;
}

/* ---- the numeric plan, which depends only on the shape ---- */

static int count_tiles(const struct few_call *c, int octets, bool whole)
{
    int n = 0;
    for (int i = 0; i < (c->gated ? 1 : c->n_jobs); i++) {
        const struct cuda_matrix *m = cuda_of(c->w[i]);
        n += (octets_of(whole ? m->whole : m->out) + octets - 1) / octets;
    }
    return n;
}

/* Octets per tile from one matrix, such that a block reads the fewest in all its waves; the largest
 * among equals. whole: for the whole matrices of which these are parts (several GPUs). */
static int best_octets(const struct few_call *c, int blocks, int most, bool whole)
{
    int best = c->gated ? most / 2 : most;
    int64_t least = INT64_MAX;
    for (int octets = best; octets >= 1; octets--) {
        int64_t waves = (count_tiles(c, octets, whole) + blocks - 1) / blocks;
        if (waves * octets < least) {
            least = waves * octets;
            best = octets;
        }
    }
    return best;
}

/* At most as many as for the whole matrix, because choose_wk counts on that. */
static int choose_octets(const struct few_call *c, int blocks, int most)
{
    return least(best_octets(c, blocks, most, false), best_octets(c, blocks, most, true));
}

static int units_of(const struct few_call *c, int octets)
{
    return c->gated ? octets : (octets + 1) / 2;
}

/* Number of warps that share a unit, chosen by the number of units of a tile if each multiprocessor
 * has one tile. */
static int choose_wk(const struct few_call *c, int pieces)
{
    int units = units_of(c, best_octets(c, BLOCKS, MOST_OCTETS, true));
    int wk = units <= 2 ? 8 : units == 3 ? 6 : units == 4 ? 4 : units < 10 ? 2 : 1;
    while (wk > 1 && (wk > pieces || wk % 2))
        wk--;
    return wk;
}

/* ---- choices that change no bit ---- */

static int halves_of(const packed_args *a)
{
    return a->gated || a->paired ? 2 : 1;
}

/* Set the sizes of a stage of `slots` slots, rounded up to `round` bytes; x_slot: bytes of x per
 * slot. */
static void size_stage(packed_args *a, enum dtype t, int slots, int x_slot, int round)
{
    int scales = slot_scales(t) / slots_per_scale(t), halves = halves_of(a), size;
    a->slots = slots;
    a->steps = (a->in_slots + slots - 1) / slots;
    a->w_size = a->octets * slots * OCTET_SLOT;
    a->half_scales = (a->octets / halves * slots * scales + 127) / 128 * 128;
    size = slots * x_slot + a->w_size + a->half_scales * halves;
    a->stage_size = (size + round - 1) / round * round;
}

/* Choose the stages for a lone row: slots are a multiple of wk, two per warp if that is not too
 * much; with `once` there are no more stages than steps. Returns false if it does not fit. */
static bool choose_one_row(packed_args *a, enum dtype t, int memory, bool once)
{
    int least = slots_per_scale(t), scales = slot_scales(t) / least, step = a->wk * least;
    a->x_size = 0;
    a->row_size = one_row_x_size(a->in) + one_row_parts_size(t, a->in) +
                  one_row_sums_size(a->wm, a->wk) +
                  one_row_ends_size(a->paired, a->wk, a->octets / halves_of(a));
    if (step * scales > MAX_BOX)
        return false;
    size_stage(a, t, step, 0, 128);
    if (least == 1 && a->in_slots > step && 2 * step * scales <= MAX_BOX &&
        (2 * a->stage_size <= ONE_ROW_STAGE || 10 * a->stage_size < memory))
        size_stage(a, t, 2 * step, 0, 128);
    a->stages = (memory - a->row_size - ONE_ROW_BARS) / a->stage_size;
    a->stages = a->stages < MAX_STAGES ? a->stages : (int)MAX_STAGES;
    if (once && a->stages > a->steps)
        a->stages = a->steps;
    a->ring_size = a->stages * a->stage_size;
    a->two_23 = 0x4b000000u;
    a->wk_inverse = (65536 + a->wk - 1) / a->wk;
    a->unit_w = halves_of(a) == 2 ? a->slots * OCTET_SLOT : 2 * a->slots * OCTET_SLOT;
    a->unit_scale = halves_of(a) == 2 ? a->slots * scales : 2 * a->slots * scales;
    a->other_w = halves_of(a) == 2 ? a->w_size / 2 : a->slots * OCTET_SLOT;
    a->other_scale = halves_of(a) == 2 ? a->half_scales : a->slots * scales;
    a->flight = (ONE_ROW_FLIGHT + a->stage_size / 2) / a->stage_size;
    a->flight = a->flight < 1 ? 1 : a->flight < a->stages ? a->flight : a->stages;
    a->late = t == DTYPE_Q8_0 && a->stages > LATE_Q8_0 ? (int)LATE_Q8_0 : a->stages;
    a->late = a->late > a->flight ? a->late : a->flight;
    return a->stages >= (a->steps > 1 ? 2 : 1);
}

/* A TMA map of 4-byte words, [octets][pieces][words of a piece]. */
static bool encode_words(encode_fn encode, CUtensorMap *map, const void *data, const int (&size)[3],
                         const int (&part)[3])
{
    cuuint64_t dim[3] = { (cuuint64_t)size[0], (cuuint64_t)size[1], (cuuint64_t)size[2] };
    cuuint64_t step[2] = { dim[0] * 4, dim[0] * dim[1] * 4 };
    cuuint32_t box[3] = { (cuuint32_t)part[0], (cuuint32_t)part[1], (cuuint32_t)part[2] };
    cuuint32_t one[3] = { 1, 1, 1 };
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_INT32, 3, (void *)data, dim, step, box, one,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static bool encode_planes(encode_fn encode, packed_args *a, int i, const struct cuda_matrix *m)
{
    int slots = slots_of(m->dtype, m->in), each = a->octets / halves_of(a);
    int words = slot_scales(m->dtype) / slots_per_scale(m->dtype) / 4, octets = octets_of(m->out);
    return encode_words(encode, &a->w[i], m->w, { OCTET_SLOT / 4, slots, octets },
                        { OCTET_SLOT / 4, a->slots, each }) &&
           encode_words(encode, &a->scale[i], m->scale, { slots * words, octets, 1 },
                        { a->slots * words, each, 1 });
}

static void fill_args(const struct few_call *c, packed_args *a)
{
    a->n_jobs = c->gated ? 1 : c->n_jobs;
    a->add = c->add;
    a->gated = c->gated;
    a->y_bf16 = c->y_bf16;
    a->in = c->in;
    a->in_slots = slots_of(cuda_of(c->w[0])->dtype, c->in);
    for (int i = 0; i < a->n_jobs; i++) {
        a->job[i].bias = c->w[i]->bias;
        a->job[i].out = cuda_of(c->w[i])->out;
        a->job[i].y_stride = c->y_stride[i];
    }
    if (c->gated)
        a->job[0].bias2 = c->w[1]->bias;
}

/* Set up tiles of `each` adjacent octets. */
static void fill_tiles(packed_args *a, const struct few_call *c, int each)
{
    a->octets = halves_of(a) * each;
    a->wm = a->paired ? each : units_of(c, each);
    a->tiles = 0;
    for (int i = 0; i < a->n_jobs; i++) {
        int octets = octets_of(a->job[i].out) / (a->paired ? 2 : 1);
        a->job[i].tile0 = a->tiles;
        a->tiles += (octets + each - 1) / each;
    }
}

/* Choose the slots of a stage and the number of stages. Returns false if nothing fits. */
static bool choose_group_stages(packed_args *a, enum dtype t, int n)
{
    int scales = slot_scales(t) / slots_per_scale(t), least = a->wk_here * slots_per_scale(t);
    int x_slot = slot_elements(t) * 2 * 8 * n, sums = t == DTYPE_Q4_K ? n * 256 : 0;
    int per_slot = x_slot + sums + a->octets * (OCTET_SLOT + scales), slots = least;
    while (a->parts == 1 && slots < a->in_slots && (slots + least) * scales <= MAX_BOX &&
           (slots + least) * per_slot <= GROUP_STAGE)
        slots += least;
    if (slots * scales > MAX_BOX)
        return false;
    size_stage(a, t, slots, x_slot + sums, 1024);
    a->step_slots = a->parts == 1 ? slots : a->wk * slots_per_scale(t);
    a->steps = (a->in_slots + a->step_slots - 1) / a->step_slots;
    a->x_size = slots * x_slot;
    a->stages = (GROUP_MEMORY - group_sums_size(a, n)) / a->stage_size;
    a->stages = a->stages < MAX_STAGES ? a->stages : (int)MAX_STAGES;
    a->ring_size = a->stages * a->stage_size;
    a->flight = GROUP_FLIGHT / (a->octets * slots * (OCTET_SLOT + scales));
    a->flight = a->flight < 1 ? 1 : a->flight < a->stages ? a->flight : a->stages;
    return a->stages > 1;
}

/* How several rows are multiplied: by mma (single) or by wgmma, and the most blocks that share the
 * K of a tile. The fastest choices for the shapes of a 7B model on an H200. */
struct packed_way {
    bool single;
    int parts, split; /* split: smallest K that blocks share */
};

static struct packed_way way_of(enum dtype t, int n)
{
    if (n == 8)
        return { false, t == DTYPE_Q4_K ? 8 : 4, 0 };
    if (n == 4 && t != DTYPE_Q8_0)
        return { false, 4, 0 };
    if (t == DTYPE_Q4_K)
        return { true, n == 1 ? 4 : 2, n == 1 ? 8192 : 0 };
    return { true, 1, 0 };
}

/* Set up tiles for several rows, where `parts` blocks share the K of a tile. Returns false if the
 * warps, their sums or the ring do not fit. */
static bool lay_out_parts(packed_args *a, const struct few_call *c, const struct device_work *w,
                          enum dtype t, int n, int parts, int *blocks)
{
    int most = a->single ? most_singles(n) : most_groups(n), width = a->single ? 1 : GROUP_UNITS;
    int each = choose_octets(c, BLOCKS, MOST_OCTETS);
    size_t sums;
    if (a->wk == 1)
        each = choose_octets(c, BLOCKS, least(most * width * 2, MOST_OCTETS));
    a->parts = parts;
    a->wk_here = a->wk / parts;
    fill_tiles(a, c, each * parts);
    a->groups = (a->wm + width - 1) / width;
    a->warps = a->groups * a->wk_here * width;
    *blocks = a->wk == 1 && a->tiles > BLOCKS ? (int)BLOCKS : a->tiles;
    sums = (size_t)a->tiles * (size_t)(a->octets * 8 * a->wk * 8 * n);
    if (a->wk % parts != 0 || a->groups * a->wk_here > most ||
        (parts > 1 && (a->tiles > FEW_COUNTERS ||
                       FEW_COUNTERS * sizeof(int) + sums * sizeof(float) > w->few_size)))
        return false;
    return choose_group_stages(a, t, n);
}

/* Follow way_of if it fits and is one wave; otherwise with fewer parts, or by mma. */
static bool lay_out_group(packed_args *a, const struct few_call *c, const struct device_work *w,
                          enum dtype t, int n, int *blocks)
{
    struct packed_way way = way_of(t, n);
    int parts = c->in < way.split ? 1 : least(a->wk, way.parts);
    a->counter = (int *)w->few_scratch;
    a->partial = (float *)(a->counter + FEW_COUNTERS);
    a->single = way.single;
    for (; parts > 0; parts--)
        if (lay_out_parts(a, c, w, t, n, parts, blocks) &&
            (parts == 1 || *blocks * parts <= BLOCKS))
            return true;
    a->single = 1;
    for (parts = 1; parts <= a->wk; parts++)
        if (lay_out_parts(a, c, w, t, n, parts, blocks))
            return true;
    return false;
}

/* A lone row has two small blocks per multiprocessor, so that one can request weights while the
 * other finishes, unless blocks have several tiles anyway. */
static bool lay_out_one_row(packed_args *a, const struct few_call *c, enum dtype t, int *blocks)
{
    int each = choose_octets(c, BLOCKS, MOST_OCTETS);
    int half = choose_octets(c, 2 * BLOCKS, MOST_OCTETS / 2);
    bool small =
        count_tiles(c, each, false) <= BLOCKS && units_of(c, half) * a->wk <= MOST_WARPS / 2;
    if (a->paired || small) {
        fill_tiles(a, c, a->paired ? 1 : half);
        *blocks = a->wk == 1 && a->tiles > 2 * BLOCKS ? 2 * BLOCKS : a->tiles;
        if (choose_one_row(a, t, ONE_ROW_HALF, *blocks == a->tiles))
            return true;
    }
    fill_tiles(a, c, a->paired ? 1 : each);
    *blocks = a->wk == 1 && a->tiles > BLOCKS ? (int)BLOCKS : a->tiles;
    return choose_one_row(a, t, ONE_ROW_MEMORY, *blocks == a->tiles);
}

/* Run up to FEW_ROWS rows, from row `at` on. */
static cudaError_t run_rows(struct device_work *w, const struct few_call *c, packed_args *a,
                            encode_fn encode, int at)
{
    enum dtype t = cuda_of(c->w[0])->dtype;
    int n = c->n - at < FEW_ROWS ? c->n - at : (int)FEW_ROWS, blocks;
    int tiles_n = n == 1 ? 0 : n <= 8 ? 1 : n <= 16 ? 2 : n <= 32 ? 4 : 8;
    bool mapped = true;
    a->n = n;
    a->row = (const uint16_t *)c->x + (size_t)at * (size_t)c->in;
    a->norm = few_norm_from(c, (size_t)at);
    a->wk = choose_wk(c, a->in_slots / slots_per_scale(t));
    if (!(n == 1 ? lay_out_one_row(a, c, t, &blocks) : lay_out_group(a, c, w, t, tiles_n, &blocks)))
        return cudaErrorInvalidConfiguration;
    for (int i = 0; i < a->n_jobs; i++)
        a->job[i].y = (uint8_t *)c->y[i] + (size_t)at * c->y_stride[i] * (c->y_bf16 ? 2 : 4);
    if (n > 1)
        mapped = encode_map(encode, &a->x, a->row, n, c->in / TILE_COLS, 0, (size_t)c->in * 2, 0,
                            8 * tiles_n, a->slots * slot_elements(t) / TILE_COLS);
    for (int i = 0; i < c->n_jobs; i++)
        mapped = mapped && encode_planes(encode, a, i, cuda_of(c->w[i]));
    if (!mapped)
        return cudaErrorInvalidValue;
    return t == DTYPE_Q8_0   ? launch_columns<DTYPE_Q8_0>(w, *a, tiles_n, blocks)
           : t == DTYPE_Q4_0 ? launch_columns<DTYPE_Q4_0>(w, *a, tiles_n, blocks)
                             : launch_columns<DTYPE_Q4_K>(w, *a, tiles_n, blocks);
}

bool few_packed_hopper(struct device_work *w, const struct few_call *c)
{
    encode_fn encode = find_encode_once();
    packed_args a = {};
    if (!encode || !suits(w, c))
        return false;
    fill_args(c, &a);
    for (int at = 0; at < c->n; at += FEW_ROWS)
        work_check(w, run_rows(w, c, &a, encode, at), "a product of few rows");
    return true;
}

/* The run of a step that has exactly one row; NULL if it has more. */
static const struct attn_run *one_row_run(const struct attn_block *b, int *index)
{
    for (*index = 0; *index < b->n_runs; ++*index)
        if (b->runs[*index].n > 0)
            return b->n == 1 && b->runs[*index].n == 1 ? &b->runs[*index] : NULL;
    return NULL;
}

bool qkv_few_packed(struct device_work *w, const struct attn_block *b, const void *x,
                    const struct few_norm *norm)
{
    const struct layer_weights *l = b->w;
    const struct layer_shape *s = b->shape;
    encode_fn encode = find_encode_once();
    struct few_call c = {};
    packed_args a = {};
    int index;
    const struct attn_run *run = one_row_run(b, &index);
    c.w[0] = &l->q, c.w[1] = &l->k, c.w[2] = &l->v;
    c.n_jobs = 3;
    c.in = l->q.in;
    c.n = 1;
    c.x = x;
    c.norm = *norm;
    if (!run || !encode || l->q_norm || l->k_norm || s->head_dim < 16 ||
        (s->head_dim & (s->head_dim - 1)) != 0 || run->kv->dtype != DTYPE_BF16 || !suits(w, &c))
        return false;
    fill_args(&c, &a);
    if (choose_wk(&c, a.in_slots / slots_per_scale(cuda_of(&l->q)->dtype)) == 1)
        return false;
    a.paired = 1;
    while (16 << a.heads.shift < s->head_dim)
        a.heads.shift++;
    a.heads.cos = b->cos;
    a.heads.sin = b->sin;
    a.heads.q16 = (uint16_t *)w->q16;
    a.heads.kv = pages_of(w, run->kv, index);
    a.heads.run = &w->staged->run[index];
    a.heads.d = s->head_dim;
    work_check(w, run_rows(w, &c, &a, encode, 0), "q, k and v");
    return true;
}
