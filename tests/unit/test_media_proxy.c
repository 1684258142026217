/* Videos read in the helper process: the same frames to the bit. The sandbox holds, and one clear
 * error for whatever happens behind them. */
#define _DEFAULT_SOURCE /* usleep, syscall numbers */
#include "../decode.h"
#include "../make_h264.h"
#include "../scratch.h"
#include "../test.h"
#include "base/clock.h"
#include "video/media_wire.h"
#include "video/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { MIB = 1 << 20, MOST = 256 };

static const struct video_limits usual = { 16 << 20, 1 << 24, 1000, 100 };
static const struct video_sandbox plain_box = { .mode = PV_SANDBOX_ON };

/* Emulators of another machine have no filter of system calls; a kernel that has one complains of
 * the address alone. */
static bool has_sandbox(void)
{
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) < 0 && errno == EFAULT)
        return true;
    printf("# left out: system calls cannot be filtered here (%s)\n", strerror(errno));
    return false;
}

struct frames {
    int n;
    uint64_t hash;
    int stop_at; /* 0: never */
};

static bool add_frame(void *user, int at, int64_t index, double time, const struct image *p)
{
    struct frames *f = user;
    uint64_t t;

    memcpy(&t, &time, sizeof t);
    f->hash = (f->hash ^ (uint64_t)at ^ (uint64_t)index << 24 ^ t) * 1099511628211u;
    for (size_t i = 0; i < (size_t)p->width * (size_t)p->height * 3; i++)
        f->hash = (f->hash ^ p->rgb[i]) * 1099511628211u;
    f->n++;
    return f->n != f->stop_at;
}

/* What a source gives, whole or every third frame. */
struct result {
    enum pv_status status;
    struct pv_error err;
    struct video_info info;
    struct frames frames;
    int lost;
};

static struct result read_source(const struct video_source *from, struct video_limits l,
                                 const struct video_sandbox *box, int step, int threads)
{
    struct result r = { 0 };
    struct decode *v = NULL;
    int64_t index[MOST];
    int n = 0;

    l.sandbox = box;
    r.status = decode_open(&v, from, &l, threads, &r.err);
    if (r.status)
        return r;
    r.info = *decode_info(v);
    for (int64_t i = 0; i < r.info.n_frames && n < MOST; i += step)
        index[n++] = i;
    r.status = decode_read(v, index, n, add_frame, &r.frames, &r.lost, &r.err);
    decode_close(&v);
    return r;
}

static struct result read_path(const char *path, struct video_limits l,
                               const struct video_sandbox *box)
{
    return read_source(&(struct video_source){ .path = path }, l, box, 1, 2);
}

/* Here and there. */
static void check_same(const char *name, const struct video_source *from, int step, int threads)
{
    struct result a = read_source(from, usual, NULL, step, threads);
    struct result b = read_source(from, usual, &plain_box, step, threads);

    CHECK_MSG(a.status == b.status && !strcmp(a.err.text, b.err.text),
              "%s: %d \"%s\", in the sandbox %d \"%s\"", name, a.status, a.err.text, b.status,
              b.err.text);
    CHECK_MSG(a.frames.n == b.frames.n && a.frames.hash == b.frames.hash && a.lost == b.lost,
              "%s: other frames in the sandbox", name);
    CHECK_MSG(a.info.width == b.info.width && a.info.height == b.info.height &&
                  a.info.n_frames == b.info.n_frames && a.info.fps == b.info.fps &&
                  a.info.duration == b.info.duration && a.info.still == b.info.still &&
                  a.info.cut == b.info.cut,
              "%s: other facts in the sandbox", name);
}

static uint8_t *load(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(1 << 20);

    *size = f ? fread(data, 1, 1 << 20, f) : 0;
    if (f)
        fclose(f);
    CHECK_MSG(*size > 0, "%s", path);
    return data;
}

/* Every file of a directory: from its path, from memory, cut, and damaged. */
static int check_directory(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char path[512];
        uint8_t *data;
        size_t size;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] == '.' || strstr(e->d_name, ".json") || strstr(e->d_name, ".md"))
            continue;
        check_same(path, &(struct video_source){ .path = path }, 1, 1 + n % 3);
        data = load(path, &size);
        if (n % 2)
            check_same(path, &(struct video_source){ .data = data, .size = size }, 3, 2);
        if (n % 3 == 0) {
            for (size_t i = size / 2; i < size / 2 + 40 && i < size; i++)
                data[i] ^= 0x5a;
            check_same(path, &(struct video_source){ .path = scratch_file("damaged", data, size) },
                       1, 2);
            check_same(path, &(struct video_source){ .path = scratch_file("cut", data, size / 3) },
                       1, 1);
        }
        free(data);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

