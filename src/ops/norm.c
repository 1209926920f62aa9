/* norm.c - layer, batch and group normalisation with their gradients.  Statistics are float32 for half precisions.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops.h"

static hlo mul(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "multiply", x, y); }
static hlo sub(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "subtract", x, y); }
static hlo add(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "add", x, y); }

static hlo mean_of(hlo_fn *f, hlo x, uint32_t dims)
{
    hlo s = hlo_reduce(f, "add", x, dims);
    int64_t n = hlo_count(f, s) ? hlo_count(f, x) / hlo_count(f, s) : 1;
    return mul(f, s, hlo_like_f(f, s, 1.0 / (double)(n ? n : 1)));
}

static hlo rsqrt_eps(op_ctx *c, hlo var, int eps)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, var);
    return hlo_op1(f, "rsqrt", add(f, var, hlo_broadcast_to(f, op_scalar(c, eps, (tpu_dtype)t.dtype), t)));
}

static hlo centered_var(hlo_fn *f, hlo x, hlo mean, uint32_t dims)
{
    hlo d = sub(f, x, hlo_along(f, mean, x, dims));
    return mean_of(f, mul(f, d, d), dims);
}

static hlo in_as_math(op_ctx *c, int arg, hlo like) { return hlo_convert(op_fn(c), op_in(c, arg), hlo_dtype(op_fn(c), like)); }

/* ---- layer norm ---- */
static uint32_t last_dims(int rank, int n) { return ((1u << rank) - 1) & ~((1u << (rank - n)) - 1); }

static bool bad_shape(op_ctx *c, hlo x, const int64_t *shape, int n)
{
    hlo_fn *f = op_fn(c);
    int rank = hlo_rank(f, x);
    if (n == 0) op_fail(c, TPU_INVALID, "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = []");
    bool ok = rank >= n;
    for (int i = 0; ok && i < n; i++) ok = hlo_dim(f, x, rank - n + i) == shape[i];
    if (ok) return hlo_failed(f);
    tpu_type want = type_make(TPU_F32, n, shape), got = hlo_type(f, x);
    text a = {0}, b = {0};
    type_words(&want, &a);
    type_words(&got, &b);
    const char *ws = a.at ? strchr(a.at, '[') : NULL, *gs = b.at ? strchr(b.at, '[') : NULL;
    op_fail(c, TPU_INVALID, "Given normalized_shape=%s, expected input with shape [*, %s, but got input of size%s", ws ? ws : "", ws ? ws + 1 : "", gs ? gs : "");
    text_free(&a);
    text_free(&b);
    return true;
}

/* native_layer_norm(input, normalized_shape, weight, bias, eps) -> (output, mean, rstd) */
static void layer_norm(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n;
    const int64_t *shape = op_ints(c, 1, &n);
    hlo in = op_in(c, 0), x = op_in_math(c, 0);
    if (bad_shape(c, x, shape, n)) return;
    uint32_t dims = last_dims(hlo_rank(f, x), n);
    hlo mean = mean_of(f, x, dims), rstd = rsqrt_eps(c, centered_var(f, x, mean, dims), 4);
    hlo y = mul(f, sub(f, x, hlo_along(f, mean, x, dims)), hlo_along(f, rstd, x, dims));
    if (op_has(c, 2)) y = mul(f, y, hlo_broadcast_to(f, in_as_math(c, 2, x), hlo_type(f, x)));
    if (op_has(c, 3)) y = add(f, y, hlo_broadcast_to(f, in_as_math(c, 3, x), hlo_type(f, x)));
    op_out_as(c, y, hlo_dtype(f, in));
    op_out(c, hlo_keepdims(f, mean, x, dims));
    op_out(c, hlo_keepdims(f, rstd, x, dims));
}

static bool wants(op_ctx *c, int mask_arg, int i)
{
    int n;
    const int64_t *m = op_ints(c, mask_arg, &n);
    return i < n && m[i];
}

