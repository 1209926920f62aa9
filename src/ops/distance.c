/* distance.c - distances between the rows of two tables, or of one, in the p-norm; with gradients.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "arith.h"

/* The p-norm of `diff` over its last dim, which vanishes. */
static hlo norm(hlo_fn *f, hlo diff, double p)
{
    uint32_t last = 1u << (hlo_rank(f, diff) - 1);
    hlo a = magnitude(f, diff);
    if (p == 0) return hlo_reduce(f, "add", hlo_convert(f, compare_k(f, "NE", a, 0), hlo_dtype(f, a)), last);
    if (p == 1) return hlo_reduce(f, "add", a, last);
    if (p == 2) return root(f, hlo_reduce(f, "add", square(f, a), last));
    if (p == INFINITY)
        return hlo_max(f, hlo_reduce(f, "maximum", a, last), hlo_zeros(f, hlo_type(f, hlo_reduce(f, "add", a, last))));
    hlo s = hlo_reduce(f, "add", hlo_op2(f, "power", a, hlo_like_f(f, a, p)), last);
    return hlo_op2(f, "power", s, hlo_like_f(f, s, 1 / p));
}

/* What a step of diff changes in g times the distance; all of one shape.  Equal points have no direction. */
static hlo slope(hlo_fn *f, hlo diff, hlo g, hlo dist, double p)
{
    hlo zero = hlo_like_f(f, diff, 0), sign = hlo_op1(f, "sign", diff), a = magnitude(f, diff);
    hlo same = compare_k(f, "EQ", dist, 0);
    if (p == 0) return zero;
    if (p == 1) return times(f, g, sign);
    if (p == INFINITY)
        return times(f, times(f, g, sign), hlo_convert(f, hlo_compare(f, "EQ", a, dist), hlo_dtype(f, a)));
    if (p == 2) return hlo_select(f, same, zero, over(f, times(f, g, diff), dist));
    if (p < 1) same = either(f, same, compare_k(f, "EQ", diff, 0));
    hlo k = hlo_like_f(f, diff, p - 1), up = times(f, sign, hlo_op2(f, "power", a, k));
    return hlo_select(f, same, zero, over(f, times(f, up, g), hlo_op2(f, "power", dist, k)));
}

static bool takes(op_ctx *c, int a, int b, double p)
{
    if (!dtype_is_float(arg_dtype(c, a)) || arg_dtype(c, a) != arg_dtype(c, b)) refuse(c);
    else if (!(p >= 0)) op_fail(c, TPU_INVALID, "cdist only supports non-negative p values");
    return !hlo_failed(op_fn(c));
}

/* ---- all pairs ---- */
/* x [.., r, m] and y [.., s, m] as [.., r, s, m] */
static void against(hlo_fn *f, hlo *x, hlo *y)
{
    *x = hlo_unsqueeze(f, *x, hlo_rank(f, *x) - 1);
    *y = hlo_unsqueeze(f, *y, hlo_rank(f, *y) - 2);
    hlo_broadcast2(f, x, y);
}

/* Euclidean by a product: |x|^2 + |y|^2 - 2 x y, not below 0. */
static hlo by_product(hlo_fn *f, hlo x, hlo y)
{
    tpu_type xt = hlo_type(f, x), yt = hlo_type(f, y),
             out = hlo_broadcast_type(f, type_make((tpu_dtype)xt.dtype, xt.rank - 2, xt.dim),
                                      type_make((tpu_dtype)xt.dtype, yt.rank - 2, yt.dim));
    int r = out.rank + 2;
    tpu_type xw = out, yw = out;
    xw.rank = yw.rank = (uint8_t)r;
    for (int i = 0; i < 2; i++) {
        xw.dim[r - 2 + i] = xt.dim[xt.rank - 2 + i];
        yw.dim[r - 2 + i] = yt.dim[yt.rank - 2 + i];
    }
    x = hlo_broadcast_to(f, x, xw);
    y = hlo_broadcast_to(f, y, yw);
    hlo xx = hlo_unsqueeze(f, hlo_reduce(f, "add", square(f, x), 1u << (r - 1)), r - 1);
    hlo yy = hlo_unsqueeze(f, hlo_reduce(f, "add", square(f, y), 1u << (r - 1)), r - 2);
    hlo_broadcast2(f, &xx, &yy);
    hlo xy = hlo_matmul(f, x, hlo_swap(f, y, -1, -2), (tpu_dtype)xt.dtype),
        d = minus(f, plus(f, xx, yy), times_k(f, xy, 2));
    return root(f, hlo_max(f, d, hlo_like_f(f, d, 0)));
}

/* _cdist_forward(x1, x2, p, compute_mode): mode 1 the product, 2 never, else for many rows */
static void cdist(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0), y = op_in_math(c, 1);
    double p = op_number(c, 2);
    int64_t mode = op_int_or(c, 3, 0);
    int xr = hlo_rank(f, x), yr = hlo_rank(f, y);
    if (xr < 2 || yr < 2)
        op_fail(c, TPU_INVALID, "cdist only supports at least 2D tensors, X1 got: %dD", xr < 2 ? xr : yr);
    else if (hlo_dim(f, x, -1) != hlo_dim(f, y, -1))
        op_fail(c, TPU_INVALID, "X1 and X2 must have the same number of columns. X1: %lld X2: %lld",
                (long long)hlo_dim(f, x, -1), (long long)hlo_dim(f, y, -1));
    if (hlo_failed(f) || !takes(c, 0, 1, p)) return;
    bool many = hlo_dim(f, x, -2) > 25 || hlo_dim(f, y, -2) > 25;
    if (p == 2 && (mode == 1 || (mode == 0 && many))) {
        op_out_as(c, by_product(f, x, y), arg_dtype(c, 0));
        return;
    }
    against(f, &x, &y);
    op_out_as(c, norm(f, minus(f, x, y), p), arg_dtype(c, 0));
}

