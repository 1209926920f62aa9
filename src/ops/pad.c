/* pad.c - padding by reflection and by repeats of the edge, with gradients.  A negative pad crops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arith.h"
#include "words.h"

typedef struct sides {
    int n;
    int64_t lo[3], hi[3];
} sides; /* of the last n dims, in their order */

/* Rows have a word: whether they reflect, and over how many dims. */
static bool reflects(op_ctx *c) { return op_row_of(c)->word[0] == 'r'; }
static int ndims(op_ctx *c) { return op_row_of(c)->word[1] - '0'; }

static bool fits(op_ctx *c, hlo x, const sides *s)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, x);
    int n = s->n;
    bool batch = t.rank == n + 2, empty = false;
    for (int i = batch; i < t.rank; i++) empty |= t.dim[i] == 0;
    words shape = sizes_in_words(t);
    if (empty || (!batch && t.rank != n + 1)) {
        op_fail(c, TPU_INVALID,
                "Expected %dD or %dD (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
                "input, but got: %s",
                n + 1, n + 2, shape.s);
        return false;
    }
    for (int i = n - 1; i >= 0; i--) {
        int d = t.rank - n + i;
        int64_t lo = s->lo[i], hi = s->hi[i], in = t.dim[d];
        if (reflects(c) && (lo >= in || hi >= in))
            op_fail(c, TPU_INVALID,
                    "Argument #%d: Padding size should be less than the corresponding input dimension, but got: "
                    "padding (%lld, %lld) at dimension %d of input %s",
                    4 + 2 * (n - 1 - i), (long long)lo, (long long)hi, d, shape.s);
        if (hlo_failed(f)) return false;
    }
    for (int i = 0; i < n; i++) {
        int64_t in = t.dim[t.rank - n + i], out = in + s->lo[i] + s->hi[i];
        if (out < 1)
            op_fail(c, TPU_INVALID, "input (%c: %lld) is too small. Calculated output %c: %lld", "DHW"[3 - n + i],
                    (long long)in, "DHW"[3 - n + i], (long long)out);
        if (hlo_failed(f)) return false;
    }
    return true;
}

/* The list of pads begins with the last dim. */
static bool read_sides(op_ctx *c, int arg, hlo x, sides *s)
{
    int n;
    const int64_t *v = op_ints(c, arg, &n);
    s->n = ndims(c);
    if (n != 2 * s->n) {
        op_fail(c, TPU_INVALID, "padding size is expected to be %d, but got: %d", 2 * s->n, n);
        return false;
    }
    for (int i = 0; i < s->n; i++) {
        s->lo[i] = v[2 * (s->n - 1 - i)];
        s->hi[i] = v[2 * (s->n - 1 - i) + 1];
    }
    return fits(c, x, s);
}

static int64_t above(int64_t v) { return v > 0 ? v : 0; }

/* A side's `count` new elements: the neighbours of the edge mirrored, or the edge itself. */
static hlo margin(hlo_fn *f, hlo x, int d, int64_t count, bool low, bool reflect)
{
    int64_t n = hlo_dim(f, x, d), edge = low ? 0 : n - 1;
    if (reflect)
        return hlo_reverse(
            f, low ? hlo_slice_dim(f, x, d, 1, count + 1, 1) : hlo_slice_dim(f, x, d, n - 1 - count, n - 1, 1),
            1u << d);
    tpu_type t = hlo_type(f, x);
    t.dim[d] = count;
    return hlo_broadcast_to(f, hlo_slice_dim(f, x, d, edge, edge + 1, 1), t);
}

static hlo extended(hlo_fn *f, hlo x, int d, int64_t lo, int64_t hi, bool reflect)
{
    hlo part[3];
    int n = 0;
    if (lo > 0) part[n++] = margin(f, x, d, lo, true, reflect);
    part[n++] = x;
    if (hi > 0) part[n++] = margin(f, x, d, hi, false, reflect);
    x = n > 1 ? hlo_concat(f, part, n, d) : x;
    return hlo_slice_dim(f, x, d, above(-lo), hlo_dim(f, x, d) - above(-hi), 1);
}

