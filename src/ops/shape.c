/* shape.c - joining, padding, rolling and the gradients of views.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"
#include "words.h"

static bool legacy_empty(hlo_fn *f, hlo x) { return hlo_rank(f, x) == 1 && hlo_dim(f, x, 0) == 0; }

/* cat(tensors, dim): an empty 1-d tensor joins anything */
static void cat(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n = op_len(c, 0), m = 0;
    hlo *parts = mem_new((size_t)(n + 1) * sizeof *parts);
    if (!parts || !n) {
        op_fail(c, parts ? TPU_INVALID : TPU_EXHAUSTED, "torch.cat(): expected a non-empty list of Tensors");
        mem_free(parts);
        return;
    }
    tpu_dtype t = op_promote(c, (int[]){0}, 1);
    for (int i = 0; i < n; i++) {
        hlo x = op_elem(c, 0, i);
        if (hlo_rank(f, x) == 0) op_fail(c, TPU_INVALID, "zero-dimensional tensor (at position %d) cannot be concatenated", i);
        if (!legacy_empty(f, x)) parts[m++] = hlo_convert(f, x, t);
    }
    if (m == 0) {
        op_out_as(c, op_elem(c, 0, 0), t);
    } else {
        int rank = hlo_rank(f, parts[0]), d = op_dim(c, op_int(c, 1), rank);
        for (int i = 1; i < m; i++) {
            bool same = hlo_rank(f, parts[i]) == rank;
            for (int k = 0; same && k < rank; k++) same = k == d || hlo_dim(f, parts[i], k) == hlo_dim(f, parts[0], k);
            if (!same) op_fail(c, TPU_INVALID, "Sizes of tensors must match except in dimension %d. Expected size %lld but got size %lld for tensor number %d in the list.", d,
                               (long long)hlo_dim(f, parts[0], d ? 0 : rank - 1), (long long)hlo_dim(f, parts[i], d ? 0 : rank - 1), i);
        }
        op_out(c, m == 1 ? parts[0] : hlo_concat(f, parts, m, d));
    }
    mem_free(parts);
}

static void stack(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n = op_len(c, 0);
    hlo *parts = mem_new((size_t)(n + 1) * sizeof *parts);
    if (!parts || !n) {
        op_fail(c, parts ? TPU_INVALID : TPU_EXHAUSTED, "stack expects a non-empty TensorList");
        mem_free(parts);
        return;
    }
    tpu_dtype t = op_promote(c, (int[]){0}, 1);
    int d = op_dim(c, op_int(c, 1), hlo_rank(f, op_elem(c, 0, 0)) + 1);
    for (int i = 0; i < n; i++) {
        tpu_type a = hlo_type(f, op_elem(c, 0, 0)), b = hlo_type(f, op_elem(c, 0, i));
        if (!type_same_shape(&a, &b)) op_fail(c, TPU_INVALID, "stack expects each tensor to be equal size, but got another size at entry %d", i);
        parts[i] = hlo_unsqueeze(f, hlo_convert(f, op_elem(c, 0, i), t), d);
    }
    op_out(c, n == 1 ? parts[0] : hlo_concat(f, parts, n, d));
    mem_free(parts);
}

/* roll(self, shifts, dims) */
static hlo roll_dim(hlo_fn *f, hlo x, int d, int64_t shift)
{
    int64_t n = hlo_dim(f, x, d);
    if (!n) return x;
    shift = ((shift % n) + n) % n;
    if (!shift) return x;
    hlo parts[2] = {hlo_slice_dim(f, x, d, n - shift, n, 1), hlo_slice_dim(f, x, d, 0, n - shift, 1)};
    return hlo_concat(f, parts, 2, d);
}

static void roll(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    int n, m;
    const int64_t *shift = op_ints(c, 1, &n), *dims = op_ints(c, 2, &m);
    tpu_type t = hlo_type(f, x);
    if (m == 0) {
        if (n != 1) op_fail(c, TPU_INVALID, "shifts and dimensions must align. shifts: %d, dims:%d", n, m);
        else op_out(c, hlo_reshape(f, roll_dim(f, hlo_flatten(f, x), 0, shift[0]), t.rank, t.dim));
        return;
    }
    if (!t.rank) op_fail(c, TPU_OUT_OF_RANGE, "Dimension specified as %lld but tensor has no dimensions", (long long)dims[0]);
    if (n != m) op_fail(c, TPU_INVALID, "shifts and dimensions must align. shifts: %d, dims:%d", n, m);
    for (int i = 0; i < m && i < n; i++) x = roll_dim(f, x, op_dim(c, dims[i], t.rank), shift[i]);
    op_out(c, x);
}

