/* Reading the tokenizer of a Hugging Face directory (spec of tokenizer.json as written by the
 * tokenizers library). The file describes a pipeline of many possible parts; ours is one pipeline,
 * Qwen2's, so every part is checked to be the one we have, and anything else is refused by name.
 *
 * The files are untrusted: sizes, counts, ids and nesting are bounded before they cost memory, and
 * their strings stay out of our error messages. */
#include "format/vocab_hf.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/json_hf.h"
#include "format/vocab_build_hf.h"

#include <string.h>

enum { MAX_VALUES = 1 << 23 }; /* JSON values in one file: bounds the memory of its tree */

static const char split_regex[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{"
                                  "N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
                                  "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* --- JSON ----------------------------------------------------------------------------------- */

static bool is_type(const json_t *object, const char *type)
{
    return strcmp(json_hf_text(object, "type"), type) == 0;
}

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

static enum pv_status json_read(json_t **out, const char *text, size_t len, const char *where,
                                struct pv_error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += text[i] == ',' || text[i] == ':' || text[i] == '[' || text[i] == '{';
    if (n > MAX_VALUES)
        return fail(err, PV_E_LIMIT, "%s: more than %d JSON values", where, MAX_VALUES);
    return json_hf_parse(out, text, len, where, err);
}

/* DIR/NAME as JSON; *out is NULL when there is no such file. */
static enum pv_status json_file(json_t **out, const char *path, struct pv_error *err)
{
    struct file_map map;
    enum pv_status s;

    *out = NULL;
    if (!file_exists(path))
        return PV_OK;
    s = file_map_open(&map, path, VOCAB_HF_MAX_FILE, err);
    if (s)
        return s;
    s = json_read(out, (const char *)map.data, map.size, path, err);
    file_map_close(&map);
    return s;
}

/* --- the pipeline --------------------------------------------------------------------------- */

/* The only element of a Sequence, or the thing itself. */
static const json_t *unwrap(const json_t *part, const char *list)
{
    const json_t *items = json_object_get(part, list);

    if (is_type(part, "Sequence") && json_array_size(items) == 1)
        return json_array_get(items, 0);
    return part;
}

static enum pv_status check_normalizer(const json_t *root, const char *where, struct pv_error *err)
{
    const json_t *n = unwrap(json_object_get(root, "normalizer"), "normalizers");

    if (!is_type(n, "NFC"))
        return fail(err, PV_E_UNSUPPORTED, "%s: the normalizer is not NFC, Qwen2's", where);
    return PV_OK;
}

static enum pv_status check_split(const json_t *root, const char *where, struct pv_error *err)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const json_t *items = json_object_get(pre, "pretokenizers");
    const json_t *split = json_array_get(items, 0), *bytes = json_array_get(items, 1);
    const char *regex = json_hf_text(json_object_get(split, "pattern"), "Regex");

    if (!is_type(pre, "Sequence") || json_array_size(items) != 2 || !is_type(split, "Split") ||
        !is_type(bytes, "ByteLevel"))
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: the pre_tokenizer is not Qwen2's Split followed by ByteLevel", where);
    if (strcmp(regex, split_regex) != 0 ||
        strcmp(json_hf_text(split, "behavior"), "Isolated") != 0 ||
        json_is_true(json_object_get(split, "invert")))
        return fail(err, PV_E_UNSUPPORTED, "%s: the split rule is not Qwen2's", where);
    if (json_is_true(json_object_get(bytes, "add_prefix_space")) ||
        !json_is_false(json_object_get(bytes, "use_regex")))
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: ByteLevel adds a prefix space or splits once more, Qwen2's does not",
                    where);
    return PV_OK;
}

static enum pv_status check_model(const json_t *model, const char *where, struct pv_error *err)
{
    static const char *const off[] = { "byte_fallback", "ignore_merges" };
    static const char *const empty[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    const json_t *dropout = json_object_get(model, "dropout");

    if (!is_absent(json_object_get(model, "type")) && !is_type(model, "BPE"))
        return fail(err, PV_E_UNSUPPORTED, "%s: the model is not BPE", where);
    if (!json_is_object(json_object_get(model, "vocab")) ||
        !json_is_array(json_object_get(model, "merges")))
        return fail(err, PV_E_FORMAT, "%s: the model has no vocab object or no merges array",
                    where);
    for (int i = 0; i < 2; i++)
        if (json_is_true(json_object_get(model, off[i])) || json_hf_text(model, empty[i])[0])
            return fail(err, PV_E_UNSUPPORTED, "%s: the model's %s is set, Qwen2's is not", where,
                        json_is_true(json_object_get(model, off[i])) ? off[i] : empty[i]);
    if (!is_absent(dropout) && json_number_value(dropout) != 0)
        return fail(err, PV_E_UNSUPPORTED, "%s: the model's dropout is set, Qwen2's is not", where);
    return PV_OK;
}

/* What writes tokens around a text: nothing, ByteLevel, or (as transformers 5 writes it) a template
 * that is the text alone. */
static bool adds_nothing(const json_t *post)
{
    const json_t *single = json_object_get(post, "single");

    if (is_absent(post) || is_type(post, "ByteLevel"))
        return true;
    return is_type(post, "TemplateProcessing") && json_array_size(single) == 1 &&
           json_is_object(json_object_get(json_array_get(single, 0), "Sequence"));
}

static enum pv_status check_pipeline(const json_t *root, const char *where, struct pv_error *err)
{
    const json_t *post = json_object_get(root, "post_processor");
    enum pv_status s = check_model(json_object_get(root, "model"), where, err);

