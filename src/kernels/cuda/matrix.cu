/* Matrices on the device: uploaded from the host, filled with random numbers, freed, and read as
 * rows or as BF16. Plain types are stored as [out][stride]; Q8_0, Q4_0 and Q4_K in the layout of
 * planes.h. The other quantised types have no product of their own and are converted to BF16.
 *
 * Rows are uploaded in chunks through two pinned buffers in turn. Quantised rows arrive as they are
 * in the file, and a kernel repacks them, so the host only copies. The buffers belong to no device
 * object and live as long as there are matrices. */
#include "kernels/cuda/norm.h"
#include "kernels/cuda/planes.h"

extern "C" {
#include "tensor/quant.h"
}

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { CHUNK = 8 << 20, CHUNKS = 2, THREADS = 256 };

/* ---- buffers for uploads ---- */

/* The buffers for one GPU. */
struct way {
    bool open;
    uint8_t *host[CHUNKS], *raw[CHUNKS]; /* pinned; on the device */
    cudaEvent_t done[CHUNKS];
};

static struct {
    pthread_mutex_t lock;
    int users; /* number of matrices */
    struct way to[MAX_GPUS];
} ways = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void way_close(int device)
{
    struct way *w = &ways.to[device];
    int before = 0;
    if (!w->open || cudaGetDevice(&before) != cudaSuccess)
        return;
    cudaSetDevice(device);
    for (int i = 0; i < CHUNKS; i++) {
        if (w->done[i])
            cudaEventDestroy(w->done[i]);
        cudaFreeHost(w->host[i]);
        cudaFree(w->raw[i]);
    }
    cudaSetDevice(before);
    *w = way();
}

static cudaError_t way_open(int device)
{
    struct way *w = &ways.to[device];
    cudaError_t e = cudaSuccess;
    if (w->open)
        return e;
    w->open = true;
    for (int i = 0; i < CHUNKS && e == cudaSuccess; i++) {
        e = cudaMallocHost((void **)&w->host[i], CHUNK);
        if (e == cudaSuccess)
            e = cudaMalloc((void **)&w->raw[i], CHUNK);
        if (e == cudaSuccess)
            e = cudaEventCreateWithFlags(&w->done[i], cudaEventDisableTiming);
    }
    if (e != cudaSuccess)
        way_close(device);
    return e;
}

static void way_count(int change)
{
    pthread_mutex_lock(&ways.lock);
    ways.users += change;
    for (int i = 0; i < MAX_GPUS && ways.users == 0; i++)
        way_close(i);
    pthread_mutex_unlock(&ways.lock);
}

/* ---- memory ---- */

static enum dtype device_dtype(enum dtype t)
{
    return dtype_block(t) == 1 || has_blocks(t) ? t : DTYPE_BF16;
}

static size_t plain_size(enum dtype t)
{
    return t == DTYPE_F32 ? 4 : 2;
}

static enum pv_status no_room(const struct cuda_device *gpu, size_t size, struct pv_error *err)
{
    size_t left = 0, all = gpu->memory;
    cudaGetLastError();
    cudaMemGetInfo(&left, &all);
    return fail(err, PV_E_NOMEM,
                "%zu bytes for a matrix do not fit on %s: %zu bytes of its %zu are free", size,
                gpu->name, left, all);
}

