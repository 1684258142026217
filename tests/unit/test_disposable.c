/* Packets of H.264, written by hand, that nothing refers to, and those that only seem so. */
#include "video/disposable.h"

#include "../make_h264.h"
#include "../test.h"

enum { PPS = 0 };

/* The units of a packet, after start codes, or after lengths of two bytes. */
struct packet {
    uint8_t data[1 << 12];
    size_t n;
    bool lengths;
};

static void put_unit(struct packet *p, struct bits b)
{
    size_t len = b.n / 8;

    if (p->lengths) {
        p->data[p->n++] = (uint8_t)(len >> 8);
        p->data[p->n++] = (uint8_t)len;
    } else {
        memcpy(p->data + p->n, "\0\0\1", 3);
        p->n += 3;
    }
    memcpy(p->data + p->n, b.data, len);
    p->n += len;
    free(b.data);
}

/* A slice. idc: 0 is of a picture that nothing refers to. */
static struct bits slice(int idc, int type, unsigned first, unsigned number)
{
    struct bits b = { 0 };

    bits_put(&b, (uint32_t)(idc << 5 | type), 8);
    bits_ue(&b, first);
    bits_ue(&b, 1);
    bits_ue(&b, PPS);
    bits_put(&b, number, 8); /* frame_num as in h264_sps */
    bits_put(&b, 0x5a5a5a5a, 32);
    bits_finish(&b);
    return b;
}

static struct bits other(int type)
{
    struct bits b = { 0 };

    bits_put(&b, (uint32_t)type, 8);
    bits_put(&b, 0x12345678, 32);
    bits_finish(&b);
    return b;
}

/* avcC or start codes. */
static void begin(struct disposable *d, bool lengths)
{
    struct packet p = { .lengths = lengths };

    if (lengths) {
        memcpy(p.data, "\1\102\0\63\375\341", 6); /* lengths of two bytes, one SPS */
        p.n = 6;
    }
    put_unit(&p, h264_sps(4, 2));
    if (lengths)
        p.data[p.n++] = 1;
    put_unit(&p, h264_pps());
    disposable_begin(d, p.data, p.n);
    CHECK(d->sps[0].known && d->pps[PPS] == 1);
    CHECK_EQ(d->sps[0].number_bits, 8);
    CHECK(!d->sps[0].fields);
}

static bool next(struct disposable *d, struct bits a)
{
    struct packet p = { .lengths = d->length_bytes > 0 };

    put_unit(&p, a);
    return disposable_next(d, p.data, p.n);
}

static bool next_two(struct disposable *d, struct bits a, struct bits b)
{
    struct packet p = { .lengths = d->length_bytes > 0 };

    put_unit(&p, a);
    put_unit(&p, b);
    return disposable_next(d, p.data, p.n);
}

TEST(pictures)
{
    struct disposable d;

    for (int lengths = 0; lengths < 2; lengths++) {
        begin(&d, lengths);
        CHECK(!next(&d, slice(3, 5, 0, 0)));
        CHECK(!next(&d, slice(2, 1, 0, 1))); /* after a key, and a reference */
        CHECK(!next(&d, slice(0, 1, 0, 2)));
        CHECK(next(&d, slice(0, 1, 0, 2)));
        CHECK(next(&d, slice(2, 1, 0, 2)));
        CHECK(!next(&d, slice(0, 1, 0, 3)));
        CHECK(next(&d, slice(3, 5, 0, 0))); /* nothing refers across a key */
    }
}

/* A reference frame whose nal_ref_idc is damaged. */
TEST(frames_that_count)
{
    struct disposable d;

    begin(&d, true);
    CHECK(!next(&d, slice(0, 1, 0, 7)));
    CHECK(!next(&d, slice(2, 1, 0, 8)));
    CHECK(!next(&d, slice(0, 1, 0, 9)));
    CHECK(!next(&d, slice(0, 1, 0, 10)));
}

/* What is in a packet besides. */
TEST(units)
{
    static const struct {
        int type;
        bool disposable;
    } types[] = {
        { 6, true }, { 9, true }, { 12, true }, { 2, false }, { 14, false }, { 20, false }
    };
    struct disposable d;

    begin(&d, true);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        next_two(&d, other(types[i].type), slice(0, 1, 0, 2));
        CHECK_MSG(next(&d, slice(2, 1, 0, 2)) == types[i].disposable, "unit of type %d",
                  types[i].type);
    }
    next_two(&d, h264_pps(), slice(0, 1, 0, 2));
    CHECK(!next(&d, slice(2, 1, 0, 2)));
    next_two(&d, slice(0, 1, 0, 2), slice(0, 1, 5, 2)); /* two slices of one picture */
    CHECK(next(&d, slice(2, 1, 0, 2)));
    next_two(&d, slice(0, 1, 0, 2), slice(0, 1, 0, 2)); /* two pictures */
    CHECK(!next(&d, slice(2, 1, 0, 2)));
    next_two(&d, slice(0, 1, 0, 2), slice(1, 1, 5, 2)); /* a slice of a reference */
    CHECK(!next(&d, slice(2, 1, 0, 2)));
    next_two(&d, slice(0, 1, 0, 2), slice(0, 1, 5, 3)); /* ... of another number */
    CHECK(!next(&d, slice(2, 1, 0, 2)));
}

/* No packet is read past its end, and damaged lengths make it indispensable. */
TEST(damage)
{
    struct disposable d;
    struct packet p = { .lengths = true };
    uint8_t *tight;

    begin(&d, true);
    put_unit(&p, slice(0, 1, 0, 2));
    for (size_t n = 1; n <= p.n; n++) {
        tight = malloc(n);
        memcpy(tight, p.data, n);
        disposable_next(&d, tight, n);
        free(tight);
        CHECK(next(&d, slice(2, 1, 0, 2)) == (n == p.n));
    }
    for (size_t n = 0; n < 40; n++) {
        struct packet e = { .lengths = true };
        memcpy(e.data, "\1\102\0\63\375\341", 6);
        e.n = 6;
        put_unit(&e, h264_sps(4, 2));
        e.data[e.n++] = 1;
        put_unit(&e, h264_pps());
        if (n >= e.n)
            break;
        tight = malloc(n + 1);
        memcpy(tight, e.data, n);
        disposable_begin(&d, tight, n);
        free(tight);
        CHECK(!d.pps[PPS]);
        CHECK(!next(&d, slice(0, 1, 0, 2)) && !next(&d, slice(0, 1, 0, 2)));
    }
    disposable_begin(&d, NULL, 0);
    CHECK(!next(&d, slice(0, 1, 0, 2)) && !next(&d, slice(0, 1, 0, 2)));
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
