/* Models written as GGUF: every tensor and the configuration against the source, whichever kind
 * it was; nothing is left behind when writing fails. */
#include "base/mem.h"
#include "family/families.h"
#include "format/gguf.h"
#include "format/gguf_write.h"
#include "format/model_file.h"
#include "make_dir.h"
#include "tensor/quant.h"
#include "test.h"

static const enum dtype writable[] = { DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0,
                                       DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_1 };

static const char *out_path(void)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/out.gguf", scratch_dir());
    return path;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* The new tensor must hold the bytes that encoding the old one's values in its type gives. */
static void check_tensor(const struct tensor *new, const struct tensor *old, enum dtype type)
{
    int64_t n = tensor_rows(old) * tensor_cols(old);
    float *x = malloc((size_t)n * sizeof *x);
    uint8_t *want = malloc((size_t)n * sizeof *x);

    if (old->n_dims == 1)
        type = DTYPE_F32;
    else if (tensor_cols(old) % dtype_block(type))
        type = DTYPE_F16;
    row_to_f32(x, old->data, old->dtype, n);
    row_from_f32(want, x, type, n);
    CHECK_MSG(new->dtype == type, "%s is %s", new->name, dtype_name(new->dtype));
    CHECK(new->n_dims == old->n_dims && !memcmp(new->dim, old->dim, sizeof new->dim));
    CHECK(new->size == dtype_row_size(type, n));
    CHECK_MSG(new->size == dtype_row_size(type, n) &&
                  !memcmp(new->data, new->dtype == old->dtype ? old->data : want, new->size),
              "%s differs", new->name);
    free(x);
    free(want);
}

static void check_layer(const struct model_file *new, const struct model_file *old, int i,
                        enum dtype type)
{
    const struct tensor *a[sizeof(struct layer_tensors) / sizeof(void *)];
    const struct tensor *b[sizeof(struct layer_tensors) / sizeof(void *)];

    memcpy(a, model_file_layer(new, i), sizeof a);
    memcpy(b, model_file_layer(old, i), sizeof b);
    for (size_t j = 0; j < sizeof a / sizeof *a; j++) {
        CHECK(!a[j] == !b[j]);
        if (a[j] && b[j])
            check_tensor(a[j], b[j], type);
    }
}

static void check_config(const struct config *a, const struct config *b)
{
    CHECK(!strcmp(a->family->arch, b->family->arch) && a->mrope == b->mrope && a->tied == b->tied);
    CHECK(a->hidden == b->hidden && a->n_layers == b->n_layers && a->ffn == b->ffn);
    CHECK(a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads && a->vocab == b->vocab);
    CHECK(a->head_dim == b->head_dim && a->max_context == b->max_context);
    CHECK(a->rope_theta == b->rope_theta && a->rms_eps == b->rms_eps);
    CHECK(!memcmp(a->mrope_section, b->mrope_section, sizeof a->mrope_section));
    CHECK_EQ(a->n_deepstack, b->n_deepstack);
    CHECK(a->n_stop == b->n_stop && !memcmp(a->stop, b->stop, sizeof *a->stop * (size_t)a->n_stop));
}

/* Convert, open the result and compare it; returns it open, or NULL. */
static struct model_file *convert(const struct model_file *old, enum dtype type)
{
    struct model_file *new = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = model_file_write_gguf(old, out_path(), type, false, NULL, &err);

    if (!s)
        s = model_file_open(&new, out_path(), NULL, 0, families, &err);
    if (!CHECK_MSG(s == PV_OK, "%s", err.text))
        return NULL;
    check_config(model_file_config(new), model_file_config(old));
    check_tensor(model_file_embed(new), model_file_embed(old), type);
    check_tensor(model_file_norm(new), model_file_norm(old), type);
    check_tensor(model_file_lm_head(new), model_file_lm_head(old), type);
    for (int i = 0; i < model_file_config(old)->n_layers; i++)
        check_layer(new, old, i, type);
    return new;
}

static struct model_file *open_dir(struct made_dir *d)
{
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };

    make_dir(d, "source");
    CHECK_MSG(model_file_open(&mf, d->path, NULL, 0, families, &err) == PV_OK, "%s", err.text);
    return mf;
}

static struct model_file *open_gguf(struct made *m)
{
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    char path[300];

    make_gguf(m);
    snprintf(path, sizeof path, "%s/source.gguf", scratch_dir());
    make_write(path, m->data, m->len);
    CHECK_MSG(model_file_open(&mf, path, NULL, 0, families, &err) == PV_OK, "%s", err.text);
    free(m->data);
    return mf;
}

