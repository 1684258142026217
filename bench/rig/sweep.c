/* Predicts the speed of speculation with chains, by acceptance rate and context. The steps are real
 * and timed one by one, drafted chains and verified ones; a round of the serial schedule is their
 * sum. The number of tokens follows from a formula, if each token is accepted with the same
 * probability a: 1 + a + .. + a^w for a window of w. With one GPU per model both would run at the
 * same time (PEARL): a round then takes as long as the longer side and gives (1 - a^w) / ((1 - a)
 * (1 + a - a^w)) tokens; that was not tested. */
#include "gpu_rig.h"

#include "base/clock.h"

enum { SWEEP_ROOM = 2048, SWEEP_ROWS = 64, SWEEP_WARM = 4, N_WINDOWS = 10 };

/* Seconds at one context: of a token; and for each window, of a drafted chain and of its
 * verification. */
struct sweep {
    double token, draft[N_WINDOWS + 1], verify[N_WINDOWS + 1];
};

/* The median time of steps of these rows after `context` slots; nothing is committed. */
static enum pv_status time_rows(struct lane *l, int context, int n, int wanted, int chain,
                                int repeat, double *seconds, struct pv_error *err)
{
    struct lane_rows rows = { .n = n, .wanted = wanted, .chain = chain };
    struct timings t = { .n = 0 };
    lane_at(l, context);
    for (int i = 0; i < SWEEP_WARM + repeat; i++) {
        double start = clock_now();
        enum pv_status s = lane_step(l, &rows, err);
        if (s)
            return s;
        if (i >= SWEEP_WARM)
            timings_add(&t, clock_now() - start);
    }
    *seconds = timings_at(&t, 0.5);
    return PV_OK;
}

static enum pv_status time_all(struct lane *target, struct lane *draft, int context, int repeat,
                               struct sweep *out, struct pv_error *err)
{
    enum pv_status s = time_rows(target, context, 1, 1, 0, repeat, &out->token, err);
    for (int w = 1; w <= N_WINDOWS && !s; w++) {
        s = time_rows(draft, context, 1, 1, w - 1, repeat, &out->draft[w], err);
        if (!s)
            s = time_rows(target, context, w + 1, w + 1, 0, repeat, &out->verify[w], err);
    }
    return s;
}

static double serial_rate(const struct sweep *s, double a, int w)
{
    double tokens = 1, power = 1;
    for (int i = 0; i < w; i++) {
        power *= a;
        tokens += power;
    }
    return tokens / (s->draft[w] + s->verify[w]);
}

/* Tokens per second of the parallel schedule. One row is verified if nothing is pending, otherwise
 * w. */
static double parallel_rate(const struct sweep *s, double a, int w)
{
    double power = 1, side = s->draft[w] > s->verify[w] ? s->draft[w] : s->verify[w];
    for (int i = 0; i < w; i++)
        power *= a;
    return (1 - power) / ((1 - a) * (1 + a - power)) / side;
}

static void print_sweep(const struct sweep *s, int context)
{
    printf("%7d tokens: %.3f ms a token; chain of 5 %.3f ms, verified in %.3f ms\n", context,
           1e3 * s->token, 1e3 * s->draft[5], 1e3 * s->verify[5]);
    for (double a = 0.6; a < 0.96; a += 0.05) {
        int serial = 1, parallel = 1;
        for (int w = 2; w <= N_WINDOWS; w++) {
            serial = serial_rate(s, a, w) > serial_rate(s, a, serial) ? w : serial;
            parallel = parallel_rate(s, a, w) > parallel_rate(s, a, parallel) ? w : parallel;
        }
        printf("  acceptance %.2f   window %2d  %8.1f tokens/s  %5.2f x ar   two GPUs: window %2d  "
               "%5.2f x ar\n",
               a, serial, serial_rate(s, a, serial), serial_rate(s, a, serial) * s->token, parallel,
               parallel_rate(s, a, parallel) * s->token);
    }
    fflush(stdout);
}

enum pv_status test_sweep(struct rig *r, const struct rig_model *target,
                          const struct rig_model *draft, const struct plan *p, struct pv_error *err)
{
    int longest = 0;
    struct lane a = { 0 }, b = { 0 };
    enum pv_status s;
    (void)r;
    for (int i = 0; i < p->contexts.n; i++)
        longest = p->contexts.v[i] > longest ? p->contexts.v[i] : longest;
    s = lane_open(&a, target, longest + SWEEP_ROOM, SWEEP_ROWS, SWEEP_ROWS, err);
    if (!s)
        s = lane_open(&b, draft, longest + SWEEP_ROOM, SWEEP_ROWS, SWEEP_ROWS, err);
    printf("\nCHAINS BY ACCEPTANCE: %s:%s with %s:%s, %d tokens scored. Steps are timed, what is "
           "accepted is a formula.\n",
           target->shape, target->type, draft->shape, draft->type,
           decoder_config(draft->dec)->vocab);
    for (int i = 0; i < p->contexts.n && !s; i++) {
        struct sweep times;
        s = time_all(&a, &b, p->contexts.v[i], p->repeat, &times, err);
        if (!s)
            print_sweep(&times, p->contexts.v[i]);
    }
    if (a.m)
        lane_close(&a);
    if (b.m)
        lane_close(&b);
    return s;
}
