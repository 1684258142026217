/* Wide rows of media through the decoder, on any device. The yardstick has the same weights and a
 * configuration without deepstack: it runs the prompt layer by layer, and the vectors are added to
 * its residual stream here, by hand. A decoder that adds them itself has the same bits, whatever
 * the chunks, the parts of the layers and the company. */
#ifndef PV_TESTS_DEEPENED_H
#define PV_TESTS_DEEPENED_H

#include "rig.h"
#include "tiny_model.h"

enum {
    DEEP_HIDDEN = 64,
    DEEP_VOCAB = 96,
    DEEP_MAX_LAYERS = 9,
    DEEP_ROWS = 40,
    DEEP_TOKENS = 3, /* after the prompt, one step each */
    DEEP_ALL = DEEP_ROWS + DEEP_TOKENS,
    DEEP_CONTEXT = 256,
    DEEP_WIDE = (1 + CONFIG_MAX_DEEPSTACK) * DEEP_HIDDEN
};

/* A prompt with runs of media, tokens after it, and what came out. */
struct deep_scene {
    struct rig plain, deep; /* the yardstick, and what is tested */
    int layers, k;          /* vectors of a wide row */
    bool bulk;
    int32_t ids[DEEP_ALL], pos[DEEP_ALL][3];
    float wide[DEEP_ROWS * DEEP_WIDE], narrow[DEEP_ROWS * DEEP_HIDDEN];
    struct deep_results {
        float states[DEEP_MAX_LAYERS][DEEP_ROWS * DEEP_HIDDEN];
        float logits[DEEP_ALL * DEEP_VOCAB];
    } want, got;
    float residual[DEEP_ROWS * DEEP_HIDDEN];
    float *there; /* `wide`, on the device */
};

/* Rows of tokens have NaN where they are not to be looked at. */
static inline void deep_draw(struct deep_scene *s)
{
    struct rng r = { test_seed + (uint64_t)s->k };
    int width = (1 + s->k) * DEEP_HIDDEN;
    for (int i = 0; i < DEEP_ALL; i++) {
        bool media = i < DEEP_ROWS && ((i >= 3 && i < 14) || i == 16 || i >= 31);
        s->ids[i] = media ? -1 : (int32_t)(rng_next(&r) % DEEP_VOCAB);
        s->pos[i][0] = i / 2;
        s->pos[i][1] = i / 2 + i % 3;
        s->pos[i][2] = i / 2 + i % 5;
    }
    for (int i = 0; i < DEEP_ROWS; i++) {
        for (int j = 0; j < width; j++)
            s->wide[i * width + j] = s->ids[i] < 0 ? rng_normal(&r) : NAN;
        memcpy(s->narrow + i * DEEP_HIDDEN, s->wide + i * width, sizeof(float) * DEEP_HIDDEN);
    }
}

static inline void deep_close(struct deep_scene *s)
{
    if (s->there)
        s->deep.dev->ops->free(s->deep.dev, s->there);
    rig_close(&s->plain);
    rig_close(&s->deep);
    s->there = NULL;
}

static inline bool deep_open(struct deep_scene *s, enum dtype type, int layers, int k, bool bulk,
                             struct rig_shape shape)
{
    struct tiny_model m = { .arch = "qwen3vl",
                            .hidden = DEEP_HIDDEN,
                            .n_layers = layers,
                            .n_heads = 4,
                            .n_kv = 2,
                            .head_dim = 32,
                            .ffn = 128,
                            .vocab = DEEP_VOCAB,
                            .type = (int)type,
                            .untied = true,
                            .seed = 4 };
    char path[256];
    void *there = NULL;
    bool ok;
    memset(s, 0, sizeof *s);
    s->layers = layers;
    s->k = k;
    s->bulk = bulk;
    deep_draw(s);
    shape.kv = DTYPE_F16;
    shape.max_rows = DEEP_ROWS + 8;
    shape.context = DEEP_CONTEXT;
    ok = rig_open(&s->plain, tiny_model_write(&m, "plain", path), shape);
    m.n_deepstack = k;
    ok = ok && rig_open(&s->deep, tiny_model_write(&m, "deep", path), shape) &&
         CHECK_EQ(s->deep.c->n_deepstack, k) &&
         CHECK(!device_alloc(s->deep.dev, &there, sizeof s->wide, NULL));
    if (ok)
        s->deep.dev->ops->upload(s->deep.dev, there, s->wide, sizeof s->wide);
    s->there = there;
    return ok;
}

