/* The kernel checker's column for CUDA, through the table of the device: what check.h says, for
 * single operations and for whole layers. It runs on a GPU, or over the simulator of
 * tests/cudasim where the sizes are tiny and every copy and kernel comes as late as it may. */
#ifndef PV_TESTS_KERNELS_CHECK_CUDA_H
#define PV_TESTS_KERNELS_CHECK_CUDA_H

#include "base/pool.h"
#include "check.h"
#include "tensor/device.h"

struct cuda_check {
    struct check c;
    struct device *dev;
    const struct device_ops *ops;
    struct device_work *w; /* for single operations */
    struct pool *pool;     /* of the host, for the reference */
    bool full;             /* true sizes */
};

enum {
    MANY_ROWS = 130, /* of one test */
    MAX_IN = 5120,   /* of a matrix */
    MAX_VOCAB = 151936
};

/* Memory on the device between canaries, filled with them too. */
struct gbuf {
    struct cuda_check *t;
    uint8_t *base;
    void *p;
    size_t size;
};

void gbuf_open(struct cuda_check *t, struct gbuf *b, size_t size);
void gbuf_put(struct gbuf *b, const void *src, size_t size);
void gbuf_get(struct gbuf *b, void *dst, size_t size);
void gbuf_fill(struct gbuf *b);  /* with canaries */
void gbuf_close(struct gbuf *b); /* a canary that changed is a failure of the running test */
/* Everything past `from`, or `size` bytes of it, still holds canaries. */
bool gbuf_untouched(struct gbuf *b, size_t from);
bool gbuf_untouched_part(struct gbuf *b, size_t from, size_t size);

/* Floats on the host, normal times `size`; and the same on the device too. Abort when there is no
 * memory. */
float *normal_floats(struct cuda_check *t, size_t n, float size);
float *normal_both(struct cuda_check *t, struct gbuf *b, size_t n, float size);

/* What waits for the device and failed is a failure of the running test. */
void check_wait(struct cuda_check *t, struct device_work *w);
/* Abort when it is not PV_OK. */
void check_must(enum pv_status s, const struct pv_error *err);

/* A random matrix as the device takes it, and its numbers. */
struct cuda_matrix_pair {
    struct pool *pool;
    struct matrix m;       /* its dtype is the device's, BF16 in place of those it does not have */
    enum dtype given;      /* before it was taken */
    float *w;              /* [out, in] */
    float *w16;            /* the same rounded to BF16, of blocks; else NULL */
    float *bias;           /* [out] or NULL */
    struct gbuf on_device; /* of the bias */
};

/* The kinds of numbers in a matrix. */
enum pair_kind {
    PAIR_ANY,          /* as random_rows has them */
    PAIR_TAME,         /* of about 0.1 whatever the type */
    PAIR_MANY = 1 << 4 /* or with one of these: the way for many rows */
};

/* False: the device does not take this type. */
bool pair_open(struct cuda_check *t, struct cuda_matrix_pair *p, enum dtype dtype, int in, int out,
               bool bias, unsigned kind);
void pair_close(struct cuda_check *t, struct cuda_matrix_pair *p);
/* The same from given numbers, F32. */
void pair_from(struct cuda_check *t, struct cuda_matrix_pair *p, const float *w, int in, int out);
/* y = W x + bias in double, x rounded as the device does; blocks too when they are BF16 there. */
void pair_product(const struct cuda_matrix_pair *p, double *y, const double *x, bool blocks16);
/* Whether x is rounded to BF16 before it meets weights of this type. */
bool pair_rounds_x(enum dtype dtype);

double bf16_round(double x);

void check_cuda_errors(struct cuda_check *t);
void check_cuda_sums(struct cuda_check *t);
void check_cuda_ops(struct cuda_check *t);
void check_cuda_tokens(struct cuda_check *t);
void check_cuda_matmul(struct cuda_check *t);
void check_cuda_layers(struct cuda_check *t);
void check_cuda_pages(struct cuda_check *t);
void check_cuda_towers(struct cuda_check *t);
void check_cuda_experts(struct cuda_check *t);
void check_cuda_views(struct cuda_check *t);

#endif
