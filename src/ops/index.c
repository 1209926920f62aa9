/* index.c - reading and writing at computed places.  Indices are checked [E4]: clamped, and flagged for whoever reads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

static const char out_of_range[] = "index out of range in self";
static const char out_of_bounds[] = "!index is out of bounds for its dimension"; /* gather and scatter: RuntimeError */

static hlo all_of(hlo_fn *f, hlo x, int64_t v) { return hlo_like_i(f, x, v); }

/* In [0, size), negatives counted from the end where PyTorch does; int64. */
static hlo checked_or(op_ctx *c, hlo index, int64_t size, bool negative, const char *words)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = hlo_dtype(f, index);
    if (!dtype_is_int(t)) {
        op_fail(c, TPU_INVALID, "expected an integer index tensor, got %s", dtype_torch_name(t));
        return HLO_NONE;
    }
    index = hlo_convert(f, index, TPU_I64);
    if (negative) index = hlo_select(f, hlo_compare(f, "LT", index, all_of(f, index, 0)), hlo_op2(f, "add", index, all_of(f, index, size)), index);
    hlo low = hlo_compare(f, "LT", index, all_of(f, index, 0)), high = hlo_compare(f, "GE", index, all_of(f, index, size));
    op_guard(c, hlo_op2(f, "or", low, high), words);
    tpu_type one = type_scalar(TPU_I64);
    return hlo_clamp(f, hlo_const_i(f, one, 0), index, hlo_const_i(f, one, size > 0 ? size - 1 : 0));
}

static hlo checked(op_ctx *c, hlo index, int64_t size, bool negative) { return checked_or(c, index, size, negative, out_of_range); }

/* ---- one dim ---- */
static void index_select(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), index = op_in(c, 2);
    int rank = hlo_rank(f, x), d = op_dim(c, op_int(c, 1), rank);
    if (hlo_rank(f, index) > 1) {
        op_fail(c, TPU_OUT_OF_RANGE, "index_select(): Index is supposed to be a vector");
        return;
    }
    if (rank == 0) {
        op_out(c, x);
        return;
    }
    if (hlo_rank(f, index) == 0) index = hlo_unsqueeze(f, index, 0);
    op_out(c, hlo_take(f, x, checked(c, index, hlo_dim(f, x, d), false), d));
}

/* take(self, index): of the flat tensor */
static void take(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = hlo_flatten(f, op_in(c, 0));
    op_out(c, hlo_take(f, x, checked(c, op_in(c, 1), hlo_count(f, x), true), 0));
}

static bool put_fits(op_ctx *c, tpu_type x, tpu_type index, tpu_type src)
{
    int64_t n = type_count(&index), m = type_count(&src);
    if (index.dtype != TPU_I64)
        op_fail(c, TPU_INVALID, "put_(): Expected a long tensor for index, but got %s", dtype_torch_name((tpu_dtype)index.dtype));
    else if (src.dtype != x.dtype)
        op_fail(c, TPU_INVALID, "put_(): self and source expected to have the same dtype, but got self.dtype = %s and source.dtype = %s",
                dtype_torch_name((tpu_dtype)x.dtype), dtype_torch_name((tpu_dtype)src.dtype));
    else if (m != n)
        op_fail(c, TPU_OUT_OF_RANGE, "put_(): Expected source and index to have the same number of elements, but got source.numel() = %lld, index.numel() = %lld", (long long)m,
                (long long)n);
    else if (n && !type_count(&x)) op_fail(c, TPU_OUT_OF_RANGE, "put_(): Tried to put elements into an empty tensor");
    return !hlo_failed(op_fn(c));
}

