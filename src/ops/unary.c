/* unary.c - pointwise mathematics of one tensor.
 * SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "ops/arith.h"

/* The result in the argument's dtype. */
static void same(op_ctx *c)
{
    tpu_dtype t = arg_dtype(c, 0);
    if (t == TPU_BOOL) refuse(c);
    else op_out_as(c, hlo_op1(op_fn(c), op_row_of(c)->word, op_in_math(c, 0)), t);
}

/* True functions: integers give float32 [P1]. */
static hlo real_in(op_ctx *c)
{
    return hlo_convert(op_fn(c), op_in(c, 0), dtype_compute(op_to_float(arg_dtype(c, 0))));
}

static void real_out(op_ctx *c, hlo y) { op_out_as(c, y, op_to_float(arg_dtype(c, 0))); }
static void real(op_ctx *c) { real_out(c, hlo_op1(op_fn(c), op_row_of(c)->word, real_in(c))); }

/* A true function written as hlo -> hlo. */
#define REAL(name, expression) \
    static void name(op_ctx *c) \
    { \
        hlo_fn *f = op_fn(c); \
        hlo x = real_in(c); \
        real_out(c, expression); \
    }

REAL(log10_, over_k(f, logarithm(f, x), M_LN10))
REAL(deg2rad, times_k(f, x, M_PI / 180))
REAL(rad2deg, times_k(f, x, 180 / M_PI))
REAL(reciprocal, k_over(f, 1, x))

static void absolute(op_ctx *c)
{
    tpu_dtype t = arg_dtype(c, 0);
    if (t == TPU_BOOL) refuse(c);
    else op_out_as(c, magnitude(op_fn(c), op_in_math(c, 0)), dtype_real(t));
}

/* (x > 0) - (x < 0): NaN gives 0, as in PyTorch [N3]. */
static hlo sign_of(hlo_fn *f, hlo x)
{
    tpu_dtype t = hlo_dtype(f, x);
    if (t == TPU_BOOL) return x;
    hlo positive = hlo_convert(f, compare_k(f, "GT", x, 0), t);
    return dtype_is_unsigned(t) ? positive : minus(f, positive, hlo_convert(f, compare_k(f, "LT", x, 0), t));
}

static void sign(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    if (!dtype_is_complex(hlo_dtype(f, x))) {
        op_out(c, sign_of(f, x));
        return;
    }
    hlo r = hlo_convert(f, magnitude(f, x), hlo_dtype(f, x));
    op_out(c, hlo_select(f, compare_k(f, "EQ", r, 0), hlo_like_f(f, x, 0), over(f, x, r)));
}

/* ---- rounding: integers stay ---- */
static void rounding(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *word = op_row_of(c)->word;
    tpu_dtype t = arg_dtype(c, 0);
    if (dtype_is_int(t)) op_out(c, op_in(c, 0));
    else if (!dtype_is_float(t)) refuse(c);
    else op_out_as(c, word ? hlo_op1(f, word, op_in_math(c, 0)) : truncated(f, op_in_math(c, 0)), t);
}

static void frac(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0);
    if (!dtype_is_float(hlo_dtype(f, x))) refuse(c);
    else op_out_as(c, minus(f, x, truncated(f, x)), arg_dtype(c, 0));
}

static void round_decimals(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int64_t decimals = op_int(c, 1);
    tpu_dtype t = arg_dtype(c, 0);
    if (!dtype_is_float(t)) {
        if (dtype_is_int(t) && decimals == 0) op_out(c, op_in(c, 0));
        else refuse(c);
        return;
    }
    double ten = pow(10, (double)llabs(decimals));
    hlo x = op_in_math(c, 0);
    x = decimals > 0 ? times_k(f, x, ten) : decimals ? over_k(f, x, ten) : x;
    x = hlo_op1(f, "round_nearest_even", x);
    x = decimals > 0 ? over_k(f, x, ten) : decimals ? times_k(f, x, ten) : x;
    op_out_as(c, x, t);
}

