/* The peer: arguments to llama-bench, and its lines of JSON back into samples.
 *
 * The lines are flat objects of numbers, strings and two arrays that one program writes, so looking
 * for a quoted key is enough; what is missing or does not match a test is an error or ignored. */
#include "peer.h"

#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_LIMIT = 4 << 20, ARG_SIZE = 16 * MAX_LIST };

/* ---- the process ---- */

/* Everything `argv` prints on its standard output. */
static enum pv_status capture(char *const *argv, struct buf *out, struct pv_error *err)
{
    char chunk[4096];
    int fds[2], status = 0;
    ssize_t n;
    pid_t pid;
    if (pipe(fds) != 0)
        return fail(err, PV_E_IO, "%s: no pipe: %s", argv[0], strerror(errno));
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return fail(err, PV_E_IO, "%s: cannot start it: %s", argv[0], strerror(errno));
    }
    for (;;) {
        n = read(fds[0], chunk, sizeof chunk);
        if (n > 0)
            buf_add(out, chunk, (size_t)n);
        else if (n == 0 || errno != EINTR)
            break;
    }
    close(fds[0]);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        if (WIFSIGNALED(status))
            return fail(err, PV_E_IO, "%s died of signal %d", argv[0], WTERMSIG(status));
        return fail(err, PV_E_IO, "%s ended with status %d", argv[0],
                    WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    if (out->failed)
        return fail(err, PV_E_LIMIT, "%s printed more than %d bytes", argv[0], OUTPUT_LIMIT);
    return PV_OK;
}

/* ---- arguments ---- */

static void append(char *text, const char *item)
{
    size_t len = strlen(text);
    snprintf(text + len, ARG_SIZE - len, "%s%s", len ? "," : "", item);
}

static void append_int(char *text, int value)
{
    char number[16];
    snprintf(number, sizeof number, "%d", value);
    append(text, number);
}

/* Row counts of the depth's tests, each once; empty when there are none. */
static void list_rows(char *text, const struct test *tests, int n, int depth)
{
    for (int i = 0; i < n; i++) {
        bool seen = tests[i].depth != depth || tests[i].kind == TEST_DECODE;
        for (int j = 0; j < i && !seen; j++)
            seen = tests[j].depth == depth && tests[j].kind != TEST_DECODE &&
                   tests[j].rows == tests[i].rows;
        if (!seen)
            append_int(text, tests[i].rows);
    }
}

static bool wants_decode(const struct test *tests, int n, int depth)
{
    for (int i = 0; i < n; i++)
        if (tests[i].depth == depth && tests[i].kind == TEST_DECODE)
            return true;
    return false;
}

/* ---- results ---- */

static const char *find_value(const char *line, const char *key)
{
    char quoted[64];
    const char *at;
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    at = strstr(line, quoted);
    return at ? at + strlen(quoted) : NULL;
}

static long number_of(const char *line, const char *key)
{
    const char *at = find_value(line, key);
    return at ? strtol(at, NULL, 10) : -1;
}

static void take_samples(struct samples *to, const char *list, double unit)
{
    const char *at = strchr(list, '[');
    while (at && *at != ']') {
        char *end;
        double ns = strtod(at + 1, &end);
        if (end == at + 1)
            return;
        samples_add(to, 1e-9 * ns / unit);
        at = end + strspn(end, " ");
    }
}

static void take_line(const struct peer *p, struct test *tests, int n_tests, const char *line)
{
    long prompt = number_of(line, "n_prompt"), gen = number_of(line, "n_gen");
    long depth = number_of(line, "n_depth"), fa = number_of(line, "flash_attn");
    const char *list = find_value(line, "samples_ns");
    for (int i = 0; i < n_tests && list; i++) {
        struct test *t = &tests[i];
        bool decode = t->kind == TEST_DECODE;
        if (t->depth != depth || (decode ? gen != p->gen || prompt != 0 : prompt != t->rows))
            continue;
        for (int f = 0; f < p->fa.n; f++)
            if (p->fa.v[f] == fa)
                take_samples(&t->peer[f], list, decode ? p->gen : 1);
    }
}

static void take_build(struct peer *p, const char *line)
{
    const char *at = find_value(line, "build_commit");
    if (at && *at == '"')
        snprintf(p->build, sizeof p->build, "%.*s", (int)strcspn(at + 1, "\""), at + 1);
}

enum pv_status peer_run(struct peer *p, struct test *tests, int n_tests, int depth, int repeat,
                        struct pv_error *err)
{
    char rows[ARG_SIZE] = "", fa[ARG_SIZE] = "", gen[16] = "0", at[16], threads[16], times[16];
    const char *argv[] = { p->program, "-m", p->model, "-t", threads, "-fa", fa,   "-d",    at,
                           "-p",       rows, "-n",     gen,  "-r",    times, "-o", "jsonl", NULL };
    struct buf out;
    enum pv_status s;
    list_rows(rows, tests, n_tests, depth);
    if (!*rows)
        append(rows, "0");
    if (wants_decode(tests, n_tests, depth))
        snprintf(gen, sizeof gen, "%d", p->gen);
    for (int i = 0; i < p->fa.n; i++)
        append_int(fa, p->fa.v[i]);
    snprintf(at, sizeof at, "%d", depth);
    snprintf(threads, sizeof threads, "%d", p->threads);
    snprintf(times, sizeof times, "%d", repeat);

    buf_init(&out, OUTPUT_LIMIT);
    s = capture((char *const *)argv, &out, err);
    for (char *line = out.data; !s && line && *line;) {
        size_t len = strcspn(line, "\n");
        bool more = line[len] == '\n';
        line[len] = '\0';
        take_line(p, tests, n_tests, line);
        take_build(p, line);
        line += len + more;
    }
    buf_clear(&out);
    return s;
}
