/* reduce.c - sums, products, extremes, moments and norms.  Half precisions accumulate in float32.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops.h"

static uint32_t all_dims(hlo_fn *f, hlo x) { return (1u << hlo_rank(f, x)) - 1; }

/* The reduced value, with 1s where dims vanished if keepdim is asked for. */
static hlo shaped(op_ctx *c, hlo r, hlo like, uint32_t dims, bool keep) { return keep ? hlo_keepdims(op_fn(c), r, like, dims) : r; }

/* Dims as a mask; an empty or missing list means all. */
static uint32_t dims_of(op_ctx *c, int arg, hlo x) { return op_dims(c, arg, hlo_rank(op_fn(c), x)); }

/* Integer sums and products widen to int64 [P1]. */
static tpu_dtype widened(tpu_dtype t) { return dtype_is_integral(t) ? TPU_I64 : t; }

static hlo count_of(hlo_fn *f, hlo x, uint32_t dims, hlo like)
{
    double n = 1;
    for (int d = 0; d < hlo_rank(f, x); d++)
        if (dims >> d & 1) n *= (double)hlo_dim(f, x, d);
    return hlo_like_f(f, like, n);
}

typedef struct place { int dim, keep, dtype; bool one; } place;      /* argument positions, -1: none; one: a single dim */

static uint32_t mask_of(op_ctx *c, place p, hlo x)
{
    hlo_fn *f = op_fn(c);
    int rank = hlo_rank(f, x);
    if (p.dim < 0) return all_dims(f, x);
    if (!p.one) return dims_of(c, p.dim, x);
    int d = op_dim(c, op_int(c, p.dim), rank);
    return rank ? 1u << d : 0;
}

/* word: add multiply, 'mean', or nan-skipping '0add' */
static void accumulate(op_ctx *c, place p)
{
    hlo_fn *f = op_fn(c);
    const char *w = op_row_of(c)->word;
    hlo in = op_in(c, 0);
    bool mean = w[0] == 'm' && w[1] == 'e', skip = w[0] == '0';
    tpu_dtype own = hlo_dtype(f, in), t = p.dtype >= 0 ? op_dtype(c, p.dtype, mean ? own : widened(own)) : widened(own);
    if (mean && dtype_is_integral(t)) {
        op_fail(c, TPU_INVALID, "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: %s", dtype_torch_name(own));
        return;
    }
    hlo x = hlo_convert(f, in, dtype_compute(t));
    if (skip) x = hlo_select(f, hlo_isnan(f, x), hlo_like_f(f, x, 0), x);
    uint32_t dims = mask_of(c, p, x);
    hlo r = hlo_reduce(f, mean ? "add" : skip ? w + 1 : w, x, dims);
    if (mean) r = hlo_op2(f, "divide", r, count_of(f, x, dims, r));
    op_out_as(c, shaped(c, r, x, dims, p.keep >= 0 && op_bool(c, p.keep)), t);
}

static void sum_all(op_ctx *c) { accumulate(c, (place){-1, -1, 1, false}); }                /* (self, dtype) */
static void sum_dims(op_ctx *c) { accumulate(c, (place){1, 2, 3, false}); }                 /* (self, dim, keepdim, dtype) */
static void prod_dim(op_ctx *c) { accumulate(c, (place){1, 2, 3, true}); }

/* ---- logic ---- */
static void logic(op_ctx *c, place p)
{
    hlo_fn *f = op_fn(c);
    hlo in = op_in(c, 0), x = hlo_convert(f, in, TPU_BOOL);
    uint32_t dims = mask_of(c, p, x);
    hlo r = shaped(c, hlo_reduce(f, op_row_of(c)->word, x, dims), x, dims, p.keep >= 0 && op_bool(c, p.keep));
    op_out_as(c, r, hlo_dtype(f, in) == TPU_U8 ? TPU_U8 : TPU_BOOL);
}

static void logic_all(op_ctx *c) { logic(c, (place){-1, -1, -1, false}); }
static void logic_dim(op_ctx *c) { logic(c, (place){1, 2, -1, true}); }
static void logic_dims(op_ctx *c) { logic(c, (place){1, 2, -1, false}); }

