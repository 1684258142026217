/* The layers of decoders and towers, composed of kernels. Few rows: each product reads its weights
 * once, and its epilogue adds, gates and rounds. Many rows: products of the library (cuBLASLt),
 * with BF16 activations between them. */
#include "kernels/cuda/experts.h"
#include "kernels/cuda/matmul_few.h"

static size_t stride_of(int n)
{
    return (size_t)((n + 63) / 64 * 64);
}

/* ---- the decoder's layer ---- */

/* Compute the input of the q, k and v products. A draft head's layer may have no norm before them.
 */
static void norm_input(struct device_work *w, const struct attn_block *b, enum dtype t)
{
    const struct layer_shape *s = b->shape;
    size_t hidden = (size_t)s->hidden;
    if (b->wide)
        convert_rows(w, w->xn, t, 2 * hidden, b->wide, DTYPE_F32, 2 * hidden, b->n, 2 * s->hidden);
    else if (b->w->attn_norm)
        norm_rows(w, w->xn, t, b->x, b->w->attn_norm, NULL, b->n, s->hidden, s->eps);
    else
        convert_rows(w, w->xn, t, hidden, b->x, DTYPE_F32, hidden, b->n, s->hidden);
}

/* Scratch [rows, hidden / 8] for the sums of squares; w->mid2 is otherwise used only with many rows
 * and for gate and up of different types. */
float *norm_sums(const struct device_work *w)
{
    return (float *)w->mid2;
}

bool norm_inside(const struct device_work *w, const float *weight, const struct layer_shape *s,
                 const struct matrix *const *m, int n)
{
    return weight && m[0]->in == s->hidden && s->hidden <= 8 * s->ffn && few_takes_norm(w, m, n);
}

/* Look up the embeddings that the first layer begins with. On a GPU whose products apply norms,
 * also prepare the rows for the first layer's norm, so that no norm kernel is needed if its
 * matrices allow that. */
void block_embed(struct device_work *w, float *y, const struct matrix *table, const int32_t *ids,
                 int n, const float *next_norm)
{
    struct few_norm out = {};
    bool ready = next_norm && few_hopper_ready(w) && table->in == w->shape.hidden &&
                 table->in % 64 == 0 && table->in <= 8 * w->shape.ffn;
    if (ready) {
        out.weight = next_norm;
        out.xn = (uint16_t *)w->xn;
        out.sums = norm_sums(w);
    }
    matrix_rows(w, y, cuda_of(table), ids, n, &out);
    w->normed = ready ? y : NULL;
    w->normed_by = next_norm;
    w->n_normed = n;
}

/* Returns true if the product has already applied RoPE and written the cache. */
static bool qkv_few(struct device_work *w, const struct attn_block *b)
{
    const struct layer_weights *l = b->w;
    const struct layer_shape *s = b->shape;
    size_t q = (size_t)(s->n_heads * s->head_dim), kv = (size_t)(s->n_kv_heads * s->head_dim);
    struct matmul_job jobs[] = { { &l->q, w->q, q }, { &l->k, w->k, kv }, { &l->v, w->v, kv } };
    const struct matrix *m[] = { &l->q, &l->k, &l->v };
    struct few_norm none = {};
    bool ready = w->normed == b->x && w->normed_by == l->attn_norm && w->n_normed == b->n;
    w->normed = NULL;
    if (norm_inside(w, l->attn_norm, s, m, 3)) {
        struct few_norm in = {};
        in.squares = norm_sums(w);
        in.eps = s->eps;
        if (!ready)
            norm_prepare(w, (uint16_t *)w->xn, norm_sums(w), b->x, l->attn_norm, b->n, s->hidden);
        if (qkv_few_thin(w, b, w->xn, &in) || qkv_few_packed(w, b, w->xn, &in))
            return true;
        matmul_few_normed(w, jobs, 3, w->xn, b->n, false, &in);
        return false;
    }
    for (int j = 0; j < 3;) {
        enum dtype t = few_x_dtype(m[j]);
        int end = j + 1;
        while (end < 3 && few_x_dtype(m[end]) == t)
            end++;
        norm_input(w, b, t);
        if (j == 0 && t == DTYPE_BF16 && end == 3 && qkv_few_thin(w, b, w->xn, &none))
            return true;
        matmul_few(w, jobs + j, end - j, w->xn, b->n, false);
        j = end;
    }
    return false;
}

