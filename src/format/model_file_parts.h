/* The fields of struct model_file: private to its reader and its writer. */
#ifndef PV_FORMAT_MODEL_FILE_PARTS_H
#define PV_FORMAT_MODEL_FILE_PARTS_H

#include "format/gguf.h"
#include "format/model_file.h"

struct model_file {
    char *path; /* owned */
    struct config config;
    struct gguf *gguf;               /* owned; NULL for a directory */
    struct safetensors *safetensors; /* owned; NULL for GGUF */
    struct adapter *adapter;         /* owned; changes some tensors; NULL: none */
    struct vocab *vocab;             /* owned; may be NULL */
    const char *vocab_reason;        /* why vocab is NULL; static text */
    const char *text_prefix;         /* of the decoder's tensors in a directory; static */
    const struct tensor *embed, *norm, *lm_head;
    struct layer_tensors *layer;    /* owned; [n_layers] */
    struct expert_tensors *experts; /* owned; [n_layers, n_experts]; NULL: no layer is sparse */
    struct vision_config vision;    /* family NULL: no tower */
    struct gguf *mmproj;            /* owned; the tower's file, if it is a separate one */
    struct vision_tensors vision_tensors;
    struct vision_layer_tensors *vision_layer; /* owned; [vision.n_layers] */
    struct audio_tensors audio_tensors;
    struct vision_layer_tensors *audio_layer; /* owned; [vision.audio.n_layers] */
    struct query_layer_tensors *query_layer;  /* owned; [vision.audio.q_layers] */
    struct tensor *view; /* owned; parts or reshaped forms of stored tensors of the tower */
    int n_views;
    struct tensor *cast; /* owned; tensors of the tower in another type; NULL: none */
    void *cast_data;     /* owned; their numbers */
};

/* A tensor of the decoder by its complete name, or NULL. */
const struct tensor *model_file_find(const struct model_file *mf, const char *name);

/* expert_file.c: find and check the experts of a sparse layer. */
enum pv_status expert_file_bind(struct model_file *mf, int layer, struct pv_error *err);

#endif
