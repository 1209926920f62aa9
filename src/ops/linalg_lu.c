/* linalg_lu.c - LU with partial pivoting, and what is solved with it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops/linalg.h"

typedef struct lu { hlo a, pivots, perm, info; } lu;    /* [b, m, n], int32 [b, k] from 1, int32 [b, m] rows of A in order, int32 [b] */

static hlo like_scalar(hlo_fn *f, hlo s, hlo like) { return hlo_broadcast_to(f, s, hlo_type(f, like)); }

/* x [b, m] with the elements at places j (a scalar) and p ([b]) exchanged. */
static hlo exchange(hlo_fn *f, hlo x, hlo j, hlo p)
{
    hlo at = linalg_place(f, x, 1), here = hlo_compare(f, "EQ", at, like_scalar(f, j, at)), there = hlo_compare(f, "EQ", at, linalg_spread(f, p, at, 1));
    hlo xj = linalg_at(f, x, 1, j), xp = hlo_reduce(f, "add", hlo_select(f, there, x, hlo_zeros(f, hlo_type(f, x))), 1u << 1);
    return hlo_select(f, here, linalg_spread(f, xp, x, 1), hlo_select(f, there, linalg_spread(f, xj, x, 1), x));
}

static hlo pivot_size(hlo_fn *f, hlo x)
{
    if (!dtype_is_complex(hlo_dtype(f, x))) return magnitude(f, x);
    return plus(f, magnitude(f, hlo_op1(f, "real", x)), magnitude(f, hlo_op1(f, "imag", x)));   /* as LAPACK measures */
}

/* One column: the greatest element on or below the diagonal comes up, then a rank-1 update. */
static void lu_column(hlo_fn *f, hlo *v, bool pivot)
{
    hlo j = v[0], a = v[1], col = linalg_at(f, a, 2, j), at = linalg_place(f, col, 1), zero = hlo_zeros(f, hlo_type(f, a));
    hlo size = pivot_size(f, col), low = hlo_compare(f, "GE", at, like_scalar(f, j, at)), p;
    p = hlo_convert(f, hlo_argmax(f, hlo_select(f, low, size, hlo_like_f(f, size, -1)), 1, false), TPU_I32);
    if (!pivot) p = like_scalar(f, j, p);
    hlo rows = linalg_place(f, a, 1), cols = linalg_place(f, a, 2), jj = like_scalar(f, j, rows);
    hlo here = hlo_compare(f, "EQ", rows, jj), there = hlo_compare(f, "EQ", rows, linalg_spread(f, linalg_spread(f, p, col, 1), a, 2));
    hlo row_j = linalg_at(f, a, 1, j), row_p = hlo_reduce(f, "add", hlo_select(f, there, a, zero), 1u << 1);
    a = hlo_select(f, here, linalg_spread(f, row_p, a, 1), hlo_select(f, there, linalg_spread(f, row_j, a, 1), a));
    hlo head = linalg_at(f, row_p, 1, j), flat = compare_k(f, "EQ", head, 0);
    hlo by = hlo_select(f, flat, hlo_like_f(f, head, 1), head);
    col = linalg_at(f, a, 2, j);
    hlo below = hlo_compare(f, "GT", at, like_scalar(f, j, at)), none = hlo_zeros(f, hlo_type(f, col));
    hlo l = hlo_select(f, below, over(f, col, linalg_spread(f, by, col, 1)), none);
    hlo right = hlo_compare(f, "GT", linalg_place(f, row_p, 1), like_scalar(f, j, linalg_place(f, row_p, 1)));
    hlo u = hlo_select(f, right, row_p, hlo_zeros(f, hlo_type(f, row_p)));
    a = minus(f, a, linalg_outer(f, l, u));
    hlo mine = both(f, hlo_compare(f, "EQ", cols, jj), hlo_compare(f, "GT", rows, jj));
    v[1] = hlo_select(f, mine, linalg_spread(f, l, a, 2), a);
    hlo next = plus(f, j, hlo_const_i(f, type_scalar(TPU_I32), 1)), k = linalg_place(f, v[2], 1);
    hlo count = plus(f, p, hlo_like_i(f, p, 1));
    v[2] = hlo_select(f, hlo_compare(f, "EQ", k, like_scalar(f, j, k)), linalg_spread(f, count, k, 1), v[2]);
    v[3] = exchange(f, v[3], j, p);
    v[4] = hlo_select(f, both(f, flat, hlo_compare(f, "EQ", v[4], hlo_like_i(f, v[4], 0))), like_scalar(f, next, v[4]), v[4]);
    v[0] = next;
}

