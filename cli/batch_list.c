/* Reads the list of a batch. */
#include "batch_list.h"

#include "base/digest.h"
#include "base/mem.h"
#include "command.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LIST_BYTES = 1 << 30 };

void batch_hash(char out[BATCH_HASH + 1], const char *text, size_t len)
{
    uint8_t bytes[DIGEST_SIZE];
    struct digest d;
    digest_init(&d);
    digest_add(&d, text, len);
    digest_finish(&d, bytes);
    for (int i = 0; i < BATCH_HASH / 2; i++)
        snprintf(out + (size_t)i * 2, 3, "%02x", (unsigned)bytes[i]);
}

bool batch_line_is_blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

/* Goes over the lines; with `at` NULL only counts them. */
static int find_lines(struct batch_list *l)
{
    int n = 0, number = 1;
    for (size_t at = 0; at < l->text.len; number++) {
        const char *line = l->text.data + at, *end = memchr(line, '\n', l->text.len - at);
        size_t len = end ? (size_t)(end - line) : l->text.len - at;
        if (!batch_line_is_blank(line, len)) {
            if (l->at) {
                l->at[n] = at;
                l->len[n] = (int)len;
                l->number[n] = number;
            }
            n++;
        }
        at += len + 1;
    }
    return n;
}

bool batch_list_read(struct batch_list *l, const char *path)
{
    size_t n;
    *l = (struct batch_list){ .path = path };
    buf_init(&l->text, MAX_LIST_BYTES);
    if (!read_text(&l->text, path)) {
        batch_list_clear(l);
        return false;
    }
    l->n = find_lines(l);
    n = l->n > 0 ? (size_t)l->n : 1;
    l->at = mem_alloc(n * sizeof *l->at);
    l->len = mem_alloc(n * sizeof *l->len);
    l->number = mem_alloc(n * sizeof *l->number);
    if (!l->at || !l->len || !l->number)
        report("%s: out of memory for %d lines", path, l->n);
    else if (l->n == 0)
        report("%s: there is no clip in this list", path);
    else
        return find_lines(l) == l->n;
    batch_list_clear(l);
    return false;
}

void batch_list_clear(struct batch_list *l)
{
    buf_clear(&l->text);
    mem_free(l->at);
    mem_free(l->len);
    mem_free(l->number);
    *l = (struct batch_list){ .path = l->path };
}

int batch_list_find(const struct batch_list *l, long long number)
{
    int lo = 0, hi = l->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (l->number[mid] < number)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < l->n && l->number[lo] == number ? lo : -1;
}
