/* arith.h - short words for the arithmetic of lowerings: plus(f, x, y) is x + y.  Values only, no arguments of calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_OPS_ARITH_H
#define TPUTORCH_OPS_ARITH_H

#include "ops.h"

static inline hlo plus(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "add", x, y); }
static inline hlo minus(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "subtract", x, y); }
static inline hlo times(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "multiply", x, y); }
static inline hlo over(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "divide", x, y); }
static inline hlo negate(hlo_fn *f, hlo x) { return hlo_op1(f, "negate", x); }
static inline hlo square(hlo_fn *f, hlo x) { return times(f, x, x); }
static inline hlo exponential(hlo_fn *f, hlo x) { return hlo_op1(f, "exponential", x); }
static inline hlo logarithm(hlo_fn *f, hlo x) { return hlo_op1(f, "log", x); }
static inline hlo root(hlo_fn *f, hlo x) { return hlo_op1(f, "sqrt", x); }
static inline hlo magnitude(hlo_fn *f, hlo x) { return hlo_op1(f, "abs", x); }

/* The other operand is a constant of x's type. */
static inline hlo plus_k(hlo_fn *f, hlo x, double k) { return plus(f, x, hlo_like_f(f, x, k)); }
static inline hlo times_k(hlo_fn *f, hlo x, double k) { return times(f, x, hlo_like_f(f, x, k)); }
static inline hlo over_k(hlo_fn *f, hlo x, double k) { return over(f, x, hlo_like_f(f, x, k)); }
static inline hlo k_minus(hlo_fn *f, double k, hlo x) { return minus(f, hlo_like_f(f, x, k), x); }
static inline hlo k_over(hlo_fn *f, double k, hlo x) { return over(f, hlo_like_f(f, x, k), x); }
static inline hlo compare_k(hlo_fn *f, const char *dir, hlo x, double k) { return hlo_compare(f, dir, x, hlo_like_f(f, x, k)); }
static inline hlo both(hlo_fn *f, hlo p, hlo q) { return hlo_op2(f, "and", p, q); }
static inline hlo either(hlo_fn *f, hlo p, hlo q) { return hlo_op2(f, "or", p, q); }

/* c[0] x^(n-1) + ... + c[n-1]. */
static inline hlo polynomial(hlo_fn *f, hlo x, const double *c, int n)
{
    hlo sum = hlo_like_f(f, x, c[0]);
    for (int i = 1; i < n; i++) sum = plus_k(f, times(f, sum, x), c[i]);
    return sum;
}

/* Toward zero. */
static inline hlo truncated(hlo_fn *f, hlo x)
{
    return hlo_select(f, compare_k(f, "LT", x, 0), hlo_op1(f, "ceil", x), hlo_op1(f, "floor", x));
}

/* bool: the sign bit of a real number, of zeros and NaNs too. */
static inline hlo sign_bit(hlo_fn *f, hlo x)
{
    tpu_dtype t = hlo_dtype(f, x);
    if (dtype_is_float(t)) x = hlo_bitcast(f, hlo_convert(f, x, TPU_F32), TPU_I32); /* narrowing keeps the sign */
    return hlo_compare(f, "LT", x, hlo_like_i(f, x, 0));
}

/* The dtype of a tensor argument. */
static inline tpu_dtype arg_dtype(op_ctx *c, int arg) { return hlo_dtype(op_fn(c), op_in(c, arg)); }

/* Says that the row does not take these dtypes: the CPU kernel is asked, which may know them or words for the error. */
static inline void refuse(op_ctx *c) { op_fail(c, TPU_UNIMPLEMENTED, "\"%s\" does not take this dtype", op_row_of(c)->name); }

/* The argument as PyTorch's kernels see it: in the common dtype t, then in t's compute type; a Python number keeps its
 * digits. */
static inline hlo operand(op_ctx *c, int arg, tpu_dtype t)
{
    tpu_dtype wide = dtype_compute(t);
    if (op_scalar_kind(c, arg) != TPU_NONE || op_wrapped(c, arg)) return op_in_as(c, arg, wide);
    return hlo_convert(op_fn(c), op_in_as(c, arg, t), wide);
}

/* Two arguments in common dtype t, broadcast. */
static inline void operands(op_ctx *c, int a, int b, tpu_dtype t, hlo *x, hlo *y)
{
    *x = operand(c, a, t);
    *y = operand(c, b, t);
    hlo_broadcast2(op_fn(c), x, y);
}

/* A number argument (run-time data) splat to x's type. */
static inline hlo number_like(op_ctx *c, int arg, hlo x)
{
    hlo_fn *f = op_fn(c);
    return hlo_broadcast_to(f, op_scalar(c, arg, hlo_dtype(f, x)), hlo_type(f, x));
}

#endif
