/* Tile products of int8 blocks, with the sums alternately in tiles 0 to 3. The number of a tile is
 * part of the instruction, hence the switch. */
#ifndef PV_KERNELS_X86_TILE_INT8_H
#define PV_KERNELS_X86_TILE_INT8_H

#include "kernels/x86/tile_amx.h"

/* Set tile c to a . b, through tiles 4 and 6 or 5 and 7; rows of a and b are a_stride, b_stride
 * bytes apart. */
static inline void tile_product(int c, const uint8_t *a, size_t a_stride, const uint8_t *b,
                                size_t b_stride)
{
    switch (c) {
    case 0:
        _tile_zero(0);
        _tile_loadd(4, a, a_stride);
        _tile_loadd(6, b, b_stride);
        _tile_dpbssd(0, 4, 6);
        break;
    case 1:
        _tile_zero(1);
        _tile_loadd(5, a, a_stride);
        _tile_loadd(7, b, b_stride);
        _tile_dpbssd(1, 5, 7);
        break;
    case 2:
        _tile_zero(2);
        _tile_loadd(4, a, a_stride);
        _tile_loadd(6, b, b_stride);
        _tile_dpbssd(2, 4, 6);
        break;
    default:
        _tile_zero(3);
        _tile_loadd(5, a, a_stride);
        _tile_loadd(7, b, b_stride);
        _tile_dpbssd(3, 5, 7);
        break;
    }
}

static inline void tile_put(int c, int32_t *to, size_t stride)
{
    switch (c) {
    case 0:
        _tile_stored(0, to, stride);
        break;
    case 1:
        _tile_stored(1, to, stride);
        break;
    case 2:
        _tile_stored(2, to, stride);
        break;
    default:
        _tile_stored(3, to, stride);
        break;
    }
}

#endif
