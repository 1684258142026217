/* Simulator of CUDA, part 1: vector types, 16-bit numbers and arithmetic by CUDA's names. */
#ifndef PV_TESTS_CUDASIM_TYPES_H
#define PV_TESTS_CUDASIM_TYPES_H

#include <cmath> /* before the macros below */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

/* A vector of 2, 3 or 4, aligned as CUDA has it. */
#define CUDASIM_VEC2(name, T, al)                                                                  \
    struct alignas(al) name {                                                                      \
        T x, y;                                                                                    \
    }
#define CUDASIM_VEC3(name, T)                                                                      \
    struct name {                                                                                  \
        T x, y, z;                                                                                 \
    }
#define CUDASIM_VEC4(name, T, al)                                                                  \
    struct alignas(al) name {                                                                      \
        T x, y, z, w;                                                                              \
    }

CUDASIM_VEC2(char2, signed char, 2);
CUDASIM_VEC2(uchar2, unsigned char, 2);
CUDASIM_VEC2(short2, short, 4);
CUDASIM_VEC2(ushort2, unsigned short, 4);
CUDASIM_VEC2(int2, int, 8);
CUDASIM_VEC2(uint2, unsigned, 8);
CUDASIM_VEC2(float2, float, 8);
CUDASIM_VEC2(double2, double, 16);
CUDASIM_VEC2(longlong2, long long, 16);
CUDASIM_VEC2(ulonglong2, unsigned long long, 16);
CUDASIM_VEC3(int3, int);
CUDASIM_VEC3(uint3, unsigned);
CUDASIM_VEC3(float3, float);
CUDASIM_VEC4(char4, signed char, 4);
CUDASIM_VEC4(uchar4, unsigned char, 4);
CUDASIM_VEC4(short4, short, 8);
CUDASIM_VEC4(ushort4, unsigned short, 8);
CUDASIM_VEC4(int4, int, 16);
CUDASIM_VEC4(uint4, unsigned, 16);
CUDASIM_VEC4(float4, float, 16);

template <class V, class... T> static inline V cudasim_make(T... t)
{
    return V{ (decltype(V::x))t... };
}

#define make_char2(...) cudasim_make<char2>(__VA_ARGS__)
#define make_uchar2(...) cudasim_make<uchar2>(__VA_ARGS__)
#define make_short2(...) cudasim_make<short2>(__VA_ARGS__)
#define make_ushort2(...) cudasim_make<ushort2>(__VA_ARGS__)
#define make_int2(...) cudasim_make<int2>(__VA_ARGS__)
#define make_uint2(...) cudasim_make<uint2>(__VA_ARGS__)
#define make_float2(...) cudasim_make<float2>(__VA_ARGS__)
#define make_double2(...) cudasim_make<double2>(__VA_ARGS__)
#define make_longlong2(...) cudasim_make<longlong2>(__VA_ARGS__)
#define make_ulonglong2(...) cudasim_make<ulonglong2>(__VA_ARGS__)
#define make_int3(...) cudasim_make<int3>(__VA_ARGS__)
#define make_uint3(...) cudasim_make<uint3>(__VA_ARGS__)
#define make_float3(...) cudasim_make<float3>(__VA_ARGS__)
#define make_char4(...) cudasim_make<char4>(__VA_ARGS__)
#define make_uchar4(...) cudasim_make<uchar4>(__VA_ARGS__)
#define make_short4(...) cudasim_make<short4>(__VA_ARGS__)
#define make_ushort4(...) cudasim_make<ushort4>(__VA_ARGS__)
#define make_int4(...) cudasim_make<int4>(__VA_ARGS__)
#define make_uint4(...) cudasim_make<uint4>(__VA_ARGS__)
#define make_float4(...) cudasim_make<float4>(__VA_ARGS__)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

/* ---- bits ---- */

template <class To, class From> static inline To cudasim_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

static inline unsigned __float_as_uint(float f)
{
    return cudasim_bits<unsigned>(f);
}

static inline int __float_as_int(float f)
{
    return cudasim_bits<int>(f);
}

static inline float __uint_as_float(unsigned u)
{
    return cudasim_bits<float>(u);
}

static inline float __int_as_float(int i)
{
    return cudasim_bits<float>(i);
}

static inline long long __double_as_longlong(double d)
{
    return cudasim_bits<long long>(d);
}

static inline double __longlong_as_double(long long i)
{
    return cudasim_bits<double>(i);
}

static inline int __popc(unsigned u)
{
    return __builtin_popcount(u);
}

static inline int __popcll(unsigned long long u)
{
    return __builtin_popcountll(u);
}

static inline int __clz(int i)
{
    return i ? __builtin_clz((unsigned)i) : 32;
}

static inline int __ffs(int i)
{
    return __builtin_ffs(i);
}

static inline unsigned __brev(unsigned u)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (u >> i & 1) << (31 - i);
    return r;
}

