/* Small model files made in memory, whole or damaged. The GGUF bytes are laid out here by hand
 * and not by our writer, so that reader and writer do not share a mistake. Every entry's place is
 * recorded, so that a test can damage exactly one field. */
#ifndef PV_TESTS_MAKE_FILE_H
#define PV_TESTS_MAKE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAKE_MAX_MARKS = 128, MAKE_ALIGN = 32 };

/* The tiny decoder all files here describe. */
enum {
    MAKE_HIDDEN = 32,
    MAKE_LAYERS = 2,
    MAKE_HEADS = 2,
    MAKE_KV_HEADS = 1,
    MAKE_HEAD_DIM = 16,
    MAKE_FFN = 64,
    MAKE_VOCAB = 12
};

struct mark {
    char name[80];
    size_t entry; /* where the entry begins: the length of its key or name */
    size_t value; /* key-value: its kind; tensor: its number of dimensions */
};

struct made {
    uint8_t *data; /* malloc */
    size_t len, cap;
    struct mark mark[MAKE_MAX_MARKS];
    int n_marks;
    uint64_t n_values, n_tensors;
    size_t data_start;
    /* What to do differently. */
    const char *arch;    /* "qwen2" when NULL */
    const char *drop;    /* leave this key or tensor out */
    const char *twice;   /* have this key or tensor twice */
    const char *reshape; /* give this tensor one row (or element) more */
    bool head;           /* an output.weight besides the embedding table */
    uint64_t offset;     /* of the next tensor */
    struct {
        uint32_t type;
        uint64_t count;
    } pending[MAKE_MAX_MARKS]; /* tensors listed, to be filled */
};

static inline void make_bytes(struct made *m, const void *p, size_t n)
{
    if (m->len + n > m->cap) {
        m->cap = (m->len + n) * 2;
        m->data = realloc(m->data, m->cap);
    }
    if (n)
        memcpy(m->data + m->len, p, n);
    m->len += n;
}

static inline void make_u32(struct made *m, uint32_t v)
{
    make_bytes(m, &v, 4);
}

static inline void make_u64(struct made *m, uint64_t v)
{
    make_bytes(m, &v, 8);
}

static inline void make_f32(struct made *m, float v)
{
    make_bytes(m, &v, 4);
}

static inline void make_string(struct made *m, const char *s)
{
    make_u64(m, strlen(s));
    make_bytes(m, s, strlen(s));
}

static inline const struct mark *make_find(const struct made *m, const char *name)
{
    for (int i = 0; i < m->n_marks; i++)
        if (!strcmp(m->mark[i].name, name))
            return &m->mark[i];
    fprintf(stderr, "no entry %s was made\n", name);
    abort();
}

static inline void make_mark(struct made *m, const char *name)
{
    struct mark *k = &m->mark[m->n_marks++];
    snprintf(k->name, sizeof k->name, "%s", name);
    k->entry = m->len;
    make_string(m, name);
    k->value = m->len;
}

/* How often an entry is to be written. */
static inline int make_times(const struct made *m, const char *name)
{
    if (m->drop && !strcmp(m->drop, name))
        return 0;
    return m->twice && !strcmp(m->twice, name) ? 2 : 1;
}

static inline void make_kv(struct made *m, const char *key, uint32_t kind, const void *value,
                           size_t size)
{
    for (int i = make_times(m, key); i > 0; i--) {
        make_mark(m, key);
        make_u32(m, kind);
        make_bytes(m, value, size);
        m->n_values++;
    }
}

static inline void make_kv_u32(struct made *m, const char *key, uint32_t v)
{
    make_kv(m, key, 4, &v, 4);
}

static inline void make_kv_f32(struct made *m, const char *key, float v)
{
    make_kv(m, key, 6, &v, 4);
}

static inline void make_kv_string(struct made *m, const char *key, const char *s)
{
    struct made tmp = { 0 };
    make_string(&tmp, s);
    make_kv(m, key, 8, tmp.data, tmp.len);
    free(tmp.data);
}

static inline void make_kv_strings(struct made *m, const char *key, const char *const *s, int n)
{
    struct made tmp = { 0 };
    make_u32(&tmp, 8);
    make_u64(&tmp, (uint64_t)n);
    for (int i = 0; i < n; i++)
        make_string(&tmp, s[i]);
    make_kv(m, key, 9, tmp.data, tmp.len);
    free(tmp.data);
}