/* ---- exponentials and logarithms ---- */
static void exp2_(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = real_in(c);
    bool complex = dtype_is_complex(hlo_dtype(f, x));
    real_out(c, complex ? exponential(f, times_k(f, x, M_LN2)) : hlo_op2(f, "power", hlo_like_f(f, x, 2), x));
}

/* x = m 2^e with m in [0.5, 1) for normal float32 numbers; smaller ones must have been scaled up. */
static void split_float(hlo_fn *f, hlo x, hlo *m, hlo *e)
{
    hlo bits = hlo_bitcast(f, x, TPU_I32);
    hlo exponent = both(f, hlo_op2(f, "shift_right_logical", bits, hlo_like_i(f, bits, 23)), hlo_like_i(f, bits, 255));
    *e = plus(f, exponent, hlo_like_i(f, bits, -126));
    hlo half = either(f, both(f, bits, hlo_like_i(f, bits, (int32_t)0x807fffff)), hlo_like_i(f, bits, 0x3f000000));
    *m = hlo_bitcast(f, half, TPU_F32);
}

/* Powers of two come out exact for float32: the exponent is taken from the bits. */
static void log2_(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = real_in(c);
    if (hlo_dtype(f, x) != TPU_F32) {
        real_out(c, over_k(f, logarithm(f, x), M_LN2));
        return;
    }
    hlo small = compare_k(f, "LT", x, FLT_MIN), m, e;
    split_float(f, hlo_select(f, small, times_k(f, x, 0x1p24), x), &m, &e);
    hlo low = compare_k(f, "LT", m, M_SQRT1_2);
    m = hlo_select(f, low, plus(f, m, m), m);
    hlo whole = minus(f, hlo_convert(f, e, TPU_F32), hlo_convert(f, low, TPU_F32));
    whole = hlo_select(f, small, plus_k(f, whole, -24), whole);
    hlo y = plus(f, whole, over_k(f, logarithm(f, m), M_LN2));
    hlo normal = both(f, compare_k(f, "GT", x, 0), compare_k(f, "LT", x, HUGE_VAL));
    /* Not log(x): XLA folds a logarithm of a power past its overflow. */
    hlo rest = hlo_select(f, compare_k(f, "EQ", x, HUGE_VAL), x, hlo_like_f(f, x, (double)NAN));
    rest = hlo_select(f, compare_k(f, "EQ", x, 0), hlo_like_f(f, x, -HUGE_VAL), rest);
    real_out(c, hlo_select(f, normal, y, rest));
}

/* float32 by Cephes' reduction to |x| <= tan(pi / 8): XLA:CPU's own, vectorised, mixes lanes. */
static hlo atan_f32(hlo_fn *f, hlo x)
{
    static const double coef[] = {8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1};
    hlo a = magnitude(f, x), far = compare_k(f, "GT", a, 2.414213562373095), mid = compare_k(f, "GT", a, 0.4142135623730950);
    hlo t = hlo_select(f, far, negate(f, k_over(f, 1, a)), hlo_select(f, mid, over(f, plus_k(f, a, -1), plus_k(f, a, 1)), a));
    hlo base = hlo_select(f, far, hlo_like_f(f, a, M_PI_2), hlo_select(f, mid, hlo_like_f(f, a, M_PI_4), hlo_like_f(f, a, 0)));
    hlo z = square(f, t), y = plus(f, base, plus(f, times(f, times(f, polynomial(f, z, coef, 4), z), t), t));
    return hlo_select(f, sign_bit(f, x), negate(f, y), y);
}

static void atan_(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = real_in(c);
    real_out(c, hlo_dtype(f, x) == TPU_F32 ? atan_f32(f, x) : hlo_op1(f, "chlo.atan", x));
}

