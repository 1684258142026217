/* Lossless under load (episodes.h) on a real GPU: `make check-cuda` runs it after the kernels. */
#include "tiny_world.h"

static void run_family(enum vision_kind kind, enum test_head head, int first, int episodes)
{
    static struct world w;
    struct tally t;
    if (!tiny_world_open(&w, kind, head, "cuda", cpu_level_best()))
        return;
    t = run_world(&w, first, episodes);
    CHECK(t.beside > 0); /* steps with prompts ran beside others */
}

TEST(requests_of_llava_do_not_see_each_other)
{
    run_family(VISION_LLAVA, EAGLE_HEAD, 9000, 100);
}

TEST(requests_of_llava_without_a_head_do_not_see_each_other)
{
    run_family(VISION_LLAVA, NO_HEAD, 9200, 50);
}

TEST(requests_of_qwen_do_not_see_each_other)
{
    run_family(VISION_QWEN2_5, EAGLE_HEAD, 9400, 100);
}

TEST(requests_with_a_head_of_eagle3_do_not_see_each_other)
{
    run_family(VISION_QWEN2_5, EAGLE3_HEAD, 9600, 100);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
