/* pool.c - pooling over the last two dims, with gradients.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

typedef struct spec { int64_t k[2], s[2], p[2], d[2], out[2]; bool ceil; } spec;

/* int[2] arguments: one number serves both dims; an empty stride is the kernel's size. */
static void two(op_ctx *c, int arg, const int64_t *other, int64_t *to)
{
    int n;
    const int64_t *v = op_ints(c, arg, &n);
    for (int i = 0; i < 2; i++) to[i] = n == 0 ? other[i] : v[n == 1 ? 0 : i];
}

static int64_t out_size(int64_t in, int64_t k, int64_t s, int64_t p, int64_t d, bool ceil_mode)
{
    int64_t span = in + 2 * p - d * (k - 1) - 1, n = (span + (ceil_mode ? s - 1 : 0)) / s + 1;
    if (ceil_mode && (n - 1) * s >= in + p) n--;        /* the last window must start inside */
    return n;
}

static bool fit(op_ctx *c, hlo x, spec *w)
{
    hlo_fn *f = op_fn(c);
    int r = hlo_rank(f, x);
    if (r != 3 && r != 4) {
        op_fail(c, TPU_INVALID, "non-empty 3D or 4D (batch mode) tensor expected for input");
        return false;
    }
    for (int i = 0; i < 2; i++) {
        int64_t in = hlo_dim(f, x, r - 2 + i);
        if (w->s[i] <= 0) op_fail(c, TPU_INVALID, "stride should not be zero");
        else if (w->p[i] > w->k[i] / 2) op_fail(c, TPU_INVALID, "pad should be at most half of effective kernel size");
        else if ((w->out[i] = out_size(in, w->k[i], w->s[i], w->p[i], w->d[i], w->ceil)) < 1)
            op_fail(c, TPU_INVALID, "Given input size per channel: (%lld). Calculated output size per channel: (%lld). Output size is too small", (long long)in, (long long)w->out[i]);
    }
    return !hlo_failed(f);
}

static hlo_window window_of(hlo_fn *f, hlo x, const spec *w)
{
    hlo_window o = {{0}, {0}, {0}, {0}, {0}, {0}};
    int r = hlo_rank(f, x);
    for (int i = 0; i < 2; i++) {
        int d = r - 2 + i;
        o.size[d] = w->k[i];
        o.stride[d] = w->s[i];
        o.dilation[d] = w->d[i];
        o.pad_lo[d] = w->p[i];
        o.pad_hi[d] = (w->out[i] - 1) * w->s[i] + w->d[i] * (w->k[i] - 1) + 1 - hlo_dim(f, x, d) - w->p[i];
    }
    return o;
}

/* What the windows do not reach is cut off: a window op takes no negative padding everywhere. */
static hlo reached(hlo_fn *f, hlo x, hlo_window *w)
{
    for (int d = hlo_rank(f, x) - 2; d < hlo_rank(f, x); d++) {
        if (w->pad_hi[d] >= 0) continue;
        x = hlo_slice_dim(f, x, d, 0, hlo_dim(f, x, d) + w->pad_hi[d], 1);
        w->pad_hi[d] = 0;
    }
    return x;
}

static const int64_t ones[2] = {1, 1}, nones[2] = {0, 0};

static spec max_spec(op_ctx *c, int first)
{
    spec w = {.ceil = op_bool(c, first + 4)};
    two(c, first, ones, w.k);
    two(c, first + 1, w.k, w.s);
    two(c, first + 2, nones, w.p);
    two(c, first + 3, ones, w.d);
    return w;
}

/* The place of each element in its plane, as int64. */
static hlo places(hlo_fn *f, hlo x)
{
    tpu_type t = type_as(hlo_type(f, x), TPU_I64);
    hlo row = hlo_iota(f, t, t.rank - 2), col = hlo_iota(f, t, t.rank - 1);
    return hlo_op2(f, "add", hlo_op2(f, "multiply", row, hlo_const_i(f, t, t.dim[t.rank - 1])), col);
}

