/* Memory: overflow-checked sizes, alignment, the test hooks, and the arena's bounds. */
#include "base/mem.h"
#include "test.h"

#include <pthread.h>

TEST(sizes_do_not_wrap)
{
    size_t r = 77;
    CHECK(mul_size(6, 7, &r));
    CHECK_EQ(r, 42);
    CHECK(!mul_size(SIZE_MAX / 2 + 1, 2, &r));
    CHECK(!mul_size(SIZE_MAX, SIZE_MAX, &r));
    CHECK_EQ(r, 42);
    CHECK(mul_size(SIZE_MAX, 0, &r));
    CHECK_EQ(r, 0);
    CHECK(add_size(SIZE_MAX - 1, 1, &r));
    CHECK_EQ(r, SIZE_MAX);
    CHECK(!add_size(SIZE_MAX, 1, &r));
    CHECK_EQ(r, SIZE_MAX);
}

TEST(zeroed_blocks_are_aligned)
{
    const size_t sizes[] = { 0, 1, 63, 64, 65, 4097, (2 << 20) - 1, 2 << 20, (4 << 20) + 5 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = mem_zalloc(sizes[i]), any = 0;
        if (!CHECK(p))
            return;
        CHECK_EQ((uintptr_t)p % MEM_ALIGN, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            any |= p[k];
        CHECK_EQ(any, 0);
        mem_free(p);
    }
}

TEST(impossible_sizes_give_null)
{
    CHECK(!mem_zalloc(SIZE_MAX));
    CHECK(!mem_zalloc(SIZE_MAX - 63));
    CHECK(!mem_strndup("x", SIZE_MAX));
}

/* Blocks of 64 MiB and more are mappings, which realloc() knows nothing of. */
TEST(mapped_blocks_can_be_resized)
{
    const size_t large = (size_t)64 << 20, sizes[] = { large + 4096, 3 * large, 4096, large };
    size_t held = mem_bytes();

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t kept = sizes[i] < large ? sizes[i] : large;
        char *p = mem_zalloc(large), *moved;
        if (!CHECK(p))
            return;
        p[0] = 'a';
        p[kept - 1] = 'z';
        mem_fail_at(1);
        CHECK(!mem_realloc(p, sizes[i]) && p[0] == 'a' && p[kept - 1] == 'z');
        mem_fail_at(0);
        moved = mem_realloc(p, sizes[i]);
        if (!CHECK(moved))
            return;
        CHECK(moved[0] == 'a' && moved[1] == 0 && moved[kept - 1] == 'z');
        moved[sizes[i] - 1] = '!';
        CHECK(mem_bytes() >= held + sizes[i]);
        mem_free(moved);
        CHECK_EQ(mem_bytes(), held);
    }
}

TEST(strings_and_realloc)
{
    char *s = mem_strndup("prevue", 3);
    char *t = mem_strdup("");
    char *grown = mem_alloc(4);
    CHECK_STR(s, "pre");
    CHECK_STR(t, "");
    memcpy(grown, "abc", 4);
    grown = mem_realloc(grown, 10000);
    CHECK_STR(grown, "abc");
    mem_free(s);
    mem_free(t);
    mem_free(grown);
    mem_free(NULL);
}

TEST(counter_and_failure_hook)
{
    uint64_t before = mem_count();
    void *p = mem_alloc(10), *q;
    CHECK_EQ(mem_count(), before + 1);
    mem_fail_at(2);
    q = mem_zalloc(10);
    CHECK(q);
    CHECK(!mem_strdup("the second from then on"));
    mem_free(q);
    q = mem_alloc(1);
    CHECK(q); /* only that one fails */
    mem_free(q);
    mem_fail_at(1);
    CHECK(!mem_realloc(p, 20)); /* and p is still ours */
    mem_fail_at(0);
    mem_free(p);
}

static void *allocate_elsewhere(void *arg)
{
    mem_free(mem_alloc(1));
    return arg;
}

