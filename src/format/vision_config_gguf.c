/* GGUF metadata to struct vision_config and back. The keys clip.* are llama.cpp's; a family that
 * llama.cpp does not know uses the same names with a projector type of its own.
 *
 * llama.cpp's files leave out what its own code takes for granted. Where such a key is missing, the
 * number is that of the published models, which the family's table has. The tokens are found by
 * their spelling in the decoder's vocabulary. We write all of these as keys, so that a converted
 * model loses nothing. */
#include "format/vision_config_gguf.h"

#include "format/audio_config_gguf.h"
#include "format/family.h"

#include <stdio.h>

#include <string.h>

enum { MAX_COUNT = 1 << 20 };

static const char key_projector[] = "clip.projector_type";
static const char key_pattern[] = "clip.vision.n_wa_pattern";
static const char key_full[] = "clip.vision.wa_layer_indexes";
static const char key_grid[] = "clip.vision.image_grid_pinpoints";
static const char key_eps[] = "clip.vision.attention.layer_norm_epsilon";
static const char key_mean[] = "clip.vision.image_mean";
static const char key_std[] = "clip.vision.image_std";
static const char key_rate[] = "clip.vision.tokens_per_second";
static const char key_least[] = "clip.vision.image_min_pixels";
static const char key_most[] = "clip.vision.image_max_pixels";
static const char key_video_least[] = "clip.vision.video_min_pixels";
static const char key_video_most[] = "clip.vision.video_max_pixels";
static const char key_newline[] = "clip.vision.video_newline";
static const char key_deepstack[] = "clip.vision.is_deepstack_layers";

/* A key of the tower. */
struct key {
    char text[96];
};

static struct key vision_key(const char *name)
{
    struct key k;
    snprintf(k.text, sizeof k.text, "clip.vision.%s", name);
    return k;
}

/* The numbers of the family's table. */
static enum pv_status read_numbers(struct vision_config *c, const struct gguf *g,
                                   struct pv_error *err)
{
    const struct family_tower *t = c->family->tower;