/* put(self, index, source, accumulate): into the flat tensor */
static void put(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), index = op_in(c, 1), src = op_in(c, 2);
    tpu_type t = hlo_type(f, x);
    if (!put_fits(c, t, hlo_type(f, index), hlo_type(f, src))) return;
    if (hlo_count(f, index) == 0) {
        op_out(c, x);
        return;
    }
    hlo_gather_dims d = {.ncollapsed = 1, .nmap = 1, .index_vector_dim = 1};
    hlo at = hlo_unsqueeze(f, hlo_flatten(f, checked(c, index, hlo_count(f, x), true)), 1);
    hlo r = hlo_scatter(f, op_bool(c, 3) ? "add" : "assign", hlo_flatten(f, x), at, hlo_flatten(f, src), &d);
    op_out(c, hlo_reshape(f, r, t.rank, t.dim));
}

/* embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse) */
static void embedding(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo w = op_in(c, 0);
    if (hlo_rank(f, w) != 2) {
        op_fail(c, TPU_INVALID, "'weight' must be 2-D");
        return;
    }
    op_out(c, hlo_take(f, w, checked(c, op_in(c, 1), hlo_dim(f, w, 0), false), 0));
}

/* Rows of updates [n, ...] into the rows of x at flat indices [n]. */
static hlo scatter_rows(hlo_fn *f, const char *op, hlo x, hlo index, hlo updates)
{
    hlo_gather_dims d = {.ncollapsed = 1, .nmap = 1, .index_vector_dim = 1};
    for (int i = 1; i < hlo_rank(f, updates); i++) d.offset[d.noffset++] = i;
    return hlo_scatter(f, op, x, hlo_unsqueeze(f, index, 1), updates, &d);
}

/* embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq) */
static void embedding_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0), index = hlo_convert(f, hlo_flatten(f, op_in(c, 1)), TPU_I64);
    int64_t rows = op_int(c, 2), width = hlo_dim(f, g, -1), n = hlo_count(f, index), pad = op_int(c, 3);
    g = hlo_reshape(f, g, 2, (int64_t[]){n, width});
    tpu_type one = type_make(TPU_I64, 1, &n), wide = hlo_type(f, g);
    if (op_bool(c, 4)) {
        tpu_type counts = type_make(hlo_dtype(f, g), 1, &rows);
        hlo count = scatter_rows(f, "add", hlo_zeros(f, counts), index, hlo_const_f(f, type_as(one, hlo_dtype(f, g)), 1));
        hlo each = hlo_take(f, count, index, 0);
        g = hlo_op2(f, "divide", g, hlo_broadcast_in_dim(f, each, wide, (int64_t[]){0}));
    }
    if (pad >= 0) {
        hlo keep = hlo_compare(f, "NE", index, hlo_const_i(f, one, pad));
        g = hlo_select(f, hlo_broadcast_in_dim(f, keep, type_as(wide, TPU_BOOL), (int64_t[]){0}), g, hlo_zeros(f, wide));
    }
    hlo zero = hlo_zeros(f, type_make(hlo_dtype(f, g), 2, (int64_t[]){rows, width}));
    op_out_as(c, scatter_rows(f, "add", zero, index, g), hlo_dtype(f, op_in(c, 0)));
}

/* x with dim d first, and back. */
static hlo dim_first(hlo_fn *f, hlo x, int d, bool back)
{
    int64_t perm[TYPE_MAX_RANK];
    int rank = hlo_rank(f, x);
    for (int i = 0; i < rank; i++) {
        if (back) perm[i] = i == d ? 0 : i < d ? i + 1 : i;
        else perm[i] = i == 0 ? d : i <= d ? i - 1 : i;
    }
    return rank > 1 ? hlo_transpose(f, x, perm) : x;
}

