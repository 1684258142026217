/* Reader of golden.vec files (written by tools/golden/make_golden.py).
 *
 * A text file of named matrices: a line `name f|i rows cols`, then rows * cols numbers; lines that
 * begin with '#' are comments. Trusted input of the tests: damage gives NULL and no details. */
#ifndef PV_TESTS_GOLDEN_GOLDEN_H
#define PV_TESTS_GOLDEN_GOLDEN_H

#include "larger.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GOLDEN_MAX_ENTRIES = 64, GOLDEN_MAX_CELLS = 1 << 22 };

struct golden_entry {
    char name[32];
    int rows, cols;
    float *f;   /* [rows, cols] for kind f, else NULL */
    int32_t *i; /* [rows, cols] for kind i, else NULL */
};

struct golden {
    int n;
    struct golden_entry entry[GOLDEN_MAX_ENTRIES];
};

static inline void golden_close(struct golden **g)
{
    if (!*g)
        return;
    for (int k = 0; k < (*g)->n; k++) {
        free((*g)->entry[k].f);
        free((*g)->entry[k].i);
    }
    free(*g);
    *g = NULL;
}

/* Fills e->f or e->i from the numbers that follow the entry's head. */
static inline bool golden_read_cells(FILE *file, struct golden_entry *e, bool whole)
{
    size_t n = (size_t)e->rows * (size_t)e->cols;
    bool ok = true;
    if (whole)
        e->i = calloc(n, sizeof *e->i);
    else
        e->f = calloc(n, sizeof *e->f);
    if (!e->i && !e->f)
        return false;
    for (size_t k = 0; ok && k < n; k++) {
        int value = 0;
        if (whole) {
            ok = fscanf(file, "%d", &value) == 1;
            e->i[k] = value;
        } else {
            ok = fscanf(file, "%f", &e->f[k]) == 1;
        }
    }
    return ok;
}

/* NULL when the file cannot be read or is not as described above; else close with golden_close. */
static inline struct golden *golden_open(const char *path)
{
    FILE *file = fopen(path, "r");
    struct golden *g = calloc(1, sizeof *g);
    char name[32], kind;
    bool ok = file && g;

    while (ok && fscanf(file, "%31s", name) == 1) {
        if (name[0] == '#') {
            ok = fscanf(file, "%*[^\n]") != EOF;
            continue;
        }
        ok = g->n < GOLDEN_MAX_ENTRIES;
        if (!ok)
            break;
        struct golden_entry *e = &g->entry[g->n++];
        memcpy(e->name, name, sizeof e->name);
        ok = fscanf(file, " %c %d %d", &kind, &e->rows, &e->cols) == 3 && e->rows > 0 &&
             e->cols > 0 && e->rows <= GOLDEN_MAX_CELLS / e->cols && (kind == 'f' || kind == 'i') &&
             golden_read_cells(file, e, kind == 'i');
    }
    if (file)
        fclose(file);
    if (g && (!ok || !g->n))
        golden_close(&g);
    return g;
}

/* NULL when there is no such entry. */
static inline const struct golden_entry *golden_find(const struct golden *g, const char *name)
{
    for (int k = 0; k < g->n; k++) {
        if (!strcmp(g->entry[k].name, name))
            return &g->entry[k];
    }
    return NULL;
}

/* Row r of a float matrix, resp. of an integer one. */
static inline const float *golden_row(const struct golden_entry *e, int r)
{
    return e->f + (size_t)r * (size_t)e->cols;
}

static inline const int32_t *golden_row_i(const struct golden_entry *e, int r)
{
    return e->i + (size_t)r * (size_t)e->cols;
}

/* Largest difference of a row, in units of the expected row's largest magnitude. */
static inline double golden_error(const float *got, const float *want, int n)
{
    double most = 0, size = 0;
    for (int i = 0; i < n; i++) {
        most = larger(most, fabs((double)got[i] - want[i]));
        size = larger(size, fabs((double)want[i]));
    }
    return most / size;
}

#endif
