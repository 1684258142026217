/* A decoder with experts on the CUDA device, by the simulator of CUDA: the bits of a row do not
 * depend on how many run beside it, in steps that are recorded, in trees and in prompts of any
 * chunks; and its logits are near those of the CPU. */
#include "cudasim/gpu.h"
#include "family/families.h"
#include "rig.h"
#include "tiny_model.h"

#include <math.h>

enum { N = 24, VOCAB = 96, CONTEXT = 256, ROWS = 32 };

/* hidden: 64, or 256, whose lone rows have kernels of their own on Hopper. */
static const char *write_model(enum dtype type, int hidden, char path[256])
{
    const struct tiny_experts experts = { .n = 7, .used = 3, .ffn = hidden, .dense = 1 };
    const struct tiny_model m = { .arch = "qwen3moe",
                                  .hidden = hidden,
                                  .n_layers = 3,
                                  .n_heads = 2,
                                  .n_kv = 1,
                                  .head_dim = 64,
                                  .ffn = 96,
                                  .vocab = VOCAB,
                                  .type = (int)type,
                                  .untied = true,
                                  .seed = 4,
                                  .experts = &experts };
    return tiny_model_write(&m, dtype_name(type), path);
}

/* As rig_open, on the device of the simulator. */
static bool open_gpu(struct rig *r, const char *path)
{
    struct pv_error err = { 0 };
    enum pv_status s;
    *r = (struct rig){ .max_rows = ROWS };
    s = model_file_open(&r->mf, path, NULL, 0, families, &err);
    if (!s)
        s = device_cuda_open(&r->dev, 0, &err);
    if (!s)
        s = decoder_open(&r->dec, r->mf, r->dev, &err);
    if (!s)
        s = decoder_state_open(&r->st, r->dec, ROWS, ROWS, CONTEXT, DTYPE_BF16, &err);
    if (!s)
        s = kvcache_open(&r->kv, r->dev, model_file_config(r->mf), DTYPE_BF16, CONTEXT, &err);
    if (!CHECK_MSG(!s, "%s", err.text))
        return false;
    r->c = decoder_config(r->dec);
    r->pos = malloc(sizeof *r->pos * ROWS);
    r->rows = malloc(sizeof *r->rows * ROWS);
    for (int i = 0; i < ROWS; i++)
        r->rows[i] = i;
    return true;
}

/* The ids in steps of `chunk` rows from an empty cache; bulk: as a prompt, and of the last chunk
 * only the last row's logits, so that the others are dropped after the last attention. */
static void feed(struct rig *r, const int32_t *ids, int chunk, bool bulk, float *logits)
{
    kvcache_truncate(&r->kv, 0);
    for (int at = 0; at < N; at += chunk) {
        int n = N - at < chunk ? N - at : chunk, last = n - 1;
        struct step_seq seq = { .kv = &r->kv, .n = n };
        struct pv_error err = { 0 };
        struct step step = { .n = n,
                             .ids = ids + at,
                             .pos = (const int32_t(*)[3])r->pos,
                             .n_seqs = 1,
                             .seqs = &seq,
                             .n_logits = bulk ? at + n == N : n,
                             .logit_rows = bulk ? &last : r->rows,
                             .logits = bulk ? logits : logits + (size_t)at * VOCAB,
                             .bulk = bulk };
        for (int i = 0; i < n; i++)
            r->pos[i][0] = r->pos[i][1] = r->pos[i][2] = at + i;
        CHECK_MSG(decoder_step(r->dec, r->st, &step, &err) == PV_OK, "%s", err.text);
        kvcache_advance(&r->kv, n);
    }
}

/* Largest difference of two rows, as a share of the larger number. */
static double row_error(const float *a, const float *b)
{
    double worst = 0, size = 0;
    for (int i = 0; i < VOCAB; i++) {
        worst = fabs((double)a[i] - b[i]) > worst ? fabs((double)a[i] - b[i]) : worst;
        size = fabs((double)b[i]) > size ? fabs((double)b[i]) : size;
    }
    return worst / size;
}

static void check_type(enum dtype type, int hidden)
{
    static float one[N * VOCAB], some[N * VOCAB], cpu[N * VOCAB], bulk[2][VOCAB];
    static const int chunks[] = { 2, 7, N };
    struct rig_shape shape = { cpu_level_best(), 2, DTYPE_BF16, ROWS, CONTEXT };
    struct rig gpu, host;
    struct rng r = { 9 };
    int32_t ids[N];
    char path[256];
    for (int i = 0; i < N; i++)
        ids[i] = (int32_t)(rng_next(&r) % VOCAB);
    write_model(type, hidden, path);
    if (!open_gpu(&gpu, path) || !rig_open(&host, path, shape))
        return;
    feed(&gpu, ids, 1, false, one);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        feed(&gpu, ids, chunks[i], false, some);
        CHECK_MSG(!memcmp(one, some, sizeof one), "%s: steps of %d rows have other bits",
                  dtype_name(type), chunks[i]);
    }
    feed(&gpu, ids, N, true, bulk[0]);
    feed(&gpu, ids, 5, true, bulk[1]);
    CHECK_MSG(!memcmp(bulk[0], bulk[1], sizeof bulk[0]), "%s: a prompt in chunks has other bits",
              dtype_name(type));
    feed(&host, ids, N, false, cpu);
    CHECK_MSG(row_error(one, cpu) < 0.03, "%s: the first row is off by %g", dtype_name(type),
              row_error(one, cpu));
    rig_close(&gpu);
    rig_close(&host);
}

TEST(rows_do_not_see_each_other)
{
    check_type(DTYPE_BF16, 64);
    check_type(DTYPE_Q8_0, 64);
}

TEST(rows_on_hopper_do_not_see_each_other)
{
    struct cudasim_gpu gpu;
    cudasim_is(&gpu);
    gpu.major = 9;
    cudasim_be(&gpu);
    check_type(DTYPE_BF16, 64);
    check_type(DTYPE_BF16, 256);
    check_type(DTYPE_Q8_0, 64);
    cudasim_be(NULL);
}

int main(int argc, char **argv)
{
    cudasim_lazy(true);
    return test_main(argc, argv);
}
