/* Shared by the files of the decoder: weights, and the activations of one session. */
#ifndef PV_LM_DECODER_PARTS_H
#define PV_LM_DECODER_PARTS_H

#include "base/mem.h"
#include "lm/decoder.h"
#include "lm/positions.h"

enum {
    STEP_MAX_SEQS = 64,
    LAYER_MAX_COLUMNS = 8,
    TABLE_ROWS = 512, /* so many rows are worth several threads for their rope tables ... */
    TABLE_THREADS = 8,
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
    /* Draft head: fc [hidden, 2 hidden] maps embedding and feature, optionally normed, to a row.
     * embed and, unless own_lm_head, lm_head are the target's; the norms before attention and of
     * the output may be NULL. */
    bool is_draft_head, own_lm_head;
    struct matrix fc;
    const float *embed_norm, *hidden_norm;
    int input_vocab;          /* number of input tokens */
    const int32_t *draft_ids; /* borrowed, or own_ids; NULL: logit i is that of token i */
    int32_t *names;           /* the same on the device */
    int32_t *own_ids;         /* set by decoder_draft_vocab; else NULL */
    void *own_rows;           /* the rows of the LM head that decoder_draft_vocab kept */
    /* EAGLE-3 (n_features > 0): fc [hidden, n_features hidden] maps the features to the residual
     * stream; the inputs of q, k and v are the normed embedding and the normed stream. */
    int n_features;
    bool norm_residual;
};

/* The inputs of a step in one block, so that they are sent to the device in one transfer; the block
 * on the host, or the one on the device. */
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
    void *block;                        /* on the device; contains the following */
    float *x, *xn, *tmp;                /* [max_rows, hidden] */
    float *q, *k, *v, *att, *gate, *up; /* [max_rows, ...]; NULL if the device has blocks */
    float *logits;                      /* [max_logits, vocab] */
    int32_t *best, *drawn;              /* [max_logits] */
    struct top_entry *top;              /* [max_logits, DEVICE_MAX_TOP] */
    float *mass;                        /* [max_logits] */
    /* Blocks of struct step_inputs for max_rows and max_logits. Before each there is space for the
     * inputs of the rows of a chain, in reverse order. */
    uint8_t *inputs, *host_inputs, *host_block;
    int32_t *chosen;       /* [DEVICE_MAX_CHAIN, parts of the step]: tokens of a chain */
    int32_t *host_chosen;  /* the same on the host */
    struct attn_run *runs; /* on the host: the runs of all levels of a chain */
    struct pool *tables;   /* threads for the rope tables of prompts; NULL: none */
    /* On the host: tables that were made ahead, for rows at these positions (step.next_pos); NULL
     * if steps do not run beside the host. */
    float *next_cos, *next_sin; /* [max_rows, head_dim / 2] */
    int32_t (*next_pos)[3];     /* [max_rows] */
    int n_next;
    uint8_t *tree;      /* rows of trees (decoder_tree.c); NULL if the device does not grow them */
    uint8_t *host_tree; /* the same on the host */
    float *tree_states; /* draft head: [STEP_MAX_TREE, hidden], states of these rows */
    float *pair, *wide; /* draft head: [2 max_rows, hidden] embeddings, then features; [max_rows,
                           2 hidden] */
    float *tapped;      /* EAGLE-3: [max_rows, n_features hidden] */
    int32_t *order;     /* [2 max_rows]: rows of pair in the order of wide */
    /* With n_deepstack = K > 0: the wide rows of media, [max_rows, (1 + K) hidden], also used as
     * [max_rows (1 + K), hidden]; and [1 + K, max_rows], in which rows of the latter each of the 1
     * + K vectors is. */
    float *media;
    int32_t *media_order;
};

/* One of the steps that run together, and where its rows, sequences and logits begin. */
struct part {
    const struct step *step;
    int row0, seq0, logit0;
    int n, n_logits; /* of the level that runs */
};

