/* Any bytes as a data URL, and as bare base64. What is accepted keeps its bound, and is the same
 * after it was written and read again. */
#include "base64.h"
#include "data_url.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 1 << 12, TEXT_LIMIT = 1 << 16 };

static void check(const uint8_t *data, size_t size)
{
    struct buf b;
    uint8_t *again = NULL;
    size_t n = 0;
    if (size > LIMIT)
        abort();
    buf_init(&b, TEXT_LIMIT);
    base64_add(&b, data, size);
    if (base64_parse(&again, &n, b.data ? b.data : "", b.len, LIMIT, NULL) || n != size ||
        (n > 0 && memcmp(again, data, n) != 0))
        abort();
    mem_free(again);
    buf_clear(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pv_error err = { 0 };
    struct data_url u;
    uint8_t *bytes = NULL;
    size_t n = 0;
    if (data_url_parse(&u, (const char *)data, size, LIMIT, &err) == PV_OK) {
        if (!memchr(u.type, 0, sizeof u.type))
            abort();
        check(u.data, u.size);
        data_url_clear(&u);
    } else if (!err.text[0]) {
        abort();
    }
    if (base64_parse(&bytes, &n, (const char *)data, size, LIMIT, NULL) == PV_OK) {
        check(bytes, n);
        mem_free(bytes);
    }
    return 0;
}
