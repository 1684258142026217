/* The experts of a layer in every layout that files have: the same numbers must be found in all of
 * them, survive a conversion to GGUF, and a damaged file must be refused by a sentence. */
#include "family/families.h"
#include "format/model_file.h"
#include "make_dir.h"
#include "tensor/quant.h"
#include "tiny_model.h"
#include "torture.h"

enum { LAYERS = 3, DENSE = 1, EXPERTS = 5, USED = 2 };

enum layout { SINGLE, TRANSPOSED, STRAIGHT, LAYOUTS };

/* A directory with experts, whole or with one thing wrong. */
struct made_experts {
    enum layout layout;
    int ffn;                             /* of an expert, 24 when 0; the hidden size is 32 */
    const char *drop;                    /* leave this tensor out (its name without prefix) */
    const char *name;                    /* write this tensor besides, [2, 2] */
    bool mixed;                          /* gate_up straight, down transposed */
    int stored;                          /* experts in the file, EXPERTS when 0 */
    const char *config_from, *config_to; /* replace this text in config.json */
};

/* Element (o, i) of a role's matrix: exact in BF16, and unlike its neighbours. */
static float number(int role, int expert, int o, int i)
{
    return (float)((role * 61 + expert * 29 + o * 7 + i * 3) % 127 - 63) / 64;
}

/* One entry of the header, and after it the numbers in the order of the file. */
static void put_entry(const struct made_experts *m, struct made_shard *sh, const char *name,
                      const int *dim, int n_dims, const float *values)
{
    char text[300];
    size_t begin = sh->data.len;
    int n = 1;

    if (m->drop && !strcmp(m->drop, name))
        return;
    snprintf(text, sizeof text, "%s\"model.%s\": {\"dtype\": \"F32\", \"shape\": [",
             sh->header.len > 1 ? ", " : "", name);
    make_text(&sh->header, text);
    for (int d = 0; d < n_dims; d++) {
        snprintf(text, sizeof text, d ? ", %d" : "%d", dim[d]);
        make_text(&sh->header, text);
        n *= dim[d];
    }
    for (int i = 0; i < n; i++)
        make_f32(&sh->data, values[i]);
    snprintf(text, sizeof text, "], \"data_offsets\": [%zu, %zu]}", begin, sh->data.len);
    make_text(&sh->header, text);
}

static void put_plain(const struct made_experts *m, struct made_shard *sh, const char *name,
                      int rows, int cols)
{
    int n = (rows ? rows : 1) * cols;
    float *values = malloc(sizeof *values * (size_t)n);

    for (int i = 0; i < n; i++)
        values[i] = rows ? number(3, 0, i / cols, i % cols) : 1;
    put_entry(m, sh, name, rows ? (const int[]){ rows, cols } : &cols, rows ? 2 : 1, values);
    free(values);
}

static void put_single(const struct made_experts *m, struct made_shard *sh, int layer, int ffn,
                       int experts)
{
    static const char *const names[] = { "gate", "up", "down" };
    float *values = malloc(sizeof *values * MAKE_HIDDEN * (size_t)ffn);
    char name[100];

    for (int e = 0; e < experts; e++)
        for (int role = 0; role < 3; role++) {
            int out = role < 2 ? ffn : MAKE_HIDDEN, in = role < 2 ? MAKE_HIDDEN : ffn;
            for (int k = 0; k < out * in; k++)
                values[k] = number(role, e, k / in, k % in);
            snprintf(name, sizeof name, "layers.%d.mlp.experts.%d.%s_proj.weight", layer, e,
                     names[role]);
            put_entry(m, sh, name, (const int[]){ out, in }, 2, values);
        }
    free(values);
}

static void put_fused(const struct made_experts *m, struct made_shard *sh, int layer, int ffn,
                      int experts)
{
    bool turned[2] = { m->layout == TRANSPOSED && !m->mixed, m->layout == TRANSPOSED };
    float *values = malloc(sizeof *values * MAKE_HIDDEN * (size_t)(2 * ffn * experts));
    char name[100];

    for (int k = 0; k < 2; k++) {
        int out = k ? MAKE_HIDDEN : 2 * ffn, in = k ? ffn : MAKE_HIDDEN;
        for (int at = 0; at < experts * out * in; at++) {
            int e = at / (out * in), rest = at % (out * in);
            int o = turned[k] ? rest % out : rest / in, i = turned[k] ? rest / out : rest % in;
            int role = k ? 2 : o >= ffn;
            values[at] = number(role, e, role == 1 ? o - ffn : o, i);
        }
        snprintf(name, sizeof name, "layers.%d.mlp.experts.%s", layer,
                 k ? "down_proj" : "gate_up_proj");
        put_entry(m, sh, name, (const int[]){ experts, turned[k] ? in : out, turned[k] ? out : in },
                  3, values);
    }
    free(values);
}

