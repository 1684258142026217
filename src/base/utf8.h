/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef PV_BASE_UTF8_H
#define PV_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decode one character of s[0..len). Returns its length and sets *cp; 0 if the bytes are not UTF-8;
 * -1 if they are the valid beginning of a character that `len` cuts off. */
int utf8_decode(const char *s, size_t len, uint32_t *cp);
/* Encode into out[4], return the length. cp must be a Unicode scalar value. */
int utf8_encode(char *out, uint32_t cp);
/* Length of the longest valid prefix; and whether all bytes are valid. */
size_t utf8_prefix(const char *s, size_t len);
bool utf8_valid(const char *s, size_t len);

#endif
