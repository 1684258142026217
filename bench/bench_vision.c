/* bench_vision: how fast a vision tower encodes frames, through vision_encode, compared with the
 * limits of the machine.
 *
 * Operations are counted from the shapes: two for each weight of a matrix and each row that it
 * multiplies, and 4 * head_dim for each (row, head, row it attends to). The floor is the larger of
 * operations / peak and weight bytes / bandwidth, as for bench_lm.
 *
 * A tower in bf16 is also compared with tile products of random numbers in registers, which are
 * timed between the calls, each time for as long as a call takes. */
#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "family/families.h"
#include "kernels/device_cpu.h"
#include "speed/parts.h"
#include "speed/report.h"
#include "vision/tower.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LIMIT_INT = 1 << 16 };

static const double busy = 0.03; /* share of the CPU that other programs may use, as in bench_lm */

struct args {
    const char *path, *mmproj, *commit;
    int threads, batch, repeat, height, width;
    bool best, repack, cast;
    uint64_t cpu_mask;
};

struct bench {
    struct args args;
    struct model_file *mf;
    struct device *dev;
    struct vision *v;
    struct vision_state *st;
    float *patches, *tokens;
    int h, w; /* patches of a slice */
    struct samples samples;
    double cpu;            /* seconds of the timed calls, on all threads */
    struct samples random; /* rates of tiles of random numbers, between the calls; may be empty */
    double ops[PEAK_KINDS], attention_ops, bytes; /* of one call */
};

static const char usage[] =
    "usage: bench_vision -m MODEL [options]\n"
    "  -m, --model PATH     GGUF file or directory with a vision tower (make_model --shape ov05)\n"
    "  --mmproj PATH        GGUF file with the tower\n"
    "  -t, --threads N      threads (all cores)\n"
    "  --batch N            slices encoded together: frames, or pairs of frames (4)\n"
    "  --height N           pixels of a frame, for towers that take any size (476)\n"
    "  --width N            the same (840)\n"
    "  --repeat N           calls that are timed, after one that is not (5)\n"
    "  --take WHICH         median or best of the calls (median)\n"
    "  --repack WHICH       yes or no: weights in the kernels' own order, where they have one "
    "(yes)\n"
    "  --tower-type TYPE    file or q8_0, as of prevue (file)\n"
    "  --cpumask M          CPU features that may be used, a number (all)\n"
    "  --commit TEXT        what to call this build\n";

/* ---- arguments ---- */

static bool parse_number(const char *text, int *out)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < 1 || v > LIMIT_INT)
        return false;
    *out = (int)v;
    return true;
}

static bool parse_option(struct args *a, const char *name, const char *value)
{
    char *end;
    if (strcmp(name, "-m") == 0 || strcmp(name, "--model") == 0)
        a->path = value;
    else if (strcmp(name, "--mmproj") == 0)
        a->mmproj = value;
    else if (strcmp(name, "--commit") == 0)
        a->commit = value;
    else if (strcmp(name, "-t") == 0 || strcmp(name, "--threads") == 0)
        return parse_number(value, &a->threads) && a->threads <= POOL_MAX_THREADS;
    else if (strcmp(name, "--batch") == 0)
        return parse_number(value, &a->batch);
    else if (strcmp(name, "--height") == 0)
        return parse_number(value, &a->height);
    else if (strcmp(name, "--width") == 0)
        return parse_number(value, &a->width);
    else if (strcmp(name, "--repeat") == 0)
        return parse_number(value, &a->repeat) && a->repeat <= MAX_SAMPLES;
    else if (strcmp(name, "--take") == 0) {
        a->best = strcmp(value, "best") == 0;
        return a->best || strcmp(value, "median") == 0;
    } else if (strcmp(name, "--repack") == 0) {
        a->repack = strcmp(value, "yes") == 0;
        return a->repack || strcmp(value, "no") == 0;
    } else if (strcmp(name, "--tower-type") == 0) {
        a->cast = strcmp(value, "q8_0") == 0;
        return a->cast || strcmp(value, "file") == 0;
    } else if (strcmp(name, "--cpumask") == 0) {
        a->cpu_mask = strtoull(value, &end, 0);
        return end != value && !*end;
    } else
        return false;
    return true;
}

static bool parse_args(struct args *a, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2)
        if (i + 1 >= argc || !parse_option(a, argv[i], argv[i + 1])) {
            fprintf(stderr, "bench_vision: %s%s%s: not an option with a value it can take\n%s",
                    argv[i], i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "", usage);
            return false;
        }
    if (!a->path)
        fprintf(stderr, "bench_vision: no model was given\n%s", usage);
    return a->path != NULL;
}

/* ---- the tower ---- */

