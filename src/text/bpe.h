/* Byte-pair merging: the bytes of one piece of text to token ids. */
#ifndef PV_TEXT_BPE_H
#define PV_TEXT_BPE_H

#include "base/status.h"

/* Output for ids: at most `cap` are stored, `n` counts all. */
struct id_sink {
    int32_t *ids; /* borrowed */
    size_t cap, n;
};

static inline void sink_put(struct id_sink *sink, int32_t id)
{
    if (sink->n < sink->cap)
        sink->ids[sink->n] = id;
    sink->n++;
}

/* The merges, immutable once filled. */
struct bpe {
    int32_t byte_id[256]; /* token of a lone byte, -1: none */
    int n_merges;
    int32_t *result;       /* owned [n_merges]: the token that a merge gives */
    struct bpe_pair *pair; /* owned [mask + 1]: pair of tokens -> rank */
    size_t mask;
};

/* Scratch of one thread, kept between pieces. */
struct bpe_work {
    void *block; /* owned */
    size_t cap;  /* longest piece that fits, in bytes */
};

enum pv_status bpe_open(struct bpe *b, int n_merges, struct pv_error *err);
void bpe_close(struct bpe *b);
/* Enter the merge of tokens `left` and `right` to `result`, with a rank below n_merges. If a pair
 * is set twice, the later call wins. */
void bpe_set(struct bpe *b, int rank, int32_t left, int32_t right, int32_t result);

void bpe_work_clear(struct bpe_work *w);

/* Every byte of the piece must have a token. */
enum pv_status bpe_encode(const struct bpe *b, struct bpe_work *w, const char *bytes, size_t len,
                          struct id_sink *sink, struct pv_error *err);

#endif
