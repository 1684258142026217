/* FFmpeg reads the file by our callbacks, in formats of our list. What would open another file or
 * an address is refused three times: playlist formats by name, io_open by our function, protocols
 * by an empty list. */
#include "video/demuxer_av.h"

#include "base/file.h"
#include "video/boxes.h"
#include "video/formats_av.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    IO_BUFFER = 1 << 16,
    GUESS_BYTES = 1 << 20, /* read at most to know the container, */
    PROBE_BYTES = 5000000, /* and its streams; FFmpeg's own numbers */
    STREAMS_MAX = 256,     /* of one file, attachments too */
    STREAMS_SAID = 32      /* streams whose size, as the header says it, is remembered */
};

/* ---- the file, or its bytes in memory ---- */

static int io_read(void *opaque, uint8_t *buf, int size)
{
    struct demuxer *d = opaque;
    int64_t left = d->file_size - d->file_at;
    size_t most = (size_t)(size < left ? size : left);
    ssize_t n;

    if (left <= 0)
        return AVERROR_EOF;
    if (usage_check(d->hand, NULL))
        return AVERROR_EXIT;
    if (d->data) {
        memcpy(buf, d->data + d->file_at, most);
        d->file_at += (int64_t)most;
        return (int)most;
    }
    do {
        n = pread(d->fd, buf, most, (off_t)d->file_at);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return AVERROR(errno);
    d->file_at += n;
    return n ? (int)n : AVERROR_EOF;
}

static int64_t io_seek(void *opaque, int64_t offset, int whence)
{
    struct demuxer *d = opaque;

    if (whence & AVSEEK_SIZE)
        return d->file_size;
    whence &= ~AVSEEK_FORCE;
    if (whence == SEEK_CUR)
        offset += d->file_at;
    else if (whence == SEEK_END)
        offset += d->file_size;
    else if (whence != SEEK_SET)
        return AVERROR(EINVAL);
    if (offset < 0)
        return AVERROR(EINVAL);
    d->file_at = offset;
    return offset;
}

static int io_refuse(AVFormatContext *s, AVIOContext **pb, const char *url, int flags,
                     AVDictionary **options)
{
    (void)s;
    (void)pb;
    (void)url;
    (void)flags;
    (void)options;
    return AVERROR(EPERM);
}

static enum pv_status check_size(const struct demuxer *d, uint64_t size, struct pv_error *err)
{
    if (size == 0)
        return fail(err, PV_E_FORMAT, "%s: is empty", d->path);
    if (size > d->limits->file_bytes || size > INT64_MAX)
        return fail(err, PV_E_LIMIT, "%s: %llu bytes, at most %llu are allowed", d->path,
                    (unsigned long long)size, (unsigned long long)d->limits->file_bytes);
    return PV_OK;
}

static enum pv_status open_file(struct demuxer *d, struct pv_error *err)
{
    struct stat st;
    enum pv_status s;

    /* Not to block on a pipe nobody writes to. */
    d->fd = open(d->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (d->fd < 0 || fstat(d->fd, &st) < 0)
        return fail(err, status_of_errno(errno), "%s: %s", d->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(err, PV_E_IO, "%s: is not a regular file", d->path);
    s = check_size(d, (uint64_t)st.st_size, err);
    if (!s)
        d->file_size = st.st_size;
    return s;
}

enum pv_status demuxer_open_source(struct demuxer *d, const struct video_source *from,
                                   struct pv_error *err)
{
    enum pv_status s;

    if (from->path && from->fd <= 0)
        return open_file(d, err);
    s = check_size(d, from->size, err);
    if (!s && !from->data && from->fd <= 0)
        s = fail(err, PV_E_ARG, "%s: %zu bytes at a NULL pointer", d->path, from->size);
    if (s)
        return s;
    d->data = from->data;
    d->fd = from->fd > 0 ? from->fd : d->fd;
    d->file_size = (int64_t)from->size;
    return PV_OK;
}

/* ---- the container ---- */

void demuxer_close(struct demuxer *d)
{
    av_packet_unref(d->packet);
    d->packet_held = false;
    avformat_close_input(&d->format);
    if (d->io)
        av_freep(&d->io->buffer);
    avio_context_free(&d->io);
}

static enum pv_status io_open(struct demuxer *d, struct pv_error *err)
{
    uint8_t *buffer = av_malloc(IO_BUFFER);

    d->file_at = 0;
    d->io = buffer ? avio_alloc_context(buffer, IO_BUFFER, 0, d, io_read, NULL, io_seek) : NULL;
    if (d->io)
        return PV_OK;
    av_free(buffer);
    return fail_nomem(err, IO_BUFFER);
}

enum pv_status demuxer_fail(const struct demuxer *d, const char *what, int code,
                            struct pv_error *err)
{
    char text[AV_ERROR_MAX_STRING_SIZE] = "";

    if (code == AVERROR(ENOMEM) || usage_doubt(d->hand->usage))
        return fail(err, PV_E_NOMEM, "%s: out of memory while it was opened", d->path);
    av_strerror(code, text, sizeof text);
    return fail(err, code == AVERROR(EIO) ? PV_E_IO : PV_E_FORMAT, "%s: %s: %s", d->path, what,
                text);
}

/* FFmpeg asks this where it may read for long. */
static int is_interrupted(void *opaque)
{
    struct demuxer *d = opaque;

    return !usage_go_on(d->hand->usage);
}

static size_t read_at(void *user, int64_t at, uint8_t *to, size_t n)
{
    struct demuxer *d = user;
    size_t done = 0;
    int r;

    d->file_at = at;
    do {
        r = io_read(d, to + done, (int)(n - done));
        done += r > 0 ? (size_t)r : 0;
    } while (r > 0 && done < n);
    return done;
}

/* Whether a file of this container may be opened. */
static enum pv_status container_check(struct demuxer *d, const AVInputFormat *input,
                                      struct pv_error *err)
{
    const struct boxes_source boxes = { d->path, d->file_size, d, read_at };
    int64_t at = d->file_at;
    char name[64];
    enum pv_status s;

    if (formats_is_playlist(input))
        return fail(err, PV_E_FORMAT,
                    "%s: is a playlist (%s): it names other files, and those "
                    "are not opened",
                    d->path, input->name);
    if (!formats_has_container(input, d->use, d->limits->more_formats)) {
        formats_say(name, sizeof name, input);
        if (formats_has_container(input, FORMAT_FILM_OR_SOUND, NULL))
            return fail(err, PV_E_UNSUPPORTED,
                        "%s: contains only sound (%s), but a video or picture is needed", d->path,
                        name);
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: files of the format %s are not read unless it is allowed by name", d->path,
                    name);
    }
    if (d->claims_checked || strncmp(input->name, "mov,", 4) != 0)
        return PV_OK;
    s = boxes_check(&boxes, d->limits->memory, err);
    if (!s)
        s = usage_check(d->hand, err); /* it sees the end of the file when it is stopped */
    d->file_at = at;
    d->claims_checked = !s;
    return s;
}

/* FFmpeg knows no such format. */
static enum pv_status refuse_unknown(struct demuxer *d, struct pv_error *err)
{
    uint8_t head[64];
    int n = avio_seek(d->io, 0, SEEK_SET) == 0 ? avio_read(d->io, head, sizeof head) : 0;

    if (n > 0 && file_is_lfs_pointer(head, (size_t)n))
        return fail(err, PV_E_FORMAT,
                    "%s: a git-LFS pointer, not the file itself: run 'git lfs pull'", d->path);
    return fail(err, PV_E_FORMAT, "%s: is neither a video nor a picture%s", d->path,
                d->use == FORMAT_FILM ? "" : " nor sound");
}

static enum pv_status header_read(struct demuxer *d, struct pv_error *err)
{
    const AVInputFormat *input = NULL;
    enum pv_status s;
    int r;

    r = av_probe_input_buffer2(d->io, &input, "", NULL, 0, GUESS_BYTES);
    s = usage_check(d->hand, err);
    if (s)
        return s;
    if (r < 0 || !input)
        return refuse_unknown(d, err);
    s = container_check(d, input, err);
    if (s)
        return s;
    d->format = avformat_alloc_context();
    if (!d->format)
        return fail_nomem(err, sizeof *d->format);
    d->format->pb = d->io;
    d->format->flags |= AVFMT_FLAG_CUSTOM_IO;
    d->format->io_open = io_refuse;
    d->format->interrupt_callback = (AVIOInterruptCB){ is_interrupted, d };
    d->format->max_streams = STREAMS_MAX;
    d->format->probesize = PROBE_BYTES;
    d->format->protocol_whitelist = av_strdup("none");
    if (!d->format->protocol_whitelist)
        return fail_nomem(err, sizeof "none");
    r = avformat_open_input(&d->format, "", input, NULL);
    s = usage_check(d->hand, err);
    if (s)
        return s;
    if (r < 0)
        return demuxer_fail(d, "its header is missing or damaged", r, err);
    return PV_OK;
}

/* The decoders that a probe may use; NULL: out of memory. */
static char *probe_decoders(const struct demuxer *d)
{
    if (d->of_sound)
        return formats_sound_decoders(d->limits->more_formats);
    return d->measured ? formats_decoders(d->limits->more_formats) : av_strdup("none");
}

/* Reads a little, to learn what the header does not say. This decodes, so the limit of pixels goes
 * along; streams that appear only while reading cannot be given one, and are then measured by
 * their parsers alone before (`measured`). */
static enum pv_status streams_probe(struct demuxer *d, struct pv_error *err)
{
    unsigned n = d->format->nb_streams;
    AVDictionary **options = av_calloc(n ? n : 1, sizeof *options);
    int r = options ? 0 : AVERROR(ENOMEM);
    enum pv_status s;

    for (unsigned i = 0; i < n && r >= 0; i++)
        r = av_dict_set_int(&options[i], "max_pixels", d->limits->pixels, 0);
    if (r >= 0) {
        d->format->codec_whitelist = probe_decoders(d);
        r = d->format->codec_whitelist ? 0 : AVERROR(ENOMEM);
    }
    if (r >= 0)
        r = avformat_find_stream_info(d->format, options);
    for (unsigned i = 0; i < n && options; i++)
        av_dict_free(&options[i]);
    av_free(options);
    s = usage_check(d->hand, err);
    if (s)
        return s;
    return r < 0 ? demuxer_fail(d, "its streams cannot be read", r, err) : PV_OK;
}

static int best_stream(const struct demuxer *d, enum AVMediaType type, int related)
{
    return av_find_best_stream(d->format, type, -1, related, NULL, 0);
}

/* The first stream of sound; FFmpeg's best one is among those of which a probe has learnt more. */
static int any_sound(const struct demuxer *d)
{
    for (unsigned i = 0; i < d->format->nb_streams; i++)
        if (d->format->streams[i]->codecpar->codec_type == AVMEDIA_TYPE_AUDIO)
            return (int)i;
    return -1;
}

bool demuxer_has_sound(const struct demuxer *d)
{
    return any_sound(d) >= 0;
}

/* A picture that goes with sound, such as the cover of an album, is no film. */
static bool is_cover(const struct demuxer *d)
{
    return d->use == FORMAT_FILM_OR_SOUND && d->stream >= 0 && demuxer_has_sound(d) &&
           (demuxer_stream(d)->disposition & AV_DISPOSITION_ATTACHED_PIC);
}

static enum pv_status find_film(struct demuxer *d, struct pv_error *err)
{
    const AVCodecParameters *par;

    d->stream = best_stream(d, AVMEDIA_TYPE_VIDEO, -1);
    if (is_cover(d))
        d->stream = -1;
    if (d->stream < 0) {
        d->stream = -1;
        if (d->use == FORMAT_FILM_OR_SOUND && demuxer_has_sound(d))
            return PV_OK;
        return fail(err, PV_E_FORMAT, "%s: has no video%s", d->path,
                    d->use != FORMAT_FILM  ? " and no sound"
                    : demuxer_has_sound(d) ? ", only sound"
                                           : "");
    }
    par = demuxer_stream(d)->codecpar;
    if (par->codec_id == AV_CODEC_ID_NONE ||
        formats_has_codec(par->codec_id, d->limits->more_formats))
        return PV_OK;
    return fail(err, PV_E_UNSUPPORTED,
                "%s: video of the codec %s is not read unless it is allowed by name", d->path,
                avcodec_get_name(par->codec_id));
}

static enum pv_status find_sound(struct demuxer *d, struct pv_error *err)
{
    const AVCodecParameters *par;

    d->stream = best_stream(d, AVMEDIA_TYPE_AUDIO, best_stream(d, AVMEDIA_TYPE_VIDEO, -1));
    if (d->stream < 0)
        d->stream = any_sound(d);
    if (d->stream < 0)
        return PV_OK;
    par = demuxer_stream(d)->codecpar;
    if (formats_has_sound_codec(par->codec_id, d->limits->more_formats))
        return PV_OK;
    return fail(err, PV_E_UNSUPPORTED,
                "%s: sound of the codec %s is not read unless it is allowed by name", d->path,
                avcodec_get_name(par->codec_id));
}

/* What headers say of the size of frames. */
struct sizes_said {
    int size[STREAMS_SAID][2];
};

static void note_sizes(const struct demuxer *d, struct sizes_said *said)
{
    for (unsigned i = 0; i < d->format->nb_streams && i < STREAMS_SAID; i++) {
        said->size[i][0] = d->format->streams[i]->codecpar->width;
        said->size[i][1] = d->format->streams[i]->codecpar->height;
    }
}

static enum pv_status check_frame_size(const struct demuxer *d, const struct sizes_said *said,
                                       struct pv_error *err)
{
    const AVCodecParameters *par = demuxer_stream(d)->codecpar;
    int width = par->width, height = par->height;

    if (width <= 0 && d->stream < STREAMS_SAID) { /* a probe that hits the limit forgets it */
        width = said->size[d->stream][0];
        height = said->size[d->stream][1];
    }
    if ((int64_t)width * height <= d->limits->pixels)
        return PV_OK;
    return fail(err, PV_E_LIMIT, "%s: frames of %d x %d pixels, at most %lld are allowed", d->path,
                width, height, (long long)d->limits->pixels);
}

enum pv_status demuxer_open(struct demuxer *d, struct pv_error *err)
{
    enum pv_status s = io_open(d, err);
    struct sizes_said said = { 0 };

    if (!s)
        s = header_read(d, err);
    if (s)
        return s;
    note_sizes(d, &said);
    /* A probe for sound decodes no pictures. */
    d->measured = d->measured || d->of_sound || !(d->format->ctx_flags & AVFMTCTX_NOHEADER);
    s = streams_probe(d, err);
    if (!s)
        s = d->of_sound ? find_sound(d, err) : find_film(d, err);
    if (!s && !d->of_sound && d->stream >= 0)
        s = check_frame_size(d, &said, err);
    if (s)
        return s;
    if (!d->measured) {
        d->measured = true;
        demuxer_close(d);
        return demuxer_open(d, err);
    }
    for (unsigned i = 0; i < d->format->nb_streams; i++)
        d->format->streams[i]->discard = (int)i == d->stream ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
    return PV_OK;
}

AVStream *demuxer_stream(const struct demuxer *d)
{
    return d->format->streams[d->stream];
}

bool demuxer_read(struct demuxer *d)
{
    if (d->packet_held) {
        d->packet_held = false;
        return true;
    }
    av_packet_unref(d->packet);
    while (av_read_frame(d->format, d->packet) >= 0) {
        /* Empty packets mean "the last frame again" in some formats, and the end to decoders. */
        if (d->packet->stream_index == d->stream && d->packet->size > 0)
            return true;
        d->n_empty += d->packet->stream_index == d->stream;
        av_packet_unref(d->packet);
    }
    return false;
}
