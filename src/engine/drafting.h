/* Drafting in a session: the drafters that it has opened, the media rows that they get, and buffers
 * for verifying their proposals. */
#ifndef PV_ENGINE_DRAFTING_H
#define PV_ENGINE_DRAFTING_H

#include "engine/budget.h"
#include "engine/timeline.h"
#include "lm/states.h"
#include "spec/drafter_kind.h"
#include "spec/price.h"
#include "vision/vision_adaptor.h"

/* Rows that the target's tower computed for a media item, kept for drafters. */
struct feature_rows {
    int key;        /* of the media item */
    bool on_device; /* in memory of the target's device, else of the host */
    float *rows;    /* [n_rows, hidden] */
    bool *have;     /* [n_rows] */
    uint64_t size;  /* bytes of both */
};

/* Rows of a video from the draft model's tower, computed before it is known which of them the
 * drafter gets. While the drafter's thread runs, only that thread may use them. */
struct ahead_rows {
    int key;       /* of the media item */
    int n, made;   /* total rows; the first `made` are computed */
    float *rows;   /* [n, media width] */
    uint64_t size; /* bytes */
};

/* A window of the rows that a draft model's vision adaptor makes (draft_adapt.h). */
struct adapted_rows {
    struct vision_adaptor_state *state; /* NULL: there is no room for any yet */
    float *rows;                        /* [most, the draft model's media width] */
    int *at, n;                         /* [most]: rows of the prompt that they are, ascending */
    int32_t *of_item;                   /* [most]: which rows of a media item that is */
    float *lent;                        /* [most, the target's media width] */
    size_t bytes;                       /* of all of this */
};
void adapted_rows_close(struct adapted_rows *a);

/* Where the current drafter runs. */
enum draft_place {
    DRAFT_TAKES_TURNS, /* on the target's thread and thread pool */
    DRAFT_BESIDE,      /* on its own thread; steps on the same device wait for each other */
    DRAFT_DIVIDED      /* on its own thread with its own pool or stream: neither side waits */
};

/* What a drafter gets of the prompt's media. Which of the rows is up to its view. */
enum draft_media {
    DRAFT_MEDIA_HIDDEN, /* nothing: its view shows none, or its model cannot see */
    DRAFT_MEDIA_UNREAD, /* it reads no rows of the prompt's media, whatever its view is */
    DRAFT_MEDIA_OWN,    /* rows that the draft model's tower computes */
    DRAFT_MEDIA_TARGET, /* rows of the target's tower */
    DRAFT_MEDIA_ADAPTED /* those, mapped by the draft model's vision adaptor */
};

struct drafting {
    struct pv_engine *engine;                /* borrowed; NULL: the session does not speculate */
    struct budget *budget;                   /* borrowed */
    struct task *task;                       /* runs the drafters' steps */
    struct pv_model *model;                  /* NULL: no draft model */
    bool shared;                             /* the draft model has the target's tower */
    struct encoder *encoder;                 /* of the draft model */
    size_t tower_bytes;                      /* held by `encoder` */
    struct drafter *drafter[PV_DRAFT_COUNT]; /* by kind, opened when first used */
    size_t drafter_bytes[PV_DRAFT_COUNT];    /* held by each drafter */
    enum pv_drafter used;                    /* by the last answer with a drafter */
    struct device *group[2]; /* threads of the model and of the drafter, while both run */
    int group_threads[2];
    int part[PV_DRAFT_COUNT]; /* threads that measurement chose for each drafter; 0: not measured */
    struct task_stepper steps[DRAFTER_DECODERS]; /* of the drafters, by decoder */
    struct lone_stepper lone[DRAFTER_DECODERS];  /* the same while one runs on its own thread */
    struct decoder_state *lone_state[DRAFTER_DECODERS]; /* opened when first used */
    enum draft_place place;                             /* of the current drafter */
    enum drafter_decoder divided_for;                   /* DRAFT_DIVIDED: its decoder */
    struct feature_rows *features;
    int n_features;
    uint64_t room; /* bytes that `features` may still grow */
    struct ahead_rows *ahead;
    int n_ahead;
    struct adapted_rows adapted;
    bool keep_features;  /* keep rows from the target's tower for drafters, on the host */
    bool keep_on_device; /* keep them on the target's device */
    bool *visible;       /* [context]: rows that the last answer's drafter got */
    int n_visible;       /* rows of the prompt that `visible` covers; 0: no view has run */
    int *rows;           /* [context]: video rows of the prompt */
    int n_rows;
    float *scores;       /* [context]: attention to `rows` */
    bool scored;         /* the last view used `scores` */
    float *layer_scores; /* [2, n_layers, score_groups, n_rows]: total and one step (sparse) */
    int score_groups;    /* KV heads whose attention is kept apart; 1: the mean over all heads */
    float *sums;         /* [context * ...]: of one step */
    size_t n_layer_scores;
    /* Buffers for verifying a tree. */
    int32_t tree_best[TREE_MAX]; /* the most likely token after each row (greedy) */
    float *tree_logits;          /* [TREE_MAX, vocab] (sampling) */
    float *draft_q;              /* [TREE_MAX, vocab]: the drafter's distributions (rejection) */
    float *verify_scratch;       /* rejection */
    size_t drawing_bytes;        /* of tree_logits, draft_q and verify_scratch */
    /* If the model has a draft head. */
    struct states states; /* of the rows in the session's cache; hidden 0: no draft head */
    float *step_states;   /* [features, TREE_MAX, hidden]: of the rows of one decoding step */
};

