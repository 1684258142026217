/* Inside of the public handle of a session: shared by session.c and generate.c. */
#ifndef PV_ENGINE_SESSION_H
#define PV_ENGINE_SESSION_H

#include "engine/dialogue.h"
#include "engine/draft_side.h"
#include "engine/engine.h"
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
    struct pv_engine *engine;
    bool owns_engine;
    uint64_t number;        /* unique in its engine */
    struct pv_model *model; /* the engine's */
    struct task *task;      /* while an answer is made; NULL: none */
    struct task_stepper target;
    struct kvcache kv;      /* empty between answers: its pages are then the pool's */
    struct kv_key *digest;  /* [context]: of the rows of the timeline that the cache holds */
    int kept_len;           /* rows that were given back and will be computed again */
    struct dialogue *words; /* NULL: no tokenizer */
    size_t drawing_bytes;   /* tree_logits and after: counted against the limit of memory */
    uint64_t counted_bytes; /* of its memory, in engine->session_bytes */
    struct timeline line;
    int32_t *kv_ids; /* [context]: the rows that the states of a draft head are of, */
    int n_kv_ids;    /* and how many */
    float *embeds;   /* [chunk, hidden]: rows of media in a step, on the device; while a prompt is
                        read */
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
    double tower_s; /* of the target's tower, not told yet; under model->step_lock */
};

/* Digests of rows [from, to) of the timeline. */
void session_digest(struct pv_session *s, int from, int to);
/* The first n rows of the last step become part of the cache; of a tree those of `path`. */
void session_commit(struct pv_session *s, int n, const int *path);

/* Bytes of the model's limit of memory that nobody on the engine has taken. Rows of media that are
 * kept to save the tower work (draft_side_keep) are not counted: they give way. */
uint64_t session_bytes_left(struct pv_session *s);
/* PV_E_LIMIT when `need` more bytes are over the limit: "<what> needs ... bytes". */
enum pv_status session_claim(struct pv_session *s, uint64_t need, const char *what,
                             struct pv_error *err);
/* Room in an encoder for media like m; *held: the bytes it has. */
enum pv_status session_tower(struct pv_session *s, struct encoder *e, size_t *held,
                             const struct media *m, struct pv_error *err);
/* Room in the engine's tower. */
enum pv_status session_reserve_tower(struct pv_session *s, const struct media *m,
                                     struct pv_error *err);
/* Rows [row, row + n) of a medium in the model's space, on the host or where the model is. */
enum pv_status session_media_rows(struct pv_session *s, const struct medium *m, int row, int n,
                                  float *out, bool there, struct pv_error *err);
/* What tells media of all sessions of an engine apart. */
uint64_t session_medium(const struct pv_session *s, const struct medium *m);
/* Seconds that the engine's tower took for this session since the last call. */
double session_take_tower(struct pv_session *s);

#endif
