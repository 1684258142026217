/* The lists, and their comparison with FFmpeg's names. */
#include "video/formats_av.h"

#include <libavcodec/avcodec.h>
#include <libavutil/bprint.h>
#include <libavutil/mem.h>

#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 64 };

static const char *const containers[] = {
    "mov",       "matroska",  "avi",      "mpegts",       "mpeg",     "flv",       "ogg",
    "gif",       "apng",      "ivf",      "h264",         "hevc",     "obu",       "av1",
    "mpegvideo", "m4v",       "mjpeg",    "yuv4mpegpipe", "png_pipe", "jpeg_pipe", "webp_pipe",
    "bmp_pipe",  "tiff_pipe", "ppm_pipe", "pgm_pipe",
};

static const char *const codecs[] = {
    "h264", "hevc", "av1",   "vp8",    "vp9",    "mpeg1video", "mpeg2video", "mpeg4",
    "h263", "flv1", "mjpeg", "theora", "prores", "ffv1",       "rawvideo",   "gif",
    "apng", "png",  "webp",  "bmp",    "tiff",   "ppm",        "pgm",
};

/* Containers of sound alone. */
static const char *const sound_containers[] = { "wav", "mp3", "flac", "aac", "aiff", "amr" };

static const char *const sound_codecs[] = {
    "aac",       "aac_latm",  "mp3",       "mp2",       "opus",          "vorbis",
    "flac",      "alac",      "ac3",       "eac3",      "dts",           "amr_nb",
    "amr_wb",    "pcm_u8",    "pcm_s16le", "pcm_s16be", "pcm_s24le",     "pcm_s24be",
    "pcm_s32le", "pcm_s32be", "pcm_f32le", "pcm_f32be", "pcm_f64le",     "pcm_f64be",
    "pcm_alaw",  "pcm_mulaw", "adpcm_ms",  "pcm_s8",    "adpcm_ima_wav",
};

/* Files of these name other files. */
static const char *const playlists[] = { "hls",    "concat", "dash",
                                         "image2", "sdp",    "rtsp",
                                         "imf",    "rtp",    "webm_dash_manifest" };

#define IN(list, name) in_list(list, sizeof(list) / sizeof *(list), name)

static bool in_list(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], name))
            return true;
    return false;
}

/* The next of the names in *list, cut to fit; false: there is none. */
static bool next_name(const char **list, char name[NAME_SIZE])
{
    size_t len;

    while (*list && (**list == ',' || **list == ' '))
        ++*list;
    if (!*list || !**list)
        return false;
    len = strcspn(*list, ", ");
    snprintf(name, NAME_SIZE, "%.*s", (int)(len < NAME_SIZE ? len : NAME_SIZE - 1), *list);
    *list += len;
    return true;
}

static bool is_named(const char *more, const char *name)
{
    char one[NAME_SIZE];

    while (next_name(&more, one))
        if (!strcmp(one, name))
            return true;
    return false;
}

void formats_say(char *out, size_t size, const AVInputFormat *input)
{
    size_t len = strcspn(input->name, ",");

    if (len > 5 && !strncmp(input->name + len - 5, "_pipe", 5))
        len -= 5;
    snprintf(out, size, "%.*s", (int)len, input->name);
}

bool formats_has_container(const AVInputFormat *input, enum format_use use, const char *more)
{
    const char *names = input->name;
    char name[NAME_SIZE];

    formats_say(name, sizeof name, input);
    if (is_named(more, name))
        return true;
    while (next_name(&names, name))
        if (IN(containers, name) || is_named(more, name) ||
            (use == FORMAT_FILM_OR_SOUND && IN(sound_containers, name)))
            return true;
    return false;
}

bool formats_has_codec(enum AVCodecID codec, const char *more)
{
    const char *name = avcodec_get_name(codec);

    return IN(codecs, name) || is_named(more, name);
}

bool formats_has_sound_codec(enum AVCodecID codec, const char *more)
{
    const char *name = avcodec_get_name(codec);

    return IN(sound_codecs, name) || is_named(more, name);
}

bool formats_is_playlist(const AVInputFormat *input)
{
    const char *names = input->name;
    char name[NAME_SIZE];

    return next_name(&names, name) && IN(playlists, name);
}

enum pv_status formats_check(const char *more, struct pv_error *err)
{
    char name[NAME_SIZE], pipe[NAME_SIZE + 5];

    while (next_name(&more, name)) {
        snprintf(pipe, sizeof pipe, "%s_pipe", name);
        if (!av_find_input_format(name) && !av_find_input_format(pipe) &&
            !avcodec_descriptor_get_by_name(name))
            return fail(err, PV_E_ARG, "FFmpeg knows no container and no codec named '%s'", name);
    }
    return PV_OK;
}

static void add_decoder(AVBPrint *b, const char *codec)
{
    const AVCodecDescriptor *d = avcodec_descriptor_get_by_name(codec);
    const AVCodec *decoder = d ? avcodec_find_decoder(d->id) : NULL;

    if (decoder)
        av_bprintf(b, "%s%s", b->len ? "," : "", decoder->name);
}

static char *decoders_of(const char *const *list, size_t n, const char *more)
{
    char name[NAME_SIZE], *out = NULL;
    AVBPrint b;

    av_bprint_init(&b, 0, AV_BPRINT_SIZE_UNLIMITED);
    for (size_t i = 0; i < n; i++)
        add_decoder(&b, list[i]);
    while (next_name(&more, name))
        add_decoder(&b, name);
    return av_bprint_finalize(&b, &out) < 0 ? NULL : out;
}

char *formats_decoders(const char *more)
{
    return decoders_of(codecs, sizeof codecs / sizeof *codecs, more);
}

char *formats_sound_decoders(const char *more)
{
    return decoders_of(sound_codecs, sizeof sound_codecs / sizeof *sound_codecs, more);
}
