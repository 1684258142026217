/* Finds the tensors of a vision tower. It is in the model's own files, or in a second GGUF file
 * ("mmproj", as llama.cpp calls it): the one the caller names, else the one beside the model named
 * "mmproj-" and then as the model is. A directory whose configuration speaks of a tower but which
 * has no tensor of it is a decoder cut out of a model, and has none.
 *
 * Two kinds of tensors are not used as they are stored and come as views: the patch embedding, a
 * convolution of four or five dimensions that is one matrix, and fused q, k and v. */
#include "format/vision_file.h"

#include "base/file.h"
#include "base/mem.h"
#include "format/audio_file.h"
#include "format/family.h"
#include "format/tensor_expect.h"
#include "format/vision_config_gguf.h"

#ifndef PV_CORE
#include "format/safetensors_hf.h"
#include "format/vision_config_hf.h"
#endif

#include <stdio.h>
#include <string.h>

enum { NAME_MAX_SIZE = 160, VIEWS_TOP = 2, VIEWS_LAYER = 6 };

/* Tensors of the layers, and of the mergers beside the first. */
enum group { GROUP_LAYERS, GROUP_MERGERS };

/* Where the tensors come from: one GGUF file, or a directory of one layout. */
struct source {
    const struct gguf *gguf;
    const struct vision_layout *layout;
    const char *path;
};

static const struct tensor *find_tensor(const struct model_file *mf, const struct source *src,
                                        const char *name)
{
#ifndef PV_CORE
    if (!src->gguf)
        return model_file_find(mf, name);
#endif
    (void)mf;
    return gguf_tensor_find(src->gguf, name);
}

/* A new view of a tensor: `rows` of it from row `first` on (a vector has one element in a row). */
static const struct tensor *add_view(struct model_file *mf, const struct tensor *t, int64_t first,
                                     int64_t rows, int64_t cols)
{
    struct tensor *v = &mf->view[mf->n_views++];
    size_t row_size = dtype_row_size(t->dtype, cols);

    *v = *t;
    for (int i = 0; i < TENSOR_DIMS; i++)
        v->dim[i] = 1;
    v->n_dims = t->n_dims > 1 ? 2 : 1;
    v->dim[0] = rows;
    v->dim[v->n_dims - 1] = v->n_dims > 1 ? cols : rows;
    v->data = (const uint8_t *)t->data + (size_t)first * row_size;
    v->size = (size_t)rows * row_size;
    return v;
}

static enum pv_status need_tensor(const struct model_file *mf, const struct source *src,
                                  const char *name, const struct tensor **out, struct pv_error *err)
{
    *out = find_tensor(mf, src, name);
    if (!*out)
        return fail(err, PV_E_FORMAT, "%s: the tensor %s is missing", src->path, name);
    return PV_OK;
}

/* One tensor by its complete name; its shape must be the role's, three times the rows where it is
 * fused. */
static enum pv_status bind_tensor(struct model_file *mf, const struct source *src,
                                  const struct tensor **out, const char *name,
                                  const struct vision_role *r, struct pv_error *err)
{
    const struct vision_config *c = &mf->vision;
    const int64_t rows = vision_dim_size(r->dim[0], c), cols = vision_dim_size(r->dim[1], c);
    int part = src->gguf && !r->fused ? 0 : r->part;
    int64_t want[2] = { part ? 3 * rows : rows, cols };
    const struct tensor *t;
    enum pv_status s = need_tensor(mf, src, name, &t, err);

    if (!s)
        s = tensor_expect(t, want, cols ? 2 : 1, src->path, err);
    if (!s && r->dim[0] == VDIM_POSITIONS)
        s = tensor_expect_plain(t, src->path, err);
    if (s)
        return s;
    *out = part ? add_view(mf, t, (part - 1) * rows, rows, cols ? cols : 1) : t;
    return PV_OK;
}

/* The patch embedding: one tensor with all frames of a patch, or in GGUF one per frame. */
static enum pv_status bind_patch(struct model_file *mf, const struct source *src, const char *name,
                                 struct pv_error *err)
{
    const struct vision_config *c = &mf->vision;
    int n = src->gguf ? c->temporal : 1, frames = src->gguf ? 1 : c->temporal;
    const int64_t flat[4] = { c->hidden, 3, c->patch, c->patch };
    const int64_t deep[5] = { c->hidden, 3, c->temporal, c->patch, c->patch };
    char later[NAME_MAX_SIZE + 16];
    enum pv_status s = PV_OK;

