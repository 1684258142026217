/* Allocation with hooks for tests, and the arena. This is the one piece of process-wide state in
 * the library: counters, a fail-at number, a per-thread guard and the list of mapped blocks. An
 * allocation inside a guarded section is counted, and succeeds all the same: it would be a mistake
 * in the library, which costs time, and is no reason to end the program that uses it. Under
 * ASan the arena keeps a poisoned zone between two objects so that it does not blind the sanitizer.
 */
#define _DEFAULT_SOURCE
#include "base/mem.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_REDZONE 64
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_REDZONE 64
#endif
#endif
#ifdef ARENA_REDZONE
void __asan_poison_memory_region(void const volatile *p, size_t n);
void __asan_unpoison_memory_region(void const volatile *p, size_t n);
#else
#define ARENA_REDZONE 0
#endif

enum {
    HUGE_PAGE = 2 << 20,
    /* From this size on zeroed memory is mapped, and costs nothing until it is touched: a KV cache
     * is as large as the context asked for, not as the one used. Not under ASan, which could not
     * watch it. */
    MAP_FROM = 64 << 20,
    MAX_MAPPED = 256
};

struct mapped {
    void *p;
    size_t size;
};

static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapped mapped[MAX_MAPPED]; /* p NULL: free */

static atomic_uint_fast64_t alloc_counter, forbidden_counter;
static atomic_uint_fast64_t alloc_fail_at; /* absolute count, 0: never */
static atomic_size_t bytes_held, bytes_peak;
static _Thread_local int guard_depth;

static bool allocation_allowed(void)
{
    uint64_t n = atomic_fetch_add(&alloc_counter, 1) + 1;
    if (guard_depth > 0)
        atomic_fetch_add(&forbidden_counter, 1);
    return n != atomic_load(&alloc_fail_at);
}

uint64_t mem_count(void)
{
    return atomic_load(&alloc_counter);
}

uint64_t mem_forbidden(void)
{
    return atomic_load(&forbidden_counter);
}

void mem_guard_begin(void)
{
    guard_depth++;
}

void mem_guard_end(void)
{
    guard_depth--;
}

void mem_fail_at(uint64_t k)
{
    atomic_store(&alloc_fail_at, k ? atomic_load(&alloc_counter) + k : 0);
}

size_t mem_bytes(void)
{
    return atomic_load(&bytes_held);
}

size_t mem_peak(void)
{
    return atomic_load(&bytes_peak);
}

void mem_peak_reset(void)
{
    atomic_store(&bytes_peak, atomic_load(&bytes_held));
}

/* The entry of a mapped block, or with p NULL a free one; NULL: there is none. Under the lock. */
static struct mapped *mapped_find(const void *p)
{
    for (int i = 0; i < MAX_MAPPED; i++)
        if (mapped[i].p == p)
            return &mapped[i];
    return NULL;
}

static bool may_be_mapped(const void *p)
{
    return p && (uintptr_t)p % HUGE_PAGE == 0;
}

/* `size` zeroed bytes at a multiple of HUGE_PAGE, of which `size` is one too; NULL: none. */
static void *map(size_t size)
{
    size_t all = size + HUGE_PAGE, before;
    struct mapped *entry;
    uint8_t *base;

    pthread_mutex_lock(&mapped_lock);
    entry = mapped_find(NULL);
    base = entry ? mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                 : MAP_FAILED;
    if (base == MAP_FAILED) {
        pthread_mutex_unlock(&mapped_lock);
        return NULL;
    }
    before = (HUGE_PAGE - (uintptr_t)base % HUGE_PAGE) % HUGE_PAGE;
    if (before)
        munmap(base, before);
    munmap(base + before + size, all - before - size);
    *entry = (struct mapped){ base + before, size };
    pthread_mutex_unlock(&mapped_lock);
    return base + before;
}

/* Size of a mapped block, 0 for others; `unmap`: and give it back. */
static size_t mapped_size(void *p, bool unmap)
{
    struct mapped *entry;
    size_t size = 0;

    if (!may_be_mapped(p))
        return 0;
    pthread_mutex_lock(&mapped_lock);
    entry = mapped_find(p);
    if (entry) {
        size = entry->size;
        if (unmap) {
            munmap(p, size);
            entry->p = NULL;
        }
    }
    pthread_mutex_unlock(&mapped_lock);
    return size;
}