TEST(directories)
{
    for (int i = 0; i < 10; i++) {
        struct made_dir d = { .qwen3 = i % 2, .head = i % 2, .sharded = i % 2, .extra = true };
        struct model_file *old = open_dir(&d), *new = old ? convert(old, writable[i / 2]) : NULL;
        if (new) {
            CHECK(model_file_vocab(new) == NULL);
            CHECK_STR(model_file_config(new)->arch_name, d.qwen3 ? "qwen3" : "qwen2");
            CHECK_EQ(model_file_n_tensors(new), 2 + 2 * (d.qwen3 ? 11 : 12) + d.head);
        }
        model_file_close(&new);
        model_file_close(&old);
    }
}

TEST(gguf_files)
{
    static const char *const archs[] = { "qwen2", "qwen2vl", "qwen3", "qwen3vl" };

    for (int i = 0; i < 20; i++) {
        struct made m = { .arch = archs[i % 4], .head = i % 3 == 0 };
        struct model_file *old = open_gguf(&m), *new = old ? convert(old, writable[i / 4]) : NULL;
        if (new) {
            const struct vocab *a = model_file_vocab(old), *b = model_file_vocab(new);
            CHECK(b && a->n_tokens == b->n_tokens && a->n_merges == b->n_merges);
            CHECK(b && !memcmp(a->kind, b->kind, (size_t)a->n_tokens));
            CHECK_STR(b->chat_template, a->chat_template);
        }
        model_file_close(&new);
        model_file_close(&old);
    }
}

/* Keys nobody here knows stay; those about the old file are made anew. */
TEST(metadata_is_kept)
{
    struct made m = { .arch = "qwen2" };
    struct model_file *mf = open_gguf(&m);
    struct gguf *g = NULL;
    struct str author;
    int64_t type = 0;

    CHECK_EQ(model_file_write_gguf(mf, out_path(), DTYPE_Q4_0, false, NULL, NULL), PV_OK);
    model_file_close(&mf);
    if (!CHECK_EQ(gguf_open(&g, out_path(), UINT64_MAX, NULL), PV_OK))
        return;
    CHECK_EQ(gguf_string(g, "general.author", &author, NULL), PV_OK);
    CHECK(author.len == 6 && !memcmp(author.s, "nobody", 6));
    CHECK_EQ(gguf_int(g, "general.file_type", 0, 99, &type, NULL), PV_OK);
    CHECK_EQ(type, 2);
    CHECK(gguf_find(g, "general.alignment") == NULL);
    CHECK(gguf_value(g, 0) == gguf_find(g, "general.architecture")); /* the first of all */
    gguf_close(&g);
}

/* A vocabulary shorter than the table is filled up; ids keep their kinds. */
TEST(vocabulary_of_a_directory)
{
    static const char vocab[] = "{\"a\": 0, \"b\": 1, \"ab\": 2}";
    static const char tokenizer[] =
        "{\"added_tokens_decoder\": {\"3\": {\"content\": \"<|endoftext|>\", \"special\": true},"
        " \"4\": {\"content\": \"<tool>\", \"special\": false},"
        " \"8\": {\"content\": \"<|im_end|>\", \"special\": true}},"
        " \"eos_token\": \"<|im_end|>\", \"pad_token\": \"<|endoftext|>\"}";
    struct made_dir d = { 0 };
    struct model_file *old = NULL, *new = NULL;
    struct pv_error err = { 0 };
    const struct vocab *v;

    make_dir(&d, "source");
    make_file_in(&d, "vocab.json", vocab, sizeof vocab - 1);
    make_file_in(&d, "merges.txt", "#version: 0.2\na b\n", 18);
    make_file_in(&d, "tokenizer_config.json", tokenizer, sizeof tokenizer - 1);
    if (!CHECK_MSG(model_file_open(&old, d.path, NULL, 0, families, &err) == PV_OK, "%s", err.text))
        return;
    new = convert(old, DTYPE_F16);
    v = new ? model_file_vocab(new) : NULL;
    if (CHECK(v)) {
        CHECK(v->n_tokens == MAKE_VOCAB && v->n_merges == 1 && v->eos == 8 && v->pad == 3);
        CHECK(v->kind[2] == TOKEN_NORMAL && v->token[2].len == 2);
        CHECK(v->kind[3] == TOKEN_CONTROL && v->kind[4] == TOKEN_ADDED);
        CHECK(v->kind[5] == TOKEN_UNUSED && v->kind[11] == TOKEN_UNUSED);
        CHECK(v->token[11].len == 7 && !memcmp(v->token[11].s, "[PAD11]", 7));
        CHECK_STR(v->pre, "qwen2");
    }
    model_file_close(&new);
    model_file_close(&old);
}

TEST(rows_that_are_no_whole_blocks)
{
    char config[1000];
    const char *json = make_config_json(false), *at = strstr(json, "64");
    struct made_dir d = { .ffn = 40, .config = config };
    struct model_file *old, *new;

    snprintf(config, sizeof config, "%.*s40%s", (int)(at - json), json, at + 2);
    old = open_dir(&d);
    new = old ? convert(old, DTYPE_Q8_0) : NULL;
    if (new) {
        CHECK_EQ(model_file_layer(new, 0)->down->dtype, DTYPE_F16);
        CHECK_EQ(model_file_layer(new, 0)->up->dtype, DTYPE_Q8_0);
    }
    model_file_close(&new);
    model_file_close(&old);
}

