/* config.json and the preprocessor's files to struct vision_config.
 *
 * A missing key is an error, as for the decoder. The exceptions:
 *
 * - layer_norm_eps of SigLIP: the reference leaves out of a nested configuration what equals the
 *   class's own value, 1e-6, and the published files do lack it;
 * - the norm's epsilon (1e-6) and the rope base (10000) of Qwen2.5's tower, which are fixed in the
 *   reference and in no file;
 * - the preprocessor's numbers where the directory has none of its files: then those of the
 *   family's published models. For LLaVA-OneVision these are not the reference's class defaults
 *   (which are CLIP's mean and deviation, and wrong for SigLIP).
 *
 * The preprocessor has been stored in three places: processor_config.json (newest, nested, counts
 * first), preprocessor_config.json, and for videos video_preprocessor_config.json. */
#include "format/vision_config_hf.h"

#include "base/file.h"
#include "base/mem.h"
#include "format/json_hf.h"

#include <string.h>

enum { CONFIG_MAX_FILE = 16 << 20, MAX_COUNT = 1 << 20, N_PROCESSORS = 4 };

/* Numbers of the published models, for directories without a preprocessor's file. */
static const float siglip_mean[3] = { 0.5f, 0.5f, 0.5f };
static const float siglip_std[3] = { 0.5f, 0.5f, 0.5f };
static const float clip_mean[3] = { 0.48145466f, 0.4578275f, 0.40821073f };
static const float clip_std[3] = { 0.26862954f, 0.26130258f, 0.27577711f };
enum { QWEN_MIN_PIXELS = 4 * 28 * 28, QWEN_MAX_PIXELS = 16384 * 28 * 28 };

/* One parse. */
struct source {
    const json_t *root, *vision; /* config.json and its vision_config */
    const json_t *processor;     /* of pictures, else of videos; NULL: the directory has none */
    const char *name;            /* of config.json, for messages */
    const char *processor_name;  /* of the preprocessor's file */
};

struct count {
    const char *key;
    int *out;
};

static enum pv_status read_counts(const struct count *counts, size_t n, const struct source *src,
                                  struct pv_error *err)
{
    for (size_t i = 0; i < n; i++) {
        int64_t value = 0;
        enum pv_status s =
            json_hf_int(src->vision, counts[i].key, 1, MAX_COUNT, &value, src->name, err);
        if (s)
            return s;
        *counts[i].out = (int)value;
    }
    return PV_OK;
}

static enum pv_status set_head_dim(struct vision_config *c, const struct source *src,
                                   struct pv_error *err)
{
    if (c->hidden % c->n_heads)
        return fail(err, PV_E_FORMAT,
                    "%s: the vision tower's %d heads do not divide its hidden size %d", src->name,
                    c->n_heads, c->hidden);
    c->head_dim = c->hidden / c->n_heads;
    return PV_OK;
}

/* A string or number that, where it is there, must have the one value the tower implements. */
static enum pv_status check_string(const json_t *obj, const char *key, const char *want,
                                   const char *name, struct pv_error *err)
{
    if (json_hf_member(obj, key) && strcmp(json_hf_text(obj, key), want))
        return fail(err, PV_E_UNSUPPORTED, "%s: %s is not \"%s\"", name, key, want);
    return PV_OK;
}

static enum pv_status check_channels(const struct source *src, const char *key,
                                     struct pv_error *err)
{
    int64_t value = 3;
    enum pv_status s = PV_OK;

    if (json_hf_member(src->vision, key))
        s = json_hf_int(src->vision, key, 1, MAX_COUNT, &value, src->name, err);
    if (!s && value != 3)
        s = fail(err, PV_E_UNSUPPORTED, "%s: %s is %d, where 3 (red, green, blue) is supported",
                 src->name, key, (int)value);
    return s;
}

/* A token id under either of its two names. */
static enum pv_status read_token(int32_t *out, const struct source *src, const char *key,
                                 const char *other, struct pv_error *err)
{
    int64_t value = -1;
    enum pv_status s;

    if (!json_hf_member(src->root, key) && json_hf_member(src->root, other))
        key = other;
    s = json_hf_int(src->root, key, 0, INT32_MAX, &value, src->name, err);
    *out = (int32_t)value;
    return s;
}

