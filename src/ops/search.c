/* search.c - places in sorted sequences, and histograms.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/arith.h"

/* For each value [b, k] how many of sorted [b, n] stand before it: by halving, all values at once.  right: equals too.
 * A NaN stands after every number, as `not (x >= v)` has it. */
static hlo places(hlo_fn *f, hlo sorted, hlo values, bool right)
{
    int64_t n = hlo_dim(f, sorted, 1);
    tpu_type t = type_as(hlo_type(f, values), TPU_I32);
    if (!n || !hlo_count(f, values)) return hlo_zeros(f, t);
    hlo flat = hlo_flatten(f, sorted), base = hlo_iota(f, t, 0);
    base = times(f, base, hlo_like_i(f, base, n));
    tpu_type one = type_scalar(TPU_I32);
    int steps = 1;
    while (1ll << steps < n + 1) steps++;
    hlo v[3] = {hlo_const_i(f, one, 0), hlo_zeros(f, t), hlo_const_i(f, t, n)}, w[3];
    hlo_while_begin(f, v, 3, w);
    hlo_while_body(f, hlo_compare(f, "LT", w[0], hlo_const_i(f, one, steps)), w);
    hlo sum = plus(f, w[1], w[2]), mid = hlo_op2(f, "shift_right_logical", sum, hlo_like_i(f, sum, 1));
    hlo open = hlo_compare(f, "LT", w[1], w[2]);
    hlo at = hlo_min(f, mid, hlo_like_i(f, mid, n - 1));
    hlo x = hlo_take(f, flat, plus(f, base, at), 0);
    hlo up = both(f, open, hlo_op1(f, "not", hlo_compare(f, right ? "GT" : "GE", x, values)));
    hlo next[3] = {plus(f, w[0], hlo_const_i(f, one, 1)), hlo_select(f, up, plus(f, mid, hlo_like_i(f, mid, 1)), w[1]),
                   hlo_select(f, both(f, open, hlo_op1(f, "not", up)), mid, w[2])};
    hlo_while_end(f, next, next);
    return next[1];
}

static hlo rows_of(hlo_fn *f, hlo x)
{
    int64_t n = hlo_dim(f, x, -1), count = hlo_count(f, x);
    return hlo_reshape(f, x, 2, (int64_t[]){n ? count / n : 0, n});
}

static void give(op_ctx *c, hlo r, hlo like, bool narrow)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, like);
    op_out(c, hlo_convert(f, hlo_reshape(f, r, t.rank, t.dim), narrow ? TPU_I32 : TPU_I64));
}

/* bucketize.Tensor/.Scalar(self, boundaries, *, out_int32, right) */
static void bucketize(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo bounds = op_in(c, 1);
    if (hlo_rank(f, bounds) != 1) {
        op_fail(c, TPU_INVALID, "boundaries tensor must be 1 dimension, but got dim(%d)", hlo_rank(f, bounds));
        return;
    }
    hlo x = op_in_as(c, 0, hlo_dtype(f, bounds));
    if (op_scalar_kind(c, 0) == TPU_NONE && arg_dtype(c, 0) != hlo_dtype(f, bounds)) {
        tpu_dtype t = op_promote2(c, 0, 1);
        x = op_in_as(c, 0, t);
        bounds = hlo_convert(f, bounds, t);
    }
    hlo values = hlo_reshape(f, x, 2, (int64_t[]){1, hlo_count(f, x)});
    give(c, places(f, hlo_unsqueeze(f, bounds, 0), values, op_bool(c, 3)), x, op_bool(c, 2));
}

