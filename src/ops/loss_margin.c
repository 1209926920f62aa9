/* loss_margin.c - margin losses over classes, with gradients.  reduction: 0 none, 1 mean, 2 sum.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arith.h"

static hlo positive(hlo_fn *f, hlo x) { return compare_k(f, "GT", x, 0); }
static hlo only(hlo_fn *f, hlo pred, hlo x) { return hlo_select(f, pred, x, hlo_like_f(f, x, 0)); }
static hlo total(hlo_fn *f, hlo x, int dim) { return hlo_reduce(f, "add", x, 1u << dim); }

/* Input and target as [n, classes] and [n, ...]: what one sample without a batch has is taken as a batch of one. */
static bool batches(op_ctx *c, int input, int target, bool many, hlo *x, hlo *y)
{
    hlo_fn *f = op_fn(c);
    *x = op_in_math(c, input);
    *y = op_in(c, target);
    int r = hlo_rank(f, *x), tr = hlo_rank(f, *y);
    int64_t n = r == 2 ? hlo_dim(f, *x, 0) : 1, classes = r ? hlo_dim(f, *x, r - 1) : 1, want = many ? n * classes : n;
    if (r > 2 || hlo_count(f, *y) != want || tr > (many && r > 1 ? 2 : 1) || classes == 0) {
        op_fail(c, TPU_INVALID, "inconsistent target size for an input of %lld by %lld", (long long)n, (long long)classes);
        return false;
    }
    if (hlo_dtype(f, *y) != TPU_I64) {
        op_fail(c, TPU_INVALID, "expected scalar type Long but found %s", dtype_torch_name(hlo_dtype(f, *y)));
        return false;
    }
    if (!dtype_is_float(hlo_dtype(f, *x))) {
        refuse(c);
        return false;
    }
    *x = hlo_reshape(f, *x, 2, (int64_t[]){n, classes});
    *y = hlo_reshape(f, *y, many ? 2 : 1, (int64_t[]){n, classes});
    return true;
}

/* each: one number a sample */
static void out_reduced(op_ctx *c, hlo each, int64_t reduction, bool batched, tpu_dtype t)
{
    hlo_fn *f = op_fn(c);
    if (reduction == 0) {
        op_out_as(c, batched ? each : hlo_reshape(f, each, 0, NULL), t);
        return;
    }
    hlo s = total(f, each, 0);
    op_out_as(c, reduction == 1 ? over_k(f, s, (double)hlo_dim(f, each, 0)) : s, t);
}

/* The incoming gradient a sample, [n]. */
static hlo incoming(op_ctx *c, int64_t reduction, hlo x)
{
    hlo_fn *f = op_fn(c);
    hlo g = hlo_convert(f, op_in(c, 0), hlo_dtype(f, x));
    int64_t n = hlo_dim(f, x, 0);
    tpu_type t = type_make(hlo_dtype(f, x), 1, &n);
    if (reduction == 1) g = over_k(f, g, (double)n);
    return hlo_rank(f, g) == 0 ? hlo_broadcast_in_dim(f, g, t, NULL) : hlo_reshape(f, g, 1, &n);
}

static hlo rows(hlo_fn *f, hlo v, hlo like) { return hlo_broadcast_in_dim(f, v, type_as(hlo_type(f, like), hlo_dtype(f, v)), (int64_t[]){0}); }

/* ---- multi margin: a target class a sample ---- */
typedef struct margin { hlo hot, gap, weight; } margin; /* hot: the target's class; gap: margin - x[target] + x, all [n, classes] */

static margin margin_of(op_ctx *c, hlo x, hlo y, int margin_arg, int weight)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, x), wide = type_as(t, TPU_I64);
    hlo low = hlo_compare(f, "LT", y, hlo_like_i(f, y, 0)), high = hlo_compare(f, "GE", y, hlo_like_i(f, y, t.dim[1]));
    op_guard(c, either(f, low, high), "!target out of range");
    margin m = {.hot = hlo_compare(f, "EQ", rows(f, y, x), hlo_iota(f, wide, 1)), .weight = HLO_NONE};
    hlo own = rows(f, total(f, only(f, m.hot, x), 1), x);
    m.gap = plus(f, minus(f, number_like(c, margin_arg, x), own), x);
    if (op_has(c, weight)) {
        hlo w = hlo_broadcast_in_dim(f, hlo_convert(f, op_in(c, weight), (tpu_dtype)t.dtype), t, (int64_t[]){1});
        m.weight = rows(f, total(f, only(f, m.hot, w), 1), x);
    }
    return m;
}

static int power_of(op_ctx *c, int arg)
{
    double p = op_number(c, arg);
    if (p != 1 && p != 2) op_fail(c, TPU_INVALID, "only p == 1 and p == 2 supported");
    return (int)p;
}

/* multi_margin_loss(self, target, p, margin, weight?, reduction) */
static void multi_margin(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x, y;
    int p = power_of(c, 2);
    if (hlo_failed(f) || !batches(c, 0, 1, false, &x, &y)) return;
    margin m = margin_of(c, x, y, 3, 4);
    hlo l = p == 2 ? square(f, m.gap) : m.gap;
    if (op_has(c, 4)) l = times(f, l, m.weight);
    l = only(f, both(f, positive(f, m.gap), hlo_op1(f, "not", m.hot)), l);
    hlo each = over_k(f, total(f, l, 1), (double)hlo_dim(f, x, 1));
    out_reduced(c, each, op_int(c, 5), hlo_rank(f, op_in(c, 1)) > 0, arg_dtype(c, 0));
}

