/* A decoder's layer on the device with random weights, and the same in double precision: rig and
 * reference of the tests of blocks. Tokens are rows of a table, each with its position; what a
 * token attends to is a path, a list of tokens. */
#ifndef PV_TESTS_KERNELS_CHECK_CUDA_LAYER_H
#define PV_TESTS_KERNELS_CHECK_CUDA_LAYER_H

#include "check_cuda.h"

struct rig_shape {
    int hidden, ffn, n_heads, n_kv, d;
    bool norms, bias;
    bool f8; /* the cache's type; otherwise BF16 */
};

/* A pool of pages in no order. A page begins with bytes that stand for other layers. */
struct seq_pool {
    struct gbuf mem;
    size_t half; /* bytes of K, or of V, of a page */
    int n, n_free;
    int32_t *free; /* [n], the first n_free are */
    bool *used;    /* [n] at any time */
};

/* A cache of one sequence. */
struct seq {
    struct kv_layer kv;
    struct seq_pool *pool;
    int32_t *page; /* [kv.cap / KV_CHUNK] */
    int n_shared;  /* the first ones are another sequence's */
};

struct rig {
    struct cuda_check *t;
    const char *what; /* for messages */
    struct layer_shape s;
    struct layer_weights w;
    struct cuda_matrix_pair q, k, v, o, gate, up, down;
    float *attn_norm, *ffn_norm, *q_norm, *k_norm; /* host */
    struct gbuf norm[4];
    struct device_work *work;
    int max_rows;
    struct gbuf x, cos, sin, rows;
    struct seq_pool pool; /* of the sequences */
    /* the tokens */
    int n_tokens;
    bool f8;
    int n_bulk;   /* so many of the first go through in bulk: blocks are then BF16 */
    float *token; /* [n_tokens, hidden] */
    int *pos;     /* [n_tokens] */
    /* [n_tokens, heads * d] as the device rounds them; k and v for F8 not before rig_read_cache */
    double *ref_q, *ref_k, *ref_v;
};

enum rig_kind {
    RIG_PLAIN,
    RIG_ATTENTION /* W_o keeps, W_down is zero: what comes out is x + attention */
};

/* False: the device does not take this type. */
bool rig_open(struct rig *g, struct cuda_check *t, const struct rig_shape *shape, enum dtype type,
              enum rig_kind kind, int max_rows, int context, int n_tokens);
void rig_close(struct rig *g);

void seq_pool_open(struct rig *g, struct seq_pool *p, int n);
/* A page that nobody had, or bytes of other layers, that changed are a failure of the test. */
void seq_pool_close(struct seq_pool *p);

/* In the rig's pool, or in another one. */
void seq_open(struct rig *g, struct seq *s, int cap);
void seq_open_in(struct seq_pool *p, struct rig *g, struct seq *s, int cap);
/* The first n pages are those of another sequence of the same pool. */
void seq_share(struct seq *s, const struct seq *from, int n);
void seq_close(struct seq *s);
/* The bytes of a cache, for each KV_CHUNK slots K then V; to be freed. */
uint8_t *seq_save(struct seq *s);
void seq_load(struct seq *s, const uint8_t *saved);
size_t seq_size(const struct seq *s);

/* Tokens through the layer. */
struct rig_step {
    int n;
    const int *tokens; /* [n] */
    int n_runs;
    const struct attn_run *runs;
    bool bulk;
    const char *key; /* NULL: not recorded */
    int n_rows;      /* > 0: only these rows go on */
    const int32_t *rows;
    int n_columns;
    const struct column_job *columns;
    const int *needed; /* of attn_block */
};

/* Without waiting, and the rows that come out stay in x; true: it was played from a record. */
bool rig_ask(struct rig *g, const struct rig_step *s);
/* out [n or n_rows, hidden]; true: it was played from a record. */
bool rig_run(struct rig *g, const struct rig_step *s, float *out);
/* One chain into one cache. */
void rig_chain(struct rig *g, struct seq *s, int first_slot, const int *tokens, int n, bool bulk,
               float *out);

/* Fill the reference, when tokens and positions are final. */
void rig_reference(struct rig *g);

/* F8: compare the cache with the reference, whose token i is in slot i for i < n, and take what it
 * holds for the reference from then on. For other caches nothing is done. */
void rig_read_cache(struct rig *g, struct seq *s, int n);

/* The attention of the last token of a path [heads * d], and the layer's output for it [hidden]. */
void ref_attention(const struct rig *g, double *att, const int *path, int n);
void ref_layer(const struct rig *g, double *out, const int *path, int n);
/* Probabilities of head h of a token over the tokens of a list. */
void ref_probabilities(const struct rig *g, double *p, int token, int head, const int *list, int n);

#endif
