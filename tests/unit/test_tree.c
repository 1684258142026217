/* Trees and shapes: the static tree against the tables of its description, adding to trees up to
 * their limits, and files of paths, good and bad. */
#include "spec/tree.h"

#include "base/rng.h"
#include "scratch.h"
#include "test.h"

/* ---- the static tree ---- */

/* Node i is paths[i - 1]: sorted by length, then by rank. */
static const char *const paths[] = {
    "0",     "1",     "2",       "3",       "0 0",     "0 1",       "0 2",       "1 0",   "1 1",
    "2 0",   "2 1",   "3 0",     "0 0 0",   "0 0 1",   "0 0 2",     "0 1 0",     "0 1 1", "0 2 0",
    "0 2 1", "1 0 0", "0 0 0 0", "0 0 0 1", "0 0 0 2", "0 0 0 0 0", "0 0 0 0 1",
};
static const int parents[] = { -1, 0, 0, 0, 0, 1, 1, 1, 2,  2,  3,  3,  4,
                               5,  5, 5, 6, 6, 7, 7, 8, 13, 13, 13, 21, 21 };
static const int depths[] = { 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2,
                              3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 5, 5 };
static const char *const leaf_rows[] = {
    "0 1 5 13 21 24", "0 1 5 13 21 25", "0 1 5 13 22", "0 1 5 13 23", "0 1 5 14",
    "0 1 5 15",       "0 1 6 16",       "0 1 6 17",    "0 1 7 18",    "0 1 7 19",
    "0 2 8 20",       "0 2 9",          "0 3 10",      "0 3 11",      "0 4 12",
};

/* "0 1 0": the numbers from the root down to a node. */
static void show(char *out, size_t cap, const struct shape *s, int node, bool ranks)
{
    int up[TREE_MAX], n = 0;
    size_t len = 0;
    for (int i = node; i >= (ranks ? 1 : 0); i = s->parent[i])
        up[n++] = ranks ? s->rank[i] : i;
    out[0] = '\0';
    for (int i = n - 1; i >= 0 && len < cap; i--)
        len += (size_t)snprintf(out + len, cap - len, i ? "%d " : "%d", up[i]);
}

