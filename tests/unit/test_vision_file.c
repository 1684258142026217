/* Models with vision towers: what opens, that both seeing of file give the same, and what is
 * refused with which words. */
#include "family/families.h"
#include "same_tower.h"
#include "tiny_vision.h"
#include "torture.h"

static const struct family *const seeing[] = { &family_llava_onevision, &family_qwen2_5_vl,
                                               &family_qwen2_vl, &family_qwen3_vl };
enum { N_SEEING = sizeof seeing / sizeof *seeing };

static struct model_file *open_model(const char *path, const char *mmproj)
{
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    CHECK_MSG(model_file_open(&mf, path, mmproj, 0, families, &err) == PV_OK, "%s", err.text);
    return mf;
}

static void refuse(const char *path, const char *mmproj, const char *word)
{
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = model_file_open(&mf, path, mmproj, 0, families, &err);
    CHECK_MSG(s != PV_OK && err.code == s && mf == NULL, "opened, expected \"%s\"", word);
    CHECK_MSG(strstr(err.text, word) && strstr(err.text, scratch_dir()), "\"%s\" lacks \"%s\"",
              err.text, word);
    model_file_close(&mf);
}

static void refuse_dir(struct tiny_vision m, const char *word)
{
    char path[256];
    refuse(tiny_vision_dir(&m, "bad", path), NULL, word);
}

static void refuse_gguf(struct tiny_vision m, const char *word)
{
    char path[256];
    refuse(tiny_vision_gguf(&m, "bad", path), NULL, word);
}

/* config.json of a family with one text replaced. */
static void refuse_config(const struct family *family, const char *from, const char *to,
                          const char *word)
{
    struct tiny_vision m = tiny_vision(family);
    m.from = from;
    m.to = to;
    refuse_dir(m, word);
}

/* A tensor holds the numbers that belong to a GGUF name. */
static void check_numbers(const struct tiny_vision *m, const struct tensor *t, const char *name)
{
    int rows = t->n_dims > 1 ? (int)t->dim[0] : 0, cols = (int)tensor_cols(t);
    float *want = tiny_numbers(m, name, rows, cols), *have = tensor_numbers(t);
    CHECK_MSG(!memcmp(want, have, sizeof *want * (size_t)((rows ? rows : 1) * cols)),
              "%s is not %s", t->name, name);
    free(want);
    free(have);
}

static void check_llava(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_layer_tensors *l = model_file_vision_layer(mf, 1);
    CHECK(c->family == &family_llava_onevision && c->image == 22 && vision_side(c) == 5);
    CHECK(c->temporal == 1 && c->merge == 1 && c->full[0] && c->full[1]);
    CHECK(c->n_grid == 4 && c->grid[1][0] == 22 && c->grid[1][1] == 44 && c->max_tiles == 9);
    CHECK(c->image_token == TINY_IMAGE && c->video_token == TINY_VIDEO && c->vision_start == -1);
    check_numbers(m, t->patch[0], "v.patch_embd.weight");
    check_numbers(m, t->patch_bias, "v.patch_embd.bias");
    check_numbers(m, t->position, "v.position_embd.weight");
    check_numbers(m, t->newline, "v.image_newline");
    check_numbers(m, l->norm1_bias, "v.blk.1.ln1.bias");
    CHECK(!t->patch[1] && !t->merger.norm && !l->gate && !l->gate_bias);
}

static void check_qwen(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_layer_tensors *l = model_file_vision_layer(mf, 1);
    CHECK(c->window == 16);
    CHECK(!c->full[0] && c->full[1] && !c->full[2] && c->full[3] && c->tokens_per_second == 2);
    check_numbers(m, l->gate, "v.blk.1.ffn_gate.weight");
    check_numbers(m, l->gate_bias, "v.blk.1.ffn_gate.bias");
    CHECK(!t->patch_bias && !t->position && !l->norm1_bias);
}

