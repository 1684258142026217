/* Times steps of a model, and counts their work.
 *
 * The least work of a step: read every weight once (also the tied LM head; only the step's rows of
 * the embedding table, which are not counted) and the keys and values of all slots; multiply n rows
 * by the matrices of each layer (in the last layer's output projection and feed-forward only the
 * rows whose logits are wanted); and 4 d operations for each (row, head, slot it attends to) of
 * attention. */
#include "steps.h"

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/device_cpu.h"

enum { FILL_ROWS = 256, FILL_SHIFTS = 4096 };

static size_t kv_width(const struct bench_model *b)
{
    const struct config *c = decoder_config(b->model->dec);
    return (size_t)c->n_kv_heads * (size_t)c->head_dim;
}

static enum pv_status open_rows(struct bench_model *b, struct pv_error *err)
{
    const struct config *c = decoder_config(b->model->dec);
    size_t n = (size_t)b->max_rows, floats = FILL_ROWS * kv_width(b) + FILL_SHIFTS;
    struct rng rng = { 1 };
    b->ids = mem_zalloc(sizeof *b->ids * n);
    b->argmax = mem_zalloc(sizeof *b->argmax * n);
    b->pos = mem_zalloc(sizeof *b->pos * n);
    b->rows = mem_zalloc(sizeof *b->rows * n);
    b->random = mem_zalloc(sizeof *b->random * floats);
    if (!b->ids || !b->argmax || !b->pos || !b->rows || !b->random)
        return fail_nomem(err, sizeof *b->random * floats);
    for (int i = 0; i < b->max_rows; i++) {
        b->ids[i] = (int32_t)(rng_next(&rng) % (uint64_t)c->vocab);
        b->rows[i] = i;
    }
    for (size_t i = 0; i < floats; i++)
        b->random[i] = rng_normal(&rng);
    return PV_OK;
}

enum pv_status bench_model_open(struct bench_model *b, const struct bench_model_params *p,
                                struct pv_error *err)
{
    struct pv_model_params mp = pv_model_defaults();
    enum pv_status s;
    mp.path = p->path;
    mp.threads = p->threads;
    mp.cpu_mask = p->cpu_mask;
    mp.no_repack = p->no_repack;
    *b = (struct bench_model){ .max_rows = p->max_rows };
    s = pv_model_open(&b->model, &mp, err);
    if (s)
        return s;
    b->kv_dtype = model_kv_dtype(b->model, p->kv_type);
    s = decoder_state_open(&b->state, b->model->dec, p->max_rows, p->max_logits, p->context,
                           b->kv_dtype, err);
    if (s)
        goto close;
    s = kvcache_open(&b->kv, b->model->dev, decoder_config(b->model->dec), b->kv_dtype, p->context,
                     err);
    if (s)
        goto close;
    s = open_rows(b, err);
    if (!s)
        return PV_OK;
close:
    bench_model_close(b);
    return s;
}

void bench_model_close(struct bench_model *b)
{
    kvcache_close(&b->kv);
    decoder_state_close(&b->state);
    pv_model_close(&b->model);
    mem_free(b->ids);
    mem_free(b->argmax);
    mem_free(b->pos);
    mem_free(b->rows);
    mem_free(b->random);
    *b = (struct bench_model){ 0 };
}

static const struct cpu_device *cpu_of(const struct bench_model *b)
{
    return b->model->dev->impl;
}

const struct kernels *bench_model_kernels(const struct bench_model *b)
{
    return &cpu_of(b)->k;
}

struct pool *bench_model_pool(const struct bench_model *b)
{
    return cpu_of(b)->pool;
}

enum dtype bench_model_dtype(const struct bench_model *b)
{
    size_t bytes[DTYPE_COUNT] = { 0 };
    int most = 0;
    for (int i = 0; i < model_file_n_tensors(b->model->file); i++) {
        const struct tensor *t = model_file_tensor(b->model->file, i);
        bytes[t->dtype] += t->size;
    }
    for (int t = 1; t < DTYPE_COUNT; t++)
        if (bytes[t] > bytes[most])
            most = t;
    return (enum dtype)most;
}

void bench_model_fill(struct bench_model *b, int depth)
{
    struct device_work *w = decoder_state_work(b->state);
    uint64_t turn = 0;
    if (b->kv.len > depth)
        kvcache_truncate(&b->kv, depth);
    while (b->kv.len < depth) {
        int left = depth - b->kv.len, n = left < FILL_ROWS ? left : FILL_ROWS;
        for (int l = 0; l < b->kv.n_layers; l++, turn += 2) {
            const float *k = b->random + rng_bits(2, turn, 0) % FILL_SHIFTS;
            const float *v = b->random + rng_bits(2, turn + 1, 0) % FILL_SHIFTS;
            b->kv.dev->ops->kv_write(w, &b->kv.layer[l], b->kv.len, k, v, n);
        }
        kvcache_advance(&b->kv, n);
    }
}

