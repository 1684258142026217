/* The public model handle: opens file, device, decoder, towers and tokenizer. */
#include "engine/model.h"

#include "engine/ranks_handle.h"

#include "base/cpu.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/sized.h"
#include "base/thread.h"
#include "family/families.h"
#include "prevue/testing.h"
#ifndef PV_CORE
#include "text/tokenizer.h"
#endif

#include <string.h>

static const struct pv_limits default_limits = {
    .file_bytes = (uint64_t)1 << 40,
    .memory_bytes = (uint64_t)64 << 30,
    .context_tokens = 1 << 20,
    .video_bytes = (uint64_t)16 << 30,
    .frame_pixels = (int64_t)64 << 20,
    .frames = 1024,
    .video_seconds = 24 * 3600,
    .decoded_pixels = (uint64_t)1 << 44,
    .decode_seconds = 24 * 3600,
};

void pv_limits_server(struct pv_limits *out)
{
    *out = default_limits;
    out->memory_bytes = (uint64_t)1 << 30;
    out->video_bytes = (uint64_t)512 << 20;
    out->frame_pixels = (int64_t)4096 * 4096;
    out->frames = 512;
    out->video_seconds = 3600;
    out->decoded_pixels = (uint64_t)64 << 30;
    out->decode_seconds = 300;
}

void pv_model_params_init(struct pv_model_params *p, size_t size)
{
    static const struct pv_model_params usual = { .cpu_mask = ~(uint64_t)0 };
    sized_init(p, size, &usual, sizeof usual);
}

struct pv_limits model_fill_limits(struct pv_limits l)
{
    if (!l.file_bytes)
        l.file_bytes = default_limits.file_bytes;
    if (!l.memory_bytes)
        l.memory_bytes = default_limits.memory_bytes;
    if (l.context_tokens <= 0)
        l.context_tokens = default_limits.context_tokens;
    if (!l.video_bytes)
        l.video_bytes = default_limits.video_bytes;
    if (l.frame_pixels <= 0)
        l.frame_pixels = default_limits.frame_pixels;
    if (l.frames <= 0)
        l.frames = default_limits.frames;
    if (!(l.video_seconds > 0))
        l.video_seconds = default_limits.video_seconds;
    if (!l.decoded_pixels)
        l.decoded_pixels = default_limits.decoded_pixels;
    if (!(l.decode_seconds > 0))
        l.decode_seconds = default_limits.decode_seconds;
    return l;
}

static enum pv_status open_tokenizer(struct pv_model *m, struct pv_error *err)
{
#ifndef PV_CORE
    const struct vocab *v = model_file_vocab(m->file);
    enum pv_status s = v ? tokenizer_open(&m->tokenizer, v, err) : PV_OK;
    if (s)
        fail_names(err, model_file_path(m->file));
    return s;
#endif
    (void)m;
    (void)err;
    return PV_OK;
}

static bool same_gpus(const struct gpu_list *a, const struct gpu_list *b)
{
    return a->n == b->n && !memcmp(a->index, b->index, sizeof *a->index * (size_t)a->n);
}

/* Ranks that can open the files read their parts of the weights from them. */
static enum pv_status open_ranks(struct pv_model *m, const struct pv_model_params *p,
                                 struct pv_error *err)
{
    enum pv_status s;
    if (m->gpu >= 0)
        return fail(err, PV_E_UNSUPPORTED, "several ranks run on CPUs only, not on a GPU");
    if (p->ranks->t->rank > 0)
        return fail(err, PV_E_ARG, "rank %d cannot open a model: it follows rank 0",
                    p->ranks->t->rank);
    s = device_ranks_open(&m->dev, p->ranks->t, m->threads, m->cpu, err);
    for (int i = 0; !s && i < model_file_n_files(m->file); i++) {
        const char *path;
        const struct file_map *map = model_file_map(m->file, i, &path);
        s = device_ranks_source(m->dev, path, map->data, map->size, err);
    }
    m->spread = !s;
    return s;
}

