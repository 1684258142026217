/* A list of media, most recently used first; there are few of them, so it is searched from its
 * beginning. */
#include "engine/vision_cache.h"

#include "base/mem.h"

#include <string.h>

struct entry {
    struct entry *next;
    uint8_t digest[DIGEST_SIZE];
    int n_rows;
    uint64_t size;
    float *rows; /* [n_rows, hidden] */
    bool *have;  /* [n_rows] */
};

struct vision_cache {
    size_t hidden;
    uint64_t limit;
    struct entry *first;
    struct vision_cache_counts counts;
};

struct vision_cache *vision_cache_open(size_t hidden, uint64_t limit)
{
    struct vision_cache *c = mem_zalloc(sizeof *c);
    if (!c)
        return NULL;
    c->hidden = hidden;
    c->limit = limit;
    return c;
}

static void drop(struct vision_cache *c, struct entry **at)
{
    struct entry *e = *at;
    *at = e->next;
    c->counts.bytes -= e->size;
    c->counts.media--;
    mem_free(e->rows);
    mem_free(e->have);
    mem_free(e);
}

void vision_cache_close(struct vision_cache **c)
{
    if (!*c)
        return;
    while ((*c)->first)
        drop(*c, &(*c)->first);
    mem_free(*c);
    *c = NULL;
}

/* Find the entry of a media item and make it the first; NULL if there is none. */
static struct entry *find(struct vision_cache *c, const uint8_t *digest)
{
    struct entry **at = &c->first, *e;
    while (*at && memcmp((*at)->digest, digest, DIGEST_SIZE) != 0)
        at = &(*at)->next;
    e = *at;
    if (e) {
        *at = e->next;
        e->next = c->first;
        c->first = e;
    }
    return e;
}

const float *vision_cache_find(struct vision_cache *c, const uint8_t digest[DIGEST_SIZE], int row,
                               int n)
{
    const struct entry *e = find(c, digest);
    bool all = e != NULL;
    for (int i = 0; i < n && all; i++)
        all = e->have[row + i];
    c->counts.hits += all;
    c->counts.misses += !all;
    return all ? e->rows + (size_t)row * c->hidden : NULL;
}

/* Make room for `size` bytes by dropping the least recently used media. */
static void make_room(struct vision_cache *c, uint64_t size)
{
    while (c->first && c->counts.bytes + size > c->limit) {
        struct entry **last = &c->first;
        while ((*last)->next)
            last = &(*last)->next;
        drop(c, last);
    }
}

static struct entry *add(struct vision_cache *c, const uint8_t *digest, int n_rows)
{
    uint64_t size = (uint64_t)n_rows * (c->hidden * sizeof(float) + sizeof(bool));
    struct entry *e;
    if (size > c->limit)
        return NULL;
    e = mem_zalloc(sizeof *e);
    if (!e)
        return NULL;
    make_room(c, size);
    e->rows = mem_alloc((size_t)n_rows * c->hidden * sizeof *e->rows);
    e->have = mem_zalloc((size_t)n_rows * sizeof *e->have);
    if (!e->rows || !e->have) {
        mem_free(e->rows);
        mem_free(e->have);
        mem_free(e);
        return NULL;
    }
    memcpy(e->digest, digest, DIGEST_SIZE);
    e->n_rows = n_rows;
    e->size = size;
    e->next = c->first;
    c->first = e;
    c->counts.bytes += size;
    c->counts.media++;
    return e;
}

float *vision_cache_keep(struct vision_cache *c, const uint8_t digest[DIGEST_SIZE], int n_rows,
                         int row, int n)
{
    struct entry *e = c->limit > 0 ? find(c, digest) : NULL;
    if (!e && c->limit > 0)
        e = add(c, digest, n_rows);
    if (!e)
        return NULL;
    memset(e->have + row, true, (size_t)n * sizeof *e->have);
    return e->rows + (size_t)row * c->hidden;
}

struct vision_cache_counts vision_cache_counts(const struct vision_cache *c)
{
    return c->counts;
}
