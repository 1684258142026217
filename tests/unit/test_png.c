/* PNG files: the same bytes in a file and in memory, and a picture that is given up leaves none. */
#include "base/file.h"
#include "base/png.h"
#include "scratch.h"
#include "test.h"

enum { WIDTH = 60, HEIGHT = 40, ROWS_BEFORE_STOP = 7 };

static int asked;

static int stop_later(void)
{
    return ++asked >= ROWS_BEFORE_STOP;
}

static int never(void)
{
    asked++;
    return 0;
}

static void draw(uint8_t *rgb)
{
    for (int i = 0; i < WIDTH * HEIGHT * 3; i++)
        rgb[i] = (uint8_t)(i * i / 97);
}

TEST(a_picture_that_is_given_up)
{
    static uint8_t rgb[WIDTH * HEIGHT * 3];
    struct pv_error err = { 0 };
    char path[256];
    draw(rgb);
    asked = 0;
    snprintf(path, sizeof path, "%s/picture.png", scratch_dir());
    CHECK_EQ(png_write(path, WIDTH, HEIGHT, rgb, stop_later, &err), PV_E_CANCELLED);
    CHECK_EQ(asked, ROWS_BEFORE_STOP);
    CHECK(err.text[0] && !file_exists(path));
}

TEST(a_whole_picture)
{
    static uint8_t rgb[WIDTH * HEIGHT * 3];
    struct pv_error err = { 0 };
    struct buf memory;
    char path[256];
    uint8_t *file;
    FILE *f;
    draw(rgb);
    buf_init(&memory, 1 << 20);
    asked = 0;
    snprintf(path, sizeof path, "%s/whole.png", scratch_dir());
    CHECK_EQ(png_encode(&memory, WIDTH, HEIGHT, rgb, &err), PV_OK);
    CHECK_EQ(png_write(path, WIDTH, HEIGHT, rgb, never, &err), PV_OK);
    CHECK_EQ(asked, HEIGHT);
    file = calloc(1, memory.len + 1);
    f = fopen(path, "rb");
    if (CHECK(file && f)) {
        CHECK_EQ(fread(file, 1, memory.len + 1, f), memory.len);
        CHECK(memcmp(file, memory.data, memory.len) == 0);
    }
    if (f)
        fclose(f);
    free(file);
    buf_clear(&memory);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
