/* The vision adaptor on a device: its numbers against the formula in doubles, rows alone and among
 * others, rows of several vectors, and sessions whose draft model has no tower but an adaptor. The
 * latter answer as plain decoding does, with every view, shape and schedule. */
#include "vision/vision_adaptor.h"

#include "answers.h"
#include "base/mem.h"
#include "engine/media_rows.h"
#include "tensor/quant.h"
#include "tiny_adaptor.h"

#include <math.h>

enum { ROWS = 40 };

/* ---- numbers ---- */

struct bed {
    struct device *dev;
    struct vision_adaptor_file *file;
    struct vision_adaptor *a;
    struct vision_adaptor_state *st;
    float *x, *y; /* [ROWS, width] [ROWS, out_width] */
};

static bool bed_open(struct bed *b, const struct tiny_adaptor *shape, int level, int threads,
                     int width)
{
    char path[256];
    struct pv_error err = { 0 };
    struct rng r = { 77 };
    *b = (struct bed){ 0 };
    tiny_adaptor_write(shape, "bed", path);
    if (!CHECK(!device_cpu_open(&b->dev, threads, cpu_levels[level].flags, &err)) ||
        !CHECK(!vision_adaptor_file_open(&b->file, path, 0, &err)) ||
        !CHECK(!vision_adaptor_open(&b->a, vision_adaptor_file_config(b->file),
                                    vision_adaptor_file_tensors(b->file), b->dev, &err)) ||
        !CHECK(!vision_adaptor_state_open(&b->st, b->a, &err)))
        return false;
    b->x = malloc(sizeof(float) * ROWS * (size_t)width);
    b->y = malloc(sizeof(float) * ROWS * (size_t)shape->out * 2);
    for (int i = 0; i < ROWS * width; i++)
        b->x[i] = 3 * rng_normal(&r);
    return true;
}

static void bed_close(struct bed *b)
{
    vision_adaptor_state_close(&b->st);
    vision_adaptor_close(&b->a);
    vision_adaptor_file_close(&b->file);
    device_close(&b->dev);
    free(b->x);
    free(b->y);
}

static float number(const struct tensor *t, int64_t at)
{
    float row[DTYPE_BLOCK_MAX];
    int block = dtype_block(t->dtype);
    if (!t)
        return 0;
    row_to_f32(row, (const uint8_t *)t->data + dtype_row_size(t->dtype, at / block * block),
               t->dtype, block);
    return row[at % block];
}

static double bias(const struct tensor *t, int i)
{
    return t ? (double)number(t, i) : 0;
}

/* y of one row, by the formula. */
static void expect(const struct bed *b, const float *x, double *y)
{
    const struct vision_adaptor_config *c = vision_adaptor_file_config(b->file);
    const struct vision_adaptor_tensors *t = vision_adaptor_file_tensors(b->file);
    double mean = 0, var = 0, scale;
    double *n = malloc(sizeof *n * (size_t)c->in), *m = malloc(sizeof *m * (size_t)c->middle);
    for (int i = 0; i < c->in && t->norm_bias; i++)
        mean += (double)x[i] / c->in;
    for (int i = 0; i < c->in; i++)
        var += ((double)x[i] - mean) * ((double)x[i] - mean) / c->in;
    scale = 1 / sqrt(var + (double)c->eps);
    for (int i = 0; i < c->in; i++)
        n[i] = ((double)x[i] - mean) * scale * (double)number(t->norm, i) + bias(t->norm_bias, i);
    for (int o = 0; o < c->middle; o++) {
        double s = bias(t->up_bias, o);
        for (int i = 0; i < c->in; i++)
            s += (double)number(t->up, (int64_t)o * c->in + i) * n[i];
        m[o] = 0.5 * s * (1 + erf(s / sqrt(2)));
    }
    for (int o = 0; o < c->out; o++) {
        y[o] = bias(t->down_bias, o);
        for (int i = 0; i < c->middle; i++)
            y[o] += (double)number(t->down, (int64_t)o * c->middle + i) * m[i];
    }
    free(n);
    free(m);
}