/* Allocate a matrix, without contents. */
static enum pv_status matrix_new(struct cuda_matrix **out, struct cuda_device *gpu,
                                 const struct matrix *m, struct pv_error *err)
{
    struct cuda_matrix *c = (struct cuda_matrix *)mem_zalloc(sizeof *c);
    size_t w_size, used, pieces;
    if (!c)
        return fail_nomem(err, sizeof *c);
    c->dtype = device_dtype(m->dtype);
    c->out = c->whole = m->out;
    c->in = m->in;
    c->stride = (m->in + 63) / 64 * 64;
    used = (size_t)c->out * (size_t)c->stride * plain_size(c->dtype);
    w_size = (size_t)octets_of(c->out) * OCTET * (size_t)c->stride * plain_size(c->dtype);
    c->size = w_size;
    if (has_blocks(c->dtype)) {
        pieces = (size_t)octets_of(c->out) * (size_t)slots_of(c->dtype, c->in);
        w_size = pieces * OCTET_SLOT;
        c->size = w_size + pieces / (size_t)slots_per_scale(c->dtype) * slot_scales(c->dtype);
    }
    cudaSetDevice(gpu->index);
    if (cudaMalloc(&c->w, c->size) != cudaSuccess ||
        (!has_blocks(c->dtype) && used < w_size &&
         cudaMemsetAsync((uint8_t *)c->w + used, 0, w_size - used, gpu->upload_stream) !=
             cudaSuccess)) {
        enum pv_status s = no_room(gpu, c->size, err);
        cudaFree(c->w);
        mem_free(c);
        return s;
    }
    if (has_blocks(c->dtype))
        c->scale = (uint8_t *)c->w + w_size;
    *out = c;
    return PV_OK;
}

static void matrix_free(struct cuda_device *gpu, struct cuda_matrix *c)
{
    cudaSetDevice(gpu->index);
    if (!c->joined)
        cudaFree(c->w);
    mem_free(c);
}

/* Make m refer to c. */
static void matrix_settle(struct matrix *m, struct cuda_matrix *c)
{
    m->data = c;
    m->dtype = c->dtype;
    way_count(1);
}

void matrix_drop(struct device *dev, struct matrix *m)
{
    if (!m->data)
        return;
    matrix_free((struct cuda_device *)dev->impl, (struct cuda_matrix *)m->data);
    m->data = NULL;
    way_count(-1);
}

/* ---- adjacent matrices ---- */

static size_t bytes_of(const struct cuda_matrix *c)
{
    return (size_t)c->out * (size_t)c->stride * sizeof(uint16_t);
}

/* Move matrices next to each other. If there is no memory for that, they stay where they are. */
void matrix_join(struct device *dev, struct matrix *const *m, int n)
{
    struct cuda_device *gpu = (struct cuda_device *)dev->impl;
    size_t size = 0;
    uint8_t *all = NULL;
    for (int i = 0; i < n; i++) {
        const struct cuda_matrix *c = cuda_of(m[i]);
        if (c->dtype != DTYPE_BF16 || c->in != m[0]->in || c->out % OCTET || c->joined)
            return;
        size += bytes_of(c);
    }
    cudaSetDevice(gpu->index);
    if (cudaMalloc((void **)&all, size) != cudaSuccess) {
        cudaGetLastError();
        return;
    }
    for (int i = 0; i < n; i++) {
        struct cuda_matrix *c = (struct cuda_matrix *)m[i]->data;
        cudaMemcpyAsync(all, c->w, bytes_of(c), cudaMemcpyDeviceToDevice, gpu->upload_stream);
        cudaStreamSynchronize(gpu->upload_stream);
        cudaFree(c->w);
        c->w = all;
        c->joined = i > 0;
        all += bytes_of(c);
    }
}

bool matrix_joined(const struct matrix *const *m, int n, struct matrix *all, struct cuda_matrix *c)
{
    *all = *m[0];
    *c = *cuda_of(m[0]);
    all->data = c;
    for (int i = 1; i < n; i++) {
        const struct cuda_matrix *next = cuda_of(m[i]);
        const float *bias = m[0]->bias ? m[0]->bias + c->out : NULL;
        if (!next->joined || next->w != (const uint8_t *)c->w + bytes_of(c) || m[i]->bias != bias)
            return false;
        c->out = all->out = c->out + next->out;
    }
    return true;
}

static dim3 blocks_for(size_t threads)
{
    return dim3((unsigned)((threads + THREADS - 1) / THREADS));
}

/* ---- repacking (planes.h) ---- */

/* Arguments for repacking `rows` raw rows of `row_size` bytes; the first of them is in octet
 * octet0. */
struct repack {
    const uint8_t *raw;
    uint8_t *w, *scale;
    int rows, row_size, octet0, slots, blocks; /* blocks: per row */
};

