/* Small helpers that all Arm kernels use: attributes and barriers that make gcc keep register
 * blocks in registers, and stores of four outputs. */
#ifndef PV_KERNELS_ARM_LANES_H
#define PV_KERNELS_ARM_LANES_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Before loops over the accumulators of a register block: without it gcc 12 unrolls too late and
 * leaves the array in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Keeps loads from moving across this point. Otherwise gcc moves the loads of a whole step to its
 * beginning and spills accumulators to make room. */
ALWAYS_INLINE void keep_order(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Returns p; loads through it stay after the computation of v. Does not affect other memory, so
 * arrays in registers stay there. */
ALWAYS_INLINE const void *keep_after(const void *p, float32x4_t v)
{
    __asm__ volatile("" : "+r"(p) : "w"(v));
    return p;
}

/* A start value created when needed, without using a vector pipe: zero, or four numbers from
 * memory. gcc would keep the value in a register and copy it, which does use one. */
ALWAYS_INLINE int32x4_t fresh_zero(void)
{
    int32x4_t v;
    __asm__ volatile("movi %0.2d, #0" : "=w"(v));
    return v;
}

ALWAYS_INLINE int32x4_t fresh_load(const int32_t *p)
{
    int32x4_t v;
    __asm__ volatile("ldr %q0, %1" : "=w"(v) : "m"(*(const int32x4_t *)(const void *)p));
    return v;
}

/* Returns v, which may be overwritten once `before` has been computed from it; saves a copy. */
ALWAYS_INLINE uint8x16_t reuse_after(uint8x16_t v, int8x16_t before)
{
    __asm__("" : "+w"(v) : "w"(before));
    return v;
}

/* Store the first n lanes of v (n > 4 counts as 4), plus bias. */
ALWAYS_INLINE void store4(float *y, float32x4_t v, int n, const float *bias)
{
    if (n >= 4) {
        vst1q_f32(y, bias ? vaddq_f32(v, vld1q_f32(bias)) : v);
        return;
    }
    float lane[4];
    vst1q_f32(lane, v);
    for (int i = 0; i < n; i++)
        y[i] = bias ? lane[i] + bias[i] : lane[i];
}

/* The same with outputs that are `apart` elements from each other. */
ALWAYS_INLINE void store4_apart(float *y, size_t apart, float32x4_t v, int n, const float *bias)
{
    if (n >= 4) {
        if (bias) {
            float four[4] = { bias[0], bias[apart], bias[2 * apart], bias[3 * apart] };
            v = vaddq_f32(v, vld1q_f32(four));
        }
        vst1q_lane_f32(y, v, 0);
        vst1q_lane_f32(y + apart, v, 1);
        vst1q_lane_f32(y + 2 * apart, v, 2);
        vst1q_lane_f32(y + 3 * apart, v, 3);
        return;
    }
    float lane[4];
    vst1q_f32(lane, v);
    for (int i = 0; i < n; i++)
        y[(size_t)i * apart] = bias ? lane[i] + bias[(size_t)i * apart] : lane[i];
}

/* Store two 2x2 blocks in the order of BFMMLA and SMMLA (weight rows outside): outputs 0..3 of rows
 * 0 and 1 (`second`: row 1 exists). */
ALWAYS_INLINE void store_pair(float *y, size_t y_stride, float32x4_t a, float32x4_t b, int n_out,
                              bool second, const float *bias)
{
    store4(y, vuzp1q_f32(a, b), n_out, bias);
    if (second)
        store4(y + y_stride, vuzp2q_f32(a, b), n_out, bias);
}

ALWAYS_INLINE void store_pair_apart(float *y, size_t y_stride, size_t apart, float32x4_t a,
                                    float32x4_t b, int n_out, bool second, const float *bias)
{
    store4_apart(y, apart, vuzp1q_f32(a, b), n_out, bias);
    if (second)
        store4_apart(y + y_stride, apart, vuzp2q_f32(a, b), n_out, bias);
}

#endif
