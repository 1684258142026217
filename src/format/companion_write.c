/* Writing the file of a draft head or a vision adaptor as GGUF: keys, the list of tensors, then
 * their values, under a temporary name until all of it is written. */
#include "format/companion_file.h"
#include "format/model_file_job.h"

static enum pv_status write_tensors(struct write_job *j, const struct companion_contents *c,
                                    bool data, struct pv_error *err)
{
    char name[GGUF_MAX_NAME + 1];
    enum pv_status s = PV_OK;
    for (int i = 0; i < c->n_tensors && !s; i++) {
        const struct tensor *t = c->tensor(c->file, i, name, sizeof name);
        enum dtype to;
        if (!t)
            continue;
        to = t->n_dims < 2 ? DTYPE_F32 : write_matrix_type(tensor_cols(t), j->type);
        if (data)
            s = write_tensor(j, t, to, err);
        else
            gguf_writer_tensor(j->w, name, to, t->n_dims, t->dim);
    }
    return s;
}

enum pv_status companion_write_gguf(const struct companion_file *f,
                                    const struct companion_contents *contents, const char *out_path,
                                    enum dtype type, const struct write_watch *watch,
                                    struct pv_error *err)
{
    struct write_job j = { .path = f->path, .type = type, .watch = watch };
    enum pv_status s = write_job_open(&j, out_path, err);
    if (!s)
        s = gguf_writer_open(&j.w, out_path, watch, err);
    if (!s) {
        contents->keys(&j, contents->file);
        s = write_tensors(&j, contents, false, err);
    }
    if (!s)
        s = gguf_writer_begin(j.w, err);
    if (!s)
        s = write_tensors(&j, contents, true, err);
    if (!s)
        s = gguf_writer_commit(&j.w, err);
    gguf_writer_abandon(&j.w);
    write_job_close(&j);
    return s;
}
