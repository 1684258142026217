/* make_model: writes a GGUF model of a named shape with random weights, for benchmarks and for
 * tests against llama.cpp, which loads the same files (except those of LLaVA-OneVision, which it
 * does not support).
 *
 * It has its own small GGUF writer, so that the library's reader is tested with files that the
 * library did not write. A tensor's numbers depend only on the seed, the tensor's name and the
 * element index: files of different types hold the same weights, up to rounding.
 *
 * Scales: projections of the residual stream have variance 1/in, so their outputs stay near 1 for
 * any width; the two that write to the stream are smaller by sqrt(2 layers), so it does not grow
 * with depth; the embedding gives logits a standard deviation near 2.
 *
 * In a hollow file the matrices are holes: 72 billion weights take a few MB of disk. They read as
 * zeros; programs that only need the shape replace them with random numbers (bench_gpu,
 * --dummy-weights). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf_bytes.h"
#include "plan_ears.h"
#include "plan_tower.h"
#include "tensor/quant.h"

enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_UNUSED = 5 };

struct type_info {
    const char *name;
    enum dtype dtype;
    uint32_t tensor_type, file_type; /* GGUF numbers */
};

static const struct type_info types[] = {
    { "f32", DTYPE_F32, 0, 0 },     { "f16", DTYPE_F16, 1, 1 },     { "bf16", DTYPE_BF16, 30, 32 },
    { "q8_0", DTYPE_Q8_0, 8, 7 },   { "q4_0", DTYPE_Q4_0, 2, 2 },   { "q4_K", DTYPE_Q4_K, 12, 14 },
    { "q5_K", DTYPE_Q5_K, 13, 16 }, { "q6_K", DTYPE_Q6_K, 14, 18 },
};

enum { N_TYPES = sizeof types / sizeof types[0] };

/* Tokens of the vocabulary after the 256 bytes; each is made by the merge left + right. */
static const char *const merges[][2] = {
    { "\xc4\xa0", "t" }, { "h", "e" },          { "i", "n" }, { "r", "e" },
    { "o", "n" },        { "\xc4\xa0t", "he" }, { "e", "r" }, { "\xc4\xa0", "a" },
};

enum {
    N_BYTES = 256,
    N_MERGES = sizeof merges / sizeof merges[0],
    QWEN_CONTROL_FIRST = 151643 /* id of <|endoftext|> in the real vocabulary */
};

/* ---- tokenizer ---- */

/* Byte-level BPE spells a byte as itself if it is printable in Latin-1, otherwise as U+0100 and up
 * in byte order; ids have the same order (printable bytes first). */
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

static const char *const *control_list(const struct shape *s)
{
    if (!s->tower)
        return text_controls;
    return s->tower->llava ? llava_controls : qwen_controls;
}

static int control_first(const struct shape *s)
{
    return s->vocab > QWEN_CONTROL_FIRST ? QWEN_CONTROL_FIRST : N_BYTES + N_MERGES;
}

/* The spelling of a control token, NULL for other ids. */
static const char *control_text(const struct shape *s, int id)
{
    const char *const *list = control_list(s);
    for (int i = 0; list[i]; i++)
        if (id == control_first(s) + i)
            return list[i];
    return NULL;
}

/* The id of one of the shape's control tokens. */
static uint32_t control_id(const struct shape *s, const char *text)
{
    const char *const *list = control_list(s);
    int i = 0;
    while (list[i + 1] && strcmp(list[i], text))
        i++;
    return (uint32_t)(control_first(s) + i);
}

static int token_type(const struct shape *s, int id)
{
    if (control_text(s, id))
        return TOKEN_CONTROL;
    return id < N_BYTES + N_MERGES ? TOKEN_NORMAL : TOKEN_UNUSED;
}

static void put_token(FILE *f, const struct shape *s, char bytes[N_BYTES][3], int id)
{
    char text[32];
    if (token_type(s, id) == TOKEN_CONTROL)
        snprintf(text, sizeof text, "%s", control_text(s, id));
    else if (id < N_BYTES)
        snprintf(text, sizeof text, "%.2s", bytes[id]);
    else if (id < N_BYTES + N_MERGES)
        snprintf(text, sizeof text, "%s%s", merges[id - N_BYTES][0], merges[id - N_BYTES][1]);
    else
        snprintf(text, sizeof text, "[PAD%d]", id);
    put_text(f, text);
}

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

