/* The rows of a conversation and their positions, which are computed when rows are appended, since
 * those of text depend on the media before it. */
#include "engine/timeline.h"

#include "base/mem.h"

#include <string.h>

enum pv_status timeline_open(struct timeline *t, int context, struct pv_error *err)
{
    size_t n = (size_t)context;
    *t = (struct timeline){ .context = context };
    t->ids = mem_alloc(n * sizeof *t->ids);
    t->pos = mem_alloc(n * sizeof *t->pos);
    if (!t->ids || !t->pos)
        return fail_nomem(err, n * (sizeof *t->ids + sizeof *t->pos));
    return PV_OK;
}

void timeline_close(struct timeline *t)
{
    for (int i = 0; i < t->n_media; i++)
        media_clear(&t->media[i].m);
    mem_free(t->media);
    mem_free(t->span);
    mem_free(t->ids);
    mem_free(t->pos);
    *t = (struct timeline){ 0 };
}

void timeline_clear(struct timeline *t)
{
    timeline_return(t, (struct timeline_mark){ 0 });
}

struct timeline_mark timeline_mark(const struct timeline *t)
{
    return (struct timeline_mark){
        .n = t->n, .n_spans = t->n_spans, .n_video_rows = t->n_video_rows, .next = t->next
    };
}

void timeline_return(struct timeline *t, struct timeline_mark mark)
{
    t->n = mark.n;
    t->n_spans = mark.n_spans;
    t->n_video_rows = mark.n_video_rows;
    t->next = mark.next;
}

/* ---- media ---- */

static int find_key(const struct timeline *t, int key)
{
    for (int i = 0; i < t->n_media; i++)
        if (t->media[i].key == key)
            return i;
    return -1;
}

/* Make room for n elements in a list. */
static enum pv_status grow(void **list, int *cap, int n, size_t element, struct pv_error *err)
{
    void *grown;
    if (n <= *cap)
        return PV_OK;
    grown = mem_realloc(*list, 2 * (size_t)n * element);
    if (!grown)
        return fail_nomem(err, 2 * (size_t)n * element);
    *list = grown;
    *cap = 2 * n;
    return PV_OK;
}

enum pv_status timeline_reserve(struct timeline *t, int n, int n_spans, struct pv_error *err)
{
    void *media = t->media, *span = t->span;
    enum pv_status s = grow(&media, &t->cap_media, t->n_media + n, sizeof *t->media, err);
    t->media = media;
    if (!s)
        s = grow(&span, &t->cap_spans, t->n_spans + n_spans, sizeof *t->span, err);
    t->span = span;
    return s;
}

int timeline_key(const struct timeline *t, const struct media *m)
{
    for (int i = 0; i < t->n_media; i++)
        if (media_equal(&t->media[i].m, m))
            return t->media[i].key;
    return 0;
}

void timeline_adopt(struct timeline *t, struct media *m)
{
    if (timeline_key(t, m)) {
        media_clear(m);
        return;
    }
    t->media[t->n_media++] = (struct media_item){ .key = ++t->last_key, .m = *m };
    *m = (struct media){ 0 };
}

static bool names_key(const int32_t *ids, int n, int key)
{
    for (int i = 0; i < n; i++)
        if (ids[i] == -key)
            return true;
    return false;
}

void timeline_forget(struct timeline *t, const int32_t *kv_ids, int n_kv)
{
    int kept = 0;
    for (int i = 0; i < t->n_media; i++) {
        int key = t->media[i].key;
        if (names_key(t->ids, t->n, key) || names_key(kv_ids, n_kv, key)) {
            t->media[kept++] = t->media[i];
        } else {
            media_clear(&t->media[i].m);
        }
    }
    t->n_media = kept;
    for (int i = 0; i < t->n_spans; i++)
        t->span[i].item = find_key(t, -t->ids[t->span[i].row0]);
}

size_t timeline_media_size(const struct timeline *t)
{
    size_t size = 0;
    for (int i = 0; i < t->n_media; i++)
        size += media_size(&t->media[i].m) + media_sound_size(&t->media[i].m);
    return size;
}

/* ---- rows ---- */