/* multi_margin_loss_backward(grad, self, target, p, margin, weight?, reduction) */
static void multi_margin_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x, y;
    int p = power_of(c, 3);
    if (hlo_failed(f) || !batches(c, 1, 2, false, &x, &y)) return;
    margin m = margin_of(c, x, y, 4, 5);
    hlo slope = p == 2 ? times_k(f, m.gap, 2) : hlo_like_f(f, m.gap, 1);
    if (op_has(c, 5)) slope = times(f, slope, m.weight);
    slope = only(f, both(f, positive(f, m.gap), hlo_op1(f, "not", m.hot)), over_k(f, slope, (double)hlo_dim(f, x, 1)));
    hlo d = hlo_select(f, m.hot, negate(f, rows(f, total(f, slope, 1), x)), slope);
    tpu_type t = hlo_type(f, op_in(c, 1));
    op_out_as(c, hlo_reshape(f, times(f, d, rows(f, incoming(c, op_int(c, 6), x), x)), t.rank, t.dim), (tpu_dtype)t.dtype);
}

/* ---- multilabel margin: a row of classes a sample, ended by -1; dims [n, label, class] ---- */
typedef struct labels { hlo hot, is_target, active; tpu_type cube; } labels; /* active: the pair's gap counts, gap: 1 - x[label] + x */

static labels labels_of(op_ctx *c, hlo x, hlo y, hlo *gap)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, x);
    int64_t n = t.dim[0], k = t.dim[1];
    labels r = {.cube = type_make((tpu_dtype)t.dtype, 3, (int64_t[]){n, k, k})};
    tpu_type ints = type_as(r.cube, TPU_I64), bits = type_as(r.cube, TPU_BOOL);
    hlo low = hlo_compare(f, "LT", y, hlo_like_i(f, y, -1)), high = hlo_compare(f, "GE", y, hlo_like_i(f, y, k));
    op_guard(c, either(f, low, high), "!target is out of range");
    hlo ended = hlo_cumulative(f, "add", hlo_convert(f, hlo_compare(f, "LT", y, hlo_like_i(f, y, 0)), TPU_I32), 1, false);
    hlo valid = hlo_broadcast_in_dim(f, hlo_compare(f, "EQ", ended, hlo_like_i(f, ended, 0)), bits, (int64_t[]){0, 1});
    r.hot = both(f, valid, hlo_compare(f, "EQ", hlo_broadcast_in_dim(f, y, ints, (int64_t[]){0, 1}), hlo_iota(f, ints, 2)));
    r.is_target = hlo_reduce(f, "or", r.hot, 2);
    hlo xs = hlo_broadcast_in_dim(f, x, r.cube, (int64_t[]){0, 2});
    hlo own = hlo_broadcast_in_dim(f, total(f, only(f, r.hot, xs), 2), r.cube, (int64_t[]){0, 1});
    *gap = plus(f, k_minus(f, 1, own), xs);
    hlo other = hlo_broadcast_in_dim(f, hlo_op1(f, "not", r.is_target), bits, (int64_t[]){0, 2});
    r.active = both(f, both(f, valid, other), positive(f, *gap));
    return r;
}

/* multilabel_margin_loss_forward(self, target, reduction) -> (output, is_target) */
static void multilabel(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x, y, gap;
    if (!batches(c, 0, 1, true, &x, &y)) return;
    labels l = labels_of(c, x, y, &gap);
    hlo each = over_k(f, hlo_reduce(f, "add", only(f, l.active, gap), 2 | 4), (double)hlo_dim(f, x, 1));
    tpu_type t = hlo_type(f, op_in(c, 1));
    out_reduced(c, each, op_int(c, 2), t.rank > 1, arg_dtype(c, 0));
    op_out_as(c, hlo_reshape(f, l.is_target, t.rank, t.dim), arg_dtype(c, 0));
}

/* multilabel_margin_loss_backward(grad, self, target, reduction, is_target) */
static void multilabel_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x, y, gap;
    if (!batches(c, 1, 2, true, &x, &y)) return;
    labels l = labels_of(c, x, y, &gap);
    hlo one = hlo_convert(f, l.active, hlo_dtype(f, x));
    hlo per_label = hlo_broadcast_in_dim(f, total(f, one, 2), l.cube, (int64_t[]){0, 1});
    hlo d = minus(f, total(f, one, 1), total(f, only(f, l.hot, per_label), 1));
    d = times(f, over_k(f, d, (double)hlo_dim(f, x, 1)), rows(f, incoming(c, op_int(c, 3), x), x));
    tpu_type t = hlo_type(f, op_in(c, 1));
    op_out_as(c, hlo_reshape(f, d, t.rank, t.dim), (tpu_dtype)t.dtype);
}

/* clang-format off */
const op_row ops_loss_margin[] = {
    { "multi_margin_loss",               multi_margin,          .fixed = 1u << 2 },
    { "multi_margin_loss_backward",      multi_margin_backward, .fixed = 1u << 3 },
    { "multilabel_margin_loss_forward",  multilabel },
    { "multilabel_margin_loss_backward", multilabel_backward },
    { NULL },
};
/* clang-format on */
