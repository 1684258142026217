/* The library's side. Pictures come in slots of shared memory whose size cannot change any more
 * once the helper has it, so that no read of ours can fail; which one is next comes as a message,
 * which media_talk.h checks. The helper may write to the memory at any time, so what must be
 * checked is copied first; any bytes are a picture. */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS */
#include "video/video.h"

#include "base/build_id.h"
#include "base/clock.h"
#include "base/mem.h"
#include "video/helper_process.h"
#include "video/media_talk.h"
#include "video/sandbox.h"
#include "video/sound_wish.h"
#include "video/usage.h"

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

struct video {
    struct helper_process helper;
    char *path;
    struct video_limits limits;
    struct media_talk talk;
    bool sandboxed;
    double left; /* seconds that it may still be waited for */
};

/* --- the end of a helper -------------------------------------------------------------------- */

/* The limits of the helper are the smaller of ours and of those that this process has itself. */
static double allowed_seconds(const struct video_limits *l)
{
    double ulimit = (double)sandbox_least(RLIMIT_CPU, UINT64_MAX);

    return l->cpu_seconds > 0 && l->cpu_seconds < ulimit ? l->cpu_seconds : ulimit;
}

static uint64_t allowed_memory(const struct video_limits *l)
{
    return sandbox_least(RLIMIT_AS, sandbox_least(RLIMIT_DATA, l->memory ? l->memory : UINT64_MAX));
}

/* Its memory did not suffice. If the limit is that of this process, the video is not to blame. */
static enum pv_status fail_memory(const struct video *v, struct pv_error *err)
{
    uint64_t bytes = allowed_memory(&v->limits);

    if (v->limits.memory && bytes == v->limits.memory)
        return fail(err, PV_E_LIMIT,
                    "%s: reading it takes more than the %llu bytes of memory that are allowed",
                    v->path, (unsigned long long)bytes);
    if (bytes == UINT64_MAX)
        return fail(err, PV_E_NOMEM, "%s: not enough memory to decode it", v->path);
    return fail(err, PV_E_NOMEM,
                "%s: not enough memory to decode it: it takes more than the %llu bytes of memory "
                "that this process may have (ulimit -v, ulimit -d)",
                v->path, (unsigned long long)bytes);
}

/* It has ended by itself: why. A helper that ended before it was ready could not load its
 * libraries: where memory is limited, for lack of that. */
static enum pv_status explain_end(struct video *v, struct pv_error *err)
{
    bool began = v->talk.state != TALK_STARTED;
    int status, signal;

    helper_end(&v->helper, true, &status);
    signal = status >= 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (!began && signal != SIGXCPU && sandbox_least(RLIMIT_AS, UINT64_MAX) != UINT64_MAX)
        return fail_memory(v, err);
    if (signal == SIGXCPU)
        return fail(err, PV_E_LIMIT,
                    "%s: decoding takes more than the %g seconds of CPU time that are allowed",
                    v->path, allowed_seconds(&v->limits));
    if (signal == SIGKILL) /* at the hard limit of CPU time, or from a system without memory */
        return fail(err, PV_E_LIMIT,
                    "%s: its decoder was killed: a limit of CPU time (ulimit -t) "
                    "may have been reached, or the system may be out of memory",
                    v->path);
    if (signal == SIGSYS)
        return fail(err, PV_E_FORMAT,
                    "%s: its decoder did what the sandbox forbids, and was stopped", v->path);
    if (signal)
        return fail(err, PV_E_FORMAT, "%s: its decoder crashed (signal %d)", v->path, signal);
    return fail(err, PV_E_FORMAT, "%s: its decoder ended without an answer", v->path);
}

/* It is not needed any more. */
static void end(struct video *v)
{
    int status;

    helper_end(&v->helper, true, &status);
}

static enum pv_status fail_lie(struct video *v, const char *what, struct pv_error *err)
{
    end(v);
    return fail(err, PV_E_FORMAT, "%s: its decoder answered with %s", v->path, what);
}

/* --- messages ------------------------------------------------------------------------------- */