/* frexp.Tensor(x) -> (mantissa, exponent): exact through powers of two for any float. */
static void frexp_(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = arg_dtype(c, 0);
    hlo x = op_in_math(c, 0), m, e;
    if (!dtype_is_float(t)) {
        refuse(c);
        return;
    }
    hlo plain = both(f, hlo_op1(f, "is_finite", x), compare_k(f, "NE", x, 0));
    if (hlo_dtype(f, x) == TPU_F32) {
        hlo small = compare_k(f, "LT", magnitude(f, x), FLT_MIN);
        split_float(f, hlo_select(f, small, times_k(f, x, 0x1p24), x), &m, &e);
        e = hlo_select(f, small, plus(f, e, hlo_like_i(f, e, -24)), e);
    } else {
        m = x;
        hlo power = hlo_like_f(f, x, 0);
        for (int bit = 10; bit >= 0; bit--) { /* |m| >= 1: down; < 0.5: up */
            double by = (double)(1 << bit);
            hlo big = compare_k(f, "GE", magnitude(f, m), bit ? ldexp(1, (1 << bit) - 1) : 1);
            m = hlo_select(f, big, times_k(f, m, bit == 10 ? 0 : ldexp(1, -(1 << bit))), m);
            power = hlo_select(f, big, plus_k(f, power, by), power);
        }
        for (int bit = 9; bit >= 0; bit--) {
            hlo tiny = compare_k(f, "LT", magnitude(f, m), ldexp(1, -(1 << bit)));
            m = hlo_select(f, tiny, times_k(f, m, ldexp(1, 1 << bit)), m);
            power = hlo_select(f, tiny, plus_k(f, power, -(double)(1 << bit)), power);
        }
        e = hlo_convert(f, power, TPU_I32);
    }
    op_out_as(c, hlo_select(f, plain, m, x), t);
    op_out(c, hlo_select(f, plain, e, hlo_like_i(f, e, 0)));
}

static void logit(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = real_in(c);
    if (op_has(c, 1)) {
        hlo eps = number_like(c, 1, x), high = k_minus(f, 1, eps);
        hlo bounded = hlo_min(f, hlo_max(f, x, eps), high);
        x = hlo_select(f, compare_k(f, "LT", eps, 0), x, bounded);
    }
    real_out(c, logarithm(f, over(f, x, k_minus(f, 1, x))));
}

/* ---- others that have no word ---- */
/* The sum of lgamma(x - i/2) over i < p, and p(p-1)/4 log(pi). */
static void mvlgamma(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int64_t p = op_int(c, 1);
    hlo x = real_in(c), sum = hlo_like_f(f, x, (double)(p * (p - 1)) / 4 * log(M_PI));
    for (int64_t i = 0; i < p; i++) sum = plus(f, sum, hlo_op1(f, "chlo.lgamma", plus_k(f, x, -0.5 * (double)i)));
    real_out(c, sum);
}

static void sinc(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = real_in(c), a = times_k(f, x, M_PI);
    hlo y = over(f, hlo_op1(f, "sine", a), a);
    real_out(c, hlo_select(f, compare_k(f, "EQ", x, 0), hlo_like_f(f, x, 1), y));
}

/* ---- questions ---- */
static hlo infinite(hlo_fn *f, hlo x) { return compare_k(f, "EQ", magnitude(f, x), HUGE_VAL); }

static void is_nan(op_ctx *c) { op_out(c, hlo_isnan(op_fn(c), op_in(c, 0))); }

static void is_inf(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_dtype t = hlo_dtype(f, x);
    if (dtype_is_integral(t)) op_out(c, hlo_const_i(f, type_as(hlo_type(f, x), TPU_BOOL), 0));
    else if (dtype_is_complex(t)) op_out(c, either(f, infinite(f, hlo_op1(f, "real", x)), infinite(f, hlo_op1(f, "imag", x))));
    else op_out(c, infinite(f, x));
}

