/* SHA-256 against the examples of FIPS 180-4, and that it does not matter how the bytes come. */
#include "base/sha256.h"

#include "base/rng.h"
#include "test.h"

static void hex_of(const void *data, size_t size, char hex[65])
{
    struct sha256 h;
    uint8_t out[SHA256_SIZE];
    sha256_init(&h);
    sha256_add(&h, data, size);
    sha256_finish(&h, out);
    for (int i = 0; i < SHA256_SIZE; i++)
        snprintf(hex + 2 * i, 3, "%02x", out[i]);
}

TEST(examples_of_the_standard)
{
    static const struct {
        const char *text, *hex;
    } all[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    };
    char hex[65], *million = malloc(1000000);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        hex_of(all[i].text, strlen(all[i].text), hex);
        CHECK_MSG(!strcmp(hex, all[i].hex), "\"%s\": %s", all[i].text, hex);
    }
    memset(million, 'a', 1000000);
    hex_of(million, 1000000, hex);
    CHECK(!strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
    free(million);
}

TEST(pieces_do_not_matter)
{
    struct rng r = { test_seed };
    uint8_t data[400], whole[SHA256_SIZE], parts[SHA256_SIZE];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)rng_next(&r);
    for (size_t n = 0; n <= sizeof data; n++) {
        struct sha256 a, b;
        sha256_init(&a);
        sha256_add(&a, data, n);
        sha256_finish(&a, whole);
        sha256_init(&b);
        for (size_t at = 0; at < n;) {
            size_t some = rng_next(&r) % 70;
            some = some < n - at ? some : n - at;
            sha256_add(&b, data + at, some);
            at += some;
        }
        sha256_finish(&b, parts);
        CHECK_MSG(!memcmp(whole, parts, sizeof whole), "%zu bytes", n);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
