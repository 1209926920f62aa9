/* linalg_qr.c - Householder reflections: H = I - tau v v^H with v's first element 1, signs as LAPACK has them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops/linalg_qr.h"

static hlo like_scalar(hlo_fn *f, hlo s, hlo like) { return hlo_broadcast_to(f, s, hlo_type(f, like)); }
static hlo next_place(hlo_fn *f, hlo j) { return plus(f, j, hlo_const_i(f, type_scalar(TPU_I32), 1)); }

/* Column j's reflection: v [b, m] (0 above j, 1 at j), tau [b], and what stands at j afterwards, beta [b] (real). */
static void reflection(hlo_fn *f, hlo col, hlo j, hlo *v, hlo *tau, hlo *beta)
{
    tpu_dtype t = hlo_dtype(f, col);
    bool complex = dtype_is_complex(t);
    hlo at = linalg_place(f, col, 1), here = like_scalar(f, j, at), zero = hlo_zeros(f, hlo_type(f, col));
    hlo below = hlo_compare(f, "GT", at, here), alpha = linalg_at(f, col, 1, j), re = linalg_real(f, alpha);
    hlo tail = hlo_select(f, below, col, zero), rest = linalg_norm2(f, tail, 1);
    hlo im2 = complex ? square(f, hlo_op1(f, "imag", alpha)) : hlo_like_f(f, re, 0);
    hlo size = root(f, plus(f, plus(f, square(f, re), im2), rest));
    hlo none = compare_k(f, "EQ", plus(f, rest, im2), 0);               /* nothing to do: tau = 0 */
    hlo b = hlo_select(f, compare_k(f, "LT", re, 0), size, negate(f, size));
    hlo safe = hlo_select(f, none, hlo_like_f(f, b, 1), b), bc = linalg_as(f, safe, t);
    hlo denominator = hlo_select(f, none, hlo_like_f(f, alpha, 1), minus(f, alpha, bc));
    *tau = hlo_select(f, none, hlo_zeros(f, hlo_type(f, alpha)), over(f, minus(f, bc, alpha), bc));
    *beta = hlo_select(f, none, re, b);
    hlo scaled = over(f, tail, linalg_spread(f, denominator, col, 1));
    *v = hlo_select(f, hlo_compare(f, "EQ", at, here), hlo_like_f(f, col, 1), scaled);
}

/* (I - tau v v^H) x */
static hlo reflect(hlo_fn *f, hlo x, hlo v, hlo tau)
{
    hlo w = hlo_reduce(f, "add", times(f, linalg_spread(f, linalg_conj(f, v), x, 2), x), 1u << 1);      /* v^H x */
    return minus(f, x, linalg_outer(f, times(f, linalg_spread(f, tau, v, 1), v), w));
}

void qr_factor(hlo_fn *f, hlo a, hlo *packed, hlo *tau)
{
    int64_t b = hlo_dim(f, a, 0), m = hlo_dim(f, a, 1), n = hlo_dim(f, a, 2), k = m < n ? m : n;
    tpu_type one = type_scalar(TPU_I32), taus = type_make(hlo_dtype(f, a), 2, (int64_t[]){b, k});
    hlo init[3] = {hlo_const_i(f, one, 0), a, hlo_zeros(f, taus)}, w[3], v, t, beta;
    *packed = a;
    *tau = init[2];
    if (!hlo_count(f, a)) return;
    hlo_while_begin(f, init, 3, w);
    hlo_while_body(f, hlo_compare(f, "LT", w[0], hlo_const_i(f, one, k)), w);
    hlo col = linalg_at(f, w[1], 2, w[0]);
    reflection(f, col, w[0], &v, &t, &beta);
    /* LAPACK applies H^H to what stands right of column j; the column itself becomes beta and v */
    hlo x = reflect(f, w[1], v, linalg_conj(f, t)), cols = linalg_place(f, x, 2), j = like_scalar(f, w[0], cols);
    hlo rows = linalg_place(f, col, 1), jr = like_scalar(f, w[0], rows);
    hlo done = hlo_select(f, hlo_compare(f, "EQ", rows, jr), linalg_as(f, linalg_spread(f, beta, col, 1), hlo_dtype(f, a)),
                          hlo_select(f, hlo_compare(f, "GT", rows, jr), v, col));
    x = hlo_select(f, hlo_compare(f, "GT", cols, j), x, w[1]);
    x = hlo_select(f, hlo_compare(f, "EQ", cols, j), linalg_spread(f, done, x, 2), x);
    hlo places = linalg_place(f, w[2], 1);
    hlo next[3] = {next_place(f, w[0]), x, hlo_select(f, hlo_compare(f, "EQ", places, like_scalar(f, w[0], places)), linalg_spread(f, t, w[2], 1), w[2])};
    hlo_while_end(f, next, next);
    *packed = next[1];
    *tau = next[2];
}

/* Reflection j as it stands below the diagonal of packed. */
static hlo stored(hlo_fn *f, hlo packed, hlo j)
{
    hlo col = linalg_at(f, packed, 2, j), at = linalg_place(f, col, 1), here = like_scalar(f, j, at);
    hlo v = hlo_select(f, hlo_compare(f, "GT", at, here), col, hlo_zeros(f, hlo_type(f, col)));
    return hlo_select(f, hlo_compare(f, "EQ", at, here), hlo_like_f(f, col, 1), v);
}