static void put_layer(const struct made_experts *m, struct made_shard *sh, int layer)
{
    const int q = MAKE_HEADS * MAKE_HEAD_DIM, kv = MAKE_KV_HEADS * MAKE_HEAD_DIM;
    int ffn = m->ffn ? m->ffn : 24, experts = m->stored ? m->stored : EXPERTS;
    const struct {
        const char *name;
        int rows, cols;
        int only; /* 1: of dense layers, 2: of sparse ones */
    } list[] = {
        { "input_layernorm.weight", 0, MAKE_HIDDEN, 0 },
        { "self_attn.q_proj.weight", q, MAKE_HIDDEN, 0 },
        { "self_attn.k_proj.weight", kv, MAKE_HIDDEN, 0 },
        { "self_attn.v_proj.weight", kv, MAKE_HIDDEN, 0 },
        { "self_attn.q_norm.weight", 0, MAKE_HEAD_DIM, 0 },
        { "self_attn.k_norm.weight", 0, MAKE_HEAD_DIM, 0 },
        { "self_attn.o_proj.weight", MAKE_HIDDEN, q, 0 },
        { "post_attention_layernorm.weight", 0, MAKE_HIDDEN, 0 },
        { "mlp.gate_proj.weight", MAKE_FFN, MAKE_HIDDEN, 1 },
        { "mlp.up_proj.weight", MAKE_FFN, MAKE_HIDDEN, 1 },
        { "mlp.down_proj.weight", MAKE_HIDDEN, MAKE_FFN, 1 },
        { "mlp.gate.weight", EXPERTS, MAKE_HIDDEN, 2 },
    };
    char name[100];

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(name, sizeof name, "layers.%d.%s", layer, list[i].name);
        if (!list[i].only || list[i].only == (layer == DENSE ? 1 : 2))
            put_plain(m, sh, name, list[i].rows, list[i].cols);
    }
    if (layer != DENSE && m->layout == SINGLE)
        put_single(m, sh, layer, ffn, experts);
    else if (layer != DENSE)
        put_fused(m, sh, layer, ffn, experts);
}

static void make_experts_config(const struct made_experts *m, char text[1000])
{
    static const char usual[] =
        "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 32, \"num_hidden_layers\": 3,"
        " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 16,"
        " \"intermediate_size\": 64, \"vocab_size\": 12, \"max_position_embeddings\": 128,"
        " \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, \"tie_word_embeddings\": true,"
        " \"num_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 24,"
        " \"norm_topk_prob\": false, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [1]}";
    const char *from = m->config_from ? m->config_from : "size\": 24", *at = strstr(usual, from);
    char ffn[32];

    snprintf(ffn, sizeof ffn, "size\": %d", m->ffn ? m->ffn : 24);
    snprintf(text, 1000, "%.*s%s%s", (int)(at - usual), usual, m->config_from ? m->config_to : ffn,
             at + strlen(from));
}

static const char *make_experts(const struct made_experts *m)
{
    static struct made_dir d;
    struct made_shard sh = { .file = "model.safetensors" };
    char config[1000];

    snprintf(d.path, sizeof d.path, "%s/experts", scratch_dir());
    scratch_remove(d.path);
    mkdir(d.path, 0700);
    make_experts_config(m, config);
    make_file_in(&d, "config.json", config, strlen(config));
    make_bytes(&sh.header, "{", 1);
    put_plain(m, &sh, "embed_tokens.weight", MAKE_VOCAB, MAKE_HIDDEN);
    put_plain(m, &sh, "norm.weight", 0, MAKE_HIDDEN);
    for (int i = 0; i < LAYERS; i++)
        put_layer(m, &sh, i);
    if (m->name)
        put_plain(m, &sh, m->name, 2, 2);
    make_shard_write(&d, &sh);
    free(sh.header.data);
    return d.path;
}

/* ---- what is found ---- */

/* Every number of every expert, within `error`. */
static void check_numbers(const struct model_file *mf, int ffn, float error, const char *what)
{
    float *got = malloc(sizeof *got * MAKE_HIDDEN * (size_t)ffn);
    uint8_t *rows = malloc(sizeof *got * MAKE_HIDDEN * (size_t)ffn);
    int wrong = 0;

    for (int layer = 0; layer < LAYERS; layer++) {
        const struct expert_tensors *x = model_file_experts(mf, layer);
        if (!CHECK((x == NULL) == (layer == DENSE)) || !x)
            continue;
        CHECK(model_file_layer(mf, layer)->router && !model_file_layer(mf, layer)->gate);
        for (int k = 0; k < 3 * EXPERTS; k++) {
            int role = k % 3, e = k / 3;
            const struct expert_weight *w = role == 0   ? &x[e].gate
                                            : role == 1 ? &x[e].up
                                                        : &x[e].down;
            int out = role < 2 ? ffn : MAKE_HIDDEN, in = role < 2 ? MAKE_HIDDEN : ffn;
            expert_weight_copy(rows, w, out, in);
            row_to_f32(got, rows, w->t->dtype, out * in);
            for (int i = 0; i < out * in; i++)
                wrong += !(fabsf(got[i] - number(role, e, i / in, i % in)) <= error);
        }
    }
    CHECK_MSG(wrong == 0, "%s: %d numbers are wrong", what, wrong);
    free(got);
    free(rows);
}

