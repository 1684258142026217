/* Opening a vision adaptor: numbers from the file's metadata, tensors by a table of roles, and
 * every shape checked. Also whether it fits two models, and writing it as GGUF. */
#include "base/file.h"
#include "base/mem.h"
#include "format/model_file_job.h"
#include "format/tensor_expect.h"
#include "format/vision_adaptor_parts.h"
#include "tensor/quant.h"

#ifndef PV_CORE
#include "format/safetensors_hf.h"
#endif

#include <string.h>

static const uint64_t default_file_limit = UINT64_C(1) << 40;

#define SIZE(field) offsetof(struct vision_adaptor_config, field)
#define SLOT(field) offsetof(struct vision_adaptor_tensors, field)

const struct vision_adaptor_role vision_adaptor_role[ADAPTOR_ROLE_COUNT] = {
    { "adaptor.norm.weight", true, 1, { SIZE(in) }, SLOT(norm) },
    { "adaptor.norm.bias", false, 1, { SIZE(in) }, SLOT(norm_bias) },
    { "adaptor.up.weight", true, 2, { SIZE(middle), SIZE(in) }, SLOT(up) },
    { "adaptor.up.bias", false, 1, { SIZE(middle) }, SLOT(up_bias) },
    { "adaptor.down.weight", true, 2, { SIZE(out), SIZE(middle) }, SLOT(down) },
    { "adaptor.down.bias", false, 1, { SIZE(out) }, SLOT(down_bias) },
};

void vision_adaptor_set_target(struct vision_adaptor_config *c, const char *s, size_t len)
{
    size_t n = len < ADAPTOR_MAX_TARGET ? len : ADAPTOR_MAX_TARGET;
    for (size_t i = 0; i < n; i++)
        c->target[i] = s[i] >= ' ' && s[i] <= '~' ? s[i] : '?';
    c->target[n] = '\0';
}

/* ---- opening ---- */

static enum pv_status read_gguf(struct vision_adaptor_file *af, struct pv_error *err)
{
    struct vision_adaptor_config *c = &af->config;
    const struct gguf *g = af->gguf;
    const struct {
        const char *key;
        int *out;
    } sizes[] = { { ADAPTOR_ARCH ".input_length", &c->in },
                  { ADAPTOR_ARCH ".feed_forward_length", &c->middle },
                  { ADAPTOR_ARCH ".output_length", &c->out } };
    static const char target_key[] = ADAPTOR_ARCH ".target";
    struct str arch, target = { "", 0 };
    double eps = 0;
    enum pv_status s = gguf_string(g, "general.architecture", &arch, err);
    if (!s && (arch.len != strlen(ADAPTOR_ARCH) || memcmp(arch.s, ADAPTOR_ARCH, arch.len) != 0))
        s = fail(err, PV_E_ARG, "%s: not a vision adaptor (its architecture is not \"%s\")",
                 gguf_path(g), ADAPTOR_ARCH);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !s; i++) {
        int64_t value = 0;
        s = gguf_int(g, sizes[i].key, 1, CONFIG_MAX_FFN, &value, err);
        *sizes[i].out = (int)value;
    }
    if (!s)
        s = gguf_float(g, ADAPTOR_ARCH ".layer_norm_epsilon", &eps, err);
    if (!s && gguf_find(g, target_key))
        s = gguf_string(g, target_key, &target, err);
    c->eps = (float)eps;
    vision_adaptor_set_target(c, target.s, target.len);
    return s;
}

static int role_size(const struct vision_adaptor_file *af, size_t offset)
{
    int size;
    memcpy(&size, (const char *)&af->config + offset, sizeof size);
    return size;
}

static const struct tensor *find_tensor(const struct vision_adaptor_file *af, const char *name)
{
#ifndef PV_CORE
    if (af->safetensors)
        return safetensors_find(af->safetensors, name);
#endif
    return gguf_tensor_find(af->gguf, name);
}

static int count_tensors(const struct vision_adaptor_file *af)
{
#ifndef PV_CORE
    if (af->safetensors)
        return safetensors_n_tensors(af->safetensors);
#endif
    return gguf_n_tensors(af->gguf);
}