/* index_add(self, dim, index, source, alpha), index_copy(self, dim, index, source): word is the scatter's op */
static void index_rows(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), index = op_in(c, 2), src = op_in_as(c, 3, hlo_dtype(f, x));
    tpu_type whole = hlo_type(f, x);
    int d = op_dim(c, op_int(c, 1), whole.rank);
    if (whole.rank == 0) {
        x = hlo_unsqueeze(f, x, 0);
        if (hlo_rank(f, src) == 0) src = hlo_unsqueeze(f, src, 0);
    }
    if (hlo_rank(f, index) == 0) index = hlo_unsqueeze(f, index, 0);
    if (hlo_rank(f, src) < hlo_rank(f, x)) src = hlo_unsqueeze(f, src, d);
    bool add = op_row_of(c)->word[1] == 'd';
    if (add && !op_is_default(c, 4)) src = hlo_op2(f, "multiply", src, hlo_broadcast_to(f, op_scalar(c, 4, hlo_dtype(f, x)), hlo_type(f, src)));
    if (hlo_dim(f, src, d) != hlo_count(f, index)) {
        op_fail(c, TPU_INVALID, "Number of indices (%lld) should be equal to source.size(dim) (%lld)", (long long)hlo_count(f, index), (long long)hlo_dim(f, src, d));
        return;
    }
    index = checked(c, index, hlo_dim(f, x, d), false);
    hlo r = scatter_rows(f, op_row_of(c)->word, dim_first(f, x, d, false), index, dim_first(f, src, d, false));
    op_out(c, hlo_reshape(f, dim_first(f, r, d, true), whole.rank, whole.dim));
}

/* index_fill(self, dim, index, value) */
static void index_fill(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), index = op_in(c, 2);
    tpu_type whole = hlo_type(f, x);
    int d = op_dim(c, op_int(c, 1), whole.rank);
    if (whole.rank == 0) x = hlo_unsqueeze(f, x, 0);
    index = checked(c, hlo_flatten(f, index), hlo_dim(f, x, d), true);
    hlo first = dim_first(f, x, d, false);
    tpu_type rows = hlo_type(f, first);
    rows.dim[0] = hlo_count(f, index);
    hlo value = hlo_broadcast_to(f, op_in_as(c, 3, (tpu_dtype)whole.dtype), rows);
    hlo r = scatter_rows(f, "assign", first, index, value);
    op_out(c, hlo_reshape(f, dim_first(f, r, d, true), whole.rank, whole.dim));
}

/* ---- gather and scatter: an index for each element ---- */
/* Full coordinates [..., rank] of each element of index, whose own value stands in dim d. */
static hlo coordinates(hlo_fn *f, hlo index, int d)
{
    tpu_type t = hlo_type(f, index);
    hlo part[TYPE_MAX_RANK];
    for (int i = 0; i < t.rank; i++) part[i] = hlo_unsqueeze(f, i == d ? index : hlo_iota(f, t, i), t.rank);
    return hlo_concat(f, part, t.rank, t.rank);
}

static hlo_gather_dims every_dim(int rank)
{
    hlo_gather_dims g = {.ncollapsed = rank, .nmap = rank, .index_vector_dim = rank};
    for (int i = 0; i < rank; i++) g.collapsed[i] = g.map[i] = i;
    return g;
}

static void gather(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), index = op_in(c, 2);
    int d = op_dim(c, op_int(c, 1), hlo_rank(f, x));
    if (hlo_count(f, index) == 0) {
        op_out(c, hlo_zeros(f, type_as(hlo_type(f, index), hlo_dtype(f, x))));
        return;
    }
    if (hlo_rank(f, x) == 0) x = hlo_unsqueeze(f, x, 0);
    tpu_type shape = hlo_type(f, index);
    if (shape.rank == 0) index = hlo_unsqueeze(f, index, 0);
    int rank = hlo_rank(f, x);
    if (hlo_rank(f, index) != rank) {
        op_fail(c, TPU_INVALID, "Index tensor must have the same number of dimensions as input tensor");
        return;
    }
    for (int i = 0; i < rank; i++)
        if (i != d && hlo_dim(f, index, i) > hlo_dim(f, x, i)) {
            op_fail(c, TPU_INVALID, "Size does not match at dimension %d expected index to be no larger than self apart from dimension %d", i, d);
            return;
        }
    int64_t ones[TYPE_MAX_RANK];
    for (int i = 0; i < rank; i++) ones[i] = 1;
    hlo_gather_dims g = every_dim(rank);
    hlo r = hlo_gather(f, x, coordinates(f, checked_or(c, index, hlo_dim(f, x, d), true, out_of_bounds), d), &g, ones);
    op_out(c, hlo_reshape(f, r, shape.rank, shape.dim));
}

