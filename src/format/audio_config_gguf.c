/* The keys clip.audio.*; our converter is the only one that writes such files, so each must be
 * there. */
#include "format/audio_config_gguf.h"

enum { MAX_COUNT = 1 << 20 };

static const char key_has[] = "clip.has_audio_encoder";
static const char key_heads[] = "clip.audio.attention.head_count";
static const char key_eps[] = "clip.audio.attention.layer_norm_epsilon";
static const char key_q_heads[] = "clip.audio.qformer.head_count";
static const char key_q_eps[] = "clip.audio.qformer.layer_norm_epsilon";
static const char key_window[] = "clip.audio.qformer.window";
static const char key_layers[] = "clip.audio.block_count";
static const char key_q_layers[] = "clip.audio.qformer.block_count";
static const char key_token[] = "clip.audio.token_id";

bool audio_config_gguf_has(const struct gguf *g)
{
    const struct gguf_value *set = gguf_find(g, key_has);
    return set && set->kind == GGUF_BOOL && set->data[0];
}

enum pv_status audio_config_gguf_parse(struct audio_config *c, const struct gguf *g,
                                       struct pv_error *err)
{
    int64_t heads = 0, q_heads = 0, window = 0, token = -1, layers = 0, q_layers = 0;
    double eps = 0, q_eps = 0;
    enum pv_status s = gguf_int(g, key_heads, 1, MAX_COUNT, &heads, err);

    if (!s)
        s = gguf_int(g, key_q_heads, 1, MAX_COUNT, &q_heads, err);
    if (!s)
        s = gguf_int(g, key_window, 1, MAX_COUNT, &window, err);
    if (!s)
        s = gguf_int(g, key_layers, 1, MAX_COUNT, &layers, err);
    if (!s)
        s = gguf_int(g, key_q_layers, 1, MAX_COUNT, &q_layers, err);
    if (!s && gguf_find(g, key_token))
        s = gguf_int(g, key_token, 0, INT32_MAX, &token, err);
    if (!s)
        s = gguf_float(g, key_eps, &eps, err);
    if (!s)
        s = gguf_float(g, key_q_eps, &q_eps, err);
    if (s)
        return s;
    c->n_layers = (int)layers;
    c->q_layers = (int)q_layers;
    c->n_heads = (int)heads;
    c->q_heads = (int)q_heads;
    c->window = (int)window;
    c->token = (int32_t)token;
    c->eps = (float)eps;
    c->q_eps = (float)q_eps;
    return PV_OK;
}

void audio_config_gguf_write(const struct audio_config *c, struct gguf_writer *w)
{
    gguf_writer_bool(w, key_has, true);
    gguf_writer_u32(w, "clip.audio.num_mel_bins", (uint32_t)c->mel);
    gguf_writer_u32(w, "clip.audio.embedding_length", (uint32_t)c->hidden);
    gguf_writer_u32(w, "clip.audio.feed_forward_length", (uint32_t)c->ffn);
    gguf_writer_u32(w, key_layers, (uint32_t)c->n_layers);
    gguf_writer_u32(w, key_heads, (uint32_t)c->n_heads);
    gguf_writer_f32(w, key_eps, c->eps);
    gguf_writer_u32(w, "clip.audio.qformer.embedding_length", (uint32_t)c->q_hidden);
    gguf_writer_u32(w, "clip.audio.qformer.feed_forward_length", (uint32_t)c->q_ffn);
    gguf_writer_u32(w, key_q_layers, (uint32_t)c->q_layers);
    gguf_writer_u32(w, key_q_heads, (uint32_t)c->q_heads);
    gguf_writer_f32(w, key_q_eps, c->q_eps);
    gguf_writer_u32(w, key_window, (uint32_t)c->window);
    if (c->token >= 0)
        gguf_writer_u32(w, key_token, (uint32_t)c->token);
}