static void check_qwen2(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_layer_tensors *l = model_file_vision_layer(mf, 1);
    CHECK(c->window == 0 && c->tokens_per_second == 0 && c->full[0] && c->full[3]);
    check_numbers(m, t->merger.norm_bias, "v.post_ln.bias");
    check_numbers(m, l->norm2_bias, "v.blk.1.ln2.bias");
    CHECK(!t->patch_bias && !t->position && !l->gate && !l->gate_bias);
}

/* A third of the tensor of this name. */
static void check_third(const struct tiny_vision *m, const struct tensor *t, const char *name,
                        int third)
{
    int n = (int)(tensor_rows(t) * tensor_cols(t)), rows = t->n_dims > 1 ? 3 * (int)t->dim[0] : 0;
    float *want = tiny_numbers(m, name, rows, rows ? (int)tensor_cols(t) : 3 * n);
    float *have = tensor_numbers(t);
    CHECK_MSG(!memcmp(want + third * n, have, sizeof *want * (size_t)n), "third %d of %s", third,
              name);
    free(want);
    free(have);
}

static void check_qwen3(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_layer_tensors *l = model_file_vision_layer(mf, 1);
    const struct tensor *qkv[2][3] = { { l->q, l->k, l->v }, { l->q_bias, l->k_bias, l->v_bias } };
    CHECK(c->positions == 9 && c->n_deepstack == 2 && model_file_config(mf)->n_deepstack == 2);
    CHECK(c->deepstack[0] == 1 && c->deepstack[1] == 3 && vision_row_size(c) == 3 * c->out);
    CHECK(c->video_min_pixels == 4096 && c->video_max_pixels == 25165824);
    for (int i = 0; i < 3; i++) {
        check_third(m, qkv[0][i], "v.blk.1.attn_qkv.weight", i);
        check_third(m, qkv[1][i], "v.blk.1.attn_qkv.bias", i);
    }
    check_numbers(m, t->patch_bias, "v.patch_embd.bias");
    check_numbers(m, t->position, "v.position_embd.weight");
    check_numbers(m, t->merger.norm_bias, "v.post_ln.bias");
    check_numbers(m, t->deepstack[0].norm, "v.deepstack.1.norm.weight");
    check_numbers(m, t->deepstack[0].mm0, "v.deepstack.1.fc1.weight");
    check_numbers(m, t->deepstack[1].norm_bias, "v.deepstack.3.norm.bias");
    check_numbers(m, t->deepstack[1].mm2, "v.deepstack.3.fc2.weight");
    check_numbers(m, l->norm1_bias, "v.blk.1.ln1.bias");
    CHECK(!l->gate && !l->gate_bias);
}

/* What Qwen's families have. */
static void check_any_qwen(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    CHECK(c->family == m->family && c->temporal == 2 && c->merge == 2);
    CHECK(c->min_pixels == 1024 && c->max_pixels == 65536);
    CHECK(c->image_token == TINY_IMAGE_PAD && c->video_token == TINY_VIDEO_PAD);
    CHECK(c->vision_start == TINY_VISION_START && c->vision_end == TINY_VISION_END);
    check_numbers(m, model_file_vision_tensors(mf)->merger.norm, "v.post_ln.weight");
    CHECK(!model_file_vision_tensors(mf)->newline);
    if (m->family == &family_qwen2_5_vl)
        check_qwen(m, mf);
    else if (m->family == &family_qwen2_vl)
        check_qwen2(m, mf);
    else
        check_qwen3(m, mf);
}

/* q, k and v where the file has them apart. */
static void check_apart(const struct tiny_vision *m, const struct vision_layer_tensors *l)
{
    check_numbers(m, l->q, "v.blk.1.attn_q.weight");
    check_numbers(m, l->k, "v.blk.1.attn_k.weight");
    check_numbers(m, l->v, "v.blk.1.attn_v.weight");
    check_numbers(m, l->q_bias, "v.blk.1.attn_q.bias");
    check_numbers(m, l->k_bias, "v.blk.1.attn_k.bias");
    check_numbers(m, l->v_bias, "v.blk.1.attn_v.bias");
}

