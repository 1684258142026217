/* Lossy answers against a plain computation: all rows run through all layers, in double precision,
 * and a mask hides from each layer what it does not keep. The engine, which drops those rows, must
 * have the same logits. */
#include "answers.h"
#include "engine/media_rows.h"
#include "lm/positions.h"
#include "spec/lossy.h"

#include <math.h>

enum { LAYERS = 8, MOST_ROWS = 256 };

/* ---- the plain computation ---- */

struct plain {
    const struct model_file *mf;
    struct config c;
    int n, n_prompt;
    double *x;    /* [n, hidden] */
    bool *seen;   /* [n, n]: by row i of row j, from the layer at hand on */
    double *attn; /* [n, n]: the mean over the heads of the layer's attention */
    bool *video;  /* [n] */
    float *cos, *sin;
};

static const float *weights(const struct tensor *t)
{
    CHECK(t && t->dtype == DTYPE_F32);
    return t->data;
}

/* y [out] = W x (+ bias) */
static void times(double *y, const struct tensor *w, const struct tensor *bias, const double *x,
                  int out, int in)
{
    const float *m = weights(w), *b = bias ? weights(bias) : NULL;
    for (int o = 0; o < out; o++) {
        y[o] = b ? (double)b[o] : 0;
        for (int i = 0; i < in; i++)
            y[o] += (double)m[o * in + i] * x[i];
    }
}

static void norm(double *y, const double *x, const struct tensor *w, int n, double eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(sum / n + eps) * (double)weights(w)[i];
}

static void turn(double *x, const float *cos, const float *sin, int d)
{
    for (int j = 0; j < d / 2; j++) {
        double a = x[j], b = x[j + d / 2];
        x[j] = a * (double)cos[j] - b * (double)sin[j];
        x[j + d / 2] = b * (double)cos[j] + a * (double)sin[j];
    }
}

static double *doubles(size_t n)
{
    double *p = mem_zalloc(n * sizeof *p);
    CHECK(p != NULL);
    return p;
}

/* Queries, keys and values of a layer, rotated: [n, heads * d]. */
static void project(const struct plain *p, int layer, double *q, double *k, double *v)
{
    const struct layer_tensors *l = model_file_layer(p->mf, layer);
    int h = p->c.hidden, d = p->c.head_dim, nq = p->c.n_heads * d, nk = p->c.n_kv_heads * d;
    double *m = doubles((size_t)h);
    for (int i = 0; i < p->n; i++) {
        norm(m, p->x + i * h, l->attn_norm, h, (double)p->c.rms_eps);
        times(q + i * nq, l->q, l->q_bias, m, nq, h);
        times(k + i * nk, l->k, l->k_bias, m, nk, h);
        times(v + i * nk, l->v, l->v_bias, m, nk, h);
        for (int a = 0; a < nq; a += d)
            turn(q + i * nq + a, p->cos + i * d / 2, p->sin + i * d / 2, d);
        for (int a = 0; a < nk; a += d)
            turn(k + i * nk + a, p->cos + i * d / 2, p->sin + i * d / 2, d);
    }
    mem_free(m);
}

/* out [n, heads * d], and p->attn. */
static void attend(struct plain *p, const double *q, const double *k, const double *v, double *out)
{
    int d = p->c.head_dim, heads = p->c.n_heads, nq = heads * d, nk = p->c.n_kv_heads * d;
    double *s = doubles((size_t)p->n);
    memset(p->attn, 0, (size_t)p->n * (size_t)p->n * sizeof *p->attn);
    for (int i = 0; i < p->n; i++)
        for (int a = 0; a < heads; a++) {
            int of = a / (heads / p->c.n_kv_heads) * d;
            double sum = 0;
            for (int j = 0; j <= i; j++) {
                double dot = 0;
                for (int t = 0; t < d; t++)
                    dot += q[i * nq + a * d + t] * k[j * nk + of + t];
                s[j] = p->seen[i * p->n + j] ? exp(dot / sqrt(d)) : 0;
                sum += s[j];
            }
            for (int j = 0; j <= i; j++) {
                p->attn[i * p->n + j] += s[j] / sum / heads;
                for (int t = 0; t < d; t++)
                    out[i * nq + a * d + t] += s[j] / sum * v[j * nk + of + t];
            }
        }
    mem_free(s);
}

