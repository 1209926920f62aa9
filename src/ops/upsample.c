/* upsample.c - interpolation: nearest neighbours, linear and cubic, one dim after the other, with gradients.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops.h"

/* How a dim grows: output i is the sum of weight[i * n + k] * input[at[i * n + k]], k < n; borrowed from the heap. */
typedef struct taps {
    int n;
    int64_t out, in;
    int64_t *at;
    double *weight;
} taps;

static taps taps_new(op_ctx *c, int n, int64_t out, int64_t in)
{
    size_t count = (size_t)(out * n + 1);
    taps t = {n, out, in, mem_new(count * sizeof(int64_t)), mem_new(count * sizeof(double))};
    if (!t.at || !t.weight) op_fail(c, TPU_EXHAUSTED, "out of memory");
    return t;
}

static void taps_free(taps *t)
{
    mem_free(t->at);
    mem_free(t->weight);
}

static int64_t bounded(int64_t i, int64_t n) { return i < 0 ? 0 : i < n ? i : n - 1; }

/* Nearest: floor(i * ratio); exact: floor((i + 0.5) * ratio).  In float32, as PyTorch has it. */
static void fill_nearest(taps *t, double scale, bool exact)
{
    float ratio = scale > 0 ? (float)(1.0 / scale) : (float)t->in / (float)t->out;
    for (int64_t i = 0; i < t->out; i++) {
        t->at[i] = bounded((int64_t)(((float)i + (exact ? 0.5f : 0.0f)) * ratio), t->in);
        t->weight[i] = 1;
    }
}

/* How far apart the sources of two neighbours lie. */
static double step(int64_t out, int64_t in, double scale, bool align)
{
    return align       ? (out > 1 ? (double)(in - 1) / (double)(out - 1) : 0)
           : scale > 0 ? 1.0 / scale
                       : (double)in / (double)out;
}

/* Where output i looks in the input; in float32 unless the tensor is float64. */
static double source(const taps *t, int64_t i, double scale, bool align, bool wide, bool cubic)
{
    double ratio = step(t->out, t->in, scale, align);
    double x;
    if (wide) x = align ? ratio * (double)i : ratio * ((double)i + 0.5) - 0.5;
    else x = align ? (float)ratio * (float)i : (float)ratio * ((float)i + 0.5f) - 0.5f;
    return x < 0 && !cubic && !align ? 0 : x;
}

static void fill_linear(taps *t, double scale, bool align, bool wide)
{
    for (int64_t i = 0; i < t->out; i++) {
        double x = source(t, i, scale, align, wide, false);
        int64_t lo = bounded((int64_t)x, t->in);
        double part = x - (double)lo;
        part = part < 0 ? 0 : part > 1 ? 1 : part;
        t->at[2 * i] = lo;
        t->at[2 * i + 1] = bounded(lo + 1, t->in);
        t->weight[2 * i] = 1 - part;
        t->weight[2 * i + 1] = part;
    }
}

