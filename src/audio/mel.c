/* Several frames go through the transform together, one in each lane of the innermost loops, which
 * the compiler turns into vector instructions; a frame's sums run in the same order in every lane.
 *
 * A real transform of 400 points is a complex one of 200, whose real and imaginary parts are the
 * even and the odd samples, and a last step that takes the two apart. 200 = 5 * 5 * 4 * 2: four
 * passes, each from one buffer to the other in the order that leaves the result sorted
 * (Stockham). */
#include "audio/mel.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum {
    WINDOW = 400,
    HALF = WINDOW / 2, /* points of the complex transform; also the padding on both sides */
    BINS = HALF + 1,   /* frequencies of a power spectrum */
    LANES = 8,         /* frames at once */
    BLOCKS = MEL_FRAMES / LANES,
    PASSES = 4
};

_Static_assert(MEL_FRAMES % LANES == 0, "frames fill all lanes");

static const int radix[PASSES] = { 5, 5, 4, 2 };

#define FLOOR_POWER 1e-10
#define FLOOR_LOG -10.0f
#define PI 3.14159265358979323846

/* Numbers of several frames. */
struct lanes {
    double at[LANES];
};

struct points {
    struct lanes re[HALF], im[HALF];
};

struct filter {
    int first, n;   /* frequencies that it lets through */
    double w[BINS]; /* [n] */
};

/* What one thread works in. */
struct bench {
    struct points a, b;
    struct lanes power[BINS];
};

struct mel {
    double window[WINDOW];
    double turn_re[HALF], turn_im[HALF];           /* exp(-2 pi i k / 200) */
    double split_re[HALF / 2], split_im[HALF / 2]; /* exp(-2 pi i k / 400) */
    struct filter filter[MEL_BINS];
    struct pool *pool;
    struct bench *bench; /* [threads] */
    float *top;          /* [threads] largest value that the thread has seen */
};

/* --- tables --------------------------------------------------------------------------------- */

/* The Slaney scale: linear below 1000 Hz, logarithmic above. */
#define MEL_STEP (200.0 / 3)
#define MEL_KNEE 15.0 /* 1000 Hz */

static double log_step(void)
{
    return log(6.4) / 27;
}

static double hz_of_mel(double mel)
{
    return mel < MEL_KNEE ? MEL_STEP * mel : 1000 * exp(log_step() * (mel - MEL_KNEE));
}

static double mel_of_hz(double hz)
{
    return hz < 1000 ? hz / MEL_STEP : MEL_KNEE + log(hz / 1000) / log_step();
}

static void make_filters(struct mel *m)
{
    const double nyquist = 8000, last = mel_of_hz(nyquist);

    for (int b = 0; b < MEL_BINS; b++) {
        struct filter *f = &m->filter[b];
        double low = hz_of_mel(last * b / (MEL_BINS + 1));
        double mid = hz_of_mel(last * (b + 1) / (MEL_BINS + 1));
        double high = hz_of_mel(last * (b + 2) / (MEL_BINS + 1));
        for (int k = 0; k < BINS; k++) {
            double hz = nyquist * k / HALF;
            double up = (hz - low) / (mid - low), down = (high - hz) / (high - mid);
            double w = up < down ? up : down;
            if (w <= 0)
                continue;
            if (f->n == 0)
                f->first = k;
            f->w[f->n++] = w * 2 / (high - low);
        }
    }
}

static void make_tables(struct mel *m)
{
    for (int i = 0; i < WINDOW; i++)
        m->window[i] = 0.5 - 0.5 * cos(2 * PI * i / WINDOW);
    for (int k = 0; k < HALF; k++) {
        m->turn_re[k] = cos(2 * PI * k / HALF);
        m->turn_im[k] = -sin(2 * PI * k / HALF);
    }
    for (int k = 0; k < HALF / 2; k++) {
        m->split_re[k] = cos(2 * PI * k / WINDOW);
        m->split_im[k] = -sin(2 * PI * k / WINDOW);
    }
    make_filters(m);
}

