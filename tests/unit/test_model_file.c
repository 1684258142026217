/* Whole models, of either kind: what opens, and what is refused with which words. */
#include "base/mem.h"
#include "family/families.h"
#include "format/model_file.h"
#include "make_dir.h"
#include "torture.h"

#include <jansson.h>
#include <math.h>

static const char *write_gguf(struct made *m)
{
    static char path[300];

    make_gguf(m);
    snprintf(path, sizeof path, "%s/model.gguf", scratch_dir());
    make_write(path, m->data, m->len);
    return path;
}

static void refuse(const char *path, const char *word)
{
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = model_file_open(&mf, path, NULL, 0, families, &err);

    CHECK_MSG(s != PV_OK && err.code == s && mf == NULL, "opened, expected %s", word);
    CHECK_MSG(strstr(err.text, word) && strstr(err.text, path), "\"%s\" lacks \"%s\"", err.text,
              word);
    model_file_close(&mf);
}

/* Refuse a GGUF made with these options. */
static void refuse_gguf(struct made m, const char *word)
{
    refuse(write_gguf(&m), word);
    free(m.data);
}

static void refuse_dir(struct made_dir d, const char *word)
{
    make_dir(&d, "bad");
    refuse(d.path, word);
}

/* All that a decoder asks of an open model. */
static void check_model(const struct model_file *mf, bool qwen3)
{
    const struct config *c = model_file_config(mf);
    const struct layer_tensors *l = model_file_layer(mf, MAKE_LAYERS - 1);

    CHECK(c->hidden == MAKE_HIDDEN && c->vocab == MAKE_VOCAB && c->n_layers == MAKE_LAYERS);
    CHECK(tensor_rows(model_file_embed(mf)) == MAKE_VOCAB);
    CHECK(tensor_cols(model_file_lm_head(mf)) == MAKE_HIDDEN);
    CHECK(model_file_norm(mf)->n_dims == 1);
    CHECK(l->attn_norm && l->q && l->k && l->v && l->o && l->ffn_norm && l->gate && l->up);
    CHECK(l->down && l->down->dim[0] == MAKE_HIDDEN && l->down->dim[1] == MAKE_FFN);
    CHECK((l->q_bias && l->k_bias && l->v_bias) == !qwen3);
    CHECK((l->q_norm && l->k_norm) == qwen3);
    CHECK((model_file_lm_head(mf) == model_file_embed(mf)) == c->tied);
}

TEST(opens_gguf)
{
    static const char *const archs[] = { "qwen2", "qwen2vl", "qwen3", "qwen3vl" };

    for (int i = 0; i < 4; i++) {
        struct made m = { .arch = archs[i], .head = i % 2 };
        struct model_file *mf = NULL;
        struct pv_error err = { 0 };
        const char *path = write_gguf(&m);
        if (CHECK_MSG(model_file_open(&mf, path, NULL, 0, families, &err) == PV_OK, "%s",
                      err.text)) {
            check_model(mf, i >= 2);
            CHECK_STR(model_file_path(mf), path);
            CHECK_EQ(model_file_n_tensors(mf), m.n_tensors);
            CHECK_STR(model_file_tensor(mf, 0)->name, "token_embd.weight");
            CHECK_EQ(model_file_config(mf)->tied, !m.head);
        }
        model_file_close(&mf);
        CHECK(mf == NULL);
        free(m.data);
    }
}

TEST(reads_the_vocabulary_of_gguf)
{
    struct made m = { 0 };
    struct model_file *mf = NULL;
    const struct vocab *v;

    if (!CHECK_EQ(model_file_open(&mf, write_gguf(&m), NULL, 0, families, NULL), PV_OK))
        return;
    v = model_file_vocab(mf);
    if (CHECK(v)) {
        CHECK(v->n_tokens == MAKE_VOCAB && v->n_merges == 2);
        CHECK(v->token[5].len == 3 && !memcmp(v->token[5].s, "abc", 3));
        CHECK(v->kind[0] == TOKEN_NORMAL && v->kind[6] == TOKEN_CONTROL);
        CHECK(v->kind[9] == TOKEN_ADDED && v->kind[10] == TOKEN_UNUSED);
        CHECK_EQ(v->kind[11], TOKEN_UNUSED); /* spelled as padding, whatever its kind */
        CHECK(v->eos == 8 && v->bos == -1 && v->pad == 6);
        CHECK_STR(v->pre, "qwen2");
        CHECK_STR(v->chat_template, "{{ messages }}");
        CHECK(v->merge[1].len == 4 && !memcmp(v->merge[1].s, "ab c", 4));
    }
    CHECK(model_file_vocab_reason(mf) == NULL);
    model_file_close(&mf);
    free(m.data);
}

TEST(other_tokenizers_leave_no_vocabulary)
{
    struct made m = { .drop = "tokenizer.ggml.model" };
    struct model_file *mf = NULL;
    const char *path;

    CHECK_EQ(model_file_open(&mf, write_gguf(&m), NULL, 0, families, NULL), PV_OK);
    CHECK(mf && model_file_vocab(mf) == NULL && model_file_vocab_reason(mf));
    model_file_close(&mf);
    free(m.data);
    m = (struct made){ 0 };
    path = write_gguf(&m);
    memcpy(m.data + make_find(&m, "tokenizer.ggml.model")->value + 12, "bert", 4);
    make_write(path, m.data, m.len);
    CHECK_EQ(model_file_open(&mf, path, NULL, 0, families, NULL), PV_OK);
    CHECK(mf && !model_file_vocab(mf) && strstr(model_file_vocab_reason(mf), "byte-level"));
    model_file_close(&mf);
    free(m.data);
}