/* Two pairs of elements, eight elements apart. */
__device__ static inline uint32_t q8_0_word(const uint8_t *q)
{
    return q[0] | q[8] << 8 | q[1] << 16 | (uint32_t)q[9] << 24;
}

/* Lane t's eight elements of 32. Q4_0 has 16 elements in the low and 16 in the high nibbles of 16
 * bytes; Q4_K has all 32 in the low or the high nibbles (`high`) of 32 bytes. */
template <enum dtype T> __device__ static inline uint32_t q4_word(const uint8_t *q, int t, int high)
{
    uint32_t v = 0;
    for (int e = 0; e < 8; e++) {
        int element = e / 2 * 8 + 2 * t + e % 2;
        int from = T == DTYPE_Q4_0 ? element % 16 : element;
        int shift = (T == DTYPE_Q4_0 ? element / 16 : high) * 4;
        v |= (uint32_t)(q[from] >> shift & 15) << (e / 2 * 4 + e % 2 * 16);
    }
    return v;
}

template <enum dtype T> __global__ void repack_kernel(const repack r)
{
    constexpr int BLOCKS = slot_elements(T) / QUANT_BLOCK;
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    int lane = (int)(i % 32), slot = (int)(i / 32 % (size_t)r.slots), t = lane % 4;
    size_t octet = i / 32 / (size_t)r.slots, piece = (octet + (size_t)r.octet0) * r.slots + slot;
    int row = (int)octet * 8 + lane / 4;
    const uint8_t *from = r.raw + (size_t)row * (size_t)r.row_size;
    uint32_t v[4] = { 0, 0, 0, 0 };
    dep_wait();
    if ((int)octet * 8 >= r.rows)
        return;
    for (int b = 0; b < BLOCKS; b++) {
        int block = slot * BLOCKS + b;
        const uint8_t *q = from + block * (T == DTYPE_Q8_0 ? 34 : 18);
        bool there = row < r.rows && block < r.blocks;
        uint16_t d = 0;
        if (T == DTYPE_Q8_0 && there) {
            v[2 * b] = q8_0_word(q + 2 + 2 * t);
            v[2 * b + 1] = q8_0_word(q + 2 + 2 * t + 16);
        } else if (T == DTYPE_Q4_0 && there) {
            v[b] = q4_word<T>(q + 2, t, 0);
        } else if (T == DTYPE_Q4_K && there) {
            const uint8_t *super = from + slot / 2 * 144;
            int j = slot % 2 * 4 + b;
            uint32_t word = q4_word<T>(super + 16 + j / 2 * 32, t, j % 2);
            v[b] = word << 3 | word >> 29;
        }
        if (T != DTYPE_Q4_K && there)
            d = (uint16_t)(q[0] | q[1] << 8);
        if (T != DTYPE_Q4_K && t == b)
            ((uint16_t *)r.scale)[(piece * 8 + (size_t)(lane / 4)) * BLOCKS + (size_t)b] = d;
    }
    ((uint4 *)r.w)[piece * 32 + (size_t)lane] = make_uint4(v[0], v[1], v[2], v[3]);
    if (T == DTYPE_Q4_K && slot % 2 == 0)
        for (int b = 4 * t; b < 4 * t + 4; b++)
            r.scale[(piece / 2 * 8 + (size_t)(lane / 4)) * 16 + (size_t)b] =
                row < r.rows ? from[slot / 2 * 144 + b] : 0;
}

static cudaError_t repack_rows(const struct cuda_matrix *c, const uint8_t *raw, int row0, int rows,
                               size_t row_size, int blocks, cudaStream_t stream)
{
    struct repack r = { .raw = raw,
                        .w = (uint8_t *)c->w,
                        .scale = (uint8_t *)c->scale,
                        .rows = rows,
                        .row_size = (int)row_size,
                        .octet0 = row0 / OCTET,
                        .slots = slots_of(c->dtype, c->in),
                        .blocks = blocks };
    dim3 grid = blocks_for((size_t)octets_of(rows) * (size_t)r.slots * 32);
    if (c->dtype == DTYPE_Q8_0)
        return launch(repack_kernel<DTYPE_Q8_0>, grid, dim3(THREADS), 0, stream, r);
    if (c->dtype == DTYPE_Q4_0)
        return launch(repack_kernel<DTYPE_Q4_0>, grid, dim3(THREADS), 0, stream, r);
    return launch(repack_kernel<DTYPE_Q4_K>, grid, dim3(THREADS), 0, stream, r);
}

