/* Clips with a film, sound or both, made by FFmpeg's encoders and muxers: tones at the
 * times a test wants. A tone's phase is that of the file's own time, so what is to be heard at any
 * moment is known. */
#ifndef PV_TESTS_MAKE_CLIP_H
#define PV_TESTS_MAKE_CLIP_H

#include "scratch.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/channel_layout.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIP_RUNS = 4, CLIP_SIDE = 32, CLIP_FPS = 25, CLIP_BLOCK = 1000 };

struct clip_run {
    double time, seconds; /* of the file */
    double hz;            /* 0.25 high, in all channels, */
    double from;          /* from this time on; silence before */
};

struct clip {
    const char *container;
    const char *codec; /* FFmpeg's name of the encoder; NULL: no sound */
    int rate;
    const char *layout;
    struct clip_run run[CLIP_RUNS]; /* up to the first of 0 seconds */
    double film, film_seconds;      /* when it begins; 0 seconds: there is none */
    double flash;                   /* frames from here on are white, those before black; 0: none */
    bool below_zero;                /* times may be negative */
    bool cover;                     /* a picture that goes with the sound */
};

static inline void clip_need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "a clip cannot be made: %s\n", what);
    exit(1);
}

static inline bool clip_can(const char *encoder)
{
    return avcodec_find_encoder_by_name(encoder) != NULL;
}

static inline void clip_put(const AVFrame *f, int channel, int channels, int i, double x)
{
    bool planar = av_sample_fmt_is_planar(f->format);
    int at = planar ? i : i * channels + channel;
    uint8_t *to = f->extended_data[planar ? channel : 0];

    switch (av_get_packed_sample_fmt(f->format)) {
    case AV_SAMPLE_FMT_U8:
        to[at] = (uint8_t)lrint(128 + 127 * x);
        break;
    case AV_SAMPLE_FMT_S16:
        ((int16_t *)(void *)to)[at] = (int16_t)lrint(32767 * x);
        break;
    case AV_SAMPLE_FMT_S32:
        ((int32_t *)(void *)to)[at] = (int32_t)lrint(2147483000.0 * x);
        break;
    case AV_SAMPLE_FMT_FLT:
        ((float *)(void *)to)[at] = (float)x;
        break;
    default:
        ((double *)(void *)to)[at] = x;
    }
}

/* What the encoder has ready, into the file. */
static inline void clip_write(AVFormatContext *to, AVCodecContext *c, const AVStream *stream,
                              const AVFrame *f)
{
    AVPacket *p = av_packet_alloc();

    clip_need(p && avcodec_send_frame(c, f) >= 0, "a frame does not encode");
    while (avcodec_receive_packet(c, p) >= 0) {
        av_packet_rescale_ts(p, c->time_base, stream->time_base);
        p->stream_index = stream->index;
        clip_need(av_interleaved_write_frame(to, p) >= 0, "a packet is not written");
    }
    av_packet_free(&p);
}

static inline AVCodecContext *clip_encoder(AVFormatContext *to, const char *name, AVStream **stream)
{
    const AVCodec *codec = avcodec_find_encoder_by_name(name);
    AVCodecContext *c = codec ? avcodec_alloc_context3(codec) : NULL;

    clip_need(c, name);
    *stream = avformat_new_stream(to, NULL);
    c->strict_std_compliance = FF_COMPLIANCE_EXPERIMENTAL;
    c->thread_count = 1;
    c->flags |= AV_CODEC_FLAG_BITEXACT;
    if (to->oformat->flags & AVFMT_GLOBALHEADER)
        c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    return c;
}

static inline void clip_open(AVCodecContext *c, AVStream *stream)
{
    clip_need(avcodec_open2(c, c->codec, NULL) >= 0, c->codec->name);
    clip_need(avcodec_parameters_from_context(stream->codecpar, c) >= 0, "parameters");
    stream->time_base = c->time_base;
}

static inline AVCodecContext *clip_sound(AVFormatContext *to, const struct clip *k,
                                         AVStream **stream)
{
    AVCodecContext *c = clip_encoder(to, k->codec, stream);

    c->sample_fmt = c->codec->sample_fmts[0];
    c->sample_rate = k->rate;
    c->bit_rate = 192000;
    c->time_base = (AVRational){ 1, k->rate };
    clip_need(av_channel_layout_from_string(&c->ch_layout, k->layout) >= 0, k->layout);
    clip_open(c, *stream);
    return c;
}

static inline AVCodecContext *clip_film(AVFormatContext *to, AVStream **stream)
{
    AVCodecContext *c = clip_encoder(to, "mpeg4", stream);

    c->width = c->height = CLIP_SIDE;
    c->pix_fmt = AV_PIX_FMT_YUV420P;
    c->time_base = (AVRational){ 1, CLIP_FPS };
    c->framerate = (AVRational){ CLIP_FPS, 1 };
    clip_open(c, *stream);
    return c;
}

