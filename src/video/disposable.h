/* Finds packets of H.264 that can be left out of decoding: no other picture refers to theirs, as to
 * most B-frames. What the file says of it is believed only where the next picture bears it out, so
 * that a damaged header does not make a reference frame disposable.
 *
 * No other codec has such packets here. In VP8, VP9 and Theora, pictures also share probabilities,
 * vectors or tables with the next ones. */
#ifndef PV_VIDEO_DISPOSABLE_H
#define PV_VIDEO_DISPOSABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct disposable_sps {
    bool known, fields; /* fields: pictures may be coded as two fields */
    bool separate;      /* colour planes are coded as pictures of their own */
    int number_bits;    /* of frame_num in slice headers */
};

struct disposable {
    struct disposable_sps sps[32];
    uint8_t pps[256]; /* number of the SPS + 1; 0: unknown */
    int length_bytes; /* before each unit; 0: start codes */
    bool pending;     /* the last packet says that nothing refers to it */
    int number;       /* frame_num of the last packet */
};

/* Start with the stream's extradata, in either form (avcC or start codes); NULL: it has none. May
 * be called again when it changes. */
void disposable_begin(struct disposable *d, const uint8_t *extradata, size_t size);
/* Read the next packet in decoding order. Returns whether the one before it is disposable. */
bool disposable_next(struct disposable *d, const uint8_t *data, size_t size);

#endif
