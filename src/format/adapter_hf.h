/* A PEFT adapter: a directory of changes to a model's tensors. Low-rank ones (LoRA) are added to
 * matrices of the decoder as these are written; tensors that were trained whole take the place of
 * the model's. */
#ifndef PV_FORMAT_ADAPTER_HF_H
#define PV_FORMAT_ADAPTER_HF_H

#include "format/safetensors_hf.h"

struct adapter;

/* What is added to a matrix W [out, in]: scale * B * A. */
struct lora {
    const struct tensor *a; /* [rank, in] */
    const struct tensor *b; /* [out, rank] */
    float scale;
};

/* `base`: the tensors of the model that it changes; borrowed, as long as the adapter is open. Each
 * change must be of a tensor that is there, of its shape. */
enum pv_status adapter_open(struct adapter **out, const char *dir, const struct safetensors *base,
                            uint64_t limit, struct pv_error *err);
void adapter_close(struct adapter **a);
const char *adapter_path(const struct adapter *a);

/* The tensor that takes the place of the model's of this name; NULL: it stays. */
const struct tensor *adapter_replaces(const struct adapter *a, const char *name);
/* What is added to the model's tensor of this name; false: nothing. */
bool adapter_adds(const struct adapter *a, const char *name, struct lora *out);
/* All tensors that something is added to: names, NULL past the last. */
const char *adapter_target(const struct adapter *a, int i);

#endif
