/* Tools of the kernel checkers: how a test is named and counted, fences and random weights. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "check.h"

#include "tensor/half.h"
#include "tensor/quant.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SHOWN_FAILURES = 5, CANARY = 0xa5 };

static void note_op(struct check *c, const char *op)
{
    for (int i = 0; i < c->n_ops; i++)
        if (!strcmp(c->op[i], op))
            return;
    if (c->n_ops < MAX_OPS)
        c->op[c->n_ops++] = op;
}

void check_count(struct check *c)
{
    c->failed += left_out_close(&c->out);
    printf("%d passed, %d failed\n", c->passed, c->failed);
}

int check_status(const struct check *c, const char *program)
{
    for (int i = 0; i < c->n_words && c->n_ops > 0; i++)
        if (i >= MAX_WORDS || !(c->found >> i & 1)) {
            fprintf(stderr, "%s: no test has '%s' in its name; there are", program, c->words[i]);
            for (int k = 0; k < c->n_ops; k++)
                fprintf(stderr, "%s %s", k ? "," : "", c->op[k]);
            fprintf(stderr, "\n");
            return c->failed ? 1 : 2;
        }
    return c->failed ? 1 : 0;
}

bool check_begin(struct check *c, const char *op, const char *variant)
{
    uint64_t hash = c->seed * 0x9e3779b97f4a7c15u;
    bool wanted = c->n_words == 0;

    snprintf(c->name, sizeof c->name, "%s %s%s%s", c->level->name, op, *variant ? " " : "",
             variant);
    note_op(c, op);
    for (int i = 0; i < c->n_words && i < MAX_WORDS; i++)
        if (strstr(c->name, c->words[i])) {
            c->found |= (uint64_t)1 << i;
            wanted = true;
        }
    for (const char *s = c->name; *s; s++)
        hash = (hash ^ (uint8_t)*s) * 0x100000001b3u;
    c->rng.state = hash;
    c->bad = 0;
    return !left_out(&c->out, c->name) && wanted;
}

void check_fail(struct check *c, const char *fmt, ...)
{
    va_list ap;
    if (c->bad++ >= SHOWN_FAILURES)
        return;
    printf("  %s: ", c->name);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

void check_end(struct check *c)
{
    if (c->bad > SHOWN_FAILURES)
        printf("  %s: %d failures in all\n", c->name, c->bad);
    printf("%s %s\n", c->bad ? "FAIL" : "ok", c->name);
    c->passed += !c->bad;
    c->failed += c->bad != 0;
}

int check_int(struct check *c, int lo, int hi)
{
    return lo + (int)(rng_next(&c->rng) % (uint64_t)(hi - lo + 1));
}

void fence_open(struct fence *f, size_t size, size_t align)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = (size + align + page - 1) / page * page;

    f->map_size = used + page;
    f->map = mmap(NULL, f->map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f->map == MAP_FAILED || mprotect(f->map + used, page, PROT_NONE)) {
        fprintf(stderr, "check_kernels: no memory for a buffer of %zu bytes\n", size);
        abort();
    }
    f->size = size;
    f->p = f->map + (used - size) / align * align;
    memset(f->map, CANARY, used);
}

bool fence_whole(const struct fence *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uint8_t *end = f->map + f->map_size - page, *p = f->p;

    for (const uint8_t *q = f->map; q < p; q++)
        if (*q != CANARY)
            return false;
    for (const uint8_t *q = p + f->size; q < end; q++)
        if (*q != CANARY)
            return false;
    return true;
}

void fence_close(struct fence *f)
{
    munmap(f->map, f->map_size);
    *f = (struct fence){ 0 };
}

/* Put a finite f16 of either sign, 2^-9 .. 2^-5, where a block has a scale. */
static void random_scale(struct rng *r, uint8_t *p)
{
    uint16_t h = f16_from_f32((0.03125f + 0.46875f * (float)(rng_next(r) % 1024) / 1024) / 16);
    h |= (uint16_t)(rng_next(r) % 4 == 0 ? 0x8000 : 0);
    memcpy(p, &h, sizeof h);
}

static void random_block(struct rng *r, uint8_t *p, enum dtype t, int fill)
{
    int size = dtype_block_size(t);
    for (int i = 0; i < size; i++)
        p[i] = fill < 0 ? (uint8_t)(rng_next(r) >> 32) : (uint8_t)fill;
    if (t == DTYPE_Q6_K) {
        random_scale(r, p + 208);
        return;
    }
    random_scale(r, p);
    if (t == DTYPE_Q4_K || t == DTYPE_Q5_K || t == DTYPE_Q4_1 || t == DTYPE_Q5_1)
        random_scale(r, p + 2);
}

void random_rows(struct rng *r, void *dst, size_t row_size, enum dtype t, int in, int out,
                 bool extreme)
{
    static const int fills[] = { 0x00, 0x7f, 0x80, 0xff };
    float *row = malloc(sizeof *row * (size_t)in);

    for (int o = 0; o < out; o++) {
        uint8_t *p = (uint8_t *)dst + (size_t)o * row_size;
        if (t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16) {
            for (int i = 0; i < in; i++)
                row[i] = extreme ? 1.0f : 0.1f * rng_normal(r);
            row_from_f32(p, row, t, in);
            continue;
        }
        int fill = extreme ? fills[o % 4] : -1;
        for (int b = 0; b < in / dtype_block(t); b++)
            random_block(r, p + (size_t)b * dtype_block_size(t), t, fill);
    }
    free(row);
}
