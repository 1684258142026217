/* Configurations from config.json and from GGUF metadata, good and bad. */
#include "base/mem.h"
#include "family/families.h"
#include "format/config_gguf.h"
#include "format/config_hf.h"
#include "format/vocab_gguf.h"
#include "make_dir.h"
#include "test.h"

#include <jansson.h>
#include <math.h>

static const char qwen2[] =
    "{\"model_type\": \"qwen2\", \"hidden_size\": 896, \"num_hidden_layers\": 24,"
    " \"num_attention_heads\": 14, \"num_key_value_heads\": 2, \"intermediate_size\": 4864,"
    " \"vocab_size\": 151936, \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-06,"
    " \"rope_theta\": 1000000.0, \"tie_word_embeddings\": true, \"eos_token_id\": 151645,"
    " \"use_sliding_window\": false, \"sliding_window\": 32768}";

static const char qwen25_vl[] = /* the flat layout of the hub */
    "{\"model_type\": \"qwen2_5_vl\", \"hidden_size\": 2048, \"num_hidden_layers\": 36,"
    " \"num_attention_heads\": 16, \"num_key_value_heads\": 2, \"intermediate_size\": 11008,"
    " \"vocab_size\": 151936, \"max_position_embeddings\": 128000, \"rms_norm_eps\": 1e-06,"
    " \"rope_theta\": 1000000.0, \"tie_word_embeddings\": true, \"vision_config\": {},"
    " \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}}";

static const char qwen3_vl[] = /* nested, with the newer rope_parameters */
    "{\"model_type\": \"qwen3_vl\", \"tie_word_embeddings\": true,"
    " \"vision_config\": {\"deepstack_visual_indexes\": [5, 11, 17]}, \"text_config\": {"
    " \"model_type\": \"qwen3_vl_text\", \"hidden_size\": 2560, \"num_hidden_layers\": 36,"
    " \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128,"
    " \"intermediate_size\": 9728, \"vocab_size\": 151936, \"max_position_embeddings\": 262144,"
    " \"rms_norm_eps\": 1e-06, \"attention_bias\": false, \"eos_token_id\": [151645, 151643],"
    " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5000000,"
    " \"mrope_interleaved\": true, \"mrope_section\": [24, 20, 20]}}}";

static const char llava[] =
    "{\"model_type\": \"llava_onevision\", \"tie_word_embeddings\": false, \"text_config\": {"
    " \"model_type\": \"qwen2\", \"hidden_size\": 896, \"num_hidden_layers\": 24,"
    " \"num_attention_heads\": 14, \"num_key_value_heads\": 2, \"intermediate_size\": 4864,"
    " \"vocab_size\": 152000, \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-06,"
    " \"rope_theta\": 1000000.0, \"rope_scaling\": null, \"tie_word_embeddings\": true}}";

static enum pv_status parse(struct config *c, const char *json, const char *generation,
                            struct pv_error *err)
{
    return config_hf_parse(c, json, strlen(json), generation, generation ? strlen(generation) : 0,
                           "config.json", families, err);
}

TEST(reads_qwen2)
{
    struct config c;
    struct pv_error err = { 0 };

    CHECK_MSG(parse(&c, qwen2, "{\"eos_token_id\": [151645, 151643, 999999]}", &err) == PV_OK, "%s",
              err.text);
    CHECK(c.family == &family_qwen2 && c.qkv_bias && !c.qk_norm && c.mrope == MROPE_NONE && c.tied);
    CHECK_EQ(c.hidden, 896);
    CHECK_EQ(c.n_layers, 24);
    CHECK_EQ(c.n_heads, 14);
    CHECK_EQ(c.n_kv_heads, 2);
    CHECK_EQ(c.head_dim, 64);
    CHECK_EQ(c.ffn, 4864);
    CHECK_EQ(c.vocab, 151936);
    CHECK_EQ(c.max_context, 32768);
    CHECK_EQ(c.rope_theta, 1e6f);
    CHECK_EQ(c.rms_eps, 1e-6f);
    CHECK_EQ(c.n_stop, 2); /* each once, the one beyond the vocabulary dropped */
    CHECK(c.stop[0] == 151645 && c.stop[1] == 151643);
}

