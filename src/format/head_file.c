/* Opening a head: numbers from the file's metadata (head_file_gguf.c, head_file_hf.c), what kind of
 * layer it is from which tensors are there (a head without a bias or a norm has no such tensor),
 * and every shape checked. */
#include "base/file.h"
#include "base/mem.h"
#include "format/head_file_parts.h"
#include "format/roles.h"
#include "format/tensor_expect.h"

#ifndef PV_CORE
#include "format/safetensors_hf.h"
#endif

#include <stdio.h>
#include <string.h>

enum { HEAD_NAME_SIZE = 128 };

#define SLOT(field) offsetof(struct head_tensors, field)

const struct head_role head_role[HEAD_ROLE_COUNT] = {
    { "fc.weight", "fc.weight", HEAD_MUST, HEAD_MUST, false, HEAD_FC, SLOT(fc) },
    { "fc.bias", "fc.bias", HEAD_MAY, HEAD_MAY, false, HEAD_VECTOR, SLOT(fc_bias) },
    { "embed_norm.weight", "embed_norm.weight", HEAD_MAY, HEAD_NOT, false, HEAD_VECTOR,
      SLOT(embed_norm) },
    { "hidden_norm.weight", "hidden_norm.weight", HEAD_MAY, HEAD_MUST, true, HEAD_VECTOR,
      SLOT(hidden_norm) },
    { "norm.weight", "output_norm.weight", HEAD_MAY, HEAD_MUST, false, HEAD_VECTOR, SLOT(norm) },
    /* A head of EAGLE's that has one has a copy of the target's. */
    { "lm_head.weight", "output.weight", HEAD_NOT, HEAD_MAY, false, HEAD_LM_HEAD, SLOT(lm_head) },
};

/* ---- words ---- */

static const char *const layout_words[] = { "eagle", "eagle3" };
static const char *const position_words[] = { "index", "target" };
static const char *const visual_words[] = { "embedding", "layer", "fc" };

static int find_word(const char *const *words, int n, const char *s, size_t len)
{
    for (int i = 0; i < n; i++)
        if (strlen(words[i]) == len && memcmp(words[i], s, len) == 0)
            return i;
    return -1;
}

const char *head_layout_word(int i)
{
    return i >= 0 && i < 2 ? layout_words[i] : NULL;
}

const char *head_positions_word(int i)
{
    return i >= 0 && i < 2 ? position_words[i] : NULL;
}

const char *head_visual_word(int i)
{
    return i >= 0 && i < 3 ? visual_words[i] : NULL;
}

int head_layout_find(const char *s, size_t len)
{
    return find_word(layout_words, 2, s, len);
}

int head_positions_find(const char *s, size_t len)
{
    return find_word(position_words, 2, s, len);
}

int head_visual_find(const char *s, size_t len)
{
    return find_word(visual_words, 3, s, len);
}

void head_set_target(struct head_config *h, const char *s, size_t len)
{
    companion_copy_name(h->target, sizeof h->target, s, len);
}

/* ---- tensors ---- */

const struct tensor *head_find_tensor(const struct head_file *hf, const char *name)
{
    char full[HEAD_NAME_SIZE];
    snprintf(full, sizeof full, "%s%s", hf->prefix, name);
    return companion_find(&hf->in, full);
}

const char *head_layer_name(const struct head_file *hf, int role, char *name, size_t cap)
{
    if (hf->in.gguf)
        snprintf(name, cap, "blk.0.%s", role_layer[role].gguf);
    else
        snprintf(name, cap, "%s%s", hf->layer_prefix, role_layer[role].hf);
    return name;
}

const char *head_role_name(const struct head_file *hf, const struct head_role *r, char *name,
                           size_t cap)
{
    bool in_layer = r->in_layer && hf->config.layout == HEAD_LAYOUT_EAGLE3;
    if (hf->in.gguf)
        snprintf(name, cap, "%s", r->gguf);
    else /* the LM head is beside the model that the others are in */
        snprintf(name, cap, "%s%s", in_layer ? hf->layer_prefix : "", r->hf);
    return name;
}