static inline void make_kv_i32s(struct made *m, const char *key, const int32_t *v, int n)
{
    struct made tmp = { 0 };
    make_u32(&tmp, 5);
    make_u64(&tmp, (uint64_t)n);
    make_bytes(&tmp, v, (size_t)n * 4);
    make_kv(m, key, 9, tmp.data, tmp.len);
    free(tmp.data);
}

/* Bytes of `count` elements: F32 for type 0, Q8_0 for type 8. */
static inline uint64_t make_size(uint32_t type, uint64_t count)
{
    return type == 0 ? count * 4 : count / 32 * 34;
}

/* List a tensor: rows = 0 for a vector. Matrices are Q8_0, vectors F32. */
static inline void make_tensor(struct made *m, const char *name, uint64_t rows, uint64_t cols)
{
    uint32_t type = rows ? 8 : 0;

    if (m->reshape && !strcmp(m->reshape, name)) {
        rows += rows ? 1 : 0;
        cols += rows ? 0 : 1;
    }
    for (int i = make_times(m, name); i > 0; i--) {
        uint64_t count = (rows ? rows : 1) * cols;
        make_mark(m, name);
        make_u32(m, rows ? 2 : 1);
        make_u64(m, cols);
        if (rows)
            make_u64(m, rows);
        make_u32(m, type);
        make_u64(m, m->offset);
        m->offset += (make_size(type, count) + MAKE_ALIGN - 1) / MAKE_ALIGN * MAKE_ALIGN;
        m->pending[m->n_tensors].type = type;
        m->pending[m->n_tensors++].count = count;
    }
}

static inline void make_layer(struct made *m, int layer, bool qwen3)
{
    const int q = MAKE_HEADS * MAKE_HEAD_DIM, kv = MAKE_KV_HEADS * MAKE_HEAD_DIM;
    const struct {
        const char *name;
        int rows, cols;
        bool two, three; /* in Qwen2, in Qwen3 */
    } list[] = {
        { "attn_norm.weight", 0, MAKE_HIDDEN, true, true },
        { "attn_q.weight", q, MAKE_HIDDEN, true, true },
        { "attn_k.weight", kv, MAKE_HIDDEN, true, true },
        { "attn_v.weight", kv, MAKE_HIDDEN, true, true },
        { "attn_q.bias", 0, q, true, false },
        { "attn_k.bias", 0, kv, true, false },
        { "attn_v.bias", 0, kv, true, false },
        { "attn_q_norm.weight", 0, MAKE_HEAD_DIM, false, true },
        { "attn_k_norm.weight", 0, MAKE_HEAD_DIM, false, true },
        { "attn_output.weight", MAKE_HIDDEN, q, true, true },
        { "ffn_norm.weight", 0, MAKE_HIDDEN, true, true },
        { "ffn_gate.weight", MAKE_FFN, MAKE_HIDDEN, true, true },
        { "ffn_up.weight", MAKE_FFN, MAKE_HIDDEN, true, true },
        { "ffn_down.weight", MAKE_HIDDEN, MAKE_FFN, true, true },
    };
    char name[80];

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", layer, list[i].name);
        if (qwen3 ? list[i].three : list[i].two)
            make_tensor(m, name, (uint64_t)list[i].rows, (uint64_t)list[i].cols);
    }
}

