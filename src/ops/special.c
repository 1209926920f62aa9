/* special.c - Bessel functions, the error function's kin, incomplete gamma, orthogonal polynomials.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "arith.h"
#include "special_tables.h"

#define EW .flags = OP_ELEMENTWISE
#define SUM(f, y, table) chebyshev_sum(f, y, table, (int)(sizeof table / sizeof *table))

/* The sum of c[i] T_i(y), by Clenshaw's recurrence. */
static hlo chebyshev_sum(hlo_fn *f, hlo y, const double *c, int n)
{
    hlo b = hlo_like_f(f, y, 0), later = b, twice = times_k(f, y, 2);
    for (int i = n - 1; i > 0; i--) {
        hlo next = plus_k(f, minus(f, times(f, twice, b), later), c[i]);
        later = b;
        b = next;
    }
    return plus_k(f, minus(f, times(f, y, b), later), c[0]);
}

/* ---- one argument; integers give float32 [P1] ---- */
typedef hlo (*function)(hlo_fn *f, hlo x);

static void apply(op_ctx *c, function of)
{
    tpu_dtype t = op_to_float(arg_dtype(c, 0));
    if (dtype_is_complex(t)) refuse(c);
    else op_out_as(c, of(op_fn(c), hlo_convert(op_fn(c), op_in(c, 0), dtype_compute(t))), t);
}

#define ROW_OF(name) static void name##_row(op_ctx *c) { apply(c, name##_of); }

/* ---- modified Bessel functions: e^-|x| I and e^x K, split at 8 and 2 ---- */
static hlo i0e_of(hlo_fn *f, hlo x)
{
    hlo a = magnitude(f, x), far = compare_k(f, "GT", a, 8), wide = hlo_max(f, a, hlo_like_f(f, a, 8));
    hlo tail = over(f, SUM(f, plus_k(f, k_over(f, 16, wide), -1), i0e_far), root(f, wide));
    hlo near = SUM(f, plus_k(f, times_k(f, hlo_min(f, a, hlo_like_f(f, a, 8)), 0.25), -1), i0e_near);
    return hlo_select(f, far, tail, near);
}

static hlo i1e_of(hlo_fn *f, hlo x)
{
    hlo a = magnitude(f, x), far = compare_k(f, "GT", a, 8), wide = hlo_max(f, a, hlo_like_f(f, a, 8));
    hlo tail = over(f, SUM(f, plus_k(f, k_over(f, 16, wide), -1), i1e_far), root(f, wide));
    hlo y = plus_k(f, times_k(f, hlo_min(f, a, hlo_like_f(f, a, 8)), 0.25), -1);
    hlo r = hlo_select(f, far, tail, times(f, a, SUM(f, y, i1e_near)));
    return hlo_select(f, compare_k(f, "LT", x, 0), negate(f, r), r);
}

/* e^a r without an overflow of the factor alone. */
static hlo grown(hlo_fn *f, hlo a, hlo r)
{
    hlo half = exponential(f, times_k(f, a, 0.5));
    return times(f, times(f, half, r), half);
}

static hlo i0_of(hlo_fn *f, hlo x) { return grown(f, magnitude(f, x), i0e_of(f, x)); }
static hlo i1_of(hlo_fn *f, hlo x) { return grown(f, magnitude(f, x), i1e_of(f, x)); }

/* K of order 0 or 1: times e^x when scaled; infinite at 0, NaN below. */
static hlo k_of(hlo_fn *f, hlo x, int order, bool scaled)
{
    hlo two = hlo_like_f(f, x, 2), small = hlo_min(f, x, two), wide = hlo_max(f, x, two);
    hlo y = plus_k(f, times_k(f, square(f, small), 0.5), -1), z = plus_k(f, k_over(f, 4, wide), -1);
    hlo bend = logarithm(f, times_k(f, small, 0.5)), near, far;
    if (order) {
        near = plus(f, times(f, bend, i1_of(f, small)), over(f, SUM(f, y, k1_near), small));
        far = SUM(f, z, k1_far);
    } else {
        near = minus(f, SUM(f, y, k0_near), times(f, bend, i0_of(f, small)));
        far = SUM(f, z, k0_far);
    }
    far = over(f, far, root(f, wide));
    if (scaled) near = times(f, near, exponential(f, small));
    else far = times(f, far, exponential(f, negate(f, wide)));
    hlo r = hlo_select(f, compare_k(f, "GT", x, 2), far, near);
    r = hlo_select(f, compare_k(f, "EQ", x, 0), hlo_like_f(f, x, HUGE_VAL), r);
    r = hlo_select(f, compare_k(f, "LT", x, 0), hlo_like_f(f, x, (double)NAN), r);
    return hlo_select(f, hlo_isnan(f, x), x, r);
}