static struct model_file *open_file(const char *path)
{
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };

    CHECK_MSG(model_file_open(&mf, path, NULL, 0, families, &err) == PV_OK, "%s", err.text);
    return mf;
}

static void check_converted(const struct model_file *old, int ffn, enum dtype t, float error)
{
    const struct config *a = model_file_config(old), *b;
    struct pv_error err = { 0 };
    struct model_file *new;
    char path[300];

    snprintf(path, sizeof path, "%s/experts.gguf", scratch_dir());
    CHECK_MSG(model_file_write_gguf(old, path, t, false, NULL, &err) == PV_OK, "%s", err.text);
    new = open_file(path);
    if (!new)
        return;
    b = model_file_config(new);
    CHECK_STR(b->arch_name, "qwen3moe");
    CHECK(b->n_experts == EXPERTS && b->n_used == USED && b->expert_ffn == ffn);
    CHECK(!b->norm_used && !memcmp(a->sparse, b->sparse, sizeof a->sparse));
    CHECK_EQ(model_file_layer(new, 0)->router->dtype, DTYPE_F32);
    CHECK_EQ(model_file_experts(new, 0)->up.t->dtype, t);
    CHECK_EQ(model_file_experts(new, 0)->up.t->n_dims, 3);
    CHECK_EQ(model_file_n_tensors(new), 2 + 2 * 12 + 11);
    check_numbers(new, ffn, error, dtype_name(t));
    model_file_close(&new);
}

/* A feed-forward size of 16 makes gate_up square, one of 32 down: the other tensor says which way
 * round they are. */
TEST(all_layouts_have_the_same_numbers)
{
    static const int sizes[] = { 24, 16, 32 };

    for (int i = 0; i < 3 * LAYOUTS; i++) {
        struct made_experts m = { .layout = (enum layout)(i % LAYOUTS), .ffn = sizes[i / LAYOUTS] };
        struct model_file *mf = open_file(make_experts(&m));
        char what[60];
        if (!mf)
            return;
        snprintf(what, sizeof what, "layout %d, feed-forward size %d", i % LAYOUTS, m.ffn);
        CHECK_EQ(model_file_experts(mf, 0)->gate.step > 0, m.layout == TRANSPOSED);
        CHECK_EQ(model_file_experts_size(mf, 0), 4 * 3 * EXPERTS * MAKE_HIDDEN * (uint64_t)m.ffn);
        CHECK_EQ(model_file_experts_size(mf, DENSE), 0);
        check_numbers(mf, m.ffn, 0, what);
        check_converted(mf, m.ffn, DTYPE_F32, 0);
        check_converted(mf, m.ffn, DTYPE_BF16, 0);
        model_file_close(&mf);
    }
}

TEST(quantised_experts)
{
    struct made_experts m = { .layout = TRANSPOSED, .ffn = 32 };
    struct model_file *mf = open_file(make_experts(&m));

    if (mf)
        check_converted(mf, 32, DTYPE_Q8_0, 0.5f / 127);
    model_file_close(&mf);
}

/* ---- what is refused ---- */

static void refuse_path(const char *path, const char *word)
{
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = model_file_open(&mf, path, NULL, 0, families, &err);

    CHECK_MSG(s != PV_OK && mf == NULL, "opened, expected \"%s\"", word);
    CHECK_MSG(strstr(err.text, word) && strstr(err.text, path), "\"%s\" lacks \"%s\"", err.text,
              word);
    model_file_close(&mf);
}

static void refuse(struct made_experts m, const char *word)
{
    refuse_path(make_experts(&m), word);
}

