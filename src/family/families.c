/* The list of families, and the tables of text-only families. */
#include "family/families.h"

#include <stddef.h>

const struct family family_qwen2 = {
    .name = "qwen2",
    .title = "Qwen2",
    .types = (const char *const[]){ "qwen2", NULL },
    .arch = "qwen2",
    .decoder = { .qkv_bias = true },
};

const struct family family_qwen3 = {
    .name = "qwen3",
    .title = "Qwen3",
    .types = (const char *const[]){ "qwen3", NULL },
    .arch = "qwen3",
    .decoder = { .qk_norm = true },
};

const struct family family_qwen3_moe = {
    .name = "qwen3_moe",
    .title = "Qwen3-MoE",
    .types = (const char *const[]){ "qwen3_moe", NULL },
    .arch = "qwen3moe",
    .decoder = { .qk_norm = true, .experts = EXPERTS_SAID },
};

/* Known by name only, so that a user is told what the directory holds. */
static const struct family refused[] = {
    { .title = "Qwen2.5-Omni",
      .refused = true,
      .types = (const char *const[]){ "qwen2_5_omni", "qwen2_5_omni_thinker", NULL } },
    { .title = "Qwen3-Omni",
      .refused = true,
      .types = (const char *const[]){ "qwen3_omni_moe", "qwen3_omni_moe_thinker", NULL } },
    { .title = "Qwen2-Audio",
      .refused = true,
      .types = (const char *const[]){ "qwen2_audio", NULL } },
    { .title = "Qwen3-Next",
      .refused = true,
      .types = (const char *const[]){ "qwen3_next", NULL } },
    { .title = "Qwen3.5",
      .refused = true,
      .types = (const char *const[]){ "qwen3_5", "qwen3_5_moe", NULL } },
    { .title = "LLaVA 1.5 or another LLaVA that is not built on Qwen2",
      .refused = true,
      .types =
          (const char *const[]){ "llava", "llava_llama", "llava_next", "llava_next_video", NULL } },
    { .title = "Video-LLaVA",
      .refused = true,
      .types = (const char *const[]){ "video_llava", NULL } },
    { .title = "InternVL",
      .refused = true,
      .types = (const char *const[]){ "internvl", "internvl_chat", NULL } },
    { .title = "a Llama model",
      .refused = true,
      .types = (const char *const[]){ "llama", "mllama", "llama4", NULL } },
};

/* Of families with the same model_type the one with more signs comes first. */
const struct family *const families[] = {
    &family_qwen2,
    &family_qwen3,
    &family_qwen3_moe,
    &family_llava_onevision,
    &family_llava_video,
    &family_llava_original,
    &family_salmonn2_plus,
    &family_qwen2_5_vl,
    &family_qwen2_vl,
    &family_qwen3_vl,
    &family_qwen3_vl_moe,
    &refused[0],
    &refused[1],
    &refused[2],
    &refused[3],
    &refused[4],
    &refused[5],
    &refused[6],
    &refused[7],
    &refused[8],
    NULL,
};

const struct family *family_of_number(uint32_t number)
{
    for (const struct family *const *f = families; *f; f++)
        if (number > 0 && (*f)->number == number)
            return *f;
    return NULL;
}
