/* Tables. The floor of a step is the larger of its two limits, bytes / bandwidth and operations /
 * peak; "of floor" is floor / time. Bandwidth is the better of two measurements, so that results do
 * not look better because the machine was busy during one of them. */
#define _DEFAULT_SOURCE /* getrusage beside POSIX.1-2008 */
#include "report.h"

#include "base/append.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const double busy = 0.03; /* share of the CPU: if others used more, numbers are unreliable */

/* ---- the machine ---- */

struct cpu_times cpu_times_now(void)
{
    struct cpu_times t = { 0 };
    struct rusage self, children;
    FILE *f = fopen("/proc/stat", "r");
    double v[8];
    if (!f)
        return t;
    if (fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5],
               &v[6], &v[7]) == 8) {
        for (int i = 0; i < 8; i++)
            t.total += v[i];
        t.idle = v[3] + v[4];
    }
    fclose(f);
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    t.own = (double)(self.ru_utime.tv_sec + self.ru_stime.tv_sec + children.ru_utime.tv_sec +
                     children.ru_stime.tv_sec);
    t.own += 1e-6 * (double)(self.ru_utime.tv_usec + self.ru_stime.tv_usec +
                             children.ru_utime.tv_usec + children.ru_stime.tv_usec);
    t.own *= (double)sysconf(_SC_CLK_TCK);
    return t;
}

double cpu_times_others(const struct cpu_times *a, const struct cpu_times *b)
{
    double total = b->total - a->total, used = total - (b->idle - a->idle) - (b->own - a->own);
    return total > 0 && used > 0 ? used / total : 0;
}

/* The value after the colon of the first line of /proc/cpuinfo that begins with `key`. */
static bool cpuinfo_value(const char *key, char *out, size_t size)
{
    char line[256];
    bool found = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void report_init(struct report *r, int argc, char **argv)
{
    char name[100], part[20];
    time_t now = time(NULL);
    struct tm tm;
    size_t len = 0;
    if (!cpuinfo_value("model name", name, sizeof name)) { /* Arm: only numbers */
        if (!cpuinfo_value("CPU implementer", part, sizeof part))
            snprintf(part, sizeof part, "?");
        snprintf(name, sizeof name, "CPU implementer %s", part);
        if (cpuinfo_value("CPU part", part, sizeof part)) {
            len = strlen(name);
            snprintf(name + len, sizeof name - len, " part %s", part);
        }
    }
    snprintf(r->machine, sizeof r->machine, "%s x %ld", name, sysconf(_SC_NPROCESSORS_ONLN));
    gmtime_r(&now, &tm);
    strftime(r->date, sizeof r->date, "%Y-%m-%dT%H:%MZ", &tm);
    len = 0;
    for (int i = 0; i < argc && len < sizeof r->command; i++)
        len += (size_t)snprintf(r->command + len, sizeof r->command - len, "%s%s", i ? " " : "",
                                base_name(argv[i]));
}

/* ---- numbers ---- */

static double floor_seconds(const struct report *r, const struct test *t)
{
    double rate = r->read_before > r->read_after ? r->read_before : r->read_after;
    double memory = rate > 0 ? t->bytes / rate : 0;
    return memory > t->compute_s ? memory : t->compute_s;
}

/* The time of a test: the best sample or the median. */
static double time_of(const struct report *r, const struct samples *x)
{
    return samples_at(x, r->best ? 0 : 0.5);
}

/* The samples of the peer's faster setting for a test; NULL if it was not measured. */
static const struct samples *best_peer(const struct report *r, const struct test *t, int *fa)
{
    const struct samples *best = NULL;
    for (int i = 0; r->peer && i < r->peer->fa.n; i++) {
        const struct samples *x = &t->peer[i];
        if (x->n == 0 || (best && time_of(r, x) >= time_of(r, best)))
            continue;
        best = x;
        *fa = r->peer->fa.v[i];
    }
    return best;
}

/* The test with one row at the same depth, with which the others are compared. */
static const struct test *one_row(const struct report *r, const struct test *t)
{
    for (int i = 0; i < r->n_tests; i++)
        if (r->tests[i].kind == TEST_VERIFY && r->tests[i].depth == t->depth &&
            r->tests[i].rows == 1 && r->tests[i].ours.n > 0)
            return &r->tests[i];
    return NULL;
}

/* ---- the table ---- */

static void print_head(const struct report *r, FILE *f)
{
    fprintf(f, "model    %s, weights %s, KV %s, kernels %s, %d threads\n", r->model, r->type, r->kv,
            r->kernels, r->threads);
    fprintf(f, "machine  %s, %s, commit %s\n", r->machine, r->date, r->commit);
    fprintf(f, "memory   %.1f GB/s read before, %.1f after (%zu MiB, best of 15)\n",
            1e-9 * r->read_before, 1e-9 * r->read_after, r->read_size >> 20);
    for (int k = 0; k < PEAK_KINDS; k++)
        fprintf(f, "peak     %s: %.0f Gop/s (%s)\n", peak_kind_name((enum peak_kind)k),
                1e-9 * r->peak[k].rate, r->peak[k].instruction);
    fprintf(f, "context  filled with random keys and values, not by prefill\n");
    fprintf(f, "times    %s; spread: between the quartiles\n", r->best ? "best sample" : "medians");
    if (r->peer)
        fprintf(f, "peer     llama.cpp %s, %d threads; verify: logits of its last row only\n",
                r->peer->build[0] ? r->peer->build : "?", r->peer->threads);
    fprintf(f, "others   %.1f %% of the CPU went to other processes%s\n", 100 * r->others,
            r->others > busy ? ": DO NOT TRUST these numbers" : "");
}

static void print_test(const struct report *r, const struct test *t, FILE *f)
{
    double time = time_of(r, &t->ours);
    double spread = samples_at(&t->ours, 0.75) - samples_at(&t->ours, 0.25);
    const struct test *one = one_row(r, t);
    int fa = 0;
    const struct samples *peer = best_peer(r, t, &fa);
    fprintf(f, "%-8s %6d %5d %9.2f %5.1f %% %9.1f %7.0f %%", test_name(t->kind), t->depth, t->rows,
            1e3 * time, 100 * spread / time, t->rows / time, 100 * floor_seconds(r, t) / time);
    if (t->kind == TEST_VERIFY && one)
        fprintf(f, " %8.2f", time / time_of(r, &one->ours));
    else
        fprintf(f, " %8s", "-");
    if (peer)
        fprintf(f, " %14.1f (fa %d) %6.2f", t->rows / time_of(r, peer), fa,
                time_of(r, peer) / time);
    fprintf(f, "\n");
}

void report_print(const struct report *r, FILE *f)
{
    print_head(r, f);
    fprintf(f, "\n%-8s %6s %5s %9s %7s %9s %9s %8s", "test", "depth", "rows", "ms", "spread",
            "tokens/s", "of floor", "x 1 row");
    if (r->peer)
        fprintf(f, " %21s %6s", "llama.cpp tokens/s", "ratio");
    fprintf(f, "\n");
    for (int i = 0; i < r->n_tests; i++)
        if (r->tests[i].ours.n > 0)
            print_test(r, &r->tests[i], f);
}

/* ---- CSV ---- */

static void csv_text(const char *text, FILE *f)
{
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', f);
        fputc(*text, f);
    }
    fputs("\",", f);
}