/* Bytes of a block. What malloc leaves unused behind huge pages is not counted: it varies, and is
 * never touched. */
static size_t block_size(void *p)
{
    size_t n = mapped_size(p, false);
    if (n)
        return n;
    n = malloc_usable_size(p);
    return (uintptr_t)p % HUGE_PAGE == 0 && n >= HUGE_PAGE ? n - n % HUGE_PAGE : n;
}

void mem_hold(size_t size)
{
    size_t now = atomic_fetch_add(&bytes_held, size) + size;
    size_t peak = atomic_load(&bytes_peak);
    while (now > peak && !atomic_compare_exchange_weak(&bytes_peak, &peak, now))
        continue;
}

void mem_release(size_t size)
{
    atomic_fetch_sub(&bytes_held, size);
}

/* Count a block that was just given out; NULL is none. */
static void *held(void *p)
{
    if (p)
        mem_hold(block_size(p));
    return p;
}

void *mem_alloc(size_t size)
{
    return allocation_allowed() ? held(malloc(size ? size : 1)) : NULL;
}

void *mem_zalloc(size_t size)
{
    size_t align = size >= HUGE_PAGE ? HUGE_PAGE : MEM_ALIGN;
    size_t rounded;
    void *p;

    if (!allocation_allowed() || !add_size(size ? size : 1, align - 1, &rounded))
        return NULL;
    rounded &= ~(align - 1);
    p = ARENA_REDZONE == 0 && size >= MAP_FROM ? map(rounded) : NULL;
    if (p) {
        madvise(p, rounded, MADV_HUGEPAGE);
        return held(p);
    }
    p = aligned_alloc(align, rounded);
    if (!p)
        return NULL;
    if (align == HUGE_PAGE)
        madvise(p, rounded, MADV_HUGEPAGE);
    memset(p, 0, size);
    return held(p);
}

/* A mapping cannot be given to realloc: its contents move to a block of malloc. */
static void *move_mapped(void *p, size_t before, size_t size)
{
    void *moved = mem_alloc(size);
    if (!moved)
        return NULL;
    memcpy(moved, p, before < size ? before : size);
    mem_free(p);
    return moved;
}

void *mem_realloc(void *p, size_t size)
{
    size_t mapping = mapped_size(p, false), before = p ? block_size(p) : 0;
    void *grown;
    if (mapping)
        return move_mapped(p, mapping, size);
    grown = allocation_allowed() ? realloc(p, size ? size : 1) : NULL;
    if (!grown)
        return NULL;
    mem_release(before);
    return held(grown);
}

void mem_free(void *p)
{
    if (!p)
        return;
    mem_release(block_size(p));
    if (!mapped_size(p, true))
        free(p);
}

char *mem_strndup(const char *s, size_t n)
{
    char *copy = n < SIZE_MAX ? mem_alloc(n + 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, s, n);
    copy[n] = 0;
    return copy;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

bool arena_open(struct arena *a, size_t cap)
{
    void *mem = mem_zalloc(cap);
    if (!mem)
        return false;
    *a = (struct arena){ .base = mem, .cap = cap, .owned = true };
    arena_reset(a);
    return true;
}

void arena_init(struct arena *a, void *mem, size_t cap)
{
    *a = (struct arena){ .base = mem, .cap = cap };
}

size_t arena_cost(size_t size)
{
    return ((size + MEM_ALIGN - 1) & ~(size_t)(MEM_ALIGN - 1)) + ARENA_REDZONE;
}

void *arena_push(struct arena *a, size_t size)
{
    uint8_t *p = a->base + a->used;
    if (size > a->cap || arena_cost(size) > a->cap - a->used)
        return NULL;
    a->used += arena_cost(size);
#if ARENA_REDZONE
    __asan_unpoison_memory_region(p, size);
#endif
    return p;
}

void arena_reset(struct arena *a)
{
    a->used = 0;
#if ARENA_REDZONE
    if (a->owned) /* borrowed memory has other users */
        __asan_poison_memory_region(a->base, a->cap);
#endif
}

void arena_close(struct arena *a)
{
#if ARENA_REDZONE
    if (a->owned)
        __asan_unpoison_memory_region(a->base, a->cap);
#endif
    if (a->owned)
        mem_free(a->base);
    *a = (struct arena){ 0 };
}
