/* Simulator of CUDA, part 4: Hopper's own instructions as src/kernels/cuda/hopper.h names them.
 * Barriers in shared memory count arrivals and bytes; boxes of TMA arrive at once, as
 * swizzled as there; wgmma reads its operands where its descriptors say, for a warp at a time.
 * Addresses of shared memory begin at a multiple of 1024, as tiles want it. */
#ifndef PV_TESTS_CUDASIM_SM90_H
#define PV_TESTS_CUDASIM_SM90_H

#include "cudasim/cudasim.h"

enum { CUDASIM_SHARED = 1024, CUDASIM_PATIENCE = 1 << 22 };

static inline uint32_t shared_address(const void *p)
{
    return (uint32_t)((const uint8_t *)p - (const uint8_t *)cudasim_shared()) + CUDASIM_SHARED;
}

/* The address of the same place in the other block of a pair. */
enum { CUDASIM_OTHER = 1 << 30 };

static inline uint32_t peer_address(uint32_t address)
{
    return address | CUDASIM_OTHER;
}

static inline uint8_t *cudasim_at(uint32_t address)
{
    if (address & CUDASIM_OTHER)
        return (uint8_t *)cudasim_shared_of(1 - cudasim_rank()) +
               (address - CUDASIM_OTHER - CUDASIM_SHARED);
    return (uint8_t *)cudasim_shared() + (address - CUDASIM_SHARED);
}

#define TILE_MEMORY(name) unsigned char *name = (unsigned char *)cudasim_shared()

/* ---- barriers ---- */

/* The eight bytes of one. */
struct cudasim_bar {
    uint16_t count, pending;
    uint32_t bytes : 31, phase : 1;
};

static inline struct cudasim_bar *cudasim_bar_at(uint32_t bar)
{
    if (bar % 8)
        cudasim_fail("a barrier at %u", bar);
    return (struct cudasim_bar *)cudasim_at(bar);
}

static inline void cudasim_bar_end(struct cudasim_bar *b)
{
    if (b->pending == 0 && b->bytes == 0) {
        b->pending = b->count;
        b->phase ^= 1;
    }
}

static inline void barrier_init(uint32_t bar, int count)
{
    *cudasim_bar_at(bar) = cudasim_bar{ (uint16_t)count, (uint16_t)count, 0, 0 };
}

static inline void barrier_init_done()
{
}

static inline void barrier_arrive(uint32_t bar)
{
    struct cudasim_bar *b = cudasim_bar_at(bar);
    if (b->pending == 0)
        cudasim_fail("more arrivals at a barrier than it was made for (%d)", b->count);
    b->pending--;
    cudasim_bar_end(b);
}

static inline void barrier_arrive_peer(uint32_t bar)
{
    barrier_arrive(bar);
}

static inline void barrier_arrive_expect(uint32_t bar, int bytes)
{
    struct cudasim_bar *b = cudasim_bar_at(bar);
    b->bytes = (b->bytes + (uint32_t)bytes) & 0x7fffffffu;
    barrier_arrive(bar);
}

static inline void cudasim_bar_bytes(uint32_t bar, uint32_t bytes)
{
    struct cudasim_bar *b = cudasim_bar_at(bar);
    if (b->bytes < bytes)
        cudasim_fail("%u bytes arrive at a barrier that expects %u", bytes, b->bytes);
    b->bytes = (b->bytes - bytes) & 0x7fffffffu;
    cudasim_bar_end(b);
}

static inline void store_peer(uint32_t to, uint32_t bar, float4 v)
{
    if (to % 16)
        cudasim_fail("sixteen bytes at %u", to);
    memcpy(cudasim_at(to), &v, sizeof v);
    cudasim_bar_bytes(bar, sizeof v);
}

static inline bool barrier_try(uint32_t bar, uint32_t parity)
{
    return cudasim_bar_at(bar)->phase != parity;
}

static inline void barrier_wait(uint32_t bar, uint32_t parity)
{
    for (long n = 0; !barrier_try(bar, parity); n++) {
        if (n > CUDASIM_PATIENCE)
            cudasim_fail("the barrier at %u never ends its phase", bar);
        __nanosleep(1);
    }
}

static inline void barrier_wait_peer(uint32_t bar, uint32_t parity)
{
    barrier_wait(bar, parity);
}

/* Barriers of the block by number. */
struct cudasim_named {
    int arrived, round;
};
static struct cudasim_named cudasim_names[2][16]; /* by the block's rank in its cluster */
static struct cudasim_named cudasim_both;

static inline void cudasim_arrive(struct cudasim_named *b, int threads)
{
    if (++b->arrived == threads) {
        b->arrived = 0;
        b->round++;
    }
}

static inline void cudasim_meet(struct cudasim_named *b, int threads, const char *what)
{
    int round = b->round;
    cudasim_arrive(b, threads);
    for (long n = 0; b->round == round; n++) {
        if (n > CUDASIM_PATIENCE)
            cudasim_fail("%d of %d threads at %s", b->arrived, threads, what);
        __nanosleep(1);
    }
}