/* max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode) -> (values, indices) */
static void max_pool(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    spec w = max_spec(c, 1);
    if (!fit(c, x, &w)) return;
    hlo_window o = window_of(f, x, &w);
    hlo at = places(f, x), out[2];
    hlo_window same = o;
    hlo_argmax_window(f, reached(f, x, &o), reached(f, at, &same), &o, out);
    op_out(c, out[0]);
    op_out(c, out[1]);
}

/* x [..., h, w] as planes [n, h * w] */
static hlo planes(hlo_fn *f, hlo x)
{
    int64_t area = hlo_dim(f, x, -1) * hlo_dim(f, x, -2);
    return hlo_reshape(f, x, 2, (int64_t[]){area ? hlo_count(f, x) / area : 0, area});
}

/* Adds g's elements at their places in zeros of t's shape. */
static hlo scatter_places(hlo_fn *f, hlo g, hlo index, tpu_type t)
{
    hlo gp = planes(f, g), ip = planes(f, index), zero = planes(f, hlo_zeros(f, type_as(t, hlo_dtype(f, g))));
    tpu_type it = hlo_type(f, ip);
    hlo at[2] = {hlo_unsqueeze(f, hlo_iota(f, it, 0), 2), hlo_unsqueeze(f, ip, 2)};
    hlo_gather_dims d = {.ncollapsed = 2, .nmap = 2, .collapsed = {0, 1}, .map = {0, 1}, .index_vector_dim = 2};
    hlo r = hlo_scatter(f, "add", zero, hlo_concat(f, at, 2, 2), gp, &d);
    return hlo_reshape(f, r, t.rank, t.dim);
}

/* max_pool2d_with_indices_backward(grad, self, kernel, stride, padding, dilation, ceil_mode, indices) */
static void max_pool_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 1), g = op_in_math(c, 0);
    tpu_type t = hlo_type(f, x);
    op_out_as(c, scatter_places(f, g, op_in(c, 7), t), (tpu_dtype)t.dtype);
}

/* ---- averages ---- */
static spec avg_spec(op_ctx *c, int first)
{
    spec w = {.d = {1, 1}, .ceil = op_bool(c, first + 3)};
    two(c, first, ones, w.k);
    two(c, first + 1, w.k, w.s);
    two(c, first + 2, nones, w.p);
    return w;
}

/* How many elements each window divides by, as a constant against the output's shape. */
static hlo divisors(op_ctx *c, hlo out, hlo x, const spec *w, bool count_pad, int64_t override)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, out);
    int r = t.rank;
    if (override) return hlo_const_f(f, t, (double)override);
    int64_t n = w->out[0] * w->out[1];
    float *v = mem_new((size_t)(n + 1) * sizeof *v);
    if (!v) {
        op_fail(c, TPU_EXHAUSTED, "out of memory");
        return HLO_NONE;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at[2] = {i / w->out[1], i % w->out[1]}, area = 1;
        for (int d = 0; d < 2; d++) {
            int64_t in = hlo_dim(f, x, r - 2 + d), lo = at[d] * w->s[d] - w->p[d], hi = lo + w->k[d];
            if (hi > in + w->p[d]) hi = in + w->p[d];
            if (!count_pad) {
                lo = lo < 0 ? 0 : lo;
                hi = hi > in ? in : hi;
            }
            area *= hi - lo;
        }
        v[i] = (float)area;
    }
    hlo k = hlo_const_data(f, type_make(TPU_F32, 2, w->out), v);
    mem_free(v);
    return hlo_broadcast_in_dim(f, hlo_convert(f, k, (tpu_dtype)t.dtype), t, (int64_t[]){r - 2, r - 1});
}

