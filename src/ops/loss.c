/* loss.c - losses with their gradients.  reduction: 0 none, 1 mean, 2 sum.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

static hlo mul(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "multiply", x, y); }
static hlo add(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "add", x, y); }
static hlo sub(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "subtract", x, y); }
static hlo k(hlo_fn *f, hlo like, double v) { return hlo_like_f(f, like, v); }
static hlo sum_all(hlo_fn *f, hlo x) { return hlo_reduce(f, "add", x, (1u << hlo_rank(f, x)) - 1); }

static hlo reduced(hlo_fn *f, hlo x, int64_t reduction)
{
    if (reduction == 0) return x;
    int64_t n = hlo_count(f, x);
    hlo s = sum_all(f, x);
    return reduction == 1 ? hlo_op2(f, "divide", s, k(f, s, (double)n)) : s;
}

/* The incoming gradient against the elements, divided by their number for a mean. */
static hlo spread(op_ctx *c, int grad, hlo like, int64_t reduction)
{
    hlo_fn *f = op_fn(c);
    hlo g = hlo_convert(f, op_in(c, grad), hlo_dtype(f, like));
    if (reduction == 1) g = hlo_op2(f, "divide", g, k(f, g, (double)hlo_count(f, like)));
    return hlo_broadcast_to(f, g, hlo_type(f, like));
}

/* ---- elementwise losses ---- */
static hlo beta_of(op_ctx *c, int arg, hlo like)
{
    hlo_fn *f = op_fn(c);
    return hlo_broadcast_to(f, op_scalar(c, arg, hlo_dtype(f, like)), hlo_type(f, like));
}

/* A loss of x - y: 'm' mse, 's' smooth l1, 'h' huber. */
static hlo loss_of(op_ctx *c, char kind, hlo d, int beta)
{
    hlo_fn *f = op_fn(c);
    if (kind == 'm') return mul(f, d, d);
    hlo a = hlo_op1(f, "abs", d), b = beta_of(c, beta, d), half = k(f, d, 0.5);
    hlo near = mul(f, half, mul(f, a, a)), far;
    if (kind == 's') {
        near = hlo_op2(f, "divide", near, b);
        far = sub(f, a, mul(f, half, b));
    } else {
        far = mul(f, b, sub(f, a, mul(f, half, b)));
    }
    const char *dir = kind == 's' ? "LT" : "LE";
    return hlo_select(f, hlo_compare(f, dir, a, b), near, far);
}

static hlo slope_of(op_ctx *c, char kind, hlo d, int beta)
{
    hlo_fn *f = op_fn(c);
    if (kind == 'm') return mul(f, d, k(f, d, 2));
    hlo a = hlo_op1(f, "abs", d), b = beta_of(c, beta, d), s = hlo_op1(f, "sign", d);
    if (kind == 's') return hlo_select(f, hlo_compare(f, "LT", a, b), hlo_op2(f, "divide", d, b), s);
    return hlo_select(f, hlo_compare(f, "LE", a, b), d, mul(f, b, s));
}

static hlo difference(op_ctx *c, int x, int y, tpu_dtype *own)
{
    hlo_fn *f = op_fn(c);
    *own = op_promote2(c, x, y);
    tpu_dtype m = dtype_compute(*own);
    hlo a = op_in_as(c, x, m), b = op_in_as(c, y, m);
    hlo_broadcast2(f, &a, &b);
    return sub(f, a, b);
}

/* mse_loss(self, target, reduction), smooth_l1_loss(self, target, reduction, beta), huber_loss(..., delta) */
static void distance(op_ctx *c)
{
    tpu_dtype own;
    hlo d = difference(c, 0, 1, &own);
    op_out_as(c, reduced(op_fn(c), loss_of(c, op_row_of(c)->word[0], d, 3), op_int(c, 2)), own);
}

/* *_backward(grad, self, target, reduction, beta) */
static void distance_backward(op_ctx *c)
{
    tpu_dtype own;
    hlo d = difference(c, 1, 2, &own);
    hlo r = mul(op_fn(c), slope_of(c, op_row_of(c)->word[0], d, 4), spread(c, 0, d, op_int(c, 3)));
    op_out_as(c, r, own);
}

/* ---- binary cross entropy: logs are not below -100 ---- */
static hlo safe_log(hlo_fn *f, hlo x)
{
    return hlo_max(f, hlo_op1(f, "log", x), k(f, x, -100));
}

