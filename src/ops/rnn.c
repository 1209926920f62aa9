/* rnn.c - the fused cells that PyTorch asks of a device: LSTM and GRU, with gradients.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arith.h"

static hlo part(hlo_fn *f, hlo x, int i, int n)
{
    int64_t h = hlo_dim(f, x, 1) / n;
    return hlo_slice_dim(f, x, 1, i * h, (i + 1) * h, 1);
}

static hlo math(op_ctx *c, int arg) { return op_in_math(c, arg); }
static hlo sigmoid(hlo_fn *f, hlo x) { return hlo_op1(f, "logistic", x); }
static hlo tanh_of(hlo_fn *f, hlo x) { return hlo_op1(f, "tanh", x); }
/* s (1 - s) and 1 - t^2: the slopes of a sigmoid and of a tanh by their values. */
static hlo sigmoid_slope(hlo_fn *f, hlo s) { return times(f, s, k_minus(f, 1, s)); }
static hlo tanh_slope(hlo_fn *f, hlo t) { return k_minus(f, 1, square(f, t)); }

static hlo with_bias(op_ctx *c, hlo gates, int bias)
{
    hlo_fn *f = op_fn(c);
    if (!op_has(c, bias)) return gates;
    return plus(f, gates, hlo_broadcast_to(f, hlo_convert(f, op_in(c, bias), hlo_dtype(f, gates)), hlo_type(f, gates)));
}

static void out_bias(op_ctx *c, hlo gates, bool has, tpu_dtype t)
{
    if (has) op_out_as(c, hlo_reduce(op_fn(c), "add", gates, 1), t);
    else op_out_none(c);
}

/* _thnn_fused_lstm_cell(input_gates, hidden_gates, cx, input_bias?, hidden_bias?) -> (hy, cy, workspace) */
static void lstm(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = arg_dtype(c, 0);
    hlo g = with_bias(c, with_bias(c, plus(f, math(c, 0), math(c, 1)), 3), 4);
    hlo w[4] = {sigmoid(f, part(f, g, 0, 4)), sigmoid(f, part(f, g, 1, 4)), tanh_of(f, part(f, g, 2, 4)), sigmoid(f, part(f, g, 3, 4))};
    hlo cy = plus(f, times(f, w[1], hlo_convert(f, op_in(c, 2), hlo_dtype(f, g))), times(f, w[0], w[2]));
    op_out_as(c, times(f, w[3], tanh_of(f, cy)), t);
    op_out_as(c, cy, arg_dtype(c, 2));
    op_out_as(c, hlo_concat(f, w, 4, 1), t);
}

/* _thnn_fused_lstm_cell_backward_impl(grad_hy?, grad_cy?, cx, cy, workspace, has_bias) -> (grad_gates, grad_cx, grad_bias) */
static void lstm_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = arg_dtype(c, 4);
    hlo ws = math(c, 4), i = part(f, ws, 0, 4), fg = part(f, ws, 1, 4), g = part(f, ws, 2, 4), o = part(f, ws, 3, 4);
    tpu_dtype m = hlo_dtype(f, ws);
    hlo cx = hlo_convert(f, op_in(c, 2), m), tc = tanh_of(f, hlo_convert(f, op_in(c, 3), m)), zero = hlo_like_f(f, tc, 0);
    hlo gh = op_has(c, 0) ? hlo_convert(f, op_in(c, 0), m) : zero, gc = op_has(c, 1) ? hlo_convert(f, op_in(c, 1), m) : zero;
    hlo dc = plus(f, times(f, times(f, gh, o), tanh_slope(f, tc)), gc);
    hlo d[4] = {times(f, times(f, dc, g), sigmoid_slope(f, i)), times(f, times(f, dc, cx), sigmoid_slope(f, fg)),
                times(f, times(f, dc, i), tanh_slope(f, g)), times(f, times(f, gh, tc), sigmoid_slope(f, o))};
    hlo gates = hlo_concat(f, d, 4, 1);
    op_out_as(c, gates, t);
    op_out_as(c, times(f, dc, fg), arg_dtype(c, 2));
    out_bias(c, gates, op_bool(c, 5), t);
}

/* _thnn_fused_gru_cell(input_gates, hidden_gates, hx, input_bias?, hidden_bias?) -> (hy, workspace) */
static void gru(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = arg_dtype(c, 0);
    hlo x = with_bias(c, math(c, 0), 3), h = with_bias(c, math(c, 1), 4), hx = math(c, 2);
    hlo r = sigmoid(f, plus(f, part(f, x, 0, 3), part(f, h, 0, 3))), z = sigmoid(f, plus(f, part(f, x, 1, 3), part(f, h, 1, 3)));
    hlo hn = part(f, h, 2, 3), n = tanh_of(f, plus(f, part(f, x, 2, 3), times(f, r, hn)));
    hlo w[5] = {r, z, n, hx, hn};
    op_out_as(c, plus(f, n, times(f, z, minus(f, hx, n))), t);
    op_out_as(c, hlo_concat(f, w, 5, 1), t);
}

/* _thnn_fused_gru_cell_backward(grad_hy, workspace, has_bias) -> (grad input gates, hidden gates, hx, input bias, hidden bias) */
static void gru_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = arg_dtype(c, 1);
    hlo ws = math(c, 1), g = hlo_convert(f, op_in(c, 0), hlo_dtype(f, ws));
    hlo r = part(f, ws, 0, 5), z = part(f, ws, 1, 5), n = part(f, ws, 2, 5), hx = part(f, ws, 3, 5), hn = part(f, ws, 4, 5);
    hlo dn = times(f, times(f, g, k_minus(f, 1, z)), tanh_slope(f, n));
    hlo dz = times(f, times(f, g, minus(f, hx, n)), sigmoid_slope(f, z)), dr = times(f, times(f, dn, hn), sigmoid_slope(f, r));
    hlo in[3] = {dr, dz, dn}, hid[3] = {dr, dz, times(f, dn, r)};
    hlo gi = hlo_concat(f, in, 3, 1), gh = hlo_concat(f, hid, 3, 1);
    op_out_as(c, gi, t);
    op_out_as(c, gh, t);
    op_out_as(c, times(f, g, z), t);
    out_bias(c, gi, op_bool(c, 2), t);
    out_bias(c, gh, op_bool(c, 2), t);
}

/* clang-format off */
const op_row ops_rnn[] = {
    { "_thnn_fused_lstm_cell",               lstm },
    { "_thnn_fused_lstm_cell_backward_impl", lstm_backward },
    { "_thnn_fused_gru_cell",                gru },
    { "_thnn_fused_gru_cell_backward",       gru_backward },
    { NULL },
};
/* clang-format on */
