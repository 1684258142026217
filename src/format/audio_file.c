/* Finds the tensors of an audio encoder. The first tensor with a dimension determines its size; all
 * others are checked against it. The number of layers is counted. */
#include "format/audio_file.h"

#include "base/mem.h"
#include "format/family.h"
#include "format/tensor_expect.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MAX_SIZE = 160, MAX_SIZE = 1 << 20 };

static const struct family_audio_encoder *audio_encoder_of(const struct model_file *mf)
{
    return mf->vision.family->audio_encoder;
}

static const struct tensor *find_tensor(const struct model_file *mf, const char *name)
{
    return mf->mmproj ? gguf_tensor_find(mf->mmproj, name) : model_file_find(mf, name);
}

void audio_role_name(char *name, size_t size, const struct family_audio_encoder *h,
                     enum audio_group group, int layer, int role, bool gguf)
{
    static const char *const prefixes[AUDIO_GROUPS] = { "", "a.blk.", "a.qf.blk." };
    const struct audio_roles *r = &h->roles[group];
    const char *prefix = gguf ? prefixes[group] : r->prefix;
    const char *tail = gguf ? r->role[role].gguf : r->role[role].hf;

    if (group == AUDIO_TOP)
        snprintf(name, size, "%s%s", prefix, tail);
    else
        snprintf(name, size, "%s%d.%s", prefix, layer, tail);
}

/* The struct that a group's tensors of one layer lie in. */
static const void *group_base(const struct model_file *mf, enum audio_group group, int layer)
{
    if (group == AUDIO_TOP)
        return &mf->audio_tensors;
    return group == AUDIO_LAYERS ? (const void *)&mf->audio_layer[layer]
                                 : (const void *)&mf->query_layer[layer];
}

const struct tensor *audio_role_tensor(const struct model_file *mf, enum audio_group group,
                                       int layer, int role)
{
    size_t slot = audio_encoder_of(mf)->roles[group].role[role].slot;
    const struct tensor *t;

    memcpy(&t, (const char *)group_base(mf, group, layer) + slot, sizeof t);
    return t;
}

int audio_group_count(const struct audio_config *c, enum audio_group group)
{
    return group == AUDIO_TOP ? 1 : group == AUDIO_LAYERS ? c->n_layers : c->q_layers;
}

/* Where a dimension's size is kept; NULL: it is a constant. */
static int *dim_slot(struct vision_config *c, enum audio_dim d)
{
    switch (d) {
    case ADIM_MEL:
        return &c->audio.mel;
    case ADIM_POSITIONS:
        return &c->audio.positions;
    case ADIM_HIDDEN:
        return &c->audio.hidden;
    case ADIM_FFN:
        return &c->audio.ffn;
    case ADIM_QUERY:
        return &c->audio.q_hidden;
    case ADIM_QUERY_FFN:
        return &c->audio.q_ffn;
    case ADIM_OUT:
        return &c->out;
    default:
        return NULL;
    }
}

static int n_dims(const struct audio_role *r)
{
    int n = 0;
    while (n < AUDIO_DIMS && r->dim[n] != ADIM_NONE)
        n++;
    return n;
}

static enum pv_status need_tensor(const struct model_file *mf, enum audio_group group, int layer,
                                  int role, const char *where, const struct tensor **out,
                                  struct pv_error *err)
{
    char name[NAME_MAX_SIZE];

    audio_role_name(name, sizeof name, audio_encoder_of(mf), group, layer, role, mf->gguf != NULL);
    *out = find_tensor(mf, name);
    if (!*out)
        return fail(err, PV_E_FORMAT, "%s: the tensor %s is missing", where, name);
    return PV_OK;
}

/* Sizes from one tensor, unless they are known. */
static enum pv_status take_sizes(struct model_file *mf, const struct audio_role *r,
                                 const struct tensor *t, const char *where, struct pv_error *err)
{
    for (int i = 0; i < n_dims(r) && t->n_dims == n_dims(r); i++) {
        int *size = dim_slot(&mf->vision, r->dim[i]);
        if (t->dim[i] < 1 || t->dim[i] > MAX_SIZE)
            return fail(err, PV_E_FORMAT, "%s: the tensor %s has a dimension of %lld", where,
                        t->name, (long long)t->dim[i]);
        if (size && *size == 0)
            *size = (int)t->dim[i];
    }
    return PV_OK;
}