/* ---- uploading ---- */

/* Write one row of the host's matrix to `to`, as it is or as BF16; `line` has room for `in` floats.
 */
static void take_row(uint8_t *to, const struct matrix *m, enum dtype t, int row, float *line)
{
    const uint8_t *from = (const uint8_t *)m->data + (size_t)row * m->row_size;
    if (t == m->dtype) {
        memcpy(to, from, dtype_row_size(t, m->in));
        return;
    }
    row_to_f32(line, from, m->dtype, m->in);
    row_from_f32(to, line, t, m->in);
}

static cudaError_t take_rows(struct cuda_device *gpu, const struct cuda_matrix *c,
                             const struct matrix *m, float *line)
{
    size_t row_size = dtype_row_size(c->dtype, m->in), pitch;
    int chunk = (int)(CHUNK / row_size) / OCTET * OCTET, blocks = m->in / QUANT_BLOCK;
    cudaStream_t stream = gpu->upload_stream;
    const struct way *way = &ways.to[gpu->index];
    cudaError_t e = cudaSuccess;
    pitch = (size_t)c->stride * plain_size(c->dtype);
    if (!has_blocks(c->dtype) && pitch != row_size)
        e = cudaMemsetAsync(c->w, 0, c->size, stream);
    for (int row = 0, i = 0; row < m->out && e == cudaSuccess; row += chunk, i++) {
        int n = m->out - row < chunk ? m->out - row : chunk;
        uint8_t *host = way->host[i % CHUNKS], *raw = way->raw[i % CHUNKS];
        e = cudaEventSynchronize(way->done[i % CHUNKS]);
        if (e != cudaSuccess)
            break;
        if (c->dtype == m->dtype && m->row_size == row_size)
            memcpy(host, (const uint8_t *)m->data + (size_t)row * row_size, (size_t)n * row_size);
        else
            for (int r = 0; r < n; r++)
                take_row(host + (size_t)r * row_size, m, c->dtype, row + r, line);
        if (!has_blocks(c->dtype)) {
            e = cudaMemcpy2DAsync((uint8_t *)c->w + (size_t)row * pitch, pitch, host, row_size,
                                  row_size, (size_t)n, cudaMemcpyHostToDevice, stream);
        } else {
            e = cudaMemcpyAsync(raw, host, (size_t)n * row_size, cudaMemcpyHostToDevice, stream);
            if (e == cudaSuccess)
                e = repack_rows(c, raw, row, n, row_size, blocks, stream);
        }
        if (e == cudaSuccess)
            e = cudaEventRecord(way->done[i % CHUNKS], stream);
    }
    return e == cudaSuccess ? cudaStreamSynchronize(stream) : e;
}

enum pv_status matrix_take(struct device *dev, struct matrix *m, struct pv_error *err)
{
    struct cuda_device *gpu = (struct cuda_device *)dev->impl;
    struct cuda_matrix *c = NULL;
    float *line = NULL;
    cudaError_t e;
    enum pv_status s;
    if (dtype_row_size(device_dtype(m->dtype), m->in) > CHUNK / OCTET)
        return fail(err, PV_E_UNSUPPORTED, "a matrix with rows of %d elements", m->in);
    s = matrix_new(&c, gpu, m, err);
    if (s)
        return s;
    if (c->dtype != m->dtype) {
        line = (float *)mem_alloc((size_t)m->in * sizeof *line);
        if (!line) {
            matrix_free(gpu, c);
            return fail_nomem(err, (size_t)m->in * sizeof *line);
        }
    }
    pthread_mutex_lock(&ways.lock);
    e = way_open(gpu->index);
    if (e == cudaSuccess && m->out > 0)
        e = take_rows(gpu, c, m, line);
    pthread_mutex_unlock(&ways.lock);
    mem_free(line);
    if (e != cudaSuccess) {
        cudaGetLastError();
        matrix_free(gpu, c);
        return fail(err, e == cudaErrorMemoryAllocation ? PV_E_NOMEM : PV_E_DEVICE,
                    "a matrix of %d x %d could not be copied to %s: %s", m->out, m->in, gpu->name,
                    cudaGetErrorString(e));
    }
    matrix_settle(m, c);
    return PV_OK;
}

