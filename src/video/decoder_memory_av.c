/* A frame's bytes are given back when its last reference goes: FFmpeg carries a reference of ours
 * along with the frame's own. */
#include "video/decoder_memory_av.h"

#include <libavutil/buffer.h>
#include <libavutil/imgutils.h>
#include <libavutil/mem.h>

enum {
    FRAMES_OURS = 4,     /* the one being decoded, the one shown, and two that wait for a verdict */
    REFERENCES_MOST = 16 /* of codecs that are not below */
};

/* Pictures that a codec refers to, at most. */
static const struct {
    enum AVCodecID codec;
    int n;
} references[] = {
    { AV_CODEC_ID_H264, 16 },      { AV_CODEC_ID_HEVC, 16 },      { AV_CODEC_ID_AV1, 9 },
    { AV_CODEC_ID_VP9, 8 },        { AV_CODEC_ID_VP8, 4 },        { AV_CODEC_ID_THEORA, 3 },
    { AV_CODEC_ID_MPEG1VIDEO, 2 }, { AV_CODEC_ID_MPEG2VIDEO, 2 }, { AV_CODEC_ID_MPEG4, 2 },
    { AV_CODEC_ID_H263, 2 },       { AV_CODEC_ID_FLV1, 2 },       { AV_CODEC_ID_FFV1, 2 },
    { AV_CODEC_ID_GIF, 2 },        { AV_CODEC_ID_APNG, 3 },       { AV_CODEC_ID_WEBP, 2 },
    { AV_CODEC_ID_MJPEG, 0 },      { AV_CODEC_ID_PRORES, 0 },     { AV_CODEC_ID_PNG, 0 },
    { AV_CODEC_ID_RAWVIDEO, 0 },   { AV_CODEC_ID_BMP, 0 },        { AV_CODEC_ID_TIFF, 0 },
    { AV_CODEC_ID_PPM, 0 },        { AV_CODEC_ID_PGM, 0 },
};

struct token {
    struct meter *meter;
    uint64_t bytes;
};

static void token_free(void *opaque, uint8_t *data)
{
    struct token *t = opaque;

    (void)data;
    meter_give(t->meter, t->bytes);
    av_free(t);
}

static int counted_buffer(AVCodecContext *d, AVFrame *f, int flags)
{
    struct meter *m = d->opaque;
    struct token *t;
    int r = avcodec_default_get_buffer2(d, f, flags);

    if (r < 0)
        return r;
    t = av_mallocz(sizeof *t);
    if (t) {
        t->meter = m;
        for (int i = 0; i < AV_NUM_DATA_POINTERS && f->buf[i]; i++)
            t->bytes += (uint64_t)f->buf[i]->size;
        if (!meter_take(m, t->bytes)) {
            av_free(t);
        } else {
            f->opaque_ref = av_buffer_create(NULL, 0, token_free, t, 0);
            if (f->opaque_ref)
                return r;
            token_free(t, NULL);
        }
    }
    av_frame_unref(f);
    return AVERROR(ENOMEM);
}

bool decoder_memory_is_counted(const AVCodecContext *d)
{
    return d->codec->capabilities & AV_CODEC_CAP_DR1;
}

void decoder_memory_count(AVCodecContext *d, struct meter *m)
{
    if (!decoder_memory_is_counted(d))
        return;
    d->opaque = m;
    d->get_buffer2 = counted_buffer;
}

uint64_t decoder_memory_estimate(const AVCodecContext *d, const AVFrame *like)
{
    int frames = REFERENCES_MOST;
    int size = av_image_get_buffer_size(like->format, like->width, like->height, 64);

    for (size_t i = 0; i < sizeof references / sizeof *references; i++)
        if (references[i].codec == d->codec_id)
            frames = references[i].n;
    if (d->codec_id == AV_CODEC_ID_H264 && d->refs > 0 && d->refs < frames)
        frames = d->refs; /* the file says how many */
    frames += FRAMES_OURS + (d->has_b_frames > 0 ? d->has_b_frames : 0);
    return size > 0 ? (uint64_t)size * (unsigned)frames : 0;
}