TEST(damaged_directories)
{
    refuse((struct made_experts){ .drop = "layers.2.mlp.experts.3.up_proj.weight" },
           "the tensor model.layers.2.mlp.experts.3.up_proj.weight is missing");
    refuse((struct made_experts){ .drop = "layers.0.mlp.gate.weight" },
           "the tensor model.layers.0.mlp.gate.weight is missing");
    refuse((struct made_experts){ .stored = 4 }, "mlp.experts.4.gate_proj.weight is missing");
    refuse((struct made_experts){ .stored = 6 },
           "model.layers.0.mlp.experts.5.gate_proj.weight is there, but num_experts is 5");
    refuse((struct made_experts){ .name = "layers.0.mlp.up_proj.weight" },
           "layers.0.mlp.up_proj.weight has no place in this layer of qwen3_moe");
    refuse((struct made_experts){ .name = "layers.1.mlp.gate.weight" }, "has no place");
    refuse((struct made_experts){ .layout = TRANSPOSED, .drop = "layers.0.mlp.experts.down_proj" },
           "the tensor model.layers.0.mlp.experts.down_proj is missing");
    refuse((struct made_experts){ .layout = TRANSPOSED, .stored = 4 },
           "gate_up_proj has the shape [4, 32, 48], where [5, 32, 48] was expected");
    refuse((struct made_experts){ .layout = TRANSPOSED, .mixed = true },
           "gate_up_proj has the shape [5, 48, 32], where [5, 32, 48] was expected");
    refuse((struct made_experts){ .layout = TRANSPOSED,
                                  .ffn = 16,
                                  .mixed = true,
                                  .drop = "layers.0.mlp.experts.gate_up_proj" },
           "mlp.experts.0.gate_proj.weight is missing");
}

TEST(configurations_that_disagree_with_the_tensors)
{
    refuse(
        (struct made_experts){ .config_from = "num_experts\": 5", .config_to = "num_experts\": 6" },
        "mlp.gate.weight has the shape [5, 32], where [6, 32] was expected");
    refuse((struct made_experts){ .config_from = "size\": 24", .config_to = "size\": 25" },
           "gate_proj.weight has the shape [24, 32], where [25, 32] was expected");
    refuse((struct made_experts){ .config_from = "[1]", .config_to = "[]" },
           "mlp.gate_proj.weight has no place in this layer");
    refuse((struct made_experts){ .config_from = "step\": 1", .config_to = "step\": 3" },
           "layers.0.mlp.gate_proj.weight is missing");
}

/* The file of a directory with some of its bytes replaced. */
static void refuse_patched(const char *from, const char *to, size_t after, const void *bytes,
                           const char *word)
{
    struct made_experts m = { 0 };
    struct model_file *mf = open_file(make_experts(&m));
    size_t size = 0, len = strlen(from), at = 0;
    uint8_t *data;
    char path[300];

    snprintf(path, sizeof path, "%s/patched.gguf", scratch_dir());
    CHECK_EQ(model_file_write_gguf(mf, path, DTYPE_F32, false, NULL, NULL), PV_OK);
    model_file_close(&mf);
    data = make_load(path, &size);
    while (at + len < size && memcmp(data + at, from, len))
        at++;
    if (CHECK_MSG(at + len < size, "%s is not in the file", from)) {
        memcpy(data + at, to, strlen(to));
        if (bytes)
            memcpy(data + at + len + after, bytes, 4);
        make_write(path, data, size);
        refuse_path(path, word);
    }
    free(data);
}

TEST(damaged_gguf)
{
    const uint32_t zero = 0, six = 6, nine = 9;

    refuse_patched("blk.2.ffn_up_exps", "blk.2.ffn_xx_exps", 0, NULL,
                   "the tensor blk.2.ffn_up_exps.weight is missing");
    refuse_patched("blk.0.ffn_gate_inp", "blk.0.ffn_gate_xxx", 0, NULL,
                   "the tensor blk.0.ffn_gate_inp.weight is missing");
    refuse_patched("qwen3moe.expert_count", "qwen3moe.expert_xxxxx", 0, NULL,
                   "qwen3moe.expert_count is missing");
    refuse_patched("qwen3moe.expert_used_count", "qwen3moe.expert_used_count", 4, &zero,
                   "qwen3moe.expert_used_count is 0");
    refuse_patched("qwen3moe.expert_used_count", "qwen3moe.expert_used_count", 4, &six,
                   "a token uses 6 experts, but there are only 5");
    refuse_patched("qwen3moe.expert_count", "qwen3moe.expert_count", 4, &six,
                   "blk.0.ffn_gate_inp.weight has the shape [5, 32], where [6, 32] was expected");
    refuse_patched("feed_forward_length", "feed_forward_length", 4, &nine, "ffn_gate.weight");
    refuse_patched("expert_feed_forward_length", "expert_feed_forward_length", 4, &nine,
                   "ffn_gate_exps.weight has the shape [5, 24, 32], where [5, 9, 32] was expected");
}

TEST(out_of_memory_anywhere)
{
    struct made_experts m = { .layout = TRANSPOSED };
    struct model_file *mf = torture_open(make_experts(&m));

    model_file_close(&mf);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
