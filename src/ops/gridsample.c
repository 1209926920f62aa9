/* gridsample.c - sampling an image or a volume at the points of a grid, with gradients.
 * The input is a table with a row of channels for each place; a point is a weighed sum of the rows around it (the
 * taps), products over the axes.  The rows outside of the input are zeros.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arith.h"
#include "words.h"

enum { LINEAR, NEAREST, CUBIC };                        /* interpolation_mode */
enum { ZEROS, BORDER, REFLECTION };                     /* padding_mode */

typedef struct axis {
    int64_t n;
    hlo slope;                      /* [p] of the place in the input by the grid's coordinate */
    hlo at[4], in[4], w[4], dw[4];  /* [p] a tap: place (int), is it inside, weight, its slope by the place */
} axis;

typedef struct sampler {
    hlo_fn *f;
    int n, taps, mode, pad;         /* spatial dims; taps an axis */
    bool align;
    int64_t points, channels, places;
    tpu_type in, grid;
    tpu_dtype index;
    hlo table, batch;               /* [n * places, channels]; [p] the first row of the point's sample */
    axis a[3];
} sampler;

/* ---- one axis ---- */
static hlo from_grid(const sampler *s, hlo x, int64_t n)
{
    hlo_fn *f = s->f;
    if (s->align) return times_k(f, plus_k(f, x, 1), (double)(n - 1) / 2);
    return times_k(f, plus_k(f, times_k(f, plus_k(f, x, 1), (double)n), -1), 0.5);
}

static hlo signs(hlo_fn *f, hlo negative, hlo like)
{ return hlo_select(f, negative, hlo_like_f(f, like, -1), hlo_like_f(f, like, 1)); }

/* A place brought inside as padding_mode says; *slope is multiplied by its slope. */
static hlo brought_in(const sampler *s, hlo x, int64_t n, hlo *slope)
{
    hlo_fn *f = s->f;
    if (s->pad == ZEROS) return x;
    if (s->pad == REFLECTION) {
        double low = s->align ? 0 : -0.5, round = s->align ? 2.0 * (double)(n - 1) : 2.0 * (double)n;
        hlo from = plus_k(f, x, -low), left = compare_k(f, "LT", from, 0);
        hlo by = magnitude(f, from),
            rest = round > 0 ? minus(f, by, times_k(f, hlo_op1(f, "floor", over_k(f, by, round)), round))
                             : hlo_like_f(f, x, 0);
        hlo other = k_minus(f, round, rest), back = hlo_compare(f, "GT", rest, other);
        if (slope) *slope = times(f, *slope, times(f, signs(f, left, x), signs(f, back, x)));
        x = plus_k(f, hlo_select(f, back, other, rest), low);
    }
    hlo above = compare_k(f, "GT", x, 0), below = compare_k(f, "LT", x, (double)(n - 1)); /* NaN goes to 0 */
    if (slope) *slope = hlo_select(f, both(f, above, below), *slope, hlo_like_f(f, x, 0));
    return hlo_select(f, above, hlo_select(f, below, x, hlo_like_f(f, x, (double)(n - 1))), hlo_like_f(f, x, 0));
}

/* The cubic kernel, a = -0.75, up to one and up to two steps away; t is the distance from the tap before the point. */
static void cubic_weights(hlo_fn *f, hlo t, axis *a)
{
    static const double near[] = {1.25, -2.25, 0, 1}, far[] = {-0.75, 3.75, -6, 3};
    static const double near_slope[] = {3.75, -4.5, 0}, far_slope[] = {-2.25, 7.5, -6};
    hlo u = k_minus(f, 1, t), t1 = plus_k(f, t, 1), u1 = plus_k(f, u, 1);
    a->w[0] = polynomial(f, t1, far, 4);
    a->w[1] = polynomial(f, t, near, 4);
    a->w[2] = polynomial(f, u, near, 4);
    a->w[3] = polynomial(f, u1, far, 4);
    a->dw[0] = polynomial(f, t1, far_slope, 3);
    a->dw[1] = polynomial(f, t, near_slope, 3);
    a->dw[2] = negate(f, polynomial(f, u, near_slope, 3));
    a->dw[3] = negate(f, polynomial(f, u1, far_slope, 3));
}

