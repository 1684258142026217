/* Shared by the files of lossy answers. */
#ifndef PV_ENGINE_LOSSY_PARTS_H
#define PV_ENGINE_LOSSY_PARTS_H

#include "base/mem.h"
#include "engine/lossy_run.h"
#include "spec/lossy.h"

struct lossy_run {
    struct pv_session *s;
    const struct pv_gen_params *p;
    struct lossy_plan plan;
    int most_new;                 /* rows of the answer that the caches have room for */
    bool compact;                 /* plan.compact, and the model's positions are of one axis */
    int n_rows[LOSSY_MAX_STAGES]; /* rows of the prompt in each stage */
    /* The prompt. */
    struct arena arena; /* of the arrays here, but media */
    int n_video;        /* rows of videos */
    bool *video;        /* [line.n]: whether the row is one of them */
    int query0;         /* first row after the last of them */
    float *media;       /* [rows of media, media width], on the host */
    int *media_at;      /* [line.n]: its row there; -1: text */
    bool *rates;        /* [line.n]: rows of text that rate the video's tokens */
    /* The stage at hand. */
    int n, *row;     /* [line.n]: the rows that it has, ascending */
    float *residual; /* [n, hidden], on the device */
    int n_keys;      /* of these rows, those of videos: */
    int *keys;       /* [line.n] their places among them, */
    float *scores;   /* [line.n] and how much attention they got; */
    float *sums;     /* [line.n] the same in one step */
    int *kept;       /* [line.n]: scratch for choosing */
    bool *stays;     /* [line.n] */
    /* One step. */
    int32_t *ids;      /* [chunk] */
    int32_t (*pos)[3]; /* [chunk] */
    int *taps;         /* [chunk] */
    float *embeds;     /* [chunk, media width] */
    /* Decoding. */
    struct kvcache kv[LOSSY_MAX_STAGES];
    struct kvcache chosen; /* LOSSY_DECODING: what the stage reads, of what its own cache holds */
    int n_chosen;          /* rows of the prompt in it; 0: not chosen yet */
    float *before;         /* [n_keys]: the attention of the token before */
};

static inline const struct config *lossy_config(const struct lossy_run *l)
{
    return decoder_config(l->s->model->dec);
}

/* lossy_step.c. */
/* What a step has in addition to its rows. */
struct lossy_step {
    int stage, layer0, layer1;
    float *residual;
    enum want want;
    bool decodes, columns_only;
    int n_columns;
    const struct column_tap *columns;
    const struct hidden_tap *hidden; /* one, or NULL */
};

/* Open a cache for layers [layer0, layer1). */
enum pv_status lossy_open_cache(const struct lossy_run *l, struct kvcache *kv, int layer0,
                                int layer1, int rows, struct pv_error *err);
/* Run n rows of the timeline, rows[0] < rows[1] ..., after what the cache holds: rows `at` and
 * following of the stage. */
enum pv_status lossy_run_rows(struct lossy_run *l, struct kvcache *kv, const int *rows, int at,
                              int n, const struct lossy_step *x, struct pv_error *err);

/* lossy_choose.c. The rows of the first stage. */
enum pv_status lossy_choose_first(struct lossy_run *l, struct pv_error *err);
/* Those of a later one, by l->scores of l->keys; the residual stream of rows that stay moves up. */
enum pv_status lossy_choose_rows(struct lossy_run *l, const struct lossy_stage *stage,
                                 struct pv_error *err);
/* The places of video rows among the rows of the stage. */
void lossy_find_keys(struct lossy_run *l);
/* LOSSY_DECODING: which entries the token at hand reads, by l->sums. */
enum pv_status lossy_choose_entries(struct lossy_run *l, const struct kvcache *all,
                                    const struct lossy_stage *stage, struct pv_error *err);

#endif