static enum pv_status bind_tensors(struct vision_adaptor_file *af, struct pv_error *err)
{
    int n = 0;
    for (int i = 0; i < ADAPTOR_ROLE_COUNT; i++) {
        const struct vision_adaptor_role *r = &vision_adaptor_role[i];
        const struct tensor *t = find_tensor(af, r->name);
        int64_t dim[2] = { role_size(af, r->dim[0]), role_size(af, r->dim[1]) };
        enum pv_status s;
        if (!t && r->needed)
            return fail(err, PV_E_FORMAT, "%s: the tensor %s is missing", af->path, r->name);
        if (!t)
            continue;
        s = tensor_expect(t, dim, r->n_dims, af->path, err);
        if (s)
            return s;
        memcpy((char *)&af->tensors + r->slot, &t, sizeof t);
        n++;
    }
    /* A tensor that nobody reads is a part of the network that would silently be missing. */
    if (count_tensors(af) != n)
        return fail(err, PV_E_UNSUPPORTED, "%s has %d tensors, %d of which an adaptor has",
                    af->path, count_tensors(af), n);
    return PV_OK;
}

static enum pv_status finish_open(struct vision_adaptor_file **out, struct vision_adaptor_file *af,
                                  enum pv_status s, struct pv_error *err)
{
    if (!s && af->gguf)
        s = read_gguf(af, err);
    if (!s && !(af->config.eps > 0 && af->config.eps < 1))
        s = fail(err, PV_E_FORMAT, "%s: the epsilon of the norm is %g, outside 0 to 1", af->path,
                 (double)af->config.eps);
    if (!s)
        s = bind_tensors(af, err);
    if (s)
        vision_adaptor_file_close(&af);
    else
        *out = af;
    return s;
}

static enum pv_status open_new(struct vision_adaptor_file **out, const char *path,
                               struct pv_error *err)
{
    struct vision_adaptor_file *af = mem_zalloc(sizeof *af);
    if (!af)
        return fail_nomem(err, sizeof *af);
    af->path = mem_strdup(path);
    if (!af->path) {
        mem_free(af);
        return fail_nomem(err, strlen(path) + 1);
    }
    *out = af;
    return PV_OK;
}

#ifdef PV_CORE
enum pv_status vision_adaptor_open_dir(struct vision_adaptor_file *af, uint64_t limit,
                                       struct pv_error *err)
{
    (void)limit;
    return fail(
        err, PV_E_UNSUPPORTED,
        "%s: a directory, and this build (make CORE=1) reads GGUF files only: write one with "
        "'prevue convert' of a full build",
        af->path);
}

bool vision_adaptor_dir_is(const char *path)
{
    (void)path;
    return false;
}
#endif

enum pv_status vision_adaptor_file_open(struct vision_adaptor_file **out, const char *path,
                                        uint64_t file_limit, struct pv_error *err)
{
    uint64_t limit = file_limit ? file_limit : default_file_limit;
    struct vision_adaptor_file *af = NULL;
    enum pv_status s = open_new(&af, path, err);
    if (s)
        return s;
    s = file_is_dir(path) ? vision_adaptor_open_dir(af, limit, err)
                          : gguf_open(&af->gguf, path, limit, err);
    return finish_open(out, af, s, err);
}

enum pv_status vision_adaptor_file_open_memory(struct vision_adaptor_file **out, const void *data,
                                               size_t size, const char *name, struct pv_error *err)
{
    struct vision_adaptor_file *af = NULL;
    enum pv_status s = open_new(&af, name, err);
    return s ? s : finish_open(out, af, gguf_open_memory(&af->gguf, data, size, name, err), err);
}

void vision_adaptor_file_close(struct vision_adaptor_file **af)
{
    struct vision_adaptor_file *old = *af;
    *af = NULL;
    if (!old)
        return;
#ifndef PV_CORE
    safetensors_close(&old->safetensors);
#endif
    gguf_close(&old->gguf);
    mem_free(old->path);
    mem_free(old);
}

const struct vision_adaptor_config *vision_adaptor_file_config(const struct vision_adaptor_file *af)
{
    return &af->config;
}

