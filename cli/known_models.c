/* The table of published checkpoints. Shapes are those of the published config.json files; a row of
 * the table is enough to count every parameter, and the counts agree with the indexes of the
 * published safetensors files (tests/unit/test_known_models.c). */
#include "known_models.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#define SIGLIP                                                                                     \
    {                                                                                              \
        26, 1152, 4304                                                                             \
    }
#define TOWER_2                                                                                    \
    {                                                                                              \
        32, 1280, 5120                                                                             \
    }
#define TOWER_2_5                                                                                  \
    {                                                                                              \
        32, 1280, 3420                                                                             \
    }
#define TOWER_2_5_LARGE                                                                            \
    {                                                                                              \
        32, 1280, 3456                                                                             \
    }
#define TOWER_3_SMALL                                                                              \
    {                                                                                              \
        24, 1024, 4096                                                                             \
    }
#define TOWER_3                                                                                    \
    {                                                                                              \
        27, 1152, 4304                                                                             \
    }

#define OV "llava-hf/llava-onevision-qwen2-"
#define Q2 "Qwen/Qwen2-VL-"
#define Q25 "Qwen/Qwen2.5-VL-"
#define Q3 "Qwen/Qwen3-VL-"
#define SALMONN "tsinghua-ee/video-SALMONN"

/* Repository, base, family; hidden, layers, heads, KV heads, head size, ffn, vocabulary, tied;
 * experts, used; tower; draft models; draft head. */
