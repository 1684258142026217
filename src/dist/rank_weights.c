/* A rank's part of the weights. If the rank can open the file that a matrix is in, it maps the file
 * and reads only its own rows; otherwise its rows are sent to it. */
#include "base/checksum.h"
#include "base/mem.h"
#include "dist/rank.h"

#include <string.h>

enum { SAMPLES = 64, SAMPLE_SIZE = 4096 };

/* ---- files ---- */

void source_sum(const struct file_map *map, uint8_t out[DIGEST_SIZE])
{
    struct checksum sum;
    size_t step = map->size / SAMPLES;
    checksum_init(&sum);
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t at = i * step, left = map->size - at;
        checksum_add(&sum, map->data + at, left < SAMPLE_SIZE ? left : SAMPLE_SIZE);
    }
    checksum_finish(&sum, out);
}

/* Every rank reports whether it has the same file. */
enum pv_status rank_source(struct rank *k, const struct command *c, struct pv_error *err)
{
    const struct command_source *m = (const struct command_source *)c;
    struct file_map *map = &k->source[c->id];
    uint8_t has[RANKS_MAX] = { 0 }, sum[DIGEST_SIZE];
    size_t at[RANKS_MAX + 1];
    (void)err;
    if (k->t->rank > 0 && !file_map_open(map, (const char *)(m + 1), m->file_size, NULL)) {
        if (map->size == m->file_size)
            source_sum(map, sum);
        has[k->t->rank] = map->size == m->file_size && !memcmp(sum, m->sum, sizeof sum);
        if (!has[k->t->rank])
            file_map_close(map);
    }
    has[0] = k->t->rank == 0;
    for (int r = 0; r <= k->t->n; r++)
        at[r] = (size_t)r;
    rank_gather(k, has, at, RANKS_ALL);
    k->everywhere[c->id] = memchr(has, 0, (size_t)k->t->n) == NULL;
    if (!k->everywhere[c->id])
        file_map_close(map);
    return PV_OK;
}

/* ---- matrices ---- */

void rank_matrix_close(struct rank *k, struct rank_matrix **m)
{
    if (!*m)
        return;
    if ((*m)->m.out > 0)
        k->dev->ops->drop(k->dev, &(*m)->m);
    mem_free((*m)->rows);
    mem_free((*m)->bias);
    mem_free(*m);
    *m = NULL;
}

/* Send rows of a matrix from rank 0 to the ranks that need them. */
static void send_rows(struct rank *k, const struct command_take *c)
{
    const uint8_t *data = (const uint8_t *)(uintptr_t)c->data;
    for (int r = 1; r < k->t->n && !k->status; r++) {
        struct part p = split_matrix(&c->spread, c->out, k->t, r);
        k->status = transport_send(k->t, r, data + (size_t)p.from * c->row_size,
                                   (size_t)(p.to - p.from) * c->row_size, &k->err);
    }
}

/* Find or receive this rank's rows. */
static enum pv_status find_rows(struct rank *k, struct rank_matrix *m, const struct command_take *c,
                                struct part p, struct pv_error *err)
{
    size_t from = (size_t)p.from * c->row_size, size = (size_t)(p.to - p.from) * c->row_size;
    if (k->t->rank == 0) {
        m->m.data = (const uint8_t *)(uintptr_t)c->data + from;
        if (c->source < 0)
            send_rows(k, c);
        return PV_OK;
    }
    if (c->source >= 0) {
        m->m.data = k->source[c->source].data + c->offset + from;
        return PV_OK;
    }
    if (size == 0)
        return PV_OK;
    m->rows = mem_alloc(size);
    if (!m->rows)
        return fail_nomem(err, size);
    m->m.data = m->rows;
    k->status = transport_recv(k->t, 0, m->rows, size, &k->err);
    return PV_OK;
}

enum pv_status rank_take(struct rank *k, const struct command *head, struct pv_error *err)
{
    const struct command_take *c = (const struct command_take *)head;
    struct part p = split_matrix(&c->spread, c->out, k->t, k->t->rank);
    size_t bias_size = sizeof(float) * (size_t)(p.to - p.from);
    struct rank_matrix *m = mem_zalloc(sizeof *m);
    enum pv_status s;
    if (!m)
        return fail_nomem(err, sizeof *m);
    m->out = c->out;
    m->m = (struct matrix){ .dtype = (enum dtype)c->dtype,
                            .in = c->in,
                            .row_size = (size_t)c->row_size };
    s = find_rows(k, m, c, p, err);
    if (!s && c->bias && p.to > p.from) {
        m->bias = mem_alloc(bias_size);
        if (m->bias)
            memcpy(m->bias, (const float *)(c + 1) + p.from, bias_size);
        else
            s = fail_nomem(err, bias_size);
        m->m.bias = m->bias;
    }
    k->dev->repacks = c->repacks != 0;
    if (!s && p.to > p.from) {
        m->m.out = p.to - p.from;
        s = k->dev->ops->take(k->dev, &m->m, err);
        if (s)
            m->m.out = 0;
    }
    if (!s && !table_put(&k->matrices, head->id, m))
        s = fail_nomem(err, sizeof *m);
    if (s)
        rank_matrix_close(k, &m);
    return s;
}

enum pv_status rank_drop(struct rank *k, const struct command *c, struct pv_error *err)
{
    struct rank_matrix *m = table_find(&k->matrices, c->id);
    (void)err;
    rank_matrix_close(k, &m);
    table_put(&k->matrices, c->id, NULL);
    return PV_OK;
}

/* ---- experts ---- */

