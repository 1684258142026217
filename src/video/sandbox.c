/* The sandbox has three parts. Resource limits bound memory and CPU time. A system-call filter
 * (seccomp) permits what decoding needs; opening a file returns an error, because libraries try
 * that incidentally, and any other call that is not on the list kills the process. Landlock, if the
 * kernel has it, forbids files and TCP as well. */
#define _GNU_SOURCE /* syscall, mallopt, CLONE_THREAD */
#include "video/sandbox.h"

#include "base/minmax.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define SANDBOX_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define SANDBOX_ARCH AUDIT_ARCH_AARCH64
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANDBOX_SANITIZED 1
#else
#define SANDBOX_SANITIZED 0
#endif

bool sandbox_bound_memory(void)
{
    return !SANDBOX_SANITIZED;
}

/* A call failed with errno: the system has no such thing, which `what` says; or it has no memory
 * for it now, which is no reason to do without. */
static enum pv_status fail_missing(const char *what, struct pv_error *err)
{
    int why = errno;

    if (status_of_errno(why) == PV_E_NOMEM)
        return fail(err, PV_E_NOMEM, "not enough memory for the sandbox of the media helper: %s",
                    strerror(why));
    return fail(err, PV_E_UNSUPPORTED, "%s: %s", what, strerror(why));
}

/* --- limits --------------------------------------------------------------------------------- */

enum {
    SLACK_DATA = 96 << 20,  /* libraries, stacks and heaps, beside what is counted */
    SLACK_SPACE = 768 << 20 /* the same with what is only reserved */
};

uint64_t sandbox_least(int resource, uint64_t bound)
{
    struct rlimit r;

    return getrlimit(resource, &r) == 0 ? min_u64(bound, r.rlim_cur) : bound;
}

/* Lowers a limit. One that is smaller already, as after `ulimit -v`, stays. */
static bool limit(int resource, uint64_t soft, uint64_t hard)
{
    struct rlimit r;

    if (getrlimit(resource, &r))
        return false;
    r.rlim_cur = min_u64(soft, r.rlim_cur);
    r.rlim_max = min_u64(hard, r.rlim_max);
    return setrlimit(resource, &r) == 0;
}

/* Bytes of this process: of its address space, and those that it may write to. */
static bool read_size(uint64_t *space, uint64_t *data)
{
    unsigned long total, resident, shared, text, lib, writable;
    FILE *f = fopen("/proc/self/statm", "re");
    bool ok = f && fscanf(f, "%lu %lu %lu %lu %lu %lu", &total, &resident, &shared, &text, &lib,
                          &writable) == 6;

    if (f)
        fclose(f);
    if (!ok)
        return false;
    *space = (uint64_t)total * (uint64_t)sysconf(_SC_PAGESIZE);
    *data = (uint64_t)writable * (uint64_t)sysconf(_SC_PAGESIZE);
    return true;
}

static enum pv_status set_limits(const struct sandbox_limits *l, struct pv_error *err)
{
    uint64_t space, data, cpu;
    bool ok = limit(RLIMIT_CORE, 0, 0) && limit(RLIMIT_FSIZE, 0, 0);

    if (ok && l->memory && sandbox_bound_memory() && l->memory < UINT64_MAX / 4) {
        mallopt(M_ARENA_MAX, 2); /* each reserves 64 MiB */
        ok = read_size(&space, &data);
        data += l->memory + l->memory / 4 + SLACK_DATA; /* not all of a decoder is counted */
        ok = ok && limit(RLIMIT_DATA, data, data);
        space += l->memory + l->memory / 4 + l->mapped + SLACK_SPACE;
        ok = ok && limit(RLIMIT_AS, space, space);
    }
    if (ok && l->cpu_seconds > 0 && l->cpu_seconds < 1e9) {
        cpu = (uint64_t)ceil(l->cpu_seconds) + 1;
        ok = limit(RLIMIT_CPU, cpu, cpu + 1);
    }
    return ok ? PV_OK : fail_missing("limits cannot be set", err);
}

/* --- Landlock ------------------------------------------------------------------------------- */

/* The kernel's interface; its header came after some of the systems that this is built on. */
struct landlock_rules {
    uint64_t files, net, scope;
};

