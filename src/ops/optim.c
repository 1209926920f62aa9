/* optim.c - fused optimizers and gradient scaling.  Hyperparameters are run-time data: a schedule compiles nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops/arith.h"

static hlo wide(hlo_fn *f, hlo s, hlo like) { return hlo_broadcast_to(f, s, hlo_type(f, like)); }
static hlo scaled(hlo_fn *f, hlo x, hlo s) { return times(f, x, wide(f, s, x)); }

/* 1 - number: subtracted in float64, for 0.999 is near to 1. */
static hlo complement(op_ctx *c, int arg, tpu_dtype m)
{
    hlo_fn *f = op_fn(c);
    return hlo_convert(f, k_minus(f, 1, op_scalar(c, arg, TPU_F64)), m);
}

/* A number or a tensor of one element (lr comes as either). */
static hlo scalar_of(op_ctx *c, int arg, tpu_dtype m) { return hlo_reshape(op_fn(c), op_in_as(c, arg, m), 0, NULL); }

/* The dtype to compute the lists in: an optimizer groups its tensors by dtype. */
static tpu_dtype list_math(op_ctx *c)
{
    return op_len(c, 0) ? dtype_compute(hlo_dtype(op_fn(c), op_elem(c, 0, 0))) : TPU_F32;
}

static hlo elem(op_ctx *c, int arg, int i, tpu_dtype m) { return hlo_convert(op_fn(c), op_elem(c, arg, i), m); }

/* The step counts of all tensors in one vector: their corrections are computed once for all. */
static hlo step_vector(op_ctx *c, int arg, tpu_dtype m)
{
    hlo_fn *f = op_fn(c);
    int n = op_len(c, arg);
    hlo *steps = mem_new((size_t)(n + 1) * sizeof *steps), all = HLO_NONE;
    if (!steps) op_fail(c, TPU_EXHAUSTED, "out of memory");
    for (int i = 0; steps && i < n; i++) steps[i] = hlo_reshape(f, op_elem(c, arg, i), 1, (int64_t[]){1});
    if (steps && n) all = hlo_convert(f, n > 1 ? hlo_concat(f, steps, n, 0) : steps[0], m);
    mem_free(steps);
    return all;
}

static hlo entry_of(hlo_fn *f, hlo vector, int i)
{
    return hlo_reshape(f, hlo_slice_dim(f, vector, 0, i, i + 1, 1), 0, NULL);
}

/* ---- what gradient scaling adds ---- */
typedef struct scaling { hlo scale, skip; bool maximize; } scaling; /* HLO_NONE: no scale, never skipped */

static scaling scaling_of(op_ctx *c, int scale, int found_inf, bool maximize, tpu_dtype m)
{
    hlo_fn *f = op_fn(c);
    scaling s = {.scale = HLO_NONE, .skip = HLO_NONE, .maximize = maximize};
    if (op_has(c, scale)) s.scale = scalar_of(c, scale, m);
    if (op_has(c, found_inf)) s.skip = compare_k(f, "EQ", scalar_of(c, found_inf, TPU_F32), 1);
    return s;
}

static void store(op_ctx *c, const scaling *s, int arg, int i, hlo x)
{
    hlo_fn *f = op_fn(c);
    hlo old = op_elem(c, arg, i);
    x = hlo_convert(f, x, hlo_dtype(f, old));
    op_write_elem(c, arg, i, hlo_ok(s->skip) ? hlo_select(f, s->skip, old, x) : x);
}

/* Gradient i, unscaled (then the list gets it back so) and with the sign of descent. */
static hlo gradient(op_ctx *c, const scaling *s, int i, tpu_dtype m)
{
    hlo_fn *f = op_fn(c);
    hlo g = elem(c, 1, i, m);
    if (hlo_ok(s->scale)) {
        g = over(f, g, wide(f, s->scale, g));
        store(c, s, 1, i, g);
    }
    return s->maximize ? negate(f, g) : g;
}

/* ---- adam ---- */
typedef struct adam_numbers { hlo lr, decay, eps, c1, b2, c2, size, root2; } adam_numbers;

