/* view.c - the engine's own rows: reading and writing views of a storage, and casts of its bytes [A1].
 * SPDX-License-Identifier: Apache-2.0 */
#include "view.h"

#include "ops.h"

/* ---- dtype views: the same bytes under another dtype, as a flat tensor ---- */
static hlo complex_to_pairs(hlo_fn *f, hlo flat)
{
    hlo parts[2] = {hlo_unsqueeze(f, hlo_op1(f, "real", flat), 1), hlo_unsqueeze(f, hlo_op1(f, "imag", flat), 1)};
    return hlo_flatten(f, hlo_concat(f, parts, 2, 1));
}

static hlo pairs_to_complex(hlo_fn *f, hlo flat)
{
    int64_t n = hlo_count(f, flat) / 2;
    hlo pairs = hlo_reshape(f, flat, 2, (int64_t[]){n, 2});
    hlo re = hlo_reshape(f, hlo_slice_dim(f, pairs, 1, 0, 1, 1), 1, &n);
    hlo im = hlo_reshape(f, hlo_slice_dim(f, pairs, 1, 1, 2, 1), 1, &n);
    return hlo_op2(f, "complex", re, im);
}

static hlo cast_bytes(hlo_fn *f, hlo x, tpu_dtype to)
{
    tpu_dtype from = hlo_dtype(f, x);
    if (from == to || !hlo_ok(x)) return x;             /* an earlier error sticks */
    if (dtype_is_complex(from)) return cast_bytes(f, complex_to_pairs(f, hlo_flatten(f, x)), to);
    if (dtype_is_complex(to)) return pairs_to_complex(f, cast_bytes(f, hlo_flatten(f, x), dtype_real(to)));
    if (from == TPU_BOOL) return cast_bytes(f, hlo_convert(f, x, TPU_U8), to);
    if (to == TPU_BOOL) return hlo_convert(f, cast_bytes(f, x, TPU_U8), TPU_BOOL);
    size_t a = dtype_size(from), b = dtype_size(to);
    if (a == b) return hlo_bitcast(f, x, to);
    x = hlo_flatten(f, x);
    if (a > b) return hlo_flatten(f, hlo_bitcast(f, x, to));
    int64_t k = (int64_t)(b / a), n = hlo_count(f, x) / k;
    if (n * k != hlo_count(f, x)) x = hlo_slice_dim(f, x, 0, 0, n * k, 1);
    return hlo_bitcast(f, hlo_reshape(f, x, 2, (int64_t[]){n, k}), to);
}

/* ---- boxes ---- */
static hlo into_box_shape(hlo_fn *f, hlo x, const view_box *b)
{
    int64_t total = hlo_count(f, x);
    if (b->padded > total) {
        hlo zero = hlo_zeros(f, type_scalar(hlo_dtype(f, x)));
        x = hlo_pad(f, hlo_flatten(f, x), zero, (int64_t[]){0}, (int64_t[]){b->padded - total}, NULL);
    }
    return hlo_reshape(f, x, b->n, b->extent);
}

/* The digits of a run-time offset, one scalar a box dim. */
static void starts_of(hlo_fn *f, const view_box *b, hlo offset, hlo *out)
{
    int64_t inner = b->padded;
    for (int i = 0; i < b->n; i++) {
        inner /= b->extent[i] ? b->extent[i] : 1;
        hlo q = hlo_op2(f, "divide", offset, hlo_like_i(f, offset, inner ? inner : 1));
        out[i] = i == 0 ? q : hlo_op2(f, "remainder", q, hlo_like_i(f, offset, b->extent[i]));
    }
}

static void static_starts(hlo_fn *f, const view_box *b, hlo *out)
{
    for (int i = 0; i < b->n; i++) out[i] = hlo_const_i(f, type_scalar(TPU_I64), b->start[i]);
}

/* View dims of more than one element, without the expanded ones, in view order: their place in the box. */
static int box_perm(const view_box *b, int rank, int64_t *to_view, int64_t *to_box)
{
    int n = 0;
    for (int d = 0; d < rank; d++)
        for (int i = 0; i < b->n; i++)
            if (b->from[i] == d) {
                to_view[n] = i;
                to_box[i] = n++;
            }
    return n;
}