static bool has_layer_tensor(const struct head_file *hf, size_t slot)
{
    char name[HEAD_NAME_SIZE];
    for (int i = 0; i < ROLE_LAYER_COUNT; i++)
        if (role_layer[i].slot == slot && role_layer[i].need != NEED_NEVER)
            return head_find_tensor(hf, head_layer_name(hf, i, name, sizeof name)) != NULL;
    return false;
}

/* A tensor by its name; the LM head lies beside the model that has the others. */
static const struct tensor *find_role(const struct head_file *hf, const struct head_role *r,
                                      char *name, size_t cap)
{
    const struct tensor *t = head_find_tensor(hf, head_role_name(hf, r, name, cap));
    return !t && r->shape == HEAD_LM_HEAD ? companion_find(&hf->in, name) : t;
}

static enum pv_status bind_role(struct head_file *hf, const struct head_role *r,
                                struct pv_error *err)
{
    struct head_config *h = &hf->config;
    enum head_have have = h->layout == HEAD_LAYOUT_EAGLE3 ? r->in_eagle3 : r->in_eagle;
    int64_t hidden = h->c.hidden, dim[2] = { hidden, hidden };
    char name[HEAD_NAME_SIZE];
    const struct tensor *t = have == HEAD_NOT ? NULL : find_role(hf, r, name, sizeof name);
    enum pv_status s;

    if (!t && have == HEAD_MUST)
        return fail(err, PV_E_FORMAT, "%s: the tensor %s is missing", hf->in.path, name);
    if (!t)
        return PV_OK;
    if (r->shape == HEAD_FC)
        dim[1] = hidden * (h->layout == HEAD_LAYOUT_EAGLE3 ? h->n_features : 2);
    if (r->shape == HEAD_LM_HEAD)
        dim[0] = h->draft_vocab;
    s = tensor_expect(t, dim, r->shape == HEAD_VECTOR ? 1 : 2, hf->in.path, err);
    if (!s)
        memcpy((char *)&hf->tensors + r->slot, &t, sizeof t);
    return s;
}

/* Queries, keys and values of EAGLE-3 are made of an embedding and a feature. */
static bool is_wide(const struct head_file *hf, const struct role *r)
{
    return hf->config.layout == HEAD_LAYOUT_EAGLE3 &&
           (r->slot == offsetof(struct layer_tensors, q) ||
            r->slot == offsetof(struct layer_tensors, k) ||
            r->slot == offsetof(struct layer_tensors, v));
}

static enum pv_status bind_layer_role(struct head_file *hf, int i, struct pv_error *err)
{
    const struct role *r = &role_layer[i];
    const struct config *c = &hf->config.c;
    bool optional = r->slot == offsetof(struct layer_tensors, attn_norm) && r->need != NEED_NEVER &&
                    hf->config.layout == HEAD_LAYOUT_EAGLE;
    int n_dims = r->dim[1] == DIM_NONE ? 1 : 2;
    int64_t dim[2];
    char name[HEAD_NAME_SIZE];
    const struct tensor *t = head_find_tensor(hf, head_layer_name(hf, i, name, sizeof name));
    enum pv_status s;

    if (t && !role_needed(r, c, 0))
        return fail(err, PV_E_UNSUPPORTED, "%s: the tensor %s has no place in a head", hf->in.path,
                    name);
    if (!t && role_needed(r, c, 0) && !optional)
        return fail(err, PV_E_FORMAT, "%s: the tensor %s is missing", hf->in.path, name);
    if (!t)
        return PV_OK;
    for (int d = 0; d < n_dims; d++)
        dim[d] = role_dim_size(r->dim[d], c);
    if (is_wide(hf, r))
        dim[1] *= 2;
    s = tensor_expect(t, dim, n_dims, hf->in.path, err);
    if (!s)
        memcpy((char *)&hf->tensors.layer + r->slot, &t, sizeof t);
    return s;
}

