/* Models with vision towers: which layers run, what may be missing, and what is refused with which
 * words. (What is read: test_vision_kinds.c.) */
#include "family/families.h"
#include "same_tower.h"
#include "tiny_vision.h"
#include "torture.h"

static const struct family *const seeing[] = { &family_llava_onevision, &family_qwen2_5_vl,
                                               &family_qwen2_vl, &family_qwen3_vl };
enum { N_SEEING = sizeof seeing / sizeof *seeing };

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

/* SigLIP as published has one layer more than runs: the configuration says where to stop. */
TEST(only_the_chosen_layers_run)
{
    struct tiny_vision m = tiny_vision(&family_llava_onevision);
    struct model_file *mf;
    char path[256];
    m.stored = 3; /* and vision_feature_layer -2 */
    mf = model_file_of(tiny_vision_dir(&m, "dir", path), NULL);
    CHECK(mf && model_file_vision(mf)->n_layers == 2);
    model_file_close(&mf);
    m.from = "\"vision_feature_layer\": -2";
    m.to = "\"vision_feature_layer\": 1";
    mf = model_file_of(tiny_vision_dir(&m, "dir", path), NULL);
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
    mf = model_file_of(tiny_vision_dir(&m, "dir", path), NULL);
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

TEST(missing_keys_of_other_qwens)
{
    static const char *const qwen2[] = { "embed_dim",
                                         "mlp_ratio",
                                         "depth",
                                         "num_heads",
                                         "spatial_merge_size",
                                         "temporal_patch_size",
                                         "image_token_id",
                                         "video_token_id",
                                         "vision_end_token_id",
                                         "vision_start_token_id" };
    static const char *const qwen3[] = { "out_hidden_size",
                                         "num_position_embeddings",
                                         "depth",
                                         "deepstack_visual_indexes",
                                         "num_heads",
                                         "temporal_patch_size",
                                         "spatial_merge_size",
                                         "image_token_id",
                                         "video_token_id",
                                         "vision_start_token_id" };
    for (size_t i = 0; i < sizeof qwen2 / sizeof *qwen2; i++) {
        char word[100];
        snprintf(word, sizeof word, "the key %s is missing", qwen2[i]);
        refuse_config(&family_qwen2_vl, qwen2[i], "else", word);
    }
    for (size_t i = 0; i < sizeof qwen3 / sizeof *qwen3; i++) {
        char word[100];
        snprintf(word, sizeof word, "%s is missing", qwen3[i]);
        refuse_config(&family_qwen3_vl, qwen3[i], "else", word);
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
    refuse_config(&family_qwen2_vl, "\"in_chans\": 3", "\"hidden_act\": \"gelu\"",
                  "hidden_act is not \"quick_gelu\"");
    refuse_config(&family_qwen3_vl, "gelu_pytorch_tanh", "gelu",
                  "hidden_act is not \"gelu_pytorch_tanh\"");
}

TEST(numbers_that_cannot_be)
{
    refuse_config(&family_qwen2_vl, "\"mlp_ratio\": 2", "\"mlp_ratio\": 0", "mlp_ratio is 0");
    refuse_config(&family_qwen3_vl, "\"num_position_embeddings\": 9",
                  "\"num_position_embeddings\": 10", "10 learned positions are not a square");
    refuse_config(&family_qwen3_vl, "[1, 3]", "[3, 1]", "deepstack layer 1 is not one of");
    refuse_config(&family_qwen3_vl, "[1, 3]", "[1, 4]", "deepstack layer 4 is not one of");
    refuse_config(&family_qwen3_vl, "[1, 3]", "[0, 1, 3]", "number of deepstack layers is 3");
    refuse_config(&family_qwen3_vl, "[1, 3]", "[1, true]", "deepstack_visual_indexes");
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
        struct model_file *mf = model_file_of(tiny_vision_dir(&m, "dir", path), NULL);
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
        struct model_file *mf = model_file_of(tiny_vision_dir(&m, "dir", path), NULL);
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

/* What is said of an audio encoder's tensor with a row more: sizes come from the first tensor that
 * has them, and then may not be possible. */
static const char *bad_sound(const char *name)
{
    if (!strcmp(name, "a.conv1d.1.weight"))
        return "2 heads of the audio encoder do not share its hidden size 17";
    if (!strcmp(name, "a.position_embd.weight"))
        return "51 positions are not a multiple";
    return "has the shape [";
}

/* The same of an audio encoder. */
TEST(damaged_tensors_of_an_audio_encoder)
{
    struct tiny_vision m = tiny_vision(&family_salmonn2_plus);
    static struct tiny_parts parts;
    m.n_layers = 2;
    tiny_list_tower(&parts, &m, m.n_layers);
    for (int i = 0; i < parts.n; i++) {
        const struct tiny_part *p = &parts.item[i];
        struct tiny_vision bad = m;
        char word[120];
        if (p->group < 6)
            continue;
        bad.drop = p->name;
        snprintf(word, sizeof word, "%s is missing", p->name);
        refuse_gguf(bad, word);
        refuse_dir(bad, "is missing");
        bad = m;
        bad.reshape = p->name;
        refuse_gguf(bad, bad_sound(p->name));
        refuse_dir(bad, bad_sound(p->name));
        bad = m;
        bad.not_finite = p->name;
        if (p->rows == 0)
            refuse_dir(bad, "not finite");
    }
}

TEST(audio_encoders_that_cannot_be)
{
    static const char *const keys[] = {
        "clip.audio.block_count",
        "clip.audio.attention.head_count",
        "clip.audio.attention.layer_norm_epsilon",
        "clip.audio.qformer.block_count",
        "clip.audio.qformer.head_count",
        "clip.audio.qformer.layer_norm_epsilon",
        "clip.audio.qformer.window",
    };
    static const struct {
        const char *from, *to, *word;
    } cases[] = {
        { "_heads\": 2, \"second", "_heads\": 3, \"second", "3 heads of the audio encoder" },
        { "_heads\": 3", "_heads\": 5", "5 heads of the audio Q-Former" },
        { "second_per_window\": 0.5", "second_per_window\": 0.4", "second_per_window is 0.4" },
        { "query_length\": 1", "query_length\": 2", "query_length is 2, where 1 was expected" },
        { "query_length\": 1", "hidden_act\": \"relu\"", "hidden_act is \"relu\"" },
        { "query_length\": 1", "num_hidden_layers\": 2", "2 layers of the audio encoder's Q-" },
        { "\"second_per_window\": 0.5", "\"encoder_layers\": 3", "3 layers of the audio" },
        { "audio_token_id\": 267", "audio_token_id\": 288", "288 is not in the vocabulary" },
    };
    struct tiny_vision m;
    struct model_file *mf;
    char path[256];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char word[120];
        m = tiny_vision(&family_salmonn2_plus);
        m.drop = keys[i];
        snprintf(word, sizeof word, "%s is missing", keys[i]);
        refuse_gguf(m, word);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse_config(&family_salmonn2_plus, cases[i].from, cases[i].to, cases[i].word);
    /* Without the key that tells, what is left is Qwen2.5-VL. */
    m = tiny_vision(&family_salmonn2_plus);
    m.drop = "clip.has_audio_encoder";
    mf = model_file_of(tiny_vision_gguf(&m, "deaf", path), NULL);
    CHECK(mf && model_file_vision(mf)->family == &family_qwen2_5_vl);
    CHECK(mf && model_file_vision(mf)->audio.hidden == 0);
    model_file_close(&mf);
}

/* A decoder cut out of a model speaks of a tower and has none. */
TEST(a_directory_without_the_tensors_has_no_tower)
{
    struct tiny_vision m = tiny_vision(&family_llava_onevision);
    char path[256];
    m.drop = "v.patch_embd.weight";
    struct model_file *mf = model_file_of(tiny_vision_dir(&m, "dir", path), NULL);
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
        "clip.vision.n_wa_pattern",         /* Qwen2.5-VL's alone */
        "clip.vision.is_deepstack_layers",  /* Qwen3-VL's alone */
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct tiny_vision m = tiny_vision(i == 12   ? &family_qwen2_5_vl
                                           : i == 13 ? &family_qwen3_vl
                                                     : &family_llava_onevision);
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
    mf = model_file_of(tiny_vision_gguf(&m, "model", path), NULL);
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
    mf = model_file_of(tiny_vision_gguf(&m, "model", path), NULL);
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
    mf = model_file_of(path, NULL);
    CHECK(mf && model_file_vision(mf)->family == &family_qwen2_5_vl);
    model_file_close(&mf);
    rename(tower, moved);
    mf = model_file_of(path, NULL); /* a decoder alone is fine */
    CHECK(mf && model_file_vision(mf)->family == NULL);
    model_file_close(&mf);
    mf = model_file_of(path, moved);
    CHECK(mf && model_file_vision(mf)->family == &family_qwen2_5_vl);
    model_file_close(&mf);
    refuse(path, tower, "mmproj-pair.gguf");
    refuse(moved, NULL, "only a vision tower (mmproj)");
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
    mf = model_file_of("plain.gguf", NULL);
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
