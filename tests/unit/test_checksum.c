/* The checksum of files of the cache against values of another implementation (in Python, with the
 * BLAKE2b of hashlib), and that it sees damage. */
#include "base/checksum.h"

#include "test.h"

enum { SIZE = 1000 };

static void fill(uint8_t data[SIZE])
{
    for (int i = 0; i < SIZE; i++)
        data[i] = (uint8_t)(i * 7 + 3);
}

/* Of data cut in two. */
static void sum_of(const uint8_t *data, size_t first, size_t size, uint8_t out[DIGEST_SIZE])
{
    struct checksum c;
    checksum_init(&c);
    checksum_add(&c, data, first);
    if (first < size)
        checksum_add(&c, data + first, size - first);
    checksum_finish(&c, out);
}

static bool is_hex(const uint8_t sum[DIGEST_SIZE], const char *hex)
{
    char text[2 * DIGEST_SIZE + 1];
    for (int i = 0; i < DIGEST_SIZE; i++)
        snprintf(text + (size_t)2 * i, 3, "%02x", sum[i]);
    return CHECK_MSG(!strcmp(text, hex), "%s", text);
}

TEST(known_values)
{
    uint8_t data[SIZE], sum[DIGEST_SIZE];
    fill(data);
    sum_of(data, SIZE, SIZE, sum);
    is_hex(sum, "50f124e23a0b92a30670819da00057915d3d581e9b1264f75c2302bb222ec8a0");
    sum_of(data, 128, SIZE, sum);
    is_hex(sum, "98f2814686ca2273bff3ee6e7cb966dd9afda588d616dba034404bc3d94d2a84");
    sum_of(data, 0, 0, sum);
    is_hex(sum, "0f77b10525a61ad59935166847a494b6afd54de5411cd0ab3b2755df447b020c");
}

TEST(every_changed_bit_is_seen)
{
    uint8_t data[SIZE], sum[DIGEST_SIZE], other[DIGEST_SIZE];
    fill(data);
    sum_of(data, 64, SIZE, sum);
    for (int bit = 0; bit < 8 * SIZE; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        sum_of(data, 64, SIZE, other);
        CHECK_MSG(memcmp(sum, other, sizeof sum) != 0, "bit %d", bit);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

TEST(a_shorter_or_longer_content_is_seen)
{
    static const uint8_t zeros[SIZE];
    uint8_t sum[SIZE][DIGEST_SIZE];
    for (int n = 0; n < SIZE; n++)
        sum_of(zeros, (size_t)n, (size_t)n, sum[n]);
    for (int n = 1; n < SIZE; n++)
        CHECK_MSG(memcmp(sum[n - 1], sum[n], DIGEST_SIZE) != 0, "%d and %d bytes", n - 1, n);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
