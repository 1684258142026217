/* Packs the tasks' parts into steps, in order. A part waits for the next step if it does not fit,
 * or cannot run together with the first part: it needs other layers, or has rows of a prompt on a
 * device where these use other kernels. */
#include "engine/batch.h"

#include "base/clock.h"
#include "base/minmax.h"
#include "base/thread.h"

#include <math.h>

enum { FIRST_PROMPT_ROWS = 32, LEAST_PROMPT_ROWS = 8 };
static const double fade = 0.95;
static const double outlier = 3;       /* longer times count as this many times the usual */
static const double guess_row = 0.02;  /* share of a one-row step that each further row takes */
static const double guess_weight = 64; /* weight of that guess, in squared rows */

/* The parts of a joint step so far. */
struct group {
    const struct step *step[STEP_MAX_PARTS];
    struct batch_part *part[STEP_MAX_PARTS];
    int n, rows, seqs, logits, columns, prompt_rows;
    int levels;  /* consecutive steps: more than one with a chain or a tree */
    int further; /* rows of the levels after the first */
};

/* ---- times ---- */

static double line_slope(const struct step_line *l, double *base)
{
    double x = l->rows / l->n, y = l->time / l->n, guess = guess_row * y / (1 + guess_row * x);
    double var = l->rows2 - l->n * x * x, cov = l->rows_time - l->n * x * y;
    double slope = (cov + guess_weight * guess) / (var + guess_weight);
    slope = fmin(fmax(slope, 0), y / x);
    *base = y - slope * x;
    return slope;
}

double batch_row_s(const struct batch *b)
{
    double base;
    return b->line.n > 0 ? line_slope(&b->line, &base) : 0;
}

double batch_part_s(const struct batch *b)
{
    return b->part_n > 0 ? b->part_s / b->part_n : 0;
}

double batch_step_s(const struct batch *b, double rows)
{
    double base, slope;
    if (!(b->line.n > 0))
        return 0;
    slope = line_slope(&b->line, &base);
    return base + slope * rows;
}

int batch_prompt_rows(const struct batch *b, int rows)
{
    double usual = batch_step_s(b, rows), n = FIRST_PROMPT_ROWS;
    if (b->prompt_line.n > 0 && usual > 0) {
        double base, row = line_slope(&b->prompt_line, &base);
        if (row > 0)
            n = fmax((usual - base) / row, base / row);
    }
    n = fmin(fmax(n, LEAST_PROMPT_ROWS), decoder_state_rows(b->st));
    return (int)n;
}

/* Add a measurement. Returns the seconds as counted, with outliers limited. */
static double line_add(struct step_line *l, int rows, double seconds)
{
    double base, usual = l->n > 0 ? line_slope(l, &base) * rows : 0;
    if (usual > 0)
        seconds = fmin(seconds, outlier * (base + usual));
    l->n = l->n * fade + 1;
    l->rows = l->rows * fade + rows;
    l->rows2 = l->rows2 * fade + (double)rows * rows;
    l->time = l->time * fade + seconds;
    l->rows_time = l->rows_time * fade + rows * seconds;
    return seconds;
}

static void learn(struct batch *b, const struct group *g, double seconds)
{
    int others = g->rows - g->prompt_rows;
    if (g->prompt_rows == 0) {
        int rows = max_int(g->rows, (g->rows + g->further) / g->levels);
        double step_s = line_add(&b->line, rows, seconds / g->levels);
        b->part_s = b->part_s * fade + step_s;
        b->part_n = b->part_n * fade + g->n;
        b->decode_s += g->levels * step_s;
    } else {
        double decode_s = others > 0 ? fmin(batch_step_s(b, others), seconds) : 0;
        line_add(&b->prompt_line, g->prompt_rows, seconds - decode_s);
        b->decode_s += decode_s;
    }
}

/* ---- steps ---- */

/* Chains of one length run together, and trees of one form. Chains with sampling do not, since they
 * would not be recorded (decoder_step.c). */
