/* activation.c - activations and their gradients.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "arith.h"
#include "rng.h"

#define SQRT_HALF 0.70710678118654752440
#define TWO_OVER_SQRT_PI 1.12837916709551257390

static hlo zero_of(hlo_fn *f, hlo x) { return hlo_like_f(f, x, 0); }

/* Grad and input of a backward op in the input's compute type. */
static void pair(op_ctx *c, int grad, int in, hlo *g, hlo *x, tpu_dtype *own)
{
    *own = op_promote2(c, grad, in);
    operands(c, grad, in, *own, g, x);
}

static void relu(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    if (hlo_dtype(f, x) == TPU_BOOL) op_fail(c, TPU_INVALID, "Boolean inputs not supported for relu");
    else op_out(c, hlo_max(f, x, zero_of(f, x)));
}

/* threshold_backward(grad, self, threshold) */
static void threshold_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    op_out_as(c, hlo_select(f, hlo_compare(f, "LE", x, number_like(c, 2, x)), zero_of(f, g), g), t);
}

/* ---- gelu(self, approximate), gelu_backward(grad, self, approximate) ---- */
static bool tanh_form(op_ctx *c, int arg)
{
    const char *how = op_str(c, arg);
    if (how && strcmp(how, "tanh") && strcmp(how, "none")) op_fail(c, TPU_INVALID, "approximate argument must be either none or tanh.");
    return how && !strcmp(how, "tanh");
}

static hlo normal_cdf(hlo_fn *f, hlo x)
{
    return times_k(f, plus_k(f, hlo_op1(f, "chlo.erf", times_k(f, x, SQRT_HALF)), 1), 0.5);
}

static hlo gelu_inner(hlo_fn *f, hlo x)
{
    return times_k(f, plus(f, x, times_k(f, times(f, square(f, x), x), 0.044715)), 0.79788456080286535588);
}

static void gelu(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0), r;
    if (tanh_form(c, 1)) r = times(f, times_k(f, x, 0.5), plus_k(f, hlo_op1(f, "tanh", gelu_inner(f, x)), 1));
    else r = times(f, x, normal_cdf(f, x));
    op_out_as(c, r, arg_dtype(c, 0));
}

static void gelu_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x, d;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    if (tanh_form(c, 2)) {
        hlo th = hlo_op1(f, "tanh", gelu_inner(f, x)), left = times_k(f, plus_k(f, th, 1), 0.5);
        hlo slope = times_k(f, plus_k(f, times_k(f, square(f, x), 3 * 0.044715), 1), 0.79788456080286535588);
        d = plus(f, left, times(f, times(f, times_k(f, x, 0.5), k_minus(f, 1, square(f, th))), slope));
    } else {
        hlo pdf = times_k(f, exponential(f, times_k(f, square(f, x), -0.5)), TWO_OVER_SQRT_PI * SQRT_HALF * 0.5);
        d = plus(f, normal_cdf(f, x), times(f, x, pdf));
    }
    op_out_as(c, times(f, g, d), t);
}

/* ---- x times a gate ---- */
static void silu(op_ctx *c)
{
    hlo x = op_in_math(c, 0);
    op_out_as(c, times(op_fn(c), x, hlo_op1(op_fn(c), "logistic", x)), arg_dtype(c, 0));
}

static void silu_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    hlo s = hlo_op1(f, "logistic", x);
    op_out_as(c, times(f, g, times(f, s, plus_k(f, times(f, x, k_minus(f, 1, s)), 1))), t);
}

/* log(1 + e^x), without overflow */
static hlo softplus_of(hlo_fn *f, hlo x)
{
    return plus(f, hlo_max(f, x, zero_of(f, x)), hlo_op1(f, "log_plus_one", exponential(f, negate(f, magnitude(f, x)))));
}

static void mish(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0);
    op_out_as(c, times(f, x, hlo_op1(f, "tanh", softplus_of(f, x))), arg_dtype(c, 0));
}

static void mish_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    hlo th = hlo_op1(f, "tanh", softplus_of(f, x)), s = hlo_op1(f, "logistic", x);
    op_out_as(c, times(f, g, plus(f, th, times(f, times(f, x, s), k_minus(f, 1, square(f, th))))), t);
}

/* ---- elu(self, alpha, scale, input_scale), elu_backward(grad, alpha, scale, input_scale, is_result, self_or_result) ---- */
static void elu(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0), a = number_like(c, 1, x), s = number_like(c, 2, x), i = number_like(c, 3, x);
    hlo neg = times(f, times(f, hlo_op1(f, "exponential_minus_one", times(f, x, i)), a), s);
    op_out_as(c, hlo_select(f, compare_k(f, "LE", x, 0), neg, times(f, x, s)), arg_dtype(c, 0));
}

