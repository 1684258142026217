/* Repacks weights from the order of the file to that of repacked_quant.h. */
#include "kernels/arm/repacked_quant.h"

enum { RUN = 8 /* consecutive values of an output */ };

size_t repacked_size(const struct matrix *w)
{
    size_t strips = ((size_t)w->out + REPACKED_OUTS - 1) / REPACKED_OUTS;
    size_t units = (size_t)(w->in / QBLOCK / quant_subs(w->dtype));
    return strips * units * repacked_unit(w->dtype);
}

ALWAYS_INLINE uint8_t half_of(const uint8_t *p, int i, bool high)
{
    return high ? p[i] >> 4 : p[i] & 15;
}

/* Read values 8 step .. 8 step + 7 of block `sub` of the file's block b, as codes for the new
 * order. */
ALWAYS_INLINE void read_run(uint8_t code[RUN], enum dtype t, const uint8_t *b, int sub, int step)
{
    int k = RUN * step, group = sub / 4, part = sub % 4;
    for (int i = 0; i < RUN; i++, k++)
        switch (t) {
        case DTYPE_Q8_0:
            code[i] = b[2 + k];
            break;
        case DTYPE_Q4_0:
            code[i] = half_of(b + 2, k % 16, k >= 16) ^ 8;
            break;
        case DTYPE_Q4_K:
            code[i] = half_of(b + 16 + 32 * (sub / 2), k, sub % 2);
            break;
        case DTYPE_Q5_K:
            code[i] = half_of(b + 48 + 32 * (sub / 2), k, sub % 2);
            code[i] |= (uint8_t)((b[16 + k] >> sub & 1) << 4);
            break;
        case DTYPE_Q6_K:
            code[i] = half_of(b + 64 * group + 32 * (part % 2), k, part >= 2);
            code[i] |= (uint8_t)((b[128 + 32 * group + k] >> 2 * part & 3) << 4);
            code[i] ^= 32;
            break;
        default:
            code[i] = half_of(b + 2, k % 16, k >= 16);
            break;
        }
}

/* Write these values of an output to their places in the group: half e of the vectors of pair o. */
ALWAYS_INLINE void write_run(uint8_t *group, enum dtype t, int part, int step, int o, int e,
                             const uint8_t code[RUN])
{
    int k_vector = 2 + step * REPACKED_PAIRS + o;
    uint8_t *at = group + RUN * e;
    for (int i = 0; i < RUN; i++, at++)
        switch (t) {
        case DTYPE_Q8_0:
            at[8 + (step * REPACKED_PAIRS + o) * REPACKED_VECTOR] = code[i];
            break;
        case DTYPE_Q5_K:
            at[(10 + o) * REPACKED_VECTOR] |= (uint8_t)(code[i] >> 4 << (2 * step + part));
            at[k_vector * REPACKED_VECTOR] |= (uint8_t)((code[i] & 15) << 4 * part);
            break;
        case DTYPE_Q4_K:
            at[k_vector * REPACKED_VECTOR] |= (uint8_t)(code[i] << 4 * part);
            break;
        case DTYPE_Q6_K:
            for (int v = 0; v < 3; v++)
                at[(1 + 3 * o + v) * REPACKED_VECTOR] |=
                    (uint8_t)(step == 3   ? code[i] >> (4 - 2 * v) & 3
                              : v == step ? code[i] << 2
                                          : 0);
            break;
        default:
            at[8 + (step % 2 * REPACKED_PAIRS + o) * REPACKED_VECTOR] |=
                (uint8_t)(code[i] << (step >= 2 ? 4 : 0));
            break;
        }
}

static uint32_t bf16_of(int v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits >> 16;
}

/* Write the scales of output j: those of block `sub` to the group; d and the factor of mins to the
 * unit's head, or, without a head, to the group. */
ALWAYS_INLINE void write_scales(uint8_t *unit, uint8_t *group, enum dtype t, const uint8_t *b,
                                int j, int sub)
{
    uint32_t pair;
    if (quant_subs(t) == 1) {
        memcpy(group + 2 * j, b, 2);
        return;
    }
    if (t == DTYPE_Q6_K) {
        memcpy(unit + 2 * j, b + 208, 2);
        pair = bf16_of((int8_t)b[192 + 2 * sub]) << 16 | bf16_of((int8_t)b[193 + 2 * sub]);
        memcpy(group + 4 * j, &pair, sizeof pair);
        return;
    }
    uint8x8_t scale, min;
    uint8_t scales[8], mins[8];
    memcpy(unit + 2 * j, b, 2);
    memcpy(unit + 8 + 2 * j, b + 2, 2);
    unpack_scales(b + 4, &scale, &min);
    vst1_u8(scales, scale);
    vst1_u8(mins, min);
    pair = bf16_of(scales[sub]) << 16 | bf16_of(mins[sub]);
    memcpy(group + REPACKED_VECTOR * (sub % 2) + 4 * j, &pair, sizeof pair);
}

/* Repack the file's block b of output j of a strip into its unit. */
ALWAYS_INLINE void take_block(uint8_t *unit, enum dtype t, const uint8_t *b, int j)
{
    for (int sub = 0; sub < quant_subs(t); sub++) {
        int part = sub % repacked_parts(t);
        uint8_t *group =
            unit + repacked_head(t) + (size_t)(sub / repacked_parts(t)) * repacked_group_size(t);
        write_scales(unit, group, t, b, j, sub);
        for (int step = 0; step < REPACKED_STEPS; step++) {
            uint8_t code[RUN];
            read_run(code, t, b, sub, step);
            write_run(group, t, part, step, j / 2, j % 2, code);
        }
    }
}

/* Repack outputs [o0, o1); t is a compile-time constant. */
ALWAYS_INLINE void take(enum dtype t, void *to, const struct matrix *w, int o0, int o1)
{
    size_t size = (size_t)quant_block_size(t), unit = repacked_unit(t);
    size_t units = (size_t)(w->in / QBLOCK / quant_subs(t));
    for (int o = o0; o < o1; o += REPACKED_OUTS) {
        uint8_t *strip = (uint8_t *)to + (size_t)(o / REPACKED_OUTS) * units * unit;
        memset(strip, 0, units * unit);
        for (int j = 0; j < panel_min(REPACKED_OUTS, w->out - o); j++)
            for (size_t u = 0; u < units; u++)
                take_block(strip + u * unit, t, panel_row(w, o + j) + u * size, j);
    }
}

void repack(void *to, const struct matrix *w, int o0, int o1)
{
    switch (w->dtype) {
    case DTYPE_Q8_0:
        take(DTYPE_Q8_0, to, w, o0, o1);
        break;
    case DTYPE_Q4_0:
        take(DTYPE_Q4_0, to, w, o0, o1);
        break;
    case DTYPE_IQ4_NL:
        take(DTYPE_IQ4_NL, to, w, o0, o1);
        break;
    case DTYPE_Q4_K:
        take(DTYPE_Q4_K, to, w, o0, o1);
        break;
    case DTYPE_Q5_K:
        take(DTYPE_Q5_K, to, w, o0, o1);
        break;
    default:
        take(DTYPE_Q6_K, to, w, o0, o1);
        break;
    }
}
