/* The library's side. Pictures come in slots of shared memory whose size cannot change any more
 * once the helper has it, so that no read of ours can fail; which one is next comes as a message,
 * which media_talk.h checks. The helper may write to the memory at any time, so what must be
 * checked is copied first; any bytes are a picture. */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS */
#include "video/media_proxy_av.h"

#include "base/build_id.h"
#include "base/clock.h"
#include "base/mem.h"
#include "video/helper_process.h"
#include "video/media_talk.h"
#include "video/meter.h"
#include "video/walls.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
    struct media_talk talk;
    double left; /* seconds that it may still be waited for */
};

/* --- the end of a helper -------------------------------------------------------------------- */

/* The limits of the helper are the smaller of ours and of those that this process has itself. */
static double allowed_seconds(const struct video_limits *l)
{
    double ulimit = (double)walls_least(RLIMIT_CPU, UINT64_MAX);

    return l->cpu_seconds > 0 && l->cpu_seconds < ulimit ? l->cpu_seconds : ulimit;
}

static uint64_t allowed_memory(const struct video_limits *l)
{
    return walls_least(RLIMIT_AS, walls_least(RLIMIT_DATA, l->memory));
}

/* It has ended by itself: why. */
static enum pv_status explain_end(struct media_proxy *p, struct pv_error *err)
{
    int status, signal;

    helper_end(&p->helper, true, &status);
    signal = status >= 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (signal == SIGXCPU)
        return fail(err, PV_E_LIMIT,
                    "%s: decoding takes more than the %g seconds of CPU time that are allowed",
                    p->path, allowed_seconds(&p->limits));
    if (signal == SIGKILL) /* at the hard limit of CPU time, or from a system without memory */
        return fail(err, PV_E_LIMIT,
                    "%s: its decoder was killed in the sandbox: a limit of CPU time (ulimit -t) "
                    "may have been reached, or the system may be out of memory",
                    p->path);
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
    const struct video_limits *l = &p->limits;