static struct adaptor_job job_of(const struct bed *b, int width, const int32_t *rows, int n,
                                 float *out, int out_width)
{
    return (struct adaptor_job){ .from = b->x,
                                 .from_width = width,
                                 .from_device = true,
                                 .rows = rows,
                                 .n = n,
                                 .out = out,
                                 .out_width = out_width };
}

/* Rows in a wild order, once together and once alone; `wide`: rows of two vectors on both sides. */
static void check_numbers(const struct tiny_adaptor *shape, int level, int threads, bool wide)
{
    int width = shape->in * (1 + wide), out = shape->out * (1 + wide);
    double tolerance = shape->type == DTYPE_F32 ? 1e-4 : 0.05;
    float one[2 * 96];
    double want[96];
    int32_t rows[ROWS];
    struct bed b;
    struct adaptor_job job;
    if (!bed_open(&b, shape, level, threads, width)) {
        bed_close(&b);
        return;
    }
    for (int i = 0; i < ROWS; i++)
        rows[i] = i * 7 % ROWS;
    job = job_of(&b, width, rows, ROWS, b.y, out);
    CHECK_EQ(vision_adaptor_run(b.st, &job, NULL), PV_OK);
    for (int i = 0; i < ROWS; i++) {
        const float *got = b.y + (size_t)i * (size_t)out;
        expect(&b, b.x + (size_t)rows[i] * (size_t)width, want);
        for (int k = 0; k < shape->out; k++)
            if (!CHECK_MSG(fabs((double)got[k] - want[k]) < tolerance, "row %d: %g, not %g", i,
                           (double)got[k], want[k]))
                break;
        for (int k = shape->out; k < out; k++)
            CHECK(got[k] == 0);
        job = job_of(&b, width, rows + i, 1, one, out);
        CHECK_EQ(vision_adaptor_run(b.st, &job, NULL), PV_OK);
        CHECK_MSG(!memcmp(one, got, sizeof(float) * (size_t)out), "row %d alone has other bits", i);
        job.from_device = false; /* by way of the host */
        CHECK_EQ(vision_adaptor_run(b.st, &job, NULL), PV_OK);
        CHECK(!memcmp(one, got, sizeof(float) * (size_t)out));
    }
    bed_close(&b);
}

TEST(numbers_and_bits)
{
    static const int types[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0 };
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (size_t t = 0; t < sizeof types / sizeof *types && cpu_level_here(level); t++) {
            struct tiny_adaptor shape = { .in = 64,
                                          .middle = 32,
                                          .out = 96,
                                          .type = types[t],
                                          .seed = 5 + t,
                                          .layer_norm = t % 2,
                                          .no_biases = t == 2 };
            check_numbers(&shape, level, 1 + (int)t % 2, false);
            check_numbers(&shape, level, 2, true);
        }
}

TEST(too_many_rows_are_refused)
{
    struct tiny_adaptor shape = { .in = 64, .middle = 32, .out = 96, .type = DTYPE_F32 };
    struct bed b;
    struct pv_error err = { 0 };
    struct adaptor_job job;
    if (!bed_open(&b, &shape, 0, 1, 64))
        return;
    job = job_of(&b, 64, NULL, vision_adaptor_rows(b.a) + 1, NULL, 96);
    CHECK_EQ(vision_adaptor_run(b.st, &job, &err), PV_E_LIMIT);
    bed_close(&b);
}

/* ---- sessions ---- */

/* As open_unlike, but the draft model is narrower and has an adaptor; `wide`: for the further
 * vectors of rows too. */