TEST(reads_the_other_layouts)
{
    struct config c;
    struct pv_error err = { 0 };

    CHECK_MSG(parse(&c, qwen25_vl, NULL, &err) == PV_OK, "%s", err.text);
    CHECK(c.mrope == MROPE_SECTIONS && c.head_dim == 128 && c.qkv_bias && c.n_stop == 0);
    CHECK(c.mrope_section[0] == 16 && c.mrope_section[1] == 24 && c.mrope_section[2] == 24);
    CHECK_MSG(parse(&c, qwen3_vl, NULL, &err) == PV_OK, "%s", err.text);
    CHECK(c.family == &family_qwen3_vl && c.qk_norm && !c.qkv_bias && c.mrope == MROPE_INTERLEAVED);
    CHECK(c.head_dim == 128 && c.n_heads * c.head_dim != c.hidden && c.tied && c.n_stop == 2);
    CHECK_EQ(c.rope_theta, 5e6f);
    CHECK_EQ(c.n_deepstack, 3);
    CHECK_EQ(config_media_width(&c), 4 * 2560);
    CHECK_MSG(parse(&c, llava, NULL, &err) == PV_OK, "%s", err.text);
    CHECK(c.family == &family_qwen2 && c.mrope == MROPE_NONE && c.tied && c.vocab == 152000);
    CHECK_EQ(config_media_width(&c), 896);
}

/* The text with one part replaced must be refused by a sentence that has `word`. */
static void refuse(const char *json, const char *old, const char *new, const char *word)
{
    char text[2000];
    const char *at = strstr(json, old);
    struct config c = { .hidden = 77 };
    struct pv_error err = { 0 };
    enum pv_status s;

    if (!CHECK_MSG(at, "%s is not in the text", old))
        return;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - json), json, new, at + strlen(old));
    s = parse(&c, text, NULL, &err);
    CHECK_MSG(s != PV_OK && err.code == s && c.hidden == 77, "%s gives %d", new, s);
    CHECK_MSG(!strncmp(err.text, "config.json: ", 13) && strstr(err.text, word),
              "%s: \"%s\" lacks \"%s\"", new, err.text, word);
}

/* The published LLaVA-OneVision files leave out of text_config what equals the class's own value;
 * every other family must say it. */
TEST(what_llava_leaves_out)
{
    static const char both[] = "\"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-06,";
    const char *at = strstr(llava, both);
    char json[sizeof llava];
    struct config c;
    struct pv_error err = { 0 };

    snprintf(json, sizeof json, "%.*s%s", (int)(at - llava), llava, at + strlen(both));
    CHECK_MSG(parse(&c, json, NULL, &err) == PV_OK, "%s", err.text);
    CHECK(c.max_context == 32768 && c.rms_eps == 1e-6f);
    refuse(llava, "32768", "0", "max_position_embeddings is 0");
    refuse(llava, "1e-06", "\"x\"", "rms_norm_eps is not a finite number");
    refuse(llava, "num_key_value_heads", "other", "num_key_value_heads is missing");
    refuse(llava, "rope_theta", "other", "rope_theta is missing");
}

TEST(missing_keys_are_named)
{
    static const char *const keys[] = { "hidden_size",         "num_hidden_layers",
                                        "num_attention_heads", "num_key_value_heads",
                                        "intermediate_size",   "vocab_size",
                                        "rms_norm_eps",        "max_position_embeddings",
                                        "rope_theta" };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char word[64];
        snprintf(word, sizeof word, "the key %s is missing", keys[i]);
        refuse(qwen2, keys[i], "other", word);
    }
    refuse(qwen3_vl, "head_dim", "other", "head_dim is missing");
    refuse(qwen3_vl, "mrope_section", "other", "mrope_section is missing");
    refuse(qwen25_vl, "rope_scaling", "other", "mrope_section is missing");
}

