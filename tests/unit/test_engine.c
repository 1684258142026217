/* Lossless under load (episodes.h) on all families, with every CPU level. */
#include "family/families.h"
#include "tiny_world.h"

static void run_family(const struct family *family, enum test_head head, int level, int episodes)
{
    static struct world w;
    if (tiny_world_open(&w, family, head, NULL, level))
        run_world(&w, 1000 * level, test_brief() ? episodes / 4 : episodes);
}

TEST(requests_of_llava_do_not_see_each_other)
{
    run_family(&family_llava_onevision, EAGLE_HEAD, cpu_level_best(), 200);
}

TEST(requests_of_qwen_do_not_see_each_other)
{
    run_family(&family_qwen2_5_vl, EAGLE_HEAD, cpu_level_best(), 200);
}

TEST(requests_with_a_head_of_eagle3_do_not_see_each_other)
{
    run_family(&family_llava_onevision, EAGLE3_HEAD, cpu_level_best(), 150);
    run_family(&family_qwen2_5_vl, EAGLE3_HEAD, cpu_level_best(), 80);
}

TEST(requests_of_qwen2_do_not_see_each_other)
{
    run_family(&family_qwen2_vl, EAGLE_HEAD, cpu_level_best(), 120);
}

TEST(requests_of_qwen3_do_not_see_each_other)
{
    run_family(&family_qwen3_vl, EAGLE_HEAD, cpu_level_best(), 200);
    run_family(&family_qwen3_vl, EAGLE3_HEAD, cpu_level_best(), 80);
}

TEST(requests_of_salmonn_do_not_see_each_other)
{
    run_family(&family_salmonn2_plus, EAGLE_HEAD, cpu_level_best(), 120);
}

TEST(on_every_cpu_level)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        if (cpu_level_here(level) && level != cpu_level_best())
            run_family(tiny_kinds[level % TINY_KINDS].family, NO_HEAD, level, 60);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
