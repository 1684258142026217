/* Command line of the kernel checker, its levels, fences and random weights.
 *
 *   check_kernels [--seed N] [--quick] [--level NAME] [--bench] [words]
 *
 * A word chooses tests whose name contains it, as in "q4_K" or "softmax". A level is a set of CPU
 * flags, each adding one instruction set to the level before; a level this machine cannot run is
 * named and skipped. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "check.h"

#include "base/cpu.h"
#include "tensor/half.h"
#include "tensor/quant.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SHOWN_FAILURES = 5, CANARY = 0xa5 };

static const struct level levels[] = {
    { "ref", 0, ROUND_F32, ROUND_F32, ROUND_F32, ROUND_F32 },
#if defined(__x86_64__)
    { "avx2", CPU_AVX2, ROUND_F32, ROUND_F32, ROUND_X_INT8, ROUND_X_INT8 },
    { "avx512", CPU_AVX2 | CPU_AVX512, ROUND_F32, ROUND_F32, ROUND_X_INT8, ROUND_X_INT8 },
    { "avx512bf16", CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16, ROUND_F32, ROUND_X_BF16, ROUND_X_INT8,
      ROUND_X_INT8 },
    { "amx", CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16 | CPU_AMX, ROUND_F32, ROUND_X_BF16,
      ROUND_X_INT8, ROUND_X_INT8 },
#elif defined(__aarch64__)
    { "neon", CPU_NEON, ROUND_F32, ROUND_F32, ROUND_X_INT8, ROUND_X_INT8 },
    { "dotprod", CPU_NEON | CPU_DOTPROD, ROUND_F32, ROUND_F32, ROUND_X_INT8, ROUND_X_INT8 },
    { "i8mm", CPU_NEON | CPU_DOTPROD | CPU_I8MM, ROUND_F32, ROUND_F32, ROUND_X_INT8, ROUND_X_INT8 },
    { "bf16", CPU_NEON | CPU_DOTPROD | CPU_I8MM | CPU_BF16, ROUND_F32, ROUND_X_BF16, ROUND_X_INT8,
      ROUND_X_INT8 },
#endif
};

unsigned level_rounding(const struct level *l, enum dtype t)
{
    switch (t) {
    case DTYPE_BF16:
        return l->bf16;
    case DTYPE_F16:
        return l->f16;
    case DTYPE_Q8_0:
    case DTYPE_Q4_0:
    case DTYPE_Q5_0:
        return l->quant;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
    case DTYPE_Q6_K:
        return l->k_quant;
    default:
        return ROUND_F32;
    }
}

bool check_begin(struct check *c, const char *op, const char *variant)
{
    uint64_t hash = c->seed * 0x9e3779b97f4a7c15u;
    bool wanted = c->n_words == 0;

    snprintf(c->name, sizeof c->name, "%s %s%s%s", c->level->name, op, *variant ? " " : "",
             variant);
    for (int i = 0; i < c->n_words && !wanted; i++)
        wanted = strstr(c->name, c->words[i]) != NULL;
    for (const char *s = c->name; *s; s++)
        hash = (hash ^ (uint8_t)*s) * 0x100000001b3u;
    c->rng.state = hash;
    c->bad = 0;
    return wanted;
}

void check_fail(struct check *c, const char *fmt, ...)
{
    va_list ap;
    if (c->bad++ >= SHOWN_FAILURES)
        return;
    printf("  %s: ", c->name);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

void check_end(struct check *c)
{
    if (c->bad > SHOWN_FAILURES)
        printf("  %s: %d failures in all\n", c->name, c->bad);
    printf("%s %s\n", c->bad ? "FAIL" : "ok", c->name);
    c->passed += !c->bad;
    c->failed += c->bad != 0;
}

int check_int(struct check *c, int lo, int hi)
{
    return lo + (int)(rng_next(&c->rng) % (uint64_t)(hi - lo + 1));
}

void fence_open(struct fence *f, size_t size, size_t align)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = (size + align + page - 1) / page * page;

    f->map_size = used + page;
    f->map = mmap(NULL, f->map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f->map == MAP_FAILED || mprotect(f->map + used, page, PROT_NONE)) {
        fprintf(stderr, "check_kernels: no memory for a buffer of %zu bytes\n", size);
        abort();
    }
    f->size = size;
    f->p = f->map + (used - size) / align * align;
    memset(f->map, CANARY, used);
}

bool fence_whole(const struct fence *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uint8_t *end = f->map + f->map_size - page, *p = f->p;

    for (const uint8_t *q = f->map; q < p; q++)
        if (*q != CANARY)
            return false;
    for (const uint8_t *q = p + f->size; q < end; q++)
        if (*q != CANARY)
            return false;
    return true;
}

void fence_close(struct fence *f)
{
    munmap(f->map, f->map_size);
    *f = (struct fence){ 0 };
}

/* Put a finite f16 of either sign, 2^-9 .. 2^-5, where a block has a scale. */
static void random_scale(struct rng *r, uint8_t *p)
{
    uint16_t h = f16_from_f32((0.03125f + 0.46875f * (float)(rng_next(r) % 1024) / 1024) / 16);
    h |= (uint16_t)(rng_next(r) % 4 == 0 ? 0x8000 : 0);
    memcpy(p, &h, sizeof h);
}