static void elu_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 5, &g, &x, &t);
    hlo a = number_like(c, 1, x), s = number_like(c, 2, x), i = number_like(c, 3, x), neg;
    if (op_bool(c, 4)) neg = times(f, times(f, g, i), plus(f, x, times(f, a, s)));
    else neg = times(f, times(f, times(f, times(f, g, i), a), s), exponential(f, times(f, x, i)));
    op_out_as(c, hlo_select(f, compare_k(f, "LE", x, 0), neg, times(f, g, s)), t);
}

/* leaky_relu(self, slope), leaky_relu_backward(grad, self, slope, is_result) */
static void leaky_relu(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0);
    op_out_as(c, hlo_select(f, compare_k(f, "GT", x, 0), x, times(f, x, number_like(c, 1, x))), arg_dtype(c, 0));
}

static void leaky_relu_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    op_out_as(c, hlo_select(f, compare_k(f, "GT", x, 0), g, times(f, g, number_like(c, 2, g))), t);
}

/* _prelu_kernel(self, weight), _prelu_kernel_backward(grad, self, weight) */
static void prelu(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x, w;
    operands(c, 0, 1, arg_dtype(c, 0), &x, &w);
    op_out_as(c, hlo_select(f, compare_k(f, "GT", x, 0), x, times(f, x, w)), arg_dtype(c, 0));
}

static void prelu_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = arg_dtype(c, 1);
    hlo g = operand(c, 0, t), x = operand(c, 1, t), w = operand(c, 2, t);
    hlo_broadcast3(f, &g, &x, &w);
    hlo pos = compare_k(f, "GT", x, 0);
    op_out_as(c, hlo_select(f, pos, g, times(f, g, w)), t);
    op_out_as(c, hlo_select(f, pos, zero_of(f, g), times(f, g, x)), t);
}

/* ---- pieces of lines ---- */
/* hardtanh(self, min, max), hardtanh_backward(grad, self, min, max) */
static void hardtanh(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0);
    if (arg_dtype(c, 0) == TPU_BOOL) op_fail(c, TPU_INVALID, "Bool inputs not supported for hardtanh");
    else op_out_as(c, hlo_min(f, hlo_max(f, x, number_like(c, 1, x)), number_like(c, 2, x)), arg_dtype(c, 0));
}

static void hardtanh_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    hlo out = either(f, hlo_compare(f, "LE", x, number_like(c, 2, x)), hlo_compare(f, "GE", x, number_like(c, 3, x)));
    op_out_as(c, hlo_select(f, out, zero_of(f, g), g), t);
}

static hlo sixth_gate(hlo_fn *f, hlo x)
{
    return over_k(f, hlo_min(f, hlo_max(f, plus_k(f, x, 3), zero_of(f, x)), hlo_like_f(f, x, 6)), 6);
}

static void hardsigmoid(op_ctx *c) { op_out_as(c, sixth_gate(op_fn(c), op_in_math(c, 0)), arg_dtype(c, 0)); }

static void hardsigmoid_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    hlo in = both(f, compare_k(f, "GT", x, -3), compare_k(f, "LT", x, 3));
    op_out_as(c, hlo_select(f, in, over_k(f, g, 6), zero_of(f, g)), t);
}

static void hardswish(op_ctx *c)
{
    hlo x = op_in_math(c, 0);
    op_out_as(c, times(op_fn(c), x, sixth_gate(op_fn(c), x)), arg_dtype(c, 0));
}

static void hardswish_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    hlo mid = times(f, g, plus_k(f, over_k(f, x, 3), 0.5));
    op_out_as(c, hlo_select(f, compare_k(f, "LE", x, -3), zero_of(f, g), hlo_select(f, compare_k(f, "LT", x, 3), mid, g)), t);
}

/* hardshrink(self, lambd): word h; softshrink: word s */
static void shrink(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0), l = number_like(c, 1, x), zero = zero_of(f, x), r;
    hlo in = both(f, hlo_compare(f, "GE", x, negate(f, l)), hlo_compare(f, "LE", x, l));
    if (op_row_of(c)->word[0] == 'h') r = hlo_select(f, in, zero, x);
    else r = hlo_select(f, hlo_compare(f, "GT", x, l), minus(f, x, l), hlo_select(f, hlo_compare(f, "LT", x, negate(f, l)), plus(f, x, l), hlo_select(f, hlo_isnan(f, x), x, zero)));
    op_out_as(c, r, arg_dtype(c, 0));
}

