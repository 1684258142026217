/* Lossless under load (episodes.h) on a real GPU: `make check-cuda` runs it after the kernels. */
#include "family/families.h"
#include "tiny_world.h"

static void run_family(const struct family *family, enum test_head head, int first, int episodes)
{
    static struct world w;
    struct tally t;
    if (!tiny_world_open(&w, family, head, "cuda", cpu_level_best()))
        return;
    t = run_world(&w, first, episodes);
    CHECK(t.lane_steps > 0); /* steps with prompts ran beside others */
}

TEST(requests_of_llava_do_not_see_each_other)
{
    run_family(&family_llava_onevision, EAGLE_HEAD, 9000, 100);
}

TEST(requests_of_llava_without_a_head_do_not_see_each_other)
{
    run_family(&family_llava_onevision, NO_HEAD, 9200, 50);
}

TEST(requests_of_qwen_do_not_see_each_other)
{
    run_family(&family_qwen2_5_vl, EAGLE_HEAD, 9400, 100);
}

TEST(requests_of_qwen2_and_qwen3_do_not_see_each_other)
{
    run_family(&family_qwen2_vl, EAGLE_HEAD, 9800, 40);
    run_family(&family_qwen3_vl, EAGLE_HEAD, 10000, 100);
}

TEST(requests_with_a_head_of_eagle3_do_not_see_each_other)
{
    run_family(&family_qwen2_5_vl, EAGLE3_HEAD, 9600, 100);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
