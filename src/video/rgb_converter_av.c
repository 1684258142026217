/* RGB pictures out of decoded frames, by swscale; turned as they are to be shown. */
#include "video/rgb_converter_av.h"

#include "base/mem.h"

#include <libavutil/display.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>

#include <string.h>

/* The format without yuvj*'s range, and whether samples use all levels. */
static enum AVPixelFormat pixel_format(const AVFrame *f, bool *full)
{
    const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(f->format);
    enum AVPixelFormat format = f->format;

    *full = f->color_range == AVCOL_RANGE_JPEG;
    switch (f->format) {
    case AV_PIX_FMT_YUVJ420P:
        format = AV_PIX_FMT_YUV420P;
        break;
    case AV_PIX_FMT_YUVJ422P:
        format = AV_PIX_FMT_YUV422P;
        break;
    case AV_PIX_FMT_YUVJ444P:
        format = AV_PIX_FMT_YUV444P;
        break;
    case AV_PIX_FMT_YUVJ440P:
        format = AV_PIX_FMT_YUV440P;
        break;
    case AV_PIX_FMT_YUVJ411P:
        format = AV_PIX_FMT_YUV411P;
        break;
    default: /* grey without a word about it is a picture's */
        if (f->color_range == AVCOL_RANGE_UNSPECIFIED && desc && desc->nb_components <= 2)
            *full = true;
        return format;
    }
    *full = true;
    return format;
}

static enum pv_status fail_format(const char *path, const AVFrame *f, struct pv_error *err)
{
    const char *name = av_get_pix_fmt_name(f->format);
    return fail(err, PV_E_UNSUPPORTED, "%s: frames of format %s cannot be converted to RGB", path,
                name ? name : "unknown");
}

/* Sets swscale up for the frame's format, size, matrix and range. */
static enum pv_status scaler_set(struct rgb_converter *p, const char *path, const AVFrame *f,
                                 struct pv_error *err)
{
    bool full;
    enum AVPixelFormat format = pixel_format(f, &full);
    int matrix = f->colorspace;
    const int *table;

    if (!sws_isSupportedInput(format))
        return fail_format(path, f, err);
    /* Without scaling this takes swscale's own path from YUV to RGB, as ffmpeg itself and the
     * references' decoders do; smoother chroma (SWS_FULL_CHR_H_INT) is 36 to 48 dB from them. */
    p->sws =
        sws_getCachedContext(p->sws, f->width, f->height, format, p->stored_width, p->stored_height,
                             AV_PIX_FMT_RGB24, SWS_BILINEAR, NULL, NULL, NULL);
    if (!p->sws) /* the format is one that it knows */
        return fail(err, PV_E_NOMEM, "%s: out of memory while it was converted to RGB", path);
    /* Unsaid is BT.601 whatever the size: so ffmpeg and the decoders that models were trained
     * with take it, though much untagged HD was made with BT.709. */
    if (matrix == AVCOL_SPC_UNSPECIFIED)
        matrix = AVCOL_SPC_SMPTE170M;
    table = sws_getCoefficients(matrix);
    /* RGB has no matrix: then this says no, and there was nothing to set. */
    sws_setColorspaceDetails(p->sws, table, full, table, 1, 0, 1 << 16, 1 << 16);
    return PV_OK;
}

enum pv_status rgb_converter_paint(struct rgb_converter *p, const char *path, const AVFrame *f,
                                   int64_t rank, struct pv_error *err)
{
    uint8_t *dst[4] = { p->scratch };
    int stride[4] = { (int)p->stride };
    enum pv_status s;

    if (p->rgb_rank == rank)
        return PV_OK;
    p->rgb_rank = -1;
    s = scaler_set(p, path, f, err);
    if (s)
        return s;
    if (sws_scale(p->sws, (const uint8_t *const *)f->data, f->linesize, 0, f->height, dst,
                  stride) <= 0)
        return fail_format(path, f, err);
    orient_copy(p->rgb, p->scratch, p->stride, p->stored_width, p->stored_height, p->orientation);
    p->rgb_rank = rank;
    return PV_OK;
}

static struct orientation orientation_find(const AVStream *film, const AVFrame *f)
{
    const AVFrameSideData *of_frame = av_frame_get_side_data(f, AV_FRAME_DATA_DISPLAYMATRIX);
    const void *data = NULL;
    size_t size = 0;
    int32_t matrix[9];

    if (of_frame) {
        data = of_frame->data;
        size = of_frame->size;
    } else {
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(60, 15, 100)
        const AVCodecParameters *par = film->codecpar;
        const AVPacketSideData *side = av_packet_side_data_get(
            par->coded_side_data, par->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
        data = side ? side->data : NULL;
        size = side ? side->size : 0;
#else
        data = av_stream_get_side_data(film, AV_PKT_DATA_DISPLAYMATRIX, &size);
#endif
    }
    if (!data || size < sizeof matrix)
        return (struct orientation){ 0 };
    memcpy(matrix, data, sizeof matrix);
    return orientation_of(matrix);
}

enum pv_status rgb_converter_alloc(struct rgb_converter *p, int width, int height,
                                   struct pv_error *err)
{
    size_t scratch_size = 0, rgb_size = 0, w = (size_t)width, h = (size_t)height;

    p->stride = (w * 3 + MEM_ALIGN * 2 - 1) / MEM_ALIGN * MEM_ALIGN;
    if (p->stride > INT32_MAX || !mul_size(p->stride, h + 1, &scratch_size) ||
        !mul_size(w * 3, h, &rgb_size))
        return fail_nomem(err, SIZE_MAX);
    p->scratch = mem_alloc(scratch_size);
    p->rgb = mem_alloc(rgb_size);
    if (!p->scratch || !p->rgb)
        return fail_nomem(err, scratch_size);
    p->stored_width = width;
    p->stored_height = height;
    return PV_OK;
}

enum pv_status rgb_converter_begin(struct rgb_converter *p, const AVStream *film, const AVFrame *f,
                                   struct pv_error *err)
{
    p->orientation = orientation_find(film, f);
    return rgb_converter_alloc(p, f->width, f->height, err);
}

void rgb_converter_end(struct rgb_converter *p)
{
    sws_freeContext(p->sws);
    mem_free(p->scratch);
    mem_free(p->rgb);
    *p = (struct rgb_converter){ .rgb_rank = -1 };
}
