/* config.json and the preprocessor's files to struct vision_config.
 *
 * A missing key is an error, as for the decoder. The exceptions:
 *
 * - the norm's epsilon: the reference leaves out of a nested configuration what equals the class's
 *   own value, or fixes it and has it in no file; then the family's table has it;
 * - the rope base (10000), which is fixed in the reference;
 * - the preprocessor's numbers where the directory has none of its files: then those of the
 *   family's published models, which need not be the defaults of the reference's classes.
 *
 * The preprocessor has been stored in three places: processor_config.json (newest, nested, counts
 * first), preprocessor_config.json, and for videos video_preprocessor_config.json. */
#include "format/vision_config_hf.h"

#include "base/file.h"
#include "base/mem.h"
#include "format/audio_config_hf.h"
#include "format/family.h"
#include "format/json_hf.h"

#include <string.h>

enum { CONFIG_MAX_FILE = 16 << 20, MAX_COUNT = 1 << 20 };

/* One parse. */
struct source {
    const json_t *root, *vision; /* config.json and its vision_config */
    const json_t *processor;     /* of pictures, else of videos; NULL: the directory has none */
    const json_t *video;         /* of videos; NULL: the directory has none */
    const char *name;            /* of config.json, for messages */
    const char *processor_name;  /* of the preprocessors' files */
    const char *video_name;
};

/* The numbers of the family's table, in its order. */
static enum pv_status read_numbers(struct vision_config *c, const struct source *src,
                                   struct pv_error *err)
{
    const struct family_tower *t = c->family->tower;

    for (int i = 0; i < t->n_numbers; i++) {
        const struct vision_number *n = &t->numbers[i];
        int64_t value = 0;
        int number;
        enum pv_status s;
        if (!n->hf)
            continue;
        s = json_hf_int(src->vision, n->hf, 1, MAX_COUNT, &value, src->name, err);
        if (s)
            return s;
        if (n->times_hidden && value * c->hidden > MAX_COUNT)
            return fail(err, PV_E_FORMAT, "%s: %s is %lld, too many times the hidden size %d",
                        src->name, n->hf, (long long)value, c->hidden);
        number = (int)value * (n->times_hidden ? c->hidden : 1);
        memcpy((char *)c + n->slot, &number, sizeof number);
    }
    return PV_OK;
}

/* The numbers of a tower that the file knows by its name. */
static enum pv_status read_known(struct vision_config *c, const struct source *src,
                                 struct pv_error *err)
{
    static const char key[] = "mm_vision_tower";
    const struct family_tower *t = c->family->tower;
    const char *name = json_hf_text(src->root, key);
    size_t len = strlen(name);

    for (int i = 0; i < t->n_known; i++) {
        const struct vision_known *k = &t->known[i];
        size_t n = strlen(k->name);
        if (n > len || strcmp(name + len - n, k->name) != 0)
            continue;
        c->hidden = k->hidden;
        c->n_layers = k->n_layers;
        c->n_heads = k->n_heads;
        c->ffn = k->ffn;
        c->image = k->image;
        c->patch = k->patch;
        return PV_OK;
    }
    return fail(err, PV_E_UNSUPPORTED, "%s: %s is not one of the vision towers that prevue runs",
                src->name, key);
}

/* Where newlines stand among the rows of a video. */
static enum pv_status read_newline(struct vision_config *c, const struct source *src,
                                   struct pv_error *err)
{
    static const char key[] = "mm_newline_position";
    static const char *const words[] = { [NEWLINE_END] = "one_token",
                                         [NEWLINE_FRAME] = "frame",
                                         [NEWLINE_LINE] = "grid",
                                         [NEWLINE_NONE] = "no_token" };

    if (!json_hf_member(src->root, key))
        return PV_OK; /* at the end, as the reference has it */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(json_hf_text(src->root, key), words[i])) {
            c->newline = (enum vision_newline)i;
            return PV_OK;
        }
    return fail(err, PV_E_UNSUPPORTED, "%s: %s is not one_token, frame, grid or no_token",
                src->name, key);
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

