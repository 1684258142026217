/* Memory bandwidth and arithmetic peaks.
 *
 * Peaks are loops of one instruction on registers. They are in assembly, so that no compiler flag
 * for an instruction set is needed and nothing can be optimised away. There are as many
 * accumulators as the latency of the instruction requires. Registers hold zeros, which avoids
 * denormals and takes the least power; floor_random_tiles measures tiles with random numbers.
 *
 * Each thread is timed by its own CPU clock, which stops while another process has the core, and
 * the threads' rates are added up. On an idle machine that equals the wall clock; on a busy one the
 * result is too high (the threads run one after the other, each with the memory to itself), which
 * makes our share of the limit look smaller, never larger. */
#include "floor.h"

#include "base/cpu.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum {
    READ_PASSES = 5,   /* passes for each number of streams */
    READ_STREAMS = 16, /* most streams */
    READ_BYTES = 1 << 30,
    READ_LEAST = 64 << 20,
    READ_STEP = 256,   /* bytes per iteration of the loop */
    READ_AHEAD = 2048, /* bytes between a load and the prefetch for it */
    PEAK_PASSES = 8
};

static const double peak_pass_s = 0.02;

static double thread_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* ---- memory ---- */

struct read_job {
    uint8_t *data;
    size_t size; /* a multiple of threads * READ_STREAMS * READ_STEP */
    bool fill;
    int streams; /* places at which a thread reads in turn; the hardware prefetches each */
    _Atomic uint64_t sink;
    double seconds[POOL_MAX_THREADS];
};

typedef uint64_t pair __attribute__((vector_size(16))); /* the baseline's vector size */

static uint64_t read_range(const uint8_t *data, size_t size, int streams)
{
    enum { LANES = READ_STEP / 16 };
    /* An odd number of steps; otherwise the streams would share a few sets of the caches, because
     * parts of 1 GiB are powers of two. This leaves out less than streams * READ_STEP bytes. */
    size_t part = (size / (size_t)streams / READ_STEP - 1) / 2 * 2 * READ_STEP + READ_STEP;
    pair acc[LANES] = { 0 };
    for (size_t at = 0; at < part; at += READ_STEP)
        for (int s = 0; s < streams; s++) {
            const uint8_t *p = data + (size_t)s * part + at;
            const pair *v = (const pair *)(const void *)p;
            for (int i = 0; streams == 1 && i < READ_STEP; i += 64)
                __builtin_prefetch(p + READ_AHEAD + i);
            for (int i = 0; i < LANES; i++)
                acc[i] ^= v[i];
        }
    for (int i = 1; i < LANES; i++)
        acc[0] ^= acc[i];
    return acc[0][0] ^ acc[0][1];
}

static void read_part(void *ctx, int thread, int n_threads)
{
    struct read_job *job = ctx;
    size_t part = job->size / (size_t)n_threads;
    uint8_t *p = job->data + part * (size_t)thread;
    double start = thread_seconds();
    if (job->fill) /* pages never written all map to one zero page, which is in cache */
        memset(p, thread + 1, part);
    else
        atomic_fetch_xor(&job->sink, read_range(p, part, job->streams));
    job->seconds[thread] = thread_seconds() - start;
}

double floor_read(struct pool *pool, size_t *size)
{
    struct read_job job = { .fill = true };
    int threads = pool_threads(pool);
    double best = 0;
    for (*size = READ_BYTES; *size >= READ_LEAST; *size /= 2) {
        job.data = mem_zalloc(*size);
        if (job.data)
            break;
    }
    if (!job.data)
        return 0;
    job.size = *size - *size % ((size_t)threads * READ_STREAMS * READ_STEP);
    pool_run(pool, read_part, &job);
    job.fill = false;
    for (int i = 0; i < 3 * READ_PASSES; i++) {
        static const int streams[3] = { 1, 8, READ_STREAMS };
        double rate = 0;
        job.streams = streams[i % 3];
        pool_run(pool, read_part, &job);
        for (int t = 0; t < threads; t++)
            rate += (double)job.size / threads / job.seconds[t];
        best = rate > best ? rate : best;
    }
    mem_free(job.data);
    return best;
}

