/* The name table: sorted entries and binary search. A hash table would be a little faster, but a
 * hostile file can choose names that collide; sorting has no bad case. */
#include "format/names.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum pv_status names_open(struct names *t, int n, struct pv_error *err)
{
    size_t size;

    if (!mul_size((size_t)n, sizeof *t->entry, &size))
        return fail_nomem(err, SIZE_MAX);
    t->entry = mem_alloc(size);
    if (!t->entry)
        return fail_nomem(err, size);
    t->n = n;
    return PV_OK;
}

void names_close(struct names *t)
{
    mem_free(t->entry);
    *t = (struct names){ 0 };
}

static int compare(const void *a, const void *b)
{
    const struct str *x = &((const struct name_entry *)a)->name;
    const struct str *y = &((const struct name_entry *)b)->name;
    uint32_t n = x->len < y->len ? x->len : y->len;
    int c = n ? memcmp(x->s, y->s, n) : 0;

    return c ? c : (x->len > y->len) - (x->len < y->len);
}

const struct str *names_sort(struct names *t)
{
    if (t->n > 1)
        qsort(t->entry, (size_t)t->n, sizeof *t->entry, compare);
    for (int i = 1; i < t->n; i++)
        if (compare(&t->entry[i - 1], &t->entry[i]) == 0)
            return &t->entry[i].name;
    return NULL;
}

int names_find(const struct names *t, const char *name, size_t len)
{
    struct name_entry key = { .name = { name, (uint32_t)len } };
    const struct name_entry *found;

    if (t->n == 0 || len > UINT32_MAX)
        return -1;
    found = bsearch(&key, t->entry, (size_t)t->n, sizeof key, compare);
    return found ? found->index : -1;
}

bool name_is_plain(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (s[i] <= ' ' || s[i] > '~')
            return false;
    return true;
}
