/* linalg_jacobi.c - singular values and Hermitian eigenvalues by one-sided Jacobi rotations.
 * All pairs of columns of a round are rotated at once: the columns stand in two halves, column i of one against column i of
 * the other, and between rounds they move on like players of a tournament, who after n - 1 rounds are back in their seats.
 * Plain products and sums in a loop: a TPU runs it as well.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops/linalg_qr.h"

typedef struct halves { hlo left, right; } halves;      /* [b, rows, h] each */

static hlo part(hlo_fn *f, hlo x, int dim, int64_t from, int64_t to) { return hlo_slice_dim(f, x, dim, from, to, 1); }
static hlo number(hlo_fn *f, tpu_dtype t, double v) { return hlo_const_f(f, type_scalar(t), v); }
static hlo splat(hlo_fn *f, hlo s, hlo like) { return hlo_broadcast_to(f, s, hlo_type(f, like)); }

/* The next round: the first column of the left stays. */
static halves move_on(hlo_fn *f, halves x)
{
    int64_t h = hlo_dim(f, x.left, 2);
    if (h < 2) return x;
    hlo l[3] = {part(f, x.left, 2, 0, 1), part(f, x.right, 2, 0, 1), part(f, x.left, 2, 1, h - 1)};
    hlo r[2] = {part(f, x.right, 2, 1, h), part(f, x.left, 2, h - 1, h)};
    return (halves){hlo_concat(f, l, h > 2 ? 3 : 2, 2), hlo_concat(f, r, 2, 2)};
}

/* Makes each pair of columns orthogonal in its first m rows; *off is raised to the greatest cosine there was. */
static halves rotate(hlo_fn *f, halves x, int64_t m, double least, hlo *off)
{
    tpu_dtype t = hlo_dtype(f, x.left);
    hlo a = part(f, x.left, 1, 0, m), b = part(f, x.right, 1, 0, m);
    hlo aa = linalg_norm2(f, a, 1), bb = linalg_norm2(f, b, 1);
    hlo ab = hlo_reduce(f, "add", times(f, linalg_conj(f, a), b), 1u << 1), g = magnitude(f, ab);
    hlo both_norms = times(f, root(f, aa), root(f, bb)), empty = compare_k(f, "EQ", both_norms, 0);
    hlo cosine = hlo_select(f, empty, hlo_like_f(f, g, 0), over(f, g, hlo_select(f, empty, hlo_like_f(f, g, 1), both_norms)));
    hlo turn = compare_k(f, "GT", cosine, least), safe = hlo_select(f, turn, g, hlo_like_f(f, g, 1));
    hlo zeta = over(f, minus(f, bb, aa), times_k(f, safe, 2));
    hlo tangent = over(f, hlo_select(f, compare_k(f, "LT", zeta, 0), hlo_like_f(f, zeta, -1), hlo_like_f(f, zeta, 1)),
                       plus(f, magnitude(f, zeta), root(f, plus_k(f, square(f, zeta), 1))));
    hlo cos = hlo_op1(f, "rsqrt", plus_k(f, square(f, tangent), 1));
    hlo c = linalg_as(f, hlo_select(f, turn, cos, hlo_like_f(f, cos, 1)), t);
    hlo s = linalg_as(f, hlo_select(f, turn, times(f, cos, tangent), hlo_like_f(f, cos, 0)), t);
    hlo phase = hlo_select(f, turn, over(f, linalg_conj(f, ab), linalg_as(f, safe, t)), hlo_like_f(f, ab, 1));
    hlo l = x.left, r = times(f, linalg_spread(f, phase, x.right, 1), x.right);
    c = linalg_spread(f, c, l, 1);
    s = linalg_spread(f, s, l, 1);
    *off = hlo_max(f, *off, hlo_reduce(f, "maximum", cosine, 3));
    return (halves){minus(f, times(f, c, l), times(f, s, r)), plus(f, times(f, s, l), times(f, c, r))};
}

/* One sweep: every pair meets once. */
static halves sweep(hlo_fn *f, halves x, int64_t m, int64_t rounds, double least, hlo *off)
{
    tpu_type one = type_scalar(TPU_I32);
    hlo init[4] = {hlo_const_i(f, one, 0), number(f, dtype_real(hlo_dtype(f, x.left)), 0), x.left, x.right}, v[4];
    hlo_while_begin(f, init, 4, v);
    hlo_while_body(f, hlo_compare(f, "LT", v[0], hlo_const_i(f, one, rounds)), v);
    hlo most = v[1];
    halves y = move_on(f, rotate(f, (halves){v[2], v[3]}, m, least, &most));
    hlo next[4] = {plus(f, v[0], hlo_const_i(f, one, 1)), most, y.left, y.right};
    hlo_while_end(f, next, next);
    *off = next[1];
    return (halves){next[2], next[3]};
}

