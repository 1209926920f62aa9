/* ctc.c - connectionist temporal classification.  The states of a sample are its labels with blanks between and around
 * them; alpha is the log-likelihood of what leads to a state, beta of what follows, both with the state's own frame.
 * Lengths are run-time data: a batch of other lengths runs the same program.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "arith.h"

typedef struct ctc {
    op_ctx *c;
    hlo_fn *f;
    int64_t frames, n, classes, states;
    hlo labels, follows; /* [n, states]: the class of each state; may it be reached from two states before */
    hlo frame_log; /* [frames, n, states]: the class's log-probability */
    hlo last; /* int [n]: number of the last frame */
    hlo ends, ends2; /* bool [n, states]: is it the last state, the one before (of labels, if any) */
    hlo no_frames, no_labels; /* bool [n] */
    tpu_type row; /* [n, states] */
} ctc;

static hlo across(const ctc *s, hlo v)
{ return hlo_broadcast_in_dim(s->f, v, type_as(s->row, hlo_dtype(s->f, v)), (int64_t[]){0}); }

/* A list of lengths, or a tensor of them: int64 [n]. */
static hlo lengths(op_ctx *c, int arg, int64_t n)
{
    hlo_fn *f = op_fn(c);
    if (hlo_ok(op_in(c, arg)) && hlo_rank(f, op_in(c, arg)) == 1) return hlo_convert(f, op_in(c, arg), TPU_I64);
    hlo *v = mem_new((size_t)(n + 1) * sizeof *v);
    if (!v) {
        op_fail(c, TPU_EXHAUSTED, "out of memory");
        return HLO_NONE;
    }
    for (int64_t i = 0; i < n; i++) v[i] = hlo_unsqueeze(f, op_scalar_elem(c, arg, (int)i, TPU_I64), 0);
    hlo r = hlo_concat(f, v, (int)n, 0);
    mem_free(v);
    return r;
}

static int64_t length_count(op_ctx *c, int arg)
{
    hlo t = op_in(c, arg);
    return hlo_ok(t) ? hlo_count(op_fn(c), t) : op_len(c, arg);
}

static bool fits(op_ctx *c, hlo p, hlo targets, int first, int64_t blank)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, p);
    if (t.rank != 3)
        op_fail(c, TPU_INVALID,
                "Expected 3-dimensional tensor, but got %d-dimensional tensor for argument #1 'log_probs' (while "
                "checking arguments for ctc_loss)",
                t.rank);
    else if (t.dtype != TPU_F32 && t.dtype != TPU_F64) refuse(c);
    else if (hlo_dtype(f, targets) != TPU_I64 && hlo_dtype(f, targets) != TPU_I32) refuse(c);
    else if (blank < 0 || blank >= t.dim[2]) op_fail(c, TPU_INVALID, "blank must be in label range");
    else if (length_count(c, first) != t.dim[1]) op_fail(c, TPU_INVALID, "input_lengths must be of size batch_size");
    else if (length_count(c, first + 1) != t.dim[1])
        op_fail(c, TPU_INVALID, "target_lengths must be of size batch_size");
    else if (hlo_rank(f, targets) == 2 && hlo_dim(f, targets, 0) != t.dim[1])
        op_fail(c, TPU_INVALID,
                "Expected tensor to have size %lld at dimension 0, but got size %lld for argument #2 'targets' (while "
                "checking arguments for ctc_loss)",
                (long long)t.dim[1], (long long)hlo_dim(f, targets, 0));
    else if (hlo_rank(f, targets) < 1 || hlo_rank(f, targets) > 2)
        op_fail(c, TPU_INVALID,
                "Expected 1 to 2 dimensions for argument #2 'targets' (while checking arguments for "
                "ctc_loss_allocate_outputs)");
    else if (t.dim[0] < 1 || t.dim[1] < 1) refuse(c);
    return !hlo_failed(f);
}

