/* What the files of the decoder share: weights, and the activations of one session. */
#ifndef PV_LM_DECODER_PARTS_H
#define PV_LM_DECODER_PARTS_H

#include "base/mem.h"
#include "lm/decoder.h"
#include "lm/positions.h"

enum {
    STEP_MAX_SEQS = 64,
    LAYER_MAX_COLUMNS = 8,
    CHAIN_RUNS = DEVICE_MAX_CHAIN * STEP_MAX_SEQS /* of all levels */
};

struct decoder {
    struct config c;
    struct device *dev;
    struct rope_plan rope;
    struct layer_shape shape;
    struct matrix embed, lm_head;
    bool tied; /* lm_head is embed */
    const float *norm;
    struct layer_weights *layer;
    struct decoder_experts *experts; /* decoder_experts.c; NULL: no layer is sparse */
    float *small;                    /* norms and biases as f32, on the device */
    /* A draft head: its matrix [hidden, 2 hidden] makes a row of two, which may be normed. embed
     * and, unless it has its own, lm_head are the target's; the norms before attention and of the
     * output may be NULL.
     */
    bool is_draft_head, own_lm_head;
    struct matrix fc;
    const float *embed_norm, *hidden_norm;
    int input_vocab;          /* ids of rows are below it */
    const int32_t *draft_ids; /* borrowed, or its own; NULL: logit i is of token i */
    int32_t *names;           /* the same on the device */
    int32_t *own_ids;         /* of decoder_narrow; NULL: there was none */
    void *own_rows;           /* and the rows of the output matrix that it kept */
    /* EAGLE-3 (n_features > 0): fc [hidden, n_features hidden] makes the stream of a row, and the
     * layer's q, k and v are made of the normed embedding and the normed stream. */
    int n_features;
    bool norm_residual;
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
    /* Of max_rows and max_logits; in front of them there is room for those of the rows of a chain,
     * the first of these rows last. */
    uint8_t *inputs, *host_inputs, *host_block;
    int32_t *chosen;       /* [DEVICE_MAX_CHAIN, parts of the step]: tokens of a chain */
    int32_t *host_chosen;  /* the same on the host, */
    struct attn_run *runs; /* and the runs of all levels of a chain */
    float *pair, *wide;    /* a head: [2 max_rows, hidden] embeddings, then features; [max_rows,
                              2 hidden] */
    float *tapped;         /* EAGLE-3: [max_rows, n_features hidden] */
    int32_t *order;        /* [2 max_rows]: rows of pair in the order of wide */
    /* With n_deepstack = K > 0: rows of media as they came, [max_rows, (1 + K) hidden]; and for
     * each of the 1 + K vectors which rows of [max_rows (1 + K), hidden] it is in, [1 + K,
     * max_rows]. */
    float *media;
    int32_t *media_order;
};

/* One of the steps that run together, and where its rows, sequences and logits begin. */
struct part {
    const struct step *step;
    int row0, seq0, logit0;
};

struct pass {
    const struct decoder *dec;
    struct decoder_state *st;
    const struct device_ops *ops;
    int n_parts;
    struct part part[STEP_MAX_PARTS];
    int n_rows, n_seqs, n_logits; /* of all parts */
    bool bulk;
    struct step_inputs in;      /* on the device, */
    struct step_inputs host_in; /* and as they were sent there */
    struct attn_run runs[STEP_MAX_SEQS];
    struct kvcache *kv[STEP_MAX_SEQS];
    int level, n_levels;      /* of a chain; else 0 and 1 */
    int layer0, layer1;       /* those that run */
    bool media;               /* some rows are a media item's (of those that `ids` are read of) */
    int n;                    /* rows still carried: all, or the wanted ones after the last
                                 attention */
    bool dropped;             /* only the rows that logits are wanted of */
    float *x, *tmp, *q, *att; /* of the state, in the places they have now */
};

/* Where the inputs of so many rows lie in a block. */
struct step_inputs step_inputs_at(void *block, int half, int n, int n_logits);
/* Bytes in front of `inputs` for the rows of chains, in a state of so many logit rows. */
size_t chain_inputs_size(int half, int max_logits);

/* decoder_chain.c: the steps' rows are level 0 of the pass. */
void chain_list_runs(struct pass *p);
/* The inputs of all further levels, on the host; returns how many bytes in front of st->inputs. */
size_t chain_fill_inputs(struct pass *p);
/* The pass becomes that of the next level. */
void chain_next_level(struct pass *p);
/* Where the tokens that are chosen at this level go. */
int32_t *chain_chosen(const struct pass *p);
void chain_get_tokens(struct pass *p);

/* decoder_rows.c: the rows that the layers start from, and what is added to them on the way. */
void pass_put_rows(struct pass *p, float *to, const float *from, int n);
void pass_embed_rows(struct pass *p);
/* Wide rows of media to where pass_embed_rows and pass_add_deepstack find them. */
void pass_put_media(struct pass *p);
/* Whether something is added to rows of this pass after the layer. */
bool pass_deepens(const struct pass *p, int layer);
void pass_add_deepstack(struct pass *p, int layer);

/* decoder_experts.c: the experts of all sparse layers, entered in dec->layer. */
enum pv_status decoder_experts_open(struct decoder *dec, const struct model_file *mf,
                                    struct pv_error *err);
void decoder_experts_close(struct decoder *dec);

/* decoder_narrow.c: the names of draft tokens to the device. */
enum pv_status decoder_put_names(struct decoder *dec, const int32_t *ids, int n,
                                 struct pv_error *err);

/* decoder_draft_head.c. The features go in before anything runs: a plan that is played again finds
 * them.
 */
void draft_head_put_features(struct pass *p);
/* Rows [i, i + n), their embeddings beside their features. Embeddings are of the tokens, or those
 * that are `ready`. */
void draft_head_pair_rows(struct pass *p, int i, int n, const float *ready);
/* EAGLE-3: the stream of all rows; then, when their embeddings are in xn,
 * what q, k and v are made of. */
void draft_head_fuse_features(struct pass *p);
void draft_head_widen_rows(struct pass *p);

/* decoder_check.c */
bool step_runs_all_layers(const struct step *step);
/* Whether a step looks at `ids`, and at the rows of `embeds` where they are negative: at the first
 * layer, and where vectors of media are still to be added. */
bool step_reads_ids(const struct decoder *dec, const struct step *step);
/* Everything that can be wrong with steps that are to run together. */
enum pv_status steps_check(const struct decoder *dec, const struct decoder_state *st,
                           const struct step *const *steps, int n, struct pv_error *err);

#endif
