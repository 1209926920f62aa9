/* pool.c - pooling over the last two or three dims, with gradients.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"
#include "words.h"

typedef struct spec { int n; int64_t k[3], s[3], p[3], d[3], out[3]; bool ceil; } spec;

/* Rows of three dims have a word. */
static int ndims(op_ctx *c) { return op_row_of(c)->word ? 3 : 2; }

/* int[2] and int[3] arguments: one number serves all dims; an empty stride is the kernel's size. */
static void each(op_ctx *c, int arg, const int64_t *other, int64_t *to)
{
    int n;
    const int64_t *v = op_ints(c, arg, &n);
    for (int i = 0; i < ndims(c); i++) to[i] = n == 0 ? other[i] : v[n == 1 ? 0 : i];
}

static int64_t out_size(int64_t in, int64_t k, int64_t s, int64_t p, int64_t d, bool ceil_mode)
{
    int64_t span = in + 2 * p - d * (k - 1) - 1 + (ceil_mode ? s - 1 : 0), n = (span < 0 ? -1 : span / s) + 1;
    if (ceil_mode && (n - 1) * s >= in + p) n--;        /* the last window must start inside */
    return n;
}

static bool fit(op_ctx *c, hlo x, spec *w)
{
    hlo_fn *f = op_fn(c);
    int r = hlo_rank(f, x);
    if (r != w->n + 1 && r != w->n + 2) {
        op_fail(c, TPU_INVALID, "non-empty %dD or %dD (batch mode) tensor expected for input", w->n + 1, w->n + 2);
        return false;
    }
    for (int i = 0; i < w->n; i++) {
        int64_t in = hlo_dim(f, x, r - w->n + i);
        if (w->p[i] < 0) op_fail(c, TPU_INVALID, "pad must be non-negative, but got pad: %lld", (long long)w->p[i]);
        else if (w->k[i] <= 0 || w->d[i] <= 0) op_fail(c, TPU_INVALID, w->d[i] <= 0 ? "dilation should be greater than zero" : "kernel size should be greater than zero");
        else if (w->s[i] <= 0) op_fail(c, TPU_INVALID, "stride should not be zero");
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
    for (int i = 0; i < w->n; i++) {
        int d = r - w->n + i;
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
    for (int d = 0; d < hlo_rank(f, x); d++) {
        if (w->pad_hi[d] >= 0) continue;
        x = hlo_slice_dim(f, x, d, 0, hlo_dim(f, x, d) + w->pad_hi[d], 1);
        w->pad_hi[d] = 0;
    }
    return x;
}

static const int64_t ones[3] = {1, 1, 1}, nones[3] = {0, 0, 0};

static spec max_spec(op_ctx *c, int first)
{
    spec w = {.n = ndims(c), .ceil = op_bool(c, first + 4)};
    each(c, first, ones, w.k);
    each(c, first + 1, w.k, w.s);
    each(c, first + 2, nones, w.p);
    each(c, first + 3, ones, w.d);
    return w;
}

/* The place of each element in its plane (the last n dims), as int64. */
static hlo places(hlo_fn *f, hlo x, int n)
{
    tpu_type t = type_as(hlo_type(f, x), TPU_I64);
    hlo at = hlo_zeros(f, t);
    for (int d = t.rank - n; d < t.rank; d++) at = hlo_op2(f, "add", hlo_op2(f, "multiply", at, hlo_const_i(f, t, t.dim[d])), hlo_iota(f, t, d));
    return at;
}

/* max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode) -> (values, indices) */
static void max_pool(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    spec w = max_spec(c, 1);
    if (!fit(c, x, &w)) return;
    hlo_window o = window_of(f, x, &w);
    hlo at = places(f, x, w.n), out[2];
    hlo_window same = o;
    hlo_argmax_window(f, reached(f, x, &o), reached(f, at, &same), &o, out);
    op_out(c, out[0]);
    op_out(c, out[1]);
}

/* x as planes [m, product of the last n dims] */
static hlo planes(hlo_fn *f, hlo x, int n)
{
    int64_t area = 1;
    for (int d = 1; d <= n; d++) area *= hlo_dim(f, x, -d);
    return hlo_reshape(f, x, 2, (int64_t[]){area ? hlo_count(f, x) / area : 0, area});
}

/* Puts ("assign") or adds g's elements at their places in zeros of t's shape. */
static hlo scatter_places(hlo_fn *f, const char *op, hlo g, hlo index, tpu_type t, int n)
{
    hlo gp = planes(f, g, n), ip = planes(f, index, n), zero = planes(f, hlo_zeros(f, type_as(t, hlo_dtype(f, g))), n);
    tpu_type it = hlo_type(f, ip);
    hlo at[2] = {hlo_unsqueeze(f, hlo_iota(f, it, 0), 2), hlo_unsqueeze(f, ip, 2)};
    hlo_gather_dims d = {.ncollapsed = 2, .nmap = 2, .collapsed = {0, 1}, .map = {0, 1}, .index_vector_dim = 2};
    hlo r = hlo_scatter(f, op, zero, hlo_concat(f, at, 2, 2), gp, &d);
    return hlo_reshape(f, r, t.rank, t.dim);
}

/* max_pool2d_with_indices_backward(grad, self, kernel, stride, padding, dilation, ceil_mode, indices) */
static void max_pool_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 1), g = op_in_math(c, 0);
    tpu_type t = hlo_type(f, x);
    op_out_as(c, scatter_places(f, "add", g, op_in(c, 7), t, ndims(c)), (tpu_dtype)t.dtype);
}

