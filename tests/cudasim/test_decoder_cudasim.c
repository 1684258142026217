/* Rows of media with deepstack vectors (tests/deepened.h) on the CUDA device, by the simulator of
 * CUDA, as a GPU of compute capability 8.0 and as one of 9.0, whose blocks norm a row for the next
 * layer on the way out of the one before. */
#include "base/mem.h"
#include "cudasim/gpu.h"
#include "deepened.h"
#include "engine/batch.h"

TEST(vectors_are_added_after_their_layers)
{
    struct rig_shape shape = { .cuda = true };
    deep_check(DTYPE_F16, 3, 2, true, shape);
}

TEST(vectors_come_before_the_next_norm_on_hopper)
{
    struct rig_shape shape = { .cuda = true };
    struct cudasim_gpu gpu;
    cudasim_is(&gpu);
    gpu.major = 9;
    cudasim_be(&gpu);
    deep_check(DTYPE_BF16, 3, 2, false, shape);
    deep_check(DTYPE_Q8_0, 3, 1, false, shape);
    cudasim_be(NULL);
}

enum { VOCAB = 96 };

/* A model of one layer and one head, on the device. */
static bool open_small(struct rig *r, enum dtype type, const char *name, int max_rows)
{
    struct tiny_model m = { .arch = "qwen2",
                            .hidden = 64,
                            .n_layers = 1,
                            .n_heads = 1,
                            .n_kv = 1,
                            .head_dim = 64,
                            .ffn = 64,
                            .vocab = VOCAB,
                            .type = (int)type,
                            .seed = 3 };
    struct rig_shape shape = {
        .kv = DTYPE_BF16, .max_rows = max_rows, .context = 1024, .cuda = true
    };
    char path[256];
    return rig_open(r, tiny_model_write(&m, name, path), shape);
}

/* Logits of two rows in one step, which begin as tokens or as the embeddings of these, and end with
 * or without their states being asked for. */
static bool run_rows(struct rig *r, const int32_t *ids, float *embeds, bool states, float *logits)
{
    enum { ROWS = 2 };
    float kept[ROWS * 64];
    int32_t pos[ROWS][3] = { { 0 }, { 1, 1, 1 } };
    int all[ROWS] = { 0, 1 };
    struct step_seq seq = { .kv = &r->kv, .n = ROWS };
    struct hidden_tap tap = { .layer = TAP_EMBEDDING, .n_rows = ROWS, .rows = all, .out = embeds };
    struct step step = { .n = ROWS,
                         .ids = ids,
                         .embeds = embeds,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = ROWS,
                         .logit_rows = all,
                         .logits = logits,
                         .states = states ? kept : NULL,
                         .n_hidden = embeds && ids[0] >= 0,
                         .hidden = &tap };
    struct pv_error err = { 0 };
    return CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text);
}

static void check_rows(enum dtype type)
{
    static const int32_t ids[] = { 5, 90 }, none[] = { STEP_READY, STEP_READY };
    float want[2 * VOCAB], got[2 * VOCAB], embeds[2 * 64];
    struct rig r;
    if (!open_small(&r, type, "rows", 4))
        return;
    CHECK(run_rows(&r, ids, embeds, false, want)); /* tells the embeddings */
    CHECK(run_rows(&r, none, embeds, false, got));
    CHECK_MSG(!memcmp(want, got, sizeof want), "tokens are not their embeddings");
    CHECK(run_rows(&r, ids, NULL, true, got));
    CHECK_MSG(!memcmp(want, got, sizeof want), "logits are others when states are asked for");
    rig_close(&r);
}

TEST(rows_begin_and_end_with_the_same_bits)
{
    struct cudasim_gpu gpu;
    check_rows(DTYPE_F16);
    cudasim_is(&gpu);
    gpu.major = 9;
    cudasim_be(&gpu);
    check_rows(DTYPE_BF16);
    check_rows(DTYPE_Q8_0);
    cudasim_be(NULL);
}

/* Logits of the last of 1 + TABLED rows in two steps; before the first one the positions of the
 * second are told as they are (0), one off (1), or not at all (2). */
static bool run_tabled(struct rig *r, int told, float *logits)
{
    enum { TABLED = 600 };
    static int32_t ids[1 + TABLED], pos[1 + TABLED][3], next[TABLED][3];
    struct pv_error err = { 0 };
    int last = TABLED - 1;
    kvcache_truncate(&r->kv, 0);
    for (int i = 0; i <= TABLED; i++) {
        ids[i] = i * 7 % 96;
        for (int k = 0; k < 3; k++)
            pos[i][k] = i + 5 * (i > 300); /* positions may skip some */
        if (i > 0)
            memcpy(next[i - 1], pos[i], sizeof pos[i]);
    }
    next[last][0] += told == 1;
    struct step_seq seq = { .kv = &r->kv, .n = 1 };
    struct step step = { .n = 1,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .bulk = true,
                         .n_next = told == 2 ? 0 : TABLED,
                         .next_pos = (const int32_t(*)[3])next };
    if (!CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text))
        return false;
    kvcache_advance(&r->kv, 1);
    seq.n = TABLED;
    step = (struct step){ .n = TABLED,
                          .ids = ids + 1,
                          .pos = (const int32_t(*)[3])(pos + 1),
                          .n_seqs = 1,
                          .seqs = &seq,
                          .n_logits = 1,
                          .logit_rows = &last,
                          .logits = logits,
                          .bulk = true };
    return CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text);
}

