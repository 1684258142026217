/* Reading Hugging Face tokenizers: both forms of the files, the side files, and files that are
 * damaged or of another kind. */
#include "format/vocab_hf.h"

#include "base/mem.h"
#include "scratch.h"
#include "test.h"

static const char golden_dir[] = "tests/golden/tokenizer";

#define SPLIT                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}"                \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define NORMALIZER "\"normalizer\":{\"type\":\"NFC\"},"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define PRE_WITH(regex, bytes)                                                                     \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":" \
    "{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}," bytes "]},"
#define PRE PRE_WITH(SPLIT, BYTE_LEVEL)
#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":3,\"content\":\"<e>\",\"special\":true,\"normalized\":false},"      \
    "{\"id\":5,\"content\":\"<t>\",\"special\":false,\"normalized\":false}],"
#define MODEL                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define GOOD "{" NORMALIZER PRE ADDED MODEL "}"

static enum pv_status parse(struct vocab **v, const char *json, struct pv_error *err)
{
    *err = (struct pv_error){ 0 };
    *v = NULL;
    return vocab_hf_parse(v, json, strlen(json), "t.json", err);
}

static bool is_str(struct str s, const char *want)
{
    return s.len == strlen(want) && memcmp(s.s, want, s.len) == 0;
}

static const char *file_path(const char *dir, const char *name)
{
    static char path[2][512];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void file_write(const char *dir, const char *name, const char *text)
{
    FILE *f = fopen(file_path(dir, name), "wb");
    if (CHECK(f)) {
        fwrite(text, 1, strlen(text), f);
        fclose(f);
    }
}

static void file_copy(const char *dir, const char *name)
{
    FILE *in = fopen(file_path(golden_dir, name), "rb");
    FILE *out = fopen(file_path(dir, name), "wb");
    int c;
    if (!CHECK(in && out))
        return;
    for (c = getc(in); c != EOF; c = getc(in))
        putc(c, out);
    fclose(in);
    fclose(out);
}

static const char *fresh_dir(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch_dir(), name);
    CHECK_EQ(mkdir(path, 0777), 0);
    return path;
}

TEST(parse_small)
{
    struct vocab *v;
    struct pv_error err;

    if (!CHECK_MSG(!parse(&v, GOOD, &err), "%s", err.text))
        return;
    CHECK_EQ(v->n_tokens, 6);
    CHECK(is_str(v->token[0], "a") && v->kind[0] == TOKEN_NORMAL);
    CHECK(is_str(v->token[2], "ab"));
    CHECK(is_str(v->token[3], "<e>") && v->kind[3] == TOKEN_CONTROL);
    CHECK(v->token[4].len == 0 && v->kind[4] == TOKEN_UNUSED);
    CHECK(is_str(v->token[5], "<t>") && v->kind[5] == TOKEN_ADDED);
    CHECK(v->n_merges == 1 && is_str(v->merge[0], "a b"));
    CHECK(v->eos == -1 && v->bos == -1 && v->pad == -1);
    CHECK_STR(v->pre, "qwen2");
    CHECK_STR(v->chat_template, "");
    vocab_hf_close(&v);
    CHECK(!v);
}

TEST(merges_as_pairs_and_escapes)
{
    struct vocab *v;
    struct pv_error err;

    if (!CHECK_MSG(!parse(&v,
                          "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"\\u0120\":0,\"\\\"\":1,"
                          "\"\\u0120\\\"\":2},\"merges\":[[\"\\u0120\",\"\\\"\"]]}}",
                          &err),
                   "%s", err.text))
        return;
    CHECK(is_str(v->token[0], "\xc4\xa0"));
    CHECK(is_str(v->merge[0], "\xc4\xa0 \""));
    vocab_hf_close(&v);
}