/* Rows [from, from + n) through the layers [layer0, layer1), into `out`; `taps`: states too. */
static inline bool deep_run(struct deep_scene *s, struct rig *r, struct deep_results *out, int from,
                            int n, int layer0, int layer1, bool taps, bool there)
{
    bool wide = r == &s->deep;
    size_t width = wide ? (size_t)(1 + s->k) * DEEP_HIDDEN : DEEP_HIDDEN;
    const float *rows = !wide ? s->narrow : there ? s->there : s->wide;
    struct hidden_tap tap[DEEP_MAX_LAYERS];
    struct step_seq seq = { .kv = &r->kv, .n = n };
    struct pv_error err = { 0 };
    bool ends = layer1 == 0 || layer1 == s->layers, prompt = from < DEEP_ROWS;
    bool read = layer0 == 0 || (wide && layer0 < s->k);
    struct step step = { .n = n,
                         .ids = read ? s->ids + from : NULL,
                         .embeds = read && prompt ? rows + (size_t)from * width : NULL,
                         .embeds_there = wide && there,
                         .pos = (const int32_t(*)[3])(s->pos + from),
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = ends ? n : 0,
                         .logit_rows = r->rows,
                         .logits = out->logits + (size_t)from * DEEP_VOCAB,
                         .n_hidden = taps && prompt ? s->layers : 0,
                         .hidden = tap,
                         .layer0 = layer0,
                         .layer1 = layer1,
                         .residual = prompt ? s->residual + (size_t)from * DEEP_HIDDEN : NULL,
                         .bulk = s->bulk && prompt };
    for (int l = 0; l < s->layers && prompt; l++)
        tap[l] = (struct hidden_tap){ .layer = l,
                                      .n_rows = n,
                                      .rows = r->rows,
                                      .out = out->states[l] + (size_t)from * DEEP_HIDDEN };
    bool ok = CHECK_MSG(decoder_step(r->dec, r->st, &step, &err) == PV_OK, "%s", err.text);
    kvcache_advance(&r->kv, n);
    return ok;
}

/* What the model says to tokens after the prompt: its cache is part of the result. */
static inline void deep_tokens(struct deep_scene *s, struct rig *r, struct deep_results *out)
{
    for (int i = DEEP_ROWS; i < DEEP_ALL; i++)
        deep_run(s, r, out, i, 1, 0, 0, false, false);
}

/* The yardstick: a layer at a time, and the vectors added here. */
static inline void deep_by_hand(struct deep_scene *s)
{
    for (int l = 0; l < s->layers; l++) {
        kvcache_truncate(&s->plain.kv, 0);
        deep_run(s, &s->plain, &s->want, 0, DEEP_ROWS, l, l + 1, l + 1 == s->layers, false);
        if (l + 1 == s->layers)
            break; /* the last layer has no vector */
        for (int i = 0; i < DEEP_ROWS; i++)
            for (int j = 0; j < DEEP_HIDDEN && s->ids[i] < 0 && l < s->k; j++)
                s->residual[i * DEEP_HIDDEN + j] +=
                    s->wide[(i * (1 + s->k) + 1 + l) * DEEP_HIDDEN + j];
        memcpy(s->want.states[l], s->residual, sizeof s->residual);
    }
    deep_tokens(s, &s->plain, &s->want);
}

static inline void deep_compare(struct deep_scene *s, bool taps, const char *how)
{
    size_t rows = sizeof(float) * DEEP_ROWS * DEEP_HIDDEN;
    for (int l = 0; l < s->layers && taps; l++)
        CHECK_MSG(!memcmp(s->want.states[l], s->got.states[l], rows),
                  "%s: the stream after layer %d of %d, %d deep%s", how, l, s->layers, s->k,
                  s->bulk ? ", bulk" : "");
    CHECK_MSG(!memcmp(s->want.logits, s->got.logits, sizeof s->got.logits),
              "%s: logits, %d layers, %d deep%s", how, s->layers, s->k, s->bulk ? ", bulk" : "");
}

/* Any chunks, with and without taps (rows are then dropped after the last attention), rows on the
 * host and on the device. */
