/* What `make test` leaves out and `make check-all` runs: the cases listed in tests/only_all.txt
 * (and, under sanitizers, tests/not_sanitized.txt), and, of tests that prove the same with many
 * numbers, most of these. tests/run.sh names the list in TEST_LEFT_OUT; a program that is started
 * without it runs everything. */
#ifndef PV_TESTS_LEFT_OUT_H
#define PV_TESTS_LEFT_OUT_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT_OUT_MOST = 400, LEFT_OUT_LINE = 160 };

/* The lines of one program, "PROGRAM: CASE". */
struct left_out {
    int n;
    char name[LEFT_OUT_MOST][LEFT_OUT_LINE];
    bool met[LEFT_OUT_MOST];
};

/* Whether tests try fewer numbers. */
static inline bool left_out_brief(void)
{
    return getenv("TEST_LEFT_OUT") != NULL;
}

/* Read the lines of a program, which is named without its folder but with its options. */
static inline void left_out_open(struct left_out *l, const char *program)
{
    const char *path = getenv("TEST_LEFT_OUT");
    char line[LEFT_OUT_LINE];
    size_t n = strlen(program);
    FILE *f = path ? fopen(path, "r") : NULL;
    l->n = 0;
    if (path && !f) {
        fprintf(stderr, "%s: cannot be read, and TEST_LEFT_OUT names it\n", path);
        abort();
    }
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, program, n) || strncmp(line + n, ": ", 2))
            continue;
        if (l->n == LEFT_OUT_MOST) {
            fprintf(stderr, "%s: more than %d cases of %s\n", path, LEFT_OUT_MOST, program);
            abort();
        }
        l->met[l->n] = false;
        snprintf(l->name[l->n++], LEFT_OUT_LINE, "%s", line + n + 2);
    }
    if (f)
        fclose(f);
}

/* Whether this case is left out. */
static inline bool left_out(struct left_out *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->name[i], name))
            return l->met[i] = true;
    return false;
}

/* After all cases: print the lines that name none, and tell how many they are. */
static inline int left_out_close(const struct left_out *l)
{
    int bad = 0;
    for (int i = 0; i < l->n; i++)
        if (!l->met[i]) {
            printf("FAIL tests/only_all.txt names '%s', which is no case here\n", l->name[i]);
            bad++;
        }
    return bad;
}

#endif
