/* order.c - what needs the elements in order: sort, topk, median, mode, kthvalue.
 * NaN is the greatest of all [N3].
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops/arith.h"

/* Sorted values and their int64 places along dim. */
static void in_order(op_ctx *c, hlo x, int dim, bool descending, hlo *values, hlo *places)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = hlo_dtype(f, x);
    *values = x;
    *places = hlo_zeros(f, type_as(hlo_type(f, x), TPU_I64));
    if (!hlo_rank(f, x) || hlo_dim(f, x, dim) < 2 || !hlo_count(f, x)) return;
    if (dtype_is_complex(t)) {
        refuse(c);
        return;
    }
    /* int32 places: half the bytes moved, and int64 is emulated on a TPU */
    hlo pair[2] = {t == TPU_BOOL ? hlo_convert(f, x, TPU_U8) : x, hlo_iota(f, type_as(hlo_type(f, x), TPU_I32), dim)};
    hlo_sort(f, pair, 2, dim, descending, pair);
    *values = hlo_convert(f, pair[0], t);
    *places = hlo_convert(f, pair[1], TPU_I64);
}

static void sort_along(op_ctx *c, int dim_arg)
{
    hlo v, p;
    in_order(c, op_in(c, 0), op_dim(c, op_int(c, dim_arg), hlo_rank(op_fn(c), op_in(c, 0))), op_bool(c, dim_arg + 1), &v, &p);
    op_out(c, v);
    op_out(c, p);
}

static void sort_plain(op_ctx *c) { sort_along(c, 1); }      /* sort(self, dim, descending) */
static void sort_stable(op_ctx *c) { sort_along(c, 2); }     /* sort.stable(self, stable, dim, descending) */

/* The k greatest of each row of x [rows, n], for k far below n: they lie in the k chunks of greatest maximum, so only
 * those are sorted.  Chunks stay in their order and the padding stands last, so that it never comes before an element. */
static void topk_chunks(hlo_fn *f, hlo x, int64_t k, hlo *values, hlo *places)
{
    int64_t rows = hlo_dim(f, x, 0), n = hlo_dim(f, x, 1), size = 8;
    while (size * size * k < n) size *= 2;
    int64_t chunks = (n + size - 1) / size;
    hlo none = hlo_lowest(f, type_scalar(hlo_dtype(f, x)));
    x = hlo_pad(f, x, none, (int64_t[]){0, 0}, (int64_t[]){0, chunks * size - n}, NULL);
    x = hlo_reshape(f, x, 3, (int64_t[]){rows, chunks, size});
    hlo best = hlo_reduce(f, "maximum", x, 1u << 2);
    hlo pair[2] = {best, hlo_iota(f, type_as(hlo_type(f, best), TPU_I32), 1)};
    hlo_sort(f, pair, 2, 1, true, pair);
    hlo chunk = hlo_slice_dim(f, pair[1], 1, 0, k, 1);
    hlo_sort(f, &chunk, 1, 1, false, &chunk);
    tpu_type t = type_make(TPU_I32, 3, (int64_t[]){rows, k, size});
    hlo row = hlo_iota(f, hlo_type(f, chunk), 0);
    hlo at = plus(f, times(f, row, hlo_like_i(f, row, chunks)), chunk);
    hlo flat = hlo_reshape(f, x, 2, (int64_t[]){rows * chunks, size});
    hlo found = hlo_reshape(f, hlo_take(f, flat, hlo_flatten(f, at), 0), 2, (int64_t[]){rows, k * size});
    hlo place = hlo_broadcast_in_dim(f, times(f, chunk, hlo_like_i(f, chunk, size)), t, (int64_t[]){0, 1});
    place = hlo_reshape(f, plus(f, place, hlo_iota(f, t, 2)), 2, (int64_t[]){rows, k * size});
    hlo last[2] = {found, place};
    hlo_sort(f, last, 2, 1, true, last);
    *values = hlo_slice_dim(f, last[0], 1, 0, k, 1);
    *places = hlo_convert(f, hlo_slice_dim(f, last[1], 1, 0, k, 1), TPU_I64);
}