/* ---- averages ---- */
static spec avg_spec(op_ctx *c, int first)
{
    spec w = {.n = ndims(c), .d = {1, 1, 1}, .ceil = op_bool(c, first + 3)};
    each(c, first, ones, w.k);
    each(c, first + 1, w.k, w.s);
    each(c, first + 2, nones, w.p);
    return w;
}

/* How many elements each window divides by, as a constant against the output's shape. */
static hlo divisors(op_ctx *c, hlo out, hlo x, const spec *w, bool count_pad, int64_t override)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, out);
    int r = t.rank;
    if (override) return hlo_const_f(f, t, (double)override);
    int64_t n = 1, along[3];
    for (int d = 0; d < w->n; d++) n *= w->out[d];
    float *v = mem_new((size_t)(n + 1) * sizeof *v);
    if (!v) {
        op_fail(c, TPU_EXHAUSTED, "out of memory");
        return HLO_NONE;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t area = 1, left = i;
        for (int d = w->n - 1; d >= 0; d--) {
            int64_t in = hlo_dim(f, x, r - w->n + d), lo = left % w->out[d] * w->s[d] - w->p[d], hi = lo + w->k[d];
            left /= w->out[d];
            if (hi > in + w->p[d]) hi = in + w->p[d];
            if (!count_pad) {
                lo = lo < 0 ? 0 : lo;
                hi = hi > in ? in : hi;
            }
            area *= hi - lo;
        }
        v[i] = (float)area;
    }
    hlo k = hlo_const_data(f, type_make(TPU_F32, w->n, w->out), v);
    mem_free(v);
    for (int d = 0; d < w->n; d++) along[d] = r - w->n + d;
    return hlo_broadcast_in_dim(f, hlo_convert(f, k, (tpu_dtype)t.dtype), t, along);
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
    for (int i = 0; i < w.n; i++) {
        int d = r - w.n + i;
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
    int n, want = ndims(c), r = hlo_rank(f, x);
    const int64_t *size = op_ints(c, 1, &n);
    if ((r != want + 1 && r != want + 2) || n != want) {
        op_fail(c, TPU_INVALID, "adaptive_avg_pool%dd(): Expected %dD or %dD tensor, but got %dD", want, want + 1, want + 2, r);
        return;
    }
    for (int i = 0; i < n; i++) {
        int d = r - n + i;
        hlo a = mean_matrix(c, size[i], hlo_dim(f, x, d), hlo_dtype(f, x));
        x = hlo_swap(f, along_last(f, hlo_swap(f, x, d, -1), a), d, -1);
    }
    op_out_as(c, x, hlo_dtype(f, op_in(c, 0)));
}

