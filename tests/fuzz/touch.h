/* What must hold of weights that a reader has accepted: every tensor is found by its name, has the
 * bytes that its shape and type need, and both ends of it can be read. */
#ifndef PV_TESTS_FUZZ_TOUCH_H
#define PV_TESTS_FUZZ_TOUCH_H

#include "format/gguf.h"
#include "format/head_file.h"
#include "format/safetensors_hf.h"
#include "format/vision_adaptor_file.h"
#include "tensor/quant.h"

#include <stdlib.h>
#include <string.h>

/* A failure must say why. */
static inline void must_say_why(const struct pv_error *err)
{
    if (err->code == PV_OK || !err->text[0])
        abort();
}

static inline void touch_ends(const struct tensor *t)
{
    volatile uint8_t sink = 0;
    const uint8_t *p = t->data;
    if (t->size)
        sink ^= p[0] ^ p[t->size - 1];
    (void)sink;
}

static inline void touch_safetensors(const struct safetensors *st)
{
    for (int i = 0; i < safetensors_n_tensors(st); i++) {
        const struct tensor *t = safetensors_tensor(st, i);
        if (safetensors_find(st, t->name) != t)
            abort();
        if (tensor_rows(t) * tensor_cols(t) * dtype_block_size(t->dtype) != (int64_t)t->size)
            abort();
        touch_ends(t);
    }
}

static inline void touch_gguf(const struct gguf *g)
{
    float row[DTYPE_BLOCK_MAX];

    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const struct tensor *t = gguf_tensor(g, i);
        const uint8_t *p = t->data;
        int block = dtype_block(t->dtype);
        if (gguf_tensor_find(g, t->name) != t || t->size == 0)
            abort();
        touch_ends(t);
        row_to_f32(row, p, t->dtype, block);
        row_is_finite(p + t->size - dtype_row_size(t->dtype, block), t->dtype, block);
    }
}

/* The tensors in a struct of pointers to them. */
static inline void touch_bound(const void *tensors, size_t size)
{
    for (size_t at = 0; at < size; at += sizeof(void *)) {
        const struct tensor *t;
        memcpy(&t, (const char *)tensors + at, sizeof t);
        if (t && dtype_row_size(t->dtype, tensor_cols(t)) * (size_t)tensor_rows(t) != t->size)
            abort(); /* a view must be as large as its shape says */
        if (t)
            touch_ends(t);
    }
}

/* A draft head. The tokens that it drafts are ids: what is accepted indexes tables with them. */
static inline void touch_head(const struct head_file *hf)
{
    const int32_t *ids = head_file_draft_ids(hf);
    int n = ids ? head_file_config(hf)->draft_vocab : 0;

    touch_bound(head_file_tensors(hf), sizeof *head_file_tensors(hf));
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= CONFIG_MAX_VOCAB || (i > 0 && ids[i] == ids[i - 1]))
            abort();
}

/* A vision adaptor: what is accepted has the matrices that its sizes say. */
static inline void touch_adaptor(const struct vision_adaptor_file *af)
{
    const struct vision_adaptor_config *c = vision_adaptor_file_config(af);
    const struct vision_adaptor_tensors *t = vision_adaptor_file_tensors(af);

    if (!t->norm || !t->up || !t->down || t->up->dim[0] != c->middle || t->up->dim[1] != c->in ||
        t->down->dim[0] != c->out || t->norm->dim[0] != c->in || !(c->eps > 0))
        abort();
    touch_bound(t, sizeof *t);
}

#endif
