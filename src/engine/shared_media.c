/* A list, most recently used first; there are few media, so it is searched from its beginning. An
 * item that is dropped here lives on in the prompts that use it. */
#include "engine/shared_media.h"

#include "base/mem.h"

#include <string.h>

enum pv_status shared_media_open(struct pv_media **out, struct loaded_media *l,
                                 struct pv_error *err)
{
    struct pv_media *m = mem_zalloc(sizeof *m);
    if (!m) {
        loaded_media_clear(l);
        return fail_nomem(err, sizeof *m);
    }
    atomic_init(&m->refs, 1);
    m->l = *l;
    *l = (struct loaded_media){ 0 };
    *out = m;
    return PV_OK;
}

struct pv_media *shared_media_share(struct pv_media *m)
{
    atomic_fetch_add(&m->refs, 1);
    return m;
}

void shared_media_close(struct pv_media **media)
{
    struct pv_media *m = *media;
    *media = NULL;
    if (!m || atomic_fetch_sub(&m->refs, 1) > 1)
        return;
    loaded_media_clear(&m->l);
    mem_free(m);
}

/* ---- the cache ---- */

struct entry {
    struct entry *next;
    uint8_t key[DIGEST_SIZE];
    uint64_t size;
    struct pv_media *media;
};

struct media_cache {
    pthread_mutex_t lock;
    uint64_t limit, bytes;
    struct entry *first;
};

struct media_cache *media_cache_open(uint64_t limit)
{
    struct media_cache *c = mem_zalloc(sizeof *c);
    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL);
    c->limit = limit;
    return c;
}

static void drop(struct media_cache *c, struct entry **at)
{
    struct entry *e = *at;
    *at = e->next;
    c->bytes -= e->size;
    shared_media_close(&e->media);
    mem_free(e);
}

void media_cache_close(struct media_cache **cache)
{
    struct media_cache *c = *cache;
    if (!c)
        return;
    while (c->first)
        drop(c, &c->first);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
    *cache = NULL;
}

/* Find an entry and make it the first. */
static struct entry *find(struct media_cache *c, const uint8_t *key)
{
    struct entry **at = &c->first, *e;
    while (*at && memcmp((*at)->key, key, DIGEST_SIZE) != 0)
        at = &(*at)->next;
    e = *at;
    if (e) {
        *at = e->next;
        e->next = c->first;
        c->first = e;
    }
    return e;
}

struct pv_media *media_cache_find(struct media_cache *c, const uint8_t key[DIGEST_SIZE])
{
    struct pv_media *m = NULL;
    struct entry *e;
    pthread_mutex_lock(&c->lock);
    e = find(c, key);
    if (e)
        m = shared_media_share(e->media);
    pthread_mutex_unlock(&c->lock);
    return m;
}

static void make_room(struct media_cache *c, uint64_t size)
{
    while (c->first && c->bytes + size > c->limit) {
        struct entry **last = &c->first;
        while ((*last)->next)
            last = &(*last)->next;
        drop(c, last);
    }
}

void media_cache_keep(struct media_cache *c, const uint8_t key[DIGEST_SIZE], struct pv_media *m)
{
    uint64_t size = sizeof *m + loaded_media_size(&m->l);
    struct entry *e = size <= c->limit ? mem_zalloc(sizeof *e) : NULL;
    if (!e)
        return;
    pthread_mutex_lock(&c->lock);
    if (find(c, key)) { /* another thread has loaded it meanwhile */
        mem_free(e);
    } else {
        make_room(c, size);
        *e = (struct entry){ .next = c->first, .size = size, .media = shared_media_share(m) };
        memcpy(e->key, key, DIGEST_SIZE);
        c->first = e;
        c->bytes += size;
    }
    pthread_mutex_unlock(&c->lock);
}