static hlo from_box(hlo_fn *f, hlo box, const view_box *b, int rank, const int64_t *size, const int64_t *stride)
{
    int64_t to_view[TYPE_MAX_RANK], to_box[TYPE_MAX_RANK + 1], dims[TYPE_MAX_RANK + 1];
    int n = box_perm(b, rank, to_view, to_box);
    hlo x = hlo_transpose(f, hlo_reshape(f, box, n, b->size), to_view);
    int64_t at[TYPE_MAX_RANK];
    for (int d = 0, k = 0; d < rank; d++) {
        dims[d] = size[d] != 1 && stride[d] == 0 ? 1 : size[d];
        at[d] = d;
        k += dims[d] != 1;
    }
    x = hlo_reshape(f, x, rank, dims);
    return hlo_broadcast_in_dim(f, x, type_make(hlo_dtype(f, x), rank, size), at);
}

static hlo flat_indices(hlo_fn *f, int rank, const int64_t *size, const int64_t *stride, hlo offset)
{
    tpu_type t = type_make(TPU_I64, rank, size);
    hlo sum = hlo_broadcast_to(f, offset, t);
    for (int d = 0; d < rank; d++)
        if (stride[d] && size[d] > 1)
            sum = hlo_op2(f, "add", sum, hlo_op2(f, "multiply", hlo_iota(f, t, d), hlo_const_i(f, t, stride[d])));
    return sum;
}

static hlo conj_neg(hlo_fn *f, hlo x, int64_t flags)
{
    if (flags & 1 && dtype_is_complex(hlo_dtype(f, x)))
        x = hlo_op2(f, "complex", hlo_op1(f, "real", x), hlo_op1(f, "negate", hlo_op1(f, "imag", x)));
    return flags & 2 ? hlo_op1(f, "negate", x) : x;
}

static bool full_box(const view_box *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->size[i] != b->extent[i]) return false;
    return true;
}

/* tpu::view(base, int[] size, int[] stride, int offset, ScalarType dtype, int flags); in view_at the offset is run-time data
 * and `box_offset`, argument 6, one offset of the same digits' range that shows the box. */
static void read_view(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int rank, nstride;
    const int64_t *size = op_ints(c, 1, &rank), *stride = op_ints(c, 2, &nstride);
    bool moving = op_row_of(c)->word != NULL;
    int64_t offset = op_int(c, moving ? 6 : 3);
    hlo base = cast_bytes(f, op_in(c, 0), op_dtype(c, 4, TPU_NONE));
    tpu_type t = type_make(hlo_dtype(f, base), rank, size);
    if (type_count(&t) == 0) {
        op_out(c, hlo_zeros(f, t));
        return;
    }
    view_box b;
    hlo out;
    if (!view_box_of(hlo_count(f, base), rank, size, stride, offset, &b)) {
        hlo at = moving ? op_scalar(c, 3, TPU_I64) : hlo_const_i(f, type_scalar(TPU_I64), offset);
        out = hlo_take(f, hlo_flatten(f, base), flat_indices(f, rank, size, stride, at), 0);
    } else if (moving) {
        hlo starts[TYPE_MAX_RANK + 1];
        starts_of(f, &b, op_scalar(c, 3, TPU_I64), starts);
        out = from_box(f, hlo_dynamic_slice(f, into_box_shape(f, base, &b), starts, b.size), &b, rank, size, stride);
    } else {
        hlo box = into_box_shape(f, base, &b);
        int64_t limit[TYPE_MAX_RANK + 1];
        for (int i = 0; i < b.n; i++) limit[i] = b.start[i] + b.size[i];
        if (!full_box(&b)) box = hlo_slice(f, box, b.start, limit, NULL);
        out = from_box(f, box, &b, rank, size, stride);
    }
    op_out(c, conj_neg(f, out, op_int(c, 5)));
}

/* tpu::view_write(base, int[] size, int[] stride, int offset, ScalarType dtype, int flags, value) -> the new base;
 * in view_write_at the offset is run-time data and argument 7 shows the box. */
