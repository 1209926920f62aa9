/* softmax.c - softmax and log_softmax with their gradients.  Half precisions are computed in float32.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

/* x - max along dim; rows of -inf alone stay NaN as PyTorch has them. */
static hlo shifted(hlo_fn *f, hlo x, uint32_t dims)
{
    return hlo_op2(f, "subtract", x, hlo_along(f, hlo_reduce(f, "maximum", x, dims), x, dims));
}

static uint32_t dim_mask(op_ctx *c, int arg, hlo x)
{
    int rank = hlo_rank(op_fn(c), x), d = op_dim(c, op_int(c, arg), rank);
    return rank ? 1u << d : 0;
}

static bool needs_float(op_ctx *c, hlo x)
{
    if (dtype_is_float(hlo_dtype(op_fn(c), x))) return false;
    op_fail(c, TPU_INVALID, "\"%s_kernel_impl\" not implemented for '%s'", op_row_of(c)->name[1] == 's' ? "softmax" : "log_softmax_lastdim",
            dtype_torch_name(hlo_dtype(op_fn(c), x)));
    return true;
}

/* _softmax(self, dim, half_to_float); _safe_softmax(self, dim, dtype) gives zeros for rows of -inf */
static void softmax(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo in = op_in(c, 0), x = op_in_math(c, 0);
    if (needs_float(c, in)) return;
    uint32_t dims = dim_mask(c, 1, x);
    hlo e = hlo_op1(f, "exponential", shifted(f, x, dims));
    hlo y = hlo_op2(f, "divide", e, hlo_along(f, hlo_reduce(f, "add", e, dims), e, dims));
    tpu_dtype t = hlo_dtype(f, in);
    if (op_row_of(c)->word) {
        t = op_dtype(c, 2, t);
        hlo masked = hlo_compare(f, "EQ", hlo_reduce(f, "maximum", x, dims), hlo_lowest(f, hlo_type(f, hlo_reduce(f, "maximum", x, dims))));
        y = hlo_select(f, hlo_along(f, masked, x, dims), hlo_like_f(f, y, 0), y);
    } else if (op_bool(c, 2)) {
        t = TPU_F32;
    }
    op_out_as(c, y, t);
}

static void log_softmax(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo in = op_in(c, 0), x = op_in_math(c, 0);
    if (needs_float(c, in)) return;
    uint32_t dims = dim_mask(c, 1, x);
    hlo s = shifted(f, x, dims);
    hlo sum = hlo_reduce(f, "add", hlo_op1(f, "exponential", s), dims);
    hlo y = hlo_op2(f, "subtract", s, hlo_along(f, hlo_op1(f, "log", sum), s, dims));
    op_out_as(c, y, op_bool(c, 2) ? TPU_F32 : hlo_dtype(f, in));
}

/* _softmax_backward_data(grad, output, dim, input_dtype) */
static void softmax_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0), y = op_in_math(c, 1);
    uint32_t dims = dim_mask(c, 2, g);
    hlo gy = hlo_op2(f, "multiply", g, y);
    hlo sum = hlo_along(f, hlo_reduce(f, "add", gy, dims), gy, dims);
    op_out_as(c, hlo_op2(f, "subtract", gy, hlo_op2(f, "multiply", y, sum)), op_dtype(c, 3, hlo_dtype(f, op_in(c, 0))));
}

static void log_softmax_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0), y = op_in_math(c, 1);
    uint32_t dims = dim_mask(c, 2, g);
    hlo sum = hlo_along(f, hlo_reduce(f, "add", g, dims), g, dims);
    hlo r = hlo_op2(f, "subtract", g, hlo_op2(f, "multiply", hlo_op1(f, "exponential", y), sum));
    op_out_as(c, r, op_dtype(c, 3, hlo_dtype(f, op_in(c, 0))));
}

/* clang-format off */
const op_row ops_softmax[] = {
    { "_softmax",                   softmax },
    { "_safe_softmax",              softmax, "safe" },
    { "_log_softmax",               log_softmax },
    { "_softmax_backward_data",     softmax_backward },
    { "_log_softmax_backward_data", log_softmax_backward },
    { NULL },
};
/* clang-format on */
