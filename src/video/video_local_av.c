/* Videos and pictures through FFmpeg, whose types stay in the files *_av: demuxer_av reads packets,
 * rgb_converter_av makes pictures of frames, video_decode_av decodes, this one knows which frame is
 * which.
 *
 * Opening reads all packets of the film once, without decoding, into an index of frames
 * (frame_index.h). Where the container's times do not number the frames, they are counted by
 * decoding once. Reading then decodes from the last key frame before a wanted frame, or goes on
 * from where it is, and asks the frame filter (frame_filter.h) which of the decoder's frames can be
 * trusted. Instead of times the packets carry the number of their frame through the decoder, so a
 * frame is known by its number, whatever the demuxer makes of times after a seek; and a seek is
 * believed only when it leads to the very packet (place, size, time) that the index has.
 *
 * A decoder has one thread. With several, FFmpeg tells of damage in a frame before the thread that
 * finds it is done, so that damaged frames pass for good ones now and then. Instead several readers
 * of the same file, each with its demuxer and decoder, decode parts of it (read_parts.h): the video
 * itself and its twins. */
#include "video/video_local_parts_av.h"

#include "video/sound_av.h"

#include "base/cpu.h"
#include "base/mem.h"
#include "video/decoder_memory_av.h"
#include "video/disposable.h"
#include "video/formats_av.h"

#include <libswresample/swresample.h>
#include <libswscale/swscale.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OPTIONAL_SIZE = 16 }; /* bytes of an MPEG-4 packet that may say "no change" */

/* --- the index ------------------------------------------------------------------------------ */

/* Animations draw each picture over the one before, whatever the packets' flags say. */
static bool is_animation(const struct local_video *v)
{
    enum AVCodecID codec = film(v)->codecpar->codec_id;

    return codec == AV_CODEC_ID_GIF || codec == AV_CODEC_ID_APNG;
}

/* A picture file can have others in it (gain maps, views: JPEG marks them "MPF"), of which the
 * first is the picture. v->in.packet is its first packet. */
static bool is_picture(const struct local_video *v)
{
    const char *name = v->in.format->iformat->name, *pipe = strstr(name, "_pipe");
    const AVPacket *p = v->in.packet;
    bool multiple = false;

    if (!strcmp(name, "mjpeg"))
        for (int i = 0; i + 4 <= p->size && !multiple; i++)
            multiple = !memcmp(p->data + i, "MPF", 4);
    return multiple || (pipe && !pipe[5]) || !strcmp(name, "ico") ||
           (film(v)->disposition & AV_DISPOSITION_ATTACHED_PIC);
}

static struct index_packet packet_note(const struct local_video *v)
{
    const AVPacket *p = v->in.packet;
    enum AVCodecID codec = film(v)->codecpar->codec_id;
    unsigned flags = 0;

    if ((p->flags & AV_PKT_FLAG_KEY) && !is_animation(v))
        flags |= PACKET_KEY;
    /* VP8 has a bit for pictures that are only referred to. */
    if ((p->flags & AV_PKT_FLAG_DISCARD) || (codec == AV_CODEC_ID_VP8 && !(p->data[0] & 0x10)))
        flags |= PACKET_HIDDEN;
    if (p->flags & AV_PKT_FLAG_CORRUPT)
        flags |= PACKET_BROKEN;
    if (codec == AV_CODEC_ID_MPEG4 && p->size <= OPTIONAL_SIZE)
        flags |= PACKET_OPTIONAL;
    return (struct index_packet){ .pts = p->pts, .pos = p->pos, .size = p->size, .flags = flags };
}

/* Marks the packet before v->in.packet, which is not in the index yet, if it is disposable. */
static void mark_disposable(struct local_video *v, struct disposable *d)
{
    const AVPacket *p = v->in.packet;
    size_t n = v->index.n_packets, size = 0;
    const uint8_t *extra = av_packet_get_side_data(p, AV_PKT_DATA_NEW_EXTRADATA, &size);

    if (film(v)->codecpar->codec_id != AV_CODEC_ID_H264)
        return;
    if (extra)
        disposable_begin(d, extra, size);
    if (disposable_next(d, p->data, (size_t)p->size) && n > 0 &&
        !(v->index.packet[n - 1].flags & (PACKET_KEY | PACKET_HIDDEN | PACKET_BROKEN)))
        v->index.packet[n - 1].flags |= PACKET_DISPOSABLE;
}

