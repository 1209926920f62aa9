/* binary.c - arithmetic of two tensors, or of a tensor and a number.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "arith.h"

static hlo floored(hlo_fn *f, hlo x) { return hlo_op1(f, "floor", x); }

/* ---- one StableHLO op in the common dtype: add sub mul and kin ---- */
static bool refuses_bool(op_ctx *c, tpu_dtype t)
{
    if (t != TPU_BOOL || op_row_of(c)->word[0] != 's') return false;
    op_fail(c, TPU_INVALID, "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.");
    return true;
}

/* add.Tensor(self, other, alpha), sub.Tensor, rsub: word is StableHLO's op; "rsubtract" swaps */
static void sum_with_alpha(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *w = op_row_of(c)->word;
    bool swap = w[0] == 'r';
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x = op_in_as(c, 0, t), y = op_in_as(c, 1, t);   /* a number is rounded to t first, as PyTorch's CPU sums do */
    if (refuses_bool(c, t)) return;
    hlo_broadcast2(f, &x, &y);
    x = hlo_convert(f, x, dtype_compute(t));
    y = hlo_convert(f, y, dtype_compute(t));
    bool scaled = op_has(c, 2) && !op_is_default(c, 2);
    if (t == TPU_BOOL) {
        if (scaled) y = both(f, y, hlo_broadcast_to(f, op_scalar(c, 2, TPU_BOOL), hlo_type(f, y)));
        op_out(c, either(f, x, y));
        return;
    }
    if (scaled && swap) x = times(f, x, number_like(c, 2, x));
    else if (scaled) y = times(f, y, number_like(c, 2, y));
    op_out_as(c, swap ? minus(f, y, x) : hlo_op2(f, w, x, y), t);
}

static void multiply(op_ctx *c)
{
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x, y;
    operands(c, 0, 1, t, &x, &y);
    op_out_as(c, t == TPU_BOOL ? both(op_fn(c), x, y) : times(op_fn(c), x, y), t);
}

/* ---- division ---- */
static void zero_division(op_ctx *c, hlo y) { op_guard(c, compare_k(op_fn(c), "EQ", y, 0), "!ZeroDivisionError"); }

/* Integers rounded towards minus infinity; the divisor 0 gives 0 and is flagged. */
static hlo floor_int(hlo_fn *f, hlo x, hlo y)
{
    hlo q = over(f, x, y), r = hlo_op2(f, "remainder", x, y);
    if (dtype_is_unsigned(hlo_dtype(f, x))) return q;
    hlo off = both(f, compare_k(f, "NE", r, 0), hlo_compare(f, "NE", compare_k(f, "LT", r, 0), compare_k(f, "LT", y, 0)));
    return minus(f, q, hlo_convert(f, off, hlo_dtype(f, q)));
}

/* Python's floor division of floats, as c10::div_floor_floating has it. */
static hlo floor_float(hlo_fn *f, hlo x, hlo y)
{
    hlo mod = hlo_op2(f, "remainder", x, y), q = over(f, minus(f, x, mod), y);
    hlo off = both(f, compare_k(f, "NE", mod, 0), hlo_compare(f, "NE", compare_k(f, "LT", mod, 0), compare_k(f, "LT", y, 0)));
    q = hlo_select(f, off, plus_k(f, q, -1), q);
    hlo fl = floored(f, q);
    fl = hlo_select(f, hlo_compare(f, "GT", minus(f, q, fl), hlo_like_f(f, q, 0.5)), plus_k(f, fl, 1), fl);
    hlo zero = hlo_select(f, hlo_compare(f, "NE", sign_bit(f, x), sign_bit(f, y)), hlo_like_f(f, x, -0.0), hlo_like_f(f, x, 0));
    fl = hlo_select(f, compare_k(f, "EQ", q, 0), zero, fl);
    return hlo_select(f, compare_k(f, "EQ", y, 0), over(f, x, y), fl);
}

