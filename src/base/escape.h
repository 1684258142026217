/* Makes untrusted text safe for a terminal: file names and strings inside files may contain escape
 * sequences, which a terminal would execute. */
#ifndef PV_BASE_ESCAPE_H
#define PV_BASE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ESCAPE_MAX = 8 }; /* longest output for one character, in bytes */

/* Whether a terminal or a reader does not see this character: controls, those that change the
 * direction of writing, and those without a shape of their own. */
bool escape_hidden(uint32_t cp);

/* Write the first character of s[0..len), len > 0, to out, and its length to *n. Control characters
 * of ASCII and bytes that are not UTF-8 become "\x1b"; control characters beyond ASCII, line
 * separators and those that change the direction of writing become "\u202e"; every other character
 * stays as it is. Returns the number of bytes read, at least 1. */
size_t escape_char(char out[ESCAPE_MAX], size_t *n, const char *s, size_t len);

/* Escape `s` into out[0..cap), cap > 0, with a final NUL. Text that does not fit is cut at a
 * character. Returns the length. */
size_t escape_text(char *out, size_t cap, const char *s);

#endif