static enum pv_status check_seconds(const struct local_video *v, double seconds,
                                    struct pv_error *err)
{
    if (seconds <= v->limits.seconds)
        return PV_OK;
    return fail(err, PV_E_LIMIT, "%s: %.1f seconds, at most %g are allowed", v->path, seconds,
                v->limits.seconds);
}

/* All packets into the index. *tail: how long the last frame is shown, 0: unknown. */
static enum pv_status index_read(struct local_video *v, double *tail, struct pv_error *err)
{
    double unit = av_q2d(film(v)->time_base);
    bool is_theora = film(v)->codecpar->codec_id == AV_CODEC_ID_THEORA;
    int64_t first = INT64_MAX, last = INT64_MIN, before = INDEX_NO_PTS;
    struct disposable disposable;
    enum pv_status s = PV_OK;

    disposable_begin(&disposable, film(v)->codecpar->extradata,
                     (size_t)film(v)->codecpar->extradata_size);
    while (!s && demuxer_read(&v->in)) {
        struct index_packet p = packet_note(v);
        /* Theora counts its frames: a jump means that pages are missing. */
        if (is_theora && before != INDEX_NO_PTS &&
            (double)p.pts - (double)before > 1 + v->in.n_empty) {
            v->index.packet[v->index.n_packets - 1].flags |= PACKET_BROKEN;
            p.flags |= PACKET_BROKEN;
        }
        v->in.n_empty = 0;
        before = p.pts;
        s = usage_check(&v->hand, err);
        if (s)
            break;
        v->picture = v->picture || (v->index.n_packets == 0 && is_picture(v));
        if (v->picture && p.pts == INDEX_NO_PTS)
            p.pts = 0;
        mark_disposable(v, &disposable);
        s = frame_index_add(&v->index, &p, err);
        if (p.pts != INDEX_NO_PTS && !(p.flags & PACKET_HIDDEN)) {
            first = p.pts < first ? p.pts : first;
            if (p.pts >= last)
                *tail = (double)v->in.packet->duration * unit;
            last = p.pts > last ? p.pts : last;
            if (!s)
                s = check_seconds(v, (double)((uint64_t)last - (uint64_t)first) * unit, err);
        }
        if (v->picture)
            break;
    }
    v->next = NOWHERE;
    if (first <= last && !v->picture)
        v->origin = (double)first * unit;
    return s ? s : usage_check(&v->hand, err);
}

/* --- opening -------------------------------------------------------------------------------- */

/* What a reader holds: frames of its decoder, and two pictures of its converter. */
static enum pv_status memory_check(struct local_video *v, const AVFrame *f, struct pv_error *err)
{
    uint64_t pictures = (uint64_t)f->width * (uint64_t)f->height * 6;
    uint64_t decoder = decoder_memory_estimate(v->decoder, f);

    v->reader_bytes = pictures + decoder;
    if (!usage_take(v->hand.usage, pictures))
        return usage_check(&v->hand, err);
    if (decoder_memory_is_counted(v->decoder) || decoder <= usage_left(v->hand.usage))
        return PV_OK;
    return fail(
        err, PV_E_LIMIT,
        "%s: decoding frames of %d x %d pixels takes %llu bytes of memory, at most %llu are "
        "allowed",
        v->path, f->width, f->height, (unsigned long long)v->reader_bytes,
        (unsigned long long)v->limits.memory);
}

static enum pv_status pictures_init(struct local_video *v, const AVFrame *f, struct pv_error *err)
{
    bool turned;
    enum pv_status s;

