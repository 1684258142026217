/* WAV files of one channel of 32-bit floats. */
#ifndef PV_BASE_WAV_H
#define PV_BASE_WAV_H

#include "prevue/prevue.h"

/* Write n samples with `rate` samples per second. The file gets its name only when it is
 * complete. */
enum pv_status wav_write(const char *path, int rate, const float *samples, size_t n,
                         struct pv_error *err);

#endif
