/* Normalisation form C (Unicode Standard Annex 15) on top of utf8proc's tables: decompose each
 * character, put combining marks in canonical order, compose.
 *
 * utf8proc's own driver orders marks by exchanging neighbours, which is quadratic in the length of
 * a run of marks, so the ordering is ours. Text is worked in segments: nothing composes across
 * the left side of an ASCII character, so ASCII is copied and only each stretch of other
 * characters, with the ASCII character before it, is decomposed.
 *
 * The result must be that of the library the models were trained with. Its tables are those of
 * Unicode 9 (found by comparing all characters), utf8proc's are newer: what has a combining class
 * or composes only since then stands alone, as characters that a table does not know do. */
#include "text/nfc.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

enum {
    MAX_DECOMPOSED = 16, /* characters one character decomposes to; 4 in Unicode 16 */
    SHORT_RUN = 16,      /* marks ordered by insertion */
    N_CLASSES = 256,     /* canonical combining classes */
};

/* First and last of the ranges of characters that neither move nor compose, in order. Those newer
 * than Unicode 15 are not in utf8proc 2.8 and wait for a later one. U+11A7 is here for another
 * reason: utf8proc takes this one for a Hangul final, and loses it. */
static const uint32_t alone[][2] = {
    { 0x7fd, 0x7fd },     { 0x897, 0x89f },     { 0x8ca, 0x8d3 },     { 0x9fe, 0x9fe },
    { 0xc3c, 0xc3c },     { 0xcf3, 0xcf3 },     { 0xd3b, 0xd3c },     { 0xeba, 0xeba },
    { 0xece, 0xece },     { 0x11a7, 0x11a7 },   { 0x1715, 0x1715 },   { 0x1abf, 0x1ace },
    { 0x1df6, 0x1dfa },   { 0xa82c, 0xa82c },   { 0x105d2, 0x105d2 }, { 0x105da, 0x105da },
    { 0x10d24, 0x10d27 }, { 0x10d69, 0x10d6d }, { 0x10eab, 0x10eac }, { 0x10efc, 0x10eff },
    { 0x10f46, 0x10f50 }, { 0x10f82, 0x10f85 }, { 0x11070, 0x11070 }, { 0x11241, 0x11241 },
    { 0x1133b, 0x1133b }, { 0x113b8, 0x113c0 }, { 0x113c2, 0x113c2 }, { 0x113c5, 0x113c5 },
    { 0x113c7, 0x113ca }, { 0x113cc, 0x113d0 }, { 0x113d2, 0x113d2 }, { 0x113e1, 0x113e2 },
    { 0x1145e, 0x1145e }, { 0x11839, 0x1183a }, { 0x11930, 0x11930 }, { 0x1193d, 0x1193e },
    { 0x11943, 0x11943 }, { 0x119e0, 0x119e0 }, { 0x11a34, 0x11a34 }, { 0x11a47, 0x11a47 },
    { 0x11a99, 0x11a99 }, { 0x11d42, 0x11d42 }, { 0x11d44, 0x11d45 }, { 0x11d97, 0x11d97 },
    { 0x11f00, 0x11f01 }, { 0x11f03, 0x11f03 }, { 0x11f34, 0x11f3a }, { 0x11f3e, 0x11f42 },
    { 0x11f5a, 0x11f5a }, { 0x13440, 0x13440 }, { 0x13447, 0x13455 }, { 0x1611e, 0x1612f },
    { 0x16d63, 0x16d6a }, { 0x16ff0, 0x16ff1 }, { 0x1e08f, 0x1e08f }, { 0x1e130, 0x1e136 },
    { 0x1e2ae, 0x1e2ae }, { 0x1e2ec, 0x1e2ef }, { 0x1e4ec, 0x1e4ef }, { 0x1e5ee, 0x1e5ef },
};

static bool stands_alone(uint32_t cp)
{
    size_t from = 0, to = sizeof alone / sizeof *alone;

    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if (cp < alone[mid][0])
            to = mid;
        else if (cp > alone[mid][1])
            from = mid + 1;
        else
            return true;
    }
    return false;
}

void nfc_init(struct nfc *n)
{
    *n = (struct nfc){ 0 };
    buf_init(&n->text, NFC_MAX_TEXT);
}

void nfc_clear(struct nfc *n)
{
    mem_free(n->cp);
    mem_free(n->sort);
    buf_clear(&n->text);
    nfc_init(n);
}

static enum pv_status reserve(int32_t **array, size_t *cap, size_t need, struct pv_error *err)
{
    size_t grown_cap = need > *cap * 2 ? need : *cap * 2, size;
    int32_t *grown;

    if (need <= *cap)
        return PV_OK;
    if (!mul_size(grown_cap, sizeof **array, &size))
        return fail_nomem(err, SIZE_MAX);
    grown = mem_realloc(*array, size);
    if (!grown)
        return fail_nomem(err, size);
    *array = grown;
    *cap = grown_cap;
    return PV_OK;
}

static int combining_class(int32_t cp)
{
    return utf8proc_get_property(cp)->combining_class;
}

