/* Pictures and videos against transformers, stage by stage (tests/golden/vision_cases.h): each on
 * the output of the ones before, so that the first that fails names the culprit. Patches, tower,
 * rows of the prompt with their deepstack vectors, positions, logits. F32 must agree to 1e-4 of the
 * largest magnitude of a row on every CPU level. Whole answers: test_golden_answers.c. */
#include "engine/encoder.h"
#include "golden/vision_cases.h"
#include "larger.h"
#include "rig.h"
#include "video/patches.h"
#include "vision/tower.h"

/* ---- patches ---- */

/* All patches of a media item [n_slices * h * w, row_size]; the caller frees. */
static float *patches_of(const struct vision_config *c, const struct media *m)
{
    struct patch_plan plan = { .patch = c->patch, .temporal = c->temporal, .merge = c->merge };
    memcpy(plan.mean, c->mean, sizeof plan.mean);
    memcpy(plan.std, c->std, sizeof plan.std);
    size_t slice = (size_t)m->h * (size_t)m->w * (size_t)patch_row_size(&plan);
    float *out = malloc(sizeof(float) * slice * (size_t)m->n_slices);
    for (int s = 0; s < m->n_slices; s++) {
        const uint8_t *frames[2] = { media_view(m, s * c->temporal),
                                     media_view(m, s * c->temporal + c->temporal - 1) };
        patches_make(out + slice * (size_t)s, &plan, frames, m->height, m->width);
    }
    return out;
}

static void check_patches(const struct vision_config *c, const struct expected *e, int i)
{
    struct loaded_media s = { 0 };
    const int32_t *row = golden_row_i(e->media, i);
    const struct golden_entry *mix = find(e, true, "mix.%d", i);
    const struct golden_entry *want = find(e, false, "patches.%d", i);
    int size = 3 * c->temporal * c->patch * c->patch;
    if (!see(&s, c, e, i, library_rule))
        return;
    int n = s.m.n_slices * s.m.h * s.m.w;
    CHECK_EQ(s.m.n_rows, row[N_TOKENS]);
    if (CHECK_EQ(n, row[N_PATCHES])) {
        float *patches = patches_of(c, &s.m), *mixed = malloc(sizeof(float) * (size_t)n);
        for (int r = 0; r < n; r++) {
            double sum = 0;
            for (int k = 0; k < size; k++)
                sum += (double)patches[(size_t)r * (size_t)size + (size_t)k] *
                       (float)(k * 37 % 101 - 50) / 50;
            mixed[r] = (float)sum;
        }
        double d = row_error(mixed, mix->f, n);
        CHECK_MSG(d <= tolerance, "%s: patches of media item %d differ by %.2g", e->name, i, d);
        if (want)
            check_rows(patches, find(e, true, "patch_rows.%d", i), want, 1, e->name);
        free(mixed);
        free(patches);
    }
    loaded_media_clear(&s);
}

TEST(patches_equal_transformers)
{
    for (int k = 0; k < N_CASES; k++) {
        struct expected e;
        struct model_file *mf = NULL;
        struct pv_error err = { 0 };
        if (!expected_open(&e, k) ||
            !CHECK_MSG(!model_file_open(&mf, hf_path(e.model), NULL, 0, families, &err), "%s",
                       err.text))
            return;
        for (int i = 0; i < e.n_media; i++)
            check_patches(model_file_vision(mf), &e, i);
        model_file_close(&mf);
        golden_close(&e.g);
    }
}

/* ---- tower and rows ---- */

/* A decoder and a tower over one file. */
struct bench {
    struct rig r;
    struct vision *v;
    struct encoder *enc;
};

static void bench_close(struct bench *b)
{
    encoder_close(&b->enc);
    vision_close(&b->v);
    rig_close(&b->r);
}

static bool bench_open(struct bench *b, const char *path, int level)
{
    struct rig_shape shape = {
        .level = level, .threads = 2, .kv = DTYPE_F32, .max_rows = MAX_ROWS, .context = MAX_ROWS
    };
    struct pv_error err = { 0 };
    *b = (struct bench){ 0 };
    if (!rig_open(&b->r, path, shape))
        return false;
    if (CHECK_MSG(!vision_open(&b->v, b->r.mf, b->r.dev, &err) &&
                      !encoder_open(&b->enc, b->v, NULL, &err),
                  "%s", err.text))
        return true;
    bench_close(b);
    return false;
}

/* The states after the last layer, which the call of vision_encode has left in its scratch, in the
 * order of the patches; the caller frees. */
static float *tower_states(const struct vision *v, const struct vision_state *st, int n)
{
    const struct vision_config *c = vision_config(v);
    int unit = c->merge * c->merge;
    size_t hidden = (size_t)c->hidden;
    float *out = malloc(sizeof(float) * (size_t)n * hidden);
    for (int i = 0; i < n; i++) {
        int from = st->order ? st->inverse[i / unit] * unit + i % unit : i;
        memcpy(out + (size_t)i * hidden, st->x + (size_t)from * hidden, sizeof(float) * hidden);
    }
    return out;
}

