/* weightnorm.c - norms that scale: renorm, and weight normalisation with its gradient.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "arith.h"

static uint32_t all_but(hlo_fn *f, hlo x, int dim) { return ((1u << hlo_rank(f, x)) - 1) & ~(1u << dim); }

static hlo p_norm(hlo_fn *f, hlo x, double p, uint32_t dims)
{
    hlo a = magnitude(f, x);
    if (isinf(p)) return hlo_reduce(f, "maximum", a, dims);
    if (p == 1) return hlo_reduce(f, "add", a, dims);
    if (p == 2) return root(f, hlo_reduce(f, "add", square(f, a), dims));
    hlo s = hlo_reduce(f, "add", hlo_op2(f, "power", a, hlo_like_f(f, a, p)), dims);
    return hlo_op2(f, "power", s, hlo_like_f(f, s, 1 / p));
}

/* renorm(self, p, dim, maxnorm): slices along dim whose norm is above maxnorm shrink to it */
static void renorm(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo in = op_in(c, 0), x = op_in_math(c, 0);
    double p = op_number(c, 1);
    tpu_dtype own = hlo_dtype(f, in);
    if (!(p > 0)) {
        op_fail(c, TPU_INVALID, "renorm: non-positive norm not supported");
        return;
    }
    if (hlo_rank(f, x) < 2) {
        op_fail(c, TPU_INVALID, "renorm: input needs at least 2 dimensions, got %d dimensions", hlo_rank(f, x));
        return;
    }
    if (!dtype_is_float(own) && !dtype_is_complex(own)) {
        refuse(c);
        return;
    }
    uint32_t dims = all_but(f, x, op_dim(c, op_int(c, 2), hlo_rank(f, x)));
    hlo norm = p_norm(f, x, p, dims), most = number_like(c, 3, norm);
    hlo factor = hlo_select(f, hlo_compare(f, "GT", norm, most), over(f, most, plus_k(f, norm, 1e-7)), hlo_like_f(f, norm, 1));
    factor = hlo_convert(f, hlo_convert(f, factor, dtype_real(own)), hlo_dtype(f, x)); /* rounded as PyTorch keeps it */
    op_out_as(c, times(f, x, hlo_along(f, factor, x, dims)), own);
}

/* _weight_norm_interface(v, g, dim) -> (w, norms) */
static void weight_norm(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo v = op_in_math(c, 0), g = hlo_convert(f, op_in(c, 1), hlo_dtype(f, v));
    uint32_t dims = all_but(f, v, op_dim(c, op_int(c, 2), hlo_rank(f, v)));
    hlo norm = hlo_keepdims(f, p_norm(f, v, 2, dims), v, dims);
    op_out_as(c, times(f, v, hlo_broadcast_to(f, over(f, g, norm), hlo_type(f, v))), arg_dtype(c, 0));
    op_out(c, norm);
}

/* _weight_norm_interface_backward(grad_w, v, g, norms, dim) -> (grad_v, grad_g) */
static void weight_norm_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo v = op_in_math(c, 1);
    tpu_type t = hlo_type(f, v);
    tpu_dtype m = (tpu_dtype)t.dtype;
    hlo dw = hlo_convert(f, op_in(c, 0), m), g = hlo_convert(f, op_in(c, 2), m), norm = hlo_convert(f, op_in(c, 3), m);
    uint32_t dims = all_but(f, v, op_dim(c, op_int(c, 4), t.rank));
    hlo dot = hlo_keepdims(f, hlo_reduce(f, "add", times(f, dw, v), dims), v, dims);
    hlo along_v = hlo_broadcast_to(f, over(f, dot, square(f, norm)), t);
    hlo dv = times(f, hlo_broadcast_to(f, over(f, g, norm), t), minus(f, dw, times(f, v, along_v)));
    op_out_as(c, dv, arg_dtype(c, 1));
    op_out_as(c, over(f, dot, norm), arg_dtype(c, 2));
}

/* clang-format off */
const op_row ops_weightnorm[] = {
    { "renorm",                          renorm, .fixed = 1u << 1 },
    { "_weight_norm_interface",          weight_norm },
    { "_weight_norm_interface_backward", weight_norm_backward },
    { NULL },
};
/* clang-format on */