/* An added token may be one of the vocabulary. */
TEST(added_in_vocabulary)
{
    struct vocab *v;
    struct pv_error err;

    if (!CHECK_MSG(!parse(&v,
                          "{" NORMALIZER PRE "\"added_tokens\":[{\"id\":1,\"content\":\"b\","
                          "\"special\":true}]," MODEL "}",
                          &err),
                   "%s", err.text))
        return;
    CHECK_EQ(v->n_tokens, 3);
    CHECK_EQ(v->kind[1], TOKEN_CONTROL);
    vocab_hf_close(&v);
}

struct bad_case {
    const char *json;
    enum pv_status status;
    const char *text; /* must be in the message */
};

static const struct bad_case bad_files[] = {
    { "", PV_E_FORMAT, "JSON" },
    { "[]", PV_E_FORMAT, "object" },
    { "{", PV_E_FORMAT, "JSON" },
    { "{\"a\":\"\xff\"}", PV_E_FORMAT, "JSON" },
    { "{}", PV_E_FORMAT, "vocab" },
    { "{" PRE MODEL "}", PV_E_UNSUPPORTED, "NFC" },
    { "{\"normalizer\":{\"type\":\"NFKC\"}," PRE MODEL "}", PV_E_UNSUPPORTED, "NFC" },
    { "{" NORMALIZER MODEL "}", PV_E_UNSUPPORTED, "pre_tokenizer" },
    { "{" NORMALIZER PRE_WITH("\\\\w+", BYTE_LEVEL) MODEL "}", PV_E_UNSUPPORTED, "split rule" },
    { "{" NORMALIZER PRE_WITH(SPLIT, "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                                     "\"use_regex\":false}") MODEL "}",
      PV_E_UNSUPPORTED, "prefix space" },
    { "{" NORMALIZER PRE_WITH(SPLIT, "{\"type\":\"Metaspace\"}") MODEL "}", PV_E_UNSUPPORTED,
      "ByteLevel" },
    { "{" NORMALIZER PRE "\"post_processor\":{\"type\":\"TemplateProcessing\"}," MODEL "}",
      PV_E_UNSUPPORTED, "post_processor" },
    { "{" NORMALIZER PRE "\"model\":{\"type\":\"WordPiece\",\"vocab\":{},\"merges\":[]}}",
      PV_E_UNSUPPORTED, "BPE" },
    { "{" NORMALIZER PRE "\"model\":{\"byte_fallback\":true,\"vocab\":{},\"merges\":[]}}",
      PV_E_UNSUPPORTED, "byte_fallback" },
    { "{" NORMALIZER PRE "\"model\":{\"ignore_merges\":true,\"vocab\":{},\"merges\":[]}}",
      PV_E_UNSUPPORTED, "ignore_merges" },
    { "{" NORMALIZER PRE "\"model\":{\"end_of_word_suffix\":\"</w>\",\"vocab\":{},\"merges\":[]}}",
      PV_E_UNSUPPORTED, "end_of_word_suffix" },
    { "{" NORMALIZER PRE "\"model\":{\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}",
      PV_E_UNSUPPORTED, "dropout" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{},\"merges\":[]}}", PV_E_FORMAT, "no token" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", PV_E_FORMAT,
      "id 0 is given to two" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", PV_E_FORMAT,
      "duplicate" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", PV_E_FORMAT, "-1" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"a\":4194304},\"merges\":[]}}", PV_E_FORMAT,
      "4194304" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}", PV_E_FORMAT,
      "integer" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", PV_E_FORMAT,
      "merge 0" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"b c\"]]}}",
      PV_E_FORMAT, "merge 0" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"\"]]}}", PV_E_FORMAT,
      "merge 0" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", PV_E_FORMAT,
      "merge 0" },
    { "{" NORMALIZER PRE "\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}}", PV_E_FORMAT,
      "merge 0" },
    { "{" NORMALIZER PRE "\"added_tokens\":[{\"content\":\"x\"}]," MODEL "}", PV_E_FORMAT, "id" },
    { "{" NORMALIZER PRE "\"added_tokens\":[{\"id\":9,\"content\":\"\"}]," MODEL "}", PV_E_FORMAT,
      "content" },
    { "{" NORMALIZER PRE "\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]," MODEL "}", PV_E_FORMAT,
      "id 1" },
    { "{" NORMALIZER PRE "\"added_tokens\":[{\"id\":9,\"content\":\"x\",\"lstrip\":true}]," MODEL
      "}",
      PV_E_UNSUPPORTED, "lstrip" },
    { "{" NORMALIZER PRE "\"added_tokens\":[{\"id\":9,\"content\":\"\xc3\xa9\",\"normalized\":"
      "true}]," MODEL "}",
      PV_E_UNSUPPORTED, "normalized" },
};

