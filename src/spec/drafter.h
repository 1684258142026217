/* Drafters propose tokens. A drafter only fills a tree; verify.c alone decides what is emitted.
 *
 * A drafter gets the prompt once (begin), and then in every round the whole answer so far. It keeps
 * its own state between rounds: it compares that answer with its state and rolls back what was not
 * accepted, so no result need be reported to it. */
#ifndef PV_SPEC_DRAFTER_H
#define PV_SPEC_DRAFTER_H

#include "lm/sampling.h"
#include "lm/stepper.h"
#include "spec/tree.h"

struct price;
struct states;

/* The prompt as the target has it. */
struct draft_prompt {
    int n;
    const int32_t *ids;      /* negative: a row of a media item */
    const int32_t (*pos)[3]; /* of the target */
    int32_t next;            /* position of the first token of the answer, in the target */
    const bool *visible;     /* [n]: rows the drafter is to see */
    bool original;           /* rows keep the target's positions; else they are renumbered */
    /* Rows [from, from + n), which belong to media, as the drafter's decoder takes them:
     * [n, config_media_width]. */
    enum pv_status (*embed)(void *user, int from, int n, float *out, struct pv_error *err);
    /* Progress of the drafter's prefill, in rows; false stops it, and begin returns PV_E_CANCELLED.
     * The rows done so far are reused by the next begin. May be NULL. */
    bool (*progress)(void *user, int done, int total);
    void *user;
    const struct kvcache *target; /* holds the prompt: for drafters that read it */
    const float *scores;   /* sparse: [n_layers, n_scores], attention to the video rows by layer */
    int n_scores;          /* video rows */
    const int *score_rows; /* [n_scores] rows of the prompt, ascending */
    struct states *states; /* head: of the target's rows; read until the next begin */
};

struct draft_request {
    const int32_t *answer; /* tokens after the prompt; the last is the root */
    int n_answer;
    int of_prompt; /* of these are still the prompt's: a drafter may begin before the answer does */
    uint64_t position; /* of the token after the root, for its noise */
    const struct sampling *how;
    const struct shape *shape;
    struct tree *tree; /* begun with the root */
    int most;          /* tokens of depth beyond this cannot be used */
    float *scores; /* [TREE_MAX] or NULL: of a dynamic or fitted tree, each row's log-probability
                      and that of those above it */
    const struct price *price; /* of a fitted tree */
    float *q; /* not NULL: draw a chain, and leave its distributions [window, vocab] here */
    const struct kvcache *target; /* the target's cache: the prompt and all of the answer but the
                                     root */
};

struct drafter {
    const char *name;
    enum pv_status (*begin)(struct drafter *d, const struct draft_prompt *p, struct pv_error *err);
    enum pv_status (*propose)(struct drafter *d, const struct draft_request *r,
                              struct pv_error *err);
    void (*close)(struct drafter *d); /* frees d */
    /* From now on run steps by another stepper of the same decoder and pool: the parallel schedule
     * has one of its own. NULL: there is nothing to run. */
    void (*step_by)(struct drafter *d, struct stepper *steps);
    /* Work so far: rows run, and slots of the cache that their attention read, in every layer. */
    int64_t rows, slots;
};

/* Counts a chain of n rows behind `len` slots. */
void drafter_count(struct drafter *d, int len, int n);

/* Whether the device can choose and run all tokens of a chain in one step (step.chain), and that
 * saves time: without filters and where only the tokens are asked for. */
bool drafter_chains_at_once(const struct decoder *dec, const struct draft_request *r);

/* Logits of n rows of a draft vocabulary as logits [n, decoder_input_vocab] of all tokens: those
 * that are not in it are -infinity. */
void drafter_spread(const struct decoder *dec, float *logits, const float *drafted, int n);

/* A token drawn from the distribution q [n], by random numbers of (seed, position) that no one else
 * uses: for drafters under rejection. */
int32_t drafter_draw(const float *q, int n, const struct sampling *how, uint64_t position);

/* The longest recent n-gram (up to 4 tokens) of prompt and answer, continued as it was. */
enum pv_status drafter_ngram_open(struct drafter **out, struct pv_error *err);
/* Any tokens below `vocab`: for tests. */
enum pv_status drafter_random_open(struct drafter **out, int vocab, uint64_t seed,
                                   struct pv_error *err);
/* Replays a known answer; each token is wrong with probability `errors`, as (seed, position) says.
 * In trees the first child of a node is the replayed one. */
enum pv_status drafter_oracle_open(struct drafter **out, const int32_t *answer, int n, int vocab,
                                   double errors, uint64_t seed, struct pv_error *err);
/* The target itself, each layer reading only `keep` entries of the prompt: all rows that have no
 * score, and of the others those with the highest scores of that layer. Proposes chains only: of
 * other shapes, one as deep as the shape. Borrows `steps`, of the target's
 * decoder. context: most slots of its cache; without room for more answer, nothing is proposed. */
enum pv_status drafter_sparse_open(struct drafter **out, struct stepper *steps, int context,
                                   int keep, struct pv_error *err);

#endif
