/* Products of few rows with Q8_0, Q4_0 and Q4_K weights on Hopper GPUs: the copy engine keeps a
 * ring of packed weights full, a lane of planes.h is what it gives to mma, so that the quants
 * become BF16 integers in registers, exactly, and the sum of a block of 32 is scaled in f32 and
 * added: no product is rounded before.
 *
 * A block has a tile of rows to itself and walks all of K, so nothing is summed across blocks. How
 * many rows a tile has is chosen by the shape so that the tiles come out as few equal waves, one
 * block to a multiprocessor. Two octets are a unit (one of gate, one of up in a gated product);
 * where a tile has few units, several warps share each and take its slots in turn, and are summed
 * in order at the end. Where there are more tiles than blocks, a block takes several, and the ring
 * never runs dry between them. The bits of an output depend on the matrices of the launch, never
 * on how many rows there are.
 *
 * Weights are asked for before the kernel in front has ended. A block takes more than half of the
 * shared memory: two on one multiprocessor would leave another one idle. */
#include "kernels/cuda/matmul_few.h"

size_t few_packed_scratch(void)
{
    return 0;
}

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
    LEAST_STAGES = 3,
    MAX_BOX = 1024         /* bytes of scales in a row of a box */
};

#ifdef PACKED_TUNE
struct packed_tune {
    int ring, stage, mt, persist, wk, kc, per;
} packed_tune = { RING_SIZE, STAGE_SIZE, 1, 1, 0, 0, 1 };
struct packed_tune packed_told; /* wm, wk, slots, stages, blocks */
const struct cuda_matrix *packed_next[4];
int packed_n_next;
double packed_bring;
unsigned long long *packed_trace; /* of the next launch */
#define TUNED(field, value) packed_tune.field
#else
#define TUNED(field, value) (value)
#endif

template <enum dtype T, int N, int MT>
__global__ void __launch_bounds__(packed_bound(N, MT), 1)
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
        TRACE_TIME(0);
        TRACE(1);
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
        consume<T, N, MT>(a, memory, bars);
    else if ((int)threadIdx.x == warps * 32)
        feed<T>(f, a, base, bars);
#endif
}

/* ---- host ---- */

