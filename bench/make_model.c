/* make_model: writes a GGUF text model of a named shape with random weights, for benchmarks and
 * tests beside llama.cpp, which loads the same file.
 *
 * It carries its own small GGUF writer, so that the library's reader is tried on files the
 * library did not write. Each tensor's numbers depend on the seed, its name and the element index
 * alone: files of different types hold the same weights, up to rounding.
 *
 * Scales: projections of the residual stream have variance 1/in, so their outputs stay near 1
 * whatever the width; the two that write to the stream are smaller by sqrt(2 layers), so it does
 * not grow with depth; the embedding gives logits a standard deviation near 2. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/half.h"
#include "tensor/quant.h"

struct shape {
    const char *name;
    const char *arch; /* "qwen2": biases on q, k, v; "qwen3": norms on q and k */
    int hidden, n_layers, n_heads, n_kv_heads, head_dim, ffn, vocab, max_context;
    bool tied;
};

static const struct shape shapes[] = {
    { "q05", "qwen2", 896, 24, 14, 2, 64, 4864, 151936, 32768, true },
    { "q15", "qwen2", 1536, 28, 12, 2, 128, 8960, 151936, 32768, true },
    { "q7", "qwen2", 3584, 28, 28, 4, 128, 18944, 152064, 32768, false },
    { "tiny", "qwen2", 512, 12, 8, 2, 64, 1408, 4096, 32768, true },
    { "q3tiny", "qwen3", 320, 6, 8, 2, 64, 960, 4096, 32768, true },
    { "micro", "qwen2", 64, 2, 4, 2, 16, 160, 512, 4096, true },
};

enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* GGUF numbering. */
enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };
enum { GGUF_ALIGNMENT = 32, TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_UNUSED = 5 };

struct type_info {
    const char *name;
    enum dtype dtype;
    uint32_t tensor_type, file_type; /* GGUF numbers */
};

static const struct type_info types[] = {
    { "f32", DTYPE_F32, 0, 0 },   { "f16", DTYPE_F16, 1, 1 },   { "bf16", DTYPE_BF16, 30, 32 },
    { "q8_0", DTYPE_Q8_0, 8, 7 }, { "q4_0", DTYPE_Q4_0, 2, 2 },
};

enum { N_TYPES = sizeof types / sizeof types[0] };

/* One tensor to be written: mean + std * normal. */
struct plan {
    const char *suffix; /* the whole name where there is no layer */
    int64_t in, out;    /* out 0: one-dimensional */
    enum dtype dtype;
    float mean, std;
    int layer; /* -1: none */
};

enum { NAME_SIZE = 64 };

struct plan_list {
    struct plan *item;
    int n;
};

/* Texts the vocabulary has beyond the 256 bytes; the merge that makes each is left + right. */
static const char *const merges[][2] = {
    { "\xc4\xa0", "t" }, { "h", "e" },          { "i", "n" }, { "r", "e" },
    { "o", "n" },        { "\xc4\xa0t", "he" }, { "e", "r" }, { "\xc4\xa0", "a" },
};

static const char *const controls[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };

enum {
    N_BYTES = 256,
    N_MERGES = sizeof merges / sizeof merges[0],
    N_CONTROLS = sizeof controls / sizeof controls[0],
    QWEN_CONTROL_FIRST = 151643 /* id of <|endoftext|> in the real vocabulary */
};

/* ---- random numbers ---- */

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t tensor_seed(uint64_t seed, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u ^ mix(seed + 1);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return mix(h);
}

/* Nearly normal: the sum of the four 16-bit parts of one hashed counter, which has variance
 * 4 * 65536^2 / 12 and stays within 3.5 deviations. One multiplication chain per element: half a
 * billion weights take a second or two. */
static void fill_normal(float *x, int64_t n, uint64_t seed, int64_t first, float mean, float std)
{
    float scale = std / (65536.0f * sqrtf(4.0f / 12.0f));
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = mix(seed + (uint64_t)(first + i) * 0x9e3779b97f4a7c15u);
        int32_t sum = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
        x[i] = mean + scale * (float)(sum - 2 * 65535);
    }
}

/* ---- GGUF bytes (little-endian; stdio keeps the error until the end) ---- */

static void put_le(FILE *f, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        putc((int)(v >> (8 * i) & 0xff), f);
}

static void put_text(FILE *f, const char *s)
{
    size_t len = strlen(s);
    put_le(f, len, 8);
    fwrite(s, 1, len, f);
}

static void put_key(FILE *f, const char *prefix, const char *key, uint32_t type)
{
    size_t len = strlen(prefix) + strlen(key);
    put_le(f, len, 8);
    fputs(prefix, f);
    fputs(key, f);
    put_le(f, type, 4);
}

static void put_u32(FILE *f, const char *prefix, const char *key, uint32_t v)
{
    put_key(f, prefix, key, GGUF_U32);
    put_le(f, v, 4);
}

