/* sized.c - ops whose result has a size that depends on the data: rows give it padded to the greatest size there can be,
 * and how much of it counts.  src/torch/sized.cc reads the count and cuts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops/arith.h"

/* updates[i] to place[i] of a flat result of the type t; places past the end are dropped. */
static hlo put_at(hlo_fn *f, tpu_type t, hlo place, hlo updates)
{
    hlo_gather_dims d = {.ncollapsed = 1, .nmap = 1, .index_vector_dim = 1, .unique = true};
    return hlo_scatter(f, "assign", hlo_zeros(f, t), hlo_unsqueeze(f, place, 1), updates, &d);
}

/* How many are true up to and with each place, int32, less one. */
static hlo rank_of(hlo_fn *f, hlo mask)
{
    hlo n = hlo_cumulative(f, "add", hlo_convert(f, mask, TPU_I32), 0, false);
    return minus(f, n, hlo_like_i(f, n, 1));
}

static hlo count_of(hlo_fn *f, hlo mask) { return hlo_reduce(f, "add", hlo_convert(f, mask, TPU_I64), 1); }

/* The places of what is true in the flat mask come first and in order, zeros after. */
static hlo places_of(hlo_fn *f, hlo mask)
{
    tpu_type t = type_as(hlo_type(f, mask), TPU_I32);
    hlo at = hlo_select(f, mask, rank_of(f, mask), hlo_const_i(f, t, t.dim[0]));
    return put_at(f, t, at, hlo_iota(f, t, 0));
}

/* Element i of x[perm]; x flat or of rows. */
static hlo picked(hlo_fn *f, hlo x, hlo perm) { return hlo_take(f, x, perm, 0); }

/* Coordinates [len, rank] in x of flat places [len]. */
static hlo coordinates(hlo_fn *f, hlo x, hlo at)
{
    hlo part[TYPE_MAX_RANK];
    int rank = hlo_rank(f, x);
    int64_t under = hlo_count(f, x);
    for (int d = 0; d < rank; d++) {
        under /= hlo_dim(f, x, d);
        hlo q = over(f, at, hlo_like_i(f, at, under));
        at = minus(f, at, times(f, q, hlo_like_i(f, q, under)));
        part[d] = hlo_unsqueeze(f, q, 1);
    }
    return hlo_concat(f, part, rank, 1);
}

/* tpu::nonzero(x) -> int64 [count of x, rank] of coordinates, int64 count; x has dims and elements */
static void nonzero(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), mask = hlo_flatten(f, hlo_convert(f, x, TPU_BOOL));
    op_out(c, coordinates(f, x, hlo_convert(f, places_of(f, mask), TPU_I64)));
    op_out(c, count_of(f, mask));
}

/* tpu::masked_select(x, mask), of one shape -> the chosen elements first [count of x], int64 count */
static void masked_select(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = hlo_flatten(f, op_in(c, 0)), mask = hlo_flatten(f, op_in(c, 1));
    op_out(c, picked(f, x, places_of(f, mask)));
    op_out(c, count_of(f, mask));
}

/* ---- unique: of the rows of a matrix [n, width] ---- */
static hlo column(hlo_fn *f, hlo x, hlo j)
{
    hlo at[2] = {hlo_const_i(f, type_scalar(TPU_I32), 0), j};
    hlo r = hlo_dynamic_slice(f, x, at, (int64_t[]){hlo_dim(f, x, 0), 1});
    return hlo_reshape(f, r, 1, (int64_t[]){hlo_dim(f, x, 0)});
}

/* The stable order of the rows, compared from the first column on: sorted by each column, the last first.  int32 [n]. */
static hlo order_of_rows(hlo_fn *f, hlo x)
{
    int64_t n = hlo_dim(f, x, 0), width = hlo_dim(f, x, 1);
    tpu_type one = type_scalar(TPU_I32);
    hlo args[2], init[2] = {hlo_const_i(f, one, width - 1), hlo_iota(f, type_make(TPU_I32, 1, &n), 0)}, out[2];
    hlo_while_begin(f, init, 2, args);
    hlo_while_body(f, hlo_compare(f, "GE", args[0], hlo_const_i(f, one, 0)), args);
    hlo pair[2] = {picked(f, column(f, x, args[0]), args[1]), args[1]};
    hlo_sort(f, pair, 2, 0, false, pair);
    hlo next[2] = {minus(f, args[0], hlo_const_i(f, one, 1)), pair[1]};
    hlo_while_end(f, next, out);
    return out[1];
}

