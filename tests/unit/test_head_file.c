/* Draft heads on disk: directories in EAGLE's layout and GGUF files, what kind of layer their
 * tensors make of them, and everything that can be wrong with them. */
#include "format/head_file.h"

#include "base/load.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "format/head_file_parts.h"
#include "make_file.h"
#include "test.h"
#include "tiny_head.h"

#include <sys/stat.h>

static const struct config target = { .hidden = 32,
                                      .n_layers = 3,
                                      .n_heads = 2,
                                      .n_kv_heads = 1,
                                      .head_dim = 16,
                                      .ffn = 64,
                                      .vocab = 100,
                                      .max_context = 512,
                                      .rope_theta = 10000,
                                      .rms_eps = 1e-6f,
                                      .mrope = MROPE_SECTIONS,
                                      .mrope_section = { 4, 2, 2 } };

static struct head_file *open_made(const struct tiny_head *h, struct pv_error *err)
{
    struct head_file *hf = NULL;
    char path[256];
    head_file_open(&hf, tiny_head_write(h, "made", path), 0, err);
    return hf;
}

/* ---- GGUF ---- */

TEST(flags_are_what_the_tensors_say)
{
    for (int bits = 0; bits < 32; bits++) {
        struct tiny_head h = tiny_head(32, 1);
        struct pv_error err = { 0 };
        struct head_file *hf;
        const struct head_tensors *t;
        h.no_input_norm = bits & 1;
        h.qkv_bias = bits & 2;
        h.qk_norm = bits & 4;
        h.no_fc_bias = bits & 8;
        h.norms = bits & 16;
        h.n_kv = bits & 1 ? 2 : 1;
        hf = open_made(&h, &err);
        if (!CHECK_MSG(hf, "%s", err.text))
            continue;
        t = head_file_tensors(hf);
        CHECK(!t->layer.attn_norm == h.no_input_norm && !t->fc_bias == h.no_fc_bias);
        CHECK(!t->layer.q_bias == !h.qkv_bias && !t->layer.v_bias == !h.qkv_bias);
        CHECK(!t->layer.q_norm == !h.qk_norm && !t->layer.k_norm == !h.qk_norm);
        CHECK(!t->norm == !h.norms && !t->embed_norm == !h.norms && !t->hidden_norm == !h.norms);
        CHECK(t->fc && t->fc->dim[0] == 32 && t->fc->dim[1] == 64);
        CHECK_EQ(head_file_config(hf)->c.n_kv_heads, h.n_kv);
        CHECK(head_file_config(hf)->c.qkv_bias == h.qkv_bias);
        head_file_close(&hf);
    }
}

TEST(words_and_their_defaults)
{
    struct tiny_head h = tiny_head(32, 1);
    struct pv_error err = { 0 };
    struct head_file *hf = open_made(&h, &err);
    const struct head_config *c;
    if (!CHECK_MSG(hf, "%s", err.text))
        return;
    c = head_file_config(hf);
    CHECK(c->positions == HEAD_POS_INDEX && c->visual == HEAD_VISUAL_EMBEDDING);
    CHECK(c->c.rope_theta == 0);
    head_file_close(&hf);
    h.positions = "target";
    h.visual = "layer";
    h.visual_layer = 2;
    h.theta = 7000;
    hf = open_made(&h, &err);
    if (!CHECK_MSG(hf, "%s", err.text))
        return;
    c = head_file_config(hf);
    CHECK(c->positions == HEAD_POS_TARGET && c->visual == HEAD_VISUAL_LAYER);
    CHECK(c->visual_layer == 2 && c->c.rope_theta == 7000);
    head_file_close(&hf);
}

static void check_fault(const struct tiny_head *h, enum pv_status want, const char *says)
{
    struct pv_error err = { 0 };
    struct head_file *hf = open_made(h, &err);
    CHECK_MSG(!hf && err.code == want && strstr(err.text, says), "'%s', not '%s'", err.text, says);
    head_file_close(&hf);
}

