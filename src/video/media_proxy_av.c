/* The library's side. Pictures come in slots of shared memory whose size cannot change any more
 * once the helper has it, so that no read of ours can fail; which one is next comes as a message,
 * and every number of it is compared with what was asked for. */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS */
#include "video/media_proxy_av.h"

#include "base/build_id.h"
#include "base/clock.h"
#include "base/mem.h"
#include "video/frame_index.h"
#include "video/helper_process.h"
#include "video/media_wire.h"
#include "video/meter.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SLOTS_MAX = 16,
    SLOTS_BYTES = 64 << 20, /* of pictures that wait, two excepted */
    SOUND_SLOTS = 8,
    PAGE = 4096,
    PATH_SIZE = 4096
};

/* Seconds that a helper may take beyond those of CPU time, and for each of those: others may have
 * the processor. */
#define WALL_EXTRA 30
#define WALL_SHARE 4

struct media_proxy {
    struct helper_process helper;
    char *path;
    struct video_limits limits;
    struct video_info info;
    bool sound_alone; /* is wanted */
    double left;      /* seconds that it may still be waited for */
};

/* --- the end of a helper -------------------------------------------------------------------- */

/* It has ended by itself: why. */
static enum pv_status explain_end(struct media_proxy *p, struct pv_error *err)
{
    int status, signal;

    helper_end(&p->helper, true, &status);
    signal = status >= 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (signal == SIGXCPU)
        return fail(err, PV_E_LIMIT,
                    "%s: decoding takes more than the %g seconds of CPU time that are allowed",
                    p->path, p->limits.cpu_seconds);
    if (signal == SIGSYS)
        return fail(err, PV_E_FORMAT,
                    "%s: its decoder did what the sandbox forbids, and was stopped", p->path);
    if (signal)
        return fail(err, PV_E_FORMAT, "%s: its decoder crashed in the sandbox (signal %d)", p->path,
                    signal);
    return fail(err, PV_E_FORMAT, "%s: its decoder ended in the sandbox without an answer",
                p->path);
}

/* It is not needed any more. */
static void end(struct media_proxy *p)
{
    int status;

    helper_end(&p->helper, true, &status);
}

static enum pv_status fail_lie(struct media_proxy *p, const char *what, struct pv_error *err)
{
    end(p);
    return fail(err, PV_E_FORMAT, "%s: its decoder in the sandbox answered with %s", p->path, what);
}

/* --- messages ------------------------------------------------------------------------------- */

/* Waits for a message or the end; asks whether to go on meanwhile. */
static enum pv_status wait_for_helper(struct media_proxy *p, struct pv_error *err)
{
    struct pollfd wait = { .fd = p->helper.socket, .events = POLLIN };
    const struct video_limits *l = &p->limits;

    for (;;) {
        double t0 = clock_now();
        int n = poll(&wait, 1, METER_ASK_MS);
        p->left -= clock_now() - t0;
        if (n > 0)
            return PV_OK;
        if (l->go_on && !l->go_on(l->user)) {
            end(p);
            return fail(err, PV_E_CANCELLED, "%s: reading was stopped", p->path);
        }
        if (p->left <= 0) {
            end(p);
            return fail(err, PV_E_LIMIT, "%s: its decoder took too long in the sandbox", p->path);
        }
    }
}

/* The next message. One that tells of a failure becomes that failure. */
static enum pv_status receive(struct media_proxy *p, struct wire_answer *a, bool *no_walls,
                              struct pv_error *err)
{
    enum pv_status s = wait_for_helper(p, err);
    ssize_t n;

