/* Lossless under load (episodes.h) on both golden families, with every CPU level. */
#include "tiny_world.h"

static void run_family(enum vision_kind kind, enum test_head head, int level, int episodes)
{
    static struct world w;
    if (tiny_world_open(&w, kind, head, NULL, level))
        run_world(&w, 1000 * level, episodes);
}

TEST(requests_of_llava_do_not_see_each_other)
{
    run_family(VISION_LLAVA, EAGLE_HEAD, cpu_level_best(), 460);
}

TEST(requests_of_qwen_do_not_see_each_other)
{
    run_family(VISION_QWEN2_5, EAGLE_HEAD, cpu_level_best(), 460);
}

TEST(requests_with_a_head_of_eagle3_do_not_see_each_other)
{
    run_family(VISION_LLAVA, EAGLE3_HEAD, cpu_level_best(), 150);
    run_family(VISION_QWEN2_5, EAGLE3_HEAD, cpu_level_best(), 80);
}

TEST(on_every_cpu_level)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        if (cpu_level_here(level) && level != cpu_level_best())
            run_family(level % 2 ? VISION_LLAVA : VISION_QWEN2_5, NO_HEAD, level, 60);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
