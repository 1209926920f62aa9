/* reduce.c - sums, means, products, extremes, norms, variances over dims.
 * bfloat16 and float16 are summed in float32 and rounded once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops/reduce.h"

#include <math.h>
#include <string.h>

/* ---- shared ---- */
static void give(op_ctx *c, hlo r, hlo like, uint32_t dims, bool keep, tpu_dtype t)
{
    if (keep) r = hlo_keepdims(op_fn(c), r, like, dims);
    op_out_as(c, r, t);
}

static int64_t count_of(hlo_fn *f, hlo x, uint32_t dims)
{
    int64_t n = 1;
    for (int d = 0; d < hlo_rank(f, x); d++)
        if (dims >> d & 1) n *= hlo_dim(f, x, d);
    return n;
}

static bool no_identity(op_ctx *c, hlo x, uint32_t dims, bool whole, const char *name)
{
    hlo_fn *f = op_fn(c);
    if (hlo_count(f, x)) return false;
    if (whole) {
        op_fail(c, TPU_INVALID, "%s(): Expected reduction dim to be specified for input.numel() == 0. "
                "Specify the reduction dim with the 'dim' argument.", name);
        return true;
    }
    for (int d = 0; d < hlo_rank(f, x); d++) {
        if (!(dims >> d & 1) || hlo_dim(f, x, d)) continue;
        op_fail(c, TPU_OUT_OF_RANGE, "%s(): Expected reduction dim %d to have non-zero size.", name, d);
        return true;
    }
    return false;
}

static bool no_complex(op_ctx *c, hlo x)
{
    if (!dtype_is_complex(hlo_dtype(op_fn(c), x))) return false;
    op_fail(c, TPU_UNIMPLEMENTED, "%s: complex numbers have no order", op_row_of(c)->name);
    return true;
}

static uint32_t one_dim(op_ctx *c, int arg, hlo x, int *dim)
{
    int rank = hlo_rank(op_fn(c), x);
    *dim = op_dim(c, op_int(c, arg), rank);
    return rank ? 1u << *dim : 0;
}

hlo reduce_extreme(hlo_fn *f, const char *op, hlo x, uint32_t dims)
{
    if (hlo_dtype(f, x) == TPU_BOOL) op = !strcmp(op, "maximum") ? "or" : "and";
    return hlo_reduce(f, op, x, dims);
}

/* ---- sum, prod, nansum, mean; word: the operator ---- */
static void fold(op_ctx *c, uint32_t dims, bool keep, int dtype_arg)
{
    hlo_fn *f = op_fn(c);
    const char *op = op_row_of(c)->word;
    hlo x = op_in(c, 0);
    tpu_dtype t = op_dtype(c, dtype_arg, dtype_is_integral(hlo_dtype(f, x)) ? TPU_I64 : hlo_dtype(f, x));
    x = hlo_convert(f, x, t);
    if (!strcmp(op, "nan")) {
        if (dtype_is_complex(t)) {
            op_fail(c, TPU_INVALID, "nansum does not support complex inputs");
            return;
        }
        x = hlo_select(f, hlo_isnan(f, x), hlo_like_i(f, x, 0), x);
        op = "add";
    }
    if (t == TPU_BOOL) op = !strcmp(op, "add") ? "or" : "and";
    x = hlo_convert(f, x, dtype_compute(t));
    give(c, hlo_reduce(f, op, x, dims), x, dims, keep, t);
}

static void fold_all(op_ctx *c) { fold(c, reduce_all_dims(op_fn(c), op_in(c, 0)), false, 1); }
static void fold_dims(op_ctx *c) { fold(c, op_dims(c, 1, hlo_rank(op_fn(c), op_in(c, 0))), op_bool(c, 2), 3); }

static void fold_dim(op_ctx *c)
{
    int dim;
    uint32_t dims = one_dim(c, 1, op_in(c, 0), &dim);
    fold(c, dims, op_bool(c, 2), 3);
}

static void mean_over(op_ctx *c, uint32_t dims, bool keep, int dtype_arg)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_dtype t = op_dtype(c, dtype_arg, hlo_dtype(f, x));
    if (dtype_is_integral(t)) {
        op_fail(c, TPU_INVALID, "mean(): could not infer output dtype. %s dtype must be either a floating point or complex dtype. "
                "Got: %s", op_has(c, dtype_arg) ? "Optional" : "Input", dtype_torch_name(t));
        return;
    }
    x = hlo_convert(f, hlo_convert(f, x, t), dtype_compute(t));
    hlo sum = hlo_reduce(f, "add", x, dims);
    give(c, hlo_op2(f, "divide", sum, hlo_like_f(f, sum, (double)count_of(f, x, dims))), x, dims, keep, t);
}