static void fill_axis(const sampler *s, hlo coordinate, int64_t n, axis *a)
{
    hlo_fn *f = s->f;
    hlo x = from_grid(s, coordinate, n);
    a->n = n;
    a->slope = hlo_like_f(f, x, (double)(s->align ? n - 1 : n) / 2);
    if (s->mode != CUBIC) x = brought_in(s, x, n, &a->slope);
    hlo low = s->mode == NEAREST ? hlo_op1(f, "round_nearest_even", x) : hlo_op1(f, "floor", x), t = minus(f, x, low);
    if (s->mode == CUBIC) cubic_weights(f, t, a);
    if (s->mode == LINEAR) {
        a->w[0] = k_minus(f, 1, t);
        a->w[1] = t;
        a->dw[0] = hlo_like_f(f, x, -1);
        a->dw[1] = hlo_like_f(f, x, 1);
    }
    if (s->mode == NEAREST) {
        a->w[0] = hlo_like_f(f, x, 1);
        a->dw[0] = hlo_like_f(f, x, 0);
    }
    for (int k = 0; k < s->taps; k++) {
        hlo p = plus_k(f, low, k - (s->mode == CUBIC));
        if (s->mode == CUBIC) p = brought_in(s, p, n, NULL);
        a->in[k] = both(f, compare_k(f, "GE", p, 0), compare_k(f, "LE", p, (double)(n - 1)));
        a->at[k] = hlo_convert(f, hlo_select(f, a->in[k], p, hlo_like_f(f, p, 0)), s->index); /* not NaN, in range */
    }
}

/* ---- all axes ---- */
/* [n, c, spatial...] to rows of channels, and back */
static hlo to_rows(hlo_fn *f, hlo x)
{
    int64_t perm[5], r = hlo_rank(f, x), c = hlo_dim(f, x, 1);
    for (int64_t i = 0; i < r; i++) perm[i] = i == 0 ? 0 : i == r - 1 ? 1 : i + 1;
    return hlo_reshape(f, hlo_transpose(f, x, perm), 2, (int64_t[]){c ? hlo_count(f, x) / c : 0, c});
}

static hlo from_rows(hlo_fn *f, hlo rows, tpu_type t)
{
    int64_t perm[5], dim[5], r = t.rank;
    for (int64_t i = 0; i < r; i++) perm[i] = i == 0 ? 0 : i == 1 ? r - 1 : i - 1;
    for (int64_t i = 0; i < r; i++) dim[i] = i == 0 ? t.dim[0] : i == r - 1 ? t.dim[1] : t.dim[i + 1];
    return hlo_transpose(f, hlo_reshape(f, rows, (int)r, dim), perm);
}

static bool fits(op_ctx *c, int first, const sampler *s)
{
    const tpu_type *x = &s->in, *g = &s->grid;
    words xs = sizes_in_words(*x), gs = sizes_in_words(*g);
    if (!dtype_is_float((tpu_dtype)x->dtype)) refuse(c);
    else if (arg_dtype(c, first) != arg_dtype(c, first + 1))
        op_fail(c, TPU_INVALID, "expected scalar type %s but found %s", dtype_torch_name(arg_dtype(c, first)),
                dtype_torch_name(arg_dtype(c, first + 1)));
    else if (x->rank && g->rank && x->dim[0] != g->dim[0])
        op_fail(c, TPU_INVALID,
                "grid_sampler(): expected grid and input to have same batch size, but got input with sizes %s and grid "
                "with sizes %s",
                xs.s, gs.s);
    else if (!g->rank || g->dim[g->rank - 1] != x->rank - 2)
        op_fail(c, TPU_INVALID,
                "grid_sampler(): expected grid to have size %d in last dimension, but got grid with sizes %s",
                x->rank - 2, gs.s);
    else if (x->rank != s->n + 2 || g->rank != x->rank)
        op_fail(c, TPU_INVALID,
                "grid_sampler(): expected %dD input and grid with same number of dimensions, but got input with sizes "
                "%s and grid with sizes %s",
                s->n + 2, xs.s, gs.s);
    else if (s->mode < 0 || s->mode > CUBIC || s->pad < 0 || s->pad > REFLECTION)
        op_fail(c, TPU_INVALID, "grid_sampler(): unknown interpolation or padding mode");
    else if (s->n == 3 && s->mode == CUBIC)
        op_fail(c, TPU_INVALID, "grid_sampler(): bicubic interpolation only supports 4D input");
    for (int i = 2; i < x->rank; i++)
        if (!hlo_failed(s->f) && !x->dim[i])
            op_fail(c, TPU_INVALID,
                    "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes %s with "
                    "dimension %d being empty",
                    xs.s, i);
    return !hlo_failed(s->f);
}

