/* Tests of the view specvlm-draft: its scores are the attention of the drafter's own prefill of the
 * whole prompt. So they equal what the draft model measures as a target, bit for bit, and with the
 * target's weights the view is that of specvlm. */
#include "answers.h"
#include "lab_rows.h"

enum { MAX_TOKENS = 256 };

struct seen {
    int n, kept;
    float scores[MAX_TOKENS];
    bool visible[MAX_TOKENS];
};

/* The view of `method` for a new prompt in the session. */
static struct seen see(pv_session *s, const struct pv_method *m)
{
    static struct seen out;
    struct pv_view_map map = { 0 };
    struct pv_error err = { 0 };
    out = (struct seen){ 0 };
    pv_session_reset(s);
    CHECK_MSG(add_prompt(s, 7, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(pv_session_view(s, m, &map, &err) == PV_OK, "%s", err.text);
    out.n = map.frames * map.height * map.width;
    out.kept = map.kept;
    CHECK(out.n > 10 && out.n <= MAX_TOKENS);
    CHECK(map.scores != NULL);
    memcpy(out.scores, map.scores, (size_t)out.n * sizeof *out.scores);
    memcpy(out.visible, map.visible, (size_t)out.n * sizeof *out.visible);
    return out;
}

static bool same_seen(const struct seen *a, const struct seen *b)
{
    return a->n == b->n && a->kept == b->kept &&
           memcmp(a->scores, b->scores, (size_t)a->n * sizeof *a->scores) == 0 &&
           memcmp(a->visible, b->visible, (size_t)a->n * sizeof *a->visible) == 0;
}

static struct pv_method guided(enum pv_drafter drafter, const char *view)
{
    struct pv_method m = method(drafter, view, PV_SHAPE_CHAIN);
    m.positions = PV_POS_ORIGINAL; /* as the target has them */
    return m;
}

static void check_scores(const struct family *family)
{
    struct pair p = open_unlike(family, 1), alone = { p.draft, p.draft };
    pv_session *s = open_session(&p), *other = open_session(&alone);
    struct pv_method by_draft = guided(PV_DRAFT_MODEL, "specvlm-draft"),
                     by_target = guided(PV_DRAFT_MODEL, "specvlm"),
                     self = guided(PV_DRAFT_SELF, "specvlm-draft"),
                     of_draft = guided(PV_DRAFT_SELF, "specvlm");
    struct seen want = see(other, &of_draft), target = see(s, &by_target), found;
    CHECK(!same_seen(&want, &target));
    found = see(s, &by_draft);
    CHECK_MSG(same_seen(&found, &want), "%s: not the draft model's own attention", family->name);
    found = see(s, &by_draft); /* with rows of the prompt in the drafter's cache */
    CHECK_MSG(same_seen(&found, &want), "%s: other scores the second time", family->name);
    found = see(s, &self);
    CHECK_MSG(same_seen(&found, &target), "%s: not the target's own attention", family->name);
    pv_session_close(&other);
    pv_session_close(&s);
    close_pair(&p);
}

TEST(scores_of_llava)
{
    check_scores(&family_llava_onevision);
}

TEST(scores_of_qwen)
{
    check_scores(&family_qwen2_5_vl);
}

/* Text between the frames, and rows with deepstack vectors. */
TEST(scores_of_qwen3)
{
    check_scores(&family_qwen3_vl);
}

/* The drafter reads the kept tokens only. Both prefills count as its own. */
TEST(drafts_from_the_kept_tokens)
{
    struct pair p = open_unlike(&family_qwen2_5_vl, 1);
    pv_session *s = open_session(&p);
    struct pv_method m = guided(PV_DRAFT_MODEL, "specvlm-draft");
    struct seen seen = see(s, &m);
    struct answer a = run(s, &m, 0);
    CHECK_EQ(a.stats.draft_video_tokens, seen.kept);
    CHECK(seen.kept < seen.n / 2);
    CHECK(a.stats.draft_prefill_s > 0);
    pv_session_close(&s);
    close_pair(&p);
}

static void refuse(pv_session *s, const struct pv_method *m, const char *why)
{
    struct pv_view_map map;
    struct pv_error err = { 0 };
    pv_session_reset(s);
    CHECK_EQ(add_prompt(s, 7, &err), PV_OK);
    CHECK_EQ(pv_session_view(s, m, &map, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, why) != NULL, "%s", err.text);
}

TEST(drafters_that_measure_nothing)
{
    struct pair p = open_unlike(&family_qwen2_5_vl, 1);
    pv_session *s = open_session(&p);
    struct pv_method m = guided(PV_DRAFT_NGRAM, "specvlm-draft");
    refuse(s, &m, "drafter model, self or cascade); drafter is ngram");
    m.drafter = PV_DRAFT_SPARSE;
    refuse(s, &m, "drafter is sparse");
    m.drafter = PV_DRAFT_MODEL;
    m.schedule = PV_SCHEDULE_PARALLEL;
    refuse(s, &m, "works with the serial schedule only");
    pv_session_close(&s);
    close_pair(&p);
}

int main(int argc, char **argv)
{
    if (!lab_rows_add())
        return 1;
    return test_main(argc, argv);
}