/* Words that must have the one value that the tower implements. */
static enum pv_status check_words(const struct family_tower *t, const struct source *src,
                                  struct pv_error *err)
{
    for (int i = 0; i < t->n_words; i++) {
        const struct vision_word *w = &t->words[i];
        const json_t *obj = w->root ? src->root : src->vision, *v = json_hf_member(obj, w->key);
        if (!v && w->needed)
            return fail(err, PV_E_FORMAT, "%s: the key %s is missing", src->name, w->key);
        if (!v || (json_is_boolean(v) && !strcmp(w->value, json_is_true(v) ? "true" : "false")))
            continue;
        if (json_is_integer(v) && json_integer_value(v) == w->number)
            continue;
        if (json_is_boolean(v) || json_is_integer(v))
            return fail(err, PV_E_UNSUPPORTED, "%s: %s is not %s", src->name, w->key, w->value);
        if (strcmp(json_hf_text(obj, w->key), w->value))
            return fail(err, PV_E_UNSUPPORTED, "%s: %s is not \"%s\"", src->name, w->key, w->value);
    }
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
                                     struct pv_error *err)
{
    const struct family_tower *t = c->family->tower;
    enum pv_status s = PV_OK;

    if (src->processor) {
        s = read_triple(c->mean, src, "image_mean", err);
        return s ? s : read_triple(c->std, src, "image_std", err);
    }
    memcpy(c->mean, t->mean, sizeof c->mean);
    memcpy(c->std, t->std, sizeof c->std);
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
    bool other = json_hf_member(src->root, "image_aspect_ratio") != NULL; /* lmms-lab's name */
    const char *key = other ? "image_aspect_ratio" : "vision_aspect_ratio";
    const char *text = json_hf_text(src->root, key), *p;

    if (!json_hf_member(src->root, key))
        return fail(err, PV_E_FORMAT, "%s: the key %s is missing", src->name, key);
    p = strncmp(text, prefix, sizeof prefix - 1) ? "" : text + sizeof prefix - 1;
    if (!*p || strlen(p) > 4 || strspn(p, "0123456789") != strlen(p))
        return fail(err, PV_E_UNSUPPORTED, "%s: %s is not \"anyres_max_N\"", src->name, key);
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

/* Bounds of an area: under two names, and in two places. */
static enum pv_status read_area(int64_t *min, int64_t *max, const json_t *processor,
                                const char *name, struct pv_error *err)
{
    const char *keys[2][2] = { { "min_pixels", "max_pixels" },
                               { "shortest_edge", "longest_edge" } };
    int64_t *out[2] = { min, max };
    const json_t *size = json_hf_member(processor, "size");

    for (int i = 0; processor && i < 2; i++) {
        bool old = json_hf_member(processor, keys[0][i]) || !json_hf_member(size, keys[1][i]);
        enum pv_status s = json_hf_int(old ? processor : size, keys[old ? 0 : 1][i], 1,
                                       INT64_C(1) << 40, out[i], name, err);
        if (s)
            return s;
    }
    return PV_OK;
}

static enum pv_status read_pixels(struct vision_config *c, const struct source *src,
                                  struct pv_error *err)
{
    const struct family_tower *t = c->family->tower;
    enum pv_status s;

    c->min_pixels = t->min_pixels;
    c->max_pixels = t->max_pixels;
    c->video_min_pixels = t->video_min_pixels;
    c->video_max_pixels = t->video_max_pixels;
    s = read_area(&c->min_pixels, &c->max_pixels, src->processor, src->processor_name, err);
    if (!s && t->video_max_pixels)
        s = read_area(&c->video_min_pixels, &c->video_max_pixels, src->video, src->video_name, err);
    return s;
}

/* Three colours and the one rope base, where the file speaks of them. */
static enum pv_status check_features(const struct vision_config *c, const struct source *src,
                                     struct pv_error *err)
{
    static const char *const channels[] = { "num_channels", "in_chans", "in_channels" };
    const json_t *rope = json_hf_member(src->vision, "rope_parameters");
    double theta = 10000;
    enum pv_status s = check_words(c->family->tower, src, err);

