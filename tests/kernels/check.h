/* The kernel checker: every operation of every table of kernels this machine can fill, proved
 * against the formulas in double precision, with outputs fenced and row invariance checked bit for
 * bit. check_main.c walks the levels (sets of CPU flags); one file per family of operations holds
 * the proofs; bench_kernels.c times what was proved. */
#ifndef PV_TESTS_KERNELS_CHECK_H
#define PV_TESTS_KERNELS_CHECK_H

#include "base/rng.h"
#include "kernels/kernels.h"
#include "left_out.h"

#include <stdbool.h>
#include <stdint.h>

/* What a level's kernels may round beyond f32 arithmetic, per dtype of the weights. */
enum rounding {
    ROUND_F32 = 0,
    ROUND_X_BF16 = 1 << 0, /* activations to bf16 */
    ROUND_X_INT8 = 1 << 1, /* activations to int8, blocks of 32 with one scale */
    ROUND_X_PAIR = 1 << 2, /* activations to the sum of two bf16 numbers */
};

struct level {
    const char *name;
    uint64_t flags;     /* cumulative */
    unsigned f16, bf16; /* enum rounding with weights of this type */
    unsigned quant;     /* of types with blocks of 32 */
    unsigned k_quant;   /* of Q4_K, Q5_K, Q6_K */
};

enum { MAX_WORDS = 64, MAX_OPS = 128 };

struct check {
    const struct level *level;
    struct kernels k;
    bool quick;
    uint64_t seed;
    struct rng rng; /* of the running test, from the seed and its name */
    int n_words;
    char **words;            /* only tests whose name contains one of them run */
    uint64_t found;          /* bit i: word i is in the name of a test */
    const char *op[MAX_OPS]; /* the different operations that there are tests of */
    int n_ops;
    char name[96];
    struct left_out out;
    int bad; /* failures of the running test */
    int passed, failed;
};

/* Begin a test named after the level and the words given; false: not wanted. */
bool check_begin(struct check *c, const char *op, const char *variant);
/* Record a failure of the running test; the first few are printed. */
void check_fail(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void check_end(struct check *c);

void check_count(struct check *c); /* after all tests: the last line */
/* After all tests: the exit status. A word that is in no test's name is misuse (2); a sentence then
 * names the operations. */
int check_status(const struct check *c, const char *program);

int check_int(struct check *c, int lo, int hi); /* uniform in lo..hi */

/* A buffer that ends at an unreadable page (less what `align` costs), with a canary in the rest
 * of its pages. Aborts when out of memory. */
struct fence {
    uint8_t *map;
    size_t map_size; /* the last page is unreadable */
    void *p;
    size_t size;
};

void fence_open(struct fence *f, size_t size, size_t align);
bool fence_whole(const struct fence *f); /* canaries untouched */
void fence_close(struct fence *f);

/* Random rows of any dtype, row_size bytes apart. `extreme`: all quants of a row at one end of
 * their range. */
void random_rows(struct rng *r, void *dst, size_t row_size, enum dtype t, int in, int out,
                 bool extreme);
unsigned level_rounding(const struct level *l, enum dtype t);

void check_matmul(struct check *c);
void check_elementwise(struct check *c);
void check_attention(struct check *c);
void check_experts(struct check *c);
void bench_kernels(struct check *c);

#endif