static void check_tower(const struct bench *b, const struct media *m, const struct expected *e,
                        int i, const char *what)
{
    const struct vision_config *c = vision_config(b->v);
    int n = m->n_slices * m->h * m->w;
    int tokens = m->n_slices * vision_slice_tokens(b->v, m->h, m->w);
    float *patches = patches_of(c, m);
    float *out = malloc(sizeof(float) * (size_t)tokens * (size_t)vision_row_size(c));
    struct vision_state *st = NULL;
    struct pv_error err = { 0 };
    if (CHECK_MSG(!vision_state_open(&st, b->v, n, &err) &&
                      !vision_encode(b->v, st, patches, m->n_slices, m->h, m->w, out, &err),
                  "%s", err.text)) {
        float *states = tower_states(b->v, st, n);
        check_rows(states, find(e, true, "tower_rows.%d", i), find(e, true, "tower.%d", i), 1,
                   what);
        free(states);
    }
    vision_state_close(&st);
    free(out);
    free(patches);
}

/* All rows of a media item [n_rows, vision_row_size]; NULL and a failed check: none. */
static float *rows_of(const struct bench *b, const struct media *m, int key)
{
    size_t size = (size_t)vision_row_size(vision_config(b->v));
    float *out = malloc(sizeof(float) * (size_t)m->n_rows * size);
    struct pv_error err = { 0 };
    if (CHECK_MSG(!encoder_reserve(b->enc, m, &err) &&
                      !encoder_rows(b->enc, m, key, 0, m->n_rows, out, &err),
                  "%s", err.text))
        return out;
    free(out);
    return NULL;
}

/* Every case on every level, weights in F32. */
static void run_everywhere(void (*check)(struct bench *, const struct expected *, const char *))
{
    for (int k = 0; k < N_CASES * N_CPU_LEVELS; k++) {
        struct expected e;
        struct bench b;
        char what[96];
        int level = k / N_CASES;
        if (!cpu_level_here(level) || !expected_open(&e, k % N_CASES))
            continue;
        snprintf(what, sizeof what, "%s %s", e.name, cpu_levels[level].name);
        if (bench_open(&b, gguf_path_of(e.model), level)) {
            check(&b, &e, what);
            bench_close(&b);
        }
        golden_close(&e.g);
    }
}

static void check_encoding(struct bench *b, const struct expected *e, const char *what)
{
    for (int i = 0; i < e->n_media; i++) {
        struct loaded_media s = { 0 };
        float *rows;
        if (!see(&s, vision_config(b->v), e, i, library_rule))
            continue;
        check_tower(b, &s.m, e, i, what);
        rows = rows_of(b, &s.m, i + 1);
        if (rows)
            check_rows(rows, find(e, true, "token_rows.%d", i), find(e, true, "tokens.%d", i),
                       1 + vision_config(b->v)->n_deepstack, what);
        free(rows);
        loaded_media_clear(&s);
    }
}

TEST(tower_and_tokens_equal_transformers)
{
    run_everywhere(check_encoding);
}

/* ---- positions ---- */

/* The prompt `prefix` laid out: ids with the media's rows as -1 - item, which of its rows they
 * are, and their positions. */
struct layout {
    int n;
    int32_t ids[MAX_ROWS], pos[MAX_ROWS][3];
    int media_row[MAX_ROWS];
};

/* Media of one kind come in the order given, each run by run. */
struct queue {
    int item, row; /* the next */
};

static bool lay_run(struct layout *l, const struct expected *e, const struct loaded_media *s,
                    bool video, struct queue *q, const struct golden_entry *prompt, int32_t *at)
{
    while (q->item < e->n_media && golden_row_i(e->media, q->item)[IS_VIDEO] != video)
        q->item++;
    if (!CHECK(q->item < e->n_media))
        return false;
    const struct media *m = &s[q->item].m;
    int32_t id = prompt->i[l->n];
    if (!CHECK(l->n + m->run_rows <= prompt->cols))
        return false;
    *at = media_positions(m, *at, q->row, m->run_rows, l->pos + l->n);
    for (int r = 0; r < m->run_rows; r++, l->n++) {
        CHECK_EQ(prompt->i[l->n], id);
        l->ids[l->n] = -1 - q->item;
        l->media_row[l->n] = q->row++;
    }
    if (q->row == m->n_rows)
        *q = (struct queue){ .item = q->item + 1 };
    return true;
}

static bool lay_out(struct layout *l, const struct expected *e, const struct vision_config *c,
                    const struct loaded_media *s, const char *prefix)
{
    const struct golden_entry *prompt = find(e, true, "%sprompt", prefix);
    struct queue next[2] = { 0 };
    int32_t at = 0;
    l->n = 0;
    if (!CHECK(prompt->cols <= MAX_ROWS))
        return false;
    while (l->n < prompt->cols) {
        int32_t id = prompt->i[l->n];
        bool video = id == c->video_token;
        if (video || id == c->image_token) {
            if (!lay_run(l, e, s, video, &next[video], prompt, &at))
                return false;
            continue;
        }
        l->ids[l->n] = id;
        l->pos[l->n][0] = l->pos[l->n][1] = l->pos[l->n][2] = at++;
        l->n++;
    }
    return CHECK(next[0].row == 0 && next[1].row == 0);
}

