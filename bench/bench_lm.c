/* bench_lm: how fast a model decodes, verifies and prefills at given context depths, through
 * decoder_step, compared with the limits of the machine and, if asked for, with llama-bench.
 *
 * At each depth our measurements alternate with those of llama-bench (the peer), so that a machine
 * that is slow for a while is slow for both. */
#include "speed/floor.h"
#include "speed/peer.h"
#include "speed/report.h"
#include "speed/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEEP = 4096, /* beyond this depth start the peer only once: it fills the context each time */
    LIMIT_INT = 1 << 24
};

struct args {
    struct bench_model_params model;
    struct int_list depths, rows, fa;
    int prefill, gen, repeat, rounds;
    bool only[TEST_KINDS];
    bool best;
    const char *csv, *llama_bench, *commit;
};

static const char usage[] =
    "usage: bench_lm -m MODEL.gguf [options]\n"
    "  -m, --model PATH     the model (make_model writes one)\n"
    "  -t, --threads N      threads of both engines (all cores)\n"
    "  --depths LIST        context slots filled before a step (0,4096,16384)\n"
    "  --rows LIST          row counts of verification (1,2,4,6,8,16,26,32)\n"
    "  --prefill N          rows of a prefill step (512)\n"
    "  --gen N              tokens of one decode sample (32)\n"
    "  --repeat N           samples of each test (6)\n"
    "  --rounds N           rounds they are spread over; ours and the peer's alternate (2)\n"
    "  --take WHICH         median or best of the samples in the table (median)\n"
    "  --only LIST          of decode,verify,prefill (all)\n"
    "  --kv-type T          auto, f16, bf16 or f32 (auto)\n"
    "  --cpumask M          CPU features that may be used, a number (all)\n"
    "  --repack WHICH       yes, or no: weights where they lie in the file (yes)\n"
    "  --csv FILE           append the results to FILE\n"
    "  --commit TEXT        what to call this build there\n"
    "  --llama-bench PATH   measure this program beside us\n"
    "  --fa LIST            its -fa values; the better one counts (1)\n";

/* ---- arguments ---- */

static bool parse_number(const char *text, int min, int *out)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < min || v > LIMIT_INT)
        return false;
    *out = (int)v;
    return true;
}

static bool parse_list(const char *text, int min, int most, struct int_list *out)
{
    struct int_list list = { .n = 0 };
    char item[16];
    for (;;) {
        size_t len = strcspn(text, ",");
        if (len >= sizeof item || list.n == most)
            return false;
        snprintf(item, sizeof item, "%.*s", (int)len, text);
        if (!parse_number(item, min, &list.v[list.n++]))
            return false;
        if (!text[len])
            break;
        text += len + 1;
    }
    *out = list;
    return true;
}

static bool parse_only(const char *text, bool only[TEST_KINDS])
{
    memset(only, 0, TEST_KINDS * sizeof *only);
    for (;;) {
        size_t len = strcspn(text, ",");
        bool known = false;
        for (int k = 0; k < TEST_KINDS; k++) {
            const char *name = test_name((enum test_kind)k);
            if (strlen(name) == len && strncmp(name, text, len) == 0)
                known = only[k] = true;
        }
        if (!known || !text[len])
            return known;
        text += len + 1;
    }
}

static bool parse_kv(const char *text, enum pv_kv_type *out)
{
    static const char *const names[] = { "auto", "f16", "bf16", "f32" };
    static const enum pv_kv_type types[] = { PV_KV_AUTO, PV_KV_F16, PV_KV_BF16, PV_KV_F32 };
    for (int i = 0; i < 4; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = types[i];
            return true;
        }
    return false;
}

static bool parse_take(const char *text, bool *best)
{
    *best = strcmp(text, "best") == 0;
    return *best || strcmp(text, "median") == 0;
}

static bool parse_repack(const char *text, bool *no_repack)
{
    *no_repack = strcmp(text, "no") == 0;
    return *no_repack || strcmp(text, "yes") == 0;
}

static bool parse_mask(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 0);
    return !errno && end != text && !*end;
}