/* Targets as [n, width]; those that stand one after the other are cut apart: no more labels than frames can be read. */
static hlo target_table(ctc *s, hlo targets, hlo count, int64_t blank)
{
    hlo_fn *f = s->f;
    targets = hlo_convert(f, targets, TPU_I64);
    bool flat = hlo_rank(f, targets) == 1;
    int64_t all = hlo_count(f, targets), width = !flat ? hlo_dim(f, targets, 1) : all < s->frames ? all : s->frames;
    tpu_type t = type_make(TPU_I64, 2, (int64_t[]){s->n, width});
    s->states = 2 * width + 1;
    if (all == 0) return hlo_const_i(f, t, blank);
    hlo place = hlo_iota(f, t, 1), wide = hlo_broadcast_in_dim(f, count, t, (int64_t[]){0});
    if (flat) {
        hlo start = minus(f, hlo_cumulative(f, "add", count, 0, false), count);
        hlo at = plus(f, place, hlo_broadcast_in_dim(f, start, t, (int64_t[]){0}));
        tpu_type one = type_scalar(TPU_I64);
        targets = hlo_take(f, targets, hlo_clamp(f, hlo_const_i(f, one, 0), at, hlo_const_i(f, one, all - 1)), 0);
    }
    hlo used = hlo_compare(f, "LT", place, wide);
    hlo bad = either(f, compare_k(f, "LT", targets, 0), compare_k(f, "GE", targets, (double)s->classes));
    op_guard(s->c, both(f, used, bad), "!ctc_loss: a target is not one of the classes");
    return hlo_select(f, both(f, used, hlo_op1(f, "not", bad)), targets, hlo_const_i(f, t, blank));
}

/* Labels with blanks around: [n, 2 width + 1]. */
static hlo with_blanks(hlo_fn *f, hlo labels, int64_t blank)
{
    hlo b = hlo_const_i(f, type_scalar(TPU_I64), blank);
    if (hlo_dim(f, labels, 1) == 0)
        return hlo_const_i(f, type_make(TPU_I64, 2, (int64_t[]){hlo_dim(f, labels, 0), 1}), blank);
    return hlo_pad(f, labels, b, (int64_t[]){0, 1}, (int64_t[]){0, 1}, (int64_t[]){0, 1});
}

/* x moved by `by` states, `fill` where nothing comes from. */
static hlo moved(hlo_fn *f, hlo x, hlo fill, int64_t by)
{ return hlo_pad(f, x, fill, (int64_t[]){0, by}, (int64_t[]){0, -by}, NULL); }

static void guard_lengths(op_ctx *c, hlo inputs, hlo count, int64_t frames, int64_t most)
{
    hlo_fn *f = op_fn(c);
    op_guard(c, either(f, compare_k(f, "LT", inputs, 0), compare_k(f, "GT", inputs, (double)frames)),
             "!Expected input_lengths to have values of at most the number of frames (while checking arguments for "
             "ctc_loss)");
    op_guard(c, either(f, compare_k(f, "LT", count, 0), compare_k(f, "GT", count, (double)most)),
             "!Expected target_lengths to have values of at most the length of targets (while checking arguments for "
             "ctc_loss)");
}