static inline void named_arrive(int id, int threads)
{
    cudasim_arrive(&cudasim_names[cudasim_rank()][id], threads);
}

static inline void named_sync(int id, int threads)
{
    cudasim_meet(&cudasim_names[cudasim_rank()][id], threads, "a named barrier");
}

static inline void pair_sync()
{
    cudasim_meet(&cudasim_both, 2 * (int)blockDim.x, "the barrier of two blocks");
}

/* ---- TMA ---- */

typedef uint64_t cuuint64_t;
typedef uint32_t cuuint32_t;
enum CUresult { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_INT32, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_128B };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };

struct CUtensorMap {
    const uint8_t *data;
    cuuint32_t rank, size; /* size: bytes of an element */
    bool swizzled;
    cuuint64_t dim[4], step[4];
    cuuint32_t box[4];
};

static inline void map_prefetch(const CUtensorMap *map)
{
    (void)map;
}

static inline void cudasim_load(uint32_t to, const CUtensorMap *m, uint32_t bar, const int at[4])
{
    uint32_t n = 0;
    if (to % (m->swizzled ? 1024 : 128))
        cudasim_fail("a box to %u in shared memory", to);
    for (uint32_t w = 0; w < m->box[3]; w++)
        for (uint32_t z = 0; z < m->box[2]; z++)
            for (uint32_t y = 0; y < m->box[1]; y++)
                for (uint32_t x = 0; x < m->box[0]; x++, n += m->size) {
                    const uint32_t i[4] = { x, y, z, w };
                    const uint8_t *from = m->data;
                    uint32_t place = to + n;
                    bool inside = true;
                    for (uint32_t d = 0; d < m->rank; d++) {
                        int64_t c = (int64_t)at[d] + i[d];
                        inside = inside && c >= 0 && c < (int64_t)m->dim[d];
                        from += inside ? (size_t)c * m->step[d] : 0;
                    }
                    if (m->swizzled)
                        place ^= (place >> 7 & 7) << 4;
                    if (inside)
                        memcpy(cudasim_at(place), from, m->size);
                    else
                        memset(cudasim_at(place), 0, m->size);
                }
    cudasim_bar_bytes(bar, n);
}

static inline void load_box3(uint32_t to, const CUtensorMap *map, uint32_t bar, int x, int y, int z)
{
    const int at[4] = { x, y, z, 0 };
    cudasim_load(to, map, bar, at);
}

static inline void load_box4(uint32_t to, const CUtensorMap *map, uint32_t bar, int x, int y, int z,
                             int w)
{
    const int at[4] = { x, y, z, w };
    cudasim_load(to, map, bar, at);
}

static inline void load_box3_once(uint32_t to, const CUtensorMap *map, uint32_t bar, int x, int y,
                                  int z)
{
    load_box3(to, map, bar, x, y, z);
}

static inline void load_box4_once(uint32_t to, const CUtensorMap *map, uint32_t bar, int x, int y,
                                  int z, int w)
{
    load_box4(to, map, bar, x, y, z, w);
}

static inline void load_bytes_once(uint32_t to, const void *from, int bytes, uint32_t bar)
{
    if (to % 16 || (uintptr_t)from % 16 || bytes % 16)
        cudasim_fail("%d bytes from %p to %u", bytes, from, to);
    memcpy(cudasim_at(to), from, (size_t)bytes);
    cudasim_bar_bytes(bar, (uint32_t)bytes);
}

static inline void shared_written()
{
}

static inline void outside_written()
{
}

static inline void global_written()
{
}

