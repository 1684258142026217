/* GGUF metadata to struct vision_config and back. The keys clip.* are llama.cpp's; Qwen2.5-VL
 * files follow it exactly ("qwen2.5vl_merger"), LLaVA-OneVision, which llama.cpp does not know,
 * uses the same names with the projector type "llava_ov".
 *
 * llama.cpp's files leave out what its own code takes for granted. Where such a key is missing, the
 * number is that of the published models: window 112, two frames in a patch, two tokens a second,
 * stills of 3136 to 12845056 pixels. The tokens are found by their spelling in the decoder's
 * vocabulary. We write all of these as keys (the last group below), so that a converted model loses
 * nothing. */
#include "format/vision_config_gguf.h"

#include <string.h>

enum { MAX_COUNT = 1 << 20, QWEN_IMAGE_SIZE = 560 /* what llama.cpp's files say; unused */ };

static const char key_projector[] = "clip.projector_type";
static const char key_pattern[] = "clip.vision.n_wa_pattern";
static const char key_full[] = "clip.vision.wa_layer_indexes";
static const char key_grid[] = "clip.vision.image_grid_pinpoints";
static const char key_eps[] = "clip.vision.attention.layer_norm_epsilon";
static const char key_mean[] = "clip.vision.image_mean";
static const char key_std[] = "clip.vision.image_std";
static const char key_rate[] = "clip.vision.tokens_per_second";

/* One number, its key, and what it is where the key is missing (0: it must be there). */
struct count {
    const char *key;
    int *out, missing;
};

static enum pv_status read_counts(const struct count *counts, size_t n, const struct gguf *g,
                                  struct pv_error *err)
{
    for (size_t i = 0; i < n; i++) {
        int64_t value = counts[i].missing;
        enum pv_status s = PV_OK;
        if (!counts[i].missing || gguf_find(g, counts[i].key))
            s = gguf_int(g, counts[i].key, 1, MAX_COUNT, &value, err);
        if (s)
            return s;
        *counts[i].out = (int)value;
    }
    return PV_OK;
}

bool vision_config_gguf_has(const struct gguf *g)
{
    return gguf_find(g, key_projector) || gguf_find(g, "clip.has_vision_encoder") ||
           gguf_tensor_find(g, "v.patch_embd.weight");
}

static bool str_is(const struct str *s, const char *text)
{
    return s->len == strlen(text) && !memcmp(s->s, text, s->len);
}

static enum pv_status read_kind(struct vision_config *c, const struct gguf *g, struct pv_error *err)
{
    struct str type;
    enum pv_status s;

    if (!vision_config_gguf_has(g))
        return fail(err, PV_E_FORMAT, "%s: there is no vision tower in the file", gguf_path(g));
    s = gguf_string(g, key_projector, &type, err);
    if (s)
        return s;
    if (str_is(&type, "qwen2.5vl_merger"))
        c->kind = VISION_QWEN2_5;
    else if (str_is(&type, "llava_ov"))
        c->kind = VISION_LLAVA;
    else
        s = fail(err, PV_E_UNSUPPORTED,
                 "%s: %s is neither \"qwen2.5vl_merger\" nor \"llava_ov\", and no other vision "
                 "tower is supported",
                 gguf_path(g), key_projector);
    return s;
}

/* What both families have. The size of the output is that of the tensor, which is what counts:
 * converters disagree about projection_dim. */
static enum pv_status read_common(struct vision_config *c, const struct gguf *g,
                                  struct pv_error *err)
{
    const struct count counts[] = {
        { "clip.vision.embedding_length", &c->hidden, 0 },
        { "clip.vision.block_count", &c->n_layers, 0 },
        { "clip.vision.attention.head_count", &c->n_heads, 0 },
        { "clip.vision.feed_forward_length", &c->ffn, 0 },
        { "clip.vision.patch_size", &c->patch, 0 },
    };
    const struct tensor *out = gguf_tensor_find(g, "mm.2.weight");
    double eps = 0;
    enum pv_status s = read_counts(counts, sizeof counts / sizeof *counts, g, err);