TEST(positions_told_before_change_no_bit)
{
    float want[VOCAB], got[VOCAB];
    struct rig r;
    if (!open_small(&r, DTYPE_BF16, "tabled", 600))
        return;
    CHECK(run_tabled(&r, 2, want));
    for (int told = 0; told < 2; told++) {
        CHECK(run_tabled(&r, told, got));
        CHECK_MSG(!memcmp(want, got, sizeof want), "other logits, positions told: %d", told);
    }
    rig_close(&r);
}

/* Two requests of one and of two rows, in either order: one kind of step for a device that records
 * them. */
TEST(the_order_of_requests_makes_no_other_step)
{
    static const int32_t ids[2] = { 5, 90 }, pos[2][3] = { { 0 }, { 1, 1, 1 } };
    static const int rows[2] = { 0, 1 };
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct pv_error err = { 0 }, errors[2] = { { 0 } };
    struct kvpool *pool = NULL;
    struct kvcache kv[2] = { { 0 } };
    struct step_seq seq[2];
    struct step step[2];
    struct batch_part part[2];
    int32_t best[2][2];
    struct rig r;
    if (!open_small(&r, DTYPE_BF16, "order", 4))
        return;
    const struct device_ops *ops = r.dev->ops;
    struct batch b = { .dec = r.dec, .st = r.st, .lock = &lock };
    CHECK(!kvpool_open(&pool, r.dev, decoder_config(r.dec), DTYPE_BF16, 2, &err));
    for (int i = 0; i < 2; i++) {
        CHECK(!kvcache_attach(&kv[i], pool, 256, &err) && kvcache_reserve(&kv[i], NULL, 2));
        seq[i] = (struct step_seq){ .kv = &kv[i], .n = 1 + i };
        step[i] = (struct step){ .n = 1 + i,
                                 .ids = ids,
                                 .pos = pos,
                                 .n_seqs = 1,
                                 .seqs = &seq[i],
                                 .n_logits = 1 + i,
                                 .logit_rows = rows,
                                 .argmax = best[i] };
        part[i] = (struct batch_part){ .step = &step[i], .err = &errors[i] };
    }
    uint64_t before = 0;
    for (int turn = 0; turn < 6; turn++) {
        bool turned = turn >= 4;
        struct batch_part *parts[2] = { &part[turned], &part[!turned] };
        if (turn == 4)
            before = ops->first_runs(r.dev);
        batch_run(&b, parts, 2);
        CHECK(!part[0].status && !part[1].status);
    }
    CHECK_MSG(before > 0 && ops->first_runs(r.dev) == before, "a step of its own for each order");
    for (int i = 0; i < 2; i++) {
        kvcache_release(&kv[i], NULL);
        kvcache_close(&kv[i]);
    }
    kvpool_close(&pool);
    rig_close(&r);
}

/* pv_stats.peak_bytes is the peak of these bytes: a KV cache counts wherever it is, weights do not.
 */
TEST(memory_of_the_gpu_counts)
{
    size_t before = mem_bytes(), held;
    struct kvpool *pool = NULL;
    struct pv_error err = { 0 };
    struct rig r;
    if (!open_small(&r, DTYPE_BF16, "memory", 4))
        return;
    held = mem_bytes();
    mem_peak_reset();
    CHECK(!kvpool_open(&pool, r.dev, decoder_config(r.dec), DTYPE_BF16, 40, &err));
    CHECK_MSG(mem_bytes() >= held + kvpool_size(pool), "%zu of %zu bytes are counted",
              mem_bytes() - held, kvpool_size(pool));
    kvpool_close(&pool);
    CHECK_EQ(mem_bytes(), held);
    CHECK(mem_peak() > held);
    rig_close(&r);
    CHECK_EQ(mem_bytes(), before);
}

/* A prompt over an FP8 cache with heads of 256 on a GPU whose blocks have 99 KB of shared memory.
 */
TEST(too_little_shared_memory_is_named)
{
    enum { ROWS = 80 };
    struct tiny_model m = { .arch = "qwen2",
                            .hidden = 256,
                            .n_layers = 2, /* nobody asks for the last one's attention */
                            .n_heads = 1,
                            .n_kv = 1,
                            .head_dim = 256,
                            .ffn = 64,
                            .vocab = VOCAB,
                            .type = DTYPE_BF16,
                            .seed = 3 };
    struct rig_shape shape = { .kv = DTYPE_F8, .max_rows = ROWS, .context = 256, .cuda = true };
    int32_t ids[ROWS], pos[ROWS][3];
    struct pv_error err = { 0 };
    struct cudasim_gpu gpu;
    char path[256];
    struct rig r;
    for (int i = 0; i < ROWS; i++) {
        ids[i] = i;
        pos[i][0] = pos[i][1] = pos[i][2] = i;
    }
    cudasim_is(&gpu);
    for (int little = 1; little >= 0; little--) {
        gpu.shared = (size_t)(little ? 99 : 163) << 10;
        cudasim_be(&gpu);
        if (!rig_open(&r, tiny_model_write(&m, "shared", path), shape))
            break;
        struct step_seq seq = { .kv = &r.kv, .n = ROWS };
        struct step step = { .n = ROWS,
                             .ids = ids,
                             .pos = (const int32_t(*)[3])pos,
                             .n_seqs = 1,
                             .seqs = &seq,
                             .bulk = true };
        enum pv_status s = decoder_step(r.dec, r.st, &step, &err);
        CHECK_EQ(s, little ? PV_E_DEVICE : PV_OK);
        if (little)
            CHECK_MSG(strstr(err.text, "heads of more than 128, which takes 132 KB of shared"),
                      "%s", err.text);
        rig_close(&r);
    }
    cudasim_be(NULL);
}

int main(int argc, char **argv)
{
    cudasim_lazy(true);
    return test_main(argc, argv);
}