/* log_probs, targets, input_lengths, target_lengths from argument `first` on */
static bool read_ctc(op_ctx *c, int first, int64_t blank, ctc *s)
{
    hlo_fn *f = op_fn(c);
    hlo p = op_in(c, first), targets = op_in(c, first + 1);
    if (!fits(c, p, targets, first + 2, blank)) return false;
    *s = (ctc){.c = c, .f = f, .frames = hlo_dim(f, p, 0), .n = hlo_dim(f, p, 1), .classes = hlo_dim(f, p, 2)};
    hlo inputs = lengths(c, first + 2, s->n), count = lengths(c, first + 3, s->n);
    guard_lengths(c, inputs, count, s->frames, hlo_dim(f, targets, -1));
    s->labels = with_blanks(f, target_table(s, targets, count, blank), blank);
    s->row = type_make(hlo_dtype(f, p), 2, (int64_t[]){s->n, s->states});
    hlo none = hlo_const_i(f, type_scalar(TPU_I64), -1), state = hlo_iota(f, type_as(s->row, TPU_I64), 1);
    s->follows = both(f, compare_k(f, "NE", s->labels, (double)blank),
                      hlo_compare(f, "NE", s->labels, moved(f, s->labels, none, 2)));
    s->follows = both(f, s->follows, compare_k(f, "GE", state, 2));
    s->last = plus_k(f, inputs, -1);
    hlo end = across(s, times_k(f, count, 2));
    s->ends = hlo_compare(f, "EQ", state, end);
    s->ends2 = hlo_compare(f, "EQ", plus_k(f, state, 1), end);
    s->no_frames = compare_k(f, "LE", inputs, 0);
    s->no_labels = compare_k(f, "LE", count, 0);
    /* [frames, n, states]: a gather of whole columns of frames */
    hlo columns =
        hlo_reshape(f, hlo_transpose(f, p, (int64_t[]){1, 2, 0}), 2, (int64_t[]){s->n * s->classes, s->frames});
    hlo sample = hlo_iota(f, type_as(s->row, TPU_I64), 0),
        at = plus(f, times_k(f, sample, (double)s->classes), s->labels);
    s->frame_log = hlo_transpose(f, hlo_take(f, columns, at, 0), (int64_t[]){2, 0, 1});
    return true;
}

/* log(exp(x) + exp(y) + exp(z)), -inf where all are */
static hlo log_sum(hlo_fn *f, hlo x, hlo y, hlo z)
{
    hlo top = hlo_max(f, hlo_max(f, x, y), z), low = hlo_like_f(f, x, -INFINITY);
    top = hlo_select(f, hlo_compare(f, "EQ", top, low), hlo_like_f(f, x, 0), top);
    hlo sum = plus(f, plus(f, exponential(f, minus(f, x, top)), exponential(f, minus(f, y, top))),
                   exponential(f, minus(f, z, top)));
    return plus(f, logarithm(f, sum), top);
}

/* Frame t of x [frames, n, states], and putting it there. */
static hlo frame(const ctc *s, hlo x, hlo t)
{
    hlo zero = hlo_zeros(s->f, hlo_type(s->f, t)), at[3] = {t, zero, zero};
    return hlo_reshape(s->f, hlo_dynamic_slice(s->f, x, at, (int64_t[]){1, s->n, s->states}), 2, s->row.dim);
}

static hlo with_frame(const ctc *s, hlo x, hlo v, hlo t)
{
    hlo zero = hlo_zeros(s->f, hlo_type(s->f, t)), at[3] = {t, zero, zero};
    return hlo_dynamic_update_slice(s->f, x, hlo_unsqueeze(s->f, v, 0), at);
}

/* One step of the recursion: from each state, its neighbour, and the one after where `skips` allows. */
static hlo step(const ctc *s, hlo now, hlo skips, int64_t by)
{
    hlo_fn *f = s->f;
    hlo none = hlo_const_f(f, type_scalar((tpu_dtype)s->row.dtype), -INFINITY), low = hlo_const_f(f, s->row, -INFINITY);
    return log_sum(f, now, moved(f, now, none, by), hlo_select(f, skips, moved(f, now, none, 2 * by), low));
}