TEST(same_frames)
{
    if (!has_sandbox())
        return;
    CHECK(check_directory("tests/data/video") >= 30);
    CHECK(check_directory("samples") >= 4);
}

TEST(same_refusals)
{
    static const char hls[] = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nbframes.ts\n";
    static const char xbm[] = "#define a_width 8\n#define a_height 1\nstatic char a[] = { 1 };\n";

    if (!has_sandbox())
        return;
    check_same("missing", &(struct video_source){ .path = "/nonexistent/x.mp4" }, 1, 1);
    check_same("directory", &(struct video_source){ .path = scratch_dir() }, 1, 1);
    check_same("empty", &(struct video_source){ .path = scratch_file("empty", "", 0) }, 1, 1);
    check_same("text", &(struct video_source){ .path = scratch_file("text", "hello\n", 6) }, 1, 1);
    check_same("memory", &(struct video_source){ .data = "hello\n", .size = 6 }, 1, 1);
    check_same("nothing", &(struct video_source){ .data = NULL, .size = 6 }, 1, 1);
    check_same("large", &(struct video_source){ .data = "", .size = SIZE_MAX }, 1, 1);
    check_same("playlist", &(struct video_source){ .path = scratch_file("a", hls, sizeof hls - 1) },
               1, 1);
    check_same("xbm", &(struct video_source){ .path = scratch_file("a.xbm", xbm, sizeof xbm - 1) },
               1, 1);
}

/* Several reads of one video; and what is asked for is checked on this side. */
TEST(reading_again)
{
    struct video_limits l = usual;
    struct decode *v = NULL;
    struct pv_error err = { 0 };
    const int64_t index[] = { 3, 5, 5, 20, 4, 40 };
    struct frames f[2] = { { 0 } };
    int lost = -7;

    if (!has_sandbox())
        return;
    l.sandbox = &plain_box;
    if (!CHECK_MSG(!decode_open(&v,
                                &(struct video_source){ .path = "tests/data/video/bframes.mp4" },
                                &l, 2, &err),
                   "%s", err.text))
        return;
    for (int i = 0; i < 2; i++)
        CHECK_MSG(!decode_read(v, index, 4, add_frame, &f[i], &lost, &err), "%s", err.text);
    CHECK(f[0].hash == f[1].hash && f[0].n == 4 && lost == 0);
    CHECK_EQ(decode_read(v, index + 3, 2, add_frame, &f[0], &lost, NULL), PV_E_ARG);
    CHECK_EQ(decode_read(v, index + 5, 1, add_frame, &f[0], &lost, NULL), PV_E_ARG);
    f[0] = (struct frames){ .stop_at = 2 };
    CHECK_EQ(decode_read(v, index, 4, add_frame, &f[0], &lost, &err), PV_E_CANCELLED);
    CHECK_MSG(f[0].n == 2 && strstr(err.text, "stopped"), "%s", err.text);
    CHECK_EQ(decode_read(v, index, 4, add_frame, &f[0], &lost, NULL), PV_E_ARG); /* it is gone */
    decode_close(&v);
}

/* --- the sandbox --------------------------------------------------------------------------------
 */

static int open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* The helper tries `test`; this process gets one sentence with these words, and nothing is left. */
static void check_wall(enum media_test test, struct video_limits l, enum pv_status status,
                       const char *words)
{
    static const char path[] = "tests/data/video/bframes.mp4";
    struct video_sandbox box = { .mode = PV_SANDBOX_ON, .test = test };
    int before = open_descriptors();
    double t0 = clock_now();
    struct result r;

    if (test == MEDIA_TEST_SLEEP)
        box.wall_seconds = 0.5;
    r = read_path(path, l, &box);
    CHECK_MSG(r.status == status && strstr(r.err.text, path) == r.err.text &&
                  strstr(r.err.text, words),
              "test %d: status %d, \"%s\", not \"%s\"", test, r.status, r.err.text, words);
    CHECK_MSG(clock_now() - t0 < 60, "test %d took %g seconds", test, clock_now() - t0);
    CHECK_MSG(open_descriptors() == before, "test %d: %d descriptors, then %d", test, before,
              open_descriptors());
    CHECK_MSG(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "test %d: a process is left",
              test);
}