/* What all families have. */
static void check_tower(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_layer_tensors *l = model_file_vision_layer(mf, 1);
    CHECK(c->hidden == 32 && c->n_heads == 2 && c->head_dim == 16 && c->ffn == m->ffn);
    CHECK(c->patch == 4 && c->out == 32 && c->n_layers == m->n_layers);
    CHECK(c->mean[1] == 0.25f && c->std[2] == 0.25f && c->eps == 1e-6f);
    check_numbers(m, t->merger.mm0, "mm.0.weight");
    check_numbers(m, t->merger.mm2_bias, "mm.2.bias");
    if (!tiny_kind(m->family)->fused)
        check_apart(m, l);
    check_numbers(m, l->o, "v.blk.1.attn_out.weight");
    check_numbers(m, l->norm2, "v.blk.1.ln2.weight");
    check_numbers(m, l->up_bias, "v.blk.1.ffn_up.bias");
    if (m->family == &family_llava_onevision)
        check_llava(m, mf);
    else
        check_any_qwen(m, mf);
}

/* Every layout of a directory against the GGUF file with the same numbers. */
TEST(both_kinds_of_file_give_the_same)
{
    for (int i = 0; i < N_SEEING * TINY_LLAVA_LAYOUTS; i++) {
        struct tiny_vision m = tiny_vision(seeing[i % N_SEEING]);
        char path[256];
        m.layout = i / N_SEEING;
        if (m.layout >= tiny_kind(m.family)->n_layouts)
            continue;
        struct model_file *dir = open_model(tiny_vision_dir(&m, "dir", path), NULL);
        struct model_file *gguf = open_model(tiny_vision_gguf(&m, "file", path), NULL);
        if (dir && gguf) {
            check_tower(&m, dir);
            check_tower(&m, gguf);
            same_tower(gguf, dir, DTYPE_F32);
            CHECK(model_file_vocab(dir) && model_file_vocab(gguf));
        }
        model_file_close(&dir);
        model_file_close(&gguf);
    }
}

/* The patch embedding of a directory is one matrix: row (channel, frame, y, x). */
TEST(the_patch_embedding_is_a_matrix)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    char path[256];
    struct model_file *mf = open_model(tiny_vision_dir(&m, "dir", path), NULL);
    const struct tensor *t = mf ? model_file_vision_tensors(mf)->patch[0] : NULL;
    float *frame[2] = { tiny_numbers(&m, "v.patch_embd.weight", 32, 48),
                        tiny_numbers(&m, "v.patch_embd.weight.1", 32, 48) };
    if (CHECK(t && t->n_dims == 2 && t->dim[0] == 32 && t->dim[1] == 96)) {
        float *x = tensor_numbers(t);
        bool same = true;
        for (int i = 0; i < 32 * 96; i++) {
            int row = i / 96, channel = i / 32 % 3, f = i / 16 % 2, pixel = i % 16;
            same = same && x[i] == frame[f][row * 48 + channel * 16 + pixel];
        }
        CHECK(same);
        CHECK(model_file_vision_tensors(mf)->patch[1] == NULL && t->size == 32 * 96 * sizeof *x);
        free(x);
    }
    free(frame[0]);
    free(frame[1]);
    model_file_close(&mf);
}