/* A layer; with `ahead` only its attention, for p->attn. */
static void run_layer(struct plain *p, int layer, bool ahead)
{
    const struct layer_tensors *l = model_file_layer(p->mf, layer);
    int h = p->c.hidden, d = p->c.head_dim, nq = p->c.n_heads * d, f = p->c.ffn;
    size_t n = (size_t)p->n, wide = (size_t)(nq > f ? nq : f);
    double *q = doubles(n * (size_t)nq), *k = doubles(n * (size_t)nq), *v = doubles(n * (size_t)nq);
    double *a = doubles(n * (size_t)nq), *m = doubles(wide + (size_t)h), *g = doubles(2 * wide);
    project(p, layer, q, k, v);
    attend(p, q, k, v, a);
    for (int i = 0; i < p->n && !ahead; i++) {
        double *x = p->x + i * h;
        times(m, l->o, NULL, a + i * nq, h, nq);
        for (int t = 0; t < h; t++)
            x[t] += m[t];
        norm(m, x, l->ffn_norm, h, (double)p->c.rms_eps);
        times(g, l->gate, NULL, m, f, h);
        times(g + f, l->up, NULL, m, f, h);
        for (int t = 0; t < f; t++)
            g[t] = g[t] / (1 + exp(-g[t])) * g[f + t];
        times(m, l->down, NULL, g, h, f);
        for (int t = 0; t < h; t++)
            x[t] += m[t];
    }
    mem_free(q), mem_free(k), mem_free(v), mem_free(a), mem_free(m), mem_free(g);
}

/* ---- what each method keeps ---- */

/* Positions without gaps: the rows that are still seen are counted. */
static void compact(struct plain *p)
{
    struct rope_plan rope;
    int32_t pos[MOST_ROWS][3];
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        bool there = i >= p->n_prompt || !p->video[i] || p->seen[(p->n_prompt - 1) * p->n + i];
        pos[i][0] = pos[i][1] = pos[i][2] = n;
        n += there;
    }
    rope_plan_init(&rope, &p->c);
    rope_tables(&rope, p->cos, p->sin, (const int32_t(*)[3])pos, p->n);
}

/* The video rows that a row of the prompt's end still sees, ascending. */
static int list_seen(const struct plain *p, int *rows)
{
    int n = 0;
    for (int j = 0; j < p->n_prompt; j++)
        if (p->video[j] && p->seen[(p->n_prompt - 1) * p->n + j])
            rows[n++] = j;
    return n;
}

/* Nobody but itself sees row j any more. */
static void hide(struct plain *p, int j)
{
    for (int i = j + 1; i < p->n; i++)
        p->seen[i * p->n + j] = false;
}

static int n_video_rows(const struct plain *p)
{
    int n = 0;
    for (int i = 0; i < p->n_prompt; i++)
        n += p->video[i];
    return n;
}

static bool rates[MOST_ROWS];

/* By the attention of the last row, or of the raters. */
static void prune(struct plain *p, const struct lossy_stage *stage)
{
    float score[MOST_ROWS] = { 0 };
    int rows[MOST_ROWS], kept[MOST_ROWS], m = list_seen(p, rows);
    int budget = lossy_budget(n_video_rows(p), stage->keep), n = budget, found = 0;
    bool stays[MOST_ROWS] = { false };
    for (int i = 0; i < p->n_prompt; i++)
        for (int j = 0; j < m; j++)
            if (stage->signal == LOSSY_RATERS ? rates[i] : i == p->n_prompt - 1)
                score[j] += (float)p->attn[i * p->n + rows[j]];
    if (stage->merges)
        n = lossy_recycle(m, budget).kept;
    lossy_highest(kept, score, m, n, NULL);
    for (int i = 0; i < n; i++)
        stays[kept[i]] = true;
    if (n < budget) { /* the next best, clustered */
        struct lossy_recycling r = lossy_recycle(m, budget);
        int h = p->c.hidden, at[MOST_ROWS], centre[MOST_ROWS];
        float *x = mem_zalloc((size_t)(r.clustered * h) * sizeof *x);
        lossy_highest(kept, score, m, r.kept + r.clustered, NULL);
        for (int i = 0; i < r.kept + r.clustered; i++) {
            if (stays[kept[i]])
                continue;
            for (int t = 0; t < h; t++)
                x[found * h + t] = (float)p->x[rows[kept[i]] * h + t];
            at[found++] = kept[i];
        }
        CHECK(lossy_cluster(x, found, h, r.clusters, centre, NULL) == PV_OK);
        for (int i = 0; i < r.clusters; i++) {
            stays[at[centre[i]]] = true;
            for (int t = 0; t < h; t++)
                p->x[rows[at[centre[i]]] * h + t] = (double)x[centre[i] * h + t];
        }
        mem_free(x);
    }
    for (int j = 0; j < m; j++)
        if (!stays[j])
            hide(p, rows[j]);
}