/* The cubic kernel with a = -0.75, at distance d from its middle. */
static double cubic_at(double d)
{
    const double a = -0.75;
    d = fabs(d);
    return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

static void fill_cubic(taps *t, double scale, bool align, bool wide)
{
    for (int64_t i = 0; i < t->out; i++) {
        double x = source(t, i, scale, align, wide, true), low = floor(x), part = x - low;
        for (int k = 0; k < 4; k++) {
            t->at[4 * i + k] = bounded((int64_t)low - 1 + k, t->in);
            t->weight[4 * i + k] = cubic_at(part + 1 - k);
        }
    }
}

/* Anti-aliased: the kernel is as wide as the step, so that each output sees all that it stands for. */
static double smooth_at(double d, char kind)
{
    const double pi = 3.141592653589793;
    d = fabs(d);
    if (kind == 'L') return d < 1 ? 1 - d : 0;
    if (kind == 'Z') return d == 0 ? 1 : d < 3 ? 3 * sin(pi * d) * sin(pi * d / 3) / (pi * pi * d * d) : 0;
    return d < 1 ? (1.5 * d - 2.5) * d * d + 1 : d < 2 ? ((-0.5 * d + 2.5) * d - 4) * d + 2 : 0;
}

static taps smooth_taps(op_ctx *c, char kind, int64_t out, int64_t in, double scale, bool align)
{
    double by = step(out, in, scale, align), wide = by > 1 ? by : 1,
           reach = (kind == 'L'   ? 1
                    : kind == 'C' ? 2
                                  : 3) *
                   wide;
    int most = (int)ceil(reach) * 2 + 1;
    taps t = taps_new(c, most, out, in);
    for (int64_t i = 0; t.at && t.weight && i < out; i++) {
        double middle = by * ((double)i + 0.5), sum = 0;
        int64_t lo = (int64_t)(middle - reach + 0.5), hi = (int64_t)(middle + reach + 0.5);
        lo = lo < 0 ? 0 : lo;
        hi = hi > in ? in : hi;
        hi = hi > lo + most ? lo + most : hi;
        for (int k = 0; k < most; k++) {
            double w = lo + k < hi ? smooth_at(((double)(lo + k) - middle + 0.5) / wide, kind) : 0;
            t.at[i * most + k] = bounded(lo + k < hi ? lo + k : hi - 1, in);
            t.weight[i * most + k] = w;
            sum += w;
        }
        for (int k = 0; k < most && sum != 0; k++) t.weight[i * most + k] /= sum;
    }
    return t;
}

/* kind: 'n' nearest, 'e' nearest exact, 'l' linear, 'c' cubic, 'L', 'C' and 'Z' (Lanczos) anti-aliased; scale 0: from
 * the sizes */
static taps taps_of(op_ctx *c, char kind, int64_t out, int64_t in, double scale, bool align, bool wide)
{
    if (kind < 'a') return smooth_taps(c, kind, out, in, scale, align);
    taps t = taps_new(c, kind == 'l' ? 2 : kind == 'c' ? 4 : 1, out, in);
    if (!t.at || !t.weight || in < 1) return t;
    if (kind == 'l') fill_linear(&t, scale, align, wide);
    else if (kind == 'c') fill_cubic(&t, scale, align, wide);
    else fill_nearest(&t, scale, kind == 'e');
    return t;
}

/* x with dim d grown: each tap is gathered and weighed, so an infinity reaches only its neighbours. */
static hlo grow(hlo_fn *f, hlo x, int d, const taps *t)
{
    hlo sum = HLO_NONE;
    for (int k = 0; k < t->n; k++) {
        int64_t *at = mem_new((size_t)(t->out + 1) * sizeof *at);
        double *w = mem_new((size_t)(t->out + 1) * sizeof *w);
        for (int64_t i = 0; at && w && i < t->out; i++) {
            at[i] = t->at[i * t->n + k];
            w[i] = t->weight[i * t->n + k];
        }
        if (!at || !w) hlo_fail(f, TPU_EXHAUSTED, "out of memory");
        else {
            hlo part = hlo_take(f, x, hlo_const_data(f, type_make(TPU_I64, 1, &t->out), at), d);
            if (t->n > 1) {
                hlo weight = hlo_convert(f, hlo_const_data(f, type_make(TPU_F64, 1, &t->out), w), hlo_dtype(f, x));
                part = hlo_op2(f, "multiply", part, hlo_broadcast_in_dim(f, weight, hlo_type(f, part), (int64_t[]){d}));
            }
            sum = k ? hlo_op2(f, "add", sum, part) : part;
        }
        mem_free(at);
        mem_free(w);
    }
    return sum;
}

/* As grow where taps are many: all are gathered at once and summed. */
static hlo grow_wide(hlo_fn *f, hlo x, int d, const taps *t)
{
    int64_t count = t->out * t->n, sides[2] = {t->out, t->n};
    tpu_type wide = hlo_type(f, x);
    for (int i = wide.rank++; i > d; i--) wide.dim[i] = wide.dim[i - 1];
    wide.dim[d] = t->out;
    wide.dim[d + 1] = t->n;
    x = hlo_reshape(f, hlo_take(f, x, hlo_const_data(f, type_make(TPU_I64, 1, &count), t->at), d), wide.rank, wide.dim);
    hlo w = hlo_convert(f, hlo_const_data(f, type_make(TPU_F64, 2, sides), t->weight), (tpu_dtype)wide.dtype);
    w = hlo_broadcast_in_dim(f, w, wide, (int64_t[]){d, d + 1});
    return hlo_reduce(f, "add", hlo_op2(f, "multiply", x, w), 2u << d);
}

/* The transpose of grow: a product with the weights as a matrix [in, out]. */
static hlo shrink(hlo_fn *f, hlo g, int d, const taps *t)
{
    double *v = mem_new((size_t)(t->in * t->out + 1) * sizeof *v);
    if (!v) {
        hlo_fail(f, TPU_EXHAUSTED, "out of memory");
        return HLO_NONE;
    }
    for (int64_t i = 0; i < t->in * t->out; i++) v[i] = 0;
    for (int64_t i = 0; i < t->out * t->n; i++) v[t->at[i] * t->out + i / t->n] += t->weight[i];
    hlo a = hlo_convert(f, hlo_const_data(f, type_make(TPU_F64, 2, (int64_t[]){t->in, t->out}), v), hlo_dtype(f, g));
    mem_free(v);
    int64_t last = hlo_rank(f, g) - 1, one = 1;
    return hlo_swap(f, hlo_dot(f, hlo_swap(f, g, d, -1), a, 0, NULL, NULL, 1, &last, &one, hlo_dtype(f, g)), d, -1);
}

static double scale_at(op_ctx *c, int arg) { return op_has(c, arg) ? op_number(c, arg) : 0; }
static bool interpolates(char kind) { return kind != 'n' && kind != 'e'; }

/* upsample_*(self, output_size, [align_corners,] scales...) */
static void upsample(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    char kind = op_row_of(c)->word[0];
    hlo in = op_in(c, 0), x = interpolates(kind) ? op_in_math(c, 0) : in;
    int n, first = interpolates(kind) ? 3 : 2;
    const int64_t *size = op_ints(c, 1, &n);
    if (interpolates(kind) && !dtype_is_float(hlo_dtype(f, in))) {
        op_fail(c, TPU_UNIMPLEMENTED, "\"%s\" does not take this dtype", op_row_of(c)->name);
        return;
    }
    if (hlo_rank(f, x) != n + 2) {
        op_fail(c, TPU_INVALID, "It is expected input_size equals to %d, but got size %d", n + 2, hlo_rank(f, x));
        return;
    }
    for (int i = 0; i < n; i++) {
        int64_t from = hlo_dim(f, x, 2 + i);
        if (from < 1 || size[i] < 1) {
            op_fail(c, TPU_INVALID,
                    "Input and output sizes should be greater than 0, but got input (%lld) and output (%lld)",
                    (long long)from, (long long)size[i]);
            return;
        }
        double scale = scale_at(c, first + i);
        bool align = interpolates(kind) && op_bool(c, 2);
        if (from == size[i] && (!(scale > 0) || scale == 1 || align)) continue;
        taps t = taps_of(c, kind, size[i], from, scale, align, hlo_dtype(f, x) == TPU_F64);
        if (!hlo_failed(f)) x = t.n > 4 ? grow_wide(f, x, 2 + i, &t) : grow(f, x, 2 + i, &t);
        taps_free(&t);
    }
    op_out_as(c, x, hlo_dtype(f, in));
}

/* upsample_*_backward(grad, output_size, input_size, [align_corners,] scales...) */
static void upsample_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    char kind = op_row_of(c)->word[0];
    hlo g = op_in_math(c, 0);
    int n, m, first = interpolates(kind) ? 4 : 3;
    const int64_t *out = op_ints(c, 1, &n), *in = op_ints(c, 2, &m);
    if (m != n + 2 || hlo_rank(f, g) != m) {
        op_fail(c, TPU_INVALID, "It is expected input_size equals to %d, but got size %d", n + 2, m);
        return;
    }
    for (int i = 0; i < n; i++) {
        double scale = scale_at(c, first + i);
        bool align = interpolates(kind) && op_bool(c, 3);
        if (in[2 + i] == out[i] && (!(scale > 0) || scale == 1 || align)) continue;
        taps t = taps_of(c, kind, out[i], in[2 + i], scale, align, hlo_dtype(f, g) == TPU_F64);
        if (!hlo_failed(f)) g = shrink(f, g, 2 + i, &t);
        taps_free(&t);
    }
    op_out_as(c, g, hlo_dtype(f, op_in(c, 0)));
}

/* clang-format off */
#define BOTH(name, word) { name, upsample, word, OP_FIXED }, { name "_backward", upsample_backward, word, OP_FIXED }
const op_row ops_upsample[] = {
    BOTH("upsample_nearest1d",        "n"),
    BOTH("upsample_nearest2d",        "n"),
    BOTH("upsample_nearest3d",        "n"),
    BOTH("_upsample_nearest_exact1d", "e"),
    BOTH("_upsample_nearest_exact2d", "e"),
    BOTH("_upsample_nearest_exact3d", "e"),
    BOTH("upsample_linear1d",         "l"),
    BOTH("upsample_bilinear2d",       "l"),
    BOTH("upsample_trilinear3d",      "l"),
    BOTH("upsample_bicubic2d",        "c"),
    BOTH("_upsample_bilinear2d_aa",   "L"),
    BOTH("_upsample_bicubic2d_aa",    "C"),
    BOTH("_upsample_lanczos2d_aa",    "Z"),
    { NULL },
};
/* clang-format on */
