/* Writing the experts of a directory's layer as llama.cpp has them in GGUF: one tensor of three
 * dimensions per role, whatever the layout of the directory. One expert is in memory at a time. */
#include "base/mem.h"
#include "format/model_file_job.h"

#include <stdio.h>

/* One expert's matrix in rows, as a tensor of that shape. */
static enum pv_status write_expert(struct write_job *j, const struct expert_weight *w, int out,
                                   int in, void *rows, enum dtype to, struct pv_error *err)
{
    struct tensor t = { .name = w->t->name,
                        .dtype = w->t->dtype,
                        .n_dims = 2,
                        .dim = { out, in },
                        .data = w->data,
                        .size = (size_t)out * dtype_row_size(w->t->dtype, in) };

    if (w->step) {
        expert_weight_copy(rows, w, out, in);
        t.data = rows;
    }
    return write_tensor(j, &t, to, err);
}

enum pv_status write_experts(struct write_job *j, int layer, bool data, struct pv_error *err)
{
    static const char *const names[] = { "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps" };
    const struct config *c = &j->mf->config;
    const struct expert_tensors *x = model_file_experts(j->mf, layer);
    size_t size = sizeof(float) * (size_t)c->hidden * (size_t)c->expert_ffn; /* of any plain type */
    void *rows = data ? mem_alloc(size) : NULL;
    char name[GGUF_MAX_NAME + 1];
    enum pv_status s = data && !rows ? fail_nomem(err, size) : PV_OK;

    for (int i = 0; i < 3 && !s; i++) {
        int out = i < 2 ? c->expert_ffn : c->hidden, in = i < 2 ? c->hidden : c->expert_ffn;
        const int64_t dim[] = { c->n_experts, out, in };
        enum dtype to = in % dtype_block(j->type) ? DTYPE_F16 : j->type;
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, names[i]);
        if (!data)
            gguf_writer_tensor(j->w, name, to, 3, dim);
        for (int e = 0; e < c->n_experts && data && !s; e++) {
            const struct expert_weight *w[] = { &x[e].gate, &x[e].up, &x[e].down };
            s = write_expert(j, w[i], out, in, rows, to, err);
        }
    }
    mem_free(rows);
    return s;
}