static void mean_all(op_ctx *c) { mean_over(c, reduce_all_dims(op_fn(c), op_in(c, 0)), false, 1); }
static void mean_dims(op_ctx *c) { mean_over(c, op_dims(c, 1, hlo_rank(op_fn(c), op_in(c, 0))), op_bool(c, 2), 3); }

/* ---- amax, amin, aminmax ---- */
static void extreme(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    int n;
    op_ints(c, 1, &n);
    uint32_t dims = op_dims(c, 1, hlo_rank(f, x));
    const char *op = op_row_of(c)->word;
    if (no_complex(c, x) || no_identity(c, x, dims, n == 0, !strcmp(op, "maximum") ? "amax" : "amin")) return;
    give(c, reduce_extreme(f, op, x, dims), x, dims, op_bool(c, 2), hlo_dtype(f, x));
}

static void aminmax(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    int dim;
    uint32_t dims = op_has(c, 1) ? one_dim(c, 1, x, &dim) : reduce_all_dims(f, x);
    if (no_complex(c, x) || no_identity(c, x, dims, !op_has(c, 1), "aminmax")) return;
    give(c, reduce_extreme(f, "minimum", x, dims), x, dims, op_bool(c, 2), hlo_dtype(f, x));
    give(c, reduce_extreme(f, "maximum", x, dims), x, dims, op_bool(c, 2), hlo_dtype(f, x));
}

static void max_all(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    uint32_t dims = reduce_all_dims(f, x);
    if (no_complex(c, x) || no_identity(c, x, dims, true, op_row_of(c)->name)) return;
    op_out(c, reduce_extreme(f, !strcmp(op_row_of(c)->name, "max") ? "maximum" : "minimum", x, dims));
}

/* ---- with indices ---- */
static hlo arg_of(hlo_fn *f, hlo x, int dim, bool least)
{
    if (!hlo_rank(f, x)) return hlo_const_i(f, type_scalar(TPU_I64), 0);
    if (hlo_dtype(f, x) == TPU_BOOL) x = hlo_convert(f, x, TPU_U8);
    return hlo_argmax(f, x, dim, least);
}

static void max_dim(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    bool least = !strcmp(op_row_of(c)->word, "minimum"), keep = op_bool(c, 2);
    int dim;
    uint32_t dims = one_dim(c, 1, x, &dim);
    if (no_complex(c, x) || no_identity(c, x, dims, false, least ? "min" : "max")) return;
    give(c, reduce_extreme(f, op_row_of(c)->word, x, dims), x, dims, keep, hlo_dtype(f, x));
    give(c, arg_of(f, x, dim, least), x, dims, keep, TPU_I64);
}

static void arg_max(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    bool least = !strcmp(op_row_of(c)->word, "minimum"), whole = !op_has(c, 1);
    int dim = 0;
    uint32_t dims = whole ? reduce_all_dims(f, x) : one_dim(c, 1, x, &dim);
    if (no_complex(c, x) || no_identity(c, x, dims, whole, least ? "argmin" : "argmax")) return;
    hlo at = arg_of(f, whole ? hlo_flatten(f, x) : x, dim, least);
    give(c, at, x, dims, op_bool(c, 2), TPU_I64);
}

/* ---- any, all: bool, but uint8 of uint8 ---- */
static void truth(op_ctx *c, uint32_t dims, bool keep)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_dtype t = hlo_dtype(f, x) == TPU_U8 ? TPU_U8 : TPU_BOOL;
    x = hlo_convert(f, x, TPU_BOOL);
    give(c, hlo_reduce(f, op_row_of(c)->word, x, dims), x, dims, keep, t);
}

static void truth_all(op_ctx *c) { truth(c, reduce_all_dims(op_fn(c), op_in(c, 0)), false); }

static void truth_dim(op_ctx *c)
{
    int dim;
    uint32_t dims = one_dim(c, 1, op_in(c, 0), &dim);
    truth(c, dims, op_bool(c, 2));
}

static void truth_dims(op_ctx *c)
{
    int n;
    op_ints(c, 1, &n);
    uint32_t dims = op_dims(c, 1, hlo_rank(op_fn(c), op_in(c, 0)));
    truth(c, op_has(c, 1) && !n ? 0 : dims, op_bool(c, 2));    /* an empty list reduces nothing here */
}

