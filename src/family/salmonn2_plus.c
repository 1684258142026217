/* video-SALMONN2+: Qwen2.5-VL with an audio encoder. Its tower and decoder are Qwen2.5-VL's; an
 * audio encoder of Whisper's shape and a Q-Former make one token of each half second of sound. In
 * the prompt the tokens of each pair of frames are followed by those of the sound that is heard
 * meanwhile. */
#include "family/family_parts.h"

#include "base/minmax.h"
#include "lm/positions.h"

#define AUDIO_TOP_SLOT(field) offsetof(struct audio_tensors, field)
#define QUERY(field) offsetof(struct query_layer_tensors, field)
#define AH ADIM_HIDDEN
#define AF ADIM_FFN
#define AQ ADIM_QUERY
#define AQF ADIM_QUERY_FFN

static const struct audio_role top_roles[] = {
    { "conv1.weight", "a.conv1d.1.weight", { AH, ADIM_MEL, ADIM_TAPS }, AUDIO_TOP_SLOT(conv1) },
    { "conv1.bias", "a.conv1d.1.bias", { AH }, AUDIO_TOP_SLOT(conv1_bias) },
    { "conv2.weight", "a.conv1d.2.weight", { AH, AH, ADIM_TAPS }, AUDIO_TOP_SLOT(conv2) },
    { "conv2.bias", "a.conv1d.2.bias", { AH }, AUDIO_TOP_SLOT(conv2_bias) },
    { "embed_positions.weight",
      "a.position_embd.weight",
      { ADIM_POSITIONS, AH },
      AUDIO_TOP_SLOT(position) },
    { "layer_norm.weight", "a.post_ln.weight", { AH }, AUDIO_TOP_SLOT(norm) },
    { "layer_norm.bias", "a.post_ln.bias", { AH }, AUDIO_TOP_SLOT(norm_bias) },
    { "q_tokens", "a.qf.query", { ADIM_ONE, ADIM_ONE, AQ }, AUDIO_TOP_SLOT(query) },
    { "qformer.bert.embeddings.LayerNorm.weight",
      "a.qf.ln.weight",
      { AQ },
      AUDIO_TOP_SLOT(query_norm) },
    { "qformer.bert.embeddings.LayerNorm.bias",
      "a.qf.ln.bias",
      { AQ },
      AUDIO_TOP_SLOT(query_bias) },
    { "audio_proj.weight", "mm.a.proj.weight", { ADIM_OUT, AQ }, AUDIO_TOP_SLOT(proj) },
    { "audio_proj.bias", "mm.a.proj.bias", { ADIM_OUT }, AUDIO_TOP_SLOT(proj_bias) },
};

static const struct audio_role layer_roles[] = {
    { "self_attn_layer_norm.weight", "ln1.weight", { AH }, LAYER(norm1) },
    { "self_attn_layer_norm.bias", "ln1.bias", { AH }, LAYER(norm1_bias) },
    { "self_attn.q_proj.weight", "attn_q.weight", { AH, AH }, LAYER(q) },
    { "self_attn.q_proj.bias", "attn_q.bias", { AH }, LAYER(q_bias) },
    { "self_attn.k_proj.weight", "attn_k.weight", { AH, AH }, LAYER(k) },
    { "self_attn.v_proj.weight", "attn_v.weight", { AH, AH }, LAYER(v) },
    { "self_attn.v_proj.bias", "attn_v.bias", { AH }, LAYER(v_bias) },
    { "self_attn.out_proj.weight", "attn_out.weight", { AH, AH }, LAYER(o) },
    { "self_attn.out_proj.bias", "attn_out.bias", { AH }, LAYER(o_bias) },
    { "final_layer_norm.weight", "ln2.weight", { AH }, LAYER(norm2) },
    { "final_layer_norm.bias", "ln2.bias", { AH }, LAYER(norm2_bias) },
    { "fc1.weight", "ffn_up.weight", { AF, AH }, LAYER(up) },
    { "fc1.bias", "ffn_up.bias", { AF }, LAYER(up_bias) },
    { "fc2.weight", "ffn_down.weight", { AH, AF }, LAYER(down) },
    { "fc2.bias", "ffn_down.bias", { AH }, LAYER(down_bias) },
};

