/* A PEFT adapter: a directory of changes to a model's tensors. Low-rank updates (LoRA) are added
 * to matrices of the decoder while a converted model is written; tensors that were trained in full
 * replace the model's. */
#ifndef PV_FORMAT_ADAPTER_HF_H
#define PV_FORMAT_ADAPTER_HF_H

#include "format/safetensors_hf.h"

struct adapter;

/* A low-rank update of a matrix W [out, in]: W + scale * B * A. */
struct lora {
    const struct tensor *a; /* [rank, in] */
    const struct tensor *b; /* [out, rank] */
    float scale;
};

/* `base`: the tensors of the model that the adapter changes; borrowed while the adapter is open. It
 * is an error if a changed tensor is not in `base` or has another shape there. */
enum pv_status adapter_open(struct adapter **out, const char *dir, const struct safetensors *base,
                            uint64_t limit, struct pv_error *err);
void adapter_close(struct adapter **a);
const char *adapter_path(const struct adapter *a);

/* The tensor that replaces the model's tensor of this name, or NULL. */
const struct tensor *adapter_replaces(const struct adapter *a, const char *name);
/* The low-rank update of the model's tensor of this name; false if there is none. */
bool adapter_adds(const struct adapter *a, const char *name, struct lora *out);
/* Name of the i-th tensor that has a low-rank update; NULL past the last. */
const char *adapter_target(const struct adapter *a, int i);

#endif