/* Waits for a message or the end; asks whether to go on meanwhile. */
static enum pv_status wait_for_helper(struct video *v, struct pv_error *err)
{
    const struct video_limits *l = &v->limits;

    for (;;) {
        double t0 = clock_now();
        bool is_there = helper_wait(&v->helper, USAGE_ASK_MS);
        v->left -= clock_now() - t0;
        if (is_there)
            return PV_OK;
        if (l->go_on && !l->go_on(l->user)) {
            end(v);
            return fail(err, PV_E_CANCELLED, "%s: reading was stopped", v->path);
        }
        if (v->left <= 0) {
            end(v);
            return fail(err, PV_E_LIMIT, "%s: its decoder took too long", v->path);
        }
    }
}

/* The failure that a message tells of. `began`: the helper had been ready before. */
static enum pv_status fail_told(struct video *v, bool began, struct wire_answer *a,
                                struct pv_error *err)
{
    enum pv_status s = (enum pv_status)a->status;

    end(v);
    a->text[sizeof a->text - 1] = 0;
    if (a->kind == WIRE_NO_SANDBOX)
        return fail(err, PV_E_UNSUPPORTED, "%s", a->text);
    if (s == PV_E_NOMEM && began)
        return fail_memory(v, err);
    return s == PV_E_ARG || strstr(a->text, v->path) == a->text
               ? fail(err, s, "%s", a->text)
               : fail(err, s, "%s: %s", v->path, a->text);
}

/* The next message, checked. One that tells of a failure becomes that failure. */
static enum pv_status receive(struct video *v, struct wire_answer *a, struct pv_error *err)
{
    enum pv_status s = wait_for_helper(v, err);
    bool began = v->talk.state != TALK_STARTED;
    const char *wrong;
    ssize_t n;