static const struct audio_role query_roles[] = {
    { "attention.self.value.weight", "self_v.weight", { AQ, AQ }, QUERY(self_v) },
    { "attention.self.value.bias", "self_v.bias", { AQ }, QUERY(self_v_bias) },
    { "attention.output.dense.weight", "self_out.weight", { AQ, AQ }, QUERY(self_o) },
    { "attention.output.dense.bias", "self_out.bias", { AQ }, QUERY(self_o_bias) },
    { "attention.output.LayerNorm.weight", "self_ln.weight", { AQ }, QUERY(self_norm) },
    { "attention.output.LayerNorm.bias", "self_ln.bias", { AQ }, QUERY(self_norm_bias) },
    { "crossattention.self.query.weight", "cross_q.weight", { AQ, AQ }, QUERY(q) },
    { "crossattention.self.query.bias", "cross_q.bias", { AQ }, QUERY(q_bias) },
    { "crossattention.self.key.weight", "cross_k.weight", { AQ, AH }, QUERY(k) },
    { "crossattention.self.key.bias", "cross_k.bias", { AQ }, QUERY(k_bias) },
    { "crossattention.self.value.weight", "cross_v.weight", { AQ, AH }, QUERY(v) },
    { "crossattention.self.value.bias", "cross_v.bias", { AQ }, QUERY(v_bias) },
    { "crossattention.output.dense.weight", "cross_out.weight", { AQ, AQ }, QUERY(o) },
    { "crossattention.output.dense.bias", "cross_out.bias", { AQ }, QUERY(o_bias) },
    { "crossattention.output.LayerNorm.weight", "cross_ln.weight", { AQ }, QUERY(norm) },
    { "crossattention.output.LayerNorm.bias", "cross_ln.bias", { AQ }, QUERY(norm_bias) },
    { "intermediate_query.dense.weight", "ffn_up.weight", { AQF, AQ }, QUERY(up) },
    { "intermediate_query.dense.bias", "ffn_up.bias", { AQF }, QUERY(up_bias) },
    { "output_query.dense.weight", "ffn_down.weight", { AQ, AQF }, QUERY(down) },
    { "output_query.dense.bias", "ffn_down.bias", { AQ }, QUERY(down_bias) },
    { "output_query.LayerNorm.weight", "ffn_ln.weight", { AQ }, QUERY(ffn_norm) },
    { "output_query.LayerNorm.bias", "ffn_ln.bias", { AQ }, QUERY(ffn_norm_bias) },
};

static const struct family_audio_encoder audio_encoder = {
    .roles = { [AUDIO_TOP] = { top_roles, COUNT(top_roles), "audio." },
               [AUDIO_LAYERS] = { layer_roles, COUNT(layer_roles), "audio.layers." },
               [AUDIO_QUERY_LAYERS] = { query_roles, COUNT(query_roles),
                                        "audio.qformer.bert.encoder.layer." } },
    .n_heads = 20,
    .q_heads = 12,
    .window = 25,
    .eps = 1e-5f,
    .q_eps = 1e-12f,
};

/* ---- frames ---- */

enum { INTERVALS = 10 /* frames a second, as far as the bounds allow */, MAX_FRAMES = 768 };
/* Of one frame; the larger the fewer frames there are. */
static const int64_t FRAME_PIXELS = 61250, MIN_PIXELS = 3136;

static enum pv_status frame_size(struct frame_size *out, const struct vision_config *c,
                                 const struct pv_video_params *p, int height, int width,
                                 int n_frames, struct pv_error *err)
{
    struct frame_size r = { .kind = RESIZE_PILLOW };
    int most_frames = p->max_frames ? p->max_frames : MAX_FRAMES;
    int64_t min = p->min_pixels ? p->min_pixels : MIN_PIXELS, max = p->max_pixels;
    enum pv_status s;
    if (n_frames == 0)
        return qwen_frame_size(out, c, p, height, width, 0, err);
    if (max == 0) {
        max = FRAME_PIXELS;
        if (n_frames < most_frames)
            max = (int64_t)(0.95 * most_frames / n_frames * (double)FRAME_PIXELS);
    }
    s = smart_resize(&r.height, &r.width, height, width, c->patch * c->merge, min < max ? min : max,
                     max, err);
    if (!s)
        *out = r;
    return s;
}