    if (s == PV_OK)
        s = check_normalizer(root, where, err);
    if (s == PV_OK)
        s = check_split(root, where, err);
    if (s == PV_OK && !adds_nothing(post))
        s = fail(err, PV_E_UNSUPPORTED,
                 "%s: the post_processor adds tokens to the text, Qwen2's does not", where);
    return s;
}

/* --- tokens and merges ---------------------------------------------------------------------- */

static enum pv_status read_vocab(struct vocab_build *b, json_t *vocab, const char *where,
                                 struct pv_error *err)
{
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        const char *spelling = json_object_iter_key(it);
        const json_t *id = json_object_iter_value(it);
        enum pv_status s;
        if (!json_is_integer(id))
            return fail(err, PV_E_FORMAT, "%s: a token's id is not an integer", where);
        s = vocab_build_token(b, json_integer_value(id), spelling, strlen(spelling), TOKEN_NORMAL,
                              where, err);
        if (s)
            return s;
    }
    return PV_OK;
}

/* "left right" in old files, ["left", "right"] in new ones. */
static enum pv_status read_merge(struct vocab_build *b, const json_t *m, const char *where,
                                 struct pv_error *err)
{
    const char *left = json_string_value(json_is_string(m) ? m : json_array_get(m, 0));
    const char *right = json_string_value(json_array_get(m, 1));
    size_t n_left, n_right, n;
    char *text;

    if (!left || (json_is_array(m) && (json_array_size(m) != 2 || !right)))
        return fail(err, PV_E_FORMAT, "%s: merge %d is neither a string nor two strings", where,
                    b->v.n_merges);
    n_left = strlen(left);
    n_right = right ? strlen(right) + 1 : 0; /* with the space */
    if (!add_size(n_left, n_right, &n) || n > UINT32_MAX)
        return fail(err, PV_E_LIMIT, "%s: merge %d is too long", where, b->v.n_merges);
    text = vocab_build_room(b, n, err);
    if (!text)
        return PV_E_NOMEM;
    memcpy(text, left, n_left);
    if (right) {
        text[n_left] = ' ';
        memcpy(text + n_left + 1, right, n_right - 1);
    }
    return vocab_build_merge(b, (struct str){ text, (uint32_t)n }, where, err);
}

static bool is_ascii(const char *s)
{
    while (*s && (unsigned char)*s < 0x80)
        s++;
    return *s == 0;
}

/* An added token as both tokenizer.json and tokenizer_config.json describe it. */
static enum pv_status read_added(struct vocab_build *b, long long id, const json_t *token,
                                 const char *where, struct pv_error *err)
{
    static const char *const off[] = { "single_word", "lstrip", "rstrip" };
    const json_t *content = json_object_get(token, "content");
    bool special = json_is_true(json_object_get(token, "special"));

    if (!json_is_string(content) || json_string_length(content) == 0)
        return fail(err, PV_E_FORMAT, "%s: added token %lld has no content", where, id);
    for (int i = 0; i < 3; i++)
        if (json_is_true(json_object_get(token, off[i])))
            return fail(err, PV_E_UNSUPPORTED, "%s: added token %lld has %s set", where, id,
                        off[i]);
    /* Ours are found in the raw text. For ASCII that is the same as in normalised text, unless a
     * combining mark follows. */
    if (json_is_true(json_object_get(token, "normalized")) && !is_ascii(json_string_value(content)))
        return fail(err, PV_E_UNSUPPORTED, "%s: added token %lld is normalized and not ASCII",
                    where, id);
    return vocab_build_token(b, id, json_string_value(content), json_string_length(content),
                             special ? TOKEN_CONTROL : TOKEN_ADDED, where, err);
}