static enum pv_status read_triple(float out[3], const struct source *src, const char *key,
                                  struct pv_error *err)
{
    const json_t *list = json_hf_member(src->processor, key);

    if (!list)
        return fail(err, PV_E_FORMAT, "%s: the key %s is missing", src->processor_name, key);
    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_array_get(list, i);
        if (json_array_size(list) != 3 || !json_is_number(v))
            return fail(err, PV_E_FORMAT, "%s: %s is not a list of 3 numbers", src->processor_name,
                        key);
        out[i] = (float)json_number_value(v);
    }
    return PV_OK;
}

static enum pv_status read_normalise(struct vision_config *c, const struct source *src,
                                     const float mean[3], const float std[3], struct pv_error *err)
{
    enum pv_status s = PV_OK;

    if (src->processor) {
        s = read_triple(c->mean, src, "image_mean", err);
        return s ? s : read_triple(c->std, src, "image_std", err);
    }
    memcpy(c->mean, mean, sizeof c->mean);
    memcpy(c->std, std, sizeof c->std);
    return PV_OK;
}

/* How many of the stored layers run: the chosen hidden state is counted from the embeddings (0) or
 * from the last layer (-1) back. The published models store 26 of SigLIP's 27 layers and say -1;
 * one that stores all 27 says -2. */
static enum pv_status read_feature_layer(struct vision_config *c, const struct source *src,
                                         struct pv_error *err)
{
    int64_t layer = 0;
    int stored = c->n_layers;
    enum pv_status s = json_hf_int(src->root, "vision_feature_layer", -MAX_COUNT, MAX_COUNT, &layer,
                                   src->name, err);

    if (s)
        return s;
    c->n_layers = (int)(layer < 0 ? stored + 1 + layer : layer);
    if (c->n_layers < 1 || c->n_layers > stored)
        return fail(err, PV_E_FORMAT,
                    "%s: vision_feature_layer is %d, which is none of the tower's %d layers",
                    src->name, (int)layer, stored);
    return PV_OK;
}

static enum pv_status read_grid(struct vision_config *c, const struct source *src,
                                struct pv_error *err)
{
    const json_t *list = json_hf_member(src->root, "image_grid_pinpoints");
    size_t n = json_array_size(list);

    if (!list)
        return fail(err, PV_E_FORMAT, "%s: the key image_grid_pinpoints is missing", src->name);
    if (!json_is_array(list) || n < 1 || n > VISION_MAX_GRID)
        return fail(err, PV_E_FORMAT, "%s: image_grid_pinpoints is not a list of 1 to %d sizes",
                    src->name, VISION_MAX_GRID);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < 2; j++) {
            const json_t *pair = json_array_get(list, i), *v = json_array_get(pair, j);
            json_int_t side = json_integer_value(v);
            if (json_array_size(pair) != 2 || !json_is_integer(v) || side < 1 || side > MAX_COUNT)
                return fail(err, PV_E_FORMAT,
                            "%s: element %zu of image_grid_pinpoints is not a height and a width",
                            src->name, i);
            c->grid[i][j] = (int)side;
        }
    c->n_grid = (int)n;
    return PV_OK;
}

/* "anyres_max_9": at most so many tiles' worth of tokens for a still picture. */
static enum pv_status read_tiles(struct vision_config *c, const struct source *src,
                                 struct pv_error *err)
{
    static const char prefix[] = "anyres_max_";
    const char *text = json_hf_text(src->root, "vision_aspect_ratio"), *p;

    if (!json_hf_member(src->root, "vision_aspect_ratio"))
        return fail(err, PV_E_FORMAT, "%s: the key vision_aspect_ratio is missing", src->name);
    p = strncmp(text, prefix, sizeof prefix - 1) ? "" : text + sizeof prefix - 1;
    if (!*p || strlen(p) > 4 || strspn(p, "0123456789") != strlen(p))
        return fail(err, PV_E_UNSUPPORTED, "%s: vision_aspect_ratio is not \"anyres_max_N\"",
                    src->name);
    for (; *p; p++)
        c->max_tiles = c->max_tiles * 10 + (*p - '0');
    return PV_OK;
}

