/* pv_model_describe: what it says must be what the file and the sizes of memory say. */
#include "family/families.h"
#include "lm/decoder.h"
#include "rig.h"
#include "tiny_vision.h"

#ifndef PV_CORE
#include <jansson.h>
#endif

static const struct tiny_model shape = { .arch = "qwen3",
                                         .hidden = 256,
                                         .n_layers = 2,
                                         .n_heads = 8,
                                         .n_kv = 4,
                                         .head_dim = 32,
                                         .ffn = 512,
                                         .vocab = 272,
                                         .type = TINY_MIXED_K,
                                         .untied = true,
                                         .tokenizer = true,
                                         .max_context = 2048 };

static pv_model *open_model(const struct tiny_model *t, char path[256])
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = tiny_model_write(t, "d\xc3\xa9j\xc3\xa0 \"vu\"", path); /* a name JSON must escape */
    p.threads = 2;
    CHECK_MSG(pv_model_open(&m, &p, &err) == PV_OK, "%s", err.text);
    return m;
}

/* The text, which the caller frees; NULL after a failed check. */
static char *describe(const pv_model *m, int context, bool json, bool tensors)
{
    struct pv_error err = { 0 };
    char *text = NULL;
    if (m)
        CHECK_MSG(!pv_model_describe(m, context, json, tensors, &text, &err), "%s", err.text);
    return text;
}

static void check_has(const char *text, const char *word)
{
    CHECK_MSG(text && strstr(text, word), "\"%s\" lacks \"%s\"", text ? text : "(null)", word);
}

/* Parameters by hand: matrices and vectors of the shape above. */
static long long parameters(void)
{
    long long h = shape.hidden, q = shape.n_heads * shape.head_dim,
              kv = shape.n_kv * shape.head_dim;
    long long layer = 2 * h + 2 * q * h + 2 * kv * h + 2 * shape.head_dim + 3 * h * shape.ffn;
    return 2 * shape.vocab * h + h + shape.n_layers * layer;
}

TEST(text_names_what_is_in_the_file)
{
    char path[256], word[64];
    pv_model *m = open_model(&shape, path);
    char *t = describe(m, 0, false, false), *all = describe(m, 100, false, true);
    check_has(t, path);
    check_has(t, "qwen3, 2 layers, hidden 256, ffn 512");
    check_has(t, "8 heads, 4 KV heads of 32");
    check_has(t, "q and k normed");
    check_has(t, "1-D, theta 10000, made for 2048 tokens");
    check_has(t, "272, with tokenizer");
    snprintf(word, sizeof word, "parameters   %lld\n", parameters());
    check_has(t, word);
    check_has(t, "q4_K       5 tensors"); /* q and gate of two layers, and the head */
    check_has(t, "q5_0       2 tensors");
    check_has(t, "at 2048 tokens");
    CHECK(t && !strstr(t, "blk.0.attn_q.weight"));
    check_has(all, "at 100 tokens");
    check_has(all, "blk.1.ffn_down.weight");
    check_has(all, "q6_K  256 x 512\n");
    pv_model_close(&m); /* the texts do not belong to it */
    check_has(t, path);
    pv_free(t);
    pv_free(all);
    pv_free(NULL);
}

TEST(text_of_other_models)
{
    struct tiny_model t = shape;
    char path[256];
    t.arch = "qwen2vl";
    t.type = DTYPE_BF16;
    t.untied = t.tokenizer = false;
    pv_model *m = open_model(&t, path);
    char *s = describe(m, 0, false, false);
    check_has(s, "qwen2vl");
    check_has(s, ", biases\n");
    check_has(s, "M-RoPE, sections");
    check_has(s, "272, head tied, no tokenizer");
    pv_free(s);
    pv_model_close(&m);
    t.arch = "qwen3vl";
    m = open_model(&t, path);
    s = describe(m, 0, false, false);
    check_has(s, "M-RoPE, interleaved");
    pv_free(s);
    pv_model_close(&m);
}

