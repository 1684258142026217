/* The vectors of the instruction set this file is compiled for. The templates of this folder
 * (elementwise.h, matmul_float.h, quant_unpack.h, matmul_quant.h) are written over them and
 * compiled once per set. */
#ifndef PV_KERNELS_X86_VEC_X86_H
#define PV_KERNELS_X86_VEC_X86_H

#ifdef __AVX512F__
#include "kernels/x86/vec_avx512.h"
#else
#include "kernels/x86/vec_avx2.h"
#endif

#endif