/* The router and the experts of a layer; `out` counts the rows of all of them. */
static void plan_experts(struct plan_list *l, const struct shape *s, int layer, enum dtype t)
{
    const struct experts *e = s->experts;
    int64_t h = s->hidden, ffn = e->ffn, n = e->n;
    enum dtype of_h = whole_blocks(t, h), of_ffn = whole_blocks(t, ffn);
    float in_h = 1 / sqrtf((float)h), back = 1 / sqrtf(2.0f * (float)(s->n_layers * e->ffn));
    const struct plan p[] = {
        { "ffn_gate_inp.weight", h, n, DTYPE_F32, 0, 2 * in_h, 0, NULL, 0, false },
        { "ffn_gate_exps.weight", h, n * ffn, of_h, 0, in_h, 0, NULL, 0, false },
        { "ffn_up_exps.weight", h, n * ffn, of_h, 0, in_h, 0, NULL, 0, false },
        { "ffn_down_exps.weight", ffn, n * h, of_ffn, 0, back, 0, NULL, 0, false },
    };
    for (size_t i = 0; i < sizeof p / sizeof p[0]; i++)
        plan_add(l, &p[i], layer);
}

static void plan_layer(struct plan_list *l, const struct shape *s, int layer, enum dtype t)
{
    int64_t h = s->hidden, q = (int64_t)s->n_heads * s->head_dim;
    int64_t k = (int64_t)s->n_kv_heads * s->head_dim, ffn = s->ffn;
    enum dtype of_h = whole_blocks(t, h), of_q = whole_blocks(t, q), of_ffn = whole_blocks(t, ffn);
    float in_h = 1 / sqrtf((float)h), to_stream = 1 / sqrtf(2.0f * (float)s->n_layers);
    bool bias = !strncmp(s->arch, "qwen2", 5);
    const struct plan p[] = {
        { "attn_norm.weight", h, 0, DTYPE_F32, 1, 0.1f, 0, NULL, 0, false },
        { "attn_q.weight", h, q, of_h, 0, in_h, 0, NULL, 0, false },
        { "attn_k.weight", h, k, of_h, 0, in_h, 0, NULL, 0, false },
        { "attn_v.weight", h, k, of_h, 0, in_h, 0, NULL, 0, false },
        { "attn_output.weight", q, h, of_q, 0, to_stream / sqrtf((float)q), 0, NULL, 0, false },
        { "ffn_norm.weight", h, 0, DTYPE_F32, 1, 0.1f, 0, NULL, 0, false },
    };
    const struct plan dense[] = {
        { "ffn_gate.weight", h, ffn, of_h, 0, in_h, 0, NULL, 0, false },
        { "ffn_up.weight", h, ffn, of_h, 0, in_h, 0, NULL, 0, false },
        { "ffn_down.weight", ffn, h, of_ffn, 0, to_stream / sqrtf((float)ffn), 0, NULL, 0, false },
    };
    const struct plan biases[] = {
        { "attn_q.bias", q, 0, DTYPE_F32, 0, 0.1f, 0, NULL, 0, false },
        { "attn_k.bias", k, 0, DTYPE_F32, 0, 0.1f, 0, NULL, 0, false },
        { "attn_v.bias", k, 0, DTYPE_F32, 0, 0.1f, 0, NULL, 0, false },
    };
    const struct plan norms[] = {
        { "attn_q_norm.weight", s->head_dim, 0, DTYPE_F32, 1, 0.1f, 0, NULL, 0, false },
        { "attn_k_norm.weight", s->head_dim, 0, DTYPE_F32, 1, 0.1f, 0, NULL, 0, false },
    };
    for (size_t i = 0; i < sizeof p / sizeof p[0]; i++)
        plan_add(l, &p[i], layer);
    for (size_t i = 0; !s->experts && i < sizeof dense / sizeof dense[0]; i++)
        plan_add(l, &dense[i], layer);
    if (s->experts)
        plan_experts(l, s, layer, t);
    for (size_t i = 0; bias && i < sizeof biases / sizeof biases[0]; i++)
        plan_add(l, &biases[i], layer);
    for (size_t i = 0; !bias && i < sizeof norms / sizeof norms[0]; i++)
        plan_add(l, &norms[i], layer);
}

/* The LM head stays at 8 bits in a 4-bit file, since llama.cpp's tools also keep it more precise
 * than the rest. */