    for (int i = 0; i < n && !s; i++) {
        const struct tensor *t;
        snprintf(later, sizeof later, "%s.%d", name, i);
        s = need_tensor(mf, src, i ? later : name, &t, err);
        if (!s)
            s = tensor_expect(t, frames > 1 ? deep : flat, frames > 1 ? 5 : 4, src->path, err);
        if (!s)
            s = tensor_expect_plain(t, src->path, err);
        if (!s)
            mf->vision_tensors.patch[i] =
                add_view(mf, t, 0, c->hidden, (int64_t)3 * frames * c->patch * c->patch);
    }
    return s;
}

static enum pv_status bind_top(struct model_file *mf, const struct source *src,
                               const struct vision_role *r, struct pv_error *err)
{
    char name[NAME_MAX_SIZE];
    const struct tensor *t = NULL;
    enum pv_status s;

    if (src->gguf)
        snprintf(name, sizeof name, "%s", r->gguf);
    else
        snprintf(name, sizeof name, "%s%s", src->layout->prefix[r->place], r->hf);
    if (r->dim[1] == VDIM_PATCH)
        return bind_patch(mf, src, name, err);
    s = bind_tensor(mf, src, &t, name, r, err);
    if (!s)
        memcpy((char *)&mf->vision_tensors + r->slot, &t, sizeof t);
    return s;
}

/* Number i of a group; GGUF files number further mergers by their layers. */
static enum pv_status bind_grouped(struct model_file *mf, const struct source *src,
                                   enum group group, int i, const struct vision_role *r,
                                   struct pv_error *err)
{
    bool merger = group == GROUP_MERGERS;
    char name[NAME_MAX_SIZE];
    const struct tensor *t = NULL;
    enum pv_status s;

    if (src->gguf)
        snprintf(name, sizeof name, "%s%d.%s", merger ? "v.deepstack." : "v.blk.",
                 merger ? mf->vision.deepstack[i] : i, r->gguf);
    else
        snprintf(name, sizeof name, "%s%s%d.%s", src->layout->prefix[PLACE_TOWER],
                 merger ? src->layout->mergers : src->layout->layers, i, r->hf);
    s = bind_tensor(mf, src, &t, name, r, err);
    if (!s && merger)
        memcpy((char *)&mf->vision_tensors.deepstack[i] + r->slot, &t, sizeof t);
    else if (!s)
        memcpy((char *)&mf->vision_layer[i] + r->slot, &t, sizeof t);
    return s;
}

static enum pv_status bind_all(struct model_file *mf, const struct source *src,
                               struct pv_error *err)
{
    const struct vision_roles roles = mf->vision.family->tower->roles;
    size_t n_layers = (size_t)mf->vision.n_layers;
    size_t layer_size = n_layers * sizeof *mf->vision_layer;
    size_t view_size = (VIEWS_TOP + n_layers * VIEWS_LAYER) * sizeof *mf->view;
    enum pv_status s = PV_OK;

    mf->vision_layer = mem_zalloc(layer_size);
    mf->view = mem_zalloc(view_size);
    if (!mf->vision_layer || !mf->view)
        return fail_nomem(err, layer_size + view_size);
    for (int i = 0; i < roles.n_top && !s; i++)
        s = bind_top(mf, src, &roles.top[i], err);
    for (int layer = 0; layer < mf->vision.n_layers; layer++)
        for (int i = 0; i < roles.n_layer && !s; i++)
            s = bind_grouped(mf, src, GROUP_LAYERS, layer, &roles.layer[i], err);
    for (int k = 0; k < mf->vision.n_deepstack; k++)
        for (int i = 0; i < roles.n_merger && !s; i++)
            s = bind_grouped(mf, src, GROUP_MERGERS, k, &roles.merger[i], err);
    return s;
}

/* The tower must suit the decoder: its output, its tokens, and how positions are counted. */
static enum pv_status check_decoder(const struct model_file *mf, const struct source *src,
                                    struct pv_error *err)
{
    const struct vision_config *c = &mf->vision;
    const int32_t ids[] = { c->image_token, c->video_token, c->vision_start, c->vision_end };
    const struct family *decoder = mf->config.family;

    if (c->out != mf->config.hidden)
        return fail(err, PV_E_FORMAT,
                    "%s: the vision tower makes rows of %d, but the decoder of %s takes rows of %d",
                    src->path, c->out, mf->path, mf->config.hidden);
    if (strcmp(decoder->arch, c->family->arch) != 0)
        return fail(err, PV_E_FORMAT,
                    "%s: the vision tower is one of %s, but the decoder of %s is %s", src->path,
                    c->family->title, mf->path, mf->config.arch_name);
    if (c->n_deepstack != mf->config.n_deepstack)
        return fail(err, PV_E_FORMAT,
                    "%s: the vision tower gives %d deepstack rows, but the decoder of %s takes %d",
                    src->path, c->n_deepstack, mf->path, mf->config.n_deepstack);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i] >= mf->config.vocab)
            return fail(err, PV_E_FORMAT,
                        "%s: the vision tower's token %d is not in the vocabulary of %d", src->path,
                        (int)ids[i], mf->config.vocab);
    return PV_OK;
}

