/* Adding lines to a file that grows from run to run, such as a table of measurements. */
#ifndef PV_BASE_APPEND_H
#define PV_BASE_APPEND_H

#include "base/status.h"

#include <stdbool.h>

/* Put data[0..len) at the end of a file that is open for appending. All of it is written, or false,
 * with errno, and the file is as it was. */
bool append_whole(int fd, const char *data, size_t len);

/* Put text[0..len), whole lines, at the end of the file, which is made if it is not there. Where it
 * is empty `header` (NULL: none), a line too, comes first; where its last line has no end, that is
 * ended first. All of it is written or nothing: on failure the file is as it was. Processes that
 * append to one file at the same time wait for each other. */
enum pv_status file_append(const char *path, const char *header, const char *text, size_t len,
                           struct pv_error *err);

#endif