static hlo k0_of(hlo_fn *f, hlo x) { return k_of(f, x, 0, false); }
static hlo k1_of(hlo_fn *f, hlo x) { return k_of(f, x, 1, false); }
static hlo k0e_of(hlo_fn *f, hlo x) { return k_of(f, x, 0, true); }
static hlo k1e_of(hlo_fn *f, hlo x) { return k_of(f, x, 1, true); }

ROW_OF(i0e)
ROW_OF(i1e)
ROW_OF(i0)
ROW_OF(i1)
ROW_OF(k0)
ROW_OF(k1)
ROW_OF(k0e)
ROW_OF(k1e)

/* ---- Bessel functions of the first and second kind: series below 8, a wave with slow amplitude above ---- */
static hlo wave(hlo_fn *f, hlo a, int order, bool second)
{
    hlo y = plus_k(f, times_k(f, square(f, k_over(f, 8, a)), 2), -1);
    hlo p = order ? SUM(f, y, p1_far) : SUM(f, y, p0_far);
    hlo q = over(f, order ? SUM(f, y, q1_far) : SUM(f, y, q0_far), a);
    hlo turn = plus_k(f, a, -(2 * order + 1) * M_PI / 4);
    hlo s = hlo_op1(f, "sine", turn), k = hlo_op1(f, "cosine", turn);
    hlo r = second ? plus(f, times(f, p, s), times(f, q, k)) : minus(f, times(f, p, k), times(f, q, s));
    r = times(f, r, root(f, k_over(f, 2 / M_PI, a)));
    return hlo_select(f, compare_k(f, "EQ", a, HUGE_VAL), hlo_like_f(f, a, 0), r);
}

static hlo j_of(hlo_fn *f, hlo x, int order)
{
    hlo a = magnitude(f, x), eight = hlo_like_f(f, a, 8), small = hlo_min(f, a, eight);
    hlo y = plus_k(f, times_k(f, square(f, small), 1.0 / 32), -1);
    hlo near = order ? times(f, small, SUM(f, y, j1_near)) : SUM(f, y, j0_near);
    hlo r = hlo_select(f, compare_k(f, "GT", a, 8), wave(f, hlo_max(f, a, eight), order, false), near);
    return order ? hlo_select(f, compare_k(f, "LT", x, 0), negate(f, r), r) : r;
}

static hlo y_of(hlo_fn *f, hlo x, int order)
{
    hlo eight = hlo_like_f(f, x, 8), small = hlo_min(f, x, eight);
    hlo y = plus_k(f, times_k(f, square(f, small), 1.0 / 32), -1);
    hlo bend = times(f, logarithm(f, times_k(f, small, 0.5)), j_of(f, small, order)), near;
    if (order) {
        bend = minus(f, bend, k_over(f, 1, small));
        near = plus(f, times_k(f, bend, 2 / M_PI), times(f, small, SUM(f, y, y1_near)));
    } else {
        near = plus(f, times_k(f, bend, 2 / M_PI), SUM(f, y, y0_near));
    }
    hlo r = hlo_select(f, compare_k(f, "GT", x, 8), wave(f, hlo_max(f, x, eight), order, true), near);
    r = hlo_select(f, compare_k(f, "EQ", x, 0), hlo_like_f(f, x, -HUGE_VAL), r);
    r = hlo_select(f, compare_k(f, "LT", x, 0), hlo_like_f(f, x, (double)NAN), r);
    return hlo_select(f, hlo_isnan(f, x), x, r);
}