TEST(what_is_forbidden)
{
    if (!has_sandbox())
        return;
    check_wall(MEDIA_TEST_OPEN, usual, PV_E_IO, "no file: Permission denied");
    check_wall(MEDIA_TEST_SOCKET, usual, PV_E_FORMAT, "what the sandbox forbids");
    check_wall(MEDIA_TEST_EXEC, usual, PV_E_FORMAT, "what the sandbox forbids");
    check_wall(MEDIA_TEST_PROCESS, usual, PV_E_FORMAT, "what the sandbox forbids");
    check_wall(MEDIA_TEST_SHRINK, usual, PV_E_FORMAT, "what the sandbox forbids");
}

TEST(limits_of_the_kernel)
{
    struct video_limits l = usual;

    if (!has_sandbox())
        return;
    l.memory = 200 * MIB;
    if (sandbox_bound_memory())
        check_wall(MEDIA_TEST_ALLOCATE, l, PV_E_LIMIT, "more than the 209715200 bytes of memory");
    else
        printf("# left out: memory has no limit in a sanitizer's build\n");
    l = usual;
    l.cpu_seconds = 0.5;
    check_wall(MEDIA_TEST_SPIN, l, PV_E_LIMIT, "0.5 seconds of CPU time");
    check_wall(MEDIA_TEST_SLEEP, usual, PV_E_LIMIT, "took too long");
}

/* Runs in a process of its own, whose limits cannot be raised again. */
static void run_limited(int resource, rlim_t soft, rlim_t hard, void (*run)(void))
{
    const struct rlimit limit = { soft, hard };
    int status = -1;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        test_bad_checks = 0;
        CHECK(setrlimit(resource, &limit) == 0);
        run();
        _exit(test_bad_checks > 0);
    }
    waitpid(child, &status, 0);
    CHECK_MSG(status == 0, "with a limit of %llu on resource %d: status %d",
              (unsigned long long)soft, resource, status);
}

static void read_with_high_limits(void)
{
    struct video_limits l = usual;
    struct result r;

    l.memory = (uint64_t)4096 * MIB;
    l.cpu_seconds = 86400;
    r = read_path("tests/data/video/bframes.mp4", l, &plain_box);
    CHECK_MSG(!r.status && r.frames.n > 0, "%d \"%s\"", r.status, r.err.text);
}

static void allocate_with_high_limits(void)
{
    struct video_limits l = usual;

    l.memory = (uint64_t)4096 * MIB;
    check_wall(MEDIA_TEST_ALLOCATE, l, PV_E_NOMEM,
               "not enough memory to decode it: it takes more than the 314572800 bytes");
}

static void spin_with_high_limits(void)
{
    struct video_limits l = usual;

    l.cpu_seconds = 86400;
    check_wall(MEDIA_TEST_SPIN, l, PV_E_LIMIT, "more than the 1 seconds of CPU time");
}

/* `ulimit -t 1` sets both limits: the kernel kills, and does not say why. */
static void spin_with_one_limit(void)
{
    check_wall(MEDIA_TEST_SPIN, usual, PV_E_LIMIT, "a limit of CPU time (ulimit -t) may have been");
}

/* A process that may have less itself, as after `ulimit -v`: the smaller limit holds, and the
 * sandbox is not given up. */
TEST(limits_of_the_caller)
{
    if (!has_sandbox())
        return;
    run_limited(RLIMIT_CPU, 1000, 1000, read_with_high_limits);
    run_limited(RLIMIT_CPU, 1, 1, spin_with_one_limit);
    if (!sandbox_bound_memory()) {
        printf("# left out: memory has no limit in a sanitizer's build\n");
        return;
    }
    run_limited(RLIMIT_AS, 1000 * MIB, 1000 * MIB, read_with_high_limits);
    run_limited(RLIMIT_DATA, 300 * MIB, 300 * MIB, read_with_high_limits);
    run_limited(RLIMIT_DATA, 300 * MIB, 300 * MIB, allocate_with_high_limits);
    run_limited(RLIMIT_CPU, 1, 1000, spin_with_high_limits);
}

/* ---- lack of memory is no lack of a sandbox ---- */

static void count_unsandboxed(void *user, const char *why)
{
    (void)why;
    ++*(int *)user;
}

