/* Kept rows of media: what was written is found again, never anything else, and the bound holds. */
#include "engine/vision_cache.h"

#include "base/mem.h"
#include "base/rng.h"
#include "test.h"

enum { HIDDEN = 8, ROWS = 20, MEDIA = 6 };

static float value(int item, int row, int i)
{
    return (float)(1000 * item + 10 * row + i);
}

TEST(rows_are_found_as_they_were_kept)
{
    size_t before = mem_bytes();
    uint64_t one = ROWS * (HIDDEN * sizeof(float) + sizeof(bool));
    struct vision_cache *c = vision_cache_open(HIDDEN, 3 * one);
    struct rng r = { test_seed };
    int64_t found = 0;
    for (int round = 0; round < 3000; round++) {
        int m = (int)(rng_next(&r) % MEDIA), row = (int)(rng_next(&r) % ROWS);
        int n = 1 + (int)(rng_next(&r) % (uint64_t)(ROWS - row));
        uint8_t digest[DIGEST_SIZE] = { (uint8_t)m };
        const float *rows = vision_cache_find(c, digest, row, n);
        float *to;
        for (int i = 0; rows && i < n * HIDDEN; i++)
            if (!CHECK(rows[i] == value(m, row + i / HIDDEN, i % HIDDEN)))
                return;
        found += rows != NULL;
        to = rows ? NULL : vision_cache_keep(c, digest, ROWS, row, n);
        CHECK(rows || to);
        for (int i = 0; to && i < n * HIDDEN; i++)
            to[i] = value(m, row + i / HIDDEN, i % HIDDEN);
        CHECK(vision_cache_counts(c).bytes <= 3 * one && vision_cache_counts(c).media <= 3);
    }
    CHECK(found > 300);
    CHECK_EQ(vision_cache_counts(c).hits, found);
    vision_cache_close(&c);
    CHECK_EQ(mem_bytes(), before);
}

TEST(the_least_recently_used_goes)
{
    uint64_t one = ROWS * (HIDDEN * sizeof(float) + sizeof(bool));
    struct vision_cache *c = vision_cache_open(HIDDEN, 2 * one);
    uint8_t a[DIGEST_SIZE] = { 1 }, b[DIGEST_SIZE] = { 2 }, d[DIGEST_SIZE] = { 3 };
    vision_cache_keep(c, a, ROWS, 0, ROWS);
    vision_cache_keep(c, b, ROWS, 0, ROWS);
    CHECK(vision_cache_find(c, a, 0, ROWS));
    vision_cache_keep(c, d, ROWS, 0, ROWS);
    CHECK(vision_cache_find(c, a, 0, ROWS) && !vision_cache_find(c, b, 0, 1));
    vision_cache_close(&c);
    c = vision_cache_open(HIDDEN, one - 1);
    CHECK(!vision_cache_keep(c, a, ROWS, 0, 1)); /* larger than all */
    vision_cache_close(&c);
    c = vision_cache_open(HIDDEN, 0);
    CHECK(!vision_cache_keep(c, a, ROWS, 0, 1) && !vision_cache_find(c, a, 0, 1));
    vision_cache_close(&c);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