enum pv_status mel_open(struct mel **out, struct pool *pool, struct pv_error *err)
{
    size_t threads = pool ? (size_t)pool_threads(pool) : 1;
    struct mel *m = mem_zalloc(sizeof *m);

    if (!m)
        return fail_nomem(err, sizeof *m);
    m->pool = pool;
    m->bench = mem_zalloc(threads * sizeof *m->bench);
    m->top = mem_zalloc(threads * sizeof *m->top);
    if (!m->bench || !m->top) {
        mel_close(&m);
        return fail_nomem(err, threads * sizeof *m->bench);
    }
    make_tables(m);
    *out = m;
    return PV_OK;
}

void mel_close(struct mel **m)
{
    if (!*m)
        return;
    mem_free((*m)->bench);
    mem_free((*m)->top);
    mem_free(*m);
    *m = NULL;
}

/* --- the transform -------------------------------------------------------------------------- */

/* One point of several frames, on its way through a butterfly. */
struct point {
    struct lanes re, im;
};

static inline void butterfly_2(struct point *restrict x)
{
    for (int l = 0; l < LANES; l++) {
        double re = x[0].re.at[l] - x[1].re.at[l], im = x[0].im.at[l] - x[1].im.at[l];
        x[0].re.at[l] += x[1].re.at[l];
        x[0].im.at[l] += x[1].im.at[l];
        x[1].re.at[l] = re;
        x[1].im.at[l] = im;
    }
}

static inline void butterfly_4(struct point *restrict x)
{
    for (int l = 0; l < LANES; l++) {
        double a_re = x[0].re.at[l] + x[2].re.at[l], a_im = x[0].im.at[l] + x[2].im.at[l];
        double b_re = x[0].re.at[l] - x[2].re.at[l], b_im = x[0].im.at[l] - x[2].im.at[l];
        double c_re = x[1].re.at[l] + x[3].re.at[l], c_im = x[1].im.at[l] + x[3].im.at[l];
        /* times -i */
        double d_re = x[1].im.at[l] - x[3].im.at[l], d_im = x[3].re.at[l] - x[1].re.at[l];
        x[0].re.at[l] = a_re + c_re;
        x[0].im.at[l] = a_im + c_im;
        x[1].re.at[l] = b_re + d_re;
        x[1].im.at[l] = b_im + d_im;
        x[2].re.at[l] = a_re - c_re;
        x[2].im.at[l] = a_im - c_im;
        x[3].re.at[l] = b_re - d_re;
        x[3].im.at[l] = b_im - d_im;
    }
}

static inline void butterfly_5(struct point *restrict x)
{
    const double c1 = 0.30901699437494742410, c2 = -0.80901699437494742410; /* of 72 and 144 */
    const double s1 = 0.95105651629515357212, s2 = 0.58778525229247312917;  /* degrees */

    for (int l = 0; l < LANES; l++) {
        double p_re = x[1].re.at[l] + x[4].re.at[l], p_im = x[1].im.at[l] + x[4].im.at[l];
        double q_re = x[2].re.at[l] + x[3].re.at[l], q_im = x[2].im.at[l] + x[3].im.at[l];
        double r_re = x[1].re.at[l] - x[4].re.at[l], r_im = x[1].im.at[l] - x[4].im.at[l];
        double t_re = x[2].re.at[l] - x[3].re.at[l], t_im = x[2].im.at[l] - x[3].im.at[l];
        double a_re = x[0].re.at[l] + c1 * p_re + c2 * q_re;
        double a_im = x[0].im.at[l] + c1 * p_im + c2 * q_im;
        double b_re = x[0].re.at[l] + c2 * p_re + c1 * q_re;
        double b_im = x[0].im.at[l] + c2 * p_im + c1 * q_im;
        double u_re = s1 * r_re + s2 * t_re, u_im = s1 * r_im + s2 * t_im;
        double v_re = s2 * r_re - s1 * t_re, v_im = s2 * r_im - s1 * t_im;
        x[0].re.at[l] += p_re + q_re;
        x[0].im.at[l] += p_im + q_im;
        x[1].re.at[l] = a_re + u_im;
        x[1].im.at[l] = a_im - u_re;
        x[2].re.at[l] = b_re + v_im;
        x[2].im.at[l] = b_im - v_re;
        x[3].re.at[l] = b_re - v_im;
        x[3].im.at[l] = b_im + v_re;
        x[4].re.at[l] = a_re - u_im;
        x[4].im.at[l] = a_im + u_re;
    }
}

