/* The vision tower in words and as JSON: its shape, what it does to pictures, and, for a video of a
 * common size, the tokens it becomes and the memory it takes. */
#include "engine/inspect_vision.h"

#include "engine/encoder.h"
#include "format/family.h"

#include <string.h>

/* The example: half a minute at a frame a second, 480 lines. */
enum { FRAMES = 32, HEIGHT = 480, WIDTH = 854 };

struct example {
    bool ok;
    int tokens, height, width; /* as the model gets it */
    uint64_t pictures, scratch;
};

static struct example measure(const struct pv_model *m)
{
    const struct pv_video_params p = pv_video_defaults();
    struct example x = { 0 };
    struct encoder *e = NULL;
    struct media media = { 0 };

    if (encoder_open(&e, m->vision, NULL, NULL))
        return x;
    if (!media_plan(&media, vision_config(m->vision), &p, HEIGHT, WIDTH, FRAMES, 1, true, NULL)) {
        x.ok = true;
        x.tokens = media.n_rows;
        x.height = media.height;
        x.width = media.width;
        x.pictures = media_size(&media);
        x.scratch = encoder_size(e, &media);
    }
    media_clear(&media);
    encoder_close(&e);
    return x;
}

/* Bytes of the tensors in a struct of pointers to them. */
static uint64_t sum_tensors(const void *tensors, size_t size)
{
    uint64_t sum = 0;

    for (size_t at = 0; at < size; at += sizeof(void *)) {
        const struct tensor *t;
        memcpy(&t, (const char *)tensors + at, sizeof t);
        sum += t ? t->size : 0;
    }
    return sum;
}

static uint64_t tower_weights(const struct model_file *mf)
{
    uint64_t sum = sum_tensors(model_file_vision_tensors(mf), sizeof(struct vision_tensors));

    for (int i = 0; i < model_file_vision(mf)->n_layers; i++)
        sum += sum_tensors(model_file_vision_layer(mf, i), sizeof(struct vision_layer_tensors));
    return sum;
}

static uint64_t audio_encoder_weights(const struct model_file *mf)
{
    const struct audio_config *c = &model_file_vision(mf)->audio;
    uint64_t sum = sum_tensors(model_file_audio_tensors(mf), sizeof(struct audio_tensors));

    for (int i = 0; i < c->n_layers; i++)
        sum += sum_tensors(model_file_audio_layer(mf, i), sizeof(struct vision_layer_tensors));
    for (int i = 0; i < c->q_layers; i++)
        sum += sum_tensors(model_file_query_layer(mf, i), sizeof(struct query_layer_tensors));
    return sum;
}

static void text_audio_encoder(struct buf *b, const struct model_file *mf)
{
    const struct audio_config *c = &model_file_vision(mf)->audio;

    if (!c->hidden)
        return;
    buf_printf(b,
               "sound        %d layers, hidden %d, ffn %d, %d heads of %d; Q-Former of %d layers, "
               "hidden %d, %.1f MiB\n",
               c->n_layers, c->hidden, c->ffn, c->n_heads, c->head_dim, c->q_layers, c->q_hidden,
               describe_mib(audio_encoder_weights(mf)));
    buf_printf(b, "             %d tokens of %g seconds\n", audio_chunk_tokens(c),
               (double)c->positions / AUDIO_FRAMES_PER_SECOND);
}

static void json_audio_encoder(struct buf *b, const struct model_file *mf)
{
    const struct audio_config *c = &model_file_vision(mf)->audio;

    if (!c->hidden) {
        buf_puts(b, ",\"audio\":null");
        return;
    }
    buf_printf(b,
               ",\"audio\":{\"mel\":%d,\"layers\":%d,\"hidden\":%d,\"ffn\":%d,\"heads\":%d,"
               "\"positions\":%d,\"window\":%d,\"qformer_layers\":%d,\"qformer_hidden\":%d,"
               "\"qformer_ffn\":%d,\"qformer_heads\":%d,\"audio_token\":%d,\"weights\":%llu}",
               c->mel, c->n_layers, c->hidden, c->ffn, c->n_heads, c->positions, c->window,
               c->q_layers, c->q_hidden, c->q_ffn, c->q_heads, (int)c->token,
               (unsigned long long)audio_encoder_weights(mf));
}

static int count_full(const struct vision_config *c)
{
    int n = 0;

    for (int i = 0; i < c->n_layers; i++)
        n += c->full[i];
    return n;
}

/* For a tower that takes pictures of any size. */
static void text_any_size(struct buf *b, const struct vision_config *c)
{
    int step = c->patch * c->merge;

    buf_printf(b, "pictures     sides of multiples of %d pixels, a token for %d x %d of %d frames",
               step, step, step, c->temporal);
    if (c->tokens_per_second > 0)
        buf_printf(b, ", %g a second in time", (double)c->tokens_per_second);
    buf_printf(b, "; stills of %lld to %lld pixels", (long long)c->min_pixels,
               (long long)c->max_pixels);
    if (c->video_max_pixels > 0)
        buf_printf(b, ", all frames of a video of %lld to %lld", (long long)c->video_min_pixels,
                   (long long)c->video_max_pixels);
    if (c->window > 0)
        buf_printf(b, "\nwindows      %d pixels, %d of %d layers see the whole picture", c->window,
                   count_full(c), c->n_layers);
    for (int i = 0; i < c->n_deepstack; i++)
        buf_printf(b, i ? ", %d" : "\ndeepstack    after layer %d", c->deepstack[i]);
    buf_puts(b, "\n");
}