/* native_layer_norm_backward(grad, input, normalized_shape, mean, rstd, weight, bias, mask) */
static void layer_norm_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n;
    op_ints(c, 2, &n);
    hlo g = op_in_math(c, 0), x = op_in_math(c, 1);
    tpu_type t = hlo_type(f, x);
    uint32_t dims = last_dims(t.rank, n), outer = ((1u << t.rank) - 1) & ~dims;
    hlo mean = hlo_broadcast_to(f, in_as_math(c, 3, x), t), rstd = hlo_broadcast_to(f, in_as_math(c, 4, x), t);
    hlo xhat = mul(f, sub(f, x, mean), rstd);
    hlo gw = op_has(c, 5) ? mul(f, g, hlo_broadcast_to(f, in_as_math(c, 5, x), t)) : g;
    if (wants(c, 7, 0)) {
        hlo a = hlo_along(f, mean_of(f, gw, dims), x, dims), b = hlo_along(f, mean_of(f, mul(f, gw, xhat), dims), x, dims);
        op_out_as(c, mul(f, rstd, sub(f, sub(f, gw, a), mul(f, xhat, b))), hlo_dtype(f, op_in(c, 1)));
    } else {
        op_out_none(c);
    }
    if (wants(c, 7, 1) && op_has(c, 5)) op_out_as(c, hlo_reduce(f, "add", mul(f, g, xhat), outer), hlo_dtype(f, op_in(c, 5)));
    else op_out_none(c);
    if (wants(c, 7, 2) && op_has(c, 6)) op_out_as(c, hlo_reduce(f, "add", g, outer), hlo_dtype(f, op_in(c, 6)));
    else op_out_none(c);
}

/* _fused_rms_norm(input, normalized_shape, weight?, eps?) -> (output, rstd) */
static void rms_norm(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n;
    const int64_t *shape = op_ints(c, 1, &n);
    hlo in = op_in(c, 0), x = op_in_math(c, 0);
    if (bad_shape(c, x, shape, n)) return;
    uint32_t dims = last_dims(hlo_rank(f, x), n);
    hlo ms = mean_of(f, mul(f, x, x), dims);
    tpu_dtype own = hlo_dtype(f, in);
    double eps = own == TPU_F64 ? 2.220446049250313e-16 : own == TPU_F32 ? 1.1920928955078125e-07 : own == TPU_BF16 ? 0.0078125 : 0.0009765625;
    hlo rstd = op_has(c, 3) ? rsqrt_eps(c, ms, 3) : hlo_op1(f, "rsqrt", add(f, ms, hlo_like_f(f, ms, eps)));
    hlo y = mul(f, x, hlo_along(f, rstd, x, dims));
    if (op_has(c, 2)) y = mul(f, y, hlo_broadcast_to(f, in_as_math(c, 2, x), hlo_type(f, x)));
    op_out_as(c, y, own);
    op_out(c, hlo_keepdims(f, rstd, x, dims));
}

/* _fused_rms_norm_backward(grad, input, normalized_shape, rstd, weight?, mask) */
static void rms_norm_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n;
    op_ints(c, 2, &n);
    hlo g = op_in_math(c, 0), x = op_in_math(c, 1);
    tpu_type t = hlo_type(f, x);
    uint32_t dims = last_dims(t.rank, n), outer = ((1u << t.rank) - 1) & ~dims;
    hlo rstd = hlo_broadcast_to(f, in_as_math(c, 3, x), t), xhat = mul(f, x, rstd);
    hlo gw = op_has(c, 4) ? mul(f, g, hlo_broadcast_to(f, in_as_math(c, 4, x), t)) : g;
    hlo b = hlo_along(f, mean_of(f, mul(f, gw, xhat), dims), x, dims);
    if (wants(c, 5, 0)) op_out_as(c, mul(f, rstd, sub(f, gw, mul(f, xhat, b))), hlo_dtype(f, op_in(c, 1)));
    else op_out_none(c);
    if (wants(c, 5, 1) && op_has(c, 4)) op_out_as(c, hlo_reduce(f, "add", mul(f, g, xhat), outer), hlo_dtype(f, op_in(c, 4)));
    else op_out_none(c);
}

/* ---- group norm ---- */
typedef struct groups { int64_t n, ch, inner, groups; } groups;

static groups groups_at(op_ctx *c, int first, int group_arg)
{
    return (groups){op_int(c, first), op_int(c, first + 1), op_int(c, first + 2), op_int(c, group_arg)};
}

