/* create.c - tensors out of nothing, fills, triangles.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops.h"

/* fill.Scalar(self, value), fill.Tensor(self, value) */
static void fill(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, op_in(c, 0));
    hlo v = op_in_as(c, 1, (tpu_dtype)t.dtype);
    if (hlo_rank(f, v) != 0) {
        op_fail(c, TPU_INVALID, "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.", hlo_rank(f, v));
        return;
    }
    op_out(c, hlo_broadcast_to(f, v, t));
}

static void zero(op_ctx *c) { op_out(c, hlo_zeros(op_fn(c), hlo_type(op_fn(c), op_in(c, 0)))); }

/* ---- factories: their numbers give sizes, so they are part of the program ---- */
static tpu_dtype number_type(op_ctx *c, int n)
{
    for (int i = 0; i < n; i++)
        if (op_scalar_kind(c, i) == TPU_F64) return TPU_F32;
    return TPU_I64;
}

/* start + i * step, in int64 exactly or in double rounded once */
static hlo ramp(op_ctx *c, tpu_dtype t, double start, double step, int64_t n)
{
    hlo_fn *f = op_fn(c);
    bool whole = dtype_is_integral(t);
    tpu_type m = type_make(whole ? TPU_I64 : TPU_F64, 1, &n);
    if (!whole && t != TPU_F64 && start == floor(start) && step == floor(step) && fabs(start) + fabs(step) * (double)n < 16777216) m.dtype = TPU_F32;
    hlo i = hlo_iota(f, m, 0);
    if (step != 1) i = hlo_op2(f, "multiply", i, hlo_like_f(f, i, step));
    if (start != 0) i = hlo_op2(f, "add", i, hlo_like_f(f, i, start));
    return hlo_convert(f, i, t);
}

/* arange(end), arange.start(start, end), arange.start_step(start, end, step); word: how many numbers stand first */
static void arange(op_ctx *c)
{
    int n = op_row_of(c)->word[0] - '0';
    double start = n > 1 ? op_number(c, 0) : 0, end = op_number(c, n > 1 ? 1 : 0), step = n > 2 ? op_number(c, 2) : 1;
    tpu_dtype t = op_dtype(c, n, number_type(c, n));
    if (step == 0 || isnan(start) || isnan(end)) {
        op_fail(c, TPU_INVALID, step == 0 ? "step must be nonzero" : "unsupported range: %g -> %g", start, end);
        return;
    }
    if ((step > 0 && end < start) || (step < 0 && end > start)) {
        op_fail(c, TPU_INVALID, "upper bound and lower bound inconsistent with step sign");
        return;
    }
    op_out(c, ramp(c, t, start, step, (int64_t)ceil((end - start) / step)));
}

/* full(size, value, dtype, ...) */
static void full(op_ctx *c)
{
    int n;
    const int64_t *size = op_ints(c, 0, &n);
    tpu_dtype kind = op_scalar_kind(c, 1), t = op_dtype(c, 2, kind == TPU_F64 ? TPU_F32 : kind == TPU_C128 ? TPU_C64 : kind);
    op_out(c, hlo_broadcast_to(op_fn(c), op_scalar(c, 1, t), type_make(t, n, size)));
}

/* zeros(size, dtype, ...), ones(size, dtype, ...) */
static void constant(op_ctx *c)
{
    int n;
    const int64_t *size = op_ints(c, 0, &n);
    op_out(c, hlo_const_f(op_fn(c), type_make(op_dtype(c, 1, TPU_F32), n, size), op_row_of(c)->word[0] - '0'));
}

/* scalar_tensor(s, dtype, ...) */
static void scalar_tensor(op_ctx *c)
{
    op_out(c, op_scalar(c, 0, op_dtype(c, 1, TPU_F32)));
}

/* eye(n), eye.m(n, m) */
static void eye(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool two = op_row_of(c)->word != NULL;
    int64_t dim[2] = {op_int(c, 0), two ? op_int(c, 1) : op_int(c, 0)};
    tpu_type t = type_make(TPU_I64, 2, dim);
    hlo on = hlo_compare(f, "EQ", hlo_iota(f, t, 0), hlo_iota(f, t, 1));
    op_out_as(c, on, op_dtype(c, two ? 2 : 1, TPU_F32));
}

