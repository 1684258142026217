/* Reading in parts with made-up readers: where a wish is cut; that pictures come in order, each
 * once, on the calling thread, whatever the readers' speeds; how failures and stops end it. */
#include "video/read_parts.h"

#include "../test.h"
#include "base/mem.h"

#include <pthread.h>
#include <time.h>

enum { GROUP = 10, GROUPS = 12, N = GROUP * GROUPS, SIDE = 4 };

struct film;

struct reader {
    struct film *film;
    int id, restarts;
    uint8_t rgb[SIDE * SIDE * 3];
};

struct film {
    struct frame_index index;
    struct reader reader[PARTS_READERS];
    int slow; /* this reader takes its time; -1: none */
    bool no_twins;
    int64_t lost;     /* this frame does not come out well; -1: none */
    int64_t fails[2]; /* these cannot be read at all */
    atomic_int reads;
};

struct taken {
    int n, stop_at;
    pthread_t thread;
    int64_t index[4 * N];
};

static void film_make(struct film *f)
{
    bool sorted = false;

    memset(f, 0, sizeof *f);
    for (int i = 0; i < N; i++) {
        struct index_packet p = { .pts = i, .flags = i % GROUP ? 0 : PACKET_KEY };
        CHECK(!frame_index_add(&f->index, &p, NULL));
    }
    CHECK(!frame_index_sort(&f->index, 1, &sorted, NULL) && sorted);
    for (int i = 0; i < PARTS_READERS; i++)
        f->reader[i] = (struct reader){ .film = f, .id = i };
    f->slow = -1;
    f->lost = f->fails[0] = f->fails[1] = -1;
}

static void *fake_twin(void *user, int k)
{
    struct reader *first = user;

    return first->film->no_twins ? NULL : &first->film->reader[k];
}

static enum pv_status fake_restart(void *reader, struct pv_error *err)
{
    struct reader *r = reader;

    (void)err;
    r->restarts++;
    return PV_OK;
}

static enum pv_status fake_read(void *reader, const struct part_want *want, struct part_frame *out,
                                struct pv_error *err)
{
    struct reader *r = reader;
    struct film *f = r->film;
    bool lost = want->frame == f->lost;

    atomic_fetch_add(&f->reads, 1);
    if (r->id == f->slow)
        nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
    if (want->stop && atomic_load(want->stop) <= want->at)
        return fail(err, PV_E_CANCELLED, "given up");
    for (int k = 0; k < 2; k++)
        if (want->frame == f->fails[k])
            return fail(err, PV_E_FORMAT, "frame %d fails", (int)want->frame);
    memset(r->rgb, (int)want->frame, sizeof r->rgb);
    *out = (struct part_frame){ lost ? -1 : want->frame, r->rgb };
    if (lost && !want->plain) {
        memset(r->rgb, (int)want->frame - 1, sizeof r->rgb);
        out->index = want->frame - 1;
    }
    return PV_OK;
}

static bool take(void *user, int at, int64_t index, double time, const struct image *p)
{
    struct taken *t = user;

    CHECK_EQ(at, t->n);
    CHECK_EQ(time, (double)index);
    CHECK(pthread_equal(t->thread, pthread_self()));
    for (int i = 0; i < SIDE * SIDE * 3; i++)
        CHECK_EQ(p->rgb[i], (uint8_t)index);
    t->index[t->n++] = index;
    return t->n != t->stop_at;
}

static enum pv_status read_film(struct film *f, const int64_t *want, int n, int threads,
                                struct taken *t, int *lost, struct pv_error *err)
{
    const struct part_source source = { &f->reader[0], fake_twin, fake_restart, fake_read };
    const struct part_wish w = { "film", &f->index, SIDE, SIDE, want, n, threads, take, t };
    struct parts parts;
    int stop_at = t->stop_at;

    *t = (struct taken){ .stop_at = stop_at, .thread = pthread_self() };
    *lost = 0;
    parts_cut(&parts, &f->index, want, n);
    CHECK(parts.n > 1);
    return parts_read(&parts, &source, &w, lost, err);
}

static int every(int64_t *want, int step, int times)
{
    int n = 0;

    for (int i = 0; i < N; i += step)
        for (int k = 0; k < times; k++)
            want[n++] = i;
    return n;
}