/* SigLIP as published has one layer more than runs: the configuration says where to stop. */
TEST(only_the_chosen_layers_run)
{
    struct tiny_vision m = tiny_vision(&family_llava_onevision);
    struct model_file *mf;
    char path[256];
    m.stored = 3; /* and vision_feature_layer -2 */
    mf = open_model(tiny_vision_dir(&m, "dir", path), NULL);
    CHECK(mf && model_file_vision(mf)->n_layers == 2);
    model_file_close(&mf);
    m.from = "\"vision_feature_layer\": -2";
    m.to = "\"vision_feature_layer\": 1";
    mf = open_model(tiny_vision_dir(&m, "dir", path), NULL);
    CHECK(mf && model_file_vision(mf)->n_layers == 1);
    model_file_close(&mf);
    m.to = "\"vision_feature_layer\": 0";
    refuse_dir(m, "vision_feature_layer is 0, which is none of the tower's 3 layers");
    m.to = "\"vision_feature_layer\": -4";
    refuse_dir(m, "vision_feature_layer is -4");
    m.to = "\"vision_feature_layer\": [-2, -1]";
    refuse_dir(m, "vision_feature_layer is not an integer");
}

/* What the published files of LLaVA-OneVision leave out, and nothing else, may be missing. */
TEST(keys_that_llava_leaves_out)
{
    struct tiny_vision m = tiny_vision(&family_llava_onevision);
    struct model_file *mf;
    char path[256];
    m.from = "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-06, ";
    m.to = "";
    mf = open_model(tiny_vision_dir(&m, "dir", path), NULL);
    CHECK(mf && model_file_config(mf)->max_context == 32768);
    CHECK(mf && model_file_config(mf)->rms_eps == 1e-6f);
    model_file_close(&mf);
    m = tiny_vision(&family_qwen2_5_vl);
    m.from = "\"rms_norm_eps\"";
    m.to = "\"rms\"";
    refuse_dir(m, "rms_norm_eps is missing");
}

TEST(missing_keys)
{
    static const char *const llava[] = {
        "num_attention_heads\": 2, \"intermediate_size\": 48", /* of the tower */
        "image_size",
        "patch_size",
        "image_grid_pinpoints",
        "vision_aspect_ratio",
        "vision_feature_layer",
        "vision_feature_select_strategy"
    };
    static const char *const qwen[] = {
        "depth",          "num_heads",           "out_hidden_size",     "spatial_merge_size",
        "window_size",    "temporal_patch_size", "tokens_per_second",   "fullatt_block_indexes",
        "image_token_id", "video_token_id",      "vision_end_token_id", "vision_start_token_id",
    };
    for (size_t i = 0; i < sizeof llava / sizeof *llava; i++) {
        char word[100];
        snprintf(word, sizeof word, "the key %.*s is missing", (int)strcspn(llava[i], "\""),
                 llava[i]);
        refuse_config(&family_llava_onevision, llava[i],
                      i ? "else" : "else\": 2, \"intermediate_size\": 48", word);
    }
    /* The one of two names that newer files have. */
    refuse_config(&family_llava_onevision, "image_token_index", "else",
                  "the key image_token_id is missing");
    refuse_config(&family_llava_onevision, "video_token_index", "else",
                  "the key video_token_id is missing");
    for (size_t i = 0; i < sizeof qwen / sizeof *qwen; i++) {
        char word[100];
        snprintf(word, sizeof word, "the key %s is missing", qwen[i]);
        refuse_config(&family_qwen2_5_vl, qwen[i], "else", word);
    }
}