    if (!s)
        s = gguf_float(g, key_eps, &eps, err);
    if (!s)
        s = gguf_floats(g, key_mean, c->mean, 3, err);
    if (!s)
        s = gguf_floats(g, key_std, c->std, 3, err);
    if (!s && (!out || out->n_dims != 2 || out->dim[0] > MAX_COUNT))
        s = fail(err, PV_E_FORMAT, "%s: the tensor mm.2.weight is missing or not a matrix",
                 gguf_path(g));
    if (!s && c->hidden % c->n_heads)
        s = fail(err, PV_E_FORMAT,
                 "%s: the vision tower's %d heads do not divide its hidden size %d", gguf_path(g),
                 c->n_heads, c->hidden);
    if (s)
        return s;
    c->eps = (float)eps;
    c->head_dim = c->hidden / c->n_heads;
    c->out = (int)out->dim[0];
    return PV_OK;
}

/* The layers of a list; those beyond the tower are ignored. */
static enum pv_status read_full_list(struct vision_config *c, const struct gguf *g,
                                     struct pv_error *err)
{
    int32_t list[VISION_MAX_LAYERS] = { 0 };
    const struct gguf_value *v = gguf_find(g, key_full);
    int n = v->n <= VISION_MAX_LAYERS ? (int)v->n : -1;
    enum pv_status s;

    if (v->kind != GGUF_ARRAY || n < 0)
        return fail(err, PV_E_FORMAT, "%s: %s is not an array of at most %d layers", gguf_path(g),
                    key_full, VISION_MAX_LAYERS);
    s = gguf_ints(g, key_full, list, n, err);
    for (int i = 0; i < n && !s; i++) {
        if (list[i] < 0)
            s = fail(err, PV_E_FORMAT, "%s: element %d of %s is not a layer", gguf_path(g), i,
                     key_full);
        else if (list[i] < c->n_layers && list[i] < VISION_MAX_LAYERS)
            c->full[list[i]] = true;
    }
    return s;
}

/* Every n-th layer attends to everything; 0: all of them do, as llama.cpp reads it. */
static enum pv_status read_full(struct vision_config *c, const struct gguf *g, struct pv_error *err)
{
    int64_t n = 0;
    enum pv_status s;

    if (gguf_find(g, key_full))
        return read_full_list(c, g, err);
    s = gguf_int(g, key_pattern, 0, MAX_COUNT, &n, err);
    for (int i = 0; i < c->n_layers && i < VISION_MAX_LAYERS && !s; i++)
        c->full[i] = n == 0 || (i + 1) % n == 0;
    return s;
}

/* Bounds of a still picture's area, those of the published models where the file has none. */
static enum pv_status read_pixels(struct vision_config *c, const struct gguf *g,
                                  struct pv_error *err)
{
    static const char least[] = "clip.vision.image_min_pixels";
    static const char most[] = "clip.vision.image_max_pixels";
    enum pv_status s = PV_OK;

    c->min_pixels = 4 * 28 * 28;
    c->max_pixels = 16384 * 28 * 28;
    if (gguf_find(g, least))
        s = gguf_int(g, least, 1, UINT32_MAX, &c->min_pixels, err);
    if (!s && gguf_find(g, most))
        s = gguf_int(g, most, 1, UINT32_MAX, &c->max_pixels, err);
    return s;
}

static enum pv_status read_qwen(struct vision_config *c, const struct gguf *g, struct pv_error *err)
{
    const struct count counts[] = {
        { "clip.vision.spatial_merge_size", &c->merge, 2 },
        { "clip.vision.temporal_patch_size", &c->temporal, 2 },
        { "clip.vision.window_size", &c->window, 112 },
    };
    const struct gguf_value *silu = gguf_find(g, "clip.use_silu");
    double rate = 2;
    enum pv_status s = read_counts(counts, sizeof counts / sizeof *counts, g, err);