/* The one input size, where the preprocessor names it too. */
static enum pv_status check_size(const struct vision_config *c, const struct source *src,
                                 struct pv_error *err)
{
    static const char *const keys[] = { "height", "width" };
    const json_t *size = json_hf_member(src->processor, "size");

    for (int i = 0; i < 2; i++) {
        const json_t *v = json_hf_member(size, keys[i]);
        if (v && json_integer_value(v) != c->image)
            return fail(err, PV_E_FORMAT,
                        "%s: pictures are resized to %lld pixels, but the tower's image_size is %d",
                        src->processor_name, (long long)json_integer_value(v), c->image);
    }
    return PV_OK;
}

static enum pv_status check_llava_features(const struct source *src, struct pv_error *err)
{
    const json_t *bias = json_hf_member(src->root, "multimodal_projector_bias");
    enum pv_status s =
        check_string(src->vision, "model_type", "siglip_vision_model", src->name, err);

    if (!s)
        s = check_string(src->vision, "hidden_act", "gelu_pytorch_tanh", src->name, err);
    if (!s)
        s = check_string(src->root, "projector_hidden_act", "gelu", src->name, err);
    if (!s && !json_hf_member(src->root, "vision_feature_select_strategy"))
        s = fail(err, PV_E_FORMAT, "%s: the key vision_feature_select_strategy is missing",
                 src->name);
    if (!s)
        s = check_string(src->root, "vision_feature_select_strategy", "full", src->name, err);
    if (!s && bias && !json_is_true(bias))
        s = fail(err, PV_E_UNSUPPORTED, "%s: multimodal_projector_bias is not true", src->name);
    if (!s)
        s = check_channels(src, "num_channels", err);
    return s;
}

static enum pv_status parse_llava(struct vision_config *c, const struct source *src,
                                  struct pv_error *err)
{
    const struct count counts[] = {
        { "hidden_size", &c->hidden },    { "num_hidden_layers", &c->n_layers },
        { "intermediate_size", &c->ffn }, { "num_attention_heads", &c->n_heads },
        { "image_size", &c->image },      { "patch_size", &c->patch },
    };
    double eps = 1e-6;
    enum pv_status s = check_llava_features(src, err);

    c->temporal = c->merge = 1;
    memset(c->full, true, sizeof c->full);
    if (!s)
        s = read_counts(counts, sizeof counts / sizeof *counts, src, err);
    if (!s)
        s = set_head_dim(c, src, err);
    if (!s && json_hf_member(src->vision, "layer_norm_eps"))
        s = json_hf_float(src->vision, "layer_norm_eps", &eps, src->name, err);
    c->eps = (float)eps;
    if (!s)
        s = read_feature_layer(c, src, err);
    if (!s)
        s = read_grid(c, src, err);
    if (!s)
        s = read_tiles(c, src, err);
    if (!s)
        s = read_token(&c->image_token, src, "image_token_index", "image_token_id", err);
    if (!s)
        s = read_token(&c->video_token, src, "video_token_index", "video_token_id", err);
    if (!s)
        s = read_normalise(c, src, siglip_mean, siglip_std, err);
    return s ? s : check_size(c, src, err);
}

/* Layers beyond the tower's are ignored, as the reference does: cut-down towers keep the list. */
static enum pv_status read_full(struct vision_config *c, const struct source *src,
                                struct pv_error *err)
{
    const json_t *list = json_hf_member(src->vision, "fullatt_block_indexes");

    if (!list)
        return fail(err, PV_E_FORMAT, "%s: the key fullatt_block_indexes is missing", src->name);
    if (!json_is_array(list))
        return fail(err, PV_E_FORMAT, "%s: fullatt_block_indexes is not a list", src->name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t layer = json_integer_value(v);
        if (!json_is_integer(v) || layer < 0)
            return fail(err, PV_E_FORMAT, "%s: element %zu of fullatt_block_indexes is not a layer",
                        src->name, i);
        if (layer < VISION_MAX_LAYERS)
            c->full[layer] = layer < c->n_layers;
    }
    return PV_OK;
}

