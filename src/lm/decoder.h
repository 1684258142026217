/* The decoder: one implementation of Qwen2 and Qwen3, controlled by the config. Its only entry is
 * the step: a prefill chunk, a single token, a chain and a tree are all steps through the same
 * code. */
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
/* Open a draft head as a decoder with one layer. It uses the embedding table of its target and,
 * unless it has its own, the target's LM head; target and hf must outlive it. c: from
 * head_file_fit. Its input rows consist of an embedding and features, see struct step. */
enum pv_status decoder_open_head(struct decoder **out, const struct head_file *hf,
                                 const struct config *c, const struct decoder *target,
                                 struct pv_error *err);
void decoder_close(struct decoder **dec);
/* Bytes of weights that cannot be used in place from the file and were copied: experts that are
 * stored transposed, and routers that are not F32. */
uint64_t decoder_copied(const struct decoder *dec);
/* Its `vocab` is the number of logits. */
const struct config *decoder_config(const struct decoder *dec);
/* Restrict the decoder to a draft vocabulary: it then has logits of these n tokens only. `ids`
 * ascending; `lm_head`: its present LM head. Must be called before a state is opened; refused if
 * the decoder has a draft vocabulary already. Nothing changes on failure. The rows of a draft head
 * whose matrices are quantised become Q8_0; those of other decoders keep their type. */
enum pv_status decoder_draft_vocab(struct decoder *dec, const struct tensor *lm_head,
                                   const int32_t *ids, int n, struct pv_error *err);
/* Number of tokens that may be input. With a draft vocabulary it is larger than the number of
 * logits, and logit i is that of token decoder_draft_ids()[i]; NULL: of token i. Tokens that a step
 * chooses (argmax, choice.top) are already translated; sampling in the step (choice.drawn) is not
 * possible. */
int decoder_input_vocab(const struct decoder *dec);
const int32_t *decoder_draft_ids(const struct decoder *dec);
/* Floats per row of step.features of a draft head. */
size_t decoder_feature_width(const struct decoder *dec);
struct device *decoder_device(const struct decoder *dec);

/* max_rows: most rows of a step. max_logits: most rows of a step whose logits are computed. */
size_t decoder_state_size(const struct decoder *dec, int max_rows, int max_logits, int context,
                          enum dtype kv_dtype);
enum pv_status decoder_state_open(struct decoder_state **out, const struct decoder *dec,
                                  int max_rows, int max_logits, int context, enum dtype kv_dtype,
                                  struct pv_error *err);
/* The same with a priority, for steps that compete with others for a device. */
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
    const int *parent; /* [pending + n] inside this sequence, parent[i] < i, -1: the last committed
                          slot; NULL: a chain */
    int pending;       /* uncommitted rows of earlier steps after kv->len: they are rows 0 ..
                          pending - 1 of the tree, as if all had run in one step */
};

enum { TAP_EMBEDDING = -1 };

/* Ids of rows without a token, whose vector is in `embeds`. For a draft head: STEP_READY, the
 * vector is the layer's input; STEP_PAIRED, it replaces the embedding of a token. */
enum { STEP_READY = -1, STEP_PAIRED = -2 };

/* Request for hidden states of some rows: the residual stream after a layer (TAP_EMBEDDING: before
 * the first), or with `post_norm` the same as step.states. The stream after a layer includes the
 * deepstack vector that is added there (see struct step): it is the next layer's input. */
struct hidden_tap {
    int layer;
    bool post_norm;
    int n_rows;
    const int *rows;
    float *out;     /* [n_rows, hidden] */
    bool on_device; /* `out` is device memory */
};

/* Request for the attention from some query rows (of the step's first sequence, a chain) to some
 * slots, averaged over heads and over layers [layer0, layer1), summed over the rows:
 * sums[n_keys]. */
struct column_tap {
    int layer0, layer1;
    int n_rows;
    const int *rows; /* ascending */
    int n_keys;
    const int *keys; /* ascending */
    bool over_keys;  /* softmax over the given keys instead of all */
    bool by_group; /* sums [n_kv_heads, n_keys]: averaged only over the heads that share a KV head.
                      Not for a decoder that is spread over ranks */
    float *sums;
};

/* Tokens chosen on the device, for each row of logit_rows. `top`: the k most likely tokens
 * (device_ops.top), and `mass`: log sum exp(logit / t). `drawn`: the token that sample_token draws
 * without filters. */
struct step_choice {
    int k; /* at most DEVICE_MAX_TOP; 0: no `top` */
    float t;
    struct top_entry *top; /* [n_logits, k] */
    float *mass;           /* [n_logits] */
    int32_t *drawn;        /* [n_logits] or NULL */
    const uint64_t *position;
    uint64_t seed;
};

enum {
    STEP_MAX_CHAIN = DEVICE_MAX_CHAIN - 1,
    STEP_MAX_TREE = 256 /* rows of all trees that grow behind steps, roots included */
};

/* A tree that grows behind a step's last row, its root: the k most likely tokens of a row are its
 * children, and some of these are the rows of the next level. Rows are numbered in the order in
 * which they run, from 0, the root; child c of row r is candidate r * k + c. */
struct step_tree {
    int k;                     /* at most DEVICE_MAX_LEVEL, as the rows of a level */
    int level[STEP_MAX_CHAIN]; /* rows of each level after the root; step.chain levels */
    const int32_t *pick;       /* [rows - 1]: candidates that are the rows 1, 2, ..; NULL: those of
                                  the level before with the likeliest paths (struct grow_job) */
    struct top_entry *top;     /* [rows, k], output: the candidates */
    float *mass;               /* [rows], output: log sum exp(logit) */
    int32_t *ids;              /* [rows], output: tokens of the rows from 1 on */
};