/* avg_pool2d(self, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override) */
static void avg_pool(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0);
    spec w = avg_spec(c, 1);
    if (!fit(c, x, &w)) return;
    hlo_window o = window_of(f, x, &w);
    hlo s = hlo_reduce_window(f, "add", reached(f, x, &o), &o);
    op_out_as(c, hlo_op2(f, "divide", s, divisors(c, s, x, &w, op_bool(c, 5), op_int_or(c, 6, 0))), hlo_dtype(f, op_in(c, 0)));
}

/* avg_pool2d_backward(grad, self, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override): the windows that
 * hold an element are the windows of the spread gradient that reach it. */
static void avg_pool_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 1), g = op_in_math(c, 0);
    spec w = avg_spec(c, 2);
    if (!fit(c, x, &w)) return;
    g = hlo_op2(f, "divide", g, divisors(c, g, x, &w, op_bool(c, 6), op_int_or(c, 7, 0)));
    int r = hlo_rank(f, g);
    int64_t lo[TYPE_MAX_RANK] = {0}, hi[TYPE_MAX_RANK] = {0}, in[TYPE_MAX_RANK] = {0};
    hlo_window o = {{0}, {0}, {0}, {0}, {0}, {0}};
    for (int i = 0; i < 2; i++) {
        int d = r - 2 + i;
        in[d] = w.s[i] - 1;
        lo[d] = w.k[i] - 1 - w.p[i];
        hi[d] = hlo_dim(f, x, d) + w.p[i] - ((w.out[i] - 1) * w.s[i] + 1);
        o.size[d] = w.k[i];
    }
    hlo spread = hlo_pad(f, g, hlo_zeros(f, type_scalar(hlo_dtype(f, g))), lo, hi, in);
    op_out_as(c, hlo_reduce_window(f, "add", spread, &o), hlo_dtype(f, x));
}

/* Adaptive pooling is a product with a matrix of means a dim: row i averages elements [i n / m, ceil((i + 1) n / m)). */
static hlo mean_matrix(op_ctx *c, int64_t m, int64_t n, tpu_dtype t)
{
    double *v = mem_new((size_t)(m * n + 1) * sizeof *v);
    if (!v) {
        op_fail(c, TPU_EXHAUSTED, "out of memory");
        return HLO_NONE;
    }
    for (int64_t i = 0; i < m; i++) {
        int64_t lo = i * n / m, hi = ((i + 1) * n + m - 1) / m;
        for (int64_t k = lo; k < hi; k++) v[i * n + k] = 1.0 / (double)(hi - lo);
    }
    hlo k = hlo_convert(op_fn(c), hlo_const_data(op_fn(c), type_make(TPU_F64, 2, (int64_t[]){m, n}), v), t);
    mem_free(v);
    return k;
}

/* x [..., n] times a [m, n] transposed: [..., m] */
static hlo along_last(hlo_fn *f, hlo x, hlo a)
{
    int64_t last = hlo_rank(f, x) - 1, one = 1;
    return hlo_dot(f, x, a, 0, NULL, NULL, 1, &last, &one, hlo_dtype(f, x));
}

/* _adaptive_avg_pool2d(self, output_size) */
static void adaptive_avg(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, 0);
    int n;
    const int64_t *size = op_ints(c, 1, &n);
    if (hlo_rank(f, x) < 3 || n != 2) {
        op_fail(c, TPU_INVALID, "adaptive_avg_pool2d(): Expected 3D or 4D tensor, but got %dD", hlo_rank(f, x));
        return;
    }
    tpu_dtype t = hlo_dtype(f, x);
    hlo r = along_last(f, x, mean_matrix(c, size[1], hlo_dim(f, x, -1), t));
    r = hlo_swap(f, along_last(f, hlo_swap(f, r, -1, -2), mean_matrix(c, size[0], hlo_dim(f, x, -2), t)), -1, -2);
    op_out_as(c, r, hlo_dtype(f, op_in(c, 0)));
}