static enum pv_status bind_tower(struct model_file *mf, const struct source *src,
                                 struct pv_error *err)
{
    enum pv_status s = check_decoder(mf, src, err);
    if (!s)
        s = bind_all(mf, src, err);
    return s || !mf->vision.family->audio_encoder ? s : audio_file_bind(mf, src->path, err);
}

static enum pv_status open_gguf(struct model_file *mf, const struct gguf *g,
                                const struct family *const *families, struct pv_error *err)
{
    const struct source src = { .gguf = g, .path = gguf_path(g) };
    enum pv_status s =
        vision_config_gguf_parse(&mf->vision, g, mf->vocab, mf->config.family, families, err);

    return s ? s : bind_tower(mf, &src, err);
}

#ifndef PV_CORE
/* The layout of the family whose patch embedding is there; NULL: there is none. */
static const struct vision_layout *find_layout(const struct model_file *mf,
                                               const struct family_tower *t)
{
    for (int i = 0; i < t->n_layouts; i++) {
        const struct vision_layout *l = &t->layouts[i];
        char name[NAME_MAX_SIZE];
        snprintf(name, sizeof name, "%s%s", l->prefix[PLACE_TOWER], t->roles.top[0].hf);
        if (safetensors_find(mf->safetensors, name))
            return l;
    }
    return NULL;
}

/* Whether there is a tower of any family, so that a configuration of a tower is worth reading: one
 * in a directory without its tensors belongs to a decoder that was cut out of a model. */
static bool has_tower(const struct model_file *mf, const struct family *const *families)
{
    for (; *families; families++)
        if ((*families)->tower && find_layout(mf, (*families)->tower))
            return true;
    return false;
}

static enum pv_status open_dir(struct model_file *mf, const struct family *const *families,
                               struct pv_error *err)
{
    struct source src = { .path = mf->path };
    enum pv_status s = PV_OK;

    if (has_tower(mf, families))
        s = vision_config_hf_open(&mf->vision, mf->path, families, err);
    if (s || !mf->vision.family)
        return s;
    src.layout = find_layout(mf, mf->vision.family->tower);
    if (!src.layout)
        return fail(err, PV_E_FORMAT,
                    "%s: config.json and the tensors describe different vision towers", mf->path);
    return bind_tower(mf, &src, err);
}
#endif

char *vision_file_sibling(const char *path)
{
    static const char prefix[] = "mmproj-";
    const char *slash = strrchr(path, '/');
    size_t dir = slash ? (size_t)(slash - path) + 1 : 0;
    size_t size = strlen(path) + sizeof prefix;
    char *out = mem_alloc(size);

    if (out)
        snprintf(out, size, "%.*s%s%s", (int)dir, path, prefix, path + dir);
    return out;
}

static enum pv_status open_mmproj(struct model_file *mf, const char *path, uint64_t limit,
                                  const struct family *const *families, struct pv_error *err)
{
    enum pv_status s = gguf_open(&mf->mmproj, path, limit, err);
    return s ? s : open_gguf(mf, mf->mmproj, families, err);
}

static enum pv_status open_sibling(struct model_file *mf, uint64_t limit,
                                   const struct family *const *families, struct pv_error *err)
{
    char *path = vision_file_sibling(mf->path);
    enum pv_status s = PV_OK;

    if (!path)
        s = fail_nomem(err, strlen(mf->path) + sizeof "mmproj-");
    else if (file_exists(path))
        s = open_mmproj(mf, path, limit, families, err);
    mem_free(path);
    return s;
}

enum pv_status vision_file_open(struct model_file *mf, const char *mmproj, uint64_t limit,
                                const struct family *const *families, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    mf->vision.image_token = mf->vision.video_token = -1;
    mf->vision.vision_start = mf->vision.vision_end = mf->vision.audio.token = -1;
    if (mf->gguf && vision_config_gguf_has(mf->gguf))
        s = open_gguf(mf, mf->gguf, families, err);
#ifndef PV_CORE
    else if (!mf->gguf)
        s = open_dir(mf, families, err);
#endif
    if (s)
        return s;
    if (mmproj && mf->vision.family)
        return fail(err, PV_E_ARG, "%s: not needed, %s has a vision tower itself", mmproj,
                    mf->path);
    if (mmproj)
        return open_mmproj(mf, mmproj, limit, families, err);
    return mf->gguf && !mf->vision.family ? open_sibling(mf, limit, families, err) : PV_OK;
}

void vision_file_close(struct model_file *mf)
{
    audio_file_close(mf);
    mem_free(mf->vision_layer);
    mem_free(mf->view);
    mem_free(mf->cast);
    mem_free(mf->cast_data);
    gguf_close(&mf->mmproj);
}
