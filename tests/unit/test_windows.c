/* The window order: by hand, by its properties, and against the reference's for many sizes. */
#include "test.h"
#include "vision/windows.h"

enum { MAX_UNITS = 2048 };

static int order[MAX_UNITS], bounds[MAX_UNITS + 1];

static void plan(int rows, int cols, int side)
{
    memset(order, 0xff, sizeof order);
    memset(bounds, 0xff, sizeof bounds);
    windows_order(order, bounds, rows, cols, side);
}

static void check_ints(const int *got, const int *want, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!CHECK_MSG(got[i] == want[i], "%s: %d at %d, not %d", what, got[i], i, want[i]))
            return;
}

/* 3 x 5 units in windows of 2:
 *    0  1 |  2  3 |  4
 *    5  6 |  7  8 |  9
 *   ------+-------+---
 *   10 11 | 12 13 | 14 */
TEST(order_by_hand)
{
    static const int want[] = { 0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14 };
    static const int want_bounds[] = { 0, 4, 8, 10, 12, 14, 15 };
    CHECK_EQ(windows_count(3, 5, 2), 6);
    plan(3, 5, 2);
    check_ints(order, want, 15, "order");
    check_ints(bounds, want_bounds, 7, "bounds");
    CHECK_EQ(bounds[7], -1); /* and no more */
    CHECK_EQ(order[15], -1);
}

/* The reference pads 8 x 4 units to 12 x 8; the windows of padding alone must vanish. */
TEST(whole_windows_by_hand)
{
    static const int want_bounds[] = { 0, 16, 32 };
    CHECK_EQ(windows_count(8, 4, 4), 2);
    plan(8, 4, 4);
    for (int i = 0; i < 32; i++)
        CHECK_EQ(order[i], i);
    check_ints(bounds, want_bounds, 3, "bounds");
    plan(1, 1, 4);
    CHECK_EQ(order[0], 0);
    CHECK_EQ(bounds[1], 1);
}

/* Every unit comes once, windows are in order and not empty, and all units of a window share it. */
TEST(order_is_a_permutation)
{
    static bool seen[MAX_UNITS];
    for (int side = 1; side <= 5; side++)
        for (int rows = 1; rows <= 14; rows++)
            for (int cols = 1; cols <= 14; cols++) {
                int n = windows_count(rows, cols, side), across = (cols + side - 1) / side;
                bool good = true;
                memset(seen, 0, sizeof seen);
                plan(rows, cols, side);
                good &= bounds[0] == 0 && bounds[n] == rows * cols;
                for (int w = 0; w < n; w++) {
                    good &= bounds[w] < bounds[w + 1];
                    for (int i = bounds[w]; i < bounds[w + 1] && good; i++) {
                        int u = order[i];
                        good &= u >= 0 && u < rows * cols && !seen[u];
                        good &= u / cols / side * across + u % cols / side == w;
                        good &= i == bounds[w] || order[i - 1] < u;
                        seen[good ? u : 0] = true;
                    }
                }
                CHECK_MSG(good, "%d x %d units in windows of %d", rows, cols, side);
            }
}

static uint64_t hash_ints(uint64_t h, const int *v, int n)
{
    for (int i = 0; i < n; i++)
        for (int b = 0; b < 4; b++)
            h = (h ^ ((uint32_t)v[i] >> (8 * b) & 0xff)) * 0x100000001b3u;
    return h;
}

/* FNV-1a of order and bounds as transformers 5.22.2 makes them ("tower_check.py windows"). */
TEST(order_is_the_references)
{
    static const struct {
        int rows, cols, side, n;
        uint64_t hash;
    } cases[] = {
        { 1, 1, 4, 1, 0xb46d04d1c6daa804u },     { 1, 5, 4, 2, 0x40f10b45a3516d50u },
        { 4, 4, 4, 1, 0x3b0572772e2afab5u },     { 4, 5, 4, 2, 0x4a6e04cd93da0bb1u },
        { 5, 4, 4, 2, 0xe9a865a53e7e2991u },     { 8, 8, 4, 4, 0xf5bc738315672935u },
        { 9, 3, 4, 3, 0xa29a425e9662a311u },     { 12, 21, 4, 18, 0x2956c821ae87a3b9u },
        { 20, 36, 4, 45, 0xa7f3a05ee95e4b35u },  { 7, 50, 4, 26, 0x9422bf83781f1c05u },
        { 33, 2, 4, 9, 0x6f8d9a31cc0f4bd6u },    { 16, 17, 4, 20, 0x1fa329bdb5dd21fdu },
        { 1, 1, 1, 1, 0xb46d04d1c6daa804u },     { 1, 5, 1, 5, 0x3d2d7e3baff6a300u },
        { 4, 4, 1, 16, 0xbcf0e9f8bdb5b105u },    { 4, 5, 1, 20, 0x93af28e973bd0f81u },
        { 5, 4, 1, 20, 0x93af28e973bd0f81u },    { 8, 8, 1, 64, 0x73608d544adfa835u },
        { 9, 3, 1, 27, 0x3fd546c5488c278eu },    { 12, 21, 1, 252, 0xe8d5f2ab83c210a9u },
        { 20, 36, 1, 720, 0x9f39197d35733c6fu }, { 7, 50, 1, 350, 0xe647b8e96373e480u },
        { 33, 2, 1, 66, 0x227115da4307eaf7u },   { 16, 17, 1, 272, 0xa7e78438ef97587au },
        { 1, 1, 3, 1, 0xb46d04d1c6daa804u },     { 1, 5, 3, 2, 0x23cb6e7de09cec97u },
        { 4, 4, 3, 4, 0xd8cc464ff1b98befu },     { 4, 5, 3, 4, 0x5d3a260dbf0bc875u },
        { 5, 4, 3, 4, 0x2001556d2b47aad6u },     { 8, 8, 3, 9, 0x40619be7163ddf97u },
        { 9, 3, 3, 3, 0x9767459aa0eed74eu },     { 12, 21, 3, 28, 0x65f79c6b4023c029u },
        { 20, 36, 3, 84, 0xf8f67c9a15184cc5u },  { 7, 50, 3, 51, 0x4b6510adc53bfbdbu },
        { 33, 2, 3, 11, 0xa87374c6aad51cdcu },   { 16, 17, 3, 36, 0xb6b782e2415826c1u },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rows = cases[i].rows, cols = cases[i].cols, n = cases[i].n;
        plan(rows, cols, cases[i].side);
        if (!CHECK_EQ(windows_count(rows, cols, cases[i].side), n))
            continue;
        uint64_t h = hash_ints(0xcbf29ce484222325u, order, rows * cols);
        CHECK_MSG(hash_ints(h, bounds, n + 1) == cases[i].hash, "%d x %d units in windows of %d",
                  rows, cols, cases[i].side);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