TEST(what_the_towers_do_not_do)
{
    refuse_config(&family_llava_onevision, "\"full\"", "\"default\"", "is not \"full\"");
    refuse_config(&family_llava_onevision, "\"gelu\"", "\"silu\"",
                  "projector_hidden_act is not \"gelu\"");
    refuse_config(&family_llava_onevision, "siglip_vision_model", "clip_vision_model",
                  "siglip_vision_model");
    refuse_config(&family_llava_onevision, "\"vision_use_head\"", "\"hidden_act\": \"gelu\", \"x\"",
                  "hidden_act is not");
    refuse_config(&family_llava_onevision, "\"vision_use_head\"", "\"num_channels\": 1, \"x\"",
                  "num_channels is 1");
    refuse_config(&family_llava_onevision, "anyres_max_9", "anyres", "anyres_max_N");
    refuse_config(&family_llava_onevision, "anyres_max_9", "anyres_max_x", "anyres_max_N");
    refuse_config(&family_llava_onevision, "anyres_max_9", "anyres_max_0", "number of tiles is 0");
    refuse_config(&family_llava_onevision, "\"projector_hidden_act\"",
                  "\"multimodal_projector_bias\": false, \"x\"", "multimodal_projector_bias");
    refuse_config(&family_qwen2_5_vl, "\"in_chans\": 3", "\"in_channels\": 4", "in_channels is 4");
    refuse_config(&family_qwen2_5_vl, "\"hidden_act\": \"silu\", \"hidden_size\": 32",
                  "\"hidden_act\": \"gelu\", \"hidden_size\": 32", "hidden_act is not \"silu\"");
    refuse_config(&family_qwen2_5_vl, "\"in_chans\": 3",
                  "\"rope_parameters\": {\"rope_theta\": 5000.0}", "rope base is 5000");
}

TEST(numbers_that_cannot_be)
{
    refuse_config(&family_llava_onevision, "[22, 44]", "[22, 45]", "45 pixels");
    refuse_config(&family_llava_onevision, "[22, 44]", "[22]", "element 1 of image_grid_pinpoints");
    refuse_config(&family_llava_onevision, "\"image_size\": 22", "\"image_size\": 3",
                  "patches of 4");
    refuse_config(&family_llava_onevision, "\"image_size\": 22", "\"image_size\": 22000",
                  "input size is");
    refuse_config(&family_llava_onevision, "\"image_size\": 22", "\"image_size\": 8192",
                  "cut into patches");
    refuse_config(&family_llava_onevision, "\"patch_size\": 4", "\"patch_size\": 400",
                  "patch size is 400");
    refuse_config(&family_llava_onevision, "\"num_attention_heads\": 2, \"intermediate_size\": 48",
                  "\"num_attention_heads\": 3, \"intermediate_size\": 48", "3 heads do not divide");
    refuse_config(&family_llava_onevision, "\"video_token_index\": 264",
                  "\"video_token_index\": 288", "token 288 is not in the vocabulary of 288");
    refuse_config(&family_qwen2_5_vl, "\"window_size\": 16", "\"window_size\": 20",
                  "window size 20");
    refuse_config(&family_qwen2_5_vl, "\"out_hidden_size\": 32", "\"out_hidden_size\": 48",
                  "rows of 48, but the decoder");
    refuse_config(&family_qwen2_5_vl, "\"tokens_per_second\": 2", "\"tokens_per_second\": 0",
                  "tokens_per_second is 0");
    refuse_config(&family_qwen2_5_vl, "\"temporal_patch_size\": 2", "\"temporal_patch_size\": 1",
                  "frames in a patch is 1, outside 2 to 2");
    refuse_config(&family_qwen2_5_vl, "\"depth\": 4", "\"depth\": 400", "layers is 400");
    refuse_config(&family_qwen2_5_vl, "[1, 3, 31]", "[1, -3]",
                  "element 1 of fullatt_block_indexes");
    refuse_config(&family_qwen2_5_vl, "\"num_heads\": 2", "\"num_heads\": 16",
                  "head dimension 2 is not a multiple of 4");
}

/* Where the directory has no preprocessor's file, the published models' numbers hold. */
TEST(directories_without_a_preprocessor)
{
    static const struct {
        float mean, std;
        int64_t min_pixels, max_pixels;
    } want[N_SEEING] = { { 0.5f, 0.5f, 0, 0 },
                         { 0.48145466f, 0.27577711f, 3136, 12845056 },
                         { 0.48145466f, 0.27577711f, 3136, 12845056 },
                         { 0.5f, 0.5f, 65536, 16777216 } };
    for (int i = 0; i < N_SEEING; i++) {
        struct tiny_vision m = tiny_vision(seeing[i]);
        const struct vision_config *c;
        char path[256];
        m.processor = "";
        struct model_file *mf = open_model(tiny_vision_dir(&m, "dir", path), NULL);
        if (!mf)
            continue;
        c = model_file_vision(mf);
        CHECK_EQ(c->mean[0], want[i].mean);
        CHECK_EQ(c->std[2], want[i].std);
        CHECK(c->min_pixels == want[i].min_pixels && c->max_pixels == want[i].max_pixels);
        model_file_close(&mf);
    }
}

