/* bag.c - embedding bags: sums, means or maxima of the rows of a table over stretches of indices, with gradients;
 * renorm of the rows that are used.  A row that does not count (padding, or past the last bag) is sent to a place out
 * of range, where a scatter drops it [E4]. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "arith.h"

enum { SUM, MEAN, MAX };                                /* mode */

static hlo wide_rows(hlo_fn *f, hlo v, tpu_type like)
{ return hlo_broadcast_in_dim(f, v, type_as(like, hlo_dtype(f, v)), (int64_t[]){0}); }

static hlo cut(hlo_fn *f, hlo i, int64_t n)
{
    tpu_type one = type_scalar(TPU_I64);
    return hlo_clamp(f, hlo_const_i(f, one, 0), i, hlo_const_i(f, one, n > 0 ? n - 1 : 0));
}

static hlo indices_of(op_ctx *c, int arg) { return hlo_convert(op_fn(c), op_in(c, arg), TPU_I64); }

/* updates [n, ...] into x's rows at index [n] */
static hlo scatter_rows(hlo_fn *f, const char *op, hlo x, hlo index, hlo updates)
{
    hlo_gather_dims d = {.ncollapsed = 1, .nmap = 1, .index_vector_dim = 1};
    for (int i = 1; i < hlo_rank(f, updates); i++) d.offset[d.noffset++] = i;
    return hlo_scatter(f, op, x, hlo_unsqueeze(f, index, 1), updates, &d);
}

/* The bag of each of n places: one more at each offset. */
static hlo bags_from(hlo_fn *f, hlo offsets, int64_t n)
{
    hlo zero = hlo_zeros(f, type_make(TPU_I64, 1, &n));
    if (n == 0) return zero;
    hlo starts = scatter_rows(f, "add", zero, offsets, hlo_like_i(f, offsets, 1));
    return plus(f, hlo_cumulative(f, "add", starts, 0, false), hlo_like_i(f, zero, -1));
}

/* index, or `out` (out of range) where it is padding; padding -1: none */
static hlo without_padding(hlo_fn *f, hlo value, hlo index, int64_t padding, int64_t out)
{
    return padding < 0 ? value
                       : hlo_select(f, hlo_compare(f, "EQ", index, hlo_like_i(f, index, padding)),
                                    hlo_like_i(f, value, out), value);
}

/* ---- forward ---- */
typedef struct bags {
    int64_t n, count, rows;
    hlo index, raw, bag;            /* [n]: the row (clamped), its bag, its bag or `count` where it does not count */
} bags;

static bool fit(op_ctx *c, tpu_type w, tpu_type i, tpu_type o)
{
    bool ints = (i.dtype == TPU_I64 || i.dtype == TPU_I32) && (o.dtype == TPU_I64 || o.dtype == TPU_I32);
    if (w.rank != 2) op_fail(c, TPU_INVALID, "embedding_bag: expected a weight with 2 dims, got %d", w.rank);
    else if (i.rank != 1)
        op_fail(c, TPU_INVALID, "input has to be a 1D Tensor, but got Tensor of dimension %d", i.rank);
    else if (o.rank != 1)
        op_fail(c, TPU_INVALID, "offsets has to be a 1D Tensor, but got Tensor of dimension %d", o.rank);
    else if (!ints || !dtype_is_float((tpu_dtype)w.dtype)) refuse(c);
    else if (op_has(c, 6) && op_int(c, 4) != SUM)
        op_fail(c, TPU_INVALID, "embedding_bag: per_sample_weights only supported with mode='sum'");
    else if (op_bool(c, 7) && o.dim[0] < 1)
        op_fail(c, TPU_INVALID, "include_last_offset: number of offsets should be at least 1");
    return !hlo_failed(op_fn(c));
}

static void guard_offsets(op_ctx *c, hlo offsets, int64_t n)
{
    hlo_fn *f = op_fn(c);
    int64_t len = hlo_dim(f, offsets, 0);
    if (len == 0) return;
    hlo first = hlo_slice_dim(f, offsets, 0, 0, 1, 1), last = hlo_slice_dim(f, offsets, 0, len - 1, len, 1);
    op_guard(c, compare_k(f, "NE", first, 0),
             "!offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0.");
    op_guard(c, compare_k(f, "GT", last, (double)n), "!offsets[-1] can not be greater than input's length");
}