/* DyCoke: each row of the answer chooses what it sees from here on. */
static void choose_by_token(struct plain *p, const struct lossy_stage *stage)
{
    int rows[MOST_ROWS], kept[MOST_ROWS], m = list_seen(p, rows), n_chosen = 0;
    int k = lossy_budget(n_video_rows(p), stage->keep);
    float before[MOST_ROWS], now[MOST_ROWS];
    for (int i = p->n_prompt; i < p->n; i++) {
        for (int j = 0; j < m; j++)
            now[j] = (float)p->attn[i * p->n + rows[j]];
        if (i == p->n_prompt || lossy_turned(before, now, m))
            lossy_highest(kept, now, m, n_chosen = k, NULL);
        memcpy(before, now, sizeof before);
        for (int j = 0; j < m; j++)
            p->seen[i * p->n + rows[j]] = false;
        for (int j = 0; j < n_chosen; j++)
            p->seen[i * p->n + rows[kept[j]]] = true;
    }
}

static void merge_time(struct plain *p, const struct media *m, double keep)
{
    int rows[MOST_ROWS], kept[MOST_ROWS], n = list_seen(p, rows), n_kept, at = 0;
    float *f = mem_zalloc((size_t)(n * p->c.hidden) * sizeof *f);
    struct view_input in = {
        .n_frames = m->n_units, .frame_tokens = m->unit_rows, .features = f, .width = p->c.hidden
    };
    for (int i = 0; i < n; i++)
        for (int t = 0; t < p->c.hidden; t++)
            f[i * p->c.hidden + t] = (float)p->x[rows[i] * p->c.hidden + t];
    CHECK_EQ(n, m->n_units * m->unit_rows);
    CHECK(lossy_merge_time(&in, keep, 0.7, kept, &n_kept, NULL) == PV_OK);
    for (int i = 0; i < n; i++)
        if (at < n_kept && kept[at] == i)
            at++;
        else
            hide(p, rows[i]);
    mem_free(f);
}

static void find_raters(struct plain *p)
{
    int h = p->c.hidden, n_text = 0, n_video = 0, rows[MOST_ROWS], last = 0;
    float *text = mem_zalloc(2 * (size_t)(p->n * h) * sizeof *text), *video = text + p->n * h;
    bool found[MOST_ROWS];
    for (int i = 0; i < p->n_prompt; i++)
        last = p->video[i] ? i : last;
    for (int i = 0; i < p->n_prompt; i++) {
        bool asks = i > last && model_file_vision(p->mf) && !p->video[i];
        for (int t = 0; t < h && (asks || p->video[i]); t++)
            (asks ? text + n_text * h : video + n_video * h)[t] = (float)p->x[i * h + t];
        if (asks)
            rows[n_text++] = i;
        n_video += p->video[i];
    }
    memset(rates, 0, sizeof rates);
    CHECK(lossy_raters(found, text, n_text, video, n_video, h, NULL) == PV_OK);
    for (int i = 0; i < n_text; i++)
        rates[rows[i]] = found[i];
    mem_free(text);
}

/* ---- comparing ---- */

/* The rows of a session's timeline, as the first layer gets them. */
static void read_rows(struct plain *p, pv_session *s, int n_prompt)
{
    const struct timeline *t = &s->seq.line;
    int h = p->c.hidden;
    struct rope_plan rope;
    struct pv_error err = { 0 };
    p->n = t->n;
    p->n_prompt = n_prompt;
    CHECK(p->n <= MOST_ROWS);
    p->x = doubles((size_t)(p->n * h));
    p->attn = doubles((size_t)(p->n * p->n));
    p->seen = mem_zalloc((size_t)(p->n * p->n));
    p->video = mem_zalloc((size_t)p->n);
    p->cos = mem_zalloc(2 * (size_t)(p->n * p->c.head_dim) * sizeof(float));
    p->sin = p->cos + p->n * p->c.head_dim;
    rope_plan_init(&rope, &p->c);
    rope_tables(&rope, p->cos, p->sin, (const int32_t(*)[3])t->pos, p->n);
    memset(p->seen, true, (size_t)(p->n * p->n));
    for (int i = 0; i < p->n; i++) {
        float row[64];
        int at;
        const struct media_item *m = timeline_item(t, i, &at);
        if (m)
            CHECK_MSG(session_media_rows(s, m, at, 1, row, false, &err) == PV_OK, "%s", err.text);
        else
            memcpy(row, weights(model_file_embed(p->mf)) + t->ids[i] * h, sizeof *row * (size_t)h);
        for (int k = 0; k < h; k++)
            p->x[i * h + k] = (double)row[k];
        p->video[i] = m && m->m.video && at < m->m.n_units * m->m.unit_rows;
    }
}

