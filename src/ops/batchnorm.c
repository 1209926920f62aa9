/* batchnorm.c - batch normalisation.  Running statistics are written although the schema does not say so.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

static hlo mul(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "multiply", x, y); }
static hlo sub(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "subtract", x, y); }
static hlo add(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "add", x, y); }

/* All dims but the channel. */
static uint32_t others(hlo_fn *f, hlo x) { return ((1u << hlo_rank(f, x)) - 1) & ~2u; }

static hlo channel(hlo_fn *f, hlo v, hlo x)
{
    return hlo_broadcast_in_dim(f, v, type_as(hlo_type(f, x), hlo_dtype(f, v)), (int64_t[]){1});
}

static hlo as_math(op_ctx *c, int arg, hlo like) { return hlo_convert(op_fn(c), op_in(c, arg), hlo_dtype(op_fn(c), like)); }

static double elements(hlo_fn *f, hlo x)
{
    int64_t ch = hlo_dim(f, x, 1);
    return ch ? (double)(hlo_count(f, x) / ch) : 1;
}

static hlo mean_of(hlo_fn *f, hlo x)
{
    hlo s = hlo_reduce(f, "add", x, others(f, x));
    return mul(f, s, hlo_like_f(f, s, 1 / elements(f, x)));
}

static hlo var_of(hlo_fn *f, hlo x, hlo mean)
{
    hlo d = sub(f, x, channel(f, mean, x));
    return mean_of(f, mul(f, d, d));
}

static hlo rsqrt_eps(op_ctx *c, hlo var, int eps)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, var);
    return hlo_op1(f, "rsqrt", add(f, var, hlo_broadcast_to(f, op_scalar(c, eps, (tpu_dtype)t.dtype), t)));
}

/* running = running + momentum * (new - running) */
static void update(op_ctx *c, int arg, hlo fresh, int momentum)
{
    if (!op_has(c, arg)) return;
    hlo_fn *f = op_fn(c);
    hlo old = as_math(c, arg, fresh);
    hlo m = hlo_broadcast_to(f, op_scalar(c, momentum, hlo_dtype(f, fresh)), hlo_type(f, fresh));
    hlo next = add(f, mul(f, m, fresh), mul(f, sub(f, hlo_like_f(f, m, 1), m), old));
    op_write(c, arg, hlo_convert(f, next, hlo_dtype(f, op_in(c, arg))));
}

typedef struct where { int weight, bias, mean, var, training, momentum, eps; } where;

/* Writes output, save_mean, save_rstd; updates the running statistics when training. */
static void normalise(op_ctx *c, where w, bool training)
{
    hlo_fn *f = op_fn(c);
    hlo in = op_in(c, 0), x = op_in_math(c, 0);
    if (hlo_rank(f, x) < 2) {
        op_fail(c, TPU_INVALID, "expected at least a 2D input (got %dD input)", hlo_rank(f, x));
        return;
    }
    hlo mean, rstd, var = HLO_NONE;
    if (training) {
        mean = mean_of(f, x);
        var = var_of(f, x, mean);
    } else {
        mean = as_math(c, w.mean, x);
        var = as_math(c, w.var, x);
    }
    rstd = rsqrt_eps(c, var, w.eps);
    hlo scale = rstd, y = sub(f, x, channel(f, mean, x));
    if (op_has(c, w.weight)) scale = mul(f, scale, as_math(c, w.weight, x));
    y = mul(f, y, channel(f, scale, x));
    if (op_has(c, w.bias)) y = add(f, y, channel(f, as_math(c, w.bias, x), x));
    op_out_as(c, y, hlo_dtype(f, in));
    if (training) {
        op_out(c, mean);
        op_out(c, rstd);
        double n = elements(f, x);
        if (w.mean >= 0) update(c, w.mean, mean, w.momentum);
        if (w.var >= 0) update(c, w.var, mul(f, var, hlo_like_f(f, var, n / (n - 1))), w.momentum);
    } else {
        tpu_type none = type_make(hlo_dtype(f, x), 1, (int64_t[]){0});
        op_out(c, hlo_zeros(f, none));
        op_out(c, hlo_zeros(f, none));
    }
}

