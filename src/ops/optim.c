/* optim.c - fused optimizers and gradient scaling.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

static hlo mul(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "multiply", x, y); }
static hlo add(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "add", x, y); }
static hlo sub(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "subtract", x, y); }
static hlo divide(hlo_fn *f, hlo x, hlo y) { return hlo_op2(f, "divide", x, y); }
static hlo wide(hlo_fn *f, hlo s, hlo like) { return hlo_broadcast_to(f, hlo_convert(f, s, hlo_dtype(f, like)), hlo_type(f, like)); }
static hlo one_minus(hlo_fn *f, hlo x) { return sub(f, hlo_like_f(f, x, 1), x); }

/* A number or a 0-dim tensor (lr comes as either). */
static hlo value(op_ctx *c, int arg, tpu_dtype t) { return hlo_convert(op_fn(c), op_in_as(c, arg, t), t); }

/* Whether the step is skipped, as a bool scalar; HLO_NONE: never. */
static hlo skipped(op_ctx *c, int found_inf)
{
    hlo_fn *f = op_fn(c);
    if (!op_has(c, found_inf)) return HLO_NONE;
    hlo x = op_in(c, found_inf);
    return hlo_reshape(f, hlo_compare(f, "NE", x, hlo_like_f(f, x, 0)), 0, NULL);
}

static hlo keep_if(hlo_fn *f, hlo skip, hlo old, hlo fresh) { return hlo_ok(skip) ? hlo_select(f, skip, old, fresh) : fresh; }

static hlo gradient(op_ctx *c, int i, int scale, bool maximize, tpu_dtype m)
{
    hlo_fn *f = op_fn(c);
    hlo g = hlo_convert(f, op_elem(c, 1, i), m);
    if (op_has(c, scale)) {
        hlo s = hlo_reshape(f, op_in(c, scale), 0, NULL);
        g = divide(f, g, wide(f, s, g));
    }
    return maximize ? hlo_op1(f, "negate", g) : g;
}

static void write_as(op_ctx *c, int arg, int i, hlo x) { op_write_elem(c, arg, i, hlo_convert(op_fn(c), x, hlo_dtype(op_fn(c), op_elem(c, arg, i)))); }

/* _fused_adam_ and _fused_adamw_(self[], grads[], exp_avgs[], exp_avg_sqs[], max_exp_avg_sqs[], state_steps[], lr, beta1,
 * beta2, weight_decay, eps, amsgrad, maximize, grad_scale?, found_inf?).  The steps were counted up by the caller. */
static void adam(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool decoupled = op_row_of(c)->word != NULL, amsgrad = op_bool(c, 11), maximize = op_bool(c, 12);
    hlo skip = skipped(c, 14);
    for (int i = 0; i < op_len(c, 0); i++) {
        tpu_dtype m = dtype_compute(hlo_dtype(f, op_elem(c, 0, i)));
        hlo lr = value(c, 6, m), b1 = value(c, 7, m), b2 = value(c, 8, m), wd = value(c, 9, m), eps = value(c, 10, m);
        hlo p = hlo_convert(f, op_elem(c, 0, i), m), g = gradient(c, i, 13, maximize, m);
        hlo a = hlo_convert(f, op_elem(c, 2, i), m), v = hlo_convert(f, op_elem(c, 3, i), m), old = p;
        hlo step = hlo_convert(f, hlo_reshape(f, op_elem(c, 5, i), 0, NULL), m);
        if (decoupled) p = mul(f, p, wide(f, one_minus(f, mul(f, lr, wd)), p));
        else g = add(f, g, mul(f, p, wide(f, wd, p)));
        hlo na = add(f, a, mul(f, wide(f, one_minus(f, b1), a), sub(f, g, a)));
        hlo nv = add(f, mul(f, v, wide(f, b2, v)), mul(f, mul(f, g, g), wide(f, one_minus(f, b2), v)));
        hlo c1 = one_minus(f, hlo_op2(f, "power", b1, step)), c2 = hlo_op1(f, "sqrt", one_minus(f, hlo_op2(f, "power", b2, step)));
        hlo top = nv;
        if (amsgrad) {
            top = hlo_max(f, hlo_convert(f, op_elem(c, 4, i), m), nv);
            write_as(c, 4, i, keep_if(f, skip, hlo_convert(f, op_elem(c, 4, i), m), top));
        }
        hlo denom = add(f, divide(f, hlo_op1(f, "sqrt", top), wide(f, c2, top)), wide(f, eps, top));
        hlo np = sub(f, p, divide(f, mul(f, wide(f, divide(f, lr, c1), na), na), denom));
        write_as(c, 0, i, keep_if(f, skip, old, np));
        write_as(c, 2, i, keep_if(f, skip, a, na));
        write_as(c, 3, i, keep_if(f, skip, v, nv));
        if (op_has(c, 13)) write_as(c, 1, i, maximize ? hlo_op1(f, "negate", g) : gradient(c, i, 13, false, m));
    }
}

/* _fused_sgd_(self[], grads[], momentum_buffers[], weight_decay, momentum, lr, dampening, nesterov, maximize,
 * is_first_step, grad_scale?, found_inf?) */