static inline void clip_write_run(AVFormatContext *to, AVCodecContext *c, const AVStream *stream,
                                  const struct clip_run *run)
{
    int64_t first = llrint(run->time * c->sample_rate);
    int64_t end = first + llrint(run->seconds * c->sample_rate);
    int most = c->frame_size > 0 ? c->frame_size : CLIP_BLOCK, channels = c->ch_layout.nb_channels;

    int64_t loud = llrint(run->from * c->sample_rate);

    for (int64_t at = first; at < end; at += most) {
        AVFrame *f = av_frame_alloc();
        clip_need(f, "memory");
        f->format = c->sample_fmt;
        f->sample_rate = c->sample_rate;
        f->nb_samples = (int)(end - at < most ? end - at : most);
        clip_need(av_channel_layout_copy(&f->ch_layout, &c->ch_layout) >= 0 &&
                      av_frame_get_buffer(f, 0) >= 0,
                  "memory");
        f->pts = at;
        for (int i = 0; i < f->nb_samples; i++)
            for (int ch = 0; ch < channels; ch++)
                clip_put(f, ch, channels, i,
                         (at + i < loud ? 0 : 0.25) *
                             sin(6.283185307179586 * run->hz * (double)(at + i) / c->sample_rate));
        clip_write(to, c, stream, f);
        av_frame_free(&f);
    }
}

static inline void clip_write_film(AVFormatContext *to, AVCodecContext *c, const AVStream *stream,
                                   const struct clip *k)
{
    for (int i = 0; i < (int)lrint(k->film_seconds * CLIP_FPS); i++) {
        AVFrame *f = av_frame_alloc();
        clip_need(f, "memory");
        f->format = c->pix_fmt;
        f->width = f->height = CLIP_SIDE;
        clip_need(av_frame_get_buffer(f, 0) >= 0, "memory");
        f->pts = lrint(k->film * CLIP_FPS) + i;
        for (int plane = 0; plane < 3; plane++) {
            bool white = k->flash > 0 && f->pts >= lrint(k->flash * CLIP_FPS);
            int side = plane ? CLIP_SIDE / 2 : CLIP_SIDE;
            for (int y = 0; y < side; y++)
                memset(f->data[plane] + (ptrdiff_t)y * f->linesize[plane],
                       plane   ? 128
                       : white ? 235
                               : 16,
                       (size_t)side);
        }
        clip_write(to, c, stream, f);
        av_frame_free(&f);
    }
}

/* tests/data/video/still.png, as a picture of the file. */
static inline AVStream *clip_cover(AVFormatContext *to)
{
    AVStream *s = avformat_new_stream(to, NULL);

    clip_need(s, "memory");
    s->codecpar->codec_type = AVMEDIA_TYPE_VIDEO;
    s->codecpar->codec_id = AV_CODEC_ID_PNG;
    s->codecpar->width = 64;
    s->codecpar->height = 48;
    s->disposition = AV_DISPOSITION_ATTACHED_PIC;
    return s;
}

static inline void clip_write_cover(AVFormatContext *to, const AVStream *stream)
{
    FILE *f = fopen("tests/data/video/still.png", "rb");
    AVPacket *p = av_packet_alloc();

    clip_need(f && p && av_new_packet(p, 1 << 16) >= 0, "still.png");
    p->size = (int)fread(p->data, 1, 1 << 16, f);
    fclose(f);
    p->stream_index = stream->index;
    p->flags = AV_PKT_FLAG_KEY;
    p->pts = p->dts = 0;
    clip_need(av_interleaved_write_frame(to, p) >= 0, "its cover");
    av_packet_free(&p);
}

/* A file's bytes; free them. */
static inline uint8_t *clip_load(const char *path, size_t *size)
{
    enum { MOST = 64 << 20 };
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(MOST), *fitting;

    clip_need(f && data, path);
    *size = fread(data, 1, MOST, f);
    fclose(f);
    fitting = realloc(data, *size); /* so that reading past its end is found */
    clip_need(*size > 0 && *size < MOST && fitting, path);
    return fitting;
}

/* The clip's bytes; free them. A program that cannot make its clips ends. */
static inline uint8_t *clip_make(const struct clip *k, size_t *size)
{
    AVCodecContext *sound = NULL, *film = NULL;
    AVStream *of_sound = NULL, *of_film = NULL, *of_cover = NULL;
    AVFormatContext *to = NULL;
    char path[256];

    snprintf(path, sizeof path, "%s/clip", scratch_dir());
    av_log_set_level(AV_LOG_QUIET);
    clip_need(avformat_alloc_output_context2(&to, NULL, k->container, NULL) >= 0 &&
                  avio_open(&to->pb, path, AVIO_FLAG_WRITE) >= 0,
              k->container);
    to->flags |= AVFMT_FLAG_BITEXACT;
    if (k->below_zero)
        to->avoid_negative_ts = AVFMT_AVOID_NEG_TS_DISABLED;
    if (k->film_seconds > 0)
        film = clip_film(to, &of_film);
    if (k->codec)
        sound = clip_sound(to, k, &of_sound);
    if (k->cover)
        of_cover = clip_cover(to);
    clip_need(avformat_write_header(to, NULL) >= 0, k->container);
    for (int i = 0; sound && i < CLIP_RUNS && k->run[i].seconds > 0; i++)
        clip_write_run(to, sound, of_sound, &k->run[i]);
    if (film) {
        clip_write_film(to, film, of_film, k);
        clip_write(to, film, of_film, NULL);
    }
    if (sound)
        clip_write(to, sound, of_sound, NULL);
    if (of_cover)
        clip_write_cover(to, of_cover);
    clip_need(av_write_trailer(to) >= 0, "its end");
    avcodec_free_context(&film);
    avcodec_free_context(&sound);
    avio_closep(&to->pb);
    avformat_free_context(to);
    return clip_load(path, size);
}

#endif
