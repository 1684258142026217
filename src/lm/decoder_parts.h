/* What the files of the decoder share: weights, and the activations of one session. */
#ifndef PV_LM_DECODER_PARTS_H
#define PV_LM_DECODER_PARTS_H

#include "base/mem.h"
#include "lm/decoder.h"
#include "lm/positions.h"

enum { STEP_MAX_SEQS = 64, LAYER_MAX_COLUMNS = 8 };

struct decoder {
    struct config c;
    struct device *dev;
    struct rope_plan rope;
    struct layer_shape shape;
    struct matrix embed, head;
    bool tied;         /* head is embed */
    bool bulk_differs; /* some matrix multiplies rows of a prompt in another way */
    const float *norm;
    struct layer_weights *layer;
    float *small; /* norms and biases as f32, on the device */
    /* A head: its matrix [hidden, 2 hidden] makes a row of two, which may be normed. embed and head
     * are the target's; the norms before attention and of the output may be NULL. */
    bool is_head;
    struct matrix fc;
    const float *embed_norm, *hidden_norm;
};

/* What a step tells the device, in one block that travels at once: on the host, or on the device.
 */
struct step_inputs {
    int32_t *ids, *rows; /* [n], [n_logits] */
    uint64_t *position;  /* [n_logits], of step_choice */
    float *cos, *sin;    /* [n, head_dim / 2] */
    size_t size;
};

struct decoder_state {
    struct device *dev;
    struct device_work *work;
    int max_rows, max_logits, context;
    enum dtype kv_dtype;
    void *block;                        /* on the device; the following lie in it */
    float *x, *xn, *tmp;                /* [max_rows, hidden] */
    float *q, *k, *v, *att, *gate, *up; /* [max_rows, ...]; NULL where the device has
                                           blocks */
    float *logits;                      /* [max_logits, vocab] */
    int32_t *best, *drawn;              /* [max_logits] */
    struct top_entry *top;              /* [max_logits, DEVICE_MAX_TOP] */
    float *mass;                        /* [max_logits] */
    void *inputs;                       /* of max_rows and max_logits */
    void *host_inputs;
    float *pair, *wide; /* a head: [2 max_rows, hidden] embeddings, then features; [max_rows,
                           2 hidden] */
    int32_t *order;     /* [2 max_rows]: rows of pair in the order of wide */
};

/* Where the inputs of so many rows lie in a block. */
struct step_inputs step_inputs_at(void *block, int half, int n, int n_logits);

/* decoder_check.c */
bool step_runs_all_layers(const struct step *step);
/* Everything that can be wrong with steps that are to run together. */
enum pv_status steps_check(const struct decoder *dec, const struct decoder_state *st,
                           const struct step *const *steps, int n, struct pv_error *err);

#endif
