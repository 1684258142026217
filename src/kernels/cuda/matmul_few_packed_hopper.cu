/* Products of few rows with Q8_0, Q4_0 and Q4_K weights on Hopper GPUs: the copy engine keeps a
 * ring of packed weights full, a lane of planes.h is what it gives to mma, so that the quants
 * become BF16 integers in registers, exactly, and the sum of a block of 32 is scaled in f32 and
 * added: no product is rounded before.
 *
 * A block has a tile of rows to itself and walks all of K, so nothing is summed across blocks. How
 * many rows a tile has is chosen by the shape so that the tiles come out as few equal waves, one
 * block to a multiprocessor (two half as large ones for a lone row). Two octets are a unit (one of
 * gate, one of up in a gated product); where a tile has few units, several warps share each and
 * take its slots in turn, and are summed in order at the end. Where there are more tiles than
 * blocks, a block takes several, and the ring never runs dry between them. The bits of an output
 * depend on the matrices of the launch, never on how many rows there are.
 *
 * Weights are asked for before the kernel in front has ended. Where there is one block to a
 * multiprocessor, it takes more than half of the shared memory: two on one would leave another one
 * idle. (Measured on an H200 and of no use: blocks that share K in clusters, asking L2 for the
 * weights of the products behind, two units to a warp.) */
#include "kernels/cuda/matmul_few.h"

#ifdef PV_CUDASIM

bool few_packed_hopper(struct device_work *w, const struct few_call *c)
{
    (void)w, (void)c;
    return false;
}

#else

#include "kernels/cuda/matmul_few_packed_hopper.h"

enum {
    BLOCKS = 132, /* of a wave: as many as an H200 has multiprocessors */
    RING_SIZE = 200 << 10,
    STAGE_SIZE = 42 << 10, /* about */
    RING_HALF = 104 << 10, /* of a block that shares its multiprocessor */
    STAGE_HALF = 20 << 10,
    LEAST_STAGES = 4,
    MAX_BOX = 1024 /* bytes of scales in a row of a box */
};

template <enum dtype T, int N>
__global__ void __launch_bounds__(packed_bound(N), 1)
    packed_kernel(const __grid_constant__ packed_args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    TILE_MEMORY(raw);
    unsigned char *memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
    uint32_t base = shared_address(memory), bars = base + a.ring_size;
    int warps = a.wm * a.wk, users = a.wm * (a.slots < a.wk ? a.slots : a.wk);
    packed_feed f;
    dep_launch();
    if ((int)threadIdx.x == warps * 32) {
        constexpr int scales = slot_scales(T) / slots_per_scale(T);
        f.x_bytes = a.slots * slot_elements(T) * 2 * (N == 0 ? 1 : 8 * N);
        f.w_bytes = a.octets * a.slots * (OCTET_SLOT + scales);
        for (int i = 0; i < a.stages; i++) {
            barrier_init(full_bar(bars, i), 1);
            barrier_init(empty_bar(bars, i), users);
        }
        barrier_init_done();
        map_prefetch(&a.x);
        feed_early<T>(f, a, base, bars);
    }
    __syncthreads();
    if ((int)threadIdx.x < warps * 32)
        consume<T, N>(a, memory, bars);
    else if ((int)threadIdx.x == warps * 32)
        feed<T>(f, a, base, bars);
#endif
}

/* ---- host ---- */

template <enum dtype T, int N>
static cudaError_t launch_packed(struct device_work *w, const packed_args &a, int blocks)
{
    static int allowed;
    int size = a.ring_size + MAX_STAGES * 16 + 1024;
    if (allowed < size) {
        cudaError_t e = allow_smem(packed_kernel<T, N>, (size_t)size);
        if (e != cudaSuccess)
            return e;
        allowed = size;
    }
    return launch(packed_kernel<T, N>, dim3((unsigned)blocks),
                  dim3((unsigned)(a.wm * a.wk * 32 + 32)), (size_t)size, w->stream, a);
}

