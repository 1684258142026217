/* The device, hollow files, and models with random weights.
 *
 * A GPU draws the weights at random (device.draws). On the CPU, which is only for trying out this
 * program, they are those of the hollow file: zeros. */
#include "family/families.h"
#include "gpu_rig.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- times ---- */

void timings_add(struct timings *t, double seconds)
{
    if (t->n < RIG_MAX_SAMPLES)
        t->s[t->n++] = seconds;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double timings_at(const struct timings *t, double part)
{
    double sorted[RIG_MAX_SAMPLES];
    memcpy(sorted, t->s, sizeof *sorted * (size_t)t->n);
    qsort(sorted, (size_t)t->n, sizeof *sorted, compare);
    return sorted[(int)(part * (t->n - 1) + 0.5)];
}

/* ---- the device ---- */

static enum pv_status open_device(const struct rig *r, struct device **out, struct pv_error *err)
{
    enum pv_status s = r->gpu ? device_cuda_open(out, r->index, err)
                              : device_cpu_open(out, cpu_count(), cpu_flags(), err);
    if (!s) {
        (*out)->draws = (*out)->ops->draw != NULL;
        (*out)->repacks = true;
    }
    return s;
}

enum pv_status rig_open(struct rig *r, struct pv_error *err)
{
    return open_device(r, &r->dev, err);
}

void rig_close(struct rig *r)
{
    device_close(&r->dev);
}

size_t rig_used(const struct rig *r)
{
    size_t left, all;
    r->dev->ops->room(r->dev, &left, &all);
    return all - left;
}

/* ---- read speed ---- */

enum { READ_PASSES = 8, READ_DIM = 1 << 16, READ_IN = 8192 };

/* Seconds of one pass, the best of several. */
static enum pv_status time_passes(struct device *dev, struct device_work *w, const struct matrix *m,
                                  const float *x, float *y, int32_t *ids, int rows, double *seconds,
                                  struct pv_error *err)
{
    struct work_plan plan = { 0 };
    struct matmul_job job = { m, y, (size_t)m->out };
    *seconds = 1e9;
    for (int i = 0; i < READ_PASSES; i++) {
        double start = clock_now(), t;
        enum pv_status s;
        if (dev->ops->begin(w, &plan)) {
            if (rows)
                dev->ops->argmax(w, ids, x, rows, READ_DIM);
            else
                dev->ops->matmul(w, &job, 1, x, 1);
        }
        dev->ops->end(w);
        s = dev->ops->wait(w, err);
        t = clock_now() - start;
        if (s)
            return s;
        *seconds = t < *seconds ? t : *seconds;
    }
    return PV_OK;
}

enum pv_status rig_read_speed(struct rig *r, size_t size, double *speed, struct pv_error *err)
{
    struct device *dev = r->dev;
    int rows = (int)(size / sizeof(float) / READ_DIM), out = (int)(size / 2 / READ_IN);
    struct work_shape shape = { .rows = rows,
                                .in = READ_IN,
                                .n_heads = 1,
                                .n_kv_heads = 1,
                                .head_dim = 64,
                                .context = KV_CHUNK,
                                .kv_dtype = DTYPE_BF16,
                                .out = out > READ_DIM ? out : READ_DIM };
    struct matrix m = { .dtype = DTYPE_BF16, .out = out, .in = READ_IN, .row_size = 2 * READ_IN };
    struct device_work *w = NULL;
    void *x = NULL, *y = NULL, *ids = NULL;
    double largest = 1e9, product = 1e9;
    enum pv_status s = dev->ops->work_open(dev, &w, &shape, err);
    *speed = 0;
    if (!s)
        s = device_alloc(dev, &x, size, err);
    if (!s)
        s = device_alloc(dev, &y, sizeof(float) * (size_t)shape.out, err);
    if (!s)
        s = device_alloc(dev, &ids, sizeof(int32_t) * (size_t)rows, err);
    if (!s)
        s = time_passes(dev, w, &m, x, y, ids, rows, &largest, err);
    if (!s && dev->ops->draw)
        s = dev->ops->draw(dev, &m, 1, err);
    if (!s && m.data)
        s = time_passes(dev, w, &m, x, y, ids, 0, &product, err);
    if (m.data)
        dev->ops->drop(dev, &m);
    dev->ops->free(dev, x);
    dev->ops->free(dev, y);
    dev->ops->free(dev, ids);
    dev->ops->work_close(dev, &w);
    if (!s)
        *speed = (double)size / (largest < product ? largest : product);
    return s;
}

/* ---- files ---- */

static enum pv_status make_file(const struct rig *r, const struct rig_model *m, int layers,
                                const char *path, struct pv_error *err)
{
    char number[16];
    const char *argv[12] = { r->program, "--shape",  m->shape, "--type",
                             m->type,    "--hollow", path,     NULL };
    int status = 0;
    pid_t pid;
    snprintf(number, sizeof number, "%d", layers);
    if (layers) {
        argv[7] = "--layers";
        argv[8] = number;
    }
    if (mkdir(r->folder, 0777) != 0 && errno != EEXIST)
        return fail(err, PV_E_IO, "%s: %s", r->folder, strerror(errno));
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        execv(argv[0], (char **)(uintptr_t)argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status))
        return fail(err, PV_E_IO, "%s could not make a hollow model %s of type %s", r->program,
                    m->shape, m->type);
    return PV_OK;
}

