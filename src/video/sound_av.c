/* Packets are decoded one after the other and resampled in runs: as long as the times of frames
 * agree with the number of samples that came before, within SLACK, the samples follow each other
 * and their times are ignored, since many containers round them. Where a frame is later, the run
 * ends, silence follows up to its time, and another run begins; so does one where rate, layout or
 * format of samples change. Of a frame that begins before the end of the last one, only what comes
 * after that end counts. Times that jump far back (files joined without care) or further ahead than
 * a clip may be long (damage) are ignored.
 *
 * Runs are resampled and mixed by libswresample with its default filter, and with its default
 * matrices for floats, so that stereo becomes (left + right) / sqrt(2): as torchcodec and decord do
 * it, with which the reference reads its sound. */
#include "video/sound_av.h"

#include "audio/sound.h"
#include "video/decoder_memory_av.h"

#include <libavcodec/avcodec.h>
#include <libavutil/channel_layout.h>
#include <libavutil/mem.h>
#include <libswresample/swresample.h>

#include <math.h>

#define SLACK 0.04     /* seconds by which times may differ from the count of samples */
#define JUMP_BACK 10.0 /* seconds: times that jump further back are not believed */
#define PREROLL 1.0    /* seconds decoded before the start: codecs need some packets to settle */

enum {
    PIECE = 4096,          /* samples of one channel that are resampled at once */
    RATE_LEAST = 2000,     /* of samples in a file, in a second */
    RATE_MOST = 768000,    /* so that a piece gives at most 8 * PIECE samples */
    CHANNELS_MOST = 64,    /* that libswresample mixes */
    FRAME_MOST = 1 << 22,  /* samples of one frame and channel */
    OUT_SIZE = 10 * PIECE, /* of a piece, and what the filter held back */
    ERRORS_MAX = 64        /* failures of the decoder in a row, without a packet in between */
};

struct sound_reader {
    struct demuxer *in;
    const struct sound_wish *wish;
    double origin; /* NAN: until there is a frame */
    AVCodecContext *decoder;
    AVFrame *frame;
    int n_decoded, n_lost; /* frames; packets */
    float *out;            /* [OUT_SIZE] */

    /* The run. */
    SwrContext *swr; /* NULL: none has begun */
    int rate, format;
    AVChannelLayout layout;
    double run_time; /* second of the clip at which it begins, */
    int64_t run_in;  /* samples of the file since, */
    int64_t run_at;  /* and the place of the next one that comes out */

    int64_t from, to; /* places wanted: samples at SOUND_RATE from the start of the clip on */
    int64_t at;       /* the next to be given; `to`: done */
    int64_t most;     /* places that the limit of seconds allows */
};

/* --- giving samples ------------------------------------------------------------------------- */

static enum pv_status give(struct sound_reader *r, const float *samples, int64_t n,
                           struct pv_error *err)
{
    enum pv_status s = usage_check(r->in->hand, err);

    if (s || n <= 0)
        return s;
    s = r->wish->fn(r->wish->user, samples, (size_t)n, err);
    if (s)
        fail_names(err, r->in->path);
    r->at += n;
    return s;
}

/* Silence up to a place. */
static enum pv_status give_silence(struct sound_reader *r, int64_t place, struct pv_error *err)
{
    static const float silence[PIECE];
    enum pv_status s = PV_OK;

    place = place < r->to ? place : r->to;
    if (place > r->most && r->at < place)
        return fail(err, PV_E_LIMIT, "%s: sound at %.1f seconds, at most %g are allowed",
                    r->in->path, (double)place / SOUND_RATE, r->in->limits->seconds);
    while (!s && r->at < place)
        s = give(r, silence, place - r->at < PIECE ? place - r->at : PIECE, err);
    return s;
}

/* Samples that belong at r->run_at. */
static enum pv_status give_run(struct sound_reader *r, const float *samples, int64_t n,
                               struct pv_error *err)
{
    int64_t skip = r->at > r->run_at ? r->at - r->run_at : 0, end = r->run_at + n;
    enum pv_status s;

    end = end < r->to ? end : r->to;
    if (end > r->most)
        return fail(err, PV_E_LIMIT, "%s: more than the %g seconds of sound that are allowed",
                    r->in->path, r->in->limits->seconds);
    s = give_silence(r, r->run_at, err);
    if (!s && r->at < end)
        s = give(r, samples + skip, end - r->at, err);
    r->run_at += n;
    return s;
}

/* --- runs ----------------------------------------------------------------------------------- */

/* What the filter holds back. */
static enum pv_status run_end(struct sound_reader *r, struct pv_error *err)
{
    uint8_t *out = (uint8_t *)r->out;
    enum pv_status s = PV_OK;
    int n = 1;

    while (!s && r->swr && n > 0 && r->at < r->to) {
        n = swr_convert(r->swr, &out, OUT_SIZE, NULL, 0);
        if (n > 0)
            s = give_run(r, r->out, n, err);
    }
    swr_free(&r->swr);
    return s;
}