TEST(faults)
{
    static const char *const needed[] = {
        "fc.weight",
        "blk.0.attn_q.weight",
        "blk.0.attn_k.weight",
        "blk.0.attn_v.weight",
        "blk.0.attn_output.weight",
        "blk.0.ffn_norm.weight",
        "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight",
        "blk.0.attn_k.bias",
        "blk.0.attn_k_norm.weight",
        "prevue-head.embedding_length",
        "prevue-head.attention.key_length",
    };
    struct tiny_head whole = tiny_head(32, 1), h;
    whole.qkv_bias = whole.qk_norm = whole.norms = true;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        h = whole;
        h.drop = needed[i];
        check_fault(&h, PV_E_FORMAT, needed[i]);
        h = whole;
        h.reshape = needed[i];
        if (strncmp(needed[i], "prevue", 6) != 0)
            check_fault(&h, PV_E_FORMAT, "shape");
    }
    h = whole;
    h.drop = "blk.0.attn_q.bias"; /* then there are none, and the others have no place */
    check_fault(&h, PV_E_UNSUPPORTED, "blk.0.attn_k.bias has no place");
    h = whole;
    h.extra = "blk.1.attn_norm.weight";
    check_fault(&h, PV_E_UNSUPPORTED, "blk.1.attn_norm.weight has no place");
    h = whole;
    h.extra = "blk.0.attn_output.bias";
    check_fault(&h, PV_E_UNSUPPORTED, "attn_output.bias has no place");
    h = whole;
    h.visual = "layer";
    check_fault(&h, PV_E_FORMAT, "visual_layer");
    h.visual = "eyes";
    check_fault(&h, PV_E_UNSUPPORTED, "unknown value of prevue-head.visual_rows");
    h = whole;
    h.positions = "nowhere";
    check_fault(&h, PV_E_UNSUPPORTED, "unknown value of prevue-head.rope_positions");
    h = whole;
    h.n_heads = 3;
    h.n_kv = 2;
    check_fault(&h, PV_E_FORMAT, "cannot share");
    h = whole;
    h.head_dim = 12;
    check_fault(&h, PV_E_UNSUPPORTED, "multiple of 8");
    h = whole;
    h.theta = 0.5f;
    check_fault(&h, PV_E_FORMAT, "rope base");
}

/* ---- EAGLE-3 ---- */

static struct tiny_head eagle3(void)
{
    struct tiny_head h = tiny_head(32, 1);
    h.eagle3 = true;
    h.no_fc_bias = true;
    h.vocab = 100;
    h.draft_vocab = 40;
    return h;
}

TEST(eagle3_faults)
{
    static const char *const needed[] = { "fc.weight",
                                          "hidden_norm.weight",
                                          "output_norm.weight",
                                          "blk.0.attn_norm.weight",
                                          "blk.0.attn_q.weight",
                                          "blk.0.attn_v.weight",
                                          "blk.0.ffn_norm.weight" };
    struct tiny_head h;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        h = eagle3();
        h.drop = needed[i];
        check_fault(&h, PV_E_FORMAT, needed[i]);
        h = eagle3();
        h.reshape = needed[i];
        check_fault(&h, PV_E_FORMAT, "shape");
    }
    h = eagle3();
    h.reshape = "output.weight";
    check_fault(&h, PV_E_FORMAT, "a map of 40 draft tokens (d2t) and an LM head of 41 rows");
    h = eagle3();
    h.drop = "output.weight";
    check_fault(&h, PV_E_FORMAT, "a map of 40 draft tokens (d2t) and an LM head of 0 rows");
    h = eagle3();
    h.wrong_id = 10; /* as the fifth is */
    check_fault(&h, PV_E_FORMAT, "two draft tokens are mapped to token 10");
    h.wrong_id = CONFIG_MAX_VOCAB;
    check_fault(&h, PV_E_FORMAT, "is mapped to token 4194304");
    h = eagle3();
    h.visual = "embedding";
    check_fault(&h, PV_E_UNSUPPORTED, "visual_rows");
    h = eagle3();
    h.n_features = 2;
    h.features[1] = CONFIG_MAX_LAYERS + 1;
    check_fault(&h, PV_E_FORMAT, "feature_layers names 1025");
    h = eagle3();
    h.extra = "embed_norm.weight";
    check_fault(&h, PV_E_UNSUPPORTED, "embed_norm.weight has no place");
}