/* hardshrink_backward and softshrink_backward(grad, self, lambd) */
static void shrink_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    hlo l = number_like(c, 2, x), in = both(f, hlo_compare(f, "GE", x, negate(f, l)), hlo_compare(f, "LE", x, l));
    op_out_as(c, hlo_select(f, in, zero_of(f, g), g), t);
}

/* softplus(self, beta, threshold), softplus_backward(grad, self, beta, threshold) */
static void softplus(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0), b = number_like(c, 1, x), bx = times(f, x, b);
    hlo soft = over(f, hlo_op1(f, "log_plus_one", exponential(f, bx)), b);
    op_out_as(c, hlo_select(f, hlo_compare(f, "GT", bx, number_like(c, 2, x)), x, soft), arg_dtype(c, 0));
}

static void softplus_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    hlo bx = times(f, x, number_like(c, 2, x));
    op_out_as(c, hlo_select(f, hlo_compare(f, "GT", bx, number_like(c, 3, x)), g, times(f, g, hlo_op1(f, "logistic", bx))), t);
}

/* log_sigmoid_forward(self) -> (output, buffer), log_sigmoid_backward(grad, self, buffer) */
static void log_sigmoid(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0), b = exponential(f, negate(f, magnitude(f, x)));
    op_out_as(c, minus(f, hlo_min(f, x, zero_of(f, x)), hlo_op1(f, "log_plus_one", b)), arg_dtype(c, 0));
    op_out_as(c, b, arg_dtype(c, 0));
}

static void log_sigmoid_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    op_out_as(c, times(f, g, hlo_op1(f, "logistic", negate(f, x))), t);
}

/* ---- gated halves: glu(self, dim), glu_backward(grad, self, dim) ---- */
static void glu(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0);
    int d = op_dim(c, op_int(c, 1), hlo_rank(f, x));
    int64_t n = hlo_dim(f, x, d);
    if (hlo_rank(f, x) == 0 || n % 2) {
        op_fail(c, TPU_INVALID, "Halving dimension must be even, but dimension %d is size %lld", d, (long long)n);
        return;
    }
    hlo a = hlo_slice_dim(f, x, d, 0, n / 2, 1), b = hlo_slice_dim(f, x, d, n / 2, n, 1);
    op_out_as(c, times(f, a, hlo_op1(f, "logistic", b)), arg_dtype(c, 0));
}

static void glu_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0), x = op_in_math(c, 1);
    int d = op_dim(c, op_int(c, 2), hlo_rank(f, x));
    int64_t n = hlo_dim(f, x, d);
    hlo a = hlo_slice_dim(f, x, d, 0, n / 2, 1), s = hlo_op1(f, "logistic", hlo_slice_dim(f, x, d, n / 2, n, 1));
    hlo parts[2] = {times(f, g, s), times(f, times(f, g, a), times(f, s, k_minus(f, 1, s)))};
    op_out_as(c, hlo_concat(f, parts, 2, d), arg_dtype(c, 1));
}

static void halves(op_ctx *c, int arg, int d, hlo *first, hlo *second)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, arg);
    int64_t n = hlo_dim(f, x, d);
    *first = hlo_slice_dim(f, x, d, 0, n / 2, 1);
    *second = hlo_slice_dim(f, x, d, n / 2, n, 1);
}

/* glu_jvp(glu, x, dx, dim) */
static void glu_jvp(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int d = op_dim(c, op_int(c, 3), hlo_rank(f, op_in(c, 1)));
    hlo a, b, da, db;
    halves(c, 1, d, &a, &b);
    halves(c, 2, d, &da, &db);
    hlo s = hlo_op1(f, "logistic", b);
    op_out_as(c, plus(f, times(f, da, s), times(f, op_in_math(c, 0), times(f, k_minus(f, 1, s), db))), arg_dtype(c, 0));
}

/* glu_backward_jvp(grad_x, grad_glu, x, dgrad_glu, dx, dim) */
static void glu_backward_jvp(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int d = op_dim(c, op_int(c, 5), hlo_rank(f, op_in(c, 2)));
    hlo a, b, da, db, g = op_in_math(c, 1), dg = op_in_math(c, 3), part[2];
    halves(c, 2, d, &a, &b);
    halves(c, 4, d, &da, &db);
    hlo s = hlo_op1(f, "logistic", b), steep = times(f, s, k_minus(f, 1, s)), ds = times(f, steep, db);
    part[0] = plus(f, times(f, dg, s), times(f, g, ds));
    hlo bent = times(f, times(f, g, a), times(f, k_minus(f, 1, times_k(f, s, 2)), ds));
    part[1] = plus(f, times(f, plus(f, times(f, dg, a), times(f, g, da)), steep), bent);
    op_out_as(c, hlo_concat(f, part, 2, d), arg_dtype(c, 0));
}