static enum pv_status read_tokenizer(struct vocab_build *b, const json_t *root, const char *where,
                                     struct pv_error *err)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *merges = json_object_get(model, "merges");
    const json_t *added = json_object_get(root, "added_tokens");
    enum pv_status s = check_pipeline(root, where, err);

    if (s == PV_OK)
        s = read_vocab(b, json_object_get(model, "vocab"), where, err);
    for (size_t i = 0; i < json_array_size(merges) && s == PV_OK; i++)
        s = read_merge(b, json_array_get(merges, i), where, err);
    for (size_t i = 0; i < json_array_size(added) && s == PV_OK; i++) {
        const json_t *token = json_array_get(added, i), *id = json_object_get(token, "id");
        s = json_is_integer(id) ? read_added(b, json_integer_value(id), token, where, err)
                                : fail(err, PV_E_FORMAT, "%s: an added token has no id", where);
    }
    return s;
}

/* merges.txt: one merge a line in order of rank, perhaps after a "#version" line. */
static enum pv_status read_merges_txt(struct vocab_build *b, const char *path, struct pv_error *err)
{
    struct file_map map;
    const char *text, *end;
    char *copy;
    enum pv_status s = file_map_open(&map, path, VOCAB_HF_MAX_FILE, err);

    if (s)
        return s;
    text = (const char *)map.data;
    copy = map.size ? vocab_build_room(b, map.size, err) : NULL;
    if (map.size && !copy)
        s = PV_E_NOMEM;
    else if (map.size && !utf8_valid(text, map.size))
        s = fail(err, PV_E_FORMAT, "%s: not UTF-8", path);
    else if (map.size)
        memcpy(copy, text, map.size);
    end = copy ? copy + map.size : NULL;
    for (const char *line = copy, *next; line < end && s == PV_OK; line = next) {
        const char *eol = memchr(line, '\n', (size_t)(end - line));
        size_t len = (size_t)((eol ? eol : end) - line);
        next = eol ? eol + 1 : end;
        if (len > 0 && line[len - 1] == '\r')
            len--;
        if (len == 0 || (len >= 8 && memcmp(line, "#version", 8) == 0))
            continue;
        s = vocab_build_merge(b, (struct str){ line, (uint32_t)len }, path, err);
    }
    file_map_close(&map);
    return s;
}

/* --- tokenizer_config.json and the chat template -------------------------------------------- */

/* Added tokens by id; a tokenizer.json has most of them already. */
static enum pv_status read_decoder(struct vocab_build *b, json_t *decoder, const char *where,
                                   struct pv_error *err)
{
    for (void *it = json_object_iter(decoder); it; it = json_object_iter_next(decoder, it)) {
        const char *key = json_object_iter_key(it);
        long long id = 0;
        enum pv_status s;
        size_t n = strspn(key, "0123456789");
        if (n == 0 || n > 9 || key[n])
            return fail(err, PV_E_FORMAT, "%s: a key of added_tokens_decoder is not an id", where);
        for (size_t i = 0; i < n; i++)
            id = id * 10 + (key[i] - '0');
        s = read_added(b, id, json_object_iter_value(it), where, err);
        if (s)
            return s;
    }
    return PV_OK;
}

/* The id of "eos_token" and its like: a string, or an object with "content". */
static int32_t named_token(const struct vocab_build *b, const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);

    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (!json_is_string(value))
        return -1;
    return vocab_build_find(b, json_string_value(value), json_string_length(value));
}

/* "chat_template" is a string, or a list of { name, template } of which "default" is ours. */
static enum pv_status read_template(struct vocab_build *b, const json_t *object, const char *where,
                                    struct pv_error *err)
{
    const json_t *value = json_object_get(object, "chat_template");

    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (strcmp(json_hf_text(item, "name"), "default") == 0) {
            value = json_object_get(item, "template");
            break;
        }
    }
    if (!json_is_string(value))
        return PV_OK;
    return vocab_build_template(b, json_string_value(value), json_string_length(value), where, err);
}

static enum pv_status read_config(struct vocab_build *b, json_t *config, bool need_class,
                                  const char *where, struct pv_error *err)
{
    const char *class = json_hf_text(config, "tokenizer_class");
    enum pv_status s;

    /* Without tokenizer.json nothing but this name tells the split rule. */
    if (need_class && class[0] && strcmp(class, "Qwen2Tokenizer") != 0 &&
        strcmp(class, "Qwen2TokenizerFast") != 0)
        return fail(err, PV_E_UNSUPPORTED, "%s: tokenizer_class is not Qwen2Tokenizer", where);
    s = read_decoder(b, json_object_get(config, "added_tokens_decoder"), where, err);
    if (s)
        return s;
    b->v.eos = named_token(b, config, "eos_token");
    b->v.bos = named_token(b, config, "bos_token");
    b->v.pad = named_token(b, config, "pad_token");
    return read_template(b, config, where, err);
}

/* --- the directory -------------------------------------------------------------------------- */

