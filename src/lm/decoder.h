/* The decoder: Qwen2 and Qwen3, one implementation driven by the config, and its one entry, the
 * step. Prefill chunk, single token, chain and tree are all steps through the same code. */
#ifndef PV_LM_DECODER_H
#define PV_LM_DECODER_H

#include "format/head_file.h"
#include "format/model_file.h"
#include "lm/kvcache.h"

struct decoder;       /* weights on a device: immutable, shared */
struct decoder_state; /* activations and scratch of one session */

/* Borrows mf and dev, which must outlive the decoder. */
enum pv_status decoder_open(struct decoder **out, const struct model_file *mf, struct device *dev,
                            struct pv_error *err);
/* A draft head as a decoder of one layer, beside its target: the embedding table and, unless it has
 * its own, the output matrix are the target's, which must outlive it as hf must. c: of
 * head_file_fit. Its rows are made of two, see struct step. */
enum pv_status decoder_open_head(struct decoder **out, const struct head_file *hf,
                                 const struct config *c, const struct decoder *target,
                                 struct pv_error *err);
void decoder_close(struct decoder **dec);
/* Bytes of weights that could not be used where they lie in the file, and are in memory of the
 * decoder's own: experts that are stored transposed, and routers that are not F32. */
uint64_t decoder_copied(const struct decoder *dec);
/* vocab: tokens that it has logits of. */
const struct config *decoder_config(const struct decoder *dec);
/* From now on the decoder has logits of these n tokens only, of a draft vocabulary: `ids`
 * ascending, and `lm_head` the output matrix that it has had. Before any state of it is opened; a
 * decoder that has a draft vocabulary already is refused. On failure it is as it was. */
enum pv_status decoder_narrow(struct decoder *dec, const struct tensor *lm_head, const int32_t *ids,
                              int n, struct pv_error *err);
/* Tokens that its rows may be of. With a draft vocabulary these are more than those that it has
 * logits of, and decoder_draft_ids says which the latter are: logit i is of token ids[i]; NULL: of
 * token i. Tokens that a step chooses (argmax, choice.top) are named as ids[i] already; it cannot
 * draw (choice.drawn). */
int decoder_input_vocab(const struct decoder *dec);
const int32_t *decoder_draft_ids(const struct decoder *dec);
/* Floats of a row of `features` of the target's rows in a step of a head. */
size_t decoder_feature_width(const struct decoder *dec);
struct device *decoder_device(const struct decoder *dec);

/* max_rows: of one step. max_logits: rows whose logits one step may want. */
size_t decoder_state_size(const struct decoder *dec, int max_rows, int max_logits, int context,
                          enum dtype kv_dtype);
enum pv_status decoder_state_open(struct decoder_state **out, const struct decoder *dec,
                                  int max_rows, int max_logits, int context, enum dtype kv_dtype,
                                  struct pv_error *err);
/* The same for steps that compete with others for a device, with a priority. */
enum pv_status decoder_state_open_priority(struct decoder_state **out, const struct decoder *dec,
                                           int max_rows, int max_logits, int context,
                                           enum dtype kv_dtype, enum work_priority priority,
                                           struct pv_error *err);
void decoder_state_close(struct decoder_state **st);
struct device_work *decoder_state_work(struct decoder_state *st);

/* Rows of a step that belong to one sequence. */
struct step_seq {
    struct kvcache *kv;
    int n;
    const int *parent; /* [pending + n] inside this sequence, parent[i] < i, -1: the end of the
                          cache; NULL: a chain */
    int pending;       /* rows of earlier steps that still lie behind kv->len: rows 0 .. pending - 1
                          of the tree, as if all had run in one step */
};

enum { TAP_EMBEDDING = -1 };

/* Rows without a token. Of a head, the row of `embeds` is the layer's input as it is, or takes the
 * place of a token's embedding. */
enum { STEP_READY = -1, STEP_PAIRED = -2 };

/* Hidden states of the given rows: the residual stream after a layer (TAP_EMBEDDING: before the
 * first), or with `post_norm` what step.states is. The stream after a layer has the layer's vector
 * of a wide row added (see struct step), as the next layer sees it. */
struct hidden_tap {
    int layer;
    bool post_norm;
    int n_rows;
    const int *rows;
    float *out; /* [n_rows, hidden] */
    bool there; /* it lies on the device */
};

/* Attention from the given query rows (of the step's first sequence, a chain) to the given slots,
 * averaged over heads and over layers [layer0, layer1), summed over the rows: sums[n_keys]. */
struct column_tap {
    int layer0, layer1;
    int n_rows;
    const int *rows; /* ascending */
    int n_keys;
    const int *keys; /* ascending */
    bool over_keys;  /* softmax over the given keys instead of all */
    float *sums;
};

/* Tokens chosen where the logits lie, of each row that logits are wanted of. `top`: the k likeliest
 * (device_ops.top) and log sum exp(logit / t). `drawn`: what sample_token draws without filters. */