/* ---- gradients of functions kept by their result: (grad, output) ---- */
static void tanh_backward(op_ctx *c)
{
    hlo g, y;
    tpu_dtype t;
    pair(c, 0, 1, &g, &y, &t);
    op_out_as(c, times(op_fn(c), g, k_minus(op_fn(c), 1, square(op_fn(c), y))), t);
}

static void sigmoid_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, y;
    tpu_dtype t;
    pair(c, 0, 1, &g, &y, &t);
    op_out_as(c, times(f, g, times(f, k_minus(f, 1, y), y)), t);
}

/* logit_backward(grad, self, eps?) */
static void logit_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g, x;
    tpu_dtype t;
    pair(c, 0, 1, &g, &x, &t);
    hlo d = over(f, g, times(f, x, k_minus(f, 1, x))), lo = zero_of(f, x), off = hlo_like_f(f, x, op_has(c, 2) ? 0 : __builtin_nan(""));
    if (op_has(c, 2)) lo = number_like(c, 2, x);
    hlo out = either(f, hlo_compare(f, "LT", x, lo), hlo_compare(f, "GT", x, k_minus(f, 1, lo)));
    op_out_as(c, hlo_select(f, out, off, d), t);
}

/* rrelu_with_noise(self, noise, lower, upper, training): in training the slope below 0 is drawn and kept in noise */
static void rrelu_with_noise(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = hlo_dtype(f, op_in(c, 0));
    hlo x = op_in_math(c, 0), lower = number_like(c, 2, x), upper = number_like(c, 3, x), slope, noise = op_in(c, 1);
    hlo below = compare_k(f, "LE", x, 0);
    if (op_bool(c, 4)) {
        hlo unit = rng_uniform(c, hlo_type(f, x));
        slope = plus(f, lower, times(f, unit, minus(f, upper, lower)));
        noise = hlo_convert(f, hlo_select(f, below, slope, hlo_like_f(f, x, 1)), hlo_dtype(f, noise));
    } else {
        slope = times_k(f, plus(f, lower, upper), 0.5);
    }
    op_out_as(c, hlo_select(f, below, times(f, x, slope), x), t);
    op_write(c, 1, noise);
}

/* clang-format off */
#define EW OP_ELEMENTWISE
const op_row ops_activation[] = {
    { "relu",                   relu,                  NULL, EW },
    { "threshold_backward",     threshold_backward,    NULL, EW },
    { "gelu",                   gelu,                  NULL, EW },
    { "gelu_backward",          gelu_backward,         NULL, EW },
    { "silu",                   silu,                  NULL, EW },
    { "silu_backward",          silu_backward,         NULL, EW | OP_COMPOSITE },
    { "mish",                   mish,                  NULL, EW },
    { "mish_backward",          mish_backward,         NULL, EW | OP_COMPOSITE },
    { "elu",                    elu,                   NULL, EW },
    { "elu_backward",           elu_backward,          NULL, EW },
    { "leaky_relu",             leaky_relu,            NULL, EW },
    { "leaky_relu_backward",    leaky_relu_backward,   NULL, EW },
    { "_prelu_kernel",          prelu,                 NULL, EW },
    { "_prelu_kernel_backward", prelu_backward,        NULL, EW },
    { "hardtanh",               hardtanh,              NULL, EW },
    { "hardtanh_backward",      hardtanh_backward,     NULL, EW },
    { "hardsigmoid",            hardsigmoid,           NULL, EW },
    { "hardsigmoid_backward",   hardsigmoid_backward,  NULL, EW },
    { "hardswish",              hardswish,             NULL, EW },
    { "hardswish_backward",     hardswish_backward,    NULL, EW },
    { "hardshrink",             shrink,                "h",  EW },
    { "hardshrink_backward",    shrink_backward,       NULL, EW },
    { "softshrink",             shrink,                "s",  EW },
    { "softshrink_backward",    shrink_backward,       NULL, EW },
    { "softplus",               softplus,              NULL, EW },
    { "softplus_backward",      softplus_backward,     NULL, EW },
    { "log_sigmoid_forward",    log_sigmoid,           NULL, EW },
    { "log_sigmoid_backward",   log_sigmoid_backward,  NULL, EW },
    { "glu",                    glu },
    { "glu_backward",           glu_backward },
    { "glu_jvp",                glu_jvp },
    { "glu_backward_jvp",       glu_backward_jvp },
    { "tanh_backward",          tanh_backward,         NULL, EW },
    { "sigmoid_backward",       sigmoid_backward,      NULL, EW },
    { "logit_backward",         logit_backward,        NULL, EW },
    { "rrelu_with_noise", rrelu_with_noise, NULL, OP_RANDOM },
    { NULL },
};
/* clang-format on */
