/* Untrusted text made safe for a terminal: names of files and strings from inside files may hold
 * escape sequences, which a terminal would obey. */
#ifndef PV_BASE_ESCAPE_H
#define PV_BASE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>

enum { ESCAPE_MAX = 8 }; /* bytes that one character can become */

/* Write the first character of s[0..len), len > 0, to out, and its length to *n. Control characters
 * of ASCII and bytes that are not UTF-8 become "\x1b"; control characters beyond ASCII, line
 * separators and those that change the direction of writing become "\u202e"; every other character
 * stays as it is. Returns the number of bytes read, at least 1. */
size_t escape_char(char out[ESCAPE_MAX], size_t *n, const char *s, size_t len);

/* `s` escaped into out[0..cap), cap > 0, ended by a NUL. What does not fit is left out, never a
 * part of a character. Returns its length. */
size_t escape_text(char *out, size_t cap, const char *s);

#endif
