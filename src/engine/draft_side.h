/* The drafter's side of a session: the drafters it has opened, and what they are shown of its
 * media. */
#ifndef PV_ENGINE_DRAFT_SIDE_H
#define PV_ENGINE_DRAFT_SIDE_H

#include "engine/encoder.h"
#include "engine/engine.h"
#include "engine/timeline.h"
#include "lm/states.h"
#include "spec/price.h"

struct pv_session;

/* Rows of a medium in the target's space, kept when the tower made them. */
struct feature_rows {
    int key;
    float *rows;   /* [n_rows, hidden] */
    bool *have;    /* [n_rows] */
    uint64_t size; /* bytes of both */
};

/* Where the drafter at work runs. */
enum draft_place {
    DRAFT_TAKES_TURNS, /* on the thread of the target, and with its threads */
    DRAFT_BESIDE,      /* on a thread of its own; steps of one device wait for one another */
    DRAFT_DIVIDED      /* and with threads, or a stream, of its own: nobody waits */
};

struct draft_side {
    struct pv_model *model;                  /* NULL: no draft model */
    bool shared;                             /* its tower is the target's */
    struct encoder *encoder;                 /* of that model; */
    size_t tower_bytes;                      /* what it holds */
    struct drafter *drafter[PV_DRAFT_COUNT]; /* by kind, opened when first used; */
    size_t drafter_bytes[PV_DRAFT_COUNT];    /* what they hold */
    enum pv_drafter used;                    /* by the last answer that had one */
    struct price_book book[PV_DRAFT_COUNT];  /* what their rounds taught; shape fitted */
    struct device
        *crew[2]; /* threads of the model and of the drafter, while they run side by side */
    int crew_threads[2];
    int part[PV_DRAFT_COUNT]; /* of the threads that measuring gave it; 0: not measured */
    struct task_stepper steps[DRAFTER_DECODERS]; /* of the drafters, by their decoder, */
    struct lone_stepper lone[DRAFTER_DECODERS];  /* and while one runs on a thread of its own */
    struct decoder_state *lone_state[DRAFTER_DECODERS]; /* opened when first used */
    enum draft_place place;                             /* of the drafter at work, */
    enum drafter_decoder divided_for; /* and, where crews are divided for it, its decoder */
    struct feature_rows *features;
    int n_features;
    uint64_t room;      /* bytes that they may still take */
    bool keep_features; /* of what the target's tower makes from now on */
    bool *seen;         /* [context] */
    int *rows;          /* [context]: video rows of the prompt; */
    int n_rows;
    float *scores;       /* [context]: attention to them */
    float *layer_scores; /* [2, n_layers, n_rows]: the same by layer, and of one step (sparse) */
    float *sums;         /* [context * ...]: of one step */
    size_t n_layer_scores;
    /* Where the model has a head. */
    struct states states; /* of the rows in the session's cache; hidden 0: there is no head */
    float *step_states;   /* [TREE_MAX, hidden]: of the rows of one step of decoding */
};

enum pv_status draft_side_open(struct draft_side *d, struct pv_session *s, struct pv_model *draft,
                               struct pv_error *err);
void draft_side_close(struct draft_side *d);

/* The method's drafter, opened if it is not open yet or is made anew for each answer. The method
 * must have a drafter. */
enum pv_status draft_side_drafter(struct pv_session *s, const struct pv_method *m,
                                  struct drafter **out, struct pv_error *err);

/* The method's drafter runs its steps on a state of its own from now on, at this place; or with the
 * engine's others again. */
enum pv_status draft_side_part(struct pv_session *s, const struct pv_method *m,
                               enum draft_place place, struct pv_error *err);
void draft_side_join(struct pv_session *s, const struct pv_method *m);

/* Bytes of drafters, their tower and scores; without rows that are kept of media. */
size_t draft_side_size(const struct draft_side *d);
/* Room in its tower for the media that a drafter sees; without videos, where `stills` only. */
enum pv_status draft_side_tower(struct pv_session *s, bool stills, struct pv_error *err);
/* Room to draw tokens from a whole tree: tree_logits, and what rejection needs. */
enum pv_status draft_side_drawing(struct pv_session *s, bool rejection, struct pv_error *err);
/* Room for scores of the video rows by layer (layer_scores), which are zero then. */
enum pv_status draft_side_scores(struct pv_session *s, struct pv_error *err);

/* What the head wants of the model's states from now on; `media`: it sees rows of them. */
void draft_side_want(struct draft_side *d, const struct pv_model *m, bool media);
/* The cache holds `first` rows of the timeline: room for the states of the rest, and of an answer.
 * Without `err` states are not needed, and missing memory is no failure. */
enum pv_status draft_side_reserve(struct pv_session *s, int first, int answer,
                                  struct pv_error *err);
/* Rows that a step of decoding ran, whose states are in step_states, are in the cache now: from row
 * `from` on, row path[i] of the step the i-th. Without room they are not kept. */
void draft_side_decoded(struct draft_side *d, int from, const int *path, int n);

/* Forget rows of media that the timeline has forgotten. */
void draft_side_forget(struct draft_side *d, const struct timeline *t);
/* Where rows of media that the target's tower has made are to be kept; NULL: no memory for that,
 * which is no failure. */
float *draft_side_keep(struct draft_side *d, const struct medium *m, int row, int n, size_t hidden);
/* They have `room` bytes from now on; forgotten when they are more. */
void draft_side_fit(struct draft_side *d, uint64_t room);
/* Those rows; NULL: not all of them are kept. */
const float *draft_side_features(const struct draft_side *d, const struct medium *m, int row, int n,
                                 size_t hidden);

#endif
