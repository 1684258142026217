/* A key is compared by its digest with all known ones, so that the time reveals nothing about
 * them. */
#include "api_keys.h"

#include "base/file.h"
#include "base/mem.h"

#include <string.h>

enum { MAX_KEYS = 1024, MAX_KEY_FILE = 1 << 20 };

static void hash_key(uint8_t out[DIGEST_SIZE], const char *key, size_t len)
{
    struct digest d;
    digest_init(&d);
    digest_add(&d, key, len);
    digest_finish(&d, out);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void add_line(struct api_keys *k, const char *line, size_t len)
{
    while (len > 0 && is_space(*line)) {
        line++;
        len--;
    }
    while (len > 0 && is_space(line[len - 1]))
        len--;
    if (len > 0 && *line != '#' && k->n < MAX_KEYS)
        hash_key(k->digest[k->n++], line, len);
}

enum pv_status api_keys_open(struct api_keys *k, const char *path, struct pv_error *err)
{
    struct file_map map;
    enum pv_status s = file_map_open(&map, path, MAX_KEY_FILE, err);
    if (s)
        return s;
    k->digest = mem_alloc(MAX_KEYS * sizeof *k->digest);
    k->n = 0;
    if (!k->digest)
        s = fail_nomem(err, MAX_KEYS * sizeof *k->digest);
    for (size_t at = 0; at < map.size && !s;) {
        const char *line = (const char *)map.data + at;
        const char *end = memchr(line, '\n', map.size - at);
        size_t len = end ? (size_t)(end - line) : map.size - at;
        add_line(k, line, len);
        at += len + 1;
    }
    file_map_close(&map);
    if (!s && k->n == 0)
        s = fail(err, PV_E_FORMAT, "%s: there is no key in it", path);
    if (s)
        api_keys_close(k);
    return s;
}

void api_keys_close(struct api_keys *k)
{
    mem_free(k->digest);
    *k = (struct api_keys){ NULL, 0 };
}

bool api_keys_allow(const struct api_keys *k, const char *key)
{
    uint8_t given[DIGEST_SIZE];
    unsigned found = 0;
    if (k->n == 0)
        return true;
    hash_key(given, key ? key : "", key ? strlen(key) : 0);
    for (int i = 0; i < k->n; i++) {
        unsigned differ = 0;
        for (int j = 0; j < DIGEST_SIZE; j++)
            differ |= (unsigned)(given[j] ^ k->digest[i][j]);
        found |= (differ - 1) >> 31; /* 1 where nothing differs */
    }
    return key && found;
}
