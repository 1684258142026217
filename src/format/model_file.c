/* Opening a model: finds every tensor the decoder needs by its name in either kind of file and
 * checks its shape against the configuration, so that nothing after this has to doubt them.
 * The vision tower, where there is one, is bound in vision_file.c.
 *
 * Names in a directory carry one of a few prefixes, depending on which release of which family
 * wrote it; the prefix of the embedding table is the prefix of all. */
#include "format/model_file.h"

#include "base/file.h"
#include "base/mem.h"
#include "format/config_gguf.h"
#include "format/model_file_parts.h"
#include "format/roles.h"
#include "format/tensor_expect.h"
#include "format/vision_file.h"
#include "format/vocab_gguf.h"

#ifndef PV_CORE
#include "format/adapter_hf.h"
#include "format/config_hf.h"
#include "format/safetensors_hf.h"
#include "format/vocab_hf.h"
#endif

#include <stdio.h>
#include <string.h>

enum { NAME_MAX_SIZE = 160 };

static const uint64_t default_file_limit = UINT64_C(1) << 40;

const struct tensor *model_file_find(const struct model_file *mf, const char *name)
{
#ifndef PV_CORE
    if (mf->safetensors) {
        const struct tensor *instead = adapter_replaces(mf->adapter, name);
        return instead ? instead : safetensors_find(mf->safetensors, name);
    }
#endif
    return gguf_tensor_find(mf->gguf, name);
}

static enum pv_status check_tensor(const struct model_file *mf, const struct tensor *t,
                                   const struct role *r, struct pv_error *err)
{
    int64_t want[2];
    int n_dims = r->dim[1] == DIM_NONE ? 1 : 2;

    for (int i = 0; i < n_dims; i++)
        want[i] = role_dim_size(r->dim[i], &mf->config);
    return tensor_expect(t, want, n_dims, mf->path, err);
}

/* Find and check one tensor by its complete name. */
static enum pv_status bind_tensor(const struct model_file *mf, const struct tensor **out,
                                  const char *name, const struct role *r, int layer,
                                  struct pv_error *err)
{
    const struct tensor *t = model_file_find(mf, name);
    enum pv_status s;

    if (!role_needed(r, &mf->config, layer)) {
        if (t)
            return fail(err, PV_E_UNSUPPORTED, "%s: the tensor %s has no place in %s %s", mf->path,
                        name, mf->config.n_experts ? "this layer of" : "the architecture",
                        mf->config.arch_name);
        return PV_OK;
    }
    if (!t)
        return fail(err, PV_E_FORMAT, "%s: the tensor %s is missing", mf->path, name);
    s = check_tensor(mf, t, r, err);
    if (!s)
        *out = t;
    return s;
}

static enum pv_status bind_layer(struct model_file *mf, int layer, struct pv_error *err)
{
    char name[NAME_MAX_SIZE];
    enum pv_status s = PV_OK;

    for (int i = 0; i < ROLE_LAYER_COUNT && !s; i++) {
        const struct role *r = &role_layer[i];
        const struct tensor *t = NULL;
        if (mf->gguf)
            snprintf(name, sizeof name, "blk.%d.%s", layer, r->gguf);
        else
            snprintf(name, sizeof name, "%slayers.%d.%s", mf->text_prefix, layer, r->hf);
        s = bind_tensor(mf, &t, name, r, layer, err);
        if (t)
            memcpy((char *)&mf->layer[layer] + r->slot, &t, sizeof t);
    }
    return s || !mf->config.sparse[layer] ? s : expert_file_bind(mf, layer, err);
}

static enum pv_status bind_top(const struct model_file *mf, const struct tensor **out,
                               const char *prefix, const struct role *r, struct pv_error *err)
{
    char name[NAME_MAX_SIZE];

    snprintf(name, sizeof name, "%s%s", mf->gguf ? "" : prefix, mf->gguf ? r->gguf : r->hf);
    return bind_tensor(mf, out, name, r, 0, err);
}

/* The LM head is named outside the decoder in every release but the oldest. */
static const char *lm_head_prefix(const struct model_file *mf)
{
    bool nested = !mf->gguf && model_file_find(mf, "language_model.lm_head.weight");
    return nested ? "language_model." : "";
}

static enum pv_status bind_all(struct model_file *mf, struct pv_error *err)
{
    size_t size = (size_t)mf->config.n_layers * sizeof *mf->layer;
    enum pv_status s;

    mf->layer = mem_zalloc(size);
    if (!mf->layer)
        return fail_nomem(err, size);
    size = (size_t)mf->config.n_layers * (size_t)mf->config.n_experts * sizeof *mf->experts;
    mf->experts = size ? mem_zalloc(size) : NULL;
    if (size && !mf->experts)
        return fail_nomem(err, size);
    s = bind_top(mf, &mf->embed, mf->text_prefix, &role_embed, err);
    if (!s)
        s = bind_top(mf, &mf->norm, mf->text_prefix, &role_norm, err);
    if (!s && mf->config.tied)
        mf->lm_head = mf->embed;
    else if (!s)
        s = bind_top(mf, &mf->lm_head, lm_head_prefix(mf), &role_lm_head, err);
    for (int i = 0; i < mf->config.n_layers && !s; i++)
        s = bind_layer(mf, i, err);
    return s;
}

