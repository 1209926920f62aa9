/* foreach.c - the _foreach_* ops: a row of one tensor (the word), applied to each element of the lists.  A number is one
 * run-time scalar for all tensors.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/reduce.h"

/* How many elements the lists have; 0 after an error. */
static int length(op_ctx *c, int nargs)
{
    int n = 0;
    for (int k = 0; k < nargs; k++) {
        int len = op_len(c, k);
        if (!len) continue;
        if (n && len != n) {
            op_fail(c, TPU_INVALID, "Tensor lists must have the same number of tensors, got %d and %d", n, len);
            return 0;
        }
        n = len;
    }
    if (!n) op_fail(c, TPU_INVALID, "Tensor list must have at least one tensor.");
    return n;
}

/* Argument k of the row is element i of our argument k, or that argument itself. */
static void each(op_ctx *c)
{
    int nargs = op_nargs(c) < 5 ? op_nargs(c) : 5, n = length(c, nargs);
    for (int i = 0; i < n && !hlo_failed(op_fn(c)); i++) {
        op_pick pick[5];
        for (int k = 0; k < nargs; k++) pick[k] = (op_pick){k, i};
        op_delegate(c, op_row_of(c)->word, pick, nargs);
    }
}

/* Rows of one operand: further arguments of ours (memory format) are not the row's. */
static void each_one(op_ctx *c)
{
    int n = length(c, 1);
    for (int i = 0; i < n && !hlo_failed(op_fn(c)); i++) op_delegate(c, op_row_of(c)->word, &(op_pick){0, i}, 1);
}

/* _foreach_norm.Scalar(self[], ord, dtype?) */
static void each_norm(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n = length(c, 1);
    for (int i = 0; i < n && !hlo_failed(f); i++) {
        hlo x = op_elem(c, 0, i);
        if (op_number(c, 1) == INFINITY && !hlo_count(f, x))     /* here an empty tensor has the norm 0 */
            op_out(c, hlo_zeros(f, type_scalar(op_dtype(c, 2, dtype_real(hlo_dtype(f, x))))));
        else
            op_delegate(c, "linalg_vector_norm", (op_pick[]){{0, i}, {1, 0}, {-1, 0}, {-1, 0}, {2, 0}}, 5);
    }
}

/* _foreach_powsum.Scalar(self[], ord, dtype?) */
static void each_powsum(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n = length(c, 1);
    double p = op_number(c, 1);
    for (int i = 0; i < n && !hlo_failed(f); i++) {
        tpu_dtype t = op_dtype(c, 2, hlo_dtype(f, op_elem(c, 0, i)));
        if (dtype_is_integral(t) || isinf(p)) {
            op_fail(c, TPU_UNIMPLEMENTED, "_foreach_powsum: this dtype or order");
            return;
        }
        hlo x = hlo_convert(f, hlo_convert(f, op_elem(c, 0, i), t), dtype_compute(t));
        uint32_t dims = reduce_all_dims(f, x);
        op_out_as(c, p == 0 ? reduce_norm(f, x, 0, dims) : reduce_powsum(f, x, p, dims), dtype_real(t));
    }
}

static void each_zero(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n = length(c, 1);
    for (int i = 0; i < n; i++) op_out(c, hlo_zeros(f, hlo_type(f, op_elem(c, 0, i))));
}

static void each_clone(op_ctx *c)
{
    int n = length(c, 1);
    for (int i = 0; i < n; i++) op_out(c, op_elem(c, 0, i));
}

/* _foreach_copy(self[], src[], non_blocking) */
static void each_copy(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n = length(c, 2);
    for (int i = 0; i < n; i++) {
        tpu_type t = hlo_type(f, op_elem(c, 0, i));
        op_out(c, hlo_broadcast_to(f, hlo_convert(f, op_elem(c, 1, i), (tpu_dtype)t.dtype), t));
    }
}

/* clang-format off */
#define NUMBERS(op, row, ...) \
    { "_foreach_" op ".Scalar",     each, row, __VA_ARGS__ }, \
    { "_foreach_" op ".ScalarList", each, row, __VA_ARGS__ }
#define LISTS(op, row)  { "_foreach_" op ".List", each, row }
#define TENSOR(op, row) { "_foreach_" op ".Tensor", each, row }
#define ONE(op)         { "_foreach_" op, each_one, op }
const op_row ops_foreach[] = {
    NUMBERS("add", "add.Scalar", 0),            LISTS("add", "add.Tensor"),       TENSOR("add", "add.Tensor"),
    NUMBERS("sub", "sub.Scalar", 0),            LISTS("sub", "sub.Tensor"),
    NUMBERS("mul", "mul.Scalar", 0),            LISTS("mul", "mul.Tensor"),       TENSOR("mul", "mul.Tensor"),
    NUMBERS("div", "div.Scalar", 0),            LISTS("div", "div.Tensor"),       TENSOR("div", "div.Tensor"),
    NUMBERS("clamp_min", "clamp_min", 0),       LISTS("clamp_min", "maximum"),
    NUMBERS("clamp_max", "clamp_max", 0),       LISTS("clamp_max", "minimum"),
    NUMBERS("maximum", "clamp_min", 0),         LISTS("maximum", "maximum"),
    NUMBERS("minimum", "clamp_max", 0),         LISTS("minimum", "minimum"),
    NUMBERS("pow", "pow.Tensor_Scalar", 0, 2),  LISTS("pow", "pow.Tensor_Tensor"),
    { "_foreach_pow.ScalarAndTensor", each, "pow.Scalar" },
    NUMBERS("addcmul", "addcmul", 0),
    NUMBERS("addcdiv", "addcdiv", 0),
    NUMBERS("lerp", "lerp.Scalar", 0),          LISTS("lerp", "lerp.Tensor"),
    ONE("abs"),   ONE("acos"),  ONE("asin"),  ONE("atan"),  ONE("ceil"),  ONE("cos"),   ONE("cosh"),  ONE("erf"),
    ONE("erfc"),  ONE("exp"),   ONE("expm1"), ONE("floor"), ONE("frac"),  ONE("lgamma"), ONE("log"),  ONE("log10"),
    ONE("log1p"), ONE("log2"),  ONE("max"),   ONE("neg"),   ONE("reciprocal"), ONE("round"), ONE("rsqrt"),
    ONE("sigmoid"), ONE("sign"), ONE("sin"),  ONE("sinh"),  ONE("sqrt"),  ONE("tan"),   ONE("tanh"),  ONE("trunc"),
    { "_foreach_mm",            each,        "mm" },
    { "_foreach_norm.Scalar",   each_norm,   NULL, 0, 2 },
    { "_foreach_powsum.Scalar", each_powsum, NULL, 0, 2 },
    { "_foreach_zero",          each_zero },
    { "_foreach_clone",         each_clone },
    { "_foreach_copy",          each_copy },
    { NULL },
};
/* clang-format on */
