/* The table of families as a whole: rows that do not contradict each other, models that are known
 * by signs in config.json, the layout of lmms-lab, and what LLaVA-Video's prompts have. */
#include "answers.h"
#include "engine/captions.h"
#include "family/families.h"
#include "family/media.h"
#include "format/config_hf.h"
#include "format/vision_config_hf.h"
#include "test.h"
#include "vision/llava.h"

#include <string.h>

#define DECODER                                                                                    \
    "\"hidden_size\": 3584, \"num_hidden_layers\": 28, \"num_attention_heads\": 28, "              \
    "\"num_key_value_heads\": 4, \"intermediate_size\": 18944, \"vocab_size\": 152064, "           \
    "\"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, "     \
    "\"tie_word_embeddings\": false, \"hidden_act\": \"silu\", \"use_sliding_window\": false"

/* As lmms-lab's configurations are, without members that nobody reads. */
#define ORIGINAL(newline)                                                                          \
    "{ \"architectures\": [\"LlavaQwenForCausalLM\"], \"model_type\": \"llava\", " DECODER         \
    ", \"image_aspect_ratio\": \"anyres_max_9\", \"image_grid_pinpoints\": [[384, 384], "          \
    "[384, 768], [768, 384], [768, 768]], \"mm_hidden_size\": 1152, "                              \
    "\"mm_patch_merge_type\": \"spatial_unpad\", \"mm_projector_type\": \"mlp2x_gelu\", "          \
    "\"mm_spatial_pool_mode\": \"bilinear\", \"mm_vision_select_layer\": -2, "                     \
    "\"add_faster_video\": false, " newline                                                        \
    "\"mm_vision_tower\": \"google/siglip-so400m-patch14-384\" }"

static const char video_config[] = ORIGINAL("\"mm_newline_position\": \"grid\", ");

static enum pv_status parse_tower(struct vision_config *c, const char *json, struct pv_error *err)
{
    return vision_config_hf_parse(c, json, strlen(json), NULL, 0, "config.json", families, err);
}

static enum pv_status parse(struct config *c, const char *json, struct pv_error *err)
{
    return config_hf_parse(c, json, strlen(json), NULL, 0, "config.json", families, err);
}

/* Everything that the code below the tables relies on. */
TEST(rows_are_whole)
{
    for (const struct family *const *f = families; *f; f++) {
        const struct family *x = *f;
        CHECK(x->title && x->types && x->types[0]);
        if (x->refused)
            continue;
        CHECK(x->name && x->arch);
        CHECK(!x->tower == !x->number && !x->tower == !x->frames && !x->tower == !x->media);
        if (!x->tower)
            continue;
        CHECK(x->media->plan && x->frames->size && x->lambda > 0 && x->lambda <= 1);
        CHECK(x->tower->projector && x->tower->token && x->tower->n_layouts > 0);
        CHECK(x->tower->roles.top[0].dim[1] == VDIM_PATCH); /* tells whether a tower is there */
        CHECK(x->tower->fixed || x->tower->max_pixels > x->tower->min_pixels);
        for (const struct family *const *g = f + 1; *g; g++)
            CHECK(!(*g)->number || (*g)->number != x->number || !strcmp((*g)->name, x->name));
    }
    CHECK(!family_of_number(0) && !family_of_number(99));
    CHECK(family_of_number(2) == &family_qwen2_5_vl);
}

TEST(known_models_that_do_not_run_are_named)
{
    static const char *const cases[][2] = {
        { "{ \"model_type\": \"qwen3_omni_moe\" }",
          "this is Qwen3-Omni, which prevue does not run" },
        { "{ \"model_type\": \"llava\", \"architectures\": [\"LlavaForConditionalGeneration\"] }",
          "this is LLaVA 1.5 or another LLaVA that is not built on Qwen2, which prevue" },
        { "{ \"model_type\": \"llava_onevision\", \"text_config\": { \"model_type\": \"llama\" } }",
          "this is a Llama model, which prevue does not run" },
        { "{ \"model_type\": \"llava_onevision\", \"text_config\": { \"model_type\": "
          "\"llava_onevision\" } }",
          "the model_type \"llava_onevision\" is not supported" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        struct pv_error err = { 0 };
        CHECK_EQ(parse(&c, cases[i][0], &err), PV_E_UNSUPPORTED);
        CHECK_MSG(strstr(err.text, cases[i][1]), "\"%s\" lacks \"%s\"", err.text, cases[i][1]);
    }
}

static void check_original(const char *json, const struct family *family, enum vision_newline where)
{
    struct vision_config v;
    struct config c;
    struct pv_error err = { 0 };
    if (!CHECK_MSG(!parse(&c, json, &err) && !parse_tower(&v, json, &err), "%s", err.text))
        return;
    CHECK(c.family == family && v.family == family && v.newline == where);
    CHECK(c.hidden == 3584 && c.n_layers == 28 && c.qkv_bias && !c.qk_norm);
    CHECK(v.hidden == 1152 && v.n_layers == 26 && v.n_heads == 16 && v.head_dim == 72);
    CHECK(v.ffn == 4304 && v.image == 384 && v.patch == 14 && v.out == 3584);
    CHECK(v.max_tiles == 9 && v.n_grid == 4 && v.grid[1][1] == 768);
    CHECK(v.image_token == -1 && v.video_token == -1 && v.vision_start == -1);
    CHECK(v.mean[0] == 0.5f && v.std[2] == 0.5f && v.temporal == 1 && v.merge == 1);
}

TEST(the_layout_of_lmms_lab)
{
    check_original(ORIGINAL(""), &family_llava_original, NEWLINE_END);
    check_original(ORIGINAL("\"mm_newline_position\": \"one_token\", "), &family_llava_original,
                   NEWLINE_END);
    check_original(ORIGINAL("\"mm_newline_position\": \"no_token\", "), &family_llava_original,
                   NEWLINE_NONE);
    check_original(video_config, &family_llava_video, NEWLINE_LINE);
    check_original(ORIGINAL("\"mm_newline_position\": \"frame\", "), &family_llava_video,
                   NEWLINE_FRAME);
}

/* The text with one part replaced must be refused by a sentence that has `word`. */
static void refuse(const char *from, const char *to, const char *word)
{
    static char text[sizeof video_config + 100];
    const char *at = strstr(video_config, from);
    struct vision_config c;
    struct pv_error err = { 0 };
    if (!CHECK(at))
        return;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - video_config), video_config, to,
             at + strlen(from));
    CHECK(parse_tower(&c, text, &err) != PV_OK);
    CHECK_MSG(strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text, word);
}