    if (s)
        return s;
    n = helper_receive(&v->helper, a, sizeof *a);
    if (n <= 0)
        return explain_end(v, err);
    wrong = talk_hear(&v->talk, a, (size_t)n);
    if (wrong)
        return fail_lie(v, wrong, err);
    return a->kind == WIRE_FAILED || a->kind == WIRE_NO_SANDBOX ? fail_told(v, began, a, err)
                                                                : PV_OK;
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

static enum pv_status fail_shared(const struct video *v, uint64_t size, struct pv_error *err)
{
    return fail(err, PV_E_NOMEM, "%s: %llu bytes of memory to share with the media helper: %s",
                v->path, (unsigned long long)size, strerror(errno));
}

/* The file, checked as a file can be from outside; what it says of itself is the helper's. */
static enum pv_status open_source(const struct video *v, const struct video_source *from, int *fd,
                                  uint64_t *size, struct pv_error *err)
{
    struct stat st;

    *size = from->size;
    if (from->path) {
        *fd = open(from->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (*fd < 0 || fstat(*fd, &st) < 0)
            return fail(err, status_of_errno(errno), "%s: %s", v->path, strerror(errno));
        if (!S_ISREG(st.st_mode))
            return fail(err, PV_E_IO, "%s: is not a regular file", v->path);
        *size = (uint64_t)st.st_size;
    }
    if (*size == 0)
        return fail(err, PV_E_FORMAT, "%s: is empty", v->path);
    if (*size > v->limits.file_bytes || *size > INT64_MAX)
        return fail(err, PV_E_LIMIT, "%s: %llu bytes, at most %llu are allowed", v->path,
                    (unsigned long long)*size, (unsigned long long)v->limits.file_bytes);
    if (!from->path && !from->data)
        return fail(err, PV_E_ARG, "%s: %zu bytes at a NULL pointer", v->path, from->size);
    if (!from->path)
        *fd = shared_memory(*size, from->data);
    return *fd < 0 ? fail_shared(v, *size, err) : PV_OK;
}

static enum pv_status send_job(struct video *v, uint64_t size, int threads, struct pv_error *err)
{
    const struct video_limits *l = &v->limits;
    struct wire_job *job = mem_zalloc(sizeof *job);
    enum pv_status s = PV_OK;

    if (!job)
        return fail_nomem(err, sizeof *job);
    snprintf(job->build, sizeof job->build, "%s", build_id());
    snprintf(job->name, sizeof job->name, "%s", v->path);
    if (!wire_write_limits(&job->limits, l))
        s = fail(err, PV_E_ARG, "more than %d bytes of names of formats", WIRE_FORMATS);
    job->size = size;
    job->threads = threads;
    job->sound_alone = v->talk.sound_alone;
    job->sandbox = v->sandboxed;
    job->test = l->sandbox->test;
    if (!s)
        helper_send(&v->helper, job, sizeof *job, -1);
    mem_free(job);
    return s;
}

/* Start the helper on the open file `fd`, and wait until it is ready. */
static enum pv_status start(struct video *v, int fd, uint64_t size, int threads,
                            const char *program, struct wire_answer *ready, struct pv_error *err)
{
    enum pv_status s = helper_start(&v->helper, program, fd, err);

    if (!s)
        s = send_job(v, size, threads, err);
    return s ? s : receive(v, ready, err);
}

/* The same in a sandbox, and without one if there is none and it is not required. */
static enum pv_status start_sandboxed(struct video *v, int fd, uint64_t size, int threads,
                                      const char *program, struct wire_answer *ready,
                                      struct pv_error *err)
{
    const struct video_sandbox *box = v->limits.sandbox;
    struct media_talk fresh = v->talk;
    struct pv_error why = { 0 };
    enum pv_status s;

    v->sandboxed = box->mode != PV_SANDBOX_OFF;
    s = start(v, fd, size, threads, program, ready, &why);
    if (!s || v->talk.state != TALK_NO_SANDBOX || box->mode != PV_SANDBOX_IF_POSSIBLE)
        return s ? fail(err, s, "%s", why.text) : PV_OK;
    if (box->unsandboxed)
        box->unsandboxed(box->user, why.text);
    v->sandboxed = false;
    v->talk = fresh;
    return start(v, fd, size, threads, program, ready, err);
}

static enum pv_status start_on(struct video *v, const struct video_source *from, int threads,
                               struct pv_error *err)
{
    const char *helper = v->limits.sandbox->helper;
    struct wire_answer a = { 0 };
    char found[PATH_SIZE];
    uint64_t size = 0;
    int fd = -1;
    enum pv_status s = open_source(v, from, &fd, &size, err);

    if (!s && !helper && !helper_find(found, sizeof found))
        s = fail(err, PV_E_UNSUPPORTED,
                 "%s: the program prevue-media, which decodes it, is neither in the directory of "
                 "this one nor installed",
                 v->path);
    if (!s)
        s = start_sandboxed(v, fd, size, threads, helper ? helper : found, &a, err);
    if (fd >= 0)
        close(fd);
    return s ? s : receive(v, &a, err);
}

static enum pv_status create(struct video **out, const char *name,
                             const struct video_limits *limits, bool sound_alone,
                             struct pv_error *err)
{
    static const struct video_sandbox usual = { .helper = NULL };
    struct video *v = mem_zalloc(sizeof *v);
    double wall;

    if (!v)
        return fail_nomem(err, sizeof *v);
    v->helper.socket = -1;
    v->limits = *limits;
    v->limits.sandbox = limits->sandbox ? limits->sandbox : &usual;
    wall = v->limits.sandbox->wall_seconds;
    talk_begin(&v->talk, &v->limits, sound_alone);
    v->path = mem_strdup(name);
    v->left = wall > 0                  ? wall
              : limits->cpu_seconds > 0 ? WALL_EXTRA + WALL_SHARE * limits->cpu_seconds
                                        : INFINITY;
    *out = v;
    return v->path ? PV_OK : fail_nomem(err, strlen(name));
}

enum pv_status video_open(struct video **out, const struct video_source *from,
                          const struct video_limits *limits, int threads, struct pv_error *err)
{
    struct video *v = NULL;
    enum pv_status s = create(&v, video_source_name(from), limits, from->sound_alone, err);

    if (!s)
        s = start_on(v, from, threads, err);
    if (s)
        video_close(&v);
    else
        *out = v;
    return s;
}

void video_close(struct video **v)
{
    if (!*v)
        return;
    end(*v);
    mem_free((*v)->path);
    mem_free(*v);
    *v = NULL;
}

void video_decoder_version(const char *helper, char *out, size_t size)
{
    const struct video_limits none = { .cpu_seconds = 10 };
    struct wire_answer ready = { 0 };
    struct video *v = NULL;
    char found[PATH_SIZE];
    int fd = shared_memory(0, NULL);

    if ((helper || helper_find(found, sizeof found)) && fd >= 0 &&
        !create(&v, "no video", &none, false, NULL) &&
        !start_sandboxed(v, fd, 0, 1, helper ? helper : found, &ready, NULL))
        ready.text[sizeof ready.text - 1] = 0;
    else
        ready.text[0] = 0;
    snprintf(out, size, "%s", ready.text);
    if (fd >= 0)
        close(fd);
    video_close(&v);
}

const struct video_info *video_info(const struct video *v)
{
    return &v->talk.info;
}

/* --- reading -------------------------------------------------------------------------------- */

static enum pv_status check_wish(const struct video *v, const int64_t *index, int n,
                                 struct pv_error *err)
{
    if (n > v->limits.frames)
        return fail(err, PV_E_LIMIT, "%s: %d frames are asked for, at most %d are allowed", v->path,
                    n, v->limits.frames);
    for (int i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= v->talk.info.n_frames || (i > 0 && index[i] < index[i - 1]))
            return fail(err, PV_E_ARG, "%s: frame %lld is asked for, after %lld, of %lld frames",
                        v->path, (long long)index[i], (long long)(i > 0 ? index[i - 1] : 0),
                        (long long)v->talk.info.n_frames);
    return PV_OK;
}

struct shelf {
    struct wire_read r;
    int fd;
    uint8_t *memory;
};

/* The memory of the shelf whose sizes are set. */
static enum pv_status shelf_map(struct shelf *s, const struct video *v, struct pv_error *err)
{
    s->r.size = s->r.slots + (uint64_t)s->r.n_slots * s->r.slot_size;
    s->fd = shared_memory(s->r.size, NULL);
    if (s->fd >= 0)
        s->memory = mmap(NULL, (size_t)s->r.size, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (s->fd < 0 || s->memory == MAP_FAILED) {
        s->memory = NULL;
        return fail_shared(v, s->r.size, err);
    }
    return PV_OK;
}

static enum pv_status shelf_open(struct shelf *s, const struct video *v, const int64_t *index,
                                 int n, struct pv_error *err)
{
    enum pv_status st;
    uint64_t size = (uint64_t)v->talk.info.width * (uint64_t)v->talk.info.height * 3, slots;

    slots = SLOTS_BYTES / size;
    slots = slots < 2 ? 2 : slots < SLOTS_MAX ? slots : SLOTS_MAX;
    slots = slots < (uint64_t)n ? slots : (uint64_t)n;
    s->r.n = n;
    s->r.n_slots = (int)slots;
    s->r.slot_size = size;
    s->r.slots = ((uint64_t)n * sizeof *index + PAGE - 1) / PAGE * PAGE;
    st = shelf_map(s, v, err);
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
static enum pv_status check_idle(struct video *v, struct pv_error *err)
{
    struct wire_answer a;

    if (v->helper.pid <= 0)
        return fail(err, PV_E_ARG, "%s: its decoder has ended", v->path);
    return helper_wait(&v->helper, 0) ? receive(v, &a, err) : PV_OK;
}

/* The slots of all messages before number `at` may be reused. If there is nobody to hear it, the
 * next message or the end tells. */
static void send_taken(const struct video *v, int64_t at)
{
    const struct wire_taken taken = { (int)at };

    helper_send(&v->helper, &taken, sizeof taken, -1);
}

/* Picture number `at`, of which the helper says that it is in its slot. */
static enum pv_status take(struct video *v, const struct shelf *shelf, const struct wire_answer *a,
                           int at, video_frame_fn fn, void *user, struct pv_error *err)
{
    const struct image picture = { v->talk.info.width, v->talk.info.height,
                                   shelf->memory + shelf->r.slots +
                                       (uint64_t)(at % shelf->r.n_slots) * shelf->r.slot_size };

    if (!fn(user, at, a->index, a->time, &picture)) {
        end(v);
        return fail(err, PV_E_CANCELLED, "%s: reading was stopped", v->path);
    }
    send_taken(v, at + 1);
    return PV_OK;
}

enum pv_status video_read(struct video *v, const int64_t *index, int n, video_frame_fn fn,
                          void *user, int *lost, struct pv_error *err)
{
    struct shelf shelf = { .fd = -1 };
    struct wire_answer a = { 0 };
    enum pv_status s = check_wish(v, index, n, err);

    if (s)
        return s;
    if (n == 0) {
        *lost = 0;
        return PV_OK;
    }
    s = check_idle(v, err);
    if (!s)
        s = shelf_open(&shelf, v, index, n, err);
    if (!s) {
        talk_ask_frames(&v->talk, index, n);
        helper_send(&v->helper, &shelf.r, sizeof shelf.r, shelf.fd);
    }
    while (!s) {
        s = receive(v, &a, err);
        if (s || a.kind != WIRE_FRAME)
            break;
        s = take(v, &shelf, &a, a.at, fn, user, err);
    }
    if (!s)
        *lost = v->talk.lost;
    shelf_close(&shelf);
    return s;
}

/* --- sound ---------------------------------------------------------------------------------- */

/* Samples of message number a->at. They are copied before anybody looks at them, since the helper
 * may change the memory meanwhile. */
static enum pv_status take_sound(struct video *v, const struct shelf *shelf,
                                 const struct wire_answer *a, float *copy,
                                 const struct sound_wish *wish, struct pv_error *err)
{
    enum pv_status s;

    memcpy(copy, shelf->memory + (uint64_t)(a->at % SOUND_SLOTS) * shelf->r.slot_size,
           (size_t)a->n_samples * sizeof *copy);
    s = wish->fn(wish->user, copy, (size_t)a->n_samples, err);
    if (s) {
        fail_names(err, v->path);
        end(v);
        return s;
    }
    send_taken(v, (int64_t)a->at + 1);
    return PV_OK;
}

enum pv_status video_hear(struct video *v, const struct sound_wish *wish, int *lost,
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
    enum pv_status s = check_idle(v, err);

    if (!s)
        s = shelf_map(&shelf, v, err);
    if (!s) {
        copy = mem_alloc((size_t)shelf.r.slot_size);
        s = copy ? PV_OK : fail_nomem(err, (size_t)shelf.r.slot_size);
    }
    if (!s) {
        talk_ask_sound(&v->talk, sound_most(wish->start, wish->end, v->limits.seconds));
        helper_send(&v->helper, &shelf.r, sizeof shelf.r, shelf.fd);
    }
    while (!s) {
        s = receive(v, &a, err);
        if (s || a.kind != WIRE_SOUND)
            break;
        s = take_sound(v, &shelf, &a, copy, wish, err);
    }
    if (!s)
        *lost = v->talk.lost;
    mem_free(copy);
    shelf_close(&shelf);
    return s;
}

struct sound_keeper {
    struct sound sound;
    uint64_t memory; /* 0: any number of bytes */
};

static enum pv_status keep_sound(void *user, const float *samples, size_t n, struct pv_error *err)
{
    struct sound_keeper *k = user;

    if (k->memory && n > k->memory / sizeof *samples - k->sound.n)
        return fail(err, PV_E_LIMIT,
                    "its sound takes more than the %llu bytes of memory that are allowed",
                    (unsigned long long)k->memory);
    return sound_append(&k->sound, samples, n, err);
}

enum pv_status video_read_sound(struct video *v, double start, double end, struct sound *out,
                                struct pv_error *err)
{
    struct sound_keeper k = { .sound = { .start = start }, .memory = v->limits.memory };
    const struct sound_wish wish = { .start = start, .end = end, .fn = keep_sound, .user = &k };
    enum pv_status s = video_hear(v, &wish, &k.sound.lost, err);

    if (s)
        sound_clear(&k.sound);
    else
        *out = k.sound;
    return s;
}
