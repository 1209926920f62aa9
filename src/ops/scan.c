/* scan.c - running sums, products, extremes along one dim.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/arith.h"

/* cumsum, cumprod (self, dim, dtype?): integers in int64, bfloat16 and float16 accumulated in float32. */
static void cumulate(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_dtype t = op_dtype(c, 2, dtype_is_integral(hlo_dtype(f, x)) ? TPU_I64 : hlo_dtype(f, x));
    int dim = op_dim(c, op_int(c, 1), hlo_rank(f, x));
    x = hlo_convert(f, hlo_convert(f, x, t), dtype_compute(t));
    if (hlo_rank(f, x) && hlo_count(f, x)) {
        const char *op = op_row_of(c)->word;
        if (t == TPU_BOOL) op = !strcmp(op, "add") ? "or" : "and";
        x = hlo_cumulative(f, op, x, dim, false);
    }
    op_out_as(c, x, t);
}

/* Of equals the last index; a NaN is greater than every number and than an earlier NaN. */
static void running_extreme(op_ctx *c, int dim_arg, hlo *values, hlo *indices)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_dtype t = hlo_dtype(f, x);
    int dim = op_dim(c, op_int(c, dim_arg), hlo_rank(f, x));
    *values = x;
    *indices = hlo_zeros(f, type_as(hlo_type(f, x), TPU_I64));
    if (!hlo_rank(f, x) || !hlo_count(f, x)) return;
    if (dtype_is_complex(t)) {
        refuse(c);
        return;
    }
    bool least = !strcmp(op_row_of(c)->word, "minimum");
    if (t == TPU_BOOL) x = hlo_convert(f, x, TPU_U8);
    hlo best = hlo_cumulative(f, op_row_of(c)->word, x, dim, false);
    hlo hit = hlo_compare(f, least ? "LE" : "GE", x, best);
    hit = either(f, hit, hlo_isnan(f, x));
    hlo at = hlo_iota(f, type_as(hlo_type(f, x), TPU_I32), dim);
    at = hlo_cumulative(f, "maximum", hlo_select(f, hit, at, hlo_like_i(f, at, 0)), dim, false);
    *values = hlo_convert(f, best, t);
    *indices = hlo_convert(f, at, TPU_I64);
}

static void cummax(op_ctx *c)
{
    hlo v, i;
    running_extreme(c, 1, &v, &i);
    op_out(c, v);
    op_out(c, i);
}

/* _cummax_helper(self, values, indices, dim) */
static void cummax_helper(op_ctx *c)
{
    hlo v, i;
    running_extreme(c, 3, &v, &i);
    op_write(c, 1, v);
    op_write(c, 2, i);
}

/* log(exp(a) + exp(b)) from the greater of the two; infinities stay what they are. */
static hlo log_add(hlo_fn *f, hlo a, hlo b)
{
    hlo top = hlo_max(f, a, b), low = hlo_min(f, a, b);
    hlo sum = plus(f, top, hlo_op1(f, "log_plus_one", exponential(f, minus(f, low, top))));
    return hlo_select(f, hlo_op1(f, "is_finite", top), sum, top);
}

/* Doubling steps: no prefix is measured against a far greater element that comes later. */
static void logcumsumexp(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = hlo_dtype(f, op_in(c, 0));
    if (!dtype_is_float(t)) {                           /* complex: PyTorch's sum keeps turns that a logarithm drops */
        refuse(c);
        return;
    }
    hlo x = op_in_math(c, 0);
    int rank = hlo_rank(f, x), dim = op_dim(c, op_int(c, 1), rank);
    int64_t n = rank ? hlo_dim(f, x, dim) : 0;
    hlo none = hlo_lowest(f, type_scalar(hlo_dtype(f, x)));
    for (int64_t step = 1; step < n && hlo_count(f, x); step *= 2) {
        int64_t lo[TYPE_MAX_RANK] = {0}, hi[TYPE_MAX_RANK] = {0};
        lo[dim] = step;
        hi[dim] = -step;
        x = log_add(f, x, hlo_pad(f, x, none, lo, hi, NULL));
    }
    op_out_as(c, x, t);
}

/* clang-format off */
const op_row ops_scan[] = {
    { "cumsum",         cumulate,      "add" },
    { "cumprod",        cumulate,      "multiply" },
    { "cummax",         cummax,        "maximum" },
    { "cummin",         cummax,        "minimum" },
    { "_cummax_helper", cummax_helper, "maximum" },
    { "_cummin_helper", cummax_helper, "minimum" },
    { "logcumsumexp",   logcumsumexp },
    { "_logcumsumexp",  logcumsumexp },
    { NULL },
};
/* clang-format on */
