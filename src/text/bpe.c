/* Byte-pair merging in n log n. The piece is a doubly linked list of tokens, at first one per
 * byte. A heap holds the pairs that have a merge, lowest rank first and leftmost among equals; the
 * best is taken out and applied until none is left. A heap entry is (rank, position) and is valid
 * while the pair at that position still has that rank: a position's pair only ever grows, and a
 * rank names one pair, so a stale entry never becomes valid again. */
#include "text/bpe.h"

#include "base/mem.h"

#include <string.h>

struct bpe_pair {
    int32_t left, right; /* left -1: empty slot */
    int32_t rank;
};

enum { NO_RANK = INT32_MAX, NO_NODE = -1 };

struct node {
    int32_t id;
    int32_t rank; /* of the merge with the next node, NO_RANK: none, or the node is gone */
    int32_t prev, next;
};

struct entry {
    int32_t rank;
    int32_t pos;
};

/* Entries at once: a pair per node, and each merge takes one out and puts at most two in. */
enum { HEAP_PER_BYTE = 2, MIN_PIECE = 64 };

static size_t pair_hash(int32_t left, int32_t right)
{
    uint64_t x = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return (size_t)x;
}

/* The slot of a pair, or the empty one where it would go. */
static struct bpe_pair *pair_slot(const struct bpe *b, int32_t left, int32_t right)
{
    size_t i = pair_hash(left, right) & b->mask;
    while (b->pair[i].left >= 0 && (b->pair[i].left != left || b->pair[i].right != right))
        i = (i + 1) & b->mask;
    return &b->pair[i];
}

enum pv_status bpe_open(struct bpe *b, int n_merges, struct pv_error *err)
{
    struct bpe fresh = { .n_merges = n_merges };
    size_t slots = 16, size;

    while (slots < (size_t)n_merges * 2)
        slots *= 2;
    if (!mul_size(slots, sizeof *fresh.pair, &size))
        return fail_nomem(err, SIZE_MAX);
    fresh.mask = slots - 1;
    fresh.pair = mem_alloc(size);
    if (!fresh.pair)
        return fail_nomem(err, size);
    memset(fresh.pair, 0xff, size); /* left = -1 everywhere */
    fresh.result = mem_alloc((size_t)n_merges * sizeof *fresh.result);
    if (!fresh.result) {
        mem_free(fresh.pair);
        return fail_nomem(err, (size_t)n_merges * sizeof *fresh.result);
    }
    for (int i = 0; i < 256; i++)
        fresh.byte_id[i] = -1;
    *b = fresh;
    return PV_OK;
}

void bpe_close(struct bpe *b)
{
    mem_free(b->pair);
    mem_free(b->result);
    *b = (struct bpe){ 0 };
}

void bpe_set(struct bpe *b, int rank, int32_t left, int32_t right, int32_t result)
{
    *pair_slot(b, left, right) = (struct bpe_pair){ left, right, rank };
    b->result[rank] = result;
}

static int32_t pair_rank(const struct bpe *b, int32_t left, int32_t right)
{
    const struct bpe_pair *p = pair_slot(b, left, right);
    return p->left < 0 ? NO_RANK : p->rank;
}

void bpe_work_clear(struct bpe_work *w)
{
    mem_free(w->block);
    *w = (struct bpe_work){ 0 };
}

static enum pv_status work_reserve(struct bpe_work *w, size_t len, struct pv_error *err)
{
    size_t cap = len < MIN_PIECE ? MIN_PIECE : len, size;
    void *block;

    if (len <= w->cap)
        return PV_OK;
    if (!mul_size(cap, sizeof(struct node) + HEAP_PER_BYTE * sizeof(struct entry), &size))
        return fail_nomem(err, SIZE_MAX);
    block = mem_alloc(size); /* not realloc: the old contents are of no use */
    if (!block)
        return fail_nomem(err, size);
    mem_free(w->block);
    *w = (struct bpe_work){ .block = block, .cap = cap };
    return PV_OK;
}

static bool entry_before(struct entry a, struct entry b)
{
    return a.rank < b.rank || (a.rank == b.rank && a.pos < b.pos);
}

static void heap_push(struct entry *heap, size_t *n, struct entry e)
{
    size_t i = (*n)++;
    while (i > 0 && entry_before(e, heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = e;
}

static struct entry heap_pop(struct entry *heap, size_t *n)
{
    struct entry top = heap[0], last = heap[--*n];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n)
            break;
        if (child + 1 < *n && entry_before(heap[child + 1], heap[child]))
            child++;
        if (!entry_before(heap[child], last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* Look up the merge of node `pos` with its next and note it. */
static void pair_update(const struct bpe *b, struct node *node, struct entry *heap, size_t *n_heap,
                        int32_t pos)
{
    int32_t next = node[pos].next;

    node[pos].rank = next == NO_NODE ? NO_RANK : pair_rank(b, node[pos].id, node[next].id);
    if (node[pos].rank != NO_RANK)
        heap_push(heap, n_heap, (struct entry){ node[pos].rank, pos });
}

static void merge_all(const struct bpe *b, struct node *node, struct entry *heap, size_t len)
{
    size_t n_heap = 0;

    for (size_t i = 0; i + 1 < len; i++)
        pair_update(b, node, heap, &n_heap, (int32_t)i);
    while (n_heap > 0) {
        struct entry e = heap_pop(heap, &n_heap);
        struct node *left = &node[e.pos], *right;
        if (left->rank != e.rank)
            continue;
        right = &node[left->next];
        left->id = b->result[e.rank];
        left->next = right->next;
        right->rank = NO_RANK;
        if (left->next != NO_NODE)
            node[left->next].prev = e.pos;
        if (left->prev != NO_NODE)
            pair_update(b, node, heap, &n_heap, left->prev);
        pair_update(b, node, heap, &n_heap, e.pos);
    }
}

enum pv_status bpe_encode(const struct bpe *b, struct bpe_work *w, const char *bytes, size_t len,
                          struct id_sink *sink, struct pv_error *err)
{
    struct node *node;
    enum pv_status s;

    if (len == 0)
        return PV_OK;
    if (len >= NO_RANK)
        return fail(err, PV_E_LIMIT, "a word of %zu bytes is too long", len);
    s = work_reserve(w, len, err);
    if (s)
        return s;
    node = w->block;
    for (size_t i = 0; i < len; i++) {
        int32_t id = b->byte_id[(unsigned char)bytes[i]];
        if (id < 0)
            return fail(err, PV_E_UNSUPPORTED, "the vocabulary has no token for the byte 0x%02x",
                        (unsigned char)bytes[i]);
        node[i] = (struct node){ id, NO_RANK, (int32_t)i - 1, (int32_t)i + 1 };
    }
    node[len - 1].next = NO_NODE;
    merge_all(b, node, (struct entry *)(node + w->cap), len);
    for (int32_t i = 0; i != NO_NODE; i = node[i].next)
        sink_put(sink, node[i].id);
    return PV_OK;
}