enum { SYS_CREATE_RULESET = 444, SYS_RESTRICT_SELF = 446, LANDLOCK_VERSION = 1 };

/* Nothing is allowed that this kernel knows how to forbid. Without Landlock there is the filter. */
static void forbid_files(void)
{
    /* How many kinds of access each version knows, from the first on. */
    static const int known[] = { 13, 14, 15, 15, 16, 16 };
    long version = syscall(SYS_CREATE_RULESET, NULL, 0, LANDLOCK_VERSION);
    struct landlock_rules rules = { 0 };
    size_t size = sizeof rules.files;
    int fd;

    if (version < 1)
        return;
    version = version < 6 ? version : 6;
    rules.files = ((uint64_t)1 << known[version - 1]) - 1;
    if (version >= 4) {
        rules.net = 3; /* bind and connect */
        size = 2 * sizeof rules.files;
    }
    if (version >= 6) {
        rules.scope = 3; /* abstract sockets and signals of others */
        size = sizeof rules;
    }
    fd = (int)syscall(SYS_CREATE_RULESET, &rules, size, 0);
    if (fd < 0)
        return;
    syscall(SYS_RESTRICT_SELF, fd, 0);
    close(fd);
}

/* --- the filter ----------------------------------------------------------------------------- */

#ifdef SANDBOX_ARCH

/* A call is let through; or only with an argument that has (IF_HAS) or has not (IF_LACKS) all bits
 * of `value`, or that is it (IF_IS); or it is answered with an error. */
enum rule_kind { ALLOW, IF_LACKS, IF_HAS, IF_IS, ANSWER };

struct rule {
    int call;
    enum rule_kind kind;
    int argument;
    uint32_t value;
};

#define PASS(name)                                                                                 \
    {                                                                                              \
        SYS_##name, ALLOW, 0, 0                                                                    \
    }
#define DENY(name)                                                                                 \
    {                                                                                              \
        SYS_##name, ANSWER, 0, EACCES                                                              \
    }

static const struct rule rules[] = {
    PASS(read),
    PASS(pread64),
    PASS(lseek),
    PASS(fstat),
    PASS(close),
    PASS(write),
    PASS(recvmsg),
    PASS(sendmsg),
    PASS(recvfrom),
    PASS(sendto),
    PASS(futex),
    PASS(munmap),
    PASS(mremap),
    PASS(brk),
    PASS(madvise),
    { SYS_mmap, IF_LACKS, 2, PROT_EXEC },
    { SYS_mprotect, IF_LACKS, 2, PROT_EXEC },
    { SYS_clone, IF_HAS, 0, CLONE_VM | CLONE_THREAD },
    { SYS_clone3, ANSWER, 0, ENOSYS }, /* then clone is tried, whose flags can be seen */
    { SYS_prctl, IF_IS, 0, PR_SET_NAME },
    PASS(exit),
    PASS(exit_group),
    PASS(set_robust_list),
    PASS(rt_sigaction),
    PASS(rt_sigprocmask),
    PASS(rt_sigreturn),
    PASS(sigaltstack),
    PASS(sched_yield),
    PASS(sched_getaffinity),
    PASS(getpid),
    PASS(gettid),
    PASS(getppid),
    PASS(clock_gettime),
    PASS(clock_getres),
    PASS(clock_nanosleep),
    PASS(nanosleep),
    PASS(gettimeofday),
    PASS(getrandom),
    PASS(uname),
    PASS(sysinfo),
    PASS(getrusage),
    PASS(membarrier),
    PASS(getcpu),
    PASS(restart_syscall),
    { SYS_prlimit64, ANSWER, 0, EPERM },
#ifdef SYS_rseq
    PASS(rseq),
#endif
    DENY(openat),
    DENY(newfstatat),
    DENY(statx),
    DENY(readlinkat),
    DENY(faccessat),
    DENY(ioctl),
    DENY(fcntl),
    DENY(sched_setaffinity),
    DENY(sched_setscheduler),
    DENY(setpriority),
    DENY(mlock),
#ifdef __x86_64__
    DENY(open),
    DENY(stat),
    DENY(lstat),
    DENY(access),
    DENY(readlink),
    PASS(time),
    PASS(poll),
#endif
    PASS(ppoll),
#if SANDBOX_SANITIZED
    DENY(prctl),
    DENY(getdents64),
#endif
};

