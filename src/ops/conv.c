/* conv.c - convolutions and their gradients, 1 to 3 spatial dims, each as one StableHLO convolution.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops.h"

typedef struct spec {
    int n;                          /* spatial dims */
    int64_t stride[3], pad[3], dil[3], outpad[3], groups;
    bool transposed;
} spec;

static void fill(op_ctx *c, int arg, int n, int64_t *to)
{
    int m;
    const int64_t *v = op_ints(c, arg, &m);
    for (int i = 0; i < n; i++) to[i] = m == 0 ? 0 : v[m == 1 ? 0 : i];
}

/* stride, padding, dilation, transposed, output_padding, groups stand together from `first` on */
static bool read_spec(op_ctx *c, hlo x, int first, spec *s)
{
    *s = (spec){.n = hlo_rank(op_fn(c), x) - 2, .groups = op_int(c, first + 5), .transposed = op_bool(c, first + 3)};
    if (s->n < 1 || s->n > 3) {
        op_fail(c, TPU_INVALID, "expected a 3D, 4D or 5D input to a convolution, got %dD", s->n + 2);
        return false;
    }
    fill(c, first, s->n, s->stride);
    fill(c, first + 1, s->n, s->pad);
    fill(c, first + 2, s->n, s->dil);
    fill(c, first + 4, s->n, s->outpad);
    for (int i = 0; i < s->n; i++) {
        if (s->pad[i] < 0) op_fail(c, TPU_INVALID, "negative padding is not supported");
        if (s->stride[i] <= 0) op_fail(c, TPU_INVALID, "non-positive stride is not supported");
        if (s->dil[i] <= 0) op_fail(c, TPU_INVALID, "dilation should be greater than zero");
        if (s->outpad[i] < 0) op_fail(c, TPU_INVALID, "negative output_padding is not supported");
    }
    if (s->groups <= 0) op_fail(c, TPU_INVALID, "non-positive groups is not supported");
    return !hlo_failed(op_fn(c));
}

static int64_t reach(int64_t k, int64_t dil) { return dil * (k - 1) + 1; }

static hlo convolve(op_ctx *c, hlo x, hlo w, const spec *s)
{
    hlo_conv k = {.nspatial = s->n, .feature_groups = s->groups};
    for (int i = 0; i < s->n; i++) {
        k.stride[i] = s->stride[i];
        k.pad_lo[i] = k.pad_hi[i] = s->pad[i];
        k.rhs_dilation[i] = s->dil[i];
    }
    return hlo_convolution(op_fn(c), x, w, &k, hlo_dtype(op_fn(c), x));
}

/* [a, b / g, k...] with a = g * (a / g) -> [b, a / g, k...]: the kernel that goes the other way */
static hlo swap_groups(hlo_fn *f, hlo w, int64_t g)
{
    tpu_type t = hlo_type(f, w);
    if (g == 1) return hlo_swap(f, w, 0, 1);
    int64_t dim[TYPE_MAX_RANK], perm[TYPE_MAX_RANK];
    dim[0] = g;
    dim[1] = t.dim[0] / g;
    for (int i = 1; i < t.rank; i++) dim[i + 1] = t.dim[i];
    for (int i = 0; i <= t.rank; i++) perm[i] = i == 1 ? 2 : i == 2 ? 1 : i;
    w = hlo_transpose(f, hlo_reshape(f, w, t.rank + 1, dim), perm);
    t.dim[0] = g * dim[2];
    t.dim[1] = dim[1];
    return hlo_reshape(f, w, t.rank, t.dim);
}

/* The convolution that undoes the strides: y of the strided side back to `size` on the other. */
static hlo deconvolve(op_ctx *c, hlo y, hlo w, const spec *s, const int64_t *size)
{
    hlo_fn *f = op_fn(c);
    hlo_conv k = {.nspatial = s->n, .feature_groups = s->groups};
    for (int i = 0; i < s->n; i++) {
        int64_t dk = reach(hlo_dim(f, w, 2 + i), s->dil[i]), wide = (hlo_dim(f, y, 2 + i) - 1) * s->stride[i] + 1;
        k.lhs_dilation[i] = s->stride[i];
        k.rhs_dilation[i] = s->dil[i];
        k.pad_lo[i] = dk - 1 - s->pad[i];
        k.pad_hi[i] = size[i] - 1 + dk - wide - k.pad_lo[i];
    }
    /* The kernel is turned round itself: XLA:CPU has no fast convolution with a reversed window. */
    hlo turned = hlo_reverse(f, swap_groups(f, w, s->groups), ((1u << s->n) - 1) << 2);
    return hlo_convolution(f, y, turned, &k, hlo_dtype(f, y));
}

/* Gradient of a kernel [o, i / g, k...]: x of the unstrided side [n, i, ...], g of the strided one [n, o, ...]. */
static hlo kernel_gradient(op_ctx *c, hlo x, hlo g, const spec *s, const int64_t *ksize)
{
    hlo_fn *f = op_fn(c);
    hlo_conv k = {.nspatial = s->n, .batch_groups = s->groups, .in_batch = 1, .in_feature = 0, .k_in = 0, .k_out = 1, .out_batch = 1, .out_feature = 0};
    for (int i = 0; i < s->n; i++) {
        k.in_spatial[i] = k.k_spatial[i] = k.out_spatial[i] = 2 + i;
        k.stride[i] = s->dil[i];
        k.rhs_dilation[i] = s->stride[i];
        k.pad_lo[i] = s->pad[i];
        k.pad_hi[i] = (ksize[i] - 1) * s->dil[i] + (hlo_dim(f, g, 2 + i) - 1) * s->stride[i] + 1 - hlo_dim(f, x, 2 + i) - s->pad[i];
    }
    return hlo_convolution(f, x, g, &k, hlo_dtype(f, x));
}