/* _adaptive_avg_pool2d_backward(grad, self) */
static void adaptive_avg_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0), x = op_in(c, 1);
    int n = ndims(c), r = hlo_rank(f, g);
    for (int d = r - n; d < r; d++) {
        hlo a = hlo_swap(f, mean_matrix(c, hlo_dim(f, g, d), hlo_dim(f, x, d), hlo_dtype(f, g)), 0, 1);
        g = hlo_swap(f, along_last(f, hlo_swap(f, g, d, -1), a), d, -1);
    }
    op_out_as(c, g, hlo_dtype(f, x));
}

/* ---- adaptive maxima: windows of unequal size, each padded to the widest by repeats of its last element, which never
 * win over the first of equals ---- */
typedef struct taps { int64_t wide; hlo at; } taps;     /* at: int64 [m * wide], element numbers along the dim */

static taps taps_of(op_ctx *c, int64_t m, int64_t n)
{
    taps r = {.wide = 1};
    for (int64_t i = 0; i < m; i++) {
        int64_t len = ((i + 1) * n + m - 1) / m - i * n / m;
        if (len > r.wide) r.wide = len;
    }
    int64_t count = m * r.wide, *v = mem_new((size_t)(count + 1) * sizeof *v);
    if (!v) {
        op_fail(c, TPU_EXHAUSTED, "out of memory");
        r.at = HLO_NONE;
        return r;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t lo = i / r.wide * n / m, hi = ((i / r.wide + 1) * n + m - 1) / m, at = lo + i % r.wide;
        v[i] = at < hi ? at : hi - 1;
    }
    r.at = hlo_const_data(op_fn(c), type_make(TPU_I64, 1, &count), v);
    mem_free(v);
    return r;
}

/* Splits each of the last n dims into its window number and its place in the window, and gathers the places last. */
static hlo by_window(hlo_fn *f, hlo x, int n, const int64_t *size, const int64_t *wide)
{
    int r = hlo_rank(f, x), lead = r - n;
    int64_t dim[TYPE_MAX_RANK], perm[TYPE_MAX_RANK], area = 1;
    for (int i = 0; i < lead; i++) {
        dim[i] = hlo_dim(f, x, i);
        perm[i] = i;
    }
    for (int i = 0; i < n; i++) {
        dim[lead + 2 * i] = size[i];
        dim[lead + 2 * i + 1] = wide[i];
        perm[lead + i] = lead + 2 * i;
        perm[lead + n + i] = lead + 2 * i + 1;
        area *= wide[i];
    }
    x = hlo_transpose(f, hlo_reshape(f, x, r + n, dim), perm);
    for (int i = 0; i < n; i++) dim[lead + i] = size[i];
    dim[r] = area;
    return hlo_reshape(f, x, r + 1, dim);
}

