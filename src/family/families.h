/* The families of models that prevue runs. To add one: a file with its table, and its row here and
 * in families.c. */
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

/* By its number in prompt files; NULL: there is none. */
const struct family *family_of_number(uint32_t number);

#endif