TEST(failures_leave_nothing)
{
    struct made_dir d = { .first = 1e6f };
    struct model_file *mf = open_dir(&d);
    struct pv_error err = { 0 };

    if (!mf)
        return;
    unlink(out_path());
    CHECK_EQ(model_file_write_gguf(mf, out_path(), DTYPE_F16, false, NULL, &err), PV_E_FORMAT);
    CHECK_MSG(strstr(err.text, "embed_tokens.weight has a number that f16"), "%s", err.text);
    CHECK(!exists(out_path()));
    CHECK_EQ(model_file_write_gguf(mf, out_path(), DTYPE_BF16, false, NULL, NULL), PV_OK);
    unlink(out_path());
    err = (struct pv_error){ 0 };
    CHECK_EQ(model_file_write_gguf(mf, out_path(), DTYPE_Q6_K, false, NULL, &err),
             PV_E_UNSUPPORTED);
    CHECK(strstr(err.text, "q6_K"));
    CHECK_EQ(model_file_write_gguf(mf, "/no/such/directory/x.gguf", DTYPE_F32, false, NULL, NULL),
             PV_E_IO);
    for (int k = 1;; k++) {
        enum pv_status s;
        err = (struct pv_error){ 0 };
        mem_fail_at((uint64_t)k);
        s = model_file_write_gguf(mf, out_path(), DTYPE_F32, false, NULL, &err);
        mem_fail_at(0);
        if (!s || !CHECK(s == PV_E_NOMEM && err.text[0] && !exists(out_path())) || k > 1000) {
            CHECK(k > 10);
            break;
        }
    }
    model_file_close(&mf);
}

/* A model may be written over its own file: the old one stays mapped. */
TEST(in_place)
{
    struct made m = { 0 };
    struct model_file *mf = open_gguf(&m), *new = NULL;
    char path[300];

    snprintf(path, sizeof path, "%s", model_file_path(mf));
    CHECK_EQ(model_file_write_gguf(mf, path, DTYPE_BF16, false, NULL, NULL), PV_OK);
    CHECK_EQ(model_file_embed(mf)->dtype, DTYPE_Q8_0);
    check_tensor(model_file_embed(mf), model_file_embed(mf), DTYPE_Q8_0);
    model_file_close(&mf);
    CHECK_EQ(model_file_open(&new, path, NULL, 0, families, NULL), PV_OK);
    CHECK(new &&model_file_embed(new)->dtype == DTYPE_BF16);
    model_file_close(&new);
}

/* The writer itself: misuse is refused, not written. */
TEST(writer_counts_the_bytes)
{
    const int64_t dim[] = { 3, 5 };
    struct gguf_writer *w = NULL;
    struct gguf *g = NULL;
    const struct tensor *t;
    float data[15] = { 1, 2, 3 };

    unlink(out_path());
    CHECK_EQ(gguf_writer_open(&w, out_path(), NULL, NULL), PV_OK);
    gguf_writer_f32s(w, "a.floats", data, 3);
    gguf_writer_tensor(w, "x", DTYPE_F32, 2, dim);
    CHECK_EQ(gguf_writer_begin(w, NULL), PV_OK);
    CHECK_EQ(gguf_writer_data(w, data, 4 * 16, NULL), PV_E_ARG); /* one too many */
    CHECK_EQ(gguf_writer_data(w, data, 4 * 14, NULL), PV_OK);
    CHECK_EQ(gguf_writer_commit(&w, NULL), PV_E_ARG); /* one too few */
    CHECK(w == NULL && !exists(out_path()));
    CHECK_EQ(gguf_writer_open(&w, out_path(), NULL, NULL), PV_OK);
    gguf_writer_tensor(w, "x", DTYPE_F32, 2, dim);
    CHECK_EQ(gguf_writer_begin(w, NULL), PV_OK);
    CHECK_EQ(gguf_writer_data(w, data, 7, NULL), PV_OK);
    CHECK_EQ(gguf_writer_data(w, (char *)data + 7, sizeof data - 7, NULL), PV_OK);
    CHECK_EQ(gguf_writer_data(w, data, 1, NULL), PV_E_ARG);
    CHECK_EQ(gguf_writer_commit(&w, NULL), PV_OK);
    CHECK_EQ(gguf_open(&g, out_path(), UINT64_MAX, NULL), PV_OK);
    t = g ? gguf_tensor_find(g, "x") : NULL;
    CHECK(t && t->dim[0] == 3 && t->dim[1] == 5 && !memcmp(t->data, data, sizeof data));
    gguf_close(&g);
    gguf_writer_abandon(&w); /* NULL is fine */
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