static hlo j0_of(hlo_fn *f, hlo x) { return j_of(f, x, 0); }
static hlo j1_of(hlo_fn *f, hlo x) { return j_of(f, x, 1); }
static hlo y0_of(hlo_fn *f, hlo x) { return y_of(f, x, 0); }
static hlo y1_of(hlo_fn *f, hlo x) { return y_of(f, x, 1); }

static hlo spherical_of(hlo_fn *f, hlo x)
{
    hlo r = hlo_select(f, compare_k(f, "EQ", x, 0), hlo_like_f(f, x, 1), over(f, hlo_op1(f, "sine", x), x));
    return hlo_select(f, compare_k(f, "EQ", magnitude(f, x), HUGE_VAL), hlo_like_f(f, x, 0), r);
}

ROW_OF(j0)
ROW_OF(j1)
ROW_OF(y0)
ROW_OF(y1)
ROW_OF(spherical)

/* ---- the error function's kin ---- */
static hlo erfcx_of(hlo_fn *f, hlo x)
{
    hlo a = magnitude(f, x), y = over(f, plus_k(f, a, -3.75), plus_k(f, a, 3.75));
    y = hlo_select(f, compare_k(f, "EQ", a, HUGE_VAL), hlo_like_f(f, a, 1), y);
    hlo r = over(f, SUM(f, y, erfcx_all), plus_k(f, times_k(f, a, 2), 1));
    return hlo_select(f, compare_k(f, "LT", x, 0), minus(f, times_k(f, exponential(f, square(f, x)), 2), r), r);
}

static hlo log_ndtr_of(hlo_fn *f, hlo x)
{
    hlo low = hlo_min(f, x, hlo_like_f(f, x, -1)), t = times_k(f, low, -M_SQRT1_2);
    hlo tail = minus(f, logarithm(f, times_k(f, erfcx_of(f, t), 0.5)), square(f, t));
    hlo body = hlo_op1(f, "log_plus_one", times_k(f, hlo_op1(f, "chlo.erfc", times_k(f, x, M_SQRT1_2)), -0.5));
    return hlo_select(f, compare_k(f, "LT", x, -1), tail, body);
}

/* The tails by Newton's method on log_ndtr, the middle by erfinv. */
static hlo ndtri_of(hlo_fn *f, hlo p)
{
    hlo half = compare_k(f, "GT", p, 0.5), q = hlo_select(f, half, k_minus(f, 1, p), p), goal = logarithm(f, q);
    hlo x = negate(f, root(f, times_k(f, goal, -2)));
    for (int i = 0; i < 6; i++) {
        hlo slope = k_over(f, sqrt(2 / M_PI), erfcx_of(f, times_k(f, x, -M_SQRT1_2)));
        x = minus(f, x, over(f, minus(f, log_ndtr_of(f, x), goal), slope));
    }
    x = hlo_select(f, half, negate(f, x), x);
    hlo middle = times_k(f, hlo_op1(f, "chlo.erf_inv", plus_k(f, times_k(f, p, 2), -1)), M_SQRT2);
    x = hlo_select(f, compare_k(f, "LT", q, 0.05), x, middle);
    x = hlo_select(f, compare_k(f, "EQ", p, 0), hlo_like_f(f, p, -HUGE_VAL), x);
    return hlo_select(f, compare_k(f, "EQ", p, 1), hlo_like_f(f, p, HUGE_VAL), x);
}

static hlo entr_of(hlo_fn *f, hlo x)
{
    hlo r = negate(f, times(f, x, logarithm(f, x)));
    r = hlo_select(f, compare_k(f, "EQ", x, 0), hlo_like_f(f, x, 0), r);
    return hlo_select(f, compare_k(f, "LT", x, 0), hlo_like_f(f, x, -HUGE_VAL), r);
}

ROW_OF(erfcx)
ROW_OF(log_ndtr)
ROW_OF(ndtri)
ROW_OF(entr)

