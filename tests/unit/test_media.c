/* Media in a prompt: how large they become, how many rows that is, and where the rows lie. */
#include "engine/timeline.h"
#include "family/families.h"
#include "test.h"

#include "base/mem.h"

#include <math.h>

static struct vision_config siglip(void)
{
    struct vision_config c = { .family = &family_llava_onevision,
                               .hidden = 1152,
                               .n_layers = 26,
                               .n_heads = 16,
                               .head_dim = 72,
                               .ffn = 4304,
                               .patch = 14,
                               .image = 384,
                               .temporal = 1,
                               .merge = 1,
                               .out = 896,
                               .max_tiles = 9 };
    for (int y = 1; y <= 6; y++)
        for (int x = 1; x <= 6; x++) {
            c.grid[c.n_grid][0] = 384 * y;
            c.grid[c.n_grid++][1] = 384 * x;
        }
    return c;
}

static struct vision_config qwen(void)
{
    return (struct vision_config){ .family = &family_qwen2_5_vl,
                                   .patch = 14,
                                   .temporal = 2,
                                   .merge = 2,
                                   .window = 112,
                                   .min_pixels = 3136,
                                   .max_pixels = 12845056,
                                   .tokens_per_second = 2 };
}

static struct media plan(const struct vision_config *c, struct pv_video_params p, int height,
                         int width, int n_frames, double fps)
{
    struct media m = { 0 };
    struct pv_error err = { 0 };
    CHECK_MSG(media_plan(&m, c, &p, height, width, n_frames, fps, true, &err) == PV_OK, "%s",
              err.text);
    return m;
}

TEST(frames_of_llava_are_squares_of_196_rows)
{
    struct vision_config c = siglip();
    static const int frames[][2] = { { 1, 197 }, { 32, 6273 }, { 64, 12545 }, { 128, 25089 } };
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        struct media m = plan(&c, pv_video_defaults(), 720, 1280, frames[i][0], 1);
        CHECK_EQ(m.n_rows, frames[i][1]);
        CHECK(m.height == 384 && m.width == 384 && m.h == 27 && m.w == 27);
    }
}

TEST(a_picture_of_llava_is_cut_only_when_alone)
{
    struct vision_config c = siglip();
    struct pv_video_params p = pv_video_defaults();
    struct media m = plan(&c, p, 384, 384, 0, 0);
    CHECK(m.tiling.rows == 1 && m.tiling.cols == 1 && m.n_views == 2);
    CHECK_EQ(m.n_rows, 729 + 27 * 28);
    CHECK_EQ(media_plan(&m, &c, &p, 384, 384, 0, 0, false, NULL), PV_OK);
    CHECK(m.tiling.rows == 0 && m.n_views == 1 && m.n_rows == 730);
}

TEST(thin_pictures_are_refused)
{
    struct vision_config c = siglip();
    struct pv_video_params p = pv_video_defaults();
    struct media m;
    CHECK_EQ(media_plan(&m, &c, &p, 10, 2000, 0, 0, false, NULL), PV_OK);
    CHECK_EQ(media_plan(&m, &c, &p, 10, 2010, 0, 0, false, NULL), PV_E_ARG);
    CHECK_EQ(media_plan(&m, &c, &p, 65535, 1, 4, 2, false, NULL), PV_E_ARG);
}

/* 720 x 1280 pixels, by the examples of qwen-vl-utils. */
TEST(frames_of_qwen_keep_to_their_area)
{
    struct vision_config c = qwen();
    struct pv_video_params p = pv_video_defaults();
    struct media m = plan(&c, p, 720, 1280, 8, 2);
    CHECK(m.height == 560 && m.width == 1008 && m.unit_rows == 720 && m.n_rows == 4 * 720);
    p.max_pixels = 448 * 448;
    m = plan(&c, p, 720, 1280, 8, 2);
    CHECK(m.height == 336 && m.width == 588 && m.unit_rows == 252);
    p.max_pixels = 10000; /* less than the family's least: the caller means it */
    m = plan(&c, p, 720, 1280, 8, 2);
    CHECK(m.height * m.width <= 10000 && m.height % 28 == 0 && m.width % 28 == 0);
    p.max_pixels = 0; /* many frames share the budget of the whole video */
    m = plan(&c, p, 720, 1280, 768, 2);
    CHECK(m.height * m.width <= 115200 * 784 / 768 * 2);
    m = plan(&c, p, 720, 1280, 7, 2);
    CHECK(m.n_views == 8 && m.n_slices == 4);
    m = plan(&c, p, 720, 1280, 0, 0);
    CHECK(m.n_views == 2 && m.n_slices == 1 && !m.video);
}

/* A media item of 3 slices of 2 x 4 rows, 1.25 seconds each. */
static struct media small_qwen(enum pv_time_rule rule)
{
    struct vision_config c = qwen();
    struct pv_video_params p = { .time_rule = rule, .min_pixels = 1, .max_pixels = 56 * 112 };
    return plan(&c, p, 56, 112, 6, 1.6);
}