/* Shares the device of p->shares_with if both models are on the same one. */
static enum pv_status open_device(struct pv_model *m, const struct pv_model_params *p,
                                  struct pv_error *err)
{
    enum pv_status s = PV_OK;
    if (p->shares_with)
        m->gpus = p->shares_with->gpus;
    if (p->device)
        s = gpu_list_parse(&m->gpus, p->device, err);
    if (s)
        return s;
    m->gpu = m->gpus.n > 0 ? m->gpus.index[0] : -1;
    m->ranks = p->ranks;
    if (p->shares_with && same_gpus(&p->shares_with->gpus, &m->gpus) &&
        (!p->ranks || p->ranks == p->shares_with->ranks)) {
        m->shares_with = p->shares_with;
        m->step_lock = p->shares_with->step_lock;
        m->dev = p->shares_with->dev;
        return PV_OK;
    }
    if (p->ranks && p->ranks->t->n > 1)
        return open_ranks(m, p, err);
    if (m->gpus.n > 1) {
        s = device_cuda_open_several(&m->dev, m->gpus.index, m->gpus.n, err);
        m->spread = !s;
        return s;
    }
    return m->gpu < 0 ? device_cpu_open(&m->dev, m->threads, m->cpu, err)
                      : device_cuda_open(&m->dev, m->gpu, err);
}

static uint64_t tensor_bytes(const void *tensors, size_t size)
{
    const struct tensor *const *t = tensors;
    uint64_t sum = 0;
    for (size_t i = 0; i < size / sizeof *t; i++)
        sum += t[i] ? t[i]->size : 0;
    return sum;
}

/* Bytes of all weights of the decoder and, with `towers`, of the towers. */
static uint64_t weight_bytes(const struct model_file *f, bool towers)
{
    const struct tensor *embed = model_file_embed(f), *lm_head = model_file_lm_head(f);
    uint64_t need = embed->size + (lm_head->data != embed->data ? lm_head->size : 0);
    for (int i = 0; i < model_file_config(f)->n_layers; i++)
        need += tensor_bytes(model_file_layer(f, i), sizeof(struct layer_tensors)) +
                model_file_experts_size(f, i);
    for (int i = 0; i < model_file_vision(f)->n_layers && towers; i++)
        need += tensor_bytes(model_file_vision_layer(f, i), sizeof(struct vision_layer_tensors));
    for (int i = 0; i < model_file_vision(f)->audio.n_layers && towers; i++)
        need += tensor_bytes(model_file_audio_layer(f, i), sizeof(struct vision_layer_tensors));
    for (int i = 0; i < model_file_vision(f)->audio.q_layers && towers; i++)
        need += tensor_bytes(model_file_query_layer(f, i), sizeof(struct query_layer_tensors));
    return need;
}

/* Checked before anything is loaded. If a device stores a type as a larger one, an error comes
 * later. */
static enum pv_status check_room(const struct pv_model *m, uint64_t need, struct pv_error *err)
{
    size_t left, all;
    m->dev->ops->room(m->dev, &left, &all);
    if (all > 0 && need > left)
        return fail(
            err, PV_E_NOMEM, "%s has %llu bytes of weights: %zu of the %zu bytes of %s are left",
            model_file_path(m->file), (unsigned long long)need, left, all, m->dev->ops->name);
    return PV_OK;
}

static enum pv_status open_head(struct pv_model *m, const char *path, struct pv_error *err)
{
    struct config c;
    enum pv_status s = head_file_open(&m->head_file, path, m->limits.file_bytes, err);
    if (!s)
        s = head_file_fit(m->head_file, decoder_config(m->dec), model_file_path(m->file), &c, err);
    return s ? s : decoder_open_head(&m->head, m->head_file, &c, m->dec, err);
}

