/* Any bytes as a form that is uploaded: the first two say how the rest is cut into pieces. The
 * parts and their data must not depend on how the body arrives. */
#include "multipart.h"

#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STORY_LIMIT = 1 << 22 };

static bool begin(void *user, const struct multipart_part *p)
{
    return buf_printf(user, "[%s|%s|%s]", p->name, p->file, p->type);
}

static bool take(void *user, const char *data, size_t size)
{
    return buf_add(user, data, size);
}

static bool end(void *user)
{
    return buf_puts(user, "[end]");
}

/* What the parser told, and how it ended. */
static enum pv_status parse(struct buf *story, const char *data, size_t size, size_t piece)
{
    static const struct multipart_calls calls = { begin, take, end };
    struct pv_error err = { 0 };
    struct multipart m;
    enum pv_status st =
        multipart_init(&m, "multipart/form-data; boundary=\"b-b\"", &calls, story, &err);
    for (size_t at = 0; at < size && !st; at += piece)
        st = multipart_add(&m, data + at, size - at < piece ? size - at : piece, &err);
    if (!st)
        st = multipart_end(&m, &err);
    if (st && st != PV_E_CANCELLED && !err.text[0])
        abort();
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole, pieces;
    enum pv_status one, other;
    char type[256];
    if (size < 2)
        return 0;
    buf_init(&whole, STORY_LIMIT);
    buf_init(&pieces, STORY_LIMIT);
    one = parse(&whole, (const char *)data + 2, size - 2, size);
    other = parse(&pieces, (const char *)data + 2, size - 2, 1u + data[0] + 256u * (data[1] & 3));
    if (one != other || whole.len != pieces.len ||
        (whole.len && memcmp(whole.data, pieces.data, whole.len) != 0))
        abort();
    buf_clear(&whole);
    buf_clear(&pieces);
    /* And as the header that says what the boundary is. */
    if (size < sizeof type) {
        struct multipart m;
        memcpy(type, data, size);
        type[size] = 0;
        multipart_init(&m, type, &(struct multipart_calls){ begin, take, end }, NULL, NULL);
    }
    return 0;
}