static const struct known_model models[] = {
    { OV "0.5b-ov-hf", NULL, KNOWN_LLAVA_OV, 896, 24, 14, 2, 64, 4864, 152000, true, 0, 0, SIGLIP,
      NULL, NULL },
    { OV "7b-ov-hf", NULL, KNOWN_LLAVA_OV, 3584, 28, 28, 4, 128, 18944, 152128, false, 0, 0, SIGLIP,
      OV "0.5b-ov-hf", NULL },
    { OV "72b-ov-hf", NULL, KNOWN_LLAVA_OV, 8192, 80, 64, 8, 128, 29568, 152128, false, 0, 0,
      SIGLIP, OV "7b-ov-hf " OV "0.5b-ov-hf", NULL },
    { "lmms-lab/LLaVA-Video-7B-Qwen2", NULL, KNOWN_LLAVA_VIDEO, 3584, 28, 28, 4, 128, 18944, 152064,
      false, 0, 0, SIGLIP, NULL, NULL },
    { "lmms-lab/LLaVA-Video-72B-Qwen2", NULL, KNOWN_LLAVA_VIDEO, 8192, 80, 64, 8, 128, 29568,
      152064, false, 0, 0, SIGLIP, "lmms-lab/LLaVA-Video-7B-Qwen2", NULL },
    { Q2 "2B-Instruct", NULL, KNOWN_QWEN2_VL, 1536, 28, 12, 2, 128, 8960, 151936, true, 0, 0,
      TOWER_2, NULL, NULL },
    { Q2 "7B-Instruct", NULL, KNOWN_QWEN2_VL, 3584, 28, 28, 4, 128, 18944, 152064, false, 0, 0,
      TOWER_2, Q2 "2B-Instruct", NULL },
    { Q2 "72B-Instruct", NULL, KNOWN_QWEN2_VL, 8192, 80, 64, 8, 128, 29568, 152064, false, 0, 0,
      TOWER_2, Q2 "7B-Instruct " Q2 "2B-Instruct", NULL },
    { Q25 "3B-Instruct", NULL, KNOWN_QWEN2_5_VL, 2048, 36, 16, 2, 128, 11008, 151936, true, 0, 0,
      TOWER_2_5, NULL, NULL },
    { Q25 "7B-Instruct", NULL, KNOWN_QWEN2_5_VL, 3584, 28, 28, 4, 128, 18944, 152064, false, 0, 0,
      TOWER_2_5, Q25 "3B-Instruct", NULL },
    { Q25 "32B-Instruct", NULL, KNOWN_QWEN2_5_VL, 5120, 64, 40, 8, 128, 27648, 152064, false, 0, 0,
      TOWER_2_5_LARGE, Q25 "7B-Instruct " Q25 "3B-Instruct", NULL },
    { Q25 "72B-Instruct", NULL, KNOWN_QWEN2_5_VL, 8192, 80, 64, 8, 128, 29568, 152064, false, 0, 0,
      TOWER_2_5_LARGE, Q25 "7B-Instruct " Q25 "3B-Instruct", NULL },
    { Q3 "2B-Instruct", NULL, KNOWN_QWEN3_VL, 2048, 28, 16, 8, 128, 6144, 151936, true, 0, 0,
      TOWER_3_SMALL, NULL, "AngelSlim/Qwen3-VL-2B-Instruct_eagle3" },
    { Q3 "4B-Instruct", NULL, KNOWN_QWEN3_VL, 2560, 36, 32, 8, 128, 9728, 151936, true, 0, 0,
      TOWER_3_SMALL, Q3 "2B-Instruct", "AngelSlim/Qwen3-VL-4B-Instruct_eagle3" },
    { Q3 "8B-Instruct", NULL, KNOWN_QWEN3_VL, 4096, 36, 32, 8, 128, 12288, 151936, false, 0, 0,
      TOWER_3, Q3 "2B-Instruct", NULL },
    { Q3 "32B-Instruct", NULL, KNOWN_QWEN3_VL, 5120, 64, 64, 8, 128, 25600, 151936, false, 0, 0,
      TOWER_3, Q3 "2B-Instruct " Q3 "4B-Instruct", NULL },
    { Q3 "30B-A3B-Instruct", NULL, KNOWN_QWEN3_VL, 2048, 48, 32, 4, 128, 768, 151936, false, 128, 8,
      TOWER_3, Q3 "2B-Instruct", "AngelSlim/Qwen3-VL-30B-A3B-Instruct_eagle3" },
    { Q3 "235B-A22B-Instruct", NULL, KNOWN_QWEN3_VL, 4096, 94, 64, 4, 128, 1536, 151936, false, 128,
      8, TOWER_3, Q3 "4B-Instruct " Q3 "2B-Instruct", NULL },
    { SALMONN "2_plus_3B_full", NULL, KNOWN_SALMONN, 2048, 36, 16, 2, 128, 11008, 151936, true, 0,
      0, TOWER_2_5, NULL, NULL },
    { SALMONN "2_plus_7B_full", NULL, KNOWN_SALMONN, 3584, 28, 28, 4, 128, 18944, 152064, false, 0,
      0, TOWER_2_5, SALMONN "2_plus_3B_full", NULL },
    { SALMONN "-2_plus_72B", "tsinghua-ee/video_SALMONN2plus_72B_audioAlign", KNOWN_SALMONN, 8192,
      80, 64, 8, 128, 29568, 152064, false, 0, 0, TOWER_2_5_LARGE,
      SALMONN "2_plus_7B_full " SALMONN "2_plus_3B_full", NULL },
};
enum { N_MODELS = sizeof models / sizeof *models };

const struct known_model *known_model_at(int i)
{
    return i >= 0 && i < N_MODELS ? &models[i] : NULL;
}

const char *repo_name(const char *repo)
{
    const char *slash = strchr(repo, '/');
    return slash ? slash + 1 : repo;
}

const struct known_model *known_model_find(const char *name)
{
    for (int i = 0; i < N_MODELS; i++)
        if (!strcasecmp(models[i].repo, name) || !strcasecmp(repo_name(models[i].repo), name))
            return &models[i];
    return NULL;
}

const char *known_family_name(enum known_family family)
{
    static const char *const names[] = { "LLaVA-OneVision", "LLaVA-Video", "Qwen2-VL",
                                         "Qwen2.5-VL",      "Qwen3-VL",    "video-SALMONN2+" };
    return names[family];
}