TEST(static_tree_has_the_nodes_of_its_table)
{
    struct shape s;
    char text[64];
    memset(&s, 0xee, sizeof s);
    shape_static25(&s);
    CHECK_EQ(s.kind, SHAPE_STATIC);
    CHECK_EQ(s.n, 26);
    CHECK_EQ(shape_rows(&s), 26);
    CHECK_EQ(shape_depth(&s), 5);
    for (int i = 0; i < 26; i++) {
        int depth = 0;
        for (int up = i; up > 0; up = s.parent[up])
            depth++;
        CHECK_EQ(s.parent[i], parents[i]);
        CHECK_EQ(depth, depths[i]);
        show(text, sizeof text, &s, i, true);
        CHECK_STR(text, i ? paths[i - 1] : "");
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

TEST(static_tree_has_15_leaves_and_11_expanded_rows)
{
    static const int expanded[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 21 };
    static const int children[] = { 4, 3, 2, 2, 1, 3, 2, 2, 1, 3, 2 };
    struct shape s;
    char text[32][32];
    const char *sorted[32], *want[15];
    int n = 0, at = 0;
    shape_static25(&s);
    for (int i = 0; i < s.n; i++) {
        int k = shape_children(&s, i);
        bool inner = at < 11 && expanded[at] == i;
        CHECK_MSG(k == (inner ? children[at] : 0), "row %d has %d children", i, k);
        at += inner;
        if (k == 0) {
            show(text[n], sizeof text[n], &s, i, false);
            sorted[n] = text[n];
            n++;
        }
    }
    CHECK_EQ(at, 11);
    if (!CHECK_EQ(n, 15))
        return;
    memcpy(want, leaf_rows, sizeof want); /* as sets: their order is no part of a shape */
    qsort(sorted, 15, sizeof *sorted, by_text);
    qsort(want, 15, sizeof *want, by_text);
    for (int i = 0; i < 15; i++)
        CHECK_STR(sorted[i], want[i]);
}

/* ---- adding ---- */

TEST(a_child_is_added_once)
{
    struct tree t;
    memset(&t, 0xee, sizeof t);
    tree_begin(&t, 42);
    CHECK(t.n == 1 && t.id[0] == 42 && t.parent[0] == -1 && t.depth[0] == 0);
    CHECK_EQ(tree_child(&t, 0, 42), -1);
    CHECK_EQ(tree_add(&t, 0, 7), 1);
    CHECK_EQ(tree_add(&t, 0, 42), 2); /* the root's own token may follow it */
    CHECK_EQ(tree_add(&t, 1, 7), 3);
    CHECK_EQ(tree_add(&t, 0, 7), 1);
    CHECK_EQ(tree_add(&t, 1, 7), 3);
    CHECK_EQ(tree_add(&t, 2, 7), 4);
    CHECK_EQ(t.n, 5);
    CHECK(t.parent[3] == 1 && t.depth[3] == 2 && t.id[3] == 7);
    CHECK(t.parent[4] == 2 && t.depth[4] == 2 && t.id[4] == 7);
    CHECK_EQ(tree_child(&t, 0, 7), 1);
    CHECK_EQ(tree_child(&t, 1, 7), 3);
    CHECK_EQ(tree_child(&t, 2, 7), 4);
    CHECK_EQ(tree_child(&t, 3, 7), -1);
    CHECK_EQ(tree_child(&t, 4, 7), -1);
}

TEST(trees_end_at_64_rows_and_32_levels)
{
    struct {
        struct tree t;
        int32_t after;
    } full = { .after = 77 };
    struct tree t;
    tree_begin(&full.t, 0);
    for (int i = 1; i < TREE_MAX; i++)
        CHECK_EQ(tree_add(&full.t, 0, i), i);
    CHECK_EQ(tree_add(&full.t, 0, 1000), -1);
    CHECK_EQ(tree_add(&full.t, 0, 5), 5); /* what is there already still is */
    CHECK(full.t.n == TREE_MAX && full.after == 77);
    tree_begin(&t, 0);
    for (int i = 1; i <= TREE_MAX_DEPTH; i++)
        CHECK_EQ(tree_add(&t, i - 1, 9), i);
    CHECK_EQ(t.depth[TREE_MAX_DEPTH], TREE_MAX_DEPTH);
    CHECK_EQ(tree_add(&t, TREE_MAX_DEPTH, 9), -1);
    CHECK_EQ(tree_add(&t, TREE_MAX_DEPTH - 1, 8), TREE_MAX_DEPTH + 1);
}

/* ---- sizes ---- */

static void check_refused(enum pv_status got, enum pv_status want, const struct pv_error *err,
                          const char *words)
{
    CHECK_EQ(got, want);
    CHECK_MSG(err->code == want && strstr(err->text, words), "\"%s\" lacks \"%s\"", err->text,
              words);
}

static void refuse_chain(int window, const char *words)
{
    struct shape s = { .window = 77 };
    struct pv_error err = { 0 };
    check_refused(shape_chain(&s, window, &err), PV_E_ARG, &err, words);
    CHECK_EQ(s.window, 77);
}

static void refuse_fitted(int total, int depth, int width, const char *words)
{
    struct shape s = { .window = 77 };
    struct pv_error err = { 0 };
    check_refused(shape_fitted(&s, total, depth, width, &err), PV_E_ARG, &err, words);
    CHECK(s.window == 77 && s.kind == SHAPE_CHAIN);
}

static void refuse_dynamic(int total, int depth, int width, const char *words)
{
    struct shape s = { .window = 77 };
    struct pv_error err = { 0 };
    check_refused(shape_dynamic(&s, total, depth, width, &err), PV_E_ARG, &err, words);
    CHECK_EQ(s.window, 77);
}

TEST(sizes_of_chains_and_dynamic_trees)
{
    struct shape s;
    CHECK_EQ(shape_chain(&s, 5, NULL), PV_OK);
    CHECK(s.kind == SHAPE_CHAIN && shape_rows(&s) == 6 && shape_depth(&s) == 5);
    CHECK_EQ(shape_chain(&s, TREE_MAX_DEPTH, NULL), PV_OK);
    CHECK_EQ(shape_rows(&s), TREE_MAX_DEPTH + 1);
    refuse_chain(0, "chain of 0 tokens");
    refuse_chain(33, "chain of 33 tokens is not between 1 and 32");
    refuse_chain(-1, "-1");
    CHECK_EQ(shape_dynamic(&s, 30, 3, 8, NULL), PV_OK);
    CHECK(s.kind == SHAPE_DYNAMIC && s.total == 30 && s.depth == 3 && s.width == 8);
    CHECK(shape_rows(&s) == 30 && shape_depth(&s) == 4);
    CHECK_EQ(shape_dynamic(&s, 60, 7, 10, NULL), PV_OK);
    CHECK_EQ(shape_dynamic(&s, 9, 0, 8, NULL), PV_OK);
    CHECK_EQ(shape_dynamic(&s, 6, 4, 1, NULL), PV_OK);
    CHECK_EQ(shape_dynamic(&s, 64, 31, 63, NULL), PV_OK);
    refuse_dynamic(1, 3, 8, "tree of 1 rows");
    refuse_dynamic(65, 3, 8, "65 rows is not between 2 and 64");
    refuse_dynamic(30, -1, 8, "depth -1");
    refuse_dynamic(30, 32, 8, "depth 32 is not between 0 and 31");
    refuse_dynamic(30, 3, 0, "width 0");
    refuse_dynamic(30, 3, 64, "width 64 is not between 1 and 63");
    refuse_dynamic(10, 0, 8, "10 rows needs 9 tokens, but depth 0 and width 8 propose 8");
}

TEST(fitted_trees_have_the_bounds_of_dynamic_ones)
{
    struct shape s;
    CHECK_EQ(shape_fitted(&s, 32, 15, 4, NULL), PV_OK);
    CHECK(s.kind == SHAPE_FITTED && s.total == 32 && s.depth == 15 && s.width == 4);
    CHECK(shape_rows(&s) == 32 && shape_depth(&s) == 16);
    CHECK_EQ(shape_fitted(&s, 64, 31, 63, NULL), PV_OK);
    refuse_fitted(65, 3, 8, "65 rows is not between 2 and 64");
    refuse_fitted(30, 32, 8, "depth 32 is not between 0 and 31");
    refuse_fitted(30, 3, 0, "width 0");
    refuse_fitted(10, 0, 8, "10 rows needs 9 tokens");
}

TEST(the_deepest_token)
{
    struct tree t;
    tree_begin(&t, 5);
    CHECK_EQ(tree_deepest(&t), 0);
    tree_add(&t, 0, 1);
    tree_add(&t, 0, 2);
    CHECK_EQ(tree_deepest(&t), 1);
    tree_add(&t, 1, 3);
    tree_add(&t, 3, 4);
    CHECK_EQ(tree_deepest(&t), 3);
    tree_add(&t, 2, 5); /* the last row is not the deepest */
    CHECK_EQ(tree_deepest(&t), 3);
}

/* ---- files ---- */

static const char *write_file(const char *text, size_t size)
{
    static char path[256];
    FILE *f;
    snprintf(path, sizeof path, "%s/tree.txt", scratch_dir());
    f = fopen(path, "wb");
    CHECK(f && fwrite(text, 1, size, f) == size && fclose(f) == 0);
    return path;
}

static enum pv_status read_text(struct shape *s, const char *text, struct pv_error *err)
{
    return shape_read(s, write_file(text, strlen(text)), err);
}

TEST(the_static_tree_read_from_a_shuffled_file_is_the_same)
{
    struct shape want, got;
    struct rng r = { test_seed };
    shape_static25(&want);
    for (int round = 0; round < 20; round++) {
        char text[1024] = "# the tree of 25\n";
        const char *order[25];
        memcpy(order, paths, sizeof order);
        for (int i = 24; i > 0; i--) {
            int j = (int)(rng_next(&r) % (uint64_t)(i + 1));
            const char *swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
        for (int i = 0; i < 25; i++) {
            strncat(text, order[i], sizeof text - strlen(text) - 1);
            strncat(text, i == 24 ? "" : "\n", sizeof text - strlen(text) - 1);
        }
        memset(&got, 0xee, sizeof got);
        if (!CHECK_EQ(read_text(&got, text, NULL), PV_OK))
            return;
        CHECK_EQ(got.kind, SHAPE_STATIC);
        CHECK_EQ(got.n, want.n);
        CHECK(!memcmp(got.parent, want.parent, sizeof got.parent[0] * 26));
        CHECK(!memcmp(got.rank, want.rank, sizeof got.rank[0] * 26));
    }
}

TEST(files_may_have_commas_comments_and_blank_lines)
{
    struct shape s;
    struct pv_error err = { 0 };
    CHECK_EQ(read_text(&s, "#head\r\n\r\n 0\r\n\t0,0 # a comment\n1\n\n0, 1\n#0 7\n  \n", &err),
             PV_OK);
    CHECK_EQ(s.n, 5);
    CHECK(s.parent[1] == 0 && s.rank[1] == 0 && s.parent[2] == 0 && s.rank[2] == 1);
    CHECK(s.parent[3] == 1 && s.rank[3] == 0 && s.parent[4] == 1 && s.rank[4] == 1);
    CHECK_EQ(shape_depth(&s), 2);
    CHECK_EQ(shape_children(&s, 1), 2);
    CHECK_EQ(shape_children(&s, 2), 0);
    CHECK_EQ(read_text(&s, "0", &err), PV_OK);
    CHECK_EQ(s.n, 2);
}

TEST(the_largest_files)
{
    char text[8192] = "", line[256] = "";
    struct shape s;
    struct pv_error err = { 0 };
    for (int i = 0; i < 63; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%d\n", i);
    CHECK_EQ(read_text(&s, text, &err), PV_OK);
    CHECK(s.n == TREE_MAX && shape_children(&s, 0) == 63 && shape_depth(&s) == 1);
    strncat(text, "0 0\n", sizeof text - strlen(text) - 1);
    check_refused(read_text(&s, text, &err), PV_E_LIMIT, &err, "tree.txt:64: more than 63 paths");
    text[0] = '\0';
    err = (struct pv_error){ 0 };
    for (int i = 0; i < 32; i++) {
        strncat(line, "0 ", sizeof line - strlen(line) - 1);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", line);
    }
    CHECK_EQ(read_text(&s, text, &err), PV_OK);
    CHECK(s.n == 33 && shape_depth(&s) == TREE_MAX_DEPTH);
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s0\n", line);
    check_refused(read_text(&s, text, &err), PV_E_LIMIT, &err,
                  "tree.txt:33: the path is longer than 32");
}

TEST(bad_files_are_refused_with_their_line)
{
    static const struct {
        const char *text, *words;
        enum pv_status status;
    } bad[] = {
        { "", "tree.txt: no path in it", PV_E_FORMAT },
        { "# nothing\n\n  ,\n", "no path in it", PV_E_FORMAT },
        { "0\nx\n", "tree.txt:2: \"x\" is not a number", PV_E_FORMAT },
        { "0\n0 -1\n", "tree.txt:2: \"-1\" is not a number", PV_E_FORMAT },
        { "[0]\n", "tree.txt:1: \"[0]\" is not a number", PV_E_FORMAT },
        { "0\n0 1.5\n", "tree.txt:2: \"1.5\" is not a number", PV_E_FORMAT },
        { "\033[2Jabcdefghijklmnopqrstuvwxyz", ":1: \"?[2Jabcdefghijkl\" is not", PV_E_FORMAT },
        { "0\n\n0 0 0\n", "tree.txt:3: the path without its last rank is missing", PV_E_FORMAT },
        { "0\n1 0\n", "tree.txt:2: the path without its last rank is missing", PV_E_FORMAT },
        { "0\n2\n", "tree.txt:2: the path ends in rank 2, but no sibling ends in rank 1",
          PV_E_FORMAT },
        { "1\n", "tree.txt:1: the path ends in rank 1, but no sibling ends in rank 0",
          PV_E_FORMAT },
        { "0\n1\n0 0\n1 1\n", "tree.txt:4: the path ends in rank 1", PV_E_FORMAT },
        { "0\n1\n0 0\n0,0\n", "tree.txt:4: the same path as in line 3", PV_E_FORMAT },
        { "0\n63\n", "tree.txt:2: rank 63 is above 62", PV_E_LIMIT },
        { "0\n99999999999999999999\n", "tree.txt:2: rank 9999999999999999 is above", PV_E_LIMIT },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct shape s = { .window = 77 };
        struct pv_error err = { 0 };
        check_refused(read_text(&s, bad[i].text, &err), bad[i].status, &err, bad[i].words);
        CHECK_EQ(s.window, 77);
    }
}

TEST(unreadable_and_oversized_files)
{
    static char large[(64 << 10) + 1];
    char path[256];
    struct shape s;
    struct pv_error err = { 0 };
    snprintf(path, sizeof path, "%s/absent.txt", scratch_dir());
    check_refused(shape_read(&s, path, &err), PV_E_IO, &err, "absent.txt: No such file");
    err = (struct pv_error){ 0 };
    check_refused(shape_read(&s, scratch_dir(), &err), PV_E_IO, &err, "not a regular file");
    memset(large, '\n', sizeof large);
    large[0] = '0';
    err = (struct pv_error){ 0 };
    check_refused(shape_read(&s, write_file(large, sizeof large), &err), PV_E_LIMIT, &err,
                  "more than the limit of 65536");
    CHECK_EQ(shape_read(&s, write_file(large, sizeof large - 1), NULL), PV_OK);
    CHECK_EQ(s.n, 2);
    err = (struct pv_error){ 0 };
    check_refused(shape_read(&s, write_file("0\n0\0 1\n", 7), &err), PV_E_FORMAT, &err,
                  ":2: \"0?\" is not a number");
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