/* x with src scattered along d; op is the scatter's. */
static hlo scatter_into(op_ctx *c, const char *op, hlo x, hlo index, hlo src, int d)
{
    hlo_fn *f = op_fn(c);
    tpu_type whole = hlo_type(f, x);
    if (hlo_count(f, index) == 0) return x;
    if (whole.rank == 0) x = hlo_unsqueeze(f, x, 0);
    if (hlo_rank(f, index) == 0) index = hlo_unsqueeze(f, index, 0);
    if (hlo_rank(f, src) == 0 && hlo_rank(f, index) == 1 && hlo_dim(f, index, 0) == 1) src = hlo_unsqueeze(f, src, 0);
    tpu_type it = hlo_type(f, index);
    if (it.rank != hlo_rank(f, x) || it.rank != hlo_rank(f, src)) {
        op_fail(c, TPU_INVALID, "Index tensor must have the same number of dimensions as self tensor");
        return HLO_NONE;
    }
    int64_t zero[TYPE_MAX_RANK] = {0};
    src = hlo_slice(f, src, zero, it.dim, NULL);
    hlo_gather_dims g = every_dim(it.rank);
    hlo r = hlo_scatter(f, op, x, coordinates(f, checked_or(c, index, hlo_dim(f, x, d), false, out_of_bounds), d), src, &g);
    return hlo_reshape(f, r, whole.rank, whole.dim);
}

static hlo source(op_ctx *c, int arg, hlo x, hlo index)
{
    hlo_fn *f = op_fn(c);
    if (op_scalar_kind(c, arg) == TPU_NONE) return op_in(c, arg);
    return hlo_broadcast_to(f, op_scalar(c, arg, hlo_dtype(f, x)), hlo_type(f, index));
}

/* scatter.src/.value(self, dim, index, src), scatter_add; word is the op */
static void scatter(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), index = op_in(c, 2), src = source(c, 3, x, index);
    if (hlo_dtype(f, src) != hlo_dtype(f, x)) {
        op_fail(c, TPU_INVALID, "scatter(): Expected self.dtype to be equal to src.dtype");
        return;
    }
    op_out(c, scatter_into(c, op_row_of(c)->word, x, index, src, op_dim(c, op_int(c, 1), hlo_rank(f, x))));
}

/* scatter.reduce/.value_reduce(self, dim, index, src, reduce="add"|"multiply") */
static void scatter_with(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *how = op_str(c, 4);
    hlo x = op_in(c, 0), index = op_in(c, 2);
    bool add = how && how[0] == 'a';
    op_out(c, scatter_into(c, add ? "add" : "multiply", x, index, source(c, 3, x, index), op_dim(c, op_int(c, 1), hlo_rank(f, x))));
}

static bool is_word(const char *s, const char *w)
{
    while (*s && *s == *w) s++, w++;
    return *s == *w;
}

/* scatter_reduce.two(self, dim, index, src, reduce, include_self); index_reduce(self, dim, index, source, reduce,
 * include_self), word "rows": the index of a whole row */