/* bool [n]: row i differs from row i - 1; the first does.  A NaN differs from itself. */
static hlo starts_of(hlo_fn *f, hlo rows)
{
    int64_t n = hlo_dim(f, rows, 0);
    hlo differs = hlo_compare(f, "NE", hlo_slice_dim(f, rows, 0, 1, n, 1), hlo_slice_dim(f, rows, 0, 0, n - 1, 1));
    differs = hlo_reduce(f, "or", differs, 1u << 1);
    return hlo_pad(f, differs, hlo_const_i(f, type_scalar(TPU_BOOL), 1), (int64_t[]){1}, (int64_t[]){0}, NULL);
}

/* tpu::unique(x [n, width], int sorted) -> rows [n, width], int64 inverse [n], int64 counts [n], int64 count.  sorted 0:
 * only neighbours are compared, in the order they have.  n and width are not 0. */
static void unique(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), order = HLO_NONE;
    tpu_dtype t = hlo_dtype(f, x);
    if (dtype_is_complex(t)) {
        refuse(c);
        return;
    }
    if (t == TPU_BOOL) x = hlo_convert(f, x, TPU_U8);
    int64_t n = hlo_dim(f, x, 0);
    tpu_type long_type = type_make(TPU_I64, 1, &n);
    if (op_int(c, 1)) {
        order = order_of_rows(f, x);
        x = picked(f, x, order);
    }
    hlo start = starts_of(f, x), group = rank_of(f, start), first = places_of(f, start);
    hlo inverse = hlo_convert(f, group, TPU_I64);
    hlo_gather_dims add = {.ncollapsed = 1, .nmap = 1, .index_vector_dim = 1};
    hlo counts = hlo_scatter(f, "add", hlo_zeros(f, long_type), hlo_unsqueeze(f, group, 1), hlo_const_i(f, long_type, 1), &add);
    op_out(c, hlo_convert(f, picked(f, x, first), t));
    op_out(c, hlo_ok(order) ? put_at(f, long_type, order, inverse) : inverse);
    op_out(c, counts);
    op_out(c, count_of(f, start));
}

/* nonzero_static(self, size, fill_value): the size is given. */
static void nonzero_static(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    int rank = hlo_rank(f, x);
    int64_t size = op_int(c, 1), n = hlo_count(f, x);
    if (size < 0) {
        op_fail(c, TPU_INVALID, "nonzero_static: 'size' must be an non-negative integer");
        return;
    }
    tpu_type t = type_make(TPU_I64, 2, (int64_t[]){size, rank});
    hlo fill = hlo_const_i(f, t, op_int_or(c, 2, -1));
    if (!n || !rank || !size) {
        op_out(c, fill);
        return;
    }
    hlo mask = hlo_flatten(f, hlo_convert(f, x, TPU_BOOL)), at = hlo_convert(f, places_of(f, mask), TPU_I64);
    at = size <= n ? hlo_slice_dim(f, at, 0, 0, size, 1) : hlo_pad(f, at, hlo_const_i(f, type_scalar(TPU_I64), 0), (int64_t[]){0}, (int64_t[]){size - n}, NULL);
    hlo real = hlo_compare(f, "LT", hlo_iota(f, t, 0), hlo_broadcast_in_dim(f, count_of(f, mask), t, NULL));
    op_out(c, hlo_select(f, real, coordinates(f, x, at), fill));
}

/* clang-format off */
const op_row ops_sized[] = {
    { "tpu::nonzero",       nonzero },
    { "tpu::masked_select", masked_select },
    { "tpu::unique",        unique },
    { "nonzero_static",     nonzero_static },
    { NULL },
};
/* clang-format on */
