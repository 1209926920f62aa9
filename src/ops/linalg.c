/* linalg.c - what linear algebra shares, and triangular systems.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops/linalg.h"

bool linalg_matrices(op_ctx *c, hlo x, const char *who, hlo *out)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, x);
    if (t.rank < 2) {
        op_fail(c, TPU_INVALID, "%s: The input tensor A must have at least 2 dimensions.", who);
        return false;
    }
    if (!dtype_is_float((tpu_dtype)t.dtype) && !dtype_is_complex((tpu_dtype)t.dtype)) {
        refuse(c);
        return false;
    }
    if (t.dtype == TPU_BF16 || t.dtype == TPU_F16) {
        refuse(c);
        return false;
    }
    int64_t b = 1;
    for (int d = 0; d < t.rank - 2; d++) b *= t.dim[d];
    *out = hlo_reshape(f, x, 3, (int64_t[]){b, t.dim[t.rank - 2], t.dim[t.rank - 1]});
    return true;
}

bool linalg_square(op_ctx *c, hlo x, const char *who)
{
    hlo_fn *f = op_fn(c);
    if (hlo_rank(f, x) < 2 || hlo_dim(f, x, -1) == hlo_dim(f, x, -2)) return true;
    op_fail(c, TPU_INVALID, "%s: A must be batches of square matrices, but they are %lld by %lld matrices", who, (long long)hlo_dim(f, x, -2),
            (long long)hlo_dim(f, x, -1));
    return false;
}

/* The batch dims of x, then `keep` last dims of y. */
static hlo batched(hlo_fn *f, hlo y, hlo x, int keep)
{
    int rank = hlo_rank(f, x) - 2;
    tpu_type t = type_make(hlo_dtype(f, y), 0, NULL);
    for (int d = 0; d < rank; d++) t.dim[t.rank++] = hlo_dim(f, x, d);
    for (int d = 0; d < keep; d++) t.dim[t.rank++] = hlo_dim(f, y, d - keep);
    return hlo_reshape(f, y, t.rank, t.dim);
}

hlo linalg_batch_like(hlo_fn *f, hlo y, hlo x) { return batched(f, y, x, 2); }
hlo linalg_vectors_like(hlo_fn *f, hlo y, hlo x) { return batched(f, y, x, 1); }
hlo linalg_scalars_like(hlo_fn *f, hlo y, hlo x) { return batched(f, y, x, 0); }

hlo linalg_conj(hlo_fn *f, hlo x)
{
    if (!dtype_is_complex(hlo_dtype(f, x))) return x;
    return hlo_op2(f, "complex", hlo_op1(f, "real", x), negate(f, hlo_op1(f, "imag", x)));
}

hlo linalg_adjoint(hlo_fn *f, hlo x) { return linalg_conj(f, hlo_swap(f, x, -1, -2)); }
hlo linalg_real(hlo_fn *f, hlo x) { return dtype_is_complex(hlo_dtype(f, x)) ? hlo_op1(f, "real", x) : x; }
hlo linalg_as(hlo_fn *f, hlo x, tpu_dtype t) { return hlo_convert(f, x, t); }
hlo linalg_place(hlo_fn *f, hlo like, int dim) { return hlo_iota(f, type_as(hlo_type(f, like), TPU_I32), dim); }

hlo linalg_eye(hlo_fn *f, tpu_type t)
{
    tpu_type i = type_as(t, TPU_I32);
    return hlo_convert(f, hlo_compare(f, "EQ", hlo_iota(f, i, t.rank - 2), hlo_iota(f, i, t.rank - 1)), (tpu_dtype)t.dtype);
}

hlo linalg_triangle(hlo_fn *f, hlo x, bool lower, int k)
{
    int r = hlo_rank(f, x);
    hlo off = minus(f, linalg_place(f, x, r - 2), linalg_place(f, x, r - 1));
    return hlo_select(f, hlo_compare(f, lower ? "GE" : "LE", off, hlo_like_i(f, off, k)), x, hlo_zeros(f, hlo_type(f, x)));
}

hlo linalg_diagonal(hlo_fn *f, hlo x)
{
    int64_t m = hlo_dim(f, x, 1), n = hlo_dim(f, x, 2), k = m < n ? m : n;
    x = hlo_slice_dim(f, hlo_slice_dim(f, x, 1, 0, k, 1), 2, 0, k, 1);
    hlo on = hlo_compare(f, "EQ", linalg_place(f, x, 1), linalg_place(f, x, 2));
    return hlo_reduce(f, "add", hlo_select(f, on, x, hlo_zeros(f, hlo_type(f, x))), 1u << 2);
}

hlo linalg_at(hlo_fn *f, hlo x, int dim, hlo j)
{
    tpu_type t = hlo_type(f, x);
    hlo start[TYPE_MAX_RANK];
    for (int d = 0; d < t.rank; d++) start[d] = d == dim ? j : hlo_const_i(f, type_scalar(TPU_I32), 0);
    t.dim[dim] = 1;
    return hlo_squeeze(f, hlo_dynamic_slice(f, x, start, t.dim), dim);
}