static struct pair open_adapted(const struct family *family, int threads, bool wide)
{
    struct tiny_vision target = tiny_vision(family), draft = target;
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    struct pair pair = { 0 };
    int deep = wide ? 1 + target.text.n_deepstack : 1;
    struct tiny_adaptor a = { .in = target.text.hidden * deep,
                              .middle = 48,
                              .out = draft.text.hidden * deep,
                              .type = DTYPE_F32,
                              .seed = 9 };
    char paths[3][256];
    draft.hidden /= 2;
    draft.n_layers /= 2;
    draft.noise = 0.1f;
    tiny_vision_gguf(&target, "target", paths[0]);
    tiny_vision_gguf(&draft, "draft", paths[1]);
    pair.target = open_model(paths[0], threads, NULL);
    p.path = paths[1];
    p.threads = threads;
    p.shares_with = pair.target;
    p.adaptor = tiny_adaptor_write(&a, "adaptor", paths[2]);
    CHECK_MSG(pv_model_open(&pair.draft, &p, &err) == PV_OK, "%s", err.text);
    CHECK(pair.draft->adaptor && !pair.draft->vision && !pair.draft->audio_encoder);
    return pair;
}

static void check_method(pv_session *plain, pv_session *tried, const struct answer *ref,
                         const struct pv_method *m, float temperature)
{
    struct answer a = run(tried, m, temperature);
    CHECK_MSG(same_answer(ref, &a, vocab_of(tried)) && same_cache(plain, tried),
              "view %s shape %d schedule %d: other tokens, logits or cache", m->view, (int)m->shape,
              (int)m->schedule);
    if (!strcmp(m->view, "full") || !strcmp(m->view, "random"))
        CHECK_MSG(a.stats.draft_video_tokens > 0, "view %s shows nothing", m->view);
}

/* Every `stride`-th view, each with one shape in turns and with the parallel schedule. */
static void check_family(const struct family *family, int threads, bool wide, int stride)
{
    struct pair p = open_adapted(family, threads, wide);
    pv_session *plain = open_session(&p), *tried = open_session(&p);
    for (int t = 0; t < 2; t++) {
        float temperature = t ? 0.8f : 0;
        struct answer ref = run(plain, NULL, temperature);
        for (int v = 0; pv_view_name(v); v++) {
            struct pv_method m = method(PV_DRAFT_MODEL, pv_view_name(v), PV_SHAPE_CHAIN);
            if (v % stride != t % stride || (TEST_BRIEF && v % 6 != t))
                continue;
            m.shape = (v + t) % 2 ? PV_SHAPE_TREE : PV_SHAPE_CHAIN;
            check_method(plain, tried, &ref, &m, temperature);
            if (pv_view_find(m.view)->signal == PV_SIGNAL_DRAFT_ATTENTION)
                continue; /* serial only */
            m.shape = PV_SHAPE_CHAIN;
            m.schedule = PV_SCHEDULE_PARALLEL;
            check_method(plain, tried, &ref, &m, temperature);
        }
    }
    pv_session_close(&plain);
    pv_session_close(&tried);
    close_pair(&p);
}

TEST(llava_with_an_adaptor)
{
    check_family(&family_llava_onevision, 1, false, 1);
}

TEST(qwen_with_an_adaptor)
{
    check_family(&family_qwen2_5_vl, 2, false, 4);
}

/* Rows of several vectors: of the target's the first is read, the draft model's others are zero. */
TEST(qwen3_with_an_adaptor_of_embeddings)
{
    check_family(&family_qwen3_vl, 1, false, 2);
}

TEST(qwen3_with_an_adaptor_of_whole_rows)
{
    check_family(&family_qwen3_vl, 1, true, 2);
}

TEST(salmonn_with_an_adaptor)
{
    check_family(&family_salmonn2_plus, 1, false, 2);
}

/* The drafter's rows are the adaptor's of the target's rows, and only those that it sees are made:
 * by hand, one at a time. */