/* ---- random weights ---- */

struct draw {
    uint8_t *w, *scale;
    int out, in, stride, slots;
    size_t first; /* 16-byte units before this part of the matrix */
    uint32_t seed[2];
    float sigma;
};

__device__ static inline uint32_t mix(uint32_t h)
{
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return h ^ h >> 16;
}

__device__ static inline uint32_t draw_bits(const draw &d, uint32_t i)
{
    return mix(mix(i + d.seed[0]) + d.seed[1]);
}

/* The sum of four random bytes minus its mean: nearly normal, standard deviation 147.8, within -510
 * .. 510. */
__device__ static inline int draw_normal(const draw &d, uint32_t i)
{
    return (int)__dp4a(draw_bits(d, i), 0x01010101u, 0u) - 510;
}

/* Each thread writes 16 bytes. */
template <enum dtype T> __global__ void draw_plain_kernel(const draw d)
{
    constexpr int E = T == DTYPE_F32 ? 4 : 8;
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, per_row = (size_t)(d.stride / E);
    size_t row = i / per_row;
    int k0 = (int)(i - row * per_row) * E;
    uint32_t v[4] = { 0, 0, 0, 0 };
    dep_wait();
    if (row >= (size_t)d.out)
        return;
#pragma unroll
    for (int e = 0; e < E; e++) {
        float f =
            k0 + e < d.in ? d.sigma * (float)draw_normal(d, (uint32_t)((d.first + i) * E + e)) : 0;
        if (T == DTYPE_F32)
            v[e % 4] = __float_as_uint(f);
        else if (T == DTYPE_BF16)
            v[e / 2] |= bf16_bits(f) << e % 2 * 16;
        else
            v[e / 2] |= (uint32_t)__half_as_ushort(__float2half_rn(f)) << e % 2 * 16;
    }
    ((uint4 *)d.w)[i] = make_uint4(v[0], v[1], v[2], v[3]);
}

/* A random head of a super-block. The mins are 7.5 times the scales, so that the mean is zero. */
__device__ static inline uint4 draw_head(const draw &d, uint32_t i)
{
    uint32_t s[3], bits = draw_bits(d, i);
    float scale = d.sigma / (4.6f * 48);
    s[0] = (bits | 0x20202020u) & 0x3f3f3f3fu; /* pairs 0 .. 3: 32 .. 63, with min = scale */
    s[1] = s[0];
    s[2] = bits >> 2 & 0x0f0f0f0fu; /* pairs 4 .. 7: the low 4 bits; high bits are 2 */
    s[2] |= s[2] << 4;
    s[0] |= 0x80808080u;
    s[1] |= 0x80808080u;
    return make_uint4(__half_as_ushort(__float2half_rn(scale)) |
                          (uint32_t)__half_as_ushort(__float2half_rn(7.5f * scale)) << 16,
                      s[0], s[1], s[2]);
}