static bool chains_agree(const struct step *a, const struct step *b)
{
    return a->chain == b->chain && step_trees_agree(a, b) &&
           (a->chain == 0 || a->tree || (a->argmax && b->argmax));
}

static bool fits(const struct batch *b, const struct group *g, const struct step *step)
{
    const struct step *first = g->step[0];
    if (g->n == 0)
        return true;
    return g->n < STEP_MAX_PARTS && g->rows + step->n <= decoder_state_rows(b->st) &&
           g->seqs + step->n_seqs <= STEP_MAX_PARTS &&
           g->logits + step->n_logits <= decoder_state_logits(b->st) &&
           first->layer0 == step->layer0 && first->layer1 == step->layer1 &&
           first->columns_only == step->columns_only &&
           (first->bulk == step->bulk || !decoder_ways_differ(b->dec)) &&
           chains_agree(first, step) && decoder_state_holds(b->st, first, g->n + 1) &&
           (g->columns == 0 || step->n_columns == 0);
}

/* The order of parts does not affect results. With one fixed order, the same requests always make
 * the same step, whichever came first; a GPU records each kind of step once
 * (kernels/cuda/recorder.cu). */
static bool comes_before(const struct step *a, const struct step *b)
{
    const struct step_seq *x = a->seqs, *y = b->seqs;
    if (a->n != b->n)
        return a->n < b->n;
    if (a->n_seqs == 0 || b->n_seqs == 0)
        return a->n_seqs < b->n_seqs;
    if (!x->parent != !y->parent)
        return !x->parent;
    return x->pending < y->pending;
}

static void add(struct group *g, struct batch_part *part)
{
    const struct step *step = part->step;
    int at = g->n++;
    for (; at > 0 && comes_before(step, g->step[at - 1]); at--) {
        g->step[at] = g->step[at - 1];
        g->part[at] = g->part[at - 1];
    }
    g->step[at] = step;
    g->part[at] = part;
    g->rows += step->n;
    g->seqs += step->n_seqs;
    g->logits += step->n_logits;
    g->columns += step->n_columns;
    g->prompt_rows += step->bulk ? step->n : 0;
    g->levels = 1 + step->chain;
    g->further += step_further_rows(step);
}

static uint64_t first_runs(const struct batch *b)
{
    struct device *dev = decoder_device(b->dec);
    return dev->ops->first_runs ? dev->ops->first_runs(dev) : 0;
}

/* Returns false if the lock was not obtained. */
static bool run_group(struct batch *b, const struct group *g)
{
    uint64_t before = first_runs(b);
    struct pv_error err = { 0 };
    enum pv_status s;
    double t0 = clock_now();
    if (!lock_take(b->lock, b->go_on, b->user))
        return false;
    s = decoder_steps(b->dec, b->st, g->step, g->n, &err);
    for (int i = 0; i < g->n; i++) {
        struct batch_part *p = g->part[i];
        p->ran = true;
        p->status = s;
        if (s && g->n > 1) /* run alone, to find which part failed */
            p->status = decoder_step(b->dec, b->st, p->step, p->err);
        else if (s)
            fail(p->err, s, "%s", err.text);
    }
    pthread_mutex_unlock(b->lock);
    b->steps++;
    b->parts += g->n;
    b->rows += g->rows + g->further;
    if (!s && first_runs(b) == before && g->step[0]->layer0 == 0 && g->step[0]->layer1 == 0)
        learn(b, g, clock_now() - t0);
    return true;
}

void batch_run(struct batch *b, struct batch_part **parts, int n)
{
    while (n > 0) {
        struct group g = { .n = 0 };
        int left = 0;
        for (int i = 0; i < n; i++) {
            if (fits(b, &g, parts[i]->step))
                add(&g, parts[i]);
            else
                parts[left++] = parts[i];
        }
        n = run_group(b, &g) ? left : 0;
    }
}
