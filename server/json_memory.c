/* Blocks are counted as malloc gives them out, so that nothing is estimated. Those of a body are in
 * a ring: when the reading ends in the middle, they are freed without jansson, which is left by
 * longjmp and holds nothing but memory. */
#define _DEFAULT_SOURCE /* madvise */
#include "json_memory.h"

#include "base/mem.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

enum {
    EXTRA_STEP = 64 << 10,
    MALLOC_HEAD = 8, /* of each block */
    PAGE = 4096,
    LONG = 1 << 20,          /* bytes of a block */
    WORTH_TRIMMING = 4 << 20 /* bytes */
};

struct block {
    struct block *next, *prev;
    _Alignas(max_align_t) char data[];
};

static atomic_size_t held;  /* by all values, also those of other JSON files */
static atomic_size_t extra; /* of JSON_EXTRA, taken by bodies that are being read */
static size_t most = SIZE_MAX;

/* What this thread reads. jansson collects a string in a block that it doubles: of that one only as
 * much as the body is long can be in use. */
static _Thread_local struct reading {
    bool active;
    size_t used, limit, len, extra;
    struct block ring;
    struct block *text, *last; /* the block of the string; the newest one */
    enum json_refusal refusal;
    jmp_buf out;
} body;

static struct block *block_of(void *p)
{
    return (struct block *)((char *)p - offsetof(struct block, data));
}

static size_t size_of(struct block *b)
{
    return malloc_usable_size(b) + MALLOC_HEAD;
}

/* Bytes of a block that count for the body. */
static size_t used_by(struct block *b)
{
    size_t n = size_of(b);
    return b == body.text && n > body.len ? body.len : n;
}

static void insert(struct block *b, struct block *at)
{
    b->prev = at;
    b->next = at->next;
    at->next->prev = b;
    at->next = b;
}

/* More for a body whose values take more than JSON_TIMES its size. */
static enum json_refusal extend(size_t size)
{
    size_t more = size + EXTRA_STEP;
    if (more > JSON_EXTRA - body.extra)
        return JSON_TOO_LARGE;
    if (atomic_fetch_add(&extra, more) + more > JSON_EXTRA) {
        atomic_fetch_sub(&extra, more);
        return JSON_BUSY;
    }
    body.extra += more;
    body.limit += more;
    return JSON_FITS;
}

static enum json_refusal judge(size_t size)
{
    size_t filled = size < LONG ? size : size / 2; /* long blocks are doubled ones */
    size_t need = body.used + filled;
    enum json_refusal r = need > body.limit ? extend(need - body.limit) : JSON_FITS;
    if (r)
        return r;
    return size > most || atomic_load(&held) > most - size ? JSON_BUSY : JSON_FITS;
}

/* Of a value that is no body's. */
static struct block *allocate_block(size_t size)
{
    struct block *b = size < SIZE_MAX - sizeof *b ? mem_alloc(sizeof *b + size) : NULL;
    if (b) {
        atomic_fetch_add(&held, size_of(b));
        b->next = b->prev = b;
    }
    return b;
}

static void *allocate(size_t size)
{
    struct block *b;
    body.refusal = body.active ? judge(size) : JSON_FITS;
    b = body.refusal == JSON_FITS ? allocate_block(size) : NULL;
    if (!body.active)
        return b ? b->data : NULL;
    if (!b) {
        body.refusal = body.refusal == JSON_FITS ? JSON_NO_MEMORY : body.refusal;
        longjmp(body.out, 1);
    }
    insert(b, &body.ring);
    body.text = body.text ? body.text : b; /* the first one */
    body.last = b;
    body.used += used_by(b);
    return b->data;
}

/* The pages inside of a long block: malloc may keep it. */
static void give_back(struct block *b)
{
    uintptr_t from = ((uintptr_t)b + PAGE - 1) / PAGE * PAGE;
    uintptr_t to = ((uintptr_t)b + malloc_usable_size(b)) / PAGE * PAGE;
    if (to - from >= LONG && to > from)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

static void release_block(struct block *b)
{
    b->prev->next = b->next;
    b->next->prev = b->prev;
    atomic_fetch_sub(&held, size_of(b));
    give_back(b);
    mem_free(b);
}

/* A block of the body is about to be freed. */
static void forget(struct block *b)
{
    struct block *last = body.last == b ? NULL : body.last;
    body.used -= used_by(b);
    body.last = last;
    if (b != body.text)
        return;
    if (last) /* the text was doubled */
        body.used -= used_by(last);
    body.text = last;
    if (last)
        body.used += used_by(last);
}

static void release(void *p)
{
    struct block *b = p ? block_of(p) : NULL;
    if (!b)
        return;
    if (body.active)
        forget(b);
    release_block(b);
}

void json_memory_open(uint64_t bodies)
{
    most = (size_t)(JSON_TIMES * bodies + JSON_EXTRA);
    mallopt(M_MMAP_THRESHOLD, LONG);
    json_object_seed(0);
    json_set_alloc_funcs(allocate, release);
}

void json_memory_trim(uint64_t freed)
{
    if (freed >= WORTH_TRIMMING)
        malloc_trim(0);
}

static json_t *parse(const char *text, size_t len, json_error_t *why)
{
    if (setjmp(body.out) == 0)
        return json_loadb(text, len, JSON_DECODE_ANY, why);
    while (body.ring.next != &body.ring)
        release_block(body.ring.next);
    json_memory_trim(body.used);
    return NULL;
}

json_t *json_memory_parse(const char *text, size_t len, json_error_t *why,
                          enum json_refusal *refusal)
{
    json_t *root;
    body = (struct reading){ .active = true, .limit = JSON_TIMES * len, .len = len };
    body.ring.next = body.ring.prev = &body.ring;
    root = parse(text, len, why);
    body.active = false;
    /* The ring goes on without its head. */
    body.ring.prev->next = body.ring.next;
    body.ring.next->prev = body.ring.prev;
    atomic_fetch_sub(&extra, body.extra);
    *refusal = body.refusal;
    return root;
}

void json_memory_free(json_t *root)
{
    size_t before = atomic_load(&held), after;
    json_decref(root);
    after = atomic_load(&held);
    json_memory_trim(before > after ? before - after : 0);
}