static void flip(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n, rank = hlo_rank(f, op_in(c, 0));
    const int64_t *dims = op_ints(c, 1, &n);
    uint32_t mask = 0;
    for (int i = 0; i < n; i++) {
        int d = op_dim(c, dims[i], rank);
        if (mask >> d & 1) op_fail(c, TPU_INVALID, "dim %d appears multiple times in the list of dims", d);
        mask |= 1u << d;
    }
    op_out(c, rank ? hlo_reverse(f, op_in(c, 0), mask) : op_in(c, 0));
}

/* repeat(self, repeats) */
static void repeat(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    int n, rank = hlo_rank(f, x);
    const int64_t *times = op_ints(c, 1, &n);
    if (n < rank) {
        op_fail(c, TPU_INVALID, "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
        return;
    }
    int64_t dims[TYPE_MAX_RANK];
    for (int i = 0; i < n; i++) dims[i] = i < n - rank ? 1 : hlo_dim(f, x, i - (n - rank));
    x = hlo_reshape(f, x, n, dims);
    for (int d = 0; d < n; d++) {
        tpu_type t = hlo_type(f, x);
        if (times[d] == 1) continue;
        int64_t wide[TYPE_MAX_RANK], at[TYPE_MAX_RANK];
        if (n + 1 > TYPE_MAX_RANK) {
            op_fail(c, TPU_UNIMPLEMENTED, "too many dims");
            return;
        }
        for (int i = 0; i <= n; i++) wide[i] = i < d ? t.dim[i] : i == d ? times[d] : t.dim[i - 1];
        for (int i = 0; i < n; i++) at[i] = i < d ? i : i + 1;
        x = hlo_broadcast_in_dim(f, x, type_make((tpu_dtype)t.dtype, n + 1, wide), at);
        t.dim[d] *= times[d];
        x = hlo_reshape(f, x, n, t.dim);
    }
    op_out(c, x);
}

/* constant_pad_nd(self, pad, value): pairs from the last dim on, may be negative */
static void constant_pad(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    int n, rank = hlo_rank(f, x);
    const int64_t *pad = op_ints(c, 1, &n);
    int64_t lo[TYPE_MAX_RANK] = {0}, hi[TYPE_MAX_RANK] = {0};
    if (n % 2 || n / 2 > rank) {
        op_fail(c, TPU_INVALID, "Length of pad should be no more than twice the number of dimensions of the input. Pad length is %d while the input has %d dimensions.", n, rank);
        return;
    }
    for (int i = 0; i < n / 2; i++) {
        lo[rank - 1 - i] = pad[2 * i];
        hi[rank - 1 - i] = pad[2 * i + 1];
        if (hlo_dim(f, x, rank - 1 - i) + pad[2 * i] + pad[2 * i + 1] < 0) {
            op_fail(c, TPU_INVALID, "The input size %lld, plus negative padding %lld and %lld, resulted in a negative output size", (long long)hlo_dim(f, x, rank - 1 - i),
                    (long long)pad[2 * i], (long long)pad[2 * i + 1]);
            return;
        }
    }
    op_out(c, hlo_pad(f, x, op_scalar(c, 2, hlo_dtype(f, x)), lo, hi, NULL));
}

/* ---- gradients of views ---- */
static hlo zeros_of(op_ctx *c, hlo like, int sizes)
{
    int n;
    const int64_t *size = op_ints(c, sizes, &n);
    return hlo_zeros(op_fn(c), type_make(hlo_dtype(op_fn(c), like), n, size));
}

static int64_t clip(int64_t v, int64_t n)
{
    if (v < 0) v += n;
    return v < 0 ? 0 : v > n ? n : v;
}

/* slice_backward(grad, input_sizes, dim, start, end, step) */
static void slice_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in(c, 0);
    int n;
    const int64_t *size = op_ints(c, 1, &n);
    int d = op_dim(c, op_int(c, 2), n);
    int64_t start = clip(op_int(c, 3), size[d]), step = op_int(c, 5), len = hlo_dim(f, g, d);
    int64_t lo[TYPE_MAX_RANK] = {0}, hi[TYPE_MAX_RANK] = {0}, in[TYPE_MAX_RANK] = {0};
    if (len == 0) {
        op_out(c, zeros_of(c, g, 1));
        return;
    }
    lo[d] = start;
    in[d] = step - 1;
    hi[d] = size[d] - start - ((len - 1) * step + 1);
    op_out(c, hlo_pad(f, g, hlo_zeros(f, type_scalar(hlo_dtype(f, g))), lo, hi, in));
}

/* select_backward(grad, input_sizes, dim, index) */
static void select_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n;
    const int64_t *size = op_ints(c, 1, &n);
    int d = op_dim(c, op_int(c, 2), n);
    int64_t at = op_int(c, 3), lo[TYPE_MAX_RANK] = {0}, hi[TYPE_MAX_RANK] = {0};
    hlo g = hlo_unsqueeze(f, op_in(c, 0), d);
    if (at < 0) at += size[d];
    lo[d] = at;
    hi[d] = size[d] - at - 1;
    op_out(c, hlo_pad(f, g, hlo_zeros(f, type_scalar(hlo_dtype(f, g))), lo, hi, NULL));
}