/* topk(self, k, dim, largest, sorted); always sorted */
static void topk(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), v, p;
    int rank = hlo_rank(f, x), dim = op_dim(c, op_int(c, 2), rank);
    int64_t k = op_int(c, 1), n = rank ? hlo_dim(f, x, dim) : 1;
    bool largest = op_bool(c, 3);
    if (k < 0 || k > n) {
        op_fail(c, TPU_INVALID, "selected index k out of range");
        return;
    }
    if (k == 1 && rank && !dtype_is_complex(hlo_dtype(f, x)) && hlo_count(f, x)) {    /* no sort for one */
        uint32_t dims = 1u << dim;
        hlo y = hlo_dtype(f, x) == TPU_BOOL ? hlo_convert(f, x, TPU_U8) : x;
        v = hlo_convert(f, hlo_reduce(f, largest ? "maximum" : "minimum", y, dims), hlo_dtype(f, x));
        p = hlo_argmax(f, y, dim, !largest);
        op_out(c, hlo_keepdims(f, v, x, dims));
        op_out(c, hlo_keepdims(f, p, x, dims));
        return;
    }
    tpu_dtype t = hlo_dtype(f, x);
    if (largest && k > 1 && dim == rank - 1 && n >= 64 * k && n >= 4096 && hlo_count(f, x) < INT32_MAX / 2
        && (dtype_is_int(t) || dtype_is_float(t)) && hlo_count(f, x)) {
        tpu_type r = hlo_type(f, x);
        topk_chunks(f, hlo_reshape(f, x, 2, (int64_t[]){hlo_count(f, x) / n, n}), k, &v, &p);
        r.dim[dim] = k;
        op_out(c, hlo_reshape(f, v, rank, r.dim));
        op_out(c, hlo_reshape(f, p, rank, r.dim));
        return;
    }
    in_order(c, x, dim, largest, &v, &p);
    op_out(c, rank ? hlo_slice_dim(f, v, dim, 0, k, 1) : v);
    op_out(c, rank ? hlo_slice_dim(f, p, dim, 0, k, 1) : p);
}

/* ---- one element of the order ---- */
static void give(op_ctx *c, hlo v, hlo like, int dim, bool keep)
{
    op_out(c, keep && hlo_rank(op_fn(c), like) ? hlo_keepdims(op_fn(c), v, like, 1u << dim) : v);
}

/* x at place k along dim, the dim gone. */
static hlo place(hlo_fn *f, hlo x, int dim, int64_t k)
{
    return hlo_rank(f, x) ? hlo_squeeze(f, hlo_slice_dim(f, x, dim, k, k + 1, 1), dim) : x;
}

/* The same, with a place of its own for each row (the shape of x without dim). */
static hlo place_of(hlo_fn *f, hlo x, int dim, hlo k)
{
    if (!hlo_rank(f, x)) return x;
    uint32_t dims = 1u << dim;
    tpu_dtype t = hlo_dtype(f, x);
    hlo here = hlo_compare(f, "EQ", hlo_iota(f, type_as(hlo_type(f, x), hlo_dtype(f, k)), dim), hlo_along(f, k, x, dims));
    /* the others read as -inf, not 0: a NaN that is chosen must come through, and -0 too */
    hlo y = hlo_select(f, here, x, hlo_lowest(f, hlo_type(f, x)));
    return t == TPU_BOOL ? hlo_reduce(f, "or", y, dims) : hlo_reduce(f, "maximum", y, dims);
}

/* kthvalue(self, k, dim, keepdim) */
static void kthvalue(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), v, p;
    int rank = hlo_rank(f, x), dim = op_dim(c, op_int(c, 2), rank);
    int64_t k = op_int(c, 1), n = rank ? hlo_dim(f, x, dim) : 1;
    if (k < 1 || k > n) {
        op_fail(c, TPU_INVALID, "kthvalue(): selected number k out of range for dimension %d", dim);
        return;
    }
    in_order(c, x, dim, false, &v, &p);
    give(c, place(f, v, dim, k - 1), x, dim, op_bool(c, 3));
    give(c, place(f, p, dim, k - 1), x, dim, op_bool(c, 3));
}