/* ---- two arguments ---- */
static tpu_dtype pair(op_ctx *c, hlo *x, hlo *y)
{
    tpu_dtype t = op_to_float(op_promote2(c, 0, 1));
    operands(c, 0, 1, t, x, y);
    return t;
}

static hlo any_of(hlo_fn *f, hlo p)
{
    int rank = hlo_rank(f, p);
    return rank ? hlo_reduce(f, "or", p, (1u << rank) - 1) : p;
}

/* Hurwitz's zeta, the sum over (k + q)^-x: terms until k + q passes 9, then Euler and Maclaurin's tail. */
static hlo zeta_of(hlo_fn *f, hlo x, hlo q)
{
    static const double bernoulli[] = {1. / 12, -1. / 720, 1. / 30240, -1. / 1209600, 1. / 47900160, -691. / 1307674368000,
                                       1. / 74724249600, -3617. / 10670622842880000, 43867. / 5109094217170944000};
    hlo minus_x = negate(f, x);
    hlo init[3] = {hlo_const_f(f, type_scalar(hlo_dtype(f, x)), 0), q, hlo_like_f(f, x, 0)}, v[3];
    hlo_while_begin(f, init, 3, v);
    hlo early = both(f, any_of(f, compare_k(f, "LE", v[1], 9)), compare_k(f, "LT", v[0], 100000));
    hlo_while_body(f, either(f, early, compare_k(f, "LT", v[0], 9)), v);
    hlo on = either(f, compare_k(f, "LE", v[1], 9), compare_k(f, "LT", hlo_broadcast_to(f, v[0], hlo_type(f, x)), 9));
    hlo term = hlo_op2(f, "power", v[1], minus_x);
    hlo next[3] = {plus_k(f, v[0], 1), hlo_select(f, on, plus_k(f, v[1], 1), v[1]), hlo_select(f, on, plus(f, v[2], term), v[2])};
    hlo_while_end(f, next, v);
    hlo w = v[1], power = hlo_op2(f, "power", w, minus_x), s = v[2];
    s = plus(f, s, over(f, times(f, power, w), plus_k(f, x, -1)));
    s = plus(f, s, times_k(f, power, 0.5));
    hlo factor = over(f, times(f, power, x), w);
    for (int j = 0; j < 9; j++) {
        s = plus(f, s, times_k(f, factor, bernoulli[j]));
        factor = over(f, times(f, factor, plus_k(f, x, 2 * j + 1)), w);
        factor = over(f, times(f, factor, plus_k(f, x, 2 * j + 2)), w);
    }
    hlo whole = hlo_compare(f, "EQ", q, hlo_op1(f, "floor", q)), infinite = hlo_like_f(f, x, HUGE_VAL);
    hlo pole = both(f, compare_k(f, "LE", q, 0), whole);
    s = hlo_select(f, either(f, pole, compare_k(f, "EQ", x, 1)), infinite, s);
    return hlo_select(f, compare_k(f, "LT", x, 1), hlo_like_f(f, x, (double)NAN), s);
}

static void zeta(op_ctx *c)
{
    hlo x, q;
    tpu_dtype t = pair(c, &x, &q);
    op_out_as(c, zeta_of(op_fn(c), x, q), t);
}

static hlo digamma_of(hlo_fn *f, hlo x)
{
    hlo pole = hlo_select(f, sign_bit(f, x), hlo_like_f(f, x, HUGE_VAL), hlo_like_f(f, x, -HUGE_VAL));
    return hlo_select(f, compare_k(f, "EQ", x, 0), pole, hlo_op1(f, "chlo.digamma", x));
}

ROW_OF(digamma)

/* The sum over 1 / (x + k)^2: reflected below a half, where it would lose its digits. */
static hlo trigamma_of(hlo_fn *f, hlo x)
{
    hlo low = compare_k(f, "LT", x, 0.5), two = hlo_like_f(f, x, 2);
    hlo sum = zeta_of(f, two, hlo_select(f, low, k_minus(f, 1, x), x));
    hlo turn = minus(f, x, times_k(f, hlo_op1(f, "floor", times_k(f, x, 0.5)), 2));
    hlo s = hlo_op1(f, "sine", times_k(f, turn, M_PI));
    return hlo_select(f, low, minus(f, k_over(f, M_PI * M_PI, square(f, s)), sum), sum);
}