TEST(what_is_not_the_layout_of_lmms_lab)
{
    refuse("patch14-384", "patch14-224", "mm_vision_tower is not one of the vision towers");
    refuse("\"grid\"", "\"grid\", \"mm_spatial_pool_stride\": 4",
           "mm_spatial_pool_stride is not 2");
    refuse("\"bilinear\"", "\"average\"", "mm_spatial_pool_mode is not \"bilinear\"");
    refuse("\"spatial_unpad\"", "\"flat\"", "mm_patch_merge_type is not \"spatial_unpad\"");
    refuse("\"add_faster_video\": false", "\"add_faster_video\": true", "add_faster_video is not");
    refuse("\"mlp2x_gelu\"", "\"linear\"", "mm_projector_type is not \"mlp2x_gelu\"");
    refuse("anyres_max_9", "pad", "image_aspect_ratio is not \"anyres_max_N\"");
}

/* A video of 4 frames of one that has 10 a second and lasts 12.8 seconds. */
TEST(a_video_of_llava_video)
{
    static const int64_t index[] = { 0, 42, 84, 127 };
    const struct pv_video_params p = pv_video_defaults();
    struct vision_config c;
    struct loaded_media s = { .n_frames = 4, .info = { .fps = 10, .duration = 12.8 } };
    struct captions captions;
    struct choose_params how;
    int32_t pos[840][3];
    if (!CHECK(!parse_tower(&c, video_config, NULL) &&
               !media_plan(&s.m, &c, &p, 480, 640, 4, 10, true, NULL)))
        return;
    CHECK(s.m.unit_rows == 210 && s.m.line == 15 && s.m.n_rows == 840 && !s.m.newline);
    CHECK(s.m.run_rows == 840 && s.m.height == 384 && s.m.width == 384);
    CHECK_EQ(media_positions(&s.m, 7, 0, 840, pos), 847);
    CHECK(pos[0][0] == 7 && pos[839][2] == 846);
    CHECK(!frame_policy_choose(&how, &c, &p, NULL) && how.frames == 64 &&
          how.rule == CHOOSE_LINSPACE);
    s.index = (int64_t *)index;
    CHECK_EQ(captions_make(&captions, &s, NULL), PV_OK);
    CHECK(!captions.list);
    CHECK_STR(
        captions.note.data,
        "The video lasts for 12.80 seconds, and 4 frames are uniformly sampled from it. These "
        "frames are located at 0.00s,4.20s,8.40s,12.70s.Please answer the following questions "
        "related to this video.");
    captions_clear(&captions);
}

/* Pairs of frames of Qwen3-VL have texts of their own, and an odd last frame counts twice. */
TEST(a_video_of_qwen3_vl)
{
    static const int64_t index[] = { 0, 12, 25, 37, 49 };
    const struct pv_video_params p = pv_video_defaults();
    struct vision_config c = { .family = &family_qwen3_vl,
                               .patch = 16,
                               .temporal = 2,
                               .merge = 2,
                               .min_pixels = 65536,
                               .max_pixels = 16777216,
                               .video_min_pixels = 4096,
                               .video_max_pixels = 25165824 };
    struct loaded_media s = { .n_frames = 5, .info = { .fps = 24, .duration = 2.1 } };
    struct captions captions;
    int32_t pos[16][3];
    if (!CHECK(!media_plan(&s.m, &c, &p, 64, 128, 5, 24, false, NULL)))
        return;
    CHECK(s.m.n_views == 6 && s.m.n_slices == 3 && s.m.unit_rows == 8 && s.m.run_rows == 8);
    CHECK_EQ(s.m.n_rows, 24);
    CHECK_EQ(media_positions(&s.m, 5, 8, 8, pos), 9); /* four columns */
    CHECK(pos[0][0] == 5 && pos[7][0] == 5 && pos[7][1] == 6 && pos[7][2] == 8);
    s.index = (int64_t *)index;
    CHECK_EQ(captions_make(&captions, &s, NULL), PV_OK);
    if (CHECK(captions.list)) {
        CHECK_STR(captions.list[0], "<0.2 seconds>"); /* a quarter, to the even digit */
        CHECK_STR(captions.list[1], "<1.3 seconds>");
        CHECK_STR(captions.list[2], "<2.0 seconds>");
    }
    captions_clear(&captions);
}