hlo linalg_spread(hlo_fn *f, hlo y, hlo like, int dim)
{
    int64_t to[TYPE_MAX_RANK];
    for (int d = 0, n = 0; d < hlo_rank(f, like); d++)
        if (d != dim) to[n++] = d;
    return hlo_broadcast_in_dim(f, y, type_as(hlo_type(f, like), hlo_dtype(f, y)), to);
}

hlo linalg_outer(hlo_fn *f, hlo x, hlo y)
{
    tpu_type t = type_make(hlo_dtype(f, x), 3, (int64_t[]){hlo_dim(f, x, 0), hlo_dim(f, x, 1), hlo_dim(f, y, 1)});
    return times(f, hlo_broadcast_in_dim(f, x, t, (int64_t[]){0, 1}), hlo_broadcast_in_dim(f, y, t, (int64_t[]){0, 2}));
}

hlo linalg_rows(hlo_fn *f, hlo x, hlo index)
{
    int64_t b = hlo_dim(f, x, 0), m = hlo_dim(f, x, 1), n = hlo_dim(f, x, 2), k = hlo_dim(f, index, 1);
    hlo base = linalg_place(f, index, 0);
    hlo flat = plus(f, index, times(f, base, hlo_like_i(f, base, m)));
    hlo rows = hlo_take(f, hlo_reshape(f, x, 2, (int64_t[]){b * m, n}), hlo_flatten(f, flat), 0);
    return hlo_reshape(f, rows, 3, (int64_t[]){b, k, n});
}

hlo linalg_norm2(hlo_fn *f, hlo x, int dim)
{
    hlo s = dtype_is_complex(hlo_dtype(f, x)) ? plus(f, square(f, hlo_op1(f, "real", x)), square(f, hlo_op1(f, "imag", x))) : square(f, x);
    return hlo_reduce(f, "add", s, 1u << dim);
}

/* ---- triangular systems ---- */
/* Both with the same batch dims, by PyTorch's rules for them. */
static void same_batch(hlo_fn *f, hlo *a, hlo *b)
{
    tpu_type ta = hlo_type(f, *a), tb = hlo_type(f, *b), ba = ta, bb = tb;
    ba.rank -= 2;
    bb.rank -= 2;
    tpu_type t = hlo_broadcast_type(f, ba, bb);
    if (hlo_failed(f)) return;
    for (int k = 0; k < 2; k++) {
        tpu_type to = t, from = k ? tb : ta;
        to.dtype = from.dtype;
        to.dim[to.rank++] = from.dim[from.rank - 2];
        to.dim[to.rank++] = from.dim[from.rank - 1];
        if (k) *b = hlo_broadcast_to(f, *b, to);
        else *a = hlo_broadcast_to(f, *a, to);
    }
}

static hlo solve_triangular(op_ctx *c, hlo a, hlo b, bool left, bool upper, bool unit, const char *transpose)
{
    hlo_fn *f = op_fn(c);
    hlo none;
    if (!linalg_square(c, a, "linalg.solve_triangular") || !linalg_matrices(c, a, "linalg.solve_triangular", &none) ||
        !linalg_matrices(c, b, "linalg.solve_triangular", &none)) return HLO_NONE;
    if (hlo_dtype(f, a) != hlo_dtype(f, b)) {
        op_fail(c, TPU_INVALID, "linalg.solve_triangular: Expected A and B to have the same dtype, but found A of type %s and B of type %s instead",
                dtype_torch_name(hlo_dtype(f, a)), dtype_torch_name(hlo_dtype(f, b)));
        return HLO_NONE;
    }
    if (hlo_dim(f, a, -1) != hlo_dim(f, b, left ? -2 : -1)) {
        op_fail(c, TPU_INVALID, "linalg.solve_triangular: Incompatible shapes of A and B for the equation %s", left ? "AX = B" : "XA = B");
        return HLO_NONE;
    }
    same_batch(f, &a, &b);
    if (hlo_failed(f) || !hlo_count(f, b)) return b;
    return hlo_triangular_solve(f, a, b, left, !upper, unit, transpose);
}

/* linalg_solve_triangular(A, B, *, upper, left, unitriangular) */
static void linalg_solve_triangular(op_ctx *c)
{
    op_out(c, solve_triangular(c, op_in(c, 0), op_in(c, 1), op_bool(c, 3), op_bool(c, 2), op_bool(c, 4), "NO_TRANSPOSE"));
}

/* triangular_solve(B, A, upper, transpose, unitriangular) -> (X, A) */
static void triangular_solve(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo b = op_in(c, 0), a = op_in(c, 1);
    hlo x = solve_triangular(c, a, b, true, op_bool(c, 2), op_bool(c, 4), op_bool(c, 3) ? "TRANSPOSE" : "NO_TRANSPOSE");
    if (!hlo_failed(f)) same_batch(f, &a, &b);
    op_out(c, x);
    op_out(c, a);
}