/* Each thread writes 16 bytes of quants and a share of the scales. */
template <enum dtype T> __global__ void draw_planes_kernel(const draw d)
{
    constexpr int BLOCKS = slot_elements(T) / QUANT_BLOCK;
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, piece = i / 32;
    int lane = (int)(i % 32), slot = (int)(piece % (size_t)d.slots), t = lane % 4;
    size_t row = piece / (size_t)d.slots * 8 + (size_t)(lane / 4);
    uint32_t v[4] = { 0, 0, 0, 0 };
    dep_wait();
    if (row / 8 * 8 >= (size_t)d.out)
        return;
    for (int b = 0; b < BLOCKS; b++) {
        bool there = row < (size_t)d.out && (slot * BLOCKS + b) * QUANT_BLOCK < d.in;
        uint32_t at = (uint32_t)((d.first + i) * 32 + (size_t)b * 16), bits = draw_bits(d, at);
        float spread = 0.75f + (float)(bits & 255u) / 512.0f;
        if (T == DTYPE_Q8_0 && there) {
            for (int e = 0; e < 8; e++)
                v[2 * b + e / 4] |= (uint32_t)(draw_normal(d, at + 1 + e) >> 2 & 255) << e % 4 * 8;
        } else if (there) {
            v[b] = draw_bits(d, at + 1);
            if (T == DTYPE_Q4_0) /* 0 becomes 8, so that the mean is zero */
                v[b] |= (~(v[b] | v[b] >> 1 | v[b] >> 2 | v[b] >> 3) & 0x11111111u) << 3;
        }
        if (T != DTYPE_Q4_K && t == b)
            ((uint16_t *)d.scale)[(piece * 8 + row % 8) * BLOCKS + (size_t)b] =
                there ? __half_as_ushort(
                            __float2half_rn(spread * d.sigma / (T == DTYPE_Q8_0 ? 37.0f : 4.6f)))
                      : 0;
    }
    ((uint4 *)d.w)[i] = make_uint4(v[0], v[1], v[2], v[3]);
    if (T == DTYPE_Q4_K && slot % 2 == 0 && t == 0)
        ((uint4 *)d.scale)[piece / 2 * 8 + row % 8] =
            row < (size_t)d.out ? draw_head(d, (uint32_t)((d.first + i) * 32))
                                : make_uint4(0, 0, 0, 0);
}

static cudaError_t draw_all(const struct cuda_matrix *c, uint64_t seed, int first,
                            cudaStream_t stream)
{
    float sigma = 1.0f / sqrtf((float)c->in);
    size_t row = (size_t)c->stride * plain_size(c->dtype) / 16;
    struct draw d = { .w = (uint8_t *)c->w,
                      .scale = (uint8_t *)c->scale,
                      .out = c->out,
                      .in = c->in,
                      .stride = c->stride,
                      .slots = slots_of(c->dtype, c->in),
                      .first = has_blocks(c->dtype)
                                   ? (size_t)(first / OCTET) * slots_of(c->dtype, c->in) * 32
                                   : (size_t)first * row,
                      .seed = { (uint32_t)seed, (uint32_t)(seed >> 32) * 0x9e3779b1u + 1 },
                      .sigma = has_blocks(c->dtype) ? sigma : sigma / 147.8f };
    size_t units =
        has_blocks(c->dtype) ? (size_t)octets_of(c->out) * (size_t)d.slots * 32 : c->size / 16;
    void (*kernel)(const draw) = c->dtype == DTYPE_F32    ? draw_plain_kernel<DTYPE_F32>
                                 : c->dtype == DTYPE_F16  ? draw_plain_kernel<DTYPE_F16>
                                 : c->dtype == DTYPE_BF16 ? draw_plain_kernel<DTYPE_BF16>
                                 : c->dtype == DTYPE_Q8_0 ? draw_planes_kernel<DTYPE_Q8_0>
                                 : c->dtype == DTYPE_Q4_0 ? draw_planes_kernel<DTYPE_Q4_0>
                                                          : draw_planes_kernel<DTYPE_Q4_K>;
    cudaError_t e = launch(kernel, blocks_for(units), dim3(THREADS), 0, stream, d);
    return e == cudaSuccess ? cudaStreamSynchronize(stream) : e;
}

enum pv_status matrix_draw(struct device *dev, struct matrix *m, uint64_t seed,
                           struct pv_error *err)
{
    return matrix_draw_rows(dev, m, seed, 0, err);
}