TEST(text_of_experts)
{
    static const struct tiny_experts experts = { .n = 8, .used = 2, .ffn = 256, .dense = 1 };
    struct tiny_model t = shape;
    char path[256], line[100];
    t.arch = "qwen3moe";
    t.experts = &experts;
    pv_model *m = open_model(&t, path);
    char *s = describe(m, 0, false, false), *json = describe(m, 0, true, false);
    const char *all = s ? strstr(s, "parameters   ") : NULL;
    long long unused = 6LL * 3 * t.hidden * 256 * (t.n_layers - 1);
    snprintf(line, sizeof line,
             "experts      8 of ffn 256 in %d of %d layers, 2 used per token, "
             "weights normed\n",
             t.n_layers - 1, t.n_layers);
    check_has(s, line);
    snprintf(line, sizeof line, "active       %lld parameters",
             (all ? strtoll(all + 13, NULL, 10) : 0) - unused);
    check_has(s, line);
    CHECK(s && !strstr(s, "copied")); /* a GGUF file is used where it lies */
    check_has(json, "\"experts\":{\"count\":8,\"used\":2,\"ffn\":256,");
    pv_free(s);
    pv_free(json);
    pv_model_close(&m);
}

static pv_model *open_seeing(const struct family *family)
{
    struct tiny_vision t = tiny_vision(family);
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    char path[256];
    p.path = tiny_vision_gguf(&t, "seeing", path);
    p.threads = 2;
    CHECK_MSG(pv_model_open(&m, &p, &err) == PV_OK, "%s", err.text);
    return m;
}

TEST(text_of_models_that_see)
{
    char path[256];
    pv_model *m = open_seeing(&family_llava_onevision);
    char *s = describe(m, 0, false, false);
    check_has(s, "LLaVA-OneVision, 2 layers, hidden 32, ffn 48, 2 heads of 16");
    check_has(s, "22 x 22 pixels, patches of 4, 9 tokens a frame; stills in 4 sizes");
    check_has(s, "mean 0.5 0.25 0.75, deviation 0.5 0.125 0.25");
    check_has(s, "32 frames of 854 x 480: seen as 22 x 22, 289 tokens");
    pv_free(s);
    pv_model_close(&m);
    m = open_seeing(&family_qwen2_5_vl);
    s = describe(m, 0, false, true);
    check_has(s, "Qwen2.5-VL, 4 layers, hidden 32, ffn 48, 2 heads of 16");
    check_has(s, "sides of multiples of 8 pixels, a token for 8 x 8 of 2 frames, 2 a second");
    check_has(s, "stills of 1024 to 65536 pixels");
    check_has(s, "16 pixels, 2 of 4 layers see the whole picture");
    check_has(s, "v.patch_embd.weight.1"); /* the tensors of both files */
    pv_free(s);
    pv_model_close(&m);
    m = open_seeing(&family_qwen3_vl);
    s = describe(m, 0, false, true);
    check_has(s, "Qwen3-VL, 4 layers, hidden 32, ffn 48, 2 heads of 16");
    check_has(s, "a token for 8 x 8 of 2 frames; stills of 1024 to 65536 pixels, all frames of a "
                 "video of 4096 to 25165824");
    check_has(s, "deepstack    after layer 1, 3");
    check_has(s, "v.deepstack.3.fc2.weight");
    CHECK(!strstr(s, "windows"));
    pv_free(s);
    pv_model_close(&m);
    m = open_model(&shape, path);
    s = describe(m, 0, false, false);
    CHECK(s && !strstr(s, "vision"));
    pv_free(s);
    pv_model_close(&m);
}

TEST(contexts_beyond_the_limit_are_refused)
{
    char path[256];
    pv_model *m = open_model(&shape, path);
    struct pv_error err = { 0 };
    char *text = NULL;
    CHECK_EQ(pv_model_describe(m, -1, false, false, &text, &err), PV_E_LIMIT);
    CHECK_EQ(err.code, PV_E_LIMIT);
    check_has(err.text, "-1 tokens");
    err = (struct pv_error){ 0 };
    CHECK_EQ(pv_model_describe(m, (1 << 20) + 1, true, false, &text, &err), PV_E_LIMIT);
    check_has(err.text, "1 to 1048576");
    CHECK(!text);
    CHECK_EQ(pv_model_describe(m, 1 << 20, true, false, &text, NULL), PV_OK);
    CHECK(text);
    pv_free(text);
    pv_model_close(&m);
}

