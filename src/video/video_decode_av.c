/* Packets of a video to frames: the decoder, what it gives to the frame filter, and going to a
 * packet.
 *
 * Packets carry the number of their frame through the decoder in place of their time. A seek is
 * believed only when it leads to the very packet (place, size, time) that the index has. */
#include "video/video_local_parts_av.h"

#include "base/mem.h"
#include "video/decoder_memory_av.h"
#include "video/picture_size.h"

#include <errno.h>
#include <limits.h>

enum {
    SEEK_PACKETS = 4096,      /* most packets read in search of the one a seek was for */
    ERRORS_MAX = 64,          /* failures of the decoder in a row, without a packet in between */
    MEASURED_PIXELS = 1 << 24 /* frames this large are measured whatever the limit */
};

enum pv_status local_container_open(struct local_video *v, struct pv_error *err)
{
    enum pv_status s = demuxer_open(&v->in, err);
    v->next = s ? v->next : 0;
    return s;
}

/* --- the decoder ---------------------------------------------------------------------------- */

void local_frame_drop(void *frame)
{
    AVFrame *f = frame;

    av_frame_free(&f);
}

/* The decoder for HEVC keeps quiet about damaged slices unless it is told to be strict; then it
 * also gives up frames for flaws that do not show. Strict only where that is the difference. */
enum pv_status local_decoder_open(struct local_video *v, bool strict, struct pv_error *err)
{
    const AVCodecParameters *par = film(v)->codecpar;
    const AVCodec *codec = avcodec_find_decoder(par->codec_id);
    AVCodecContext *d;
    int r;

    if (!codec)
        return fail(err, PV_E_UNSUPPORTED, "%s: there is no decoder for its codec, %s", v->path,
                    avcodec_get_name(par->codec_id));
    v->strict = strict && par->codec_id == AV_CODEC_ID_HEVC;
    avcodec_free_context(&v->decoder);
    d = v->decoder = avcodec_alloc_context3(codec);
    if (!d)
        return fail_nomem(err, sizeof *d);
    r = avcodec_parameters_to_context(d, par);
    d->max_pixels = v->limits.pixels;
    d->thread_count = 1;
    d->pkt_timebase = film(v)->time_base;
    decoder_memory_count(d, v->hand.usage);
    if (v->strict)
        d->err_recognition |= AV_EF_EXPLODE;
    /* H.264 does not always say, and its decoder drops frames where it guesses too few. */
    if (par->codec_id == AV_CODEC_ID_H264 && d->has_b_frames < frame_index_delay(&v->index))
        d->has_b_frames = frame_index_delay(&v->index);
    if (r >= 0)
        r = avcodec_open2(d, codec, NULL);
    return r < 0 ? demuxer_fail(&v->in, "its decoder does not open", r, err) : PV_OK;
}

static bool is_key(const AVFrame *f)
{
#ifdef AV_FRAME_FLAG_KEY
    bool key = f->flags & AV_FRAME_FLAG_KEY;
#else
    bool key = f->key_frame;
#endif
    /* H.264 also calls the first frame of a gradual refresh a key. */
    return key && (f->pict_type == AV_PICTURE_TYPE_I || f->pict_type == AV_PICTURE_TYPE_NONE);
}

/* The frame the decoder gave, to the frame filter. */
static enum pv_status frame_arrives(struct local_video *v, struct pv_error *err)
{
    bool damaged = v->frame->decode_error_flags || (v->frame->flags & AV_FRAME_FLAG_CORRUPT);
    bool key = is_key(v->frame);
    int64_t number = v->index.order ? v->frame->pts : (int64_t)v->counted++;
    AVFrame *own;

    if (number == AV_NOPTS_VALUE || number >= (int64_t)v->index.n_frames) {
        av_frame_unref(v->frame);
        return PV_OK;
    }
    if (number < 0) { /* of a packet that is not shown, see packet_feed */
        frame_filter_add_hidden(&v->frame_seeker.frame_filter, (size_t)(-1 - number), key, damaged);
        av_frame_unref(v->frame);
        return PV_OK;
    }
    if (v->index.order)
        damaged = damaged || (v->index.packet[v->index.order[number]].flags & PACKET_BROKEN);
    own = av_frame_alloc();
    if (!own)
        return fail_nomem(err, sizeof *own);
    av_frame_move_ref(own, v->frame);
    frame_filter_add(&v->frame_seeker.frame_filter, own, (size_t)number, key, damaged);
    return PV_OK;
}

/* Elsewhere a failure shows as a frame that does not come. With one thread a decoder fails at the
 * packet that it got last. Frames are lost only by damage of the file: where memory is short,
 * reading it fails. */
