/* Shared by the files of the CPU device: the device, and the scratch memory of a session. */
#ifndef PV_KERNELS_DEVICE_CPU_H
#define PV_KERNELS_DEVICE_CPU_H

#include "base/mem.h"
#include "base/pool.h"
#include "base/work_queue.h"
#include "kernels/kernels.h"

#include <stdatomic.h>

struct cpu_device {
    struct device dev;
    struct pool *pool;
    struct kernels k;
    uint64_t memory; /* the machine's memory in bytes */
};

struct device_work {
    struct cpu_device *cpu;
    struct pool *pool; /* the device's, or that of a group (work_on) */
    struct work_shape shape;
    struct arena arena;
    void *packed;        /* x as packed for a matmul kernel */
    size_t thread_size;  /* scratch of one thread */
    uint8_t *thread_mem; /* [threads][thread_size] */
    float *partial;      /* attention: (max, sum, out) by segment */
    size_t partial_size;
    struct expert_scratch *experts; /* of experts_cpu.c; NULL: not used */
    atomic_bool not_finite;         /* a NaN or infinity appeared since the last wait */
};

/* Whether x[0..n) has neither NaN nor infinities. */
bool row_finite_cpu(const float *x, int n);

void *work_thread_mem(struct device_work *w, int thread);

/* A pointer, stored at `field`, to memory that is taken from one block. */
struct mem_part {
    void *field;
    size_t size;
};

/* Take the parts from mem; if mem is NULL, only count. Returns the total number of bytes. */
size_t parts_carve(const struct mem_part *parts, size_t n, void *mem, size_t cap);

/* Outputs per work item in a product of many rows with `out` outputs, a multiple of 64. Every item
 * reads all rows of x, so there are only as many items as the threads need to finish together. */
int many_rows_panel(int out, int n_threads);

/* An operation on rows [r0, r1) with its own context, and its run over n rows of about `width`
 * floats each. */
typedef void rows_fn(void *ctx, int r0, int r1);
void rows_parallel(struct device_work *w, rows_fn *fn, void *ctx, int n, int width);

/* kv_cpu.c. Round n floats to the type of a KV cache (F32, F16 or BF16). The result is always
 * finite: numbers that are too large, infinite or NaN become the largest number of the type. */
void kv_round(const struct kernels *k, enum dtype t, void *y, const float *x, int n);

/* kv_f8_cpu.c: rows of an F8 cache. Write the key or the value of a slot; copy a slot. */
void kv_f8_key(const struct kv_layer *kv, int head, int slot, const float *k);
void kv_f8_value(const struct kv_layer *kv, int head, int slot, const float *v);
void kv_f8_copy(const struct kv_layer *to, const struct kv_layer *from, int head, int to_slot,
                int from_slot);
/* Read slots [slot, slot + n), which lie in one chunk, as BF16: keys [n, d]; values transposed,
 * [d][n] with rows `stride` numbers apart. */
void kv_f8_keys(const struct kernels *k, uint16_t *to, const struct kv_layer *kv, int head,
                int slot, int n);
void kv_f8_values(const struct kernels *k, uint16_t *to, size_t stride, const struct kv_layer *kv,
                  int head, int slot, int n);
void kv_write_cpu(struct device_work *w, const struct kv_layer *kv, int first_slot, const float *k,
                  const float *v, int n);
void kv_move_cpu(struct device_work *w, const struct kv_layer *kv, const int *to, const int *from,
                 int n);
void kv_copy_cpu(struct device_work *w, const struct kv_layer *to, const struct kv_layer *from,
                 const int *to_slots, const int *from_slots, int n);

/* attention_cpu.c */
size_t attention_thread_size(const struct cpu_device *cpu, const struct work_shape *s);
size_t attention_partial_size(const struct cpu_device *cpu, const struct work_shape *s);
void attention_cpu(struct device_work *w, const struct attn_job *job);

/* full_attention_cpu.c */
size_t full_attention_thread_size(const struct cpu_device *cpu, const struct work_shape *s);
void attention_full_cpu(struct device_work *w, const struct full_attn_job *job);

/* tower_cpu.c */
bool tower_qkv_cpu(struct device_work *w, const struct tower_qkv *t);
bool tower_tail_cpu(struct device_work *w, const struct tower_tail *t);

/* columns_cpu.c */
size_t columns_thread_size(const struct cpu_device *cpu, const struct work_shape *s);
void attention_columns_cpu(struct device_work *w, const struct column_job *job);

/* Outputs per work item in a product with n rows. */
int matmul_panel(const struct matmul_kernel *kernel, int n);

/* experts_cpu.c. Bytes of the scratch memory, 0 if the shape has no experts; and the scratch memory
 * made from a block of that size. */
size_t experts_size(const struct cpu_device *cpu, const struct work_shape *s);
struct expert_scratch *experts_scratch(const struct cpu_device *cpu, const struct work_shape *s,
                                       void *mem);
void experts_cpu(struct device_work *w, float *y, const struct expert_weights *e, const float *x,
                 int n);

/* views_cpu.c */
void cosines_apart_cpu(struct device_work *w, double *out, const float *x, size_t stride, int n,
                       int width, int apart);
void cosine_spread_cpu(struct device_work *w, double *out, const float *x, size_t stride, int width,
                       const int32_t *rows, const int32_t *bounds, int n_groups);
void unit_rows_cpu(struct device_work *w, const struct unit_job *job);
void unit_dots_cpu(struct device_work *w, double *out, const uint16_t *units, const double *sum,
                   int n, int width);

/* choose_cpu.c */
void top_cpu(struct device_work *w, struct top_entry *out, float *mass, const float *x, int n,
             int dim, int k, float t);
void name_ids_cpu(struct device_work *w, int32_t *ids, int n, int step, const int32_t *names);
void draw_token_cpu(struct device_work *w, int32_t *ids, const float *x, int n, int dim,
                    const uint64_t *position, uint64_t seed, float t);

#endif
