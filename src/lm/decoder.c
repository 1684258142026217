/* Opening a decoder and the state of a session; what a step computes is in decoder_step.c.
 *
 * Matrices are the device's own (tensor/weights.h), norms and biases f32 in one block. */
#include "base/cpu.h"
#include "base/minmax.h"
#include "base/pool.h"
#include "lm/decoder_parts.h"
#include "tensor/weights.h"

#include <string.h>

/* ---- opening ---- */

static size_t small_floats(const struct config *c)
{
    size_t qkv = (size_t)(c->n_heads + 2 * c->n_kv_heads) * (size_t)c->head_dim;
    return (size_t)c->hidden +
           (size_t)c->n_layers * (2 * (size_t)c->hidden + qkv + 2 * (size_t)c->head_dim);
}

static enum pv_status take_matrix(struct decoder *dec, struct matrix *out, const struct tensor *t,
                                  const float *bias, enum spread_kind spread, struct pv_error *err)
{
    struct matrix m = weights_matrix(t, (int)tensor_rows(t), (int)tensor_cols(t), bias);
    if (dec->c.spread)
        m.spread = (struct spread){ .kind = spread,
                                    .n_heads = dec->c.n_heads,
                                    .n_kv_heads = dec->c.n_kv_heads };
    return weights_take(dec->dev, out, m, err);
}

static enum pv_status take_layer(struct decoder *dec, struct layer_weights *l,
                                 const struct layer_tensors *t, float **at, struct pv_error *err)
{
    struct device *dev = dec->dev;
    l->attn_norm = weights_small(dev, at, t->attn_norm);
    l->ffn_norm = weights_small(dev, at, t->ffn_norm);
    l->q_norm = weights_small(dev, at, t->q_norm);
    l->k_norm = weights_small(dev, at, t->k_norm);
    const struct {
        struct matrix *m;
        const struct tensor *t, *bias;
        enum spread_kind spread;
    } parts[] = {
        { &l->q, t->q, t->q_bias, SPREAD_QUERIES },  { &l->k, t->k, t->k_bias, SPREAD_KEYS },
        { &l->v, t->v, t->v_bias, SPREAD_KEYS },     { &l->o, t->o, NULL, SPREAD_OUTPUTS },
        { &l->gate, t->gate, NULL, SPREAD_OUTPUTS }, { &l->up, t->up, NULL, SPREAD_OUTPUTS },
        { &l->down, t->down, NULL, SPREAD_OUTPUTS }
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].t) /* of a sparse layer */
            continue;
        const float *bias = weights_small(dev, at, parts[i].bias);
        enum pv_status s = take_matrix(dec, parts[i].m, parts[i].t, bias, parts[i].spread, err);
        if (s)
            return s;
    }
    return PV_OK;
}

/* When everything of the layers is there. */
static enum pv_status take_whole_layers(struct decoder *dec, struct pv_error *err)
{
    enum pv_status s = PV_OK;
    for (int i = 0; dec->dev->ops->take_layer && i < dec->c.n_layers && !s; i++)
        s = dec->dev->ops->take_layer(dec->dev, &dec->layer[i], &dec->shape, err);
    return s;
}

static enum pv_status take_weights(struct decoder *dec, const struct model_file *mf,
                                   struct pv_error *err)
{
    struct device *dev = dec->dev;
    float *at = dec->small;
    const struct tensor *table = model_file_embed(mf);
    struct matrix embed =
        weights_matrix(table, (int)tensor_rows(table), (int)tensor_cols(table), NULL);
    enum pv_status s;
    dec->tied = model_file_lm_head(mf)->data == table->data;
    embed.lookup = !dec->tied;
    if (dec->c.spread && dec->tied)
        embed.spread = (struct spread){ .kind = SPREAD_OUTPUTS, .looked_up = true };
    s = weights_take(dev, &dec->embed, embed, err);
    dec->norm = weights_small(dev, &at, model_file_norm(mf));
    if (!s && dec->tied)
        dec->lm_head = dec->embed;
    else if (!s)
        s = take_matrix(dec, &dec->lm_head, model_file_lm_head(mf), NULL, SPREAD_OUTPUTS, err);
    for (int i = 0; i < dec->c.n_layers && !s; i++)
        s = take_layer(dec, &dec->layer[i], model_file_layer(mf, i), &at, err);
    if (!s && config_n_sparse(&dec->c) > 0)
        s = decoder_experts_open(dec, mf, err);
    return s ? s : take_whole_layers(dec, err);
}