/* reflection_pad*, replication_pad*(self, padding) */
static void pad(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    sides s;
    if (!read_sides(c, 1, x, &s)) return;
    for (int i = 0; i < s.n; i++) x = extended(f, x, hlo_rank(f, x) - s.n + i, s.lo[i], s.hi[i], reflects(c));
    op_out(c, x);
}

/* g with zeros (or cuts, where negative) at the ends of dim d */
static hlo framed(hlo_fn *f, hlo g, int d, int64_t lo, int64_t hi)
{
    int64_t before[TYPE_MAX_RANK] = {0}, after[TYPE_MAX_RANK] = {0};
    before[d] = lo;
    after[d] = hi;
    return hlo_pad(f, g, hlo_zeros(f, type_scalar(hlo_dtype(f, g))), before, after, NULL);
}

/* The gradient of a margin, in the shape of the n elements it was made from. */
static hlo margin_back(hlo_fn *f, hlo g, int d, int64_t n, bool low, bool reflect)
{
    int64_t count = hlo_dim(f, g, d);
    if (reflect) return framed(f, hlo_reverse(f, g, 1u << d), d, low ? 1 : n - 1 - count, low ? n - 1 - count : 1);
    g = hlo_unsqueeze(f, hlo_reduce(f, "add", g, 1u << d), d);
    return framed(f, g, d, low ? 0 : n - 1, low ? n - 1 : 0);
}

static hlo extended_back(hlo_fn *f, hlo g, int d, int64_t n, int64_t lo, int64_t hi, bool reflect)
{
    g = framed(f, g, d, above(-lo), above(-hi));
    int64_t first = above(lo), end = hlo_dim(f, g, d);
    hlo sum = hlo_slice_dim(f, g, d, first, first + n, 1);
    if (lo > 0) sum = plus(f, sum, margin_back(f, hlo_slice_dim(f, g, d, 0, lo, 1), d, n, true, reflect));
    if (hi > 0) sum = plus(f, sum, margin_back(f, hlo_slice_dim(f, g, d, end - hi, end, 1), d, n, false, reflect));
    return sum;
}

/* reflection_pad*_backward, replication_pad*_backward(grad, self, padding) */
static void pad_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0), x = op_in(c, 1);
    sides s;
    if (!read_sides(c, 2, x, &s)) return;
    int r = hlo_rank(f, x);
    for (int i = 0; i < s.n; i++) {
        int d = r - s.n + i;
        if (hlo_rank(f, g) != r || hlo_dim(f, g, d) != hlo_dim(f, x, d) + s.lo[i] + s.hi[i]) {
            op_fail(c, TPU_INVALID, "grad_output %s unexpected. Expected: %lld, Got: %lld",
                    i == s.n - 1   ? "width"
                    : i == s.n - 2 ? "height"
                                   : "depth",
                    (long long)(hlo_dim(f, x, d) + s.lo[i] + s.hi[i]), (long long)hlo_dim(f, g, d));
            return;
        }
        g = extended_back(f, g, d, hlo_dim(f, x, d), s.lo[i], s.hi[i], reflects(c));
    }
    op_out_as(c, g, arg_dtype(c, 0));
}

/* clang-format off */
const op_row ops_pad[] = {
    { "reflection_pad1d",           pad,          "r1" },
    { "reflection_pad2d",           pad,          "r2" },
    { "reflection_pad3d",           pad,          "r3" },
    { "reflection_pad1d_backward",  pad_backward, "r1" },
    { "reflection_pad2d_backward",  pad_backward, "r2" },
    { "reflection_pad3d_backward",  pad_backward, "r3" },
    { "replication_pad1d",          pad,          "e1" },
    { "replication_pad2d",          pad,          "e2" },
    { "replication_pad3d",          pad,          "e3" },
    { "replication_pad1d_backward", pad_backward, "e1" },
    { "replication_pad2d_backward", pad_backward, "e2" },
    { "replication_pad3d_backward", pad_backward, "e3" },
    { NULL },
};
/* clang-format on */