static hlo grouped(hlo_fn *f, hlo x, groups g)
{
    return hlo_reshape(f, x, 4, (int64_t[]){g.n, g.groups, g.ch / g.groups, g.inner});
}

/* A per-channel vector against [n, groups, ch / groups, inner]. */
static hlo per_channel(hlo_fn *f, hlo v, groups g, tpu_type t)
{
    return hlo_broadcast_in_dim(f, hlo_reshape(f, v, 2, (int64_t[]){g.groups, g.ch / g.groups}), type_as(t, hlo_dtype(f, v)), (int64_t[]){1, 2});
}

static hlo per_group(hlo_fn *f, hlo v, tpu_type t) { return hlo_broadcast_in_dim(f, v, type_as(t, hlo_dtype(f, v)), (int64_t[]){0, 1}); }

/* native_group_norm(input, weight, bias, N, C, HxW, group, eps) -> (output, mean, rstd) */
static void group_norm(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    groups g = groups_at(c, 3, 6);
    hlo in = op_in(c, 0), whole = op_in_math(c, 0), x = grouped(f, whole, g);
    tpu_type t = hlo_type(f, x);
    hlo mean = mean_of(f, x, 12), rstd = rsqrt_eps(c, centered_var(f, x, mean, 12), 7);
    hlo y = mul(f, sub(f, x, per_group(f, mean, t)), per_group(f, rstd, t));
    if (op_has(c, 1)) y = mul(f, y, per_channel(f, in_as_math(c, 1, x), g, t));
    if (op_has(c, 2)) y = add(f, y, per_channel(f, in_as_math(c, 2, x), g, t));
    tpu_type w = hlo_type(f, whole);
    op_out_as(c, hlo_reshape(f, y, w.rank, w.dim), hlo_dtype(f, in));
    op_out_as(c, mean, hlo_dtype(f, in));
    op_out_as(c, rstd, hlo_dtype(f, in));
}

/* native_group_norm_backward(grad, input, mean, rstd, weight, N, C, HxW, group, mask) */
static void group_norm_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    groups g = groups_at(c, 5, 8);
    tpu_type w = hlo_type(f, op_in(c, 1));
    hlo dy = grouped(f, op_in_math(c, 0), g), x = grouped(f, op_in_math(c, 1), g);
    tpu_type t = hlo_type(f, x);
    int64_t by[2] = {g.n, g.groups};
    hlo mean = hlo_reshape(f, in_as_math(c, 2, x), 2, by), rstd = hlo_reshape(f, in_as_math(c, 3, x), 2, by);
    hlo r = per_group(f, rstd, t), xhat = mul(f, sub(f, x, per_group(f, mean, t)), r);
    hlo gw = op_has(c, 4) ? mul(f, dy, per_channel(f, in_as_math(c, 4, x), g, t)) : dy;
    if (wants(c, 9, 0)) {
        hlo a = per_group(f, mean_of(f, gw, 12), t), b = per_group(f, mean_of(f, mul(f, gw, xhat), 12), t);
        hlo dx = mul(f, r, sub(f, sub(f, gw, a), mul(f, xhat, b)));
        op_out_as(c, hlo_reshape(f, dx, w.rank, w.dim), (tpu_dtype)w.dtype);
    } else {
        op_out_none(c);
    }
    tpu_dtype wt = op_has(c, 4) ? hlo_dtype(f, op_in(c, 4)) : (tpu_dtype)w.dtype;
    for (int i = 1; i <= 2; i++) {
        if (wants(c, 9, i)) op_out_as(c, hlo_reshape(f, hlo_reduce(f, "add", i == 1 ? mul(f, dy, xhat) : dy, 1 | 8), 1, &g.ch), wt);
        else op_out_none(c);
    }
}

/* clang-format off */
const op_row ops_norm[] = {
    { "native_layer_norm",           layer_norm },
    { "native_layer_norm_backward",  layer_norm_backward },
    { "_fused_rms_norm",             rms_norm, NULL, OP_COMPOSITE },
    { "_fused_rms_norm_backward",    rms_norm_backward },
    { "native_group_norm",           group_norm },
    { "native_group_norm_backward",  group_norm_backward },
    { NULL },
};
/* clang-format on */