    if (f->width <= 0 || f->height <= 0 || (int64_t)f->width * f->height > v->limits.pixels)
        return fail(err, PV_E_LIMIT, "%s: frames of %d x %d pixels, at most %lld are allowed",
                    v->path, f->width, f->height, (long long)v->limits.pixels);
    s = memory_check(v, f, err);
    if (!s)
        s = rgb_converter_begin(&v->rgb_converter, film(v), f, err);
    if (s)
        return s;
    turned = v->rgb_converter.orientation.transpose;
    v->info.width = turned ? f->height : f->width;
    v->info.height = turned ? f->width : f->height;
    return PV_OK;
}

/* Numbers the frames by decoding them all. Times that are missing or run backwards are made up
 * from the frame rate. */
static enum pv_status frames_count(struct local_video *v, struct pv_error *err)
{
    AVRational guess = av_guess_frame_rate(v->in.format, film(v), NULL);
    double unit = av_q2d(film(v)->time_base), rate = guess.den > 0 ? av_q2d(guess) : 0;
    double step = rate > 0.01 && rate < 1000 ? 1 / rate : 0.04;
    double shift = 0, time = 0;
    enum pv_status s;
    bool more = true;

    frame_index_drop_packets(&v->index);
    v->frame_seeker.drain_after = SIZE_MAX;
    s = local_decoder_start(v, 0, true, err);
    while (!s && more) {
        s = local_frame_decode(v, &more, err);
        if (!s && more) {
            int64_t pts = v->frame->best_effort_timestamp;
            double t = pts == AV_NOPTS_VALUE ? NAN : (double)pts * unit;
            if (v->index.n_frames == 0)
                v->origin = shift = isnan(t) ? 0 : t;
            else
                time = t - shift > time ? t - shift : time + step;
            s = check_seconds(v, time, err);
            if (!s)
                s = frame_index_count(&v->index, time, err);
            av_frame_unref(v->frame);
        }
    }
    v->next = NOWHERE;
    v->frame_seeker.draining = false;
    return s;
}

/* Frames that lie behind the end of the file, where its index lists each of them. */
static int64_t frames_cut(const struct local_video *v)
{
    int n = avformat_index_get_entries_count(film(v));
    int64_t cut = 0;
    for (int i = 0; i < n; i++) {
        const AVIndexEntry *e = avformat_index_get_entry(film(v), i);
        cut += e->size > 0 && e->pos > v->in.file_size - e->size;
    }
    return cut;
}

/* Frame rate and duration of the film, from its frames' times. */
static void info_set(struct local_video *v, double tail)
{
    size_t n = v->index.n_frames;
    double span = v->index.time[n - 1], said = av_q2d(film(v)->avg_frame_rate);
    double step = n > 1 ? span / (double)(n - 1) : 0;

    if (!(tail > 0) || (n > 1 && tail > 100 * step) || span + tail > v->limits.seconds)
        tail = step;
    v->info.n_frames = (int64_t)n;
    v->info.cut = frames_cut(v);
    v->info.still = n == 1 && (v->picture || is_animation(v) || !(tail > 0));
    if (v->info.still)
        return;
    v->info.duration = span + tail;
    v->info.fps = (double)n / v->info.duration;
    /* The exact fraction, where the container's word agrees with its frames. */
    if (isfinite(said) && fabs(said - v->info.fps) < 0.01 * v->info.fps)
        v->info.fps = said;
}

/* The first frame, or the first good one. A file whose first frame only comes without strictness
 * is read without it; one of which nothing comes, with packets that give no frame. */
static enum pv_status first_find(struct local_video *v, const struct judged **first,
                                 struct pv_error *err)
{
    enum pv_status s = frame_seeker_find(&v->frame_seeker, 0, -1, first, err);

    for (int strict = 0; strict < 2 && !s && v->strict == !strict; strict++) {
        if (*first && (*first)->rank == 0)
            return PV_OK;
        frame_seeker_stop(&v->frame_seeker);
        s = local_decoder_open(v, strict, err);
        if (!s)
            s = frame_seeker_find(&v->frame_seeker, 0, -1, first, err);
    }
    if (!s && !*first) {
        frame_seeker_stop(&v->frame_seeker);
        v->frame_seeker.frame_filter.lenient = true;
        s = frame_seeker_find(&v->frame_seeker, 0, -1, first, err);
    }
    return s;
}

