/* The tokenizer: added tokens are cut out of the raw text, what lies between is normalised (nfc.c),
 * split (split.c) and merged (bpe.c).
 *
 * Tokens are spelled in "byte characters": each of the 256 bytes is written as one printable
 * character, itself where it is printable in Latin-1, else the next free one from U+0100. The
 * spelling is needed only here, at opening: to find the tokens that merges name, and to write down
 * the raw bytes of each token. Encoding works on ids. */
#include "text/tokenizer.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/split.h"

#include <stdlib.h>
#include <string.h>

enum { N_BYTE_CHARS = 0x144 }; /* byte characters are all below this code point */

struct tokenizer {
    const struct vocab *vocab; /* borrowed */
    struct bpe bpe;
    struct splitter *splitter;
    int32_t *slot; /* hash table of spellings: id, -1 empty */
    size_t mask;
    char *bytes;        /* raw bytes of all tokens, one after the other */
    size_t *bytes_from; /* [n_tokens + 1] */
    int32_t *added;     /* ids of added and control tokens, sorted by spelling */
    int n_added;
    bool starts_added[256]; /* an added token begins with this byte */
};

/* What one call of tokenizer_encode works with. */
struct encoder {
    const struct tokenizer *t;
    struct split_match *match;
    struct nfc nfc;
    struct bpe_work work;
    struct id_sink sink;
};

/* --- byte characters ------------------------------------------------------------------------ */

