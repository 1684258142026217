/* The shapes make_model knows: those of published models, and small ones of each family. */
#ifndef PV_BENCH_SHAPES_H
#define PV_BENCH_SHAPES_H

#include <stdbool.h>
#include <stddef.h>

/* A vision tower. LLaVA-OneVision's is written into the decoder's file, the others into a separate
 * file, as llama.cpp does. */
struct tower {
    bool llava; /* false: Qwen2.5-VL, or Qwen3-VL if positions is set */
    int hidden, n_layers, n_heads, ffn, patch;
    int image;               /* LLaVA: pixels of a side */
    int window, pattern;     /* Qwen2.5: pixels of a side; every pattern-th layer sees everything */
    int positions;           /* Qwen3: number of learned positions, */
    int deep0, deep1, deep2; /* and the layers whose output the decoder gets too (deepstack) */
};

struct experts {
    int n, used, ffn;
};

/* An audio encoder of Whisper's shape with a Q-Former, in the file of a Qwen2.5 tower. */
struct ears {
    int mel, hidden, n_layers, n_heads, ffn, positions;
    int window; /* frames of a token */
    int q_hidden, q_layers, q_heads, q_ffn;
};

struct shape {
    const char *name;
    const char *arch; /* "qwen2", "qwen2vl": biases on q, k, v; the others: norms on q and k */
    int hidden, n_layers, n_heads, n_kv_heads, head_dim, ffn, vocab, max_context;
    bool tied;
    const struct tower *tower;     /* NULL: text only */
    const struct experts *experts; /* of every layer; NULL: dense */
    const struct ears *ears;       /* NULL: no audio encoder */
};

static const struct tower siglip = { true, 1152, 26, 16, 4304, 14, 384, 0, 0, 0, 0, 0, 0 };
static const struct tower qwen_vit = { false, 1280, 32, 16, 3420, 14, 0, 112, 8, 0, 0, 0, 0 };
static const struct tower tiny_siglip = { true, 128, 3, 4, 304, 14, 154, 0, 0, 0, 0, 0, 0 };
static const struct tower tiny_vit = { false, 128, 4, 4, 348, 14, 0, 112, 2, 0, 0, 0, 0 };
static const struct tower qwen3_vit = { false, 1152, 27, 16, 4304, 16, 0, 0, 0, 2304, 8, 16, 24 };
static const struct tower tiny_vit3 = { false, 128, 4, 4, 348, 16, 0, 0, 0, 36, 0, 1, 2 };

static const struct ears whisper = { 128, 1280, 32, 20, 5120, 1500, 25, 3072, 2, 12, 12288 };
static const struct ears tiny_ears = { 128, 64, 2, 4, 128, 1500, 25, 64, 2, 4, 128 };

static const struct experts a3 = { 128, 8, 768 };
static const struct experts tiny_experts = { 32, 4, 352 };

static const struct shape shapes[] = {
    { "q05", "qwen2", 896, 24, 14, 2, 64, 4864, 151936, 32768, true, NULL, NULL, NULL },
    { "q15", "qwen2", 1536, 28, 12, 2, 128, 8960, 151936, 32768, true, NULL, NULL, NULL },
    { "q7", "qwen2", 3584, 28, 28, 4, 128, 18944, 152064, 32768, false, NULL, NULL, NULL },
    { "q32", "qwen2", 5120, 64, 40, 8, 128, 27648, 152064, 32768, false, NULL, NULL, NULL },
    { "q72", "qwen2", 8192, 80, 64, 8, 128, 29568, 152064, 32768, false, NULL, NULL, NULL },
    { "tiny", "qwen2", 512, 12, 8, 2, 64, 1408, 4096, 32768, true, NULL, NULL, NULL },
    { "q3tiny", "qwen3", 320, 6, 8, 2, 64, 960, 4096, 32768, true, NULL, NULL, NULL },
    { "micro", "qwen2", 64, 2, 4, 2, 16, 160, 512, 4096, true, NULL, NULL, NULL },
    { "nano", "qwen2", 512, 8, 8, 4, 64, 1248, 3072, 32768, true, NULL, NULL, NULL },
    { "nano-draft", "qwen2", 256, 3, 4, 1, 64, 448, 3072, 32768, true, NULL, NULL, NULL },
    { "ov05", "qwen2", 896, 24, 14, 2, 64, 4864, 152000, 32768, true, &siglip, NULL, NULL },
    { "ov7", "qwen2", 3584, 28, 28, 4, 128, 18944, 152128, 32768, false, &siglip, NULL, NULL },
    { "ov32", "qwen2", 5120, 64, 40, 8, 128, 27648, 152128, 32768, false, &siglip, NULL, NULL },
    { "qwen2.5-vl-3b", "qwen2vl", 2048, 36, 16, 2, 128, 11008, 151936, 128000, true, &qwen_vit,
      NULL, NULL },
    { "qwen2.5-vl-7b", "qwen2vl", 3584, 28, 28, 4, 128, 18944, 152064, 128000, false, &qwen_vit,
      NULL, NULL },
    { "tiny-ov", "qwen2", 128, 3, 4, 2, 32, 352, 512, 8192, true, &tiny_siglip, NULL, NULL },
    { "tiny-qwen2.5-vl", "qwen2vl", 128, 3, 4, 2, 32, 352, 512, 8192, true, &tiny_vit, NULL, NULL },
    { "qwen3-vl-8b", "qwen3vl", 4096, 36, 32, 8, 128, 12288, 151936, 262144, false, &qwen3_vit,
      NULL, NULL },
    { "qwen3-vl-30b-a3b", "qwen3vlmoe", 2048, 48, 32, 4, 128, 6144, 151936, 262144, false,
      &qwen3_vit, &a3, NULL },
    { "tiny-qwen3-vl", "qwen3vl", 128, 5, 4, 2, 32, 352, 512, 8192, true, &tiny_vit3, NULL, NULL },
    { "q30a3", "qwen3moe", 2048, 48, 32, 4, 128, 6144, 151936, 40960, false, NULL, &a3, NULL },
    { "tiny-moe", "qwen3moe", 512, 6, 8, 2, 64, 1408, 4096, 32768, true, NULL, &tiny_experts,
      NULL },
    { "salmonn2-plus-7b", "qwen2vl", 3584, 28, 28, 4, 128, 18944, 152064, 128000, false, &qwen_vit,
      NULL, &whisper },
    { "tiny-salmonn2-plus", "qwen2vl", 128, 3, 4, 2, 32, 352, 512, 8192, true, &tiny_vit, NULL,
      &tiny_ears },
};

enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* Control tokens, in the order of their ids: of all models, and after them those of each family. */
static const char *const text_controls[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL };
static const char *const llava_controls[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>",
                                              "<image>",       "<video>",      NULL };
static const char *const qwen_controls[] = {
    "<|endoftext|>",        "<|im_start|>",       "<|im_end|>",
    "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>",          "<|quad_start|>",     "<|quad_end|>",
    "<|vision_start|>",     "<|vision_end|>",     "<|vision_pad|>",
    "<|image_pad|>",        "<|video_pad|>",      NULL
};

#endif