/* _cholesky_solve_helper(B, L, upper): L L^H X = B, or U^H U X = B */
static void cholesky_solve(op_ctx *c)
{
    bool upper = op_bool(c, 2);
    hlo a = op_in(c, 1), y = solve_triangular(c, a, op_in(c, 0), true, upper, false, upper ? "ADJOINT" : "NO_TRANSPOSE");
    op_out(c, solve_triangular(c, a, y, true, upper, false, upper ? "NO_TRANSPOSE" : "ADJOINT"));
}

/* cholesky_inverse(L, upper) */
static void cholesky_inverse(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool upper = op_bool(c, 1);
    hlo a = op_in(c, 0);
    if (!linalg_square(c, a, "cholesky_inverse")) return;
    hlo y = solve_triangular(c, a, linalg_eye(f, hlo_type(f, a)), true, upper, false, upper ? "ADJOINT" : "NO_TRANSPOSE");
    op_out(c, solve_triangular(c, a, y, true, upper, false, upper ? "NO_TRANSPOSE" : "ADJOINT"));
}

/* ---- cholesky: by columns as LAPACK, which stops at the first minor that is not positive ---- */
static void cholesky_columns(hlo_fn *f, hlo a, hlo *factor, hlo *info)
{
    int64_t b = hlo_dim(f, a, 0), n = hlo_dim(f, a, 1);
    tpu_dtype t = hlo_dtype(f, a);
    tpu_type one = type_scalar(TPU_I32);
    hlo v[3], init[3] = {hlo_const_i(f, one, 0), a, hlo_zeros(f, type_make(TPU_I32, 1, &b))};
    hlo_while_begin(f, init, 3, v);
    hlo_while_body(f, hlo_compare(f, "LT", v[0], hlo_const_i(f, one, n)), v);
    hlo j = v[0], col = linalg_at(f, v[1], 2, j), d = linalg_real(f, linalg_at(f, col, 1, j));
    hlo good = compare_k(f, "GT", d, 0);
    hlo stop = either(f, hlo_op1(f, "not", good), hlo_compare(f, "NE", v[2], hlo_like_i(f, v[2], 0)));
    hlo r = root(f, hlo_select(f, good, d, hlo_like_f(f, d, 1)));
    hlo at = linalg_place(f, col, 1), here = hlo_broadcast_to(f, j, hlo_type(f, at));
    hlo below = hlo_compare(f, "GT", at, here), on = hlo_compare(f, "EQ", at, here);
    hlo rr = linalg_as(f, linalg_spread(f, r, col, 1), t), zero = hlo_zeros(f, hlo_type(f, col));
    hlo scaled = hlo_select(f, below, over(f, col, rr), zero);
    hlo next = minus(f, v[1], linalg_outer(f, scaled, linalg_conj(f, scaled)));
    hlo done = hlo_select(f, on, rr, scaled), cols = linalg_place(f, next, 2);
    hlo mine = both(f, hlo_compare(f, "EQ", cols, hlo_broadcast_to(f, j, hlo_type(f, cols))),
                    hlo_compare(f, "GE", linalg_place(f, next, 1), hlo_broadcast_to(f, j, hlo_type(f, cols))));
    next = hlo_select(f, mine, linalg_spread(f, done, next, 2), next);
    hlo first = both(f, hlo_op1(f, "not", good), hlo_compare(f, "EQ", v[2], hlo_like_i(f, v[2], 0)));
    hlo count = hlo_broadcast_to(f, plus(f, j, hlo_const_i(f, one, 1)), hlo_type(f, v[2]));
    hlo out[3] = {plus(f, j, hlo_const_i(f, one, 1)),
                  hlo_select(f, linalg_spread(f, linalg_spread(f, stop, col, 1), next, 2), v[1], next), hlo_select(f, first, count, v[2])};
    hlo_while_end(f, out, out);
    *factor = linalg_triangle(f, out[1], true, 0);
    *info = out[2];
}

/* linalg_cholesky_ex(A, *, upper, check_errors) -> (L, info) */
static void cholesky_ex(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), a, l, info;
    bool upper = op_bool(c, 1);
    if (op_bool(c, 2)) {
        refuse(c);
        return;
    }
    if (!linalg_square(c, x, "linalg.cholesky") || !linalg_matrices(c, x, "linalg.cholesky", &a)) return;
    int64_t b = hlo_dim(f, a, 0);
    l = a;
    info = hlo_zeros(f, type_make(TPU_I32, 1, &b));
    if (hlo_count(f, a)) cholesky_columns(f, upper ? linalg_adjoint(f, a) : a, &l, &info);
    op_out(c, linalg_batch_like(f, upper ? linalg_adjoint(f, l) : l, x));
    op_out(c, linalg_scalars_like(f, info, x));
}

/* clang-format off */
const op_row ops_linalg[] = {
    { "linalg_solve_triangular", linalg_solve_triangular },
    { "triangular_solve",        triangular_solve },
    { "_cholesky_solve_helper",  cholesky_solve },
    { "cholesky_inverse",        cholesky_inverse },
    { "linalg_cholesky_ex",      cholesky_ex },
    { NULL },
};
/* clang-format on */
