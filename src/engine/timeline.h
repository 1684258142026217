/* The prompt and the answers so far as rows: token ids, rows of media, and their positions. */
#ifndef PV_ENGINE_TIMELINE_H
#define PV_ENGINE_TIMELINE_H

#include "family/media.h"

/* A video, picture or sound clip whose rows are in the prompt. Its key is unique in a session and
 * says what it is: equal pixels and geometry have equal keys, so ids alone tell whether two prompts
 * begin alike. */
struct media_item {
    int key; /* >= 1; its rows have the id -key */
    struct media m;
};

/* Rows of a media item that follow one another in the prompt and in the media item. A media item
 * with text between its runs has several, and so has one whose sound stands between its pictures.
 */
struct media_span {
    int row0, item; /* index in `media` */
    int first, n;   /* rows of the media item: [first, first + n) */
    int end;        /* rows of the media item so far */
};

struct timeline {
    int context; /* most rows */
    int n;
    int32_t *ids;      /* [context]; negative: a row of a media item */
    int32_t (*pos)[3]; /* [context] */
    int32_t next;      /* position of a row of text that comes next */
    int n_video_rows;
    int n_spans, cap_spans;
    struct media_span *span;
    int n_media, cap_media, last_key;
    struct media_item *media;
};

/* To come back to. */
struct timeline_mark {
    int n, n_spans, n_video_rows;
    int32_t next;
};

enum pv_status timeline_open(struct timeline *t, int context, struct pv_error *err);
void timeline_close(struct timeline *t);
void timeline_clear(struct timeline *t);
struct timeline_mark timeline_mark(const struct timeline *t);
void timeline_return(struct timeline *t, struct timeline_mark mark);

/* Room for n more media in n_spans stretches (media_stretches), so that adopting and appending them
 * cannot fail. */
enum pv_status timeline_reserve(struct timeline *t, int n, int n_spans, struct pv_error *err);
/* The key of an equal media item; 0: there is none. */
int timeline_key(const struct timeline *t, const struct media *m);
/* Takes over the pixels of m and gives it the next key, unless an equal media item is here already.
 * Room must have been reserved. */
void timeline_adopt(struct timeline *t, struct media *m);
/* Forget the media that neither the rows nor the given ids name. */
void timeline_forget(struct timeline *t, const int32_t *kv_ids, int n_kv);
/* Bytes of the media. */
size_t timeline_media_size(const struct timeline *t);

/* PV_E_LIMIT unless n more rows fit. */
enum pv_status timeline_room(const struct timeline *t, size_t n, struct pv_error *err);
/* Append rows; a media item comes whole, run by run. Unchanged on failure. */
enum pv_status timeline_append(struct timeline *t, const int32_t *ids, size_t n,
                               struct pv_error *err);
/* Append one token of an answer; there must be room. */
void timeline_push(struct timeline *t, int32_t id);

/* The media item of row i and which of its rows that is; NULL: a token. */
const struct media_item *timeline_item(const struct timeline *t, int i, int *row);
/* Rows from row i of a media item on, at most n, that follow one another in the media item too. */
int timeline_stretch(const struct timeline *t, int i, int n);
/* Where row r of a media item lies whose first span is k. */
int timeline_row(const struct timeline *t, int k, int r);

#endif