/* x, turned, to where it belongs. */
static inline void put_turned(struct lanes *restrict re, struct lanes *restrict im,
                              const struct point *restrict x, double c, double s)
{
    for (int l = 0; l < LANES; l++) {
        re->at[l] = x->re.at[l] * c - x->im.at[l] * s;
        im->at[l] = x->re.at[l] * s + x->im.at[l] * c;
    }
}

/* One pass: `n` points are left to transform in each of HALF / n interleaved groups. */
static void pass(const struct mel *m, const struct points *restrict x, struct points *restrict y,
                 int n, int r)
{
    int groups = HALF / n, apart = n / r;
    struct point p[5];

    for (int i = 0; i < apart; i++)
        for (int g = 0; g < groups; g++) {
            for (int k = 0; k < r; k++) {
                p[k].re = x->re[g + groups * (i + apart * k)];
                p[k].im = x->im[g + groups * (i + apart * k)];
            }
            if (r == 5)
                butterfly_5(p);
            else if (r == 4)
                butterfly_4(p);
            else
                butterfly_2(p);
            for (int k = 0; k < r; k++) {
                int to = g + groups * (r * i + k), turn = i * k * groups;
                put_turned(&y->re[to], &y->im[to], &p[k], m->turn_re[turn], m->turn_im[turn]);
            }
        }
}

/* Powers of frequency k and of its mirror image, from the two points that hold both. */
static inline void split(const struct points *restrict z, struct lanes *restrict low,
                         struct lanes *restrict high, int k, double c, double s)
{
    const struct lanes *a_re = &z->re[k], *a_im = &z->im[k];
    const struct lanes *b_re = &z->re[HALF - k], *b_im = &z->im[HALF - k];

    for (int l = 0; l < LANES; l++) {
        double even_re = 0.5 * (a_re->at[l] + b_re->at[l]);
        double even_im = 0.5 * (a_im->at[l] - b_im->at[l]);
        double odd_re = 0.5 * (a_im->at[l] + b_im->at[l]);
        double odd_im = 0.5 * (b_re->at[l] - a_re->at[l]);
        double t_re = odd_re * c - odd_im * s, t_im = odd_re * s + odd_im * c;
        double x = even_re + t_re, y = even_im + t_im;
        low->at[l] = x * x + y * y;
        x = even_re - t_re;
        y = even_im - t_im;
        high->at[l] = x * x + y * y;
    }
}

/* The power spectra of the windowed samples in w->a. */
static void transform(const struct mel *m, struct bench *w)
{
    struct points *from = &w->a, *to = &w->b, *t;
    struct lanes *power = w->power;

    for (int i = 0, n = HALF; i < PASSES; n /= radix[i++]) {
        pass(m, from, to, n, radix[i]);
        t = from;
        from = to;
        to = t;
    }
    for (int l = 0; l < LANES; l++) {
        double sum = from->re[0].at[l] + from->im[0].at[l];
        double difference = from->re[0].at[l] - from->im[0].at[l];
        power[0].at[l] = sum * sum;
        power[HALF].at[l] = difference * difference;
        power[HALF / 2].at[l] = from->re[HALF / 2].at[l] * from->re[HALF / 2].at[l] +
                                from->im[HALF / 2].at[l] * from->im[HALF / 2].at[l];
    }
    for (int k = 1; k < HALF / 2; k++)
        split(from, &power[k], &power[HALF - k], k, m->split_re[k], m->split_im[k]);
}

/* --- frames --------------------------------------------------------------------------------- */

struct job {
    struct mel *m;
    const float *samples;
    size_t n;
    float *out; /* [MEL_BINS][MEL_FRAMES] */
};