/* 1 - b^step, from c = 1 - b: accurate also where b^step is near 1. */
static hlo correction(hlo_fn *f, hlo c, hlo steps)
{
    hlo rate = hlo_op1(f, "log_plus_one", negate(f, c));
    return negate(f, hlo_op1(f, "exponential_minus_one", scaled(f, steps, rate)));
}

static adam_numbers adam_setup(op_ctx *c, bool decoupled, tpu_dtype m)
{
    hlo_fn *f = op_fn(c);
    adam_numbers a = {.lr = scalar_of(c, 6, m), .decay = op_scalar(c, 9, m), .eps = op_scalar(c, 10, m)};
    if (decoupled) a.decay = k_minus(f, 1, times(f, a.lr, a.decay));
    a.c1 = complement(c, 7, m);
    a.b2 = op_scalar(c, 8, m);
    a.c2 = complement(c, 8, m);
    hlo steps = step_vector(c, 5, m), bias1 = correction(f, a.c1, steps);
    a.size = over(f, wide(f, a.lr, bias1), bias1);
    a.root2 = root(f, correction(f, a.c2, steps));
    return a;
}

/* _fused_adam_ and _fused_adamw_(self[], grads[], exp_avgs[], exp_avg_sqs[], max_exp_avg_sqs[], state_steps[], lr, beta1,
 * beta2, weight_decay, eps, amsgrad, maximize, grad_scale?, found_inf?).  The steps were counted up by the caller. */
static void adam(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool decoupled = op_row_of(c)->word != NULL, amsgrad = op_bool(c, 11);
    tpu_dtype m = list_math(c);
    if (!op_len(c, 0)) return;
    scaling s = scaling_of(c, 13, 14, op_bool(c, 12), m);
    adam_numbers a = adam_setup(c, decoupled, m);
    for (int i = 0; i < op_len(c, 0) && !hlo_failed(f); i++) {
        hlo g = gradient(c, &s, i, m), p = elem(c, 0, i, m), avg = elem(c, 2, i, m), sq = elem(c, 3, i, m);
        if (decoupled) p = scaled(f, p, a.decay);
        else g = plus(f, g, scaled(f, p, a.decay));
        avg = plus(f, avg, scaled(f, minus(f, g, avg), a.c1));
        sq = plus(f, scaled(f, sq, a.b2), scaled(f, square(f, g), a.c2));
        hlo top = sq;
        if (amsgrad) {
            top = hlo_max(f, elem(c, 4, i, m), sq);
            store(c, &s, 4, i, top);
        }
        hlo denom = plus(f, over(f, root(f, top), wide(f, entry_of(f, a.root2, i), top)), wide(f, a.eps, top));
        p = minus(f, p, over(f, scaled(f, avg, entry_of(f, a.size, i)), denom));
        store(c, &s, 0, i, p);
        store(c, &s, 2, i, avg);
        store(c, &s, 3, i, sq);
    }
}

/* _fused_sgd_(self[], grads[], momentum_buffers[], weight_decay, momentum, lr, dampening, nesterov, maximize,
 * is_first_step, grad_scale?, found_inf?) */
static void sgd(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool nesterov = op_bool(c, 7), first = op_bool(c, 9), has_buffers = op_len(c, 2) > 0;
    tpu_dtype m = list_math(c);
    scaling s = scaling_of(c, 10, 11, op_bool(c, 8), m);
    hlo decay = op_scalar(c, 3, m), lr = scalar_of(c, 5, m), momentum = HLO_NONE, damp = HLO_NONE;
    if (has_buffers) momentum = op_scalar(c, 4, m);
    if (has_buffers && !first) damp = complement(c, 6, m);
    for (int i = 0; i < op_len(c, 0) && !hlo_failed(f); i++) {
        hlo g = gradient(c, &s, i, m), p = elem(c, 0, i, m);
        g = plus(f, g, scaled(f, p, decay));
        if (has_buffers) {
            hlo b = first ? g : plus(f, scaled(f, elem(c, 2, i, m), momentum), scaled(f, g, damp));
            store(c, &s, 2, i, b);
            g = nesterov ? plus(f, g, scaled(f, b, momentum)) : b;
        }
        store(c, &s, 0, i, minus(f, p, scaled(f, g, lr)));
    }
}