static void csv_line(const struct report *r, const struct test *t, const char *engine,
                     const char *kv, const struct samples *x, FILE *f)
{
    double median = samples_at(x, 0.5), least = floor_seconds(r, t);
    double read = r->read_before > r->read_after ? r->read_before : r->read_after;
    fprintf(f, "%s,", r->date);
    csv_text(r->machine, f);
    csv_text(r->commit, f);
    csv_text(engine, f);
    fprintf(f, "%d,%s,%s,%s,%d,%d,%d,%.4f,%.2f,%.2f,%.4f,%.1f,%.1f,%.1f,", r->threads, r->type, kv,
            test_name(t->kind), t->depth, t->rows, x->n, 1e3 * median, t->rows / median,
            t->rows / samples_at(x, 0), 1e3 * least, 100 * least / median, 1e-9 * read,
            100 * r->others);
    csv_text(r->model, f);
    fputs("\"", f);
    fputs(r->command, f);
    fputs("\"\n", f);
}

static void csv_test(const struct report *r, const struct test *t, FILE *f)
{
    char engine[128];
    int fa = 0;
    const struct samples *peer = best_peer(r, t, &fa);
    snprintf(engine, sizeof engine, "prevue %s", r->kernels);
    csv_line(r, t, engine, r->kv, &t->ours, f);
    if (!peer)
        return;
    snprintf(engine, sizeof engine, "llama.cpp %s fa%d", r->peer->build, fa);
    csv_line(r, t, engine, "f16", peer, f);
}

enum pv_status report_csv(const struct report *r, const char *path, struct pv_error *err)
{
    static const char header[] = "date,machine,commit,engine,threads,type,kv,test,depth,rows,"
                                 "samples,ms,tokens_per_s,best_tokens_per_s,floor_ms,floor_percent,"
                                 "read_gb_per_s,others_percent,model,command\n";
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    enum pv_status s;
    bool bad;
    if (!f)
        return fail(err, PV_E_NOMEM, "%s: no memory for its lines", path);
    for (int i = 0; i < r->n_tests; i++)
        if (r->tests[i].ours.n > 0)
            csv_test(r, &r->tests[i], f);
    bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad)
        s = fail(err, PV_E_NOMEM, "%s: no memory for its lines", path);
    else
        s = file_append(path, header, text, len, err);
    free(text);
    return s;
}
