/* hlo_const.c - constants.  Floats are printed as their bits, so that what the program holds is exact.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "hlo_internal.h"

/* ---- numbers to bits ---- */

/* A float format below float32: mantissa bits, exponent bias, the largest finite value, and what lies beyond it. */
typedef struct small_float { uint8_t mantissa, bias; uint16_t largest, beyond, nan, sign; } small_float;

static const small_float small_floats[TPU_DTYPE_COUNT] = {
    [TPU_F16] = {10, 15, 0x7bff, 0x7c00, 0x7e00, 0x8000},
    [TPU_BF16] = {7, 127, 0x7f7f, 0x7f80, 0x7fc0, 0x8000},
    [TPU_F8E4M3FN] = {3, 7, 0x7e, 0x7f, 0x7f, 0x80},
    [TPU_F8E5M2] = {2, 15, 0x7b, 0x7c, 0x7f, 0x80},
    [TPU_F8E4M3FNUZ] = {3, 8, 0x7f, 0x80, 0x80, 0x80},
    [TPU_F8E5M2FNUZ] = {2, 16, 0x7f, 0x80, 0x80, 0x80},
};

/* Round to nearest, ties to even. */
static uint64_t small_bits(const small_float *s, float v)
{
    if (isnan(v)) return s->nan;
    bool unsigned_zero = s->nan == s->sign; /* FNUZ: the pattern of -0 is NaN */
    uint64_t sign = signbit(v) ? s->sign : 0;
    double a = fabs((double)v);
    if (a == 0) return unsigned_zero ? 0 : sign;
    uint64_t bits = s->beyond;
    if (!isinf(v)) {
        int e;
        frexp(a, &e);
        int exponent = e - 1 < 1 - s->bias ? 1 - s->bias : e - 1;
        uint64_t q = (uint64_t)nearbyint(ldexp(a, s->mantissa - exponent));
        /* The implicit bit of q carries into the exponent field; a subnormal has none, and field 0. */
        bits = ((uint64_t)(exponent + s->bias) << s->mantissa) + q - ((uint64_t)1 << s->mantissa);
        if (bits > s->largest) bits = s->beyond;
    }
    if (unsigned_zero && (bits == 0 || bits == s->nan)) return bits;
    return bits | sign;
}

/* float8_e8m0fnu: an exponent only. */
static uint64_t exponent_bits(float v)
{
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    uint32_t e = b >> 23 & 0xff, mantissa = b & 0x7fffff;
    if (e == 0xff) return 0xff;
    if (mantissa > 0x400000 || (mantissa == 0x400000 && e > 0)) e++;
    return e;
}

uint64_t hlo_float_bits(tpu_dtype t, double v)
{
    if (t == TPU_F64) {
        uint64_t b;
        if (isnan(v)) return 0x7ff8000000000000ull;
        memcpy(&b, &v, sizeof b);
        return b;
    }
    float x = (float)v; /* narrower ones go through float, as in PyTorch */
    if (t == TPU_F32) {
        uint32_t b;
        if (isnan(x)) return 0x7fc00000;
        memcpy(&b, &x, sizeof b);
        return b;
    }
    return t == TPU_F8E8M0FNU ? exponent_bits(x) : small_bits(&small_floats[t], x);
}

static int64_t to_int(double v)
{
    if (isnan(v)) return 0;
    if (v >= 9223372036854775808.0) return INT64_MAX;
    return v <= -9223372036854775808.0 ? INT64_MIN : (int64_t)v;
}

static int64_t wrap_int(tpu_dtype t, int64_t v)
{
    switch (t) {
    case TPU_I8: return (int8_t)v;
    case TPU_I16: return (int16_t)v;
    case TPU_I32: return (int32_t)v;
    case TPU_U8: return (uint8_t)v;
    case TPU_U16: return (uint16_t)v;
    case TPU_U32: return (uint32_t)v;
    default: return v;
    }
}

/* ---- printing ---- */

static void put_hex(text *t, uint64_t bits, size_t bytes)
{
    static const char digit[] = "0123456789ABCDEF";
    char s[18] = "0x";
    for (size_t i = 0; i < bytes * 2; i++) s[2 + i] = digit[bits >> (bytes * 8 - 4 - 4 * i) & 15];
    text_put(t, s, 2 + bytes * 2);
}

static void put_unsigned(text *t, uint64_t v)
{
    if (v <= INT64_MAX) {
        text_int(t, (int64_t)v);
        return;
    }
    text_int(t, (int64_t)(v / 10));
    text_int(t, (int64_t)(v % 10));
}

static void put_integer(text *t, tpu_dtype d, int64_t v)
{
    if (d == TPU_BOOL) text_puts(t, v ? "true" : "false");
    else if (d == TPU_U64) put_unsigned(t, (uint64_t)v);
    else text_int(t, wrap_int(d, v));
}

static void put_float(text *t, tpu_dtype d, uint64_t bits, uint64_t imag)
{
    size_t bytes = dtype_size(dtype_real(d));
    if (dtype_is_complex(d)) text_put(t, "(", 1);
    put_hex(t, bits, bytes);
    if (!dtype_is_complex(d)) return;
    text_put(t, ", ", 2);
    put_hex(t, imag, bytes);
    text_put(t, ")", 1);
}

static hlo emit_const(hlo_fn *f, const tpu_type *t)
{
    return hlo_emit(f, NODE_CONST, "constant", NULL, 0, hlo_intern(f, t));
}

/* ---- constants ---- */