static inline void deep_check_chunks(struct deep_scene *s)
{
    static const int sizes[] = { 1, 5, DEEP_ROWS };
    for (int c = 0; c < 6; c++) {
        char how[48];
        bool taps = c % 2 == 0, there = c >= 3;
        memset(&s->got, 0, sizeof s->got);
        kvcache_truncate(&s->deep.kv, 0);
        for (int from = 0, n; from < DEEP_ROWS; from += n) {
            n = DEEP_ROWS - from < sizes[c % 3] ? DEEP_ROWS - from : sizes[c % 3];
            deep_run(s, &s->deep, &s->got, from, n, 0, 0, taps, there);
        }
        deep_tokens(s, &s->deep, &s->got);
        snprintf(how, sizeof how, "chunks of %d%s", sizes[c % 3], there ? " on the device" : "");
        deep_compare(s, taps, how);
    }
}

/* The layers in two parts, cut anywhere: a part that starts from the residual stream adds what is
 * left to add. */
static inline void deep_check_parts(struct deep_scene *s)
{
    for (int cut = 1; cut < s->layers; cut++) {
        char how[48];
        memset(&s->got, 0, sizeof s->got);
        kvcache_truncate(&s->deep.kv, 0);
        for (int from = 0; from < DEEP_ROWS; from += DEEP_ROWS / 2)
            deep_run(s, &s->deep, &s->got, from, DEEP_ROWS / 2, 0, cut, true, cut % 2);
        kvcache_truncate(&s->deep.kv, 0);
        for (int from = 0; from < DEEP_ROWS; from += DEEP_ROWS / 4)
            deep_run(s, &s->deep, &s->got, from, DEEP_ROWS / 4, cut, s->layers, true, cut % 2);
        deep_tokens(s, &s->deep, &s->got);
        snprintf(how, sizeof how, "cut after layer %d", cut - 1);
        deep_compare(s, true, how);
    }
}

/* Two prompts and a token in one pass, one of them without media: each as alone. */
static inline void deep_check_company(struct deep_scene *s)
{
    enum { TEXT = 3, MEDIA = 20, FROM = 10 };
    static float want[3][MEDIA * DEEP_VOCAB], got[3][MEDIA * DEEP_VOCAB];
    struct rig *r = &s->deep;
    size_t width = (size_t)(1 + s->k) * DEEP_HIDDEN;
    const int from[3] = { 0, FROM, DEEP_ROWS }, n[3] = { TEXT, MEDIA, 1 };
    struct kvcache kv[6];
    struct step_seq seq[3];
    struct step step[3];
    const struct step *all[3] = { &step[0], &step[1], &step[2] };
    struct pv_error err = { 0 };
    for (int i = 0; i < 6; i++)
        CHECK(!kvcache_open(&kv[i], r->dev, r->c, DTYPE_F16, DEEP_CONTEXT, NULL));
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 3; i++) {
            seq[i] = (struct step_seq){ .kv = &kv[3 * turn + i], .n = n[i] };
            step[i] = (struct step){ .n = n[i],
                                     .ids = s->ids + from[i],
                                     .embeds = i == 1 ? s->wide + FROM * width : NULL,
                                     .pos = (const int32_t(*)[3])(s->pos + from[i]),
                                     .n_seqs = 1,
                                     .seqs = &seq[i],
                                     .n_logits = n[i],
                                     .logit_rows = r->rows,
                                     .logits = turn ? got[i] : want[i],
                                     .bulk = s->bulk };
            if (turn == 0)
                CHECK_MSG(!decoder_step(r->dec, r->st, &step[i], &err), "%s", err.text);
        }
    }
    CHECK_MSG(!decoder_steps(r->dec, r->st, all, 3, &err), "%s", err.text);
    for (int i = 0; i < 3; i++)
        CHECK_MSG(!memcmp(want[i], got[i], sizeof(float) * (size_t)n[i] * DEEP_VOCAB),
                  "part %d of 3 beside the others", i);
    for (int i = 0; i < 6; i++)
        kvcache_close(&kv[i]);
}

static inline void deep_check(enum dtype type, int layers, int k, bool bulk, struct rig_shape shape)
{
    static struct deep_scene s;
    if (deep_open(&s, type, layers, k, bulk, shape)) {
        deep_by_hand(&s);
        deep_check_chunks(&s);
        deep_check_parts(&s);
        deep_check_company(&s);
    }
    deep_close(&s);
}

#endif