/* log alpha [frames, n, states] */
static hlo alphas(const ctc *s)
{
    hlo_fn *f = s->f;
    tpu_type whole = hlo_type(f, s->frame_log), ints = type_scalar(TPU_I32);
    hlo state = hlo_iota(f, type_as(s->row, TPU_I64), 1), low = hlo_const_f(f, s->row, -INFINITY), v[3], arg[3];
    hlo begins = either(f, compare_k(f, "EQ", state, 0),
                        both(f, compare_k(f, "EQ", state, 1), hlo_op1(f, "not", across(s, s->no_labels))));
    v[0] = hlo_const_i(f, ints, 1);
    v[1] = hlo_select(f, begins, frame(s, s->frame_log, hlo_const_i(f, ints, 0)), low);
    v[2] = with_frame(s, hlo_const_f(f, whole, -INFINITY), v[1], hlo_const_i(f, ints, 0));
    hlo_while_begin(f, v, 3, arg);
    hlo_while_body(f, compare_k(f, "LT", arg[0], (double)s->frames), arg);
    v[1] = plus(f, step(s, arg[1], s->follows, 1), frame(s, s->frame_log, arg[0]));
    v[2] = with_frame(s, arg[2], v[1], arg[0]);
    v[0] = plus_k(f, arg[0], 1);
    hlo_while_end(f, v, v);
    return v[2];
}

static hlo finals(const ctc *s)
{ return either(s->f, s->ends, both(s->f, s->ends2, hlo_op1(s->f, "not", across(s, s->no_labels)))); }

/* The loss of each sample from the alphas of its last frame, in its last two states. */
static hlo losses(const ctc *s, hlo alpha)
{
    hlo_fn *f = s->f;
    tpu_type whole = hlo_type(f, alpha);
    hlo low = hlo_const_f(f, whole, -INFINITY), t = hlo_iota(f, type_as(whole, TPU_I64), 0);
    hlo here = hlo_compare(f, "EQ", t, hlo_broadcast_in_dim(f, s->last, type_as(whole, TPU_I64), (int64_t[]){1}));
    here = both(f, here, hlo_broadcast_in_dim(f, finals(s), type_as(whole, TPU_BOOL), (int64_t[]){1, 2}));
    hlo x = hlo_select(f, here, alpha, low), top = hlo_reduce(f, "maximum", x, 1 | 4);
    hlo base = hlo_select(f, compare_k(f, "EQ", top, -INFINITY), hlo_like_f(f, top, 0), top);
    hlo sum =
        hlo_reduce(f, "add", exponential(f, minus(f, x, hlo_broadcast_in_dim(f, base, whole, (int64_t[]){1}))), 1 | 4);
    hlo loss = negate(f, plus(f, logarithm(f, sum), base));
    hlo empty = hlo_select(f, s->no_labels, hlo_like_f(f, loss, 0), hlo_like_f(f, loss, INFINITY));
    return hlo_select(f, s->no_frames, empty, loss);
}

/* _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity) -> (loss [n], log_alpha) */
static void ctc_loss(op_ctx *c)
{
    ctc s;
    if (!read_ctc(c, 0, op_int(c, 4), &s)) return;
    hlo alpha = alphas(&s);
    op_out(c, losses(&s, alpha));
    op_out(c, hlo_transpose(s.f, alpha, (int64_t[]){1, 0, 2}));
}

/* log beta [frames, n, states], from each sample's last frame to its first; -inf after the last */
static hlo betas(const ctc *s)
{
    hlo_fn *f = s->f;
    tpu_type whole = hlo_type(f, s->frame_log), ints = type_scalar(TPU_I32);
    hlo low = hlo_const_f(f, s->row, -INFINITY), none = hlo_zeros(f, type_scalar(TPU_BOOL)), v[3], arg[3];
    hlo skips = moved(f, s->follows, none, -2); /* from s to s + 2 */
    v[0] = hlo_const_i(f, ints, s->frames - 1);
    v[1] = low;
    v[2] = hlo_const_f(f, whole, -INFINITY);
    hlo_while_begin(f, v, 3, arg);
    hlo_while_body(f, compare_k(f, "GE", arg[0], 0), arg);
    hlo own = frame(s, s->frame_log, arg[0]), last = hlo_convert(f, s->last, TPU_I32);
    hlo first = across(s, hlo_compare(f, "EQ", hlo_broadcast_to(f, arg[0], hlo_type(f, last)), last));
    hlo start = hlo_select(f, finals(s), own, low); /* before it all is -inf, and a step keeps that */
    v[1] = hlo_select(f, first, start, plus(f, step(s, arg[1], skips, -1), own));
    v[2] = with_frame(s, arg[2], v[1], arg[0]);
    v[0] = plus_k(f, arg[0], -1);
    hlo_while_end(f, v, v);
    return v[2];
}