struct pass {
    const struct decoder *dec;
    struct decoder_state *st;
    const struct device_ops *ops;
    int n_parts;
    struct part part[STEP_MAX_PARTS];
    int n_rows, n_seqs, n_logits; /* of all parts */
    bool bulk, columns_only;
    struct step_inputs in;      /* on the device */
    struct step_inputs host_in; /* the same on the host */
    struct attn_run runs[STEP_MAX_SEQS];
    struct kvcache *kv[STEP_MAX_SEQS];
    int level, n_levels;      /* of a chain; else 0 and 1 */
    int layer0, layer1;       /* the layers to run */
    bool media;               /* some rows, in parts whose `ids` are read, are media */
    int n;                    /* rows still computed: all, or after the last attention only those
                                 whose logits are wanted */
    bool dropped;             /* the latter */
    float *x, *tmp, *q, *att; /* buffers of the state; they are exchanged during a pass */
};

/* The pointers into a block for n rows and n_logits logits. */
struct step_inputs step_inputs_at(void *block, int half, int n, int n_logits);
/* Bytes before `inputs` for the rows of chains, in a state with max_logits logit rows. */
size_t chain_inputs_size(int half, int max_logits);

/* decoder_chain.c: list the runs of all levels of a chain; the steps' own rows are level 0. */
void chain_list_runs(struct pass *p);
/* Fill the inputs of all further levels, on the host; returns their bytes before st->inputs. */
size_t chain_fill_inputs(struct pass *p);
/* Device: where the ids of the next level's rows are stored. If `tree` names candidates, they are
 * there before. */
int32_t *chain_next_ids(const struct pass *p);
/* Change the pass to that of the next level. */
void chain_next_level(struct pass *p);
/* Where the tokens chosen at this level are stored. */
int32_t *chain_chosen(const struct pass *p);
void chain_get_tokens(struct pass *p);

/* decoder_tree.c: bytes of the rows of a tree. */
size_t tree_rows_size(int k, int n);
/* Find the candidates of this level's rows, and choose the next level's rows. */
void tree_choose(struct pass *p, const struct part *part);
/* Where the states that logits are made of must be gathered so that tree_keep_states need not copy
 * them; NULL: anywhere. */
float *tree_states_place(const struct pass *p);
void tree_keep_states(struct pass *p, const float *states);
/* The states of the parents of this level's rows. */
void tree_take_states(struct pass *p, float *to);
void tree_get(struct pass *p);

/* decoder_rows.c: the input rows of the layers, and the vectors that are added after layers. */
void pass_put_rows(struct pass *p, float *to, const float *from, int n);
void pass_embed_rows(struct pass *p);
/* Copy wide rows of media to the device, for pass_embed_rows and pass_add_deepstack. */
void pass_put_media(struct pass *p);
/* Whether deepstack vectors are added to rows of this pass after the layer. */
bool pass_deepens(const struct pass *p, int layer);
void pass_add_deepstack(struct pass *p, int layer);

/* decoder_experts.c: open the experts of all sparse layers and enter them in dec->layer. */
enum pv_status decoder_experts_open(struct decoder *dec, const struct model_file *mf,
                                    struct pv_error *err);
void decoder_experts_close(struct decoder *dec);

/* decoder_draft_vocab.c: copy the target's ids of the draft vocabulary to the device (dec->names).
 */
enum pv_status decoder_put_names(struct decoder *dec, const int32_t *ids, int n,
                                 struct pv_error *err);

/* decoder_draft_head.c. Copy the features to the device. This happens before the plan begins, so
 * that a recorded plan that is replayed uses them. */
void draft_head_put_features(struct pass *p);
/* The features of a tree's rows after the first level: the states of their parents. */
void draft_head_take_features(struct pass *p);
/* Compute rows [i, i + n) from embeddings and features. Embeddings are those of the tokens, or
 * `ready` if that is not NULL. */
void draft_head_pair_rows(struct pass *p, int i, int n, const float *ready);
/* EAGLE-3: compute the residual stream of all rows from the features; then, when the embeddings are
 * in xn, the input of q, k and v. */
void draft_head_fuse_features(struct pass *p);
void draft_head_widen_rows(struct pass *p);

/* decoder_check.c */
bool step_runs_all_layers(const struct step *step);
/* Whether a step reads `ids`, and `embeds` for negative ones: at the first layer, and while
 * deepstack vectors are still to be added. */
bool step_reads_ids(const struct decoder *dec, const struct step *step);
/* Check the arguments of steps that are to run together. */
enum pv_status steps_check(const struct decoder *dec, const struct decoder_state *st,
                           const struct step *const *steps, int n, struct pv_error *err);

#endif