static enum pv_status open_all(struct bench *b, struct pv_error *err)
{
    struct args *a = &b->args;
    enum pv_status s = model_file_open(&b->mf, a->path, a->mmproj, 0, families, err);
    const struct tower_cast how = { .type = DTYPE_Q8_0, .threads = a->threads };
    if (!s && a->cast)
        s = model_file_cast_tower(b->mf, &how, err);
    if (!s)
        s = device_cpu_open(&b->dev, a->threads, cpu_flags() & a->cpu_mask, err);
    if (s)
        return s;
    parts_begin(b->dev);
    b->dev->repacks = a->repack;
    s = vision_open(&b->v, b->mf, b->dev, err);
    if (s)
        return s;
    const struct vision_config *c = vision_config(b->v);
    int step = c->patch * c->merge;
    bool any = !c->family->tower->fixed;
    b->h = any ? (a->height + step / 2) / step * c->merge : vision_side(c);
    b->w = any ? (a->width + step / 2) / step * c->merge : vision_side(c);
    int rows = a->batch * b->h * b->w, tokens = a->batch * vision_slice_tokens(b->v, b->h, b->w);
    size_t n = (size_t)rows * (size_t)tower_patch_size(c);
    struct rng r = { 1 };
    b->patches = mem_alloc(sizeof(float) * n);
    b->tokens = mem_alloc(sizeof(float) * (size_t)tokens * (size_t)c->out);
    if (!b->patches || !b->tokens)
        return fail_nomem(err, sizeof(float) * n);
    for (size_t i = 0; i < n; i++)
        b->patches[i] = rng_float(&r);
    return vision_state_open(&b->st, b->v, rows, err);
}

static void close_all(struct bench *b)
{
    vision_state_close(&b->st);
    vision_close(&b->v);
    device_close(&b->dev);
    model_file_close(&b->mf);
    mem_free(b->patches);
    mem_free(b->tokens);
}

static void count_matrix(struct bench *b, const struct matrix *m, int rows)
{
    if (!m->data)
        return;
    b->ops[peak_kind_of(m->dtype)] += 2.0 * m->out * m->in * rows;
    b->bytes += (double)m->out * (double)m->row_size;
}

/* Pairs of rows that attend to each other in one slice. */
static double pairs_seen(const struct bench *b, bool full)
{
    const struct vision_config *c = vision_config(b->v);
    int unit = c->merge * c->merge, side = full ? 0 : c->window / c->patch / c->merge;
    int gh = b->h / c->merge, gw = b->w / c->merge;
    double pairs = 0;
    if (full)
        return (double)(b->h * b->w) * (b->h * b->w);
    for (int y = 0; y < gh; y += side)
        for (int x = 0; x < gw; x += side) {
            double rows = unit * (gh - y < side ? gh - y : side) * (gw - x < side ? gw - x : side);
            pairs += rows * rows;
        }
    return pairs;
}

static void count_call(struct bench *b)
{
    const struct vision *v = b->v;
    const struct vision_config *c = &v->c;
    int batch = b->args.batch, rows = batch * b->h * b->w;
    int tokens = batch * vision_slice_tokens(v, b->h, b->w);
    count_matrix(b, &v->patch, rows);
    for (int i = 0; i < c->n_layers; i++) {
        const struct tower_layer *l = &v->layer[i];
        const struct matrix *all[] = { &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down };
        for (int k = 0; k < 7; k++)
            count_matrix(b, all[k], rows);
        b->attention_ops +=
            4.0 * c->hidden * batch * pairs_seen(b, c->family->tower->fixed || c->full[i]);
    }
    count_matrix(b, &v->merger.mm0, tokens);
    count_matrix(b, &v->merger.mm2, tokens);
    b->ops[peak_kind_of(v->attn)] += b->attention_ops;
}

/* ---- the run ---- */

static enum pv_status measure(struct bench *b, struct pv_error *err)
{
    const struct cpu_device *cpu = b->dev->impl;
    bool half = b->ops[PEAK_HALF] > 0;
    double last = 0;
    for (int i = 0; i <= b->args.repeat; i++) {
        double rate =
            half && i > 0 ? floor_random_tiles(cpu->pool, cpu_flags() & b->args.cpu_mask, last) : 0;
        double start = seconds_now(), used = (double)clock() / CLOCKS_PER_SEC;
        if (rate > 0)
            samples_add(&b->random, rate);
        if (i == 1)
            parts_reset();
        enum pv_status s =
            vision_encode(b->v, b->st, b->patches, b->args.batch, b->h, b->w, b->tokens, err);
        if (s)
            return s;
        last = seconds_now() - start;
        if (i > 0) {
            samples_add(&b->samples, last);
            b->cpu += (double)clock() / CLOCKS_PER_SEC - used;
        }
    }
    return PV_OK;
}