/* The first row whose attention is needed; b->n: none is. */
static int first_needed(const struct attn_block *b)
{
    int first = b->needed ? b->n : 0;
    for (int i = 0; i < b->n_runs && b->needed; i++) {
        const struct attn_run *r = &b->runs[i];
        if (b->needed[i] > 0 && r->row0 + r->n - b->needed[i] < first)
            first = r->row0 + r->n - b->needed[i];
    }
    return first;
}

/* k and v of all rows, q of rows from `first` on. */
static void qkv_many(struct device_work *w, const struct attn_block *b, int first)
{
    const struct layer_weights *l = b->w;
    const struct matrix *m[] = { &l->q, &l->k, &l->v };
    float *y[] = { w->q, w->k, w->v };
    size_t hidden = (size_t)b->shape->hidden;
    enum dtype have = DTYPE_COUNT;
    for (int j = 0; j < 3; j++) {
        enum dtype t = few_x_dtype(m[j]);
        size_t row = j == 0 ? (size_t)first : 0, out = (size_t)m[j]->out;
        size_t element = t == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
        if (t != have)
            norm_input(w, b, t);
        have = t;
        matmul_many(w, m[j], y[j] + row * out, DTYPE_F32, out,
                    (const uint8_t *)w->xn + row * hidden * element, hidden, b->n - (int)row,
                    false);
    }
}

void block_attention(struct device_work *w, const struct attn_block *b, void *to)
{
    enum dtype out = few_x_dtype(&b->w->o);
    int first = b->bulk ? first_needed(b) : 0;
    bool turned = false;
    if (b->bulk)
        qkv_many(w, b, first);
    else
        turned = qkv_few(w, b);
    if (!turned)
        rope_kv(w, b, first < b->n ? w->q : NULL, w->k, w->v, w->q16);
    if (b->bulk && first < b->n)
        attention_many(w, b, w->q16, to, out);
    else if (!b->bulk)
        attention_few(w, b, w->q16, to, out);
}

void block_attn(struct device_work *w, const struct attn_block *b)
{
    const struct layer_shape *s = b->shape;
    float scale = 1.0f / sqrtf((float)s->head_dim);
    if (w->error != cudaSuccess) /* after an error, w->staged may belong to another step */
        return;
    block_attention(w, b, w->att);
    for (int i = 0; i < b->n_columns; i++)
        attention_columns(w, &b->columns[i], (int)(b->columns[i].run - b->runs), w->q16, s->n_heads,
                          s->head_dim, scale);
}

void block_keep_rows(struct device_work *w, const struct finish_block *b, void *att)
{
    const struct layer_shape *s = b->shape;
    enum dtype t = few_x_dtype(&b->w->o);
    int q = s->n_heads * s->head_dim, floats = t == DTYPE_F32 ? q : q / 2;
    if (b->n_rows == 1) { /* a single row can be moved in place */
        gather_rows(w, (float *)att, (const float *)att, b->rows, 1, floats);
        gather_rows(w, b->x, b->x, b->rows, 1, s->hidden);
        return;
    }
    gather_rows(w, w->gathered, (const float *)att, b->rows, b->n_rows, floats);
    work_check(w,
               cudaMemcpyAsync(att, w->gathered, sizeof(float) * (size_t)b->n_rows * (size_t)floats,
                               cudaMemcpyDeviceToDevice, w->stream),
               "a copy");
    gather_rows(w, w->gathered, b->x, b->rows, b->n_rows, s->hidden);
    work_check(w,
               cudaMemcpyAsync(b->x, w->gathered,
                               sizeof(float) * (size_t)b->n_rows * (size_t)s->hidden,
                               cudaMemcpyDeviceToDevice, w->stream),
               "a copy");
}

/* x += m y. If `next` (a norm that products apply) is given, also prepare x for it. */
static void add_product(struct device_work *w, const struct finish_block *b, const struct matrix *m,
                        const void *y, const float *next)
{
    struct matmul_job job = { m, b->x, (size_t)b->shape->hidden };
    struct few_norm norm = {};
    norm.weight = next;
    norm.xn = (uint16_t *)w->xn;
    norm.sums = norm_sums(w);
    if (next)
        matmul_few_normed(w, &job, 1, y, b->n_rows, true, &norm);
    else
        matmul_few(w, &job, 1, y, b->n_rows, true);
}