static void check_misfit(const struct tiny_head *h, const struct config *t, const char *says)
{
    struct pv_error err = { 0 };
    struct config c;
    struct head_file *hf = open_made(h, &err);
    if (!CHECK_MSG(hf, "%s", err.text))
        return;
    CHECK_EQ(head_file_fit(hf, t, "t.gguf", &c, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, says) && strstr(err.text, "made.gguf"), "%s", err.text);
    head_file_close(&hf);
}

TEST(eagle3_fits_its_target_only)
{
    struct tiny_head h = eagle3();
    struct pv_error err = { 0 };
    struct config c, other = target;
    struct head_features f;
    struct head_file *hf = open_made(&h, &err);
    if (!CHECK_MSG(hf, "%s", err.text))
        return;
    CHECK_MSG(head_file_fit(hf, &target, "t.gguf", &c, &err) == PV_OK, "%s", err.text);
    CHECK_EQ(c.vocab, 40);
    CHECK(head_file_draft_ids(hf) && head_file_draft_ids(hf)[39] == 0);
    f = head_features_of(head_file_config(hf), 36);
    CHECK(f.n == 3 && f.layer[0] == 2 && f.layer[1] == 18 && f.layer[2] == 33);
    head_file_close(&hf);
    other.n_layers = 2; /* the third of the usual ones would be -1 */
    check_misfit(&h, &other, "needs states after layer -1");
    other = target;
    other.vocab = 90;
    check_misfit(&h, &other, "drafts token 97, and the vocabulary of t.gguf is 90");
    other.vocab = 39;
    check_misfit(&h, &other, "drafts 40 tokens, and the vocabulary of t.gguf is 39");
    h.drop = "prevue-head.draft_ids";
    check_misfit(&h, &target, "d2t is missing");
    h = eagle3();
    h.n_features = 2;
    h.features[0] = 4;
    check_misfit(&h, &target, "needs states after layer 4, but t.gguf has 3 layers");
}

/* The directory of the golden head in scratch, with one text of each file replaced by one that is
 * as long; d2t: the second element, INT64_MIN: as it is. NULL: none is replaced. */
static const char *edited_dir(const char *config[2], const char *tensors[2], int64_t d2t)
{
    static char dir[128];
    static const char *const names[] = { "config.json", "model.safetensors" };
    const char *const *edit[] = { config, tensors };
    snprintf(dir, sizeof dir, "%s/edited", scratch_dir());
    mkdir(dir, 0777);
    for (int i = 0; i < 2; i++) {
        char path[192], *at;
        size_t size, n = edit[i] ? strlen(edit[i][0]) : 0;
        uint8_t *data;
        snprintf(path, sizeof path, "tests/golden/head_eagle3/%s", names[i]);
        data = make_load(path, &size);
        for (size_t k = 0; n > 0 && k + n <= size; k++)
            if (memcmp(data + k, edit[i][0], n) == 0)
                memcpy(data + k, edit[i][1], n);
        at = i ? strstr((char *)data + 8, "\"d2t\"") : NULL;
        if (at && d2t != INT64_MIN) {
            long begin = strtol(strchr(strstr(at, "data_offsets"), '[') + 1, NULL, 10);
            memcpy(data + 8 + load_le64(data) + begin + 8, &d2t, sizeof d2t);
        }
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        make_write(path, data, size);
        free(data);
    }
    return dir;
}

static void check_dir(const char *config[2], const char *tensors[2], int64_t d2t, const char *says)
{
    struct head_file *hf = NULL;
    struct pv_error err = { 0 };
    const char *dir = edited_dir(config, tensors, d2t);
    CHECK(head_file_is(dir));
    head_file_open(&hf, dir, 0, &err);
    CHECK_MSG(says ? !hf && strstr(err.text, says) : hf != NULL, "'%s'", err.text);
    if (hf) {
        const struct head_config *h = head_file_config(hf);
        CHECK(h->layout == HEAD_LAYOUT_EAGLE3 && h->draft_vocab == 64 && h->n_features == 3);
        CHECK(h->positions == HEAD_POS_TARGET && h->visual == HEAD_VISUAL_FC);
        CHECK(head_file_tensors(hf)->hidden_norm && head_file_tensors(hf)->lm_head);
    }
    head_file_close(&hf);
}