/* a [b, m, n] -> w = a v with orthogonal columns, v unitary [b, n, n]. */
static void jacobi(hlo_fn *f, hlo a, hlo *w, hlo *v)
{
    int64_t b = hlo_dim(f, a, 0), m = hlo_dim(f, a, 1), n = hlo_dim(f, a, 2), even = n + (n & 1), h = even / 2;
    tpu_dtype t = hlo_dtype(f, a), real = dtype_real(t);
    double least = real == TPU_F64 ? 4e-16 : 2e-7;
    hlo zero = hlo_zeros(f, type_scalar(t));
    hlo wide = hlo_pad(f, a, zero, (int64_t[]){0, 0, 0}, (int64_t[]){0, 0, even - n}, NULL);
    hlo both_parts[2] = {wide, linalg_eye(f, type_make(t, 3, (int64_t[]){b, even, even}))};
    hlo g = hlo_concat(f, both_parts, 2, 1);
    tpu_type one = type_scalar(TPU_I32);
    hlo init[4] = {hlo_const_i(f, one, 0), number(f, real, 1), part(f, g, 2, 0, h), part(f, g, 2, h, even)}, x[4];
    hlo_while_begin(f, init, 4, x);
    hlo more = both(f, hlo_compare(f, "LT", x[0], hlo_const_i(f, one, real == TPU_F64 ? 40 : 25)), hlo_compare(f, "GT", x[1], number(f, real, least)));
    hlo_while_body(f, more, x);
    hlo off;
    halves y = sweep(f, (halves){x[2], x[3]}, m, even - 1, least, &off);
    hlo next[4] = {plus(f, x[0], hlo_const_i(f, one, 1)), off, y.left, y.right};
    hlo_while_end(f, next, next);
    g = part(f, hlo_concat(f, &next[2], 2, 2), 2, 0, n);
    *w = part(f, g, 1, 0, m);
    *v = part(f, g, 1, m, m + n);
}

/* Columns of x [b, m, n] in the order index [b, n]. */
static hlo columns(hlo_fn *f, hlo x, hlo index) { return hlo_swap(f, linalg_rows(f, hlo_swap(f, x, 1, 2), index), 1, 2); }

/* The greatest |element| of each matrix, 1 for none: squares then neither overflow nor vanish. */
static hlo scale_of(hlo_fn *f, hlo a)
{
    hlo s = hlo_reduce(f, "maximum", magnitude(f, a), 3u << 1);
    return hlo_select(f, compare_k(f, "EQ", s, 0), hlo_like_f(f, s, 1), s);
}

static hlo by_scale(hlo_fn *f, hlo x, hlo s, bool divide)
{
    hlo wide = linalg_as(f, hlo_broadcast_in_dim(f, s, type_as(hlo_type(f, x), hlo_dtype(f, s)), (int64_t[]){0}), hlo_dtype(f, x));
    return divide ? over(f, x, wide) : times(f, x, wide);
}

/* a [b, m, n] with m >= n -> u [b, m, full ? m : n], s [b, n] falling, v [b, n, n] */
static void tall_svd(hlo_fn *f, hlo a, bool full, hlo *u, hlo *s, hlo *v)
{
    int64_t m = hlo_dim(f, a, 1), n = hlo_dim(f, a, 2);
    tpu_dtype t = hlo_dtype(f, a);
    hlo scale = scale_of(f, a), w, packed, tau;
    jacobi(f, by_scale(f, a, scale, true), &w, v);
    hlo size = root(f, linalg_norm2(f, w, 1)), pair[2] = {size, linalg_place(f, size, 1)};
    hlo_sort(f, pair, 2, 1, true, pair);
    w = columns(f, w, pair[1]);
    *v = columns(f, *v, pair[1]);
    *s = by_scale(f, pair[0], scale, false);
    if (!u) return;
    qr_factor(f, w, &packed, &tau);                     /* also completes u where singular values are 0 */
    hlo q = qr_columns(f, packed, tau, full ? m : n), d = linalg_real(f, linalg_diagonal(f, packed));
    hlo sign = hlo_select(f, compare_k(f, "LT", d, 0), hlo_like_f(f, d, -1), hlo_like_f(f, d, 1));
    if (full && m > n) sign = hlo_pad(f, sign, number(f, dtype_real(t), 1), (int64_t[]){0, 0}, (int64_t[]){0, m - n}, NULL);
    *u = times(f, q, linalg_as(f, linalg_spread(f, sign, q, 1), t));
}