/* ---- the vision adaptor of a draft model ---- */

/* Random weights for models with random weights: as wide as a projector of that size would be. */
static enum pv_status draw_adaptor(struct pv_model *m, const struct pv_model *target,
                                   struct pv_error *err)
{
    struct vision_adaptor_config c = { .in = decoder_config(target->dec)->hidden,
                                       .middle = 2 * model_file_config(m->file)->hidden,
                                       .out = model_file_config(m->file)->hidden,
                                       .eps = 1e-6f };
    m->adaptor_in = c.in;
    return vision_adaptor_open(&m->adaptor, &c, NULL, m->dev, err);
}

/* Open the given adaptor if this draft model should use it; if it keeps its own tower, m has none.
 */
static enum pv_status open_adaptor(struct pv_model *m, const struct pv_model_params *p,
                                   struct pv_error *err)
{
    const struct pv_model *target = p->shares_with;
    bool wanted = p->draft_vision == PV_DRAFT_VISION_SHARED;
    enum pv_status s;
    if (!wanted && (p->draft_vision == PV_DRAFT_VISION_OWN || !p->adaptor || !target))
        return PV_OK;
    if (!target)
        return fail(err, PV_E_ARG,
                    "%s is to see by its target's vision tower, and no target was "
                    "given (shares_with)",
                    p->path);
    if (!target->vision)
        return wanted
                   ? fail(err, PV_E_ARG, "%s is to see by the vision tower of %s, which has none",
                          p->path, model_file_path(target->file))
                   : PV_OK;
    if (wanted && !p->adaptor && m->dev->draws)
        return draw_adaptor(m, target, err);
    if (!p->adaptor)
        return fail(err, PV_E_ARG,
                    "%s is to see by the vision tower of %s, and needs a vision adaptor for that",
                    p->path, model_file_path(target->file));
    s = vision_adaptor_file_open(&m->adaptor_file, p->adaptor, m->limits.file_bytes, err);
    if (s)
        return s;
    s = vision_adaptor_file_fit(m->adaptor_file, decoder_config(target->dec),
                                model_file_path(target->file), model_file_config(m->file), p->path,
                                wanted ? err : NULL);
    if (s)
        return wanted ? s : PV_OK;
    m->adaptor_in = vision_adaptor_file_config(m->adaptor_file)->in;
    return vision_adaptor_open(&m->adaptor, vision_adaptor_file_config(m->adaptor_file),
                               vision_adaptor_file_tensors(m->adaptor_file), m->dev, err);
}

enum pv_status model_adaptor_fit(const struct pv_model *draft, const struct pv_model *target,
                                 struct pv_error *err)
{
    const struct config *c = decoder_config(target->dec);
    if (draft->adaptor_in == c->hidden || draft->adaptor_in == config_media_width(c))
        return PV_OK;
    return fail(err, PV_E_ARG,
                "the vision adaptor of %s takes rows of %d numbers, and the hidden size of %s is "
                "%d: it cannot draft for it",
                model_file_path(draft->file), draft->adaptor_in, model_file_path(target->file),
                c->hidden);
}

/* Rows of the rehearsal call: more than those for which cuBLASLt has special algorithms. */
enum { REHEARSED_PATCHES = 4097 };

static void *rehearse(void *arg)
{
    (void)vision_rehearse(arg, REHEARSED_PATCHES,
                          NULL); /* a failure will be reported in real use */
    return NULL;
}

/* The tower is opened first: if its first call is slow, it runs while the decoder's weights are
 * read. */
static enum pv_status open_networks(struct pv_model *m, struct pv_error *err)
{
    enum pv_status s = PV_OK;
    pthread_t thread;
    bool rehearses;
    if (model_file_vision(m->file)->family && !m->adaptor)
        s = vision_open(&m->vision, m->file, m->dev, err);
    rehearses = !s && m->vision && m->dev->slow_start && thread_start(&thread, rehearse, m->vision);
    m->dev->spreads = m->spread; /* only the target's decoder: towers, drafters run on rank 0 */
    if (!s)
        s = decoder_open(&m->dec, m->file, m->dev, err);
    m->dev->spreads = false;
    if (rehearses)
        pthread_join(thread, NULL);
    return s;
}

