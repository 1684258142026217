/* Products of few rows with Q8_0, Q4_0 and Q4_K weights on Hopper GPUs: the copy engine keeps rings
 * of packed weights and of x full, the threads make BF16 of the quants in registers, exactly, and
 * wgmma multiplies them, weights as its 64 rows and the rows of x as its columns. The sum of a
 * block of 32 is scaled in f32 and added, so that no product is rounded before.
 *
 * A tile is 128 rows of the matrix (64 of each in a gated product, whose octets a warp pairs), a
 * unit two slots of it (planes.h). All units of a launch, tile by tile, are dealt in equal runs to
 * a number of blocks that the shape alone decides. A block that has only a part of a tile leaves
 * its sum behind; who comes last adds the parts in order. So the bits of an output depend on the
 * matrices of the launch, never on how many rows there are.
 *
 * Weights are asked for before the kernel in front has ended; a block takes less than half of the
 * shared memory, so that this one's blocks find room beside those of that. */
#include "kernels/cuda/matmul_few.h"

#ifdef PV_CUDASIM

bool few_packed_hopper(struct device_work *w, const struct few_call *c)
{
    (void)w, (void)c;
    return false;
}

size_t few_packed_scratch(void)
{
    return 0;
}

#else

#include "kernels/cuda/matmul_few_packed_hopper.h"

template <enum dtype T, int N>
__global__ void __launch_bounds__((packed_shape<T, N>::threads), 2)
    packed_kernel(const __grid_constant__ packed_args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    typedef packed_shape<T, N> S;
    typedef packed_bars<T, N> B;
    TILE_MEMORY(raw);
    unsigned char *memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
    uint32_t base = shared_address(memory), bars = base + S::bars_at;
    int begin = part_begin(a, (int)blockIdx.x), end = part_begin(a, (int)blockIdx.x + 1);
    dep_launch();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::w_stages; i++) {
            barrier_init(bars + B::w + i * 8, 1);
            barrier_init(bars + B::done + i * 8, CONSUMERS / 32);
        }
        for (int i = 0; i < S::x_stages; i++) {
            barrier_init(bars + B::x + i * 8, 1);
            barrier_init(bars + B::sums + i * 8, 1);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x < CONSUMERS)
        consume<T, N>(a, base, memory, begin, end);
    else if (threadIdx.x == CONSUMERS)
        produce<T, N>(a, base, begin, end);
    else if (T == DTYPE_Q4_K && threadIdx.x >= CONSUMERS + 32)
        sum_x<T, N>(a, memory, base, end - begin, (int)threadIdx.x % 32);
#endif
}

template <enum dtype T, int N>
static cudaError_t launch_packed(struct device_work *w, const packed_args &a)
{
    typedef packed_shape<T, N> S;
    static bool allowed;
    if (!allowed) {
        cudaError_t e = allow_smem(packed_kernel<T, N>, S::size);
        if (e != cudaSuccess)
            return e;
        allowed = true;
    }
    return launch(packed_kernel<T, N>, dim3((unsigned)a.parts), dim3(S::threads), S::size,
                  w->stream, a);
}

template <enum dtype T>
static cudaError_t launch_columns(struct device_work *w, const packed_args &a, int columns)
{
    return columns == 8    ? launch_packed<T, 8>(w, a)
           : columns == 16 ? launch_packed<T, 16>(w, a)
                           : launch_packed<T, 32>(w, a);
}

size_t few_packed_scratch(void)
{
    return sizeof(unsigned) * MAX_TILES + sizeof(float) * 2 * 2 * PARTS * TILE * MOST_ROWS;
}

/* Whether all of the call is for this kernel: nothing of it depends on the rows. */
static bool suits(const struct device_work *w, const struct few_call *c)
{
    enum dtype t = cuda_of(c->w[0])->dtype;
    if (w->gpu->major != 9 || c->n_jobs > DEVICE_MAX_JOBS || !has_blocks(t) ||
        c->in % TILE_COLS != 0 || w->few_size < few_packed_scratch())
        return false;
    for (int i = 0; i < c->n_jobs; i++)
        if (cuda_of(c->w[i])->dtype != t || cuda_of(c->w[i])->in != c->in)
            return false;
    return true;
}