TEST(places_of_the_preprocessor)
{
    static const char newer[] = "{\"image_mean\": [1, 2, 3], \"image_std\": [4, 5, 6], "
                                "\"size\": {\"shortest_edge\": 7, \"longest_edge\": 8}}";
    static const char nested[] = "{\"image_processor\": {\"image_mean\": [1, 2, 3], "
                                 "\"image_std\": [4, 5, 6], \"min_pixels\": 7, "
                                 "\"size\": {\"shortest_edge\": 1, \"longest_edge\": 8}}}";
    static const char *const texts[][2] = { { newer, "preprocessor_config.json" },
                                            { newer, "video_preprocessor_config.json" },
                                            { nested, "processor_config.json" } };
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    char path[256];
    for (int i = 0; i < 3; i++) {
        m.processor = texts[i][0];
        m.processor_file = texts[i][1];
        struct model_file *mf = open_model(tiny_vision_dir(&m, "dir", path), NULL);
        const struct vision_config *c = mf ? model_file_vision(mf) : NULL;
        CHECK(c && c->mean[0] == 1 && c->mean[2] == 3 && c->std[0] == 4 && c->std[2] == 6);
        CHECK(c && c->min_pixels == 7 && c->max_pixels == 8);
        model_file_close(&mf);
    }
}

TEST(damaged_preprocessors)
{
    static const char *const texts[][2] = {
        { "{}", "image_mean is missing" },
        { "{\"image_mean\": [1, 2], \"image_std\": [1, 1, 1]}", "image_mean is not a list" },
        { "{\"image_mean\": [1, 2, \"3\"]}", "image_mean is not a list" },
        { "{\"image_mean\": [1, 2, 3]}", "image_std is missing" },
        { "{\"image_mean\": [1, 2, 3], \"image_std\": [1, 0, 1]}", "min_pixels is missing" },
        { "{\"image_mean\": [1, 2, 3], \"image_std\": [1, 0, 1], \"min_pixels\": 4, "
          "\"max_pixels\": 5}",
          "standard deviation is 0" },
        { "{\"image_mean\": [1, 2e9, 3], \"image_std\": [1, 1, 1], \"min_pixels\": 4, "
          "\"max_pixels\": 5}",
          "mean is 2e+09" },
        { "{\"image_mean\": [1, 2, 3], \"image_std\": [1, 1, 1], \"min_pixels\": 5, "
          "\"max_pixels\": 4}",
          "5 to 4 pixels" },
        { "[]", "not a JSON object" },
    };
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        m.processor = texts[i][0];
        refuse_dir(m, texts[i][1]);
    }
    m = tiny_vision(&family_llava_onevision);
    m.processor = "{\"image_mean\": [1, 2, 3], \"image_std\": [1, 1, 1], "
                  "\"size\": {\"height\": 384, \"width\": 384}}";
    refuse_dir(m, "resized to 384 pixels, but the tower's image_size is 22");
}

/* What a GGUF file with one row more of a tensor is told: some rows are counted first. */
static const char *bad_shape(const char *name, bool stretched)
{
    if (stretched && !strcmp(name, "v.position_embd.weight"))
        return "are not a square grid";
    return !strcmp(name, "mm.2.weight") ? "rows of 33" : "has the shape [";
}