/* Layouts that libswresample cannot mix by itself: the mean of all channels. */
static int mix_evenly(struct sound_reader *r)
{
    double matrix[CHANNELS_MOST];
    int n = r->layout.nb_channels;

    for (int i = 0; i < n; i++)
        matrix[i] = 1.0 / n;
    swr_close(r->swr);
    return swr_set_matrix(r->swr, matrix, n);
}

static enum pv_status run_begin(struct sound_reader *r, double time, struct pv_error *err)
{
    AVChannelLayout mono = AV_CHANNEL_LAYOUT_MONO;
    const AVFrame *f = r->frame;
    int code;

    if (f->sample_rate < RATE_LEAST || f->sample_rate > RATE_MOST)
        return fail(err, PV_E_UNSUPPORTED, "%s: sound of %d samples a second, %d to %d are read",
                    r->in->path, f->sample_rate, RATE_LEAST, RATE_MOST);
    if (f->ch_layout.nb_channels < 1 || f->ch_layout.nb_channels > CHANNELS_MOST)
        return fail(err, PV_E_UNSUPPORTED, "%s: sound of %d channels, at most %d are read",
                    r->in->path, f->ch_layout.nb_channels, CHANNELS_MOST);
    r->rate = f->sample_rate;
    r->format = f->format;
    av_channel_layout_uninit(&r->layout);
    if (f->ch_layout.order == AV_CHANNEL_ORDER_UNSPEC)
        av_channel_layout_default(&r->layout, f->ch_layout.nb_channels);
    else if (av_channel_layout_copy(&r->layout, &f->ch_layout) < 0)
        return fail_nomem(err, sizeof r->layout);
    code = swr_alloc_set_opts2(&r->swr, &mono, AV_SAMPLE_FMT_FLTP, SOUND_RATE, &r->layout,
                               r->format, r->rate, 0, NULL);
    if (code >= 0 && swr_init(r->swr) < 0) {
        code = mix_evenly(r);
        if (code >= 0)
            code = swr_init(r->swr);
    }
    if (code < 0) {
        swr_free(&r->swr);
        return demuxer_fail(r->in, "its sound cannot be resampled", code, err);
    }
    r->run_time = time;
    r->run_in = 0;
    r->run_at = sound_place(time);
    return PV_OK;
}

static bool is_same_kind(const struct sound_reader *r)
{
    const AVFrame *f = r->frame;

    return f->sample_rate == r->rate && f->format == r->format &&
           f->ch_layout.nb_channels == r->layout.nb_channels &&
           (f->ch_layout.order == AV_CHANNEL_ORDER_UNSPEC ||
            av_channel_layout_compare(&f->ch_layout, &r->layout) == 0);
}

/* The frame's samples from `first` on, in pieces. */
static enum pv_status run_add(struct sound_reader *r, int first, struct pv_error *err)
{
    const AVFrame *f = r->frame;
    bool planar = av_sample_fmt_is_planar(f->format);
    int channels = f->ch_layout.nb_channels, n, got;
    size_t step = (size_t)av_get_bytes_per_sample(f->format) * (planar ? 1 : (size_t)channels);
    uint8_t *out = (uint8_t *)r->out;
    const uint8_t *from[CHANNELS_MOST];
    enum pv_status s = PV_OK;

    for (; !s && first < f->nb_samples && r->at < r->to; first += n) {
        n = f->nb_samples - first < PIECE ? f->nb_samples - first : PIECE;
        for (int c = 0; c < (planar ? channels : 1); c++)
            from[c] = f->extended_data[c] + (size_t)first * step;
        got = swr_convert(r->swr, &out, OUT_SIZE, from, n);
        if (got < 0)
            return demuxer_fail(r->in, "its sound cannot be resampled", got, err);
        r->run_in += n;
        s = give_run(r, r->out, got, err);
    }
    return s;
}

/* --- frames --------------------------------------------------------------------------------- */

/* Second of the clip at which a time of the stream lies; NAN: not known. */
static double clip_time(const struct sound_reader *r, int64_t pts)
{
    if (pts == AV_NOPTS_VALUE)
        return NAN;
    return (double)pts * av_q2d(demuxer_stream(r->in)->time_base) - r->origin;
}

/* The first frame is where sound begins, if nothing else says so: the first packet can begin
 * earlier, with samples that only start the decoder. */
static void origin_set(struct sound_reader *r)
{
    int64_t pts = r->frame->best_effort_timestamp;

    if (!isnan(r->origin))
        return;
    r->origin = 0;
    if (pts != AV_NOPTS_VALUE)
        r->origin = clip_time(r, pts);
}

static enum pv_status frame_add(struct sound_reader *r, struct pv_error *err)
{
    double expected = r->swr ? r->run_time + (double)r->run_in / r->rate : 0, time;
    enum pv_status s = PV_OK;
    int first = 0;