static void close_plain(struct plain *p)
{
    mem_free(p->x), mem_free(p->attn), mem_free(p->seen), mem_free(p->video), mem_free(p->cos);
}

static void run_plan(struct plain *p, const struct lossy_plan *plan, const struct media *m)
{
    find_raters(p);
    if (plan->stage[0].signal == LOSSY_FEATURES)
        merge_time(p, m, plan->stage[0].keep);
    for (int g = 0; g < plan->n; g++) {
        const struct lossy_stage *stage = &plan->stage[g], *next = stage + 1;
        if (plan->compact && p->c.mrope == MROPE_NONE)
            compact(p);
        for (int l = stage->layer0; l < stage->layer1; l++)
            run_layer(p, l, false);
        if (g + 1 == plan->n)
            break;
        if (next->signal == LOSSY_NEXT_LAYER)
            run_layer(p, next->layer0, true);
        if (next->signal == LOSSY_DECODING)
            choose_by_token(p, next);
        else
            prune(p, next);
    }
}

/* The largest difference of logits, in parts of their largest. */
static double difference(const struct plain *p, const struct answer *a)
{
    int h = p->c.hidden, vocab = p->c.vocab;
    double *x = doubles((size_t)h), *y = doubles((size_t)vocab), most = 0, largest = 0;
    for (size_t t = 0; t < a->n; t++) {
        norm(x, p->x + (p->n_prompt - 1 + (int)t) * h, model_file_norm(p->mf), h,
             (double)p->c.rms_eps);
        times(y, model_file_lm_head(p->mf), NULL, x, vocab, h);
        for (int i = 0; i < vocab; i++) {
            most = fmax(most, fabs(y[i] - (double)a->logits[t][i]));
            largest = fmax(largest, fabs(y[i]));
        }
    }
    mem_free(x), mem_free(y);
    return most / largest;
}

static struct pv_method lossy_method(const char *text)
{
    struct pv_method m = method(PV_DRAFT_NONE, "full", PV_SHAPE_CHAIN);
    m.lossy = text;
    return m;
}

static pv_model *open_deep(const struct family *family, const char *name)
{
    struct tiny_vision v = tiny_vision(family);
    char path[256];
    v.text.n_layers = LAYERS;
    v.text.n_heads = 4;
    v.text.n_kv = 2;
    v.text.head_dim = 8;
    tiny_vision_gguf(&v, name, path);
    return open_model(path, 2, NULL);
}

static void check_plain(pv_session *s, const char *text)
{
    struct pv_method m = lossy_method(text);
    struct plain p = { .mf = s->model->file, .c = *decoder_config(s->model->dec) };
    struct lossy_plan plan, none = { .n = 1, .stage = { { .layer1 = LAYERS, .keep = 1 } } };
    struct answer a = text ? run(s, &m, 0) : run(s, NULL, 0);
    double found, whole;
    CHECK_EQ(a.n, N_NEW);
    read_rows(&p, s, s->seq.answer0);
    run_plan(&p, &none, NULL);
    whole = difference(&p, &a);
    close_plain(&p);
    if (!text) {
        CHECK_MSG(whole < 1e-4, "without pruning the logits differ by %g", whole);
        return;
    }
    CHECK(lossy_plan(&plan, text, LAYERS, NULL) == PV_OK);
    read_rows(&p, s, s->seq.answer0);
    run_plan(&p, &plan, &s->seq.line.media[0].m);
    found = difference(&p, &a);
    close_plain(&p);
    CHECK_MSG(found < 1e-4, "%s: the logits differ by %g of the largest", text, found);
    CHECK_MSG(whole > 1e-2, "%s: the logits are those of the whole model (%g)", text, whole);
    CHECK_MSG(a.stats.video_kept > 0 && a.stats.video_kept < 1, "%s: keeps %g", text,
              a.stats.video_kept);
}

static pv_session *open_alone(pv_model *m)
{
    struct pair p = { m, NULL };
    return open_session(&p);
}