static lu factor(hlo_fn *f, hlo a, bool pivot)
{
    int64_t b = hlo_dim(f, a, 0), m = hlo_dim(f, a, 1), n = hlo_dim(f, a, 2), k = m < n ? m : n;
    tpu_type one = type_scalar(TPU_I32), per_row = type_make(TPU_I32, 2, (int64_t[]){b, m});
    hlo v[5] = {hlo_const_i(f, one, 0), a, hlo_zeros(f, type_make(TPU_I32, 2, (int64_t[]){b, k})), hlo_iota(f, per_row, 1),
                hlo_zeros(f, type_make(TPU_I32, 1, &b))};
    if (hlo_count(f, a)) {
        hlo w[5];
        hlo_while_begin(f, v, 5, w);
        hlo_while_body(f, hlo_compare(f, "LT", w[0], hlo_const_i(f, one, k)), w);
        lu_column(f, w, pivot);
        hlo_while_end(f, w, v);
    }
    return (lu){v[1], v[2], v[3], v[4]};
}

/* The order of rows that pivots [b, k] make of m rows. */
static hlo order_of(hlo_fn *f, hlo pivots, int64_t m)
{
    int64_t b = hlo_dim(f, pivots, 0), k = hlo_dim(f, pivots, 1);
    tpu_type one = type_scalar(TPU_I32);
    hlo v[2] = {hlo_const_i(f, one, 0), hlo_iota(f, type_make(TPU_I32, 2, (int64_t[]){b, m}), 1)}, w[2];
    if (!b || !k) return v[1];
    hlo_while_begin(f, v, 2, w);
    hlo_while_body(f, hlo_compare(f, "LT", w[0], hlo_const_i(f, one, k)), w);
    hlo p = linalg_at(f, pivots, 1, w[0]);
    w[1] = exchange(f, w[1], w[0], minus(f, p, hlo_like_i(f, p, 1)));
    w[0] = plus(f, w[0], hlo_const_i(f, one, 1));
    hlo_while_end(f, w, v);
    return v[1];
}

/* X of A X = B, or of A^H X = B; all [b, ...] of one batch. */
static hlo solve(hlo_fn *f, hlo a, hlo perm, hlo b, bool adjoint)
{
    if (!hlo_count(f, b)) return b;
    if (!adjoint) {
        hlo y = hlo_triangular_solve(f, a, linalg_rows(f, b, perm), true, true, true, "NO_TRANSPOSE");
        return hlo_triangular_solve(f, a, y, true, false, false, "NO_TRANSPOSE");
    }
    hlo y = hlo_triangular_solve(f, a, b, true, false, false, "ADJOINT");
    y = hlo_triangular_solve(f, a, y, true, true, true, "ADJOINT");
    hlo pair[2] = {perm, linalg_place(f, perm, 1)};
    hlo_sort(f, pair, 2, 1, false, pair);               /* the inverse order */
    return linalg_rows(f, y, pair[1]);
}

/* X A = B is A^H X^H = B^H. */
static hlo solve_side(hlo_fn *f, hlo a, hlo perm, hlo b, bool left, bool adjoint)
{
    if (left) return solve(f, a, perm, b, adjoint);
    return linalg_adjoint(f, solve(f, a, perm, linalg_adjoint(f, b), !adjoint));
}