enum pv_status matrix_draw_rows(struct device *dev, struct matrix *m, uint64_t seed, int first,
                                struct pv_error *err)
{
    struct cuda_device *gpu = (struct cuda_device *)dev->impl;
    struct cuda_matrix *c = NULL;
    enum pv_status s = matrix_new(&c, gpu, m, err);
    cudaError_t e;
    if (s)
        return s;
    e = m->out > 0 ? draw_all(c, seed, first, gpu->upload_stream) : cudaSuccess;
    if (e != cudaSuccess) {
        cudaGetLastError();
        matrix_free(gpu, c);
        return fail(err, PV_E_DEVICE,
                    "a matrix of %d x %d could not be filled with random numbers on %s: %s", m->out,
                    m->in, gpu->name, cudaGetErrorString(e));
    }
    matrix_settle(m, c);
    return PV_OK;
}

/* ---- reading ---- */

struct reading {
    const uint8_t *w, *scale;
    int out, in, stride, slots;
};

static struct reading reading_of(const struct cuda_matrix *m)
{
    return (struct reading){ .w = (const uint8_t *)m->w,
                             .scale = (const uint8_t *)m->scale,
                             .out = m->out,
                             .in = m->in,
                             .stride = m->stride,
                             .slots = slots_of(m->dtype, m->in) };
}

/* Decode elements k .. k + 7 of a row, k a multiple of 8, with the bits of the host's decoder. */
template <enum dtype T>
__device__ static inline void read_eight(float v[8], const reading &m, size_t row, int k)
{
    constexpr int BLOCKS = slot_elements(T) / QUANT_BLOCK;
    int block = k / QUANT_BLOCK, b = block % BLOCKS, p = k % QUANT_BLOCK / 8;
    size_t piece = row / 8 * (size_t)m.slots + (size_t)(block / BLOCKS);
    const uint32_t *word = (const uint32_t *)m.w + (piece * 32 + row % 8 * 4) * 4 +
                           (T == DTYPE_Q8_0 ? b * 2 + p / 2 : b); /* of lane 0; a lane has 4 */
    if (T == DTYPE_Q4_K) {
        uint4 h = ((const uint4 *)m.scale)[piece / 2 * 8 + row % 8];
        uint32_t scales, mins;
        q4_k_pairs(&scales, &mins, h.y, h.z, h.w, block / BLOCKS % 2);
        float d = f16_float(h.x & 0xffffu) * byte_float(scales, b);
        float less = f16_float(h.x >> 16) * byte_float(mins, b);
        for (int e = 0; e < 8; e++) {
            uint32_t turned = __funnelshift_r(word[e / 2 * 4], word[e / 2 * 4], 3);
            float q = (float)plane_nibble(turned, 2 * p + e % 2), product = d * q;
#ifndef PV_CUDASIM
            product = __fmul_rn(d, q); /* not fused with the subtraction */
#endif
            v[e] = product - less;
        }
    } else {
        float d =
            f16_float(((const uint16_t *)m.scale)[(piece * 8 + row % 8) * BLOCKS + (size_t)b]);
        for (int e = 0; e < 8; e++) {
            uint32_t its = word[e / 2 * 4];
            int shift = (e % 2 * 2 + p % 2) * 8; /* byte order e0 e2 e1 e3 */
            v[e] = d * (float)(T == DTYPE_Q8_0 ? (int)(int8_t)(its >> shift)
                                               : plane_nibble(its, 2 * p + e % 2) - 8);
        }
    }
}

template <enum dtype T>
__device__ static inline float read_plain(const reading &m, size_t row, int k)
{
    size_t at = row * (size_t)m.stride + (size_t)k;
    if (T == DTYPE_F32)
        return ((const float *)m.w)[at];
    if (T == DTYPE_BF16)
        return bf16_float(((const uint16_t *)m.w)[at]);
    return f16_float(((const uint16_t *)m.w)[at]);
}