/* ---- extremes ---- */
static bool nothing(op_ctx *c, hlo x, uint32_t dims)
{
    hlo_fn *f = op_fn(c);
    for (int d = 0; d < hlo_rank(f, x); d++)
        if (dims >> d & 1 && hlo_dim(f, x, d) == 0) {
            op_fail(c, dims == all_dims(f, x) ? TPU_INVALID : TPU_OUT_OF_RANGE, "%s(): Expected reduction dim %d to have non-zero size.", op_row_of(c)->name, d);
            return true;
        }
    return false;
}

/* amax(self, dim[], keepdim), amin */
static void extreme_dims(op_ctx *c)
{
    hlo x = op_in(c, 0);
    uint32_t dims = dims_of(c, 1, x);
    if (!nothing(c, x, dims)) op_out(c, shaped(c, hlo_reduce(op_fn(c), op_row_of(c)->word, x, dims), x, dims, op_bool(c, 2)));
}

/* max(self), min(self) */
static void extreme(op_ctx *c)
{
    hlo x = op_in(c, 0);
    if (!nothing(c, x, all_dims(op_fn(c), x))) op_out(c, hlo_reduce(op_fn(c), op_row_of(c)->word, x, all_dims(op_fn(c), x)));
}

/* aminmax(self, dim?, keepdim) */
static void aminmax(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    int rank = hlo_rank(f, x);
    uint32_t dims = op_has(c, 1) ? (rank ? 1u << op_dim(c, op_int(c, 1), rank) : 0) : all_dims(f, x);
    if (nothing(c, x, dims)) return;
    op_out(c, shaped(c, hlo_reduce(f, "minimum", x, dims), x, dims, op_bool(c, 2)));
    op_out(c, shaped(c, hlo_reduce(f, "maximum", x, dims), x, dims, op_bool(c, 2)));
}

/* max.dim(self, dim, keepdim) -> (values, indices) */
static void extreme_dim(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    int rank = hlo_rank(f, x), d = op_dim(c, op_int(c, 1), rank);
    if (rank == 0) {
        op_out(c, x);
        op_out(c, hlo_const_i(f, type_scalar(TPU_I64), 0));
        return;
    }
    if (nothing(c, x, 1u << d)) return;
    bool keep = op_bool(c, 2);
    op_out(c, shaped(c, hlo_reduce(f, op_row_of(c)->word, x, 1u << d), x, 1u << d, keep));
    op_out(c, shaped(c, hlo_argmax(f, x, d, op_row_of(c)->word[1] == 'i'), x, 1u << d, keep));
}

/* argmax(self, dim?, keepdim) */
static void arg_extreme(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    bool least = op_row_of(c)->word != NULL;
    int rank = hlo_rank(f, x);
    if (hlo_count(f, x) == 0 && (!op_has(c, 1) || hlo_dim(f, x, (int)op_int(c, 1)) == 0)) {
        op_fail(c, TPU_OUT_OF_RANGE, "%s(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.", op_row_of(c)->name);
        return;
    }
    if (!op_has(c, 1) || rank == 0) {
        if (op_has(c, 1)) op_dim(c, op_int(c, 1), rank);
        hlo r = rank ? hlo_argmax(f, hlo_flatten(f, x), 0, least) : hlo_const_i(f, type_scalar(TPU_I64), 0);
        if (op_bool(c, 2)) r = hlo_keepdims(f, r, x, all_dims(f, x));
        op_out(c, r);
        return;
    }
    int d = op_dim(c, op_int(c, 1), rank);
    op_out(c, shaped(c, hlo_argmax(f, x, d, least), x, 1u << d, op_bool(c, 2)));
}