/* _fused_adagrad_(self[], grads[], state_sums[], state_steps[], lr, lr_decay, weight_decay, eps, maximize, grad_scale?,
 * found_inf?) */
static void adagrad(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype m = list_math(c);
    if (!op_len(c, 0)) return;
    scaling s = scaling_of(c, 9, 10, op_bool(c, 8), m);
    hlo lr = scalar_of(c, 4, m), lr_decay = op_scalar(c, 5, m), decay = op_scalar(c, 6, m), eps = op_scalar(c, 7, m);
    hlo fall = plus_k(f, scaled(f, plus_k(f, step_vector(c, 3, m), -1), lr_decay), 1);
    hlo size = over(f, wide(f, lr, fall), fall);
    for (int i = 0; i < op_len(c, 0) && !hlo_failed(f); i++) {
        hlo g = gradient(c, &s, i, m), p = elem(c, 0, i, m);
        g = plus(f, g, scaled(f, p, decay));
        hlo sum = plus(f, elem(c, 2, i, m), square(f, g));
        hlo denom = plus(f, root(f, sum), wide(f, eps, sum));
        store(c, &s, 0, i, minus(f, p, over(f, scaled(f, g, entry_of(f, size, i)), denom)));
        store(c, &s, 2, i, sum);
    }
}

/* ---- gradient scaling ---- */
/* _amp_foreach_non_finite_check_and_unscale_(self[], found_inf, inv_scale) */
static void unscale(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo found = op_in(c, 1), inv = scalar_of(c, 2, TPU_F32), bad = HLO_NONE;
    for (int i = 0; i < op_len(c, 0) && !hlo_failed(f); i++) {
        tpu_dtype t = hlo_dtype(f, op_elem(c, 0, i)), m = dtype_compute(t);
        hlo x = elem(c, 0, i, m), wrong = hlo_op1(f, "not", hlo_op1(f, "is_finite", x));
        wrong = hlo_reduce(f, "or", wrong, (1u << hlo_rank(f, x)) - 1);
        bad = hlo_ok(bad) ? either(f, bad, wrong) : wrong;
        op_write_elem(c, 0, i, hlo_convert(f, scaled(f, x, hlo_convert(f, inv, m)), t));
    }
    op_write(c, 1, hlo_ok(bad) ? hlo_select(f, bad, hlo_like_f(f, found, 1), found) : found);
}

/* _amp_update_scale_(self, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval) */
static void update_scale(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo scale = op_in(c, 0), tracker = op_in(c, 1);
    hlo inf = compare_k(f, "NE", scalar_of(c, 2, TPU_F32), 0);
    hlo up = hlo_op2(f, "add", tracker, hlo_like_i(f, tracker, 1));
    hlo due = hlo_compare(f, "EQ", up, hlo_like_i(f, up, op_int(c, 5)));
    hlo grown = times(f, scale, number_like(c, 3, scale)), shrunk = times(f, scale, number_like(c, 4, scale));
    grown = hlo_select(f, hlo_op1(f, "is_finite", grown), grown, scale);
    op_write(c, 0, hlo_select(f, inf, shrunk, hlo_select(f, hlo_reshape(f, due, 0, NULL), grown, scale)));
    hlo zero = hlo_like_i(f, tracker, 0);
    op_write(c, 1, hlo_select(f, inf, zero, hlo_select(f, due, zero, up)));
}

/* clang-format off */
const op_row ops_optim[] = {
    { "_fused_adam_",              adam },
    { "_fused_adam_.tensor_lr",    adam },
    { "_fused_adamw_",             adam, "decoupled" },
    { "_fused_adamw_.tensor_lr",   adam, "decoupled" },
    { "_fused_sgd_",               sgd },
    { "_fused_sgd_.tensor_lr",     sgd },
    { "_fused_adagrad_",           adagrad },
    { "_fused_adagrad_.tensor_lr", adagrad },
    { "_amp_foreach_non_finite_check_and_unscale_", unscale },
    { "_amp_update_scale_",        update_scale },
    { NULL },
};
/* clang-format on */