static inline void copy_async16_to(uint32_t shared, const void *global, int bytes)
{
    copy_async16(cudasim_at(shared), global, bytes);
}

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* What the driver checks: alignment, sizes of boxes. */
static inline CUresult cudasim_encode(CUtensorMap *m, CUtensorMapDataType type, cuuint32_t rank,
                                      void *data, const cuuint64_t *dim, const cuuint64_t *step,
                                      const cuuint32_t *box, const cuuint32_t *,
                                      CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    *m = CUtensorMap{};
    m->data = (const uint8_t *)data;
    m->rank = rank;
    m->size = type == CU_TENSOR_MAP_DATA_TYPE_INT32 ? 4 : 2;
    m->swizzled = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
    for (uint32_t d = 0; d < 4; d++) {
        m->dim[d] = d < rank ? dim[d] : 1;
        m->box[d] = d < rank ? box[d] : 1;
        m->step[d] = d == 0 ? m->size : d < rank ? step[d - 1] : 0;
        if (m->dim[d] == 0 || m->box[d] == 0 || m->box[d] > 256 || (d > 0 && m->step[d] % 16))
            return CUDA_ERROR_INVALID_VALUE;
    }
    if ((uintptr_t)data % 16 || m->box[0] * m->size % 16 ||
        (m->swizzled && m->box[0] * m->size > 128))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static inline encode_fn find_encode(void)
{
    return cudasim_encode;
}

/* ---- registers, wgmma ---- */

template <int N> static inline void registers_raise()
{
}
template <int N> static inline void registers_lower()
{
}
static inline void wgmma_fence()
{
}
static inline void wgmma_commit()
{
}
template <int N> static inline void wgmma_wait()
{
}
template <int N> static inline void pin(float (&r)[N])
{
    (void)r;
}
static inline void hold(float x)
{
    (void)x;
}

static inline void hold(int)
{
}

/* Number (mn, k) of an operand of BF16 in this shared memory, which begins at address 0. */
static inline double cudasim_operand(const uint8_t *memory, uint64_t d, int mn, int k,
                                     bool mn_major)
{
    uint32_t start = (uint32_t)(d & 0x3fff) << 4, between = (uint32_t)(d >> 16 & 0x3fff) << 4;
    uint32_t group = (uint32_t)(d >> 32 & 0x3fff) << 4, at;
    uint16_t half;
    at = mn_major ? (uint32_t)(mn / 64 * (int)between + mn % 64 * 2 + k % 8 * 128) +
                        (uint32_t)(k / 8) * group
                  : (uint32_t)(mn / 8) * group + (uint32_t)(mn % 8 * 128 + k * 2);
    at += start; /* of 18 bits: that of shared memory */
    at ^= (at >> 7 & 7) << 4;
    memcpy(&half, memory + at, sizeof half);
    return (double)cudasim_bits<float>((uint32_t)half << 16);
}

/* What a lane of a warp gives to a product: its numbers of c, and of a either its registers or
 * where the warp's first row is. Lane 4 g + t holds rows g and g + 8 of the warp's sixteen. */
struct cudasim_wgmma {
    float *c;
    const uint32_t *registers; /* NULL: a is in shared memory */
    uint64_t a, b;
    int first_row;
    bool mn_major, add; /* mn_major: b is */
};

static inline void cudasim_rows_of_a(double (&a)[16][16], void *const arg[32],
                                     const uint8_t *memory)
{
    auto *first = (const cudasim_wgmma *)arg[0];
    for (int row = 0; !first->registers && row < 16; row++)
        for (int k = 0; k < 16; k++)
            a[row][k] = cudasim_operand(memory, first->a, first->first_row + row, k, false);
    for (int l = 0; first->registers && l < 32; l++)
        for (int i = 0; i < 8; i++) {
            uint32_t u = ((const cudasim_wgmma *)arg[l])->registers[i / 2];
            a[l / 4 + i / 2 % 2 * 8][i / 4 * 8 + l % 4 * 2 + i % 2] =
                (double)cudasim_bits<float>(i % 2 ? u & 0xffff0000u : u << 16);
        }
}

/* c [16 x N] of a warp (+)= a [16 x 16] b [16 x N], each number's products added up in the order of
 * k. Operands are read when the last lane comes, and no lane goes on before. */
template <int N> static void cudasim_wgmma_together(void *const arg[32], unsigned)
{
    auto *first = (const cudasim_wgmma *)arg[0];
    const uint8_t *memory = (const uint8_t *)cudasim_shared() - CUDASIM_SHARED;
    double a[16][16], b[16][8], sum[16][8];
    if (first->b >> 62 != 1 || (!first->registers && first->a >> 62 != 1))
        cudasim_fail("an operand that is not swizzled by 128 bytes");
    cudasim_rows_of_a(a, arg, memory);
    for (int j = 0; j < N / 8; j++) {
        for (int k = 0; k < 16; k++)
            for (int col = 0; col < 8; col++)
                b[k][col] = cudasim_operand(memory, first->b, 8 * j + col, k, first->mn_major);
        cudasim_add_up(sum, 16, a, b);
        for (int l = 0; l < 32; l++)
            for (int i = 0; i < 4; i++) {
                float *to = &((const cudasim_wgmma *)arg[l])->c[4 * j + i];
                double s = sum[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
                *to = (float)(first->add ? *to + s : s);
            }
    }
}

template <int N>
static inline void cudasim_multiply(float *c, const uint32_t *registers, uint64_t a, uint64_t b,
                                    bool mn_major, bool add)
{
    cudasim_wgmma w = { c, registers, a, b, (int)threadIdx.x % 128 / 32 * 16, mn_major, add };
    cudasim_warp("wgmma", cudasim_wgmma_together<N>, ~0u, true, &w);
}

template <int N> static inline void wgmma_shared(float (&c)[N / 2], uint64_t a, uint64_t b, int add)
{
    cudasim_multiply<N>(c, nullptr, a, b, false, add != 0);
}

template <int N>
static inline void wgmma_registers(float (&c)[N / 2], const uint32_t *a, uint64_t b)
{
    cudasim_multiply<N>(c, a, 0, b, true, true);
}

template <int N>
static inline void wgmma_register_a(float (&c)[N / 2], const uint32_t *a, uint64_t b, int add)
{
    cudasim_multiply<N>(c, a, 0, b, false, add != 0);
}

#endif
