/* fold.c - sliding windows as columns and back: im2col, col2im, and the gradient of unfold.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arith.h"
#include "words.h"

typedef struct window {
    int64_t size, dilation, stride, count;
} window; /* along one dim */

/* Window sizes up to here are slices one by one; wider ones are one gather or scatter. */
enum { FEW = 32 };

/* Where element j of window i lies, [size * count] in the order j, i. */
static hlo places(hlo_fn *f, const window *w)
{
    tpu_type t = type_make(TPU_I64, 2, (int64_t[]){w->size, w->count});
    hlo j = hlo_iota(f, t, 0), i = hlo_iota(f, t, 1);
    return hlo_flatten(f,
                       plus(f, times(f, j, hlo_like_i(f, j, w->dilation)), times(f, i, hlo_like_i(f, i, w->stride))));
}

/* x's dim d becomes [size, count]. */
static hlo spread(hlo_fn *f, hlo x, int d, const window *w)
{
    tpu_type t = hlo_type(f, x);
    for (int i = t.rank++; i > d; i--) t.dim[i] = t.dim[i - 1];
    t.dim[d] = w->size;
    t.dim[d + 1] = w->count;
    if (w->size > FEW) return hlo_reshape(f, hlo_take(f, x, places(f, w), d), t.rank, t.dim);
    hlo part[FEW];
    for (int64_t j = 0; j < w->size; j++) {
        int64_t first = j * w->dilation, end = first + (w->count - 1) * w->stride + 1;
        part[j] = hlo_unsqueeze(f, hlo_slice_dim(f, x, d, first, end, w->stride), d);
    }
    return hlo_concat(f, part, (int)w->size, d);
}

/* The transpose of spread: dims d, d + 1 become the n elements that they were taken from. */
static hlo gathered(hlo_fn *f, hlo g, int d, const window *w, int64_t n)
{
    tpu_type t = hlo_type(f, g);
    int64_t lo[TYPE_MAX_RANK] = {0}, hi[TYPE_MAX_RANK] = {0}, between[TYPE_MAX_RANK] = {0};
    hlo zero = hlo_zeros(f, type_scalar((tpu_dtype)t.dtype)), sum = HLO_NONE;
    between[d] = w->stride - 1;
    for (int64_t j = 0; j < w->size && w->size <= FEW; j++) {
        lo[d] = j * w->dilation;
        hi[d] = n - lo[d] - ((w->count - 1) * w->stride + 1);
        hlo part = hlo_squeeze(f, hlo_slice_dim(f, g, d, j, j + 1, 1), d);
        part = hlo_pad(f, part, zero, lo, hi, between);
        sum = j ? plus(f, sum, part) : part;
    }
    if (w->size <= FEW) return sum;
    t.rank--;
    for (int i = d; i < t.rank; i++) t.dim[i] = t.dim[i + 1];
    t.dim[d] = w->size * w->count;
    g = hlo_swap(f, hlo_reshape(f, g, t.rank, t.dim), 0, d);
    hlo_gather_dims s = {.ncollapsed = 1, .nmap = 1, .index_vector_dim = 1};
    for (int i = 1; i < t.rank; i++) s.offset[s.noffset++] = i;
    tpu_type whole = hlo_type(f, g);
    whole.dim[0] = n;
    return hlo_swap(f, hlo_scatter(f, "add", hlo_zeros(f, whole), hlo_unsqueeze(f, places(f, w), 1), g, &s), 0, d);
}

/* ---- two dims ---- */
typedef struct grid {
    window w[2];
    int64_t pad[2];
} grid;