static void finish_few(struct device_work *w, const struct finish_block *b)
{
    const struct layer_weights *l = b->w;
    const struct layer_shape *s = b->shape;
    const struct matrix *mid[] = { &l->gate, &l->up }, *o = &l->o, *down = &l->down;
    bool inside = cuda_of(mid[0])->dtype == cuda_of(mid[1])->dtype &&
                  norm_inside(w, l->ffn_norm, s, mid, 2) && few_takes_norm(w, &o, 1);
    const float *next = few_takes_norm(w, &down, 1) ? b->next_norm : NULL;
    add_product(w, b, o, w->att, inside ? l->ffn_norm : NULL);
    if (inside) {
        struct few_norm in = {};
        in.squares = norm_sums(w);
        in.eps = s->eps;
        matmul_few_gated_normed(w, &l->gate, &l->up, w->mid, few_x_dtype(&l->down), w->xn,
                                b->n_rows, &in);
    } else {
        norm_rows(w, w->xn, few_x_dtype(&l->gate), b->x, l->ffn_norm, NULL, b->n_rows, s->hidden,
                  s->eps);
        matmul_few_gated(w, &l->gate, &l->up, w->mid, few_x_dtype(&l->down), w->xn, b->n_rows);
    }
    add_product(w, b, down, w->mid, next);
    w->normed = next ? b->x : NULL;
    w->normed_by = next;
    w->n_normed = b->n_rows;
}

static void finish_many(struct device_work *w, const struct finish_block *b)
{
    const struct layer_weights *l = b->w;
    const struct layer_shape *s = b->shape;
    enum dtype mid = few_x_dtype(&l->down);
    size_t hidden = (size_t)s->hidden, stride = stride_of(s->ffn);
    int n = b->n_rows;
    matmul_many(w, &l->o, b->x, DTYPE_F32, hidden, w->att, (size_t)(s->n_heads * s->head_dim), n,
                true);
    norm_rows(w, w->xn, few_x_dtype(&l->gate), b->x, l->ffn_norm, NULL, n, s->hidden, s->eps);
    matmul_many(w, &l->gate, w->mid, mid, stride, w->xn, hidden, n, false);
    matmul_many(w, &l->up, w->mid2, mid, stride, w->xn, hidden, n, false);
    gated_silu(w, w->mid, w->mid2, mid, (size_t)n * stride);
    matmul_many(w, &l->down, b->x, DTYPE_F32, hidden, w->mid, stride, n, true);
}

void norm_sparse(struct device_work *w, const struct finish_block *b, struct expert_call *c)
{
    const struct layer_shape *s = b->shape;
    enum dtype t = few_x_dtype(&b->w->experts->gate[0]);
    size_t hidden = (size_t)s->hidden;
    float *rows = w->gathered;
    norm_rows(w, rows, DTYPE_F32, b->x, b->w->ffn_norm, NULL, b->n_rows, s->hidden, s->eps);
    if (t != DTYPE_F32)
        convert_rows(w, w->xn, t, hidden, rows, DTYPE_F32, hidden, b->n_rows, s->hidden);
    c->x = rows;
    c->xn = t == DTYPE_F32 ? (const void *)rows : w->xn;
}

static void finish_sparse(struct device_work *w, const struct finish_block *b)
{
    const struct layer_weights *l = b->w;
    const struct layer_shape *s = b->shape;
    const struct matrix *o = &l->o;
    bool inside = !b->bulk && few_takes_norm(w, &o, 1) && s->hidden <= 8 * s->ffn &&
                  few_x_dtype(&l->experts->gate[0]) == DTYPE_BF16;
    struct expert_call c = {};
    c.e = l->experts;
    c.y = b->x;
    c.n = b->n_rows;
    c.add = true;
    c.bulk = b->bulk;
    if (b->bulk)
        matmul_many(w, o, b->x, DTYPE_F32, (size_t)s->hidden, w->att,
                    (size_t)(s->n_heads * s->head_dim), b->n_rows, true);
    else
        add_product(w, b, o, w->att, inside ? l->ffn_norm : NULL);
    if (inside) {
        c.x = b->x;
        c.xn = w->xn;
        c.norm_weight = l->ffn_norm;
        c.squares = norm_sums(w);
        c.eps = s->eps;
        c.next.weight = b->next_norm;
        c.next.xn = (uint16_t *)w->xn;
        c.next.sums = norm_sums(w);
        w->normed = b->next_norm ? b->x : NULL;
        w->normed_by = b->next_norm;
        w->n_normed = b->n_rows;
    } else {
        norm_sparse(w, b, &c);
    }
    experts_rows(w, &c);
}