    for (size_t i = 0; i < sizeof channels / sizeof *channels && !s; i++)
        s = check_channels(src, channels[i], err);
    if (!s && json_hf_member(rope, "rope_theta"))
        s = json_hf_float(rope, "rope_theta", &theta, src->name, err);
    if (!s && (theta < 10000 || theta > 10000))
        s = fail(err, PV_E_UNSUPPORTED,
                 "%s: the vision tower's rope base is %g, where 10000 is supported", src->name,
                 theta);
    return s;
}

/* Layers of the tower whose output also goes to the decoder. */
static enum pv_status read_deepstack(struct vision_config *c, const struct source *src,
                                     struct pv_error *err)
{
    static const char key[] = "deepstack_visual_indexes";
    const json_t *list = json_hf_member(src->vision, key);
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n > VISION_MAX_DEEPSTACK)
        return fail(err, PV_E_FORMAT, "%s: %s is missing or not a list of at most %d layers",
                    src->name, key, VISION_MAX_DEEPSTACK);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t layer = json_integer_value(v);
        if (!json_is_integer(v) || layer < 0 || layer >= VISION_MAX_LAYERS)
            return fail(err, PV_E_FORMAT, "%s: element %zu of %s is not a layer", src->name, i,
                        key);
        c->deepstack[i] = (int)layer;
    }
    c->n_deepstack = (int)n;
    return PV_OK;
}

/* hidden_size of the decoder, where the tower's own members do not say it. */
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

static enum pv_status read_tokens(struct vision_config *c, const struct source *src,
                                  struct pv_error *err)
{
    static const char *const keys[VISION_TOKENS][2] = {
        { "image_token_id", "image_token_index" },
        { "video_token_id", "video_token_index" },
        { "vision_start_token_id", "" },
        { "vision_end_token_id", "" },
    };
    int32_t *out[VISION_TOKENS] = { &c->image_token, &c->video_token, &c->vision_start,
                                    &c->vision_end };
    enum pv_status s = PV_OK;

    for (int i = 0; i < VISION_TOKENS && !s; i++)
        if (c->family->tower->token[i])
            s = read_token(out[i], src, keys[i][0], keys[i][1], err);
    return s;
}

/* The layers, and what the family's tower has beside them. */
static enum pv_status read_tower(struct vision_config *c, const struct source *src,
                                 struct pv_error *err)
{
    const struct family_tower *t = c->family->tower;
    double eps = (double)t->eps, rate = 0;
    enum pv_status s = check_features(c, src, err);

    c->temporal = c->merge = 1; /* unless the table has them */
    memset(c->full, !t->windows, sizeof c->full);
    if (!s)
        s = t->known ? read_known(c, src, err) : read_numbers(c, src, err);
    if (!s)
        s = set_head_dim(c, src, err);
    if (!s && t->eps_key && json_hf_member(src->vision, t->eps_key))
        s = json_hf_float(src->vision, t->eps_key, &eps, src->name, err);
    if (!s && t->layered)
        s = read_feature_layer(c, src, err);
    if (!s && t->lined)
        s = read_newline(c, src, err);
    if (!s && t->windows)
        s = read_full(c, src, err);
    if (!s && t->clock)
        s = json_hf_float(src->vision, "tokens_per_second", &rate, src->name, err);
    if (!s && t->roles.n_merger > 0)
        s = read_deepstack(c, src, err);
    if (!s && !c->out)
        s = read_out(c, src, err);
    c->eps = t->eps_key ? (float)eps : t->eps;
    c->tokens_per_second = (float)rate;
    return s;
}