/* Restricts the draft head, or if there is none the model itself, to a part of the vocabulary. */
static enum pv_status narrow(struct pv_model *m, const struct pv_model_params *p,
                             struct pv_error *err)
{
    const struct tensor *lm_head = model_file_lm_head(m->file);
    int32_t *ids = NULL;
    enum pv_status s;
    if (p->draft_vocab == 0)
        return PV_OK;
    if (m->head && head_file_tensors(m->head_file)->lm_head)
        lm_head = head_file_tensors(m->head_file)->lm_head;
    s = model_draft_vocab(m, p->draft_vocab, p->draft_text, &ids, err);
    if (!s)
        s = decoder_draft_vocab(m->head ? m->head : m->dec, lm_head, ids, p->draft_vocab, err);
    if (s)
        fail_names(err, p->head ? p->head : p->path);
    mem_free(ids);
    return s;
}

/* The progress callback of an opening, which may cancel it. */
struct opening {
    const struct pv_model_params *p;
    const struct device *dev;
    uint64_t before; /* bytes that the device held at the beginning */
    uint64_t all;
    bool reads; /* we hold the device: progress can be read */
};

static bool is_wanted(void *user)
{
    const struct opening *o = user;
    uint64_t done = o->reads ? o->dev->taken - o->before : 0;
    done = done < o->all ? done : o->all; /* draft heads are not counted */
    return o->p->progress(o->p->progress_user, PV_PHASE_OPEN, (int64_t)done, (int64_t)o->all);
}

/* The tower in the type that was asked for, unless this model sees by its target's. */
static enum pv_status cast_tower(struct pv_model *m, const struct pv_model_params *p,
                                 struct opening *o, struct pv_error *err)
{
    const struct tower_cast how = { .type = DTYPE_Q8_0,
                                    .threads = m->threads,
                                    .go_on = p->progress ? is_wanted : NULL,
                                    .user = o };
    enum pv_status s;
    if (p->tower_type == PV_TOWER_FILE || !model_file_vision(m->file)->family || m->adaptor)
        return PV_OK;
    s = model_file_cast_tower(m->file, &how, err);
    m->tower_cast = true;
    o->all = weight_bytes(m->file, true);
    return s;
}

/* Bring all weights to the device, whose lock we hold meanwhile. */
static enum pv_status open_weights(struct pv_model *m, const struct pv_model_params *p,
                                   struct opening *o, struct pv_error *err)
{
    struct device *d = m->dev;
    enum pv_status s;
    o->before = d->taken;
    o->reads = true;
    d->draws = p->test && p->test->dummy_weights;
    d->repacks = !p->no_repack;
    d->go_on = p->progress ? is_wanted : NULL;
    d->user = o;
    m->repacked = d->copies;
    s = open_adaptor(m, p, err);
    if (!s && m->adaptor)
        o->all = weight_bytes(m->file, false);
    if (!s)
        s = cast_tower(m, p, o, err);
    if (!s)
        s = check_room(m, o->all, err);
    if (!s)
        s = open_networks(m, err);
    if (!s && model_file_vision(m->file)->audio.hidden && !m->adaptor)
        s = audio_encoder_open(&m->audio_encoder, m->file, d, err);
    if (!s && p->head)
        s = open_head(m, p->head, err);
    if (!s)
        s = narrow(m, p, err);
    d->draws = false;
    d->go_on = NULL;
    m->repacked = d->copies - m->repacked;
    return s;
}