/* Byte i of the result is byte `s >> 4 i & 7` of y:x; with bit 3, its sign everywhere. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    uint64_t both = (uint64_t)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned sel = s >> 4 * i & 15, b = both >> 8 * (sel & 7) & 255;
        if (sel & 8)
            b = b & 128 ? 255 : 0;
        r |= b << 8 * i;
    }
    return r;
}

static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)((((uint64_t)hi << 32 | lo) << (n & 31)) >> 32);
}

static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (n & 31));
}

static inline int __dp4a(int a, int b, int c)
{
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 4; i++)
        sum += (unsigned)((int8_t)((unsigned)a >> 8 * i) * (int8_t)((unsigned)b >> 8 * i));
    return (int)sum;
}

static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 4; i++)
        c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
}

static inline unsigned __vadd4(unsigned a, unsigned b)
{
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (((a >> 8 * i) + (b >> 8 * i)) & 255) << 8 * i;
    return r;
}

static inline unsigned __vsub4(unsigned a, unsigned b)
{
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (((a >> 8 * i) - (b >> 8 * i)) & 255) << 8 * i;
    return r;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}

/* ---- arithmetic ---- */

template <class A, class B>
static inline typename std::common_type<A, B>::type min(const A &a, const B &b)
{
    typedef typename std::common_type<A, B>::type T;
    return (T)a < (T)b ? (T)a : (T)b;
}

template <class A, class B>
static inline typename std::common_type<A, B>::type max(const A &a, const B &b)
{
    typedef typename std::common_type<A, B>::type T;
    return (T)a > (T)b ? (T)a : (T)b;
}

static inline float min(float a, float b)
{
    return fminf(a, b);
}

static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

static inline double min(double a, double b)
{
    return fmin(a, b);
}

static inline double max(double a, double b)
{
    return fmax(a, b);
}

static inline float rsqrtf(float x)
{
    return (float)(1.0 / sqrt((double)x));
}

static inline float cudasim_exp(float x)
{
    return expf(x);
}

static inline float cudasim_log(float x)
{
    return logf(x);
}

/* Without the instruction, the library's is slow; this differs once in a blue moon. */
static inline float cudasim_fma(float a, float b, float c)
{
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    return __builtin_fmaf(a, b, c);
#else
    return (float)((double)a * b + c);
#endif
}
#define fmaf(a, b, c) cudasim_fma(a, b, c)

/* The C library has functions of these names for itself. */
#define __expf(x) cudasim_exp(x)
#define __exp10f(x) ((float)pow(10.0, (double)(x)))
#define __logf(x) cudasim_log(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __sincosf(x, s, c) (void)(*(s) = sinf(x), *(c) = cosf(x))
#define __fdividef(x, y) ((float)(x) / (float)(y))
#define __fadd_rn(x, y) ((float)(x) + (float)(y))
#define __dadd_rn(x, y) ((double)(x) + (double)(y))
#define __dmul_rn(x, y) ((double)(x) * (double)(y))
#define __fsub_rn(x, y) ((float)(x) - (float)(y))
#define __fmul_rn(x, y) ((float)(x) * (float)(y))
#define __fdiv_rn(x, y) ((float)(x) / (float)(y))
#define __fmaf_rn(x, y, z) fmaf(x, y, z)
#define __frcp_rn(x) (1.0f / (float)(x))
#define __fsqrt_rn(x) sqrtf(x)
#define __frsqrt_rn(x) rsqrtf(x)
#define __saturatef(x) fminf(fmaxf(x, 0.0f), 1.0f)
#define __int2float_rn(x) ((float)(int)(x))
#define __uint2float_rn(x) ((float)(unsigned)(x))
#define __float2int_rn(x) ((int)rintf(x))
#define __float2int_rz(x) ((int)(x))
#define __float2uint_rn(x) ((unsigned)rintf(x))

/* ---- 16-bit numbers ---- */

