/* Reads the lines that a user types in a conversation. */
#ifndef PV_CLI_CHAT_LINE_H
#define PV_CLI_CHAT_LINE_H

#include "base/buf.h"

#include <stdio.h>

enum { CHAT_LINE_MAX = 1 << 20 }; /* bytes */

enum chat_line {
    CHAT_LINE_READ,
    CHAT_LINE_LONG, /* it was longer than the buffer's limit, and is dropped */
    CHAT_LINE_INTERRUPTED,
    CHAT_LINE_END
};

/* Read the next line into `line`, without leading and trailing white space. */
enum chat_line chat_line_read(struct buf *line, FILE *from);

#endif