static bool see_all(struct loaded_media *s, const struct vision_config *c, const struct expected *e,
                    enum pv_time_rule rule)
{
    memset(s, 0, sizeof *s * MAX_MEDIA);
    for (int i = 0; i < e->n_media; i++)
        if (!see(&s[i], c, e, i, rule))
            return false;
    return true;
}

static void clear_all(struct loaded_media *s)
{
    for (int i = 0; i < MAX_MEDIA; i++)
        loaded_media_clear(&s[i]);
}

TEST(positions_equal_transformers)
{
    static struct layout l;
    for (int k = 0; k < N_CASES; k++) {
        struct expected e;
        struct model_file *mf = NULL;
        if (!expected_open(&e, k) ||
            !CHECK(!model_file_open(&mf, hf_path(e.model), NULL, 0, families, NULL)))
            return;
        const struct vision_config *c = model_file_vision(mf);
        for (int rule = PV_TIME_SECONDS; rule <= PV_TIME_SECONDS_COMPACT; rule++) {
            struct loaded_media s[MAX_MEDIA];
            if (see_all(s, c, &e, (enum pv_time_rule)rule)) {
                if (lay_out(&l, &e, c, s, ""))
                    check_positions((const int32_t(*)[3])l.pos, l.n, &e, "",
                                    (enum pv_time_rule)rule);
                if (find(&e, false, "turn2.prompt") && lay_out(&l, &e, c, s, "turn2."))
                    check_positions((const int32_t(*)[3])l.pos, l.n, &e, "turn2.",
                                    (enum pv_time_rule)rule);
            }
            clear_all(s);
        }
        model_file_close(&mf);
        golden_close(&e.g);
    }
}

/* ---- logits ---- */

/* The media's rows where the layout has them; false: a failed check. */
static bool fill_embeds(float *embeds, const struct bench *b, const struct layout *l,
                        const struct loaded_media *s, int n_media)
{
    size_t size = (size_t)vision_row_size(vision_config(b->v));
    for (int i = 0; i < n_media; i++) {
        float *mine = rows_of(b, &s[i].m, i + 1);
        if (!mine)
            return false;
        for (int r = 0; r < l->n; r++)
            if (l->ids[r] == -1 - i)
                memcpy(embeds + (size_t)r * size, mine + (size_t)l->media_row[r] * size,
                       sizeof(float) * size);
        free(mine);
    }
    return true;
}

static void check_prompt(struct bench *b, const struct expected *e, const char *prefix,
                         enum pv_time_rule rule, const char *what)
{
    static struct layout l;
    const struct golden_entry *rows = find(e, true, "%slogit_rows", prefix);
    const struct golden_entry *want = find(e, true, "%slogits", prefix);
    const struct vision_config *c = vision_config(b->v);
    size_t size = (size_t)vision_row_size(c), vocab = (size_t)b->r.c->vocab;
    float *embeds = calloc(MAX_ROWS * size, sizeof(float));
    float *logits = malloc(sizeof(float) * vocab * (size_t)rows->cols);
    struct loaded_media s[MAX_MEDIA];
    struct pv_error err = { 0 };
    if (!see_all(s, c, e, rule) || !lay_out(&l, e, c, s, prefix) || !CHECK_EQ(want->cols, vocab) ||
        !fill_embeds(embeds, b, &l, s, e->n_media))
        goto done;
    struct step_seq seq = { .kv = &b->r.kv, .n = l.n };
    struct step step = { .n = l.n,
                         .ids = l.ids,
                         .embeds = embeds,
                         .pos = (const int32_t(*)[3])l.pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = rows->cols,
                         .logit_rows = rows->i,
                         .logits = logits };
    if (CHECK_MSG(!decoder_step(b->r.dec, b->r.st, &step, &err), "%s", err.text))
        for (int i = 0; i < rows->cols; i++) {
            double d = row_error(logits + (size_t)i * vocab, golden_row(want, i), want->cols);
            CHECK_MSG(d <= tolerance, "%s: logits of row %d of %sprompt differ by %.2g", what,
                      rows->i[i], prefix, d);
        }
done:
    clear_all(s);
    free(embeds);
    free(logits);
}

static void check_logits(struct bench *b, const struct expected *e, const char *what)
{
    check_prompt(b, e, "", library_rule, what);
    if (find(e, false, "seconds.prompt"))
        check_prompt(b, e, "seconds.", PV_TIME_SECONDS, what);
    if (find(e, false, "turn2.prompt"))
        check_prompt(b, e, "turn2.", library_rule, what);
}

TEST(logits_equal_transformers)
{
    run_everywhere(check_logits);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
