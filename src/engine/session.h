/* Inside of the public handle of a session: shared by session.c and generate.c. */
#ifndef PV_ENGINE_SESSION_H
#define PV_ENGINE_SESSION_H

#include "engine/dialogue.h"
#include "engine/draft_side.h"
#include "engine/encoder.h"
#include "engine/seen.h"
#include "engine/timeline.h"
#include "engine/trace.h"
#include "lm/sampling.h"
#include "spec/policy.h"
#include "spec/verify.h"

enum { SESSION_MAX_PENDING = 64 }; /* media of one message */

/* Is shown the logits that chose each token of an answer. */
struct logits_observer {
    void (*show)(void *user, int token, const float *logits);
    void *user;
};

/* For tests: is called where the sides of the parallel schedule meet, on the thread of that side.
 */
struct side_delay {
    void (*wait)(void *user, enum pv_side side);
    void *user;
};

/* For tests: may change what `auto` chose for the next round. */
struct choice_changer {
    void (*change)(void *user, struct policy_choice *c);
    void *user;
};

struct pv_session {
    struct pv_model *model;
    struct kvcache kv;
    struct decoder_state *state;
    struct dialogue *words;  /* NULL: no tokenizer */
    struct encoder *encoder; /* NULL: no vision tower */
    size_t fixed_bytes;      /* KV cache and scratch, */
    size_t tower_bytes;      /* the encoder, */
    size_t drawing_bytes;    /* tree_logits and after: counted against the limit of memory */
    int chunk;
    struct timeline line;
    int32_t *kv_ids; /* [context]: what slots 0 .. kv.len - 1 hold, */
    bool *decoded;   /* and whether as rows of an answer: a row that is run again must go the way
                        it went (step.bulk) */
    float *embeds;   /* [chunk, hidden]: rows of media in a step, on the device */
    int n_pending;
    struct seen pending[SESSION_MAX_PENDING]; /* wait for the text of their message */
    int answer0, n_answer;
    int message0;  /* first row after the last answer */
    bool messages; /* the last thing added was a message: the template asks for an answer */
    float *logits; /* [vocab] of the last row, when tokens are drawn, */
    int32_t top;   /* or its largest, when they are not */
    struct candidate *candidates; /* [vocab] */
    bool speculates;
    struct draft_side draft;
    enum pv_drafter drafting;    /* of the answer being made */
    int32_t tree_best[TREE_MAX]; /* the likeliest token after each row of a tree, */
    float *tree_logits;          /* [TREE_MAX, vocab], or all logits, when tokens are drawn */
    float *draft_q;              /* [TREE_MAX, vocab]: the drafter's distributions (rejection) */
    float *verify_scratch;       /* rejection */
    struct logits_observer observer;
    struct side_delay delay;
    struct choice_changer changer;
    struct pv_stats stats;
    struct trace trace;          /* of the last answer */
    int64_t frames, lost_frames; /* since the last answer */
    double video_s;
};

/* Bytes of the model's limit of memory that are not taken. Rows of media that are kept to save the
 * tower work (draft_side_keep) are not counted: they give way. */
uint64_t session_bytes_left(const struct pv_session *s);
/* PV_E_LIMIT when `need` more bytes are over the limit: "<what> needs ... bytes". */
enum pv_status session_claim(struct pv_session *s, uint64_t need, const char *what,
                             struct pv_error *err);
/* Room in an encoder for media like m; *held: the bytes it has. */
enum pv_status session_tower(struct pv_session *s, struct encoder *e, size_t *held,
                             const struct media *m, struct pv_error *err);

#endif
