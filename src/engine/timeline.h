/* The prompt and the answers so far as rows: token ids, rows of media, and their positions. */
#ifndef PV_ENGINE_TIMELINE_H
#define PV_ENGINE_TIMELINE_H

#include "family/media.h"

/* A video, picture or sound clip whose rows are in the prompt. Its key is unique in a session;
 * media with equal pixels and layout get equal keys, so comparing ids is enough to find the common
 * prefix of two prompts. */
struct media_item {
    int key; /* >= 1; its rows have the id -key */
    struct media m;
};

/* Rows that are consecutive both in the prompt and in their media item. A media item has several
 * spans if there is text between its runs, or sound between its pictures. */
struct media_span {
    int row0, item; /* index in `media` */
    int first, n;   /* rows of the media item: [first, first + n) */
    int end;        /* rows of the media item in this and all earlier spans */
};

struct timeline {
    int context; /* most rows */
    int n;
    int32_t *ids;      /* [context]; negative: a row of a media item */
    int32_t (*pos)[3]; /* [context] */
    int32_t next;      /* position of the next row of text */
    int n_video_rows;
    int n_spans, cap_spans;
    struct media_span *span;
    int n_media, cap_media, last_key;
    struct media_item *media;
};

/* A state to which a timeline can be returned. */
struct timeline_mark {
    int n, n_spans, n_video_rows;
    int32_t next;
};

enum pv_status timeline_open(struct timeline *t, int context, struct pv_error *err);
void timeline_close(struct timeline *t);
void timeline_clear(struct timeline *t);
struct timeline_mark timeline_mark(const struct timeline *t);
void timeline_return(struct timeline *t, struct timeline_mark mark);

/* Allocate memory for n more media with n_spans spans in all (media_stretches), so that adopting
 * and appending them cannot fail. */
enum pv_status timeline_reserve(struct timeline *t, int n, int n_spans, struct pv_error *err);
/* The key of an equal media item; 0: there is none. */
int timeline_key(const struct timeline *t, const struct media *m);
/* Take ownership of m's pixels and give it the next key, unless the timeline has an equal media
 * item. Memory must have been reserved. */
void timeline_adopt(struct timeline *t, struct media *m);
/* Drop the media that neither the rows nor the given ids refer to. */
void timeline_forget(struct timeline *t, const int32_t *kv_ids, int n_kv);
/* Bytes of the media. */
size_t timeline_media_size(const struct timeline *t);

/* PV_E_LIMIT unless n more rows fit. */
enum pv_status timeline_room(const struct timeline *t, size_t n, struct pv_error *err);
/* Append rows; all runs of a media item must be in one call. Unchanged on failure. */
enum pv_status timeline_append(struct timeline *t, const int32_t *ids, size_t n,
                               struct pv_error *err);
/* Append one token of an answer; the timeline must not be full. */
void timeline_push(struct timeline *t, int32_t id);

/* The media item of row i, and the number of that row in the item; NULL: row i is a token. */
const struct media_item *timeline_item(const struct timeline *t, int i, int *row);
/* How many rows from row i on, at most n, are consecutive in the media item too. */
int timeline_stretch(const struct timeline *t, int i, int n);
/* The row of the timeline that holds row r of the media item whose first span is k. */
int timeline_row(const struct timeline *t, int k, int r);

#endif