/* Each tensor of a tower missing, of another shape, or with a NaN where that is looked for. */
TEST(damaged_tensors)
{
    for (int k = 0; k < N_SEEING; k++) {
        struct tiny_vision m = tiny_vision(seeing[k]);
        static struct tiny_parts parts;
        m.n_layers = m.family == &family_llava_onevision ? 1 : 2;
        tiny_list_tower(&parts, &m, m.n_layers);
        for (int i = 0; i < parts.n; i++) {
            const struct tiny_part *p = &parts.item[i];
            char path[256], word[120];
            struct tiny_vision bad = m;
            bad.drop = p->name;
            snprintf(word, sizeof word, "%s is missing", p->name);
            refuse_gguf(bad, word);
            if (p->hf && p->third <= 1 && !p->patch)
                refuse_dir(bad, "is missing");
            bad = m;
            bad.reshape = p->name;
            refuse_gguf(bad, bad_shape(p->name, m.positions > 0));
            if (p->hf || p->third)
                refuse_dir(bad, "has the shape [");
            bad = m;
            bad.not_finite = p->name;
            if (p->rows == 0)
                refuse(tiny_vision_dir(&bad, "bad", path), NULL, "not finite");
        }
    }
}

/* A decoder cut out of a model speaks of a tower and has none. */
TEST(a_directory_without_the_tensors_has_no_tower)
{
    struct tiny_vision m = tiny_vision(&family_llava_onevision);
    char path[256];
    m.drop = "v.patch_embd.weight";
    struct model_file *mf = open_model(tiny_vision_dir(&m, "dir", path), NULL);
    /* ... here only the patch embedding is missing, by which a tower is known */
    CHECK(mf && model_file_vision(mf)->family == NULL);
    CHECK(mf && model_file_vision(mf)->image_token == -1);
    CHECK(mf && !model_file_vision_tensors(mf)->patch[0] &&
          !model_file_vision_tensors(mf)->merger.mm0);
    model_file_close(&mf);
}

TEST(missing_gguf_keys)
{
    static const char *const keys[] = {
        "clip.projector_type",
        "clip.vision.embedding_length",
        "clip.vision.block_count",
        "clip.vision.attention.head_count",
        "clip.vision.feed_forward_length",
        "clip.vision.patch_size",
        "clip.vision.attention.layer_norm_epsilon",
        "clip.vision.image_mean",
        "clip.vision.image_std",
        "clip.vision.image_size",           /* LLaVA's alone */
        "clip.vision.preproc_max_tiles",    /* the same */
        "clip.vision.image_grid_pinpoints", /* the same */
        "clip.vision.n_wa_pattern",         /* Qwen's alone */
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct tiny_vision m = tiny_vision(i == 12 ? &family_qwen2_5_vl : &family_llava_onevision);
        char word[120];
        m.drop = keys[i];
        snprintf(word, sizeof word, "%s is missing", keys[i]);
        refuse_gguf(m, word);
    }
}

/* llama.cpp's own files: its constants, and the tokens by their spelling. */
TEST(files_of_llama_cpp)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    struct model_file *mf;
    const struct vision_config *c;
    char path[256];
    m.llama_cpp = true;
    m.patch = 14; /* of which the window of 112 is a multiple */
    mf = open_model(tiny_vision_gguf(&m, "model", path), NULL);
    if (!mf)
        return;
    c = model_file_vision(mf);
    CHECK(c->window == 112 && c->temporal == 2 && c->merge == 2 && c->tokens_per_second == 2);
    CHECK(c->min_pixels == 3136 && c->max_pixels == 12845056);
    CHECK(c->image_token == TINY_IMAGE_PAD && c->video_token == TINY_VIDEO_PAD);
    CHECK(c->vision_start == TINY_VISION_START && c->vision_end == TINY_VISION_END);
    CHECK(model_file_n_tensors(mf) == 26 + 7 + 16 * 4);
    CHECK_STR(model_file_tensor(mf, 26)->name, "v.patch_embd.weight");
    model_file_close(&mf);
    m.text.tokenizer = false;
    m.all_full = true;
    mf = open_model(tiny_vision_gguf(&m, "model", path), NULL);
    CHECK(mf && model_file_vision(mf)->video_token == -1);
    for (int i = 0; mf && i < 4; i++)
        CHECK(model_file_vision(mf)->full[i]);
    model_file_close(&mf);
}