/* From now on, setting a filter of system calls fails with this error. */
static bool refuse_filters(int why)
{
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)why),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof rows / sizeof *rows, rows };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

/* Reads a clip with a sandbox, if possible. *without: how often it was done without one. */
static struct result read_if_possible(int *without)
{
    struct video_sandbox box = { .unsandboxed = count_unsandboxed, .user = without };

    *without = 0;
    return read_path("tests/data/video/bframes.mp4", usual, &box);
}

static void read_without_filters(void)
{
    int without;
    struct result r;

    CHECK(refuse_filters(EINVAL));
    r = read_if_possible(&without);
    CHECK_MSG(!r.status && r.frames.n > 0 && without == 1, "%d \"%s\", %d without a sandbox",
              r.status, r.err.text, without);
}

static void read_without_memory_for_filters(void)
{
    int without;
    struct result r;

    CHECK(refuse_filters(ENOMEM));
    r = read_if_possible(&without);
    CHECK_MSG(r.status == PV_E_NOMEM && strstr(r.err.text, "not enough memory for the sandbox") &&
                  without == 0,
              "%d \"%s\", %d without a sandbox", r.status, r.err.text, without);
}

/* Whatever does not fit into the address space: the clip is read in the sandbox, or memory is said
 * to be short. */
static void read_with_little_memory(void)
{
    int without;
    struct result r = read_if_possible(&without);

    CHECK_MSG(without == 0 && (r.status == PV_OK || r.status == PV_E_NOMEM),
              "%d \"%s\", %d without a sandbox", r.status, r.err.text, without);
    CHECK_MSG(!r.status || strstr(r.err.text, "memory") || strstr(r.err.text, strerror(ENOMEM)),
              "\"%s\"", r.err.text);
}

TEST(lack_of_memory_keeps_the_sandbox)
{
    if (!has_sandbox())
        return;
    run_limited(RLIMIT_CORE, 0, 0, read_without_filters);
    run_limited(RLIMIT_CORE, 0, 0, read_without_memory_for_filters);
    for (rlim_t size = 1; size <= 512 && sandbox_bound_memory(); size *= 2)
        run_limited(RLIMIT_AS, size * MIB, size * MIB, read_with_little_memory);
    for (rlim_t size = 144; size < 256 && sandbox_bound_memory(); size += test_brief() ? 16 : 1)
        run_limited(RLIMIT_AS, size * MIB, size * MIB, read_with_little_memory);
}

/* The lack of descriptors passes: it is no fault of the file. */
static void read_without_descriptors(void)
{
    static const char path[] = "tests/data/video/bframes.mp4";

    for (int i = 0; i < 2; i++) {
        struct result r = read_path(path, usual, i ? &plain_box : NULL);
        CHECK_MSG(r.status == PV_E_NOMEM && strstr(r.err.text, path) == r.err.text &&
                      strstr(r.err.text, strerror(EMFILE)),
                  "%s the sandbox: %d \"%s\"", i ? "in" : "without", r.status, r.err.text);
    }
}

TEST(no_descriptors)
{
    int free = dup(0);

    close(free);
    run_limited(RLIMIT_NOFILE, (rlim_t)free, (rlim_t)free, read_without_descriptors);
}

TEST(helpers_that_fail)
{
    if (!has_sandbox())
        return;
    check_wall(MEDIA_TEST_CRASH, usual, PV_E_FORMAT, sandbox_bound_memory() ? "crashed" : "");
    check_wall(MEDIA_TEST_QUIT, usual, PV_E_FORMAT, "without an answer");
}

/* What FFmpeg makes of a file is bounded too, where no check of ours is: tables that another format
 * lists need memory. */
TEST(budgets_in_the_sandbox)
{
    struct video_limits l = usual;
    struct result r;
    size_t size;
    uint8_t *film;

    if (!has_sandbox())
        return;
    film = h264_film(64, 16, 80, 20, &size);
    l.memory = 30 * MIB;
    r = read_source(&(struct video_source){ .data = film, .size = size }, l, &plain_box, 1, 2);
    CHECK_MSG(r.status == PV_E_LIMIT && strstr(r.err.text, "31457280"), "%d \"%s\"", r.status,
              r.err.text);
    l.memory = 100 * MIB;
    r = read_source(&(struct video_source){ .data = film, .size = size }, l, &plain_box, 1, 2);
    CHECK_MSG(!r.status && r.frames.n == 80, "%d \"%s\"", r.status, r.err.text);
    l.decoded_pixels = 1000000;
    r = read_source(&(struct video_source){ .data = film, .size = size }, l, &plain_box, 1, 2);
    CHECK_MSG(r.status == PV_E_LIMIT && strstr(r.err.text, "have to be decoded"), "%d \"%s\"",
              r.status, r.err.text);
    free(film);
}

