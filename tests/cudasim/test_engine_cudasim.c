/* Lossless under load (episodes.h) on the CUDA device, by the simulator of CUDA, as a GPU of
 * compute capability 8.0 and as one of 9.0. The simulator is slow: episodes are few, short and
 * small. */
#include "cudasim/gpu.h"
#include "family/families.h"
#include "lab_rows.h"
#include "tiny_world.h"

#include <math.h>

static void run_family(const struct family *family, enum test_head head, int first, int episodes)
{
    static struct world w;
    struct tally t;
    if (!tiny_world_open(&w, family, head, "cuda", cpu_level_best()))
        return;
    w.n_prompts = 4;
    w.n_new = 8;
    w.max_jobs = 5;
    t = run_world(&w, first, episodes);
    CHECK(t.lane_steps > 0);
    CHECK(t.read > 0); /* from disk */
}

TEST(requests_of_llava_do_not_see_each_other)
{
    run_family(&family_llava_onevision, EAGLE_HEAD, 6200, 8);
}

TEST(requests_of_qwen_do_not_see_each_other)
{
    run_family(&family_qwen2_5_vl, EAGLE_HEAD, 7000, 4);
}

TEST(requests_with_a_head_of_eagle3_do_not_see_each_other)
{
    run_family(&family_llava_onevision, EAGLE3_HEAD, 8000, 3);
}

TEST(requests_of_qwen3_do_not_see_each_other)
{
    run_family(&family_qwen3_vl, EAGLE_HEAD, 8000, 3);
}

/* What a model does while it is opened, where first calls are slow. */
TEST(towers_rehearse)
{
    static const struct family *const each[] = { &family_llava_onevision, &family_qwen2_5_vl,
                                                 &family_qwen3_vl };
    static struct world w;
    for (int i = 0; i < 3; i++) {
        struct pv_error err = { 0 };
        if (!tiny_world_open(&w, each[i], NO_HEAD, "cuda", cpu_level_best()))
            return;
        CHECK_MSG(vision_rehearse(w.target->vision, 1, &err) == PV_OK, "%s", err.text);
        world_close(&w);
    }
}

/* The drafter's tower runs beside the prefill, its rows are kept for the next question, and the
 * text is that of plain decoding. */
TEST(a_draft_tower_sees_ahead)
{
    static const char *const names[] = { "sd", "specvlm", "hippo", "parallelvlm", "specvlm" };
    static struct world w;
    static struct answer plain, drafted;
    struct pv_session_params sp = pv_session_defaults();
    struct pv_error err = { 0 };
    if (!tiny_world_open(&w, &family_llava_onevision, NO_HEAD, "cuda", cpu_level_best()))
        return;
    sp.max_context = CONTEXT;
    sp.chunk = 37;
    sp.kv_type = PV_KV_BF16;
    sp.draft = w.draft;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct pv_method m = { .size = sizeof m };
        pv_session *s = NULL;
        CHECK_MSG(pv_method_find(&m, names[i], &err) == PV_OK, "%s", err.text);
        if (i == 4)
            m.view = "specvlm-draft"; /* the drafter itself reads the whole video first */
        if (!CHECK_MSG(pv_session_open(&s, w.target, &sp, &err) == PV_OK, "%s", err.text))
            break;
        CHECK_MSG(add_prompt(s, 7, &err) == PV_OK, "%s", err.text);
        CHECK_MSG(generate(s, &m, 0, &drafted, &err) == PV_OK, "%s: %s", names[i], err.text);
        CHECK_MSG(drafted.stats.draft_prefill_s >= 0 && drafted.stats.vision_s > 0,
                  "%s: %g s of the drafter's prefill, %g s of towers", names[i],
                  drafted.stats.draft_prefill_s, drafted.stats.vision_s);
        CHECK_MSG(s->draft.n_ahead == 1 && s->draft.ahead[0].made == s->draft.ahead[0].n,
                  "%s: %d videos ahead", names[i], s->draft.n_ahead);
        pv_session_reset(s);
        CHECK(add_prompt(s, 7, &err) == PV_OK && generate(s, NULL, 0, &plain, &err) == PV_OK);
        CHECK_MSG(plain.n == drafted.n &&
                      !memcmp(plain.ids, drafted.ids, plain.n * sizeof *plain.ids) &&
                      !memcmp(plain.logits, drafted.logits, sizeof plain.logits),
                  "%s: another text", names[i]);
        pv_session_close(&s);
    }
    world_close(&w);
}

/* The text of a lossy answer, whose method changes it. */
static struct answer prune(const char *device, const char *lossy)
{
    static struct world w;
    static struct answer a;
    struct pv_session_params sp = pv_session_defaults();
    struct pv_method m = { .size = sizeof m };
    struct pv_error err = { 0 };
    pv_session *s = NULL;
    a = (struct answer){ 0 };
    if (!tiny_world_open(&w, &family_llava_onevision, NO_HEAD, device, cpu_level_best()))
        return a;
    sp.max_context = CONTEXT;
    sp.chunk = 37;
    sp.kv_type = PV_KV_BF16;
    CHECK_MSG(pv_method_find(&m, "ar", &err) == PV_OK, "%s", err.text);
    m.lossy = lossy;
    if (!CHECK_MSG(pv_session_open(&s, w.target, &sp, &err) == PV_OK, "%s", err.text))
        return a;
    CHECK_MSG(add_prompt(s, 7, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(generate(s, &m, 0, &a, &err) == PV_OK, "%s: %s", lossy, err.text);
    CHECK_MSG(a.stats.video_kept > 0 && a.stats.video_kept < 1, "%s: nothing was pruned", lossy);
    pv_session_close(&s);
    world_close(&w);
    return a;
}

/* Methods that prune the target choose the same tokens on a GPU as on a CPU, but for rounding. */
TEST(lossy_methods_prune_alike)
{
    static const char *const names[] = { "fastv:0.5", "sparsevlm:0.5", "pyramiddrop:0.5",
                                         "dycoke:0.7" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        static struct answer cpu, gpu;
        double worst = 0, largest = 0;
        cpu = prune("cpu", names[i]);
        gpu = prune("cuda", names[i]);
        for (int k = 0; k < MAX_VOCAB; k++) {
            double a = cpu.logits[0][k], b = gpu.logits[0][k];
            worst = fabs(a - b) > worst ? fabs(a - b) : worst;
            largest = fabs(a) > largest ? fabs(a) : largest;
        }
        CHECK_MSG(gpu.n == cpu.n && largest > 0 && worst < 0.02 * largest,
                  "%s: %zu and %zu tokens, logits differ by %g of %g", names[i], cpu.n, gpu.n,
                  worst, largest);
    }
}

/* A lossy cache does not make drafting lossy, nor rows depend on their company. */
TEST(requests_with_a_cache_of_fp8_do_not_see_each_other)
{
    static struct world w;
    if (!tiny_world_open(&w, &family_llava_onevision, EAGLE_HEAD, "cuda", cpu_level_best()))
        return;
    w.kv = PV_KV_FP8;
    w.n_prompts = 4;
    w.n_new = 8;
    w.max_jobs = 5;
    run_world(&w, 6200, 3);
}

TEST(requests_of_llava_on_hopper_do_not_see_each_other)
{
    struct cudasim_gpu gpu;
    cudasim_is(&gpu);
    gpu.major = 9;
    cudasim_be(&gpu);
    run_family(&family_llava_onevision, EAGLE_HEAD, 8000, 3);
    cudasim_be(NULL);
}

int main(int argc, char **argv)
{
    if (!lab_rows_add())
        return 1;
    cudasim_lazy(true);
    return test_main(argc, argv);
}
