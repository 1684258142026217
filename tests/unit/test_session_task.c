/* Sessions whose pages are taken away in the middle of a prompt or an answer: what is computed
 * again has the same bits, and the answer is the same. */
#include "answers.h"
#include "engine/session_task.h"
#include "family/families.h"

/* Takes the pages at one iteration of the scheduler. */
struct taker {
    struct scheduler *scheduler;
    int left;
};

static void take_pages(void *user, int64_t iteration)
{
    struct taker *t = user;
    (void)iteration;
    if (t->left-- == 0)
        scheduler_preempt(t->scheduler, 0);
}

static void check_taking(const struct family *family, const struct pv_method *m)
{
    struct pair p = open_unlike(family, 1);
    pv_session *plain = open_session(&p), *tried = open_session(&p);
    static struct answer ref;
    int64_t taken = 0;
    ref = run(plain, NULL, 0);
    for (int at = 0; at < 24; at++) {
        struct taker t = { tried->engine->scheduler, at };
        struct answer a;
        scheduler_watch(t.scheduler, take_pages, &t);
        a = run(tried, m, 0);
        scheduler_watch(t.scheduler, NULL, NULL);
        CHECK_MSG(same_answer(&ref, &a, vocab_of(tried)), "pages taken at iteration %d", at);
        CHECK_MSG(same_cache(plain, tried), "pages taken at iteration %d: another cache", at);
        taken += scheduler_counts(t.scheduler).preemptions;
        /* Nothing of this answer is found by the next one. */
        pv_session_close(&tried);
        tried = open_session(&p);
    }
    CHECK_MSG(taken > 3, "pages were taken %d times", (int)taken);
    pv_session_close(&plain);
    pv_session_close(&tried);
    close_pair(&p);
}

TEST(pages_are_taken_from_plain_decoding)
{
    check_taking(&family_llava_onevision, NULL);
    check_taking(&family_qwen2_5_vl, NULL);
    check_taking(&family_qwen3_vl, NULL);
}

TEST(pages_are_taken_from_speculation)
{
    struct pv_method tree = method(PV_DRAFT_MODEL, "specvlm", PV_SHAPE_TREE);
    struct pv_method early = method(PV_DRAFT_MODEL, "alignment", PV_SHAPE_CHAIN);
    early.schedule = PV_SCHEDULE_PARALLEL;
    early.layer = 1;
    check_taking(&family_llava_onevision, &tree);
    check_taking(&family_llava_onevision, &early);
    check_taking(&family_qwen3_vl, &tree);
    check_taking(&family_qwen3_vl, &early);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
