/* The families of models that prevue runs. To add one, write a file with its table, declare it here
 * and add it to the list in families.c (doc/architecture.md has the whole list of steps). */
#ifndef PV_FAMILY_FAMILIES_H
#define PV_FAMILY_FAMILIES_H

#include "format/family.h"

extern const struct family family_qwen2, family_qwen3, family_qwen3_moe;  /* text only */
extern const struct family family_llava_onevision, family_llava_original; /* two layouts */
extern const struct family family_llava_video;
extern const struct family family_qwen2_vl, family_qwen2_5_vl;
extern const struct family family_salmonn2_plus;
extern const struct family family_qwen3_vl, family_qwen3_vl_moe;

/* All of them, ended by NULL. */
extern const struct family *const families[];

/* The family with this number in prepared prompts (struct family.number), or NULL. */
const struct family *family_of_number(uint32_t number);

#endif