/* The sample at place i of the padded chunk, reflected at its ends. */
static inline float sample_at(const struct job *j, long i)
{
    const long last = MEL_SAMPLES_PER_CHUNK - 1;
    long k = i < 0 ? -i : i > last ? 2 * last - i : i;

    return (size_t)k < j->n ? j->samples[k] : 0;
}

/* One frame into its lane. */
static void load_frame(const struct job *j, struct points *to, int frame, int lane)
{
    long first = (long)frame * MEL_FRAME_SAMPLES - HALF;
    bool whole = first >= 0 && first + WINDOW <= (long)j->n;
    const double *window = j->m->window;
    const float *x = whole ? j->samples + first : NULL;

    for (int i = 0; i < HALF; i++) {
        float even = whole ? x[2 * i] : sample_at(j, first + 2 * i);
        float odd = whole ? x[2 * i + 1] : sample_at(j, first + 2 * i + 1);
        to->re[i].at[lane] = even * window[2 * i];
        to->im[i].at[lane] = odd * window[2 * i + 1];
    }
}

/* Whether all frames from this one on are of silence: nothing but padding, also where the end of
 * the chunk is reflected. */
static bool is_silent_from(const struct job *j, int frame)
{
    return (size_t)frame * MEL_FRAME_SAMPLES >= j->n + HALF && j->n + HALF <= MEL_SAMPLES_PER_CHUNK;
}

/* Sums of the filters' bands, as logarithms; returns the largest. */
static float sum_bands(const struct mel *m, const struct lanes *power, float *out)
{
    const double log10_of_2 = 0.30102999566398119521;
    float top = FLOOR_LOG;

    for (int b = 0; b < MEL_BINS; b++) {
        const struct filter *f = &m->filter[b];
        struct lanes sum = { { 0 } };
        for (int k = 0; k < f->n; k++)
            for (int l = 0; l < LANES; l++)
                sum.at[l] += f->w[k] * power[f->first + k].at[l];
        for (int l = 0; l < LANES; l++) {
            double x = sum.at[l] > FLOOR_POWER ? log10_of_2 * log2(sum.at[l]) : FLOOR_LOG;
            out[(size_t)b * MEL_FRAMES + (size_t)l] = (float)x;
            top = (float)x > top ? (float)x : top;
        }
    }
    return top;
}

static void fill_floor(float *out)
{
    for (int b = 0; b < MEL_BINS; b++)
        for (int l = 0; l < LANES; l++)
            out[(size_t)b * MEL_FRAMES + (size_t)l] = FLOOR_LOG;
}

/* Blocks are dealt in turn; the largest value of all is known after the barrier. */
static void work(void *ctx, int thread, int n_threads)
{
    const struct job *j = ctx;
    struct mel *m = j->m;
    struct bench *w = &m->bench[thread];
    float top = FLOOR_LOG, least;

    for (int block = thread; block < BLOCKS; block += n_threads) {
        int frame = block * LANES;
        if (is_silent_from(j, frame)) {
            fill_floor(j->out + frame);
            continue;
        }
        for (int l = 0; l < LANES; l++)
            load_frame(j, &w->a, frame + l, l);
        transform(m, w);
        least = sum_bands(m, w->power, j->out + frame);
        top = least > top ? least : top;
    }
    m->top[thread] = top;
    if (m->pool)
        pool_barrier(m->pool);
    for (int i = 0; i < n_threads; i++)
        top = m->top[i] > top ? m->top[i] : top;
    least = top - 8;
    for (int b = thread; b < MEL_BINS; b += n_threads) {
        float *x = j->out + (size_t)b * MEL_FRAMES;
        for (int i = 0; i < MEL_FRAMES; i++)
            x[i] = ((x[i] > least ? x[i] : least) + 4) * 0.25f;
    }
}

void mel_chunk(struct mel *m, const float *samples, size_t n, float *out)
{
    struct job j = { m, samples, n, out };

    if (m->pool)
        pool_run(m->pool, work, &j);
    else
        work(&j, 0, 1);
}