static void spatial(hlo_fn *f, hlo x, int n, int64_t *out)
{
    for (int i = 0; i < n; i++) out[i] = hlo_dim(f, x, 2 + i);
}

static bool fits(op_ctx *c, hlo x, hlo w, const spec *s)
{
    hlo_fn *f = op_fn(c);
    int64_t want = s->transposed ? hlo_dim(f, w, 0) : hlo_dim(f, w, 1) * s->groups;
    if (hlo_rank(f, w) != hlo_rank(f, x)) {
        op_fail(c, TPU_INVALID, "Expected %dD weight for a convolution of %dD input", hlo_rank(f, x), hlo_rank(f, x));
    } else if (hlo_dim(f, x, 1) != want) {
        tpu_type wt = hlo_type(f, w), xt = hlo_type(f, x);
        text ws = {0}, xs = {0};
        type_words(&wt, &ws);
        type_words(&xt, &xs);
        op_fail(c, TPU_INVALID, "Given groups=%lld, weight of size %s, expected input%s to have %lld channels, but got %lld channels instead", (long long)s->groups,
                ws.at ? strchr(ws.at, '[') : "", xs.at ? strchr(xs.at, '[') : "", (long long)want, (long long)hlo_dim(f, x, 1));
        text_free(&ws);
        text_free(&xs);
    } else if (hlo_dtype(f, w) != hlo_dtype(f, x)) {
        op_fail(c, TPU_INVALID, "Input type (%s) and weight type (%s) should be the same", dtype_torch_name(hlo_dtype(f, x)), dtype_torch_name(hlo_dtype(f, w)));
    } else {
        for (int i = 0; !s->transposed && i < s->n; i++)
            if (hlo_dim(f, x, 2 + i) + 2 * s->pad[i] < reach(hlo_dim(f, w, 2 + i), s->dil[i]))
                op_fail(c, TPU_INVALID, "Calculated padded input size per channel: (%lld). Kernel size: (%lld). Kernel size can't be greater than actual input size",
                        (long long)(hlo_dim(f, x, 2 + i) + 2 * s->pad[i]), (long long)reach(hlo_dim(f, w, 2 + i), s->dil[i]));
    }
    return !hlo_failed(f);
}

/* In float32 for half precisions: sums are long. */
static hlo math(op_ctx *c, int arg) { return op_in_math(c, arg); }

/* convolution(input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups) */
static void convolution(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    spec s;
    if (!read_spec(c, op_in(c, 0), 3, &s) || !fits(c, op_in(c, 0), op_in(c, 1), &s)) return;
    hlo x = math(c, 0), w = math(c, 1), y;
    if (s.transposed) {
        int64_t size[3];
        for (int i = 0; i < s.n; i++)
            size[i] = (hlo_dim(f, x, 2 + i) - 1) * s.stride[i] - 2 * s.pad[i] + reach(hlo_dim(f, w, 2 + i), s.dil[i]) + s.outpad[i];
        y = deconvolve(c, x, w, &s, size);
    } else {
        y = convolve(c, x, w, &s);
    }
    if (op_has(c, 2)) y = hlo_op2(f, "add", y, hlo_broadcast_in_dim(f, hlo_convert(f, op_in(c, 2), hlo_dtype(f, y)), hlo_type(f, y), (int64_t[]){1}));
    op_out_as(c, y, hlo_dtype(f, op_in(c, 0)));
}

static bool wants(op_ctx *c, int i)
{
    int n;
    const int64_t *m = op_ints(c, 10, &n);
    return i < n && m[i];
}

/* convolution_backward(grad, input, weight, bias_sizes?, stride, padding, dilation, transposed, output_padding, groups, mask) */
static void convolution_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    spec s;
    if (!read_spec(c, op_in(c, 1), 4, &s)) return;
    hlo g = math(c, 0), x = math(c, 1), w = math(c, 2);
    int64_t xs[3], ks[3];
    spatial(f, x, s.n, xs);
    spatial(f, w, s.n, ks);
    if (wants(c, 0)) {
        hlo dx = s.transposed ? convolve(c, g, w, &s) : deconvolve(c, g, w, &s, xs);
        for (int i = 0; i < s.n; i++)                   /* output padding can leave room for a window more */
            if (hlo_dim(f, dx, 2 + i) > xs[i]) dx = hlo_slice_dim(f, dx, 2 + i, 0, xs[i], 1);
        op_out_as(c, dx, hlo_dtype(f, op_in(c, 1)));
    } else {
        op_out_none(c);
    }
    if (wants(c, 1)) op_out_as(c, s.transposed ? kernel_gradient(c, g, x, &s, ks) : kernel_gradient(c, x, g, &s, ks), hlo_dtype(f, op_in(c, 2)));
    else op_out_none(c);
    if (wants(c, 2)) op_out_as(c, hlo_reduce(f, "add", g, ((1u << hlo_rank(f, g)) - 1) & ~2u), hlo_dtype(f, op_in(c, 2)));
    else op_out_none(c);
}

/* clang-format off */
const op_row ops_conv[] = {
    { "convolution",          convolution },
    { "convolution_backward", convolution_backward },
    { NULL },
};
/* clang-format on */