/* Run a chain of n rows after the cache, of a prompt (bulk) or not, with logits of the last
 * n_logits. */
static enum pv_status run_step(struct bench_model *b, int n, int n_logits, bool bulk,
                               struct pv_error *err)
{
    struct step_seq seq = { .kv = &b->kv, .n = n };
    struct step step = { .n = n,
                         .ids = b->ids,
                         .pos = (const int32_t(*)[3])b->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = n_logits,
                         .logit_rows = b->rows + (n - n_logits),
                         .argmax = b->argmax,
                         .bulk = bulk };
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 3; j++)
            b->pos[i][j] = b->kv.len + i;
    return decoder_step(b->model->dec, b->state, &step, err);
}

enum pv_status bench_model_sample(struct bench_model *b, const struct test *t, int gen,
                                  double *seconds, struct pv_error *err)
{
    int turns = t->kind == TEST_DECODE ? gen : 1;
    int n_logits = t->kind == TEST_PREFILL ? 1 : t->rows;
    int32_t first = b->ids[0];
    enum pv_status s = PV_OK;
    double start = seconds_now();
    for (int i = 0; i < turns && !s; i++) {
        s = run_step(b, t->rows, n_logits, t->kind == TEST_PREFILL, err);
        if (t->kind == TEST_DECODE && !s) {
            b->ids[0] = b->argmax[0];
            kvcache_advance(&b->kv, 1);
        }
    }
    *seconds = (seconds_now() - start) / turns;
    kvcache_truncate(&b->kv, t->depth);
    b->ids[0] = first;
    return s;
}

/* ---- the work of a step ---- */

struct count {
    const struct peak_rate *peak;
    double bytes, seconds;
};

static void count_ops(struct count *c, enum dtype t, double ops)
{
    double rate = c->peak[peak_kind_of(t)].rate;
    c->seconds += rate > 0 ? ops / rate : 0;
}

static void count_matrix(struct count *c, const struct tensor *w, int rows)
{
    double elements = (double)tensor_rows(w) * (double)tensor_cols(w);
    c->bytes += (double)w->size;
    count_ops(c, w->dtype, 2 * elements * rows);
}

/* Count a sparse layer: the router, the products of the experts that each row uses, and the weights
 * of the experts that so many rows are expected to use if all experts are equally likely. */
static void count_experts(struct count *c, const struct model_file *mf, int layer, int rows)
{
    const struct config *f = model_file_config(mf);
    const struct expert_tensors *x = model_file_experts(mf, layer);
    double elements = (double)f->hidden * f->expert_ffn, unused = 1;
    for (int i = 0; i < rows; i++)
        unused *= 1 - (double)f->n_used / f->n_experts;
    count_matrix(c, model_file_layer(mf, layer)->router, rows);
    c->bytes += (1 - unused) * (double)model_file_experts_size(mf, layer);
    count_ops(c, x->gate.t->dtype, 2 * 3 * elements * f->n_used * rows);
}

void bench_model_count(const struct bench_model *b, struct test *t,
                       const struct peak_rate peak[PEAK_KINDS])
{
    const struct config *c = decoder_config(b->model->dec);
    struct count count = { .peak = peak };
    int n = t->rows, wanted = t->kind == TEST_PREFILL ? 1 : n;
    double slots = (double)n * t->depth + 0.5 * n * (n + 1.0); /* visible, over all rows */
    for (int i = 0; i < c->n_layers; i++) {
        const struct layer_tensors *l = model_file_layer(b->model->file, i);
        int rest = i == c->n_layers - 1 ? wanted : n;
        count_matrix(&count, l->q, n);
        count_matrix(&count, l->k, n);
        count_matrix(&count, l->v, n);
        count_matrix(&count, l->o, rest);
        if (c->sparse[i]) {
            count_experts(&count, b->model->file, i, rest);
        } else {
            count_matrix(&count, l->gate, rest);
            count_matrix(&count, l->up, rest);
            count_matrix(&count, l->down, rest);
        }
        count_ops(&count, b->kv_dtype, 4.0 * c->n_heads * c->head_dim * slots);
    }
    count_matrix(&count, model_file_lm_head(b->model->file), wanted);
    count.bytes += 2.0 * c->n_layers * (t->depth + n) *
                   (double)dtype_row_size(b->kv_dtype, (int64_t)kv_width(b));
    t->bytes = count.bytes;
    t->compute_s = count.seconds;
}
