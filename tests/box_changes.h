/* Random changes to a tree of boxes (box_tree.h): boxes removed, repeated, exchanged, moved and put
 * inside others; numbers, tables and plain bytes of a payload changed. Everything follows from a
 * seed. */
#ifndef PV_TESTS_BOX_CHANGES_H
#define PV_TESTS_BOX_CHANGES_H

#include "base/rng.h"
#include "box_tree.h"

/* Changes data[0..size) in place, to at most `cap` bytes: LLVMFuzzerMutate. */
typedef size_t (*box_bytes_fn)(uint8_t *data, size_t size, size_t cap);

enum { BOX_CHANGES = 4, BOX_GROWTH = 64 };

struct box_changer {
    struct boxes *t;
    struct rng rng;
    box_bytes_fn bytes;
    uint8_t *made[BOX_CHANGES + 1]; /* payloads of this change; freed with it */
    int n_made;
};

static inline uint32_t box_pick(struct box_changer *c, uint32_t n)
{
    return (uint32_t)((rng_next(&c->rng) >> 32) * n >> 32);
}

/* A box that is in the tree, but not the root; -1: there is none. */
static inline int box_any(struct box_changer *c, int *list, bool parents_only)
{
    const struct boxes *t = c->t;
    int n = 0, top = 1;
    static int stack[BOXES_MOST];

    stack[0] = t->root;
    while (top > 0) {
        int i = stack[--top];
        if (i != t->root && (!parents_only || t->box[i].parent))
            list[n++] = i;
        for (int k = t->box[i].child; k >= 0; k = t->box[k].next)
            stack[top++] = k;
    }
    return n ? list[box_pick(c, (uint32_t)n)] : -1;
}

/* The link that leads to a box. */
static inline int *box_link(struct boxes *t, int box)
{
    for (int i = 0; i < t->n; i++) {
        if (t->box[i].child == box)
            return &t->box[i].child;
        if (t->box[i].next == box)
            return &t->box[i].next;
    }
    return NULL;
}

/* A copy of a box with all in it, linked nowhere; -1: too many boxes. */
static inline int box_copy(struct boxes *t, const struct boxes *from, int box)
{
    int me = t->n, last = -1;

    if (t->n == BOXES_MOST)
        return -1;
    t->n++;
    t->box[me] = from->box[box];
    t->box[me].child = t->box[me].next = -1;
    if (t != from)
        t->box[me].old_at = t->box[me].old_payload = t->box[me].old_end = 0;
    for (int k = from->box[box].child; k >= 0; k = from->box[k].next) {
        int copy = box_copy(t, from, k);
        if (copy < 0)
            return me;
        if (last < 0)
            t->box[me].child = copy;
        else
            t->box[last].next = copy;
        last = copy;
    }
    return me;
}

static inline void box_insert(struct boxes *t, int *link, int box)
{
    t->box[box].next = *link;
    *link = box;
}

static inline void box_remove(struct boxes *t, int box)
{
    int *link = box_link(t, box);
    if (link)
        *link = t->box[box].next;
    t->box[box].next = -1;
}

/* A copy of the box's payload that may be changed, with room for more. */
static inline uint8_t *box_own(struct box_changer *c, int box)
{
    struct box *b = &c->t->box[box];
    uint8_t *p = malloc(b->size + BOX_GROWTH);
    if (!p || c->n_made > BOX_CHANGES) {
        free(p);
        return NULL;
    }
    if (b->size)
        memcpy(p, b->data, b->size);
    b->data = p;
    c->made[c->n_made++] = p;
    return p;
}

/* ---- the changes ---- */

static inline void change_bytes(struct box_changer *c, int box)
{
    uint8_t *p = box_own(c, box);
    struct box *b = &c->t->box[box];
    if (p && b->size)
        b->size = c->bytes(p, b->size, b->size + BOX_GROWTH);
}

/* A number of 1, 2, 4 or 8 bytes to one that is likely to be at a limit. */
static inline void change_number(struct box_changer *c, int box)
{
    static const uint64_t values[] = { 0,          1,          2,          3,          0x7f,
                                       0x80,       0xff,       0x100,      0x7fff,     0x8000,
                                       0xffff,     0x10000,    0x7fffffff, 0x80000000, 0xffffffff,
                                       0x1fffffff, 0x40000000, UINT64_MAX, INT64_MAX,  60000000 };
    struct box *b = &c->t->box[box];
    size_t width = (size_t)1 << box_pick(c, 4), at;
    uint8_t *p = b->size >= width ? box_own(c, box) : NULL;
    uint64_t v;

    if (!p)
        return;
    at = box_pick(c, (uint32_t)(b->size - width + 1));
    at = box_pick(c, 4) ? at / width * width : at; /* mostly aligned, often near the start */
    at = box_pick(c, 2) && b->size > 32 ? at % 32 / width * width : at;
    v = box_load(p + at, width);
    v = box_pick(c, 3)   ? values[box_pick(c, sizeof values / sizeof *values)]
        : box_pick(c, 2) ? v + 1 + box_pick(c, 16)
                         : v - 1 - box_pick(c, 16);
    box_store(p + at, width, v);
}