/* (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx) */
static bool read_bags(op_ctx *c, bags *b)
{
    hlo_fn *f = op_fn(c);
    tpu_type w = hlo_type(f, op_in(c, 0)), i = hlo_type(f, op_in(c, 1)), o = hlo_type(f, op_in(c, 2));
    if (!fit(c, w, i, o)) return false;
    hlo offsets = indices_of(c, 2), index = indices_of(c, 1);
    *b = (bags){.n = i.dim[0], .count = o.dim[0] - op_bool(c, 7), .rows = w.dim[0]};
    op_guard(c, either(f, compare_k(f, "LT", index, 0), compare_k(f, "GE", index, (double)b->rows)),
             "!an index of the input is not in the valid range of the embedding bag's rows");
    guard_offsets(c, offsets, b->n);
    b->index = cut(f, index, b->rows);
    b->raw = bags_from(f, offsets, b->n);
    b->bag = without_padding(f, b->raw, index, op_int(c, 8), b->count);
    return true;
}

/* The sums of rows [n, d] a bag. */
static hlo bag_sum(hlo_fn *f, const bags *b, hlo rows)
{
    tpu_type t = hlo_type(f, rows);
    t.dim[0] = b->count;
    return scatter_rows(f, "add", hlo_zeros(f, t), b->bag, rows);
}

/* The maxima a bag, 0 of an empty one, and which row of the table gave them: the first of equals. */
static hlo bag_max(hlo_fn *f, const bags *b, hlo rows, hlo *which)
{
    tpu_type t = hlo_type(f, rows), out = t, whole;
    out.dim[0] = b->count;
    whole = type_as(out, TPU_I64);
    *which = hlo_zeros(f, whole);
    if (b->n == 0 || b->count == 0) return hlo_zeros(f, out);
    hlo best = scatter_rows(f, "maximum", hlo_lowest(f, out), b->bag, rows);
    hlo own = hlo_take(f, best, cut(f, b->bag, b->count), 0), place = hlo_iota(f, type_as(t, TPU_I64), 0);
    hlo none = hlo_like_i(f, place, b->n), last = hlo_const_i(f, whole, b->n);
    hlo hit = either(f, hlo_compare(f, "EQ", rows, own), hlo_compare(f, "NE", rows, rows));
    hlo first = scatter_rows(f, "minimum", last, b->bag, hlo_select(f, hit, place, none));
    hlo some = hlo_compare(f, "LT", first, last);
    *which = hlo_select(f, some, hlo_take(f, b->index, cut(f, first, b->n), 0), *which);
    return hlo_select(f, some, best, hlo_zeros(f, out));
}

/* -> (output, offset2bag, bag_size, max_indices); the latter are what a device that is not the CPU has */
static void embedding_bag(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bags b;
    if (!read_bags(c, &b)) return;
    int64_t mode = op_int(c, 4), offsets = hlo_dim(f, op_in(c, 2), 0), none = 0;
    tpu_dtype it = arg_dtype(c, 1);
    hlo w = op_in(c, 0), rows = hlo_convert(f, hlo_take(f, w, b.index, 0), dtype_compute(arg_dtype(c, 0)));
    tpu_type t = hlo_type(f, rows);
    if (op_has(c, 6)) rows = times(f, rows, wide_rows(f, hlo_convert(f, op_in(c, 6), (tpu_dtype)t.dtype), t));
    hlo one = hlo_const_i(f, type_make(TPU_I64, 1, &b.n), 1);
    hlo size = scatter_rows(f, "add", hlo_zeros(f, type_make(TPU_I64, 1, &offsets)),
                            without_padding(f, b.bag, b.bag, b.count, offsets), one);
    hlo which = hlo_zeros(f, type_make(TPU_I64, 1, &none)), out;
    if (mode == MAX) out = bag_max(f, &b, rows, &which);
    else out = bag_sum(f, &b, rows);
    if (mode == MEAN) {
        hlo n = hlo_slice_dim(f, size, 0, 0, b.count, 1);
        out = over(
            f, out,
            wide_rows(f, hlo_convert(f, hlo_max(f, n, hlo_like_i(f, n, 1)), (tpu_dtype)t.dtype), hlo_type(f, out)));
    }
    op_out_as(c, out, arg_dtype(c, 0));
    op_out_as(c, b.raw, it);
    op_out_as(c, size, it);
    op_out_as(c, which, it);
}