/* adaptive_max_pool2d(self, output_size) -> (values, indices) */
static void adaptive_max(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), at = places(f, x, ndims(c));
    int n, want = ndims(c), r = hlo_rank(f, x);
    const int64_t *size = op_ints(c, 1, &n);
    if ((r != want + 1 && r != want + 2) || n != want) {
        op_fail(c, TPU_INVALID, "adaptive_max_pool%dd(): Expected %dD or %dD tensor, but got: %dD", want, want + 1, want + 2, r);
        return;
    }
    int64_t wide[3];
    for (int i = 0; i < n; i++) {
        int d = r - n + i;
        if (hlo_dim(f, x, d) == 0) {
            op_fail(c, TPU_INVALID, "adaptive_max_pool%dd(): Expected input to have non-zero size for non-batch dimensions", want);
            return;
        }
        taps t = taps_of(c, size[i], hlo_dim(f, x, d));
        wide[i] = t.wide;
        x = hlo_take(f, x, t.at, d);
        at = hlo_take(f, at, t.at, d);
    }
    x = by_window(f, x, n, size, wide);
    at = by_window(f, at, n, size, wide);
    hlo best = hlo_argmax(f, x, r, false);
    tpu_type t = type_as(hlo_type(f, x), TPU_I64);
    int64_t same[TYPE_MAX_RANK];
    for (int i = 0; i < r; i++) same[i] = i;
    hlo hot = hlo_compare(f, "EQ", hlo_iota(f, t, r), hlo_broadcast_in_dim(f, best, t, same));
    op_out(c, hlo_reduce(f, "maximum", x, 1u << r));
    op_out(c, hlo_reduce(f, "add", hlo_select(f, hot, at, hlo_zeros(f, t)), 1u << r));
}

/* adaptive_max_pool2d_backward(grad, self, indices) */
static void adaptive_max_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, op_in(c, 1));
    op_out_as(c, scatter_places(f, "add", op_in_math(c, 0), op_in(c, 2), t, ndims(c)), (tpu_dtype)t.dtype);
}

/* max_unpool2d(self, indices, output_size), max_unpool3d(..., stride, padding) [E4] */
static void max_unpool(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), index = op_in(c, 1);
    tpu_type t = hlo_type(f, x), it = hlo_type(f, index);
    int n, want = ndims(c);
    const int64_t *size = op_ints(c, 2, &n);
    if (it.dtype != TPU_I64) op_fail(c, TPU_INVALID, "elements in indices should be type int64 but got: %s", dtype_torch_name((tpu_dtype)it.dtype));
    else if (n != want) op_fail(c, TPU_INVALID, "There should be exactly %d elements in output_size, but got %d elements.", want, n);
    else if (t.rank != want + 1 && t.rank != want + 2)
        op_fail(c, TPU_INVALID, "Input to max_unpooling%dd should be a %dd or %dd Tensor, but got a tensor with %d dimensions.", want, want + 1, want + 2, t.rank);
    else if (!type_same_shape(&t, &it)) op_fail(c, TPU_INVALID, "Expected shape of indices to be same as that of the input tensor");
    if (hlo_failed(f)) return;
    int64_t area = 1;
    for (int i = 0; i < n; i++) {
        t.dim[t.rank - n + i] = size[i];
        area *= size[i];
    }
    hlo zero = hlo_zeros(f, type_scalar(TPU_I64)), last = hlo_const_i(f, type_scalar(TPU_I64), area - 1);
    hlo low = hlo_compare(f, "LT", index, hlo_like_i(f, index, 0)), high = hlo_compare(f, "GE", index, hlo_like_i(f, index, area));
    op_guard(c, hlo_op2(f, "or", low, high), "!Found an invalid max index in max_unpool.");
    op_out(c, scatter_places(f, "assign", x, hlo_clamp(f, zero, index, last), t, want));
}