    if (!s && silu && (silu->kind != GGUF_BOOL || !silu->data[0]))
        s = fail(err, PV_E_UNSUPPORTED, "%s: clip.use_silu is not true", gguf_path(g));
    if (!s)
        s = read_full(c, g, err);
    if (!s)
        s = read_pixels(c, g, err);
    if (!s && gguf_find(g, key_rate))
        s = gguf_float(g, key_rate, &rate, err);
    c->tokens_per_second = (float)rate;
    return s;
}

static enum pv_status read_llava(struct vision_config *c, const struct gguf *g,
                                 struct pv_error *err)
{
    const struct count counts[] = {
        { "clip.vision.image_size", &c->image, 0 },
        { "clip.vision.preproc_max_tiles", &c->max_tiles, 0 },
    };
    const struct gguf_value *grid = gguf_find(g, key_grid);
    int32_t sides[2 * VISION_MAX_GRID] = { 0 };
    int n = 0;
    enum pv_status s = read_counts(counts, sizeof counts / sizeof *counts, g, err);

    c->temporal = c->merge = 1;
    memset(c->full, true, sizeof c->full);
    if (!s && (!grid || grid->n > 2 * VISION_MAX_GRID || grid->n < 2 || grid->n % 2))
        s = fail(err, PV_E_FORMAT, "%s: %s is missing or not an array of 1 to %d sizes",
                 gguf_path(g), key_grid, VISION_MAX_GRID);
    if (!s) {
        n = (int)grid->n;
        s = gguf_ints(g, key_grid, sides, n, err);
    }
    for (int i = 0; i < n && !s; i++)
        c->grid[i / 2][i % 2] = sides[i];
    c->n_grid = n / 2;
    return s;
}

/* The id of a token by its spelling, -1: none. */
static int32_t find_spelled(const struct vocab *v, const char *text)
{
    for (int i = 0; v && i < v->n_tokens; i++)
        if ((v->kind[i] == TOKEN_CONTROL || v->kind[i] == TOKEN_ADDED) &&
            str_is(&v->token[i], text))
            return i;
    return -1;
}

struct token_key {
    const char *key, *qwen, *llava; /* spellings; NULL: the family has none */
};

static const struct token_key token_keys[4] = {
    { "clip.vision.image_token_id", "<|image_pad|>", "<image>" },
    { "clip.vision.video_token_id", "<|video_pad|>", "<video>" },
    { "clip.vision.vision_start_token_id", "<|vision_start|>", NULL },
    { "clip.vision.vision_end_token_id", "<|vision_end|>", NULL },
};

static enum pv_status read_tokens(struct vision_config *c, const struct gguf *g,
                                  const struct vocab *v, struct pv_error *err)
{
    int32_t *out[4] = { &c->image_token, &c->video_token, &c->vision_start, &c->vision_end };
    enum pv_status s = PV_OK;

    for (int i = 0; i < 4 && !s; i++) {
        const struct token_key *k = &token_keys[i];
        const char *text = c->kind == VISION_LLAVA ? k->llava : k->qwen;
        int64_t id = -1;
        if (gguf_find(g, k->key))
            s = gguf_int(g, k->key, 0, INT32_MAX, &id, err);
        else if (text)
            id = find_spelled(v, text);
        *out[i] = (int32_t)id;
    }
    return s;
}

enum pv_status vision_config_gguf_parse(struct vision_config *out, const struct gguf *g,
                                        const struct vocab *v, struct pv_error *err)
{
    struct vision_config c = { 0 };
    enum pv_status s = read_kind(&c, g, err);

    if (!s)
        s = read_common(&c, g, err);
    if (!s)
        s = c.kind == VISION_LLAVA ? read_llava(&c, g, err) : read_qwen(&c, g, err);
    if (!s)
        s = read_tokens(&c, g, v, err);
    if (!s)
        s = vision_config_check(&c, gguf_path(g), err);
    if (!s)
        *out = c;
    return s;
}

