/* Small models with random weights: one for each pair of weight type and shape of attention, and
 * some with experts. */
#ifndef PV_TESTS_SMALL_MODELS_H
#define PV_TESTS_SMALL_MODELS_H

#include "tiny_model.h"

enum { N_SMALL_MODELS = 12 };

static inline const struct tiny_model *small_model(int m)
{
    /* Experts: one layer dense and weights not normed; most of them used; rows of 256. */
    static const struct tiny_experts nine = {
        .n = 9, .used = 2, .ffn = 48, .dense = 1, .not_normed = true
    };
    static const struct tiny_experts five = { .n = 5, .used = 4, .ffn = 64, .dense = -1 };
    static const struct tiny_experts wide = { .n = 4, .used = 2, .ffn = 256, .dense = -1 };

    static const struct tiny_model models[N_SMALL_MODELS] = {
        { "qwen2", 64, 2, 4, 2, 16, 160, 96, DTYPE_F32, false, 1, 0, 0, false, NULL, NULL, NULL,
          0 },
        { "qwen3", 64, 2, 4, 2, 32, 96, 96, DTYPE_F16, true, 2, 0, 0, false, NULL, NULL, NULL, 0 },
        { "qwen2", 128, 1, 7, 1, 64, 192, 96, DTYPE_BF16, false, 3, 0, 0, false, NULL, NULL, NULL,
          0 },
        { "qwen2", 128, 2, 7, 1, 64, 192, 96, DTYPE_Q8_0, true, 4, 0, 0, false, NULL, NULL, NULL,
          0 },
        { "qwen3", 96, 1, 14, 2, 64, 160, 96, DTYPE_Q4_0, false, 5, 0, 0, false, NULL, NULL, NULL,
          0 },
        { "qwen2", 256, 1, 8, 4, 32, 512, 96, TINY_MIXED_K, true, 6, 0, 0, false, NULL, NULL, NULL,
          0 },
        { "qwen3", 64, 1, 2, 2, 128, 96, 96, DTYPE_BF16, true, 7, 0, 0, false, NULL, NULL, NULL,
          0 },
        { "qwen2", 96, 1, 4, 2, 32, 160, 96, TINY_MIXED_32, true, 8, 0, 0, false, NULL, NULL, NULL,
          0 },
        { "qwen3moe", 64, 2, 4, 2, 16, 96, 96, DTYPE_F16, true, 9, 0, 0, false, NULL, NULL, &nine,
          0 },
        { "qwen3moe", 96, 2, 4, 2, 32, 160, 96, TINY_MIXED_32, true, 10, 0, 0, false, NULL, NULL,
          &five, 0 },
        { "qwen3moe", 64, 1, 4, 2, 16, 96, 96, DTYPE_BF16, true, 11, 0, 0, false, NULL, NULL, &nine,
          0 },
        { "qwen3moe", 256, 1, 4, 2, 64, 256, 96, TINY_MIXED_K, true, 12, 0, 0, false, NULL, NULL,
          &wide, 0 },
    };
    return &models[m];
}

#endif
