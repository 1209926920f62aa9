/* compare.c - comparisons, selections and bounds.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arith.h"

/* eq ne lt le gt ge, .Tensor and .Scalar: compared in the common dtype */
static void compare(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 0, 1);
    const char *dir = op_row_of(c)->word;
    if (dtype_is_complex(t) && dir[0] != 'E' && dir[0] != 'N') {
        op_fail(c, TPU_INVALID, "\"%s\" is not defined for complex tensors", op_row_of(c)->name);
        return;
    }
    /* A Python number is compared in the tensor's compute type, digits and all. */
    hlo x = operand(c, 0, t), y = operand(c, 1, t);
    if (dtype_compute(t) != t) {
        x = hlo_convert(f, hlo_convert(f, x, t), dtype_compute(t));
        y = hlo_convert(f, hlo_convert(f, y, t), dtype_compute(t));
    }
    hlo_broadcast2(f, &x, &y);
    op_out(c, hlo_compare(f, dir, x, y));
}

/* where.self(condition, self, other) */
static void where(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 1, 2), ct = hlo_dtype(f, op_in(c, 0));
    if (ct != TPU_BOOL && ct != TPU_U8) {
        op_fail(c, TPU_INVALID, "where expected condition to be a boolean tensor, but got a tensor with dtype %s", dtype_torch_name(ct));
        return;
    }
    hlo p = hlo_convert(f, op_in(c, 0), TPU_BOOL), x = op_in_as(c, 1, t), y = op_in_as(c, 2, t);
    hlo_broadcast3(f, &p, &x, &y);
    op_out(c, hlo_select(f, p, x, y));
}

static bool is_tensor(op_ctx *c, int arg) { return op_scalar_kind(c, arg) == TPU_NONE; }

/* Bounds never narrow: the result has the common dtype of all that are given. */
static void bounded(op_ctx *c, int lo, int hi)
{
    hlo_fn *f = op_fn(c);
    bool low = lo > 0 && op_has(c, lo), high = hi > 0 && op_has(c, hi);
    int args[3] = {0}, n = 1;
    if (low) args[n++] = lo;
    if (high) args[n++] = hi;
    if (!low && !high) {
        op_fail(c, TPU_INVALID, "torch.clamp: At least one of 'min' or 'max' must not be None");
        return;
    }
    tpu_dtype t = op_promote(c, args, n);
    bool number = (low && !is_tensor(c, lo)) || (high && !is_tensor(c, hi));
    if (dtype_is_complex(t) || (t == TPU_BOOL && number)) {
        op_fail(c, TPU_UNIMPLEMENTED, "clamp is not implemented for %s", dtype_torch_name(t));
        return;
    }
    hlo x = operand(c, 0, t), l = low ? operand(c, lo, t) : x, h = high ? operand(c, hi, t) : x;
    hlo_broadcast3(f, &x, &l, &h);
    hlo nan_l = low ? hlo_isnan(f, l) : HLO_NONE;
    hlo r = x;
    if (low) r = hlo_max(f, r, l);
    if (high) r = hlo_min(f, r, h);
    if (low && high && is_tensor(c, lo) && dtype_is_float(t)) r = hlo_select(f, nan_l, l, r);
    op_out_as(c, r, t);
}

static void clamp(op_ctx *c) { bounded(c, 1, 2); }
static void clamp_min(op_ctx *c) { bounded(c, 1, -1); }
static void clamp_max(op_ctx *c) { bounded(c, -1, 1); }

/* masked_fill.Scalar/.Tensor(self, mask, value) */
static void masked_fill(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), m = op_in(c, 1);
    tpu_dtype t = hlo_dtype(f, x);
    if (hlo_dtype(f, m) != TPU_BOOL) {
        op_fail(c, TPU_INVALID, "masked_fill_ only supports boolean masks, but got mask with dtype %s", dtype_torch_name(hlo_dtype(f, m)));
        return;
    }
    hlo v = op_in_as(c, 2, t);
    if (hlo_rank(f, v)) {
        op_fail(c, TPU_INVALID, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).", hlo_rank(f, v));
        return;
    }
    hlo_broadcast2(f, &x, &m);
    op_out(c, hlo_select(f, m, hlo_broadcast_to(f, v, hlo_type(f, x)), x));
}

/* threshold(self, threshold, value) */
static void threshold(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = hlo_dtype(f, op_in(c, 0));
    hlo x = op_in_math(c, 0);
    op_out_as(c, hlo_select(f, hlo_compare(f, "LE", x, number_like(c, 1, x)), number_like(c, 2, x), x), t);
}

/* isin(elements, test_elements, assume_unique, invert): every element with every test, joined by "or" */
static void isin(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_promote2(c, 0, 1);
    hlo x = operand(c, 0, t), y = hlo_flatten(f, operand(c, 1, t));
    tpu_type shape = hlo_type(f, x), all = type_make((tpu_dtype)shape.dtype, 2, (int64_t[]){hlo_count(f, x), hlo_count(f, y)});
    hlo left = hlo_broadcast_in_dim(f, hlo_flatten(f, x), all, (int64_t[]){0});
    hlo right = hlo_broadcast_in_dim(f, y, all, (int64_t[]){1});
    hlo found = hlo_reduce(f, "or", hlo_compare(f, "EQ", left, right), 2);
    if (op_bool(c, 3)) found = hlo_op1(f, "not", found);
    op_out(c, hlo_reshape(f, found, shape.rank, shape.dim));
}

/* clang-format off */
#define EW OP_ELEMENTWISE
#define PAIR(op, dir) { op ".Tensor", compare, dir, EW }, { op ".Scalar", compare, dir, EW }
const op_row ops_compare[] = {
    PAIR("eq", "EQ"), PAIR("ne", "NE"), PAIR("lt", "LT"), PAIR("le", "LE"), PAIR("gt", "GT"), PAIR("ge", "GE"),
    { "where.self",         where,       NULL, EW },
    { "clamp",              clamp,       NULL, EW },
    { "clamp.Tensor",       clamp,       NULL, EW },
    { "clamp_min",          clamp_min,   NULL, EW },
    { "clamp_min.Tensor",   clamp_min,   NULL, EW },
    { "clamp_max",          clamp_max,   NULL, EW },
    { "clamp_max.Tensor",   clamp_max,   NULL, EW },
    { "masked_fill.Scalar", masked_fill, NULL, EW },
    { "masked_fill.Tensor", masked_fill, NULL, EW },
    { "threshold",          threshold,   NULL, EW },
    { "isin.Tensor_Tensor", isin,        NULL },
    { "isin.Tensor_Scalar", isin,        NULL },
    { "isin.Scalar_Tensor", isin,        NULL },
    { NULL },
};
/* clang-format on */
