/* The keys that clients may use, from a file with one on each line. */
#ifndef PV_SERVER_API_KEYS_H
#define PV_SERVER_API_KEYS_H

#include "base/digest.h"
#include "base/status.h"

struct api_keys {
    uint8_t (*digest)[DIGEST_SIZE];
    int n; /* 0: no key is required */
};

/* Blank lines and lines that begin with # are ignored; a file without a key is refused. */
enum pv_status api_keys_open(struct api_keys *k, const char *path, struct pv_error *err);
void api_keys_close(struct api_keys *k);
/* Compares in constant time. key NULL: the client gave none. */
bool api_keys_allow(const struct api_keys *k, const char *key);

#endif