static bool byte_is_printable(int b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

/* byte_of[character] = byte, -1: no byte character; char_of[byte] = character. */
static void byte_chars_init(int16_t byte_of[N_BYTE_CHARS], uint32_t char_of[256])
{
    uint32_t next = 0x100;

    for (int i = 0; i < N_BYTE_CHARS; i++)
        byte_of[i] = -1;
    for (int b = 0; b < 256; b++) {
        char_of[b] = byte_is_printable(b) ? (uint32_t)b : next++;
        byte_of[char_of[b]] = (int16_t)b;
    }
}

/* Decode a spelling into out[len]. False when it has something else than byte characters. */
static bool spelling_decode(const int16_t *byte_of, struct str s, char *out, size_t *n_out)
{
    size_t i = 0, n = 0;

    while (i < s.len) {
        uint32_t cp = 0;
        int size = utf8_decode(s.s + i, s.len - i, &cp);
        if (size <= 0 || cp >= N_BYTE_CHARS || byte_of[cp] < 0)
            return false;
        out[n++] = (char)byte_of[cp];
        i += (size_t)size;
    }
    *n_out = n;
    return true;
}

static enum pv_status bytes_build(struct tokenizer *t, const int16_t *byte_of, struct pv_error *err)
{
    const struct vocab *v = t->vocab;
    size_t total = 0, at = 0, size = ((size_t)v->n_tokens + 1) * sizeof *t->bytes_from;

    for (int i = 0; i < v->n_tokens; i++)
        if (!add_size(total, v->token[i].len, &total))
            return fail_nomem(err, SIZE_MAX);
    t->bytes_from = mem_alloc(size);
    if (!t->bytes_from)
        return fail_nomem(err, size);
    t->bytes = mem_alloc(total);
    if (!t->bytes)
        return fail_nomem(err, total);
    for (int i = 0; i < v->n_tokens; i++) {
        struct str s = v->token[i];
        size_t n = 0;
        t->bytes_from[i] = at;
        /* Added tokens are plain text; so is, by its spelling, what no byte string spells. */
        if (v->kind[i] == TOKEN_UNUSED) {
            n = 0;
        } else if (v->kind[i] != TOKEN_NORMAL || !spelling_decode(byte_of, s, t->bytes + at, &n)) {
            n = s.len;
            if (n)
                memcpy(t->bytes + at, s.s, n);
        }
        at += n;
    }
    t->bytes_from[v->n_tokens] = at;
    return PV_OK;
}

/* --- spelling to id ------------------------------------------------------------------------- */

/* FNV-1a, continued from `h`: the spelling of a merged token is hashed in its two halves. */
static uint64_t hash_add(uint64_t h, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * UINT64_C(0x100000001b3);
    return h;
}

static bool spelled(struct str token, struct str a, struct str b)
{
    return token.len == (size_t)a.len + b.len && memcmp(token.s, a.s, a.len) == 0 &&
           memcmp(token.s + a.len, b.s, b.len) == 0;
}

/* Slot of the token spelled a then b, or the empty one where it would go. */
static int32_t *find_slot(const struct tokenizer *t, struct str a, struct str b)
{
    uint64_t h = hash_add(hash_add(UINT64_C(0xcbf29ce484222325), a.s, a.len), b.s, b.len);
    size_t i = (size_t)(h ^ h >> 29) & t->mask;

    while (t->slot[i] >= 0 && !spelled(t->vocab->token[t->slot[i]], a, b))
        i = (i + 1) & t->mask;
    return &t->slot[i];
}

static void slots_fill(struct tokenizer *t, bool normal)
{
    const struct vocab *v = t->vocab;

    for (int i = 0; i < v->n_tokens; i++) {
        int32_t *slot;
        if (v->kind[i] == TOKEN_UNUSED || (v->kind[i] == TOKEN_NORMAL) != normal ||
            v->token[i].len == 0)
            continue;
        slot = find_slot(t, v->token[i], (struct str){ "", 0 });
        if (*slot < 0)
            *slot = i;
    }
}

static enum pv_status slots_build(struct tokenizer *t, struct pv_error *err)
{
    size_t slots = 16, size;

    while (slots < (size_t)t->vocab->n_tokens * 2)
        slots *= 2;
    size = slots * sizeof *t->slot;
    t->slot = mem_alloc(size);
    if (!t->slot)
        return fail_nomem(err, size);
    memset(t->slot, 0xff, size);
    t->mask = slots - 1;
    /* Merges are between normal tokens, so these win where an added one has the same spelling. */
    slots_fill(t, true);
    slots_fill(t, false);
    return PV_OK;
}

/* --- merges --------------------------------------------------------------------------------- */

static enum pv_status merge_add(struct tokenizer *t, int rank, struct pv_error *err)
{
    static const char *const part[] = { "left half", "right half", "result" };
    struct str m = t->vocab->merge[rank], none = { "", 0 }, left, right;
    const char *space = m.len ? memchr(m.s, ' ', m.len) : NULL;
    int32_t ids[3];

    if (!space || space == m.s || space == m.s + m.len - 1 ||
        memchr(space + 1, ' ', (size_t)(m.s + m.len - space - 1)))
        return fail(err, PV_E_FORMAT, "vocabulary: merge %d is not two tokens with a space between",
                    rank);
    left = (struct str){ m.s, (uint32_t)(space - m.s) };
    right = (struct str){ space + 1, m.len - left.len - 1 };
    ids[0] = *find_slot(t, left, none);
    ids[1] = *find_slot(t, right, none);
    ids[2] = *find_slot(t, left, right);
    for (int i = 0; i < 3; i++)
        if (ids[i] < 0)
            return fail(err, PV_E_FORMAT,
                        "vocabulary: merge %d of %d: its %s is not among the %d tokens", rank,
                        t->vocab->n_merges, part[i], t->vocab->n_tokens);
    bpe_set(&t->bpe, rank, ids[0], ids[1], ids[2]);
    return PV_OK;
}

static enum pv_status merges_build(struct tokenizer *t, const uint32_t *char_of,
                                   struct pv_error *err)
{
    enum pv_status s = bpe_open(&t->bpe, t->vocab->n_merges, err);

    for (int b = 0; b < 256 && s == PV_OK; b++) {
        char c[4];
        struct str spelling = { c, (uint32_t)utf8_encode(c, char_of[b]) };
        t->bpe.byte_id[b] = *find_slot(t, spelling, (struct str){ "", 0 });
    }
    for (int i = 0; i < t->vocab->n_merges && s == PV_OK; i++)
        s = merge_add(t, i, err);
    return s;
}

/* --- added tokens --------------------------------------------------------------------------- */

struct spelled_id {
    struct str s;
    int32_t id;
};

static int compare_spelling(const void *pa, const void *pb)
{
    const struct spelled_id *a = pa, *b = pb;
    size_t n = a->s.len < b->s.len ? a->s.len : b->s.len;
    int c = memcmp(a->s.s, b->s.s, n);

    if (c == 0 && a->s.len != b->s.len)
        c = a->s.len < b->s.len ? -1 : 1;
    return c ? c : (a->id > b->id) - (a->id < b->id);
}

static bool is_added(const struct vocab *v, int id)
{
    return (v->kind[id] == TOKEN_ADDED || v->kind[id] == TOKEN_CONTROL) && v->token[id].len > 0;
}

static enum pv_status added_build(struct tokenizer *t, struct pv_error *err)
{
    const struct vocab *v = t->vocab;
    struct spelled_id *sorted;
    int n = 0;

    for (int i = 0; i < v->n_tokens; i++)
        n += is_added(v, i);
    sorted = mem_alloc((size_t)n * sizeof *sorted);
    t->added = mem_alloc((size_t)n * sizeof *t->added);
    if (!sorted || !t->added) {
        mem_free(sorted);
        return fail_nomem(err, (size_t)n * sizeof *sorted);
    }
    n = 0;
    for (int i = 0; i < v->n_tokens; i++)
        if (is_added(v, i))
            sorted[n++] = (struct spelled_id){ v->token[i], i };
    if (n)
        qsort(sorted, (size_t)n, sizeof *sorted, compare_spelling);
    for (int i = 0; i < n; i++) {
        t->added[i] = sorted[i].id;
        t->starts_added[(unsigned char)sorted[i].s.s[0]] = true;
    }
    t->n_added = n;
    mem_free(sorted);
    return PV_OK;
}

/* First of added[from..to) whose byte `at` is >= c; all of them are longer than `at`. */
static int added_bound(const struct tokenizer *t, int from, int to, size_t at, int c)
{
    while (from < to) {
        int mid = from + (to - from) / 2;
        if ((unsigned char)t->vocab->token[t->added[mid]].s[at] < c)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

/* The longest added token that the text begins with, -1: none. Byte by byte, the range of the
 * sorted spellings that agree with the text so far shrinks; a spelling that ends comes first. */
static int32_t added_match(const struct tokenizer *t, const char *s, size_t len, bool control,
                           size_t *match_len)
{
    const struct vocab *v = t->vocab;
    int from = 0, to = t->n_added;
    int32_t found = -1;

    if (!t->starts_added[(unsigned char)s[0]])
        return -1;
    for (size_t at = 0; from < to; at++) {
        while (from < to && v->token[t->added[from]].len == at) {
            if (control || v->kind[t->added[from]] != TOKEN_CONTROL) {
                found = t->added[from];
                *match_len = at;
            }
            from++;
        }
        if (at == len)
            break;
        from = added_bound(t, from, to, at, (unsigned char)s[at]);
        to = added_bound(t, from, to, at, (unsigned char)s[at] + 1);
    }
    return found;
}

/* --- opening -------------------------------------------------------------------------------- */

static enum pv_status tokenizer_build(struct tokenizer *t, struct pv_error *err)
{
    int16_t byte_of[N_BYTE_CHARS];
    uint32_t char_of[256];
    enum pv_status s;

    byte_chars_init(byte_of, char_of);
    s = splitter_open(&t->splitter, err);
    if (s == PV_OK)
        s = slots_build(t, err);
    if (s == PV_OK)
        s = merges_build(t, char_of, err);
    if (s == PV_OK)
        s = bytes_build(t, byte_of, err);
    if (s == PV_OK)
        s = added_build(t, err);
    return s;
}

enum pv_status tokenizer_open(struct tokenizer **out, const struct vocab *v, struct pv_error *err)
{
    struct tokenizer *t;
    enum pv_status s;

    if (!v->pre || strcmp(v->pre, "qwen2") != 0)
        return fail(err, PV_E_UNSUPPORTED,
                    "vocabulary: the split rule is \"%.32s\", only \"qwen2\" is known",
                    v->pre ? v->pre : "");
    t = mem_zalloc(sizeof *t);
    if (!t)
        return fail_nomem(err, sizeof *t);
    t->vocab = v;
    s = tokenizer_build(t, err);
    if (s) {
        tokenizer_close(&t);
        return s;
    }
    *out = t;
    return PV_OK;
}

void tokenizer_close(struct tokenizer **pt)
{
    struct tokenizer *t = *pt;

    if (!t)
        return;
    bpe_close(&t->bpe);
    splitter_close(&t->splitter);
    mem_free(t->slot);
    mem_free(t->bytes);
    mem_free(t->bytes_from);
    mem_free(t->added);
    mem_free(t);
    *pt = NULL;
}

/* --- use ------------------------------------------------------------------------------------ */

static enum pv_status encode_plain(struct encoder *e, const char *utf8, size_t len,
                                   struct pv_error *err)
{
    const char *text = utf8;
    size_t pos = 0, piece = 0;
    enum pv_status s;

    if (len == 0)
        return PV_OK;
    s = nfc_apply(&e->nfc, utf8, len, &text, &len, err);
    while (s == PV_OK && pos < len) {
        s = split_next(e->t->splitter, e->match, text, len, pos, &piece, err);
        if (s == PV_OK)
            s = bpe_encode(&e->t->bpe, &e->work, text + pos, piece, &e->sink, err);
        pos += piece;
    }
    return s;
}

static enum pv_status encode_text(struct encoder *e, const char *utf8, size_t len,
                                  bool parse_special, struct pv_error *err)
{
    size_t begin = 0, pos = 0, match_len = 0;
    enum pv_status s;

    while (pos < len) {
        int32_t id = added_match(e->t, utf8 + pos, len - pos, parse_special, &match_len);
        if (id < 0) {
            pos++;
            continue;
        }
        s = encode_plain(e, utf8 + begin, pos - begin, err);
        if (s)
            return s;
        sink_put(&e->sink, id);
        pos += match_len;
        begin = pos;
    }
    return encode_plain(e, utf8 + begin, len - begin, err);
}

enum pv_status tokenizer_encode(const struct tokenizer *t, const char *utf8, size_t len,
                                bool parse_special, int32_t *ids, size_t cap, size_t *n,
                                struct pv_error *err)
{
    struct encoder e = { .t = t, .sink = { .ids = ids, .cap = cap } };
    size_t good = utf8_prefix(utf8, len);
    enum pv_status s;

    if (good < len)
        return fail(err, PV_E_ARG, "the text is not UTF-8: byte 0x%02x at offset %zu of %zu",
                    (unsigned char)utf8[good], good, len);
    if (len > NFC_MAX_TEXT)
        return fail(err, PV_E_LIMIT, "a text of %zu bytes is longer than the limit of %d", len,
                    NFC_MAX_TEXT);
    s = split_match_open(&e.match, t->splitter, err);
    if (s)
        return s;
    nfc_init(&e.nfc);
    s = encode_text(&e, utf8, len, parse_special, err);
    if (s == PV_OK)
        *n = e.sink.n;
    nfc_clear(&e.nfc);
    bpe_work_clear(&e.work);
    split_match_close(&e.match);
    return s;
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len)
{
    if (id < 0 || id >= t->vocab->n_tokens)
        return NULL;
    *len = t->bytes_from[id + 1] - t->bytes_from[id];
    return t->bytes + t->bytes_from[id];
}

enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id)
{
    return id < 0 || id >= t->vocab->n_tokens ? TOKEN_UNUSED : (enum token_kind)t->vocab->kind[id];
}

int32_t tokenizer_find(const struct tokenizer *t, const char *spelling, size_t len)
{
    size_t match_len = 0;
    int32_t id = len ? added_match(t, spelling, len, true, &match_len) : -1;

    if (id >= 0 && match_len == len)
        return id;
    if (len == 0 || len > UINT32_MAX)
        return -1;
    return *find_slot(t, (struct str){ spelling, (uint32_t)len }, (struct str){ "", 0 });
}