TEST(where_the_second_file_lies)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    char path[256], tower[300], moved[300];
    struct model_file *mf;
    tiny_vision_gguf(&m, "pair", path);
    snprintf(tower, sizeof tower, "%s/mmproj-pair.gguf", scratch_dir());
    snprintf(moved, sizeof moved, "%s/tower.gguf", scratch_dir());
    mf = open_model(path, NULL);
    CHECK(mf && model_file_vision(mf)->family == &family_qwen2_5_vl);
    model_file_close(&mf);
    rename(tower, moved);
    mf = open_model(path, NULL); /* a decoder alone is fine */
    CHECK(mf && model_file_vision(mf)->family == NULL);
    model_file_close(&mf);
    mf = open_model(path, moved);
    CHECK(mf && model_file_vision(mf)->family == &family_qwen2_5_vl);
    model_file_close(&mf);
    refuse(path, tower, "mmproj-pair.gguf");
    refuse(moved, NULL, "a vision tower alone (mmproj)");
    refuse(path, path, "there is no vision tower in the file");
    m = tiny_vision(&family_llava_onevision);
    refuse(tiny_vision_gguf(&m, "single", path), moved, "has a vision tower itself");
    refuse(tiny_vision_dir(&m, "dir", path), moved, "has a vision tower itself");
}

/* A file that exists in the current directory has no directory in its path. */
TEST(a_plain_name)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    char path[256], back[4096];
    struct model_file *mf;
    tiny_vision_gguf(&m, "plain", path);
    if (!CHECK(getcwd(back, sizeof back) && chdir(scratch_dir()) == 0))
        return;
    mf = open_model("plain.gguf", NULL);
    CHECK(mf && model_file_vision(mf)->family == &family_qwen2_5_vl);
    model_file_close(&mf);
    CHECK_EQ(chdir(back), 0);
}

/* Two files that do not belong together: the message names both. */
TEST(a_tower_of_another_model)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    char path[256], tower[300], other[256];
    tiny_vision_gguf(&m, "model", path);
    m.text.hidden = 48;
    snprintf(tower, sizeof tower, "%s/tower48.gguf", scratch_dir());
    tiny_vision_file(&m, tower, false, true);
    refuse(path, tower, "rows of 48, but the decoder of");
    refuse(path, tower, path);
    refuse(path, tower, tower);
    m = tiny_vision(&family_qwen2_5_vl);
    snprintf(tower, sizeof tower, "%s/mmproj-model.gguf", scratch_dir());
    struct tiny_model plain = m.text;
    plain.arch = "qwen2";
    plain.type = DTYPE_F32;
    refuse(tiny_model_write(&plain, "plain", other), tower,
           "is one of Qwen2.5-VL, but the decoder");
    m.projector = "pixtral";
    refuse_gguf(m, "a vision tower that prevue does not run");
    m = tiny_vision(&family_llava_onevision);
    m.projector = "mlp";
    refuse_gguf(m, "a vision tower that prevue does not run");
}

static void torture(const char *path)
{
    struct model_file *mf = torture_open(path);
    CHECK(mf && model_file_vision(mf)->family != NULL);
    model_file_close(&mf);
}

/* jansson's own allocations are left alone: version 2.14 goes on, and in the end crashes, when it
 * cannot lengthen a token of more than 16 bytes. */
TEST(out_of_memory_anywhere)
{
    for (int i = 0; i < N_SEEING; i++) {
        struct tiny_vision m = tiny_vision(seeing[i]);
        char path[256];
        torture(tiny_vision_gguf(&m, "memory", path));
        m.text.tokenizer = false; /* a few thousand allocations, tried elsewhere */
        torture(tiny_vision_dir(&m, "memory-dir", path));
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