/* Borrows the engine and the budget. */
enum pv_status drafting_open(struct drafting *d, struct pv_engine *e, struct budget *b,
                             struct pv_error *err);
void drafting_close(struct drafting *d);
/* Whether a drafter has run out of KV pages since the last call. The next answer may find some
 * free. */
bool drafting_starved(struct drafting *d);
/* What a drafter of this kind gets through this view. If the kind needs a draft model, there is
 * one.
 */
enum draft_media drafting_media(const struct drafting *d, const struct drafter_kind *kind,
                                const struct pv_view_info *view);
/* The task that runs the drafters' steps from now on; NULL: none. */
void drafting_set_task(struct drafting *d, struct task *t);

/* The method's drafter, opened if it is not open yet or is made anew for each answer. The method
 * must have a drafter. */
enum pv_status drafting_drafter(struct drafting *d, const struct pv_method *m, struct drafter **out,
                                struct pv_error *err);

/* Let the method's drafter run its steps with its own state, at this place; drafting_join returns
 * it to the engine's batches. */
enum pv_status drafting_part(struct drafting *d, const struct pv_method *m, enum draft_place place,
                             struct pv_error *err);
void drafting_join(struct drafting *d, const struct pv_method *m);

/* Bytes of drafters, their tower or vision adaptor, and scores, without the kept rows of media. */
size_t drafting_size(const struct drafting *d);
/* Reserve memory in the draft model's tower for the media of the timeline, and for their pixels;
 * stills: for pictures only, not for videos. */
enum pv_status drafting_tower(struct drafting *d, const struct timeline *t, bool stills,
                              struct pv_error *err);
/* Allocate the buffers for sampling from a tree: tree_logits, and those for rejection. */
enum pv_status drafting_drawing(struct drafting *d, bool rejection, struct pv_error *err);
/* Allocate and zero layer_scores. */
enum pv_status drafting_scores(struct drafting *d, struct pv_error *err);

/* Set which of the model's states are kept for the draft head; media: it gets media rows. */
void drafting_want(struct drafting *d, bool media);
/* Allocate memory for states: the cache holds `first` rows of the timeline, and the others and an
 * answer of `answer` tokens follow. If `err` is NULL, states are optional, and it is no failure if
 * memory is missing. */
enum pv_status drafting_reserve(struct drafting *d, const struct timeline *t, int first, int answer,
                                struct pv_error *err);
/* If there is a draft head, make a decoding step store the states of its rows in step_states. rows:
 * 0 .. step->n - 1. The step must have no other taps of hidden states. */
void drafting_ask(const struct drafting *d, struct step *step, const int *rows,
                  struct hidden_tap tap[STATES_MAX_TAPS]);
/* Keep the states of rows that were committed after a decoding step: row `from` + i of the cache is
 * row path[i] of step_states. They are dropped if memory is missing. */
void drafting_decoded(struct drafting *d, int from, const int *path, int n);

/* Allocate memory for the rows that the draft model's tower computes ahead, of all videos; rows
 * that exist are kept. It is no failure if memory is missing. */
void drafting_make_ahead(struct drafting *d, const struct timeline *t);
/* Rows [row, row + n) of those; NULL: not all are computed. */
const float *drafting_ahead(const struct drafting *d, const struct media_item *m, int row, int n);

/* Drop rows of media that are no longer in the timeline. */
void drafting_forget(struct drafting *d, const struct timeline *t);
/* Where to store rows from the target's tower that are kept for drafters, on the host or on the
 * device; NULL: no memory, which is no failure. */
float *drafting_keep(struct drafting *d, const struct media_item *m, int row, int n, size_t hidden,
                     bool on_device);
/* Limit these rows to `room` bytes; if they are larger, they are dropped. */
void drafting_fit(struct drafting *d, uint64_t room);
/* Rows [row, row + n) of those; NULL: not all of them are kept. */
const float *drafting_features(const struct drafting *d, const struct media_item *m, int row, int n,
                               size_t hidden, bool on_device);

#endif