/* Sizes as the reference's smart_resize gives them, and sound that ends before the film and after
 * it. */
TEST(a_video_of_salmonn2_plus)
{
    const struct pv_video_params p = pv_video_defaults();
    struct vision_config c = { .family = &family_salmonn2_plus,
                               .patch = 14,
                               .temporal = 2,
                               .merge = 2,
                               .min_pixels = 3136,
                               .max_pixels = 12845056,
                               .audio = {
                                   .hidden = 8, .mel = 128, .positions = 1500, .window = 25 } };
    struct choose_params how;
    struct media m;
    int n;
    CHECK(!frame_policy_choose(&how, &c, &p, NULL) && how.rule == CHOOSE_ONCE && how.fps == 10);
    CHECK(how.min_frames == 16 && how.max_frames == 768);
    CHECK(!media_plan(&m, &c, &p, 720, 1280, 768, 10, false, NULL));
    CHECK(m.height == 168 && m.width == 308);
    CHECK(!media_plan(&m, &c, &p, 40, 30, 16, 10, false, NULL));
    CHECK(m.height == 84 && m.width == 56);
    CHECK(!media_plan(&m, &c, &p, 720, 1280, 100, 10, false, NULL));
    CHECK(m.height == 476 && m.width == 868 && m.unit_rows == 17 * 31 && m.n_units == 50);
    /* ten seconds: two rows for each fifth pair, and the rest of a chunk at the end */
    CHECK(!media_add_sound(&m, &c, 1, NULL));
    CHECK(m.n_rows == 50 * 527 + 60 && m.run_rows == m.n_rows && media_units(&m) == 51);
    CHECK(media_row(&m, 0, &n) == 0 && n == 527);
    CHECK(media_row(&m, 3 * 527, &n) == 50 * 527 && n == 1);
    CHECK(media_row(&m, 50 * 527 + 19, &n) == 50 * 527 + 19 && n == 60 - 19);
    for (int place = 0; place < m.n_rows; place++)
        CHECK_EQ(media_place(&m, media_row(&m, place, NULL)), place);
    /* a hundred seconds with one chunk: nothing after the thirtieth */
    CHECK(!media_plan(&m, &c, &p, 720, 1280, 100, 1, false, NULL));
    CHECK(!media_add_sound(&m, &c, 1, NULL));
    CHECK(media_row(&m, 15 * (527 + 4), &n) == 15 * 527 &&
          media_row(&m, m.n_rows - 1, &n) == 50 * 527 - 1);
    for (int place = 0; place < m.n_rows; place++)
        CHECK_EQ(media_place(&m, media_row(&m, place, NULL)), place);
}

/* Qwen3-VL-MoE has Qwen3-VL's tower: which of the two a GGUF file is, its decoder tells. Its
 * answers are the same whoever drafts. */
TEST(experts_behind_a_tower)
{
    static const struct tiny_experts experts = { .n = 5, .used = 2, .ffn = 32, .dense = 1 };
    struct tiny_vision m = tiny_vision(&family_qwen3_vl);
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    char path[256];
    m.text.arch = "qwen3vlmoe";
    m.text.experts = &experts;
    tiny_vision_gguf(&m, "moe", path);
    if (!CHECK_MSG(!model_file_open(&mf, path, NULL, 0, families, &err), "%s", err.text))
        return;
    CHECK(model_file_vision(mf)->family == &family_qwen3_vl_moe);
    CHECK(model_file_config(mf)->family == &family_qwen3_vl_moe);
    CHECK(model_file_config(mf)->n_experts == 5 && model_file_config(mf)->n_deepstack == 2);
    model_file_close(&mf);
    struct pair p = open_pair(path, 2);
    struct pv_method drafts[] = { method(PV_DRAFT_SELF, "specvlm", PV_SHAPE_TREE),
                                  method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN) };
    pv_session *plain = open_session(&p);
    struct answer want = run(plain, NULL, 0);
    CHECK_EQ(want.n, (size_t)N_NEW);
    for (int i = 0; i < 2; i++) {
        pv_session *s = open_session(&p);
        struct answer got = run(s, &drafts[i], 0);
        CHECK(same_answer(&want, &got, vocab_of(s)) && same_cache(plain, s));
        pv_session_close(&s);
    }
    pv_session_close(&plain);
    close_pair(&p);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
