/* Drafting in a session: the drafters it has opened, the media rows they get, and buffers for
 * verifying what they propose. */
#ifndef PV_ENGINE_DRAFTING_H
#define PV_ENGINE_DRAFTING_H

#include "engine/budget.h"
#include "engine/timeline.h"
#include "lm/states.h"
#include "spec/price.h"

/* Rows that the target's tower made of a media item, kept for drafters. */
struct feature_rows {
    int key;
    bool there;    /* on the target's device, else on the host */
    float *rows;   /* [n_rows, hidden] */
    bool *have;    /* [n_rows] */
    uint64_t size; /* bytes of both */
};

/* Rows of a video from the draft model's tower, made before it is known which of them the drafter
 * gets. While the drafter's thread runs, only that thread may use them. */
struct ahead_rows {
    int key;
    int n, made;   /* rows in all, and those that are there, the first */
    float *rows;   /* [n, media width] */
    uint64_t size; /* bytes */
};

/* Where the current drafter runs. */
enum draft_place {
    DRAFT_TAKES_TURNS, /* on the target's thread and thread pool */
    DRAFT_BESIDE,      /* on its own thread; steps on the same device wait for each other */
    DRAFT_DIVIDED      /* also with its own pool or stream: nobody waits */
};

struct drafting {
    struct pv_engine *engine; /* borrowed, as the budget; NULL: the session does not speculate */
    struct budget *budget;
    struct task *task;                       /* whose steps these are */
    struct pv_model *model;                  /* NULL: no draft model */
    bool shared;                             /* its tower is the target's */
    struct encoder *encoder;                 /* of that model; */
    size_t tower_bytes;                      /* what it holds */
    struct drafter *drafter[PV_DRAFT_COUNT]; /* by kind, opened when first used; */
    size_t drafter_bytes[PV_DRAFT_COUNT];    /* what they hold */
    enum pv_drafter used;                    /* by the last answer that had one */
    struct device
        *group[2]; /* threads of the model and of the drafter, while they run side by side */
    int group_threads[2];
    int part[PV_DRAFT_COUNT]; /* of the threads that measuring gave it; 0: not measured */
    struct task_stepper steps[DRAFTER_DECODERS]; /* of the drafters, by their decoder, */
    struct lone_stepper lone[DRAFTER_DECODERS];  /* and while one runs on a thread of its own */
    struct decoder_state *lone_state[DRAFTER_DECODERS]; /* opened when first used */
    enum draft_place place;                             /* of the drafter at work, */
    enum drafter_decoder divided_for; /* and, where groups are divided for it, its decoder */
    struct feature_rows *features;
    int n_features;
    uint64_t room; /* bytes that they may still take */
    struct ahead_rows *ahead;
    int n_ahead;
    bool keep_features; /* of what the target's tower makes from now on, on the host; */
    bool keep_there;    /* on the target's device */
    bool *visible;      /* [context], by the last answer's drafter; */
    int n_visible;      /* rows of the prompt that it chose from; 0: it has not */
    int *rows;          /* [context]: video rows of the prompt; */
    int n_rows;
    float *scores;       /* [context]: attention to them, */
    bool scored;         /* where the last view wanted it */
    float *layer_scores; /* [2, n_layers, n_rows]: the same by layer, and of one step (sparse) */
    float *sums;         /* [context * ...]: of one step */
    size_t n_layer_scores;
    /* Buffers for verifying a tree. */
    int32_t tree_best[TREE_MAX]; /* the most likely token after each row, */
    float *tree_logits;          /* [TREE_MAX, vocab], or all logits, if tokens are sampled */
    float *draft_q;              /* [TREE_MAX, vocab]: the drafter's distributions (rejection) */
    float *verify_scratch;       /* rejection */
    size_t drawing_bytes;        /* of tree_logits and after */
    /* If the model has a draft head. */
    struct states states; /* of the rows in the session's cache; hidden 0: there is no head */
    float *step_states;   /* [features, TREE_MAX, hidden]: of the rows of one step of decoding */
};

/* Borrows the engine and the budget. */
enum pv_status drafting_open(struct drafting *d, struct pv_engine *e, struct budget *b,
                             struct pv_error *err);
void drafting_close(struct drafting *d);
/* Whether a drafter has run out of KV pages since the last call: the next answer may find some
 * free. */
bool drafting_starved(struct drafting *d);
/* The task that runs the drafters' steps from now on; NULL: none. */
void drafting_set_task(struct drafting *d, struct task *t);

/* The method's drafter, opened if it is not open yet or is made anew for each answer. The method
 * must have a drafter. */
enum pv_status drafting_drafter(struct drafting *d, const struct pv_method *m, struct drafter **out,
                                struct pv_error *err);

/* The method's drafter runs its steps on a state of its own from now on, at this place; or with the
 * engine's others again. */
enum pv_status drafting_part(struct drafting *d, const struct pv_method *m, enum draft_place place,
                             struct pv_error *err);
void drafting_join(struct drafting *d, const struct pv_method *m);

/* Bytes of drafters, their tower and scores; without rows that are kept of media. */
size_t drafting_size(const struct drafting *d);
/* Room in its tower for the media that a drafter sees, and their pixels; without videos, where
 * `stills` only. */
enum pv_status drafting_tower(struct drafting *d, const struct timeline *t, bool stills,
                              struct pv_error *err);
/* Room to draw tokens from a whole tree: tree_logits, and what rejection needs. */
enum pv_status drafting_drawing(struct drafting *d, bool rejection, struct pv_error *err);
/* Room for scores of the video rows by layer (layer_scores), which are zero then. */
enum pv_status drafting_scores(struct drafting *d, struct pv_error *err);

/* What the head wants of the model's states from now on; `media`: it sees rows of them. */
void drafting_want(struct drafting *d, bool media);
/* The cache holds `first` rows of the timeline: room for the states of the rest, and of an answer.
 * Without `err` states are not needed, and missing memory is no failure. */
enum pv_status drafting_reserve(struct drafting *d, const struct timeline *t, int first, int answer,
                                struct pv_error *err);
/* A step of decoding leaves the states of its rows in step_states, where there is a head. rows: 0
 * .. step->n - 1. The step has no other taps of hidden states. */
void drafting_ask(const struct drafting *d, struct step *step, const int *rows,
                  struct hidden_tap tap[STATES_MAX_TAPS]);
/* Rows that a step of decoding ran, whose states are in step_states, are in the cache now: from row
 * `from` on, row path[i] of the step the i-th. Without room they are not kept. */
void drafting_decoded(struct drafting *d, int from, const int *path, int n);

/* Room for rows of all videos that the draft model's tower makes ahead; what was made stays.
 * Without memory there is none, which is no failure. */
void drafting_make_ahead(struct drafting *d, const struct timeline *t);
/* Those that were made; NULL: not all of them. */
const float *drafting_ahead(const struct drafting *d, const struct media_item *m, int row, int n);

/* Forget rows of media that the timeline has forgotten. */
void drafting_forget(struct drafting *d, const struct timeline *t);
/* Where rows of media that the target's tower has made are to be kept, on the host or on its
 * device; NULL: no memory for that, which is no failure. */
float *drafting_keep(struct drafting *d, const struct media_item *m, int row, int n, size_t hidden,
                     bool there);
/* They have `room` bytes from now on; forgotten when they are more. */
void drafting_fit(struct drafting *d, uint64_t room);
/* Those rows; NULL: not all of them are kept. */
const float *drafting_features(const struct drafting *d, const struct media_item *m, int row, int n,
                               size_t hidden, bool there);

#endif
