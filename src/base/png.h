/* PNG files of 8-bit RGB pictures. */
#ifndef PV_BASE_PNG_H
#define PV_BASE_PNG_H

#include "base/buf.h"
#include "prevue/prevue.h"

/* Write rgb [height, width, 3]. The file gets its name only when it is complete. `stop` (NULL:
 * none) is called between rows; if it returns nonzero, writing ends with PV_E_CANCELLED. */
enum pv_status png_write(const char *path, int width, int height, const uint8_t *rgb,
                         int (*stop)(void), struct pv_error *err);

/* The same bytes appended to `out`. */
enum pv_status png_encode(struct buf *out, int width, int height, const uint8_t *rgb,
                          struct pv_error *err);

/* The version of zlib, as text. */
void png_version(char *out, size_t size);

#endif