static enum pv_status open_file(struct rig_model *m, const struct rig *r, int layers,
                                struct pv_error *err)
{
    char path[1024], suffix[16] = "";
    struct stat st;
    enum pv_status s = PV_OK;
    if (layers)
        snprintf(suffix, sizeof suffix, "-%d", layers);
    snprintf(path, sizeof path, "%s/%s%s-%s.gguf", r->folder, m->shape, suffix, m->type);
    if (stat(path, &st) != 0)
        s = make_file(r, m, layers, path, err);
    return s ? s : model_file_open(&m->mf, path, NULL, 0, families, err);
}

/* ---- models ---- */

enum pv_status rig_model_open(struct rig_model *m, struct rig *r, const char *name, int layers,
                              bool decoder, struct pv_error *err)
{
    const char *colon = strchr(name, ':');
    double start = clock_now();
    enum pv_status s;
    *m = (struct rig_model){ .dev = r->dev, .kv = r->kv };
    if (!colon)
        return fail(err, PV_E_ARG, "%s is not SHAPE:TYPE", name);
    snprintf(m->shape, sizeof m->shape, "%.*s", (int)(colon - name), name);
    snprintf(m->type, sizeof m->type, "%s", colon + 1);
    s = open_file(m, r, layers, err);
    if (!s && !r->gpu) {
        s = open_device(r, &m->dev, err);
        m->own_device = !s;
    }
    if (!s && decoder)
        s = decoder_open(&m->dec, m->mf, m->dev, err);
    if (s)
        rig_model_close(m);
    m->open_s = clock_now() - start;
    return s;
}

enum pv_status rig_model_narrow(struct rig_model *m, const struct rig *r, struct pv_error *err)
{
    int n = r->draft_vocab;
    int32_t *ids;
    enum pv_status s;
    if (n == 0 || n >= decoder_config(m->dec)->vocab)
        return PV_OK;
    ids = mem_alloc((size_t)n * sizeof *ids);
    if (!ids)
        return fail_nomem(err, (size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++)
        ids[i] = i;
    s = decoder_draft_vocab(m->dec, model_file_lm_head(m->mf), ids, n, err);
    mem_free(ids);
    return s;
}

void rig_model_close(struct rig_model *m)
{
    decoder_close(&m->dec);
    if (m->own_device)
        device_close(&m->dev);
    model_file_close(&m->mf);
}

static int layer_matrices(const struct rig_model *m, int layer, const struct tensor *out[7])
{
    const struct layer_tensors *l = model_file_layer(m->mf, layer);
    const struct tensor *all[7] = { l->q, l->k, l->v, l->o, l->gate, l->up, l->down };
    memcpy(out, all, sizeof all);
    return l->gate ? 7 : 4;
}

/* Expected number of experts of a layer that so many rows use, if each chooses at random. */
static double experts_used(const struct config *c, int rows)
{
    double missed = 1;
    for (int i = 0; i < rows && missed > 1e-6; i++)
        missed *= 1 - (double)c->n_used / c->n_experts;
    return c->n_experts * (1 - missed);
}

double rig_weight_bytes(const struct rig_model *m, int rows)
{
    const struct config *c = model_file_config(m->mf);
    const struct tensor *t[7];
    double bytes = (double)model_file_lm_head(m->mf)->size;
    bytes *= (double)decoder_config(m->dec)->vocab / decoder_input_vocab(m->dec);
    for (int i = 0; i < c->n_layers; i++) {
        for (int k = 0; k < layer_matrices(m, i, t); k++)
            bytes += (double)t[k]->size;
        if (c->sparse[i])
            bytes +=
                (double)model_file_experts_size(m->mf, i) / c->n_experts * experts_used(c, rows) +
                (double)model_file_layer(m->mf, i)->router->size;
    }
    return bytes;
}

double rig_kv_bytes(const struct rig_model *m, int slots)
{
    const struct config *c = model_file_config(m->mf);
    double page = (double)kv_page_size(m->kv, c->n_layers, c->n_kv_heads, c->head_dim);
    return page / KV_CHUNK * slots;
}

/* In the last layer, only wanted rows continue after attention. */
double rig_operations(const struct rig_model *m, int context, int n, int wanted)
{
    const struct config *c = model_file_config(m->mf);
    const struct tensor *t[7];
    double slots = (double)n * context + 0.5 * n * (n + 1.0);
    double ops = 2.0 * (double)c->hidden * c->vocab * wanted;
    for (int i = 0; i < c->n_layers; i++) {
        for (int k = 0; k < layer_matrices(m, i, t); k++)
            ops += 2.0 * (double)tensor_rows(t[k]) * (double)tensor_cols(t[k]) *
                   (i == c->n_layers - 1 && k >= 3 ? wanted : n);
        ops += 4.0 * c->n_heads * c->head_dim * slots;
    }
    return ops;
}