hlo hlo_const_f(hlo_fn *f, tpu_type t, double v)
{
    if (f->error) return HLO_NONE;
    tpu_dtype d = (tpu_dtype)t.dtype;
    text *m = hlo_mid(f);
    if (type_count(&t) == 0) return emit_const(f, &t);
    if (d == TPU_BOOL) put_integer(m, d, v != 0);
    else if (dtype_is_integral(d)) put_integer(m, d, to_int(v));
    else put_float(m, d, hlo_float_bits(dtype_real(d), v), 0);
    return emit_const(f, &t);
}

hlo hlo_const_i(hlo_fn *f, tpu_type t, int64_t v)
{
    if (f->error) return HLO_NONE;
    tpu_dtype d = (tpu_dtype)t.dtype;
    if (!dtype_is_integral(d)) {
        bool wide = dtype_real(d) == TPU_F64;
        return hlo_const_f(f, t, wide ? (double)v : (double)(float)v); /* one rounding, from the integer */
    }
    text *m = hlo_mid(f);
    if (type_count(&t)) put_integer(m, d, d == TPU_BOOL ? v != 0 : v);
    return emit_const(f, &t);
}

hlo hlo_zeros(hlo_fn *f, tpu_type t)
{
    return hlo_const_i(f, t, 0);
}

static bool all_equal(const char *data, size_t size, int64_t n)
{
    return n < 2 || memcmp(data, data + size, size * (size_t)(n - 1)) == 0;
}

static hlo const_splat(hlo_fn *f, tpu_type t, const char *data)
{
    tpu_dtype d = (tpu_dtype)t.dtype;
    size_t bytes = dtype_size(dtype_real(d));
    uint64_t v = 0, imag = 0; /* little-endian, as every platform here */
    memcpy(&v, data, bytes);
    if (dtype_is_complex(d)) memcpy(&imag, data + bytes, bytes);
    text *m = hlo_mid(f);
    if (dtype_is_integral(d)) put_integer(m, d, (int64_t)v);
    else put_float(m, d, v, imag);
    return emit_const(f, &t);
}

hlo hlo_const_data(hlo_fn *f, tpu_type t, const void *data)
{
    if (f->error) return HLO_NONE;
    tpu_dtype d = (tpu_dtype)t.dtype;
    int64_t n = type_count(&t);
    if (n == 0) return hlo_zeros(f, t);
    if (all_equal(data, dtype_size(d), n)) return const_splat(f, t, data);
    if (d == TPU_BOOL) { /* how raw i1 is packed depends on the plugin's MLIR */
        hlo bytes = hlo_const_data(f, type_as(t, TPU_U8), data);
        return hlo_compare(f, "NE", bytes, hlo_zeros(f, type_as(t, TPU_U8)));
    }
    static const char digit[] = "0123456789ABCDEF";
    text *m = hlo_mid(f);
    text_put(m, "\"0x", 3);
    const unsigned char *s = data;
    for (size_t left = (size_t)n * dtype_size(d); left;) {
        char part[256];
        size_t k = left < 128 ? left : 128;
        for (size_t i = 0; i < k; i++) {
            part[2 * i] = digit[s[i] >> 4];
            part[2 * i + 1] = digit[s[i] & 15];
        }
        text_put(m, part, 2 * k);
        s += k;
        left -= k;
    }
    text_put(m, "\"", 1);
    return emit_const(f, &t);
}

/* The greatest or least element; float8 formats without infinity have a largest number instead. */
static hlo extreme(hlo_fn *f, tpu_type t, bool least)
{
    static const int64_t greatest[] = {[TPU_I8] = INT8_MAX, [TPU_I16] = INT16_MAX, [TPU_I32] = INT32_MAX,
                                       [TPU_I64] = INT64_MAX, [TPU_U8] = UINT8_MAX, [TPU_U16] = UINT16_MAX,
                                       [TPU_U32] = UINT32_MAX, [TPU_U64] = -1};
    tpu_dtype d = (tpu_dtype)t.dtype;
    if (d == TPU_BOOL) return hlo_const_i(f, t, !least);
    if (dtype_is_signed_int(d)) return hlo_const_i(f, t, least ? -greatest[d] - 1 : greatest[d]);
    if (dtype_is_unsigned(d)) return hlo_const_i(f, t, least ? 0 : greatest[d]);
    if (dtype_is_complex(d)) {
        hlo_fail(f, TPU_PRECONDITION, "complex numbers have no order");
        return HLO_NONE;
    }
    double v = d == TPU_F8E4M3FN ? 448 : d == TPU_F8E4M3FNUZ ? 240 : d == TPU_F8E5M2FNUZ ? 57344 : (double)INFINITY;
    if (d == TPU_F8E8M0FNU) return hlo_const_f(f, t, least ? 0x1p-127 : 0x1p127);
    return hlo_const_f(f, t, least ? -v : v);
}

hlo hlo_lowest(hlo_fn *f, tpu_type t)
{
    return extreme(f, t, true);
}

hlo hlo_highest(hlo_fn *f, tpu_type t)
{
    return extreme(f, t, false);
}

hlo hlo_iota(hlo_fn *f, tpu_type t, int dim)
{
    if (f->error) return HLO_NONE;
    if (dim < 0 || dim >= t.rank) {
        hlo_fail(f, TPU_INTERNAL, "iota: no dimension %d", dim);
        return HLO_NONE;
    }
    text *m = hlo_mid(f);
    text_puts(m, "{iota_dimension = ");
    text_int(m, dim);
    text_puts(m, " : i64}");
    return hlo_emit_type(f, "iota", NULL, 0, &t);
}