static void rounded_division(op_ctx *c, char mode)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 0, 1);
    if (t == TPU_BOOL) {
        refuse(c);
        return;
    }
    hlo x, y, r;
    operands(c, 0, 1, t, &x, &y);
    if (dtype_is_int(t)) {
        zero_division(c, y);
        y = hlo_select(f, compare_k(f, "EQ", y, 0), hlo_like_i(f, y, 1), y);
        r = mode == 'f' ? floor_int(f, x, y) : over(f, x, y);
    } else {
        r = mode == 'f' ? floor_float(f, x, y) : truncated(f, over(f, x, y));
    }
    op_out_as(c, r, t);
}

static void true_division(op_ctx *c)
{
    tpu_dtype t = op_to_float(op_promote2(c, 0, 1));
    hlo x, y;
    operands(c, 0, 1, t, &x, &y);
    op_out_as(c, over(op_fn(c), x, y), t);
}

/* div.Tensor_mode(self, other, rounding_mode) */
static void division_mode(op_ctx *c)
{
    const char *mode = op_str(c, 2);
    if (!mode) true_division(c);
    else if (mode[0] != 't' && mode[0] != 'f') op_fail(c, TPU_INVALID, "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%s'", mode);
    else rounded_division(c, mode[0]);
}

static void floor_division(op_ctx *c) { rounded_division(c, 'f'); }

/* remainder has the divisor's sign, fmod (word) the dividend's */
static void modulo(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x, y;
    if (t == TPU_BOOL || dtype_is_complex(t)) {
        refuse(c);
        return;
    }
    operands(c, 0, 1, t, &x, &y);
    if (dtype_is_int(t)) {
        zero_division(c, y);
        y = hlo_select(f, compare_k(f, "EQ", y, 0), hlo_like_i(f, y, 1), y);
    }
    hlo r = hlo_op2(f, "remainder", x, y);
    if (!op_row_of(c)->word && !dtype_is_unsigned(t)) {
        hlo off = both(f, compare_k(f, "NE", r, 0), hlo_compare(f, "NE", compare_k(f, "LT", r, 0), compare_k(f, "LT", y, 0)));
        r = hlo_select(f, off, plus(f, r, y), r);
    }
    op_out_as(c, r, t);
}

/* ---- powers ---- */
/* Integers by squaring: 63 doublings in a loop are too many for a program, so the six bits that can matter are unrolled
 * (|x| > 1 overflows beyond, and wraps as PyTorch's does only up to there; 0, 1 and -1 need the parity alone). */
static hlo int_power(hlo_fn *f, hlo x, hlo e)
{
    hlo one = hlo_like_i(f, x, 1), zero = hlo_like_i(f, x, 0), r = one, base = x;
    hlo n = hlo_clamp(f, hlo_like_i(f, e, 0), e, hlo_like_i(f, e, 127));
    hlo odd = compare_k(f, "NE", hlo_op2(f, "and", e, hlo_like_i(f, e, 1)), 0);
    for (int bit = 0; bit < 7; bit++) {
        hlo on = compare_k(f, "NE", hlo_op2(f, "and", n, hlo_like_i(f, n, 1ll << bit)), 0);
        r = hlo_select(f, on, times(f, r, base), r);
        if (bit < 6) base = square(f, base);
    }
    if (dtype_is_unsigned(hlo_dtype(f, x))) return r;
    hlo minus_one = hlo_like_i(f, x, -1), neg = compare_k(f, "LT", e, 0);
    hlo unit = hlo_select(f, hlo_compare(f, "EQ", x, one), one, hlo_select(f, hlo_compare(f, "EQ", x, minus_one), hlo_select(f, odd, minus_one, one), zero));
    return hlo_select(f, neg, unit, r);
}

static hlo power(hlo_fn *f, hlo x, hlo y)
{
    tpu_dtype t = hlo_dtype(f, x);
    if (dtype_is_int(t)) return int_power(f, x, y);
    hlo r = hlo_op2(f, "power", x, y);
    if (dtype_is_complex(t)) return r;
    /* One to any power and anything to the power 0 is 1, NaN or not. */
    hlo one = hlo_like_f(f, x, 1);
    return hlo_select(f, either(f, compare_k(f, "EQ", y, 0), hlo_compare(f, "EQ", x, one)), one, r);
}