static enum pv_status film_open(struct local_video *v, struct pv_error *err)
{
    const struct judged *first = NULL;
    bool sorted = false;
    double tail = 0, said = 0;
    enum pv_status s;

    s = local_container_open(v, err);
    if (!s && v->in.format->duration != AV_NOPTS_VALUE)
        said = (double)v->in.format->duration / AV_TIME_BASE;
    if (!s)
        s = check_seconds(v, said, err);
    if (s)
        return s;
    v->info.has_sound = demuxer_has_sound(&v->in);
    if (v->in.stream < 0) { /* sound alone */
        v->info.duration = said > 0 ? said : 0;
        return PV_OK;
    }
    s = index_read(v, &tail, err);
    if (!s)
        s = frame_index_sort(&v->index, av_q2d(film(v)->time_base), &sorted, err);
    if (!s)
        s = local_decoder_open_first(v, err);
    if (!s && !sorted)
        s = frames_count(v, err);
    if (s)
        return s;
    if (v->index.n_frames == 0)
        return local_fail_undecodable(v, err);
    s = first_find(v, &first, err);
    if (!s && !first)
        s = local_fail_undecodable(v, err);
    if (!s)
        s = pictures_init(v, first->frame, err);
    if (!s)
        info_set(v, tail);
    return s;
}

/* What every reader has of its own. */
static bool reader_init(struct local_video *v)
{
    v->in.path = v->path;
    v->in.limits = &v->limits;
    v->in.hand = &v->hand;
    v->rgb_converter.rgb_rank = -1;
    frame_seeker_init(&v->frame_seeker, &v->index,
                      (struct frame_seeker_source){ v, local_decoder_start, local_decoder_pump },
                      local_frame_drop);
    v->in.packet = av_packet_alloc();
    v->frame = av_frame_alloc();
    return v->in.packet && v->frame;
}

enum pv_status local_video_open(struct local_video **out, const struct video_source *from,
                                const struct video_limits *limits, int threads,
                                struct pv_error *err)
{
    struct local_video *v = mem_zalloc(sizeof *v);
    enum pv_status s;

    if (!v)
        return fail_nomem(err, sizeof *v);
    /* FFmpeg's log is global. Its default level means that nobody has set one; then it is silenced,
     * since a library does not write to stderr. */
    if (av_log_get_level() == AV_LOG_INFO)
        av_log_set_level(AV_LOG_QUIET);
    v->in.fd = -1;
    v->in.use = from->sound_alone ? FORMAT_FILM_OR_SOUND : FORMAT_FILM;
    v->origin = (double)NAN;
    v->fd_borrowed = from->fd > 0;
    v->limits = *limits;
    v->threads = threads > 0 ? threads : cpu_count();
    v->threads = v->threads < PARTS_READERS ? v->threads : PARTS_READERS;
    v->path = mem_strdup(video_source_name(from));
    v->hand.usage = &v->own_usage;
    usage_init(&v->own_usage, v->path, &v->limits);
    s = v->path && reader_init(v) ? formats_check(limits->more_formats, err)
                                  : fail_nomem(err, sizeof *v);
    if (!s)
        s = demuxer_open_source(&v->in, from, err);
    if (!s)
        s = film_open(v, err);
    if (s) {
        local_video_close(&v);
        return s;
    }
    *out = v;
    return PV_OK;
}

void local_video_close(struct local_video **video)
{
    struct local_video *v = *video;

    if (!v)
        return;
    for (int i = 0; i < PARTS_READERS - 1; i++)
        local_video_close(&v->twin[i]);
    frame_seeker_stop(&v->frame_seeker);
    avcodec_free_context(&v->decoder);
    if (v->in.packet)
        demuxer_close(&v->in);
    av_packet_free(&v->in.packet);
    av_frame_free(&v->frame);
    rgb_converter_end(&v->rgb_converter);
    if (!v->is_twin) {
        frame_index_clear(&v->index);
        mem_free(v->path);
        if (v->in.fd >= 0 && !v->fd_borrowed)
            close(v->in.fd);
    }
    mem_free(v);
    *video = NULL;
}

