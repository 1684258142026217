/* A decoder that is spread over GPUs gives the bits of one on one GPU: logits, states, column sums
 * and everything that follows from the cache, by the simulator of CUDA, as GPUs of compute
 * capability 8.0 and as Hopper GPUs. Streams run as late as they may, so a GPU that forgets to wait
 * for another reads old numbers. Everything here is memcmp. */
#include "cudasim/gpu.h"
#include "several_gpus.h"

extern size_t cudasim_in_use(void); /* cudasim/runtime.h, which is C++ */

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

/* A model on two GPUs whose memory ends after so many allocations: PV_OK, or what failed. Nothing
 * is left of it. */
static enum pv_status open_short(const char *path, int allocations)
{
    static const int two[] = { 0, 1 };
    struct rig r = { 0 };
    struct cudasim_gpu gpu;
    struct pv_error err = { 0 };
    enum pv_status s;
    be(8, true, false);
    cudasim_is(&gpu);
    gpu.allocations = allocations;
    cudasim_be(&gpu);
    s = model_file_open(&r.mf, path, NULL, 0, families, &err);
    if (!s)
        s = device_cuda_open_several(&r.dev, two, 2, &err);
    if (!s) {
        r.dev->spreads = true;
        s = decoder_open(&r.dec, r.mf, r.dev, &err);
    }
    if (!s)
        s = decoder_state_open(&r.st, r.dec, 4, 4, 512, DTYPE_BF16, &err);
    if (!s)
        s = kvcache_open(&r.kv, r.dev, decoder_config(r.dec), DTYPE_BF16, 512, &err);
    CHECK_MSG(!s || err.text[0], "status %d after %d allocations, and no sentence", s, allocations);
    if (s)
        r.kv.pool = NULL;
    rig_close(&r);
    CHECK_MSG(cudasim_in_use() == 0, "%zu bytes are left after %d allocations", cudasim_in_use(),
              allocations);
    return s;
}

TEST(memory_that_ends_leaves_nothing)
{
    char path[256];
    int n = 0;
    tiny_model_write(small_model(8), "short", path);
    while (open_short(path, n) != PV_OK && CHECK(n < 1000))
        n += n < 20 || TEST_BRIEF ? 1 + 6 * TEST_BRIEF : 3;
    CHECK(n > 10);
    cudasim_be(NULL);
}

TEST(gpus_that_cannot_be_used_together)
{
    static const int missing[] = { 0, 7 }, many[20] = { 0 };
    struct device *dev = NULL;
    struct pv_error err = { 0 };
    be(8, true, false);
    CHECK_EQ(device_cuda_open_several(&dev, missing, 2, &err), PV_E_DEVICE);
    CHECK_MSG(strstr(err.text, "no GPU 7"), "%s", err.text);
    CHECK_EQ(device_cuda_open_several(&dev, many, 20, &err), PV_E_LIMIT);
    CHECK(dev == NULL);
    cudasim_be(NULL);
}

int main(int argc, char **argv)
{
    cudasim_lazy(true);
    return test_main(argc, argv);
}