/* One step. If config.n_deepstack = K > 0, a media row (id < 0) in `embeds` is wide: its embedding,
 * followed by K vectors; vector k is added to the residual stream after layer k. The wide row must
 * be given in every step that runs one of the layers 0 .. K - 1, even if it starts from
 * `residual`. */
struct step {
    int n;                   /* total number of rows */
    const int32_t *ids;      /* [n]; < 0: the row of `embeds` is used instead */
    const float *embeds;     /* [n, config_media_width], may be NULL if no id is negative */
    bool embeds_there;       /* they are in device memory, and nobody writes to them any more */
    const int32_t (*pos)[3]; /* [n + chain] */
    int n_seqs;
    const struct step_seq *seqs; /* their rows are consecutive */
    /* The number of further rows, each for the token that was chosen after the row before it; all
     * run without returning to the host. The step must have one sequence, a chain, with logits of
     * its last row, and choose by `argmax` or `choice->drawn` only; these have space for 1 + chain
     * tokens, as choice->position has. Not for draft heads. With `tree`, the number of further
     * levels; each has one position. Nothing else is chosen then, and `states` are the root's. */
    int chain;
    const struct step_tree *tree; /* requires decoder_grows */
    int n_logits;
    const int *logit_rows;
    float *logits;   /* [n_logits, vocab] or NULL */
    int32_t *argmax; /* [n_logits] or NULL */
    float *states;   /* [n_logits, hidden] or NULL: the input of the LM head, after the last norm;
                        for an EAGLE-3 head, before that norm */
    /* Draft heads: [n, hidden], the target's state for each row except STEP_READY ones. EAGLE-3:
     * [n, features, hidden], or with own_features [n, hidden], states from the head itself. */
    const float *features;
    bool own_features;
    const struct step_choice *choice;
    int n_hidden;
    const struct hidden_tap *hidden;
    int n_columns;
    const struct column_tap *columns;
    int layer0, layer1;  /* run only layers [layer0, layer1); both 0: all */
    float *residual;     /* [n, hidden]: read if layer0 > 0, written if layer1 < n_layers */
    bool residual_there; /* it is device memory */
    /* Run only the part of layer `layer0` that its column taps need: compute the rows' queries,
     * keys and values, and write keys and values to the cache. The residual stream does not change.
     * Requires layer0 > 0 and layer1 == layer0 + 1. */
    bool columns_only;
    /* Rows of a prompt. A device may compute many such rows by another algorithm than rows of
     * decoding, with different last bits. With either one, a row's bits do not depend on the other
     * rows; but a row that is computed again must be computed by the same one. Trees and pending
     * rows are never bulk. */
    bool bulk;
    /* Positions of the rows that the caller runs next, if it knows them: a device's host prepares
     * what it needs of them while the device computes this step. */
    int n_next;
    const int32_t (*next_pos)[3];
};

/* Run the rows. Their keys and values are stored after kv->len and the pending rows of their
 * sequence; nothing is committed (kvcache_advance and kvcache_gather do that). Allocates nothing.
 * On failure (PV_E_ARG: a row, id or parent out of range; PV_E_LIMIT: the cache or the state is too
 * small) nothing has changed. */
enum pv_status decoder_step(const struct decoder *dec, struct decoder_state *st,
                            const struct step *step, struct pv_error *err);

/* Run several steps, each with its own sequences, as one pass through the weights. Every step gets
 * the same bits as if it ran alone. All steps must run the same layers; if decoder_ways_differ, all
 * must be bulk or none; all must have the same `chain`, and if that is not 0, choose tokens in the
 * same way, and have trees of the same form (step_trees_agree). Together they must not exceed the
 * rows, sequences and logits of one step. On failure none has run. */
enum { STEP_MAX_PARTS = 64 };
enum pv_status decoder_steps(const struct decoder *dec, struct decoder_state *st,
                             const struct step *const *steps, int n_steps, struct pv_error *err);
/* Whether one step with a `chain` is faster than separate steps. */
bool decoder_chains(const struct decoder *dec);
/* Whether trees can grow behind a step (step.tree). */
bool decoder_grows(const struct decoder *dec);
/* Rows that a step runs after its own: of its chain or its tree. */
int step_further_rows(const struct step *step);
/* Whether trees can grow together, behind one step each. */
bool step_trees_agree(const struct step *a, const struct step *b);
/* Whether the state has room for n trees like this one. */
bool decoder_state_holds(const struct decoder_state *st, const struct step *step, int n);
/* Whether `bulk` changes the last bits of a row on this decoder's device. */
bool decoder_ways_differ(const struct decoder *dec);
/* Most rows and rows of logits of the state's steps. */
int decoder_state_rows(const struct decoder_state *st);
int decoder_state_logits(const struct decoder_state *st);

/* Steps over some of the layers. Such a step changes the keys and values of its layers only. With
 * layer0 > 0 the rows start from `residual`; ids and embeds are then ignored, unless layer0 is
 * below n_deepstack: vectors of wide rows are still to be added, and both must be given as before.
 * With layer1 < n_layers the rows end in `residual` and have no logits. A tap belongs to its
 * layers: steps over other layers do not change its output, and column sums over layers that
 * several steps run are complete when all of these were given the same tap, in order.
 *
 * So a prefill can run all its chunks through the first layers, and then through the others, with
 * the same bits. The cache has one length for all layers, which the caller sets: from `start` on,
 *
 *   each chunk: step over [0, L); kvcache_advance(n)
 *   kvcache_truncate(start)        the slots keep what the first layers wrote
 *   each chunk: step over [L, n_layers) with its residual; kvcache_advance(n)
 *
 * In between, the rows in the cache are incomplete: nothing else may use it, and a prefill that is
 * abandoned must truncate to `start`. */

#endif