/* n points from argument 0 to 1 in dtype m, symmetric about the middle as PyTorch's. */
static hlo spaced(op_ctx *c, int64_t n, tpu_dtype m)
{
    hlo_fn *f = op_fn(c);
    if (n < 0) op_fail(c, TPU_INVALID, "number of steps must be non-negative");
    tpu_type w = type_make(m, 1, &n), iw = type_make(TPU_I64, 1, &n);
    hlo a = op_scalar(c, 0, m), b = op_scalar(c, 1, m), i = hlo_convert(f, hlo_iota(f, iw, 0), m);
    hlo step = hlo_op2(f, "divide", hlo_op2(f, "subtract", b, a), hlo_const_f(f, type_scalar(m), n > 1 ? (double)(n - 1) : 1));
    hlo left = hlo_op2(f, "add", hlo_broadcast_to(f, a, w), hlo_op2(f, "multiply", hlo_broadcast_to(f, step, w), i));
    hlo back = hlo_op2(f, "subtract", hlo_like_f(f, i, (double)(n - 1)), i);
    hlo right = hlo_op2(f, "subtract", hlo_broadcast_to(f, b, w), hlo_op2(f, "multiply", hlo_broadcast_to(f, step, w), back));
    hlo first = hlo_compare(f, "LT", hlo_iota(f, iw, 0), hlo_const_i(f, iw, n / 2));
    return n == 1 ? hlo_broadcast_to(f, a, w) : hlo_select(f, first, left, right);
}

static tpu_dtype space_dtype(op_ctx *c, int arg)
{
    bool any_complex = op_scalar_kind(c, 0) == TPU_C128 || op_scalar_kind(c, 1) == TPU_C128;
    return op_dtype(c, arg, any_complex ? TPU_C64 : TPU_F32);
}

/* linspace(start, end, steps, dtype, ...) */
static void linspace(op_ctx *c)
{
    tpu_dtype t = space_dtype(c, 3);
    op_out_as(c, spaced(c, op_int(c, 2), dtype_is_complex(t) ? t : TPU_F64), t);
}

/* logspace(start, end, steps, base, dtype, ...): base to the power of linspace */
static void logspace(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = space_dtype(c, 4), m = dtype_is_complex(t) ? t : TPU_F64;
    hlo x = spaced(c, op_int(c, 2), m);
    op_out_as(c, hlo_op2(f, "power", hlo_broadcast_to(f, op_scalar(c, 3, m), hlo_type(f, x)), x), t);
}

/* ---- triangles ---- */
/* tril(self, diagonal), triu(self, diagonal) */
static void triangle(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    tpu_type t = hlo_type(f, x);
    if (t.rank < 2) {
        op_fail(c, TPU_INVALID, "%s: input tensor must have at least 2 dimensions", op_row_of(c)->name);
        return;
    }
    tpu_type m = type_make(TPU_I64, 2, &t.dim[t.rank - 2]);
    hlo edge = hlo_op2(f, "add", hlo_iota(f, m, 0), hlo_const_i(f, m, op_int(c, 1)));
    hlo keep = hlo_compare(f, op_row_of(c)->word, hlo_iota(f, m, 1), edge);
    op_out(c, hlo_select(f, hlo_broadcast_to(f, keep, type_as(t, TPU_BOOL)), x, hlo_zeros(f, t)));
}

/* tril_indices(row, col, offset, dtype, ...), triu_indices: a constant of the program */
static void triangle_indices(op_ctx *c)
{
    int64_t rows = op_int(c, 0), cols = op_int(c, 1), offset = op_int(c, 2), n = 0;
    bool lower = op_row_of(c)->word[0] == 'l';
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++) n += lower ? k <= r + offset : k >= r + offset;
    int64_t *at = mem_new((size_t)(2 * n + 1) * sizeof *at), i = 0;
    if (!at) {
        op_fail(c, TPU_EXHAUSTED, "out of memory");
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            if (lower ? k <= r + offset : k >= r + offset) {
                at[i] = r;
                at[n + i++] = k;
            }
    op_out_as(c, hlo_const_data(op_fn(c), type_make(TPU_I64, 2, (int64_t[]){2, n}), at), op_dtype(c, 3, TPU_I64));
    mem_free(at);
}

/* clang-format off */
const op_row ops_create[] = {
    { "fill.Scalar",         fill },
    { "fill.Tensor",         fill },
    { "zero",                zero },
    { "arange",              arange,   "1", OP_FIXED },
    { "arange.start",        arange,   "2", OP_FIXED },
    { "arange.start_step",   arange,   "3", OP_FIXED },
    { "full",                full },
    { "zeros",               constant, "0" },
    { "ones",                constant, "1" },
    { "scalar_tensor",       scalar_tensor },
    { "eye",                 eye },
    { "eye.m",               eye,      "m" },
    { "linspace",            linspace },
    { "logspace",            logspace },
    { "tril",                triangle, "LE" },
    { "triu",                triangle, "GE" },
    { "tril_indices",        triangle_indices, "l" },
    { "triu_indices",        triangle_indices, "u" },
    { NULL },
};
/* clang-format on */