static void sgd(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool nesterov = op_bool(c, 7), maximize = op_bool(c, 8), first = op_bool(c, 9), momentum = op_len(c, 2) > 0;
    hlo skip = skipped(c, 11);
    for (int i = 0; i < op_len(c, 0); i++) {
        tpu_dtype m = dtype_compute(hlo_dtype(f, op_elem(c, 0, i)));
        hlo wd = value(c, 3, m), mom = value(c, 4, m), lr = value(c, 5, m), damp = value(c, 6, m);
        hlo p = hlo_convert(f, op_elem(c, 0, i), m), g = gradient(c, i, 10, maximize, m);
        g = add(f, g, mul(f, p, wide(f, wd, p)));
        if (momentum) {
            hlo b = hlo_convert(f, op_elem(c, 2, i), m);
            hlo nb = first ? g : add(f, mul(f, b, wide(f, mom, b)), mul(f, g, wide(f, one_minus(f, damp), g)));
            write_as(c, 2, i, keep_if(f, skip, b, nb));
            g = nesterov ? add(f, g, mul(f, nb, wide(f, mom, nb))) : nb;
        }
        write_as(c, 0, i, keep_if(f, skip, p, sub(f, p, mul(f, g, wide(f, lr, g)))));
        if (op_has(c, 10)) write_as(c, 1, i, gradient(c, i, 10, false, m));
    }
}

/* _fused_adagrad_(self[], grads[], state_sums[], state_steps[], lr, lr_decay, weight_decay, eps, maximize, grad_scale?, found_inf?) */
static void adagrad(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool maximize = op_bool(c, 8);
    hlo skip = skipped(c, 10);
    for (int i = 0; i < op_len(c, 0); i++) {
        tpu_dtype m = dtype_compute(hlo_dtype(f, op_elem(c, 0, i)));
        hlo lr = value(c, 4, m), decay = value(c, 5, m), wd = value(c, 6, m), eps = value(c, 7, m);
        hlo p = hlo_convert(f, op_elem(c, 0, i), m), g = gradient(c, i, 9, maximize, m), s = hlo_convert(f, op_elem(c, 2, i), m);
        hlo step = hlo_convert(f, hlo_reshape(f, op_elem(c, 3, i), 0, NULL), m);
        g = add(f, g, mul(f, p, wide(f, wd, p)));
        hlo ns = add(f, s, mul(f, g, g)), one = hlo_like_f(f, step, 1);
        hlo clr = divide(f, lr, add(f, one, mul(f, sub(f, step, one), decay)));
        hlo np = sub(f, p, divide(f, mul(f, g, wide(f, clr, g)), add(f, hlo_op1(f, "sqrt", ns), wide(f, eps, ns))));
        write_as(c, 0, i, keep_if(f, skip, p, np));
        write_as(c, 2, i, keep_if(f, skip, s, ns));
    }
}

/* _amp_foreach_non_finite_check_and_unscale_(self[], found_inf, inv_scale) */
static void unscale(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo found = op_in(c, 1), inv = hlo_reshape(f, op_in(c, 2), 0, NULL), bad = hlo_const_i(f, type_scalar(TPU_BOOL), 0);
    for (int i = 0; i < op_len(c, 0); i++) {
        hlo x = op_elem(c, 0, i), m = hlo_convert(f, x, dtype_compute(hlo_dtype(f, x)));
        hlo fin = hlo_reduce(f, "and", hlo_op1(f, "is_finite", m), (1u << hlo_rank(f, m)) - 1);
        bad = hlo_op2(f, "or", bad, hlo_op1(f, "not", fin));
        write_as(c, 0, i, mul(f, m, wide(f, inv, m)));
    }
    hlo one = hlo_like_f(f, found, 1);
    op_write(c, 1, hlo_select(f, bad, one, found));
}

/* _amp_update_scale_(self, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval) */
static void update_scale(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo scale = op_in(c, 0), tracker = op_in(c, 1), found = op_in(c, 2);
    tpu_type st = hlo_type(f, scale), tt = hlo_type(f, tracker);
    hlo inf = hlo_broadcast_to(f, hlo_compare(f, "NE", found, hlo_like_f(f, found, 0)), type_as(st, TPU_BOOL));
    hlo up = hlo_op2(f, "add", tracker, hlo_like_i(f, tracker, 1));
    hlo due = hlo_compare(f, "EQ", up, hlo_broadcast_to(f, op_in_as(c, 5, (tpu_dtype)tt.dtype), tt));
    hlo grown = mul(f, scale, hlo_broadcast_to(f, op_scalar(c, 3, (tpu_dtype)st.dtype), st));
    hlo shrunk = mul(f, scale, hlo_broadcast_to(f, op_scalar(c, 4, (tpu_dtype)st.dtype), st));
    grown = hlo_select(f, hlo_op1(f, "is_finite", grown), grown, scale);
    hlo dues = hlo_broadcast_to(f, due, type_as(st, TPU_BOOL));
    op_write(c, 0, hlo_select(f, inf, shrunk, hlo_select(f, dues, grown, scale)));
    hlo zero = hlo_like_i(f, tracker, 0), infs = hlo_broadcast_to(f, inf, type_as(tt, TPU_BOOL));
    op_write(c, 1, hlo_select(f, hlo_op2(f, "or", infs, due), zero, up));
}

/* clang-format off */
const op_row ops_optim[] = {
    { "_fused_adam_",             adam },
    { "_fused_adam_.tensor_lr",   adam },
    { "_fused_adamw_",            adam, "decoupled" },
    { "_fused_adamw_.tensor_lr",  adam, "decoupled" },
    { "_fused_sgd_",              sgd },
    { "_fused_sgd_.tensor_lr",    sgd },
    { "_fused_adagrad_",          adagrad },
    { "_fused_adagrad_.tensor_lr", adagrad },
    { "_amp_foreach_non_finite_check_and_unscale_", unscale },
    { "_amp_update_scale_",       update_scale },
    { NULL },
};
/* clang-format on */