/* The sum of the squares of an octet, in the order of octet_squares (norm.h). */
__device__ static inline float sum_squares(const float v[8])
{
    float s[8];
    for (int e = 0; e < 8; e++)
        s[e] = __fmul_rn(v[e], v[e]);
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* Where else a looked-up row goes: prepared for a norm (norm.h). weight NULL: nowhere. */
struct norm_out {
    const float *weight;
    uint16_t *xn;
    float *sums;
};

/* One block per row; a thread takes eight elements at a time. */
template <enum dtype T>
__global__ void rows_kernel(float *y, const reading m, const int32_t *ids, const norm_out norm)
{
    dep_launch();
    dep_wait();
    size_t row = (size_t)ids[blockIdx.x], first = (size_t)blockIdx.x * (size_t)m.in;
    y += first;
    for (int k = (int)threadIdx.x * 8; k < m.in; k += THREADS * 8) {
        float v[8];
        if constexpr (T == DTYPE_Q8_0 || T == DTYPE_Q4_0 || T == DTYPE_Q4_K) {
            read_eight<T>(v, m, row, k);
        } else {
            for (int e = 0; e < 8; e++)
                v[e] = k + e < m.in ? read_plain<T>(m, row, k + e) : 0;
        }
        for (int e = 0; e < 8 && k + e < m.in; e++)
            y[k + e] = v[e];
        if (norm.weight) {
            norm.sums[(first + (size_t)k) / NORM_OCTET] = sum_squares(v);
            for (int e = 0; e < 8; e++)
                norm.xn[first + (size_t)(k + e)] = (uint16_t)bf16_bits(v[e] * norm.weight[k + e]);
        }
    }
}

void matrix_rows(struct device_work *w, float *y, const struct cuda_matrix *m, const int32_t *ids,
                 int n, const struct few_norm *norm)
{
    struct norm_out out = { norm ? norm->weight : NULL, norm ? norm->xn : NULL,
                            norm ? norm->sums : NULL };
    void (*kernel)(float *, const reading, const int32_t *, const norm_out) =
        m->dtype == DTYPE_F32    ? rows_kernel<DTYPE_F32>
        : m->dtype == DTYPE_F16  ? rows_kernel<DTYPE_F16>
        : m->dtype == DTYPE_BF16 ? rows_kernel<DTYPE_BF16>
        : m->dtype == DTYPE_Q8_0 ? rows_kernel<DTYPE_Q8_0>
        : m->dtype == DTYPE_Q4_0 ? rows_kernel<DTYPE_Q4_0>
                                 : rows_kernel<DTYPE_Q4_K>;
    if (n > 0)
        work_check(w,
                   launch(kernel, dim3((unsigned)n), dim3(THREADS), 0, w->stream, y, reading_of(m),
                          ids, out),
                   "matrix_rows");
}

/* Each thread converts eight elements. */
template <enum dtype T> __global__ void to_bf16_kernel(uint4 *y, const reading m)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, per_row = (size_t)(m.stride / 8);
    size_t row = i / per_row;
    int k = (int)(i - row * per_row) * 8;
    float v[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    dep_launch();
    dep_wait();
    if (row >= (size_t)m.out)
        return;
    if (k < m.in)
        read_eight<T>(v, m, row, k);
    y[i] = make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                      pack_bf16(v[6], v[7]));
}

void matrix_to_bf16(struct device_work *w, void *y, const struct cuda_matrix *m)
{
    void (*kernel)(uint4 *, const reading) = m->dtype == DTYPE_Q8_0   ? to_bf16_kernel<DTYPE_Q8_0>
                                             : m->dtype == DTYPE_Q4_0 ? to_bf16_kernel<DTYPE_Q4_0>
                                                                      : to_bf16_kernel<DTYPE_Q4_K>;
    size_t units = (size_t)m->out * (size_t)(m->stride / 8);
    if (!has_blocks(m->dtype))
        return work_check(w, cudaErrorInvalidValue, "matrix_to_bf16");
    work_check(
        w,
        launch(kernel, blocks_for(units), dim3(THREADS), 0, w->stream, (uint4 *)y, reading_of(m)),
        "matrix_to_bf16");
}