TEST(bad_numbers)
{
    refuse(qwen2, "896", "NaN", "not valid JSON");
    refuse(qwen2, "896", "1e999", "not valid JSON");
    refuse(qwen2, "896", "99999999999999999999", "hidden_size is not an integer");
    refuse(qwen2, "896", "0", "hidden_size is 0");
    refuse(qwen2, "896", "-896", "hidden_size is -896");
    refuse(qwen2, "896", "896.0", "hidden_size is not an integer");
    refuse(qwen2, "896", "\"896\"", "hidden_size is not an integer");
    refuse(qwen2, "896", "true", "hidden_size is not an integer");
    refuse(qwen2, "896", "null", "hidden_size is missing");
    refuse(qwen2, "896", "4294967296", "hidden_size is 4294967296");
    refuse(qwen2, "896", "900", "does not divide");
    refuse(qwen2, "896", "980", "not a multiple of 8"); /* a head of 70 */
    refuse(qwen2, ": 24,", ": 1025,", "num_hidden_layers is 1025");
    refuse(qwen2, "heads\": 2", "heads\": 3", "cannot share");
    refuse(qwen2, "1e-06", "0", "epsilon is 0");
    refuse(qwen2, "1e-06", "-1e-6", "epsilon");
    refuse(qwen2, "1e-06", "1.5", "epsilon is 1.5");
    refuse(qwen2, "1e-06", "\"x\"", "rms_norm_eps is not a finite number");
    refuse(qwen2, "1000000.0", "-1", "rope base");
    refuse(qwen2, "1000000.0", "1e300", "rope base");
    refuse(qwen2, "151645", "-1", "eos_token_id");
    refuse(qwen2, "151645", "[1, \"x\"]", "eos_token_id");
    refuse(qwen2, "true", "1", "tie_word_embeddings");
    refuse(qwen3_vl, "\"head_dim\": 128", "\"head_dim\": 1024", "head_dim is 1024");
    refuse(qwen25_vl, "[16, 24, 24]", "[16, 24]", "list of 3");
    refuse(qwen25_vl, "[16, 24, 24]", "[16, 24, 25]", "add up");
    refuse(qwen25_vl, "[16, 24, 24]", "[16, 24, -24]", "not a count");
    refuse(qwen25_vl, "[16, 24, 24]", "[16, 24.0, 24]", "not a count");
    refuse(qwen3_vl, "[24, 20, 20]", "[16, 24, 24]", "interleaved");
    refuse(qwen3_vl, "[5, 11, 17]", "17", "list of at most 8 layers");
    refuse(qwen3_vl, "[5, 11, 17]", "[0, 1, 2, 3, 4, 5, 6, 7, 8]", "list of at most 8 layers");
    refuse(qwen3_vl, "layers\": 36", "layers\": 3", "deepstack layers is 3, outside 0 to 2");
}

TEST(unsupported_features)
{
    refuse(qwen2, "\"qwen2\"", "\"llama\"", "this is a Llama model, which prevue does not run");
    refuse(qwen2, "\"qwen2\"", "\"a\\u001bb\"", "\"a?b\" is not supported");
    refuse(qwen2, "model_type", "kind", "model_type");
    refuse(qwen2, "use_sliding_window\": false", "use_sliding_window\": true", "sliding");
    refuse(qwen2, "\"eos", "\"hidden_act\": \"gelu\", \"eos", "hidden_act");
    refuse(qwen2, "\"eos", "\"quantization_config\": {}, \"eos", "quantization_config");
    refuse(qwen2, "\"eos", "\"rope_scaling\": {\"type\": \"yarn\"}, \"eos", "rope of a type");
    refuse(qwen2, "\"eos", "\"rope_scaling\": 5, \"eos", "not an object");
    refuse(qwen3_vl, "attention_bias\": false", "attention_bias\": true", "attention_bias");
    refuse(qwen3_vl, "interleaved\": true", "interleaved\": false", "mrope_interleaved");
    refuse(qwen3_vl, "{ \"model_type\": \"qwen3_vl_text\"", "[{ \"x\": 1", "JSON");
    refuse("{\"model_type\": \"qwen2\", \"text_config\": 3}", "3", "4", "text_config");
}

static const char qwen3_moe[] =
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, \"num_hidden_layers\": 48,"
    " \"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128,"
    " \"intermediate_size\": 6144, \"vocab_size\": 151936, \"max_position_embeddings\": 40960,"
    " \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, \"tie_word_embeddings\": false,"
    " \"num_experts\": 128, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768,"
    " \"norm_topk_prob\": true, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [0, 47]}";

static const char qwen3_vl_moe[] =
    "{\"model_type\": \"qwen3_vl_moe\", \"tie_word_embeddings\": false, \"text_config\": {"
    " \"model_type\": \"qwen3_vl_moe_text\", \"hidden_size\": 2048, \"num_hidden_layers\": 48,"
    " \"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128,"
    " \"intermediate_size\": 6144, \"vocab_size\": 151936, \"max_position_embeddings\": 262144,"
    " \"rms_norm_eps\": 1e-06, \"num_local_experts\": 128, \"num_experts_per_tok\": 8,"
    " \"moe_intermediate_size\": 768, \"decoder_sparse_step\": 2, \"mlp_only_layers\": null,"
    " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5000000,"
    " \"mrope_interleaved\": true, \"mrope_section\": [24, 20, 20]}}}";