    for (;;) {
        double t0 = clock_now();
        bool is_there = helper_wait(&p->helper, METER_ASK_MS);
        p->left -= clock_now() - t0;
        if (is_there)
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

/* The failure that a message tells of. */
static enum pv_status fail_told(struct media_proxy *p, struct wire_answer *a, struct pv_error *err)
{
    enum pv_status s = (enum pv_status)a->status;

    end(p);
    a->text[sizeof a->text - 1] = 0;
    if (a->kind == WIRE_NO_WALLS)
        return fail(err, PV_E_UNSUPPORTED, "%s", a->text);
    if (s == PV_E_NOMEM && p->limits.memory)
        return fail(err, PV_E_LIMIT,
                    "%s: reading it takes more than the %llu bytes of memory that "
                    "are allowed",
                    p->path, (unsigned long long)allowed_memory(&p->limits));
    return s == PV_E_ARG || strstr(a->text, p->path) == a->text
               ? fail(err, s, "%s", a->text)
               : fail(err, s, "%s: %s", p->path, a->text);
}

/* The next message, checked. One that tells of a failure becomes that failure. */
static enum pv_status receive(struct media_proxy *p, struct wire_answer *a, struct pv_error *err)
{
    enum pv_status s = wait_for_helper(p, err);
    const char *wrong;
    ssize_t n;

    if (s)
        return s;
    n = helper_receive(&p->helper, a, sizeof *a);
    if (n <= 0)
        return explain_end(p, err);
    wrong = talk_hear(&p->talk, a, (size_t)n);
    if (wrong)
        return fail_lie(p, wrong, err);
    return a->kind == WIRE_FAILED || a->kind == WIRE_NO_WALLS ? fail_told(p, a, err) : PV_OK;
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
            return fail(err, status_of_errno(errno), "%s: %s", p->path, strerror(errno));
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
    job->sound_alone = p->talk.sound_alone;
    job->test = l->sandbox->test;
    if (!s)
        helper_send(&p->helper, job, sizeof *job, -1);
    mem_free(job);
    return s;
}

static enum pv_status start(struct media_proxy *p, const struct video_source *from, int threads,
                            bool *unavailable, struct pv_error *err)
{
    const struct video_sandbox *box = p->limits.sandbox;
    struct wire_answer a = { 0 };
    char found[PATH_SIZE];
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
        s = receive(p, &a, err);
    *unavailable = *unavailable || p->talk.state == TALK_NO_WALLS;
    return s ? s : receive(p, &a, err);
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
    talk_begin(&p->talk, &p->limits, from->sound_alone);
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
    return &p->talk.info;
}

/* --- reading -------------------------------------------------------------------------------- */

static enum pv_status check_wish(const struct media_proxy *p, const int64_t *index, int n,
                                 struct pv_error *err)
{
    if (n > p->limits.frames)
        return fail(err, PV_E_LIMIT, "%s: %d frames are asked for, at most %d are allowed", p->path,
                    n, p->limits.frames);
    for (int i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= p->talk.info.n_frames || (i > 0 && index[i] < index[i - 1]))
            return fail(err, PV_E_ARG, "%s: frame %lld is asked for, after %lld, of %lld frames",
                        p->path, (long long)index[i], (long long)(i > 0 ? index[i - 1] : 0),
                        (long long)p->talk.info.n_frames);
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
    uint64_t size = (uint64_t)p->talk.info.width * (uint64_t)p->talk.info.height * 3, slots;

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

/* Before something is asked for: the helper must be silent, and alive. */
static enum pv_status check_idle(struct media_proxy *p, struct pv_error *err)
{
    struct wire_answer a;

    if (p->helper.pid <= 0)
        return fail(err, PV_E_ARG, "%s: its decoder in the sandbox has ended", p->path);
    return helper_wait(&p->helper, 0) ? receive(p, &a, err) : PV_OK;
}

/* The slots of all messages before number `at` may be reused. If there is nobody to hear it, the
 * next message or the end tells. */
static void send_taken(const struct media_proxy *p, int64_t at)
{
    const struct wire_taken taken = { (int)at };

    helper_send(&p->helper, &taken, sizeof taken, -1);
}

/* Picture number `at`, of which the helper says that it is in its slot. */
static enum pv_status take(struct media_proxy *p, const struct shelf *shelf,
                           const struct wire_answer *a, int at, video_frame_fn fn, void *user,
                           struct pv_error *err)
{
    const struct image picture = { p->talk.info.width, p->talk.info.height,
                                   shelf->memory + shelf->r.slots +
                                       (uint64_t)(at % shelf->r.n_slots) * shelf->r.slot_size };

    if (!fn(user, at, a->index, a->time, &picture)) {
        end(p);
        return fail(err, PV_E_CANCELLED, "%s: reading was stopped", p->path);
    }
    send_taken(p, at + 1);
    return PV_OK;
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
    s = check_idle(p, err);
    if (!s)
        s = shelf_open(&shelf, p, index, n, err);
    if (!s) {
        talk_ask_frames(&p->talk, index, n);
        helper_send(&p->helper, &shelf.r, sizeof shelf.r, shelf.fd);
    }
    while (!s) {
        s = receive(p, &a, err);
        if (s || a.kind != WIRE_FRAME)
            break;
        s = take(p, &shelf, &a, a.at, fn, user, err);
    }
    if (!s)
        *lost = p->talk.lost;
    shelf_close(&shelf);
    return s;
}

/* --- sound ---------------------------------------------------------------------------------- */

/* Samples of message number a->at. They are copied before anybody looks at them, since the helper
 * may change the memory meanwhile. */
static enum pv_status take_sound(struct media_proxy *p, const struct shelf *shelf,
                                 const struct wire_answer *a, float *copy,
                                 const struct sound_wish *wish, struct pv_error *err)
{
    enum pv_status s;

    memcpy(copy, shelf->memory + (uint64_t)(a->at % SOUND_SLOTS) * shelf->r.slot_size,
           (size_t)a->n_samples * sizeof *copy);
    s = wish->fn(wish->user, copy, (size_t)a->n_samples, err);
    if (s) {
        fail_names(err, p->path);
        end(p);
        return s;
    }
    send_taken(p, (int64_t)a->at + 1);
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
    struct wire_answer a = { 0 };
    float *copy = NULL;
    enum pv_status s = check_idle(p, err);

    if (!s)
        s = shelf_map(&shelf, p, err);
    if (!s) {
        copy = mem_alloc((size_t)shelf.r.slot_size);
        s = copy ? PV_OK : fail_nomem(err, (size_t)shelf.r.slot_size);
    }
    if (!s) {
        talk_ask_sound(&p->talk, sound_most(wish->start, wish->end, p->limits.seconds));
        helper_send(&p->helper, &shelf.r, sizeof shelf.r, shelf.fd);
    }
    while (!s) {
        s = receive(p, &a, err);
        if (s || a.kind != WIRE_SOUND)
            break;
        s = take_sound(p, &shelf, &a, copy, wish, err);
    }
    if (!s)
        *lost = p->talk.lost;
    mem_free(copy);
    shelf_close(&shelf);
    return s;
}
