/* A growable byte buffer with a mandatory limit. */
#ifndef PV_BASE_BUF_H
#define PV_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; /* owned; always NUL-terminated once something was added */
    size_t len, cap, limit;
    bool failed; /* the limit or memory was exceeded; from then on additions do nothing */
};

void buf_init(struct buf *b, size_t limit);
void buf_clear(struct buf *b); /* frees the memory; the limit stays */
void buf_reset(struct buf *b); /* keeps the memory, drops the contents and the failure */
bool buf_add(struct buf *b, const void *data, size_t len);
bool buf_puts(struct buf *b, const char *s);
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Add `len` bytes as a JSON string in quotes; bytes that are not UTF-8 become U+FFFD. */
bool buf_json(struct buf *b, const char *utf8, size_t len);
/* The same with escapes (\u202e) for characters that one does not see, as base/escape.h has them.
 */
bool buf_json_visible(struct buf *b, const char *utf8, size_t len);
/* Add `s`, made safe for a terminal: escaped as in base/escape.h. */
bool buf_shown(struct buf *b, const char *s);

#endif