const struct vision_adaptor_tensors *vision_adaptor_file_tensors(
    const struct vision_adaptor_file *af)
{
    return &af->tensors;
}

bool vision_adaptor_file_is(const char *path)
{
    struct gguf *g = NULL;
    struct str arch = { "", 0 };
    bool is;
    if (file_is_dir(path))
        return vision_adaptor_dir_is(path);
    is = gguf_open(&g, path, default_file_limit, NULL) == PV_OK &&
         gguf_string(g, "general.architecture", &arch, NULL) == PV_OK &&
         arch.len == strlen(ADAPTOR_ARCH) && memcmp(arch.s, ADAPTOR_ARCH, arch.len) == 0;
    gguf_close(&g);
    return is;
}

/* ---- between two models ---- */

enum pv_status vision_adaptor_file_fit(const struct vision_adaptor_file *af,
                                       const struct config *target, const char *target_path,
                                       const struct config *draft, const char *draft_path,
                                       struct pv_error *err)
{
    const struct vision_adaptor_config *c = &af->config;
    if (c->in != target->hidden && c->in != config_media_width(target))
        return fail(err, PV_E_ARG,
                    "%s takes rows of %d numbers, and the hidden size of %s is %d: they do not "
                    "belong together",
                    af->path, c->in, target_path, target->hidden);
    if (c->out != draft->hidden && c->out != config_media_width(draft))
        return fail(err, PV_E_ARG,
                    "%s makes rows of %d numbers, and the hidden size of %s is %d: they do not "
                    "belong together",
                    af->path, c->out, draft_path, draft->hidden);
    return PV_OK;
}

/* ---- writing ---- */

static void write_meta(struct write_job *j, const struct vision_adaptor_config *c)
{
    write_general(j, ADAPTOR_ARCH, "adaptor");
    gguf_writer_u32(j->w, ADAPTOR_ARCH ".input_length", (uint32_t)c->in);
    gguf_writer_u32(j->w, ADAPTOR_ARCH ".feed_forward_length", (uint32_t)c->middle);
    gguf_writer_u32(j->w, ADAPTOR_ARCH ".output_length", (uint32_t)c->out);
    gguf_writer_f32(j->w, ADAPTOR_ARCH ".layer_norm_epsilon", c->eps);
    if (c->target[0])
        gguf_writer_string(j->w, ADAPTOR_ARCH ".target", c->target, strlen(c->target));
}

static enum pv_status write_tensors(struct write_job *j, const struct vision_adaptor_file *af,
                                    bool data, struct pv_error *err)
{
    enum pv_status s = PV_OK;
    for (int i = 0; i < ADAPTOR_ROLE_COUNT && !s; i++) {
        const struct tensor *t;
        enum dtype to;
        memcpy(&t, (const char *)&af->tensors + vision_adaptor_role[i].slot, sizeof t);
        if (!t)
            continue;
        to = t->n_dims < 2 ? DTYPE_F32 : write_matrix_type(t, j->type);
        if (data)
            s = write_tensor(j, t, to, err);
        else
            gguf_writer_tensor(j->w, vision_adaptor_role[i].name, to, t->n_dims, t->dim);
    }
    return s;
}

enum pv_status vision_adaptor_file_write_gguf(const struct vision_adaptor_file *af,
                                              const char *out_path, enum dtype type,
                                              const struct write_watch *watch, struct pv_error *err)
{
    struct write_job j = { .path = af->path, .type = type, .watch = watch };
    enum pv_status s;
    if (!row_can_encode(type))
        return fail(err, PV_E_UNSUPPORTED, "%s: files of type %s cannot be written", out_path,
                    dtype_name(type));
    s = write_job_open(&j, err);
    if (!s)
        s = gguf_writer_open(&j.w, out_path, watch, err);
    if (!s) {
        write_meta(&j, &af->config);
        s = write_tensors(&j, af, false, err);
    }
    if (!s)
        s = gguf_writer_begin(j.w, err);
    if (!s)
        s = write_tensors(&j, af, true, err);
    if (!s)
        s = gguf_writer_commit(&j.w, err);
    gguf_writer_abandon(&j.w);
    write_job_close(&j);
    return s;
}