/* ---- arithmetic ---- */

struct peak {
    const char *instruction;
    enum peak_kind kind; /* the widest type that it can be used for */
    uint64_t cpu;        /* the feature it needs; 0: none */
    double ops;          /* operations per iteration of the loop */
    void (*loop)(long turns);
};

#if defined(__x86_64__)

/* The text of one instruction for each of the registers 0 .. 11. */
#define EACH6(a, z) a "0" z a "1" z a "2" z a "3" z a "4" z a "5" z
#define EACH12(a, z) EACH6(a, z) a "6" z a "7" z a "8" z a "9" z a "10" z a "11" z
#define VECTORS                                                                                    \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",       \
        "xmm11", "xmm12", "xmm13"
#define TURN "dec %0\n\tjnz 1b\n\t"
#define AVX_LOOP(name, op, reg)                                                                    \
    static void name(long turns)                                                                   \
    {                                                                                              \
        __asm__ volatile(                                                                          \
            EACH12("vpxor %%xmm12, %%xmm12, %%xmm",                                                \
                   "\n\t") "vpxor %%xmm12, %%xmm12, %%xmm12\n\tvpxor %%xmm13, %%xmm13, %%xmm13\n"  \
                           "1:\n\t" EACH12(op " %%" reg "12, %%" reg "13, %%" reg, "\n\t") TURN    \
            "vzeroupper"                                                                           \
            : "+r"(turns)                                                                          \
            :                                                                                      \
            : "cc", VECTORS);                                                                      \
    }

AVX_LOOP(loop_fma_ymm, "vfmadd231ps", "ymm")
AVX_LOOP(loop_fma_zmm, "vfmadd231ps", "zmm")
AVX_LOOP(loop_dpbf16, "vdpbf16ps", "zmm")
AVX_LOOP(loop_dpbusd, "vpdpbusd", "zmm")
AVX_LOOP(loop_maddubs, "vpmaddubsw", "ymm") /* without the additions, which use other ports */

static void loop_sse(long turns)
{
    __asm__ volatile(
        EACH12("xorps %%xmm12, %%xmm",
               "\n\t") "xorps %%xmm12, %%xmm12\n"
                       "1:\n\t" EACH6("mulps %%xmm12, %%xmm",
                                      "\n\t") "addps %%xmm12, %%xmm6\n\taddps %%xmm12, "
                                              "%%xmm7\n\taddps %%xmm12, %%xmm8\n\t"
                                              "addps %%xmm12, %%xmm9\n\taddps %%xmm12, "
                                              "%%xmm10\n\taddps %%xmm12, %%xmm11\n\t" TURN
        : "+r"(turns)
        :
        : "cc", VECTORS);
}

/* Eight tiles of 16 rows of 64 bytes; the earlier configuration is restored. The compiler does not
 * use tile registers, so there is nothing to clobber. */
#define AMX_LOOP(name, op)                                                                         \
    static void name(long turns)                                                                   \
    {                                                                                              \
        _Alignas(64) uint8_t before[64], config[64] = { 1 };                                       \
        for (int i = 0; i < 8; i++) {                                                              \
            config[16 + 2 * i] = 64;                                                               \
            config[48 + i] = 16;                                                                   \
        }                                                                                          \
        __asm__ volatile("sttilecfg (%1)\n\tldtilecfg (%2)\n" /* loading zeroes the tiles */       \
                         "1:\n\t" EACH6(op " %%tmm6, %%tmm7, %%tmm", "\n\t") TURN "ldtilecfg (%1)" \
                         : "+r"(turns)                                                             \
                         : "r"(before), "r"(config)                                                \
                         : "cc", "memory");                                                        \
    }