/* The guard sees every kind of allocation of its own thread, and lets it succeed. */
TEST(guard_counts_allocations)
{
    uint64_t before = mem_forbidden();
    pthread_t other;
    void *p, *q;
    mem_guard_begin();
    mem_guard_begin();
    mem_guard_end();
    p = mem_realloc(mem_alloc(1), 20);
    q = mem_zalloc(1);
    CHECK(p && q);
    CHECK_EQ(mem_forbidden(), before + 3);
    if (CHECK_EQ(pthread_create(&other, NULL, allocate_elsewhere, NULL), 0))
        pthread_join(other, NULL);
    mem_free(p);
    mem_free(q);
    mem_guard_end();
    mem_free(mem_alloc(1));
    CHECK_EQ(mem_forbidden(), before + 3);
    test_forbidden = 3;
}

TEST(arena_fills_exactly)
{
    struct arena a;
    unsigned char *p, *q;
    if (!CHECK(arena_open(&a, arena_cost(100) + arena_cost(1))))
        return;
    p = arena_push(&a, 100);
    q = arena_push(&a, 1);
    CHECK(p && q);
    CHECK_EQ((uintptr_t)p % MEM_ALIGN, 0);
    CHECK_EQ((uintptr_t)q % MEM_ALIGN, 0);
    CHECK(q >= p + 100);
    memset(p, 0xaa, 100);
    *q = 0xbb;
    CHECK_EQ(p[99], 0xaa);
    CHECK(!arena_push(&a, 1));
    arena_reset(&a);
    CHECK(arena_push(&a, 100) == p);
    arena_close(&a);
    CHECK(!a.base && a.cap == 0 && a.used == 0);
    arena_close(&a); /* twice is fine */
}

TEST(arena_refuses_sizes_that_wrap)
{
    struct arena a;
    if (!CHECK(arena_open(&a, 4096)))
        return;
    CHECK(!arena_push(&a, SIZE_MAX));
    CHECK(!arena_push(&a, SIZE_MAX - 63));
    CHECK(!arena_push(&a, 4097));
    CHECK_EQ(a.used, 0);
    CHECK(arena_push(&a, 0));
    arena_close(&a);
}

TEST(arena_in_borrowed_memory)
{
    static _Alignas(64) unsigned char memory[1024];
    struct arena a;
    arena_init(&a, memory, sizeof memory);
    CHECK(arena_push(&a, 10) == memory);
    arena_close(&a); /* does not free what it borrowed */
    memory[1023] = 1;
}

TEST(arena_open_reports_failure)
{
    struct arena a = { 0 };
    mem_fail_at(1);
    CHECK(!arena_open(&a, 4096));
    mem_fail_at(0);
    CHECK(!arena_open(&a, SIZE_MAX));
}

TEST(bytes_held_come_back)
{
    size_t before = mem_bytes(), peak;
    void *a, *b;
    mem_peak_reset();
    CHECK_EQ(mem_peak(), before);
    a = mem_alloc(1000);
    b = mem_zalloc(100000);
    a = mem_realloc(a, 5000);
    CHECK(mem_bytes() >= before + 105000 && mem_bytes() < before + 125000);
    peak = mem_peak();
    CHECK(peak >= mem_bytes());
    mem_free(a);
    mem_free(b);
    CHECK_EQ(mem_bytes(), before);
    CHECK_EQ(mem_peak(), peak);
    mem_hold(peak); /* on another device */
    CHECK_EQ(mem_peak(), before + peak);
    mem_release(peak);
    CHECK_EQ(mem_bytes(), before);
}

/* Large enough to be mapped: zeroed, aligned, counted, given back, and used again. */
TEST(large_blocks_are_zeroed_and_come_back)
{
    size_t size = ((size_t)70 << 20) + 5, before = mem_bytes();
    for (int round = 0; round < 3; round++) {
        uint8_t *p = mem_zalloc(size), *q = mem_zalloc(size);
        if (!CHECK(p && q && p != q))
            return;
        CHECK_EQ((uintptr_t)p % MEM_ALIGN, 0u);
        CHECK(mem_bytes() >= before + 2 * size);
        for (size_t i = 0; i < size; i += 4096) {
            CHECK_EQ(p[i], 0);
            p[i] = 1;
        }
        CHECK(p[size - 1] == 0 && q[0] == 0 && q[size - 1] == 0);
        p[size - 1] = 1;
        mem_free(p);
        mem_free(q);
        CHECK_EQ(mem_bytes(), before);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