static enum pv_status open_gguf(struct model_file *mf, uint64_t limit,
                                const struct family *const *families, struct pv_error *err)
{
    enum pv_status s = gguf_open(&mf->gguf, mf->path, limit, err);

    if (!s)
        s = vocab_gguf_open(&mf->vocab, mf->gguf, &mf->vocab_reason, err);
    if (!s)
        s = config_gguf_parse(&mf->config, mf->gguf, mf->vocab, families, err);
    if (!s && gguf_tensor_find(mf->gguf, "rope_freqs.weight"))
        s = fail(err, PV_E_UNSUPPORTED, "%s: rope_freqs.weight: scaled rope is not supported",
                 mf->path);
    return s;
}

#ifndef PV_CORE
static enum pv_status find_prefix(struct model_file *mf, struct pv_error *err)
{
    static const char *const prefixes[] = { "language_model.model.", "model.language_model.",
                                            "model.", "" };
    char name[NAME_MAX_SIZE];

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        snprintf(name, sizeof name, "%s%s", prefixes[i], role_embed.hf);
        if (safetensors_find(mf->safetensors, name)) {
            mf->text_prefix = prefixes[i];
            return PV_OK;
        }
    }
    return fail(err, PV_E_FORMAT, "%s: the tensor model.%s is missing", mf->path, role_embed.hf);
}

static enum pv_status open_dir(struct model_file *mf, uint64_t limit,
                               const struct family *const *families, struct pv_error *err)
{
    enum pv_status s = config_hf_open(&mf->config, mf->path, families, err);

    if (!s)
        s = safetensors_open(&mf->safetensors, mf->path, limit, err);
    if (!s)
        s = find_prefix(mf, err);
    if (!s)
        s = vocab_hf_open(&mf->vocab, mf->path, err);
    if (!s && !mf->vocab)
        mf->vocab_reason = "the directory has no tokenizer files";
    if (!s && mf->vocab && mf->vocab->n_tokens > mf->config.vocab)
        s = fail(err, PV_E_FORMAT, "%s: the tokenizer has %d tokens, but the model %d rows",
                 mf->path, mf->vocab->n_tokens, mf->config.vocab);
    if (!s)
        config_add_spelled_stops(&mf->config, mf->vocab);
    return s;
}
#else
static enum pv_status open_dir(struct model_file *mf, uint64_t limit,
                               const struct family *const *families, struct pv_error *err)
{
    (void)limit, (void)families;
    return fail(
        err, PV_E_UNSUPPORTED,
        "%s: a directory, and this build (make CORE=1) reads GGUF files only: write one with "
        "'prevue convert' of a full build",
        mf->path);
}
#endif

/* What an adapter adds to must be a matrix that is written as it is stored. */
static enum pv_status check_targets(const struct model_file *mf, struct pv_error *err)
{
#ifndef PV_CORE
    const char *name = mf->adapter ? adapter_target(mf->adapter, 0) : NULL;

    for (int i = 1; name; name = adapter_target(mf->adapter, i++)) {
        const struct tensor *t = model_file_find(mf, name);
        bool found = t == mf->embed || t == mf->lm_head;
        for (int k = 0; k < mf->config.n_layers && !found; k++) {
            const struct layer_tensors *l = &mf->layer[k];
            found = t == l->q || t == l->k || t == l->v || t == l->o || t == l->gate ||
                    t == l->up || t == l->down;
        }
        if (!found)
            return fail(err, PV_E_UNSUPPORTED,
                        "%s: has a LoRA update of %s, which is not a matrix of the decoder",
                        adapter_path(mf->adapter), name);
    }
#else
    (void)mf, (void)err;
#endif
    return PV_OK;
}

static enum pv_status open_adapter(struct model_file *mf, const char *adapter, uint64_t limit,
                                   struct pv_error *err)
{
#ifndef PV_CORE
    if (mf->safetensors)
        return adapter_open(&mf->adapter, adapter, mf->safetensors, limit, err);
#endif
    (void)limit;
    return fail(err, PV_E_UNSUPPORTED,
                "%s: an adapter can only be merged into a Hugging Face directory, which %s is not",
                adapter, mf->path);
}

static enum pv_status open_file(struct model_file **out, const char *path, const char *mmproj,
                                const char *adapter, uint64_t file_limit,
                                const struct family *const *families, struct pv_error *err)
{
    struct model_file *mf = mem_zalloc(sizeof *mf);
    uint64_t limit = file_limit ? file_limit : default_file_limit;
    enum pv_status s;

    if (!mf)
        return fail_nomem(err, sizeof *mf);
    mf->text_prefix = "";
    mf->path = mem_strdup(path);
    if (!mf->path)
        s = fail_nomem(err, strlen(path) + 1);
    else if (file_is_dir(path))
        s = open_dir(mf, limit, families, err);
    else
        s = open_gguf(mf, limit, families, err);
    if (!s && adapter)
        s = open_adapter(mf, adapter, limit, err);
    if (!s)
        s = bind_all(mf, err);
    if (!s)
        s = vision_file_open(mf, mmproj, limit, families, err);
    if (!s)
        s = check_targets(mf, err);
    if (s)
        model_file_close(&mf);
    else
        *out = mf;
    return s;
}