const char *known_type_name(enum known_type type)
{
    static const char *const names[] = { "16 bit", "q8_0", "q4_0" };
    return names[type];
}

/* ---- parameters: those of matrices, which are quantised, and the others ---- */

struct count {
    uint64_t matrix, vector;
};

/* A matrix of `out` rows, with or without a bias. */
static void add_linear(struct count *c, int64_t n, int64_t in, int64_t out, bool bias)
{
    c->matrix += (uint64_t)(n * in * out);
    c->vector += bias ? (uint64_t)(n * out) : 0;
}

static void add_vectors(struct count *c, int64_t n, int64_t size)
{
    c->vector += (uint64_t)(n * size);
}

static void count_decoder(struct count *c, const struct known_model *m, int n_experts)
{
    bool qwen3 = m->family == KNOWN_QWEN3_VL; /* norms of queries and keys instead of biases */
    int64_t n = m->layers, hidden = m->hidden;
    add_linear(c, m->tied ? 1 : 2, hidden, m->vocab, false);
    add_linear(c, n, hidden, m->heads * m->head_dim, !qwen3);
    add_linear(c, 2 * n, hidden, m->kv_heads * m->head_dim, !qwen3);
    add_linear(c, n, m->heads * m->head_dim, hidden, false);
    add_linear(c, 3 * n * (m->experts ? n_experts : 1), hidden, m->ffn, false);
    add_linear(c, m->experts ? n : 0, hidden, m->experts, false);
    add_vectors(c, 2 * n + 1, hidden);
    add_vectors(c, qwen3 ? 2 * n : 0, m->head_dim);
}

/* SigLIP, and two layers between it and the decoder. */
static void count_siglip(struct count *c, const struct known_model *m)
{
    enum { PATCH = 14, POSITIONS = 729 };
    const struct known_tower *t = &m->tower;
    add_linear(c, 1, 3 * PATCH * PATCH, t->hidden, true);
    add_linear(c, 1, POSITIONS, t->hidden, false);
    add_linear(c, 4 * t->layers, t->hidden, t->hidden, true);
    add_linear(c, t->layers, t->hidden, t->ffn, true);
    add_linear(c, t->layers, t->ffn, t->hidden, true);
    add_vectors(c, 4 * t->layers + 2, t->hidden); /* two norms a layer, and a last one */
    add_linear(c, 1, t->hidden, m->hidden, true);
    add_linear(c, 1, m->hidden, m->hidden, true);
    add_vectors(c, 1, m->hidden); /* the newline */
}

/* Four patches become one row of the decoder. */
static void count_merger(struct count *c, const struct known_model *m)
{
    int64_t four = 4 * (int64_t)m->tower.hidden;
    add_linear(c, 1, four, four, true);
    add_linear(c, 1, four, m->hidden, true);
}

static void count_qwen_tower(struct count *c, const struct known_model *m)
{
    enum { DEEPSTACKS = 3, POSITIONS = 2304 };
    bool two = m->family == KNOWN_QWEN2_VL, three = m->family == KNOWN_QWEN3_VL;
    bool norms_have_bias = two || three, gated = !norms_have_bias;
    const struct known_tower *t = &m->tower;
    int patch = three ? 16 : 14;

    add_linear(c, 1, 3 * 2 * patch * patch, t->hidden, three);
    add_linear(c, three ? 1 : 0, POSITIONS, t->hidden, false);
    add_linear(c, 4 * t->layers, t->hidden, t->hidden, true); /* q, k and v are one matrix */
    add_linear(c, (gated ? 2 : 1) * t->layers, t->hidden, t->ffn, true);
    add_linear(c, t->layers, t->ffn, t->hidden, true);
    add_vectors(c, (2 * t->layers + 1) * (norms_have_bias ? 2 : 1), t->hidden);
    count_merger(c, m);
    for (int i = 0; i < DEEPSTACKS && three; i++) {
        count_merger(c, m);
        add_vectors(c, 2 * 4, t->hidden);
    }
}