template <enum dtype T>
static cudaError_t launch_columns(struct device_work *w, const packed_args &a, int n, int blocks)
{
    switch (n) {
    case 0:
        return launch_packed<T, 0>(w, a, blocks);
    case 1:
        return launch_packed<T, 1>(w, a, blocks);
    case 2:
        return launch_packed<T, 2>(w, a, blocks);
    case 4:
        return launch_packed<T, 4>(w, a, blocks);
    default:
        return launch_packed<T, 8>(w, a, blocks);
    }
}

/* Whether all of the call is for this kernel: nothing of it depends on the rows. */
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

/* ---- the numeric plan: by the shape alone ---- */

static int count_tiles(const struct few_call *c, int octets)
{
    int n = 0;
    for (int i = 0; i < (c->gated ? 1 : c->n_jobs); i++)
        n += (octets_of(cuda_of(c->w[i])->out) + octets - 1) / octets;
    return n;
}

/* Octets of a tile from one matrix, so that the waves of blocks have the least to read one after
 * the other; the larger of equals. */
static int choose_octets(const struct few_call *c, int blocks, int most)
{
    int best = c->gated ? most / 2 : most;
    int64_t least = INT64_MAX;
    for (int octets = best; octets >= 1; octets--) {
        int64_t waves = (count_tiles(c, octets) + blocks - 1) / blocks;
        if (waves * octets < least) {
            least = waves * octets;
            best = octets;
        }
    }
    return best;
}

static int units_of(const struct few_call *c, int octets)
{
    return c->gated ? octets : (octets + 1) / 2;
}

/* Warps that share a unit, by the units of a tile of which a wave has one to a multiprocessor. */
static int choose_wk(const struct few_call *c, int slots)
{
    int units = units_of(c, choose_octets(c, BLOCKS, MOST_OCTETS));
    int wk = units <= 2 ? 8 : units <= 4 ? 4 : units < 10 ? 2 : 1;
    while (wk > 1 && (wk > slots || wk % 2))
        wk--;
    return wk;
}

/* ---- what changes no bit ---- */

/* Slots of a stage, a divisor or a multiple of wk: all warps are to have a slot of a stage, if the
 * ring still has some stages then. False: nothing fits. */
static bool choose_stages(packed_args *a, enum dtype t, int n, int slots, int most)
{
    int scales = slot_scales(t) / slots_per_scale(t), least = slots_per_scale(t), best = 0;
    int x_slot = slot_elements(t) * 2 * (n == 0 ? 1 : 8 * n), halves = a->gated ? 2 : 1;
    int per_slot = x_slot + a->octets * (OCTET_SLOT + scales);
    for (int s = least; (s <= slots || best == 0) && s * scales <= MAX_BOX; s += least) {
        int size = s * per_slot + 1024, stages = a->ring_size / size;
        if ((a->wk % s == 0 || s % a->wk == 0) && stages > (s < a->wk ? a->wk / s : 1) &&
            (best == 0 || size <= most || (s <= a->wk && stages >= LEAST_STAGES)))
            best = s;
    }
    if (best == 0)
        return false;
    a->slots = best;
    a->steps = (slots + best - 1) / best;
    a->x_size = best * x_slot;
    a->w_size = a->octets * best * OCTET_SLOT;
    a->half_scales = (a->octets / halves * best * scales + 127) / 128 * 128;
    a->stage_size = a->x_size + a->w_size + a->half_scales * halves;
    a->stage_size = (a->stage_size + 1023) / 1024 * 1024;
    a->stages = a->ring_size / a->stage_size;
    a->stages = a->stages < MAX_STAGES ? a->stages : (int)MAX_STAGES;
    return true;
}

/* [octets][pieces][piece] words of 4 bytes. */
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
    int slots = slots_of(m->dtype, m->in), each = a->gated ? a->octets / 2 : a->octets;
    int words = slot_scales(m->dtype) / slots_per_scale(m->dtype) / 4, octets = octets_of(m->out);
    return encode_words(encode, &a->w[i], m->w, { OCTET_SLOT / 4, slots, octets },
                        { OCTET_SLOT / 4, a->slots, each }) &&
           encode_words(encode, &a->scale[i], m->scale, { slots * words, octets, 1 },
                        { a->slots * words, each, 1 });
}

