/* Printing what others have written, as names of files: without the control characters that a
 * terminal would obey (base/escape.h). */
#ifndef PV_CLI_SHOWN_H
#define PV_CLI_SHOWN_H

#include <stdarg.h>
#include <stdio.h>

void shown_puts(FILE *to, const char *s);
/* One line of a message; what is longer than 8 KiB is cut. */
void shown_vprintf(FILE *to, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

#endif