/* x summed over the dims that t was broadcast along */
static hlo summed_to(hlo_fn *f, hlo x, tpu_type t)
{
    int r = hlo_rank(f, x), more = r - t.rank;
    uint32_t dims = 0;
    for (int d = 0; d < r; d++)
        if (d < more || (t.dim[d - more] == 1 && hlo_dim(f, x, d) != 1)) dims |= 1u << d;
    return hlo_reshape(f, dims ? hlo_reduce(f, "add", x, dims) : x, t.rank, t.dim);
}

/* _cdist_backward(grad, x1, x2, p, cdist): of x1 */
static void cdist_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0), x = op_in_math(c, 1), y = op_in_math(c, 2), dist = op_in_math(c, 4);
    tpu_type t = hlo_type(f, x);
    double p = op_number(c, 3);
    if (!takes(c, 1, 2, p)) return;
    against(f, &x, &y);
    hlo diff = minus(f, x, y);
    tpu_type wide = hlo_type(f, diff);
    g = hlo_broadcast_to(f, hlo_unsqueeze(f, g, hlo_rank(f, g)), wide);
    dist = hlo_broadcast_to(f, hlo_unsqueeze(f, dist, hlo_rank(f, dist)), wide);
    hlo d = hlo_reduce(f, "add", slope(f, diff, g, dist, p), 1u << (wide.rank - 2));
    op_out_as(c, summed_to(f, d, t), arg_dtype(c, 1));
}

/* ---- the pairs i < j of one table ---- */
/* i and j of each pair, in order: row i's pairs begin at i (2 n - i - 1) / 2. */
static void pairs(hlo_fn *f, int64_t n, hlo *i, hlo *j)
{
    int64_t count = n * (n - 1) / 2, rows = n - 1;
    tpu_type t = type_make(TPU_I64, 1, &count);
    hlo row = hlo_iota(f, type_make(TPU_I64, 1, &rows), 0), zero = hlo_zeros(f, t);
    hlo first = over_k(f, times(f, row, k_minus(f, (double)(2 * n - 1), row)), 2);
    hlo_gather_dims d = {.ncollapsed = 1, .nmap = 1, .index_vector_dim = 1};
    hlo starts = hlo_scatter(f, "add", zero, hlo_unsqueeze(f, first, 1), hlo_like_i(f, first, 1), &d);
    *i = plus_k(f, hlo_cumulative(f, "add", starts, 0, false), -1);
    *j = plus_k(f, plus(f, minus(f, hlo_iota(f, t, 0), hlo_take(f, first, *i, 0)), *i), 1);
}

/* _pdist_forward(self, p) */
static void pdist(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0), i, j;
    double p = op_number(c, 1);
    int64_t n = hlo_dim(f, x, 0), none = 0;
    if (!takes(c, 0, 0, p)) return;
    if (n < 2) {
        op_out_as(c, hlo_zeros(f, type_make(hlo_dtype(f, x), 1, &none)), arg_dtype(c, 0));
        return;
    }
    pairs(f, n, &i, &j);
    op_out_as(c, norm(f, minus(f, hlo_take(f, x, i, 0), hlo_take(f, x, j, 0)), p), arg_dtype(c, 0));
}

/* _pdist_backward(grad, self, p, pdist) */
static void pdist_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 1), i, j;
    double p = op_number(c, 2);
    if (!takes(c, 1, 1, p)) return;
    hlo zero = hlo_zeros(f, hlo_type(f, x));
    if (hlo_dim(f, x, 0) < 2) {
        op_out_as(c, zero, arg_dtype(c, 1));
        return;
    }
    pairs(f, hlo_dim(f, x, 0), &i, &j);
    hlo diff = minus(f, hlo_take(f, x, i, 0), hlo_take(f, x, j, 0));
    tpu_type t = hlo_type(f, diff);
    hlo g = hlo_broadcast_in_dim(f, op_in_math(c, 0), t, (int64_t[]){0}),
        dist = hlo_broadcast_in_dim(f, op_in_math(c, 3), t, (int64_t[]){0});
    hlo d = slope(f, diff, g, dist, p), at[2] = {hlo_unsqueeze(f, i, 1), hlo_unsqueeze(f, j, 1)},
        part[2] = {d, negate(f, d)};
    hlo_gather_dims s = {.noffset = 1, .ncollapsed = 1, .nmap = 1, .offset = {1}, .index_vector_dim = 1};
    op_out_as(c, hlo_scatter(f, "add", zero, hlo_concat(f, at, 2, 0), hlo_concat(f, part, 2, 0), &s), arg_dtype(c, 1));
}

/* clang-format off */
const op_row ops_distance[] = {
    { "_cdist_forward",  cdist,          .flags = OP_FIXED },
    { "_cdist_backward", cdist_backward, .flags = OP_FIXED },
    { "_pdist_forward",  pdist,          .flags = OP_FIXED },
    { "_pdist_backward", pdist_backward, .flags = OP_FIXED },
    { NULL },
};
/* clang-format on */