static void is_signed_inf(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_dtype t = hlo_dtype(f, x);
    double limit = op_row_of(c)->word[0] == '-' ? -HUGE_VAL : HUGE_VAL;
    if (dtype_is_integral(t)) op_out(c, hlo_const_i(f, type_as(hlo_type(f, x), TPU_BOOL), 0));
    else if (dtype_is_complex(t)) refuse(c);
    else op_out(c, compare_k(f, "EQ", x, limit));
}

static void signbit_(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_dtype t = hlo_dtype(f, x);
    if (t == TPU_BOOL || dtype_is_unsigned(t)) op_out(c, hlo_const_i(f, type_as(hlo_type(f, x), TPU_BOOL), 0));
    else if (dtype_is_complex(t)) refuse(c);
    else op_out(c, sign_bit(f, x));
}

static void bitwise_not(op_ctx *c)
{
    if (!dtype_is_integral(arg_dtype(c, 0))) refuse(c);
    else op_out(c, hlo_op1(op_fn(c), "not", op_in(c, 0)));
}

static void logical_not(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    op_out(c, hlo_op1(f, "not", hlo_convert(f, op_in(c, 0), TPU_BOOL)));
}

/* ---- complex numbers, and replacing values ---- */
static void angle(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = real_in(c);
    if (dtype_is_complex(hlo_dtype(f, x))) {
        op_out(c, hlo_op2(f, "atan2", hlo_op1(f, "imag", x), hlo_op1(f, "real", x)));
        return;
    }
    hlo turn = hlo_select(f, compare_k(f, "LT", x, 0), hlo_like_f(f, x, M_PI), hlo_like_f(f, x, 0));
    real_out(c, hlo_select(f, hlo_isnan(f, x), x, turn));
}

static void conjugate(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    if (dtype_is_complex(hlo_dtype(f, x))) x = hlo_op2(f, "complex", hlo_op1(f, "real", x), negate(f, hlo_op1(f, "imag", x)));
    op_out(c, x);
}

/* The largest finite number of a dtype. */
static double largest(tpu_dtype t)
{
    return t == TPU_F16 ? 65504 : t == TPU_BF16 ? 0x1.fep127 : t == TPU_F64 || t == TPU_C128 ? DBL_MAX : FLT_MAX;
}

static hlo replaced(op_ctx *c, hlo x, double limit)
{
    hlo_fn *f = op_fn(c);
    hlo nan = op_has(c, 1) ? number_like(c, 1, x) : hlo_like_f(f, x, 0);
    hlo high = op_has(c, 2) ? number_like(c, 2, x) : hlo_like_f(f, x, limit);
    hlo low = op_has(c, 3) ? number_like(c, 3, x) : hlo_like_f(f, x, -limit);
    hlo y = hlo_select(f, hlo_isnan(f, x), nan, x);
    y = hlo_select(f, compare_k(f, "EQ", x, HUGE_VAL), high, y);
    return hlo_select(f, compare_k(f, "EQ", x, -HUGE_VAL), low, y);
}

static void nan_to_num(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = arg_dtype(c, 0);
    hlo x = op_in_math(c, 0);
    if (dtype_is_integral(t)) {
        op_out(c, x);
    } else if (dtype_is_complex(t)) {
        hlo re = replaced(c, hlo_op1(f, "real", x), largest(t));
        op_out(c, hlo_op2(f, "complex", re, replaced(c, hlo_op1(f, "imag", x), largest(t))));
    } else {
        op_out_as(c, replaced(c, x, largest(t)), t);
    }
}

