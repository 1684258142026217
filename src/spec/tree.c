/* Trees of proposed tokens, and their shapes: chains, fixed trees (built in or read from a text
 * file) and the sizes of trees that grow.
 *
 * A tree is small (64 rows) and lives for one verification, so children are found by looking at
 * the rows after their parent; no links are kept. A fixed tree is a set of paths of child ranks
 * that holds every prefix of its paths and, with a rank, all lower ones; its nodes are numbered by
 * length and then by path, so that a level is a run of nodes and parents come first. */
#include "spec/tree.h"

#include "base/file.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void tree_begin(struct tree *t, int32_t root)
{
    t->n = 1;
    t->id[0] = root;
    t->parent[0] = -1;
    t->depth[0] = 0;
}

int tree_deepest(const struct tree *t)
{
    int depth = 0;
    for (int i = 1; i < t->n; i++)
        depth = t->depth[i] > depth ? t->depth[i] : depth;
    return depth;
}

bool tree_is_leaf(const struct tree *t, int row)
{
    for (int i = row + 1; i < t->n; i++)
        if (t->parent[i] == row)
            return false;
    return true;
}

int tree_child(const struct tree *t, int row, int32_t id)
{
    for (int i = row + 1; i < t->n; i++)
        if (t->parent[i] == row && t->id[i] == id)
            return i;
    return -1;
}

int tree_add(struct tree *t, int parent, int32_t id)
{
    int row;
    assert(parent >= 0 && parent < t->n);
    row = tree_child(t, parent, id);
    if (row >= 0)
        return row;
    if (t->n == TREE_MAX || t->depth[parent] == TREE_MAX_DEPTH)
        return -1;
    row = t->n++;
    t->id[row] = id;
    t->parent[row] = parent;
    t->depth[row] = t->depth[parent] + 1;
    return row;
}

/* ---- shapes ---- */

enum pv_status shape_chain(struct shape *s, int window, struct pv_error *err)
{
    if (window < 1 || window > TREE_MAX_DEPTH)
        return fail(err, PV_E_ARG, "a chain of %d tokens is not between 1 and %d", window,
                    TREE_MAX_DEPTH);
    *s = (struct shape){ .kind = SHAPE_CHAIN, .window = window };
    return PV_OK;
}

enum pv_status shape_dynamic(struct shape *s, int total, int depth, int width, struct pv_error *err)
{
    int pool;
    if (total < 2 || total > TREE_MAX)
        return fail(err, PV_E_ARG, "a dynamic tree of %d rows is not between 2 and %d", total,
                    TREE_MAX);
    if (depth < 0 || depth > TREE_MAX_DEPTH - 1)
        return fail(err, PV_E_ARG, "a dynamic tree of depth %d is not between 0 and %d", depth,
                    TREE_MAX_DEPTH - 1);
    if (width < 1 || width > TREE_MAX - 1)
        return fail(err, PV_E_ARG, "a dynamic tree of width %d is not between 1 and %d", width,
                    TREE_MAX - 1);
    pool = width + depth * width * width;
    if (total - 1 > pool)
        return fail(err, PV_E_ARG,
                    "a dynamic tree of %d rows needs %d tokens, but depth %d and width %d propose "
                    "%d",
                    total, total - 1, depth, width, pool);
    *s = (struct shape){ .kind = SHAPE_DYNAMIC, .total = total, .depth = depth, .width = width };
    return PV_OK;
}

enum pv_status shape_fitted(struct shape *s, int total, int depth, int width, struct pv_error *err)
{
    enum pv_status st = shape_dynamic(s, total, depth, width, err);
    if (!st)
        s->kind = SHAPE_FITTED;
    return st;
}

void shape_static25(struct shape *s)
{
    static const int8_t parent[] = { -1, 0, 0, 0, 0, 1, 1, 1, 2,  2,  3,  3,  4,
                                     5,  5, 5, 6, 6, 7, 7, 8, 13, 13, 13, 21, 21 };
    static const int8_t rank[] = { 0, 0, 1, 2, 3, 0, 1, 2, 0, 1, 0, 1, 0,
                                   0, 1, 2, 0, 1, 0, 1, 0, 0, 1, 2, 0, 1 };
    *s = (struct shape){ .kind = SHAPE_STATIC, .n = (int)sizeof parent };
    for (int i = 0; i < s->n; i++) {
        s->parent[i] = parent[i];
        s->rank[i] = rank[i];
    }
}

int shape_rows(const struct shape *s)
{
    return s->kind == SHAPE_CHAIN ? s->window + 1 : s->kind == SHAPE_STATIC ? s->n : s->total;
}

int shape_depth(const struct shape *s)
{
    int depth = 0;
    if (s->kind == SHAPE_CHAIN)
        return s->window;
    if (s->kind == SHAPE_DYNAMIC || s->kind == SHAPE_FITTED)
        return s->depth + 1;
    for (int i = s->n - 1; i > 0; i = s->parent[i]) /* the last node is among the deepest */
        depth++;
    return depth;
}

int shape_children(const struct shape *s, int node)
{
    int n = 0;
    for (int i = node + 1; i < s->n; i++)
        n += s->parent[i] == node;
    return n;
}

/* ---- shapes from a file ---- */

enum { SHAPE_FILE_MAX = 64 << 10, WORD_SHOWN = 16, PATHS_MAX = TREE_MAX - 1 };

struct path {
    int line; /* from 1 */
    int len;
    uint8_t rank[TREE_MAX_DEPTH];
};

