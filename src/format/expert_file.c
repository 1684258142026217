/* The experts of a layer, found in the three layouts that files have (doc/experts.md):
 *
 *   GGUF             ffn_gate_exps [E, I, H], ffn_up_exps [E, I, H], ffn_down_exps [E, H, I]
 *   one by one       mlp.experts.N.{gate,up,down}_proj.weight, [I, H] [I, H] [H, I]
 *   gate with up     mlp.experts.gate_up_proj [E, H, 2I] and down_proj [E, I, H]: transposed, as
 * the hub has Qwen3-VL-MoE; or [E, 2I, H] and [E, H, I], as transformers has them in memory. Shapes
 * say which; where one of the two tensors is square the other says it, and both must say the same.
 *
 * E experts, H hidden, I feed-forward size of an expert. Nothing is copied here: a matrix is where
 * it begins, and how far apart its rows lie. */
#include "format/model_file_parts.h"
#include "format/tensor_expect.h"

#include <stdio.h>
#include <string.h>

enum { EXPERT_NAME_SIZE = 160, TRANSPOSE_TILE = 32 };

/* One layer whose experts are being bound. */
struct binding {
    const struct model_file *mf;
    struct expert_tensors *to; /* [E] */
    int layer;
    int64_t experts, hidden, ffn;
};

/* Find the tensor that the layer calls `name`, which may have an expert's number before it. */
static enum pv_status find(const struct binding *b, const char *name, int expert,
                           const struct tensor **out, struct pv_error *err)
{
    char full[EXPERT_NAME_SIZE];

    if (b->mf->gguf)
        snprintf(full, sizeof full, "blk.%d.%s", b->layer, name);
    else if (expert < 0)
        snprintf(full, sizeof full, "%slayers.%d.mlp.experts.%s", b->mf->text_prefix, b->layer,
                 name);
    else
        snprintf(full, sizeof full, "%slayers.%d.mlp.experts.%d.%s", b->mf->text_prefix, b->layer,
                 expert, name);
    *out = model_file_find(b->mf, full);
    if (!*out && err)
        return fail(err, PV_E_FORMAT, "%s: the tensor %s is missing", b->mf->path, full);
    return *out ? PV_OK : PV_E_FORMAT;
}

/* The matrix that begins `row` rows into the tensor, seen as rows of its last dimension. */
static struct expert_weight rows_from(const struct tensor *t, int64_t row)
{
    size_t row_size = dtype_row_size(t->dtype, tensor_cols(t));
    return (struct expert_weight){ t, (const uint8_t *)t->data + (size_t)row * row_size, 0 };
}

static enum pv_status bind_gguf(const struct binding *b, struct pv_error *err)
{
    const int64_t wide[] = { b->experts, b->ffn, b->hidden };
    const int64_t back[] = { b->experts, b->hidden, b->ffn };
    const struct {
        const char *name;
        const int64_t *dim;
    } roles[] = { { "ffn_gate_exps.weight", wide },
                  { "ffn_up_exps.weight", wide },
                  { "ffn_down_exps.weight", back } };

    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const struct tensor *t = NULL;
        enum pv_status s = find(b, roles[i].name, -1, &t, err);
        if (!s)
            s = tensor_expect(t, roles[i].dim, 3, b->mf->path, err);
        if (s)
            return s;
        for (int64_t e = 0; e < b->experts; e++) {
            struct expert_weight *w[] = { &b->to[e].gate, &b->to[e].up, &b->to[e].down };
            *w[i] = rows_from(t, e * roles[i].dim[1]);
        }
    }
    return PV_OK;
}

static enum pv_status bind_single(const struct binding *b, struct pv_error *err)
{
    static const char *const names[] = { "gate_proj.weight", "up_proj.weight", "down_proj.weight" };
    const int64_t wide[] = { b->ffn, b->hidden }, back[] = { b->hidden, b->ffn };
    const struct tensor *t = NULL;

    for (int e = 0; e < b->experts; e++) {
        struct expert_weight *w[] = { &b->to[e].gate, &b->to[e].up, &b->to[e].down };
        for (int i = 0; i < 3; i++) {
            enum pv_status s = find(b, names[i], e, &t, err);
            if (!s)
                s = tensor_expect(t, i < 2 ? wide : back, 2, b->mf->path, err);
            if (s)
                return s;
            *w[i] = rows_from(t, 0);
        }
    }
    if (!find(b, names[0], (int)b->experts, &t, NULL))
        return fail(err, PV_E_FORMAT, "%s: the tensor %s is there, but num_experts is %d",
                    b->mf->path, t->name, (int)b->experts);
    return PV_OK;
}

static bool has_shape(const struct tensor *t, int64_t a, int64_t b, int64_t c)
{
    return t->n_dims == 3 && t->dim[0] == a && t->dim[1] == b && t->dim[2] == c;
}