static void random_block(struct rng *r, uint8_t *p, enum dtype t, int fill)
{
    int size = dtype_block_size(t);
    for (int i = 0; i < size; i++)
        p[i] = fill < 0 ? (uint8_t)(rng_next(r) >> 32) : (uint8_t)fill;
    if (t == DTYPE_Q6_K) {
        random_scale(r, p + 208);
        return;
    }
    random_scale(r, p);
    if (t == DTYPE_Q4_K || t == DTYPE_Q5_K)
        random_scale(r, p + 2);
}

void random_rows(struct rng *r, void *dst, size_t row_size, enum dtype t, int in, int out,
                 bool extreme)
{
    static const int fills[] = { 0x00, 0x7f, 0x80, 0xff };
    float *row = malloc(sizeof *row * (size_t)in);

    for (int o = 0; o < out; o++) {
        uint8_t *p = (uint8_t *)dst + (size_t)o * row_size;
        if (t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16) {
            for (int i = 0; i < in; i++)
                row[i] = extreme ? 1.0f : 0.1f * rng_normal(r);
            row_from_f32(p, row, t, in);
            continue;
        }
        int fill = extreme ? fills[o % 4] : -1;
        for (int b = 0; b < in / dtype_block(t); b++)
            random_block(r, p + (size_t)b * dtype_block_size(t), t, fill);
    }
    free(row);
}

static void check_level(struct check *c, const struct level *l, bool bench)
{
    if (l->flags & ~cpu_flags()) {
        printf("SKIPPED level %s: this CPU does not have it\n", l->name);
        return;
    }
    c->level = l;
    kernels_init(&c->k, l->flags);
    printf("level %s: table \"%s\"\n", l->name, c->k.name);
    if (bench) {
        bench_kernels(c);
        return;
    }
    check_matmul(c);
    check_elementwise(c);
    check_attention(c);
}

static int usage(const char *why)
{
    fprintf(stderr,
            "check_kernels: %s\n"
            "usage: check_kernels [--seed N] [--quick] [--level NAME] [--bench] [words]\n",
            why);
    return 2;
}

int main(int argc, char **argv)
{
    struct check c = { .seed = 1 };
    const char *only = NULL;
    bool bench = false, known = false;
    int i;

    setvbuf(stdout, NULL, _IOLBF, 0); /* what was printed survives a crash */
    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--quick"))
            c.quick = true;
        else if (!strcmp(argv[i], "--bench"))
            bench = true;
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            c.seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--level") && i + 1 < argc)
            only = argv[++i];
        else
            return usage(argv[i]);
    }
    c.words = argv + i;
    c.n_words = argc - i;
    printf("seed %llu\n", (unsigned long long)c.seed);
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        if (only ? strcmp(only, levels[l].name) : bench && levels[l].flags == 0)
            continue;
        known = true;
        check_level(&c, &levels[l], bench);
    }
    if (!known)
        return usage("no level of this name");
    if (!bench)
        printf("%d passed, %d failed\n", c.passed, c.failed);
    return c.failed ? 1 : 0;
}