/* _adaptive_avg_pool2d_backward(grad, self) */
static void adaptive_avg_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0), x = op_in(c, 1);
    tpu_dtype t = hlo_dtype(f, g);
    hlo w = hlo_swap(f, mean_matrix(c, hlo_dim(f, g, -1), hlo_dim(f, x, -1), t), 0, 1);
    hlo h = hlo_swap(f, mean_matrix(c, hlo_dim(f, g, -2), hlo_dim(f, x, -2), t), 0, 1);
    hlo r = hlo_swap(f, along_last(f, hlo_swap(f, along_last(f, g, w), -1, -2), h), -1, -2);
    op_out_as(c, r, hlo_dtype(f, x));
}

/* ---- nearest neighbours: upsample_nearest{1,2,3}d(self, output_size, scales...), and their gradients ---- */
static hlo nearest_index(op_ctx *c, int64_t out, int64_t in, double scale)
{
    int64_t *v = mem_new((size_t)(out + 1) * sizeof *v);
    if (!v) {
        op_fail(c, TPU_EXHAUSTED, "out of memory");
        return HLO_NONE;
    }
    float ratio = scale > 0 ? (float)(1.0 / scale) : (float)in / (float)out;
    for (int64_t i = 0; i < out; i++) {
        v[i] = (int64_t)((float)i * ratio);
        if (v[i] > in - 1) v[i] = in - 1;
    }
    hlo k = hlo_const_data(op_fn(c), type_make(TPU_I64, 1, &out), v);
    mem_free(v);
    return k;
}

static double scale_at(op_ctx *c, int arg) { return op_has(c, arg) ? op_number(c, arg) : 0; }

static void nearest(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    int n;
    const int64_t *size = op_ints(c, 1, &n);
    for (int i = 0; i < n; i++) {
        int d = 2 + i;
        int64_t in = hlo_dim(f, x, d);
        if (size[i] != in || scale_at(c, 2 + i) > 0) x = hlo_take(f, x, nearest_index(c, size[i], in, scale_at(c, 2 + i)), d);
    }
    op_out(c, x);
}

/* upsample_nearest2d_backward(grad, output_size, input_size, scales...): sums the neighbours, as a product with zeros and ones */
static void nearest_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0);
    int n, m;
    const int64_t *out = op_ints(c, 1, &n), *in = op_ints(c, 2, &m);
    for (int i = 0; i < n; i++) {
        int64_t dims[2] = {in[2 + i], out[i]};
        tpu_type t = type_make(TPU_I64, 2, dims);
        hlo index = nearest_index(c, out[i], in[2 + i], scale_at(c, 3 + i));
        hlo hot = hlo_compare(f, "EQ", hlo_iota(f, t, 0), hlo_broadcast_in_dim(f, index, t, (int64_t[]){1}));
        g = hlo_swap(f, along_last(f, hlo_swap(f, g, 2 + i, -1), hlo_convert(f, hot, hlo_dtype(f, g))), 2 + i, -1);
    }
    op_out_as(c, g, hlo_dtype(f, op_in(c, 0)));
}

/* clang-format off */
const op_row ops_pool[] = {
    { "max_pool2d_with_indices",          max_pool },
    { "max_pool2d_with_indices_backward", max_pool_backward },
    { "avg_pool2d",                       avg_pool },
    { "avg_pool2d_backward",              avg_pool_backward },
    { "_adaptive_avg_pool2d",             adaptive_avg },
    { "_adaptive_avg_pool2d_backward",    adaptive_avg_backward },
    { "upsample_nearest1d",               nearest,          NULL, OP_FIXED },
    { "upsample_nearest2d",               nearest,          NULL, OP_FIXED },
    { "upsample_nearest3d",               nearest,          NULL, OP_FIXED },
    { "upsample_nearest1d_backward",      nearest_backward, NULL, OP_FIXED },
    { "upsample_nearest2d_backward",      nearest_backward, NULL, OP_FIXED },
    { "upsample_nearest3d_backward",      nearest_backward, NULL, OP_FIXED },
    { NULL },
};
/* clang-format on */