static void scatter_reduce(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *how = op_str(c, 4) ? op_str(c, 4) : "";
    hlo x = op_in(c, 0), index = op_in(c, 2), src = op_in(c, 3);
    tpu_type t = hlo_type(f, x);
    int d = op_dim(c, op_int(c, 1), t.rank);
    if (op_row_of(c)->word && hlo_rank(f, src)) index = hlo_broadcast_in_dim(f, hlo_flatten(f, index), type_as(hlo_type(f, src), hlo_dtype(f, index)), (int64_t[]){d});
    bool mean = is_word(how, "mean"), self = op_bool(c, 5);
    const char *op = is_word(how, "sum") || mean ? "add" : is_word(how, "prod") ? "multiply" : is_word(how, "amax") ? "maximum" : "minimum";
    hlo ones = hlo_const_f(f, type_as(hlo_type(f, index), TPU_I64), 1);
    hlo count = HLO_NONE, start = x;
    if (!self || mean) count = scatter_into(c, "add", hlo_zeros(f, type_as(t, TPU_I64)), index, ones, d);
    if (!self) {
        hlo neutral = op[0] == 'a' ? hlo_zeros(f, t) : op[1] == 'u' ? hlo_const_f(f, t, 1) : op[1] == 'a' ? hlo_lowest(f, t) : hlo_highest(f, t);
        start = hlo_select(f, hlo_compare(f, "GT", count, hlo_like_i(f, count, 0)), neutral, x);
    }
    hlo r = scatter_into(c, op, start, index, src, d);
    if (mean) {
        hlo n = self ? hlo_op2(f, "add", count, hlo_like_i(f, count, 1)) : hlo_max(f, count, hlo_like_i(f, count, 1));
        n = hlo_convert(f, n, (tpu_dtype)t.dtype);
        hlo q = hlo_op2(f, "divide", r, n);
        if (dtype_is_int((tpu_dtype)t.dtype)) {         /* towards minus infinity */
            hlo rest = hlo_op2(f, "remainder", r, n), zero = hlo_zeros(f, t);
            hlo off = hlo_compare(f, "LT", rest, zero);
            q = hlo_op2(f, "subtract", q, hlo_convert(f, off, (tpu_dtype)t.dtype));
        }
        r = q;
    }
    op_out(c, r);
}

/* masked_scatter(self, mask, source): the places of the mask take the source's elements in order. */
static void masked_scatter(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), mask = op_in(c, 1), src = hlo_flatten(f, op_in(c, 2));
    if (hlo_dtype(f, mask) != TPU_BOOL || hlo_dtype(f, src) != hlo_dtype(f, x)) {
        op_fail(c, TPU_INVALID, hlo_dtype(f, mask) != TPU_BOOL ? "masked_scatter_ only supports boolean masks, but got mask with dtype %s"
                                                              : "masked_scatter: expected self and source to have same dtypes",
                dtype_torch_name(hlo_dtype(f, mask)));
        return;
    }
    hlo_broadcast2(f, &x, &mask);
    if (!hlo_count(f, x)) {
        op_out(c, x);
        return;
    }
    tpu_type t = hlo_type(f, x);
    hlo place = hlo_cumulative(f, "add", hlo_convert(f, hlo_flatten(f, mask), TPU_I64), 0, false);
    place = hlo_reshape(f, hlo_op2(f, "subtract", place, all_of(f, place, 1)), t.rank, t.dim);
    op_guard(c, hlo_op2(f, "and", mask, hlo_compare(f, "GE", place, all_of(f, place, hlo_count(f, src)))), "!masked_scatter: source has fewer elements than the mask has ones");
    if (!hlo_count(f, src)) src = hlo_zeros(f, type_make((tpu_dtype)t.dtype, 1, (int64_t[]){1}));
    tpu_type one = type_scalar(TPU_I64);
    place = hlo_clamp(f, hlo_const_i(f, one, 0), place, hlo_const_i(f, one, hlo_count(f, src) - 1));
    op_out(c, hlo_select(f, mask, hlo_take(f, src, place, 0), x));
}

/* clang-format off */
const op_row ops_index[] = {
    { "index_select",             index_select },
    { "take",                     take },
    { "put",                      put },
    { "embedding",                embedding },
    { "embedding_dense_backward", embedding_backward },
    { "index_add",                index_rows,     "add" },
    { "index_copy",               index_rows,     "assign" },
    { "index_fill.int_Scalar",    index_fill },
    { "index_fill.int_Tensor",    index_fill },
    { "gather",                   gather },
    { "scatter.src",              scatter,        "assign" },
    { "scatter.value",            scatter,        "assign" },
    { "scatter_add",              scatter,        "add" },
    { "scatter.reduce",           scatter_with },
    { "scatter.value_reduce",     scatter_with },
    { "scatter_reduce.two",       scatter_reduce },
    { "index_reduce",             scatter_reduce, "rows" },
    { "masked_scatter",           masked_scatter },
    { NULL },
};
/* clang-format on */