/* The media item whose last run is the last span, if more of its runs must follow; -1: none. */
static int open_item(const struct timeline *t, int *rows)
{
    const struct media_span *last = t->n_spans > 0 ? &t->span[t->n_spans - 1] : NULL;
    *rows = last ? last->end : 0;
    return last && *rows < t->media[last->item].m.n_rows ? last->item : -1;
}

/* Append the spans of the run of media item i that begins at its row `first`. */
static bool add_spans(struct timeline *t, int i, int first)
{
    const struct media *m = &t->media[i].m;
    for (int done = 0; done < m->run_rows;) {
        struct media_span span = { .row0 = t->n + done, .item = i };
        if (t->n_spans == t->cap_spans)
            return false;
        span.first = media_row(m, first + done, &span.n);
        done += span.n;
        span.end = first + done;
        t->span[t->n_spans++] = span;
    }
    return true;
}

/* Append the next run of a media item; ids[0 .. n) begin with its rows. */
static enum pv_status append_run(struct timeline *t, const int32_t *ids, size_t n, int *taken,
                                 struct pv_error *err)
{
    int i = find_key(t, -ids[0]), rows, unfinished = open_item(t, &rows);
    const struct media *m = i >= 0 ? &t->media[i].m : NULL;
    int first = unfinished >= 0 ? rows : 0;
    if (!m || (unfinished >= 0 && unfinished != i) || n < (size_t)m->run_rows ||
        !add_spans(t, i, first))
        return fail(err, PV_E_ARG, "the media item with the id %d is missing or incomplete",
                    (int)ids[0]);
    t->next = media_positions(m, t->next, first, m->run_rows, t->pos + t->n);
    for (int r = 0; r < m->run_rows; r++)
        t->ids[t->n + r] = ids[0];
    t->n += m->run_rows;
    t->n_video_rows += m->run_rows;
    *taken = m->run_rows;
    return PV_OK;
}

static void append_token(struct timeline *t, int32_t id)
{
    int32_t *pos = t->pos[t->n];
    t->ids[t->n++] = id;
    pos[0] = pos[1] = pos[2] = t->next++;
}

enum pv_status timeline_room(const struct timeline *t, size_t n, struct pv_error *err)
{
    if (n > (size_t)(t->context - t->n))
        return fail(err, PV_E_LIMIT, "%zu tokens after %d do not fit a context of %d tokens", n,
                    t->n, t->context);
    return PV_OK;
}

enum pv_status timeline_append(struct timeline *t, const int32_t *ids, size_t n,
                               struct pv_error *err)
{
    struct timeline_mark mark = timeline_mark(t);
    enum pv_status s = timeline_room(t, n, err);
    int rows = 0;
    for (size_t i = 0; i < n && !s;) {
        if (ids[i] >= 0) {
            append_token(t, ids[i++]);
            continue;
        }
        s = append_run(t, ids + i, n - i, &rows, err);
        i += (size_t)rows;
    }
    if (!s && open_item(t, &rows) >= 0)
        s = fail(err, PV_E_ARG, "a media item ends after %d of its %d rows", rows,
                 t->media[t->span[t->n_spans - 1].item].m.n_rows);
    if (s)
        timeline_return(t, mark);
    return s;
}

void timeline_push(struct timeline *t, int32_t id)
{
    append_token(t, id);
}

/* The last span that begins at row i or before it; -1: none. */
static int find_span(const struct timeline *t, int i)
{
    int low = -1, high = t->n_spans - 1;
    while (low < high) {
        int mid = low + (high - low + 1) / 2;
        if (t->span[mid].row0 <= i)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

const struct media_item *timeline_item(const struct timeline *t, int i, int *row)
{
    int k = t->ids[i] < 0 ? find_span(t, i) : -1;
    if (k < 0)
        return NULL;
    *row = i - t->span[k].row0 + t->span[k].first;
    return &t->media[t->span[k].item];
}

int timeline_stretch(const struct timeline *t, int i, int n)
{
    const struct media_span *span = &t->span[find_span(t, i)];
    int left = span->row0 + span->n - i;
    return left < n ? left : n;
}

/* A media item has one run and several spans, or a span for each run. */
int timeline_row(const struct timeline *t, int k, int r)
{
    const struct media *m = &t->media[t->span[k].item].m;
    int place = media_place(m, r);
    return t->span[k + place / m->run_rows].row0 + place % m->run_rows;
}