static void plan_model(struct plan_list *l, const struct shape *s, enum dtype t)
{
    enum dtype head = t == DTYPE_Q4_0 || t == DTYPE_Q4_K ? DTYPE_Q8_0 : whole_blocks(t, s->hidden);
    float std = 2 / sqrtf((float)s->hidden);
    const struct plan embed = { "token_embd.weight",
                                s->hidden,
                                s->vocab,
                                s->tied ? head : whole_blocks(t, s->hidden),
                                0,
                                std,
                                0,
                                NULL,
                                0,
                                false };
    const struct plan norm = {
        "output_norm.weight", s->hidden, 0, DTYPE_F32, 1, 0.1f, 0, NULL, 0, false
    };
    const struct plan output = {
        "output.weight", s->hidden, s->vocab, head, 0, std, 0, NULL, 0, false
    };

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

static void put_general(FILE *f, const struct shape *s, const struct type_info *t, const char *arch)
{
    char name[64];
    snprintf(name, sizeof name, "random %s", s->name);
    put_string(f, "general.", "architecture", arch);
    put_string(f, "general.", "name", name);
    put_u32(f, "general.", "file_type", t->file_type);
    put_u32(f, "general.", "quantization_version", 2);
}

static void put_decoder_keys(FILE *f, const struct shape *s)
{
    char arch[32];
    int half = s->head_dim / 2;
    bool interleaved = s->tower && s->tower->positions; /* 24, 20, 20 of 64; else 16, 24, 24 */
    int side = interleaved ? 5 * half / 16 : 3 * half / 8;
    const int sections[4] = { half - 2 * side, side, side, 0 };
    snprintf(arch, sizeof arch, "%s.", s->arch);
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
    if (s->experts) {
        put_u32(f, arch, "expert_count", (uint32_t)s->experts->n);
        put_u32(f, arch, "expert_used_count", (uint32_t)s->experts->used);
        put_u32(f, arch, "expert_feed_forward_length", (uint32_t)s->experts->ffn);
    }
    if (strstr(s->arch, "vl"))
        put_ints(f, arch, "rope.dimension_sections", sections, 4);
    if (s->tower && s->tower->positions)
        put_u32(f, arch, "n_deepstack_layers", 3);
}

static void put_llava_keys(FILE *f, const struct shape *s)
{
    enum { SIDES = 6 };
    int grid[2 * SIDES * SIDES];
    for (int i = 0; i < SIDES * SIDES; i++) {
        grid[2 * i] = s->tower->image * (i / SIDES + 1);
        grid[2 * i + 1] = s->tower->image * (i % SIDES + 1);
    }
    put_u32(f, "clip.vision.", "image_size", (uint32_t)s->tower->image);
    put_u32(f, "clip.vision.", "preproc_max_tiles", 9);
    put_ints(f, "clip.vision.", "image_grid_pinpoints", grid, 2 * SIDES * SIDES);
    put_u32(f, "clip.vision.", "image_token_id", control_id(s, "<image>"));
    put_u32(f, "clip.vision.", "video_token_id", control_id(s, "<video>"));
}

/* One flag for each layer. */
static void put_deepstack_flags(FILE *f, const struct tower *t)
{
    put_u32(f, "clip.vision.", "image_size", 768); /* as above */
    put_key(f, "clip.vision.", "is_deepstack_layers", GGUF_ARRAY);
    put_le(f, GGUF_BOOL, 4);
    put_le(f, (uint64_t)t->n_layers, 8);
    for (int i = 0; i < t->n_layers; i++)
        putc(i == t->deep0 || i == t->deep1 || i == t->deep2, f);
}

static void put_tower_keys(FILE *f, const struct shape *s)
{
    static const char v[] = "clip.vision.";
    static const float half[3] = { 0.5f, 0.5f, 0.5f };
    static const float clip_mean[3] = { 0.48145466f, 0.4578275f, 0.40821073f };
    static const float clip_std[3] = { 0.26862954f, 0.26130258f, 0.27577711f };
    const struct tower *t = s->tower;
    put_key(f, "clip.", "has_vision_encoder", GGUF_BOOL);
    putc(1, f);
    put_key(f, "clip.", t->llava || t->positions ? "use_gelu" : "use_silu", GGUF_BOOL);
    putc(1, f);
    put_string(f, "clip.", "projector_type",
               t->llava       ? "llava_ov"
               : t->positions ? "qwen3vl_merger"
                              : "qwen2.5vl_merger");
    put_u32(f, v, "projection_dim", (uint32_t)s->hidden);
    put_u32(f, v, "embedding_length", (uint32_t)t->hidden);
    put_u32(f, v, "block_count", (uint32_t)t->n_layers);
    put_u32(f, v, "attention.head_count", (uint32_t)t->n_heads);
    put_u32(f, v, "feed_forward_length", (uint32_t)t->ffn);
    put_u32(f, v, "patch_size", (uint32_t)t->patch);
    put_f32(f, v, "attention.layer_norm_epsilon", 1e-6f);
    put_triple(f, v, "image_mean", t->llava || t->positions ? half : clip_mean);
    put_triple(f, v, "image_std", t->llava || t->positions ? half : clip_std);
    if (t->llava) {
        put_llava_keys(f, s);
        return;
    }
    put_u32(f, v, "spatial_merge_size", 2);
    if (t->positions) {
        put_deepstack_flags(f, t);
        return;
    }
    put_u32(f, v, "image_size", 560); /* as llama.cpp's converter writes it; not used */
    put_u32(f, v, "n_wa_pattern", (uint32_t)t->pattern);
    put_u32(f, v, "window_size", (uint32_t)t->window);
}

static void put_infos(FILE *f, const struct plan_list *l, const struct experts *e)
{
    char name[NAME_SIZE];
    uint64_t offset = 0;
    for (int i = 0; i < l->n; i++) {
        const struct plan *p = &l->item[i];
        plan_name(name, p);
        put_text(f, name);
        bool each = strstr(name, "_exps.") != NULL; /* one matrix for each expert */
        put_le(f, p->patch && !p->sound ? 4 : p->patch || each ? 3 : p->out ? 2 : 1, 4);
        put_le(f, (uint64_t)(p->patch ? p->patch : p->in), 8);
        if (p->patch && !p->sound)
            put_le(f, (uint64_t)p->patch, 8);
        if (p->patch)
            put_le(f, p->sound ? (uint64_t)p->in / (uint64_t)p->patch : 3, 8);
        if (each)
            put_le(f, (uint64_t)p->out / (uint64_t)e->n, 8);
        if (p->out)
            put_le(f, each ? (uint64_t)e->n : (uint64_t)p->out, 8);
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

/* What goes into one file. */
struct contents {
    bool decoder, tower;
    bool hollow;
};

/* Whether a tensor becomes a hole. Not convolutions: they are small, and joined on the host. Not
 * routers: they are small, and must not choose the same experts for all rows. */
static bool is_hole(const struct plan *p)
{
    return p->out && !p->patch && !strstr(p->suffix, ".position_embd.") &&
           strcmp(p->suffix, "ffn_gate_inp.weight");
}

static bool skip_tensor(FILE *f, const struct plan *p)
{
    uint64_t size = plan_size(p);
    size += (GGUF_ALIGNMENT - size % GGUF_ALIGNMENT) % GGUF_ALIGNMENT;
    return fseeko(f, (off_t)size, SEEK_CUR) == 0;
}

/* Everything before the tensors' data. */
static bool put_head(FILE *f, const struct shape *s, const struct type_info *t,
                     const struct plan_list *l, struct contents what)
{
    long at;
    n_keys = 0;
    fputs("GGUF", f);
    put_le(f, 3, 4);
    put_le(f, (uint64_t)l->n, 8);
    put_le(f, 0, 8); /* the number of keys, filled in later */
    put_general(f, s, t, what.decoder ? s->arch : "clip");
    if (what.decoder) {
        put_decoder_keys(f, s);
        put_tokenizer(f, s);
    } else {
        put_string(f, "general.", "type", "mmproj");
    }
    if (what.tower)
        put_tower_keys(f, s);
    if (what.tower && s->ears)
        put_ears_keys(f, s->ears);
    put_infos(f, l, s->experts);
    at = ftell(f);
    if (at < 0 || fseek(f, HEADER_KEYS, SEEK_SET))
        return false;
    put_le(f, n_keys, 8);
    if (fseek(f, at, SEEK_SET))
        return false;
    put_padding(f, (uint64_t)at);
    return true;
}

static bool put_model(FILE *f, const struct shape *s, const struct type_info *t, uint64_t seed,
                      struct contents what)
{
    struct plan_list l = { .n = 0 };
    int tower_layers = s->tower ? s->tower->n_layers : 0;
    int ears_layers = s->ears ? s->ears->n_layers + 2 * s->ears->q_layers + 1 : 0;
    bool ok;

    l.item = calloc((size_t)s->n_layers * 13 + (size_t)(tower_layers + ears_layers) * 16 + 32,
                    sizeof *l.item);
    if (!l.item)
        return false;
    if (what.decoder)
        plan_model(&l, s, t->dtype);
    if (what.tower)
        plan_tower(&l, s, t->dtype);
    if (what.tower && s->ears)
        plan_ears(&l, s, t->dtype);
    ok = put_head(f, s, t, &l, what);
    for (int i = 0; ok && i < l.n; i++)
        ok = what.hollow && is_hole(&l.item[i]) ? skip_tensor(f, &l.item[i])
                                                : put_tensor(f, &l.item[i], seed);
    if (ok && what.hollow)
        ok = !fflush(f) && !ftruncate(fileno(f), ftello(f));
    free(l.item);
    return ok;
}

/* ---- command line ---- */

static int usage(void)
{
    fputs("usage: make_model --shape NAME --type TYPE [--seed S] [--layers N] [--tower-layers N] "
          "[--hollow] OUT.gguf\n",
          stderr);
    fputs("types: f32 f16 bf16 q8_0 q4_0, hollow also q4_K q5_K q6_K; shapes:\n", stderr);
    for (int i = 0; i < N_SHAPES; i++) {
        const struct shape *s = &shapes[i];
        fprintf(stderr,
                "  %-15s %s, hidden %d, %d layers, %d/%d heads x %d, ffn %d, vocab %d%s%s%s\n",
                s->name, s->arch, s->hidden, s->n_layers, s->n_heads, s->n_kv_heads, s->head_dim,
                s->ffn, s->vocab, s->tied ? ", tied" : "", s->tower ? ", with a tower" : "",
                s->ears ? " and an audio encoder" : "");
    }
    fputs("the tower of a Qwen shape goes into the file mmproj-OUT.gguf; --hollow: matrices are "
          "holes of the file and take no disk\n",
          stderr);
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

static int write_file(const char *path, const struct shape *s, const struct type_info *t,
                      uint64_t seed, struct contents what)
{
    FILE *f = fopen(path, "wb");
    if (!f) {
        fprintf(stderr, "make_model: %s: %s\n", path, strerror(errno));
        return 1;
    }
    bool ok = put_model(f, s, t, seed, what);
    ok = !ferror(f) && ok;
    if (fclose(f) || !ok) {
        fprintf(stderr, "make_model: %s: could not be written (disk full or out of memory)\n",
                path);
        remove(path);
        return 1;
    }
    return 0;
}

static int write_model(const char *path, const struct shape *s, const struct type_info *t,
                       uint64_t seed, bool hollow)
{
    const char *slash = strrchr(path, '/');
    int dir = slash ? (int)(slash - path) + 1 : 0;
    char beside[4096];
    struct contents all = { true, s->tower && s->tower->llava, hollow };
    struct contents tower = { false, true, hollow };

    if (s->tower && !s->tower->llava) {
        snprintf(beside, sizeof beside, "%.*smmproj-%s", dir, path, path + dir);
        if (write_file(beside, s, t, seed, tower))
            return 1;
    }
    return write_file(path, s, t, seed, all);
}

int main(int argc, char **argv)
{
    const struct shape *shape = NULL;
    const struct type_info *type = NULL;
    const char *path = NULL;
    unsigned long long seed = 1, layers = 0, tower_layers = 0;
    bool hollow = false;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (argv[i][0] != '-') {
            path = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "--hollow")) {
            hollow = true;
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
        } else if (!strcmp(argv[i], "--tower-layers")) {
            if (!parse_number(&tower_layers, value, 100) || !tower_layers)
                return usage();
        } else {
            return usage();
        }
        i++;
    }
    if (!shape || !type || !path || (!hollow && !row_can_encode(type->dtype)))
        return usage();
    struct shape s = *shape;
    struct tower tower = { 0 };
    if (layers)
        s.n_layers = (int)layers;
    if (s.tower && tower_layers) {
        tower = *s.tower;
        tower.n_layers = (int)tower_layers;
        s.tower = &tower;
    }
    return write_model(path, &s, type, seed, hollow);
}