TEST(bad_tokenizer_json)
{
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        struct vocab *v;
        struct pv_error err;
        enum pv_status s = parse(&v, bad_files[i].json, &err);
        CHECK_MSG(s == bad_files[i].status && strstr(err.text, bad_files[i].text) &&
                      strncmp(err.text, "t.json: ", 8) == 0,
                  "file %zu: status %d, \"%s\"", i, s, err.text);
        CHECK(!v);
    }
}

TEST(too_many_values)
{
    size_t n = (8 << 20) + 2;
    char *json = malloc(n);
    struct vocab *v = NULL;
    struct pv_error err = { 0 };

    if (!CHECK(json))
        return;
    memset(json, '[', n);
    CHECK_EQ(vocab_hf_parse(&v, json, n, "t.json", &err), PV_E_LIMIT);
    CHECK_EQ(vocab_hf_parse(&v, json, 1 << 20, "t.json", NULL), PV_E_FORMAT); /* too deep */
    free(json);
}

/* vocab.json with merges.txt must give what tokenizer.json gives. */
TEST(old_form)
{
    const char *dir = fresh_dir("old");
    struct vocab *a = NULL, *b = NULL;
    struct pv_error err = { 0 };

    file_copy(dir, "vocab.json");
    file_copy(dir, "merges.txt");
    file_copy(dir, "tokenizer_config.json");
    if (CHECK_MSG(!vocab_hf_open(&a, golden_dir, &err) && !vocab_hf_open(&b, dir, &err), "%s",
                  err.text)) {
        CHECK_EQ(a->n_tokens, b->n_tokens);
        CHECK_EQ(a->n_merges, b->n_merges);
        for (int i = 0; i < a->n_tokens && i < b->n_tokens; i++)
            CHECK(a->token[i].len == b->token[i].len && a->kind[i] == b->kind[i] &&
                  memcmp(a->token[i].s, b->token[i].s, a->token[i].len) == 0);
        for (int i = 0; i < a->n_merges && i < b->n_merges; i++)
            CHECK(a->merge[i].len == b->merge[i].len &&
                  memcmp(a->merge[i].s, b->merge[i].s, a->merge[i].len) == 0);
        CHECK(is_str(b->token[b->eos], "<|im_end|>"));
        CHECK(is_str(b->token[b->pad], "<|endoftext|>"));
        CHECK_EQ(b->bos, -1);
        CHECK_EQ(a->eos, b->eos);
        CHECK(strstr(b->chat_template, "<|im_start|>assistant") != NULL);
    }
    vocab_hf_close(&a);
    vocab_hf_close(&b);
}