/* n where every n-th layer is full and no other, -1 where there is no such n. */
static int full_pattern(const struct vision_config *c)
{
    int n = 0;

    while (n < c->n_layers && !c->full[n])
        n++;
    n++;
    for (int i = 0; i < c->n_layers; i++)
        if (c->full[i] != ((i + 1) % n == 0))
            return -1;
    return n;
}

static void write_qwen(const struct vision_config *c, struct gguf_writer *w)
{
    int32_t full[VISION_MAX_LAYERS];
    int n = 0, pattern = full_pattern(c);

    for (int i = 0; i < c->n_layers; i++)
        if (c->full[i])
            full[n++] = i;
    gguf_writer_bool(w, "clip.use_silu", true);
    gguf_writer_u32(w, "clip.vision.image_size", QWEN_IMAGE_SIZE);
    gguf_writer_u32(w, "clip.vision.spatial_merge_size", (uint32_t)c->merge);
    if (pattern >= 0)
        gguf_writer_u32(w, key_pattern, (uint32_t)pattern);
    else /* llama.cpp will refuse the file, and not misread it */
        gguf_writer_i32s(w, key_full, full, (size_t)n);
    gguf_writer_u32(w, "clip.vision.temporal_patch_size", (uint32_t)c->temporal);
    gguf_writer_u32(w, "clip.vision.window_size", (uint32_t)c->window);
    gguf_writer_u32(w, "clip.vision.image_min_pixels", (uint32_t)c->min_pixels);
    gguf_writer_u32(w, "clip.vision.image_max_pixels", (uint32_t)c->max_pixels);
    gguf_writer_f32(w, key_rate, c->tokens_per_second);
}

static void write_llava(const struct vision_config *c, struct gguf_writer *w)
{
    int32_t sides[2 * VISION_MAX_GRID];

    for (int i = 0; i < 2 * c->n_grid; i++)
        sides[i] = c->grid[i / 2][i % 2];
    gguf_writer_bool(w, "clip.use_gelu", true);
    gguf_writer_u32(w, "clip.vision.image_size", (uint32_t)c->image);
    gguf_writer_u32(w, "clip.vision.preproc_max_tiles", (uint32_t)c->max_tiles);
    gguf_writer_i32s(w, key_grid, sides, 2 * (size_t)c->n_grid);
}

void vision_config_gguf_write(const struct vision_config *c, struct gguf_writer *w)
{
    const int32_t ids[4] = { c->image_token, c->video_token, c->vision_start, c->vision_end };
    const char *type = c->kind == VISION_LLAVA ? "llava_ov" : "qwen2.5vl_merger";

    gguf_writer_bool(w, "clip.has_vision_encoder", true);
    gguf_writer_string(w, key_projector, type, strlen(type));
    gguf_writer_u32(w, "clip.vision.projection_dim", (uint32_t)c->out);
    gguf_writer_u32(w, "clip.vision.embedding_length", (uint32_t)c->hidden);
    gguf_writer_u32(w, "clip.vision.block_count", (uint32_t)c->n_layers);
    gguf_writer_u32(w, "clip.vision.attention.head_count", (uint32_t)c->n_heads);
    gguf_writer_u32(w, "clip.vision.feed_forward_length", (uint32_t)c->ffn);
    gguf_writer_u32(w, "clip.vision.patch_size", (uint32_t)c->patch);
    gguf_writer_f32(w, key_eps, c->eps);
    gguf_writer_f32s(w, key_mean, c->mean, 3);
    gguf_writer_f32s(w, key_std, c->std, 3);
    if (c->kind == VISION_LLAVA)
        write_llava(c, w);
    else
        write_qwen(c, w);
    for (int i = 0; i < 4; i++)
        if (ids[i] >= 0)
            gguf_writer_u32(w, token_keys[i].key, (uint32_t)ids[i]);
}
