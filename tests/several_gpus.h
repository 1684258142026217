/* Small models on one GPU and on several: the same bits. */
#ifndef PV_TESTS_SEVERAL_GPUS_H
#define PV_TESTS_SEVERAL_GPUS_H

#include "rank_program.h"
#include "small_models.h"

enum { LIST_MOST = 4 };

/* Model m on GPU 0, and on each list of GPUs, whose end is a -1; with a prompt of n tokens. */
static inline void several_compare(int m, int n_lists, const int (*lists)[LIST_MOST], int n)
{
    struct rig_shape s = {
        .kv = DTYPE_BF16, .max_rows = MAX_ROWS, .context = CONTEXT, .cuda = true
    };
    struct rng rng = { test_seed + (uint64_t)m };
    int32_t ids[PROMPT];
    char path[256], name[16], what[64];
    struct rig r;
    snprintf(name, sizeof name, "g%d", m);
    if (!rig_open(&r, tiny_model_write(small_model(m), name, path), s))
        return;
    struct sheet want = sheet_open(r.c), got = sheet_open(r.c);
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)(rng_next(&rng) % (uint64_t)r.c->vocab);
    bool ran = run_program(&r, &want, ids, n);
    rig_close(&r);
    for (int i = 0; i < n_lists && ran; i++) {
        for (s.n_gpus = 0; s.n_gpus < LIST_MOST && lists[i][s.n_gpus] >= 0; s.n_gpus++)
            s.gpus[s.n_gpus] = lists[i][s.n_gpus];
        got.n = 0;
        if (s.n_gpus > small_model(m)->n_heads)
            continue;
        if (rig_open(&r, path, s) && run_program(&r, &got, ids, n)) {
            snprintf(what, sizeof what, "model %d, GPUs %d %d %d %d", m, lists[i][0], lists[i][1],
                     lists[i][2], lists[i][3]);
            sheet_compare(&want, &got, what);
        }
        rig_close(&r);
    }
    free(want.at);
    free(got.at);
}

#endif
