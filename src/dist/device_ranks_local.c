/* Operations that run on rank 0 only: the queued commands are executed first, then the operation is
 * passed on to rank 0's own CPU device. */
#include "dist/device_ranks.h"

static const struct device_ops *inner_of(const struct device_work *w)
{
    return w->d->k.dev->ops;
}

/* Rank 0's own work, after all queued commands have been executed. The operation may change x, so
 * the other ranks' copies may be out of date afterwards. */
static struct device_work *here(struct device_work *w)
{
    work_settle(w);
    w->there = false;
    return w->inner;
}

static void local_put(struct device_work *w, void *dst, const void *src, size_t size)
{
    inner_of(w)->put(here(w), dst, src, size);
}

/* Does not use here(), because reading changes nothing. */
static void local_get(struct device_work *w, void *dst, const void *src, size_t size)
{
    work_settle(w);
    inner_of(w)->get(w->inner, dst, src, size);
}

static bool local_tower_qkv(struct device_work *w, const struct tower_qkv *t)
{
    return inner_of(w)->tower_qkv(here(w), t);
}

static bool local_tower_tail(struct device_work *w, const struct tower_tail *t)
{
    return inner_of(w)->tower_tail(here(w), t);
}

static void local_embed(struct device_work *w, float *y, const struct matrix *table,
                        const int32_t *ids, int n, const float *next_norm)
{
    inner_of(w)->embed(here(w), y, table, ids, n, next_norm);
}

static void local_rmsnorm(struct device_work *w, float *y, const float *x, const float *weight,
                          int n, int dim, float eps)
{
    inner_of(w)->rmsnorm(here(w), y, x, weight, n, dim, eps);
}

static void local_rope(struct device_work *w, float *x, int n, int n_heads, int d,
                       const float *weight, float eps, const float *cos, const float *sin)
{
    inner_of(w)->rope(here(w), x, n, n_heads, d, weight, eps, cos, sin);
}

static void local_kv_write(struct device_work *w, const struct kv_layer *kv, int first_slot,
                           const float *k, const float *v, int n)
{
    inner_of(w)->kv_write(here(w), kv, first_slot, k, v, n);
}

static void local_attention(struct device_work *w, const struct attn_job *job)
{
    inner_of(w)->attention(here(w), job);
}

static void local_attention_columns(struct device_work *w, const struct column_job *job)
{
    inner_of(w)->attention_columns(here(w), job);
}

static void local_attention_full(struct device_work *w, const struct full_attn_job *job)
{
    inner_of(w)->attention_full(here(w), job);
}

static void local_attention_windows(struct device_work *w, const struct window_attn_job *job)
{
    inner_of(w)->attention_windows(here(w), job);
}

static void local_silu_mul(struct device_work *w, float *g, const float *u, int n, int dim)
{
    inner_of(w)->silu_mul(here(w), g, u, n, dim);
}

static void local_experts(struct device_work *w, float *y, const struct expert_weights *e,
                          const float *x, int n)
{
    inner_of(w)->experts(here(w), y, e, x, n);
}

static void local_layernorm(struct device_work *w, float *y, const float *x, const float *weight,
                            const float *bias, int n, int dim, float eps)
{
    inner_of(w)->layernorm(here(w), y, x, weight, bias, n, dim, eps);
}

static void local_gelu(struct device_work *w, float *x, int n, int dim, enum gelu_kind kind)
{
    inner_of(w)->gelu(here(w), x, n, dim, kind);
}

static void local_blend(struct device_work *w, float *y, const float *x, const int (*rows)[4],
                        const float (*weights)[4], int n, int dim)
{
    inner_of(w)->blend(here(w), y, x, rows, weights, n, dim);
}

static void local_add(struct device_work *w, float *y, const float *x, int n, int dim)
{
    inner_of(w)->add(here(w), y, x, n, dim);
}

static void local_gather(struct device_work *w, float *y, const float *x, const int32_t *rows,
                         int n, int dim)
{
    inner_of(w)->gather(here(w), y, x, rows, n, dim);
}

static void local_argmax(struct device_work *w, int32_t *ids, const float *x, int n, int dim)
{
    inner_of(w)->argmax(here(w), ids, x, n, dim);
}

static void local_top(struct device_work *w, struct top_entry *out, float *mass, const float *x,
                      int n, int dim, int k, float t)
{
    inner_of(w)->top(here(w), out, mass, x, n, dim, k, t);
}

static void local_name_ids(struct device_work *w, int32_t *ids, int n, int step,
                           const int32_t *names)
{
    inner_of(w)->name_ids(here(w), ids, n, step, names);
}

static void local_draw_token(struct device_work *w, int32_t *ids, const float *x, int n, int dim,
                             const uint64_t *position, uint64_t seed, float t)
{
    inner_of(w)->draw_token(here(w), ids, x, n, dim, position, seed, t);
}

static void local_cosines_apart(struct device_work *w, double *out, const float *x, size_t stride,
                                int n, int width, int apart)
{
    inner_of(w)->cosines_apart(here(w), out, x, stride, n, width, apart);
}

static void local_cosine_spread(struct device_work *w, double *out, const float *x, size_t stride,
                                int width, const int32_t *rows, const int32_t *bounds, int n_groups)
{
    inner_of(w)->cosine_spread(here(w), out, x, stride, width, rows, bounds, n_groups);
}

static void local_unit_rows(struct device_work *w, const struct unit_job *job)
{
    inner_of(w)->unit_rows(here(w), job);
}

static void local_unit_dots(struct device_work *w, double *out, const uint16_t *units,
                            const double *sum, int n, int width)
{
    inner_of(w)->unit_dots(here(w), out, units, sum, n, width);
}

/* Operations that the CPU device lacks are missing here too. */
void fill_local_ops(struct device_ops *table, const struct device_ops *inner)
{
    table->put = local_put;
    table->get = local_get;
    table->tower_qkv = inner->tower_qkv ? local_tower_qkv : NULL;
    table->tower_tail = inner->tower_tail ? local_tower_tail : NULL;
    table->embed = inner->embed ? local_embed : NULL;
    table->rmsnorm = inner->rmsnorm ? local_rmsnorm : NULL;
    table->rope = inner->rope ? local_rope : NULL;
    table->kv_write = inner->kv_write ? local_kv_write : NULL;
    table->attention = inner->attention ? local_attention : NULL;
    table->attention_columns = inner->attention_columns ? local_attention_columns : NULL;
    table->attention_full = inner->attention_full ? local_attention_full : NULL;
    table->attention_windows = inner->attention_windows ? local_attention_windows : NULL;
    table->silu_mul = inner->silu_mul ? local_silu_mul : NULL;
    table->experts = inner->experts ? local_experts : NULL;
    table->layernorm = inner->layernorm ? local_layernorm : NULL;
    table->gelu = inner->gelu ? local_gelu : NULL;
    table->blend = inner->blend ? local_blend : NULL;
    table->add = inner->add ? local_add : NULL;
    table->gather = inner->gather ? local_gather : NULL;
    table->argmax = inner->argmax ? local_argmax : NULL;
    table->top = inner->top ? local_top : NULL;
    table->name_ids = inner->name_ids ? local_name_ids : NULL;
    table->draw_token = inner->draw_token ? local_draw_token : NULL;
    table->cosines_apart = inner->cosines_apart ? local_cosines_apart : NULL;
    table->cosine_spread = inner->cosine_spread ? local_cosine_spread : NULL;
    table->unit_rows = inner->unit_rows ? local_unit_rows : NULL;
    table->unit_dots = inner->unit_dots ? local_unit_dots : NULL;
}
