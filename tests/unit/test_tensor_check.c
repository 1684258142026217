/* Weights that are NaN or infinite: a check finds each, and an answer fails and names the tensor
 * instead of repeating one token. */
#include "format/gguf.h"
#include "format/tensor_check.h"
#include "prevue/prevue.h"
#include "test.h"
#include "tiny_model.h"

static const int32_t prompt[] = { 0, 7, 3, 9, 11, 0, 5 };

static struct tiny_model shape_of(enum dtype type)
{
    return (struct tiny_model){ .arch = "qwen2",
                                .hidden = 64,
                                .n_layers = 2,
                                .n_heads = 2,
                                .n_kv = 1,
                                .head_dim = 32,
                                .ffn = 96,
                                .vocab = 64,
                                .untied = true,
                                .type = (int)type,
                                .seed = 4 };
}

/* The first number, or scale, of a tensor in the file becomes one that is not finite. False: the
 * file has no i-th tensor. */
static bool spoil(const char *path, int i, bool nan, char *name, size_t cap)
{
    static const uint8_t f32[2][4] = { { 0, 0, 0x80, 0x7f }, { 0, 0, 0xc0, 0x7f } };
    static const uint8_t bf16[2][2] = { { 0x80, 0x7f }, { 0xc0, 0x7f } };
    static const uint8_t f16[2][2] = { { 0, 0x7c }, { 0, 0x7e } };
    struct gguf *g = NULL;
    const struct tensor *t;
    const uint8_t *bad;
    long offset;
    FILE *f;

    if (!CHECK_EQ(gguf_open(&g, path, UINT64_MAX, NULL), PV_OK))
        return false;
    if (i >= gguf_n_tensors(g)) {
        gguf_close(&g);
        return false;
    }
    t = gguf_tensor(g, i);
    snprintf(name, cap, "%s", t->name);
    /* The last tensor ends the file, and the others lie before it. */
    const struct tensor *last = gguf_tensor(g, gguf_n_tensors(g) - 1);
    bad = t->dtype == DTYPE_F32 ? f32[nan] : t->dtype == DTYPE_BF16 ? bf16[nan] : f16[nan];
    offset = (long)((const uint8_t *)last->data + (last->size + 31) / 32 * 32 -
                    (const uint8_t *)t->data);
    f = fopen(path, "r+b");
    CHECK(f && !fseek(f, 0, SEEK_END) && !fseek(f, ftell(f) - offset, SEEK_SET));
    CHECK_EQ(fwrite(bad, t->dtype == DTYPE_F32 ? 4 : 2, 1, f), 1);
    CHECK_EQ(fclose(f), 0);
    gguf_close(&g);
    return true;
}

/* What an answer says, and a check of the model; or opening it. */
static void ask(const char *path, float temperature, struct pv_error *answer,
                struct pv_error *checked)
{
    struct pv_model_params mp = pv_model_defaults();
    struct pv_session_params sp = pv_session_defaults();
    struct pv_gen_params g = pv_gen_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    pv_session *s = NULL;
    enum pv_status st;

    mp.path = path;
    mp.threads = 1;
    sp.max_context = 64;
    g.max_new_tokens = 4;
    g.temperature = temperature;
    if (pv_model_open(&m, &mp, answer)) { /* which looks at vectors */
        *checked = *answer;
        return;
    }
    st = pv_model_check(m, checked);
    CHECK_EQ(st, checked->code);
    CHECK_EQ(pv_session_open(&s, m, &sp, &err), PV_OK);
    CHECK_EQ(pv_add_ids(s, prompt, sizeof prompt / sizeof *prompt, &err), PV_OK);
    st = pv_generate(s, &g, NULL, NULL, answer);
    CHECK_EQ(st, answer->code);
    pv_session_close(&s);
    pv_model_close(&m);
}

/* Attention gives finite rows for some queries that are not, but for AVX-512's; and kernels of Arm
 * read an F16 that is not finite as a large number. A step then has nothing to notice, and only the
 * check tells. */