/* [octets][row_size bytes]; a box is box_octets x box_size. */
static bool encode_plane(encode_fn encode, CUtensorMap *map, const void *data, int octets,
                         size_t row_size, int box_octets, int box_size)
{
    cuuint64_t dim[3] = { row_size / 4, (cuuint64_t)octets, 1 };
    cuuint64_t step[2] = { row_size, row_size * (size_t)octets };
    cuuint32_t box[3] = { (cuuint32_t)box_size / 4, (cuuint32_t)box_octets, 1 };
    cuuint32_t one[3] = { 1, 1, 1 };
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_INT32, 3, (void *)data, dim, step, box, one,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static bool encode_planes(encode_fn encode, packed_args *a, int i, const struct cuda_matrix *m,
                          int box_octets)
{
    int slots = slots_of(m->dtype, m->in), shared = slots_per_scale(m->dtype);
    int scales = slot_scales(m->dtype);
    return encode_plane(encode, &a->w[i], m->w, octets_of(m->out), (size_t)slots * OCTET_SLOT,
                        box_octets, UNIT_OCTET) &&
           encode_plane(encode, &a->scale[i], m->scale, octets_of(m->out),
                        (size_t)(slots / shared * scales), box_octets,
                        scales * UNIT_SLOTS / shared);
}

/* Few tiles have the same number of blocks each, so that no block has to leave two parts; many are
 * dealt out evenly. */
static int parts_of(int tiles, int steps)
{
    int each = (PARTS + tiles - 1) / tiles;
    if (tiles >= PARTS)
        return 2 * PARTS;
    each = each < TILE_PARTS ? each : (int)TILE_PARTS;
    return tiles * (each < steps ? each : steps);
}

static bool fill_args(struct device_work *w, const struct few_call *c, packed_args *a,
                      encode_fn encode)
{
    uint8_t *scratch = (uint8_t *)w->few_scratch + (w->few_size - few_packed_scratch());
    enum dtype t = cuda_of(c->w[0])->dtype;
    int64_t units;
    a->n_jobs = c->gated ? 1 : c->n_jobs;
    a->steps = (slots_of(t, c->in) + UNIT_SLOTS - 1) / UNIT_SLOTS;
    a->add = c->add;
    a->gated = c->gated;
    a->y_bf16 = c->y_bf16;
    a->arrived = (unsigned *)scratch;
    a->partial = (float *)(scratch + sizeof(unsigned) * MAX_TILES);
    for (int i = 0; i < c->n_jobs; i++) {
        const struct cuda_matrix *m = cuda_of(c->w[i]);
        int rows = c->gated ? GROUP : TILE;
        if (!encode_planes(encode, a, i, m, rows / OCTET))
            return false;
        a->job[i].bias = c->w[i]->bias;
        a->job[i].out = m->out;
        a->job[i].tile0 = a->tiles;
        if (!c->gated || i == 0)
            a->tiles += (m->out + rows - 1) / rows;
    }
    if (c->gated)
        a->job[0].bias2 = c->w[1]->bias;
    units = (int64_t)a->tiles * a->steps;
    a->parts = parts_of(a->tiles, a->steps);
    return a->tiles <= MAX_TILES && units < 1 << 30;
}

bool few_packed_hopper(struct device_work *w, const struct few_call *c)
{
    static encode_fn encode;
    packed_args a = {};
    enum dtype t = cuda_of(c->w[0])->dtype;
    if (!suits(w, c))
        return false;
    if (!encode)
        encode = find_encode();
    if (!encode || !fill_args(w, c, &a, encode))
        return false;
    for (int at = 0; at < c->n; at += MOST_ROWS) {
        int n = c->n - at < MOST_ROWS ? c->n - at : (int)MOST_ROWS;
        int columns = n <= 8 ? 8 : n <= 16 ? 16 : 32;
        size_t y_size = c->y_bf16 ? 2 : 4;
        a.n = n;
        for (int i = 0; i < a.n_jobs; i++) {
            a.job[i].y = (uint8_t *)c->y[i] + (size_t)at * c->y_stride[i] * y_size;
            a.job[i].y_stride = c->y_stride[i];
        }
        if (!encode_map(encode, &a.x, (const uint16_t *)c->x + (size_t)at * (size_t)c->in, n,
                        c->in / TILE_COLS, 0, (size_t)c->in * 2, 0, columns,
                        t == DTYPE_Q8_0 ? 2 : 4)) {
            work_check(w, cudaErrorInvalidValue, "a map of rows");
            return true;
        }
        work_check(w,
                   t == DTYPE_Q8_0   ? launch_columns<DTYPE_Q8_0>(w, a, columns)
                   : t == DTYPE_Q4_0 ? launch_columns<DTYPE_Q4_0>(w, a, columns)
                                     : launch_columns<DTYPE_Q4_K>(w, a, columns),
                   "a product of few rows");
    }
    return true;
}

#endif