/* Whether any tensor of a layer is there. */
static bool has_layer(const struct model_file *mf, enum audio_group group, int layer)
{
    char name[NAME_MAX_SIZE];

    for (int i = 0; i < audio_encoder_of(mf)->roles[group].n; i++) {
        audio_role_name(name, sizeof name, audio_encoder_of(mf), group, layer, i, mf->gguf != NULL);
        if (find_tensor(mf, name))
            return true;
    }
    return false;
}

/* Layers of a group, which must be as many as the configuration says (0: it does not). */
static enum pv_status count_layers(const struct model_file *mf, enum audio_group group, int *said,
                                   const char *where, struct pv_error *err)
{
    int n = 0;

    while (n <= AUDIO_MAX_LAYERS && has_layer(mf, group, n))
        n++;
    if (*said && n != *said)
        return fail(err, PV_E_FORMAT, "%s: expected %d layers of the audio encoder's %s, found %d",
                    where, *said, group == AUDIO_LAYERS ? "own" : "Q-Former", n);
    *said = n;
    return PV_OK;
}

static enum pv_status read_sizes(struct model_file *mf, const char *where, struct pv_error *err)
{
    struct audio_config *c = &mf->vision.audio;
    enum pv_status s = PV_OK;

    for (int group = 0; group < AUDIO_GROUPS && !s; group++)
        for (int i = 0; i < audio_encoder_of(mf)->roles[group].n && !s; i++) {
            const struct tensor *t;
            s = need_tensor(mf, (enum audio_group)group, 0, i, where, &t, err);
            if (!s)
                s = take_sizes(mf, &audio_encoder_of(mf)->roles[group].role[i], t, where, err);
        }
    if (!s)
        s = count_layers(mf, AUDIO_LAYERS, &c->n_layers, where, err);
    if (!s)
        s = count_layers(mf, AUDIO_QUERY_LAYERS, &c->q_layers, where, err);
    return s ? s : audio_config_check(c, where, err);
}

static enum pv_status bind_role(struct model_file *mf, enum audio_group group, int layer, int i,
                                const char *where, struct pv_error *err)
{
    const struct audio_role *r = &audio_encoder_of(mf)->roles[group].role[i];
    bool table = n_dims(r) == AUDIO_DIMS || r->dim[0] == ADIM_POSITIONS;
    int64_t want[AUDIO_DIMS];
    const struct tensor *t;
    enum pv_status s = need_tensor(mf, group, layer, i, where, &t, err);

    for (int k = 0; k < n_dims(r); k++) {
        const int *size = dim_slot(&mf->vision, r->dim[k]);
        want[k] = size ? *size : r->dim[k] == ADIM_TAPS ? AUDIO_TAPS : 1;
    }
    if (!s)
        s = tensor_expect(t, want, n_dims(r), where, err);
    if (!s && table) /* read element by element */
        s = tensor_expect_plain(t, where, err);
    if (!s)
        memcpy((char *)(uintptr_t)group_base(mf, group, layer) + r->slot, &t, sizeof t);
    return s;
}

enum pv_status audio_file_bind(struct model_file *mf, const char *where, struct pv_error *err)
{
    const struct audio_config *c = &mf->vision.audio;
    enum pv_status s = read_sizes(mf, where, err);
    size_t size;

    if (s)
        return s;
    if (c->token >= mf->config.vocab)
        return fail(err, PV_E_FORMAT,
                    "%s: the audio encoder's token %d is not in the vocabulary of %d", where,
                    (int)c->token, mf->config.vocab);
    size = (size_t)c->n_layers * sizeof *mf->audio_layer +
           (size_t)c->q_layers * sizeof *mf->query_layer;
    mf->audio_layer = mem_zalloc((size_t)c->n_layers * sizeof *mf->audio_layer);
    mf->query_layer = mem_zalloc((size_t)c->q_layers * sizeof *mf->query_layer);
    if (!mf->audio_layer || !mf->query_layer)
        return fail_nomem(err, size);
    for (int group = 0; group < AUDIO_GROUPS; group++)
        for (int layer = 0; layer < audio_group_count(c, (enum audio_group)group); layer++)
            for (int i = 0; i < audio_encoder_of(mf)->roles[group].n && !s; i++)
                s = bind_role(mf, (enum audio_group)group, layer, i, where, err);
    return s;
}

void audio_file_close(struct model_file *mf)
{
    mem_free(mf->audio_layer);
    mem_free(mf->query_layer);
}