enum { RULE_STEPS = 5, FILTER_STEPS = 7 + (int)(sizeof rules / sizeof *rules) * RULE_STEPS + 8 };

#define DATA_AT(field) ((uint32_t)offsetof(struct seccomp_data, field))
#define LOAD(at) (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define RETURN(what) (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, what)
#define JUMP(op, value, yes, no)                                                                   \
    (struct sock_filter) BPF_JUMP(BPF_JMP | (op) | BPF_K, value, yes, no)

/* The steps of a rule, with the number of the call at hand before and after; they end with the call
 * or fall through where it is another. */
static int add_rule(struct sock_filter *f, const struct rule *r)
{
    uint32_t argument = DATA_AT(args) + 8 * (uint32_t)r->argument; /* its lower half */

    if (r->kind == ALLOW || r->kind == ANSWER) {
        f[0] = JUMP(BPF_JEQ, (uint32_t)r->call, 0, 1);
        f[1] = RETURN(r->kind == ALLOW ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | r->value);
        return 2;
    }
    /* Otherwise: no code and no process, which nobody asks for in passing, end it. */
    f[0] = JUMP(BPF_JEQ, (uint32_t)r->call, 0, 4);
    f[1] = LOAD(argument);
    if (r->kind == IF_LACKS) {
        f[2] = JUMP(BPF_JSET, r->value, 1, 0);
    } else if (r->kind == IF_IS) {
        f[2] = JUMP(BPF_JEQ, r->value, 0, 1);
    } else { /* the only rule of its kind asks for two bits */
        f[2] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, r->value);
        f[3] = JUMP(BPF_JEQ, r->value, 0, 1);
        f[4] = RETURN(SECCOMP_RET_ALLOW);
        f[5] = RETURN(SECCOMP_RET_KILL_PROCESS);
        f[0].jf = 5;
        return 6;
    }
    f[3] = RETURN(SECCOMP_RET_ALLOW);
    f[4] = RETURN(r->kind == IF_IS ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS);
    return 5;
}

static enum pv_status filter_calls(struct pv_error *err)
{
    struct sock_filter f[FILTER_STEPS];
    struct sock_fprog program = { .filter = f };
    int n = 0;

    f[n++] = LOAD(DATA_AT(arch));
    f[n++] = JUMP(BPF_JEQ, SANDBOX_ARCH, 1, 0);
    f[n++] = RETURN(SECCOMP_RET_KILL_PROCESS);
    f[n++] = LOAD(DATA_AT(nr));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        n += add_rule(f + n, &rules[i]);
    /* A signal to itself: abort() sends one. */
    f[n++] = JUMP(BPF_JEQ, SYS_tgkill, 0, 3);
    f[n++] = LOAD(DATA_AT(args));
    f[n++] = JUMP(BPF_JEQ, (uint32_t)getpid(), 0, 1);
    f[n++] = RETURN(SECCOMP_RET_ALLOW);
    f[n++] = RETURN(SECCOMP_RET_KILL_PROCESS);
    program.len = (unsigned short)n;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
        return fail_missing("system calls cannot be filtered here", err);
    return PV_OK;
}

#else

static enum pv_status filter_calls(struct pv_error *err)
{
    return fail(err, PV_E_UNSUPPORTED, "system calls cannot be filtered on this machine");
}

#endif

/* --- all of them ---------------------------------------------------------------------------- */

static void close_others(int last_fd)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, last_fd + 1, ~0U, 0) == 0)
        return;
#endif
    for (int fd = last_fd + 1; fd < 65536; fd++)
        close(fd);
}

enum pv_status sandbox_limit(const struct sandbox_limits *l, struct pv_error *err)
{
    close_others(l->last_fd);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
        return fail_missing("the process cannot be tied to its parent", err);
    return set_limits(l, err);
}

enum pv_status sandbox_enter(struct pv_error *err)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return fail_missing("the process cannot give up its rights", err);
    forbid_files();
    return filter_calls(err);
}