const struct video_info *local_video_info(const struct local_video *v)
{
    return &v->info;
}

double local_video_time(const struct local_video *v, int64_t index)
{
    return v->index.time[index];
}

uint64_t local_video_decoded(const struct local_video *v)
{
    return atomic_load(&v->hand.usage->packets);
}

/* --- reading -------------------------------------------------------------------------------- */

static enum pv_status check_wish(const struct local_video *v, const int64_t *index, int n,
                                 struct pv_error *err)
{
    if (n > v->limits.frames)
        return fail(err, PV_E_LIMIT, "%s: %d frames are asked for, at most %d are allowed", v->path,
                    n, v->limits.frames);
    for (int i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= v->info.n_frames || (i > 0 && index[i] < index[i - 1]))
            return fail(err, PV_E_ARG, "%s: frame %lld is asked for, after %lld, of %lld frames",
                        v->path, (long long)index[i], (long long)(i > 0 ? index[i - 1] : 0),
                        (long long)v->info.n_frames);
    return PV_OK;
}

/* Another reader of the same film, on the same open file or memory: so it is the same one even when
 * the name has come to mean another. reader_restart opens the rest. */
static void *reader_twin(void *user, int k)
{
    struct local_video *first = user, *v = first->twin[k - 1];
    enum pv_status s;

    if (v) {
        frame_seeker_list(&v->frame_seeker, first->frame_seeker.list, first->frame_seeker.n_list);
        return v;
    }
    v = mem_zalloc(sizeof *v);
    if (!v)
        return NULL;
    v->is_twin = true;
    v->hand.usage = first->hand.usage;
    v->path = first->path;
    v->in.fd = first->in.fd;
    v->in.data = first->in.data;
    v->in.file_size = first->in.file_size;
    v->in.use = first->in.use;
    v->limits = first->limits;
    v->info = first->info;
    v->picture = first->picture;
    v->in.measured = first->in.measured;
    v->in.claims_checked = first->in.claims_checked;
    v->strict = first->strict;
    v->index = first->index;
    v->rgb_converter.orientation = first->rgb_converter.orientation;
    s = reader_init(v) ? PV_OK : PV_E_NOMEM;
    v->frame_seeker.frame_filter.lenient = first->frame_seeker.frame_filter.lenient;
    frame_seeker_list(&v->frame_seeker, first->frame_seeker.list, first->frame_seeker.n_list);
    if (!s)
        s = rgb_converter_alloc(&v->rgb_converter, first->rgb_converter.stored_width,
                                first->rgb_converter.stored_height, NULL);
    if (s)
        local_video_close(&v);
    first->twin[k - 1] = v;
    return v;
}

static enum pv_status reader_restart(void *reader, struct pv_error *err)
{
    struct local_video *v = reader;
    enum pv_status s;

    frame_seeker_restart(&v->frame_seeker);
    v->rgb_converter.rgb_rank = -1;
    v->stale = true;
    if (!v->in.format) {
        v->next = NOWHERE;
        s = local_container_open(v, err);
        if (s) {
            demuxer_close(&v->in);
            return s;
        }
    }
    s = local_decoder_open(v, v->strict, err);
    v->stale = s != PV_OK;
    return s;
}

static enum pv_status reader_read(void *reader, const struct part_want *want,
                                  struct part_frame *out, struct pv_error *err)
{
    struct local_video *v = reader;
    const struct judged *f = NULL;
    enum pv_status s;

    v->want = want;
    v->frame_seeker.plain = want->plain;
    s = frame_seeker_find(&v->frame_seeker, (size_t)want->frame, want->after, &f, err);
    v->want = NULL;
    if (!s && !f && !want->plain)
        s = fail(err, PV_E_FORMAT, "%s: none of its frames decodes", v->path);
    if (!s && f)
        s = rgb_converter_paint(&v->rgb_converter, v->path, f->frame, (int64_t)f->rank, err);
    if (!s)
        *out = (struct part_frame){ f ? (int64_t)f->rank : -1, v->rgb_converter.rgb };
    return s;
}