/* ---- var, std and with mean: (self, int[1]? dim, Scalar? correction, bool keepdim) ---- */
static hlo square_abs(hlo_fn *f, hlo x)
{
    if (!dtype_is_complex(hlo_dtype(f, x))) return hlo_op2(f, "multiply", x, x);
    hlo re = hlo_op1(f, "real", x), im = hlo_op1(f, "imag", x);
    return hlo_op2(f, "add", hlo_op2(f, "multiply", re, re), hlo_op2(f, "multiply", im, im));
}

static void variance(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *word = op_row_of(c)->word;
    tpu_dtype t = hlo_dtype(f, op_in(c, 0));
    if (dtype_is_integral(t)) {
        op_fail(c, TPU_INVALID, "%s only support floating point and complex dtypes", word);
        return;
    }
    hlo x = op_in_math(c, 0);
    uint32_t dims = op_dims(c, 1, hlo_rank(f, x));
    double n = (double)count_of(f, x, dims), free_n = n - (op_has(c, 2) ? op_number(c, 2) : 1);
    hlo mean = hlo_reduce(f, "add", x, dims);
    mean = hlo_op2(f, "divide", mean, hlo_like_f(f, mean, n));
    hlo sum = hlo_reduce(f, "add", square_abs(f, hlo_op2(f, "subtract", x, hlo_along(f, mean, x, dims))), dims);
    hlo var = hlo_op2(f, "divide", sum, hlo_like_f(f, sum, free_n > 0 ? free_n : 0));
    if (!strncmp(word, "std", 3)) var = hlo_op1(f, "sqrt", var);
    give(c, var, x, dims, op_bool(c, 3), dtype_real(t));
    if (strstr(word, "_mean")) give(c, mean, x, dims, op_bool(c, 3), t);
}

/* ---- norms ---- */
static hlo abs_of(hlo_fn *f, hlo x) { return hlo_op1(f, "abs", x); }

hlo reduce_powsum(hlo_fn *f, hlo x, double p, uint32_t dims)
{
    if (p == 2) return hlo_reduce(f, "add", square_abs(f, x), dims);
    hlo a = abs_of(f, x);
    if (p != 1) a = hlo_op2(f, "power", a, hlo_like_f(f, a, p));
    return hlo_reduce(f, "add", a, dims);
}

hlo reduce_norm(hlo_fn *f, hlo x, double p, uint32_t dims)
{
    if (p == INFINITY) return hlo_reduce(f, "maximum", abs_of(f, x), dims);
    if (p == -INFINITY) return hlo_reduce(f, "minimum", abs_of(f, x), dims);
    if (p == 0) {
        tpu_dtype t = dtype_real(hlo_dtype(f, x));
        return hlo_reduce(f, "add", hlo_convert(f, hlo_compare(f, "NE", x, hlo_like_i(f, x, 0)), t), dims);
    }
    if (hlo_ok(x) && !dims && p != 0) return abs_of(f, x);
    hlo sum = reduce_powsum(f, x, p, dims);
    if (p == 1) return sum;
    return p == 2 ? hlo_op1(f, "sqrt", sum) : hlo_op2(f, "power", sum, hlo_like_f(f, sum, 1 / p));
}

static void norm_over(op_ctx *c, double p, uint32_t dims, bool keep, int dtype_arg)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_dtype t = op_dtype(c, dtype_arg, hlo_dtype(f, x));
    if (dtype_is_integral(t) || dtype_is_integral(hlo_dtype(f, x))) {
        op_fail(c, TPU_INVALID, "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s",
                dtype_torch_name(hlo_dtype(f, x)));
        return;
    }
    if ((p == INFINITY || p < 0) && !count_of(f, x, dims)) {
        op_fail(c, TPU_INVALID, "linalg.vector_norm cannot compute the %g norm on an empty tensor because the operation does not "
                "have an identity", p);
        return;
    }
    x = hlo_convert(f, hlo_convert(f, x, t), dtype_compute(t));
    give(c, reduce_norm(f, x, p, dims), x, dims, keep, dtype_real(t));
}

/* linalg_vector_norm(self, ord, dim?, keepdim, dtype), norm.ScalarOpt_dim(self, p?, dim, keepdim), ..._dim_dtype(.., dtype) */
static void norm_dims(op_ctx *c)
{
    uint32_t dims = op_dims(c, 2, hlo_rank(op_fn(c), op_in(c, 0)));
    norm_over(c, op_has(c, 1) ? op_number(c, 1) : 2, dims, op_bool(c, 3), 4);
}

/* norm.Scalar(self, p), norm.ScalarOpt_dtype(self, p?, dtype) */
static void norm_all(op_ctx *c)
{
    norm_over(c, op_has(c, 1) ? op_number(c, 1) : 2, reduce_all_dims(op_fn(c), op_in(c, 0)), false, 2);
}

