/* A decoder that is spread over GPUs gives the bits of one on one GPU: logits, states, column sums
 * and everything that follows from the cache, by the simulator of CUDA, as GPUs of compute
 * capability 8.0 and as Hopper GPUs. Streams run as late as they may, so a GPU that forgets to wait
 * for another reads old numbers. Everything here is memcmp. */
#include "cudasim/gpu.h"
#include "several_gpus.h"

static void be(int major, bool peers, bool nccl)
{
    struct cudasim_gpu gpu;
    cudasim_be(NULL);
    cudasim_is(&gpu);
    gpu.major = major;
    gpu.gpus = 3;
    gpu.peers = peers;
    gpu.nccl = nccl;
    cudasim_be(&gpu);
}

static const int lists[][4] = { { 0, 0, -1, -1 }, { 0, 1, 2, -1 }, { 2, 0, 1, 0 } };
enum { N_LISTS = sizeof lists / sizeof *lists };

TEST(bits_do_not_depend_on_the_number_of_gpus)
{
    be(8, true, false);
    several_compare(1, TEST_BRIEF ? 1 : N_LISTS, lists, 60); /* F16 */
    several_compare(5, 1, lists, 60);                        /* four KV heads, several types */
    several_compare(9, 1, lists, 60);                        /* experts */
    cudasim_be(NULL);
}

TEST(bits_do_not_depend_on_the_number_of_hopper_gpus)
{
    be(9, true, false);
    if (TEST_BRIEF)
        return;
    several_compare(2, 1, lists + 1, 60);  /* BF16, seven query heads of one KV head */
    several_compare(3, 1, lists, 60);      /* Q8_0 */
    several_compare(10, 1, lists + 1, 60); /* experts */
    cudasim_be(NULL);
}

TEST(gpus_that_do_not_read_each_others_memory)
{
    be(8, false, false); /* copies, also where one GPU is two */
    several_compare(8, 2, lists + 1, 60);
    be(8, false, true);
    several_compare(8, 1, lists + 1, 60);
    several_compare(1, 1, lists + 1, 60);
    cudasim_be(NULL);
}

int main(int argc, char **argv)
{
    cudasim_lazy(true);
    return test_main(argc, argv);
}
