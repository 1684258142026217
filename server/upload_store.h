/* Uploaded files: a directory with a limit in bytes, and the list of its files. Uploads must be
 * made on the loop's thread; the list may be used from any thread. */
#ifndef PV_SERVER_UPLOAD_STORE_H
#define PV_SERVER_UPLOAD_STORE_H

#include "api_error.h"

#include <stdint.h>

enum { STORED_ID = 48, STORED_NAME = 256, STORED_TYPE = 64, STORED_PATH = 1024 };

struct stored_file {
    struct stored_file *next;
    char id[STORED_ID], name[STORED_NAME], type[STORED_TYPE], purpose[32];
    char path[STORED_PATH];
    uint64_t bytes;
    int64_t created;
    bool sample; /* a sample clip, not an upload: never removed */
};

struct upload_store;
struct upload;

/* dir NULL: a temporary directory, which is removed with the store. Files in another directory stay
 * there, and other servers may use it at the same time. */
enum pv_status upload_store_open(struct upload_store **out, const char *dir, uint64_t file_bytes,
                                 uint64_t all_bytes, struct pv_error *err);
void upload_store_close(struct upload_store **store);
/* Add the clips of a directory as files that every client may use, with the ids "sample-NAME". */
void upload_store_samples(struct upload_store *s, const char *dir);

/* A copy of the file's entry; false: there is none, or errno says why it cannot be looked for. */
bool stored_find(struct upload_store *s, const char *id, struct stored_file *out);
/* The error for that, by errno: 404, or 503 where files or memory are lacking. Returns false. */
bool stored_fail(struct api_error *e, const char *id);
bool stored_remove(struct upload_store *s, const char *id);
/* {"id":...,"object":"file",...}; and a list of them. */
void stored_json(struct buf *b, const struct stored_file *f);
void stored_list_json(struct buf *b, struct upload_store *s);

/* An upload whose body is arriving. NULL or false: refused, *e says why. */
struct upload *upload_begin(struct upload_store *s, const char *content_type, struct api_error *e);
bool upload_add(struct upload *u, const char *data, size_t size, struct api_error *e);
/* Ends the upload, also on failure. */
bool upload_finish(struct upload **u, struct stored_file *out, struct api_error *e);
void upload_abandon(struct upload **u);

#endif
