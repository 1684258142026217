/* Any bytes as a file with a tree of ranks. What is accepted is a tree: parents come before their
 * children, nodes are sorted by depth, siblings have the ranks from 0 on, and it fits into a
 * verification. */
#include "fuzz/bundle.h"
#include "spec/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int node_depth(const struct shape *s, int node)
{
    int depth = 0;
    for (; node > 0; node = s->parent[node])
        depth++;
    return depth;
}

static void check_shape(const struct shape *s)
{
    struct tree t;
    int row[TREE_MAX];

    if (s->kind != SHAPE_STATIC || s->n < 2 || s->n > TREE_MAX || s->parent[0] != -1 ||
        shape_rows(s) != s->n || shape_depth(s) > TREE_MAX_DEPTH ||
        shape_depth(s) != node_depth(s, s->n - 1))
        abort();
    tree_begin(&t, 0);
    row[0] = 0;
    for (int i = 1; i < s->n; i++) {
        bool first = s->parent[i] != s->parent[i - 1];
        if (s->parent[i] < 0 || s->parent[i] >= i || node_depth(s, i) < node_depth(s, i - 1) ||
            s->rank[i] != (first ? 0 : s->rank[i - 1] + 1) ||
            s->rank[i] >= shape_children(s, s->parent[i]))
            abort();
        row[i] = tree_add(&t, row[s->parent[i]], s->rank[i]);
        if (row[i] != i) /* neither full nor there already */
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pv_error err = { 0 };
    struct shape s, untouched;
    char path[256];

    if (size > BUNDLE_MOST_BYTES)
        return 0;
    bundle_put("tree.txt", data, size);
    bundle_path(path, "tree.txt");
    memset(&s, 0xab, sizeof s);
    memcpy(&untouched, &s, sizeof s);
    if (shape_read(&s, path, &err)) {
        if (!err.text[0] || memcmp(&s, &untouched, sizeof s) != 0)
            abort(); /* a failure must say why, and leave the output alone */
        for (const char *c = err.text; *c; c++)
            if (*c < ' ' || *c > '~')
                abort(); /* and quote nothing that could upset a terminal */
        return 0;
    }
    check_shape(&s);
    return 0;
}
