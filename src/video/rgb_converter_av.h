/* Converts decoded frames to RGB pictures as they are displayed, all of one size. */
#ifndef PV_VIDEO_RGB_CONVERTER_AV_H
#define PV_VIDEO_RGB_CONVERTER_AV_H

#include "base/status.h"
#include "video/orient.h"

#include <libavformat/avformat.h>

struct SwsContext;

struct rgb_converter {
    struct SwsContext *sws;
    struct orientation orientation;
    int stored_width, stored_height;
    uint8_t *scratch; /* [stored_height, stride]: swscale may write past a row's end */
    size_t stride;
    uint8_t *rgb;     /* the last picture */
    int64_t rgb_rank; /* rank of its frame, -1: none */
};

/* All pictures get the size and orientation of `first`, the first intact frame. */
enum pv_status rgb_converter_begin(struct rgb_converter *p, const AVStream *film,
                                   const AVFrame *first, struct pv_error *err);
/* Allocate the buffers only, for another converter of the same video. */
enum pv_status rgb_converter_alloc(struct rgb_converter *p, int width, int height,
                                   struct pv_error *err);
/* Convert a frame into p->rgb, unless p->rgb has this rank already. */
enum pv_status rgb_converter_paint(struct rgb_converter *p, const char *path, const AVFrame *f,
                                   int64_t rank, struct pv_error *err);
void rgb_converter_end(struct rgb_converter *p);

#endif