TEST(lack_of_memory_is_said)
{
    char path[256];
    pv_model *m = open_model(&shape, path);
    struct pv_error err = { 0 };
    char *text = NULL;
    for (int k = 1; k <= 2; k++) { /* the first piece, and then the buffer that must grow */
        mem_fail_at((uint64_t)k);
        CHECK_EQ(pv_model_describe(m, 0, true, true, &text, &err), PV_E_NOMEM);
        mem_fail_at(0);
        CHECK_EQ(err.code, PV_E_NOMEM);
        check_has(err.text, "memory");
        CHECK(!text);
    }
    text = describe(m, 0, true, true);
    check_has(text, "blk.0");
    pv_free(text);
    pv_model_close(&m);
}

#ifndef PV_CORE

static long long number(json_t *o, const char *key)
{
    CHECK_MSG(json_is_integer(json_object_get(o, key)), "%s is no whole number", key);
    return json_integer_value(json_object_get(o, key));
}

static void check_memory(json_t *o, const char *path, int context)
{
    struct model_file *mf = NULL;
    struct device *dev = NULL;
    struct decoder *dec = NULL;
    uint64_t auto_bf16 = CPU_AVX512_BF16 | CPU_AMX | CPU_BF16, weights = 0;
    enum dtype kv = cpu_flags() & auto_bf16 ? DTYPE_BF16 : DTYPE_F16;
    json_t *memory = json_object_get(o, "memory");
    if (!CHECK(!model_file_open(&mf, path, NULL, 0, families, NULL) &&
               !device_cpu_open(&dev, 2, cpu_flags(), NULL) && !decoder_open(&dec, mf, dev, NULL)))
        return;
    for (int i = 0; i < model_file_n_tensors(mf); i++)
        weights += model_file_tensor(mf, i)->size;
    CHECK_EQ(number(memory, "context"), context);
    CHECK_EQ(number(memory, "weights"), (long long)weights);
    CHECK_EQ(number(memory, "kv"), (long long)kvcache_size(decoder_config(dec), kv, context));
    CHECK_EQ(number(memory, "scratch"), (long long)decoder_state_size(dec, 512, 1, context, kv));
    decoder_close(&dec);
    device_close(&dev);
    model_file_close(&mf);
}

static json_t *describe_json(const pv_model *m, int context, bool tensors)
{
    char *text = describe(m, context, true, tensors);
    json_error_t why;
    json_t *o = text ? json_loads(text, 0, &why) : NULL;
    CHECK_MSG(!text || o, "%s", why.text);
    pv_free(text);
    return o;
}

TEST(json_is_json_and_says_the_same)
{
    char path[256];
    pv_model *m = open_model(&shape, path);
    json_t *o = describe_json(m, 300, true), *list, *types;
    long long tensors = 0;
    const char *type;
    json_t *entry;
    if (!o)
        return;
    CHECK_STR(json_string_value(json_object_get(o, "model")), path);
    CHECK_STR(json_string_value(json_object_get(o, "architecture")), "qwen3");
    CHECK(number(o, "layers") == 2 && number(o, "hidden") == 256 && number(o, "ffn") == 512);
    CHECK(number(o, "heads") == 8 && number(o, "kv_heads") == 4 && number(o, "head_dim") == 32);
    CHECK(number(o, "vocab") == 272 && number(o, "max_context") == 2048);
    CHECK_EQ(number(o, "parameters"), parameters());
    CHECK(json_is_false(json_object_get(o, "tied")) && json_is_true(json_object_get(o, "qk_norm")));
    CHECK(json_is_false(json_object_get(o, "qkv_bias")));
    CHECK(json_is_true(json_object_get(o, "tokenizer")));
    CHECK_STR(json_string_value(json_object_get(o, "mrope")), "none");
    CHECK_EQ(json_number_value(json_object_get(o, "rope_theta")), 10000.0);
    check_memory(o, path, 300);
    list = json_object_get(o, "tensors");
    types = json_object_get(o, "types");
    CHECK_EQ((int)json_array_size(list), 3 + 2 * 11);
    json_object_foreach(types, type, entry) tensors += number(entry, "tensors");
    CHECK_EQ(tensors, (long long)json_array_size(list));
    CHECK_EQ(number(json_object_get(types, "q5_0"), "bytes"), 2 * 256 * (256 / 32) * 22);
    entry = json_array_get(list, 0);
    CHECK_STR(json_string_value(json_object_get(entry, "name")), "token_embd.weight");
    CHECK_STR(json_string_value(json_object_get(entry, "type")), "q6_K");
    CHECK_EQ(json_integer_value(json_array_get(json_object_get(entry, "shape"), 0)), 272);
    CHECK_EQ(json_integer_value(json_array_get(json_object_get(entry, "shape"), 1)), 256);
    json_decref(o);
    o = describe_json(m, 0, false);
    CHECK(o && !json_object_get(o, "tensors"));
    CHECK(json_is_null(json_object_get(o, "vision")));
    json_decref(o);
    pv_model_close(&m);
}