static void text_pictures(struct buf *b, const struct vision_config *c)
{
    int pooled = vision_pooled_side(c);

    if (c->family->tower->fixed)
        buf_printf(b,
                   "pictures     %d x %d pixels, patches of %d, %d tokens a frame; stills in %d "
                   "sizes, shrunk to %d tiles\n",
                   c->image, c->image, c->patch, pooled * pooled, c->n_grid, c->max_tiles);
    else
        text_any_size(b, c);
    buf_printf(b, "normalised   mean %g %g %g, deviation %g %g %g\n", (double)c->mean[0],
               (double)c->mean[1], (double)c->mean[2], (double)c->std[0], (double)c->std[1],
               (double)c->std[2]);
}

void describe_vision_text(struct buf *b, const struct pv_model *m)
{
    const struct vision_config *c = model_file_vision(m->file);
    struct example x;

    if (!c->family)
        return;
    x = measure(m);
    buf_printf(b, "vision       %s, %d layers, hidden %d, ffn %d, %d heads of %d, %.1f MiB\n",
               c->family->title, c->n_layers, c->hidden, c->ffn, c->n_heads, c->head_dim,
               describe_mib(tower_weights(m->file)));
    text_pictures(b, c);
    if (x.ok)
        buf_printf(b,
                   "a video      %d frames of %d x %d: seen as %d x %d, %d tokens, pictures %.1f "
                   "MiB, tower %.1f MiB\n",
                   FRAMES, WIDTH, HEIGHT, x.width, x.height, x.tokens, describe_mib(x.pictures),
                   describe_mib(x.scratch));
    text_audio_encoder(b, m->file);
}

static void json_floats(struct buf *b, const char *key, const float v[3])
{
    buf_printf(b, ",\"%s\":[%.9g,%.9g,%.9g]", key, (double)v[0], (double)v[1], (double)v[2]);
}

static void json_family(struct buf *b, const struct vision_config *c)
{
    bool first = true;

    if (c->family->tower->fixed) {
        buf_printf(b, ",\"image\":%d,\"frame_tokens\":%d,\"max_tiles\":%d,\"grid\":[", c->image,
                   vision_pooled_side(c) * vision_pooled_side(c), c->max_tiles);
        for (int i = 0; i < c->n_grid; i++)
            buf_printf(b, "%s[%d,%d]", i ? "," : "", c->grid[i][0], c->grid[i][1]);
        buf_puts(b, "]");
        return;
    }
    buf_printf(b,
               ",\"window\":%d,\"tokens_per_second\":%.9g,\"min_pixels\":%lld,\"max_pixels\":%lld,"
               "\"full_layers\":[",
               c->window, (double)c->tokens_per_second, (long long)c->min_pixels,
               (long long)c->max_pixels);
    for (int i = 0; i < c->n_layers; i++)
        if (c->full[i]) {
            buf_printf(b, "%s%d", first ? "" : ",", i);
            first = false;
        }
    buf_puts(b, "],\"deepstack_layers\":[");
    for (int i = 0; i < c->n_deepstack; i++)
        buf_printf(b, "%s%d", i ? "," : "", c->deepstack[i]);
    buf_printf(b, "],\"video_min_pixels\":%lld,\"video_max_pixels\":%lld",
               (long long)c->video_min_pixels, (long long)c->video_max_pixels);
}

void describe_vision_json(struct buf *b, const struct pv_model *m)
{
    const struct vision_config *c = model_file_vision(m->file);
    struct example x;

    if (!c->family) {
        buf_puts(b, ",\"vision\":null");
        return;
    }
    x = measure(m);
    buf_printf(b,
               ",\"vision\":{\"kind\":\"%s\",\"layers\":%d,\"hidden\":%d,\"ffn\":%d,\"heads\":%d,"
               "\"head_dim\":%d,\"patch\":%d,\"temporal\":%d,\"merge\":%d,\"out\":%d,\"eps\":%.9g",
               c->family->name, c->n_layers, c->hidden, c->ffn, c->n_heads, c->head_dim, c->patch,
               c->temporal, c->merge, c->out, (double)c->eps);
    json_floats(b, "mean", c->mean);
    json_floats(b, "std", c->std);
    json_family(b, c);
    buf_printf(b, ",\"image_token\":%d,\"video_token\":%d,\"weights\":%llu", (int)c->image_token,
               (int)c->video_token, (unsigned long long)tower_weights(m->file));
    if (x.ok)
        buf_printf(b,
                   ",\"video\":{\"frames\":%d,\"height\":%d,\"width\":%d,\"seen_height\":%d,"
                   "\"seen_width\":%d,\"tokens\":%d,\"pictures\":%llu,\"scratch\":%llu}",
                   FRAMES, HEIGHT, WIDTH, x.height, x.width, x.tokens,
                   (unsigned long long)x.pictures, (unsigned long long)x.scratch);
    buf_puts(b, "}");
    json_audio_encoder(b, m->file);
}
