/* All memory of the library is allocated here, so that tests can count allocations, detect those
 * made inside a step, and make them fail. */
#ifndef PV_BASE_MEM_H
#define PV_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MEM_ALIGN = 64 };

void *mem_alloc(size_t size);            /* NULL when out of memory; contents undefined */
void *mem_zalloc(size_t size);           /* the same, zeroed; large blocks use huge pages */
void *mem_realloc(void *p, size_t size); /* for both; new bytes are undefined */
void mem_free(void *p);                  /* for all of the above; NULL is fine */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);

/* Overflow-checked sizes: false and *out untouched when the result does not fit. */
static inline bool mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool add_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* Test hooks. `mem_count` is the number of allocations so far. Code between mem_guard_begin and
 * mem_guard_end, which nest, must not allocate on the same thread: each allocation there succeeds
 * but is counted, over all threads, in `mem_forbidden`. Every unit test requires that this count
 * stays as it was. mem_fail_at(k) makes the k-th allocation from now fail (0: none). */
uint64_t mem_count(void);
uint64_t mem_forbidden(void);
/* Bytes allocated now, and their peak since the start or the last reset. Memory of other devices
 * counts too, except weights: whoever allocates it there reports it by mem_hold and mem_release. */
size_t mem_bytes(void);
size_t mem_peak(void);
void mem_peak_reset(void);
void mem_hold(size_t size);
void mem_release(size_t size);
void mem_guard_begin(void);
void mem_guard_end(void);
void mem_fail_at(uint64_t k);

/* An arena: one block from which pieces are taken in order, and which is freed as a whole. */
struct arena {
    uint8_t *base; /* owned when `owned` */
    size_t cap, used;
    bool owned;
};

bool arena_open(struct arena *a, size_t cap);
void arena_init(struct arena *a, void *mem, size_t cap); /* borrows mem, MEM_ALIGN-ed */
/* MEM_ALIGN-ed bytes, or NULL when the arena is full. */
void *arena_push(struct arena *a, size_t size);
void arena_reset(struct arena *a);
void arena_close(struct arena *a);
/* Bytes that arena_push(size) uses, alignment included, for computing the size of an arena. */
size_t arena_cost(size_t size);

#endif
