/* Draft vocabularies: a narrowed decoder has the logits of the whole one, of its tokens; drafters
 * propose no others, and answers stay what they are; which tokens are taken; and what is refused.
 */
#include "headed.h"
#include "scratch.h"

#include "engine/model.h"
#include "lm/decoder_parts.h"
#include "tensor/quant.h"

static const struct tiny_model model = { .arch = "qwen2",
                                         .hidden = 64,
                                         .n_layers = 2,
                                         .n_heads = 2,
                                         .n_kv = 1,
                                         .head_dim = 32,
                                         .ffn = 128,
                                         .vocab = 96,
                                         .type = DTYPE_Q8_0,
                                         .seed = 3 };

/* Logits of one row, its likeliest token and its three likeliest. */
struct scored {
    float logits[96];
    int32_t best;
    struct top_entry top[3];
};

static bool score(struct rig *r, struct scored *out)
{
    int32_t id = 17, pos[1][3] = { { 0 } };
    float mass;
    int row = 0;
    struct step_seq seq = { .kv = &r->kv, .n = 1 };
    struct step_choice choice = { .k = 3, .t = 1, .top = out->top, .mass = &mass };
    struct step step = { .n = 1,
                         .ids = &id,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &row,
                         .logits = out->logits,
                         .argmax = &out->best,
                         .choice = &choice };
    return CHECK(!decoder_step(r->dec, r->st, &step, NULL));
}

TEST(a_narrowed_decoder_scores_as_the_whole_one)
{
    static const int32_t ids[] = { 0, 3, 4, 50, 51, 77, 95 };
    enum { N = sizeof ids / sizeof *ids };
    struct rig_shape shape = {
        .level = cpu_level_best(), .threads = 2, .kv = DTYPE_F32, .max_rows = 4, .context = 64
    };
    struct scored whole, narrow;
    char path[256];
    struct rig a, b;
    tiny_model_write(&model, "narrow", path);
    if (!rig_open(&a, path, shape) || !rig_open(&b, path, shape))
        return;
    decoder_state_close(&b.st);
    CHECK(!decoder_draft_vocab(b.dec, model_file_lm_head(b.mf), ids, N, NULL));
    CHECK(!decoder_state_open(&b.st, b.dec, 4, 4, 64, DTYPE_F32, NULL));
    CHECK_EQ(decoder_config(b.dec)->vocab, N);
    CHECK_EQ(decoder_input_vocab(b.dec), 96);
    if (score(&a, &whole) && score(&b, &narrow)) {
        int best = 0;
        for (int i = 0; i < N; i++) {
            CHECK_MSG(!memcmp(&narrow.logits[i], &whole.logits[ids[i]], sizeof(float)),
                      "the logit of token %d", (int)ids[i]);
            best = narrow.logits[i] > narrow.logits[best] ? i : best;
        }
        CHECK_EQ(narrow.best, ids[best]);
        CHECK_EQ(narrow.top[0].id, ids[best]);
        for (int k = 0; k < 3; k++)
            CHECK(whole.logits[narrow.top[k].id] == narrow.top[k].logit);
    }
    rig_close(&a);
    rig_close(&b);
}

TEST(what_is_no_draft_vocabulary_is_refused)
{
    static const int32_t twice[] = { 1, 1 }, beyond[] = { 95, 96 }, fine[] = { 1, 2 };
    struct rig_shape shape = { .threads = 1, .kv = DTYPE_F32, .max_rows = 4, .context = 64 };
    struct pv_error err = { 0 };
    char path[256];
    struct rig r;
    if (!rig_open(&r, tiny_model_write(&model, "refused", path), shape))
        return;
    const struct tensor *head = model_file_lm_head(r.mf);
    CHECK_EQ(decoder_draft_vocab(r.dec, head, twice, 2, &err), PV_E_ARG);
    CHECK_STR(err.text, "token 1 of a draft vocabulary is 1, out of order or not below 96");
    CHECK_EQ(decoder_draft_vocab(r.dec, head, beyond, 2, &err), PV_E_ARG);
    CHECK_EQ(decoder_draft_vocab(r.dec, head, fine, 0, &err), PV_E_ARG);
    CHECK(!decoder_draft_ids(r.dec));
    for (uint64_t k = 1, st = 1; st && CHECK(k < 20); k++) {
        mem_fail_at(k);
        st = decoder_draft_vocab(r.dec, head, fine, 2, &err);
        mem_fail_at(0);
        CHECK(!st == (decoder_draft_ids(r.dec) != NULL));
    }
    err = (struct pv_error){ 0 };
    CHECK_EQ(decoder_draft_vocab(r.dec, head, fine, 2, &err), PV_E_ARG);
    CHECK_STR(err.text, "a drafter that scores 2 tokens has a draft vocabulary already");
    rig_close(&r);
}

/* Every drafter with weights of its own, shape and way to choose tokens. */
static void check_answers(struct pair *p, enum pv_drafter drafter, int n_shapes)
{
    static struct answer plain[2], got;
    pv_session *a = open_session(p), *b = open_session(p);
    for (int warm = 0; warm < 2; warm++)
        plain[warm] = run(a, NULL, 0.8f * (float)warm);
    for (int i = 0; i < n_shapes; i++)
        for (int warm = 0; warm < 2; warm++) {
            struct pv_method m = method(drafter, "full", (enum pv_shape)i);
            run(a, NULL, 0.8f * (float)warm);
            got = run(b, &m, 0.8f * (float)warm);
            CHECK_MSG(same_answer(&plain[warm], &got, vocab_of(a)), "shape %d, drawn %d", i, warm);
            CHECK(same_cache(a, b));
            CHECK(got.stats.proposed > 0);
        }
    pv_session_close(&a);
    pv_session_close(&b);
}