/* ---- moments: (self, dim?, correction?, keepdim); word: v s, then m to give the mean as well ---- */
static void moments(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *w = op_row_of(c)->word;
    hlo in = op_in(c, 0);
    tpu_dtype own = hlo_dtype(f, in);
    if (dtype_is_integral(own)) {
        op_fail(c, TPU_INVALID, "%s only support floating point and complex dtypes", op_row_of(c)->word[0] == 'v' ? "var" : "std");
        return;
    }
    hlo x = op_in_math(c, 0);
    uint32_t dims = dims_of(c, 1, x);
    hlo s = hlo_reduce(f, "add", x, dims), mean = hlo_op2(f, "divide", s, count_of(f, x, dims, s));
    hlo d = hlo_op2(f, "subtract", x, hlo_along(f, mean, x, dims)), sq;
    if (dtype_is_complex(own)) {
        hlo re = hlo_op1(f, "real", d), im = hlo_op1(f, "imag", d);
        sq = hlo_op2(f, "add", hlo_op2(f, "multiply", re, re), hlo_op2(f, "multiply", im, im));
    } else {
        sq = hlo_op2(f, "multiply", d, d);
    }
    hlo v = hlo_reduce(f, "add", sq, dims), n = count_of(f, x, dims, v);
    double correction = op_has(c, 2) ? op_number(c, 2) : 1;
    hlo den = hlo_max(f, hlo_op2(f, "subtract", n, hlo_like_f(f, n, correction)), hlo_like_f(f, n, 0));
    v = hlo_op2(f, "divide", v, den);
    if (w[0] == 's') v = hlo_op1(f, "sqrt", v);
    bool keep = op_bool(c, 3);
    op_out_as(c, shaped(c, v, x, dims, keep), dtype_real(own));
    if (w[1] == 'm') op_out_as(c, shaped(c, mean, x, dims, keep), own);
}

/* ---- norms ---- */
static hlo magnitude(hlo_fn *f, hlo x) { return hlo_op1(f, "abs", x); }

static hlo norm_of(op_ctx *c, hlo a, double p, uint32_t dims)
{
    hlo_fn *f = op_fn(c);
    if (p == 2) return hlo_op1(f, "sqrt", hlo_reduce(f, "add", hlo_op2(f, "multiply", a, a), dims));
    if (p == 1) return hlo_reduce(f, "add", a, dims);
    if (p == 0) return hlo_reduce(f, "add", hlo_convert(f, hlo_compare(f, "NE", a, hlo_like_f(f, a, 0)), hlo_dtype(f, a)), dims);
    if (isinf(p)) {
        hlo r = hlo_reduce(f, p > 0 ? "maximum" : "minimum", a, dims);
        return p > 0 ? hlo_max(f, r, hlo_like_f(f, r, 0)) : r;
    }
    hlo r = hlo_reduce(f, "add", hlo_op2(f, "power", a, hlo_like_f(f, a, p)), dims);
    return hlo_op2(f, "power", r, hlo_like_f(f, r, 1 / p));
}

/* Argument positions of ord, dim, keepdim, dtype. */
static void norm(op_ctx *c, int ord, int dim, int keep, int dtype)
{
    hlo_fn *f = op_fn(c);
    hlo in = op_in(c, 0);
    tpu_dtype own = hlo_dtype(f, in), given = dtype >= 0 ? op_dtype(c, dtype, own) : own, t = dtype_real(given);
    if (dtype_is_integral(given)) {
        op_fail(c, TPU_INVALID, "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s", dtype_torch_name(given));
        return;
    }
    hlo x = hlo_convert(f, in, dtype_compute(given));
    uint32_t dims = dim >= 0 ? dims_of(c, dim, x) : all_dims(f, x);
    hlo r = norm_of(c, magnitude(f, x), op_has(c, ord) ? op_number(c, ord) : 2, dims);
    op_out_as(c, shaped(c, r, x, dims, keep >= 0 && op_bool(c, keep)), t);
}

static void vector_norm(op_ctx *c) { norm(c, 1, 2, 3, 4); }
static void norm_dims(op_ctx *c) { norm(c, 1, 2, 3, 4); }      /* norm.ScalarOpt_dim(_dtype) */
static void norm_dtype(op_ctx *c) { norm(c, 1, -1, -1, 2); }   /* norm.ScalarOpt_dtype */
static void norm_all(op_ctx *c) { norm(c, 1, -1, -1, -1); }    /* norm.Scalar */