static hlo none_of(hlo_fn *f, tpu_dtype t) { return hlo_zeros(f, type_make(t, 1, (int64_t[]){0})); }

/* _linalg_svd(A, full_matrices, compute_uv, *, driver) -> (U, S, Vh) */
static void linalg_svd(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), a, u = HLO_NONE, s, v;
    bool full = op_bool(c, 1), vectors = op_bool(c, 2);
    tpu_dtype t = hlo_dtype(f, x);
    if (!linalg_matrices(c, x, "linalg.svd", &a)) return;
    int64_t b = hlo_dim(f, a, 0), m = hlo_dim(f, a, 1), n = hlo_dim(f, a, 2), k = m < n ? m : n;
    if (!hlo_count(f, a)) {
        op_out(c, vectors ? linalg_batch_like(f, linalg_eye(f, type_make(t, 3, (int64_t[]){b, m, full ? m : k})), x) : none_of(f, t));
        op_out(c, linalg_vectors_like(f, hlo_zeros(f, type_make(dtype_real(t), 2, (int64_t[]){b, k})), x));
        op_out(c, vectors ? linalg_batch_like(f, linalg_eye(f, type_make(t, 3, (int64_t[]){b, full ? n : k, n})), x) : none_of(f, t));
        return;
    }
    bool wide = m < n;
    tall_svd(f, wide ? linalg_adjoint(f, a) : a, full, vectors ? &u : NULL, &s, &v);
    s = linalg_vectors_like(f, s, x);
    if (!vectors) {
        op_out(c, none_of(f, t));
        op_out(c, s);
        op_out(c, none_of(f, t));
        return;
    }
    op_out(c, linalg_batch_like(f, wide ? v : u, x));
    op_out(c, s);
    op_out(c, linalg_batch_like(f, linalg_adjoint(f, wide ? u : v), x));
}

/* _linalg_eigh(A, UPLO, compute_v) -> (eigenvalues rising, eigenvectors).  A + c I has no negative eigenvalue, so its right
 * singular vectors are A's eigenvectors; the eigenvalues are then v^H A v. */
static void linalg_eigh(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), a, w, v;
    const char *side = op_str(c, 1);
    bool upper = side && (side[0] == 'U' || side[0] == 'u');
    if (!linalg_square(c, x, "linalg.eigh") || !linalg_matrices(c, x, "linalg.eigh", &a)) return;
    tpu_dtype t = hlo_dtype(f, x), real = dtype_real(t);
    if (!hlo_count(f, a)) {
        op_out(c, linalg_vectors_like(f, hlo_reduce(f, "add", linalg_real(f, a), 1u << 2), x));
        op_out(c, op_bool(c, 2) ? x : none_of(f, t));
        return;
    }
    hlo strict = linalg_triangle(f, a, !upper, upper ? -1 : 1), eye = linalg_eye(f, hlo_type(f, a));
    hlo d = linalg_as(f, linalg_real(f, linalg_diagonal(f, a)), t);
    a = plus(f, plus(f, strict, linalg_adjoint(f, strict)), times(f, eye, linalg_spread(f, d, a, 2)));
    hlo scale = scale_of(f, a), unit = by_scale(f, a, scale, true);
    hlo bound = hlo_reduce(f, "maximum", hlo_reduce(f, "add", magnitude(f, unit), 1u << 2), 1u << 1);
    hlo shift = by_scale(f, eye, bound, false);
    jacobi(f, plus(f, unit, shift), &w, &v);
    hlo values = linalg_real(f, hlo_reduce(f, "add", times(f, linalg_conj(f, v), hlo_matmul(f, unit, v, t)), 1u << 1));
    hlo pair[2] = {values, linalg_place(f, values, 1)};
    hlo_sort(f, pair, 2, 1, false, pair);
    op_out(c, linalg_vectors_like(f, hlo_convert(f, by_scale(f, pair[0], scale, false), real), x));
    op_out(c, op_bool(c, 2) ? linalg_batch_like(f, columns(f, v, pair[1]), x) : none_of(f, t));
}