/* ---- gradients ---- */
/* g [bags, d] by place, [n, d]; 0 where no bag is */
static hlo by_place(hlo_fn *f, hlo g, hlo bag)
{
    int64_t count = hlo_dim(f, g, 0);
    hlo rows = hlo_take(f, g, cut(f, bag, count), 0);
    tpu_type t = hlo_type(f, rows);
    hlo in = hlo_compare(f, "LT", bag, hlo_like_i(f, bag, count));
    return hlo_select(f, wide_rows(f, in, t), rows, hlo_zeros(f, t));
}

static hlo zeros_for(hlo_fn *f, hlo g, int64_t rows)
{ return hlo_zeros(f, type_make(hlo_dtype(f, g), 2, (int64_t[]){rows, hlo_dim(f, g, 1)})); }

/* Each maximum's gradient to the row that gave it, column by column. */
static hlo max_backward(hlo_fn *f, hlo g, hlo which, hlo size, int64_t rows)
{
    tpu_type t = hlo_type(f, g), it = type_as(t, TPU_I64);
    hlo some = compare_k(f, "GT", hlo_slice_dim(f, size, 0, 0, t.dim[0], 1), 0);
    g = hlo_select(f, wide_rows(f, some, t), g, hlo_zeros(f, t));
    hlo at[2] = {hlo_unsqueeze(f, which, 2), hlo_unsqueeze(f, hlo_iota(f, it, 1), 2)};
    hlo_gather_dims d = {.ncollapsed = 2, .nmap = 2, .collapsed = {0, 1}, .map = {0, 1}, .index_vector_dim = 2};
    return hlo_scatter(f, "add", zeros_for(f, g, rows), hlo_concat(f, at, 2, 2), g, &d);
}

typedef struct back {
    int bag, rows, freq, mode, weights, padding;
} back; /* positions of arguments */

static void dense_backward(op_ctx *c, const back *p, hlo bag)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0), index = indices_of(c, 1), size = indices_of(c, p->bag + 1);
    int64_t rows = op_int(c, p->rows), mode = op_int(c, p->mode), n = hlo_count(f, index);
    if (hlo_rank(f, g) != 2) op_fail(c, TPU_INVALID, "grad_ must be 2-dimensional");
    if (!dtype_is_float(hlo_dtype(f, g))) refuse(c);
    if (hlo_failed(f)) return;
    tpu_dtype t = hlo_dtype(f, g);
    if (mode == MAX) {
        op_out_as(c, max_backward(f, g, indices_of(c, p->bag + 2), size, rows), arg_dtype(c, 0));
        return;
    }
    if (mode == MEAN) {
        hlo each = hlo_slice_dim(f, size, 0, 0, hlo_dim(f, g, 0), 1);
        g = over(f, g, wide_rows(f, hlo_convert(f, hlo_max(f, each, hlo_like_i(f, each, 1)), t), hlo_type(f, g)));
    }
    hlo each = hlo_dim(f, g, 0) ? by_place(f, g, bag) : hlo_zeros(f, type_make(t, 2, (int64_t[]){n, hlo_dim(f, g, 1)}));
    if (op_bool(c, p->freq) && n) {
        hlo count =
            scatter_rows(f, "add", hlo_zeros(f, type_make(t, 1, &rows)), index, hlo_const_f(f, type_make(t, 1, &n), 1));
        each = over(f, each, wide_rows(f, hlo_take(f, count, cut(f, index, rows), 0), hlo_type(f, each)));
    }
    if (op_has(c, p->weights))
        each = times(f, each, wide_rows(f, hlo_convert(f, op_in(c, p->weights), t), hlo_type(f, each)));
    index = without_padding(f, index, index, op_int(c, p->padding), rows);
    op_out_as(c, scatter_rows(f, "add", zeros_for(f, g, rows), index, each), arg_dtype(c, 0));
}

/* _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq,
 * mode, per_sample_weights, padding_idx) */
static void bag_dense_backward(op_ctx *c) { dense_backward(c, &(back){2, 5, 6, 7, 8, 9}, indices_of(c, 2)); }

/* Forms of the forward that come from elsewhere may have left offset2bag empty. */
static hlo bags_given(op_ctx *c, int offsets, int bag)
{
    int64_t n = hlo_count(op_fn(c), op_in(c, 1));
    return hlo_count(op_fn(c), op_in(c, bag)) == n ? indices_of(c, bag)
                                                   : bags_from(op_fn(c), indices_of(c, offsets), n);
}

/* _embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights,
 * scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx) */