/* ---- rows ---- */
/* linalg_lu_factor_ex(A, *, pivot, check_errors) -> (LU, pivots, info) */
static void lu_factor_ex(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), a;
    if (op_bool(c, 2)) {
        refuse(c);
        return;
    }
    if (!linalg_matrices(c, x, "torch.lu_factor", &a)) return;
    lu r = factor(f, a, op_bool(c, 1));
    op_out(c, linalg_batch_like(f, r.a, x));
    op_out(c, linalg_vectors_like(f, r.pivots, x));
    op_out(c, linalg_scalars_like(f, r.info, x));
}

static hlo nothing(hlo_fn *f, tpu_dtype t) { return hlo_zeros(f, type_make(t, 1, (int64_t[]){0})); }

static void give_triangles(op_ctx *c, hlo a, hlo like)
{
    hlo_fn *f = op_fn(c);
    int64_t m = hlo_dim(f, a, 1), n = hlo_dim(f, a, 2), k = m < n ? m : n;
    hlo l = linalg_triangle(f, hlo_slice_dim(f, a, 2, 0, k, 1), true, 1);
    l = plus(f, l, linalg_eye(f, hlo_type(f, l)));
    op_out(c, linalg_batch_like(f, l, like));
    op_out(c, linalg_batch_like(f, linalg_triangle(f, hlo_slice_dim(f, a, 1, 0, k, 1), false, 0), like));
}

/* P with A = P L U. */
static hlo permutation(hlo_fn *f, hlo perm, tpu_dtype t)
{
    int64_t b = hlo_dim(f, perm, 0), m = hlo_dim(f, perm, 1);
    tpu_type p = type_make(TPU_I32, 3, (int64_t[]){b, m, m});
    return hlo_convert(f, hlo_compare(f, "EQ", hlo_iota(f, p, 1), hlo_broadcast_in_dim(f, perm, p, (int64_t[]){0, 2})), t);
}

/* linalg_lu(A, *, pivot) -> (P, L, U) */
static void linalg_lu(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), a;
    bool pivot = op_bool(c, 1);
    if (!linalg_matrices(c, x, "linalg.lu", &a)) return;
    lu r = factor(f, a, pivot);
    op_out(c, pivot ? linalg_batch_like(f, permutation(f, r.perm, hlo_dtype(f, x)), x) : nothing(f, hlo_dtype(f, x)));
    give_triangles(c, r.a, x);
}

/* lu_unpack(LU, pivots, unpack_data, unpack_pivots) -> (P, L, U) */
static void lu_unpack(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), pivots = op_in(c, 1), a;
    tpu_dtype t = hlo_dtype(f, x);
    if (hlo_dtype(f, pivots) != TPU_I32) {
        op_fail(c, TPU_INVALID, "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\nNote: this function is intended to be used with the output produced by torch.linalg.lu_factor");
        return;
    }
    if (!linalg_matrices(c, x, "torch.lu_unpack", &a)) return;
    int64_t b = hlo_dim(f, a, 0), k = hlo_dim(f, pivots, -1);
    hlo p = hlo_reshape(f, pivots, 2, (int64_t[]){b, k});
    op_out(c, op_bool(c, 3) ? linalg_batch_like(f, permutation(f, order_of(f, p, hlo_dim(f, a, 1)), t), x) : nothing(f, t));
    if (op_bool(c, 2)) {
        give_triangles(c, a, x);
        return;
    }
    op_out(c, nothing(f, t));
    op_out(c, nothing(f, t));
}

/* x [..., r, s] in the batch dims of t, flattened. */
static hlo batch_as(hlo_fn *f, hlo x, const tpu_type *batch, int keep)
{
    tpu_type t = *batch;
    t.dtype = hlo_dtype(f, x);
    for (int i = 0; i < keep; i++) t.dim[t.rank++] = hlo_dim(f, x, i - keep);
    x = hlo_broadcast_to(f, x, t);
    int64_t dim[3] = {1};
    for (int d = 0; d < t.rank - keep; d++) dim[0] *= t.dim[d];
    for (int i = 0; i < keep; i++) dim[i + 1] = t.dim[t.rank - keep + i];
    return hlo_reshape(f, x, keep + 1, dim);
}