static void order_short_run(int32_t *cp, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        int32_t mark = cp[i];
        int class = combining_class(mark);
        size_t j = i;
        while (j > 0 && combining_class(cp[j - 1]) > class) {
            cp[j] = cp[j - 1];
            j--;
        }
        cp[j] = mark;
    }
}

/* Stable counting sort by class. */
static enum pv_status order_long_run(struct nfc *n, int32_t *cp, size_t len, struct pv_error *err)
{
    size_t start[N_CLASSES + 1] = { 0 };
    enum pv_status s = reserve(&n->sort, &n->sort_cap, len, err);

    if (s)
        return s;
    for (size_t i = 0; i < len; i++)
        start[combining_class(cp[i]) + 1]++;
    for (int c = 0; c < N_CLASSES; c++)
        start[c + 1] += start[c];
    for (size_t i = 0; i < len; i++)
        n->sort[start[combining_class(cp[i])]++] = cp[i];
    memcpy(cp, n->sort, len * sizeof *cp);
    return PV_OK;
}

/* Canonical order: within each run of characters whose class is not 0, by class. */
static enum pv_status order_marks(struct nfc *n, struct pv_error *err)
{
    size_t i = 0;

    while (i < n->n) {
        size_t begin = i;
        enum pv_status s;
        while (i < n->n && combining_class(n->cp[i]) != 0)
            i++;
        if (i - begin <= SHORT_RUN) {
            order_short_run(n->cp + begin, i - begin);
        } else {
            s = order_long_run(n, n->cp + begin, i - begin, err);
            if (s)
                return s;
        }
        i++; /* the starter that ended the run */
    }
    return PV_OK;
}

static enum pv_status decompose(struct nfc *n, uint32_t cp, struct pv_error *err)
{
    int boundary = 0; /* utf8proc's state for grapheme breaks, not asked for */
    utf8proc_ssize_t got;
    enum pv_status s = reserve(&n->cp, &n->cap, n->n + MAX_DECOMPOSED, err);

    if (s)
        return s;
    got = utf8proc_decompose_char((int32_t)cp, n->cp + n->n, MAX_DECOMPOSED, UTF8PROC_DECOMPOSE,
                                  &boundary);
    if (got < 0 || got > MAX_DECOMPOSED)
        return fail(err, PV_E_FORMAT, "U+%04X cannot be normalised: %s", (unsigned)cp,
                    got < 0 ? utf8proc_errmsg(got) : "it decomposes to too many characters");
    n->n += (size_t)got;
    return PV_OK;
}

/* Add the composed segment to the text. */
static void compose(struct nfc *n)
{
    utf8proc_ssize_t len =
        utf8proc_normalize_utf32(n->cp, (utf8proc_ssize_t)n->n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < len; i++) {
        char c[4];
        buf_add(&n->text, c, (size_t)utf8_encode(c, (uint32_t)n->cp[i]));
    }
}

/* One segment from utf8[*pos]: a character, and all after it up to the next that is ASCII or
 * stands alone. */
static enum pv_status apply_segment(struct nfc *n, const char *utf8, size_t len, size_t *pos,
                                    struct pv_error *err)
{
    size_t begin = *pos;
    bool lone = false;
    enum pv_status s;

    n->n = 0;
    do {
        uint32_t cp = 0;
        int size = utf8_decode(utf8 + *pos, len - *pos, &cp);
        if (size <= 0)
            return fail(err, PV_E_ARG, "the text is not UTF-8 at byte %zu", *pos);
        lone = stands_alone(cp);
        if (lone && *pos > begin)
            break;
        s = decompose(n, cp, err);
        if (s)
            return s;
        *pos += (size_t)size;
    } while (!lone && *pos < len && (unsigned char)utf8[*pos] >= 0x80);
    s = order_marks(n, err);
    if (s == PV_OK)
        compose(n);
    return s;
}

static size_t ascii_prefix(const char *s, size_t len)
{
    size_t i = 0;
    while (i < len && (unsigned char)s[i] < 0x80)
        i++;
    return i;
}

enum pv_status nfc_apply(struct nfc *n, const char *utf8, size_t len, const char **out,
                         size_t *out_len, struct pv_error *err)
{
    size_t pos = 0;

    if (ascii_prefix(utf8, len) == len) {
        *out = utf8;
        *out_len = len;
        return PV_OK;
    }
    buf_reset(&n->text);
    while (pos < len) {
        size_t ascii = ascii_prefix(utf8 + pos, len - pos);
        enum pv_status s;
        /* A mark composes with the ASCII character before it. */
        if (ascii > 0 && pos + ascii < len)
            ascii--;
        buf_add(&n->text, utf8 + pos, ascii);
        pos += ascii;
        if (pos == len)
            break;
        s = apply_segment(n, utf8, len, &pos, err);
        if (s)
            return s;
    }
    if (n->text.failed) /* normalised text has at most three times the bytes */
        return len <= NFC_MAX_TEXT / 3
                   ? fail_nomem(err, len)
                   : fail(err, PV_E_LIMIT, "a text of %zu bytes is too long to normalise", len);
    *out = n->text.data;
    *out_len = n->text.len;
    return PV_OK;
}

void nfc_version(char *out, size_t size)
{
    snprintf(out, size, "%s", utf8proc_version());
}
