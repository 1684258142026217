/* Where a video or picture of a request comes from: bytes in the request, an uploaded file, a file
 * under the allowed directory, or an address on the network. This is the one place that decides
 * what clients may name. */
#ifndef PV_SERVER_MEDIA_PART_H
#define PV_SERVER_MEDIA_PART_H

#include "api_error.h"

struct upload_store;

enum { MEDIA_NAME = 128 };

/* A media item that can be read. Owns all it points to. */
struct media_part {
    char name[MEDIA_NAME]; /* what messages call it instead of its path */
    char *path;            /* NULL: in memory, */
    uint8_t *data;
    size_t size;
    char *url; /* or to be fetched first (remote.h) */
    int fd;    /* keeps what `path` names open; -1: none */
};

struct media_rules {
    const char *media_path; /* NULL: no file:// */
    const char *const *domains;
    int n_domains;
    uint64_t limit;             /* bytes of one media item */
    struct upload_store *files; /* NULL: none */
};

/* What `url` names; from any thread. Nothing is fetched yet. */
bool media_part_read(struct media_part *m, const char *url, const struct media_rules *r,
                     struct api_error *e);
/* Bare base64, as `input_video.data` has it. */
bool media_part_base64(struct media_part *m, const char *text, size_t len,
                       const struct media_rules *r, struct api_error *e);
void media_part_clear(struct media_part *m);
/* Puts the item's name in the place of its path in a sentence of the library. */
void media_part_hide(const struct media_part *m, char *text, size_t size);

#endif