    if (s)
        return s;
    do { /* a helper that has ended may have left a message, after the news of its end */
        n = recv(p->helper.socket, a, sizeof *a, 0);
    } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    if (n <= 0)
        return explain_end(p, err);
    if (n != (ssize_t)sizeof *a)
        return fail_lie(p, "what is no message", err);
    if (a->kind != WIRE_FAILED)
        return PV_OK;
    end(p);
    if (no_walls)
        *no_walls = a->no_walls;
    a->text[sizeof a->text - 1] = 0;
    s = (enum pv_status)a->status;
    if (s == PV_OK || s > PV_E_LIMIT)
        return fail(err, PV_E_FORMAT, "%s: %s", p->path, a->text);
    if (s == PV_E_NOMEM && p->limits.memory)
        return fail(err, PV_E_LIMIT,
                    "%s: reading it takes more than the %llu bytes of memory that "
                    "are allowed",
                    p->path, (unsigned long long)p->limits.memory);
    return a->no_walls || s == PV_E_ARG || strstr(a->text, p->path) == a->text
               ? fail(err, s, "%s", a->text)
               : fail(err, s, "%s: %s", p->path, a->text);
}

/* Whether it arrives shows with the next message. */
static void transmit(const struct media_proxy *p, const void *message, size_t size, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { .room = { 0 } };
    struct iovec part = { (void *)message, size };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
    ssize_t n;

    if (fd >= 0) {
        m.msg_control = control.room;
        m.msg_controllen = sizeof control.room;
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    }
    do {
        n = sendmsg(p->helper.socket, &m, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
}

/* --- opening -------------------------------------------------------------------------------- */

/* Memory that the helper can map but not resize; with `data`, not write to either. */
static int shared_memory(uint64_t size, const void *data)
{
    int fd = memfd_create("prevue", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

    if (fd < 0)
        return -1;
    if (size > INT64_MAX || ftruncate(fd, (off_t)size))
        goto fail;
    for (uint64_t at = 0; data && at < size;) {
        size_t some = size - at < (1 << 30) ? (size_t)(size - at) : 1 << 30;
        ssize_t n = write(fd, (const char *)data + at, some);
        if (n <= 0 && errno != EINTR)
            goto fail;
        at += n > 0 ? (uint64_t)n : 0;
    }
    if (fcntl(fd, F_ADD_SEALS, seals | (data ? F_SEAL_WRITE : 0)) == 0)
        return fd;
fail:
    seals = errno;
    close(fd);
    errno = seals;
    return -1;
}

static enum pv_status fail_shared(const struct media_proxy *p, uint64_t size, struct pv_error *err)
{
    return fail(err, PV_E_NOMEM, "%s: %llu bytes of memory to share with the media helper: %s",
                p->path, (unsigned long long)size, strerror(errno));
}

/* The file, checked as a file can be from outside; what it says of itself is the helper's. */
static enum pv_status open_source(const struct media_proxy *p, const struct video_source *from,
                                  int *fd, uint64_t *size, struct pv_error *err)
{
    struct stat st;

    *size = from->size;
    if (!from->path && !from->data && from->size)
        return fail(err, PV_E_ARG, "%s: %zu bytes at a NULL pointer", p->path, from->size);
    if (from->path) {
        *fd = open(from->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (*fd < 0 || fstat(*fd, &st) < 0)
            return fail(err, PV_E_IO, "%s: %s", p->path, strerror(errno));
        if (!S_ISREG(st.st_mode))
            return fail(err, PV_E_IO, "%s: is not a regular file", p->path);
        *size = (uint64_t)st.st_size;
    }
    if (*size == 0)
        return fail(err, PV_E_FORMAT, "%s: is empty", p->path);
    if (*size > p->limits.file_bytes || *size > INT64_MAX)
        return fail(err, PV_E_LIMIT, "%s: %llu bytes, at most %llu are allowed", p->path,
                    (unsigned long long)*size, (unsigned long long)p->limits.file_bytes);
    if (!from->path)
        *fd = shared_memory(*size, from->data);
    return *fd < 0 ? fail_shared(p, *size, err) : PV_OK;
}

static enum pv_status send_job(struct media_proxy *p, uint64_t size, int threads,
                               struct pv_error *err)
{
    const struct video_limits *l = &p->limits;
    struct wire_job *job = mem_zalloc(sizeof *job);
    enum pv_status s = PV_OK;

    if (!job)
        return fail_nomem(err, sizeof *job);
    snprintf(job->build, sizeof job->build, "%s", build_id());
    snprintf(job->name, sizeof job->name, "%s", p->path);
    if (l->more_formats &&
        snprintf(job->formats, sizeof job->formats, "%s", l->more_formats) >= WIRE_FORMATS)
        s = fail(err, PV_E_ARG, "more than %d bytes of names of formats", WIRE_FORMATS);
    job->size = size;
    job->file_bytes = l->file_bytes;
    job->pixels = l->pixels;
    job->frames = l->frames;
    job->seconds = l->seconds;
    job->memory = l->memory;
    job->decoded_pixels = l->decoded_pixels;
    job->cpu_seconds = l->cpu_seconds;
    job->threads = threads;
    job->sound_alone = p->sound_alone;
    job->test = l->sandbox->test;
    if (!s)
        transmit(p, job, sizeof *job, -1);
    mem_free(job);
    return s;
}

static bool is_sound_alone(const struct video_info *i)
{
    return i->width == 0 && i->height == 0 && i->n_frames == 0 && i->fps == 0 && !i->still &&
           i->has_sound && isfinite(i->duration) && i->duration >= 0 && i->cut == 0;
}

static bool is_info(const struct video_info *i, const struct video_limits *l)
{
    return i->width > 0 && i->height > 0 && i->width <= l->pixels / i->height && i->n_frames > 0 &&
           i->n_frames <= INDEX_PACKETS_MAX && isfinite(i->fps) && i->fps >= 0 &&
           isfinite(i->duration) && i->duration >= 0 && i->cut >= 0;
}

static enum pv_status start(struct media_proxy *p, const struct video_source *from, int threads,
                            bool *unavailable, struct pv_error *err)
{
    const struct video_sandbox *box = p->limits.sandbox;
    struct wire_answer a = { 0 };
    char found[PATH_SIZE];
    bool no_walls = false;
    uint64_t size = 0;
    int fd = -1;
    enum pv_status s = open_source(p, from, &fd, &size, err);

    if (!s && !box->helper && !helper_find(found, sizeof found)) {
        *unavailable = true;
        s = fail(err, PV_E_UNSUPPORTED,
                 "%s: there is no sandbox to decode it in: the program prevue-media is neither in "
                 "the directory of this one nor installed",
                 p->path);
    }
    if (!s) {
        s = helper_start(&p->helper, box->helper ? box->helper : found, fd, err);
        *unavailable = s != PV_OK;
    }
    if (fd >= 0)
        close(fd);
    if (!s)
        s = send_job(p, size, threads, err);
    if (!s)
        s = receive(p, &a, &no_walls, err);
    *unavailable = *unavailable || no_walls;
    if (s)
        return s;
    if (a.kind != WIRE_OPENED ||
        !(is_info(&a.info, &p->limits) || (p->sound_alone && is_sound_alone(&a.info))))
        return fail_lie(p, "frames that cannot be", err);
    p->info = a.info;
    return PV_OK;
}

enum pv_status media_proxy_open(struct media_proxy **out, const struct video_source *from,
                                const struct video_limits *limits, int threads, bool *unavailable,
                                struct pv_error *err)
{
    struct media_proxy *p = mem_zalloc(sizeof *p);
    double wall = limits->sandbox->wall_seconds;
    enum pv_status s;

    *unavailable = false;
    if (!p)
        return fail_nomem(err, sizeof *p);
    p->helper.socket = -1;
    p->limits = *limits;
    p->sound_alone = from->sound_alone;
    p->path = mem_strdup(video_source_name(from));
    p->left = wall > 0                  ? wall
              : limits->cpu_seconds > 0 ? WALL_EXTRA + WALL_SHARE * limits->cpu_seconds
                                        : INFINITY;
    s = p->path ? start(p, from, threads, unavailable, err) : fail_nomem(err, sizeof *p);
    if (s)
        media_proxy_close(&p);
    else
        *out = p;
    return s;
}

void media_proxy_close(struct media_proxy **p)
{
    if (!*p)
        return;
    end(*p);
    mem_free((*p)->path);
    mem_free(*p);
    *p = NULL;
}

const struct video_info *media_proxy_info(const struct media_proxy *p)
{
    return &p->info;
}

/* --- reading -------------------------------------------------------------------------------- */

static enum pv_status check_wish(const struct media_proxy *p, const int64_t *index, int n,
                                 struct pv_error *err)
{
    if (n > p->limits.frames)
        return fail(err, PV_E_LIMIT, "%s: %d frames are asked for, at most %d are allowed", p->path,
                    n, p->limits.frames);
    for (int i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= p->info.n_frames || (i > 0 && index[i] < index[i - 1]))
            return fail(err, PV_E_ARG, "%s: frame %lld is asked for, after %lld, of %lld frames",
                        p->path, (long long)index[i], (long long)(i > 0 ? index[i - 1] : 0),
                        (long long)p->info.n_frames);
    return PV_OK;
}

struct shelf {
    struct wire_read r;
    int fd;
    uint8_t *memory;
};

/* The memory of the shelf whose sizes are set. */
static enum pv_status shelf_map(struct shelf *s, const struct media_proxy *p, struct pv_error *err)
{
    s->r.size = s->r.slots + (uint64_t)s->r.n_slots * s->r.slot_size;
    s->fd = shared_memory(s->r.size, NULL);
    if (s->fd >= 0)
        s->memory = mmap(NULL, (size_t)s->r.size, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (s->fd < 0 || s->memory == MAP_FAILED) {
        s->memory = NULL;
        return fail_shared(p, s->r.size, err);
    }
    return PV_OK;
}

static enum pv_status shelf_open(struct shelf *s, const struct media_proxy *p, const int64_t *index,
                                 int n, struct pv_error *err)
{
    enum pv_status st;
    uint64_t size = (uint64_t)p->info.width * (uint64_t)p->info.height * 3, slots;

    slots = SLOTS_BYTES / size;
    slots = slots < 2 ? 2 : slots < SLOTS_MAX ? slots : SLOTS_MAX;
    slots = slots < (uint64_t)n ? slots : (uint64_t)n;
    s->r.n = n;
    s->r.n_slots = (int)slots;
    s->r.slot_size = size;
    s->r.slots = ((uint64_t)n * sizeof *index + PAGE - 1) / PAGE * PAGE;
    st = shelf_map(s, p, err);
    if (!st)
        memcpy(s->memory, index, (size_t)n * sizeof *index);
    return st;
}

static void shelf_close(struct shelf *s)
{
    if (s->memory)
        munmap(s->memory, (size_t)s->r.size);
    if (s->fd >= 0)
        close(s->fd);
}

/* Picture number `at`, of which the helper says that it is in its slot. */
static enum pv_status take(struct media_proxy *p, const struct shelf *shelf,
                           const struct wire_answer *a, int at, video_frame_fn fn, void *user,
                           struct pv_error *err)
{
    const struct wire_taken taken = { at + 1 };
    const struct image picture = { p->info.width, p->info.height,
                                   shelf->memory + shelf->r.slots +
                                       (uint64_t)(at % shelf->r.n_slots) * shelf->r.slot_size };

    if (a->kind != WIRE_FRAME || a->at != at || a->index < 0 || a->index >= p->info.n_frames ||
        !isfinite(a->time))
        return fail_lie(p, "a frame that was not asked for", err);
    if (!fn(user, at, a->index, a->time, &picture)) {
        end(p);
        return fail(err, PV_E_CANCELLED, "%s: reading was stopped", p->path);
    }
    transmit(p, &taken, sizeof taken,
             -1); /* if there is nobody, the next message or its end tells */
    return PV_OK;
}

static enum pv_status fail_ended(const struct media_proxy *p, struct pv_error *err)
{
    return fail(err, PV_E_ARG, "%s: its decoder in the sandbox has ended", p->path);
}

enum pv_status media_proxy_read(struct media_proxy *p, const int64_t *index, int n,
                                video_frame_fn fn, void *user, int *lost, struct pv_error *err)
{
    struct shelf shelf = { .fd = -1 };
    struct wire_answer a = { 0 };
    enum pv_status s = check_wish(p, index, n, err);

    if (s)
        return s;
    if (n == 0) {
        *lost = 0;
        return PV_OK;
    }
    if (p->helper.pid <= 0)
        return fail_ended(p, err);
    s = shelf_open(&shelf, p, index, n, err);
    if (!s)
        transmit(p, &shelf.r, sizeof shelf.r, shelf.fd);
    for (int at = 0; at < n && !s; at++) {
        s = receive(p, &a, NULL, err);
        if (!s)
            s = take(p, &shelf, &a, at, fn, user, err);
    }
    if (!s)
        s = receive(p, &a, NULL, err);
    if (!s && (a.kind != WIRE_READ || a.lost < 0 || a.lost > n))
        s = fail_lie(p, "an end that cannot be", err);
    if (!s)
        *lost = a.lost;
    shelf_close(&shelf);
    return s;
}

/* --- sound ---------------------------------------------------------------------------------- */

/* Samples of message number `at`, at most `most`. Every one that is no number becomes 0
 * (sound_append), so whatever the helper writes is sound. */
static enum pv_status take_sound(struct media_proxy *p, const struct shelf *shelf,
                                 const struct wire_answer *a, int at, int64_t most,
                                 const struct sound_wish *wish, struct pv_error *err)
{
    const struct wire_taken taken = { at + 1 };
    const void *samples = shelf->memory + (uint64_t)(at % SOUND_SLOTS) * shelf->r.slot_size;
    enum pv_status s;

    if (a->at != at || a->n_samples == 0 || a->n_samples > WIRE_SOUND_SAMPLES ||
        (int64_t)a->n_samples > most)
        return fail_lie(p, "sound that was not asked for", err);
    s = wish->fn(wish->user, samples, (size_t)a->n_samples, err);
    if (s) {
        fail_names(err, p->path);
        end(p);
        return s;
    }
    transmit(p, &taken, sizeof taken, -1);
    return PV_OK;
}

enum pv_status media_proxy_sound(struct media_proxy *p, const struct sound_wish *wish, int *lost,
                                 struct pv_error *err)
{
    struct shelf shelf = { .r = { .n_slots = SOUND_SLOTS,
                                  .slot_size = WIRE_SOUND_SAMPLES * sizeof(float),
                                  .sound = true,
                                  .start = wish->start,
                                  .end = wish->end },
                           .fd = -1 };
    int64_t most = sound_most(wish->start, wish->end, p->limits.seconds);
    struct wire_answer a = { 0 };
    enum pv_status s;

    if (p->helper.pid <= 0)
        return fail_ended(p, err);
    s = shelf_map(&shelf, p, err);
    if (!s)
        transmit(p, &shelf.r, sizeof shelf.r, shelf.fd);
    for (int at = 0; !s; at++) {
        s = receive(p, &a, NULL, err);
        if (s || a.kind != WIRE_SOUND)
            break;
        s = take_sound(p, &shelf, &a, at, most, wish, err);
        most -= (int64_t)a.n_samples;
    }
    if (!s && (a.kind != WIRE_READ || a.lost < 0))
        s = fail_lie(p, "an end that cannot be", err);
    if (!s)
        *lost = a.lost;
    shelf_close(&shelf);
    return s;
}
