/* The experts of a decoder's sparse layers: from the file to the device.
 *
 * Matrices that lie in rows in the file are taken where they are. Those that are stored transposed
 * are turned into a block of memory per layer and role before the device takes them; a device that
 * copies its weights (a GPU) lets the block go again, one that uses them where they lie (the CPU)
 * keeps it. A router is F32 on the device whatever it is in the file. */
#include "lm/decoder_parts.h"

#include "base/cpu.h"
#include "tensor/quant.h"
#include "tensor/weights.h"

enum { BLOCKS = 4 /* of a layer: router, gate, up, down */ };

struct decoder_experts {
    struct expert_weights *layer; /* [n_layers]; n 0: dense */
    struct matrix *matrix;        /* [sparse layers, 3, n_experts] */
    void **block;                 /* [sparse layers, BLOCKS], NULL: not needed */
    int n_sparse;
    uint64_t copied; /* bytes of the blocks */
};

/* The three matrices of an expert, in the order of struct decoder_experts. */
static const struct expert_weight *weight_of(const struct expert_tensors *x, int role)
{
    return role == 0 ? &x->gate : role == 1 ? &x->up : &x->down;
}

/* Bytes of the experts that are stored transposed. */
static uint64_t transposed_bytes(const struct model_file *mf)
{
    const struct config *c = model_file_config(mf);
    uint64_t sum = 0, elements = (uint64_t)c->hidden * (uint64_t)c->expert_ffn;
    for (int i = 0; i < c->n_layers; i++) {
        const struct expert_tensors *x = model_file_experts(mf, i);
        for (int e = 0; x && e < c->n_experts; e++)
            for (int role = 0; role < 3; role++) {
                const struct expert_weight *w = weight_of(&x[e], role);
                if (w->step)
                    sum += dtype_row_size(w->t->dtype, (int64_t)elements);
            }
    }
    return sum;
}

/* Keep a block that a matrix on the device still points into. */
static void keep_or_free(struct decoder_experts *x, void **at, void *block, size_t size,
                         const void *data)
{
    if (data == block) {
        *at = block;
        x->copied += size;
    } else {
        mem_free(block);
    }
}

static enum pv_status take_router(struct decoder *dec, struct expert_weights *to,
                                  const struct tensor *t, void **at, struct pv_error *err)
{
    struct matrix m = weights_matrix(t, (int)t->dim[0], (int)t->dim[1], NULL);
    size_t n = weights_count(t), size = sizeof(float) * n;
    float *block = NULL;
    enum pv_status s;
    if (t->dtype != DTYPE_F32) {
        block = mem_alloc(size);
        if (!block)
            return fail_nomem(err, size);
        row_to_f32(block, t->data, t->dtype, (int64_t)n);
        m.dtype = DTYPE_F32;
        m.data = block;
        m.row_size = sizeof(float) * (size_t)m.in;
    }
    s = weights_take(dec->dev, &to->router, m, err);
    if (block)
        keep_or_free(dec->experts, at, block, size, to->router.data);
    return s;
}

/* One role's matrix of all experts of a layer. */
static enum pv_status take_role(struct decoder *dec, struct matrix *to,
                                const struct expert_tensors *x, int role, void **at,
                                struct pv_error *err)
{
    const struct config *c = &dec->c;
    int out = role < 2 ? c->expert_ffn : c->hidden, in = role < 2 ? c->hidden : c->expert_ffn;
    const struct expert_weight *first = weight_of(x, role);
    size_t one = (size_t)out * dtype_row_size(first->t->dtype, in);
    size_t size = one * (size_t)c->n_experts;
    uint8_t *block = NULL;
    enum pv_status s = PV_OK;
    if (first->step) { /* then all of them are, and of one tensor */
        block = mem_alloc(size);
        if (!block)
            return fail_nomem(err, size);
    }
    for (int e = 0; e < c->n_experts && !s; e++) {
        const struct expert_weight *w = weight_of(&x[e], role);
        struct matrix m = { .dtype = w->t->dtype,
                            .out = out,
                            .in = in,
                            .data = w->data,
                            .row_size = dtype_row_size(w->t->dtype, in) };
        if (c->spread)
            m.spread =
                (struct spread){ .kind = SPREAD_EXPERT, .expert = e, .n_experts = c->n_experts };
        if (block) {
            expert_weight_copy(block + (size_t)e * one, w, out, in);
            m.data = block + (size_t)e * one;
        }
        s = weights_take(dec->dev, &to[e], m, err);
    }
    if (block)
        keep_or_free(dec->experts, at, block, size, to[0].data);
    return s;
}