void block_finish(struct device_work *w, const struct finish_block *b)
{
    w->normed = NULL;
    if (b->rows)
        block_keep_rows(w, b, w->att);
    if (b->w->experts)
        finish_sparse(w, b);
    else if (b->bulk)
        finish_many(w, b);
    else
        finish_few(w, b);
}

/* Norm only the wanted rows, in the type that the matrix needs, and multiply. */
void block_logits(struct device_work *w, const struct logits_job *job)
{
    struct matmul_job head = { job->w, job->y, (size_t)job->w->out };
    norm_some_rows(w, w->xn, few_x_dtype(job->w), job->x, job->rows, job->norm, job->n, job->w->in,
                   job->eps);
    matmul_few(w, &head, 1, w->xn, job->n, false);
}

/* ---- the layer of a vision tower ---- */

static void tower_attention(struct device_work *w, const struct tower_block *b)
{
    const struct tower_layer *l = b->w;
    size_t hidden = (size_t)b->hidden, stride = hidden;
    const struct matrix *m[] = { &l->q, &l->k, &l->v };
    uint16_t *y[] = { (uint16_t *)w->q, (uint16_t *)w->k, (uint16_t *)w->v };
    struct cuda_matrix joined;
    struct matrix all;
    norm_rows(w, w->xn, few_x_dtype(&l->q), b->x, l->norm1, l->norm1_bias, b->n, b->hidden, b->eps);
    if (6 * hidden <= sizeof(float) * stride_of(b->ffn) && matrix_joined(m, 3, &all, &joined)) {
        stride = 3 * hidden;
        for (int i = 0; i < 3; i++)
            y[i] = (uint16_t *)w->mid + i * hidden;
        matmul_many(w, &all, y[0], DTYPE_BF16, stride, w->xn, hidden, b->n, false);
    } else {
        for (int i = 0; i < 3; i++)
            matmul_many(w, m[i], y[i], DTYPE_BF16, stride, w->xn, hidden, b->n, false);
    }
    for (int i = 0; i < 2 && b->cos; i++)
        rope_rows(w, y[i], DTYPE_BF16, stride, b->n, b->n_heads, b->head_dim, NULL, 0, b->cos,
                  b->sin);
    attention_segments(w, w->q16, hidden, y[0], y[1], y[2], stride, b->n_heads, b->head_dim,
                       1.0f / sqrtf((float)b->head_dim), b->n_segments, b->bounds);
    if (few_x_dtype(&l->o) == DTYPE_F32)
        convert_rows(w, w->att, DTYPE_F32, hidden, w->q16, DTYPE_BF16, hidden, b->n, b->hidden);
}

void block_tower(struct device_work *w, const struct tower_block *b)
{
    const struct tower_layer *l = b->w;
    size_t hidden = (size_t)b->hidden, stride = stride_of(b->ffn);
    enum dtype mid = few_x_dtype(&l->down);
    const void *att = few_x_dtype(&l->o) == DTYPE_F32 ? w->att : w->q16;
    tower_attention(w, b);
    matmul_many(w, &l->o, b->x, DTYPE_F32, hidden, att, hidden, b->n, true);
    norm_rows(w, w->xn, few_x_dtype(&l->up), b->x, l->norm2, l->norm2_bias, b->n, b->hidden,
              b->eps);
    bool done = !l->gate.data && b->gelu == GELU_TANH && mid == DTYPE_BF16 &&
                matmul_many_gelu(w, &l->up, w->mid, stride, w->xn, hidden, b->n);
    if (!done)
        matmul_many(w, &l->up, w->mid, mid, stride, w->xn, hidden, b->n, false);
    if (l->gate.data) {
        matmul_many(w, &l->gate, w->mid2, mid, stride, w->xn, hidden, b->n, false);
        gated_silu(w, w->mid2, w->mid, mid, (size_t)b->n * stride);
    } else if (!done) {
        gelu_rows(w, w->mid, mid, (size_t)b->n * stride, b->gelu);
    }
    matmul_many(w, &l->down, b->x, DTYPE_F32, hidden, l->gate.data ? w->mid2 : w->mid, stride, b->n,
                true);
}