static bool read_pair(op_ctx *c, int arg, const char *name, const char *word, int64_t least, int64_t *out)
{
    int n;
    const int64_t *v = op_ints(c, arg, &n);
    if (n != 2) {
        op_fail(c, TPU_INVALID, "It is expected %s equals to 2, but got size %d", word[0] == 'k' ? "kernel_size" : name,
                n);
        return false;
    }
    out[0] = v[0];
    out[1] = v[1];
    if (v[0] < least || v[1] < least)
        op_fail(c, TPU_INVALID, "%s should be %s, but got %s_height: %lld %s_width: %lld", name,
                least ? "greater than zero" : "non-negative", word, (long long)v[0], word, (long long)v[1]);
    return !hlo_failed(op_fn(c));
}

/* kernel_size, dilation, padding, stride from argument `first` on */
static bool read_grid(op_ctx *c, int first, grid *g)
{
    int64_t size[2], dilation[2], stride[2];
    if (!read_pair(c, first, "kernel size", "kernel", 1, size) ||
        !read_pair(c, first + 3, "stride", "stride", 1, stride) ||
        !read_pair(c, first + 1, "dilation", "dilation", 1, dilation) ||
        !read_pair(c, first + 2, "padding", "pad", 0, g->pad))
        return false;
    for (int i = 0; i < 2; i++) g->w[i] = (window){size[i], dilation[i], stride[i], 0};
    return true;
}

static void count_windows(grid *g, const int64_t *size)
{
    for (int i = 0; i < 2; i++) {
        window *w = &g->w[i];
        int64_t span = size[i] + 2 * g->pad[i] - w->dilation * (w->size - 1) - 1;
        w->count = (span >= 0 ? span / w->stride : -((-span + w->stride - 1) / w->stride)) + 1;
    }
}

#define PAIR "(%lld, %lld)"
#define OF(a, b) (long long)(a), (long long)(b)

/* im2col(self, kernel_size, dilation, padding, stride): [n, c, h, w] to [n, c * kernel, windows] */
static void im2col(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_type t = hlo_type(f, x);
    grid g;
    if (!read_grid(c, 1, &g)) return;
    int b = t.rank == 4;
    if ((t.rank != 3 && t.rank != 4) || !t.dim[b] || !t.dim[b + 1] || !t.dim[b + 2]) {
        op_fail(c, TPU_INVALID,
                "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
                "input, but got: %s",
                sizes_in_words(t).s);
        return;
    }
    if (dtype_is_int((tpu_dtype)t.dtype)) {
        refuse(c);
        return;
    }
    const int64_t *size = t.dim + b + 1;
    const window *h = &g.w[0], *w = &g.w[1];
    count_windows(&g, size);
    if (h->count < 1 || w->count < 1) {
        op_fail(c, TPU_INVALID,
                "Given input with spatial size " PAIR ", kernel_size=" PAIR ", dilation=" PAIR ", padding=" PAIR
                ", calculated shape of the array of sliding blocks as " PAIR
                ", but its components must be at least one.",
                OF(size[0], size[1]), OF(h->size, w->size), OF(h->dilation, w->dilation), OF(g.pad[0], g.pad[1]),
                OF(h->count, w->count));
        return;
    }
    int64_t edge[4] = {0, 0, 0, 0};
    edge[b + 1] = g.pad[0];
    edge[b + 2] = g.pad[1];
    x = hlo_pad(f, x, hlo_zeros(f, type_scalar((tpu_dtype)t.dtype)), edge, edge, NULL);
    x = spread(f, spread(f, x, b + 2, w), b + 1, h);    /* [n, c, kh, h, kw, w] */
    x = hlo_swap(f, x, b + 2, b + 3);
    int64_t out[3] = {t.dim[0], t.dim[b] * h->size * w->size, h->count * w->count};
    op_out(c, hlo_reshape(f, x, b + 2, b ? out : out + 1));
}

