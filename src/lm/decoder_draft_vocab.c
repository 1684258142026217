/* Draft vocabularies: a drafter that scores only the tokens that matter reads only their rows of
 * the output matrix, which is the larger part of what a small drafter reads. */
#include "lm/decoder_parts.h"
#include "tensor/quant.h"
#include "tensor/weights.h"

#include <string.h>

enum pv_status decoder_put_names(struct decoder *dec, const int32_t *ids, int n,
                                 struct pv_error *err)
{
    size_t size = (size_t)n * sizeof *ids;
    void *there = NULL;
    enum pv_status s = device_alloc(dec->dev, &there, size, err);
    if (s)
        return s;
    dec->dev->ops->upload(dec->dev, there, ids, size);
    dec->names = there;
    return PV_OK;
}

static enum pv_status check_ids(const struct decoder *dec, const struct tensor *lm_head,
                                const int32_t *ids, int n, struct pv_error *err)
{
    if (dec->draft_ids)
        return fail(err, PV_E_ARG, "a drafter that scores %d tokens has a draft vocabulary already",
                    dec->c.vocab);
    if (n < 1 || n > tensor_rows(lm_head))
        return fail(err, PV_E_ARG, "a draft vocabulary of %d of %lld tokens", n,
                    (long long)tensor_rows(lm_head));
    for (int i = 0; i < n; i++)
        if (ids[i] < (i ? ids[i - 1] + 1 : 0) || ids[i] >= tensor_rows(lm_head))
            return fail(err, PV_E_ARG,
                        "token %d of a draft vocabulary is %d, out of order or not below %lld", i,
                        (int)ids[i], (long long)tensor_rows(lm_head));
    return PV_OK;
}

/* The type of the copied rows. Those of a draft head with quantised weights are quantised as well,
 * because they are the larger part of what it reads then. */
static enum dtype type_of_rows(const struct decoder *dec, const struct tensor *lm_head)
{
    bool packed = dec->is_draft_head && dtype_block(dec->fc.dtype) > 1;
    if (packed && dtype_block(lm_head->dtype) == 1 &&
        tensor_cols(lm_head) % dtype_block(DTYPE_Q8_0) == 0)
        return DTYPE_Q8_0;
    return lm_head->dtype;
}

/* The rows of the tensor, copied together as `type`. NULL: not enough memory. */
static void *copy_rows(const struct tensor *t, const int32_t *ids, int n, enum dtype type)
{
    int64_t cols = tensor_cols(t);
    size_t from = dtype_row_size(t->dtype, cols), to = dtype_row_size(type, cols);
    uint8_t *rows = mem_alloc(to * (size_t)n);
    float *row = type == t->dtype ? NULL : mem_alloc((size_t)cols * sizeof *row);
    for (int i = 0; i < n && rows && (row || type == t->dtype); i++) {
        const uint8_t *src = (const uint8_t *)t->data + from * (size_t)ids[i];
        if (row) {
            row_to_f32(row, src, t->dtype, cols);
            row_from_f32(rows + to * (size_t)i, row, type, cols);
        } else
            memcpy(rows + to * (size_t)i, src, to);
    }
    if (!row && type != t->dtype) {
        mem_free(rows);
        rows = NULL;
    }
    mem_free(row);
    return rows;
}

enum pv_status decoder_draft_vocab(struct decoder *dec, const struct tensor *lm_head,
                                   const int32_t *ids, int n, struct pv_error *err)
{
    enum dtype type = type_of_rows(dec, lm_head);
    size_t size = (size_t)n * (dtype_row_size(type, tensor_cols(lm_head)) + sizeof *ids);
    bool own = dec->is_draft_head ? dec->own_lm_head : !dec->tied;
    struct tensor kept = *lm_head;
    struct matrix m = { 0 };
    int32_t *own_ids;
    void *rows;
    enum pv_status s = check_ids(dec, lm_head, ids, n, err);
    if (s)
        return s;
    own_ids = mem_alloc((size_t)n * sizeof *ids);
    rows = copy_rows(lm_head, ids, n, type);
    s = own_ids && rows ? decoder_put_names(dec, ids, n, err) : fail_nomem(err, size);
    kept.data = rows;
    kept.dtype = type;
    if (!s)
        s = weights_take(dec->dev, &m, weights_matrix(&kept, n, (int)tensor_cols(lm_head), NULL),
                         err);
    if (s) {
        mem_free(own_ids);
        mem_free(rows);
        if (dec->names)
            dec->dev->ops->free(dec->dev, dec->names);
        dec->names = NULL;
        return s;
    }
    if (own)
        weights_drop(dec->dev, &dec->lm_head);
    memcpy(own_ids, ids, (size_t)n * sizeof *ids);
    dec->lm_head = m;
    dec->tied = false;
    dec->own_lm_head = true;
    dec->own_rows = rows;
    dec->draft_ids = dec->own_ids = own_ids;
    dec->c.vocab = n;
    return PV_OK;
}
