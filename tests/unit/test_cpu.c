/* CPU features: levels include those below them, agree with what Linux reports, and the number of
 * cores follows the process's affinity. */
#define _GNU_SOURCE
#include "base/cpu.h"
#include "test.h"

#include <sched.h>

static char features[8192]; /* the words of the first core, with a space before and after each */

static bool read_features(void)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    bool found = false;
    while (f && !found && fgets(features, sizeof features, f))
        found = !strncmp(features, "flags", 5) || !strncmp(features, "Features", 8);
    if (f)
        fclose(f);
    for (char *c = features; *c; c++)
        *c = *c == '\t' || *c == '\n' ? ' ' : *c;
    return found;
}

static bool reports(const char *word)
{
    char spaced[64];
    snprintf(spaced, sizeof spaced, " %s ", word);
    return strstr(features, spaced) != NULL;
}

static bool has(uint64_t flag)
{
    return (cpu_flags() & flag) != 0;
}

TEST(levels_include_those_below)
{
    CHECK(!has(CPU_AVX512) || has(CPU_AVX2));
    CHECK(!has(CPU_AVX512_BF16) || has(CPU_AVX512));
    CHECK(!has(CPU_AMX) || has(CPU_AVX512_BF16));
    CHECK(!has(CPU_DOTPROD) || has(CPU_NEON));
    CHECK(!has(CPU_I8MM) || has(CPU_DOTPROD));
    CHECK(!has(CPU_BF16) || has(CPU_I8MM));
    CHECK(!(has(CPU_NEON) && has(CPU_AVX2)));
    CHECK_EQ(cpu_flags(), cpu_flags());
}

/* The kernel lists a feature only when it saves its registers, as we count it. Emulators pass the
 * host's list through, so the comparison is left out where the list is of another machine. */
TEST(agrees_with_the_kernel)
{
    if (!read_features()) {
        test_skip("no list of features in /proc/cpuinfo");
        return;
    }
#if defined(__x86_64__)
    if (!reports("sse2")) {
        test_skip("/proc/cpuinfo is of another machine");
        return;
    }
    CHECK_EQ(has(CPU_AVX2), reports("avx2") && reports("fma") && reports("f16c"));
    CHECK_EQ(has(CPU_AVX512), has(CPU_AVX2) && reports("avx512f") && reports("avx512bw") &&
                                  reports("avx512dq") && reports("avx512vl") &&
                                  reports("avx512_vnni"));
    CHECK_EQ(has(CPU_AVX512_BF16), has(CPU_AVX512) && reports("avx512_bf16"));
    /* Leave to use tiles may be refused, so only one direction. */
    CHECK(!has(CPU_AMX) || (reports("amx_tile") && reports("amx_bf16")));
#elif defined(__aarch64__)
    if (!reports("asimd")) {
        test_skip("/proc/cpuinfo is of another machine");
        return;
    }
    CHECK(has(CPU_NEON));
    CHECK_EQ(has(CPU_DOTPROD), reports("asimddp") && reports("asimdhp") && reports("fphp"));
    CHECK_EQ(has(CPU_I8MM), has(CPU_DOTPROD) && reports("i8mm"));
    CHECK_EQ(has(CPU_BF16), has(CPU_I8MM) && reports("bf16"));
#endif
}

TEST(count_follows_affinity)
{
    cpu_set_t before, one;
    int first = 0;
    if (!CHECK(sched_getaffinity(0, sizeof before, &before) == 0))
        return;
    CHECK_EQ(cpu_count(), CPU_COUNT(&before));
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (CHECK(sched_setaffinity(0, sizeof one, &one) == 0))
        CHECK_EQ(cpu_count(), 1);
    sched_setaffinity(0, sizeof before, &before);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