TEST(reads_experts)
{
    struct config c;
    struct pv_error err = { 0 };

    CHECK_MSG(parse(&c, qwen3_moe, NULL, &err) == PV_OK, "%s", err.text);
    CHECK(c.family == &family_qwen3_moe && c.mrope == MROPE_NONE && c.qk_norm);
    CHECK(c.n_experts == 128 && c.n_used == 8 && c.expert_ffn == 768 && c.ffn == 6144);
    CHECK(c.norm_used && !c.sparse[0] && c.sparse[1] && c.sparse[46] && !c.sparse[47]);
    CHECK_EQ(config_n_sparse(&c), 46);
    CHECK_MSG(parse(&c, qwen3_vl_moe, NULL, &err) == PV_OK, "%s", err.text);
    CHECK(c.n_experts == 128 && c.norm_used && c.mrope == MROPE_INTERLEAVED);
    CHECK(!c.sparse[0] && c.sparse[1] && !c.sparse[46] && c.sparse[47]);
    CHECK_MSG(parse(&c, qwen3_vl, NULL, &err) == PV_OK, "%s", err.text);
    CHECK(c.n_experts == 0 && config_n_sparse(&c) == 0);
}

TEST(bad_experts)
{
    refuse(qwen3_moe, "\"num_experts\"", "\"other\"", "the key num_experts is missing");
    refuse(qwen3_moe, "num_experts_per_tok", "other", "num_experts_per_tok is missing");
    refuse(qwen3_moe, "moe_intermediate_size", "other", "moe_intermediate_size is missing");
    refuse(qwen3_moe, "decoder_sparse_step", "other", "decoder_sparse_step is missing");
    refuse(qwen3_moe, "norm_topk_prob", "other", "norm_topk_prob is missing");
    refuse(qwen3_moe, "\"num_experts\": 128", "\"num_experts\": 0", "num_experts is 0");
    refuse(qwen3_moe, "\"num_experts\": 128", "\"num_experts\": 5000", "num_experts is 5000");
    refuse(qwen3_moe, "\"num_experts\": 128", "\"num_experts\": 7", "uses 8 experts, but");
    refuse(qwen3_moe, "per_tok\": 8", "per_tok\": 0", "num_experts_per_tok is 0");
    refuse(qwen3_moe, "per_tok\": 8", "per_tok\": 65", "num_experts_per_tok is 65");
    refuse(qwen3_moe, "step\": 1", "step\": 0", "decoder_sparse_step is 0");
    refuse(qwen3_moe, "size\": 768", "size\": -1", "moe_intermediate_size is -1");
    refuse(qwen3_moe, "prob\": true", "prob\": 1", "norm_topk_prob is not true or false");
    refuse(qwen3_moe, "[0, 47]", "[0, 48]", "element 1 of mlp_only_layers");
    refuse(qwen3_moe, "[0, 47]", "[\"x\"]", "element 0 of mlp_only_layers");
    refuse(qwen3_moe, "[0, 47]", "3", "mlp_only_layers is not a list");
    refuse(qwen3_vl_moe, "\"decoder", "\"norm_topk_prob\": false, \"decoder", "always normalises");
}

static enum pv_status parse_gguf(struct config *c, struct made *m, struct pv_error *err)
{
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    const char *why;
    enum pv_status s = gguf_open_memory(&g, m->data, m->len, "test.gguf", err);

    if (!s)
        s = vocab_gguf_open(&v, g, &why, err);
    if (!s)
        s = config_gguf_parse(c, g, v, families, err);
    vocab_gguf_close(&v);
    gguf_close(&g);
    return s;
}

TEST(reads_gguf)
{
    static const struct {
        const char *name;
        bool qwen3;
        enum mrope_kind mrope;
    } archs[] = { { "qwen2", false, MROPE_NONE },
                  { "qwen2vl", false, MROPE_SECTIONS },
                  { "qwen3", true, MROPE_NONE },
                  { "qwen3vl", true, MROPE_INTERLEAVED } };

    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct made m = { .arch = archs[i].name, .head = i % 2 };
        struct config c = { 0 };
        struct pv_error err = { 0 };
        make_gguf(&m);
        CHECK_MSG(parse_gguf(&c, &m, &err) == PV_OK, "%s", err.text);
        CHECK(c.mrope == archs[i].mrope);
        CHECK_STR(c.family->arch, archs[i].name);
        CHECK(c.qkv_bias == !archs[i].qwen3 && c.qk_norm == archs[i].qwen3);
        CHECK(c.hidden == MAKE_HIDDEN && c.n_layers == MAKE_LAYERS && c.ffn == MAKE_FFN);
        CHECK(c.n_heads == MAKE_HEADS && c.n_kv_heads == MAKE_KV_HEADS && c.head_dim == 16);
        CHECK(c.vocab == MAKE_VOCAB && c.max_context == 128 && c.tied == !m.head);
        CHECK(c.rope_theta == 10000 && c.rms_eps == 1e-6f);
        CHECK(c.n_stop == 2 && c.stop[0] == 8 && c.stop[1] == 6); /* named, then spelled */
        CHECK_EQ(c.mrope_section[0], c.mrope ? 4 : 0);
        free(m.data);
    }
}

