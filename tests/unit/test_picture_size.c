/* Sizes in the headers of PNG and JPEG files. */
#include "test.h"
#include "video/picture_size.h"

/* Exactly as many bytes as there are, so that the sanitizer sees a byte read behind them. */
static int64_t pixels_of(const void *bytes, size_t size)
{
    uint8_t *copy = mem_alloc(size);
    int64_t pixels;
    if (!CHECK(copy))
        return -1;
    memcpy(copy, bytes, size);
    pixels = picture_pixels(copy, size);
    mem_free(copy);
    return pixels;
}

TEST(png)
{
    char head[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x4e\x20\0\0\x4e\x20";
    CHECK_EQ(pixels_of(head, 24), 400000000);
    for (size_t n = 0; n < 24; n++)
        CHECK_EQ(pixels_of(head, n), 0);
    head[16] = (char)0x80; /* more than the format allows */
    CHECK_EQ(pixels_of(head, 24), 0);
    head[12] = 'i';
    CHECK_EQ(pixels_of(head, 24), 0);
}

TEST(jpeg)
{
    /* A comment, a table, fill bytes, and the frame: 300 lines of 500. */
    static const char file[] =
        "\xff\xd8\xff\xfe\0\4hi\xff\xc4\0\5abc\xff\xff\xff\xc2\0\x11\x08\1\x2c\1\xf4";
    const size_t size = sizeof file - 1;
    CHECK_EQ(pixels_of(file, size), 150000);
    for (size_t n = 0; n < size; n++)
        CHECK_EQ(pixels_of(file, n), 0);
    CHECK_EQ(pixels_of("\xff\xd8\xff\xda\0\2\0\0\0\0\0\0\0\0", 14), 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