static void error_arrives(struct local_video *v)
{
    size_t fed = v->frame_seeker.next;

    (void)usage_doubt(v->hand.usage);
    if (fed > 0 && frame_index_is_disposable(&v->index, fed - 1))
        return;
    if (v->strict || !v->index.order)
        frame_filter_add_error(&v->frame_seeker.frame_filter);
}

static bool is_packet(const AVPacket *p, const struct index_packet *note)
{
    return p->size == note->size && p->pos == note->pos;
}

/* The next packet to the decoder, or the sign that there are no more. */
static enum pv_status packet_feed(struct local_video *v, struct pv_error *err)
{
    const struct index_packet *note = NULL;
    enum feed feed = frame_seeker_feed(&v->frame_seeker);
    bool more = false;
    enum pv_status s;
    int r;

    if (feed != FEED_DRAIN) {
        if (v->index.order)
            note = v->index.packet + v->next;
        more = demuxer_read(&v->in);
        if (more && note && !is_packet(v->in.packet, note)) {
            frame_seeker_astray(&v->frame_seeker);
            more = false;
        }
        v->next = more ? v->next + 1 : NOWHERE;
    }
    if (!more) {
        v->frame_seeker.draining = true;
        avcodec_send_packet(v->decoder, NULL);
        return PV_OK;
    }
    if (feed == FEED_PASS) {
        av_packet_unref(v->in.packet);
        return usage_check(&v->hand, err);
    }
    if (note) {
        bool hidden = note->flags & PACKET_HIDDEN;
        v->in.packet->pts = hidden ? -1 - (note - v->index.packet) : (int64_t)note->rank;
        v->in.packet->dts = AV_NOPTS_VALUE;
        v->in.packet->flags &= ~AV_PKT_FLAG_DISCARD;
    } else if (v->in.packet->flags & AV_PKT_FLAG_CORRUPT) {
        error_arrives(v);
    }
    usage_decoded(v->hand.usage, (int64_t)v->decoder->width * v->decoder->height);
    r = avcodec_send_packet(v->decoder, v->in.packet);
    av_packet_unref(v->in.packet);
    s = usage_check(&v->hand, err);
    if (s)
        return s;
    if (r == AVERROR(ENOMEM))
        return demuxer_fail(&v->in, "decoding", r, err);
    if (r < 0)
        error_arrives(v);
    return PV_OK;
}

/* One frame more out of the decoder into v->frame, feeding it as needed; *more false at the end. */
enum pv_status local_frame_decode(struct local_video *v, bool *more, struct pv_error *err)
{
    enum pv_status s = PV_OK;
    int errors = 0;

    while (!s && errors < ERRORS_MAX) {
        int r = avcodec_receive_frame(v->decoder, v->frame);
        if (r >= 0) {
            *more = true;
            return PV_OK;
        }
        s = usage_check(&v->hand, err);
        if (r == AVERROR_EOF || s)
            break;
        if (r == AVERROR(ENOMEM))
            return demuxer_fail(&v->in, "decoding", r, err);
        if (r == AVERROR(EAGAIN) && !v->frame_seeker.draining) {
            s = packet_feed(v, err);
            errors = 0;
        } else {
            error_arrives(v);
            errors++;
        }
    }
    *more = false;
    return s;
}

/* The same, to the frame filter. */
enum pv_status local_decoder_pump(void *user, struct pv_error *err)
{
    struct local_video *v = user;
    bool more = false;
    enum pv_status s;

    if (v->want && v->want->stop && atomic_load(v->want->stop) <= v->want->at)
        return fail(err, PV_E_CANCELLED, "%s: reading was stopped", v->path);
    s = local_frame_decode(v, &more, err);
    if (s)
        return s;
    if (more)
        return frame_arrives(v, err);
    frame_filter_end(&v->frame_seeker.frame_filter, v->frame_seeker.next);
    return PV_OK;
}

/* --- going to a packet ---------------------------------------------------------------------- */

/* Reads on until `packet` is the next one; at most `most` packets. */
static bool packet_find(struct local_video *v, size_t packet, int most)
{
    const struct index_packet *note = v->index.packet + packet;

    for (int i = 0; i < most && usage_go_on(v->hand.usage) && demuxer_read(&v->in); i++) {
        if (is_packet(v->in.packet, note) && v->in.packet->pts == note->pts) {
            v->in.packet_held = true;
            v->next = packet;
            return true;
        }
        if (note->pos >= 0 && v->in.packet->pos > note->pos)
            return false;
    }
    return false;
}

/* Some formats seek by the time of decoding, which lies before that of showing: so aim a little
 * earlier when the first jump fails, then some keys earlier. */