TEST(damaged_gguf)
{
    static const char *const tensors[] = { "output_norm.weight",       "blk.0.attn_norm.weight",
                                           "blk.1.attn_q.weight",      "blk.0.attn_k.bias",
                                           "blk.1.attn_output.weight", "blk.1.ffn_down.weight" };

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char word[100];
        snprintf(word, sizeof word, "the tensor %s is missing", tensors[i]);
        refuse_gguf((struct made){ .drop = tensors[i] }, word);
        snprintf(word, sizeof word, "the tensor %s has the shape [", tensors[i]);
        refuse_gguf((struct made){ .reshape = tensors[i] }, word);
    }
    refuse_gguf((struct made){ .drop = "token_embd.weight" }, "token_embd.weight is missing");
    refuse_gguf((struct made){ .arch = "qwen3", .drop = "blk.0.attn_q_norm.weight" }, "missing");
    refuse_gguf((struct made){ .arch = "llama" }, "\"llama\" is not supported");
    refuse_gguf((struct made){ .reshape = "token_embd.weight", .head = true },
                "output.weight has the shape [12, 32], where [13, 32] was expected");
    refuse_gguf((struct made){ .drop = "tokenizer.ggml.merges" }, "merges is missing");
}

/* One byte string of the file replaced by another of the same length. */
static void refuse_patched(const char *entry, size_t at, const void *bytes, size_t len,
                           const char *word)
{
    struct made m = { 0 };
    const char *path = write_gguf(&m);

    memcpy(m.data + make_find(&m, entry)->value + at, bytes, len);
    make_write(path, m.data, m.len);
    refuse(path, word);
    free(m.data);
}

TEST(damaged_values)
{
    const int32_t kind = 9;
    const float nan = NAN;
    struct made m = { 0 };
    const char *path;
    uint64_t offset;

    /* kind, element kind, count, then the first string's length and bytes */
    refuse_patched("tokenizer.ggml.tokens", 24, "\xff", 1, "string 0 of tokenizer.ggml.tokens");
    refuse_patched("tokenizer.ggml.merges", 24, "\xc0", 1, "string 0 of tokenizer.ggml.merges");
    refuse_patched("tokenizer.chat_template", 12, "\xe2", 1, "tokenizer.chat_template");
    refuse_patched("tokenizer.chat_template", 12, "\0", 1, "tokenizer.chat_template");
    refuse_patched("tokenizer.ggml.token_type", 16, &kind, 4, "unknown kind 9");
    path = write_gguf(&m);
    memcpy(&offset, m.data + make_find(&m, "blk.1.attn_v.bias")->value + 16, 8);
    memcpy(m.data + m.data_start + offset + 8, &nan, 4);
    make_write(path, m.data, m.len);
    refuse(path, "the tensor blk.1.attn_v.bias has a number that is not finite");
    free(m.data);
}

TEST(opens_directories)
{
    static const char *const prefixes[] = { "model.", "language_model.model.",
                                            "model.language_model.", "" };

    for (int i = 0; i < 8; i++) {
        struct made_dir d = { .prefix = prefixes[i / 2],
                              .qwen3 = i % 2,
                              .head = i % 2,
                              .extra = true,
                              .sharded = i > 3 };
        struct model_file *mf = NULL;
        struct pv_error err = { 0 };
        make_dir(&d, "good");
        if (CHECK_MSG(model_file_open(&mf, d.path, NULL, 0, families, &err) == PV_OK, "%s",
                      err.text)) {
            check_model(mf, d.qwen3);
            CHECK_EQ(model_file_n_tensors(mf), 2 + 2 * (d.qwen3 ? 11 : 12) + 1 + d.head);
            CHECK(model_file_vocab(mf) == NULL && model_file_vocab_reason(mf));
        }
        model_file_close(&mf);
    }
}

/* tie_word_embeddings decides, also where a head is stored. */
TEST(tied_heads)
{
    struct made_dir d = { .head = true };
    struct model_file *mf = NULL;

    make_dir(&d, "tied");
    CHECK_EQ(model_file_open(&mf, d.path, NULL, 0, families, NULL), PV_OK);
    CHECK(mf && model_file_lm_head(mf) == model_file_embed(mf));
    model_file_close(&mf);
    refuse_dir((struct made_dir){ .qwen3 = true }, "the tensor lm_head.weight is missing");
}

TEST(damaged_directories)
{
    refuse_dir((struct made_dir){ .drop = "embed_tokens.weight" },
               "embed_tokens.weight is missing");
    refuse_dir((struct made_dir){ .drop = "layers.1.mlp.up_proj.weight" },
               "the tensor model.layers.1.mlp.up_proj.weight is missing");
    refuse_dir((struct made_dir){ .reshape = "layers.0.self_attn.v_proj.bias" },
               "v_proj.bias has the shape [17], where [16] was expected");
    refuse_dir((struct made_dir){ .reshape = "embed_tokens.weight" }, "[13, 32]");
    refuse_dir((struct made_dir){ .config = "{" }, "not valid JSON");
    refuse_dir((struct made_dir){ .config = make_config_json(true), .head = true },
               "has no place in the");
    refuse(scratch_dir(), "config.json");
}

static void torture(const char *path)
{
    struct model_file *mf = torture_open(path);
    model_file_close(&mf);
}

TEST(out_of_memory_anywhere)
{
    struct made m = { 0 };
    struct made_dir d = { .sharded = true };

    torture(write_gguf(&m));
    free(m.data);
    make_dir(&d, "memory");
    make_file_in(&d, "vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}", 25);
    make_file_in(&d, "merges.txt", "a b\n", 4);
    json_set_alloc_funcs(mem_alloc, mem_free);
    torture(d.path);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