static void bce(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0), y = op_in_math(c, 1), one = k(f, x, 1);
    hlo l = add(f, mul(f, sub(f, y, one), hlo_max(f, hlo_op1(f, "log_plus_one", hlo_op1(f, "negate", x)), k(f, x, -100))), hlo_op1(f, "negate", mul(f, y, safe_log(f, x))));
    if (op_has(c, 2)) l = mul(f, l, hlo_broadcast_to(f, op_in_math(c, 2), hlo_type(f, l)));
    op_out_as(c, reduced(f, l, op_int(c, 3)), hlo_dtype(f, op_in(c, 0)));
}

static void bce_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 1), y = op_in_math(c, 2);
    hlo den = hlo_max(f, mul(f, sub(f, k(f, x, 1), x), x), k(f, x, 1e-12));
    hlo r = hlo_op2(f, "divide", mul(f, spread(c, 0, x, op_int(c, 4)), sub(f, x, y)), den);
    if (op_has(c, 3)) r = mul(f, r, hlo_broadcast_to(f, op_in_math(c, 3), hlo_type(f, r)));
    op_out_as(c, r, hlo_dtype(f, op_in(c, 1)));
}

/* ---- negative log likelihood: input [N, C] or [C], or [N, C, H, W] for nll_loss2d ---- */
typedef struct classes {
    hlo hot;                        /* bool, input's shape: the target's class, unless it is ignored */
    hlo weight;                     /* of each target (0: ignored), target's shape */
    int dim;                        /* the class dim of input */
} classes;

static classes classes_of(op_ctx *c, hlo x, hlo target, int weight, int64_t ignore)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, x);
    classes r = {.dim = t.rank == 1 ? 0 : 1};
    int64_t n = t.dim[r.dim], at[TYPE_MAX_RANK];
    target = hlo_convert(f, target, TPU_I64);
    tpu_type tt = hlo_type(f, target);
    for (int i = 0; i < tt.rank; i++) at[i] = i < r.dim ? i : i + 1;
    hlo used = hlo_compare(f, "NE", target, hlo_like_i(f, target, ignore));
    hlo low = hlo_compare(f, "LT", target, hlo_like_i(f, target, 0)), high = hlo_compare(f, "GE", target, hlo_like_i(f, target, n));
    op_guard(c, hlo_op2(f, "and", used, hlo_op2(f, "or", low, high)), "Target is out of bounds.");
    tpu_type wide = type_as(t, TPU_I64);
    hlo hot = hlo_compare(f, "EQ", hlo_broadcast_in_dim(f, target, wide, at), hlo_iota(f, wide, r.dim));
    r.hot = hlo_op2(f, "and", hot, hlo_broadcast_in_dim(f, used, type_as(t, TPU_BOOL), at));
    if (op_has(c, weight)) {
        hlo w = hlo_broadcast_in_dim(f, hlo_convert(f, op_in(c, weight), (tpu_dtype)t.dtype), t, (int64_t[]){r.dim});
        r.weight = hlo_reduce(f, "add", hlo_select(f, r.hot, w, hlo_zeros(f, t)), 1u << r.dim);
    } else {
        r.weight = hlo_convert(f, used, (tpu_dtype)t.dtype);
    }
    return r;
}