static bool packet_seek(struct local_video *v, size_t packet)
{
    static const struct {
        int keys, seconds;
    } earlier[] = { { 0, 0 }, { 0, 2 }, { 4, 2 } };

    for (size_t i = 0; i < sizeof earlier / sizeof *earlier; i++) {
        size_t aim = frame_index_step_back(&v->index, packet, earlier[i].keys);
        AVRational unit = film(v)->time_base;
        int64_t pts = v->index.packet[aim].pts;
        if (pts == INDEX_NO_PTS)
            continue;
        if (pts > INT64_MIN / 2 && unit.num > 0)
            pts -= (int64_t)earlier[i].seconds * unit.den / unit.num;
        v->in.packet_held = false;
        v->next = NOWHERE;
        if (av_seek_frame(v->in.format, v->in.stream, pts, AVSEEK_FLAG_BACKWARD) >= 0 &&
            packet_find(v, packet, SEEK_PACKETS))
            return true;
    }
    return false;
}

/* Makes `packet` the next one; surely: by reading from the beginning. */
static enum pv_status packet_go(struct local_video *v, size_t packet, bool surely,
                                struct pv_error *err)
{
    enum pv_status s;

    if (v->in.format &&
        (v->next == packet || (v->index.order && !surely && packet_seek(v, packet))))
        return PV_OK;
    v->next = NOWHERE;
    demuxer_close(&v->in);
    s = local_container_open(v, err);
    while (!s && v->next < packet && demuxer_read(&v->in)) {
        v->next++;
        s = usage_check(&v->hand, err);
    }
    if (s)
        demuxer_close(&v->in);
    return s;
}

enum pv_status local_decoder_start(void *user, size_t packet, bool surely, struct pv_error *err)
{
    struct local_video *v = user;
    enum pv_status s = packet_go(v, packet, surely, err);

    if (s)
        return s;
    avcodec_flush_buffers(v->decoder);
    v->counted = 0;
    return PV_OK;
}

static int measure_buffer(AVCodecContext *d, AVFrame *f, int flags)
{
    int64_t *pixels = d->opaque;

    (void)flags;
    *pixels = (int64_t)f->width * f->height;
    return AVERROR(ENOSYS);
}

/* Nothing decodes: is it because a frame is larger than the decoder was allowed? Asks one with a
 * wider limit how much it would want for the first packet, and gives it nothing. True when that is
 * the reason, and said. */
static bool fail_too_large(struct local_video *v, struct pv_error *err)
{
    const AVCodec *codec = avcodec_find_decoder(film(v)->codecpar->codec_id);
    AVCodecContext *d = avcodec_alloc_context3(codec);
    int64_t pixels = 0, wide = v->limits.pixels < INT_MAX / 16 ? v->limits.pixels * 16 : INT_MAX;

    v->next = NOWHERE;
    if (d && avcodec_parameters_to_context(d, film(v)->codecpar) >= 0) {
        d->opaque = &pixels;
        d->get_buffer2 = measure_buffer;
        d->max_pixels = wide > MEASURED_PIXELS ? wide : MEASURED_PIXELS;
        d->thread_count = 1;
        if (avcodec_open2(d, codec, NULL) >= 0) {
            pixels = (int64_t)d->width * d->height;
            if (!packet_go(v, 0, true, NULL) && demuxer_read(&v->in)) {
                if (pixels == 0)
                    pixels = picture_pixels(v->in.packet->data, (size_t)v->in.packet->size);
                if (avcodec_send_packet(d, v->in.packet) >= 0)
                    avcodec_receive_frame(d, v->frame);
            }
        }
    }
    avcodec_free_context(&d);
    if (pixels <= v->limits.pixels)
        return false;
    fail(err, PV_E_LIMIT, "%s: frames of %lld pixels, at most %lld are allowed", v->path,
         (long long)pixels, (long long)v->limits.pixels);
    return true;
}

/* The first decoder; says so where it was not allowed to be large enough. */
enum pv_status local_decoder_open_first(struct local_video *v, struct pv_error *err)
{
    struct pv_error why = { 0 };
    enum pv_status s = local_decoder_open(v, true, &why);

    if (s != PV_E_FORMAT)
        return s ? fail(err, s, "%s", why.text) : PV_OK;
    return fail_too_large(v, err) ? PV_E_LIMIT : fail(err, s, "%s", why.text);
}

enum pv_status local_fail_undecodable(struct local_video *v, struct pv_error *err)
{
    if (fail_too_large(v, err))
        return PV_E_LIMIT;
    return fail(err, PV_E_FORMAT, "%s: none of its frames decodes", v->path);
}
