/* Where a video or picture of a request comes from: bytes in the request, an uploaded file, a file
 * under the allowed directory, or a URL on the network. Only this file decides what clients may
 * refer to. */
#ifndef PV_SERVER_MEDIA_PART_H
#define PV_SERVER_MEDIA_PART_H

#include "api_error.h"

struct upload_store;

enum { MEDIA_NAME = 128 };

/* A media item that can be read. Owns all it points to. */
struct media_part {
    char name[MEDIA_NAME]; /* used in messages instead of its path */
    char *path;            /* a file; NULL: `data` or `url` */
    uint8_t *data;         /* [size] in memory */
    size_t size;
    char *url; /* must be fetched first (remote.h) */
    int fd;    /* the open file `path`; -1: none */
};

struct media_rules {
    const char *media_path; /* NULL: no file:// */
    const char *const *domains;
    int n_domains;
    uint64_t limit;             /* bytes of one media item */
    struct upload_store *files; /* NULL: none */
};

/* Resolve a URL; may be called from any thread. Nothing is fetched yet. */
bool media_part_read(struct media_part *m, const char *url, const struct media_rules *r,
                     struct api_error *e);
/* Base64 without a URL, as in `input_video.data`. */
bool media_part_base64(struct media_part *m, const char *text, size_t len,
                       const struct media_rules *r, struct api_error *e);
void media_part_clear(struct media_part *m);
/* Replace the item's path by its name in an error message of the library. */
void media_part_hide(const struct media_part *m, char *text, size_t size);

#endif
