/* Any bytes as a file of the cache on disk; then the same bytes with a size and a checksum that
 * hold, so that what they protect is reached. What is accepted has the key asked for, and nothing
 * is accepted with another checksum. */
#include "base/checksum.h"
#include "base/load.h"
#include "engine/disk_cache.h"

#include <stdlib.h>
#include <string.h>

enum { AT_SIZE = 16, AT_KEY = 32, LEAST = DISK_HEADER + DIGEST_SIZE, MOST_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whether it is accepted as an entry of any kind. */
static bool check_file(const uint8_t *file, size_t size, const uint8_t *key)
{
    bool accepted = false;
    for (int kind = 0; kind < DISK_KINDS; kind++) {
        struct pv_error err = { 0 };
        size_t entry = SIZE_MAX;
        if (disk_file_check(file, size, (enum disk_kind)kind, key, &entry, &err)) {
            if (!err.text[0] || entry != SIZE_MAX)
                abort(); /* a failure must say why, and leave the output alone */
            continue;
        }
        if (accepted || entry != size - LEAST || memcmp(file + AT_KEY, key, DIGEST_SIZE) != 0)
            abort();
        accepted = true;
    }
    return accepted;
}

static void seal(uint8_t *file, size_t size)
{
    struct checksum c;
    store_le64(file + AT_SIZE, size - LEAST);
    checksum_init(&c);
    checksum_add(&c, file, DISK_HEADER);
    checksum_add(&c, file + DISK_HEADER, size - LEAST);
    checksum_finish(&c, file + size - DIGEST_SIZE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t zero[DIGEST_SIZE];
    uint8_t *file;
    if (size > MOST_BYTES)
        return 0;
    check_file(data, size, zero);
    if (size < LEAST)
        return 0;
    file = malloc(size);
    if (!file)
        return 0;
    memcpy(file, data, size);
    seal(file, size);
    if (check_file(file, size, file + AT_KEY)) {
        file[size - 1] ^= 1;
        if (check_file(file, size, file + AT_KEY))
            abort();
    }
    free(file);
    return 0;
}
