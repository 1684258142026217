/* The helper's side. It receives the job, enters the sandbox, says so, and only then reads the
 * first byte of the file; pictures go into slots of the shared memory in turn. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "video/media_worker_av.h"

#include "base/build_id.h"
#include "video/media_wire.h"
#include "video/sandbox.h"
#include "video/video_local_av.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS_BYTES = 64 << 20 }; /* of pictures that wait, two excepted: for the sandbox */

static bool send_answer(const struct wire_answer *a)
{
    ssize_t n;

    do {
        n = send(WIRE_SOCKET, a, sizeof *a, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *a;
}

static bool receive(void *message, size_t size)
{
    ssize_t n;

    do {
        n = recv(WIRE_SOCKET, message, size, 0);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)size;
}

/* WIRE_FAILED or WIRE_NO_SANDBOX. */
static bool send_failure(enum wire_kind kind, const struct pv_error *err)
{
    struct wire_answer a = { .kind = kind, .status = (uint32_t)err->code };

    memcpy(a.text, err->text, sizeof a.text < sizeof err->text ? sizeof a.text : sizeof err->text);
    a.text[sizeof a.text - 1] = 0;
    return send_answer(&a);
}

static bool send_opened(const struct video_info *i)
{
    const struct wire_answer a = { .kind = WIRE_OPENED, .info = wire_write_info(i) };

    return send_answer(&a);
}

/* --- tests of the sandbox --------------------------------------------------------------------- */

static void try_memory(uint64_t limit, struct pv_error *err)
{
    enum { STEP = 16 << 20 };

    for (uint64_t n = 0; n < 4 * limit; n += STEP) {
        void *p = mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            fail(err, PV_E_NOMEM, "no memory after %llu bytes", (unsigned long long)n);
            return;
        }
        memset(p, 1, STEP);
    }
    fail(err, PV_E_DEVICE, "got %llu bytes", (unsigned long long)(4 * limit));
}

static void try_file(struct pv_error *err)
{
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        fail(err, PV_E_IO, "no file: %s", strerror(errno));
    else
        fail(err, PV_E_DEVICE, "opened a file");
}

/* Does what the sandbox is there for to stop; says so where they did not. */
static void run_test(const struct wire_job *job)
{
    struct pv_error err = { 0 };
    volatile unsigned spin = 0;

    switch (job->test) {
    case MEDIA_TEST_OPEN:
        try_file(&err);
        break;
    case MEDIA_TEST_SOCKET:
        fail(&err, PV_E_DEVICE, "made socket %d", socket(AF_INET, SOCK_STREAM, 0));
        break;
    case MEDIA_TEST_EXEC:
        fail(&err, PV_E_DEVICE, "made code at %p",
             mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        break;
    case MEDIA_TEST_PROCESS:
        fail(&err, PV_E_DEVICE, "made process %d", (int)fork());
        break;
    case MEDIA_TEST_ALLOCATE:
        try_memory(job->limits.memory, &err);
        break;
    case MEDIA_TEST_SPIN:
        for (;;)
            spin++;
    case MEDIA_TEST_SLEEP:
        for (;;)
            nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    case MEDIA_TEST_CRASH:
        raise(SIGSEGV);
        break;
    default: /* MEDIA_TEST_QUIT */
        return;
    }
    send_failure(WIRE_FAILED, &err);
}

/* --- reading -------------------------------------------------------------------------------- */

struct delivery {
    const struct wire_read *read;
    uint8_t *memory;
    int sent, taken; /* pictures, or samples, that are in their slots, and out of them */
    int test;
};

/* Where to put number `at`; NULL: the library has left. */
static uint8_t *free_slot(struct delivery *d, int at)
{
    struct wire_taken t;

    while (at - d->taken >= d->read->n_slots) {
        if (!receive(&t, sizeof t))
            return NULL;
        d->taken = t.at;
    }
    d->sent = at + 1;
    return d->memory + d->read->slots + (uint64_t)(at % d->read->n_slots) * d->read->slot_size;
}

static bool deliver(void *user, int at, int64_t index, double time, const struct image *picture)
{
    struct delivery *d = user;
    struct wire_answer a = { .kind = WIRE_FRAME, .at = at, .index = index, .time = time };
    uint8_t *slot = free_slot(d, at);

    if (!slot)
        return false;
    memcpy(slot, picture->rgb, (size_t)d->read->slot_size);
    return send_answer(&a);
}

static enum pv_status deliver_sound(void *user, const float *samples, size_t n,
                                    struct pv_error *err)
{
    struct delivery *d = user;

    while (d->test == MEDIA_TEST_STALL)
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    for (size_t some; n > 0; n -= some, samples += some) {
        struct wire_answer a = { .kind = WIRE_SOUND, .at = d->sent };
        uint8_t *slot = free_slot(d, d->sent);
        some = n < WIRE_SOUND_SAMPLES ? n : WIRE_SOUND_SAMPLES;
        a.n_samples = some;
        if (slot)
            memcpy(slot, samples, some * sizeof *samples);
        if (!slot || !send_answer(&a))
            return fail(err, PV_E_CANCELLED, "reading was stopped");
    }
    return PV_OK;
}

/* What to read, and the shared memory that comes with it. */
static bool receive_read(struct wire_read *r, int *fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = { r, sizeof *r };
    struct msghdr m = { .msg_iov = &part,
                        .msg_iovlen = 1,
                        .msg_control = control.room,
                        .msg_controllen = sizeof control.room };
    struct cmsghdr *c;
    ssize_t n;

    do {
        n = recvmsg(WIRE_SOCKET, &m, 0);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof *r)
        return false;
    c = CMSG_FIRSTHDR(&m);
    if (!c || c->cmsg_type != SCM_RIGHTS)
        return false;
    memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return true;
}

static struct sound_wish sound_wanted(const struct wire_read *r, struct delivery *d)
{
    return (struct sound_wish){ .start = r->start, .end = r->end, .fn = deliver_sound, .user = d };
}

static bool serve_read(struct local_video *v, const struct wire_read *r, int fd, int test)
{
    struct pv_error err = { 0 };
    struct delivery d = { .read = r, .test = test };
    struct wire_answer done = { .kind = WIRE_READ };
    const struct video_info *info = local_video_info(v);
    enum pv_status s;
    bool sent;

    if (test == MEDIA_TEST_SHRINK && ftruncate(fd, 0) == 0)
        return false;
    d.memory = mmap(NULL, (size_t)r->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (d.memory == MAP_FAILED) {
        fail(&err, PV_E_NOMEM, "%llu bytes of shared memory cannot be mapped",
             (unsigned long long)r->size);
        send_failure(WIRE_FAILED, &err);
        return false;
    }
    if (r->slot_size != (r->sound ? WIRE_SOUND_SAMPLES * sizeof(float)
                                  : (uint64_t)info->width * (uint64_t)info->height * 3))
        return false;
    if (r->sound)
        s = local_video_sound(v, sound_wanted(r, &d), &done.lost, &err);
    else
        s = local_video_read(v, (const int64_t *)(const void *)d.memory, r->n, deliver, &d,
                             &done.lost, &err);
    sent = s ? send_failure(WIRE_FAILED, &err) : send_answer(&done);
    munmap(d.memory, (size_t)r->size);
    /* Pictures that had not been taken out when the last one was sent. */
    while (sent && !s && d.taken < d.sent) {
        struct wire_taken t;
        sent = receive(&t, sizeof t);
        d.taken = t.at;
    }
    return sent && !s;
}

/* The sandbox, if the job wants one. Without it, the limits hold as far as the system has them. */
static enum pv_status enter_sandbox(const struct wire_job *job, struct pv_error *err)
{
    uint64_t two = 6 * (uint64_t)job->limits.pixels;
    const struct sandbox_limits l = { .memory = job->limits.memory,
                                      .mapped = (two > SLOTS_BYTES ? two : SLOTS_BYTES) +
                                                8 * (uint64_t)job->limits.frames,
                                      .cpu_seconds = job->limits.cpu_seconds,
                                      .last_fd = WIRE_SOCKET };
    enum pv_status s = sandbox_limit(&l, err);

    if (!job->sandbox)
        return PV_OK;
    return s ? s : sandbox_enter(err);
}

int media_worker_run(void)
{
    static struct wire_job job; /* too large for a small stack */
    struct wire_answer ready = { .kind = WIRE_READY };
    struct local_video *v = NULL;
    struct video_limits limits;
    struct wire_read read;
    struct pv_error err = { 0 };
    enum pv_status s;
    int fd;

    if (!receive(&job, sizeof job))
        return 2;
    job.build[sizeof job.build - 1] = job.name[sizeof job.name - 1] = 0;
    if (strcmp(job.build, build_id()) != 0) {
        fail(&err, PV_E_UNSUPPORTED,
             "the program prevue-media is of another build than the library");
        return !send_failure(WIRE_FAILED, &err);
    }
    s = enter_sandbox(&job, &err);
    if (s)
        return !send_failure(s == PV_E_NOMEM ? WIRE_FAILED : WIRE_NO_SANDBOX, &err);
    local_video_decoder_version(ready.text, sizeof ready.text);
    if (!send_answer(&ready))
        return 2;
    if (job.test != MEDIA_TEST_NONE && job.test < MEDIA_TEST_SHRINK) {
        run_test(&job);
        return 0;
    }
    limits = wire_read_limits(&job.limits);
    if (local_video_open(&v,
                         &(struct video_source){ .path = job.name,
                                                 .size = (size_t)job.size,
                                                 .fd = WIRE_FILE,
                                                 .sound_alone = job.sound_alone },
                         &limits, job.threads, &err))
        return !send_failure(WIRE_FAILED, &err);
    if (!send_opened(local_video_info(v)))
        return 2;
    while (receive_read(&read, &fd))
        if (!serve_read(v, &read, fd, job.test))
            break;
    return 0;
}