hlo qr_apply(hlo_fn *f, hlo packed, hlo tau, hlo x, bool adjoint)
{
    int64_t k = hlo_dim(f, tau, 1);
    if (!k || !hlo_count(f, x)) return x;
    tpu_type one = type_scalar(TPU_I32);
    hlo init[2] = {hlo_const_i(f, one, 0), x}, w[2];
    hlo_while_begin(f, init, 2, w);
    hlo_while_body(f, hlo_compare(f, "LT", w[0], hlo_const_i(f, one, k)), w);
    /* Q = H_0 H_1 ...: the last comes first; Q^H the other way round */
    hlo j = adjoint ? w[0] : minus(f, hlo_const_i(f, one, k - 1), w[0]), t = linalg_at(f, tau, 1, j);
    hlo next[2] = {next_place(f, w[0]), reflect(f, w[1], stored(f, packed, j), adjoint ? linalg_conj(f, t) : t)};
    hlo_while_end(f, next, next);
    return next[1];
}

hlo qr_columns(hlo_fn *f, hlo packed, hlo tau, int64_t n)
{
    tpu_type t = hlo_type(f, packed);
    t.dim[2] = n;
    return qr_apply(f, packed, tau, linalg_eye(f, t), false);
}

/* ---- rows ---- */
/* linalg_qr(A, mode) -> (Q, R) */
static void linalg_qr(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *mode = op_str(c, 1) ? op_str(c, 1) : "reduced";
    bool none = mode[0] == 'r' && !mode[1], complete = mode[0] == 'c', reduced = mode[0] == 'r' && mode[1] == 'e';
    hlo x = op_in(c, 0), a, packed, tau;
    if (!none && !complete && !reduced) {
        op_fail(c, TPU_INVALID, "qr received unrecognized mode '%s' but expected one of 'reduced' (default), 'r', or 'complete'", mode);
        return;
    }
    if (!linalg_matrices(c, x, "linalg.qr", &a)) return;
    int64_t m = hlo_dim(f, a, 1), n = hlo_dim(f, a, 2), k = complete ? m : m < n ? m : n;
    qr_factor(f, a, &packed, &tau);
    if (none) op_out(c, hlo_zeros(f, type_make(hlo_dtype(f, x), 1, (int64_t[]){0})));
    else op_out(c, linalg_batch_like(f, qr_columns(f, packed, tau, k), x));
    op_out(c, linalg_batch_like(f, linalg_triangle(f, hlo_slice_dim(f, packed, 1, 0, k, 1), false, 0), x));
}

/* geqrf(A) -> (packed, tau) */
static void geqrf(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), a, packed, tau;
    if (!linalg_matrices(c, x, "torch.geqrf", &a)) return;
    qr_factor(f, a, &packed, &tau);
    op_out(c, linalg_batch_like(f, packed, x));
    op_out(c, linalg_vectors_like(f, tau, x));
}

static bool reflections(op_ctx *c, const char *who, hlo *packed, hlo *tau)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), t = op_in(c, 1);
    if (!linalg_matrices(c, x, who, packed)) return false;
    if (hlo_rank(f, t) != hlo_rank(f, x) - 1 || hlo_dim(f, x, -1) < hlo_dim(f, t, -1) || hlo_dtype(f, t) != hlo_dtype(f, x)) {
        op_fail(c, TPU_INVALID, "%s: input.shape[-1] must be greater than or equal to tau.shape[-1], and tau of the same dtype", who);
        return false;
    }
    *tau = hlo_reshape(f, t, 2, (int64_t[]){hlo_dim(f, *packed, 0), hlo_dim(f, t, -1)});
    return !hlo_failed(f);
}

/* linalg_householder_product(input, tau): the first columns of Q */
static void householder_product(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo packed, tau;
    if (!reflections(c, "torch.linalg.householder_product", &packed, &tau)) return;
    if (hlo_dim(f, packed, 1) < hlo_dim(f, packed, 2)) {
        op_fail(c, TPU_INVALID, "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]");
        return;
    }
    op_out(c, linalg_batch_like(f, qr_columns(f, packed, tau, hlo_dim(f, packed, 2)), op_in(c, 0)));
}

/* ormqr(input, tau, other, left, transpose): Q or Q^H times other */
static void ormqr(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo packed, tau, other = op_in(c, 2), y;
    bool left = op_bool(c, 3), adjoint = op_bool(c, 4);
    if (!reflections(c, "torch.ormqr", &packed, &tau) || !linalg_matrices(c, other, "torch.ormqr", &y)) return;
    if (hlo_dim(f, other, left ? -2 : -1) != hlo_dim(f, packed, 1)) {
        op_fail(c, TPU_INVALID, "torch.ormqr: other.shape[%d] must be equal to input.shape[-2]", left ? -2 : -1);
        return;
    }
    y = left ? qr_apply(f, packed, tau, y, adjoint) : linalg_adjoint(f, qr_apply(f, packed, tau, linalg_adjoint(f, y), !adjoint));
    op_out(c, linalg_batch_like(f, y, other));
}

/* clang-format off */
const op_row ops_linalg_qr[] = {
    { "linalg_qr",                  linalg_qr },
    { "geqrf",                      geqrf },
    { "linalg_householder_product", householder_product },
    { "ormqr",                      ormqr },
    { NULL },
};
/* clang-format on */