    origin_set(r);
    time = clip_time(r, r->frame->best_effort_timestamp);
    if (isnan(time) || time > expected + r->in->limits->seconds ||
        (r->swr && (time < expected - JUMP_BACK || fabs(time - expected) <= SLACK)))
        time = expected;
    if (r->swr && time < expected) {
        double overlap = (expected - time) * r->frame->sample_rate;
        if (overlap >= r->frame->nb_samples)
            return PV_OK;
        first = (int)overlap;
        time = expected;
    }
    if (r->swr && (time > expected || !is_same_kind(r)))
        s = run_end(r, err);
    if (!s && !r->swr)
        s = run_begin(r, time, err);
    return s ? s : run_add(r, first, err);
}

/* All frames that the decoder has ready. */
static enum pv_status frames_take(struct sound_reader *r, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    for (int errors = 0; !s && errors < ERRORS_MAX && r->at < r->to;) {
        int code = avcodec_receive_frame(r->decoder, r->frame);
        if (code == AVERROR(EAGAIN) || code == AVERROR_EOF)
            break;
        if (code == AVERROR(ENOMEM))
            return demuxer_fail(r->in, "decoding", code, err);
        if (code < 0)
            (void)usage_doubt(r->in->hand->usage);
        s = usage_check(r->in->hand, err);
        if (code < 0) {
            r->n_lost += errors++ == 0;
            continue;
        }
        r->n_decoded++;
        if (!s && r->frame->nb_samples > 0)
            s = frame_add(r, err);
        av_frame_unref(r->frame);
    }
    return s;
}

/* --- packets -------------------------------------------------------------------------------- */

static enum pv_status decoder_open(struct sound_reader *r, struct pv_error *err)
{
    const AVStream *stream = demuxer_stream(r->in);
    const AVCodec *codec = avcodec_find_decoder(stream->codecpar->codec_id);
    int code;

    if (!codec)
        return fail(err, PV_E_UNSUPPORTED, "%s: there is no decoder for its sound's codec, %s",
                    r->in->path, avcodec_get_name(stream->codecpar->codec_id));
    r->decoder = avcodec_alloc_context3(codec);
    if (!r->decoder)
        return fail_nomem(err, sizeof *r->decoder);
    code = avcodec_parameters_to_context(r->decoder, stream->codecpar);
    r->decoder->thread_count = 1;
    r->decoder->pkt_timebase = stream->time_base;
    r->decoder->max_samples = FRAME_MOST;
    decoder_memory_count(r->decoder, r->in->hand->usage);
    if (code >= 0)
        code = avcodec_open2(r->decoder, codec, NULL);
    return code < 0 ? demuxer_fail(r->in, "the decoder of its sound does not open", code, err)
                    : PV_OK;
}

/* Whether a packet is so long before the start that it need not be decoded. */
static bool is_early(const struct sound_reader *r, const AVPacket *p)
{
    double length = (double)p->duration * av_q2d(demuxer_stream(r->in)->time_base);

    return length > 0 && clip_time(r, p->pts) + length < r->wish->start - PREROLL;
}

static enum pv_status packets_read(struct sound_reader *r, struct pv_error *err)
{
    int64_t n_packets = 0;
    enum pv_status s = PV_OK;

    while (!s && r->at < r->to && demuxer_read(r->in)) {
        s = usage_check(r->in->hand, err);
        if (s || is_early(r, r->in->packet))
            continue;
        n_packets++;
        if (avcodec_send_packet(r->decoder, r->in->packet) < 0) {
            (void)usage_doubt(r->in->hand->usage);
            r->n_lost++;
        }
        s = frames_take(r, err);
    }
    if (!s)
        s = usage_check(r->in->hand, err);
    if (!s && r->at < r->to) {
        avcodec_send_packet(r->decoder, NULL);
        s = frames_take(r, err);
    }
    if (!s && r->at < r->to)
        s = run_end(r, err);
    if (!s && n_packets > 0 && r->n_decoded == 0)
        s = fail(err, PV_E_FORMAT, "%s: none of its sound decodes", r->in->path);
    return s;
}

static enum pv_status stream_read(struct sound_reader *r, struct pv_error *err)
{
    enum pv_status s = decoder_open(r, err);

    r->origin = r->wish->origin;
    r->from = r->at = sound_place(r->wish->start);
    r->to = sound_place(r->wish->end);
    r->most = sound_place(r->in->limits->seconds);
    r->frame = av_frame_alloc();
    r->out = av_malloc(OUT_SIZE * sizeof *r->out);
    if (!s && (!r->frame || !r->out))
        s = fail_nomem(err, OUT_SIZE * sizeof *r->out);
    return s ? s : packets_read(r, err);
}

enum pv_status sound_decode(struct demuxer *in, const struct sound_wish *wish, int *lost,
                            struct pv_error *err)
{
    struct sound_reader r = { .in = in, .wish = wish };
    enum pv_status s;

    in->of_sound = true;
    s = demuxer_open(in, err);
    if (!s && in->stream >= 0)
        s = stream_read(&r, err);
    *lost = r.n_lost;
    swr_free(&r.swr);
    av_channel_layout_uninit(&r.layout);
    avcodec_free_context(&r.decoder);
    av_frame_free(&r.frame);
    av_free(r.out);
    demuxer_close(in);
    return s;
}
