/* The frame seeker and the frame filter against a made-up decoder, whose frames are known to be
 * right or wrong: whatever is damaged, whatever the seeks do, no wrong frame may come out.
 *
 * The film: groups of GROUP packets, key first; within a group frames are decoded in the order
 * 0 4 2 1 3 8 6 5 7 ..., as with B-frames. Each frame but a key is made from the frames around it,
 * so it is wrong when one of those is. */
#include "video/frame_seeker.h"

#include "../test.h"

enum { GROUP = 12, GROUPS = 6, N = GROUP * GROUPS };

struct frame {
    size_t rank;
    bool wrong;
};

/* A decoder: keeps what it has made since its start, gives it in the order shown. */
struct decoder {
    struct frame_index index;
    struct frame_seeker frame_seeker;
    bool damaged[N];  /* packet: makes a wrong frame */
    bool flagged[N];  /* ... and says so; else it makes none */
    bool liar[N];     /* a key by flag that is none */
    bool leads_off;   /* seeking leads to the packet after the one asked for */
    bool drops_last;  /* loses a frame when emptied early */
    bool listed;      /* the frame seeker knows what will be looked for */
    int state[N];     /* of frames: 0 not made, 1 right, 2 wrong, 3 none, 4 passed over */
    size_t at, given; /* next packet in the file; next frame to give */
    size_t shift;     /* what seeking added */
    size_t newest;    /* highest frame made */
    int fed, starts;
    bool drained;
};

static int alive; /* frames that nobody dropped */

static void drop(void *frame)
{
    alive--;
    free(frame);
}

/* The frames a frame is made from, -1: none. */
static void parents(int rank, int *a, int *b)
{
    int g = rank / GROUP * GROUP, r = rank - g;

    *a = *b = -1;
    if (r == 0)
        return;
    if (r % 4 == 0)
        *a = rank - 4;
    else if (r % 4 == 2) {
        *a = rank - 2;
        *b = rank + 2 < g + GROUP ? rank + 2 : -1;
    } else {
        *a = rank - 1;
        *b = rank + 1 < g + GROUP ? rank + 1 : -1;
    }
}

static void make_film(struct decoder *d)
{
    static const int order[GROUP] = { 0, 4, 2, 1, 3, 8, 6, 5, 7, 10, 9, 11 };
    bool sorted = false;

    memset(d, 0, sizeof *d);
    for (int i = 0; i < N; i++) {
        struct index_packet p = { .pts = i / GROUP * GROUP + order[i % GROUP],
                                  .flags = i % GROUP ? 0 : PACKET_KEY };
        CHECK(!frame_index_add(&d->index, &p, NULL));
    }
    CHECK(!frame_index_sort(&d->index, 1, &sorted, NULL) && sorted);
}

static enum pv_status fake_start(void *user, size_t packet, bool surely, struct pv_error *err)
{
    struct decoder *d = user;

    (void)err;
    memset(d->state, 0, sizeof d->state);
    d->at = packet;
    d->shift = d->leads_off && !surely && packet > 0;
    d->given = d->index.packet[packet].rank;
    d->newest = 0;
    d->drained = false;
    d->starts++;
    return PV_OK;
}

static void fake_decode(struct decoder *d, size_t packet)
{
    size_t rank = d->index.packet[packet].rank;
    int a, b, *state = &d->state[rank];

    parents((int)rank, &a, &b);
    *state = 1;
    if (d->liar[packet])
        a = (int)rank - 1;
    if ((a >= 0 && d->state[a] != 1) || (b >= 0 && d->state[b] != 1))
        *state = 2;
    if (d->damaged[packet])
        *state = d->flagged[packet] ? 2 : 3;
    d->newest = rank > d->newest ? rank : d->newest;
    d->fed++;
}

/* Gives frame `given` if it is due: made, and two packets have come since. */
static bool fake_give(struct decoder *d)
{
    struct frame *f;
    size_t rank = d->given, packet = d->index.order[rank < N ? rank : 0];

    if (rank >= N || (!d->drained && d->at < packet + 6) || d->state[rank] == 0)
        return false;
    d->given++;
    if (d->state[rank] >= 3 || (d->drained && d->drops_last && d->at < N))
        return true;
    f = malloc(sizeof *f);
    *f = (struct frame){ rank, d->state[rank] == 2 };
    alive++;
    frame_filter_add(&d->frame_seeker.frame_filter, f, rank, rank % GROUP == 0 && !d->liar[packet],
                     d->damaged[packet] && d->flagged[packet]);
    return true;
}