TEST(positions_follow_the_time_rules)
{
    static const struct {
        enum pv_time_rule rule;
        int t[3], next; /* next: of a block that begins at 10 */
    } cases[] = { { PV_TIME_SECONDS, { 0, 2, 5 }, 16 },
                  { PV_TIME_AUTO, { 0, 2, 5 }, 16 },
                  { PV_TIME_WHOLE, { 0, 2, 4 }, 15 },
                  { PV_TIME_COMPACT, { 0, 2, 4 }, 14 },
                  { PV_TIME_SECONDS_COMPACT, { 0, 2, 5 }, 14 } };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct media m = small_qwen(cases[k].rule);
        int32_t pos[24][3];
        if (!CHECK_EQ(m.n_rows, 24))
            return;
        CHECK_EQ(media_positions(&m, 10, 0, m.n_rows, pos), cases[k].next);
        for (int i = 0; i < 24; i++)
            CHECK_MSG(pos[i][0] == 10 + cases[k].t[i / 8] && pos[i][1] == 10 + i % 8 / 4 &&
                          pos[i][2] == 10 + i % 4,
                      "rule %d, row %d: %d %d %d", (int)cases[k].rule, i, pos[i][0], pos[i][1],
                      pos[i][2]);
    }
}

static struct media filled(struct media m, int seed)
{
    CHECK_EQ(media_reserve(&m, NULL), PV_OK);
    for (size_t i = 0; i < media_size(&m); i++)
        m.rgb[i] = (uint8_t)(i * 7 + (size_t)seed);
    media_seal(&m);
    return m;
}

static int adopt(struct timeline *t, enum pv_time_rule rule, int seed)
{
    struct media m = filled(small_qwen(rule), seed);
    int key;
    CHECK_EQ(timeline_reserve(t, 1, 1, NULL), PV_OK);
    key = timeline_key(t, &m);
    timeline_adopt(t, &m);
    CHECK(!m.rgb);
    return key ? key : t->last_key;
}

/* 1.5 MB, so that threads share the views. */
TEST(threads_do_not_change_a_digest)
{
    struct media m = small_qwen(PV_TIME_AUTO), other;
    size_t size;
    uint8_t *from;
    m.height = m.width = 288;
    size = media_size(&m);
    other = m;
    from = malloc(size);
    if (!CHECK(size > 1 << 20) || !CHECK(from) || !CHECK(!media_reserve(&m, NULL)) ||
        !CHECK(!media_reserve(&other, NULL)))
        return;
    for (size_t i = 0; i < size; i++)
        from[i] = (uint8_t)(i * i >> 5);
    memcpy(m.rgb, from, size);
    media_seal(&m);
    for (int threads = 1; threads <= 7; threads += 3) {
        memset(other.rgb, 0, size);
        media_take_pixels(&other, from, threads);
        CHECK(!memcmp(other.rgb, from, size));
        CHECK(!memcmp(other.digest, m.digest, sizeof m.digest));
    }
    from[size - 1] ^= 1;
    media_take_pixels(&other, from, 4);
    CHECK(memcmp(other.digest, m.digest, sizeof m.digest) != 0);
    free(from);
    media_clear(&m);
    media_clear(&other);
}

TEST(equal_media_have_equal_keys)
{
    struct timeline t;
    int a, b;
    CHECK_EQ(timeline_open(&t, 100, NULL), PV_OK);
    a = adopt(&t, PV_TIME_SECONDS, 1);
    b = adopt(&t, PV_TIME_SECONDS, 2);
    CHECK(a != b);
    CHECK_EQ(adopt(&t, PV_TIME_SECONDS, 1), a);
    CHECK_EQ(adopt(&t, PV_TIME_AUTO, 2), b);
    CHECK(adopt(&t, PV_TIME_WHOLE, 1) != a);
    CHECK_EQ(t.n_media, 3);
    timeline_close(&t);
}

/* Rows 7, V*24, 8, V*24 (the same video, next to text), 9, 9. */
static void append_two(struct timeline *t, int key)
{
    int32_t ids[52];
    for (int i = 0; i < 52; i++)
        ids[i] = -key;
    ids[0] = 7;
    ids[25] = 8;
    ids[50] = ids[51] = 9;
    CHECK_EQ(timeline_reserve(t, 2, 2, NULL), PV_OK);
    CHECK_EQ(timeline_append(t, ids, 52, NULL), PV_OK);
}

TEST(rows_know_their_media_item_and_place)
{
    struct timeline t;
    int key, row = -1;
    CHECK_EQ(timeline_open(&t, 100, NULL), PV_OK);
    key = adopt(&t, PV_TIME_SECONDS, 1);
    append_two(&t, key);
    CHECK(t.n == 52 && t.n_video_rows == 48 && t.n_spans == 2);
    CHECK(!timeline_item(&t, 0, &row) && !timeline_item(&t, 25, &row));
    CHECK(timeline_item(&t, 1, &row) && row == 0);
    CHECK(timeline_item(&t, 24, &row) && row == 23);
    CHECK(timeline_item(&t, 26, &row) && row == 0);
    CHECK(timeline_item(&t, 49, &row) && row == 23 && timeline_item(&t, 49, &row)->key == key);
    CHECK(t.pos[1][0] == 1 && t.pos[24][0] == 6 && t.pos[25][0] == 7); /* 1 + 5, then max + 1 */
    CHECK(t.pos[50][0] == 14 && t.next == 16);
    timeline_push(&t, 3);
    CHECK_EQ(t.pos[52][1], 16);
    timeline_close(&t);
}