/* polygamma(n, self), but polygamma_(self, n) */
static void polygamma(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int self = op_scalar_kind(c, 0) == TPU_NONE ? 0 : 1;
    int64_t n = op_int(c, 1 - self);
    tpu_dtype t = op_to_float(arg_dtype(c, self));
    hlo x = hlo_convert(f, op_in(c, self), dtype_compute(t)), y;
    if (n < 0) op_fail(c, TPU_INVALID, "polygamma(n, x) does not support negative n.");
    if (n == 0) y = digamma_of(f, x);
    else if (n == 1) y = trigamma_of(f, x);
    else y = times_k(f, zeta_of(f, hlo_like_f(f, x, (double)n + 1), x), (n % 2 ? 1 : -1) * tgamma((double)n + 1));
    op_out_as(c, y, t);
}

static void nextafter_(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x = op_in_as(c, 0, t), y = op_in_as(c, 1, t);
    hlo_broadcast2(f, &x, &y);
    if (t != TPU_F32 && t != TPU_F64 && t != TPU_BF16) refuse(c);
    else op_out(c, hlo_op2(f, "chlo.next_after", x, y));
}

/* Terms are added until none changes its sum, at most 2000. */
static hlo wanting(hlo_fn *f, hlo k, hlo part, hlo whole)
{
    double eps = hlo_dtype(f, part) == TPU_F64 ? 0x1p-53 : 0x1p-24;
    hlo open = hlo_compare(f, "GT", magnitude(f, part), times_k(f, magnitude(f, whole), eps));
    return both(f, any_of(f, open), compare_k(f, "LT", k, 2000));
}

/* The sum of x^n / ((a + 1) ... (a + n)). */
static hlo gamma_series(hlo_fn *f, hlo a, hlo x)
{
    hlo one = hlo_like_f(f, x, 1), init[3] = {hlo_const_f(f, type_scalar(hlo_dtype(f, x)), 1), one, one}, v[3];
    hlo_while_begin(f, init, 3, v);
    hlo_while_body(f, wanting(f, v[0], v[1], v[2]), v);
    hlo term = times(f, v[1], over(f, x, plus(f, a, hlo_broadcast_to(f, v[0], hlo_type(f, a)))));
    hlo next[3] = {plus_k(f, v[0], 1), term, plus(f, v[2], term)};
    hlo_while_end(f, next, v);
    return v[2];
}

/* 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - ...)), by Lentz's method. */
static hlo gamma_fraction(hlo_fn *f, hlo a, hlo x)
{
    const double tiny = 1e-30;
    hlo b = plus_k(f, minus(f, x, a), 1), d = k_over(f, 1, b), big = hlo_like_f(f, x, 1 / tiny);
    hlo init[5] = {hlo_const_f(f, type_scalar(hlo_dtype(f, x)), 1), hlo_like_f(f, x, 1), big, d, d}, v[5];
    hlo_while_begin(f, init, 5, v);
    hlo_while_body(f, wanting(f, v[0], v[1], hlo_like_f(f, v[1], 1)), v);
    hlo k = hlo_broadcast_to(f, v[0], hlo_type(f, x));
    hlo numerator = times(f, k, minus(f, a, k)), low = plus(f, b, plus(f, k, k)), guard = hlo_like_f(f, x, tiny);
    hlo den = plus(f, times(f, numerator, v[3]), low), cc = plus(f, low, over(f, numerator, v[2]));
    den = hlo_select(f, compare_k(f, "LT", magnitude(f, den), tiny), guard, den);
    cc = hlo_select(f, compare_k(f, "LT", magnitude(f, cc), tiny), guard, cc);
    den = k_over(f, 1, den);
    hlo ratio = times(f, den, cc);
    hlo next[5] = {plus_k(f, v[0], 1), plus_k(f, ratio, -1), cc, den, times(f, v[4], ratio)};
    hlo_while_end(f, next, v);
    return v[4];
}