TEST(rows_are_those_of_the_adaptor)
{
    struct pair p = open_adapted(&family_llava_onevision, 1, false);
    struct pv_method m = method(PV_DRAFT_MODEL, "random", PV_SHAPE_CHAIN);
    pv_session *s = open_session(&p);
    const struct timeline *t = &s->seq.line;
    const struct adapted_rows *made = &s->draft.adapted;
    struct vision_adaptor_state *st = NULL;
    int hidden = decoder_config(p.target->dec)->hidden, width;
    float row[256], want[256];
    int seen = 0, media = 0;
    width = decoder_config(p.draft->dec)->hidden;
    run(s, &m, 0);
    CHECK_EQ(vision_adaptor_state_open(&st, p.draft->adaptor, NULL), PV_OK);
    for (int i = 0; i < s->seq.answer0; i++) {
        media += t->ids[i] < 0;
        seen += t->ids[i] < 0 && s->draft.visible[i];
    }
    CHECK_MSG(made->n == seen && seen > 3 && seen < media, "%d made of %d seen of %d", made->n,
              seen, media);
    for (int i = 0; i < made->n && st; i++) {
        int of_item, at = 0;
        const struct media_item *item = timeline_item(t, made->at[i], &of_item);
        struct adaptor_job job = { .from = row,
                                   .from_width = hidden,
                                   .from_device = true,
                                   .rows = &at,
                                   .n = 1,
                                   .out = want,
                                   .out_width = width };
        CHECK(item && s->draft.visible[made->at[i]]);
        CHECK_EQ(session_media_rows(s, item, of_item, 1, row, false, NULL), PV_OK);
        CHECK_EQ(vision_adaptor_run(st, &job, NULL), PV_OK);
        CHECK_MSG(
            !memcmp(want, made->rows + (size_t)i * (size_t)width, sizeof *want * (size_t)width),
            "row %d of the prompt", made->at[i]);
    }
    vision_adaptor_state_close(&st);
    pv_session_close(&s);
    close_pair(&p);
}

/* Two videos and a picture, then a second question: what was kept of the target's rows serves both
 * turns, and where there is no room for them they are made again. */
TEST(several_media_and_turns)
{
    struct pair p = open_adapted(&family_qwen2_5_vl, 1, false);
    static struct answer ref[2], got;
    for (int tight = 0; tight < 2; tight++) {
        struct pv_method m = method(PV_DRAFT_MODEL, "specvlm", PV_SHAPE_TREE);
        pv_session *plain = open_session(&p), *tried = open_session(&p);
        for (int turn = 0; turn < 2; turn++) {
            struct pv_error err = { 0 };
            pv_session *both[2] = { plain, tried };
            for (int k = 0; k < 2; k++) {
                if (turn == 0) {
                    CHECK_EQ(add_media(both[k], 3, false, &err), PV_OK);
                    CHECK_EQ(add_media(both[k], 4, true, &err), PV_OK);
                    CHECK_EQ(add_media(both[k], 5, false, &err), PV_OK);
                }
                CHECK_EQ(pv_add_text(both[k], "user", turn ? "the dog" : "what is the dog", &err),
                         PV_OK);
            }
            CHECK_MSG(!generate(plain, NULL, 0, &ref[turn], &err), "%s", err.text);
            if (tight && turn)
                drafting_fit(&tried->draft, 0); /* forgets them */
            CHECK_MSG(!generate(tried, &m, 0, &got, &err), "%s", err.text);
            CHECK(same_answer(&ref[turn], &got, vocab_of(plain)) && same_cache(plain, tried));
        }
        pv_session_close(&plain);
        pv_session_close(&tried);
    }
    close_pair(&p);
}

/* ---- which tower ---- */

static pv_model *open_draft(const char *path, pv_model *target, const char *adaptor,
                            enum pv_draft_vision vision, struct pv_error *err)
{
    struct pv_model_params p = pv_model_defaults();
    pv_model *m = NULL;
    p.path = path;
    p.threads = 1;
    p.shares_with = target;
    p.adaptor = adaptor;
    p.draft_vision = vision;
    *err = (struct pv_error){ 0 };
    pv_model_open(&m, &p, err);
    return m;
}

