/* The n-gram drafter: what followed the last few tokens when they were last seen, in the prompt or
 * in the answer, may follow them again.
 *
 * Longer matches are tried first, and among matches of one length the latest. A continuation that
 * runs into the end of the text goes on in its own tokens, so a loop stays a loop. The text is kept
 * with each run of media rows as one token that matches nothing. Of the prompt, which may be long,
 * the places of each token lie together in an index made once; the answer is looked through. */
#include "base/mem.h"
#include "spec/drafter_kind.h"

#include <stdlib.h>
#include <string.h>

enum {
    LONGEST_MATCH = 4,
    MAX_HITS = 4096, /* older occurrences of a very common token are not looked at */
    MEDIUM = -1
};

struct ngram_drafter {
    struct drafter base;
    int32_t *text;        /* [cap] prompt, then answer */
    int n_prompt, n, cap; /* n_prompt: of the text kept */
    uint64_t *place;      /* [n_places] (id, index) of the prompt's tokens, ascending */
    int n_places;
    int hit[MAX_HITS];     /* where the last token was seen before, latest first */
    uint8_t len[MAX_HITS]; /* how many tokens up to there match */
};

static struct ngram_drafter *of(struct drafter *d)
{
    return (struct ngram_drafter *)d;
}

static int32_t place_id(uint64_t place)
{
    return (int32_t)(place >> 32);
}

static int by_place(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Room for n tokens of text. */
static enum pv_status reserve(struct ngram_drafter *d, int n, struct pv_error *err)
{
    int cap = d->cap > 0 ? d->cap : 1024;
    int32_t *text;
    if (n <= d->cap)
        return PV_OK;
    while (cap < n)
        cap = cap > INT32_MAX / 2 ? n : cap * 2;
    text = mem_realloc(d->text, sizeof *text * (size_t)cap);
    if (!text)
        return fail_nomem(err, sizeof *text * (size_t)cap);
    d->text = text;
    d->cap = cap;
    return PV_OK;
}

static enum pv_status begin_ngram(struct drafter *base, const struct draft_prompt *p,
                                  struct pv_error *err)
{
    struct ngram_drafter *d = of(base);
    size_t size = sizeof *d->place * (size_t)(p->n > 0 ? p->n : 1);
    uint64_t *place = mem_alloc(size);
    enum pv_status s = place ? reserve(d, p->n, err) : fail_nomem(err, size);
    int n = 0, n_places = 0;
    if (s) {
        mem_free(place);
        return s;
    }
    for (int i = 0; i < p->n; i++) {
        if (p->ids[i] >= 0) {
            place[n_places++] = (uint64_t)p->ids[i] << 32 | (uint32_t)n;
            d->text[n++] = p->ids[i];
        } else if (n == 0 || d->text[n - 1] >= 0) {
            d->text[n++] = MEDIUM;
        }
    }
    qsort(place, (size_t)n_places, sizeof *place, by_place);
    mem_free(d->place);
    d->place = place;
    d->n_places = n_places;
    d->n_prompt = d->n = n;
    return PV_OK;
}

/* How many tokens up to `end` equal those at the end of the text. */
static int match_len(const int32_t *text, int n, int end)
{
    int len = 0;
    while (len < LONGEST_MATCH && len <= end && text[end - len] >= 0 &&
           text[end - len] == text[n - 1 - len])
        len++;
    return len;
}

/* Whether there is room for more places after this one. */
static bool add_hit(struct ngram_drafter *d, int *n_hits, int end)
{
    if (d->text[end + 1] < 0)
        return true;
    d->hit[*n_hits] = end;
    d->len[*n_hits] = (uint8_t)match_len(d->text, d->n, end);
    return ++*n_hits < MAX_HITS;
}

/* All places, latest first, where the last token was seen and a token follows. */
static int find_hits(struct ngram_drafter *d)
{
    int32_t last = d->text[d->n - 1];
    int n_hits = 0, low = 0, high = d->n_places;
    bool room = true;
    for (int end = d->n - 2; end >= d->n_prompt && room; end--)
        if (d->text[end] == last)
            room = add_hit(d, &n_hits, end);
    while (low < high) { /* to the first place of a higher token */
        int middle = low + (high - low) / 2;
        if (place_id(d->place[middle]) <= last)
            low = middle + 1;
        else
            high = middle;
    }
    for (int i = low - 1; i >= 0 && place_id(d->place[i]) == last && room; i--)
        room = add_hit(d, &n_hits, (int)(uint32_t)d->place[i]);
    return n_hits;
}

/* Adds what followed `end` as a chain below the root; whether the tree has grown. */
static bool add_continuation(const struct ngram_drafter *d, struct tree *t, int end, int depth,
                             int most_rows)
{
    int32_t path[TREE_MAX_DEPTH];
    int row = 0, before = t->n;
    for (int i = 0; i < depth; i++) {
        int at = end + 1 + i;
        path[i] = at < d->n ? d->text[at] : path[at - d->n];
        if (path[i] < 0)
            break;
        if (t->n >= most_rows && tree_child(t, row, path[i]) < 0)
            break;
        row = tree_add(t, row, path[i]);
        if (row < 0)
            break;
    }
    return t->n > before;
}

static int root_children(const struct shape *s)
{
    if (s->kind == SHAPE_CHAIN)
        return 1;
    return s->kind == SHAPE_STATIC ? shape_children(s, 0) : s->width;
}

static enum pv_status propose_ngram(struct drafter *base, const struct draft_request *r,
                                    struct pv_error *err)
{
    struct ngram_drafter *d = of(base);
    int depth = shape_depth(r->shape), left = root_children(r->shape), n_hits;
    enum pv_status s = reserve(d, d->n_prompt + r->n_answer, err);
    if (s)
        return s;
    memcpy(d->text + d->n_prompt, r->answer, sizeof *r->answer * (size_t)r->n_answer);
    d->n = d->n_prompt + r->n_answer;
    depth = depth < r->most ? depth : r->most;
    depth = depth < TREE_MAX_DEPTH ? depth : TREE_MAX_DEPTH;
    if (depth < 1)
        return PV_OK;
    n_hits = find_hits(d);
    for (int len = LONGEST_MATCH; len > 0 && left > 0; len--)
        for (int i = 0; i < n_hits && left > 0; i++)
            if (d->len[i] == len &&
                add_continuation(d, r->tree, d->hit[i], depth, shape_rows(r->shape)))
                left--;
    return PV_OK;
}

static void close_ngram(struct drafter *base)
{
    mem_free(of(base)->text);
    mem_free(of(base)->place);
    mem_free(base);
}

enum pv_status drafter_ngram_open(struct drafter **out, struct pv_error *err)
{
    struct ngram_drafter *d = mem_zalloc(sizeof *d);
    if (!d)
        return fail_nomem(err, sizeof *d);
    d->base = (struct drafter){
        .name = "ngram", .begin = begin_ngram, .propose = propose_ngram, .close = close_ngram
    };
    *out = &d->base;
    return PV_OK;
}

static enum pv_status open_kind(struct drafter **out, const struct drafter_resources *r,
                                struct pv_error *err)
{
    (void)r;
    return drafter_ngram_open(out, err);
}

const struct drafter_kind drafter_ngram = {
    .info = { .name = "ngram", .preset = "ngram" },
    .open = open_kind,
};