/* ---- fractional maxima: windows of one size whose starts are drawn, one sample a plane and dim ---- */
static bool fractional_fits(op_ctx *c, tpu_type x, tpu_type samples, const int64_t *k, const int64_t *out)
{
    int n = ndims(c), lead = x.rank - n;
    static const char *const name[] = {"time", "height", "width"};
    if (lead != 1 && lead != 2) op_fail(c, TPU_INVALID, "fractional_max_pool%dd(): Expected %dD or %dD tensor, but got: %s", n, n + 1, n + 2, sizes_in_words(x).s);
    else if (samples.dtype != x.dtype) op_fail(c, TPU_INVALID, "Expect _random_samples to have the same dtype as input");
    else if (samples.rank != 3) op_fail(c, TPU_INVALID, "Expect _random_samples to have 3 dimensions, got %d", samples.rank);
    else if (samples.dim[2] != n) op_fail(c, TPU_INVALID, "Expect _random_samples.size(2) equals to %d; got %lld.", n, (long long)samples.dim[2]);
    else if (samples.dim[0] < (lead == 2 ? x.dim[0] : 1)) op_fail(c, TPU_INVALID, "Expect _random_samples.size(0) no less then input batch size.");
    else if (samples.dim[1] < x.dim[lead - 1]) op_fail(c, TPU_INVALID, "Expect _random_samples.size(1) equals to input channel size; got %lld.", (long long)samples.dim[1]);
    for (int i = 0; i < n && !hlo_failed(op_fn(c)); i++)
        if (k[i] < 1 || out[i] < 1) op_fail(c, TPU_UNIMPLEMENTED, "fractional pooling with empty windows");
        else if (out[i] + k[i] - 1 > x.dim[lead + i])
            op_fail(c, TPU_INVALID, "fractional_max_pool%dd(): pool %s %lld too large relative to input %s %lld", n, name[3 - n + i], (long long)k[i], name[3 - n + i], (long long)x.dim[lead + i]);
    return !hlo_failed(op_fn(c));
}

/* Where the windows along a dim of `in` start, from samples [planes]: int64 [planes, out]. */
static hlo fractional_starts(hlo_fn *f, hlo sample, int64_t in, int64_t k, int64_t out)
{
    int64_t planes = hlo_count(f, sample);
    tpu_type t = type_make(hlo_dtype(f, sample), 2, (int64_t[]){planes, out}), ints = type_as(t, TPU_I64);
    hlo last = hlo_const_i(f, ints, in - k);
    if (out == 1) return last;
    hlo alpha = hlo_op2(f, "divide", hlo_const_f(f, t, (double)(in - k)), hlo_const_f(f, t, (double)(out - 1))), u = hlo_broadcast_in_dim(f, sample, t, (int64_t[]){0});
    hlo at = hlo_convert(f, hlo_op2(f, "multiply", hlo_op2(f, "add", hlo_iota(f, t, 1), u), alpha), TPU_I64);
    at = hlo_op2(f, "subtract", at, hlo_convert(f, hlo_op2(f, "multiply", u, alpha), TPU_I64));
    at = hlo_clamp(f, hlo_const_i(f, type_scalar(TPU_I64), 0), at, hlo_const_i(f, type_scalar(TPU_I64), in - k));
    return hlo_select(f, hlo_compare(f, "EQ", hlo_iota(f, ints, 1), hlo_const_i(f, ints, out - 1)), last, at);
}

