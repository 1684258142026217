/* Qwen2's split rule on PCRE2. Some alternative matches at every character, so the pattern is
 * used anchored, from the end of one piece to the end of the next; every character is looked at
 * a bounded number of times, runs of a million spaces or letters included.
 *
 * Two places where PCRE2's own classes are not the reference's:
 * - \s of PCRE2 has U+180E, the White_Space property has not, so the class is spelled out;
 * - PCRE2 10.42 knows Unicode 14, the reference library's engine Unicode 16. What Unicode 15 and 16
 *   call letters and numbers is listed here; with a newer PCRE2 the lists repeat what it knows. */
#include "text/split.h"

#include "base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>

#define NEW_LETTERS                                                                                \
    "\\x{1c89}\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}"                \
    "\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}\\x{11240}"          \
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"           \
    "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}"          \
    "\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"                    \
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}"                     \
    "\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"          \
    "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NEW_NUMBERS                                                                                \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"         \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}"         \
    "\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"

/* For use inside brackets. */
#define LETTER "\\p{L}" NEW_LETTERS
#define NUMBER "\\p{N}" NEW_NUMBERS
#define SPACE                                                                                      \
    "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"            \
    "\\x{205f}\\x{3000}"

static const char pattern[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
                              "|[^\\r\\n" LETTER NUMBER "]?[" LETTER "]+"
                              "|[" NUMBER "]"
                              "|\\x20?[^" SPACE LETTER NUMBER "]+[\\r\\n]*"
                              "|[" SPACE "]*[\\r\\n]+"
                              "|[" SPACE "]+(?![^" SPACE "])"
                              "|[" SPACE "]+";

struct splitter {
    pcre2_general_context *memory;
    pcre2_code *code;
};

struct split_match {
    pcre2_match_data *data;
    pcre2_match_context *context;
};

static void *pcre_alloc(size_t size, void *unused)
{
    (void)unused;
    return mem_alloc(size);
}

static void pcre_free(void *p, void *unused)
{
    (void)unused;
    mem_free(p);
}

enum pv_status splitter_open(struct splitter **out, struct pv_error *err)
{
    struct splitter *sp = mem_zalloc(sizeof *sp);
    int code = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE at = 0;

    if (!sp)
        return fail_nomem(err, sizeof *sp);
    sp->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (sp->memory) {
        pcre2_compile_context *cc = pcre2_compile_context_create(sp->memory);
        if (cc)
            sp->code = pcre2_compile((PCRE2_SPTR)pattern, sizeof pattern - 1,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &at, cc);
        pcre2_compile_context_free(cc);
    }
    if (!sp->code) {
        bool nomem = code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED;
        splitter_close(&sp);
        return nomem ? fail_nomem(err, sizeof pattern)
                     : fail(err, PV_E_UNSUPPORTED,
                            "PCRE2 refuses the split rule at its byte %zu (error %d)", (size_t)at,
                            code);
    }
    /* Where the system forbids writing code the interpreter does the same, slower. */
    pcre2_jit_compile(sp->code, PCRE2_JIT_COMPLETE);
    *out = sp;
    return PV_OK;
}

void splitter_close(struct splitter **sp)
{
    if (!*sp)
        return;
    pcre2_code_free((*sp)->code);
    pcre2_general_context_free((*sp)->memory);
    mem_free(*sp);
    *sp = NULL;
}

enum pv_status split_match_open(struct split_match **out, const struct splitter *sp,
                                struct pv_error *err)
{
    struct split_match *m = mem_zalloc(sizeof *m);

    if (!m)
        return fail_nomem(err, sizeof *m);
    m->data = pcre2_match_data_create(1, sp->memory);
    m->context = pcre2_match_context_create(sp->memory);
    if (!m->data || !m->context) {
        split_match_close(&m);
        return fail_nomem(err, sizeof *m);
    }
    /* The default of ten million backtracks is less than one long run of spaces needs. */
    pcre2_set_match_limit(m->context, UINT32_MAX);
    *out = m;
    return PV_OK;
}

void split_match_close(struct split_match **m)
{
    if (!*m)
        return;
    pcre2_match_data_free((*m)->data);
    pcre2_match_context_free((*m)->context);
    mem_free(*m);
    *m = NULL;
}

enum pv_status split_next(const struct splitter *sp, struct split_match *m, const char *utf8,
                          size_t len, size_t pos, size_t *piece_len, struct pv_error *err)
{
    PCRE2_SPTR text = (PCRE2_SPTR)utf8;
    /* The text was checked once; checking it again at every piece would be quadratic. */
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int n = pcre2_match(sp->code, text, len, pos, options, m->data, m->context);
    const PCRE2_SIZE *span;

    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(sp->code, text, len, pos, options | PCRE2_NO_JIT, m->data, m->context);
    if (n == PCRE2_ERROR_NOMEMORY)
        return fail_nomem(err, len);
    if (n <= 0)
        return fail(err, PV_E_LIMIT, "the split rule fails at byte %zu of %zu (PCRE2 error %d)",
                    pos, len, n);
    span = pcre2_get_ovector_pointer(m->data);
    *piece_len = span[1] - pos;
    return PV_OK;
}

void split_version(char *out, size_t size)
{
    char version[64] = ""; /* PCRE2 wants 24 */
    pcre2_config(PCRE2_CONFIG_VERSION, version);
    snprintf(out, size, "%s", version);
}
