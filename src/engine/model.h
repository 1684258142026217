/* The fields of pv_model. */
#ifndef PV_ENGINE_MODEL_H
#define PV_ENGINE_MODEL_H

#include "audio_encoder/audio_encoder.h"
#include "base/gpu_list.h"
#include "lm/decoder.h"
#include "vision/vision.h"
#include "vision/vision_adaptor.h"

#include <pthread.h>

struct tokenizer;

enum {
    MODEL_DEFAULT_CHUNK = 512,
    MODEL_GPU_CHUNK = 8448, /* 66 tiles of 128 rows: whole turns of an H200's 132 multiprocessors */
    MODEL_MAX_CHUNK = MODEL_GPU_CHUNK,
    MODEL_DEFAULT_CONTEXT = 32768 /* or the model's own limit if that is smaller */
};

struct pv_model {
    struct model_file *file;
    struct device *dev;
    struct decoder *dec;
    struct vision *vision;                    /* NULL: no vision tower */
    struct audio_encoder *audio_encoder;      /* NULL: no audio encoder */
    struct head_file *head_file;              /* NULL: no draft head */
    struct decoder *head;                     /* the draft head as a decoder */
    struct vision_adaptor_file *adaptor_file; /* NULL: none, or random weights */
    struct vision_adaptor *adaptor; /* of a draft model that gets its video tokens from the target's
                                       tower; vision and hearing are NULL then */
    int adaptor_in;                 /* length of the target rows that it takes */
    struct tokenizer *tokenizer;    /* NULL: the file has none, or a CORE build */
    struct pv_limits limits;
    int threads;
    uint64_t cpu;                 /* features in use */
    struct pv_model *shares_with; /* the owner of the device; NULL: this model */
    bool spread;                  /* its decoder is distributed over ranks, or over GPUs */
    bool tower_cast;              /* its tower was quantised when it was opened */
    const pv_ranks *ranks;        /* NULL: none */
    int gpu;                      /* number of its (first) GPU; -1: it runs on the CPU */
    struct gpu_list gpus;         /* all its GPUs */
    uint64_t repacked; /* bytes of the repacked copy of its weights, made or not (no_repack) */
    pthread_mutex_t own_lock;
    pthread_mutex_t *step_lock; /* the device runs one step at a time */
};

/* Zeros become the defaults. */
struct pv_limits model_fill_limits(struct pv_limits l);
/* The type of a KV cache. AUTO is BF16 on a GPU; on a CPU F16 for layers of F16 and F32, otherwise
 * the 16-bit type whose attention is faster there. */
enum dtype model_kv_dtype(const struct pv_model *m, enum pv_kv_type type);
/* draft_vocab.c: *ids (freed by the caller) becomes the n tokens, ascending, that drafters for this
 * model should score: pv_model_params.draft_vocab. */
enum pv_status model_draft_vocab(const struct pv_model *m, int n, const char *text, int32_t **ids,
                                 struct pv_error *err);
/* PV_E_ARG unless the draft model's vision adaptor takes rows of this target. */
enum pv_status model_adaptor_fit(const struct pv_model *draft, const struct pv_model *target,
                                 struct pv_error *err);
/* The default number of rows of a prefill step. */
int model_chunk(const struct pv_model *m);

#endif
