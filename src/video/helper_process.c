/* posix_spawn, and not fork: the program that uses the library may have many threads and much
 * memory. */
#define _GNU_SOURCE /* environ, F_DUPFD_CLOEXEC, dladdr */
#include "video/helper_process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENVIRONMENT_MAX = 32, HIGH_FD = 16, PATH_SIZE = 4096 };

#ifndef PV_LIBEXECDIR
#define PV_LIBEXECDIR "/usr/local/libexec"
#endif

/* Where the helper lies from the directory of the program or of the library: in a build tree, and
 * in an installed one, whose libraries may be in a directory per architecture. */
static const char *const from_program[] = { "/prevue-media", "/../libexec/prevue/prevue-media",
                                            "/../prevue-media", NULL };
static const char *const from_library[] = { "/prevue-media", "/../libexec/prevue/prevue-media",
                                            "/../../libexec/prevue/prevue-media", NULL };

/* The helper in one of `places` from the directory of `file`. */
static bool find_from(const char *file, const char *const *places, char *path, size_t size)
{
    const char *slash = strrchr(file, '/');
    int n = slash ? (int)(slash - file) : 0;

    for (; slash && *places; places++)
        if (snprintf(path, size, "%.*s%s", n, file, *places) < (int)size && access(path, X_OK) == 0)
            return true;
    return false;
}

bool helper_find(char *path, size_t size)
{
    char self[PATH_SIZE];
    Dl_info library;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    self[n > 0 ? n : 0] = 0;
    if (find_from(self, from_program, path, size))
        return true;
    if (dladdr(from_library, &library) && library.dli_fname &&
        find_from(library.dli_fname, from_library, path, size))
        return true;
    return snprintf(path, size, "%s/prevue/prevue-media", PV_LIBEXECDIR) < (int)size &&
           access(path, X_OK) == 0;
}

/* Variables that the program is given. */
static void choose_environment(char *out[ENVIRONMENT_MAX + 1])
{
    static const char *const kept[] = { "LD_", "ASAN_", "UBSAN_", "TSAN_", "LSAN_", "QEMU_" };
    int n = 0;

    for (char **e = environ; e && *e; e++)
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
            if (n < ENVIRONMENT_MAX && !strncmp(*e, kept[i], strlen(kept[i])))
                out[n++] = *e;
    out[n] = NULL;
}

/* No descriptor may be one of those that it is to become. */
static int move_up(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);

    if (high < 0 && errno == EINVAL) /* the limit of descriptors is below that */
        errno = EMFILE;
    return high;
}

static int spawn(pid_t *pid, const char *program, int file, int socket)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char *environment[ENVIRONMENT_MAX + 1], *arguments[] = { (char *)program, NULL };
    sigset_t none, all;
    int r;

    if (access(program, X_OK) != 0) /* some emulators start a child that then finds out */
        return errno;
    choose_environment(environment);
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&actions))
        return ENOMEM;
    if (posix_spawnattr_init(&attributes)) {
        posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    /* A group of its own: Ctrl-C is for the program, which then stops the helper. */
    r = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                  POSIX_SPAWN_SETPGROUP) ||
        posix_spawnattr_setsigmask(&attributes, &none) ||
        posix_spawnattr_setsigdefault(&attributes, &all) ||
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) ||
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) ||
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0) ||
#endif
        posix_spawn_file_actions_adddup2(&actions, file, 3) ||
        posix_spawn_file_actions_adddup2(&actions, socket, 4);
    r = r ? ENOMEM : posix_spawn(pid, program, &actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return r;
}

/* Of the program only the name: the sentence may reach a stranger. */
static enum pv_status fail_start(const char *program, int why, struct pv_error *err)
{
    const char *slash = strrchr(program, '/');
    return fail(err, status_of_errno(why), "the media helper %s cannot be started: %s",
                slash ? slash + 1 : program, strerror(why));
}

enum pv_status helper_start(struct helper_process *h, const char *program, int file,
                            struct pv_error *err)
{
    int ends[2] = { -1, -1 }, high_file = -1, high_socket = -1, r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
        high_file = move_up(file);
        high_socket = move_up(ends[1]);
    }
    r = high_file < 0 || high_socket < 0 ? errno : spawn(&h->pid, program, high_file, high_socket);
    for (int i = 0; i < 3; i++) {
        int fd = i == 0 ? high_file : i == 1 ? high_socket : ends[1];
        if (fd >= 0)
            close(fd);
    }
    if (r) {
        if (ends[0] >= 0)
            close(ends[0]);
        h->pid = 0;
        return fail_start(program, r, err);
    }
    h->socket = ends[0];
    return PV_OK;
}

void helper_send(const struct helper_process *h, const void *message, size_t size, int fd)
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
        n = sendmsg(h->socket, &m, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
}

bool helper_wait(const struct helper_process *h, int ms)
{
    struct pollfd wait = { .fd = h->socket, .events = POLLIN };

    return poll(&wait, 1, ms) > 0;
}

ssize_t helper_receive(const struct helper_process *h, void *message, size_t size)
{
    ssize_t n;

    do { /* a helper that has ended may have left a message, after the news of its end */
        n = recv(h->socket, message, size, MSG_TRUNC);
    } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    return n;
}

void helper_end(struct helper_process *h, bool kill_it, int *status)
{
    pid_t got;

    *status = -1;
    if (h->socket >= 0)
        close(h->socket);
    h->socket = -1;
    if (h->pid <= 0)
        return;
    if (kill_it)
        kill(h->pid, SIGKILL);
    do {
        got = waitpid(h->pid, status, 0);
    } while (got < 0 && errno == EINTR);
    if (got != h->pid)
        *status = -1;
    h->pid = 0;
}