/* The Whisper encoder of video-SALMONN2+, its Q-Former, and the layer between that and the
 * decoder. */
static void count_audio_encoder(struct count *c, const struct known_model *m)
{
    enum { Q_HIDDEN = 3072 };
    c->matrix += 636968960 + 280092672;
    add_vectors(c, 1, Q_HIDDEN);
    add_linear(c, 1, Q_HIDDEN, m->hidden, true);
}

static struct count count_all(const struct known_model *m, int n_experts)
{
    struct count c = { 0 };
    count_decoder(&c, m, n_experts);
    if (m->family == KNOWN_LLAVA_OV || m->family == KNOWN_LLAVA_VIDEO)
        count_siglip(&c, m);
    else
        count_qwen_tower(&c, m);
    if (m->family == KNOWN_SALMONN)
        count_audio_encoder(&c, m);
    return c;
}

uint64_t known_parameters(const struct known_model *m)
{
    struct count c = count_all(m, m->experts);
    return c.matrix + c.vector;
}

uint64_t known_active_parameters(const struct known_model *m)
{
    struct count c = count_all(m, m->used_experts);
    return c.matrix + c.vector;
}

uint64_t known_weights(const struct known_model *m, enum known_type type)
{
    struct count c = count_all(m, m->experts);
    if (type == KNOWN_16BIT)
        return 2 * (c.matrix + c.vector);
    return c.matrix / 32 * (type == KNOWN_Q8_0 ? 34 : 18) + 4 * c.vector;
}

uint64_t known_kv(const struct known_model *m, int64_t tokens)
{
    return (uint64_t)tokens * 2 * 2 * (uint64_t)m->layers * (uint64_t)m->kv_heads *
           (uint64_t)m->head_dim;
}

/* ---- tokens of a video: the rules that doc/video.md describes ---- */

/* A side as a whole number of cells; `scale` < 1 shrinks and > 1 enlarges. */
static double cells(double side, int cell, double scale)
{
    double n = side * scale / cell;
    n = scale < 1 ? floor(n) : scale > 1 ? ceil(n) : rint(n);
    return n < 1 ? 1 : n;
}

/* Cells of `cell` pixels squared that a frame of the size becomes; `times` frames share the
 * bounds. */
static double frame_cells(double height, double width, int cell, double times, double least,
                          double most)
{
    double area = cells(height, cell, 1) * cells(width, cell, 1) * cell * cell * times, scale = 1;
    if (area > most)
        scale = sqrt(most / (height * width * times));
    else if (area < least)
        scale = sqrt(least / (height * width * times));
    return cells(height, cell, scale) * cells(width, cell, scale);
}

int known_video_tokens(const struct known_model *m, int frames, int height, int width)
{
    double even = frames + frames % 2, area = 28 * 28, most;

    switch (m->family) {
    case KNOWN_LLAVA_OV:
        return 196 * frames + 1;
    case KNOWN_LLAVA_VIDEO:
        return 210 * frames;
    case KNOWN_QWEN2_VL:
    case KNOWN_QWEN2_5_VL:
        most = fmin(768 * area, 128000 * area * 0.9 / even * 2);
        most = fmax(most, floor(1.05 * 128 * area));
        return (int)(even / 2 * frame_cells(height, width, 28, 1, 128 * area, most));
    case KNOWN_QWEN3_VL:
        return (int)(even / 2 * frame_cells(height, width, 32, even, 4096, 25165824));
    case KNOWN_SALMONN:
        most = 61250 * (frames < 768 ? 0.95 * 768 / frames : 1);
        return (int)(even / 2 * frame_cells(height, width, 28, 1, 3136, most));
    }
    return 0;
}