static void logsumexp(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_to_float(hlo_dtype(f, op_in(c, 0)));
    hlo x = hlo_convert(f, op_in_as(c, 0, t), dtype_compute(t));
    uint32_t dims = op_dims(c, 1, hlo_rank(f, x));
    hlo top = dtype_is_complex(t) ? hlo_op1(f, "real", x) : x;
    top = hlo_reduce(f, "maximum", top, dims);
    hlo finite = hlo_op1(f, "is_finite", top);
    top = hlo_convert(f, hlo_select(f, finite, top, hlo_like_i(f, top, 0)), hlo_dtype(f, x));
    hlo e = hlo_op1(f, "exponential", hlo_op2(f, "subtract", x, hlo_along(f, top, x, dims)));
    hlo r = hlo_op2(f, "add", hlo_op1(f, "log", hlo_reduce(f, "add", e, dims)), top);
    give(c, r, x, dims, op_bool(c, 2), t);
}

/* ---- counts and the diagonal ---- */
static void count_nonzero(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    uint32_t dims = op_dims(c, 1, hlo_rank(f, x));
    tpu_dtype sum = hlo_count(f, x) < INT32_MAX ? TPU_I32 : TPU_I64;
    hlo some = hlo_convert(f, hlo_convert(f, x, TPU_BOOL), sum);
    op_out_as(c, hlo_reduce(f, "add", some, dims), TPU_I64);
}

static void trace(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0);
    tpu_dtype t = hlo_dtype(f, op_in(c, 0));
    if (hlo_rank(f, x) != 2) {
        op_fail(c, TPU_INVALID, "trace: expected a matrix, but got tensor with dim %d", hlo_rank(f, x));
        return;
    }
    int64_t m = hlo_dim(f, x, 0), n = hlo_dim(f, x, 1), k = m < n ? m : n;
    if (dtype_is_integral(t)) x = hlo_convert(f, x, t = TPU_I64);
    x = hlo_flatten(f, x);
    x = hlo_slice_dim(f, x, 0, 0, k ? (k - 1) * (n + 1) + 1 : 0, n + 1);
    op_out_as(c, hlo_reduce(f, "add", x, 1), t);
}

/* clang-format off */
const op_row ops_reduce[] = {
    { "sum",                     fold_all,      "add" },
    { "sum.dim_IntList",         fold_dims,     "add" },
    { "nansum",                  fold_dims,     "nan" },
    { "prod",                    fold_all,      "multiply" },
    { "prod.dim_int",            fold_dim,      "multiply" },
    { "mean",                    mean_all,      NULL },
    { "mean.dim",                mean_dims,     NULL },
    { "amax",                    extreme,       "maximum" },
    { "amin",                    extreme,       "minimum" },
    { "aminmax",                 aminmax,       NULL },
    { "max",                     max_all,       NULL },
    { "min",                     max_all,       NULL },
    { "max.dim",                 max_dim,       "maximum" },
    { "min.dim",                 max_dim,       "minimum" },
    { "argmax",                  arg_max,       "maximum" },
    { "argmin",                  arg_max,       "minimum" },
    { "any",                     truth_all,     "or" },
    { "any.dim",                 truth_dim,     "or" },
    { "any.dims",                truth_dims,    "or" },
    { "all",                     truth_all,     "and" },
    { "all.dim",                 truth_dim,     "and" },
    { "all.dims",                truth_dims,    "and" },
    { "var.correction",          variance,      "var",      .fixed = 1u << 2 },
    { "std.correction",          variance,      "std",      .fixed = 1u << 2 },
    { "var_mean.correction",     variance,      "var_mean", .fixed = 1u << 2 },
    { "std_mean.correction",     variance,      "std_mean", .fixed = 1u << 2 },
    { "linalg_vector_norm",      norm_dims,     NULL,       .fixed = 1u << 1 },
    { "norm.ScalarOpt_dim",      norm_dims,     NULL,       .fixed = 1u << 1 },
    { "norm.ScalarOpt_dim_dtype", norm_dims,    NULL,       .fixed = 1u << 1 },
    { "norm.Scalar",             norm_all,      NULL,       .fixed = 1u << 1 },
    { "norm.ScalarOpt_dtype",    norm_all,      NULL,       .fixed = 1u << 1 },
    { "logsumexp",               logsumexp,     NULL },
    { "count_nonzero",           count_nonzero, NULL },
    { "count_nonzero.dim_IntList", count_nonzero, NULL },
    { "trace",                   trace,         NULL },
    { NULL },
};
/* clang-format on */