/* logsumexp(self, dim[], keepdim) */
static void logsumexp(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo in = op_in(c, 0);
    tpu_dtype t = op_to_float(hlo_dtype(f, in));
    hlo x = hlo_convert(f, in, dtype_compute(t));
    uint32_t dims = dims_of(c, 1, x);
    if (hlo_count(f, x) == 0) {
        op_out_as(c, shaped(c, hlo_op1(f, "log", hlo_reduce(f, "add", hlo_op1(f, "exponential", x), dims)), x, dims, op_bool(c, 2)), t);
        return;
    }
    hlo m = hlo_reduce(f, "maximum", x, dims), zero = hlo_like_f(f, m, 0);
    hlo inf = hlo_compare(f, "EQ", hlo_op1(f, "abs", m), hlo_highest(f, hlo_type(f, m)));
    m = hlo_select(f, inf, zero, m);
    hlo s = hlo_reduce(f, "add", hlo_op1(f, "exponential", hlo_op2(f, "subtract", x, hlo_along(f, m, x, dims))), dims);
    op_out_as(c, shaped(c, hlo_op2(f, "add", hlo_op1(f, "log", s), m), x, dims, op_bool(c, 2)), t);
}

/* count_nonzero.dim_IntList(self, dim[]), count_nonzero(self, dim?) */
static void count_nonzero(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    uint32_t dims = op_has(c, 1) ? dims_of(c, 1, x) : all_dims(f, x);
    op_out(c, hlo_reduce(f, "add", hlo_convert(f, hlo_convert(f, x, TPU_BOOL), TPU_I64), dims));
}

static void trace(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_type t = hlo_type(f, x);
    if (t.rank != 2) {
        op_fail(c, TPU_INVALID, "trace: expected a matrix, but got tensor with dim %d", t.rank);
        return;
    }
    tpu_type i = type_as(t, TPU_I64);
    tpu_dtype own = widened((tpu_dtype)t.dtype);
    x = hlo_convert(f, x, dtype_compute(own));
    hlo on = hlo_compare(f, "EQ", hlo_iota(f, i, 0), hlo_iota(f, i, 1));
    op_out_as(c, hlo_reduce(f, "add", hlo_select(f, on, x, hlo_like_f(f, x, 0)), 3), own);
}

/* clang-format off */
const op_row ops_reduce[] = {
    { "sum",                      sum_all,       "add" },
    { "sum.dim_IntList",          sum_dims,      "add" },
    { "nansum",                   sum_dims,      "0add" },
    { "prod",                     sum_all,       "multiply" },
    { "prod.dim_int",             prod_dim,      "multiply" },
    { "mean",                     sum_all,       "mean" },
    { "mean.dim",                 sum_dims,      "mean" },
    { "any",                      logic_all,     "or" },
    { "any.dim",                  logic_dim,     "or" },
    { "any.dims",                 logic_dims,    "or" },
    { "all",                      logic_all,     "and" },
    { "all.dim",                  logic_dim,     "and" },
    { "all.dims",                 logic_dims,    "and" },
    { "amax",                     extreme_dims,  "maximum" },
    { "amin",                     extreme_dims,  "minimum" },
    { "max",                      extreme,       "maximum" },
    { "min",                      extreme,       "minimum" },
    { "max.dim",                  extreme_dim,   "maximum" },
    { "min.dim",                  extreme_dim,   "minimum" },
    { "aminmax",                  aminmax },
    { "argmax",                   arg_extreme },
    { "argmin",                   arg_extreme,   "least" },
    { "var.correction",           moments,       "v",  OP_FIXED },
    { "std.correction",           moments,       "s",  OP_FIXED },
    { "var_mean.correction",      moments,       "vm", OP_FIXED },
    { "std_mean.correction",      moments,       "sm", OP_FIXED },
    { "linalg_vector_norm",       vector_norm,   NULL, OP_FIXED },
    { "norm.ScalarOpt_dim",       norm_dims,     NULL, OP_FIXED },
    { "norm.ScalarOpt_dim_dtype", norm_dims,     NULL, OP_FIXED },
    { "norm.ScalarOpt_dtype",     norm_dtype,    NULL, OP_FIXED },
    { "norm.Scalar",              norm_all,      NULL, OP_FIXED },
    { "logsumexp",                logsumexp },
    { "count_nonzero.dim_IntList", count_nonzero },
    { "count_nonzero",            count_nonzero },
    { "trace",                    trace },
    { NULL },
};
/* clang-format on */