struct paths {
    const char *file;
    int n;
    struct path path[PATHS_MAX];
};

static int by_length_then_ranks(const void *a, const void *b)
{
    const struct path *x = a, *y = b;
    return x->len != y->len ? x->len - y->len : memcmp(x->rank, y->rank, (size_t)x->len);
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == ',' || c == '\r';
}

/* The word as far as a message shows it; a file may hold anything. */
static void show_word(char *out, const uint8_t *word, size_t len)
{
    size_t n = len < WORD_SHOWN ? len : WORD_SHOWN;
    for (size_t i = 0; i < n; i++)
        out[i] = word[i] > ' ' && word[i] < 0x7f ? (char)word[i] : '?';
    out[n] = '\0';
}

static enum pv_status parse_rank(const struct paths *all, struct path *p, const uint8_t *word,
                                 size_t len, struct pv_error *err)
{
    char shown[WORD_SHOWN + 1];
    int rank = 0;
    show_word(shown, word, len);
    for (size_t i = 0; i < len; i++) {
        if (word[i] < '0' || word[i] > '9')
            return fail(err, PV_E_FORMAT, "%s:%d: \"%s\" is not a number", all->file, p->line,
                        shown);
        rank = rank > PATHS_MAX ? rank : 10 * rank + (word[i] - '0'); /* large stays large */
    }
    if (rank >= PATHS_MAX)
        return fail(err, PV_E_LIMIT, "%s:%d: rank %s is above %d", all->file, p->line, shown,
                    PATHS_MAX - 1);
    if (p->len == TREE_MAX_DEPTH)
        return fail(err, PV_E_LIMIT, "%s:%d: the path is longer than %d", all->file, p->line,
                    TREE_MAX_DEPTH);
    p->rank[p->len++] = (uint8_t)rank;
    return PV_OK;
}

static enum pv_status parse_line(struct paths *all, int number, const uint8_t *line, size_t len,
                                 struct pv_error *err)
{
    struct path p = { .line = number };
    const uint8_t *comment = len ? memchr(line, '#', len) : NULL;
    size_t end = comment ? (size_t)(comment - line) : len;
    for (size_t i = 0; i < end;) {
        size_t start = i;
        enum pv_status s;
        while (i < end && !is_space(line[i]))
            i++;
        s = i > start ? parse_rank(all, &p, line + start, i - start, err) : PV_OK;
        if (s)
            return s;
        i += i < end;
    }
    if (!p.len)
        return PV_OK;
    if (all->n == PATHS_MAX)
        return fail(err, PV_E_LIMIT, "%s:%d: more than %d paths", all->file, number, PATHS_MAX);
    all->path[all->n++] = p;
    return PV_OK;
}

static enum pv_status parse_paths(struct paths *all, const uint8_t *data, size_t size,
                                  struct pv_error *err)
{
    int number = 1;
    for (size_t at = 0; at < size; number++) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t len = end ? (size_t)(end - (data + at)) : size - at;
        enum pv_status s = parse_line(all, number, data + at, len, err);
        if (s)
            return s;
        at += len + 1;
    }
    if (!all->n)
        return fail(err, PV_E_FORMAT, "%s: no path in it", all->file);
    return PV_OK;
}

/* The node of the path without its last rank; -1: it is not there. */
static int find_parent(const struct paths *all, const struct path *p)
{
    if (p->len == 1)
        return 0;
    for (int i = 0; i < all->n; i++)
        if (all->path[i].len == p->len - 1 &&
            !memcmp(all->path[i].rank, p->rank, (size_t)p->len - 1))
            return i + 1;
    return -1;
}

/* Sorted paths to nodes. */
static enum pv_status link_paths(struct shape *out, const struct paths *all, struct pv_error *err)
{
    struct shape s = { .kind = SHAPE_STATIC, .n = all->n + 1, .parent[0] = -1 };
    for (int i = 0; i < all->n; i++) {
        const struct path *p = &all->path[i];
        int parent = find_parent(all, p), rank = p->rank[p->len - 1];
        /* In this order the node before is the sibling one rank below, or the same path. */
        bool sibling = i > 0 && s.parent[i] == parent;
        int before = sibling ? s.rank[i] : -1;
        if (parent < 0)
            return fail(err, PV_E_FORMAT, "%s:%d: the path without its last rank is missing",
                        all->file, p->line);
        if (rank == before)
            return fail(err, PV_E_FORMAT, "%s:%d: the same path as in line %d", all->file,
                        p->line > p[-1].line ? p->line : p[-1].line,
                        p->line > p[-1].line ? p[-1].line : p->line);
        if (rank != before + 1)
            return fail(err, PV_E_FORMAT,
                        "%s:%d: the path ends in rank %d, but no sibling ends in rank %d",
                        all->file, p->line, rank, rank - 1);
        s.parent[i + 1] = parent;
        s.rank[i + 1] = rank;
    }
    *out = s;
    return PV_OK;
}

enum pv_status shape_read(struct shape *s, const char *path, struct pv_error *err)
{
    struct paths all = { .file = path };
    struct file_map map;
    enum pv_status st = file_map_open(&map, path, SHAPE_FILE_MAX, err);
    if (st)
        return st;
    st = parse_paths(&all, map.data, map.size, err);
    file_map_close(&map);
    if (st)
        return st;
    qsort(all.path, (size_t)all.n, sizeof all.path[0], by_length_then_ranks);
    return link_paths(s, &all, err);
}
