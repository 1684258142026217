/* What this processor can do and this system lets us use. A feature counts only when the operating
 * system saves its registers as well: cpuid alone says what the silicon has. */
#define _GNU_SOURCE /* sched_getaffinity, syscall */
#include "base/cpu.h"

#include "base/mem.h"

#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

enum {
    ARCH_REQUEST_PERMISSION = 0x1023, /* ARCH_REQ_XCOMP_PERM of the Linux ABI */
    XFEATURE_TILE_DATA = 18,
    XCR0_AVX = 0x6,     /* xmm and ymm */
    XCR0_AVX512 = 0xe6, /* and masks, zmm0-15, zmm16-31 */
    XCR0_AMX = 0x600e6, /* and tile configuration and data */
};

static bool bit(unsigned word, int n)
{
    return word >> n & 1;
}

/* Which register sets the system saves. */
static uint64_t xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* Tile data is 8 KiB a thread, so Linux saves it only for processes that asked. Asking twice is
 * fine; threads started later inherit the leave. */
static bool tiles_permitted(void)
{
#ifdef SYS_arch_prctl
    return syscall(SYS_arch_prctl, ARCH_REQUEST_PERMISSION, XFEATURE_TILE_DATA) == 0;
#else
    return false;
#endif
}

uint64_t cpu_flags(void)
{
    unsigned a, b, c, d, b7, c7, d7, a71, unused;
    uint64_t flags = 0, saved;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27)) /* 27: xgetbv may be used */
        return 0;
    saved = xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return 0;
    if (a < 1 || !__get_cpuid_count(7, 1, &a71, &unused, &unused, &unused)) /* a: subleaves */
        a71 = 0;

    if ((saved & XCR0_AVX) == XCR0_AVX && bit(c, 28) && bit(c, 12) && bit(c, 29) && bit(b7, 5))
        flags |= CPU_AVX2; /* AVX, FMA, F16C, AVX2 */
    if (flags & CPU_AVX2 && (saved & XCR0_AVX512) == XCR0_AVX512 && bit(b7, 16) && bit(b7, 17) &&
        bit(b7, 30) && bit(b7, 31) && bit(c7, 11))
        flags |= CPU_AVX512; /* F, DQ, BW, VL, VNNI */
    if (flags & CPU_AVX512 && bit(a71, 5))
        flags |= CPU_AVX512_BF16;
    if (flags & CPU_AVX512_BF16 && (saved & XCR0_AMX) == XCR0_AMX && bit(d7, 22) && bit(d7, 24) &&
        bit(d7, 25) && tiles_permitted())
        flags |= CPU_AMX; /* bf16, tile, int8 */
    return flags;
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* Bits of the Linux ABI, spelled out because older headers lack the newer ones. */
enum { CAP_ASIMD = 1 << 1, CAP_FPHP = 1 << 9, CAP_ASIMDHP = 1 << 10, CAP_ASIMDDP = 1 << 20 };
enum { CAP2_I8MM = 1 << 13, CAP2_BF16 = 1 << 14 };

/* Each level includes the one before, as the flags its kernels are compiled with do. */
uint64_t cpu_flags(void)
{
    unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    unsigned long half = CAP_FPHP | CAP_ASIMDHP;
    uint64_t flags = 0;

    if (cap & CAP_ASIMD)
        flags |= CPU_NEON;
    if (flags & CPU_NEON && cap & CAP_ASIMDDP && (cap & half) == half)
        flags |= CPU_DOTPROD;
    if (flags & CPU_DOTPROD && cap2 & CAP2_I8MM)
        flags |= CPU_I8MM;
    if (flags & CPU_I8MM && cap2 & CAP2_BF16)
        flags |= CPU_BF16;
    return flags;
}

#else
uint64_t cpu_flags(void)
{
    return 0;
}
#endif

/* The number in a file of one; UINT64_MAX: there is none ("max", or no such file). */
static uint64_t read_limit(const char *path)
{
    FILE *f = fopen(path, "r");
    uint64_t n = UINT64_MAX;
    if (f && fscanf(f, "%" SCNu64, &n) != 1)
        n = UINT64_MAX;
    if (f)
        fclose(f);
    return n;
}

/* Containers see the memory of their host, and their own limit in these files. */
uint64_t cpu_memory(void)
{
    static const char *const limits[] = { "/sys/fs/cgroup/memory.max",
                                          "/sys/fs/cgroup/memory/memory.limit_in_bytes" };
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t least = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        uint64_t n = read_limit(limits[i]);
        least = n < least ? n : least;
    }
    return least;
}

/* MemAvailable of /proc/meminfo, which counts what the page cache would give back. The limit of a
 * container is not lowered by what it uses: most of that is such a cache too. */
uint64_t cpu_memory_available(void)
{
    unsigned long long kib = 0;
    uint64_t most = cpu_memory();
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
        kib = 0;
    if (f)
        fclose(f);
    return kib > 0 && kib < most / 1024 ? (uint64_t)kib * 1024 : most;
}

/* The usual set ends at 1024 processors; larger ones are asked for with growing size. */
int cpu_count(void)
{
    cpu_set_t usual;
    if (sched_getaffinity(0, sizeof usual, &usual) == 0 && CPU_COUNT(&usual) > 0)
        return CPU_COUNT(&usual);
    for (int n = 4096; n <= 1 << 16; n *= 4) {
        cpu_set_t *set = mem_alloc(CPU_ALLOC_SIZE(n));
        size_t size = CPU_ALLOC_SIZE(n);
        int found = 0;
        if (!set)
            break;
        if (sched_getaffinity(0, size, set) == 0)
            found = CPU_COUNT_S(size, set);
        mem_free(set);
        if (found > 0)
            return found;
    }
    return 1;
}