TEST(merges_txt)
{
    const char *dir = fresh_dir("merges");
    struct vocab *v = NULL;
    struct pv_error err = { 0 };

    file_write(dir, "vocab.json", "{\"#\":0,\"##\":1,\"a\":2,\"#a\":3}");
    CHECK_EQ(vocab_hf_open(&v, dir, &err), PV_E_FORMAT);
    CHECK_MSG(strstr(err.text, "merges.txt"), "%s", err.text);
    /* "# #" is a merge, not a comment; lines may end as on Windows. */
    file_write(dir, "merges.txt", "#version: 0.2\r\n# #\r\n\n# a");
    err = (struct pv_error){ 0 };
    if (CHECK_MSG(!vocab_hf_open(&v, dir, &err), "%s", err.text)) {
        CHECK_EQ(v->n_merges, 2);
        CHECK(is_str(v->merge[0], "# #") && is_str(v->merge[1], "# a"));
        vocab_hf_close(&v);
    }
    file_write(dir, "merges.txt", "# \xff");
    CHECK_EQ(vocab_hf_open(&v, dir, &err), PV_E_FORMAT);
    CHECK_MSG(strstr(err.text, "UTF-8"), "%s", err.text);
    err = (struct pv_error){ 0 };
    file_write(dir, "merges.txt", "one two three");
    CHECK_EQ(vocab_hf_open(&v, dir, &err), PV_E_FORMAT);
    file_write(dir, "merges.txt", "");
    file_write(dir, "tokenizer_config.json", "{\"tokenizer_class\":\"GPT2Tokenizer\"}");
    err = (struct pv_error){ 0 };
    CHECK_EQ(vocab_hf_open(&v, dir, &err), PV_E_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "tokenizer_class"), "%s", err.text);
}

static void check_template(const char *dir, const char *want)
{
    struct vocab *v = NULL;
    struct pv_error err = { 0 };
    if (CHECK_MSG(!vocab_hf_open(&v, dir, &err), "%s", err.text))
        CHECK_STR(v->chat_template, want);
    vocab_hf_close(&v);
}

TEST(side_files)
{
    const char *dir = fresh_dir("sides");
    struct vocab *v = NULL;
    struct pv_error err = { 0 };

    CHECK_EQ(vocab_hf_open(&v, dir, &err), PV_OK);
    CHECK(!v);
    file_write(dir, "tokenizer.json", GOOD);
    check_template(dir, "");
    file_write(dir, "tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"tool\",\"template\":\"no\"},"
               "{\"name\":\"default\",\"template\":\"one\"}],\"eos_token\":{\"content\":\"<e>\"},"
               "\"bos_token\":\"<absent>\",\"added_tokens_decoder\":{\"3\":{\"content\":\"<e>\","
               "\"special\":true},\"7\":{\"content\":\"<late>\",\"special\":true}}}");
    check_template(dir, "one");
    if (CHECK_EQ(vocab_hf_open(&v, dir, &err), PV_OK)) {
        CHECK_EQ(v->eos, 3);
        CHECK_EQ(v->bos, -1);
        CHECK_EQ(v->n_tokens, 8);
        CHECK(v->kind[6] == TOKEN_UNUSED && v->kind[7] == TOKEN_CONTROL);
        vocab_hf_close(&v);
    }
    file_write(dir, "chat_template.json", "{\"chat_template\":\"two\"}");
    check_template(dir, "two");
    file_write(dir, "chat_template.jinja", "three\n");
    check_template(dir, "three\n");
    file_write(dir, "chat_template.jinja", "\xff");
    CHECK_EQ(vocab_hf_open(&v, dir, &err), PV_E_FORMAT);
    CHECK_MSG(strstr(err.text, "chat_template.jinja"), "%s", err.text);
    file_write(dir, "chat_template.jinja", "");
    check_template(dir, "two");
    file_write(dir, "tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{}}}");
    CHECK_EQ(vocab_hf_open(&v, dir, NULL), PV_E_FORMAT);
    file_write(dir, "tokenizer_config.json",
               "{\"added_tokens_decoder\":{\"0\":{\"content\":\"z\"}}}");
    CHECK_EQ(vocab_hf_open(&v, dir, NULL), PV_E_FORMAT);
}

TEST(every_allocation_may_fail)
{
    int failures = 0;

    for (uint64_t k = 1; k < 1000; k++) {
        struct vocab *v = NULL;
        struct pv_error err = { 0 };
        enum pv_status s;
        mem_fail_at(k);
        s = vocab_hf_open(&v, golden_dir, &err);
        mem_fail_at(0);
        vocab_hf_close(&v);
        if (s == PV_OK)
            break;
        failures++;
        CHECK_MSG(s == PV_E_NOMEM, "allocation %d: %s", (int)k, err.text);
    }
    CHECK(failures > 5 && failures < 999);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