AMX_LOOP(loop_tdpbf16, "tdpbf16ps")
AMX_LOOP(loop_tdpbssd, "tdpbssd")

/* Two by two tiles of random numbers between -1 and 1. */
static void loop_random_tiles(long turns)
{
    _Alignas(64) uint8_t before[64], config[64] = { 1 };
    _Alignas(64) uint16_t tiles[4 * 512];
    uint32_t seed = 1;
    for (int i = 0; i < 8; i++) {
        config[16 + 2 * i] = 64;
        config[48 + i] = 16;
    }
    for (int i = 0; i < 4 * 512; i++) {
        seed = seed * 1664525 + 1013904223;
        tiles[i] = (uint16_t)(0x3c00 + ((seed >> 8) & 0x37f) + ((seed >> 31) << 15));
    }
    __asm__ volatile("sttilecfg (%1)\n\tldtilecfg (%2)\n\t"
                     "tileloadd (%3, %4), %%tmm4\n\ttileloadd 1024(%3, %4), %%tmm5\n\t"
                     "tileloadd 2048(%3, %4), %%tmm6\n\ttileloadd 3072(%3, %4), %%tmm7\n"
                     "1:\n\ttdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
                     "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\ttdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
                     "tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n\t" TURN "ldtilecfg (%1)"
                     : "+r"(turns)
                     : "r"(before), "r"(config), "r"(tiles), "r"((size_t)64)
                     : "cc", "memory");
}

static const struct peak random_tiles = { "tdpbf16ps", PEAK_HALF, CPU_AMX, 4 * 16 * 16 * 32 * 2,
                                          loop_random_tiles };

static const struct peak peaks[] = {
    { "mulps+addps", PEAK_F32, 0, 12 * 4, loop_sse },
    { "vfmadd ymm", PEAK_F32, CPU_AVX2, 12 * 8 * 2, loop_fma_ymm },
    { "vfmadd zmm", PEAK_F32, CPU_AVX512, 12 * 16 * 2, loop_fma_zmm },
    { "vdpbf16ps", PEAK_HALF, CPU_AVX512_BF16, 12 * 32 * 2, loop_dpbf16 },
    { "tdpbf16ps", PEAK_HALF, CPU_AMX, 6 * 16 * 16 * 32 * 2, loop_tdpbf16 },
    { "vpmaddubsw", PEAK_INT8, CPU_AVX2, 12 * 32 * 2, loop_maddubs },
    { "vpdpbusd", PEAK_INT8, CPU_AVX512, 12 * 64 * 2, loop_dpbusd },
    { "tdpbssd", PEAK_INT8, CPU_AMX, 6 * 16 * 16 * 64 * 2, loop_tdpbssd },
};

#elif defined(__aarch64__)

static const struct peak random_tiles = { .instruction = "none" };

#define EACH8(a, n, z)                                                                             \
    a n "0" z a n "1" z a n "2" z a n "3" z a n "4" z a n "5" z a n "6" z a n "7" z
#define EACH24(a, z)                                                                               \
    EACH8(a, "", z)                                                                                \
    a "8" z a "9" z EACH8(a, "1", z) a "18" z a "19" z a "20" z a "21" z a "22" z a "23" z
#define VECTORS                                                                                    \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25"
/* Allows the assembler all of these instructions; the CPU's features decide which loop is run. */
#define ARCH ".arch armv8.2-a+dotprod+i8mm+bf16\n\t"
#define NEON_LOOP(name, op, to, from)                                                              \
    static void name(long turns)                                                                   \
    {                                                                                              \
        __asm__ volatile(                                                                          \
            ARCH "movi v24.4s, #0\n\tmovi v25.4s, #0\n\t" EACH24(                                  \
                "movi v", ".4s, #0\n\t") "1:\n\t" EACH24(op " v", to                               \
                                                         ", v24" from ", v25" from                 \
                                                         "\n\t") "subs %0, %0, #1\n\tb.ne 1b\n\t"  \
            : "+r"(turns)                                                                          \
            :                                                                                      \
            : "cc", VECTORS);                                                                      \
    }