/* Rows of x; a lone one as it lies, in words. */
static bool encode_x(encode_fn encode, packed_args *a, const void *x, enum dtype t, int n, int in)
{
    int depth = a->slots * slot_elements(t) / TILE_COLS;
    if (n > 0)
        return encode_map(encode, &a->x, x, a->n, in / TILE_COLS, 0, (size_t)in * 2, 0, 8 * n,
                          depth);
    return encode_words(encode, &a->x, x, { TILE_COLS / 2, 1, in / TILE_COLS },
                        { TILE_COLS / 2, 1, depth });
}

static void fill_args(const struct few_call *c, packed_args *a)
{
    a->n_jobs = c->gated ? 1 : c->n_jobs;
    a->add = c->add;
    a->gated = c->gated;
    a->y_bf16 = c->y_bf16;
    for (int i = 0; i < a->n_jobs; i++) {
        a->job[i].bias = c->w[i]->bias;
        a->job[i].out = cuda_of(c->w[i])->out;
        a->job[i].y_stride = c->y_stride[i];
    }
    if (c->gated)
        a->job[0].bias2 = c->w[1]->bias;
}

/* Tiles of `each` octets of a matrix. */
static void fill_tiles(packed_args *a, const struct few_call *c, int each)
{
    a->octets = (a->gated ? 2 : 1) * each;
    a->wm = units_of(c, each);
    a->tiles = 0;
    for (int i = 0; i < a->n_jobs; i++) {
        a->job[i].tile0 = a->tiles;
        a->tiles += (octets_of(a->job[i].out) + each - 1) / each;
    }
}

/* Which tiles, and how much of the shared memory: a lone row has two small blocks to a
 * multiprocessor, so that one asks for weights while the other ends, unless blocks have several
 * tiles anyway. */
static bool lay_out(packed_args *a, const struct few_call *c, enum dtype t, int n, int *blocks)
{
    int slots = slots_of(t, c->in), most = BLOCKS, stage = STAGE_SIZE;
    int each = choose_octets(c, BLOCKS, MOST_OCTETS);
    int half = choose_octets(c, 2 * BLOCKS, MOST_OCTETS / 2);
    a->wk = choose_wk(c, slots);
    a->ring_size = RING_SIZE;
    if (n == 0 && count_tiles(c, each) <= BLOCKS && units_of(c, half) * a->wk <= MOST_WARPS / 2) {
        each = half;
        most = 2 * BLOCKS;
        stage = STAGE_HALF;
        a->ring_size = RING_HALF;
    }
    fill_tiles(a, c, each);
    *blocks = a->wk == 1 && a->tiles > most ? most : a->tiles;
    return choose_stages(a, t, n, slots, stage);
}

/* Up to FEW_ROWS rows, from row `at` on. */
static cudaError_t run_rows(struct device_work *w, const struct few_call *c, packed_args *a,
                            encode_fn encode, int at)
{
    enum dtype t = cuda_of(c->w[0])->dtype;
    int n = c->n - at < FEW_ROWS ? c->n - at : (int)FEW_ROWS, blocks;
    int tiles_n = n == 1 ? 0 : n <= 8 ? 1 : n <= 16 ? 2 : n <= 32 ? 4 : 8;
    bool mapped;
    a->n = n;
    if (!lay_out(a, c, t, tiles_n, &blocks))
        return cudaErrorInvalidConfiguration;
    for (int i = 0; i < a->n_jobs; i++)
        a->job[i].y = (uint8_t *)c->y[i] + (size_t)at * c->y_stride[i] * (c->y_bf16 ? 2 : 4);
    mapped =
        encode_x(encode, a, (const uint16_t *)c->x + (size_t)at * (size_t)c->in, t, tiles_n, c->in);
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
    static encode_fn encode;
    packed_args a = {};
    if (!suits(w, c))
        return false;
    if (!encode)
        encode = find_encode();
    if (!encode)
        return false;
    fill_args(c, &a);
    for (int at = 0; at < c->n; at += FEW_ROWS)
        work_check(w, run_rows(w, c, &a, encode, at), "a product of few rows");
    return true;
}

#endif
