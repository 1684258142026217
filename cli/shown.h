/* Prints untrusted text, such as file names, without control characters that a terminal would
 * execute (base/escape.h). */
#ifndef PV_CLI_SHOWN_H
#define PV_CLI_SHOWN_H

#include <stdarg.h>
#include <stdio.h>

void shown_puts(FILE *to, const char *s);
/* One line of a message; it is cut at 8 KiB. */
void shown_vprintf(FILE *to, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

#endif