static tpu_type batch_of(hlo_fn *f, hlo a, hlo b)
{
    tpu_type ta = hlo_type(f, a), tb = hlo_type(f, b);
    ta.rank -= 2;
    tb.rank -= 2;
    return hlo_broadcast_type(f, ta, tb);
}

static hlo unbatched(hlo_fn *f, hlo x, const tpu_type *batch)
{
    tpu_type t = *batch;
    t.dim[t.rank++] = hlo_dim(f, x, 1);
    t.dim[t.rank++] = hlo_dim(f, x, 2);
    return hlo_reshape(f, x, t.rank, t.dim);
}

/* linalg_lu_solve(LU, pivots, B, *, left, adjoint) */
static void lu_solve(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), pivots = op_in(c, 1), b = op_in(c, 2), a;
    bool left = op_bool(c, 3);
    if (!linalg_square(c, x, "torch.linalg.lu_solve") || !linalg_matrices(c, x, "torch.linalg.lu_solve", &a) || !linalg_matrices(c, b, "torch.linalg.lu_solve", &a)) return;
    if (hlo_dim(f, x, -1) != hlo_dim(f, b, left ? -2 : -1)) {
        op_fail(c, TPU_INVALID, "linalg.lu_solve: Incompatible shapes of A and B for the equation %s", left ? "AX = B" : "XA = B");
        return;
    }
    tpu_type batch = batch_of(f, x, b);
    if (hlo_failed(f)) return;
    hlo perm = order_of(f, batch_as(f, pivots, &batch, 1), hlo_dim(f, x, -1));
    op_out(c, unbatched(f, solve_side(f, batch_as(f, x, &batch, 2), perm, batch_as(f, b, &batch, 2), left, op_bool(c, 4)), &batch));
}

/* The gradient of det expects the factors of A^T where A is real and contiguous. */
static bool of_transpose(op_ctx *c, int arg) { return op_contiguous(c, arg) && !dtype_is_complex(arg_dtype(c, arg)); }

static bool is_vector(hlo_fn *f, hlo a, hlo b)
{
    int ra = hlo_rank(f, a), rb = hlo_rank(f, b);
    if (rb == 1) return true;
    if (rb != ra - 1) return false;
    for (int d = 0; d < rb; d++)
        if (hlo_dim(f, a, d) != hlo_dim(f, b, d)) return false;
    return true;
}

/* _linalg_solve_ex(A, B, *, left, check_errors) -> (X, LU, pivots, info) */
static void solve_ex(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), b = op_in(c, 1), a, none;
    bool left = op_bool(c, 2), vector = is_vector(f, x, b);
    if (op_bool(c, 3)) {
        refuse(c);
        return;
    }
    if (!linalg_square(c, x, "linalg.solve") || !linalg_matrices(c, x, "linalg.solve", &a)) return;
    if (hlo_dtype(f, x) != hlo_dtype(f, b)) {
        op_fail(c, TPU_INVALID, "linalg.solve: Expected A and B to have the same dtype, but found A of type %s and B of type %s instead", dtype_torch_name(hlo_dtype(f, x)), dtype_torch_name(hlo_dtype(f, b)));
        return;
    }
    if (vector) b = hlo_unsqueeze(f, b, hlo_rank(f, b));
    if (!linalg_matrices(c, b, "linalg.solve", &none)) return;
    if (hlo_dim(f, x, -1) != hlo_dim(f, b, left ? -2 : -1) || (vector && !left)) {
        op_fail(c, TPU_INVALID, "linalg.solve: Incompatible shapes of A and B for the equation %s", left ? "AX = B" : "XA = B");
        return;
    }
    lu r = factor(f, a, true);
    tpu_type batch = batch_of(f, x, b);
    if (hlo_failed(f)) return;
    hlo wide = batch_as(f, linalg_batch_like(f, r.a, x), &batch, 2), perm = batch_as(f, linalg_vectors_like(f, r.perm, x), &batch, 1);
    hlo y = unbatched(f, solve_side(f, wide, perm, batch_as(f, b, &batch, 2), left, false), &batch);
    op_out(c, vector ? hlo_squeeze(f, y, hlo_rank(f, y) - 1) : y);
    op_out(c, linalg_batch_like(f, r.a, x));
    op_out(c, linalg_vectors_like(f, r.pivots, x));
    op_out(c, linalg_scalars_like(f, r.info, x));
}