static void check_family(const struct family *family, const char *name)
{
    static const char *const texts[] = {
        NULL,         "fastv:0.6", "fastv:0.95", "sparsevlm:0.7", "pyramiddrop:0.875",
        "dycoke:0.3", "dycoke:0.8"
    };
    pv_model *m = open_deep(family, name);
    pv_session *s = open_alone(m);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_plain(s, texts[i]);
    pv_session_close(&s);
    pv_model_close(&m);
}

TEST(llava_is_pruned_as_a_mask_would)
{
    check_family(&family_llava_onevision, "lossy_llava");
}

TEST(qwen_is_pruned_as_a_mask_would)
{
    check_family(&family_qwen2_5_vl, "lossy_qwen");
}

/* ---- beside other answers ---- */

TEST(a_ratio_of_zero_prunes_nothing)
{
    static const struct family *const of[] = { &family_llava_onevision, &family_qwen3_vl };
    for (int f = 0; f < 2; f++) {
        pv_model *m = open_deep(of[f], f ? "lossy_deep" : "lossy_zero");
        pv_session *s = open_alone(m);
        struct answer plain = run(s, NULL, 0.7f);
        for (int i = 0; pv_lossy_name(i); i++) {
            char text[64];
            struct pv_method lossy;
            struct answer a;
            snprintf(text, sizeof text, "%s:0", pv_lossy_name(i));
            lossy = lossy_method(text);
            a = run(s, &lossy, 0.7f);
            CHECK_MSG(same_answer(&plain, &a, vocab_of(s)), "%s is another answer", text);
            CHECK_EQ(a.stats.video_kept, 1.0);
        }
        pv_session_close(&s);
        pv_model_close(&m);
    }
}

/* Nothing of a lossy answer is left in the caches, and its own chunks do not matter. */
TEST(lossy_answers_leave_no_trace)
{
    pv_model *m = open_deep(&family_qwen3_vl, "lossy_trace");
    pv_session *s = open_alone(m), *fresh = open_alone(m);
    struct pv_method lossy = lossy_method("pyramiddrop:0.8");
    struct answer first = run(s, &lossy, 0), plain, again;
    plain = run(fresh, NULL, 0);
    again = run(s, NULL, 0);
    CHECK(same_answer(&plain, &again, vocab_of(s)));
    CHECK(!same_answer(&plain, &first, vocab_of(s)));
    again = run(fresh, &lossy, 0); /* after the whole prompt is in its cache */
    CHECK(same_answer(&first, &again, vocab_of(s)));
    pv_session_close(&fresh);
    pv_session_close(&s);
    pv_model_close(&m);
}

TEST(lossy_answers_are_refused_where_they_have_no_meaning)
{
    pv_model *m = open_deep(&family_llava_onevision, "lossy_refused");
    struct pair two = { m, m };
    pv_session *s = open_session(&two);
    struct pv_method drafting = method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN);
    struct pv_method unknown = lossy_method("slowv:0.5");
    struct pv_error err = { 0 };
    static struct answer a;
    drafting.lossy = "fastv:0.5";
    CHECK(pv_method_check(&drafting, &err) == PV_E_ARG && strstr(err.text, "plain decoding"));
    CHECK(add_prompt(s, 7, NULL) == PV_OK);
    CHECK(generate(s, &drafting, 0, &a, NULL) == PV_E_ARG);
    CHECK(generate(s, &unknown, 0, &a, NULL) == PV_E_ARG);
    pv_session_close(&s);
    pv_model_close(&m);
}

TEST(lossy_answers_survive_without_memory)
{
    pv_model *m = open_deep(&family_llava_onevision, "lossy_memory");
    pv_session *s = open_alone(m);
    struct pv_method lossy = lossy_method("sparsevlm:0.7");
    struct answer ref = run(s, &lossy, 0);
    static struct answer a;
    int failures = 0;
    for (uint64_t k = 1; k < 60; k++) {
        enum pv_status st;
        pv_session_reset(s);
        CHECK(add_prompt(s, 7, NULL) == PV_OK);
        mem_fail_at(k);
        st = generate(s, &lossy, 0, &a, NULL);
        mem_fail_at(0);
        failures += st == PV_E_NOMEM;
        CHECK(st == PV_OK || st == PV_E_NOMEM);
    }
    CHECK(failures > 10);
    a = run(s, &lossy, 0);
    CHECK(same_answer(&ref, &a, vocab_of(s)));
    pv_session_close(&s);
    pv_model_close(&m);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