/* Bounds of a still picture's area: under two names, and in two places. */
static enum pv_status read_pixels(struct vision_config *c, const struct source *src,
                                  struct pv_error *err)
{
    const char *keys[2][2] = { { "min_pixels", "max_pixels" },
                               { "shortest_edge", "longest_edge" } };
    int64_t *out[2] = { &c->min_pixels, &c->max_pixels };
    const json_t *size = json_hf_member(src->processor, "size");

    c->min_pixels = QWEN_MIN_PIXELS;
    c->max_pixels = QWEN_MAX_PIXELS;
    for (int i = 0; src->processor && i < 2; i++) {
        bool old = json_hf_member(src->processor, keys[0][i]) || !json_hf_member(size, keys[1][i]);
        enum pv_status s = json_hf_int(old ? src->processor : size, keys[old ? 0 : 1][i], 1,
                                       INT64_C(1) << 40, out[i], src->processor_name, err);
        if (s)
            return s;
    }
    return PV_OK;
}

static enum pv_status check_qwen_features(const struct source *src, struct pv_error *err)
{
    const json_t *rope = json_hf_member(src->vision, "rope_parameters");
    double theta = 10000;
    enum pv_status s = check_string(src->vision, "hidden_act", "silu", src->name, err);

    if (!s)
        s = check_channels(src, "in_chans", err);
    if (!s)
        s = check_channels(src, "in_channels", err);
    if (!s && json_hf_member(rope, "rope_theta"))
        s = json_hf_float(rope, "rope_theta", &theta, src->name, err);
    if (!s && (theta < 10000 || theta > 10000))
        s = fail(err, PV_E_UNSUPPORTED,
                 "%s: the vision tower's rope base is %g, where 10000 is supported", src->name,
                 theta);
    return s;
}

static enum pv_status parse_qwen(struct vision_config *c, const struct source *src,
                                 struct pv_error *err)
{
    const struct count counts[] = {
        { "hidden_size", &c->hidden },           { "depth", &c->n_layers },
        { "intermediate_size", &c->ffn },        { "num_heads", &c->n_heads },
        { "out_hidden_size", &c->out },          { "patch_size", &c->patch },
        { "temporal_patch_size", &c->temporal }, { "spatial_merge_size", &c->merge },
        { "window_size", &c->window },
    };
    double rate = 0;
    enum pv_status s = check_qwen_features(src, err);

    c->eps = 1e-6f;
    if (!s)
        s = read_counts(counts, sizeof counts / sizeof *counts, src, err);
    if (!s)
        s = set_head_dim(c, src, err);
    if (!s)
        s = read_full(c, src, err);
    if (!s)
        s = json_hf_float(src->vision, "tokens_per_second", &rate, src->name, err);
    c->tokens_per_second = (float)rate;
    if (!s)
        s = read_token(&c->image_token, src, "image_token_id", "image_token_index", err);
    if (!s)
        s = read_token(&c->video_token, src, "video_token_id", "video_token_index", err);
    if (!s)
        s = read_token(&c->vision_start, src, "vision_start_token_id", "", err);
    if (!s)
        s = read_token(&c->vision_end, src, "vision_end_token_id", "", err);
    if (!s)
        s = read_normalise(c, src, clip_mean, clip_std, err);
    return s ? s : read_pixels(c, src, err);
}

/* hidden_size of the decoder, where a LLaVA model keeps it. */
static enum pv_status read_out(struct vision_config *c, const struct source *src,
                               struct pv_error *err)
{
    const json_t *text = json_hf_member(src->root, "text_config");
    int64_t value = 0;
    enum pv_status s =
        json_hf_int(text ? text : src->root, "hidden_size", 1, MAX_COUNT, &value, src->name, err);

    c->out = (int)value;
    return s;
}