/* The caller holds the lock, because the device counts the bytes of its matrices. */
static void close_weights(struct pv_model *m)
{
    vision_close(&m->vision);
    audio_encoder_close(&m->audio_encoder);
    vision_adaptor_close(&m->adaptor);
    decoder_close(&m->head);
    decoder_close(&m->dec);
}

static enum pv_status open_parts(struct pv_model *m, const struct pv_model_params *p,
                                 struct pv_error *err)
{
    struct opening o = { .p = p };
    enum pv_status s =
        model_file_open(&m->file, p->path, p->mmproj, m->limits.file_bytes, families, err);
    if (s)
        return s;
    s = open_tokenizer(m, err);
    if (s)
        return s;
    s = open_device(m, p, err);
    if (s)
        return s;
    o.all = weight_bytes(m->file, true);
    o.dev = m->dev;
    /* repacking weights uses the threads that run steps */
    if (!lock_take(m->step_lock, p->progress ? is_wanted : NULL, &o))
        return fail(err, PV_E_CANCELLED, "%s: stopped while others had the device", p->path);
    s = open_weights(m, p, &o, err);
    if (s)
        close_weights(m);
    pthread_mutex_unlock(m->step_lock);
    if (s == PV_E_CANCELLED)
        fail_names(err, p->path);
    return s;
}

enum pv_status pv_model_open(pv_model **out, const struct pv_model_params *params,
                             struct pv_error *err)
{
    struct pv_model_params own = pv_model_defaults(), *p = &own;
    struct pv_model *m;
    enum pv_status s = sized_read(p, sizeof *p, params, "a model", err);
    if (s)
        return s;
    if (!p->path)
        return fail(err, PV_E_ARG, "no model path was given");
    if (p->threads < 0 || p->threads > POOL_MAX_THREADS)
        return fail(err, PV_E_ARG, "%d threads asked for: 1 to %d are possible", p->threads,
                    POOL_MAX_THREADS);
    if ((unsigned)p->tower_type > PV_TOWER_Q8_0)
        return fail(err, PV_E_ARG, "there is no type of towers number %d", (int)p->tower_type);
    m = mem_zalloc(sizeof *m);
    if (!m)
        return fail_nomem(err, sizeof *m);
    m->limits = model_fill_limits(p->limits);
    m->threads = p->threads ? p->threads : ranks_threads(p->ranks);
    if (m->threads > POOL_MAX_THREADS)
        m->threads = POOL_MAX_THREADS;
    m->cpu = cpu_flags() & p->cpu_mask;
    if (p->shares_with) {
        m->threads = p->shares_with->threads;
        m->cpu = p->shares_with->cpu;
    }
    pthread_mutex_init(&m->own_lock, NULL);
    m->step_lock = &m->own_lock;
    s = open_parts(m, p, err);
    if (s) {
        pv_model_close(&m);
        return s;
    }
    *out = m;
    return PV_OK;
}

void pv_model_close(pv_model **model)
{
    struct pv_model *m = *model;
    if (!m)
        return;
    if (m->dec) { /* otherwise there are no weights, and the device may be busy for long */
        pthread_mutex_lock(m->step_lock);
        close_weights(m);
        pthread_mutex_unlock(m->step_lock);
    }
    if (!m->shares_with)
        device_close(&m->dev);
#ifndef PV_CORE
    tokenizer_close(&m->tokenizer);
#endif
    head_file_close(&m->head_file);
    vision_adaptor_file_close(&m->adaptor_file);
    model_file_close(&m->file);
    pthread_mutex_destroy(&m->own_lock);
    mem_free(m);
    *model = NULL;
}

static bool all_fine(const struct tensor *const *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (t[i] && t[i]->dtype != DTYPE_F16 && t[i]->dtype != DTYPE_F32)
            return false;
    return true;
}

/* Whether all matrices of the layers are F16 or F32: rounding keys and values to BF16 would then
 * lose more precision than storing the weights did. */