/* searchsorted.Tensor/.Scalar(sorted_sequence, self, *, out_int32, right, side, sorter) */
static void searchsorted(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo sorted = op_in(c, 0), order = op_in(c, 5);
    tpu_dtype t = hlo_dtype(f, sorted);
    const char *side = op_str(c, 4);
    bool right = op_bool(c, 3), scalar = op_scalar_kind(c, 1) != TPU_NONE;
    if (side && strcmp(side, "left") && strcmp(side, "right")) {
        op_fail(c, TPU_INVALID, "torch.searchsorted(): side can only be 'left' or 'right' but got %s", side);
        return;
    }
    if (side && right && !strcmp(side, "left")) {
        op_fail(c, TPU_INVALID, "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True");
        return;
    }
    if (!scalar && arg_dtype(c, 1) != t) {
        op_fail(c, TPU_INVALID, "torch.searchsorted(): boundary tensor and input value tensor should have same dtype, but got boundary tensor dtype %s and input value tensor dtype %s",
                dtype_torch_name(t), dtype_torch_name(arg_dtype(c, 1)));
        return;
    }
    hlo x = op_in_as(c, 1, t);
    int rank = hlo_rank(f, sorted);
    if (!rank) {
        op_fail(c, TPU_INVALID, "torch.searchsorted(): boundaries tensor should have positive dimension");
        return;
    }
    for (int d = 0; rank > 1 && d < rank - 1; d++)
        if (rank != hlo_rank(f, x) || hlo_dim(f, x, d) != hlo_dim(f, sorted, d)) {
            op_fail(c, TPU_INVALID, "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value tensor must match");
            return;
        }
    hlo rows = rows_of(f, sorted);
    if (hlo_ok(order) && hlo_count(f, rows)) {
        hlo index = hlo_convert(f, rows_of(f, order), TPU_I64), base = hlo_iota(f, hlo_type(f, index), 0);
        tpu_type one = type_scalar(TPU_I64);
        int64_t n = hlo_dim(f, rows, 1);
        op_guard(c, either(f, hlo_compare(f, "LT", index, hlo_like_i(f, index, 0)), hlo_compare(f, "GE", index, hlo_like_i(f, index, n))), "!torch.searchsorted(): sorter index out of range");
        index = hlo_clamp(f, hlo_const_i(f, one, 0), index, hlo_const_i(f, one, n - 1));
        rows = hlo_take(f, hlo_flatten(f, rows), plus(f, index, times(f, base, hlo_like_i(f, base, n))), 0);
    }
    hlo values = rank > 1 ? rows_of(f, x) : hlo_reshape(f, x, 2, (int64_t[]){1, hlo_count(f, x)});
    if (rank > 1 && !hlo_count(f, x)) give(c, hlo_zeros(f, type_as(hlo_type(f, x), TPU_I32)), x, op_bool(c, 2));
    else give(c, places(f, rows, values, right || (side && side[0] == 'r')), x, op_bool(c, 2));
}

/* histc(self, bins, min, max): equal min and max stand for those of the data. */
static void histc(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = hlo_flatten(f, op_in(c, 0));
    tpu_dtype t = hlo_dtype(f, x);
    int64_t bins = op_int(c, 1);
    if (t != TPU_F32 && t != TPU_F64) {
        refuse(c);
        return;
    }
    if (bins <= 0) {
        op_fail(c, TPU_INVALID, "bins must be > 0, but got %lld", (long long)bins);
        return;
    }
    tpu_type out = type_make(t, 1, &bins);
    if (!hlo_count(f, x)) {
        op_out(c, hlo_zeros(f, out));
        return;
    }
    hlo low = op_scalar(c, 2, t), high = op_scalar(c, 3, t), whole = hlo_compare(f, "EQ", low, high);
    low = hlo_select(f, whole, hlo_reduce(f, "minimum", x, 1), low);
    high = hlo_select(f, whole, hlo_reduce(f, "maximum", x, 1), high);
    hlo point = hlo_compare(f, "EQ", low, high), one = hlo_like_f(f, low, 1), zero = hlo_like_f(f, low, 0);
    hlo wider = hlo_select(f, point, one, zero);
    low = minus(f, low, wider);
    high = plus(f, high, wider);
    op_guard(c, hlo_op1(f, "not", both(f, hlo_op1(f, "is_finite", low), hlo_op1(f, "is_finite", high))), "!range of [min, max] is not finite");
    op_guard(c, hlo_compare(f, "GT", low, high), "!max must be larger than min");
    hlo lo = hlo_broadcast_to(f, low, hlo_type(f, x)), hi = hlo_broadcast_to(f, high, hlo_type(f, x));
    hlo inside = both(f, hlo_compare(f, "GE", x, lo), hlo_compare(f, "LE", x, hi));
    hlo at = hlo_op1(f, "floor", times_k(f, over(f, minus(f, x, lo), minus(f, hi, lo)), (double)bins));
    at = hlo_min(f, at, hlo_like_f(f, at, (double)(bins - 1)));
    hlo place = hlo_convert(f, hlo_select(f, inside, at, hlo_like_f(f, at, 0)), TPU_I32);
    hlo_gather_dims d = {.ncollapsed = 1, .nmap = 1, .index_vector_dim = 1};
    op_out(c, hlo_scatter(f, "add", hlo_zeros(f, out), hlo_unsqueeze(f, place, 1), hlo_convert(f, inside, t), &d));
}

/* clang-format off */
const op_row ops_search[] = {
    { "bucketize.Tensor",    bucketize },
    { "bucketize.Scalar",    bucketize },
    { "searchsorted.Tensor", searchsorted },
    { "searchsorted.Scalar", searchsorted },
    { "histc",               histc },
    { NULL },
};
/* clang-format on */