/* How much of the likelihood passes each class at each frame: [frames, n, classes]. */
static hlo passes(const ctc *s, hlo through)
{
    hlo_fn *f = s->f;
    hlo sample = hlo_iota(f, type_as(s->row, TPU_I64), 0),
        at = plus(f, times_k(f, sample, (double)s->classes), s->labels);
    hlo columns =
        hlo_reshape(f, hlo_transpose(f, through, (int64_t[]){1, 2, 0}), 2, (int64_t[]){s->n * s->states, s->frames});
    hlo zero = hlo_zeros(f, type_make((tpu_dtype)s->row.dtype, 2, (int64_t[]){s->n * s->classes, s->frames}));
    hlo_gather_dims d = {.noffset = 1, .ncollapsed = 1, .nmap = 1, .offset = {1}, .index_vector_dim = 1};
    hlo sum = hlo_scatter(f, "add", zero, hlo_unsqueeze(f, hlo_flatten(f, at), 1), columns, &d);
    return hlo_transpose(f, hlo_reshape(f, sum, 3, (int64_t[]){s->n, s->classes, s->frames}), (int64_t[]){2, 0, 1});
}

/* _ctc_loss_backward(grad, log_probs, targets, input_lengths, target_lengths, loss, log_alpha, blank, zero_infinity): a
 * sample without any path has no gradient (NaN), or 0 with zero_infinity. */
static void ctc_loss_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    ctc s;
    if (!read_ctc(c, 1, op_int(c, 7), &s)) return;
    tpu_type rows = hlo_type(f, s.frame_log), out = hlo_type(f, op_in(c, 1));
    hlo loss = op_in(c, 5), alpha = hlo_transpose(f, op_in(c, 6), (int64_t[]){1, 0, 2});
    if (hlo_dim(f, alpha, 2) != s.states) alpha = alphas(&s); /* made elsewhere, in another width */
    hlo joint = minus(f, plus(f, alpha, betas(&s)), s.frame_log);
    hlo share = exponential(f, plus(f, joint, hlo_broadcast_in_dim(f, loss, rows, (int64_t[]){1})));
    share = hlo_select(f, hlo_isnan(f, share), hlo_zeros(f, rows), share);
    hlo d = minus(f, exponential(f, op_in(c, 1)), passes(&s, share));
    hlo lost = compare_k(f, "EQ", loss, INFINITY), bad = hlo_like_f(f, loss, op_bool(c, 8) ? 0 : NAN);
    hlo g = hlo_select(f, lost, bad, op_in(c, 0));
    d = times(f, d, hlo_broadcast_in_dim(f, g, out, (int64_t[]){1}));
    hlo t = hlo_iota(f, type_as(out, TPU_I64), 0),
        last = hlo_broadcast_in_dim(f, s.last, hlo_type(f, t), (int64_t[]){1});
    op_out(c, hlo_select(f, hlo_compare(f, "LE", t, last), d, hlo_zeros(f, out)));
}

/* clang-format off */
const op_row ops_ctc[] = {
    { "_ctc_loss",                 ctc_loss,          .data = 3u << 2 },
    { "_ctc_loss.Tensor",          ctc_loss },
    { "_ctc_loss_backward",        ctc_loss_backward, .data = 3u << 3 },
    { "_ctc_loss_backward.Tensor", ctc_loss_backward },
    { NULL },
};
/* clang-format on */