/* The lower middle element of dim and its place; with `skip` NaNs do not count, else the first NaN is the answer. */
static void middle(op_ctx *c, hlo x, int dim, bool skip, hlo *value, hlo *where)
{
    hlo_fn *f = op_fn(c);
    hlo v, p;
    in_order(c, x, dim, false, &v, &p);
    int64_t n = hlo_rank(f, x) ? hlo_dim(f, x, dim) : 1;
    uint32_t dims = hlo_rank(f, x) ? 1u << dim : 0;
    hlo nan = hlo_isnan(f, x);
    *value = place(f, v, dim, (n - 1) / 2);
    *where = place(f, p, dim, (n - 1) / 2);
    if (!dtype_is_float(hlo_dtype(f, x)) || !dims) return;
    if (!skip) {
        hlo any = hlo_reduce(f, "or", nan, dims);
        hlo first = hlo_argmax(f, hlo_convert(f, nan, TPU_U8), dim, false);
        *value = hlo_select(f, any, hlo_const_f(f, hlo_type(f, *value), __builtin_nan("")), *value);
        *where = hlo_select(f, any, first, *where);
        return;
    }
    hlo count = hlo_reduce(f, "add", hlo_convert(f, hlo_op1(f, "not", nan), TPU_I32), dims);
    hlo last = hlo_max(f, hlo_op2(f, "subtract", count, hlo_like_i(f, count, 1)), hlo_like_i(f, count, 0));
    hlo k = hlo_op2(f, "shift_right_logical", last, hlo_like_i(f, last, 1));
    *value = place_of(f, v, dim, k);
    *where = place_of(f, p, dim, k);
}

/* median(self), nanmedian(self); word: NaNs do not count */
static void median_all(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = hlo_flatten(f, op_in(c, 0)), v, p;
    if (!hlo_count(f, x)) {
        tpu_dtype t = hlo_dtype(f, x);
        op_out(c, dtype_is_integral(t) ? hlo_lowest(f, type_scalar(t)) : hlo_const_f(f, type_scalar(t), __builtin_nan("")));
        return;
    }
    middle(c, x, 0, op_row_of(c)->word != NULL, &v, &p);
    op_out(c, v);
}

/* median.dim(self, dim, keepdim), nanmedian.dim */
static void median_dim(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), v, p;
    int rank = hlo_rank(f, x), dim = op_dim(c, op_int(c, 1), rank);
    if (rank && !hlo_dim(f, x, dim)) {
        op_fail(c, TPU_OUT_OF_RANGE, "median(): Expected reduction dim %d to have non-zero size.", dim);
        return;
    }
    middle(c, x, dim, op_row_of(c)->word != NULL, &v, &p);
    give(c, v, x, dim, op_bool(c, 2));
    give(c, p, x, dim, op_bool(c, 2));
}

/* mode(self, dim, keepdim): the longest run of the order, of equal runs the least; its last place. */
static void mode(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), v, p;
    int rank = hlo_rank(f, x), dim = op_dim(c, op_int(c, 1), rank);
    bool keep = op_bool(c, 2);
    if (rank && !hlo_dim(f, x, dim)) {
        op_fail(c, TPU_OUT_OF_RANGE, "mode(): Expected reduction dim %d to have non-zero size.", dim);
        return;
    }
    in_order(c, x, dim, false, &v, &p);
    if (rank && hlo_dim(f, x, dim) > 1 && hlo_count(f, x)) {
        int64_t n = hlo_dim(f, x, dim), lo[TYPE_MAX_RANK] = {0}, hi[TYPE_MAX_RANK] = {0};
        hlo same = hlo_compare(f, "EQ", hlo_slice_dim(f, v, dim, 1, n, 1), hlo_slice_dim(f, v, dim, 0, n - 1, 1));
        lo[dim] = 1;
        same = hlo_pad(f, same, hlo_const_i(f, type_scalar(TPU_BOOL), 0), lo, hi, NULL);
        hlo at = hlo_iota(f, type_as(hlo_type(f, x), TPU_I32), dim);
        hlo start = hlo_cumulative(f, "maximum", hlo_select(f, same, hlo_like_i(f, at, 0), at), dim, false);
        hlo best = hlo_argmax(f, hlo_op2(f, "subtract", at, start), dim, false);
        v = place_of(f, v, dim, best);
        p = place_of(f, p, dim, best);
    } else if (rank) {
        v = hlo_count(f, x) ? place(f, v, dim, 0) : hlo_reduce(f, "add", v, 1u << dim);
        p = hlo_count(f, x) ? place(f, p, dim, 0) : hlo_reduce(f, "add", p, 1u << dim);
    }
    give(c, v, x, dim, keep);
    give(c, p, x, dim, keep);
}

/* clang-format off */
const op_row ops_order[] = {
    { "sort",          sort_plain },
    { "sort.stable",   sort_stable },
    { "topk",          topk },
    { "kthvalue",      kthvalue },
    { "median",        median_all },
    { "nanmedian",     median_all, "skip" },
    { "median.dim",    median_dim },
    { "nanmedian.dim", median_dim, "skip" },
    { "mode",          mode },
    { NULL },
};
/* clang-format on */