static enum pv_status fake_pump(void *user, struct pv_error *err)
{
    struct decoder *d = user;
    enum feed feed;

    (void)err;
    while (!fake_give(d)) {
        if (d->drained) { /* frames whose packets never came are passed over */
            while (d->given <= d->newest && d->state[d->given] == 0)
                d->given++;
            if (d->given > d->newest) {
                frame_filter_end(&d->frame_seeker.frame_filter, d->frame_seeker.next);
                return PV_OK;
            }
            continue;
        }
        feed = frame_seeker_feed(&d->frame_seeker);
        if (feed == FEED_DRAIN) {
            d->drained = true;
        } else if (d->shift) {
            frame_seeker_astray(&d->frame_seeker);
            d->drained = true;
        } else if (feed == FEED_DECODE) {
            fake_decode(d, d->at++);
        } else {
            d->state[d->index.packet[d->at++].rank] = 4;
        }
    }
    return PV_OK;
}

/* Reads the frames `step` apart; returns how many had a stand-in. None may be wrong. given[r]: the
 * frame that came for r. */
static int read_and_note(struct decoder *d, size_t first, size_t step, size_t *given)
{
    int64_t list[N];
    int lost = 0, n = 0;

    for (size_t r = first; r < N; r += step)
        list[n++] = (int64_t)r;
    frame_seeker_init(&d->frame_seeker, &d->index,
                      (struct frame_seeker_source){ d, fake_start, fake_pump }, drop);
    if (d->listed)
        frame_seeker_list(&d->frame_seeker, list, n);
    for (size_t r = first; r < N; r += step) {
        const struct judged *out = NULL;
        if (!CHECK(!frame_seeker_find(&d->frame_seeker, r, r + step < N ? (int64_t)(r + step) : -1,
                                      &out, NULL)) ||
            !CHECK_MSG(out != NULL, "frame %zu: nothing", r))
            continue;
        CHECK_MSG(!((struct frame *)out->frame)->wrong, "frame %zu is wrong", r);
        CHECK_EQ(((struct frame *)out->frame)->rank, out->rank);
        lost += out->rank != r;
        given[r] = out->rank;
    }
    frame_seeker_stop(&d->frame_seeker);
    CHECK_EQ(alive, 0);
    return lost;
}

static int read_all(struct decoder *d, size_t first, size_t step)
{
    size_t given[N];

    return read_and_note(d, first, step, given);
}

TEST(whole_film)
{
    struct decoder d;

    make_film(&d);
    for (size_t step = 1; step < 40; step += 3)
        for (size_t first = 0; first < N; first += 7)
            CHECK_EQ(read_all(&d, first, step), 0);
    d.fed = d.starts = 0;
    CHECK_EQ(read_all(&d, 0, 1), 0);
    CHECK_EQ(d.fed, N);
    CHECK_EQ(d.starts, 1);
    d.fed = 0;
    CHECK_EQ(read_all(&d, 0, 24), 0); /* keys only: a packet each */
    CHECK_EQ(d.fed, 3);
    frame_index_clear(&d.index);
}

TEST(repeated_frame)
{
    struct decoder d;
    const struct judged *out = NULL;

    make_film(&d);
    frame_seeker_init(&d.frame_seeker, &d.index,
                      (struct frame_seeker_source){ &d, fake_start, fake_pump }, drop);
    for (int i = 0; i < 3; i++) {
        CHECK(!frame_seeker_find(&d.frame_seeker, 30, -1, &out, NULL));
        CHECK(out && out->rank == 30);
    }
    CHECK_EQ(d.starts, 1);
    CHECK(!frame_seeker_find(&d.frame_seeker, 3, -1, &out, NULL)); /* backwards */
    CHECK(out && out->rank == 3);
    frame_seeker_stop(&d.frame_seeker);
    frame_index_clear(&d.index);
}