/* The tower's member, NULL where it is no object; *root is the caller's. */
static json_t *vision_json(const struct family *family, json_t **root)
{
    pv_model *m = open_seeing(family);
    json_t *v;
    *root = describe_json(m, 0, false);
    v = json_object_get(*root, "vision");
    pv_model_close(&m);
    return CHECK(json_is_object(v)) ? v : NULL;
}

/* Numbers of the tiny tower of Qwen3-VL, by the list that it was written from. */
static long long qwen3_weights(void)
{
    static struct tiny_parts parts;
    struct tiny_vision m = tiny_vision(&family_qwen3_vl);
    long long n = 0;
    tiny_list_tower(&parts, &m, m.n_layers);
    for (int i = 0; i < parts.n; i++)
        n += (parts.item[i].rows ? parts.item[i].rows : 1) * parts.item[i].cols;
    return n;
}

TEST(json_of_models_that_see)
{
    json_t *root = NULL, *v = vision_json(&family_llava_onevision, &root), *video;
    long long matrices = 32 * 48 + 25 * 32 + 2 * 32 * 32 + 2 * (4 * 32 * 32 + 2 * 48 * 32);
    long long vectors = 4 * 32 + 2 * (4 * 32 + 4 * 32 + 48 + 32);
    if (v) {
        CHECK_STR(json_string_value(json_object_get(v, "kind")), "llava_onevision");
        CHECK(number(v, "layers") == 2 && number(v, "image") == 22 && number(v, "patch") == 4);
        CHECK(number(v, "frame_tokens") == 9 && number(v, "image_token") == TINY_IMAGE);
        CHECK_EQ(number(v, "weights"), 4 * (matrices + vectors));
        CHECK_EQ((int)json_array_size(json_object_get(v, "grid")), 4);
        CHECK_EQ(number(json_object_get(v, "video"), "tokens"), 289);
        CHECK_EQ(number(json_object_get(v, "video"), "pictures"), 32 * 22 * 22 * 3);
        CHECK(number(json_object_get(v, "video"), "scratch") > 0);
    }
    json_decref(root);
    v = vision_json(&family_qwen2_5_vl, &root);
    if (v) {
        CHECK_STR(json_string_value(json_object_get(v, "kind")), "qwen2_5_vl");
        CHECK(number(v, "window") == 16 && number(v, "merge") == 2 && number(v, "temporal") == 2);
        CHECK(number(v, "min_pixels") == 1024 && number(v, "max_pixels") == 65536);
        CHECK_EQ(json_integer_value(json_array_get(json_object_get(v, "full_layers"), 1)), 3);
        video = json_object_get(v, "video");
        CHECK_EQ(number(video, "tokens"),
                 number(video, "seen_height") / 8 * (number(video, "seen_width") / 8) * 16);
        CHECK(number(video, "tokens") > 0);
    }
    json_decref(root);
    v = vision_json(&family_qwen3_vl, &root);
    if (v) {
        CHECK_STR(json_string_value(json_object_get(v, "kind")), "qwen3_vl");
        CHECK_EQ((int)json_array_size(json_object_get(v, "deepstack_layers")), 2);
        CHECK_EQ(json_integer_value(json_array_get(json_object_get(v, "deepstack_layers"), 1)), 3);
        CHECK(number(v, "video_max_pixels") == 25165824 && number(v, "window") == 0);
        CHECK_EQ(number(v, "weights"), 4 * qwen3_weights());
    }
    json_decref(root);
}

#endif

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