static bool begins(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

/* ViSpec: queries that compress a picture's rows, and what joins the result to states of text. */
static bool is_adaptor(const char *name)
{
    return begins(name, "imadpt.") || begins(name, "img_fc.");
}

/* Tensors that heads of others carry and that are not run: copies of the target's, tables, and the
 * adaptor of ViSpec. */
static bool passed_over(const char *name)
{
    const char *dot = strrchr(name, '.');
    return !strcmp(name, "embed_tokens.weight") || !strcmp(name, "lm_head.weight") ||
           begins(name, "verifier_") || is_adaptor(name) || (dot && !strcmp(dot, ".inv_freq"));
}

static bool is_bound(const struct head_file *hf, const struct tensor *t)
{
    const struct tensor *const *p = (const void *)&hf->tensors;
    for (size_t i = 0; i < sizeof hf->tensors / sizeof *p; i++)
        if (p[i] == t)
            return true;
    return false;
}

/* Tensor i; *name: without the prefix of all names. */
static const struct tensor *find_tensor(const struct head_file *hf, int i, const char **name)
{
    const struct tensor *t = companion_tensor(&hf->in, i);
    *name = begins(t->name, hf->prefix) ? t->name + strlen(hf->prefix) : t->name;
    return t;
}

/* A tensor that nobody reads is a part of the head that would silently be missing. */
static enum pv_status check_rest(const struct head_file *hf, struct pv_error *err)
{
    for (int i = 0; i < companion_n_tensors(&hf->in); i++) {
        const char *name;
        const struct tensor *t = find_tensor(hf, i, &name);
        if (!is_bound(hf, t) && !passed_over(name))
            return fail(err, PV_E_UNSUPPORTED, "%s: the tensor %s has no place in a head",
                        hf->in.path, t->name);
    }
    return PV_OK;
}

int head_file_adaptor(const struct head_file *hf)
{
    int n = 0;
    for (int i = 0; i < companion_n_tensors(&hf->in); i++) {
        const char *name;
        (void)find_tensor(hf, i, &name);
        n += is_adaptor(name);
    }
    return n;
}

/* ---- opening ---- */

/* Relations among the numbers, with stand-ins for those that are the target's. */
static enum pv_status check_config(const struct head_file *hf, struct pv_error *err)
{
    struct config c = hf->config.c;
    c.vocab = c.max_context = 1;
    c.rope_theta = c.rope_theta == 0 ? 10000 : c.rope_theta;
    return config_check(&c, hf->in.path, err);
}

/* After the file is open and its numbers read: the rest follows from the tensors. */
static enum pv_status bind_all(struct head_file *hf, struct pv_error *err)
{
    struct config *c = &hf->config.c;
    enum pv_status s;

    c->n_layers = 1;
    c->qkv_bias = has_layer_tensor(hf, offsetof(struct layer_tensors, q_bias));
    c->qk_norm = has_layer_tensor(hf, offsetof(struct layer_tensors, q_norm));
    snprintf(c->arch_name, sizeof c->arch_name, "%s", HEAD_ARCH);
    s = check_config(hf, err);
    if (!s && hf->config.layout == HEAD_LAYOUT_EAGLE3)
        s = head_check_eagle3(hf, err);
    for (int i = 0; i < HEAD_ROLE_COUNT && !s; i++)
        s = bind_role(hf, &head_role[i], err);
    for (int i = 0; i < ROLE_LAYER_COUNT && !s; i++)
        s = bind_layer_role(hf, i, err);
    return s ? s : check_rest(hf, err);
}

static struct head_file *new_head(void)
{
    struct head_file *hf = mem_zalloc(sizeof *hf);
    if (hf) {
        hf->prefix = "";
        hf->layer_prefix = "layers.0.";
    }
    return hf;
}

static enum pv_status finish_open(struct head_file **out, struct head_file *hf, enum pv_status s,
                                  struct pv_error *err)
{
    if (!s && hf->in.gguf)
        s = head_read_gguf(hf, err);
#ifndef PV_CORE
    else if (!s)
        s = head_open_dir(hf, err);
#endif
    if (!s)
        s = bind_all(hf, err);
    if (s)
        head_file_close(&hf);
    else
        *out = hf;
    return s;
}

enum pv_status head_file_open(struct head_file **out, const char *path, uint64_t file_limit,
                              struct pv_error *err)
{
    struct head_file *hf = new_head();
    return hf ? finish_open(out, hf, companion_open(&hf->in, path, file_limit, err), err)
              : fail_nomem(err, sizeof *hf);
}

enum pv_status head_file_open_memory(struct head_file **out, const void *data, size_t size,
                                     const char *name, struct pv_error *err)
{
    struct head_file *hf = new_head();
    return hf ? finish_open(out, hf, companion_open_memory(&hf->in, data, size, name, err), err)
              : fail_nomem(err, sizeof *hf);
}

void head_file_close(struct head_file **hf)
{
    struct head_file *old = *hf;
    *hf = NULL;
    if (!old)
        return;
    companion_close(&old->in);
    mem_free(old->draft_ids);
    mem_free(old);
}

const struct head_config *head_file_config(const struct head_file *hf)
{
    return &hf->config;
}

const struct head_tensors *head_file_tensors(const struct head_file *hf)
{
    return &hf->tensors;
}

const int32_t *head_file_draft_ids(const struct head_file *hf)
{
    return hf->draft_ids;
}

#ifndef PV_CORE
static bool dir_is_head(const char *path)
{
    struct safetensors *st = NULL;
    bool is = safetensors_open(&st, path, COMPANION_FILE_LIMIT, NULL) == PV_OK &&
              (safetensors_find(st, "fc.weight") || safetensors_find(st, "model.fc.weight"));
    safetensors_close(&st);
    return is;
}
#else
static bool dir_is_head(const char *path)
{
    (void)path;
    return false;
}
#endif

bool head_file_is(const char *path)
{
    return file_is_dir(path) ? dir_is_head(path) : companion_is_gguf(path, HEAD_ARCH);
}

/* ---- beside a target ---- */

enum pv_status head_file_fit(const struct head_file *hf, const struct config *target,
                             const char *target_path, struct config *out, struct pv_error *err)
{
    const struct head_config *h = &hf->config;
    struct config c = h->c;
    enum pv_status s;

    if (c.hidden != target->hidden)
        return fail(err, PV_E_ARG,
                    "%s is a head for a hidden size of %d, and that of %s is %d: they do not "
                    "belong together",
                    hf->in.path, c.hidden, target_path, target->hidden);
    if (h->visual == HEAD_VISUAL_LAYER && h->visual_layer > target->n_layers)
        return fail(err, PV_E_ARG, "%s needs states after layer %d, but %s has %d layers",
                    hf->in.path, h->visual_layer, target_path, target->n_layers);
    s = h->layout == HEAD_LAYOUT_EAGLE3 ? head_fit_eagle3(hf, target, target_path, err) : PV_OK;
    if (s)
        return s;
    c.vocab = h->draft_vocab > 0 ? h->draft_vocab : target->vocab;
    c.max_context = target->max_context;
    if (c.rope_theta == 0)
        c.rope_theta = target->rope_theta;
    if (h->positions == HEAD_POS_TARGET && target->mrope != MROPE_NONE) {
        if (c.head_dim != target->head_dim)
            return fail(err, PV_E_ARG,
                        "%s takes the positions of %s, but its heads are of %d and not of %d",
                        hf->in.path, target_path, c.head_dim, target->head_dim);
        c.mrope = target->mrope;
        memcpy(c.mrope_section, target->mrope_section, sizeof c.mrope_section);
    }
    s = config_check(&c, hf->in.path, err);
    if (!s)
        *out = c;
    return s;
}