static struct layer_shape layer_shape_of(const struct config *c)
{
    return (struct layer_shape){ .hidden = c->hidden,
                                 .ffn = c->ffn,
                                 .n_heads = c->n_heads,
                                 .n_kv_heads = c->n_kv_heads,
                                 .head_dim = c->head_dim,
                                 .eps = c->rms_eps };
}

/* Room for the weights of a decoder of this shape; closed by the caller, also on failure. */
static enum pv_status open_empty(struct decoder **out, const struct config *c, struct device *dev,
                                 size_t more_floats, struct pv_error *err)
{
    size_t layers_size = sizeof(struct layer_weights) * (size_t)c->n_layers;
    size_t small_size = sizeof(float) * (small_floats(c) + more_floats);
    struct decoder *dec = mem_zalloc(sizeof *dec);
    void *small = NULL;
    enum pv_status s;
    if (!dec)
        return fail_nomem(err, sizeof *dec);
    *out = dec;
    dec->dev = dev;
    dec->c = *c;
    dec->c.spread = dev->spreads && dev->ops->alloc_kv;
    dec->input_vocab = c->vocab;
    dec->shape = layer_shape_of(c);
    rope_plan_init(&dec->rope, c);
    dec->layer = mem_zalloc(layers_size);
    s = dec->layer ? device_alloc(dev, &small, small_size, err) : fail_nomem(err, layers_size);
    dec->small = small;
    return s;
}

enum pv_status decoder_open(struct decoder **out, const struct model_file *mf, struct device *dev,
                            struct pv_error *err)
{
    struct decoder *dec = NULL;
    enum pv_status s = open_empty(&dec, model_file_config(mf), dev, 0, err);
    if (!s)
        s = take_weights(dec, mf, err);
    if (s)
        decoder_close(&dec);
    else
        *out = dec;
    return s;
}

static enum pv_status take_head(struct decoder *dec, const struct head_tensors *t,
                                struct pv_error *err)
{
    float *at = dec->small;
    const float *bias = weights_small(dec->dev, &at, t->fc_bias);
    enum pv_status s = take_matrix(dec, &dec->fc, t->fc, bias, SPREAD_NONE, err);
    dec->norm = weights_small(dec->dev, &at, t->norm);
    dec->embed_norm = weights_small(dec->dev, &at, t->embed_norm);
    dec->hidden_norm = weights_small(dec->dev, &at, t->hidden_norm);
    if (!s && t->lm_head)
        s = take_matrix(dec, &dec->lm_head, t->lm_head, NULL, SPREAD_OUTPUTS, err);
    dec->own_lm_head = !s && t->lm_head;
    if (!s)
        s = take_layer(dec, dec->layer, &t->layer, &at, err);
    return s ? s : take_whole_layers(dec, err);
}

enum pv_status decoder_open_head(struct decoder **out, const struct head_file *hf,
                                 const struct config *c, const struct decoder *target,
                                 struct pv_error *err)
{
    struct decoder *dec = NULL;
    enum pv_status s = open_empty(&dec, c, target->dev, 3 * (size_t)c->hidden, err);
    if (!s) {
        dec->is_draft_head = true;
        dec->embed = target->embed;
        dec->lm_head = target->lm_head;
        dec->input_vocab = target->c.vocab;
        dec->draft_ids = head_file_draft_ids(hf);
        dec->n_features = head_file_config(hf)->n_features;
        dec->norm_residual = head_file_config(hf)->norm_residual;
        s = take_head(dec, head_file_tensors(hf), err);
        if (!s && dec->draft_ids)
            s = decoder_put_names(dec, dec->draft_ids, c->vocab, err);
    }
    if (s)
        decoder_close(&dec);
    else
        *out = dec;
    return s;
}

static void drop_layer(struct device *dev, struct layer_weights *l)
{
    struct matrix *all[] = { &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down };
    if (l->handle)
        dev->ops->drop_layer(dev, l);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        weights_drop(dev, all[i]);
}

void decoder_close(struct decoder **dec)
{
    if (!*dec)
        return;
    for (int i = 0; (*dec)->layer && i < (*dec)->c.n_layers; i++)
        drop_layer((*dec)->dev, &(*dec)->layer[i]);
    decoder_experts_close(*dec);
    weights_drop((*dec)->dev, &(*dec)->fc);
    if ((*dec)->is_draft_head ? (*dec)->own_lm_head : !(*dec)->tied)
        weights_drop((*dec)->dev, &(*dec)->lm_head);
    if (!(*dec)->is_draft_head)
        weights_drop((*dec)->dev, &(*dec)->embed);
    if ((*dec)->small)
        (*dec)->dev->ops->free((*dec)->dev, (*dec)->small);
    if ((*dec)->names)
        (*dec)->dev->ops->free((*dec)->dev, (*dec)->names);
    mem_free((*dec)->own_ids);
    mem_free((*dec)->own_rows);
    mem_free((*dec)->layer);
    mem_free(*dec);
    *dec = NULL;
}

