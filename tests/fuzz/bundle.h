/* Several files in one fuzz input, for readers of directories. Each file begins with a line
 * "@@ NAME" and ends before the next such line. NAME must be one of the fuzzer's list: other parts
 * are left out, so that an input can write nowhere else. Files of the list that the input does not
 * have are not in the directory either. */
#ifndef PV_TESTS_FUZZ_BUNDLE_H
#define PV_TESTS_FUZZ_BUNDLE_H

#include "scratch.h"

#include <stdbool.h>
#include <stdint.h>

enum { BUNDLE_MOST_BYTES = 1 << 20 };

/* Where a part begins, at or after p: its "@@ "; NULL: none. */
static inline const uint8_t *bundle_next(const uint8_t *begin, const uint8_t *p, const uint8_t *end)
{
    for (; end - p >= 3; p++)
        if ((p == begin || p[-1] == '\n') && memcmp(p, "@@ ", 3) == 0)
            return p;
    return NULL;
}

static inline const char *bundle_name(const char *const *names, const uint8_t *s, size_t len)
{
    for (; *names; names++)
        if (strlen(*names) == len && memcmp(*names, s, len) == 0)
            return *names;
    return NULL;
}

static inline void bundle_path(char out[256], const char *name)
{
    snprintf(out, 256, "%s/%s", scratch_dir(), name);
}

static inline void bundle_put(const char *name, const uint8_t *data, size_t size)
{
    char path[256];
    FILE *f;
    bundle_path(path, name);
    f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f)) {
        perror(path);
        exit(1); /* says nothing of the input */
    }
}

/* Fills the scratch directory, and returns its path. `names` ends with NULL. */
static inline const char *bundle_open(const char *const *names, const uint8_t *data, size_t size)
{
    const uint8_t *end = data + size, *p = size ? bundle_next(data, data, end) : NULL;
    char path[256];

    for (int i = 0; names[i]; i++) {
        bundle_path(path, names[i]);
        unlink(path);
    }
    while (p) {
        const uint8_t *line = memchr(p, '\n', (size_t)(end - p)), *next;
        const char *name;
        if (!line)
            break;
        next = bundle_next(data, line + 1, end);
        name = bundle_name(names, p + 3, (size_t)(line - p) - 3);
        /* The newline before the next part belongs to that. */
        if (name)
            bundle_put(name, line + 1,
                       next ? (size_t)(next - line) - (next - line > 1 ? 2 : 1)
                            : (size_t)(end - line) - 1);
        p = next;
    }
    return scratch_dir();
}

#endif
