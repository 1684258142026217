/* Embedding rows of media for the decoder, computed only when prefill needs them: at any time a
 * window of a few frames' tokens is in memory. */
#ifndef PV_ENGINE_ENCODER_H
#define PV_ENGINE_ENCODER_H

#include "family/media.h"
#include "hearing/hearing.h"
#include "vision/vision.h"

struct encoder;

/* `h`: NULL for a model that does not hear. Both are borrowed. */
enum pv_status encoder_open(struct encoder **out, const struct vision *v, const struct hearing *h,
                            struct pv_error *err);
void encoder_close(struct encoder **e);

/* Bytes encoder_reserve would hold for this media item, and for those before it. */
size_t encoder_size(const struct encoder *e, const struct media *m);
/* Room for media like m: nothing is allocated after this. */
enum pv_status encoder_reserve(struct encoder *e, const struct media *m, struct pv_error *err);

/* As device_ops.work_on. */
void encoder_work_on(struct encoder *e, struct device *group);
/* Rows [from, from + n) of m -> out [n, vision_row_size]. `key` names the media item: its rows in
 * the window are used again. */
enum pv_status encoder_rows(struct encoder *e, const struct media *m, uint64_t key, int from, int n,
                            float *out, struct pv_error *err);
/* The same where `out` lies on the tower's device. */
enum pv_status encoder_rows_there(struct encoder *e, const struct media *m, uint64_t key, int from,
                                  int n, float *out, struct pv_error *err);
/* Rows of this media item, of pictures or of sound as row `of` is, that can be had without running
 * the tower: how many, from *row on. */
int encoder_window(const struct encoder *e, const struct media *m, uint64_t key, int of, int *row);
/* From now on: vision_state_watch. */
void encoder_watch(struct encoder *e, struct vision_watch watch);
/* Seconds spent in towers since the last call. */
double encoder_take_seconds(struct encoder *e);

#endif