/* (input, grid, interpolation_mode, padding_mode, align_corners) from argument `first` on */
static bool make_sampler(op_ctx *c, int first, sampler *s)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in_math(c, first), grid = hlo_convert(f, op_in(c, first + 1), hlo_dtype(f, x));
    *s = (sampler){
        .f = f, .n = op_row_of(c)->word[0] - '0', .mode = (int)op_int(c, first + 2), .pad = (int)op_int(c, first + 3)};
    s->align = op_bool(c, first + 4);
    s->taps = s->mode == LINEAR ? 2 : s->mode == NEAREST ? 1 : 4;
    s->in = hlo_type(f, x);
    s->grid = hlo_type(f, grid);
    if (!fits(c, first, s)) return false;
    s->places = 1;
    for (int d = 0; d < s->n; d++) s->places *= s->in.dim[2 + d];
    s->channels = s->in.dim[1];
    s->points = hlo_count(f, grid) / s->n;
    s->index = s->in.dim[0] * s->places < INT32_MAX ? TPU_I32 : TPU_I64;
    s->table = to_rows(f, x);
    if (!s->points || !hlo_count(f, x)) return true;
    tpu_type bt = type_make(s->index, 2, (int64_t[]){s->in.dim[0], s->points / s->in.dim[0]});
    hlo batch = hlo_iota(f, bt, 0);
    s->batch = hlo_flatten(f, times(f, batch, hlo_like_i(f, batch, s->places)));
    grid = hlo_reshape(f, grid, 2, (int64_t[]){s->points, s->n});
    for (int d = 0; d < s->n; d++) {                    /* the grid names the last axis first */
        int64_t column = s->n - 1 - d;
        fill_axis(s, hlo_flatten(f, hlo_slice_dim(f, grid, 1, column, column + 1, 1)), s->in.dim[2 + d], &s->a[d]);
    }
    return true;
}

/* Tap number i of the taps ^ n: its row in the table, is it inside, which tap of each axis it is. */
typedef struct tap {
    hlo row, in;
    int k[3];
} tap;

static tap tap_at(const sampler *s, int i)
{
    hlo_fn *f = s->f;
    tap t = {.row = HLO_NONE};
    for (int d = s->n - 1; d >= 0; d--, i /= s->taps) t.k[d] = i % s->taps;
    for (int d = 0; d < s->n; d++) {
        const axis *a = &s->a[d];
        hlo at = a->at[t.k[d]], in = a->in[t.k[d]];
        t.row = d ? plus(f, times(f, t.row, hlo_like_i(f, at, a->n)), at) : at;
        t.in = d ? both(f, t.in, in) : in;
    }
    t.row = plus(f, t.row, s->batch);
    return t;
}

/* The tap's weight; along axis `by` its slope. */
static hlo weight_of(const sampler *s, const tap *t, int by)
{
    hlo w = HLO_NONE;
    for (int d = 0; d < s->n; d++) {
        hlo own = d == by ? s->a[d].dw[t->k[d]] : s->a[d].w[t->k[d]];
        w = d ? times(s->f, w, own) : own;
    }
    return w;
}

static int tap_count(const sampler *s)
{
    int n = 1;
    for (int d = 0; d < s->n; d++) n *= s->taps;
    return n;
}

/* The rows [p, c] of a tap: 0 where it is outside. */
static hlo rows_of(const sampler *s, const tap *t)
{
    hlo_fn *f = s->f;
    hlo v = hlo_take(f, s->table, t->row, 0);
    tpu_type wide = hlo_type(f, v);
    return hlo_select(f, hlo_broadcast_in_dim(f, t->in, type_as(wide, TPU_BOOL), (int64_t[]){0}), v,
                      hlo_zeros(f, wide));
}

