/* Reading a line character by character, since a signal may end the wait for any of them. What was
 * typed before an interrupt is dropped, as a shell does. */
#include "chat_line.h"

#include <errno.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void trim(struct buf *line)
{
    size_t begin = 0;
    while (line->len && is_blank(line->data[line->len - 1]))
        line->len--;
    while (begin < line->len && is_blank(line->data[begin]))
        begin++;
    if (line->len) {
        line->len -= begin;
        memmove(line->data, line->data + begin, line->len);
        line->data[line->len] = 0;
    }
}

enum chat_line chat_line_read(struct buf *line, FILE *from)
{
    bool any = false;
    int c;

    buf_reset(line);
    for (;;) {
        errno = 0;
        c = getc(from);
        if (c == EOF && ferror(from) && errno == EINTR) {
            clearerr(from);
            return CHAT_LINE_INTERRUPTED;
        }
        if (c == EOF || c == '\n')
            break;
        any = true;
        buf_add(line, &(char){ (char)c }, 1);
    }
    if (c == EOF && !any)
        return CHAT_LINE_END;
    if (line->failed)
        return CHAT_LINE_LONG;
    trim(line);
    return CHAT_LINE_READ;
}
