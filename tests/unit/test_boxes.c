/* Claims of MP4 tables: what is refused before FFmpeg sees the file, and what is not. */
#include "video/boxes.h"

#include "../make_mp4.h"
#include "../test.h"

static size_t read_mp4(void *user, int64_t at, uint8_t *to, size_t n)
{
    const struct mp4 *m = user;
    size_t left = (size_t)at < m->n ? m->n - (size_t)at : 0;

    n = n < left ? n : left;
    memcpy(to, m->data + (left ? at : 0), n);
    return n;
}

static enum pv_status check(struct mp4 *m, uint64_t memory, struct pv_error *err)
{
    const struct boxes_source s = { "a.mp4", (int64_t)m->n, m, read_mp4 };
    *err = (struct pv_error){ 0 };
    return boxes_check(&s, memory, err);
}

/* `said`: a word of the sentence; NULL: nothing is refused. */
static void expect(struct mp4 *m, uint64_t memory, const char *said)
{
    struct pv_error err;
    enum pv_status s = check(m, memory, &err);
    CHECK(m->n <= sizeof m->data);
    if (said)
        CHECK_MSG(s && strstr(err.text, "a.mp4: ") == err.text && strstr(err.text, said),
                  "status %d, \"%s\"", s, err.text);
    else
        CHECK_MSG(!s, "\"%s\"", err.text);
}

TEST(claims_of_one_size)
{
    struct mp4 m = { .n = 0 };

    mp4_claim(&m, 3, 60000000);
    expect(&m, 0, "claim 180000000 samples");
    m.n = 0;
    mp4_claim(&m, 1, BOXES_FREE); /* a file that was cut may miss some */
    expect(&m, 0, NULL);
    m.n = 0;
    mp4_claim(&m, 3, BOXES_FREE);
    expect(&m, 0, "claim 196608 samples");
}

/* A table that is not where it belongs, but where FFmpeg takes it. */
TEST(claims_in_odd_places)
{
    static const char *const places[] = { "udta", "wxyz", "minf", "edts", "stsd" };

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct mp4 m = { .n = 0 };
        size_t moov, box;
        mp4_file_head(&m);
        moov = mp4_begin(&m, "moov");
        box = mp4_begin(&m, places[i]);
        mp4_zeros(&m, i % 2 ? 8 : 0);
        MP4_TABLE(&m, "stsz", 0, 1, 60000000);
        mp4_end(&m, box);
        mp4_end(&m, moov);
        expect(&m, 0, "claim 60000000 samples");
    }
}

TEST(claims_of_fragments)
{
    struct mp4 m = { .n = 0 };
    size_t moof, traf;

    mp4_file_head(&m);
    for (int i = 0; i < 100; i++) {
        moof = mp4_begin(&m, "moof");
        traf = mp4_begin(&m, "traf");
        MP4_TABLE(&m, "trun", 0, 60000); /* nothing is said of each sample */
        mp4_end(&m, traf);
        mp4_end(&m, moof);
    }
    expect(&m, 0, "claim 6000000 samples");
    m.n = 0;
    mp4_file_head(&m);
    moof = mp4_begin(&m, "moof");
    traf = mp4_begin(&m, "traf");
    MP4_TABLE(&m, "trun", 0x100, 70000, 1, 1); /* each with a duration: two fit */
    mp4_end(&m, traf);
    mp4_end(&m, moof);
    expect(&m, 0, "claim 70000 samples");
}

/* Each edit may show all samples again. */
TEST(claims_of_edits)
{
    struct mp4 m = { .n = 0 };
    size_t trak, elst;

    mp4_file_head(&m);
    trak = mp4_begin(&m, "trak");
    elst = mp4_begin(&m, "elst");
    mp4_u32(&m, 0);
    mp4_u32(&m, 2000);
    mp4_zeros(&m, 2000 * 12);
    mp4_end(&m, elst);
    MP4_TABLE(&m, "stsz", 0, 1, 60000);
    mp4_end(&m, trak);
    expect(&m, 0, "claim 120000000 samples");
}

/* Sound of four bytes a sample is grouped; a file cut after its header is read as far as it goes.
 * A film that says the same is not. */
TEST(uncompressed_sound)
{
    for (int film = 0; film < 2; film++) {
        struct mp4 m = { .n = 0 };
        struct mp4_track t;
        mp4_file_head(&m);
        t = mp4_track_begin(&m, film ? "vide" : "soun", "sowt");
        mp4_entry_end(&m, t);
        MP4_TABLE(&m, "stts", 0, 1, 2000000, 1);
        MP4_TABLE(&m, "stsc", 0, 1, 1, 48000, 1);
        MP4_TABLE(&m, "stsz", 0, 4, 2000000);
        MP4_TABLE(&m, "stco", 0, 4, 1000, 2000, 3000, 4000);
        mp4_track_end(&m, t);
        expect(&m, 0, film ? "claim 2000000 samples" : NULL);
    }
}

TEST(memory)
{
    static struct mp4 m;
    size_t box;

    mp4_file_head(&m);
    box = mp4_begin(&m, "trak");
    MP4_TABLE(&m, "stsz", 0, 1, 80000);
    mp4_end(&m, box);
    mp4_zeros(&m, 20000);
    expect(&m, 0, NULL);
    expect(&m, 1 << 20, "list 80000 samples, at most 65536");
}

TEST(compressed_header)
{
    struct mp4 m = { .n = 0 };
    size_t moov;

    mp4_file_head(&m);
    moov = mp4_begin(&m, "moov");
    MP4_TABLE(&m, "cmov", 1, 2, 3);
    mp4_end(&m, moov);
    expect(&m, 0, "compressed");
}

/* Cut anywhere, or with any byte changed, the walk ends; a sanitizer sees a read past the end. */
TEST(damage)
{
    struct mp4 m = { .n = 0 }, part;
    struct pv_error err;

    mp4_claim(&m, 1, 1000);
    for (size_t n = 0; n < m.n; n++) {
        part = m;
        part.n = n;
        check(&part, 0, &err);
        part = m;
        part.data[n] ^= 0xff;
        check(&part, 0, &err);
        part.data[n] = 0;
        check(&part, 0, &err);
    }
    expect(&m, 0, NULL);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