/* pow.Tensor_Tensor, pow.Scalar(self, exponent) */
static void pow_any(op_ctx *c)
{
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x, y;
    if (t == TPU_BOOL) {
        refuse(c);
        return;
    }
    operands(c, 0, 1, t, &x, &y);
    op_out_as(c, power(op_fn(c), x, y), t);
}

/* pow.Tensor_Scalar: the exponent is part of the program, so that squares are products. */
static void pow_number(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x = operand(c, 0, t), one = hlo_like_f(f, x, 1);
    double e = op_scalar_kind(c, 1) == TPU_C128 ? NAN : op_number(c, 1);
    if (dtype_is_int(t) && e < 0) {
        op_fail(c, TPU_INVALID, "Integers to negative integer powers are not allowed.");
        return;
    }
    hlo r;
    if (e == 0) r = one;
    else if (e == 1) r = x;
    else if (e == 2) r = square(f, x);
    else if (e == 3) r = times(f, square(f, x), x);
    else if (e == 4 && dtype_is_int(t)) r = square(f, square(f, x));
    else if (e == 0.5) r = root(f, x);
    else if (e == -1) r = over(f, one, x);
    else if (e == -2) r = over(f, one, square(f, x));
    else if (e == -0.5 && dtype_is_float(t)) r = hlo_op1(f, "rsqrt", x);
    else r = power(f, x, hlo_broadcast_to(f, hlo_convert(f, op_scalar(c, 1, t), hlo_dtype(f, x)), hlo_type(f, x))); /* rounded to t, as PyTorch's CPU does */
    op_out_as(c, t == TPU_BOOL ? hlo_convert(f, r, TPU_BOOL) : r, t);
}

/* ---- extremes ---- */
/* maximum, minimum: NaN wins; fmax, fmin: it loses */
static void extreme(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *w = op_row_of(c)->word;
    bool greatest = w[1] == 'a', skip = w[0] == 'f';
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x, y;
    operands(c, 0, 1, t, &x, &y);
    hlo r = t == TPU_BOOL ? (greatest ? either(f, x, y) : both(f, x, y)) : greatest ? hlo_max(f, x, y) : hlo_min(f, x, y);
    if (skip && dtype_is_float(t)) r = hlo_select(f, hlo_isnan(f, x), y, hlo_select(f, hlo_isnan(f, y), x, r));
    op_out_as(c, r, t);
}

/* ---- functions of two floats ---- */
static void atan2_of(op_ctx *c)
{
    tpu_dtype t = op_to_float(op_promote2(c, 0, 1));
    hlo x, y;
    operands(c, 0, 1, t, &x, &y);
    op_out_as(c, hlo_op2(op_fn(c), "atan2", x, y), t);
}

static void hypot_of(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x, y;
    operands(c, 0, 1, t, &x, &y);
    x = magnitude(f, x);
    y = magnitude(f, y);
    hlo big = hlo_max(f, x, y), small = hlo_min(f, x, y), q = over(f, small, big);
    hlo r = times(f, big, root(f, plus_k(f, square(f, q), 1)));
    hlo inf = hlo_highest(f, hlo_type(f, x));
    r = hlo_select(f, compare_k(f, "EQ", big, 0), big, r);
    op_out_as(c, hlo_select(f, either(f, hlo_compare(f, "EQ", x, inf), hlo_compare(f, "EQ", y, inf)), inf, r), t);
}

static void copysign_of(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_to_float(op_promote2(c, 0, 1));
    hlo x, y;
    operands(c, 0, 1, t, &x, &y);
    hlo a = magnitude(f, x);
    op_out_as(c, hlo_select(f, sign_bit(f, y), negate(f, a), a), t);
}