/* A GGUF file with one key left out, or one number changed. */
static void refuse_gguf(const char *drop, const char *key, const void *value, size_t size,
                        const char *word)
{
    struct made m = { .arch = "qwen2vl", .drop = drop };
    struct config c = { .hidden = 77 };
    struct pv_error err = { 0 };
    enum pv_status s;

    make_gguf(&m);
    if (key)
        memcpy(m.data + make_find(&m, key)->value + 4, value, size);
    s = parse_gguf(&c, &m, &err);
    CHECK_MSG(s != PV_OK && c.hidden == 77, "%s gives %d", word, s);
    CHECK_MSG(strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text, word);
    free(m.data);
}

TEST(bad_gguf_keys)
{
    static const char *const needed[] = { "block_count",
                                          "context_length",
                                          "embedding_length",
                                          "feed_forward_length",
                                          "attention.head_count",
                                          "attention.head_count_kv",
                                          "attention.layer_norm_rms_epsilon",
                                          "rope.freq_base",
                                          "rope.dimension_sections" };
    const uint32_t zero = 0, huge = UINT32_MAX, five = 5, eighty = 80;
    const float nan = NAN, negative = -1;
    char key[80], word[120];

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        snprintf(key, sizeof key, "qwen2vl.%s", needed[i]);
        snprintf(word, sizeof word, "%s is missing", key);
        refuse_gguf(key, NULL, NULL, 0, word);
        if (i < 6) {
            refuse_gguf(NULL, key, &zero, 4, "is 0, outside");
            refuse_gguf(NULL, key, &huge, 4, "is 4294967295, outside");
        }
    }
    refuse_gguf("general.architecture", NULL, NULL, 0, "general.architecture is missing");
    refuse_gguf("token_embd.weight", NULL, NULL, 0, "token_embd.weight is missing");
    refuse_gguf(NULL, "general.architecture", "\7\0\0\0\0\0\0\0qwen\33vl", 15,
                "\"\" is not supported");
    refuse_gguf(NULL, "qwen2vl.rope.freq_base", &nan, 4, "not finite");
    refuse_gguf(NULL, "qwen2vl.rope.freq_base", &negative, 4, "rope base");
    refuse_gguf(NULL, "qwen2vl.attention.layer_norm_rms_epsilon", &nan, 4, "not finite");
    refuse_gguf(NULL, "qwen2vl.attention.key_length", &five, 4, "is 16, but the head dimension");
    refuse_gguf(NULL, "qwen2vl.attention.value_length", &eighty, 4, "is 80, but the head");
    refuse_gguf(NULL, "tokenizer.ggml.eos_token_id", &eighty, 4, "is 80, outside");
}

TEST(head_dim_may_be_missing)
{
    struct made m = { .drop = "qwen2.attention.key_length" };
    struct config c = { 0 };

    make_gguf(&m);
    CHECK_EQ(parse_gguf(&c, &m, NULL), PV_OK);
    CHECK_EQ(c.head_dim, MAKE_HIDDEN / MAKE_HEADS);
    free(m.data);
}

TEST(stop_tokens_are_bounded)
{
    struct config c = { 0 };

    for (int i = 0; i < 100; i++)
        config_add_stop(&c, i % 50);
    CHECK_EQ(c.n_stop, CONFIG_MAX_STOP);
    c.n_stop = 0;
    config_add_stop(&c, -1);
    config_add_stop(&c, INT64_MAX);
    config_add_stop(&c, 3);
    config_add_stop(&c, 3);
    CHECK_EQ(c.n_stop, 1);
}

TEST(out_of_memory_anywhere)
{
    struct made_dir d = { 0 };
    struct config c;
    enum pv_status s = PV_E_NOMEM;
    int k;

    make_dir(&d, "memory");
    json_set_alloc_funcs(mem_alloc, mem_free);
    for (k = 1; s && k < 1000; k++) {
        struct pv_error err = { 0 };
        mem_fail_at((uint64_t)k);
        s = config_hf_open(&c, d.path, families, &err);
        mem_fail_at(0);
        if (s)
            CHECK(err.text[0]);
    }
    CHECK_EQ(s, PV_OK);
    CHECK(k > 20);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