static const struct family_frames frames = {
    .rule = CHOOSE_ONCE,
    .fps = INTERVALS,
    .min_frames = 16,
    .max_frames = MAX_FRAMES,
    .size = frame_size,
};

/* ---- rows and positions ---- */

enum { TOKENS_PER_SECOND = 2 };

static enum pv_status plan(struct media *m, const struct vision_config *c,
                           const struct pv_video_params *p, double sample_fps, bool alone,
                           struct pv_error *err)
{
    enum pv_status s = qwen_plan(m, c, p, sample_fps, alone, err);
    m->tokens_per_second = TOKENS_PER_SECOND;
    m->time_rule = p->time_rule == PV_TIME_AUTO ? PV_TIME_UPSTREAM : p->time_rule;
    return s;
}

/* The time of slice t: in training by the clock; the released code has lost the seconds and counts
 * each slice as one. */
static int32_t slice_time(const struct media *m, int t)
{
    if (m->time_rule == PV_TIME_TRAINING)
        return (int32_t)((float)t * m->slice_seconds * TOKENS_PER_SECOND);
    return m->video ? t * TOKENS_PER_SECOND : 0;
}

static void picture_position(const struct media *m, int32_t start, int row, int32_t pos[3])
{
    int at = row % m->unit_rows;
    pos[0] = start + slice_time(m, row / m->unit_rows);
    pos[1] = start + at / m->merged_w;
    pos[2] = start + at % m->merged_w;
}

/* Where text begins after pictures that begin at `start`. */
static int32_t after_pictures(const struct media *m, int32_t start)
{
    return start + 1 +
           max_int(slice_time(m, m->n_units - 1), max_int(m->merged_h, m->merged_w) - 1);
}

/* As the released code has it: it does not know of sound, so the first rows, as many as there are
 * of pictures, count as pictures, and all others as text. */
static int32_t upstream_positions(const struct media *m, int32_t start, int n, int32_t (*pos)[3])
{
    int pictures = media_picture_rows(m);
    if (pictures == 0)
        return positions_text(pos, start, n);
    for (int i = 0; i < pictures; i++)
        picture_position(m, start, i, pos[i]);
    return positions_text(pos + pictures, after_pictures(m, start), n - pictures);
}

/* As in training: sound has the time of its half second, and text follows the last time, whatever
 * the size of the pictures. */
static int32_t training_positions(const struct media *m, int32_t start, int n, int32_t (*pos)[3])
{
    int pictures = media_picture_rows(m), sound = media_sound_rows(m);
    for (int i = 0; i < n; i++) {
        int row = media_row(m, i, NULL), at = row - pictures;
        if (at < 0) {
            picture_position(m, start, row, pos[i]);
            continue;
        }
        pos[i][0] = start + at;
        pos[i][1] = start + (pictures ? 0 : at);
        pos[i][2] = start + (pictures ? at : 0);
    }
    if (sound == 0)
        return after_pictures(m, start);
    return start + max_int(sound, pictures ? 1 + slice_time(m, m->n_units - 1) : 0);
}

/* A media item is one run. */
static int32_t positions(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3])
{
    (void)row;
    return m->time_rule == PV_TIME_TRAINING ? training_positions(m, start, n, pos)
                                            : upstream_positions(m, start, n, pos);
}

static const struct family_media media = {
    .plan = plan,
    .positions = positions,
    .lined = true,
};

static const struct family_sign signs[] = { { "audio_config", NULL }, { NULL, NULL } };

const struct family family_salmonn2_plus = {
    .name = "video_salmonn2_plus",
    .title = "video-SALMONN2+",
    .number = 7,
    .types = (const char *const[]){ "qwen2_5_vl", NULL },
    .signs = signs,
    .arch = "qwen2vl",
    .decoder = { .qkv_bias = true, .mrope = MROPE_SECTIONS },
    .tower = &qwen2_5_vl_tower,
    .audio_encoder = &audio_encoder,
    .frames = &frames,
    .media = &media,
    .lambda = 0.5,
};