const struct config *decoder_config(const struct decoder *dec)
{
    return &dec->c;
}

int decoder_input_vocab(const struct decoder *dec)
{
    return dec->input_vocab;
}

const int32_t *decoder_draft_ids(const struct decoder *dec)
{
    return dec->draft_ids;
}

size_t decoder_feature_width(const struct decoder *dec)
{
    return (size_t)(dec->n_features > 0 ? dec->n_features : 1) * (size_t)dec->c.hidden;
}

struct device *decoder_device(const struct decoder *dec)
{
    return dec->dev;
}

/* ---- state ---- */

enum { ROW_TILE = 128 }; /* rows that a device with blocks may touch together */

static struct work_shape work_shape_of(const struct decoder *dec, int max_rows, int max_logits,
                                       int context, enum dtype kv_dtype)
{
    const struct config *c = &dec->c;
    int halves = dec->n_features > 2 ? dec->n_features : 2; /* of a draft head's widest row */
    int q = c->n_heads * c->head_dim, hidden = dec->is_draft_head ? halves * c->hidden : c->hidden;
    int in = hidden > c->ffn ? hidden : c->ffn;
    bool sparse = config_n_sparse(c) > 0;
    in = in > c->expert_ffn ? in : c->expert_ffn;
    return (struct work_shape){ .rows = max_rows > max_logits ? max_rows : max_logits,
                                .in = in > q ? in : q,
                                .n_heads = c->n_heads,
                                .n_kv_heads = c->n_kv_heads,
                                .head_dim = c->head_dim,
                                .context = context,
                                .kv_dtype = kv_dtype,
                                .hidden = c->hidden,
                                .ffn = c->ffn,
                                .out = c->vocab,
                                .n_experts = sparse ? c->n_experts : 0,
                                .n_used = sparse ? c->n_used : 0,
                                .expert_ffn = sparse ? c->expert_ffn : 0,
                                .spread = c->spread || dec->lm_head.spread.kind != SPREAD_NONE };
}

static size_t round_line(size_t size)
{
    return (size + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
}

struct step_inputs step_inputs_at(void *block, int half, int n, int n_logits)
{
    struct step_inputs in;
    size_t ids = round_line(sizeof(int32_t) * (size_t)n);
    size_t rows = round_line(sizeof(int32_t) * (size_t)n_logits);
    size_t places = round_line(sizeof(uint64_t) * (size_t)n_logits);
    size_t table = round_line(sizeof(float) * (size_t)n * (size_t)half);
    in.ids = block;
    in.rows = (int32_t *)((uint8_t *)block + ids);
    in.position = (uint64_t *)((uint8_t *)block + ids + rows);
    in.cos = (float *)((uint8_t *)block + ids + rows + places);
    in.sin = (float *)((uint8_t *)block + ids + rows + places + table);
    in.size = ids + rows + places + 2 * table;
    return in;
}

/* Carve the activations from the block; with `a` NULL only count their bytes. */
static size_t carve(struct decoder_state *st, struct arena *a, const struct decoder *dec,
                    int max_rows, int max_logits)
{
    const struct config *c = &dec->c;
    bool blocks = dec->dev->ops->attn != NULL;
    size_t rows =
        blocks ? (size_t)((max_rows + ROW_TILE - 1) / ROW_TILE * ROW_TILE) : (size_t)max_rows;
    size_t pairs = dec->is_draft_head ? 2 * (size_t)max_rows : 0, own = blocks ? 0 : rows,
           q = (size_t)c->n_heads * (size_t)c->head_dim;
    size_t kv = (size_t)c->n_kv_heads * (size_t)c->head_dim, f = sizeof(float);
    size_t wide = c->n_deepstack > 0 ? (size_t)max_rows : 0;
    size_t ffn = config_n_sparse(c) < c->n_layers ? (size_t)c->ffn : 0;
    size_t tree = decoder_grows(dec) ? STEP_MAX_TREE : 0;
    uint8_t base[1]; /* only offsets are taken from it */
    size_t inputs = chain_inputs_size(c->head_dim / 2, max_logits) +
                    step_inputs_at(base, c->head_dim / 2, max_rows, max_logits).size;
    struct {
        void *field;
        size_t size;
    } parts[] = {
        { &st->x, f * rows * (size_t)c->hidden },
        { &st->xn, f * rows * (size_t)c->hidden },
        { &st->tmp, f * rows * (size_t)c->hidden },
        { &st->q, f * own * q },
        { &st->k, f * own * kv },
        { &st->v, f * own * kv },
        { &st->att, f * own * q },
        { &st->gate, f * own * ffn },
        { &st->up, f * own * ffn },
        { &st->logits, f * (size_t)max_logits * (size_t)c->vocab },
        { &st->best, sizeof(int32_t) * (size_t)max_logits },
        { &st->drawn, sizeof(int32_t) * (size_t)max_logits },
        { &st->top, sizeof *st->top * DEVICE_MAX_TOP * (size_t)max_logits },
        { &st->mass, f * (size_t)max_logits },
        { &st->inputs, inputs },
        { &st->chosen, sizeof(int32_t) * CHAIN_RUNS },
        { &st->tree, tree_rows_size(DEVICE_MAX_LEVEL, (int)tree) },
        { &st->tree_states, dec->is_draft_head ? f * tree * (size_t)c->hidden : 0 },
        { &st->pair, f * pairs * (size_t)c->hidden },
        { &st->wide, f * pairs * (size_t)c->hidden },
        { &st->tapped, f * (size_t)dec->n_features * (size_t)max_rows * (size_t)c->hidden },
        { &st->order, sizeof(int32_t) * pairs },
        { &st->media, f * wide * (size_t)config_media_width(c) },
        { &st->media_order, sizeof(int32_t) * wide * (size_t)(1 + c->n_deepstack) },
    };
    size_t total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *p = a && parts[i].size > 0 ? arena_push(a, parts[i].size) : NULL;
        total += parts[i].size > 0 ? arena_cost(parts[i].size) : 0;
        memcpy(parts[i].field, &p, sizeof p);
    }
    return total;
}