/* nll_loss_forward(self, target, weight, reduction, ignore_index) -> (output, total_weight) */
static void nll(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0);
    tpu_type t = hlo_type(f, x);
    int tr = hlo_rank(f, op_in(c, 1));
    int64_t reduction = op_int(c, 3);
    if (hlo_dtype(f, op_in(c, 1)) != TPU_I64 && hlo_dtype(f, op_in(c, 1)) != TPU_U8) {
        op_fail(c, TPU_INVALID, "expected scalar type Long but found %s", dtype_torch_name(hlo_dtype(f, op_in(c, 1))));
        return;
    }
    if (tr != (t.rank == 1 ? 0 : t.rank - 1) && !(t.rank == 1 && tr == 1)) {
        op_fail(c, TPU_INVALID, "expected a target of %d dims, got %d", t.rank - 1, tr);
        return;
    }
    hlo target = t.rank == 1 ? hlo_reshape(f, op_in(c, 1), 0, NULL) : op_in(c, 1);
    if (t.rank > 1 && hlo_dim(f, target, 0) != t.dim[0]) {
        op_fail(c, TPU_INVALID, "size mismatch (got input: [%lld, %lld], target: [%lld])", (long long)t.dim[0], (long long)t.dim[1], (long long)hlo_dim(f, target, 0));
        return;
    }
    classes cl = classes_of(c, x, target, 2, op_int(c, 4));
    hlo picked = hlo_reduce(f, "add", hlo_select(f, cl.hot, x, hlo_zeros(f, t)), 1u << cl.dim);
    hlo l = hlo_op1(f, "negate", mul(f, picked, cl.weight)), total = sum_all(f, cl.weight);
    tpu_dtype own = hlo_dtype(f, op_in(c, 0));
    if (reduction == 0) {
        op_out_as(c, l, own);
        op_out_as(c, k(f, total, 0), own);
        return;
    }
    hlo s = sum_all(f, l);
    op_out_as(c, reduction == 1 ? hlo_op2(f, "divide", s, total) : s, own);
    op_out_as(c, total, own);
}

/* nll_loss_backward(grad, self, target, weight, reduction, ignore_index, total_weight) */
static void nll_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 1), g = op_in_math(c, 0);
    tpu_type t = hlo_type(f, x);
    hlo target = t.rank == 1 ? hlo_reshape(f, op_in(c, 2), 0, NULL) : op_in(c, 2);
    classes cl = classes_of(c, x, target, 3, op_int(c, 5));
    int64_t reduction = op_int(c, 4), at[TYPE_MAX_RANK];
    tpu_type wt = hlo_type(f, cl.weight);
    if (reduction == 1) g = hlo_op2(f, "divide", g, hlo_convert(f, op_in(c, 6), hlo_dtype(f, g)));
    if (t.rank == 1 && hlo_rank(f, g) == 1) g = hlo_reshape(f, g, 0, NULL);
    hlo each = hlo_op1(f, "negate", mul(f, hlo_broadcast_to(f, g, wt), cl.weight));
    for (int i = 0; i < wt.rank; i++) at[i] = i < cl.dim ? i : i + 1;
    hlo wide = hlo_broadcast_in_dim(f, each, t, at);
    op_out_as(c, hlo_select(f, cl.hot, wide, hlo_zeros(f, t)), hlo_dtype(f, op_in(c, 1)));
}

/* soft_margin_loss(self, target, reduction) */
static void soft_margin(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0), z = hlo_op1(f, "negate", mul(f, x, hlo_broadcast_to(f, hlo_convert(f, op_in(c, 1), hlo_dtype(f, x)), hlo_type(f, x))));
    hlo zero = k(f, z, 0), l = add(f, hlo_max(f, z, zero), hlo_op1(f, "log_plus_one", hlo_op1(f, "exponential", hlo_op1(f, "negate", hlo_op1(f, "abs", z)))));
    op_out_as(c, reduced(f, l, op_int(c, 2)), hlo_dtype(f, op_in(c, 0)));
}

static void soft_margin_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 1), y = hlo_broadcast_to(f, hlo_convert(f, op_in(c, 2), hlo_dtype(f, x)), hlo_type(f, x));
    hlo p = hlo_op1(f, "logistic", hlo_op1(f, "negate", mul(f, x, y)));
    op_out_as(c, mul(f, hlo_op1(f, "negate", mul(f, y, p)), spread(c, 0, x, op_int(c, 3))), hlo_dtype(f, op_in(c, 1)));
}

/* clang-format off */
const op_row ops_loss[] = {
    { "mse_loss",                  distance,          "m" },
    { "smooth_l1_loss",            distance,          "s" },
    { "huber_loss",                distance,          "h" },
    { "mse_loss_backward",         distance_backward, "m" },
    { "smooth_l1_loss_backward",   distance_backward, "s" },
    { "huber_loss_backward",       distance_backward, "h" },
    { "binary_cross_entropy",          bce },
    { "binary_cross_entropy_backward", bce_backward },
    { "nll_loss_forward",          nll },
    { "nll_loss_backward",         nll_backward },
    { "nll_loss2d_forward",        nll },
    { "nll_loss2d_backward",       nll_backward },
    { "soft_margin_loss",          soft_margin },
    { "soft_margin_loss_backward", soft_margin_backward },
    { NULL },
};
/* clang-format on */