TEST(cuts)
{
    struct film f;
    struct parts p;
    int64_t want[4 * N];
    int n;

    film_make(&f);
    n = every(want, 1, 1);
    parts_cut(&p, &f.index, want, n);
    CHECK_EQ(p.n, GROUPS);
    for (int k = 0; k <= GROUPS; k++)
        CHECK_EQ(p.begin[k], k * GROUP);
    n = every(want, GROUP, 2); /* a packet each: eight make a part */
    parts_cut(&p, &f.index, want, n);
    CHECK_EQ(p.n, 2);
    CHECK_EQ(p.begin[1], 16);
    CHECK_EQ(p.begin[2], n);
    parts_cut(&p, &f.index, want, 0);
    CHECK(p.n == 1 && p.begin[1] == 0);
    for (int i = 1; i < N; i++) /* one group: nowhere to cut */
        f.index.packet[i].flags = 0;
    n = every(want, 1, 1);
    parts_cut(&p, &f.index, want, n);
    CHECK(p.n == 1 && p.begin[1] == n);
    frame_index_clear(&f.index);
}

TEST(order)
{
    static struct taken t;
    struct film f;
    int64_t want[4 * N];

    film_make(&f);
    for (int threads = 1; threads <= PARTS_READERS; threads += 3)
        for (int slow = -1; slow < 3; slow++)
            for (int times = 1; times < 4; times += 2) {
                int n = every(want, 1, times), lost;
                f.slow = slow;
                atomic_store(&f.reads, 0);
                t.stop_at = 0;
                CHECK_EQ(read_film(&f, want, n, threads, &t, &lost, NULL), PV_OK);
                CHECK_EQ(t.n, n);
                CHECK_EQ(lost, 0);
                CHECK_EQ(atomic_load(&f.reads), N);
                for (int i = 0; i < n; i++)
                    CHECK_EQ(t.index[i], want[i]);
            }
    frame_index_clear(&f.index);
}

/* From the lost frame on the first reader reads alone; nothing is given twice. */
TEST(stand_ins)
{
    static struct taken t;
    struct film f;
    int64_t want[N];
    int n = every(want, 1, 1), lost;

    film_make(&f);
    for (int threads = 1; threads < 6; threads++)
        for (int at = 1; at < N; at += 7) {
            f.lost = at;
            t.stop_at = 0;
            CHECK_EQ(read_film(&f, want, n, threads, &t, &lost, NULL), PV_OK);
            CHECK_EQ(lost, 1);
            CHECK_EQ(t.n, n);
            for (int i = 0; i < n; i++)
                CHECK_EQ(t.index[i], i == at ? i - 1 : i);
        }
    frame_index_clear(&f.index);
}

/* Of two failures the first in order counts, and what lies before it is given. */
TEST(failures)
{
    static struct taken t;
    struct film f;
    int64_t want[N];
    int n = every(want, 1, 1), lost;

    film_make(&f);
    f.slow = 0;
    for (int threads = 1; threads < 6; threads++)
        for (int at = 0; at < N - GROUP; at += 7) {
            struct pv_error err = { 0 };
            char text[32];
            f.fails[0] = at + GROUP;
            f.fails[1] = at;
            t.stop_at = 0;
            CHECK_EQ(read_film(&f, want, n, threads, &t, &lost, &err), PV_E_FORMAT);
            snprintf(text, sizeof text, "frame %d fails", at);
            CHECK_MSG(!strcmp(err.text, text), "%s", err.text);
            CHECK_EQ(t.n, at);
        }
    frame_index_clear(&f.index);
}

TEST(stopping)
{
    static struct taken t;
    struct film f;
    int64_t want[N];
    int n = every(want, 1, 1), lost;

    film_make(&f);
    for (int threads = 1; threads < 6; threads++)
        for (int at = 1; at <= N; at += 7) {
            struct pv_error err = { 0 };
            t.stop_at = at;
            CHECK_EQ(read_film(&f, want, n, threads, &t, &lost, &err), PV_E_CANCELLED);
            CHECK(strstr(err.text, "stopped"));
            CHECK_EQ(t.n, at);
        }
    frame_index_clear(&f.index);
}

/* Without twins, without memory for pictures: slower, the same. */
TEST(less)
{
    static struct taken t;
    struct film f;
    int64_t want[N];
    int n = every(want, 1, 1), lost;

    film_make(&f);
    for (int k = 0; k < 12; k++) {
        f.no_twins = k == 0;
        t.stop_at = 0;
        mem_fail_at((uint64_t)k);
        CHECK_EQ(read_film(&f, want, n, 3, &t, &lost, NULL), PV_OK);
        mem_fail_at(0);
        CHECK_EQ(t.n, n);
    }
    frame_index_clear(&f.index);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
