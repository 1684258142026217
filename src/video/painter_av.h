/* The pictures of a film, all of one size: RGB out of decoded frames, as they are shown. */
#ifndef PV_VIDEO_PAINTER_AV_H
#define PV_VIDEO_PAINTER_AV_H

#include "base/status.h"
#include "video/orient.h"

#include <libavformat/avformat.h>

struct SwsContext;

struct painter {
    struct SwsContext *sws;
    struct orientation orientation;
    int stored_width, stored_height;
    uint8_t *scratch; /* [stored_height, stride]: swscale may write past a row's end */
    size_t stride;
    uint8_t *rgb;     /* the picture given to the caller */
    int64_t rgb_rank; /* which one it is, -1: none */
};

/* Size and orientation of all pictures are those of the first good frame. */
enum pv_status painter_begin(struct painter *p, const AVStream *film, const AVFrame *first,
                             struct pv_error *err);
/* Room alone, for another painter of the same film. */
enum pv_status painter_alloc(struct painter *p, int width, int height, struct pv_error *err);
/* The frame's pixels into p->rgb, unless it is that already. */
enum pv_status painter_paint(struct painter *p, const char *path, const AVFrame *f, int64_t rank,
                             struct pv_error *err);
void painter_end(struct painter *p);

#endif