/* Either spelling of the layer, and what is wrong with the map of tokens. */
TEST(eagle3_directories)
{
    const char *others[] = { "midlayer.", "layers.0." }, *d2t[] = { "\"d2t\"", "\"d2x\"" };
    const char *head[] = { "lm_head.weight", "em_head.weight" };
    const char *sizes[] = { "\"draft_vocab_size\": 64", "\"draft_vocab_size\": 65" };
    const char *layers[] = { "\"eagle_aux_hidden_state_layer_ids\": [\n    0,\n    1,",
                             "\"eagle_aux_hidden_state_layer_ids\": [\n           1," };
    check_dir(NULL, NULL, INT64_MIN, NULL);
    check_dir(NULL, others, INT64_MIN, NULL);
    check_dir(NULL, NULL, -2, "element 1 of d2t is -2");
    check_dir(NULL, NULL, INT64_MAX, "element 1 of d2t is 9223372036854775807");
    check_dir(NULL, NULL, -1, "two draft tokens are mapped to token 0");
    check_dir(NULL, d2t, INT64_MIN, NULL); /* what it drafts is not said; fitting tells */
    check_dir(NULL, head, INT64_MIN, "a draft vocabulary of 64, and no LM head");
    check_dir(sizes, NULL, INT64_MIN, "a draft vocabulary of 65 and an LM head of 64 rows");
    check_dir(layers, NULL, INT64_MIN, "fc.weight is made for 3 layers of the target, not 2");
}