/* x with v written in its last two dims' diagonal: used by diagonal_backward and diag_embed */
static hlo diagonal_mask(hlo_fn *f, tpu_type t, int a, int b, int64_t offset)
{
    tpu_type i = type_as(t, TPU_I64);
    hlo row = hlo_iota(f, i, a), col = hlo_iota(f, i, b);
    return hlo_compare(f, "EQ", hlo_op2(f, "add", row, hlo_const_i(f, i, offset)), col);
}

/* v [..., L] spread over dims a and b of t, where the diagonal at offset lies; zero elsewhere */
static hlo spread(hlo_fn *f, hlo v, tpu_type t, int a, int b, int64_t offset)
{
    /* Line the diagonal up with the shorter way: index along rows when offset >= 0, along columns otherwise. */
    int along = offset >= 0 ? a : b, r = hlo_rank(f, v), k = 0;
    int64_t n = t.dim[along], len = hlo_dim(f, v, r - 1), lo[TYPE_MAX_RANK] = {0}, hi[TYPE_MAX_RANK] = {0}, at[TYPE_MAX_RANK];
    hi[r - 1] = n - len;
    v = hlo_pad(f, v, hlo_zeros(f, type_scalar(hlo_dtype(f, v))), lo, hi, NULL);
    for (int d = 0; d < t.rank; d++)
        if (d != a && d != b) at[k++] = d;
    at[k] = along;
    hlo wide = hlo_broadcast_in_dim(f, v, t, at);
    return hlo_select(f, diagonal_mask(f, t, a, b, offset), wide, hlo_zeros(f, t));
}

/* diagonal_backward(grad, input_sizes, offset, dim1, dim2) */
static void diagonal_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int n;
    const int64_t *size = op_ints(c, 1, &n);
    tpu_type t = type_make(hlo_dtype(f, op_in(c, 0)), n, size);
    op_out(c, spread(f, op_in(c, 0), t, op_dim(c, op_int(c, 3), n), op_dim(c, op_int(c, 4), n), op_int(c, 2)));
}

/* diag_embed(self, offset, dim1, dim2) */
static void diag_embed(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    int rank = hlo_rank(f, x) + 1, a = op_dim(c, op_int(c, 2), rank), b = op_dim(c, op_int(c, 3), rank), k = 0;
    int64_t offset = op_int(c, 1), side = hlo_dim(f, x, -1) + (offset < 0 ? -offset : offset), dim[TYPE_MAX_RANK];
    if (a == b) op_fail(c, TPU_INVALID, "diagonal dimensions cannot be identical %d, %d", a, b);
    for (int d = 0; d < rank; d++) dim[d] = d == a || d == b ? side : hlo_dim(f, x, k++);
    op_out(c, spread(f, x, type_make(hlo_dtype(f, x), rank, dim), a, b, offset));
}

/* channel_shuffle(self, groups): channels [g, c / g] become [c / g, g] */
static void channel_shuffle(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_type t = hlo_type(f, x), s = t;
    int64_t groups = op_int(c, 1);
    if (t.rank < 3) op_fail(c, TPU_INVALID, "channel_shuffle expects input with > 2 dims, but got input with sizes %s", sizes_in_words(t).s);
    else if (groups < 1) op_fail(c, TPU_INVALID, "Number of groups to divide channels in must be positive. Value of groups:%lld", (long long)groups);
    else if (t.dim[1] % groups)
        op_fail(c, TPU_INVALID, "Number of channels must be divisible by groups. Got %lld channels and %lld groups.", (long long)t.dim[1], (long long)groups);
    if (hlo_failed(f)) return;
    for (int i = s.rank++; i > 1; i--) s.dim[i] = s.dim[i - 1];
    s.dim[1] = groups;
    s.dim[2] /= groups;
    op_out(c, hlo_reshape(f, hlo_swap(f, hlo_reshape(f, x, s.rank, s.dim), 1, 2), t.rank, t.dim));
}

/* clang-format off */
const op_row ops_shape[] = {
    { "cat",               cat },
    { "stack",             stack },
    { "roll",              roll },
    { "flip",              flip },
    { "repeat",            repeat },
    { "constant_pad_nd",   constant_pad },
    { "slice_backward",    slice_backward },
    { "select_backward",   select_backward },
    { "diagonal_backward", diagonal_backward },
    { "diag_embed",        diag_embed },
    { "channel_shuffle",   channel_shuffle },
    { NULL },
};
/* clang-format on */
