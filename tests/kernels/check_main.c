/* Command line of the kernel checker and its levels.
 *
 *   check_kernels [--seed N] [--quick] [--level NAME] [--bench] [words]
 *
 * A word chooses tests whose name contains it, as in "q4_K" or "softmax"; one that no name contains
 * is an error. A level is a set of CPU flags, each adding one instruction set to the level before;
 * a level this machine cannot run is named and skipped. */
#include "check.h"

#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct level levels[] = {
    { "ref", 0, ROUND_F32, ROUND_F32, ROUND_F32, ROUND_F32 },
#if defined(__x86_64__)
    { "avx2", CPU_AVX2, ROUND_F32, ROUND_F32, ROUND_X_INT8, ROUND_X_INT8 },
    { "avx512", CPU_AVX2 | CPU_AVX512, ROUND_F32, ROUND_F32, ROUND_X_INT8, ROUND_X_INT8 },
    { "avx512bf16", CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16, ROUND_F32, ROUND_X_BF16, ROUND_X_INT8,
      ROUND_X_INT8 },
    { "amx", CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16 | CPU_AMX, ROUND_X_PAIR, ROUND_X_BF16,
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
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
    case DTYPE_IQ4_NL:
        return l->quant;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
    case DTYPE_Q6_K:
        return l->k_quant;
    default:
        return ROUND_F32;
    }
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
    check_experts(c);
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
    static struct check c = { .seed = 1 };
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
        check_count(&c);
    return check_status(&c, "check_kernels");
}