struct step_choice {
    int k; /* at most DEVICE_MAX_TOP; 0: not wanted */
    float t;
    struct top_entry *top; /* [n_logits, k] */
    float *mass;           /* [n_logits] */
    int32_t *drawn;        /* [n_logits] or NULL */
    const uint64_t *position;
    uint64_t seed;
};

/* A row of a media item (id < 0) is wide where config.n_deepstack = K > 0: its embedding, and K
 * vectors of which vector k is added to its residual stream after layer k. Such a row needs its
 * wide row in `embeds` in every step that runs one of the layers 0 .. K - 1, also where it starts
 * from `residual`. */
struct step {
    int n;                   /* rows in all */
    const int32_t *ids;      /* [n]; < 0: the row of `embeds` instead */
    const float *embeds;     /* [n, config_media_width], may be NULL when no id is negative */
    bool embeds_there;       /* they lie on the device, and nobody writes them any more */
    const int32_t (*pos)[3]; /* [n + chain] */
    int n_seqs;
    const struct step_seq *seqs; /* their rows follow one another */
    /* So many rows more, one after another: each is of the token that was chosen after the one
     * before it, and the host is not asked in between. The step then has one sequence, a chain, of
     * which logits of the last row are wanted, by `argmax` or `choice->drawn` alone; these have
     * room for 1 + chain tokens, choice->position for as many. Not of a head. */
    int chain;
    int n_logits;
    const int *logit_rows;
    float *logits;   /* [n_logits, vocab] or NULL */
    int32_t *argmax; /* [n_logits] or NULL */
    float *states;   /* [n_logits, hidden] or NULL: what the logits are made of, after the last
                        norm; of a head of EAGLE-3 before it */
    const float *features; /* of a head: [n, hidden], the second half of each row but those that are
                              ready; of EAGLE-3 [n, features, hidden], of the target's rows, */
    bool own_features;     /* or [n, hidden]: states that the head itself has made */
    const struct step_choice *choice;
    int n_hidden;
    const struct hidden_tap *hidden;
    int n_columns;
    const struct column_tap *columns;
    int layer0, layer1;  /* the layers [layer0, layer1) alone; both 0: all */
    float *residual;     /* [n, hidden]: read when layer0 > 0, written when layer1 < n_layers */
    bool residual_there; /* it lies on the device */
    /* Rows of a prompt: a device may run many of them in another way than the rows of decoding,
     * with other last bits. Either way a row's bits do not depend on its company; but a row that is
     * run again must go the way it went. Trees and pending rows are never bulk. */
    bool bulk;
};

/* Runs the rows. Their keys and values lie behind kv->len of their sequence, and behind its pending
 * rows, afterwards; nothing is committed (kvcache_advance, kvcache_gather). Allocates nothing. On
 * failure (PV_E_ARG: a row, id or parent out of range; PV_E_LIMIT: the cache or the state is too
 * small) nothing has changed. */
enum { STEP_MAX_CHAIN = DEVICE_MAX_CHAIN - 1 };
enum pv_status decoder_step(const struct decoder *dec, struct decoder_state *st,
                            const struct step *step, struct pv_error *err);

/* Runs several steps together, each over sequences of its own, as one pass through the weights.
 * Every step gets the bits that it would get alone. They run the same layers, and on a device where
 * rows of a prompt go another way (decoder_ways_differ) all are bulk or none is. All have the same
 * `chain`, and with one they choose tokens in the same way. Together they have
 * no more rows, sequences and logits than one step may have. On failure none has run. */
enum { STEP_MAX_PARTS = 64 };
enum pv_status decoder_steps(const struct decoder *dec, struct decoder_state *st,
                             const struct step *const *steps, int n_steps, struct pv_error *err);
/* Whether a step with a `chain` is faster than one step after the other. */
bool decoder_chains(const struct decoder *dec);
/* Whether `bulk` changes the last bits of a row on this decoder's device. */
bool decoder_ways_differ(const struct decoder *dec);
/* Most rows and rows of logits of the state's steps. */
int decoder_state_rows(const struct decoder_state *st);
int decoder_state_logits(const struct decoder_state *st);

/* A step over a part of the layers touches the keys and values of those alone. With layer0 > 0 the
 * rows start from `residual` (ids and embeds are not looked at, unless layer0 is below n_deepstack:
 * then vectors of wide rows are still to be added, and both must be given as before); with layer1 <
 * n_layers they end there and have no logits. A tap belongs to its layers: other steps leave its
 * output alone, and column sums whose layers are run by several steps are whole when all of them
 * were given the same tap, in order.
 *
 * So a prefill can run all its chunks through the first layers, and only then through the rest, to
 * the same bits. The cache has one length for all layers, which the caller sets: from `start` on,
 *
 *   each chunk: step over [0, L); kvcache_advance(n)
 *   kvcache_truncate(start)        the slots keep what the first layers wrote
 *   each chunk: step over [L, n_layers) with its residual; kvcache_advance(n)
 *
 * In between the cache holds no whole rows: nothing else may run on it, and a prefill that is given
 * up truncates to `start`. */

#endif
