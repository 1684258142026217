/* BLAKE2b-256 against values of an independent implementation (Python's hashlib), and that it does
 * not matter in which pieces the bytes come. */
#include "base/digest.h"

#include "base/rng.h"
#include "test.h"

static void hex_of(const void *data, size_t size, char hex[65])
{
    struct digest d;
    uint8_t out[DIGEST_SIZE];
    digest_init(&d);
    digest_add(&d, data, size);
    digest_finish(&d, out);
    for (int i = 0; i < DIGEST_SIZE; i++)
        snprintf(hex + 2 * i, 3, "%02x", out[i]);
}

TEST(known_values)
{
    static const struct {
        const char *text, *hex;
    } all[] = {
        { "", "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8" },
        { "abc", "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319" },
        { "The quick brown fox jumps over the lazy dog",
          "01718cec35cd3d796dd00020e0bfecb473ad23457d063b75eff29c0ffa2e58a9" },
    };
    char hex[65], *million = malloc(1000000);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        hex_of(all[i].text, strlen(all[i].text), hex);
        CHECK_MSG(!strcmp(hex, all[i].hex), "\"%s\": %s", all[i].text, hex);
    }
    memset(million, 'a', 1000000);
    hex_of(million, 128, hex); /* one block, which is the last */
    CHECK(!strcmp(hex, "ae2aa48507885c4c950fb809b2076f959cde9f8ea6da260d9a3587df33dac450"));
    hex_of(million, 1000000, hex);
    CHECK(!strcmp(hex, "0741850f36cba4259628355d1073e24ddb9ca0e1bfac36fd39ae5dc2101e23a4"));
    free(million);
}

TEST(pieces_do_not_matter)
{
    struct rng r = { test_seed };
    uint8_t data[700], whole[DIGEST_SIZE], parts[DIGEST_SIZE];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)rng_next(&r);
    for (size_t n = 0; n <= sizeof data; n++) {
        struct digest a, b;
        digest_init(&a);
        digest_add(&a, data, n);
        digest_finish(&a, whole);
        digest_init(&b);
        for (size_t at = 0; at < n;) {
            size_t some = rng_next(&r) % 300;
            some = some < n - at ? some : n - at;
            digest_add(&b, data + at, some);
            at += some;
        }
        digest_finish(&b, parts);
        CHECK_MSG(!memcmp(whole, parts, sizeof whole), "%zu bytes", n);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