static enum pv_status take_layer(struct decoder *dec, const struct model_file *mf, int layer,
                                 int sparse, struct pv_error *err)
{
    struct decoder_experts *x = dec->experts;
    size_t n = (size_t)dec->c.n_experts;
    struct matrix *m = x->matrix + (size_t)sparse * 3 * n;
    void **block = x->block + (size_t)sparse * BLOCKS;
    struct expert_weights *to = &x->layer[layer];
    enum pv_status s;
    *to = (struct expert_weights){ .n = dec->c.n_experts,
                                   .used = dec->c.n_used,
                                   .normed = dec->c.norm_used,
                                   .gate = m,
                                   .up = m + n,
                                   .down = m + 2 * n };
    s = take_router(dec, to, model_file_layer(mf, layer)->router, block, err);
    for (int role = 0; role < 3 && !s; role++)
        s = take_role(dec, m + (size_t)role * n, model_file_experts(mf, layer), role,
                      block + 1 + role, err);
    if (!s && dec->dev->ops->take_experts)
        s = dec->dev->ops->take_experts(dec->dev, to, err);
    dec->layer[layer].experts = to;
    return s;
}

/* What can be said before anything is loaded. */
static enum pv_status check(const struct decoder *dec, const struct model_file *mf,
                            struct pv_error *err)
{
    uint64_t turned = transposed_bytes(mf), memory = cpu_memory();
    size_t left, all;
    if (!dec->dev->ops->experts)
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: a mixture of experts, which does not run on %s yet (use the CPU)",
                    model_file_path(mf), dec->dev->ops->name);
    dec->dev->ops->room(dec->dev, &left, &all);
    if (all == 0 && memory > 0 && turned > memory)
        return fail(err, PV_E_NOMEM,
                    "%s stores its experts transposed: in rows they take %llu bytes of memory, and "
                    "there are %llu (a GGUF file made by prevue convert is used where it lies)",
                    model_file_path(mf), (unsigned long long)turned, (unsigned long long)memory);
    return PV_OK;
}

enum pv_status decoder_experts_open(struct decoder *dec, const struct model_file *mf,
                                    struct pv_error *err)
{
    size_t n = (size_t)config_n_sparse(&dec->c), layers = (size_t)dec->c.n_layers;
    struct decoder_experts *x;
    enum pv_status s = check(dec, mf, err);
    if (s)
        return s;
    x = dec->experts = mem_zalloc(sizeof *x);
    if (!x)
        return fail_nomem(err, sizeof *x);
    x->n_sparse = (int)n;
    x->layer = mem_zalloc(layers * sizeof *x->layer);
    x->matrix = mem_zalloc(n * 3 * (size_t)dec->c.n_experts * sizeof *x->matrix);
    x->block = mem_zalloc(n * BLOCKS * sizeof *x->block);
    if (!x->layer || !x->matrix || !x->block)
        return fail_nomem(err, n * 3 * (size_t)dec->c.n_experts * sizeof *x->matrix);
    for (int i = 0, sparse = 0; i < dec->c.n_layers && !s; i++)
        if (dec->c.sparse[i])
            s = take_layer(dec, mf, i, sparse++, err);
    return s;
}

void decoder_experts_close(struct decoder *dec)
{
    struct decoder_experts *x = dec->experts;
    if (!x)
        return;
    for (int i = 0; x->layer && i < dec->c.n_layers; i++) {
        if (dec->dev->ops->drop_experts)
            dec->dev->ops->drop_experts(dec->dev, &x->layer[i]);
        weights_drop(dec->dev, &x->layer[i].router);
    }
    for (size_t i = 0; x->matrix && i < (size_t)x->n_sparse * 3 * (size_t)dec->c.n_experts; i++)
        weights_drop(dec->dev, &x->matrix[i]);
    for (int i = 0; x->block && i < x->n_sparse * BLOCKS; i++)
        mem_free(x->block[i]);
    mem_free(x->layer);
    mem_free(x->matrix);
    mem_free(x->block);
    mem_free(x);
    dec->experts = NULL;
}

uint64_t decoder_copied(const struct decoder *dec)
{
    return dec->experts ? dec->experts->copied : 0;
}
