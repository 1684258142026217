/* encode_lines TOKENIZER.JSON: texts in, token ids out, for tools/golden/tokenizer_check.py.
 *
 * Input: texts, each as a 32-bit length and its bytes. Output: for each, a 32-bit count and the
 * ids, then the length of the bytes the ids stand for and these bytes. Numbers are little-endian.
 */
#include "base/file.h"
#include "base/mem.h"
#include "format/vocab_hf.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(void *p)
{
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static bool encode_one(const struct tokenizer *t, const char *text, uint32_t len,
                       struct pv_error *err)
{
    size_t n = 0, total = 0;
    uint32_t word;
    int32_t *ids = need(malloc(((size_t)len + 1) * 4 * sizeof *ids));

    if (tokenizer_encode(t, text, len, true, ids, ((size_t)len + 1) * 4, &n, err)) {
        free(ids);
        return false;
    }
    word = (uint32_t)n;
    fwrite(&word, sizeof word, 1, stdout);
    fwrite(ids, sizeof *ids, n, stdout);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        tokenizer_bytes(t, ids[i], &bytes);
        total += bytes;
    }
    word = (uint32_t)total;
    fwrite(&word, sizeof word, 1, stdout);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        const char *s = tokenizer_bytes(t, ids[i], &bytes);
        fwrite(s, 1, bytes, stdout);
    }
    free(ids);
    return true;
}

int main(int argc, char **argv)
{
    struct pv_error err = { 0 };
    struct file_map map;
    struct vocab *v = NULL;
    struct tokenizer *t = NULL;
    uint32_t len;
    double began = now(), parsed;
    bool ok;

    if (argc != 2) {
        fputs("usage: encode_lines TOKENIZER.JSON\n", stderr);
        return 2;
    }
    ok = !file_map_open(&map, argv[1], VOCAB_HF_MAX_FILE, &err) &&
         !vocab_hf_parse(&v, (const char *)map.data, map.size, argv[1], &err);
    parsed = now();
    ok = ok && !tokenizer_open(&t, v, &err);
    if (ok)
        fprintf(stderr, "parse %.3f s, open %.3f s\n", parsed - began, now() - parsed);
    began = now();
    while (ok && fread(&len, sizeof len, 1, stdin) == 1) {
        char *text = need(malloc((size_t)len + 1));
        ok = fread(text, 1, len, stdin) == len && encode_one(t, text, len, &err);
        free(text);
    }
    fprintf(stderr, "encode %.3f s\n", now() - began);
    if (!ok)
        fprintf(stderr, "encode_lines: %s\n", err.code ? err.text : "the input is cut off");
    tokenizer_close(&t);
    vocab_hf_close(&v);
    return ok ? 0 : 1;
}