/* What follows a compact block, text or answer, may lie below its largest position. */
TEST(answers_begin_behind_the_text)
{
    struct timeline t;
    CHECK_EQ(timeline_open(&t, 100, NULL), PV_OK);
    append_two(&t, adopt(&t, PV_TIME_SECONDS_COMPACT, 1));
    CHECK(t.pos[25][0] == 5 && t.pos[26][2] == 6 && t.pos[50][0] == 10 && t.pos[51][0] == 11);
    timeline_clear(&t);
    CHECK(t.n == 0 && t.next == 0 && t.n_video_rows == 0);
    append_two(&t, adopt(&t, PV_TIME_SECONDS_COMPACT, 1));
    timeline_return(&t, (struct timeline_mark){ .n = 25, .n_spans = 1, .next = 5 });
    timeline_push(&t, 4);
    CHECK(t.pos[24][0] == 6 && t.pos[25][0] == 5);
    timeline_close(&t);
}

TEST(media_are_forgotten_when_nothing_names_them)
{
    struct timeline t;
    int32_t kv[2] = { 5, 0 };
    int a, b;
    CHECK_EQ(timeline_open(&t, 100, NULL), PV_OK);
    a = adopt(&t, PV_TIME_SECONDS, 1);
    b = adopt(&t, PV_TIME_SECONDS, 2);
    append_two(&t, b);
    kv[1] = -a;
    timeline_forget(&t, kv, 2);
    CHECK_EQ(t.n_media, 2);
    timeline_forget(&t, kv, 1);
    CHECK(t.n_media == 1 && t.media[0].key == b);
    int row;
    CHECK(timeline_item(&t, 30, &row) && timeline_item(&t, 30, &row)->key == b);
    timeline_clear(&t);
    timeline_forget(&t, kv, 1);
    CHECK(t.n_media == 0 && timeline_media_size(&t) == 0);
    timeline_close(&t);
}

TEST(parts_of_media_and_unknown_ones_are_refused)
{
    struct timeline t;
    int32_t ids[30];
    struct timeline_mark before;
    CHECK_EQ(timeline_open(&t, 40, NULL), PV_OK);
    for (int i = 0; i < 30; i++)
        ids[i] = -adopt(&t, PV_TIME_SECONDS, 1);
    before = timeline_mark(&t);
    CHECK_EQ(timeline_append(&t, ids, 30, NULL), PV_E_ARG); /* one and a quarter */
    CHECK(t.n == before.n && t.n_spans == before.n_spans && t.next == before.next);
    ids[0] = -99;
    CHECK_EQ(timeline_append(&t, ids, 1, NULL), PV_E_ARG);
    CHECK_EQ(timeline_append(&t, ids, 41, NULL), PV_E_LIMIT);
    timeline_close(&t);
}

TEST(wishes_without_meaning_are_refused)
{
    const struct pv_video_params bad[] = {
        { .frames = -1 },
        { .fps = -1 },
        { .fps = NAN },
        { .frames = 4, .fps = 1 },
        { .start = -1 },
        { .end = INFINITY },
        { .min_pixels = -1 },
        { .max_pixels = -5 },
        { .min_pixels = 9, .max_pixels = 8 },
        { .min_pixels = INT64_MAX },
        { .max_pixels = INT64_MAX },
        { .min_frames = 9, .max_frames = 8 },
        { .rule = (enum pv_frame_rule)9 },
        { .time_rule = (enum pv_time_rule)9 },
        { .max_frames = -2 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(frame_policy_check(&bad[i], NULL) == PV_E_ARG, "case %zu", i);
    CHECK_EQ(frame_policy_check(&(struct pv_video_params){ .fps = 1 }, NULL), PV_OK);
}

TEST(bounds_hold_for_the_usual_number_too)
{
    struct vision_config c = siglip();
    struct choose_params how;
    CHECK_EQ(frame_policy_choose(&how, &c, &(struct pv_video_params){ .max_frames = 8 }, NULL),
             PV_OK);
    CHECK_EQ(how.frames, 8);
    CHECK_EQ(frame_policy_choose(&how, NULL, &(struct pv_video_params){ .min_frames = 40 }, NULL),
             PV_OK);
    CHECK_EQ(how.frames, 40);
    CHECK_EQ(frame_policy_choose(&how, &c, &(struct pv_video_params){ .max_frames = 99 }, NULL),
             PV_OK);
    CHECK_EQ(how.frames, 32);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