/* A table whose count agrees with its entries, with some of them repeated or left out. */
static inline void change_table(struct box_changer *c, int box)
{
    static const struct {
        char name[5];
        size_t count_at, entry;
    } tables[] = { { "stts", 4, 8 }, { "ctts", 4, 8 }, { "stsc", 4, 12 }, { "stco", 4, 4 },
                   { "co64", 4, 8 }, { "stss", 4, 4 }, { "stsz", 8, 4 },  { "elst", 4, 12 },
                   { "trun", 4, 4 }, { "stsh", 4, 8 }, { "sdtp", 0, 1 } };
    struct box *b = &c->t->box[box];

    for (size_t i = 0; !c->t->ebml && i < sizeof tables / sizeof *tables; i++) {
        const char *name = tables[i].name;
        size_t head = tables[i].count_at + 4, entry = tables[i].entry, n;
        uint8_t *p;
        if (FOURCC(name[0], name[1], name[2], name[3]) != b->type || b->size < head + entry)
            continue;
        p = box_own(c, box);
        n = (b->size - head) / entry;
        if (p && box_pick(c, 2) && n > 1) {
            n -= 1 + box_pick(c, (uint32_t)n - 1);
        } else if (p) {
            size_t from = box_pick(c, (uint32_t)n), more = BOX_GROWTH / entry;
            for (more = more > 4 ? 4 : more; more > 0; more--, n++)
                memcpy(p + head + n * entry, p + head + from * entry, entry);
        }
        if (!p)
            return;
        b->size = head + n * entry;
        box_store(p + tables[i].count_at, 4, n);
        return;
    }
    change_number(c, box);
}

static inline void change_place(struct box_changer *c, int box, int *list)
{
    struct boxes *t = c->t;
    int to = box_any(c, list, true), copy = box_copy(t, t, box);
    if (to < 0 || copy < 0)
        return;
    if (box_pick(c, 2) && to != box)
        box_remove(t, box);
    box_insert(t, &t->box[to].child, copy);
}

static inline void change_order(struct box_changer *c, int box)
{
    struct boxes *t = c->t;
    int after = t->box[box].next;
    if (after < 0)
        return;
    box_remove(t, box);
    box_insert(t, &t->box[after].next, box);
}

/* Puts it into a box of the type of one around. */
static inline void change_depth(struct box_changer *c, int box, int *list)
{
    struct boxes *t = c->t;
    int like = box_any(c, list, true), copy = like < 0 ? -1 : box_copy(t, t, box);
    if (copy < 0)
        return;
    t->box[box].type = t->box[like].type;
    t->box[box].data = t->box[like].data;
    t->box[box].size = t->box[like].size;
    t->box[box].parent = true;
    t->box[box].child = copy;
}

static inline void change_type(struct box_changer *c, int box, int *list)
{
    int like = box_any(c, list, false);
    if (like >= 0)
        c->t->box[box].type = c->t->box[like].type;
}

static inline void box_change(struct box_changer *c)
{
    static int list[BOXES_MOST];
    int box = box_any(c, list, false), copy;
    uint32_t kind = box_pick(c, 20);

    if (box < 0)
        return;
    if (kind < 6 && !c->t->box[box].parent)
        change_number(c, box);
    else if (kind < 11 && !c->t->box[box].parent)
        change_table(c, box);
    else if (kind < 13)
        change_bytes(c, box);
    else if (kind == 13)
        box_remove(c->t, box);
    else if (kind == 14)
        change_place(c, box, list);
    else if (kind == 15)
        change_order(c, box);
    else if (kind == 16)
        change_depth(c, box, list);
    else if (kind == 17)
        change_type(c, box, list);
    else {
        copy = box_copy(c->t, c->t, box);
        if (copy >= 0)
            box_insert(c->t, &c->t->box[box].next, copy);
    }
}

/* ---- for a fuzzer ---- */

static inline size_t box_finish(struct box_changer *c, uint8_t *data, size_t cap)
{
    uint8_t *out = malloc(cap ? cap : 1);
    size_t n = out ? boxes_write(c->t, out, cap) : 0;
    if (n)
        memcpy(data, out, n);
    free(out);
    while (c->n_made > 0)
        free(c->made[--c->n_made]);
    return n;
}

/* Changes a file of boxes in place; any other by `bytes` alone. The new size. */
static inline size_t boxes_mutate(uint8_t *data, size_t size, size_t cap, unsigned seed,
                                  box_bytes_fn bytes)
{
    static struct boxes t;
    struct box_changer c = { .t = &t, .rng = { seed }, .bytes = bytes };
    size_t n = 0;

    if (box_pick(&c, 16) && boxes_read(&t, data, size)) {
        for (int i = 1 + (int)box_pick(&c, BOX_CHANGES); i > 0; i--)
            box_change(&c);
        n = box_finish(&c, data, cap);
    }
    return n ? n : bytes(data, size, cap);
}

/* A box of b in the place of one of the same type of a, or beside it; 0: they have none in common.
 */
static inline size_t boxes_cross(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t cap, unsigned seed)
{
    static struct boxes t, from;
    static int list[BOXES_MOST];
    struct box_changer c = { .t = &t, .rng = { seed } }, other = { .t = &from, .rng = { seed } };

    if (!boxes_read(&t, a, a_size) || !boxes_read(&from, b, b_size) || t.ebml != from.ebml)
        return 0;
    for (int tries = 0; tries < 8; tries++) {
        int mine = box_any(&c, list, false), theirs = box_any(&other, list, false), copy;
        if (mine < 0 || theirs < 0 || t.box[mine].type != from.box[theirs].type)
            continue;
        copy = box_copy(&t, &from, theirs);
        if (copy < 0)
            return 0;
        box_insert(&t, &t.box[mine].next, copy);
        if (box_pick(&c, 2))
            box_remove(&t, mine);
        return boxes_write(&t, out, cap);
    }
    return 0;
}

#endif