/* config.json as EAGLE, SpecForge and speculators write it. */
TEST(eagle3_configurations)
{
#define LAYER                                                                                      \
    "\"hidden_size\": 64, \"num_attention_heads\": 4, \"intermediate_size\": 96, "                 \
    "\"rms_norm_eps\": 1e-6, \"vocab_size\": 320"
#define IDS "\"eagle_aux_hidden_state_layer_ids\": "
    static const struct {
        const char *json;
        const char *says; /* NULL: it is read */
        int first;        /* of the features; -1: none are named */
        int draft_vocab;
        bool norm_residual, target;
        float theta;
    } cases[] = {
        { "{" LAYER ", \"draft_vocab_size\": 100}", NULL, -1, 100, false, false, 1e4f },
        { "{" LAYER ", \"draft_vocab_size\": null, \"rope_theta\": 5e5}", NULL, -1, 0, false, false,
          5e5f },
        { "{" LAYER ", \"draft_vocab_size\": 320}", NULL, -1, 0, false, false, 1e4f },
        { "{" LAYER ", \"eagle_config\": {" IDS "[1, 17, 32]}}", NULL, 2, 0, false, false, 1e4f },
        { "{" LAYER ", " IDS "[2, 18, 33]}", NULL, 2, 0, false, false, 1e4f },
        { "{\"transformer_layer_config\": {" LAYER ", \"rope_theta\": 7}, \"draft_vocab_size\": 9,"
          " \"norm_before_residual\": true}",
          NULL, -1, 9, true, false, 7 },
        { "{" LAYER ", \"rope_scaling\": {\"rope_type\": \"default\", \"mrope_section\": [24, 20, "
          "20], \"mrope_interleaved\": true}, \"rope_theta\": 5000000}",
          NULL, -1, 0, false, true, 5e6f },
        { "{" LAYER ", \"draft_vocab_size\": 321}", "vocab_size is 320", 0, 0, 0, 0, 0 },
        { "{" LAYER ", \"draft_vocab_size\": -1}", "draft_vocab_size is -1", 0, 0, 0, 0, 0 },
        { "{" LAYER ", " IDS "[]}", "not a list of 1 to 8 layers", 0, 0, 0, 0, 0 },
        { "{" LAYER ", " IDS "[1, -2, 3]}", "element 1", 0, 0, 0, 0, 0 },
        { "{" LAYER ", " IDS "[1, \"x\", 3]}", "element 1", 0, 0, 0, 0, 0 },
        { "{" LAYER ", \"norm_output\": true}", "norm_output", 0, 0, 0, 0, 0 },
        { "{" LAYER ", \"norm_before_residual\": 1}", "norm_before_residual", 0, 0, 0, 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct head_config c = { 0 };
        struct pv_error err = { 0 };
        enum pv_status s = head_config_parse(&c, cases[i].json, strlen(cases[i].json),
                                             HEAD_LAYOUT_EAGLE3, 64, "config.json", &err);
        CHECK_MSG(cases[i].says ? s && strstr(err.text, cases[i].says) : !s, "case %d: '%s'",
                  (int)i, err.text);
        if (s)
            continue;
        CHECK_EQ(c.features.n ? c.features.layer[0] : -1, cases[i].first);
        CHECK_EQ(c.draft_vocab, cases[i].draft_vocab);
        CHECK(c.norm_residual == cases[i].norm_residual && c.c.rope_theta == cases[i].theta);
        CHECK_EQ(c.positions, cases[i].target ? HEAD_POS_TARGET : HEAD_POS_INDEX);
    }
}

/* ---- beside a target ---- */

TEST(fits_its_target_only)
{
    struct tiny_head h = tiny_head(32, 1);
    struct pv_error err = { 0 };
    struct config c, other = target;
    struct head_file *hf = open_made(&h, &err);
    if (!CHECK_MSG(hf, "%s", err.text))
        return;
    CHECK_EQ(head_file_fit(hf, &target, "t.gguf", &c, &err), PV_OK);
    CHECK(c.vocab == 100 && c.n_layers == 1 && c.rope_theta == 10000 && c.mrope == MROPE_NONE);
    other.hidden = 64;
    CHECK_EQ(head_file_fit(hf, &other, "t.gguf", &c, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "t.gguf") && strstr(err.text, "made.gguf"), "%s", err.text);
    head_file_close(&hf);
    h.positions = "target";
    h.visual = "layer";
    h.visual_layer = 3;
    err = (struct pv_error){ 0 };
    hf = open_made(&h, &err);
    if (!CHECK_MSG(hf, "%s", err.text))
        return;
    CHECK_EQ(head_file_fit(hf, &target, "t.gguf", &c, &err), PV_OK);
    CHECK(c.mrope == MROPE_SECTIONS && c.mrope_section[0] == 4);
    other = target;
    other.n_layers = 2;
    CHECK_EQ(head_file_fit(hf, &other, "t.gguf", &c, &err), PV_E_ARG);
    err = (struct pv_error){ 0 };
    other = target;
    other.head_dim = 32;
    CHECK_EQ(head_file_fit(hf, &other, "t.gguf", &c, &err), PV_E_ARG);
    head_file_close(&hf);
}

/* ---- directories ---- */

TEST(directories_and_what_they_become)
{
    static const char *const names[] = { "head_eagle", "head_msd", "head_layer", "head_eagle3" };
    static const enum dtype types[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0 };
    for (size_t i = 0; i < 4; i++) {
        char path[128], out[128];
        struct head_file *dir = NULL, *made = NULL;
        struct pv_error err = { 0 };
        snprintf(path, sizeof path, "tests/golden/%s", names[i]);
        snprintf(out, sizeof out, "%s/out.gguf", scratch_dir());
        CHECK(head_file_is(path));
        if (!CHECK_MSG(head_file_open(&dir, path, 0, &err) == PV_OK, "%s", err.text))
            continue;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            struct head_config a = *head_file_config(dir), b;
            CHECK_MSG(head_file_write_gguf(dir, out, types[t], NULL, &err) == PV_OK &&
                          head_file_open(&made, out, 0, &err) == PV_OK,
                      "%s", err.text);
            if (!made)
                break;
            b = *head_file_config(made);
            CHECK(memcmp(&a, &b, sizeof a) == 0);
            CHECK_EQ(head_file_tensors(made)->fc->dtype, types[t]);
            CHECK_EQ(head_file_tensors(made)->layer.ffn_norm->dtype, DTYPE_F32);
            CHECK(head_file_is(out));
            head_file_close(&made);
        }
        head_file_close(&dir);
    }
    CHECK(!head_file_is("tests/golden/qwen2") && !head_file_is("tests/nowhere"));
}

