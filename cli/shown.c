/* All messages of the command line are printed here. It allocates no memory, so that running out of
 * memory can be reported. */
#include "shown.h"

#include "base/escape.h"

#include <string.h>

void shown_puts(FILE *to, const char *s)
{
    size_t len = strlen(s);

    while (len > 0) {
        char shown[ESCAPE_MAX];
        size_t n, taken = escape_char(shown, &n, s, len);
        fwrite(shown, 1, n, to);
        s += taken;
        len -= taken;
    }
}

void shown_vprintf(FILE *to, const char *fmt, va_list ap)
{
    char text[8192];
    vsnprintf(text, sizeof text, fmt, ap);
    shown_puts(to, text);
}