/* launch() with blocks in clusters. */
static cudaError_t launch_clusters(void (*kernel)(const packed_args), int blocks, int cluster,
                                   int threads, size_t smem, cudaStream_t stream,
                                   const packed_args &a)
{
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute attr[2];
    c.gridDim = dim3((unsigned)blocks);
    c.blockDim = dim3((unsigned)threads);
    c.dynamicSmemBytes = smem;
    c.stream = stream;
    c.attrs = attr;
    if (launch_overlaps) {
        attr[c.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[c.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attr[c.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attr[c.numAttrs].val.clusterDim.x = (unsigned)cluster;
        attr[c.numAttrs].val.clusterDim.y = 1;
        attr[c.numAttrs++].val.clusterDim.z = 1;
    }
    return cudaLaunchKernelEx(&c, kernel, a);
}

template <enum dtype T, int N, int MT>
static cudaError_t launch_packed(struct device_work *w, const packed_args &a, int blocks)
{
    static size_t allowed;
    size_t size = (size_t)a.ring_size + MAX_STAGES * 16 + 1024;
    if (allowed < size) {
        cudaError_t e = allow_smem(packed_kernel<T, N, MT>, size);
        if (e != cudaSuccess)
            return e;
        allowed = size;
    }
    return launch_clusters(packed_kernel<T, N, MT>, blocks, a.kc, a.wm * a.wk * 32 + 32, size,
                           w->stream, a);
}

template <enum dtype T, int MT>
static cudaError_t launch_columns(struct device_work *w, const packed_args &a, int n, int blocks)
{
    switch (n) {
    case 0:
        return launch_packed<T, 0, MT>(w, a, blocks);
    case 1:
        return launch_packed<T, 1, MT>(w, a, blocks);
    case 2:
        return launch_packed<T, 2, MT>(w, a, blocks);
    case 4:
        return launch_packed<T, 4, MT>(w, a, blocks);
    default:
        return launch_packed<T, 8, MT>(w, a, blocks);
    }
}

template <enum dtype T>
static cudaError_t launch_units(struct device_work *w, const packed_args &a, int n, int mt,
                                int blocks)
{
    return mt == 1 ? launch_columns<T, 1>(w, a, n, blocks) : launch_columns<T, 2>(w, a, n, blocks);
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
    if (TUNED(wk, 0) && units == 3)
        wk = TUNED(wk, 0);
    while (wk > 1 && (wk > slots || wk % 2))
        wk--;
    return wk;
}

/* ---- what changes no bit ---- */

/* Blocks of a cluster: several where x of many rows would be more to read than the weights. */
static int choose_cluster(const struct few_call *c, enum dtype t, int wk, int n)
{
    if (n < TUNED(kc, 2) || TUNED(kc, 2) == 0 || c->gated)
        return 1;
    for (int kc = 4; kc > 1; kc--)
        if (wk % kc == 0 && wk / kc >= 2 && wk / kc % slots_per_scale(t) == 0)
            return kc;
    return 1;
}

/* Slots of a stage: a divisor or a multiple of wk; wk in a cluster. False: nothing fits. */
static bool choose_stages(packed_args *a, enum dtype t, int n, int slots)
{
    int scales = slot_scales(t) / slots_per_scale(t), least = slots_per_scale(t);
    int per_slot = slot_elements(t) * 2 * (n == 0 ? 1 : 8 * n) + a->octets * (OCTET_SLOT + scales);
    int best = 0, most = TUNED(stage, STAGE_SIZE);
    for (int s = least; (s <= slots || best == 0) && s * scales <= MAX_BOX; s += least) {
        bool fits = a->kc > 1 ? s == a->wk : a->wk % s == 0 || s % a->wk == 0;
        int size = s * per_slot + 1024, stages = a->ring_size / size;
        if (fits && stages > (s < a->wk ? a->wk / s : 1) &&
            (best == 0 || size <= most || (s <= a->wk && stages >= LEAST_STAGES)))
            best = s;
    }
    a->slots = best;
    if (best == 0)
        return false;
    a->steps = (slots + best * a->kc - 1) / (best * a->kc);
    a->x_size = best * slot_elements(t) * 2 * (n == 0 ? 1 : 8 * n);
    a->w_size = a->octets * best * OCTET_SLOT;
    a->half_scales = (a->octets / (a->gated ? 2 : 1) * best * scales + 127) / 128 * 128;
    a->stage_size = a->x_size + a->w_size + a->half_scales * (a->gated ? 2 : 1);
    a->stage_size = (a->stage_size + 1023) / 1024 * 1024;
    a->stages = a->ring_size / a->stage_size;
    a->stages = a->stages < MAX_STAGES ? a->stages : (int)MAX_STAGES;
    return a->stages >= 2;
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

/* The warps of a unit over kc blocks, which then have kc times as many octets: x is read less
 * often. */
static void fill_tiles(packed_args *a, int each, int wk, int kc)
{
    a->kc = kc;
    a->wk = wk / kc;
    a->octets = (a->gated ? 2 : 1) * each * kc;
    a->tiles = 0;
    for (int i = 0; i < a->n_jobs; i++) {
        a->job[i].tile0 = a->tiles;
        a->tiles += (octets_of(a->job[i].out) + each * kc - 1) / (each * kc);
    }
}

/* What of the matrices that come next is to be brought to L2: the same part of each row, `most`
 * bytes in all. */
static void fill_soon(packed_args *a, const struct cuda_matrix *const *m, int n, double most)
{
    double all = 0;
    a->n_soon = 0;
    for (int i = 0; i < n; i++)
        all += (double)m[i]->size;
    for (int i = 0; i < n && a->n_soon + 2 <= MOST_SOON; i++) {
        int slots = slots_of(m[i]->dtype, m[i]->in), rows = octets_of(m[i]->out);
        int scales = slot_scales(m[i]->dtype) / slots_per_scale(m[i]->dtype);
        int part = most >= all ? slots : (int)(slots * (most / all)) / 2 * 2;
        if (part == 0 || !has_blocks(m[i]->dtype))
            continue;
        a->soon[a->n_soon++] = { (const uint8_t *)m[i]->w, rows, slots * OCTET_SLOT,
                                 part * OCTET_SLOT };
        a->soon[a->n_soon++] = { (const uint8_t *)m[i]->scale, rows, slots * scales,
                                 part * scales };
    }
}

/* Up to FEW_ROWS rows, from row `at` on. */
static cudaError_t run_rows(struct device_work *w, const struct few_call *c, packed_args *a,
                            encode_fn encode, int at)
{
    enum dtype t = cuda_of(c->w[0])->dtype;
    int n = c->n - at < FEW_ROWS ? c->n - at : (int)FEW_ROWS, slots = slots_of(t, c->in);
    int tiles_n = n == 1 ? 0 : n <= 8 ? 1 : n <= 16 ? 2 : n <= 32 ? 4 : 8;
    int each = choose_octets(c, BLOCKS, MOST_OCTETS), wk = choose_wk(c, slots), per = 1, blocks;
    int kc = choose_cluster(c, t, wk, tiles_n), mt, units;
    bool mapped;
    if (TUNED(per, 1) == 2 && kc == 1 && tiles_n <= 2) {
        int half = choose_octets(c, 2 * BLOCKS, MOST_OCTETS / 2);
        if (units_of(c, half) * wk <= packed_warps(1) / 2) {
            per = 2;
            each = half;
        }
    }
    a->n = n;
    fill_tiles(a, each, wk, kc);
    units = (a->octets + 1) / 2;
    mt = units == 1 || per == 2 ? 1 : TUNED(mt, 1);
    if ((units + mt - 1) / mt * a->wk > packed_warps(mt))
        mt = 1;
    a->wm = (units + mt - 1) / mt;
    a->ring_size = per == 2 ? 104 << 10 : TUNED(ring, RING_SIZE);
    if (!choose_stages(a, t, tiles_n, slots))
        return cudaErrorInvalidConfiguration;
    for (int i = 0; i < a->n_jobs; i++)
        a->job[i].y = (uint8_t *)c->y[i] + (size_t)at * c->y_stride[i] * (c->y_bf16 ? 2 : 4);
    mapped = encode_x(encode, a, (const uint16_t *)c->x + (size_t)at * (size_t)c->in, t, tiles_n,
                      c->in);
    for (int i = 0; i < c->n_jobs; i++)
        mapped = mapped && encode_planes(encode, a, i, cuda_of(c->w[i]));
    if (!mapped)
        return cudaErrorInvalidValue;
    blocks = a->wk == 1 && a->tiles > per * BLOCKS && TUNED(persist, 1) ? per * BLOCKS
                                                                         : a->tiles * a->kc;
#ifdef PACKED_TUNE
    packed_told = { a->octets, a->wm, a->wk, a->slots, a->stages, a->kc, blocks };
    fill_soon(a, packed_next, packed_n_next, packed_bring);
    a->trace = packed_trace;
#endif
    return t == DTYPE_Q8_0   ? launch_units<DTYPE_Q8_0>(w, *a, tiles_n, mt, blocks)
           : t == DTYPE_Q4_0 ? launch_units<DTYPE_Q4_0>(w, *a, tiles_n, mt, blocks)
                             : launch_units<DTYPE_Q4_K>(w, *a, tiles_n, mt, blocks);
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