/* fractional_max_pool2d, 3d(self, kernel_size, output_size, random_samples) -> (values, indices) */
static void fractional_max(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), samples = op_in(c, 3);
    tpu_type t = hlo_type(f, x);
    int n = ndims(c), lead = t.rank - n;
    int64_t k[3], out[3];
    each(c, 1, ones, k);
    each(c, 2, ones, out);
    if (!fractional_fits(c, t, hlo_type(f, samples), k, out)) return;
    int64_t count = 1, wide = 1, area = 1, batch = lead == 2 ? t.dim[0] : 1, channels = t.dim[lead - 1], total = batch * channels;
    for (int i = 0; i < n; i++) {
        count *= out[i];
        wide *= k[i];
        area *= t.dim[lead + i];
    }
    samples = hlo_slice(f, samples, (int64_t[]){0, 0, 0}, (int64_t[]){batch, channels, n}, NULL);
    samples = hlo_reshape(f, hlo_convert(f, samples, dtype_compute((tpu_dtype)t.dtype)), 2, (int64_t[]){total, n});
    tpu_type windows = type_make(TPU_I64, 1 + 2 * n, (int64_t[]){total});
    for (int i = 0; i < n; i++) {
        windows.dim[1 + i] = out[i];
        windows.dim[1 + n + i] = k[i];
    }
    hlo at = hlo_zeros(f, windows);
    for (int i = 0; i < n; i++) {                       /* the samples of two dims stand in the order width, height */
        int column = n == 2 ? 1 - i : i;
        hlo start = fractional_starts(f, hlo_flatten(f, hlo_slice_dim(f, samples, 1, column, column + 1, 1)), t.dim[lead + i], k[i], out[i]);
        hlo place = hlo_op2(f, "add", hlo_broadcast_in_dim(f, start, windows, (int64_t[]){0, 1 + i}), hlo_iota(f, windows, 1 + n + i));
        at = hlo_op2(f, "add", hlo_op2(f, "multiply", at, hlo_const_i(f, windows, t.dim[lead + i])), place);
    }
    at = hlo_reshape(f, at, 2, (int64_t[]){total * count, wide});
    tpu_type flat = hlo_type(f, at);
    hlo plane = hlo_op2(f, "divide", hlo_iota(f, flat, 0), hlo_const_i(f, flat, count ? count : 1));
    hlo v = hlo_take(f, hlo_flatten(f, x), hlo_op2(f, "add", at, hlo_op2(f, "multiply", plane, hlo_const_i(f, flat, area))), 0);
    hlo best = hlo_broadcast_in_dim(f, hlo_argmax(f, v, 1, false), flat, (int64_t[]){0}), hot = hlo_compare(f, "EQ", hlo_iota(f, flat, 1), best);
    for (int i = 0; i < n; i++) t.dim[lead + i] = out[i];
    op_out(c, hlo_reshape(f, hlo_reduce(f, "maximum", v, 2), t.rank, t.dim));
    op_out(c, hlo_reshape(f, hlo_reduce(f, "add", hlo_select(f, hot, at, hlo_zeros(f, flat)), 2), t.rank, t.dim));
}

/* fractional_max_pool2d_backward, 3d(grad, self, kernel_size, output_size, indices) */
static void fractional_max_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, op_in(c, 1));
    op_out_as(c, scatter_places(f, "add", op_in_math(c, 0), op_in(c, 4), t, ndims(c)), (tpu_dtype)t.dtype);
}

/* clang-format off */
const op_row ops_pool[] = {
    { "max_pool2d_with_indices",          max_pool },
    { "max_pool2d_with_indices_backward", max_pool_backward },
    { "max_pool3d_with_indices",          max_pool,              "3" },
    { "max_pool3d_with_indices_backward", max_pool_backward,     "3" },
    { "avg_pool2d",                       avg_pool },
    { "avg_pool2d_backward",              avg_pool_backward },
    { "avg_pool3d",                       avg_pool,              "3" },
    { "avg_pool3d_backward",              avg_pool_backward,     "3" },
    { "_adaptive_avg_pool2d",             adaptive_avg },
    { "_adaptive_avg_pool2d_backward",    adaptive_avg_backward },
    { "_adaptive_avg_pool3d",             adaptive_avg,          "3" },
    { "_adaptive_avg_pool3d_backward",    adaptive_avg_backward, "3" },
    { "adaptive_max_pool2d",              adaptive_max },
    { "adaptive_max_pool2d_backward",     adaptive_max_backward },
    { "adaptive_max_pool3d",              adaptive_max,          "3" },
    { "adaptive_max_pool3d_backward",     adaptive_max_backward, "3" },
    { "fractional_max_pool2d",            fractional_max },
    { "fractional_max_pool2d_backward",   fractional_max_backward },
    { "fractional_max_pool3d",            fractional_max,          "3" },
    { "fractional_max_pool3d_backward",   fractional_max_backward, "3" },
    { "max_unpool2d",                     max_unpool },
    { "max_unpool3d",                     max_unpool,            "3" },
    { NULL },
};
/* clang-format on */