static void bag_backward(op_ctx *c)
{
    if (op_bool(c, 9)) op_fail(c, TPU_UNIMPLEMENTED, "a sparse gradient of an embedding bag");
    else dense_backward(c, &(back){3, 6, 7, 8, 10, 11}, bags_given(c, 2, 3));
}

/* _embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, offset2bag, mode, padding_idx) */
static void bag_weights_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0), w = op_in(c, 1), index = indices_of(c, 2);
    int64_t n = hlo_count(f, index), rows = hlo_dim(f, w, 0), padding = op_int(c, 6);
    if (op_int(c, 5) != SUM)
        op_fail(c, TPU_INVALID, "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
    if (hlo_failed(f)) return;
    tpu_type t = type_make(hlo_dtype(f, g), 1, &n);
    if (!n || !hlo_count(f, g) || !rows) {
        op_out_as(c, hlo_zeros(f, t), arg_dtype(c, 0));
        return;
    }
    hlo bag = hlo_count(f, op_in(c, 4)) == n ? indices_of(c, 4) : bags_from(f, indices_of(c, 3), n);
    hlo each = hlo_convert(f, hlo_take(f, w, cut(f, index, rows), 0), (tpu_dtype)t.dtype);
    hlo dot = hlo_reduce(f, "add", times(f, by_place(f, g, bag), each), 2);
    if (padding >= 0) dot = hlo_select(f, compare_k(f, "EQ", index, (double)padding), hlo_zeros(f, t), dot);
    op_out_as(c, dot, arg_dtype(c, 0));
}

/* ---- embedding_renorm_(self, indices, max_norm, norm_type): rows that are used are cut to a length of max_norm ----
 */
static hlo lengths(hlo_fn *f, hlo rows, double p)
{
    hlo a = magnitude(f, rows);
    if (p == INFINITY) return hlo_reduce(f, "maximum", a, 2);
    if (p == -INFINITY) return hlo_reduce(f, "minimum", a, 2);
    if (p == 0) return hlo_reduce(f, "add", hlo_convert(f, compare_k(f, "NE", a, 0), hlo_dtype(f, a)), 2);
    if (p == 1) return hlo_reduce(f, "add", a, 2);
    if (p == 2) return root(f, hlo_reduce(f, "add", square(f, a), 2));
    hlo s = hlo_reduce(f, "add", hlo_op2(f, "power", a, hlo_like_f(f, a, p)), 2);
    return hlo_op2(f, "power", s, hlo_like_f(f, s, 1 / p));
}

static void embedding_renorm(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo w = op_in(c, 0), index = hlo_flatten(f, indices_of(c, 1));
    int64_t rows = hlo_dim(f, w, 0);
    if (hlo_rank(f, w) != 2)
        op_fail(c, TPU_INVALID,
                "Expected 2-dimensional tensor, but got %d-dimensional tensor for argument #1 'self' (while checking "
                "arguments for embedding_renorm_)",
                hlo_rank(f, w));
    if (!dtype_is_float(hlo_dtype(f, w))) refuse(c);
    if (hlo_failed(f) || hlo_count(f, index) == 0 || hlo_count(f, w) == 0) {
        if (!hlo_failed(f)) op_write(c, 0, w);
        return;
    }
    op_guard(c, either(f, compare_k(f, "LT", index, 0), compare_k(f, "GE", index, (double)rows)),
             "!index out of range in self");
    index = cut(f, index, rows);
    hlo x = hlo_take(f, op_in_math(c, 0), index, 0), length = lengths(f, x, op_number(c, 3)),
        most = number_like(c, 2, length);
    hlo scale = hlo_select(f, hlo_compare(f, "GT", length, most), over(f, most, plus_k(f, length, 1e-7)),
                           hlo_like_f(f, length, 1));
    x = hlo_convert(f, times(f, x, wide_rows(f, scale, hlo_type(f, x))), hlo_dtype(f, w));
    op_write(c, 0, scatter_rows(f, "assign", w, index, x)); /* equal rows get equal values */
}

/* clang-format off */
const op_row ops_bag[] = {
    { "_embedding_bag",                              embedding_bag },
    { "_embedding_bag_forward_only",                 embedding_bag },
    { "_embedding_bag_backward",                     bag_backward },
    { "_embedding_bag_dense_backward",               bag_dense_backward },
    { "_embedding_bag_per_sample_weights_backward",  bag_weights_backward },
    { "embedding_renorm_",                           embedding_renorm, .fixed = 1u << 3 },
    { NULL },
};
/* clang-format on */