/* logaddexp, logaddexp2: base in the word */
static void logaddexp(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool two = op_row_of(c)->word[0] == '2';
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x, y;
    if (dtype_is_complex(t) || !dtype_is_float(t)) {
        refuse(c);
        return;
    }
    operands(c, 0, 1, t, &x, &y);
    hlo m = hlo_max(f, x, y), d = negate(f, magnitude(f, minus(f, x, y)));
    if (two) d = times_k(f, d, 0.69314718055994530942);
    hlo l = hlo_op1(f, "log_plus_one", exponential(f, d));
    if (two) l = over_k(f, l, 0.69314718055994530942);
    hlo inf = hlo_compare(f, "EQ", magnitude(f, m), hlo_highest(f, hlo_type(f, m)));
    op_out_as(c, hlo_select(f, both(f, inf, hlo_compare(f, "EQ", x, y)), x, plus(f, m, l)), t);
}

/* xlogy.Tensor/.Scalar_Self/.Scalar_Other: 0 where x is 0, unless y is NaN */
static void xlogy(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_to_float(op_promote2(c, 0, 1));
    hlo x, y;
    operands(c, 0, 1, t, &x, &y);
    bool one = op_row_of(c)->word != NULL;
    hlo r = times(f, x, one ? hlo_op1(f, "log_plus_one", y) : logarithm(f, y));
    r = hlo_select(f, compare_k(f, "EQ", x, 0), hlo_like_f(f, x, 0), r);
    op_out_as(c, hlo_select(f, hlo_isnan(f, y), y, r), t);
}

static void heaviside(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), v = op_in(c, 1);
    if (hlo_dtype(f, x) != hlo_dtype(f, v)) {
        op_fail(c, TPU_INVALID, "heaviside is not yet implemented for tensors with different dtypes.");
        return;
    }
    hlo_broadcast2(f, &x, &v);
    hlo one = hlo_like_f(f, x, 1), zero = hlo_like_f(f, x, 0);
    hlo r = hlo_select(f, compare_k(f, "EQ", x, 0), v, hlo_select(f, compare_k(f, "GT", x, 0), one, zero));
    op_out(c, r);
}

/* ---- bits ---- */
/* word: and or xor shift_left shift_right_arithmetic */
static void bits(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 0, 1);
    const char *w = op_row_of(c)->word;
    hlo x, y;
    if (!dtype_is_integral(t) || (w[0] == 's' && t == TPU_BOOL)) {
        op_fail(c, TPU_UNIMPLEMENTED, "\"%s\" not implemented for '%s'", op_row_of(c)->name, dtype_torch_name(t));
        return;
    }
    operands(c, 0, 1, t, &x, &y);
    if (w[0] != 's') {
        op_out(c, hlo_op2(f, w, x, y));
        return;
    }
    /* A shift as wide as the type, or a negative one, empties it (or leaves the sign). */
    int64_t width = (int64_t)dtype_size(t) * 8;
    hlo ok = both(f, hlo_compare(f, "LT", y, hlo_like_i(f, y, width)), compare_k(f, "GE", y, 0)), r, lost = hlo_like_i(f, x, 0);
    hlo by = hlo_select(f, ok, y, hlo_like_i(f, y, 0));
    if (w[6] == 'r') {
        r = hlo_op2(f, dtype_is_unsigned(t) ? "shift_right_logical" : "shift_right_arithmetic", x, by);
        if (!dtype_is_unsigned(t)) lost = hlo_select(f, compare_k(f, "LT", x, 0), hlo_like_i(f, x, -1), lost);
    } else {
        r = hlo_op2(f, "shift_left", x, by);
    }
    op_out(c, hlo_select(f, ok, r, lost));
}

static void logic(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = hlo_convert(f, op_in(c, 0), TPU_BOOL), y = hlo_convert(f, op_in(c, 1), TPU_BOOL);
    hlo_broadcast2(f, &x, &y);
    op_out(c, hlo_op2(f, op_row_of(c)->word, x, y));
}