static void refuse_draft(const char *path, pv_model *target, const char *adaptor, const char *says)
{
    struct pv_error err;
    pv_model *m = open_draft(path, target, adaptor, PV_DRAFT_VISION_SHARED, &err);
    CHECK_MSG(!m && err.code == PV_E_ARG && strstr(err.text, says), "'%s', not '%s'", err.text,
              says);
    pv_model_close(&m);
}

TEST(whose_tower)
{
    struct tiny_vision target = tiny_vision(&family_llava_onevision);
    struct tiny_adaptor fits = { .in = target.text.hidden,
                                 .middle = 32,
                                 .out = target.text.hidden,
                                 .type = DTYPE_F32 },
                        other = fits;
    char model[256], good[256], bad[256];
    struct pv_error err;
    pv_model *t, *d;
    other.in *= 2;
    tiny_vision_gguf(&target, "whose", model);
    tiny_adaptor_write(&fits, "fits", good);
    tiny_adaptor_write(&other, "other", bad);
    t = open_model(model, 1, NULL);
    d = open_draft(model, t, good, PV_DRAFT_VISION_AUTO, &err);
    CHECK_MSG(d && d->adaptor && !d->vision, "%s", err.text);
    pv_model_close(&d);
    d = open_draft(model, t, good, PV_DRAFT_VISION_OWN, &err);
    CHECK_MSG(d && !d->adaptor && d->vision, "%s", err.text);
    pv_model_close(&d);
    d = open_draft(model, t, bad, PV_DRAFT_VISION_AUTO, &err); /* falls back to its own */
    CHECK_MSG(d && !d->adaptor && d->vision, "%s", err.text);
    pv_model_close(&d);
    d = open_draft(model, NULL, good, PV_DRAFT_VISION_AUTO, &err);
    CHECK_MSG(d && !d->adaptor && d->vision, "%s", err.text);
    pv_model_close(&d);
    refuse_draft(model, t, bad, "do not belong together");
    refuse_draft(model, t, NULL, "needs a vision adaptor");
    refuse_draft(model, NULL, good, "no target was given");
    refuse_draft(model, t, model, "not a vision adaptor");
    pv_model_close(&t);
}

/* An adaptor made for one target beside another one. */
TEST(another_target_is_refused)
{
    struct pair p = open_adapted(&family_llava_onevision, 1, false);
    struct tiny_vision wide = tiny_vision(&family_llava_onevision);
    struct pv_session_params sp = pv_session_defaults();
    struct pv_error err = { 0 };
    pv_model *target;
    pv_session *s = NULL;
    char path[256];
    wide.text.hidden *= 2;
    target = open_model(tiny_vision_gguf(&wide, "wide", path), 1, NULL);
    sp.draft = p.draft;
    sp.max_context = CONTEXT;
    CHECK_EQ(pv_session_open(&s, target, &sp, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "it cannot draft for it"), "%s", err.text);
    pv_session_close(&s);
    pv_model_close(&target);
    close_pair(&p);
}

/* What it holds is counted against the limit of memory. */
TEST(its_memory_is_counted)
{
    struct pair p = open_adapted(&family_llava_onevision, 1, false);
    struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN);
    struct pv_error err = { 0 };
    static struct answer a;
    pv_session *s;
    uint64_t used;
    p.target->limits.memory_bytes = (uint64_t)1 << 40;
    s = open_session(&p);
    run(s, &m, 0);
    CHECK(s->draft.adapted.bytes > 0);
    used = p.target->limits.memory_bytes - budget_left(&s->budget);
    pv_session_close(&s);
    p.target->limits.memory_bytes = used - 1;
    s = open_session(&p);
    CHECK_EQ(add_prompt(s, 7, &err), PV_OK);
    CHECK_EQ(generate(s, &m, 0, &a, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, "the draft model's vision adaptor needs"), "%s", err.text);
    pv_session_close(&s);
    close_pair(&p);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