/* Bytes of the rows of trees on the host. */
static size_t host_tree_size(const struct decoder *dec)
{
    return decoder_grows(dec) ? tree_rows_size(DEVICE_MAX_LEVEL, STEP_MAX_TREE) : 0;
}

/* Whether rope tables are made ahead, by several threads, see step.next_pos. */
static bool makes_tables(const struct decoder *dec, int max_rows)
{
    return dec->dev->ops->attn && max_rows >= TABLE_ROWS;
}

static size_t tables_size(int max_rows, int half)
{
    return (size_t)max_rows * (2 * sizeof(float) * (size_t)half + sizeof(int32_t[3]));
}

size_t decoder_state_size(const struct decoder *dec, int max_rows, int max_logits, int context,
                          enum dtype kv_dtype)
{
    struct work_shape shape = work_shape_of(dec, max_rows, max_logits, context, kv_dtype);
    struct decoder_state none;
    uint8_t base[1]; /* only offsets are taken from it */
    int half = dec->c.head_dim / 2;
    size_t host = step_inputs_at(base, half, max_rows, max_logits).size +
                  chain_inputs_size(half, max_logits) +
                  CHAIN_RUNS * (sizeof *none.host_chosen + sizeof *none.runs) + host_tree_size(dec);
    if (makes_tables(dec, max_rows))
        host += tables_size(max_rows, half);
    return carve(&none, NULL, dec, max_rows, max_logits) +
           dec->dev->ops->work_size(dec->dev, &shape) + host;
}

/* The matrix [a, b] of 0, 1, 2, ... transposed, to the device. */
static enum pv_status put_transposed(struct decoder_state *st, int32_t *to, int a, int b,
                                     struct pv_error *err)
{
    size_t size = (size_t)a * (size_t)b * sizeof(int32_t);
    int32_t *order = mem_alloc(size);
    if (!order)
        return fail_nomem(err, size);
    for (int i = 0; i < a; i++)
        for (int j = 0; j < b; j++)
            order[(size_t)j * (size_t)a + (size_t)i] = i * b + j;
    st->dev->ops->upload(st->dev, to, order, size);
    mem_free(order);
    return PV_OK;
}

/* False: out of memory. */
static bool open_tables(struct decoder_state *st, int half)
{
    size_t rows = (size_t)st->max_rows, table = sizeof(float) * rows * (size_t)half;
    if (cpu_count() > 1)
        pool_open(&st->tables, min_int(cpu_count(), TABLE_THREADS), NULL); /* optional: may fail */
    st->next_cos = mem_alloc(table);
    st->next_sin = mem_alloc(table);
    st->next_pos = mem_alloc(sizeof *st->next_pos * rows);
    return st->next_cos && st->next_sin && st->next_pos;
}

