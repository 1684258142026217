/* A frame's bytes are subtracted when its last reference is released: FFmpeg keeps a reference of
 * ours together with the frame's own. */
#include "video/decoder_memory_av.h"

#include <libavutil/buffer.h>
#include <libavutil/imgutils.h>
#include <libavutil/mem.h>

enum {
    FRAMES_OURS = 4,     /* the one being decoded, the one shown, and two that wait for a verdict */
    REFERENCES_MOST = 16 /* of codecs that are not below */
};

/* Pictures that a codec refers to, at most, and the side data that its decoder keeps with each
 * (vectors of motion, kinds of blocks), in sixteenths of a byte for each pixel. */
static const struct codec_memory {
    enum AVCodecID codec;
    int references, side_data;
} memories[] = {
    { AV_CODEC_ID_H264, 16, 9 },      { AV_CODEC_ID_HEVC, 16, 13 },
    { AV_CODEC_ID_AV1, 9, 4 },        { AV_CODEC_ID_VP9, 8, 4 },
    { AV_CODEC_ID_VP8, 4, 1 },        { AV_CODEC_ID_THEORA, 3, 2 },
    { AV_CODEC_ID_MPEG1VIDEO, 2, 3 }, { AV_CODEC_ID_MPEG2VIDEO, 2, 3 },
    { AV_CODEC_ID_MPEG4, 2, 3 },      { AV_CODEC_ID_H263, 2, 3 },
    { AV_CODEC_ID_FLV1, 2, 3 },       { AV_CODEC_ID_FFV1, 2, 1 },
    { AV_CODEC_ID_GIF, 2, 0 },        { AV_CODEC_ID_APNG, 3, 0 },
    { AV_CODEC_ID_WEBP, 2, 0 },       { AV_CODEC_ID_MJPEG, 0, 0 },
    { AV_CODEC_ID_PRORES, 0, 0 },     { AV_CODEC_ID_PNG, 0, 0 },
    { AV_CODEC_ID_RAWVIDEO, 0, 0 },   { AV_CODEC_ID_BMP, 0, 0 },
    { AV_CODEC_ID_TIFF, 0, 0 },       { AV_CODEC_ID_PPM, 0, 0 },
    { AV_CODEC_ID_PGM, 0, 0 },        { AV_CODEC_ID_NONE, REFERENCES_MOST, 4 }, /* others */
};

static const struct codec_memory *memory_of(enum AVCodecID codec)
{
    const struct codec_memory *m = memories;

    while (m->codec != codec && m->codec != AV_CODEC_ID_NONE)
        m++;
    return m;
}

static uint64_t side_data(enum AVCodecID codec, const AVFrame *f)
{
    return (uint64_t)f->width * (uint64_t)f->height * (unsigned)memory_of(codec)->side_data / 16;
}

struct token {
    struct usage *usage;
    uint64_t bytes;
};

static void token_free(void *opaque, uint8_t *data)
{
    struct token *t = opaque;

    (void)data;
    usage_give(t->usage, t->bytes);
    av_free(t);
}

static int counted_buffer(AVCodecContext *d, AVFrame *f, int flags)
{
    struct usage *m = d->opaque;
    struct token *t;
    int r = avcodec_default_get_buffer2(d, f, flags);

    if (r == AVERROR(ENOMEM))
        usage_starve(m); /* which some decoders take for a damaged frame */
    if (r < 0)
        return r;
    t = av_mallocz(sizeof *t);
    if (t) {
        t->usage = m;
        t->bytes = side_data(d->codec_id, f);
        for (int i = 0; i < AV_NUM_DATA_POINTERS && f->buf[i]; i++)
            t->bytes += (uint64_t)f->buf[i]->size;
        if (!usage_take(m, t->bytes)) {
            av_free(t);
        } else {
            f->opaque_ref = av_buffer_create(NULL, 0, token_free, t, 0);
            if (f->opaque_ref)
                return r;
            token_free(t, NULL);
            usage_starve(m);
        }
    } else {
        usage_starve(m);
    }
    av_frame_unref(f);
    return AVERROR(ENOMEM);
}

bool decoder_memory_is_counted(const AVCodecContext *d)
{
    return d->codec->capabilities & AV_CODEC_CAP_DR1;
}

void decoder_memory_count(AVCodecContext *d, struct usage *m)
{
    if (!decoder_memory_is_counted(d))
        return;
    d->opaque = m;
    d->get_buffer2 = counted_buffer;
}

uint64_t decoder_memory_estimate(const AVCodecContext *d, const AVFrame *like)
{
    int size = av_image_get_buffer_size(like->format, like->width, like->height, 64);
    int frames = memory_of(d->codec_id)->references;

    if (d->codec_id == AV_CODEC_ID_H264 && d->refs > 0 && d->refs < frames)
        frames = d->refs; /* the file says how many */
    frames += FRAMES_OURS + (d->has_b_frames > 0 ? d->has_b_frames : 0);
    return size > 0 ? ((uint64_t)size + side_data(d->codec_id, like)) * (unsigned)frames : 0;
}