NEON_LOOP(loop_fmla, "fmla", ".4s", ".4s")
NEON_LOOP(loop_sdot, "sdot", ".4s", ".16b")
NEON_LOOP(loop_smmla, "smmla", ".4s", ".16b")
NEON_LOOP(loop_bfmmla, "bfmmla", ".4s", ".8h")

static const struct peak peaks[] = {
    { "fmla", PEAK_F32, CPU_NEON, 24 * 4 * 2, loop_fmla },
    { "bfmmla", PEAK_HALF, CPU_BF16, 24 * 16 * 2, loop_bfmmla },
    { "sdot", PEAK_INT8, CPU_DOTPROD, 24 * 16 * 2, loop_sdot },
    { "smmla", PEAK_INT8, CPU_I8MM, 24 * 32 * 2, loop_smmla },
};

#else
static const struct peak random_tiles = { .instruction = "none" };
static const struct peak peaks[] = { { "unknown", PEAK_F32, 0, 0, NULL } };
#endif

enum peak_kind peak_kind_of(enum dtype t)
{
    return t == DTYPE_F32 ? PEAK_F32 : dtype_block(t) == 1 ? PEAK_HALF : PEAK_INT8;
}

const char *peak_kind_name(enum peak_kind kind)
{
    static const char *const names[] = { "f32", "f16 and bf16", "quantised" };
    return names[kind];
}

struct peak_job {
    const struct peak *peak;
    long turns;
    double seconds[POOL_MAX_THREADS];
};

static void peak_part(void *ctx, int thread, int n_threads)
{
    struct peak_job *job = ctx;
    double start = thread_seconds();
    (void)n_threads;
    job->peak->loop(job->turns);
    job->seconds[thread] = thread_seconds() - start;
}

/* Operations per second of all threads. */
static double peak_pass(struct pool *pool, struct peak_job *job)
{
    double rate = 0;
    pool_run(pool, peak_part, job);
    for (int i = 0; i < pool_threads(pool); i++)
        rate += job->peak->ops * (double)job->turns / job->seconds[i];
    return rate;
}

static double peak_measure(struct pool *pool, const struct peak *peak)
{
    struct peak_job job = { .peak = peak, .turns = 1000 };
    double best = 0;
    if (!peak->loop)
        return 0;
    peak_pass(pool, &job);
    while (job.seconds[0] < peak_pass_s) {
        job.turns *= 2;
        peak_pass(pool, &job);
    }
    for (int i = 0; i < PEAK_PASSES; i++) {
        double rate = peak_pass(pool, &job);
        best = rate > best ? rate : best;
    }
    return best;
}

void floor_peaks(struct pool *pool, uint64_t cpu, struct peak_rate out[PEAK_KINDS])
{
    for (int k = 0; k < PEAK_KINDS; k++)
        out[k] = (struct peak_rate){ .instruction = "unknown" };
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        double rate = (cpu & peaks[i].cpu) == peaks[i].cpu ? peak_measure(pool, &peaks[i]) : 0;
        for (int k = (int)peaks[i].kind; k < PEAK_KINDS; k++)
            if (rate > out[k].rate)
                out[k] = (struct peak_rate){ peaks[i].instruction, rate };
    }
}

double floor_random_tiles(struct pool *pool, uint64_t cpu, double seconds)
{
    struct peak_job job = { .peak = &random_tiles, .turns = 100000 };
    if (!random_tiles.loop || (cpu & random_tiles.cpu) != random_tiles.cpu)
        return 0;
    peak_pass(pool, &job);
    if (job.seconds[0] > 0 && seconds > job.seconds[0])
        job.turns = (long)((double)job.turns * seconds / job.seconds[0]);
    return peak_pass(pool, &job);
}