static enum pv_status read_pictures(struct vision_config *c, const struct source *src,
                                    struct pv_error *err)
{
    const struct family_tower *t = c->family->tower;
    enum pv_status s = t->tiles ? read_grid(c, src, err) : PV_OK;

    if (!s && t->tiles)
        s = read_tiles(c, src, err);
    if (!s)
        s = read_tokens(c, src, err);
    if (!s)
        s = read_normalise(c, src, err);
    if (!s)
        s = t->fixed ? check_size(c, src, err) : read_pixels(c, src, err);
    return s;
}

static enum pv_status parse(struct vision_config *out, const struct source *src,
                            const struct family *const *families, struct pv_error *err)
{
    const struct family_reader r = { json_hf_has_sign, src->root };
    const struct family *f = family_of_type(families, json_hf_text(src->root, "model_type"), &r);
    bool described = f && f->tower && (src->vision || f->tower->known);
    struct vision_config c = { .family = described ? f : NULL,
                               .image_token = -1,
                               .video_token = -1,
                               .vision_start = -1,
                               .vision_end = -1,
                               .audio.token = -1 };
    enum pv_status s = PV_OK;

    if (c.family && !f->tower->known && !json_is_object(src->vision))
        s = fail(err, PV_E_FORMAT, "%s: vision_config is not an object", src->name);
    else if (c.family)
        s = read_tower(&c, src, err);
    if (!s && c.family)
        s = read_pictures(&c, src, err);
    if (!s && c.family && f->audio_encoder)
        s = audio_config_hf_read(&c.audio, f->audio_encoder, src->root, src->name, err);
    if (!s)
        s = vision_config_check(&c, src->name, err);
    if (!s)
        *out = c;
    return s;
}

enum pv_status vision_config_hf_parse(struct vision_config *out, const char *json, size_t len,
                                      const char *processor, size_t processor_len, const char *name,
                                      const struct family *const *families, struct pv_error *err)
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
        s = parse(out, &src, families, err);
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

/* A place where a preprocessor may be. */
struct place {
    const char *file, *member;
};

static enum pv_status open_processor(struct processor *out, const char *dir,
                                     const struct place *places, int n, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    for (int i = 0; i < n && !s && !out->object; i++) {
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

static void close_processor(struct processor *p)
{
    json_decref(p->root);
    mem_free(p->path);
}

static const struct place picture_places[] = {
    { "processor_config.json", "image_processor" },
    { "preprocessor_config.json", NULL },
    { "processor_config.json", "video_processor" },
    { "video_preprocessor_config.json", NULL },
};
static const struct place video_places[] = {
    { "processor_config.json", "video_processor" },
    { "video_preprocessor_config.json", NULL },
};

enum pv_status vision_config_hf_open(struct vision_config *out, const char *dir,
                                     const struct family *const *families, struct pv_error *err)
{
    char *path = path_join(dir, "config.json");
    struct processor pre = { 0 }, video = { 0 };
    json_t *root = NULL;
    enum pv_status s;

    if (path)
        s = json_hf_open(&root, path, CONFIG_MAX_FILE, err);
    else
        s = fail_nomem(err, strlen(dir) + sizeof "/config.json");
    if (!s)
        s = open_processor(&pre, dir, picture_places,
                           sizeof picture_places / sizeof *picture_places, err);
    if (!s)
        s = open_processor(&video, dir, video_places, sizeof video_places / sizeof *video_places,
                           err);
    if (!s) {
        const struct source src = { .root = root,
                                    .vision = json_hf_member(root, "vision_config"),
                                    .processor = pre.object,
                                    .video = video.object,
                                    .name = path,
                                    .processor_name = pre.path,
                                    .video_name = video.path };
        s = parse(out, &src, families, err);
    }
    json_decref(root);
    close_processor(&pre);
    close_processor(&video);
    mem_free(path);
    return s;
}
