/* epoll, and a list of tasks under a lock with an eventfd that says when it is no longer empty.
 * Watches are found by their place in a table with a generation, so that an event for a socket that
 * was closed while the event waited is not delivered to the next one. */
#include "serve_loop.h"

#include "base/mem.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MAX_EVENTS = 256, MAX_TASKS = 1024 }; /* of one turn: sockets get theirs in between */

struct watch {
    void (*fn)(void *user);
    void *user;
    uint32_t generation;
};

struct loop {
    int epoll, wake;
    pthread_mutex_t lock; /* guards the list */
    struct loop_task *first, *last;
    struct watch *watch; /* by descriptor */
    int n_watches;
};

static const uint64_t plain_input = UINT64_MAX;

enum pv_status loop_open(struct loop **out, struct pv_error *err)
{
    struct loop *l = mem_zalloc(sizeof *l);
    struct epoll_event e = { .events = EPOLLIN, .data.u64 = plain_input };
    if (!l)
        return fail_nomem(err, sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->epoll < 0 || l->wake < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->wake, &e) < 0) {
        loop_close(&l);
        return fail(err, PV_E_IO, "the server's event loop could not be opened: %m");
    }
    *out = l;
    return PV_OK;
}

void loop_close(struct loop **loop)
{
    struct loop *l = *loop;
    if (!l)
        return;
    if (l->epoll >= 0)
        close(l->epoll);
    if (l->wake >= 0)
        close(l->wake);
    pthread_mutex_destroy(&l->lock);
    mem_free(l->watch);
    mem_free(l);
    *loop = NULL;
}

/* ---- tasks ---- */

static void wake(struct loop *l)
{
    uint64_t one = 1;
    (void)!write(l->wake, &one, sizeof one); /* fails only when it is awake anyway */
}

void loop_post(struct loop *l, struct loop_task *t)
{
    bool first = false;
    pthread_mutex_lock(&l->lock);
    if (!t->queued) {
        first = !l->first;
        t->queued = true;
        t->next = NULL;
        *(l->last ? &l->last->next : &l->first) = t;
        l->last = t;
    }
    pthread_mutex_unlock(&l->lock);
    if (first)
        wake(l);
}

void loop_cancel(struct loop *l, struct loop_task *t)
{
    struct loop_task *before = NULL;
    pthread_mutex_lock(&l->lock);
    for (struct loop_task *i = t->queued ? l->first : NULL; i; before = i, i = i->next) {
        if (i != t)
            continue;
        *(before ? &before->next : &l->first) = t->next;
        l->last = l->last == t ? before : l->last;
        t->queued = false;
        break;
    }
    pthread_mutex_unlock(&l->lock);
}

static struct loop_task *take(struct loop *l)
{
    struct loop_task *t;
    pthread_mutex_lock(&l->lock);
    t = l->first;
    if (t) {
        l->first = t->next;
        l->last = l->first ? l->last : NULL;
        t->queued = false;
    }
    pthread_mutex_unlock(&l->lock);
    return t;
}

/* ---- sockets ---- */

bool loop_watch_input(struct loop *l, int fd)
{
    struct epoll_event e = { .events = EPOLLIN, .data.u64 = plain_input };
    return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

static bool reserve(struct loop *l, int fd)
{
    struct watch *grown;
    int n = l->n_watches ? l->n_watches : 64;
    if (fd < l->n_watches)
        return true;
    while (n <= fd)
        n *= 2;
    grown = mem_zalloc((size_t)n * sizeof *grown);
    if (!grown)
        return false;
    for (int i = 0; i < l->n_watches; i++)
        grown[i] = l->watch[i];
    mem_free(l->watch);
    l->watch = grown;
    l->n_watches = n;
    return true;
}

void loop_watch_hangup(struct loop *l, int fd, void (*fn)(void *user), void *user)
{
    struct epoll_event e = { .events = EPOLLRDHUP | EPOLLET };
    if (fd < 0 || !reserve(l, fd))
        return;
    l->watch[fd].fn = fn;
    l->watch[fd].user = user;
    l->watch[fd].generation++;
    e.data.u64 = (uint64_t)l->watch[fd].generation << 32 | (uint32_t)fd;
    epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e);
}

/* The descriptor may be another's by now: `user` tells. */
void loop_unwatch(struct loop *l, int fd, void *user)
{
    if (fd < 0 || fd >= l->n_watches || l->watch[fd].user != user)
        return;
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
    l->watch[fd].fn = NULL;
    l->watch[fd].user = NULL;
}

/* ---- running ---- */

static void deliver(struct loop *l, uint64_t which)
{
    uint32_t fd = (uint32_t)which;
    const struct watch *w;
    uint64_t count;
    if (which == plain_input) {
        (void)!read(l->wake, &count, sizeof count); /* it may have been another */
        return;
    }
    w = fd < (uint32_t)l->n_watches ? &l->watch[fd] : NULL;
    if (w && w->fn && w->generation == which >> 32)
        w->fn(w->user);
}

void loop_run(struct loop *l, double seconds)
{
    struct epoll_event e[MAX_EVENTS];
    int n = epoll_wait(l->epoll, e, MAX_EVENTS, (int)(1e3 * seconds + 0.999));
    for (int i = 0; i < n; i++)
        deliver(l, e[i].data.u64);
    for (int i = 0; i < MAX_TASKS; i++) {
        struct loop_task *t = take(l);
        if (!t)
            return;
        t->run(t);
    }
    wake(l);
}