static bool columns_fit(op_ctx *c, tpu_type t, const grid *g, const int64_t *size)
{
    const window *h = &g->w[0], *w = &g->w[1];
    int b = t.rank == 3;
    if ((t.rank != 2 && t.rank != 3) || !t.dim[b] || !t.dim[b + 1])
        op_fail(c, TPU_INVALID,
                "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions "
                "for input, but got: %s",
                sizes_in_words(t).s);
    else if (t.dim[b] % (h->size * w->size))
        op_fail(c, TPU_INVALID,
                "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
                "input.size(1)=%lld and kernel_size=" PAIR ".",
                (long long)t.dim[b], OF(h->size, w->size));
    else if (t.dim[b + 1] != h->count * w->count)
        op_fail(c, TPU_INVALID,
                "Given output_size=" PAIR ", kernel_size=" PAIR ", dilation=" PAIR ", padding=" PAIR ", stride=" PAIR
                ", expected size of input's dimension 2 to match the calculated number of sliding blocks %lld * %lld = "
                "%lld, but got input.size(2)=%lld.",
                OF(size[0], size[1]), OF(h->size, w->size), OF(h->dilation, w->dilation), OF(g->pad[0], g->pad[1]),
                OF(h->stride, w->stride), OF(h->count, w->count), OF(h->count * w->count, t.dim[b + 1]));
    return !hlo_failed(op_fn(c));
}

/* col2im(self, output_size, kernel_size, dilation, padding, stride): the sum of what lies over each place */
static void col2im(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, op_in(c, 0));
    grid g;
    int n;
    const int64_t *size = op_ints(c, 1, &n);
    if (n != 2) op_fail(c, TPU_INVALID, "It is expected output_size equals to 2, but got size %d", n);
    if (hlo_failed(f) || !read_grid(c, 2, &g)) return;
    count_windows(&g, size);
    if (!columns_fit(c, t, &g, size)) return;
    if (dtype_is_integral((tpu_dtype)t.dtype)) {
        refuse(c);
        return;
    }
    const window *h = &g.w[0], *w = &g.w[1];
    int b = t.rank == 3;
    int64_t dim[6] = {t.dim[0], t.dim[b] / (h->size * w->size), h->size, w->size, h->count, w->count};
    hlo x = hlo_swap(f, hlo_reshape(f, op_in_math(c, 0), b + 5, b ? dim : dim + 1), b + 2, b + 3);
    x = gathered(f, x, b + 3, w, size[1] + 2 * g.pad[1]);
    x = gathered(f, x, b + 1, h, size[0] + 2 * g.pad[0]);
    x = hlo_slice_dim(f, x, b + 1, g.pad[0], g.pad[0] + size[0], 1);
    op_out_as(c, hlo_slice_dim(f, x, b + 2, g.pad[1], g.pad[1] + size[1], 1), (tpu_dtype)t.dtype);
}

/* unfold_backward(grad, input_sizes, dim, size, step) */
static void unfold_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0);
    int rank, r = hlo_rank(f, g);
    const int64_t *size = op_ints(c, 1, &rank);
    int d = op_dim(c, op_int(c, 2), rank);
    window w = {op_int(c, 3), 1, op_int(c, 4), 1};
    if (r != rank + 1 || w.size < 1 || w.stride < 1) {  /* a scalar, or empty windows */
        tpu_type t = type_make(hlo_dtype(f, g), rank, size);
        op_out_as(c, rank == 0 && hlo_count(f, g) == 1 ? hlo_reshape(f, g, 0, NULL) : hlo_zeros(f, t), arg_dtype(c, 0));
        return;
    }
    int64_t perm[TYPE_MAX_RANK];
    for (int i = 0; i < r; i++) perm[i] = i < d ? i : i == d ? r - 1 : i - 1;
    w.count = hlo_dim(f, g, d);
    op_out_as(c, gathered(f, hlo_transpose(f, g, perm), d, &w, size[d]), arg_dtype(c, 0));
}

/* clang-format off */
const op_row ops_fold[] = {
    { "im2col",          im2col },
    { "col2im",          col2im },
    { "unfold_backward", unfold_backward },
    { NULL },
};
/* clang-format on */