static void print_random(const struct bench *b, double time)
{
    double rate = samples_at(&b->random, 0.5);
    printf("random   tiles of random numbers in registers, between the calls: %.0f Gop/s (%.0f to "
           "%.0f); the call's %.0f Gop/s in 16 bits are %.0f %% of it\n",
           1e-9 * rate, 1e-9 * samples_at(&b->random, 0), 1e-9 * samples_at(&b->random, 1),
           1e-9 * b->ops[PEAK_HALF] / time, 100 * b->ops[PEAK_HALF] / time / rate);
}

static void print(const struct bench *b, const struct report *r)
{
    const struct vision_config *c = vision_config(b->v);
    const struct cpu_device *cpu = b->dev->impl;
    double time = samples_at(&b->samples, b->args.best ? 0 : 0.5), ops = 0, compute = 0, memory;
    double read = r->read_before > r->read_after ? r->read_before : r->read_after;
    int frames = b->args.batch * c->temporal;
    for (int k = 0; k < PEAK_KINDS; k++) {
        ops += b->ops[k];
        compute += b->ops[k] > 0 && r->peak[k].rate > 0 ? b->ops[k] / r->peak[k].rate : 0;
    }
    memory = read > 0 ? b->bytes / read : 0;
    printf("model    %s, weights %s, attention %s, kernels %s, %d threads\n", r->model, r->type,
           dtype_name(b->v->attn), cpu->k.name, pool_threads(cpu->pool));
    printf("machine  %s, %s, commit %s\n", r->machine, r->date, b->args.commit);
    printf("memory   %.1f GB/s read; state of %.1f MB for %d patches\n", 1e-9 * read,
           1e-6 * (double)vision_state_size(b->v, b->args.batch * b->h * b->w),
           b->args.batch * b->h * b->w);
    for (int k = 0; k < PEAK_KINDS; k++)
        printf("peak     %s: %.0f Gop/s (%s)\n", peak_kind_name((enum peak_kind)k),
               1e-9 * r->peak[k].rate, r->peak[k].instruction);
    printf("others   %.1f %% of the CPU went to other processes%s\n\n", 100 * r->others,
           r->others > busy ? ": DO NOT TRUST these numbers" : "");
    printf("call     %d slices of %d x %d patches, %d frames, %s of %d\n", b->args.batch, b->h,
           b->w, frames, b->args.best ? "best" : "median", b->samples.n);
    printf("time     %.4f s a call (best %.4f, worst %.4f), %.4f s a frame\n", time,
           samples_at(&b->samples, 0), samples_at(&b->samples, 1), time / frames);
    printf("cpu      %.4f s a frame, on all threads\n", b->cpu / b->samples.n / frames);
    printf("work     %.2f Gop a call, %.1f %% of it attention; %.1f Gop/s\n", 1e-9 * ops,
           100 * b->attention_ops / ops, 1e-9 * ops / time);
    for (int i = 0; i < PARTS; i++)
        if (parts_now()[i].seconds > 0)
            printf("part     %-9s %.4f s a call\n", parts_now()[i].name,
                   parts_now()[i].seconds / b->samples.n);
    printf("floor    %.4f s a call; reached %.0f %% of it\n", compute > memory ? compute : memory,
           100 * (compute > memory ? compute : memory) / time);
    if (b->random.n > 0)
        print_random(b, time);
}

int main(int argc, char **argv)
{
    static struct bench b = { .args = { .commit = "unknown",
                                        .batch = 4,
                                        .repeat = 5,
                                        .repack = true,
                                        .height = 476,
                                        .width = 840,
                                        .cpu_mask = ~(uint64_t)0 } };
    static struct report r;
    struct pv_error err = { 0 };
    enum pv_status s;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (!parse_args(&b.args, argc, argv))
        return 2;
    if (b.args.threads == 0)
        b.args.threads = cpu_count() < POOL_MAX_THREADS ? cpu_count() : POOL_MAX_THREADS;
    report_init(&r, argc, argv);
    s = open_all(&b, &err);
    if (!s) {
        const struct cpu_device *cpu = b.dev->impl;
        struct cpu_times before = cpu_times_now(), after;
        const char *slash = strrchr(b.args.path, '/');
        r.model = slash ? slash + 1 : b.args.path;
        r.type = dtype_name(b.v->layer[0].q.dtype);
        count_call(&b);
        r.read_before = floor_read(cpu->pool, &r.read_size);
        floor_peaks(cpu->pool, cpu_flags() & b.args.cpu_mask, r.peak);
        s = measure(&b, &err);
        r.read_after = floor_read(cpu->pool, &r.read_size);
        after = cpu_times_now();
        r.others = cpu_times_others(&before, &after);
    }
    if (s)
        fprintf(stderr, "bench_vision: %s\n", err.text);
    else
        print(&b, &r);
    close_all(&b);
    return s ? 1 : 0;
}