/* clang-format off */
const op_row ops_unary[] = {
    { "neg",              same,          "negate", OP_ELEMENTWISE },
    { "abs",              absolute,      NULL, OP_ELEMENTWISE },
    { "sign",             sign,          NULL, OP_ELEMENTWISE },
    { "sgn",              sign,          NULL, OP_ELEMENTWISE },
    { "floor",            rounding,      "floor", OP_ELEMENTWISE },
    { "ceil",             rounding,      "ceil", OP_ELEMENTWISE },
    { "round",            rounding,      "round_nearest_even", OP_ELEMENTWISE },
    { "trunc",            rounding,      NULL, OP_ELEMENTWISE },
    { "round.decimals",   round_decimals, NULL, OP_ELEMENTWISE },
    { "frac",             frac,          NULL, OP_ELEMENTWISE },
    { "exp",              real,          "exponential", OP_ELEMENTWISE },
    { "expm1",            real,          "exponential_minus_one", OP_ELEMENTWISE },
    { "exp2",             exp2_,         NULL, OP_ELEMENTWISE },
    { "log",              real,          "log", OP_ELEMENTWISE },
    { "log1p",            real,          "log_plus_one", OP_ELEMENTWISE },
    { "log2",             log2_,         NULL, OP_ELEMENTWISE },
    { "log10",            log10_,        NULL, OP_ELEMENTWISE },
    { "frexp.Tensor",     frexp_,        NULL, OP_ELEMENTWISE },
    { "sqrt",             real,          "sqrt", OP_ELEMENTWISE },
    { "rsqrt",            real,          "rsqrt", OP_ELEMENTWISE },
    { "reciprocal",       reciprocal,    NULL, OP_ELEMENTWISE },
    { "sigmoid",          real,          "logistic", OP_ELEMENTWISE },
    { "logit",            logit,         NULL, OP_ELEMENTWISE },
    { "sin",              real,          "sine", OP_ELEMENTWISE },
    { "cos",              real,          "cosine", OP_ELEMENTWISE },
    { "tan",              real,          "tan", OP_ELEMENTWISE },
    { "asin",             real,          "chlo.asin", OP_ELEMENTWISE },
    { "acos",             real,          "chlo.acos", OP_ELEMENTWISE },
    { "atan",             atan_,         NULL, OP_ELEMENTWISE },
    { "sinh",             real,          "chlo.sinh", OP_ELEMENTWISE },
    { "cosh",             real,          "chlo.cosh", OP_ELEMENTWISE },
    { "tanh",             real,          "tanh", OP_ELEMENTWISE },
    { "asinh",            real,          "chlo.asinh", OP_ELEMENTWISE },
    { "acosh",            real,          "chlo.acosh", OP_ELEMENTWISE },
    { "atanh",            real,          "chlo.atanh", OP_ELEMENTWISE },
    { "erf",              real,          "chlo.erf", OP_ELEMENTWISE },
    { "erfc",             real,          "chlo.erfc", OP_ELEMENTWISE },
    { "erfinv",           real,          "chlo.erf_inv", OP_ELEMENTWISE },
    { "lgamma",           real,          "chlo.lgamma", OP_ELEMENTWISE },
    { "mvlgamma",         mvlgamma,      NULL, OP_ELEMENTWISE },
    { "sinc",             sinc,          NULL, OP_ELEMENTWISE },
    { "deg2rad",          deg2rad,       NULL, OP_ELEMENTWISE },
    { "rad2deg",          rad2deg,       NULL, OP_ELEMENTWISE },
    { "isnan",            is_nan,        NULL, OP_ELEMENTWISE },
    { "isinf",            is_inf,        NULL, OP_ELEMENTWISE },
    { "isposinf",         is_signed_inf, "+", OP_ELEMENTWISE },
    { "isneginf",         is_signed_inf, "-", OP_ELEMENTWISE },
    { "signbit",          signbit_,      NULL, OP_ELEMENTWISE },
    { "bitwise_not",      bitwise_not,   NULL, OP_ELEMENTWISE },
    { "logical_not",      logical_not,   NULL, OP_ELEMENTWISE },
    { "angle",            angle,         NULL, OP_ELEMENTWISE },
    { "_conj_physical",   conjugate,     NULL, OP_ELEMENTWISE },
    { "conj_physical",    conjugate,     NULL, OP_ELEMENTWISE },
    { "nan_to_num",       nan_to_num,    NULL, OP_ELEMENTWISE },
    { NULL },
};
/* clang-format on */
