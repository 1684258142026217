/* The changes that the fuzzer of MP4 and Matroska makes (box_tree.h, box_changes.h): a file read
 * and written back is the same; after a change, sizes tile, chunks still lead to their bytes, and
 * checksums hold. Here they are looked at by a second reader. */
#include "box_changes.h"

#include "test.h"

#include <stdio.h>

enum { ROOM = 1 << 16, SEEDS = 2000 };

static const char *const files[] = { "tiny.mp4",   "faststart.mp4", "fragments.mp4", "dash.mp4",
                                     "tracks.mov", "tiny.mkv",      "tiny.webm",     "cues.mkv",
                                     "live.webm",  "two.mkv" };

static size_t load(const char *name, uint8_t *data)
{
    char path[256];
    size_t n;
    FILE *f;
    snprintf(path, sizeof path, "tests/fuzz/corpus/boxes/%s", name);
    f = fopen(path, "rb");
    n = f ? fread(data, 1, ROOM, f) : 0;
    if (f)
        fclose(f);
    CHECK_MSG(n > 0, "%s", path);
    return n;
}

TEST(unchanged_files_are_written_as_they_were)
{
    static struct boxes t;
    static uint8_t data[ROOM], out[ROOM];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n = load(files[i], data);
        if (!CHECK_MSG(boxes_read(&t, data, n), "%s", files[i]))
            continue;
        CHECK_MSG(t.n > 20, "%s has %d boxes", files[i], t.n); /* it looked inside */
        CHECK_EQ(boxes_write(&t, out, ROOM), n);
        CHECK_MSG(memcmp(out, data, n) == 0, "%s", files[i]);
    }
}

/* Takes what it does not know as it is. */
static size_t flip(uint8_t *data, size_t size, size_t cap)
{
    if (size < cap)
        data[size++] = 0x5a;
    data[size / 2] ^= 0x81;
    return size;
}

/* Do the MP4 boxes of data[at..end) end where it ends? */
static bool tiles(const uint8_t *data, size_t at, size_t end)
{
    while (end - at >= 8) {
        uint64_t size = box_load(data + at, 4);
        size = size == 1 ? box_load(data + at + 8, 8) : size == 0 ? end - at : size;
        if (size < 8 || size > end - at)
            return false;
        if (memcmp(data + at + 4, "moov", 4) == 0 || memcmp(data + at + 4, "trak", 4) == 0) {
            if (!tiles(data, at + 8, at + size))
                return false;
        }
        at += size;
    }
    return at == end;
}

TEST(sizes_hold_after_changes)
{
    static uint8_t file[ROOM], data[ROOM];
    size_t n = load("tracks.mov", file);
    int changed = 0, whole = 0;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        size_t m;
        memcpy(data, file, n);
        m = boxes_mutate(data, n, ROOM, seed, flip);
        changed += m != n || memcmp(data, file, n) != 0;
        whole += tiles(data, 0, m);
    }
    CHECK_MSG(changed > SEEDS * 9 / 10, "%d", changed);
    /* One in 16 is of plain bytes; a parent's type may become that of a leaf with its bytes. */
    CHECK_MSG(whole > SEEDS * 17 / 20, "%d of %d", whole, SEEDS);
}

static int find_type(const struct boxes *t, uint32_t type)
{
    for (int i = 1; i < t->n; i++)
        if (t->box[i].type == type)
            return i;
    return -1;
}

TEST(chunks_lead_to_their_bytes)
{
    static struct boxes t, again;
    static uint8_t data[ROOM], out[ROOM];
    size_t n = load("faststart.mp4", data), m, before, after;
    int box, chunks;
    boxes_read(&t, data, n);
    box = find_type(&t, FOURCC('m', 'v', 'h', 'd'));
    chunks = find_type(&t, FOURCC('s', 't', 'c', 'o'));
    if (!CHECK(box > 0 && chunks > 0))
        return;
    before = (size_t)box_load(t.box[chunks].data + 8, 4);
    box_insert(&t, &t.box[box].next, box_copy(&t, &t, box)); /* before the media */
    m = boxes_write(&t, out, ROOM);
    CHECK_EQ(m, n + 108);
    boxes_read(&again, out, m);
    after = (size_t)box_load(again.box[find_type(&again, FOURCC('s', 't', 'c', 'o'))].data + 8, 4);
    CHECK_EQ(after, before + 108);
    CHECK(memcmp(data + before, out + after, n - before) == 0);
}

TEST(matroska_checksums_and_positions_hold)
{
    static struct boxes t, again;
    static uint8_t data[ROOM], out[ROOM];
    size_t n = load("tiny.mkv", data), m;
    int seek = 0, crc = 0, title;
    boxes_read(&t, data, n);
    title = find_type(&t, 0x4d80); /* the muxing application, in Info */
    if (!CHECK(title > 0))
        return;
    t.box[title].data = (const uint8_t *)"somebody else's writing application";
    t.box[title].size = 35;
    m = boxes_write(&t, out, ROOM);
    CHECK(m > n && boxes_read(&again, out, m));
    for (int i = 1; i < again.n; i++) {
        const struct box *b = &again.box[i], *first = &again.box[b->child < 0 ? i : b->child];
        if (b->type == BOX_SEEK_POSITION) { /* leads to an element that begins there */
            const struct box *segment = &again.box[find_type(&again, BOX_SEGMENT)];
            size_t at = (size_t)box_load(b->data, b->size) + segment->old_payload;
            for (int k = 1; k < again.n; k++)
                seek += again.box[k].old_at == at;
        }
        if (b->parent && first->type == BOX_CRC32) {
            uint32_t want = box_crc32(out + first->old_end, b->old_end - first->old_end);
            for (int k = 0; k < 4; k++)
                CHECK_EQ(first->data[k], want >> 8 * k & 0xff);
            crc++;
        }
    }
    CHECK_MSG(seek >= 2 && crc >= 2, "%d positions, %d checksums", seek, crc);
}

TEST(files_of_another_kind_get_plain_changes)
{
    uint8_t data[64] = "GIF89a";
    CHECK_EQ(boxes_mutate(data, 8, sizeof data, 1, flip), 9);
    CHECK_EQ(data[8], 0x5a);
}

TEST(crossing_takes_a_box_of_the_other)
{
    static uint8_t a[ROOM], b[ROOM], out[ROOM];
    static struct boxes t;
    size_t n = load("tiny.mp4", a), k = load("tracks.mov", b), crossed = 0;
    for (unsigned seed = 0; seed < 100; seed++) {
        size_t m = boxes_cross(a, n, b, k, out, ROOM, seed);
        crossed += m > 0 && boxes_read(&t, out, m);
        CHECK_EQ(boxes_cross(a, n, (const uint8_t *)"GIF89a", 6, out, ROOM, seed), 0);
    }
    CHECK_MSG(crossed > 10, "%zu", crossed);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