/* The parts of [E, 2I, H] and [E, H, I], or transposed of [E, H, 2I] and [E, I, H]. */
static void split_fused(const struct binding *b, const struct tensor *gate_up,
                        const struct tensor *down, bool transposed)
{
    size_t one = dtype_row_size(gate_up->dtype, 1);

    for (int64_t e = 0; e < b->experts; e++) {
        struct expert_tensors *x = &b->to[e];
        x->gate = rows_from(gate_up, e * (transposed ? b->hidden : 2 * b->ffn));
        x->up = rows_from(gate_up,
                          e * (transposed ? b->hidden : 2 * b->ffn) + (transposed ? 0 : b->ffn));
        x->down = rows_from(down, e * (transposed ? b->ffn : b->hidden));
        if (!transposed)
            continue;
        x->up.data = (const uint8_t *)x->up.data + (size_t)b->ffn * one;
        x->gate.step = x->up.step = 2 * (size_t)b->ffn * one;
        x->down.step = dtype_row_size(down->dtype, b->hidden);
    }
}

static enum pv_status bind_fused(const struct binding *b, struct pv_error *err)
{
    const struct tensor *gate_up = NULL, *down = NULL;
    const int64_t want[2][3] = { { b->experts, b->hidden, 2 * b->ffn },
                                 { b->experts, b->ffn, b->hidden } };
    bool turned, straight;
    enum pv_status s = find(b, "gate_up_proj", -1, &gate_up, err);

    if (!s)
        s = find(b, "down_proj", -1, &down, err);
    if (s)
        return s;
    turned = has_shape(gate_up, want[0][0], want[0][1], want[0][2]) &&
             has_shape(down, want[1][0], want[1][1], want[1][2]);
    straight = has_shape(gate_up, b->experts, 2 * b->ffn, b->hidden) &&
               has_shape(down, b->experts, b->hidden, b->ffn);
    if (!straight)
        s = tensor_expect(gate_up, want[0], 3, b->mf->path, err);
    if (!s && !straight)
        s = tensor_expect(down, want[1], 3, b->mf->path, err);
    if (!s)
        s = tensor_expect_plain(gate_up, b->mf->path, err);
    if (!s)
        s = tensor_expect_plain(down, b->mf->path, err);
    if (!s)
        split_fused(b, gate_up, down, turned);
    return s;
}

enum pv_status expert_file_bind(struct model_file *mf, int layer, struct pv_error *err)
{
    const struct config *c = &mf->config;
    const struct binding b = { .mf = mf,
                               .to = mf->experts + (size_t)layer * (size_t)c->n_experts,
                               .layer = layer,
                               .experts = c->n_experts,
                               .hidden = c->hidden,
                               .ffn = c->expert_ffn };
    const struct tensor *fused = NULL;

    if (mf->gguf)
        return bind_gguf(&b, err);
    return find(&b, "gate_up_proj", -1, &fused, NULL) ? bind_single(&b, err) : bind_fused(&b, err);
}

uint64_t model_file_experts_size(const struct model_file *mf, int layer)
{
    const struct expert_tensors *x = model_file_experts(mf, layer);
    int64_t elements = (int64_t)mf->config.hidden * mf->config.expert_ffn;
    uint64_t sum = 0;

    for (int e = 0; x && e < mf->config.n_experts; e++)
        sum += dtype_row_size(x[e].gate.t->dtype, elements) +
               dtype_row_size(x[e].up.t->dtype, elements) +
               dtype_row_size(x[e].down.t->dtype, elements);
    return sum;
}

/* A tile of at most TRANSPOSE_TILE x TRANSPOSE_TILE elements of `one` bytes. */
static void turn_tile(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, int out,
                      int in, size_t one)
{
    for (int o = 0; o < out; o++)
        for (int i = 0; i < in; i++)
            memcpy(to + (size_t)o * to_step + (size_t)i * one,
                   from + (size_t)i * from_step + (size_t)o * one, one);
}

void expert_weight_copy(void *to, const struct expert_weight *w, int out, int in)
{
    size_t row = dtype_row_size(w->t->dtype, in), one = dtype_row_size(w->t->dtype, 1);

    if (!w->step) {
        memcpy(to, w->data, (size_t)out * row);
        return;
    }
    for (int o = 0; o < out; o += TRANSPOSE_TILE)
        for (int i = 0; i < in; i += TRANSPOSE_TILE)
            turn_tile((uint8_t *)to + (size_t)o * row + (size_t)i * one, row,
                      (const uint8_t *)w->data + (size_t)i * w->step + (size_t)o * one, w->step,
                      out - o < TRANSPOSE_TILE ? out - o : TRANSPOSE_TILE,
                      in - i < TRANSPOSE_TILE ? in - i : TRANSPOSE_TILE, one);
}