static inline void make_config(struct made *m, const char *arch)
{
    const struct {
        const char *name;
        uint32_t value;
    } list[] = {
        { "block_count", MAKE_LAYERS },
        { "context_length", 128 },
        { "embedding_length", MAKE_HIDDEN },
        { "feed_forward_length", MAKE_FFN },
        { "attention.head_count", MAKE_HEADS },
        { "attention.head_count_kv", MAKE_KV_HEADS },
        { "attention.key_length", MAKE_HEAD_DIM },
        { "attention.value_length", MAKE_HEAD_DIM },
    };
    const int32_t sections[4] = { 4, 2, 2, 0 };
    char key[80];

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, list[i].name);
        make_kv_u32(m, key, list[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    make_kv_f32(m, key, 1e-6f);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    make_kv_f32(m, key, 10000);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", arch);
    if (strstr(arch, "vl"))
        make_kv_i32s(m, key, sections, 4);
}

static inline void make_tokenizer(struct made *m)
{
    static const char *const tokens[MAKE_VOCAB] = {
        "a",          "b",      "c",       "\xc4\xa0", "ab", "abc", "<|endoftext|>", "<|im_start|>",
        "<|im_end|>", "<tool>", "[PAD10]", "[PAD11]"
    };
    static const char *const merges[] = { "a b", "ab c" };
    static const int32_t kinds[MAKE_VOCAB] = { 1, 1, 1, 1, 1, 1, 3, 3, 3, 4, 5, 4 };

    make_kv_string(m, "tokenizer.ggml.model", "gpt2");
    make_kv_string(m, "tokenizer.ggml.pre", "qwen2");
    make_kv_strings(m, "tokenizer.ggml.tokens", tokens, MAKE_VOCAB);
    make_kv_i32s(m, "tokenizer.ggml.token_type", kinds, MAKE_VOCAB);
    make_kv_strings(m, "tokenizer.ggml.merges", merges, 2);
    make_kv_u32(m, "tokenizer.ggml.eos_token_id", 8);
    make_kv_u32(m, "tokenizer.ggml.padding_token_id", 6);
    make_kv_string(m, "tokenizer.chat_template", "{{ messages }}");
}

/* The data of the tensors listed: small numbers that differ from element to element. */
static inline void make_data(struct made *m)
{
    while (m->len % MAKE_ALIGN)
        make_bytes(m, "", 1);
    m->data_start = m->len;
    for (uint64_t t = 0; t < m->n_tensors; t++) {
        for (uint64_t i = 0; i < m->pending[t].count; i++) {
            int8_t q = (int8_t)((i * 7 + t * 13) % 41 - 20);
            uint16_t d = 0x2100; /* f16 0.01 */
            if (m->pending[t].type == 0) {
                make_f32(m, (float)q * 0.03125f);
                continue;
            }
            if (i % 32 == 0)
                make_bytes(m, &d, 2);
            make_bytes(m, &q, 1);
        }
        while (m->len % MAKE_ALIGN)
            make_bytes(m, "", 1);
    }
}

/* Begin and end of a GGUF file; between them come the key-values, then the tensors. */
static inline void make_begin(struct made *m)
{
    make_bytes(m, "GGUF", 4);
    make_u32(m, 3);
    make_u64(m, 0);
    make_u64(m, 0);
}

static inline void make_end(struct made *m)
{
    memcpy(m->data + 8, &m->n_tensors, 8);
    memcpy(m->data + 16, &m->n_values, 8);
    make_data(m);
}

/* A whole model; set the options of `m` first, free m->data afterwards. */
static inline void make_gguf(struct made *m)
{
    const char *arch = m->arch ? m->arch : "qwen2";

    make_begin(m);
    make_kv_string(m, "general.architecture", arch);
    make_kv_u32(m, "general.alignment", MAKE_ALIGN);
    make_kv_string(m, "general.author", "nobody");
    make_config(m, arch);
    make_tokenizer(m);
    make_tensor(m, "token_embd.weight", MAKE_VOCAB, MAKE_HIDDEN);
    make_tensor(m, "output_norm.weight", 0, MAKE_HIDDEN);
    if (m->head)
        make_tensor(m, "output.weight", MAKE_VOCAB, MAKE_HIDDEN);
    for (int i = 0; i < MAKE_LAYERS; i++)
        make_layer(m, i, strncmp(arch, "qwen3", 5) == 0);
    make_end(m);
}

static inline void make_write(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, len, f) != len || fclose(f)) {
        perror(path);
        exit(1);
    }
}

/* The whole of a small file, for free(). */
static inline uint8_t *make_load(const char *path, size_t *size)
{
    enum { MAX_FILE = 4 << 20 };
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(MAX_FILE);
    *size = f && data ? fread(data, 1, MAX_FILE, f) : 0;
    if (!f || !data || *size == MAX_FILE) {
        perror(path);
        exit(1);
    }
    fclose(f);
    return data;
}

#endif