struct __half {
    uint16_t x;
};
struct __nv_bfloat16 {
    uint16_t x;
};
struct alignas(4) __half2 {
    __half x, y;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

/* d with `bits` of mantissa and exponents from emin, nearest even; what is beyond the largest
 * number is the caller's. */
static inline double cudasim_round(double d, int bits, int emin)
{
    uint64_t u = cudasim_bits<uint64_t>(d), half = (uint64_t)1 << (51 - bits);
    int e = (int)(u >> 52 & 2047) - 1023;
    if (e >= emin && e < 1023) /* the usual: drop what is below, with a carry into the exponent */
        return cudasim_bits<double>((u + half - 1 + (u >> (52 - bits) & 1)) & ~(2 * half - 1));
    if (d == 0 || !isfinite(d))
        return d;
    frexp(d, &e);
    e = (e - 1 < emin ? emin : e - 1) - bits;
    return ldexp(rint(ldexp(d, -e)), e);
}

static inline __half cudasim_half(double d)
{
    uint16_t sign = signbit(d) ? 0x8000 : 0;
    if (isnan(d))
        return __half{ 0x7fff };
    double r = fabs(cudasim_round(d, 10, -14));
    if (r >= 65536)
        return __half{ (uint16_t)(sign | 0x7c00) };
    if (r < 0x1p-14)
        return __half{ (uint16_t)(sign | (uint16_t)(r * 0x1p24)) };
    uint64_t u = cudasim_bits<uint64_t>(r);
    return __half{ (uint16_t)(sign | ((u >> 52) - 1008) << 10 | (u >> 42 & 0x3ff)) };
}

static inline __nv_bfloat16 cudasim_bfloat(double d)
{
    if (isnan(d))
        return __nv_bfloat16{ 0x7fff };
    float f = (float)cudasim_round(d, 7, -126);
    return __nv_bfloat16{ (uint16_t)(cudasim_bits<uint32_t>(f) >> 16) };
}

static inline float __half2float(__half h)
{
    unsigned e = h.x >> 10 & 31, m = h.x & 0x3ff, sign = (unsigned)(h.x & 0x8000) << 16;
    if (e == 0) {
        float f = (float)m * 0x1p-24f;
        return sign ? -f : f;
    }
    return __uint_as_float(sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13);
}

static inline float __bfloat162float(__nv_bfloat16 b)
{
    return __uint_as_float((unsigned)b.x << 16);
}

static inline float cudasim_wide(__half h)
{
    return __half2float(h);
}

static inline float cudasim_wide(__nv_bfloat16 b)
{
    return __bfloat162float(b);
}

static inline void cudasim_narrow(__half *h, double d)
{
    *h = cudasim_half(d);
}

static inline void cudasim_narrow(__nv_bfloat16 *b, double d)
{
    *b = cudasim_bfloat(d);
}

/* H is __half or __nv_bfloat16, H2 a pair of them. */
template <class H> static inline H __hfma(H a, H b, H c)
{
    H h;
    cudasim_narrow(&h, (double)cudasim_wide(a) * cudasim_wide(b) + cudasim_wide(c));
    return h;
}

template <class H> static inline H __hmul(H a, H b)
{
    H h;
    cudasim_narrow(&h, (double)cudasim_wide(a) * cudasim_wide(b));
    return h;
}

template <class H> static inline H __hadd(H a, H b)
{
    H h;
    cudasim_narrow(&h, (double)cudasim_wide(a) + cudasim_wide(b));
    return h;
}

template <class H> static inline H __hsub(H a, H b)
{
    H h;
    cudasim_narrow(&h, (double)cudasim_wide(a) - cudasim_wide(b));
    return h;
}

template <class H2> static inline H2 __hfma2(H2 a, H2 b, H2 c)
{
    return H2{ __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) };
}

template <class H2> static inline H2 __hmul2(H2 a, H2 b)
{
    return H2{ __hmul(a.x, b.x), __hmul(a.y, b.y) };
}

template <class H2> static inline H2 __hadd2(H2 a, H2 b)
{
    return H2{ __hadd(a.x, b.x), __hadd(a.y, b.y) };
}

template <class H2> static inline H2 __hsub2(H2 a, H2 b)
{
    return H2{ __hsub(a.x, b.x), __hsub(a.y, b.y) };
}

template <class H2> static inline float __low2float(H2 v)
{
    return cudasim_wide(v.x);
}

template <class H2> static inline float __high2float(H2 v)
{
    return cudasim_wide(v.y);
}

template <class H2> static inline float2 cudasim_pair(H2 v)
{
    return make_float2(cudasim_wide(v.x), cudasim_wide(v.y));
}

static inline __half2 __floats2half2_rn(float lo, float hi)
{
    return __half2{ cudasim_half(lo), cudasim_half(hi) };
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float lo, float hi)
{
    return __nv_bfloat162{ cudasim_bfloat(lo), cudasim_bfloat(hi) };
}

#define __half22float2(v) cudasim_pair<__half2>(v)
#define __bfloat1622float2(v) cudasim_pair<__nv_bfloat162>(v)
#define __half2half2(v) (__half2{ v, v })
#define __bfloat162bfloat162(v) (__nv_bfloat162{ v, v })
#define __half_as_ushort(h) ((unsigned short)(h).x)
#define __bfloat16_as_ushort(b) ((unsigned short)(b).x)
#define __ushort_as_half(u) (__half{ (uint16_t)(u) })
#define __ushort_as_bfloat16(u) (__nv_bfloat16{ (uint16_t)(u) })
#define __float2half_rn(f) cudasim_half(f)
#define __float2half(f) cudasim_half(f)
#define __float2bfloat16_rn(f) cudasim_bfloat(f)
#define __float2bfloat16(f) cudasim_bfloat(f)

static inline __half2 __halves2half2(__half a, __half b)
{
    return __half2{ a, b };
}

static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat162{ a, b };
}

#endif
