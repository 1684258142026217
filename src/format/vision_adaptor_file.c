/* Opening a vision adaptor: numbers from the file's metadata, tensors by a table of roles, and
 * every shape checked. Also whether it fits two models, and writing it as GGUF. */
#include "base/file.h"
#include "base/mem.h"
#include "format/model_file_job.h"
#include "format/tensor_expect.h"
#include "format/vision_adaptor_parts.h"

#include <stdio.h>
#include <string.h>

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
    companion_copy_name(c->target, sizeof c->target, s, len);
}

/* ---- opening ---- */

static enum pv_status read_gguf(struct vision_adaptor_file *af, struct pv_error *err)
{
    struct vision_adaptor_config *c = &af->config;
    const struct gguf *g = af->in.gguf;
    const struct {
        const char *key;
        int *out;
    } sizes[] = { { ADAPTOR_ARCH ".input_length", &c->in },
                  { ADAPTOR_ARCH ".feed_forward_length", &c->middle },
                  { ADAPTOR_ARCH ".output_length", &c->out } };
    static const char target_key[] = ADAPTOR_ARCH ".target";
    struct str target = { "", 0 };
    double eps = 0;
    enum pv_status s = PV_OK;
    if (!companion_has_arch(g, ADAPTOR_ARCH))
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

static enum pv_status bind_tensors(struct vision_adaptor_file *af, struct pv_error *err)
{
    int n = 0;
    for (int i = 0; i < ADAPTOR_ROLE_COUNT; i++) {
        const struct vision_adaptor_role *r = &vision_adaptor_role[i];
        const struct tensor *t = companion_find(&af->in, r->name);
        int64_t dim[2] = { role_size(af, r->dim[0]), role_size(af, r->dim[1]) };
        enum pv_status s;
        if (!t && r->needed)
            return fail(err, PV_E_FORMAT, "%s: the tensor %s is missing", af->in.path, r->name);
        if (!t)
            continue;
        s = tensor_expect(t, dim, r->n_dims, af->in.path, err);
        if (s)
            return s;
        memcpy((char *)&af->tensors + r->slot, &t, sizeof t);
        n++;
    }
    /* A tensor that nobody reads is a part of the network that would silently be missing. */
    if (companion_n_tensors(&af->in) != n)
        return fail(err, PV_E_UNSUPPORTED, "%s has %d tensors, %d of which an adaptor has",
                    af->in.path, companion_n_tensors(&af->in), n);
    return PV_OK;
}

static enum pv_status finish_open(struct vision_adaptor_file **out, struct vision_adaptor_file *af,
                                  enum pv_status s, struct pv_error *err)
{
    if (!s && af->in.gguf)
        s = read_gguf(af, err);
#ifndef PV_CORE
    else if (!s)
        s = vision_adaptor_open_dir(af, err);
#endif
    if (!s && !(af->config.eps > 0 && af->config.eps < 1))
        s = fail(err, PV_E_FORMAT, "%s: the epsilon of the norm is %g, outside 0 to 1", af->in.path,
                 (double)af->config.eps);
    if (!s)
        s = bind_tensors(af, err);
    if (s)
        vision_adaptor_file_close(&af);
    else
        *out = af;
    return s;
}

enum pv_status vision_adaptor_file_open(struct vision_adaptor_file **out, const char *path,
                                        uint64_t file_limit, struct pv_error *err)
{
    struct vision_adaptor_file *af = mem_zalloc(sizeof *af);
    return af ? finish_open(out, af, companion_open(&af->in, path, file_limit, err), err)
              : fail_nomem(err, sizeof *af);
}

enum pv_status vision_adaptor_file_open_memory(struct vision_adaptor_file **out, const void *data,
                                               size_t size, const char *name, struct pv_error *err)
{
    struct vision_adaptor_file *af = mem_zalloc(sizeof *af);
    return af ? finish_open(out, af, companion_open_memory(&af->in, data, size, name, err), err)
              : fail_nomem(err, sizeof *af);
}

void vision_adaptor_file_close(struct vision_adaptor_file **af)
{
    struct vision_adaptor_file *old = *af;
    *af = NULL;
    if (!old)
        return;
    companion_close(&old->in);
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
#ifndef PV_CORE
    if (file_is_dir(path))
        return vision_adaptor_dir_is(path);
#endif
    return companion_is_gguf(path, ADAPTOR_ARCH);
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
                    af->in.path, c->in, target_path, target->hidden);
    if (c->out != draft->hidden && c->out != config_media_width(draft))
        return fail(err, PV_E_ARG,
                    "%s makes rows of %d numbers, and the hidden size of %s is %d: they do not "
                    "belong together",
                    af->in.path, c->out, draft_path, draft->hidden);
    return PV_OK;
}

/* ---- writing ---- */

static void write_keys(struct write_job *j, const void *file)
{
    const struct vision_adaptor_config *c = &((const struct vision_adaptor_file *)file)->config;
    write_general(j, ADAPTOR_ARCH, "adaptor");
    gguf_writer_u32(j->w, ADAPTOR_ARCH ".input_length", (uint32_t)c->in);
    gguf_writer_u32(j->w, ADAPTOR_ARCH ".feed_forward_length", (uint32_t)c->middle);
    gguf_writer_u32(j->w, ADAPTOR_ARCH ".output_length", (uint32_t)c->out);
    gguf_writer_f32(j->w, ADAPTOR_ARCH ".layer_norm_epsilon", c->eps);
    if (c->target[0])
        gguf_writer_string(j->w, ADAPTOR_ARCH ".target", c->target, strlen(c->target));
}

static const struct tensor *tensor_at(const void *file, int i, char *name, size_t cap)
{
    const struct vision_adaptor_file *af = file;
    const struct tensor *t;
    snprintf(name, cap, "%s", vision_adaptor_role[i].name);
    memcpy(&t, (const char *)&af->tensors + vision_adaptor_role[i].slot, sizeof t);
    return t;
}

enum pv_status vision_adaptor_file_write_gguf(const struct vision_adaptor_file *af,
                                              const char *out_path, enum dtype type,
                                              const struct write_watch *watch, struct pv_error *err)
{
    const struct companion_contents contents = {
        .file = af, .n_tensors = ADAPTOR_ROLE_COUNT, .keys = write_keys, .tensor = tensor_at
    };
    return companion_write_gguf(&af->in, &contents, out_path, type, watch, err);
}