static enum pv_status state_fill(struct decoder_state *st, const struct decoder *dec,
                                 enum work_priority priority, struct pv_error *err)
{
    struct work_shape shape =
        work_shape_of(dec, st->max_rows, st->max_logits, st->context, st->kv_dtype);
    size_t size = carve(st, NULL, dec, st->max_rows, st->max_logits), inputs, chain;
    int half = dec->c.head_dim / 2;
    struct arena on_device;
    enum pv_status s = device_alloc(dec->dev, &st->block, size, err);
    if (s)
        return s;
    arena_init(&on_device, st->block, size);
    carve(st, &on_device, dec, st->max_rows, st->max_logits);
    inputs = step_inputs_at(st->inputs, half, st->max_rows, st->max_logits).size;
    chain = chain_inputs_size(half, st->max_logits);
    st->inputs += chain;
    st->host_block = mem_zalloc(chain + inputs);
    st->host_chosen = mem_alloc(CHAIN_RUNS * sizeof *st->host_chosen);
    st->runs = mem_alloc(CHAIN_RUNS * sizeof *st->runs);
    st->host_tree = host_tree_size(dec) > 0 ? mem_alloc(host_tree_size(dec)) : NULL;
    if (!st->host_block || !st->host_chosen || !st->runs || (decoder_grows(dec) && !st->host_tree))
        return fail_nomem(err, chain + inputs + host_tree_size(dec) +
                                   CHAIN_RUNS * (sizeof *st->host_chosen + sizeof *st->runs));
    st->host_inputs = st->host_block + chain;
    if (makes_tables(dec, st->max_rows) && !open_tables(st, half))
        return fail_nomem(err, tables_size(st->max_rows, half));
    shape.priority = priority;
    s = dec->dev->ops->work_open(dec->dev, &st->work, &shape, err);
    if (!s &&
        dec->is_draft_head) /* a row of two: its embedding, and max_rows further on its feature */
        s = put_transposed(st, st->order, 2, st->max_rows, err);
    if (!s && st->media_order)
        s = put_transposed(st, st->media_order, st->max_rows, 1 + dec->c.n_deepstack, err);
    return s;
}

enum pv_status decoder_state_open_priority(struct decoder_state **out, const struct decoder *dec,
                                           int max_rows, int max_logits, int context,
                                           enum dtype kv_dtype, enum work_priority priority,
                                           struct pv_error *err)
{
    struct decoder_state *st = mem_zalloc(sizeof *st);
    enum pv_status s;
    if (!st)
        return fail_nomem(err, sizeof *st);
    st->dev = dec->dev;
    st->max_rows = max_rows;
    st->max_logits = max_logits;
    st->context = context;
    st->kv_dtype = kv_dtype;
    s = state_fill(st, dec, priority, err);
    if (s) {
        decoder_state_close(&st);
        return s;
    }
    *out = st;
    return PV_OK;
}

enum pv_status decoder_state_open(struct decoder_state **out, const struct decoder *dec,
                                  int max_rows, int max_logits, int context, enum dtype kv_dtype,
                                  struct pv_error *err)
{
    return decoder_state_open_priority(out, dec, max_rows, max_logits, context, kv_dtype,
                                       WORK_NORMAL, err);
}

void decoder_state_close(struct decoder_state **st)
{
    if (!*st)
        return;
    (*st)->dev->ops->work_close((*st)->dev, &(*st)->work);
    if ((*st)->block)
        (*st)->dev->ops->free((*st)->dev, (*st)->block);
    mem_free((*st)->host_block);
    pool_close(&(*st)->tables);
    mem_free((*st)->next_cos);
    mem_free((*st)->next_sin);
    mem_free((*st)->next_pos);
    mem_free((*st)->host_chosen);
    mem_free((*st)->runs);
    mem_free((*st)->host_tree);
    mem_free(*st);
    *st = NULL;
}

struct device_work *decoder_state_work(struct decoder_state *st)
{
    return st->work;
}

int decoder_state_rows(const struct decoder_state *st)
{
    return st->max_rows;
}

int decoder_state_logits(const struct decoder_state *st)
{
    return st->max_logits;
}

bool decoder_chains(const struct decoder *dec)
{
    return dec->dev->ops->chains && !dec->is_draft_head;
}

bool decoder_grows(const struct decoder *dec)
{
    return dec->dev->ops->grow && !dec->c.spread && dec->lm_head.spread.kind == SPREAD_NONE;
}

bool decoder_ways_differ(const struct decoder *dec)
{
    return dec->dev->ops->ways_differ;
}
