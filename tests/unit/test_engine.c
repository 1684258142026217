/* Lossless under load (episodes.h) on all families, with every CPU level. */
#include "family/families.h"
#include "tiny_world.h"

static void run_family(const struct family *family, bool head, int level, int episodes)
{
    static struct world w;
    if (tiny_world_open(&w, family, head, NULL, level))
        run_world(&w, 1000 * level, episodes);
}

TEST(requests_of_llava_do_not_see_each_other)
{
    run_family(&family_llava_onevision, true, cpu_level_best(), 460);
}

TEST(requests_of_qwen_do_not_see_each_other)
{
    run_family(&family_qwen2_5_vl, true, cpu_level_best(), 460);
}

TEST(requests_of_qwen2_do_not_see_each_other)
{
    run_family(&family_qwen2_vl, true, cpu_level_best(), 120);
}

TEST(requests_of_qwen3_do_not_see_each_other)
{
    run_family(&family_qwen3_vl, true, cpu_level_best(), 460);
}

TEST(on_every_cpu_level)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        if (cpu_level_here(level) && level != cpu_level_best())
            run_family(tiny_kinds[level % TINY_KINDS].family, false, level, 60);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