/* Paths of the files that matter. */
enum side_file {
    SIDE_TOKENIZER,
    SIDE_VOCAB,
    SIDE_MERGES,
    SIDE_CONFIG,
    SIDE_TEMPLATE_JSON,
    SIDE_TEMPLATE_JINJA,
    N_SIDE_FILES
};

static enum pv_status read_vocabulary(struct vocab_build *b, char *const *path,
                                      struct pv_error *err)
{
    bool whole = file_exists(path[SIDE_TOKENIZER]);
    const char *where = path[whole ? SIDE_TOKENIZER : SIDE_VOCAB];
    json_t *root = NULL;
    enum pv_status s;

    if (!whole && !file_exists(path[SIDE_MERGES]))
        return fail(err, PV_E_FORMAT, "%s: there is no merges.txt beside it", where);
    s = json_file(&root, where, err);
    if (s == PV_OK)
        s = whole ? read_tokenizer(b, root, where, err) : read_vocab(b, root, where, err);
    json_decref(root);
    if (s == PV_OK && !whole)
        s = read_merges_txt(b, path[SIDE_MERGES], err);
    return s;
}

static enum pv_status read_sides(struct vocab_build *b, char *const *path, struct pv_error *err)
{
    struct file_map map;
    json_t *root = NULL;
    enum pv_status s = json_file(&root, path[SIDE_CONFIG], err);

    if (s == PV_OK && root)
        s = read_config(b, root, !file_exists(path[SIDE_TOKENIZER]), path[SIDE_CONFIG], err);
    json_decref(root);
    root = NULL;
    /* A template in a file of its own goes before the one in the configuration. */
    if (s == PV_OK)
        s = json_file(&root, path[SIDE_TEMPLATE_JSON], err);
    if (s == PV_OK && root)
        s = read_template(b, root, path[SIDE_TEMPLATE_JSON], err);
    json_decref(root);
    if (s || !file_exists(path[SIDE_TEMPLATE_JINJA]))
        return s;
    s = file_map_open(&map, path[SIDE_TEMPLATE_JINJA], VOCAB_HF_MAX_FILE, err);
    if (s)
        return s;
    s = vocab_build_template(b, (const char *)map.data, map.size, path[SIDE_TEMPLATE_JINJA], err);
    file_map_close(&map);
    return s;
}

static enum pv_status read_all(struct vocab **out, char *const *path, struct pv_error *err)
{
    struct vocab_build *b;
    enum pv_status s = vocab_build_open(&b, err);

    if (s)
        return s;
    s = read_vocabulary(b, path, err);
    if (s == PV_OK)
        s = read_sides(b, path, err);
    if (s == PV_OK && b->v.n_tokens == 0)
        s = fail(err, PV_E_FORMAT, "%s: the vocabulary has no token",
                 path[file_exists(path[SIDE_TOKENIZER]) ? SIDE_TOKENIZER : SIDE_VOCAB]);
    if (s) {
        vocab_build_close(&b);
        return s;
    }
    *out = &b->v;
    return PV_OK;
}

enum pv_status vocab_hf_open(struct vocab **out, const char *dir, struct pv_error *err)
{
    static const char *const names[N_SIDE_FILES] = { "tokenizer.json",     "vocab.json",
                                                     "merges.txt",         "tokenizer_config.json",
                                                     "chat_template.json", "chat_template.jinja" };
    char *path[N_SIDE_FILES] = { NULL };
    enum pv_status s = PV_OK;

    for (int i = 0; i < N_SIDE_FILES && s == PV_OK; i++) {
        path[i] = path_join(dir, names[i]);
        if (!path[i])
            s = fail_nomem(err, strlen(dir) + strlen(names[i]));
    }
    if (s == PV_OK && !file_exists(path[SIDE_TOKENIZER]) && !file_exists(path[SIDE_VOCAB]))
        *out = NULL;
    else if (s == PV_OK)
        s = read_all(out, path, err);
    for (int i = 0; i < N_SIDE_FILES; i++)
        mem_free(path[i]);
    return s;
}

enum pv_status vocab_hf_parse(struct vocab **out, const char *json, size_t len, const char *where,
                              struct pv_error *err)
{
    struct vocab_build *b;
    json_t *root;
    enum pv_status s = json_read(&root, json, len, where, err);

    if (s)
        return s;
    s = vocab_build_open(&b, err);
    if (s == PV_OK) {
        s = read_tokenizer(b, root, where, err);
        if (s == PV_OK && b->v.n_tokens == 0)
            s = fail(err, PV_E_FORMAT, "%s: the vocabulary has no token", where);
        if (s)
            vocab_build_close(&b);
        else
            *out = &b->v;
    }
    json_decref(root);
    return s;
}

void vocab_hf_close(struct vocab **v)
{
    struct vocab_build *b = (struct vocab_build *)*v; /* v is its first member */

    vocab_build_close(&b);
    *v = NULL;
}