/* igamma(a, x) and its complement; the series where x <= a + 1, the fraction above. */
static void igamma(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool upper = op_row_of(c)->word != NULL;
    hlo a, x;
    tpu_dtype t = pair(c, &a, &x);
    hlo good = both(f, compare_k(f, "GT", a, 0), compare_k(f, "GT", x, 0));
    good = both(f, good, both(f, compare_k(f, "LT", a, HUGE_VAL), compare_k(f, "LT", x, HUGE_VAL)));
    hlo one = hlo_like_f(f, x, 1), sa = hlo_select(f, good, a, one), sx = hlo_select(f, good, x, one);
    hlo low = hlo_compare(f, "LE", sx, plus_k(f, sa, 1));
    hlo front = minus(f, minus(f, times(f, sa, logarithm(f, sx)), sx), hlo_op1(f, "chlo.lgamma", sa));
    front = exponential(f, front);
    hlo p = over(f, times(f, front, gamma_series(f, sa, hlo_select(f, low, sx, one))), sa);
    hlo q = times(f, front, gamma_fraction(f, hlo_select(f, low, one, sa), hlo_select(f, low, hlo_like_f(f, x, 3), sx)));
    hlo r = upper ? hlo_select(f, low, k_minus(f, 1, p), q) : hlo_select(f, low, p, k_minus(f, 1, q));
    hlo all = hlo_like_f(f, x, upper ? 0 : 1), none = hlo_like_f(f, x, upper ? 1 : 0), nan = hlo_like_f(f, x, (double)NAN);
    hlo edge = hlo_select(f, compare_k(f, "EQ", x, 0), none, all);                  /* a = 0 or x = inf: everything lies below */
    edge = hlo_select(f, compare_k(f, "EQ", a, HUGE_VAL), hlo_select(f, compare_k(f, "EQ", x, HUGE_VAL), nan, none), edge);
    hlo bad = either(f, compare_k(f, "LT", a, 0), compare_k(f, "LT", x, 0));
    bad = either(f, bad, both(f, compare_k(f, "EQ", a, 0), compare_k(f, "EQ", x, 0)));
    bad = either(f, bad, either(f, hlo_isnan(f, a), hlo_isnan(f, x)));
    op_out_as(c, hlo_select(f, good, r, hlo_select(f, bad, nan, edge)), t);
}

/* ---- orthogonal polynomials by their recurrences: p, q are degrees k - 1 and k ---- */
static hlo next_degree(hlo_fn *f, char family, hlo k, hlo x, hlo p, hlo q)
{
    hlo twice = plus_k(f, plus(f, k, k), 1);
    switch (family) {
    case 'H': return minus(f, times(f, plus(f, x, x), q), times(f, plus(f, k, k), p));
    case 'e': return minus(f, times(f, x, q), times(f, k, p));
    case 'L': return over(f, minus(f, times(f, minus(f, twice, x), q), times(f, k, p)), plus_k(f, k, 1));
    case 'P': return over(f, minus(f, times(f, times(f, twice, x), q), times(f, k, p)), plus_k(f, k, 1));
    default: return minus(f, times(f, plus(f, x, x), q), p); /* Chebyshev's four */
    }
}

static hlo first_degree(hlo_fn *f, char family, hlo x)
{
    switch (family) {
    case 'U': case 'H': return plus(f, x, x);
    case 'V': return plus_k(f, plus(f, x, x), -1);
    case 'W': return plus_k(f, plus(f, x, x), 1);
    case 'L': return k_minus(f, 1, x);
    default: return x;
    }
}