static bool hidden_by_kernels(enum dtype type, const char *name)
{
#ifdef __aarch64__
    return type == DTYPE_F16 || strstr(name, "attn_q.weight");
#else
    (void)type;
    return !__builtin_cpu_supports("avx512f") && strstr(name, "attn_q.weight");
#endif
}

/* Each tensor of a model in turn. */
static void try_model(const struct tiny_model *m)
{
    char path[256], name[128];
    int n = 0;

    for (;; n++) {
        struct pv_error answer = { 0 }, checked = { 0 };
        tiny_model_write(m, "spoilt", path);
        if (!spoil(path, n, n % 2, name, sizeof name))
            break;
        ask(path, n / 2 % 2 ? 0.8f : 0, &answer, &checked);
        CHECK_MSG(checked.code == PV_E_FORMAT && strstr(checked.text, name),
                  "%s: checked as \"%s\"", name, checked.text);
        if (answer.code == PV_OK && hidden_by_kernels((enum dtype)m->type, name))
            continue;
        CHECK_MSG(answer.code == PV_E_FORMAT && strstr(answer.text, name), "%s: answered \"%s\"",
                  name, answer.text);
    }
    CHECK_MSG(n > 20, "%d tensors", n);
}

static void try_type(enum dtype type)
{
    struct tiny_model m = shape_of(type);
    try_model(&m);
}

TEST(f32)
{
    try_type(DTYPE_F32);
}

TEST(f16)
{
    try_type(DTYPE_F16);
}

TEST(bf16)
{
    try_type(DTYPE_BF16);
}

TEST(q8_0)
{
    try_type(DTYPE_Q8_0);
}

TEST(q4_0)
{
    try_type(DTYPE_Q4_0);
}

/* Every row uses all experts: what is wrong with one is met. */
TEST(experts)
{
    static const struct tiny_experts experts = { .n = 2, .used = 2, .ffn = 32, .dense = 0 };
    static const enum dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct tiny_model m = shape_of(types[i]);
        m.arch = "qwen3moe";
        m.experts = &experts;
        try_model(&m);
    }
}

TEST(sound_models_pass)
{
    struct tiny_model m = shape_of(DTYPE_Q8_0);
    struct pv_error answer = { 0 }, checked = { 0 };
    char path[256];
    ask(tiny_model_write(&m, "sound", path), 0, &answer, &checked);
    CHECK_MSG(!answer.code && !checked.code, "%s%s", answer.text, checked.text);
}

/* Sound weights whose products are too large: the sentence says so. */
TEST(numbers_that_grow_too_large)
{
    struct tiny_model m = shape_of(DTYPE_F32);
    struct pv_error answer = { 0 }, checked = { 0 };
    char path[256];
    struct gguf *g = NULL;
    tiny_model_write(&m, "large", path);
    CHECK_EQ(gguf_open(&g, path, UINT64_MAX, NULL), PV_OK);
    if (!g)
        return;
    /* The whole table of embeddings at the edge of what f32 holds. */
    const struct tensor *last = gguf_tensor(g, gguf_n_tensors(g) - 1);
    const struct tensor *t = gguf_tensor_find(g, "output.weight");
    FILE *f = fopen(path, "r+b");
    float huge = 3e38f;
    if (CHECK(t && f)) {
        fseek(f, 0, SEEK_END);
        fseek(f,
              ftell(f) - (long)((const uint8_t *)last->data + (last->size + 31) / 32 * 32 -
                                (const uint8_t *)t->data),
              SEEK_SET);
        for (size_t i = 0; i < t->size / sizeof huge; i++)
            fwrite(&huge, sizeof huge, 1, f);
    }
    if (f)
        fclose(f);
    gguf_close(&g);
    ask(path, 0, &answer, &checked);
    CHECK_EQ(checked.code, PV_OK);
    CHECK_MSG(answer.code == PV_E_FORMAT && strstr(answer.text, "too large"), "%s", answer.text);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