/* Euclid's algorithm, all elements at once. */
static void gcd(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x, y, v[2], r[2];
    if (!dtype_is_int(t)) {
        refuse(c);
        return;
    }
    operands(c, 0, 1, t, &x, &y);
    hlo a = dtype_is_unsigned(t) ? x : magnitude(f, x), b = dtype_is_unsigned(t) ? y : magnitude(f, y);
    hlo_while_begin(f, (hlo[]){a, b}, 2, v);
    uint32_t all = (1u << hlo_rank(f, a)) - 1;
    hlo more = compare_k(f, "NE", v[1], 0);
    hlo_while_body(f, all ? hlo_reduce(f, "or", more, all) : more, v);
    hlo zero = compare_k(f, "EQ", v[1], 0), safe = hlo_select(f, zero, hlo_like_i(f, v[1], 1), v[1]);
    hlo next[2] = {hlo_select(f, zero, v[0], v[1]), hlo_select(f, zero, v[1], hlo_op2(f, "remainder", v[0], safe))};
    hlo_while_end(f, next, r);
    if (!op_row_of(c)->word) {
        op_out(c, r[0]);
        return;
    }
    hlo g = hlo_select(f, compare_k(f, "EQ", r[0], 0), hlo_like_i(f, r[0], 1), r[0]);
    hlo l = times(f, over(f, a, g), b);
    op_out(c, dtype_is_unsigned(t) ? l : magnitude(f, l));
}

/* ---- three operands ---- */
/* lerp.Scalar/.Tensor(self, end, weight): from the nearer end, so that weight 1 gives the end exactly */
static void lerp(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = hlo_dtype(f, op_in(c, 0));
    if (hlo_dtype(f, op_in(c, 1)) != t) {
        op_fail(c, TPU_INVALID, "expected dtype %s for `end` but got dtype %s", dtype_torch_name(t), dtype_torch_name(hlo_dtype(f, op_in(c, 1))));
        return;
    }
    hlo x = operand(c, 0, t), e = operand(c, 1, t), w = op_in_as(c, 2, dtype_compute(t));
    hlo near = compare_k(f, "LT", magnitude(f, w), 0.5), part = hlo_select(f, near, w, negate(f, k_minus(f, 1, w)));
    hlo_broadcast3(f, &x, &e, &part);
    if (hlo_rank(f, near)) near = hlo_broadcast_to(f, near, hlo_type(f, x));
    op_out_as(c, plus(f, hlo_select(f, near, x, e), times(f, part, minus(f, e, x))), t);
}

/* addcmul(self, t1, t2, value), addcdiv */
static void addc(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool divide = op_row_of(c)->word[0] == 'd';
    tpu_dtype t = op_promote(c, (int[]){0, 1, 2}, 3);
    if (divide && dtype_is_integral(op_promote2(c, 1, 2))) {
        op_fail(c, TPU_INVALID, "Integer division with addcdiv is no longer supported, and in a future release addcdiv will perform a true division of tensor1 and tensor2.");
        return;
    }
    hlo x = operand(c, 0, t), a = operand(c, 1, t), b = operand(c, 2, t);
    hlo_broadcast3(f, &x, &a, &b);
    if (t == TPU_BOOL) {
        refuse(c);
        return;
    }
    if (!op_is_default(c, 3)) a = times(f, number_like(c, 3, a), a);
    op_out_as(c, plus(f, x, hlo_op2(f, op_row_of(c)->word, a, b)), t);
}

/* complex(real, imag), polar(abs, angle) */
static void complex_of(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), y = op_in(c, 1);
    if (hlo_dtype(f, x) != hlo_dtype(f, y) || !dtype_is_float(hlo_dtype(f, x)) || hlo_dtype(f, x) == TPU_F16 || hlo_dtype(f, x) == TPU_BF16) {
        refuse(c);
        return;
    }
    hlo_broadcast2(f, &x, &y);
    if (op_row_of(c)->word) {
        hlo re = times(f, x, hlo_op1(f, "cosine", y));
        y = times(f, x, hlo_op1(f, "sine", y));
        x = re;
    }
    op_out(c, hlo_op2(f, "complex", x, y));
}

