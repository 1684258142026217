/* An engine whose model is spread over two GPUs, by the simulator of CUDA: the answers of one GPU,
 * with drafters, views and heads; and requests under load do not see each other. */
#include "cudasim/gpu.h"
#include "family/families.h"
#include "tiny_world.h"

TEST(answers_of_several_gpus)
{
    static const char *const names[] = { "specvlm", "sparrow", "pearl", "specvlm" };
    static const enum pv_kv_type types[] = { PV_KV_BF16, PV_KV_BF16, PV_KV_BF16, PV_KV_FP8 };
    static struct world one, two;
    static struct answer want, got;
    struct pv_session_params sp = pv_session_defaults();
    struct pv_error err = { 0 };
    struct cudasim_gpu gpu;
    sp.max_context = CONTEXT;
    sp.chunk = 37;
    cudasim_is(&gpu);
    gpu.gpus = 2;
    cudasim_be(&gpu);
    if (!tiny_world_open(&one, &family_llava_onevision, EAGLE_HEAD, "cuda", cpu_level_best()) ||
        !tiny_world_open(&two, &family_llava_onevision, EAGLE_HEAD, "cuda:0,cuda:1",
                         cpu_level_best()))
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct pv_method m = { .size = sizeof m };
        CHECK_MSG(pv_method_find(&m, names[i], &err) == PV_OK, "%s", err.text);
        for (int k = 0; k < 2; k++) {
            pv_session *s = NULL;
            sp.draft = k ? two.draft : one.draft;
            sp.kv_type = types[i];
            if (!CHECK_MSG(!pv_session_open(&s, k ? two.target : one.target, &sp, &err), "%s",
                           err.text))
                break;
            CHECK_MSG(!add_prompt(s, 7, &err) && !generate(s, &m, 0, k ? &got : &want, &err),
                      "%s: %s", names[i], err.text);
            pv_session_close(&s);
        }
        CHECK_MSG(same_answer(&want, &got, MAX_VOCAB), "%s: another text", names[i]);
    }
    world_close(&one);
    two.n_prompts = 4;
    two.n_new = 8;
    two.max_jobs = 5;
    two.disk = false;
    (void)run_world(&two, 6300, 1);
    cudasim_be(NULL);
}

int main(int argc, char **argv)
{
    cudasim_lazy(true);
    return test_main(argc, argv);
}
