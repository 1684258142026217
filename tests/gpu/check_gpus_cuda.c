/* One model over several GPUs on a real one, which plays all of them: the bits of one GPU.
 *
 *   check_gpus_cuda [FILE.gguf ...]
 *
 * Small models first; then the shapes of these files with random weights (hollow ones of make_model
 * will do): a prompt, single rows, six rows and a tree of 26. The times that are printed are of one
 * GPU doing the work of several. */
#include "base/clock.h"
#include "several_gpus.h"

enum { ROWS = 1024, SLOTS = 2048, PROMPT_ROWS = 700, SINGLE = 8, WIDE_ROWS = 26, REPEATS = 20 };

static char **files;
static int n_files;

static const int lists[][LIST_MOST] = { { 0, 0, -1, -1 }, { 0, 0, 0, -1 }, { 0, 0, 0, 0 } };
enum { N_LISTS = sizeof lists / sizeof *lists };

TEST(small_models_have_the_bits_of_one_gpu)
{
    for (int m = 0; m < N_SMALL_MODELS; m++)
        several_compare(m, N_LISTS, lists, PROMPT);
}

static bool run_prompt(struct rig *r, struct sheet *out, const int32_t *ids, double *seconds)
{
    int last = PROMPT_ROWS - 1;
    struct pv_error err = { 0 };
    struct step_seq seq = { .kv = &r->kv, .n = PROMPT_ROWS };
    for (int i = 0; i < PROMPT_ROWS; i++)
        r->pos[i][0] = r->pos[i][1] = r->pos[i][2] = i;
    struct step step = { .n = PROMPT_ROWS,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])r->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &last,
                         .logits = sheet_take(out, (size_t)r->c->vocab),
                         .bulk = true };
    for (int i = 0; i < 2; i++) { /* the second time with chosen algorithms */
        double start = clock_now();
        if (!CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text))
            return false;
        *seconds = clock_now() - start;
    }
    kvcache_advance(&r->kv, PROMPT_ROWS);
    return true;
}

static const int parents[WIDE_ROWS] = { -1, 0, 0, 0,  1, 1, 2,  3,  4,  4,  5,  6,  8,
                                        8,  9, 9, 12, 3, 3, 17, 17, 19, 21, 22, 23, 1 };

/* The best of some steps of n rows of which only the likeliest tokens are asked for. */
static bool time_rows(struct rig *r, const int32_t *ids, int n, double *seconds)
{
    int32_t best[WIDE_ROWS];
    struct pv_error err = { 0 };
    struct step_seq seq = { .kv = &r->kv, .n = n, .parent = n > 1 ? parents : NULL };
    for (int i = 0; i < n; i++)
        r->pos[i][0] = r->pos[i][1] = r->pos[i][2] =
            r->kv.len + (n > 1 ? row_depth(parents, i) : 0);
    struct step step = { .n = n,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])r->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = n,
                         .logit_rows = r->rows,
                         .argmax = best };
    *seconds = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        double start = clock_now(), took;
        if (!CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text))
            return false;
        took = clock_now() - start;
        *seconds = took < *seconds ? took : *seconds;
    }
    return true;
}

static bool run_shape(struct rig *r, struct sheet *out, const int32_t *ids, double *prompt,
                      double *row, double *wide)
{
    size_t vocab = (size_t)r->c->vocab;
    if (!run_prompt(r, out, ids, prompt))
        return false;
    for (int i = 0; i < SINGLE; i++) {
        if (!rig_run(r, ids + i, 1, NULL, sheet_take(out, vocab)))
            return false;
        kvcache_advance(&r->kv, 1);
    }
    if (!rig_run(r, ids, 6, NULL, sheet_take(out, 6 * vocab)))
        return false;
    for (int i = 0; i < 3; i++)
        if (!rig_run(r, ids, WIDE_ROWS, parents, sheet_take(out, WIDE_ROWS * vocab)))
            return false;
    return time_rows(r, ids, 1, row) && time_rows(r, ids, WIDE_ROWS, wide);
}

static void check_file(const char *path)
{
    struct rig_shape s = {
        .kv = DTYPE_BF16, .max_rows = ROWS, .context = SLOTS, .cuda = true, .draws = true
    };
    struct sheet want = { 0 }, got = { 0 };
    int32_t ids[PROMPT_ROWS];
    struct rig r;
    for (int i = -1; i < 2; i++) {
        struct sheet *out = i < 0 ? &want : &got;
        double prompt, row, wide;
        s.n_gpus = i < 0 ? 0 : i + 2; /* all of them GPU 0 */
        if (!rig_open(&r, path, s))
            break;
        if (!out->at) {
            out->cap = (size_t)r.c->vocab * (1 + SINGLE + 6 + 3 * WIDE_ROWS);
            out->at = calloc(out->cap, sizeof(float));
        }
        out->n = 0;
        for (int k = 0; k < PROMPT_ROWS; k++)
            ids[k] = (int32_t)((unsigned)(k + 1) * 2654435761u % (unsigned)r.c->vocab);
        if (run_shape(&r, out, ids, &prompt, &row, &wide)) {
            printf("%s, %d GPUs: prompt of %d rows %.2f ms, 1 row %.3f ms, %d rows %.3f ms\n", path,
                   s.n_gpus ? s.n_gpus : 1, PROMPT_ROWS, 1e3 * prompt, 1e3 * row, WIDE_ROWS,
                   1e3 * wide);
            if (i >= 0)
                sheet_compare(&want, &got, path);
        }
        rig_close(&r);
    }
    free(want.at);
    free(got.at);
}

TEST(true_shapes_have_the_bits_of_one_gpu)
{
    for (int i = 0; i < n_files; i++)
        check_file(files[i]);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        files = argv + 1;
        n_files = argc - 1;
    }
    return test_main(1, argv);
}