void rank_experts_close(struct rank_experts **e)
{
    if (!*e)
        return;
    mem_free((*e)->matrix);
    mem_free((*e)->router);
    mem_free(*e);
    *e = NULL;
}

/* Gather the experts' results. They are sorted by expert and thus by rank, so this needs no copies.
 */
static void share_rows(void *ctx, float *rows, const int *first)
{
    struct rank_experts *e = ctx;
    size_t at[RANKS_MAX + 1] = { 0 };
    int n = e->k->t->n;
    for (int r = 0; r < n; r++)
        at[r + 1] =
            sizeof *rows * (size_t)e->hidden * (size_t)first[split_experts(e->e.n, e->k->t, r).to];
    rank_gather(e->k, rows, at, RANKS_ALL);
}

enum pv_status rank_take_experts(struct rank *k, const struct command *head, struct pv_error *err)
{
    const struct command_experts *c = (const struct command_experts *)head;
    size_t n = (size_t)c->n, router = n * (size_t)c->hidden;
    const int32_t *ids = (const int32_t *)((const float *)(c + 1) + router);
    struct part own = split_experts(c->n, k->t, k->t->rank);
    struct rank_experts *e = mem_zalloc(sizeof *e);
    if (!e)
        return fail_nomem(err, sizeof *e);
    e->k = k;
    e->hidden = c->hidden;
    e->matrix = mem_zalloc(3 * n * sizeof *e->matrix);
    e->router = mem_alloc(router * sizeof *e->router);
    if (!e->matrix || !e->router || !table_put(&k->experts, head->id, e)) {
        rank_experts_close(&e);
        return fail_nomem(err, router * sizeof(float));
    }
    memcpy(e->router, c + 1, router * sizeof *e->router);
    for (size_t i = 0; i < 3 * n; i++) {
        const struct rank_matrix *m = table_find(&k->matrices, ids[i]);
        e->matrix[i] = m->m;
        e->matrix[i].out = m->out; /* the shape, also of experts on other ranks */
    }
    e->e = (struct expert_weights){ .n = c->n,
                                    .used = c->used,
                                    .normed = c->normed != 0,
                                    .router = { .dtype = DTYPE_F32,
                                                .out = c->n,
                                                .in = c->hidden,
                                                .data = e->router,
                                                .row_size = sizeof(float) * (size_t)c->hidden },
                                    .gate = e->matrix,
                                    .up = e->matrix + n,
                                    .down = e->matrix + 2 * n,
                                    .own0 = own.from,
                                    .own1 = own.to,
                                    .share = share_rows,
                                    .share_ctx = e };
    return PV_OK;
}

enum pv_status rank_drop_experts(struct rank *k, const struct command *c, struct pv_error *err)
{
    struct rank_experts *e = table_find(&k->experts, c->id);
    (void)err;
    rank_experts_close(&e);
    table_put(&k->experts, c->id, NULL);
    return PV_OK;
}

/* ---- layers ---- */

void rank_layer_close(struct rank_layer **l)
{
    if (!*l)
        return;
    mem_free((*l)->norms);
    mem_free(*l);
    *l = NULL;
}

static void set_ranges(struct rank_layer *l, const struct rank *k)
{
    const struct layer_shape *s = &l->shape;
    struct head_part h = rank_heads(s->n_heads, s->n_kv_heads, k->t, k->t->rank);
    l->n_ranks = k->t->n;
    l->q = h.q;
    l->kv = h.kv;
    l->q_at = ranges_queries(s->n_heads, s->n_kv_heads, s->head_dim, k->t);
    l->hidden_at = ranges_outputs(s->hidden, k->t);
    l->ffn_at = ranges_outputs(s->ffn, k->t);
}

enum pv_status rank_take_layer(struct rank *k, const struct command *head, struct pv_error *err)
{
    const struct command_layer *c = (const struct command_layer *)head;
    struct rank_layer *l = mem_zalloc(sizeof *l);
    size_t floats = 0;
    if (!l)
        return fail_nomem(err, sizeof *l);
    for (int i = 0; i < LAYER_NORMS; i++)
        floats += (size_t)c->norm[i];
    l->shape = c->shape;
    set_ranges(l, k);
    l->norms = mem_alloc((floats + 1) * sizeof *l->norms);
    if (!l->norms || !table_put(&k->layers, head->id, l)) {
        rank_layer_close(&l);
        return fail_nomem(err, floats * sizeof(float));
    }
    memcpy(l->norms, c + 1, floats * sizeof *l->norms);
    const float **norm[LAYER_NORMS] = { &l->w.attn_norm, &l->w.ffn_norm, &l->w.q_norm,
                                        &l->w.k_norm };
    const float *at = l->norms;
    for (int i = 0; i < LAYER_NORMS; i++) {
        *norm[i] = c->norm[i] > 0 ? at : NULL;
        at += c->norm[i];
    }
    struct matrix *m[LAYER_MATRICES] = { &l->w.q,    &l->w.k,  &l->w.v,   &l->w.o,
                                         &l->w.gate, &l->w.up, &l->w.down };
    for (int i = 0; i < LAYER_MATRICES; i++)
        if (c->matrix[i] >= 0)
            *m[i] = ((struct rank_matrix *)table_find(&k->matrices, c->matrix[i]))->m;
    if (c->experts >= 0)
        l->w.experts = &((struct rank_experts *)table_find(&k->experts, c->experts))->e;
    return PV_OK;
}

enum pv_status rank_drop_layer(struct rank *k, const struct command *c, struct pv_error *err)
{
    struct rank_layer *l = table_find(&k->layers, c->id);
    (void)err;
    rank_layer_close(&l);
    table_put(&k->layers, c->id, NULL);
    return PV_OK;
}
