/* Appends lines to a file that grows from run to run, such as a table of measurements. */
#ifndef PV_BASE_APPEND_H
#define PV_BASE_APPEND_H

#include "base/status.h"

#include <stdbool.h>

/* Append data[0..len) to a file that is open for appending. On failure it returns false with errno
 * set, and the file is as it was. */
bool append_whole(int fd, const char *data, size_t len);

/* Append text[0..len), which consists of whole lines, to the file; create it if necessary. If the
 * file is empty, the line `header` (NULL: none) is written first; if its last line is not
 * terminated, a newline is. On failure the file is as it was. Processes that append to the same
 * file at the same time wait for each other. */
enum pv_status file_append(const char *path, const char *header, const char *text, size_t len,
                           struct pv_error *err);

#endif