static bool parse_option(struct args *a, const char *name, const char *value)
{
    if (strcmp(name, "-m") == 0 || strcmp(name, "--model") == 0)
        a->model.path = value;
    else if (strcmp(name, "-t") == 0 || strcmp(name, "--threads") == 0)
        return parse_number(value, 1, &a->model.threads);
    else if (strcmp(name, "--depths") == 0)
        return parse_list(value, 0, MAX_LIST, &a->depths);
    else if (strcmp(name, "--rows") == 0)
        return parse_list(value, 1, MAX_LIST, &a->rows);
    else if (strcmp(name, "--fa") == 0)
        return parse_list(value, 0, MAX_FA, &a->fa);
    else if (strcmp(name, "--prefill") == 0)
        return parse_number(value, 1, &a->prefill);
    else if (strcmp(name, "--gen") == 0)
        return parse_number(value, 1, &a->gen);
    else if (strcmp(name, "--repeat") == 0)
        return parse_number(value, 1, &a->repeat) && a->repeat <= MAX_SAMPLES;
    else if (strcmp(name, "--rounds") == 0)
        return parse_number(value, 1, &a->rounds);
    else if (strcmp(name, "--take") == 0)
        return parse_take(value, &a->best);
    else if (strcmp(name, "--only") == 0)
        return parse_only(value, a->only);
    else if (strcmp(name, "--kv-type") == 0)
        return parse_kv(value, &a->model.kv_type);
    else if (strcmp(name, "--cpumask") == 0)
        return parse_mask(value, &a->model.cpu_mask);
    else if (strcmp(name, "--repack") == 0)
        return parse_repack(value, &a->model.no_repack);
    else if (strcmp(name, "--csv") == 0)
        a->csv = value;
    else if (strcmp(name, "--commit") == 0)
        a->commit = value;
    else if (strcmp(name, "--llama-bench") == 0)
        a->llama_bench = value;
    else
        return false;
    return true;
}

static bool parse_args(struct args *a, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2)
        if (i + 1 >= argc || !parse_option(a, argv[i], argv[i + 1])) {
            fprintf(stderr, "bench_lm: %s%s%s: not an option with a value it can take\n%s", argv[i],
                    i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "", usage);
            return false;
        }
    if (!a->model.path)
        fprintf(stderr, "bench_lm: no model was given\n%s", usage);
    return a->model.path != NULL;
}

/* ---- the plan ---- */

