/* Computes the rows of media for the decoder when the prefill needs them. Only a window of a few
 * frames' rows is in memory at any time. */
#ifndef PV_ENGINE_ENCODER_H
#define PV_ENGINE_ENCODER_H

#include "audio_encoder/audio_encoder.h"
#include "family/media.h"
#include "vision/vision.h"

struct encoder;

/* `h`: NULL for a model without an audio encoder. Both are borrowed. */
enum pv_status encoder_open(struct encoder **out, const struct vision *v,
                            const struct audio_encoder *h, struct pv_error *err);
void encoder_close(struct encoder **e);

/* Bytes that the encoder would hold after encoder_reserve of this media item too. */
size_t encoder_size(const struct encoder *e, const struct media *m);
/* Allocate memory for media like m; encoding them allocates nothing. */
enum pv_status encoder_reserve(struct encoder *e, const struct media *m, struct pv_error *err);

/* See device_ops.work_on. */
void encoder_work_on(struct encoder *e, struct device *group);
/* Rows [from, from + n) of m -> out [n, vision_row_size]. `key` identifies the media item, so that
 * its rows in the window are reused. */
enum pv_status encoder_rows(struct encoder *e, const struct media *m, uint64_t key, int from, int n,
                            float *out, struct pv_error *err);
/* The same with `out` in memory of the tower's device. */
enum pv_status encoder_rows_on_device(struct encoder *e, const struct media *m, uint64_t key,
                                      int from, int n, float *out, struct pv_error *err);
/* How many rows of this media item, from *row on, are in the window. Looks among the rows of
 * pictures or of sound, whichever row `of` is one of. */
int encoder_window(const struct encoder *e, const struct media *m, uint64_t key, int of, int *row);
/* See vision_state_watch. */
void encoder_watch(struct encoder *e, struct vision_watch watch);
/* Seconds spent in towers since the last call. */
double encoder_take_seconds(struct encoder *e);

#endif