TEST(damage)
{
    struct decoder d;

    for (int flagged = 0; flagged < 2; flagged++)
        for (int at = 0; at < N; at++) {
            int lost;
            make_film(&d);
            d.damaged[at] = true;
            d.flagged[at] = flagged;
            lost = read_all(&d, 0, 1);
            /* Not beyond its group, save where a key is hit. */
            CHECK_MSG(lost > 0 && lost <= GROUP, "packet %d: %d lost", at, lost);
            read_all(&d, (size_t)at % 5, 5);
            read_all(&d, (size_t)at % 17, 17);
            frame_index_clear(&d.index);
        }
}

/* Frames 1, 3, 5, 7 and 9 of a group are made from others, and none from them. */
static void mark_leaves(struct decoder *d)
{
    for (int i = 0; i < N; i++)
        if (d->index.packet[i].rank % 2 == 1)
            d->index.packet[i].flags |= PACKET_DISPOSABLE;
}

TEST(passing_over)
{
    struct decoder d;

    make_film(&d);
    mark_leaves(&d);
    for (int listed = 0; listed < 2; listed++)
        for (size_t step = 1; step < 40; step += 3)
            for (size_t first = 0; first < N; first += 7) {
                d.listed = listed;
                CHECK_EQ(read_all(&d, first, step), 0);
            }
    d.fed = d.starts = 0;
    CHECK_EQ(read_all(&d, 0, 1), 0); /* all are wanted */
    CHECK_EQ(d.fed, N);
    CHECK_EQ(d.starts, 1);
    d.fed = d.starts = 0;
    CHECK_EQ(read_all(&d, 0, 2), 0); /* none of the leaves */
    CHECK_EQ(d.fed, N / 2);
    CHECK_EQ(d.starts, 1);
    d.fed = 0;
    CHECK_EQ(read_all(&d, 9, 24), 0); /* a leaf, and what is before it */
    CHECK_EQ(d.fed, 3 * 7);
    frame_index_clear(&d.index);
}

/* Frames of a list that comes later may have been passed over. */
TEST(another_list)
{
    static const int64_t lists[][2] = { { 0, 6 }, { 7, 9 }, { 9, 11 }, { 11, 13 } };
    struct decoder d;

    make_film(&d);
    mark_leaves(&d);
    frame_seeker_init(&d.frame_seeker, &d.index,
                      (struct frame_seeker_source){ &d, fake_start, fake_pump }, drop);
    for (int i = 0; i < 4; i++) {
        frame_seeker_list(&d.frame_seeker, lists[i], 2);
        for (int k = 0; k < 2; k++) {
            const struct judged *out = NULL;
            size_t want = (size_t)lists[i][k];
            CHECK(!frame_seeker_find(&d.frame_seeker, want, -1, &out, NULL));
            CHECK_MSG(out && out->rank == want && !d.frame_seeker.whole, "frame %zu", want);
        }
    }
    frame_seeker_stop(&d.frame_seeker);
    CHECK_EQ(alive, 0);
    frame_index_clear(&d.index);
}

/* Whatever is damaged, the same frames come as when nothing is passed over. */
TEST(passing_over_damage)
{
    struct decoder d;

    for (int at = 0; at < N; at++)
        for (size_t step = 1; step < 20; step += 2) {
            size_t all[N], some[N];
            int lost;
            make_film(&d);
            mark_leaves(&d);
            d.damaged[at] = true;
            d.flagged[at] = at & 1;
            d.listed = true;
            lost = read_and_note(&d, 0, 1, all);
            CHECK(lost > 0 && lost <= GROUP);
            if (d.index.packet[at].flags & PACKET_DISPOSABLE)
                CHECK_EQ(lost, 1);
            for (int i = 0; i < N; i++)
                d.index.packet[i].flags &= ~(unsigned)PACKET_UNSAFE;
            read_and_note(&d, step / 2, step, some);
            for (size_t r = step / 2; r < N; r += step)
                CHECK_MSG(some[r] == all[r], "packet %d: frame %zu is %zu, of all %zu", at, r,
                          some[r], all[r]);
            frame_index_clear(&d.index);
        }
}