static void write_view(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    int rank, nstride;
    const int64_t *size = op_ints(c, 1, &rank), *stride = op_ints(c, 2, &nstride);
    bool moving = op_row_of(c)->word != NULL;
    int64_t offset = op_int(c, moving ? 7 : 3);
    tpu_type whole = hlo_type(f, op_in(c, 0));
    hlo base = cast_bytes(f, op_in(c, 0), op_dtype(c, 4, TPU_NONE));
    hlo value = conj_neg(f, op_in(c, 6), op_int(c, 5));
    hlo at = moving ? op_scalar(c, 3, TPU_I64) : hlo_const_i(f, type_scalar(TPU_I64), offset);
    tpu_type seen = hlo_type(f, base);
    view_box b;
    hlo out;
    if (hlo_count(f, value) == 0) {
        out = base;
    } else if (!view_box_of(hlo_count(f, base), rank, size, stride, offset, &b)) {
        hlo flat = hlo_flatten(f, base), index = hlo_flatten(f, flat_indices(f, rank, size, stride, at));
        hlo_gather_dims d = {.ncollapsed = 1, .nmap = 1, .index_vector_dim = 1};
        index = hlo_unsqueeze(f, index, 1);
        out = hlo_scatter(f, "assign", flat, index, hlo_flatten(f, value), &d);
    } else {
        int64_t to_view[TYPE_MAX_RANK], to_box[TYPE_MAX_RANK + 1], dims[TYPE_MAX_RANK + 1];
        int n = box_perm(&b, rank, to_view, to_box);
        for (int i = 0; i < n; i++) dims[i] = b.size[to_view[i]];
        value = hlo_reshape(f, hlo_transpose(f, hlo_reshape(f, value, n, dims), to_box), b.n, b.size);
        hlo starts[TYPE_MAX_RANK + 1];
        if (moving) starts_of(f, &b, at, starts);
        else static_starts(f, &b, starts);
        out = hlo_dynamic_update_slice(f, into_box_shape(f, base, &b), value, starts);
        if (b.padded > type_count(&seen))
            out = hlo_slice_dim(f, hlo_flatten(f, out), 0, 0, type_count(&seen), 1);
    }
    out = cast_bytes(f, hlo_reshape(f, out, seen.rank, seen.dim), (tpu_dtype)whole.dtype);
    op_out(c, hlo_reshape(f, out, whole.rank, whole.dim));
}

/* tpu::zeros(int[] size, ScalarType dtype): what an uninitialised storage reads as. */
static void zeros(op_ctx *c)
{
    int rank;
    const int64_t *size = op_ints(c, 0, &rank);
    op_out(c, hlo_zeros(op_fn(c), type_make(op_dtype(c, 1, TPU_NONE), rank, size)));
}

/* tpu::copy(x, int[] size, ScalarType dtype): converts and broadcasts. */
static void copy(op_ctx *c)
{
    int rank;
    const int64_t *size = op_ints(c, 1, &rank);
    tpu_dtype to = op_dtype(c, 2, TPU_NONE);
    op_out(c, hlo_broadcast_to(op_fn(c), op_in_as(c, 0, to), type_make(to, rank, size)));
}

/* tpu::transpose(x, int[] perm). */
static void transpose(op_ctx *c)
{
    int n;
    const int64_t *perm = op_ints(c, 1, &n);
    op_out(c, hlo_transpose(op_fn(c), op_in(c, 0), perm));
}

/* tpu::resize(x, int count): the flat storage cut or grown with zeros to count elements. */
static void resize(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = hlo_flatten(f, op_in(c, 0));
    int64_t have = hlo_count(f, x), want = op_int(c, 1);
    if (want <= have) x = hlo_slice_dim(f, x, 0, 0, want, 1);
    else x = hlo_pad(f, x, hlo_zeros(f, type_scalar(hlo_dtype(f, x))), (int64_t[]){0}, (int64_t[]){want - have}, NULL);
    op_out(c, x);
}

/* clang-format off */
const op_row ops_view[] = {
    { "tpu::view",          read_view,  NULL },
    { "tpu::view_at",       read_view,  "moving" },
    { "tpu::view_write",    write_view, NULL },
    { "tpu::view_write_at", write_view, "moving" },
    { "tpu::zeros",         zeros,      NULL },
    { "tpu::copy",          copy,       NULL },
    { "tpu::transpose",     transpose,  NULL },
    { "tpu::resize",        resize,     NULL },
    { NULL },
};
/* clang-format on */