TEST(answers_do_not_depend_on_the_draft_vocabulary)
{
    struct tiny_vision v = tiny_vision(&family_llava_onevision);
    struct pv_model_params p = pv_model_defaults();
    struct pair both;
    p.threads = 2;
    p.draft_vocab = 60;
    if (open_headed(&both, v, EAGLE_HEAD, p)) {
        CHECK_EQ(decoder_config(both.draft->dec)->vocab, 60);
        CHECK_EQ(decoder_config(both.target->head)->vocab, 60);
        CHECK_EQ(pv_model_vocab_size(both.draft), v.text.vocab);
        check_answers(&both, PV_DRAFT_MODEL, 3);
        check_answers(&both, PV_DRAFT_HEAD, 3);
    }
    close_pair(&both);
}

/* A quantised head brings its rows of the target's LM head to 8 bits; the answers stay. */
TEST(a_quantised_head_scores_quantised_rows)
{
    struct tiny_vision v = tiny_vision(&family_llava_onevision);
    struct tiny_head h = copying_head(&v, EAGLE_HEAD);
    struct pv_model_params p = pv_model_defaults();
    struct pair both = { 0 };
    struct pv_error err = { 0 };
    char paths[2][256];
    h.copies = false;
    h.type = DTYPE_Q4_0;
    tiny_vision_gguf(&v, "target", paths[0]);
    p.path = paths[0];
    p.head = tiny_head_write(&h, "packed", paths[1]);
    p.threads = 2;
    p.draft_vocab = 60;
    if (!CHECK_MSG(!pv_model_open(&both.target, &p, &err), "%s", err.text))
        return;
    const struct tensor *t = model_file_lm_head(both.target->file);
    const struct decoder *head = both.target->head;
    size_t from = dtype_row_size(t->dtype, v.text.hidden);
    size_t to = dtype_row_size(DTYPE_Q8_0, v.text.hidden);
    CHECK_EQ(head->lm_head.dtype, DTYPE_Q8_0);
    for (int i = 0; i < 60 && head->lm_head.dtype == DTYPE_Q8_0; i++) {
        float row[256];
        uint8_t want[512];
        row_to_f32(row, (const uint8_t *)t->data + from * (size_t)decoder_draft_ids(head)[i],
                   t->dtype, v.text.hidden);
        row_from_f32(want, row, DTYPE_Q8_0, v.text.hidden);
        CHECK(!memcmp((const uint8_t *)head->own_rows + to * (size_t)i, want, to));
    }
    both.draft = open_model(paths[0], 1, NULL); /* a session that speculates has one */
    check_answers(&both, PV_DRAFT_HEAD, 3);
    close_pair(&both);
}

/* A model that scores some tokens cannot answer; a head that has chosen its own keeps to it. */
TEST(a_narrowed_model_is_no_target)
{
    struct tiny_vision v = tiny_vision(&family_llava_onevision);
    struct tiny_head h = copying_head(&v, EAGLE3_HEAD);
    struct pv_model_params p = pv_model_defaults();
    struct pv_session_params sp = pv_session_defaults();
    struct pv_error err = { 0 };
    pv_session *s = NULL;
    pv_model *m = NULL;
    char paths[2][256];
    tiny_vision_gguf(&v, "target", paths[0]);
    p.path = paths[0];
    p.threads = 1;
    p.draft_vocab = 40;
    if (CHECK_MSG(!pv_model_open(&m, &p, &err), "%s", err.text)) {
        CHECK_EQ(pv_session_open(&s, m, &sp, &err), PV_E_ARG);
        CHECK(strstr(err.text, "scores only 40 of its"));
    }
    pv_model_close(&m);
    p.head = tiny_head_write(&h, "head", paths[1]);
    err = (struct pv_error){ 0 };
    CHECK_EQ(pv_model_open(&m, &p, &err), PV_E_ARG);
    CHECK(strstr(err.text, "has a draft vocabulary already"));
    p.head = NULL;
    p.draft_vocab = v.text.vocab + 1;
    err = (struct pv_error){ 0 };
    CHECK_EQ(pv_model_open(&m, &p, &err), PV_E_ARG);
    CHECK(strstr(err.text, "a draft vocabulary of"));
}

/* The most frequent tokens of a text of more than one piece, the control tokens, then low ids. */
TEST(frequent_tokens_are_taken_first)
{
    struct tiny_vision v = tiny_vision(&family_llava_onevision);
    pv_model *m;
    char path[256], *long_text = malloc(200000);
    const char *text;
    int32_t word[8], *ids = NULL;
    size_t n = 0;
    tiny_vision_gguf(&v, "counted", path);
    m = open_model(path, 1, NULL);
    memset(long_text, 'z', 200000);
    for (int i = 20; i < 200000; i += 20)
        long_text[i] = i % 100 ? ' ' : '\n';
    text = scratch_file("counted.txt", long_text, 200000);
    CHECK(!pv_tokenize(m, "z", 1, false, word, 8, &n, NULL));
    CHECK_EQ(n, 1);
    if (CHECK(!model_draft_vocab(m, 12, text, &ids, NULL))) {
        bool found = false;
        for (int i = 0; i < 12; i++) {
            CHECK(i == 0 || ids[i] > ids[i - 1]);
            found = found || ids[i] == word[0];
        }
        CHECK(found);
    }
    mem_free(ids);
    ids = NULL;
    CHECK(!model_draft_vocab(m, 12, NULL, &ids, NULL));
    CHECK(ids && ids[0] == 0);
    mem_free(ids);
    pv_model_close(&m);
    free(long_text);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
