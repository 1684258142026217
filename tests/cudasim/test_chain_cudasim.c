/* Chains in one step (tests/chained.h) on the CUDA device, by the simulator of CUDA, as a GPU of
 * compute capability 8.0 and as one of 9.0: levels that are launched and levels that are played. */
#include "chained.h"
#include "cudasim/gpu.h"

static const struct sampling greedy = { .top_p = 1 };
static const struct sampling drawn = { .temperature = 0.9f, .top_p = 1, .seed = 5 };

static void be(int major)
{
    struct cudasim_gpu gpu;
    cudasim_is(&gpu);
    gpu.major = major;
    cudasim_be(&gpu);
}

TEST(greedy_chains_are_steps_one_after_another)
{
    struct rig_shape shape = { .cuda = true };
    chained_check(DTYPE_BF16, greedy, false, shape);
    be(9);
    chained_check(DTYPE_Q8_0, greedy, true, shape);
    cudasim_be(NULL);
}

TEST(drawn_chains_are_steps_one_after_another)
{
    struct rig_shape shape = { .cuda = true };
    be(9);
    chained_check(DTYPE_BF16, drawn, false, shape);
    cudasim_be(NULL);
}

int main(int argc, char **argv)
{
    cudasim_lazy(true);
    return test_main(argc, argv);
}
