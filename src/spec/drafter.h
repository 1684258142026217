/* Drafters propose tokens. A drafter only fills a tree; verify.c alone decides what is emitted.
 *
 * A drafter gets the prompt once (begin), and then in every round the whole answer so far
 * (propose). It keeps its own state between rounds: it compares the answer with that state and
 * rolls back what was not accepted, so nobody has to report the result of a round to it. */
#ifndef PV_SPEC_DRAFTER_H
#define PV_SPEC_DRAFTER_H

#include "lm/sampling.h"
#include "lm/stepper.h"
#include "spec/tree.h"

struct price;
struct states;

/* The target's prompt. */
struct draft_prompt {
    int n;
    const int32_t *ids;      /* negative: a row of a media item */
    const int32_t (*pos)[3]; /* of the target */
    int32_t next;            /* position of the first token of the answer, in the target */
    const bool *visible;     /* [n]: rows that the drafter gets */
    bool original;           /* rows keep the target's positions; else they are renumbered */
    /* Writes the input rows [from, from + n), which belong to media, in the width of the drafter's
     * decoder: [n, config_media_width]. */
    enum pv_status (*embed)(void *user, int from, int n, float *out, struct pv_error *err);
    /* Progress of the drafter's prefill, in rows; false stops it, and begin returns PV_E_CANCELLED.
     * The rows done so far are reused by the next begin. May be NULL. */
    bool (*progress)(void *user, int done, int total);
    void *user;
    const struct kvcache
        *target;         /* the target's KV cache with the prompt, for drafters that read it */
    const float *scores; /* sparse: [n_layers, n_groups, n_scores], attention to the video rows */
    int n_scores;        /* video rows */
    int n_groups;        /* sparse: KV heads of the target, or 1: scores are means over all heads */
    const int *score_rows; /* [n_scores] rows of the prompt, ascending */
    struct states *states; /* head: hidden states of the target; used until the next begin */
    /* Not NULL: all rows are visible, and begin adds the attention that the rows from query0 on pay
     * to score_rows, a sum over layers and rows and a mean over heads. sums [n_scores]: scratch. */
    float *attention, *sums; /* [n_scores] */
    int query0;
};

struct draft_request {
    const int32_t *answer; /* tokens after the prompt; the last is the root */
    int n_answer;
    int of_prompt;     /* how many of these are the end of the prompt: drafting may start before the
                          answer does */
    uint64_t position; /* of the token after the root, for random numbers */
    const struct sampling *how;
    const struct shape *shape;
    struct tree *tree; /* output; contains the root */
    int most;          /* deeper tokens would be useless */
    float *scores; /* [TREE_MAX] or NULL; output for a dynamic or fitted tree: the log-probability
                      of the path to each row */
    const struct price *price; /* costs for a fitted tree */
    float *q; /* not NULL: sample a chain, and store its distributions [window, vocab] here */
    const struct kvcache *target; /* the target's KV cache: the prompt and the answer, without the
                                     root */
};

struct drafter {
    const char *name;
    enum pv_status (*begin)(struct drafter *d, const struct draft_prompt *p, struct pv_error *err);
    enum pv_status (*propose)(struct drafter *d, const struct draft_request *r,
                              struct pv_error *err);
    void (*close)(struct drafter *d); /* frees d */
    /* Use another stepper of the same decoder and pool from now on; the parallel schedule has its
     * own. NULL: the drafter runs no decoder. */
    void (*step_by)(struct drafter *d, struct stepper *steps);
    /* Work so far: rows computed, and slots that they attended to (of one layer). */
    int64_t rows, slots;
};

/* Add a chain of n rows after `len` slots to the counters. */
void drafter_count(struct drafter *d, int len, int n);

/* Whether all tokens of a chain can be chosen and run in one step (step.chain) and that saves time.
 * Requires sampling without filters, and a request that needs tokens only. */
bool drafter_chains_at_once(const struct decoder *dec, const struct draft_request *r);

/* Expand the logits of n rows over a draft vocabulary to logits [n, decoder_input_vocab] over all
 * tokens; tokens outside the draft vocabulary get -infinity. */
void drafter_spread(const struct decoder *dec, float *logits, const float *drafted, int n);

/* Sample a token from the distribution q [n], with random numbers of (seed, position) that nothing
 * else uses. For drafters with rejection acceptance. */
int32_t drafter_draw(const float *q, int n, const struct sampling *how, uint64_t position);

/* Prompt lookup: finds the latest earlier occurrence of the last tokens (4, or fewer if there is
 * none) in prompt and answer, and proposes what followed it. */
enum pv_status drafter_ngram_open(struct drafter **out, struct pv_error *err);
/* Random tokens below `vocab`, for tests. */
enum pv_status drafter_random_open(struct drafter **out, int vocab, uint64_t seed,
                                   struct pv_error *err);
/* Replays a known answer, for tests; each token is made wrong with probability `errors`, decided by
 * (seed, position). In trees, the first child of a node is the replayed token. */
enum pv_status drafter_oracle_open(struct drafter **out, const int32_t *answer, int n, int vocab,
                                   double errors, uint64_t seed, struct pv_error *err);
/* The target itself, where each layer attends to only `keep` entries of the prompt: all rows
 * without a score, and of the others those with the highest scores in that layer and KV head.
 * Proposes chains only; for other shapes, a chain of the same depth. Borrows `steps`, a stepper of
 * the target's decoder. context: most slots of its cache; when it is full, nothing is proposed. */
enum pv_status drafter_sparse_open(struct drafter **out, struct stepper *steps, int context,
                                   int keep, struct pv_error *err);

#endif