/* The pixels to decode are known before, save those of a second try. */
static enum pv_status check_pixels(const struct local_video *v, const int64_t *index, int n,
                                   struct pv_error *err)
{
    uint64_t frame =
        (uint64_t)v->rgb_converter.stored_width * (uint64_t)v->rgb_converter.stored_height;
    uint64_t most = v->limits.decoded_pixels, frames = parts_cost(&v->index, index, n);

    if (!most || frames <= most / frame)
        return PV_OK;
    return fail(err, PV_E_LIMIT,
                "%s: %llu frames of %d x %d pixels have to be decoded, %.4g pixels in all, at most "
                "%.4g are allowed",
                v->path, (unsigned long long)frames, v->rgb_converter.stored_width,
                v->rgb_converter.stored_height, (double)frames * (double)frame, (double)most);
}

/* As many readers as the memory holds besides the pictures that wait for their turn. */
static int readers_that_fit(const struct local_video *v)
{
    uint64_t waiting = parts_memory(v->info.width, v->info.height),
             left = usage_left(v->hand.usage);
    uint64_t n = left > waiting ? (left - waiting) / (v->reader_bytes ? v->reader_bytes : 1) : 0;

    return n < 1 ? 1 : n < (uint64_t)v->threads ? (int)n : v->threads;
}

enum pv_status local_video_read(struct local_video *v, const int64_t *index, int n,
                                video_frame_fn fn, void *user, int *lost, struct pv_error *err)
{
    const struct part_source source = { v, reader_twin, reader_restart, reader_read };
    const struct part_wish wish = { .path = v->path,
                                    .index = &v->index,
                                    .width = v->info.width,
                                    .height = v->info.height,
                                    .want = index,
                                    .n = n,
                                    .threads = readers_that_fit(v),
                                    .usage = v->hand.usage,
                                    .fn = fn,
                                    .user = user };
    struct parts parts;
    int n_lost = 0;
    enum pv_status s = check_wish(v, index, n, err);

    usage_enter(v->hand.usage);
    if (!s && n == 0)
        *lost = 0;
    if (s || n == 0)
        return s;
    s = check_pixels(v, index, n, err);
    if (s)
        return s;
    frame_seeker_list(&v->frame_seeker, index, n);
    parts_cut(&parts, &v->index, index, n);
    if (parts.n > 1) {
        s = parts_read(&parts, &source, &wish, &n_lost, err);
        /* Which parts were its own is chance: nothing of them may stay. */
        frame_seeker_stop(&v->frame_seeker);
        v->stale = true;
    } else {
        if (v->stale)
            s = reader_restart(v, err);
        if (!s)
            s = parts_read_rest(&source, &wish, 0, &n_lost, err);
    }
    frame_seeker_list(&v->frame_seeker, NULL, 0);
    if (!s)
        *lost = n_lost;
    return s;
}

/* --- sound ---------------------------------------------------------------------------------- */

/* Sound has a demuxer of its own on the same open file or memory. */
enum pv_status local_video_sound(struct local_video *v, struct sound_wish wish, int *lost,
                                 struct pv_error *err)
{
    struct demuxer in = { .path = v->path,
                          .limits = &v->limits,
                          .hand = &v->hand,
                          .data = v->in.data,
                          .fd = v->in.fd,
                          .file_size = v->in.file_size,
                          .use = v->in.use,
                          .claims_checked = v->in.claims_checked };
    enum pv_status s;

    *lost = 0;
    if (!(wish.start >= 0 && wish.end > wish.start))
        return fail(err, PV_E_ARG, "%s: sound from second %g to %g is asked for", v->path,
                    wish.start, wish.end);
    usage_enter(v->hand.usage);
    wish.origin = v->origin;
    in.packet = av_packet_alloc();
    if (!in.packet)
        return fail_nomem(err, sizeof *in.packet);
    s = sound_decode(&in, &wish, lost, err);
    av_packet_free(&in.packet);
    return s;
}

void local_video_decoder_version(char *out, size_t size)
{
    snprintf(out, size, "FFmpeg %s %u %u %u %u", av_version_info(), avformat_version(),
             avcodec_version(), swscale_version(), swresample_version());
}