enum pv_status model_file_open(struct model_file **out, const char *path, const char *mmproj,
                               uint64_t file_limit, const struct family *const *families,
                               struct pv_error *err)
{
    return open_file(out, path, mmproj, NULL, file_limit, families, err);
}

enum pv_status model_file_open_adapted(struct model_file **out, const char *path,
                                       const char *adapter, uint64_t file_limit,
                                       const struct family *const *families, struct pv_error *err)
{
    return open_file(out, path, NULL, adapter, file_limit, families, err);
}

void model_file_close(struct model_file **mf)
{
    struct model_file *old = *mf;

    *mf = NULL;
    if (!old)
        return;
#ifndef PV_CORE
    if (!old->gguf)
        vocab_hf_close(&old->vocab);
    adapter_close(&old->adapter);
    safetensors_close(&old->safetensors);
#endif
    vision_file_close(old);
    vocab_gguf_close(&old->vocab);
    gguf_close(&old->gguf);
    mem_free(old->layer);
    mem_free(old->experts);
    mem_free(old->path);
    mem_free(old);
}

const struct config *model_file_config(const struct model_file *mf)
{
    return &mf->config;
}

const char *model_file_path(const struct model_file *mf)
{
    return mf->path;
}

const struct tensor *model_file_embed(const struct model_file *mf)
{
    return mf->embed;
}

const struct tensor *model_file_norm(const struct model_file *mf)
{
    return mf->norm;
}

const struct tensor *model_file_lm_head(const struct model_file *mf)
{
    return mf->lm_head;
}

const struct layer_tensors *model_file_layer(const struct model_file *mf, int i)
{
    return &mf->layer[i];
}

const struct expert_tensors *model_file_experts(const struct model_file *mf, int layer)
{
    return mf->config.sparse[layer] ? mf->experts + (size_t)layer * (size_t)mf->config.n_experts
                                    : NULL;
}

const struct vision_config *model_file_vision(const struct model_file *mf)
{
    return &mf->vision;
}

const struct vision_tensors *model_file_vision_tensors(const struct model_file *mf)
{
    return &mf->vision_tensors;
}

const struct vision_layer_tensors *model_file_vision_layer(const struct model_file *mf, int i)
{
    return &mf->vision_layer[i];
}

const struct audio_tensors *model_file_audio_tensors(const struct model_file *mf)
{
    return &mf->audio_tensors;
}

const struct vision_layer_tensors *model_file_audio_layer(const struct model_file *mf, int i)
{
    return &mf->audio_layer[i];
}

const struct query_layer_tensors *model_file_query_layer(const struct model_file *mf, int i)
{
    return &mf->query_layer[i];
}

int model_file_n_tensors(const struct model_file *mf)
{
#ifndef PV_CORE
    if (mf->safetensors)
        return safetensors_n_tensors(mf->safetensors);
#endif
    return gguf_n_tensors(mf->gguf) + (mf->mmproj ? gguf_n_tensors(mf->mmproj) : 0);
}

const struct tensor *model_file_tensor(const struct model_file *mf, int i)
{
#ifndef PV_CORE
    if (mf->safetensors)
        return safetensors_tensor(mf->safetensors, i);
#endif
    if (i >= gguf_n_tensors(mf->gguf))
        return gguf_tensor(mf->mmproj, i - gguf_n_tensors(mf->gguf));
    return gguf_tensor(mf->gguf, i);
}

int model_file_n_files(const struct model_file *mf)
{
#ifndef PV_CORE
    if (mf->safetensors)
        return safetensors_n_files(mf->safetensors);
#endif
    return gguf_n_files(mf->gguf) + (mf->mmproj ? gguf_n_files(mf->mmproj) : 0);
}

const struct file_stamp *model_file_stamp(const struct model_file *mf, int i)
{
#ifndef PV_CORE
    if (mf->safetensors)
        return safetensors_stamp(mf->safetensors, i);
#endif
    if (i >= gguf_n_files(mf->gguf))
        return gguf_stamp(mf->mmproj, i - gguf_n_files(mf->gguf));
    return gguf_stamp(mf->gguf, i);
}

const struct file_map *model_file_map(const struct model_file *mf, int i, const char **path)
{
#ifndef PV_CORE
    if (mf->safetensors)
        return safetensors_map(mf->safetensors, i, path);
#endif
    if (i >= gguf_n_files(mf->gguf))
        return gguf_map(mf->mmproj, i - gguf_n_files(mf->gguf), path);
    return gguf_map(mf->gguf, i, path);
}

const struct vocab *model_file_vocab(const struct model_file *mf)
{
    return mf->vocab;
}

const char *model_file_vocab_reason(const struct model_file *mf)
{
    return mf->vocab_reason;
}