/* ---- matrix exponential: Taylor's series of degree 18 of A / 2^s, squared s times; each matrix has its own s ----
 * Few squarings, for each doubles the error: up to a norm of 3 (float64: 1) the series is exact to the last bit. */
static void matrix_exp(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), a;
    if (!linalg_square(c, x, "linalg.matrix_exp") || !linalg_matrices(c, x, "linalg.matrix_exp", &a)) return;
    if (!hlo_count(f, a)) {
        op_out(c, x);
        return;
    }
    tpu_dtype t = hlo_dtype(f, x), real = dtype_real(t);
    tpu_type one = type_scalar(TPU_I32);
    hlo norm = hlo_reduce(f, "maximum", hlo_reduce(f, "add", magnitude(f, a), 1u << 1), 1u << 1);
    hlo halvings = hlo_op1(f, "ceil", times_k(f, logarithm(f, hlo_max(f, over_k(f, norm, real == TPU_F64 ? 1 : 3), hlo_like_f(f, norm, 1))), 1.4426950408889634));
    halvings = hlo_min(f, halvings, hlo_like_f(f, halvings, 1000));
    hlo eye = linalg_eye(f, hlo_type(f, a)), small = by_scale(f, a, hlo_op2(f, "power", hlo_like_f(f, halvings, 2), halvings), true);
    hlo v[2] = {hlo_const_i(f, one, 18), eye}, w[2];
    hlo_while_begin(f, v, 2, w);
    hlo_while_body(f, hlo_compare(f, "GT", w[0], hlo_const_i(f, one, 0)), w);
    hlo term = over(f, hlo_matmul(f, small, w[1], t), splat(f, hlo_convert(f, w[0], t), small));
    hlo next[2] = {minus(f, w[0], hlo_const_i(f, one, 1)), plus(f, eye, term)};
    hlo_while_end(f, next, v);
    hlo count = hlo_convert(f, halvings, TPU_I32), most = hlo_reduce(f, "maximum", count, 1);
    v[0] = hlo_const_i(f, one, 0);
    hlo_while_begin(f, v, 2, w);
    hlo_while_body(f, hlo_compare(f, "LT", w[0], most), w);
    hlo mine = hlo_compare(f, "LT", splat(f, w[0], count), count);
    mine = hlo_broadcast_in_dim(f, mine, type_as(hlo_type(f, a), TPU_BOOL), (int64_t[]){0});
    next[0] = plus(f, w[0], hlo_const_i(f, one, 1));
    next[1] = hlo_select(f, mine, hlo_matmul(f, w[1], w[1], t), w[1]);
    hlo_while_end(f, next, v);
    op_out(c, linalg_batch_like(f, v[1], x));
}

/* linalg_cross(self, other, *, dim) */
static void linalg_cross(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x = op_in_as(c, 0, t), y = op_in_as(c, 1, t);
    if (hlo_rank(f, x) != hlo_rank(f, y)) {
        op_fail(c, TPU_INVALID, "linalg.cross: inputs must have the same number of dimensions.");
        return;
    }
    int d = op_dim(c, op_int(c, 2), hlo_rank(f, x));
    if (hlo_dim(f, x, d) != 3 || hlo_dim(f, y, d) != 3) {
        op_fail(c, TPU_INVALID, "linalg.cross: inputs dimension %d must have length 3. Got %lld and %lld", d, (long long)hlo_dim(f, x, d), (long long)hlo_dim(f, y, d));
        return;
    }
    x = hlo_convert(f, x, dtype_compute(t));
    y = hlo_convert(f, y, dtype_compute(t));
    hlo_broadcast2(f, &x, &y);
    hlo r[3];
    for (int i = 0; i < 3; i++) {
        int j = (i + 1) % 3, k = (i + 2) % 3;
        r[i] = minus(f, times(f, part(f, x, d, j, j + 1), part(f, y, d, k, k + 1)), times(f, part(f, x, d, k, k + 1), part(f, y, d, j, j + 1)));
    }
    op_out_as(c, hlo_concat(f, r, 3, d), t);
}

/* clang-format off */
const op_row ops_linalg_jacobi[] = {
    { "_linalg_svd",       linalg_svd },
    { "_linalg_eigh",      linalg_eigh },
    { "linalg_matrix_exp", matrix_exp },
    { "linalg_cross",      linalg_cross },
    { NULL },
};
/* clang-format on */
