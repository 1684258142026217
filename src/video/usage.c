/* Counters and their limits. The readers add to them from their own threads. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "video/usage.h"

#include "base/clock.h"

#include <sys/mman.h>
#include <time.h>

void usage_init(struct usage *m, const char *path, const struct video_limits *limits)
{
    m->path = path;
    m->limits = limits;
    m->asked = 0;
    atomic_init(&m->stopped, false);
    atomic_init(&m->starved, false);
    atomic_init(&m->packets, 0);
    atomic_init(&m->pixels, 0);
    atomic_init(&m->cpu_ns, 0);
    atomic_init(&m->bytes, 0);
    atomic_init(&m->refused, 0);
    usage_enter(m);
}

void usage_enter(struct usage *m)
{
    m->caller = pthread_self();
    atomic_store(&m->stopped, false);
}

bool usage_go_on(struct usage *m)
{
    const struct video_limits *l = m->limits;

    if (atomic_load(&m->stopped))
        return false;
    if (l->go_on && pthread_equal(m->caller, pthread_self())) {
        double now = clock_now();
        if (now - m->asked >= 1e-3 * USAGE_ASK_MS) {
            m->asked = now;
            if (!l->go_on(l->user))
                atomic_store(&m->stopped, true);
        }
    }
    return !atomic_load(&m->stopped);
}

static void add_time(struct usage_hand *h)
{
    struct timespec t = { 0 };
    double now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    if (h->mark > 0 && pthread_equal(h->thread, pthread_self()) && now > h->mark)
        atomic_fetch_add(&h->usage->cpu_ns, (unsigned long long)(1e9 * (now - h->mark)));
    h->thread = pthread_self();
    h->mark = now;
}

enum pv_status usage_check(struct usage_hand *h, struct pv_error *err)
{
    struct usage *m = h->usage;
    const struct video_limits *l = m->limits;

    if (!usage_go_on(m))
        return fail(err, PV_E_CANCELLED, "%s: reading was stopped", m->path);
    if (atomic_load(&m->refused))
        return fail(err, PV_E_LIMIT,
                    "%s: its decoder needs %llu bytes of memory, at most %llu are allowed", m->path,
                    atomic_load(&m->refused), (unsigned long long)l->memory);
    if (atomic_load(&m->starved))
        return fail(err, PV_E_NOMEM, "%s: out of memory while it was decoded", m->path);
    if (l->decoded_pixels && atomic_load(&m->pixels) > l->decoded_pixels)
        return fail(err, PV_E_LIMIT,
                    "%s: more pixels have to be decoded than the %llu that are allowed", m->path,
                    (unsigned long long)l->decoded_pixels);
    if (l->cpu_seconds > 0) {
        add_time(h);
        if (1e-9 * (double)atomic_load(&m->cpu_ns) > l->cpu_seconds)
            return fail(err, PV_E_LIMIT,
                        "%s: decoding takes more than the %g seconds of CPU time that are allowed",
                        m->path, l->cpu_seconds);
    }
    return PV_OK;
}

void usage_decoded(struct usage *m, int64_t pixels)
{
    atomic_fetch_add(&m->packets, 1);
    if (pixels > 0)
        atomic_fetch_add(&m->pixels, (unsigned long long)pixels);
}

bool usage_take(struct usage *m, uint64_t bytes)
{
    uint64_t held = atomic_fetch_add(&m->bytes, bytes) + bytes;

    if (!m->limits->memory || held <= m->limits->memory)
        return true;
    atomic_fetch_sub(&m->bytes, bytes);
    atomic_store(&m->refused, held);
    return false;
}

void usage_starve(struct usage *m)
{
    atomic_store(&m->starved, true);
}

bool usage_doubt(struct usage *m)
{
    enum { PROBE = 16 << 20 };
    void *p = mmap(NULL, PROBE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        usage_starve(m);
    else
        munmap(p, PROBE);
    return p == MAP_FAILED;
}

void usage_give(struct usage *m, uint64_t bytes)
{
    atomic_fetch_sub(&m->bytes, bytes);
}

uint64_t usage_left(const struct usage *m)
{
    uint64_t held = atomic_load(&m->bytes), most = m->limits->memory;

    return !most ? UINT64_MAX : held < most ? most - held : 0;
}