/* config.json of others: what may be missing, and what is refused. */
TEST(configurations)
{
#define NUMBERS "\"hidden_size\": 64, \"num_attention_heads\": 4, \"intermediate_size\": 96"
    static const struct {
        const char *json;
        enum pv_status want;
        const char *says;
    } cases[] = {
        { "{" NUMBERS ", \"rms_norm_eps\": 1e-6}", PV_OK, "" },
        { "{" NUMBERS ", \"rms_norm_eps\": 1e-6, \"num_hidden_layers\": 1, \"rope_scaling\":"
          " {\"type\": \"mrope\", \"mrope_section\": [1, 2]}, \"rope_theta\": 5e5}",
          PV_OK, "" },
        { "{" NUMBERS "}", PV_E_FORMAT, "rms_norm_eps" },
        { "{\"hidden_size\": 64, \"rms_norm_eps\": 1e-6}", PV_E_FORMAT, "intermediate_size" },
        { "{" NUMBERS ", \"rms_norm_eps\": 1e-6, \"num_hidden_layers\": 2}", PV_E_FORMAT,
          "num_hidden_layers" },
        { "{" NUMBERS ", \"rms_norm_eps\": 1e-6, \"hidden_act\": \"gelu\"}", PV_E_UNSUPPORTED,
          "hidden_act" },
        { "{" NUMBERS ", \"rms_norm_eps\": 1e-6, \"rope_scaling\": {\"rope_type\": \"yarn\"}}",
          PV_E_UNSUPPORTED, "scaled rope" },
        { "{" NUMBERS ", \"rms_norm_eps\": 1e-6, \"visual_rows\": \"layer\"}", PV_E_FORMAT,
          "visual_layer" },
        { "{" NUMBERS ", \"rms_norm_eps\": 1e-6, \"visual_rows\": 3}", PV_E_UNSUPPORTED,
          "visual_rows" },
        { "{" NUMBERS ", \"rms_norm_eps\": 1e-6, \"head_dim\": 100000}", PV_E_FORMAT, "head_dim" },
        { "[]", PV_E_FORMAT, "not a JSON object" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct head_config c = { 0 };
        struct pv_error err = { 0 };
        enum pv_status s = head_config_parse(&c, cases[i].json, strlen(cases[i].json),
                                             HEAD_LAYOUT_EAGLE, 64, "config.json", &err);
        CHECK_MSG(s == cases[i].want && (s == PV_OK || strstr(err.text, cases[i].says)),
                  "case %d: '%s'", (int)i, err.text);
        if (s == PV_OK)
            CHECK(c.c.head_dim == 16 && c.c.n_kv_heads == 4 &&
                  c.c.rope_theta == (i == 0 ? 0.0f : 5e5f));
    }
}

/* The head of ViSpec loads as what it has in common with EAGLE's. */
TEST(parts_of_others_are_passed_over)
{
    static const char *const passed[] = { "imadpt.q", "img_fc.weight", "lm_head.weight",
                                          "layers.0.self_attn.rotary_emb.inv_freq" };
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        struct tiny_head h = tiny_head(32, 1);
        struct pv_error err = { 0 };
        struct head_file *hf;
        h.extra = passed[i];
        hf = open_made(&h, &err);
        CHECK_MSG(hf, "%s", err.text);
        CHECK_EQ(hf ? head_file_adaptor(hf) : -1, i < 2);
        head_file_close(&hf);
    }
}

/* Any byte of a small file changed: an error, or a head, never worse. */
static void check_damaged(bool eagle3)
{
    struct tiny_head h = tiny_head(8, 1);
    char path[256];
    FILE *f;
    uint8_t *data = malloc(1 << 20);
    size_t size;
    struct rng r = { test_seed };
    h.head_dim = 8;
    h.ffn = 8;
    h.eagle3 = eagle3;
    h.vocab = 24;
    h.draft_vocab = eagle3 ? 12 : 0;
    h.n_features = 2;
    f = fopen(tiny_head_write(&h, "small", path), "rb");
    size = f ? fread(data, 1, 1 << 20, f) : 0;
    if (f)
        fclose(f);
    for (int i = 0; i < 3000 && CHECK(size > 0); i++) {
        size_t at = (size_t)(rng_next(&r) % (size < 2048 ? size : 2048));
        uint8_t was = data[at];
        struct head_file *hf = NULL;
        struct pv_error err = { 0 };
        data[at] = (uint8_t)rng_next(&r);
        if (head_file_open_memory(&hf, data, size, "damaged", &err))
            CHECK(err.text[0]);
        head_file_close(&hf);
        data[at] = was;
    }
    free(data);
}

TEST(damaged_files)
{
    check_damaged(false);
    check_damaged(true);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