/* linalg_inv_ex(A, *, check_errors) -> (inverse, info) */
static void inv_ex(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), a;
    if (op_bool(c, 1)) {
        refuse(c);
        return;
    }
    if (!linalg_square(c, x, "linalg.inv") || !linalg_matrices(c, x, "linalg.inv", &a)) return;
    lu r = factor(f, a, true);
    op_out(c, linalg_batch_like(f, solve(f, r.a, r.perm, linalg_eye(f, hlo_type(f, a)), false), x));
    op_out(c, linalg_scalars_like(f, r.info, x));
}

/* -1 for an odd number of exchanges, as dtype t. */
static hlo parity(hlo_fn *f, hlo pivots, tpu_dtype t)
{
    hlo own = plus(f, linalg_place(f, pivots, 1), hlo_like_i(f, pivots, 1));
    hlo n = hlo_reduce(f, "add", hlo_convert(f, hlo_compare(f, "NE", pivots, own), TPU_I32), 1u << 1);
    hlo odd = hlo_compare(f, "EQ", hlo_op2(f, "and", n, hlo_like_i(f, n, 1)), hlo_like_i(f, n, 1));
    tpu_type r = type_as(hlo_type(f, n), t);
    return hlo_select(f, odd, hlo_const_f(f, r, -1), hlo_const_f(f, r, 1));
}

/* _linalg_det(A) -> (det, LU, pivots); _linalg_slogdet(A) -> (sign, logabsdet, LU, pivots), word "log" */
static void det(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), a;
    if (!linalg_square(c, x, "linalg.det") || !linalg_matrices(c, x, "linalg.det", &a)) return;
    lu r = factor(f, of_transpose(c, 0) ? hlo_swap(f, a, 1, 2) : a, true);
    hlo d = linalg_diagonal(f, r.a), sign = parity(f, r.pivots, hlo_dtype(f, x));
    if (op_row_of(c)->word) {
        hlo size = magnitude(f, d), unit = over(f, d, hlo_convert(f, hlo_select(f, compare_k(f, "EQ", size, 0), hlo_like_f(f, size, 1), size), hlo_dtype(f, d)));
        op_out(c, linalg_scalars_like(f, times(f, sign, hlo_reduce(f, "multiply", unit, 1u << 1)), x));
        op_out(c, linalg_scalars_like(f, hlo_reduce(f, "add", logarithm(f, size), 1u << 1), x));
    } else {
        op_out(c, linalg_scalars_like(f, times(f, sign, hlo_reduce(f, "multiply", d, 1u << 1)), x));
    }
    op_out(c, linalg_batch_like(f, r.a, x));
    op_out(c, linalg_vectors_like(f, r.pivots, x));
}

/* clang-format off */
const op_row ops_linalg_lu[] = {
    { "linalg_lu_factor_ex", lu_factor_ex },
    { "linalg_lu",           linalg_lu },
    { "lu_unpack",           lu_unpack },
    { "linalg_lu_solve",     lu_solve },
    { "_linalg_solve_ex",    solve_ex },
    { "linalg_inv_ex",       inv_ex },
    { "_linalg_det",         det,      NULL,  OP_STRIDES },
    { "_linalg_slogdet",     det,      "log", OP_STRIDES },
    { NULL },
};
/* clang-format on */