/* word: the family's letter, '*' after it: of 2x - 1 */
static void degree_n(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    char family = op_row_of(c)->word[0];
    hlo x, n;
    tpu_dtype t = pair(c, &x, &n);
    if (dtype_is_complex(t)) {
        refuse(c);
        return;
    }
    if (op_row_of(c)->word[1] == '*') x = plus_k(f, plus(f, x, x), -1);
    n = truncated(f, n);
    int rank = hlo_rank(f, n);
    hlo most = rank ? hlo_reduce(f, "maximum", n, (1u << rank) - 1) : n;
    hlo one = hlo_like_f(f, x, 1), init[3] = {hlo_const_f(f, type_scalar(hlo_dtype(f, x)), 1), one, first_degree(f, family, x)}, v[3];
    hlo_while_begin(f, init, 3, v);
    hlo_while_body(f, hlo_compare(f, "LT", v[0], most), v);
    hlo k = hlo_broadcast_to(f, v[0], hlo_type(f, x)), on = hlo_compare(f, "LT", k, n);
    hlo q = next_degree(f, family, k, x, v[1], v[2]);
    hlo next[3] = {plus_k(f, v[0], 1), hlo_select(f, on, v[2], v[1]), hlo_select(f, on, q, v[2])};
    hlo_while_end(f, next, v);
    hlo r = hlo_select(f, compare_k(f, "EQ", n, 0), one, v[2]);
    op_out_as(c, hlo_select(f, compare_k(f, "LT", n, 0), hlo_like_f(f, x, 0), r), t);
}

#define POLYNOMIAL(name, word) \
    { name, degree_n, word, EW }, { name ".x_scalar", degree_n, word, EW }, { name ".n_scalar", degree_n, word, EW }

/* clang-format off */
const op_row ops_special[] = {
    { "i0",                         i0_row,        NULL, EW },
    { "special_i0e",                i0e_row,       NULL, EW },
    { "special_i1",                 i1_row,        NULL, EW },
    { "special_i1e",                i1e_row,       NULL, EW },
    { "special_modified_bessel_i0", i0_row,        NULL, EW },
    { "special_modified_bessel_i1", i1_row,        NULL, EW },
    { "special_modified_bessel_k0", k0_row,        NULL, EW },
    { "special_modified_bessel_k1", k1_row,        NULL, EW },
    { "special_scaled_modified_bessel_k0", k0e_row, NULL, EW },
    { "special_scaled_modified_bessel_k1", k1e_row, NULL, EW },
    { "special_bessel_j0",          j0_row,        NULL, EW },
    { "special_bessel_j1",          j1_row,        NULL, EW },
    { "special_bessel_y0",          y0_row,        NULL, EW },
    { "special_bessel_y1",          y1_row,        NULL, EW },
    { "special_spherical_bessel_j0", spherical_row, NULL, EW },
    { "special_erfcx",              erfcx_row,     NULL, EW },
    { "special_log_ndtr",           log_ndtr_row,  NULL, EW },
    { "special_ndtri",              ndtri_row,     NULL, EW },
    { "special_entr",               entr_row,      NULL, EW },
    { "special_zeta",               zeta,      NULL, EW },
    { "special_zeta.self_scalar",   zeta,      NULL, EW },
    { "special_zeta.other_scalar",  zeta,      NULL, EW },
    { "digamma",                    digamma_row, NULL, EW },
    { "polygamma",                  polygamma, NULL, EW },
    { "nextafter",                  nextafter_, NULL, EW },
    { "igamma",                     igamma,    NULL, EW },
    { "igammac",                    igamma,    "upper", EW },
    POLYNOMIAL("special_chebyshev_polynomial_t", "T"),
    POLYNOMIAL("special_chebyshev_polynomial_u", "U"),
    POLYNOMIAL("special_chebyshev_polynomial_v", "V"),
    POLYNOMIAL("special_chebyshev_polynomial_w", "W"),
    POLYNOMIAL("special_shifted_chebyshev_polynomial_t", "T*"),
    POLYNOMIAL("special_shifted_chebyshev_polynomial_u", "U*"),
    POLYNOMIAL("special_shifted_chebyshev_polynomial_v", "V*"),
    POLYNOMIAL("special_shifted_chebyshev_polynomial_w", "W*"),
    POLYNOMIAL("special_hermite_polynomial_h", "H"),
    POLYNOMIAL("special_hermite_polynomial_he", "e"),
    POLYNOMIAL("special_laguerre_polynomial_l", "L"),
    POLYNOMIAL("special_legendre_polynomial_p", "P"),
    { NULL },
};
/* clang-format on */