static enum vision_kind find_kind(const struct source *src)
{
    const char *type = json_hf_text(src->root, "model_type");

    if (!src->vision)
        return VISION_NONE;
    if (!strcmp(type, "llava_onevision"))
        return VISION_LLAVA;
    return strcmp(type, "qwen2_5_vl") ? VISION_NONE : VISION_QWEN2_5;
}

static enum pv_status parse(struct vision_config *out, const struct source *src,
                            struct pv_error *err)
{
    struct vision_config c = { .kind = find_kind(src),
                               .image_token = -1,
                               .video_token = -1,
                               .vision_start = -1,
                               .vision_end = -1 };
    enum pv_status s = PV_OK;

    if (c.kind != VISION_NONE && !json_is_object(src->vision))
        s = fail(err, PV_E_FORMAT, "%s: vision_config is not an object", src->name);
    else if (c.kind == VISION_LLAVA)
        s = parse_llava(&c, src, err);
    else if (c.kind == VISION_QWEN2_5)
        s = parse_qwen(&c, src, err);
    if (!s && c.kind == VISION_LLAVA)
        s = read_out(&c, src, err);
    if (!s)
        s = vision_config_check(&c, src->name, err);
    if (!s)
        *out = c;
    return s;
}

enum pv_status vision_config_hf_parse(struct vision_config *out, const char *json, size_t len,
                                      const char *processor, size_t processor_len, const char *name,
                                      struct pv_error *err)
{
    json_t *root = NULL, *pre = NULL;
    enum pv_status s = json_hf_parse(&root, json, len, name, err);

    if (!s && processor)
        s = json_hf_parse(&pre, processor, processor_len, name, err);
    if (!s) {
        const struct source src = { .root = root,
                                    .vision = json_hf_member(root, "vision_config"),
                                    .processor = pre,
                                    .name = name,
                                    .processor_name = name };
        s = parse(out, &src, err);
    }
    json_decref(root);
    json_decref(pre);
    return s;
}

/* The preprocessor's file that counts, and the object in it. */
struct processor {
    json_t *root; /* owned */
    char *path;   /* owned */
    const json_t *object;
};

static enum pv_status open_processor(struct processor *out, const char *dir, struct pv_error *err)
{
    static const struct {
        const char *file, *member;
    } places[N_PROCESSORS] = {
        { "processor_config.json", "image_processor" },
        { "preprocessor_config.json", NULL },
        { "processor_config.json", "video_processor" },
        { "video_preprocessor_config.json", NULL },
    };
    enum pv_status s = PV_OK;

    for (int i = 0; i < N_PROCESSORS && !s && !out->object; i++) {
        json_decref(out->root);
        mem_free(out->path);
        out->root = NULL;
        out->path = path_join(dir, places[i].file);
        if (!out->path)
            return fail_nomem(err, strlen(dir) + strlen(places[i].file) + 2);
        if (!file_exists(out->path))
            continue;
        s = json_hf_open(&out->root, out->path, CONFIG_MAX_FILE, err);
        out->object = places[i].member ? json_hf_member(out->root, places[i].member) : out->root;
        if (!json_is_object(out->object))
            out->object = NULL;
    }
    return s;
}

enum pv_status vision_config_hf_open(struct vision_config *out, const char *dir,
                                     struct pv_error *err)
{
    char *path = path_join(dir, "config.json");
    struct processor pre = { 0 };
    json_t *root = NULL;
    enum pv_status s;

    if (path)
        s = json_hf_open(&root, path, CONFIG_MAX_FILE, err);
    else
        s = fail_nomem(err, strlen(dir) + sizeof "/config.json");
    if (!s)
        s = open_processor(&pre, dir, err);
    if (!s) {
        const struct source src = { .root = root,
                                    .vision = json_hf_member(root, "vision_config"),
                                    .processor = pre.object,
                                    .name = path,
                                    .processor_name = pre.path };
        s = parse(out, &src, err);
    }
    json_decref(root);
    json_decref(pre.root);
    mem_free(pre.path);
    mem_free(path);
    return s;
}