/* native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps) */
static void batch_norm(op_ctx *c) { normalise(c, (where){1, 2, 3, 4, 5, 6, 7}, op_bool(c, 5)); }
/* _native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps) */
static void batch_norm_no_stats(op_ctx *c) { normalise(c, (where){1, 2, -1, -1, 3, 4, 5}, true); }
/* _native_batch_norm_legit_no_training(input, weight, bias, running_mean, running_var, momentum, eps) */
static void batch_norm_eval(op_ctx *c) { normalise(c, (where){1, 2, 3, 4, -1, 5, 6}, false); }

/* _batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps): a reserve comes last */
static void batch_norm_update(op_ctx *c)
{
    normalise(c, (where){1, 2, 3, 4, -1, 5, 6}, true);
    op_out(c, hlo_zeros(op_fn(c), type_make(TPU_U8, 1, (int64_t[]){0})));
}

static void batch_norm_no_update(op_ctx *c)
{
    normalise(c, (where){1, 2, 3, 4, -1, 5, 6}, !op_has(c, 3));
    op_out(c, hlo_zeros(op_fn(c), type_make(TPU_U8, 1, (int64_t[]){0})));
}

typedef struct back { int grad, input, weight, mean, var, save_mean, save_rstd, training, eps, mask; } back;

static bool wants(op_ctx *c, int mask_arg, int i)
{
    int n;
    const int64_t *m = op_ints(c, mask_arg, &n);
    return i < n && m[i];
}

static void gradient(op_ctx *c, back b)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, b.grad), x = op_in_math(c, b.input);
    g = hlo_convert(f, g, hlo_dtype(f, x));
    bool training = op_bool(c, b.training);
    uint32_t dims = others(f, x);
    hlo mean = as_math(c, training ? b.save_mean : b.mean, x);
    hlo rstd = training ? as_math(c, b.save_rstd, x) : rsqrt_eps(c, as_math(c, b.var, x), b.eps);
    hlo xhat = mul(f, sub(f, x, channel(f, mean, x)), channel(f, rstd, x));
    hlo sum_g = hlo_reduce(f, "add", g, dims), sum_gx = hlo_reduce(f, "add", mul(f, g, xhat), dims);
    tpu_dtype wt = op_has(c, b.weight) ? hlo_dtype(f, op_in(c, b.weight)) : hlo_dtype(f, x);
    if (wants(c, b.mask, 0)) {
        hlo scale = op_has(c, b.weight) ? mul(f, rstd, as_math(c, b.weight, x)) : rstd, dx = g;
        if (training) {
            hlo inv = hlo_like_f(f, sum_g, 1 / elements(f, x));
            dx = sub(f, sub(f, g, channel(f, mul(f, sum_g, inv), x)), mul(f, xhat, channel(f, mul(f, sum_gx, inv), x)));
        }
        op_out_as(c, mul(f, dx, channel(f, scale, x)), hlo_dtype(f, op_in(c, b.input)));
    } else {
        op_out_none(c);
    }
    if (wants(c, b.mask, 1)) op_out_as(c, sum_gx, wt);
    else op_out_none(c);
    if (wants(c, b.mask, 2)) op_out_as(c, sum_g, wt);
    else op_out_none(c);
}

/* native_batch_norm_backward(grad, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask) */
static void batch_norm_backward(op_ctx *c) { gradient(c, (back){0, 1, 2, 3, 4, 5, 6, 7, 8, 9}); }
/* batch_norm_backward(grad, input, weight, running_mean, running_var, save_mean, save_var, update, eps, mask, reserve) */
static void batch_norm_backward_reserve(op_ctx *c) { gradient(c, (back){0, 1, 2, 3, 4, 5, 6, 7, 8, 9}); }

/* clang-format off */
const op_row ops_batchnorm[] = {
    { "native_batch_norm",                   batch_norm,          .mutates = 1u << 3 | 1u << 4 },
    { "_native_batch_norm_legit",            batch_norm,          .mutates = 1u << 3 | 1u << 4 },
    { "_native_batch_norm_legit.no_stats",   batch_norm_no_stats },
    { "_native_batch_norm_legit_no_training", batch_norm_eval },
    { "_batch_norm_with_update",             batch_norm_update,   .mutates = 1u << 3 | 1u << 4 },
    { "_batch_norm_no_update",               batch_norm_no_update },
    { "native_batch_norm_backward",          batch_norm_backward },
    { "batch_norm_backward",                 batch_norm_backward_reserve },
    { NULL },
};
/* clang-format on */
