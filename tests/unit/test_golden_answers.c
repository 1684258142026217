/* Whole answers about pictures and videos against transformers (tests/golden/vision_cases.h):
 * through the public API, from the directories as on the hub and from what `convert` makes of them.
 * Rows of the prompt, positions and ids must be equal; the stages are compared in
 * test_golden_vision.c. */
#include "engine/session.h"
#include "golden/vision_cases.h"
#include "larger.h"

/* The timeline's rows up to the answer must be the prompt `prefix`, at its positions. */
static void check_timeline(const struct pv_session *s, const struct vision_config *c,
                           const struct expected *e, const char *prefix, enum pv_time_rule rule,
                           bool again)
{
    const struct golden_entry *prompt = find(e, true, "%sprompt", prefix);
    int wrong = -1, n = s->seq.answer0;
    if (!CHECK_MSG(n == prompt->cols, "%s: %sprompt has %d rows, not %d", e->name, prefix, n,
                   prompt->cols))
        return;
    for (int i = n - 1; i >= 0; i--) {
        int32_t id = prompt->i[i];
        bool is_media = id == c->image_token || id == c->video_token;
        if (is_media ? s->seq.line.ids[i] >= 0 : s->seq.line.ids[i] != id)
            wrong = i;
    }
    CHECK_MSG(wrong < 0, "%s: row %d of %sprompt is another token", e->name, wrong, prefix);
    check_positions((const int32_t(*)[3])s->seq.line.pos, n, e, again ? "" : prefix, rule);
}

static void check_answer(const struct pv_session *s, const struct expected *e, const char *prefix,
                         const char *what)
{
    const struct golden_entry *want = find(e, true, "%sgreedy", prefix);
    size_t n = 0;
    const int32_t *ids = pv_session_answer(s, &n);
    if (!CHECK_EQ(n, N_GREEDY) || !CHECK_EQ(want->cols, N_GREEDY))
        return;
    for (int i = 0; i < N_GREEDY; i++)
        if (!CHECK_MSG(ids[i] == want->i[i], "%s: token %d of %sgreedy is %d, not %d", what, i,
                       prefix, (int)ids[i], (int)want->i[i]))
            return; /* what follows a wrong token means nothing */
}

static bool ask(struct pv_session *s, const struct expected *e, const char *question)
{
    const struct golden_entry *bytes = find(e, true, "%s", question);
    struct pv_gen_params p = pv_gen_defaults();
    struct pv_error err = { 0 };
    char text[256] = "";
    for (int i = 0; i < bytes->cols && i < 255; i++)
        text[i] = (char)bytes->i[i];
    p.max_new_tokens = N_GREEDY;
    return CHECK_MSG(!pv_add_text(s, "user", text, &err) && !pv_generate(s, &p, NULL, NULL, &err),
                     "%s: %s", e->name, err.text);
}

static bool add_media(struct pv_session *s, const struct expected *e, enum pv_time_rule rule)
{
    struct pv_video_params p = video_params(e->model, rule);
    for (int i = 0; i < e->n_media; i++) {
        struct film f = film_of(golden_row_i(e->media, i));
        struct pv_error err = { 0 };
        enum pv_status st = pv_add_frames(s, f.frames, (size_t)f.n, f.fps, &p, &err);
        film_close(&f);
        if (!CHECK_MSG(!st, "%s: %s", e->name, err.text))
            return false;
    }
    return true;
}

/* A second question: nothing of the first is run or encoded again. */
static void check_second(struct pv_session *s, const struct vision_config *c,
                         const struct expected *e, const char *what)
{
    struct pv_stats stats = { .size = sizeof stats };
    int before = s->seq.line.n;
    if (!ask(s, e, "question2"))
        return;
    pv_session_stats(s, &stats);
    check_timeline(s, c, e, "turn2.", library_rule, false);
    check_answer(s, e, "turn2.", what);
    CHECK(stats.reused_tokens >= find(e, true, "prompt")->cols + N_GREEDY - 1 &&
          stats.reused_tokens < before + 1);
    CHECK_EQ(stats.vision_s, 0);
}

static void check_session(pv_model *m, const struct expected *e, int chunk, const char *what)
{
    const struct vision_config *c = model_file_vision(m->file);
    struct pv_session_params p = pv_session_defaults();
    struct pv_session *s = NULL;
    struct pv_error err = { 0 };
    p.kv_type = PV_KV_F32;
    p.max_context = MAX_ROWS;
    p.chunk = chunk;
    if (!CHECK_MSG(!pv_session_open(&s, m, &p, &err), "%s", err.text))
        return;
    if (add_media(s, e, library_rule) && ask(s, e, "question")) {
        check_timeline(s, c, e, "", library_rule, false);
        check_answer(s, e, "", what);
        if (find(e, false, "turn2.prompt"))
            check_second(s, c, e, what);
    }
    /* By another rule the same pixels are another media item. */
    pv_session_reset(s);
    if (find(e, false, "seconds.prompt") && add_media(s, e, PV_TIME_AUTO) &&
        ask(s, e, "question")) {
        check_timeline(s, c, e, "seconds.", PV_TIME_SECONDS, true);
        check_answer(s, e, "seconds.", what);
    }
    pv_session_close(&s);
}

static void check_model(const char *path, int model, uint64_t mask, int chunk, const char *how)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = path;
    p.threads = 2;
    p.cpu_mask = mask;
    if (!CHECK_MSG(!pv_model_open(&m, &p, &err), "%s", err.text))
        return;
    CHECK(pv_model_has_vision(m));
    for (int k = 0; k < N_CASES; k++) {
        struct expected e;
        char what[96];
        if (cases[k].model != model || !expected_open(&e, k))
            continue;
        snprintf(what, sizeof what, "%s %s", e.name, how);
        check_session(m, &e, chunk, what);
        golden_close(&e.g);
    }
    pv_model_close(&m);
}

TEST(answers_equal_transformers)
{
    for (int m = 0; m < N_MODELS; m++) {
        check_model(gguf_path_of(m), m, UINT64_MAX, 0, "F32");
        check_model(gguf_path_of(m), m, UINT64_MAX, 7, "F32 in steps of 7 rows");
        /* Stored in 16 bits: the plain level rounds no activations. */
        check_model(hf_path(m), m, 0, 0, "as stored");
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