/* The container calls a frame key that is made from the one before. */
TEST(false_keys)
{
    struct decoder d;

    make_film(&d);
    for (int g = 1; g < GROUPS; g++)
        d.liar[g * GROUP] = true;
    CHECK_EQ(read_all(&d, 5, 13), 0);
    CHECK_EQ(read_all(&d, N - 1, 1), 0);
    frame_index_clear(&d.index);
}

TEST(seeks_that_fail)
{
    struct decoder d;

    make_film(&d);
    d.leads_off = true;
    CHECK_EQ(read_all(&d, 3, 25), 0);
    CHECK(d.frame_seeker.surely);
    frame_index_clear(&d.index);
}

TEST(frames_lost_by_draining)
{
    struct decoder d;

    make_film(&d);
    d.drops_last = true;
    CHECK_EQ(read_all(&d, 3, 25), 0);
    CHECK(d.frame_seeker.no_drain);
    frame_index_clear(&d.index);
}

/* A film whose head is gone: the first good frame stands in. */
TEST(no_frame_before)
{
    struct decoder d;
    const struct judged *out = NULL;

    make_film(&d);
    for (int i = 0; i < 2 * GROUP; i++)
        d.damaged[i] = true;
    frame_seeker_init(&d.frame_seeker, &d.index,
                      (struct frame_seeker_source){ &d, fake_start, fake_pump }, drop);
    CHECK(!frame_seeker_find(&d.frame_seeker, 2, -1, &out, NULL));
    CHECK(out && out->rank == 2 * GROUP);
    frame_seeker_stop(&d.frame_seeker);
    for (int i = 0; i < N; i++)
        d.damaged[i] = true;
    frame_seeker_init(&d.frame_seeker, &d.index,
                      (struct frame_seeker_source){ &d, fake_start, fake_pump }, drop);
    CHECK(!frame_seeker_find(&d.frame_seeker, 40, -1, &out, NULL));
    CHECK(out == NULL);
    frame_seeker_stop(&d.frame_seeker);
    CHECK_EQ(alive, 0);
    frame_index_clear(&d.index);
}

/* The keys of several groups are gone: the last good frame before them stands in, however far. */
TEST(stand_in_far_before)
{
    for (int groups = 1; groups < GROUPS - 1; groups++)
        for (size_t want = GROUP; want < (size_t)(groups + 1) * GROUP; want += 5) {
            struct decoder d;
            const struct judged *out = NULL;
            make_film(&d);
            for (int g = 1; g <= groups; g++)
                d.damaged[g * GROUP] = true;
            frame_seeker_init(&d.frame_seeker, &d.index,
                              (struct frame_seeker_source){ &d, fake_start, fake_pump }, drop);
            CHECK(!frame_seeker_find(&d.frame_seeker, want, -1, &out, NULL));
            CHECK_MSG(out && out->rank == GROUP - 1, "frame %zu of %d groups: %zu", want, groups,
                      out ? out->rank : SIZE_MAX);
            frame_seeker_stop(&d.frame_seeker);
            CHECK_EQ(alive, 0);
            frame_index_clear(&d.index);
        }
}

/* Plainly: a lost frame is nothing, and no mark is left. */
TEST(plain)
{
    struct decoder d;
    const struct judged *out = NULL;

    make_film(&d);
    d.damaged[2 * GROUP] = true;
    frame_seeker_init(&d.frame_seeker, &d.index,
                      (struct frame_seeker_source){ &d, fake_start, fake_pump }, drop);
    d.frame_seeker.plain = true;
    CHECK(!frame_seeker_find(&d.frame_seeker, 2 * GROUP + 3, -1, &out, NULL));
    CHECK(out == NULL && d.starts <= 2);
    for (int i = 0; i < N; i++)
        CHECK(!(d.index.packet[i].flags & PACKET_UNSAFE));
    CHECK(!frame_seeker_find(&d.frame_seeker, 3 * GROUP + 3, -1, &out, NULL));
    CHECK(out && out->rank == 3 * GROUP + 3);
    frame_seeker_stop(&d.frame_seeker);
    frame_index_clear(&d.index);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
