/* The index of frames: order, starts, and times that are not to be trusted. */
#include "video/frame_index.h"

#include "../test.h"
#include "base/mem.h"

enum { K = PACKET_KEY, H = PACKET_HIDDEN };

struct entry {
    int64_t pts;
    unsigned flags;
};

static bool build(struct frame_index *ix, const struct entry *e, int n)
{
    bool sorted = false;

    *ix = (struct frame_index){ 0 };
    for (int i = 0; i < n; i++) {
        struct index_packet p = { .pts = e[i].pts, .pos = i, .size = 1, .flags = e[i].flags };
        CHECK(!frame_index_add(ix, &p, NULL));
    }
    CHECK(!frame_index_sort(ix, 0.5, &sorted, NULL));
    return sorted;
}

/* Two groups of pictures, the second open: packets 6 and 7 are shown before their key, 5. */
static const struct entry open_gop[] = { { 10, K }, { 40, 0 }, { 20, 0 }, { 30, 0 }, { 50, 0 },
                                         { 80, K }, { 60, 0 }, { 70, 0 }, { 90, 0 } };

TEST(order)
{
    static const uint32_t ranks[] = { 0, 3, 1, 2, 4, 7, 5, 6, 8 };
    static const uint32_t tops[] = { 0, 3, 3, 3, 4, 7, 7, 7, 8 };
    struct frame_index ix;

    if (CHECK(build(&ix, open_gop, 9))) {
        CHECK_EQ(ix.n_frames, 9);
        for (int i = 0; i < 9; i++) {
            CHECK_EQ(ix.packet[i].rank, ranks[i]);
            CHECK_EQ(ix.packet[i].top, tops[i]);
            CHECK_EQ(ix.order[ranks[i]], i);
            CHECK_EQ(ix.time[i], i * 10 * 0.5);
        }
        CHECK_EQ(frame_index_packet(&ix, 5), 6);
        CHECK_EQ(frame_index_top(&ix, 1), 3);
        CHECK_EQ(frame_index_delay(&ix), 1);
    }
    frame_index_clear(&ix);
    CHECK(!ix.packet && !ix.order && !ix.time);
}

TEST(starts)
{
    struct frame_index ix;

    if (CHECK(build(&ix, open_gop, 9))) {
        for (size_t r = 0; r < 7; r++) /* also those decoded after the second key */
            CHECK_EQ(frame_index_start(&ix, r), 0);
        CHECK_EQ(frame_index_start(&ix, 7), 5);
        CHECK_EQ(frame_index_start(&ix, 8), 5);
        CHECK_EQ(frame_index_step_back(&ix, 5, 1), 0);
        CHECK_EQ(frame_index_step_back(&ix, 0, 3), 0);
        ix.packet[5].flags |= PACKET_UNSAFE;
        CHECK_EQ(frame_index_start(&ix, 8), 0);
    }
    frame_index_clear(&ix);
}

/* An edit list: decoding starts before the first frame shown. */
TEST(hidden_packets)
{
    static const struct entry e[] = { { -20, K | H }, { -10, H }, { 0, 0 },
                                      { 10, 0 },      { 20, K },  { INDEX_NO_PTS, H | K } };
    struct frame_index ix;

    if (CHECK(build(&ix, e, 6))) {
        CHECK_EQ(ix.n_frames, 3);
        CHECK_EQ(ix.order[0], 2);
        CHECK_EQ(ix.time[0], 0.0);
        CHECK_EQ(frame_index_start(&ix, 0), 0);
        CHECK_EQ(frame_index_start(&ix, 1), 0);
        CHECK_EQ(frame_index_start(&ix, 2), 4);
    }
    frame_index_clear(&ix);
}

TEST(untrusted_times)
{
    static const struct entry missing[] = { { 0, K }, { INDEX_NO_PTS, 0 } };
    static const struct entry equal[] = { { 0, K }, { 2, 0 }, { 1, 0 }, { 2, 0 } };
    static const struct entry none[] = { { 0, H } };
    struct entry far[200];
    struct frame_index ix;

    CHECK(!build(&ix, missing, 2));
    CHECK_EQ(ix.n_frames, 0);
    frame_index_clear(&ix);
    CHECK(!build(&ix, equal, 4));
    frame_index_clear(&ix);
    CHECK(!build(&ix, none, 1));
    frame_index_clear(&ix);
    CHECK(!build(&ix, none, 0));
    frame_index_clear(&ix);
    for (int jump = 0; jump < 3; jump++) { /* one outlier ahead, times that begin again, neither */
        for (int i = 0; i < 200; i++)
            far[i] = (struct entry){ jump == 1 && i >= 100 ? i * 2 - 199 : i * 2, 0 };
        if (jump == 0)
            far[50].pts = 1000000;
        CHECK_EQ(build(&ix, far, 200), jump == 2);
        frame_index_clear(&ix);
    }
}

TEST(extreme_times)
{
    static const struct entry e[] = { { INT64_MIN + 1, K }, { INT64_MAX, 0 } };
    static const struct entry close[] = { { INT64_MAX - 2, K }, { INT64_MAX - 1, 0 } };
    struct frame_index ix;

    if (CHECK(build(&ix, e, 2)))
        CHECK(ix.time[1] > 9e18 && ix.time[0] == 0);
    frame_index_clear(&ix);
    if (CHECK(build(&ix, close, 2)))
        CHECK_EQ(ix.time[1], 0.5);
    frame_index_clear(&ix);
}

TEST(counted)
{
    struct frame_index ix = { 0 };

    for (int i = 0; i < 1000; i++)
        CHECK(!frame_index_count(&ix, i * 0.25, NULL));
    CHECK_EQ(ix.n_frames, 1000);
    CHECK_EQ(ix.time[999], 999 * 0.25);
    CHECK_EQ(frame_index_packet(&ix, 7), 7);
    CHECK_EQ(frame_index_top(&ix, 7), 7);
    CHECK_EQ(frame_index_start(&ix, 999), 0);
    frame_index_clear(&ix);
}

TEST(no_memory)
{
    struct frame_index ix;
    struct pv_error err = { 0 };
    struct index_packet p = { 0 };
    bool sorted = false;

    for (int k = 1; k <= 2; k++) {
        CHECK(build(&ix, open_gop, 9));
        mem_free(ix.order);
        mem_free(ix.time);
        ix.order = NULL;
        ix.time = NULL;
        ix.n_frames = 0;
        mem_fail_at((uint64_t)k);
        CHECK_EQ(frame_index_sort(&ix, 1, &sorted, NULL), PV_E_NOMEM);
        mem_fail_at(0);
        CHECK(!ix.order && !ix.time && ix.n_frames == 0);
        frame_index_clear(&ix);
    }
    ix = (struct frame_index){ 0 };
    mem_fail_at(1);
    CHECK_EQ(frame_index_add(&ix, &p, &err), PV_E_NOMEM);
    mem_fail_at(0);
    CHECK_EQ(ix.n_packets, 0);
    ix.n_packets = ix.packet_cap = INDEX_PACKETS_MAX; /* as if full */
    err = (struct pv_error){ 0 };
    CHECK_EQ(frame_index_add(&ix, &p, &err), PV_E_LIMIT);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