    for (int i = 0; i < t->n_numbers; i++) {
        const struct vision_number *n = &t->numbers[i];
        int64_t value = n->missing;
        int number;
        enum pv_status s = PV_OK;
        if (!n->gguf)
            continue;
        if (!n->missing || gguf_find(g, vision_key(n->gguf).text))
            s = gguf_int(g, vision_key(n->gguf).text, 1, MAX_COUNT, &value, err);
        if (s)
            return s;
        number = (int)value;
        memcpy((char *)c + n->slot, &number, sizeof number);
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

static enum pv_status read_family(struct vision_config *c, const struct gguf *g,
                                  const struct family *decoder,
                                  const struct family *const *families, struct pv_error *err)
{
    struct str type;
    enum pv_status s;

    if (!vision_config_gguf_has(g))
        return fail(err, PV_E_FORMAT, "%s: there is no vision tower in the file", gguf_path(g));
    s = gguf_string(g, key_projector, &type, err);
    if (s)
        return s;
    c->family = family_of_projector(families, &type, audio_config_gguf_has(g), decoder);
    for (uint32_t i = 0; i < type.len; i++) /* it goes into a message */
        if (type.s[i] < ' ' || type.s[i] > '~')
            type.len = 0;
    if (!c->family)
        s = fail(err, PV_E_UNSUPPORTED,
                 "%s: %s is \"%.*s\", a vision tower that prevue does not run", gguf_path(g),
                 key_projector, type.len < 64 ? (int)type.len : 64, type.s);
    return s;
}

/* What all families have. The size of the output is that of the tensor, which is what counts:
 * converters disagree about projection_dim. */
static enum pv_status read_common(struct vision_config *c, const struct gguf *g,
                                  struct pv_error *err)
{
    const struct tensor *out = gguf_tensor_find(g, "mm.2.weight");
    const char *flag = c->family->tower->flag;
    const struct gguf_value *set = flag ? gguf_find(g, flag) : NULL;
    double eps = 0;
    enum pv_status s = read_numbers(c, g, err);

    if (!s)
        s = gguf_float(g, key_eps, &eps, err);
    if (!s)
        s = gguf_floats(g, key_mean, c->mean, 3, err);
    if (!s)
        s = gguf_floats(g, key_std, c->std, 3, err);
    if (!s && set && (set->kind != GGUF_BOOL || !set->data[0]))
        s = fail(err, PV_E_UNSUPPORTED, "%s: %s is not true", gguf_path(g), flag);
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
    enum pv_status s = PV_OK;

    c->min_pixels = c->family->tower->min_pixels;
    c->max_pixels = c->family->tower->max_pixels;
    if (gguf_find(g, key_least))
        s = gguf_int(g, key_least, 1, UINT32_MAX, &c->min_pixels, err);
    if (!s && gguf_find(g, key_most))
        s = gguf_int(g, key_most, 1, UINT32_MAX, &c->max_pixels, err);
    c->video_min_pixels = c->family->tower->video_min_pixels;
    c->video_max_pixels = c->family->tower->video_max_pixels;
    if (!s && gguf_find(g, key_video_least))
        s = gguf_int(g, key_video_least, 1, UINT32_MAX, &c->video_min_pixels, err);
    if (!s && gguf_find(g, key_video_most))
        s = gguf_int(g, key_video_most, 1, UINT32_MAX, &c->video_max_pixels, err);
    return s;
}

/* The layers whose output also goes to the decoder: one flag for each layer. */
static enum pv_status read_deepstack(struct vision_config *c, const struct gguf *g,
                                     struct pv_error *err)
{
    const struct gguf_value *v = gguf_find(g, key_deepstack);

    if (!v || v->kind != GGUF_ARRAY || v->elem != GGUF_BOOL || v->n != (uint64_t)c->n_layers)
        return fail(err, PV_E_FORMAT, "%s: %s is missing or not an array of %d flags", gguf_path(g),
                    key_deepstack, c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        if (!v->data[i])
            continue;
        if (c->n_deepstack == VISION_MAX_DEEPSTACK)
            return fail(err, PV_E_UNSUPPORTED, "%s: %s names more than %d layers", gguf_path(g),
                        key_deepstack, VISION_MAX_DEEPSTACK);
        c->deepstack[c->n_deepstack++] = i;
    }
    return PV_OK;
}

static enum pv_status read_grid(struct vision_config *c, const struct gguf *g, struct pv_error *err)
{
    const struct gguf_value *grid = gguf_find(g, key_grid);
    int32_t sides[2 * VISION_MAX_GRID] = { 0 };
    int n;
    enum pv_status s;

    if (!grid || grid->n > 2 * VISION_MAX_GRID || grid->n < 2 || grid->n % 2)
        return fail(err, PV_E_FORMAT, "%s: %s is missing or not an array of 1 to %d sizes",
                    gguf_path(g), key_grid, VISION_MAX_GRID);
    n = (int)grid->n;
    s = gguf_ints(g, key_grid, sides, n, err);
    for (int i = 0; i < n && !s; i++)
        c->grid[i / 2][i % 2] = sides[i];
    c->n_grid = n / 2;
    return s;
}

/* What the family's tower has beside its layers. */
static enum pv_status read_parts(struct vision_config *c, const struct gguf *g,
                                 struct pv_error *err)
{
    const struct family_tower *t = c->family->tower;
    double rate = t->clock ? 2 : 0;
    int64_t newline = NEWLINE_END;
    enum pv_status s = PV_OK;

    memset(c->full, !t->windows, sizeof c->full);
    if (t->windows)
        s = read_full(c, g, err);
    if (!s && t->tiles)
        s = read_grid(c, g, err);
    if (!s && gguf_find(g, key_newline))
        s = gguf_int(g, key_newline, 0, NEWLINE_NONE, &newline, err);
    c->newline = (enum vision_newline)newline;
    if (!s && !t->fixed)
        s = read_pixels(c, g, err);
    if (!s && t->roles.n_merger > 0)
        s = read_deepstack(c, g, err);
    if (!s && t->interpolated) {
        const struct tensor *p = gguf_tensor_find(g, "v.position_embd.weight");
        if (!p)
            return fail(err, PV_E_FORMAT, "%s: the tensor v.position_embd.weight is missing",
                        gguf_path(g));
        c->positions = p->dim[0] <= VISION_MAX_POSITIONS ? (int)p->dim[0] : 0;
    }
    if (!s && t->clock && gguf_find(g, key_rate))
        s = gguf_float(g, key_rate, &rate, err);
    c->tokens_per_second = (float)rate;
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

static const char *const token_keys[VISION_TOKENS] = {
    "clip.vision.image_token_id",
    "clip.vision.video_token_id",
    "clip.vision.vision_start_token_id",
    "clip.vision.vision_end_token_id",
};

static enum pv_status read_tokens(struct vision_config *c, const struct gguf *g,
                                  const struct vocab *v, struct pv_error *err)
{
    int32_t *out[VISION_TOKENS] = { &c->image_token, &c->video_token, &c->vision_start,
                                    &c->vision_end };
    enum pv_status s = PV_OK;

    for (int i = 0; i < VISION_TOKENS && !s; i++) {
        const char *text = c->family->tower->token[i];
        int64_t id = -1;
        if (gguf_find(g, token_keys[i]))
            s = gguf_int(g, token_keys[i], 0, INT32_MAX, &id, err);
        else if (text)
            id = find_spelled(v, text);
        *out[i] = (int32_t)id;
    }
    return s;
}

enum pv_status vision_config_gguf_parse(struct vision_config *out, const struct gguf *g,
                                        const struct vocab *v, const struct family *decoder,
                                        const struct family *const *families, struct pv_error *err)
{
    struct vision_config c = { .temporal = 1, .merge = 1, .audio.token = -1 };
    enum pv_status s = read_family(&c, g, decoder, families, err);

    if (!s)
        s = read_common(&c, g, err);
    if (!s)
        s = read_parts(&c, g, err);
    if (!s)
        s = read_tokens(&c, g, v, err);
    if (!s)
        s = vision_config_check(&c, gguf_path(g), err);
    if (!s && c.family->audio_encoder)
        s = audio_config_gguf_parse(&c.audio, g, err);
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

static void write_full(const struct vision_config *c, struct gguf_writer *w)
{
    int32_t full[VISION_MAX_LAYERS];
    int n = 0, pattern = full_pattern(c);

    for (int i = 0; i < c->n_layers; i++)
        if (c->full[i])
            full[n++] = i;
    if (pattern >= 0)
        gguf_writer_u32(w, key_pattern, (uint32_t)pattern);
    else /* llama.cpp will refuse the file, and not misread it */
        gguf_writer_i32s(w, key_full, full, (size_t)n);
}

static void write_grid(const struct vision_config *c, struct gguf_writer *w)
{
    int32_t sides[2 * VISION_MAX_GRID];

    for (int i = 0; i < 2 * c->n_grid; i++)
        sides[i] = c->grid[i / 2][i % 2];
    gguf_writer_i32s(w, key_grid, sides, 2 * (size_t)c->n_grid);
}

static void write_deepstack(const struct vision_config *c, struct gguf_writer *w)
{
    uint8_t flags[VISION_MAX_LAYERS] = { 0 };

    for (int i = 0; i < c->n_deepstack; i++)
        flags[c->deepstack[i]] = 1;
    gguf_writer_bools(w, key_deepstack, flags, (size_t)c->n_layers);
}

void vision_config_gguf_write(const struct vision_config *c, struct gguf_writer *w)
{
    const struct family_tower *t = c->family->tower;
    const int32_t ids[VISION_TOKENS] = { c->image_token, c->video_token, c->vision_start,
                                         c->vision_end };

    gguf_writer_bool(w, "clip.has_vision_encoder", true);
    gguf_writer_string(w, key_projector, t->projector, strlen(t->projector));
    if (t->flag)
        gguf_writer_bool(w, t->flag, true);
    gguf_writer_u32(w, "clip.vision.projection_dim", (uint32_t)c->out);
    for (int i = 0; i < t->n_numbers; i++) {
        int value;
        memcpy(&value, (const char *)c + t->numbers[i].slot, sizeof value);
        if (t->numbers[i].gguf)
            gguf_writer_u32(w, vision_key(t->numbers[i].gguf).text, (uint32_t)value);
    }
    if (t->said_size)
        gguf_writer_u32(w, "clip.vision.image_size", (uint32_t)t->said_size);
    gguf_writer_f32(w, key_eps, c->eps);
    gguf_writer_f32s(w, key_mean, c->mean, 3);
    gguf_writer_f32s(w, key_std, c->std, 3);
    if (t->windows)
        write_full(c, w);
    if (t->tiles)
        write_grid(c, w);
    if (c->newline != NEWLINE_END)
        gguf_writer_u32(w, key_newline, (uint32_t)c->newline);
    if (!t->fixed) {
        gguf_writer_u32(w, key_least, (uint32_t)c->min_pixels);
        gguf_writer_u32(w, key_most, (uint32_t)c->max_pixels);
    }
    if (c->video_max_pixels) {
        gguf_writer_u32(w, key_video_least, (uint32_t)c->video_min_pixels);
        gguf_writer_u32(w, key_video_most, (uint32_t)c->video_max_pixels);
    }
    if (t->clock)
        gguf_writer_f32(w, key_rate, c->tokens_per_second);
    if (t->roles.n_merger > 0)
        write_deepstack(c, w);
    for (int i = 0; i < VISION_TOKENS; i++)
        if (ids[i] >= 0)
            gguf_writer_u32(w, token_keys[i], (uint32_t)ids[i]);
    if (c->audio.hidden)
        audio_config_gguf_write(&c->audio, w);
}