/* clang-format off */
#define EW OP_ELEMENTWISE
const op_row ops_binary[] = {
    { "add.Tensor",        sum_with_alpha, "add",       EW },
    { "add.Scalar",        sum_with_alpha, "add",       EW },
    { "sub.Tensor",        sum_with_alpha, "subtract",  EW },
    { "sub.Scalar",        sum_with_alpha, "subtract",  EW },
    { "rsub.Tensor",       sum_with_alpha, "rsubtract", EW },
    { "rsub.Scalar",       sum_with_alpha, "rsubtract", EW },
    { "mul.Tensor",        multiply,       NULL,        EW },
    { "mul.Scalar",        multiply,       NULL,        EW },
    { "div.Tensor",        true_division,  NULL,        EW },
    { "div.Scalar",        true_division,  NULL,        EW },
    { "div.Tensor_mode",   division_mode,  NULL,        EW },
    { "div.Scalar_mode",   division_mode,  NULL,        EW },
    { "floor_divide",      floor_division, NULL,        EW },
    { "remainder.Tensor",  modulo,         NULL,        EW },
    { "remainder.Scalar",  modulo,         NULL,        EW },
    { "remainder.Scalar_Tensor", modulo,   NULL,        EW },
    { "fmod.Tensor",       modulo,         "dividend",  EW },
    { "fmod.Scalar",       modulo,         "dividend",  EW },
    { "pow.Tensor_Tensor", pow_any,        NULL,        EW },
    { "pow.Scalar",        pow_any,        NULL,        EW },
    { "pow.Tensor_Scalar", pow_number,     NULL,        EW, .fixed = 2 },
    { "maximum",           extreme,        "max",       EW },
    { "minimum",           extreme,        "min",       EW },
    { "fmax",              extreme,        "fax",       EW },
    { "fmin",              extreme,        "fin",       EW },
    { "atan2",             atan2_of,       NULL,        EW },
    { "hypot",             hypot_of,       NULL,        EW },
    { "copysign.Tensor",   copysign_of,    NULL,        EW },
    { "logaddexp",         logaddexp,      "e",         EW },
    { "logaddexp2",        logaddexp,      "2",         EW },
    { "xlogy.Tensor",      xlogy,          NULL,        EW },
    { "xlogy.Scalar_Self", xlogy,          NULL,        EW },
    { "xlogy.Scalar_Other", xlogy,         NULL,        EW },
    { "special_xlog1py",   xlogy,          "one",       EW },
    { "heaviside",         heaviside,      NULL,        EW },
    { "bitwise_and.Tensor", bits,          "and",       EW },
    { "bitwise_or.Tensor", bits,           "or",        EW },
    { "bitwise_xor.Tensor", bits,          "xor",       EW },
    { "bitwise_left_shift.Tensor",  bits,  "shift_left",  EW },
    { "bitwise_right_shift.Tensor", bits,  "shift_right", EW },
    { "__lshift__.Tensor", bits,           "shift_left",  EW },
    { "__rshift__.Tensor", bits,           "shift_right", EW },
    { "__lshift__.Scalar", bits,           "shift_left",  EW },
    { "__rshift__.Scalar", bits,           "shift_right", EW },
    { "logical_and",       logic,          "and",       EW },
    { "logical_or",        logic,          "or",        EW },
    { "logical_xor",       logic,          "xor",       EW },
    { "gcd",               gcd,            NULL,        EW },
    { "lcm",               gcd,            "lcm",       EW },
    { "lerp.Scalar",       lerp,           NULL,        EW },
    { "lerp.Tensor",       lerp,           NULL,        EW },
    { "addcmul",           addc,           "multiply",  EW },
    { "addcdiv",           addc,           "divide",    EW },
    { "complex",           complex_of,     NULL,        EW },
    { "polar",             complex_of,     "polar",     EW },
    { NULL },
};
/* clang-format on */
