/* The list of families, and those that have nothing but a decoder. */
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

const struct family *const families[] = {
    &family_qwen2,    &family_qwen3, &family_llava_onevision, &family_qwen2_vl, &family_qwen2_5_vl,
    &family_qwen3_vl, NULL,
};

const struct family *family_of_number(uint32_t number)
{
    for (const struct family *const *f = families; *f; f++)
        if (number > 0 && (*f)->number == number)
            return *f;
    return NULL;
}