static int compare_int(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static int plan_tests(const struct args *a, struct test *tests)
{
    int n = 0;
    for (int d = 0; d < a->depths.n; d++) {
        int depth = a->depths.v[d];
        if (a->only[TEST_DECODE])
            tests[n++] = (struct test){ .kind = TEST_DECODE, .depth = depth, .rows = 1 };
        for (int i = 0; a->only[TEST_VERIFY] && i < a->rows.n; i++)
            tests[n++] = (struct test){ .kind = TEST_VERIFY, .depth = depth, .rows = a->rows.v[i] };
        if (a->only[TEST_PREFILL])
            tests[n++] = (struct test){ .kind = TEST_PREFILL, .depth = depth, .rows = a->prefill };
    }
    return n;
}

/* Rows, logits and context that the tests need. */
static void size_model(struct args *a, const struct test *tests, int n)
{
    struct bench_model_params *p = &a->model;
    p->max_rows = p->max_logits = p->context = 1;
    for (int i = 0; i < n; i++) {
        int rows = tests[i].rows, logits = tests[i].kind == TEST_PREFILL ? 1 : rows;
        int end = tests[i].depth + (tests[i].kind == TEST_DECODE ? a->gen : rows);
        p->max_rows = rows > p->max_rows ? rows : p->max_rows;
        p->max_logits = logits > p->max_logits ? logits : p->max_logits;
        p->context = end > p->context ? end : p->context;
    }
}

/* ---- the run ---- */

struct run {
    struct args args;
    struct test *tests;
    int n_tests;
    struct bench_model model;
    struct peer peer;
    struct report report;
};

static enum pv_status measure_ours(struct run *r, int depth, int samples, struct pv_error *err)
{
    for (int i = 0; i < r->n_tests; i++) {
        struct test *t = &r->tests[i];
        for (int k = 0; t->depth == depth && k < samples; k++) {
            double seconds;
            enum pv_status s = bench_model_sample(&r->model, t, r->args.gen, &seconds, err);
            if (s)
                return s;
            samples_add(&t->ours, seconds);
        }
    }
    return PV_OK;
}

/* Run one step of each kind without measuring it: brings the weights into memory and wakes the
 * threads. */
static enum pv_status warm_up(struct run *r, int depth, struct pv_error *err)
{
    for (int i = 0; i < r->n_tests; i++) {
        double seconds;
        enum pv_status s;
        if (r->tests[i].depth != depth)
            continue;
        s = bench_model_sample(&r->model, &r->tests[i], 1, &seconds, err);
        if (s)
            return s;
    }
    return PV_OK;
}

/* Print the results so far, in case the run is interrupted. */
static void show_progress(const struct run *r, int depth)
{
    for (int i = 0; i < r->n_tests; i++) {
        const struct test *t = &r->tests[i];
        if (t->depth == depth && t->ours.n > 0)
            fprintf(stderr, "  %s, %d rows: %.2f ms\n", test_name(t->kind), t->rows,
                    1e3 * samples_at(&t->ours, r->args.best ? 0 : 0.5));
    }
}

static enum pv_status measure_depth(struct run *r, int depth, struct pv_error *err)
{
    const struct args *a = &r->args;
    int rounds = a->rounds < a->repeat ? a->rounds : a->repeat;
    int peer_rounds = depth > DEEP ? 1 : rounds;
    enum pv_status s;
    bench_model_fill(&r->model, depth);
    s = warm_up(r, depth, err);
    for (int i = 0; i < rounds && !s; i++) {
        fprintf(stderr, "depth %d, round %d of %d\n", depth, i + 1, rounds);
        s = measure_ours(r, depth, a->repeat * (i + 1) / rounds - a->repeat * i / rounds, err);
        if (s || !a->llama_bench || i >= peer_rounds)
            continue;
        fprintf(stderr, "depth %d, round %d of %d: llama-bench\n", depth, i + 1, peer_rounds);
        s = peer_run(&r->peer, r->tests, r->n_tests, depth,
                     a->repeat * (i + 1) / peer_rounds - a->repeat * i / peer_rounds, err);
    }
    show_progress(r, depth);
    return s;
}

static void describe(struct run *r)
{
    struct report *p = &r->report;
    const char *slash = strrchr(r->args.model.path, '/');
    p->model = slash ? slash + 1 : r->args.model.path;
    p->commit = r->args.commit;
    p->best = r->args.best;
    p->type = dtype_name(bench_model_dtype(&r->model));
    p->kv = dtype_name(r->model.kv_dtype);
    p->kernels = bench_model_kernels(&r->model)->name;
    p->threads = r->model.model->threads;
    p->peer = r->args.llama_bench ? &r->peer : NULL;
    p->tests = r->tests;
    p->n_tests = r->n_tests;
    r->peer = (struct peer){ .program = r->args.llama_bench,
                             .model = r->args.model.path,
                             .threads = p->threads,
                             .gen = r->args.gen,
                             .fa = r->args.fa };
}

static enum pv_status run_all(struct run *r, struct pv_error *err)
{
    struct report *p = &r->report;
    struct pool *pool = bench_model_pool(&r->model);
    struct cpu_times before = cpu_times_now(), after;
    enum pv_status s = PV_OK;
    p->read_before = floor_read(pool, &p->read_size);
    floor_peaks(pool, r->model.model->cpu, p->peak);
    for (int i = 0; i < r->n_tests; i++)
        bench_model_count(&r->model, &r->tests[i], p->peak);
    for (int d = 0; d < r->args.depths.n && !s; d++)
        s = measure_depth(r, r->args.depths.v[d], err);
    p->read_after = floor_read(pool, &p->read_size);
    after = cpu_times_now();
    p->others = cpu_times_others(&before, &after);
    return s;
}

int main(int argc, char **argv)
{
    static struct test tests[MAX_TESTS];
    static struct run r = {
        .args = { .model = { .cpu_mask = ~(uint64_t)0 },
                  .depths = { { 0, 4096, 16384 }, 3 },
                  .rows = { { 1, 2, 4, 6, 8, 16, 26, 32 }, 8 },
                  .fa = { { 1 }, 1 },
                  .prefill = 512,
                  .gen = 32,
                  .repeat = 6,
                  .rounds = 2,
                  .only = { true, true, true },
                  .commit = "unknown" },
    };
    struct pv_error err = { 0 };
    enum pv_status s;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (!parse_args(&r.args, argc, argv))
        return 2;
    /* Ascending, so that the context only grows. */
    qsort(r.args.depths.v, (size_t)r.args.depths.n, sizeof(int), compare_int);
    r.tests = tests;
    r.n_tests = plan_tests(&r.args, tests);
    size_model(&r.args, tests, r.n_tests);
    report_init(&r.report, argc, argv);
    s = bench_model_open(&r.model, &r.args.model, &err);
    if (!s) {
        describe(&r);
        s = run_all(&r, &err);
    }
    if (!s)
        report_print(&r.report, stdout);
    if (!s && r.args.csv)
        s = report_csv(&r.report, r.args.csv, &err);
    if (s)
        fprintf(stderr, "bench_lm: %s\n", err.text);
    bench_model_close(&r.model);
    return s ? 1 : 0;
}