static bool layers_are_fine(const struct model_file *mf)
{
    const struct config *c = model_file_config(mf);
    for (int i = 0; i < c->n_layers; i++) {
        const struct layer_tensors *l = model_file_layer(mf, i);
        const struct expert_tensors *x = model_file_experts(mf, i);
        const struct tensor *t[] = { l->q, l->k, l->v, l->o, l->gate, l->up, l->down };
        if (!all_fine(t, sizeof t / sizeof *t))
            return false;
        for (int e = 0; x && e < c->n_experts; e++) {
            const struct tensor *of[] = { x[e].gate.t, x[e].up.t, x[e].down.t };
            if (!all_fine(of, sizeof of / sizeof *of))
                return false;
        }
    }
    return true;
}

enum dtype model_kv_dtype(const struct pv_model *m, enum pv_kv_type type)
{
    bool fast_bf16 = m->cpu & (CPU_AVX512_BF16 | CPU_AMX | CPU_BF16);
    switch (type) {
    case PV_KV_F16:
        return DTYPE_F16;
    case PV_KV_BF16:
        return DTYPE_BF16;
    case PV_KV_F32:
        return DTYPE_F32;
    case PV_KV_FP8:
        return DTYPE_F8;
    default:
        return m->gpu >= 0 || (fast_bf16 && !layers_are_fine(m->file)) ? DTYPE_BF16 : DTYPE_F16;
    }
}

int model_chunk(const struct pv_model *m)
{
    return m->gpu < 0 ? MODEL_DEFAULT_CHUNK : MODEL_GPU_CHUNK;
}

int pv_model_vocab_size(const pv_model *model)
{
    return decoder_input_vocab(model->dec);
}

int pv_model_max_context(const pv_model *model)
{
    int most = decoder_config(model->dec)->max_context;
    return most < model->limits.context_tokens ? most : model->limits.context_tokens;
}

bool pv_model_has_tokenizer(const pv_model *model)
{
    return model->tokenizer != NULL;
}

bool pv_model_has_vision(const pv_model *model)
{
    return model->vision != NULL;
}

bool pv_model_has_audio(const pv_model *model)
{
    return model->audio_encoder != NULL;
}

bool pv_model_has_head(const pv_model *model)
{
    return model->head != NULL;
}

enum pv_status pv_tokenize(const pv_model *model, const char *utf8, size_t len, bool parse_special,
                           int32_t *ids, size_t cap, size_t *n, struct pv_error *err)
{
    if (!model->tokenizer)
#ifdef PV_CORE
        return fail(err, PV_E_UNSUPPORTED, "this build (make CORE=1) has no tokenizer");
#else
        return fail(err, PV_E_UNSUPPORTED, "%s has no tokenizer this build can use",
                    model_file_path(model->file));
#endif
#ifndef PV_CORE
    return tokenizer_encode(model->tokenizer, utf8, len, parse_special, ids, cap, n, err);
#else
    (void)utf8, (void)len, (void)parse_special, (void)ids, (void)cap, (void)n;
    return PV_E_UNSUPPORTED;
#endif
}

const char *pv_token_bytes(const pv_model *model, int32_t id, size_t *len)
{
#ifndef PV_CORE
    if (model->tokenizer)
        return tokenizer_bytes(model->tokenizer, id, len);
#endif
    (void)model, (void)id;
    *len = 0;
    return NULL;
}

uint64_t pv_cpu_features(void)
{
    return cpu_flags();
}

const char *pv_cpu_feature_name(int bit)
{
    /* In the order of enum cpu_flag. */
    static const char *const names[] = { "neon", "dotprod", "i8mm",        "bf16",
                                         "avx2", "avx512",  "avx512_bf16", "amx" };
    return bit >= 0 && bit < (int)(sizeof names / sizeof *names) ? names[bit] : NULL;
}

void pv_free(void *p)
{
    mem_free(p);
}

const char *pv_version(void)
{
    return PV_VERSION;
}
