/* Rows of media with deepstack vectors (tests/deepened.h) on the CUDA device, by the simulator of
 * CUDA, as a GPU of compute capability 8.0 and as one of 9.0, whose blocks norm a row for the next
 * layer on the way out of the one before. */
#include "cudasim/gpu.h"
#include "deepened.h"

TEST(vectors_are_added_after_their_layers)
{
    struct rig_shape shape = { .cuda = true };
    deep_check(DTYPE_F16, 3, 2, true, shape);
}

TEST(vectors_come_before_the_next_norm_on_hopper)
{
    struct rig_shape shape = { .cuda = true };
    struct cudasim_gpu gpu;
    cudasim_is(&gpu);
    gpu.major = 9;
    cudasim_be(&gpu);
    deep_check(DTYPE_BF16, 3, 2, false, shape);
    deep_check(DTYPE_Q8_0, 3, 1, false, shape);
    cudasim_be(NULL);
}

int main(int argc, char **argv)
{
    cudasim_lazy(true);
    return test_main(argc, argv);
}