/* x [p, c] times w [p] */
static hlo weighed(hlo_fn *f, hlo x, hlo w)
{ return times(f, x, hlo_broadcast_in_dim(f, w, hlo_type(f, x), (int64_t[]){0})); }

/* grid_sampler_2d, _3d(input, grid, interpolation_mode, padding_mode, align_corners) */
static void grid_sampler(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    sampler s;
    if (!make_sampler(c, 0, &s)) return;
    tpu_type out = s.in;
    for (int d = 0; d < s.n; d++) out.dim[2 + d] = s.grid.dim[1 + d];
    hlo sum = hlo_zeros(f, type_make((tpu_dtype)out.dtype, 2, (int64_t[]){s.points, s.channels}));
    for (int i = 0; i < tap_count(&s) && s.points && type_count(&s.in); i++) {
        tap t = tap_at(&s, i);
        hlo part = weighed(f, rows_of(&s, &t), weight_of(&s, &t, -1));
        sum = i ? plus(f, sum, part) : part;
    }
    op_out_as(c, from_rows(f, sum, out), arg_dtype(c, 0));
}

/* g [p, c] put back where its taps came from */
static hlo to_input(const sampler *s, hlo g)
{
    hlo_fn *f = s->f;
    hlo rows[64], parts[64], zero = hlo_zeros(f, hlo_type(f, s->table));
    int n = tap_count(s);
    for (int i = 0; i < n; i++) {
        tap t = tap_at(s, i);
        rows[i] = hlo_unsqueeze(f, t.row, 1);
        hlo w = weight_of(s, &t, -1);
        parts[i] = weighed(f, g, hlo_select(f, t.in, w, hlo_like_f(f, w, 0)));
    }
    hlo_gather_dims d = {.noffset = 1, .ncollapsed = 1, .nmap = 1, .offset = {1}, .index_vector_dim = 1};
    return hlo_scatter(f, "add", zero, hlo_concat(f, rows, n, 0), hlo_concat(f, parts, n, 0), &d);
}

/* The gradient of the grid, [p, n]: what a step along each axis changes. */
static hlo to_grid(const sampler *s, hlo g)
{
    hlo_fn *f = s->f;
    hlo sum[3] = {HLO_NONE, HLO_NONE, HLO_NONE}, column[3];
    for (int i = 0; i < tap_count(s); i++) {
        tap t = tap_at(s, i);
        hlo v = hlo_reduce(f, "add", times(f, g, rows_of(s, &t)), 2);
        for (int d = 0; d < s->n; d++) {
            hlo part = times(f, v, weight_of(s, &t, d));
            sum[d] = i ? plus(f, sum[d], part) : part;
        }
    }
    for (int d = 0; d < s->n; d++) column[s->n - 1 - d] = hlo_unsqueeze(f, times(f, sum[d], s->a[d].slope), 1);
    return hlo_concat(f, column, s->n, 1);
}

/* grid_sampler_2d_backward, _3d(grad, input, grid, interpolation_mode, padding_mode, align_corners, output_mask) */
static void grid_sampler_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    sampler s;
    int n;
    const int64_t *want = op_ints(c, 6, &n);
    if (!make_sampler(c, 1, &s)) return;
    hlo g = to_rows(f, hlo_convert(f, op_in(c, 0), (tpu_dtype)s.in.dtype));
    bool empty = !s.points || !type_count(&s.in);
    if (!want[0]) op_out_none(c);
    else
        op_out_as(c, from_rows(f, empty ? hlo_zeros(f, hlo_type(f, s.table)) : to_input(&s, g), s.in), arg_dtype(c, 1));
    if (!want[1]) op_out_none(c);
    else if (empty || s.mode == NEAREST) op_out_as(c, hlo_zeros(f, s.grid), arg_dtype(c, 2));
    else op_out_as(c, hlo_reshape(f, to_grid(&s, g), s.grid.rank, s.grid.dim), arg_dtype(c, 2));
}

/* clang-format off */
const op_row ops_gridsample[] = {
    { "grid_sampler_2d",          grid_sampler,          "2" },
    { "grid_sampler_3d",          grid_sampler,          "3" },
    { "grid_sampler_2d_backward", grid_sampler_backward, "2" },
    { "grid_sampler_3d_backward", grid_sampler_backward, "3" },
    { NULL },
};
/* clang-format on */