static bool until(void *user)
{
    return clock_now() < *(double *)user;
}

TEST(cancelling)
{
    struct video_sandbox box = { .mode = PV_SANDBOX_ON, .test = MEDIA_TEST_SLEEP };
    struct video_limits l = usual;
    double end, late = 1;
    struct result r;

    for (int i = 0; i < 3 && late > 0.1 && has_sandbox(); i++) {
        end = clock_now() + 0.3;
        l.go_on = until;
        l.user = &end;
        r = read_path("tests/data/video/bframes.mp4", l, &box);
        late = clock_now() - end;
        CHECK_MSG(r.status == PV_E_CANCELLED && strstr(r.err.text, "stopped"), "%d \"%s\"",
                  r.status, r.err.text);
    }
    CHECK_MSG(late <= 0.1 || late == 1, "%g seconds late", late);
}

/* Whether a process filters its system calls, or is gone. */
static bool is_walled(pid_t pid)
{
    char path[64], line[256];
    int mode = 2;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Seccomp: %d", &mode) == 1)
            break;
    if (f)
        fclose(f);
    return mode == 2;
}

/* The helper of a program that is killed. */
TEST(dying_with_the_parent)
{
    struct video_sandbox box = { .mode = PV_SANDBOX_ON, .test = MEDIA_TEST_SLEEP };
    char path[128];
    long helper = 0;
    FILE *f;
    pid_t child;

    if (!has_sandbox())
        return;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        read_path("tests/data/video/bframes.mp4", usual, &box);
        _exit(0);
    }
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)child, (int)child);
    for (int i = 0; i < 500 && helper == 0; i++) {
        f = fopen(path, "r");
        if (f && fscanf(f, "%ld", &helper) != 1)
            helper = 0;
        if (f)
            fclose(f);
        usleep(10000);
    }
    for (int i = 0; i < 500 && helper && !is_walled((pid_t)helper); i++)
        usleep(10000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    if (helper == 0) {
        printf("# left out: %s does not tell\n", path);
        return;
    }
    for (int i = 0; i < 500 && kill((pid_t)helper, 0) == 0; i++) {
        char state = 'Z'; /* dead, though nobody has waited for it */
        snprintf(path, sizeof path, "/proc/%ld/stat", helper);
        f = fopen(path, "r");
        if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
            state = 'Z';
        if (f)
            fclose(f);
        if (state == 'Z')
            return;
        usleep(10000);
    }
    CHECK_MSG(kill((pid_t)helper, 0) < 0 && errno == ESRCH, "process %ld lives on", helper);
}

/* --- without a helper ------------------------------------------------------------------------- */

TEST(no_helper)
{
    static const char path[] = "tests/data/video/bframes.mp4";
    struct video_sandbox box = { .helper = "/nonexistent/prevue-media" };
    struct result r = read_path(path, usual, &box);

    CHECK_MSG(r.status == PV_E_IO && strstr(r.err.text, "helper prevue-media cannot"), "%d \"%s\"",
              r.status, r.err.text);
    box.helper = "/bin/true"; /* not one of ours */
    r = read_path(path, usual, &box);
    CHECK_MSG(r.status == PV_E_FORMAT && strstr(r.err.text, "without an answer"), "%d \"%s\"",
              r.status, r.err.text);
}

/* The helper without its sandbox gives the same frames, and ends with its limits. */
TEST(helper_without_a_sandbox)
{
    static const char path[] = "tests/data/video/bframes.mp4";
    const struct video_sandbox box = { .mode = PV_SANDBOX_OFF };
    struct video_limits few = usual;
    struct result r = read_path(path, usual, &box), here = read_path(path, usual, NULL);

    CHECK_MSG(!r.status && r.frames.hash == here.frames.hash, "%d \"%s\"", r.status, r.err.text);
    few.decoded_pixels = 1;
    r = read_path(path, few, &box);
    CHECK_MSG(r.status == PV_E_LIMIT, "%d \"%s\"", r.status, r.err.text);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