static void put_f32(FILE *f, const char *prefix, const char *key, float v)
{
    put_key(f, prefix, key, GGUF_F32);
    put_le(f, f32_bits(v), 4);
}

static void put_string(FILE *f, const char *prefix, const char *key, const char *v)
{
    put_key(f, prefix, key, GGUF_STRING);
    put_text(f, v);
}

static void put_array(FILE *f, const char *key, uint32_t type, uint64_t n)
{
    put_key(f, "tokenizer.ggml.", key, GGUF_ARRAY);
    put_le(f, type, 4);
    put_le(f, n, 8);
}

static void put_padding(FILE *f, uint64_t at)
{
    while (at++ % GGUF_ALIGNMENT)
        putc(0, f);
}

/* ---- tokenizer ---- */

/* Byte-level BPE spells a byte as itself where printable in Latin-1, else as U+0100 and up in
 * byte order; ids follow the same order (printable bytes first). */
static bool byte_is_plain(int b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

static void byte_texts(char text[N_BYTES][3])
{
    int id = 0, n_moved = 0;
    for (int moved = 0; moved < 2; moved++) {
        for (int b = 0; b < N_BYTES; b++) {
            if (byte_is_plain(b) == (moved == 1))
                continue;
            int code = moved ? 0x100 + n_moved++ : b;
            char *s = text[id++];
            if (code < 0x80) {
                s[0] = (char)code;
                s[1] = 0;
            } else {
                s[0] = (char)(0xc0 | code >> 6);
                s[1] = (char)(0x80 | (code & 0x3f));
                s[2] = 0;
            }
        }
    }
}

static int control_first(const struct shape *s)
{
    return s->vocab > QWEN_CONTROL_FIRST + N_CONTROLS ? QWEN_CONTROL_FIRST : N_BYTES + N_MERGES;
}

static int token_type(const struct shape *s, int id)
{
    int control = id - control_first(s);
    if (control >= 0 && control < N_CONTROLS)
        return TOKEN_CONTROL;
    return id < N_BYTES + N_MERGES ? TOKEN_NORMAL : TOKEN_UNUSED;
}

static void put_token(FILE *f, const struct shape *s, char bytes[N_BYTES][3], int id)
{
    char text[32];
    if (token_type(s, id) == TOKEN_CONTROL)
        snprintf(text, sizeof text, "%s", controls[id - control_first(s)]);
    else if (id < N_BYTES)
        snprintf(text, sizeof text, "%.2s", bytes[id]);
    else if (id < N_BYTES + N_MERGES)
        snprintf(text, sizeof text, "%s%s", merges[id - N_BYTES][0], merges[id - N_BYTES][1]);
    else
        snprintf(text, sizeof text, "[PAD%d]", id);
    put_text(f, text);
}

enum { N_TOKENIZER_KEYS = 9 };

static void put_tokenizer(FILE *f, const struct shape *s)
{
    static const char prefix[] = "tokenizer.ggml.";
    char bytes[N_BYTES][3], merge[16];

    put_string(f, prefix, "model", "gpt2");
    put_string(f, prefix, "pre", "qwen2");
    byte_texts(bytes);
    put_array(f, "tokens", GGUF_STRING, (uint64_t)s->vocab);
    for (int i = 0; i < s->vocab; i++)
        put_token(f, s, bytes, i);
    put_array(f, "token_type", GGUF_I32, (uint64_t)s->vocab);
    for (int i = 0; i < s->vocab; i++)
        put_le(f, (uint64_t)token_type(s, i), 4);
    put_array(f, "merges", GGUF_STRING, N_MERGES);
    for (int i = 0; i < N_MERGES; i++) {
        snprintf(merge, sizeof merge, "%s %s", merges[i][0], merges[i][1]);
        put_text(f, merge);
    }
    put_u32(f, prefix, "eos_token_id", (uint32_t)control_first(s) + 2);
    put_u32(f, prefix, "padding_token_id", (uint32_t)control_first(s));
    put_u32(f, prefix, "bos_token_id", (uint32_t)control_first(s));
    put_key(f, prefix, "add_bos_token", GGUF_BOOL);
    putc(0, f);
}

/* ---- model ---- */

static void plan_add(struct plan_list *l, const struct plan *p, int layer)
{
    l->item[l->n] = *p;
    l->item[l->n++].layer = layer;
}

static void plan_name(char name[NAME_SIZE], const struct plan *p)
{
    if (p->layer < 0)
        snprintf(name, NAME_SIZE, "%s", p->suffix);
    else
        snprintf(name, NAME_SIZE, "blk.%d.%s", p->layer, p->suffix);
}

static void plan_layer(struct plan_list *l, const struct shape *s, int layer, enum dtype t)
{
    int64_t h = s->hidden, q = (int64_t)s->n_heads * s->head_dim;
    int64_t k = (int64_t)s->n_kv_heads * s->head_dim, ffn = s->ffn;
    float in_h = 1 / sqrtf((float)h), to_stream = 1 / sqrtf(2.0f * (float)s->n_layers);
    bool bias = !strcmp(s->arch, "qwen2");
    const struct plan p[] = {
        { "attn_norm.weight", h, 0, DTYPE_F32, 1, 0.1f, 0 },
        { "attn_q.weight", h, q, t, 0, in_h, 0 },
        { "attn_k.weight", h, k, t, 0, in_h, 0 },
        { "attn_v.weight", h, k, t, 0, in_h, 0 },
        { "attn_output.weight", q, h, t, 0, to_stream / sqrtf((float)q), 0 },
        { "ffn_norm.weight", h, 0, DTYPE_F32, 1, 0.1f, 0 },
        { "ffn_gate.weight", h, ffn, t, 0, in_h, 0 },
        { "ffn_up.weight", h, ffn, t, 0, in_h, 0 },
        { "ffn_down.weight", ffn, h, t, 0, to_stream / sqrtf((float)ffn), 0 },
    };
    const struct plan biases[] = {
        { "attn_q.bias", q, 0, DTYPE_F32, 0, 0.1f, 0 },
        { "attn_k.bias", k, 0, DTYPE_F32, 0, 0.1f, 0 },
        { "attn_v.bias", k, 0, DTYPE_F32, 0, 0.1f, 0 },
    };
    const struct plan norms[] = {
        { "attn_q_norm.weight", s->head_dim, 0, DTYPE_F32, 1, 0.1f, 0 },
        { "attn_k_norm.weight", s->head_dim, 0, DTYPE_F32, 1, 0.1f, 0 },
    };
    for (size_t i = 0; i < sizeof p / sizeof p[0]; i++)
        plan_add(l, &p[i], layer);
    for (size_t i = 0; bias && i < sizeof biases / sizeof biases[0]; i++)
        plan_add(l, &biases[i], layer);
    for (size_t i = 0; !bias && i < sizeof norms / sizeof norms[0]; i++)
        plan_add(l, &norms[i], layer);
}

/* The matrix that makes the logits stays at 8 bits in a 4-bit file, as llama.cpp's tools keep it
 * finer than the rest. */
static void plan_model(struct plan_list *l, const struct shape *s, enum dtype t)
{
    enum dtype head = t == DTYPE_Q4_0 ? DTYPE_Q8_0 : t;
    float std = 2 / sqrtf((float)s->hidden);
    const struct plan embed = {
        "token_embd.weight", s->hidden, s->vocab, s->tied ? head : t, 0, std, 0
    };
    const struct plan norm = { "output_norm.weight", s->hidden, 0, DTYPE_F32, 1, 0.1f, 0 };
    const struct plan output = { "output.weight", s->hidden, s->vocab, head, 0, std, 0 };

    plan_add(l, &embed, -1);
    for (int i = 0; i < s->n_layers; i++)
        plan_layer(l, s, i, t);
    plan_add(l, &norm, -1);
    if (!s->tied)
        plan_add(l, &output, -1);
}

static uint64_t plan_size(const struct plan *p)
{
    return dtype_row_size(p->dtype, p->in) * (uint64_t)(p->out ? p->out : 1);
}

static void put_metadata(FILE *f, const struct shape *s, const struct type_info *t)
{
    char name[64], arch[16];
    snprintf(name, sizeof name, "random %s", s->name);
    snprintf(arch, sizeof arch, "%s.", s->arch);
    put_string(f, "general.", "architecture", s->arch);
    put_string(f, "general.", "name", name);
    put_u32(f, "general.", "file_type", t->file_type);
    put_u32(f, "general.", "quantization_version", 2);
    put_u32(f, arch, "block_count", (uint32_t)s->n_layers);
    put_u32(f, arch, "context_length", (uint32_t)s->max_context);
    put_u32(f, arch, "embedding_length", (uint32_t)s->hidden);
    put_u32(f, arch, "feed_forward_length", (uint32_t)s->ffn);
    put_u32(f, arch, "attention.head_count", (uint32_t)s->n_heads);
    put_u32(f, arch, "attention.head_count_kv", (uint32_t)s->n_kv_heads);
    put_u32(f, arch, "attention.key_length", (uint32_t)s->head_dim);
    put_u32(f, arch, "attention.value_length", (uint32_t)s->head_dim);
    put_f32(f, arch, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_f32(f, arch, "rope.freq_base", 1e6f);
}

enum { N_MODEL_KEYS = 14 };

static void put_infos(FILE *f, const struct plan_list *l)
{
    char name[NAME_SIZE];
    uint64_t offset = 0;
    for (int i = 0; i < l->n; i++) {
        const struct plan *p = &l->item[i];
        plan_name(name, p);
        put_text(f, name);
        put_le(f, p->out ? 2 : 1, 4);
        put_le(f, (uint64_t)p->in, 8);
        if (p->out)
            put_le(f, (uint64_t)p->out, 8);
        for (int t = 0; t < N_TYPES; t++) {
            if (types[t].dtype == p->dtype)
                put_le(f, types[t].tensor_type, 4);
        }
        put_le(f, offset, 8);
        offset += (plan_size(p) + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
    }
}

static bool put_tensor(FILE *f, const struct plan *p, uint64_t seed)
{
    char name[NAME_SIZE];
    size_t row_size = dtype_row_size(p->dtype, p->in);
    float *x = malloc((size_t)p->in * sizeof *x);
    void *row = malloc(row_size);
    bool ok = x && row;
    int64_t n_rows = p->out ? p->out : 1;

    plan_name(name, p);
    seed = tensor_seed(seed, name);
    for (int64_t r = 0; ok && r < n_rows; r++) {
        fill_normal(x, p->in, seed, r * p->in, p->mean, p->std);
        row_from_f32(row, x, p->dtype, p->in);
        ok = fwrite(row, 1, row_size, f) == row_size;
    }
    free(row);
    free(x);
    if (ok)
        put_padding(f, plan_size(p));
    return ok && !ferror(f);
}

static bool put_model(FILE *f, const struct shape *s, const struct type_info *t, uint64_t seed)
{
    struct plan_list l = { .n = 0 };
    bool ok = false;

    l.item = calloc((size_t)s->n_layers * 12 + 3, sizeof *l.item);
    if (!l.item)
        return false;
    plan_model(&l, s, t->dtype);
    fputs("GGUF", f);
    put_le(f, 3, 4);
    put_le(f, (uint64_t)l.n, 8);
    put_le(f, N_MODEL_KEYS + N_TOKENIZER_KEYS, 8);
    put_metadata(f, s, t);
    put_tokenizer(f, s);
    put_infos(f, &l);
    long at = ftell(f);
    if (at < 0)
        goto done;
    put_padding(f, (uint64_t)at);
    ok = true;
    for (int i = 0; ok && i < l.n; i++)
        ok = put_tensor(f, &l.item[i], seed);
done:
    free(l.item);
    return ok;
}

/* ---- command line ---- */

static int usage(void)
{
    fputs("usage: make_model --shape NAME --type TYPE [--seed S] [--layers N] OUT.gguf\n", stderr);
    fputs("types: f32 f16 bf16 q8_0 q4_0; shapes:\n", stderr);
    for (int i = 0; i < N_SHAPES; i++) {
        const struct shape *s = &shapes[i];
        fprintf(stderr, "  %-7s %s, hidden %d, %d layers, %d/%d heads x %d, ffn %d, vocab %d%s\n",
                s->name, s->arch, s->hidden, s->n_layers, s->n_heads, s->n_kv_heads, s->head_dim,
                s->ffn, s->vocab, s->tied ? ", tied" : "");
    }
    return 2;
}

static bool parse_number(unsigned long long *out, const char *text, unsigned long long max)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || v > max)
        return false;
    *out = v;
    return true;
}

static int write_model(const char *path, const struct shape *s, const struct type_info *t,
                       uint64_t seed)
{
    FILE *f = fopen(path, "wb");
    if (!f) {
        fprintf(stderr, "make_model: %s: %s\n", path, strerror(errno));
        return 1;
    }
    bool ok = put_model(f, s, t, seed);
    ok = !ferror(f) && ok;
    if (fclose(f) || !ok) {
        fprintf(stderr, "make_model: %s: could not be written (disk full or out of memory)\n",
                path);
        remove(path);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct shape *shape = NULL;
    const struct type_info *type = NULL;
    const char *path = NULL;
    unsigned long long seed = 1, layers = 0;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (argv[i][0] != '-') {
            path = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "--shape")) {
            for (int j = 0; j < N_SHAPES; j++)
                shape = strcmp(shapes[j].name, value) ? shape : &shapes[j];
        } else if (!strcmp(argv[i], "--type")) {
            for (int j = 0; j < N_TYPES; j++)
                type = strcmp(types[j].name, value) ? type : &types[j];
        } else if (!strcmp(argv[i], "--seed")) {
            if (!parse_number(&seed, value, UINT64_MAX))
                return usage();
        } else if (!strcmp(argv[i], "--layers")) {
            if (!parse_number(&layers, value, 1000) || !layers)
                return usage();
        } else {
            return usage();
        }
        i++;
    }
    if (!shape || !type || !path)
        return usage();
    struct shape s = *shape;
    if (layers)
        s.n_layers = (int)layers;
    return write_model(path, &s, type, seed);
}
