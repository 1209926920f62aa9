/* rng.c - Philox 4x32-10 and the laws that most rows need [R1].
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops/rng.h"

#include "ops/arith.h"

/* ---- Philox ---- */
static hlo low_half(hlo_fn *f, hlo x) { return both(f, x, hlo_like_i(f, x, 0xffff)); }
static hlo high_half(hlo_fn *f, hlo x) { return hlo_op2(f, "shift_right_logical", x, hlo_like_i(f, x, 16)); }

/* The high 32 bits of x * m.  A TPU has no 64-bit products: there by halves, of which no sum overflows. */
static hlo high_product(hlo_fn *f, hlo x, uint32_t m)
{
    if (hlo_target_of(f) == HLO_CPU) {
        hlo w = hlo_convert(f, x, TPU_U64);
        w = times(f, w, hlo_like_i(f, w, (int64_t)m));
        return hlo_convert(f, hlo_op2(f, "shift_right_logical", w, hlo_like_i(f, w, 32)), TPU_U32);
    }
    hlo mh = hlo_like_i(f, x, (int64_t)(m >> 16)), ml = hlo_like_i(f, x, (int64_t)(m & 0xffff));
    hlo xh = high_half(f, x), xl = low_half(f, x);
    hlo t = plus(f, times(f, xl, mh), high_half(f, times(f, xl, ml)));
    hlo mid = plus(f, times(f, xh, ml), low_half(f, t));
    return plus(f, plus(f, times(f, xh, mh), high_half(f, t)), high_half(f, mid));
}

static hlo word_of(hlo_fn *f, hlo x, bool high)
{
    if (high) x = hlo_op2(f, "shift_right_logical", x, hlo_like_i(f, x, 32));
    return hlo_convert(f, both(f, x, hlo_like_i(f, x, 0xffffffffll)), TPU_U32);
}

static hlo row_major_index(hlo_fn *f, tpu_type t)
{
    int64_t stride = 1;
    hlo sum = HLO_NONE;
    for (int d = t.rank - 1; d >= 0; stride *= t.dim[d--]) {
        if (t.dim[d] == 1) continue;
        hlo part = hlo_iota(f, t, d);
        if (stride != 1) part = times(f, part, hlo_const_i(f, t, stride));
        sum = hlo_ok(sum) ? plus(f, sum, part) : part;
    }
    return hlo_ok(sum) ? sum : hlo_zeros(f, t);
}

rng_draw rng_begin(op_ctx *c, tpu_type shape)
{
    hlo_fn *f = op_fn(c);
    hlo seed, offset;
    int64_t n = type_count(&shape);
    if (n) op_seed(c, n, &seed, &offset);
    else seed = offset = hlo_const_i(f, type_scalar(TPU_I64), 0);   /* nothing is drawn: the generator is not asked */
    rng_draw d = {.key = {word_of(f, seed, false), word_of(f, seed, true)}};
    if (n > UINT32_MAX) {
        tpu_type wide = type_as(shape, TPU_I64);
        hlo at = plus(f, row_major_index(f, wide), hlo_broadcast_to(f, offset, wide));
        d.block[0] = word_of(f, at, false);
        d.block[1] = word_of(f, at, true);
        return d;
    }
    tpu_type t = type_as(shape, TPU_U32);
    hlo low = hlo_broadcast_to(f, word_of(f, offset, false), t), high = hlo_broadcast_to(f, word_of(f, offset, true), t);
    d.block[0] = plus(f, row_major_index(f, t), low);
    d.block[1] = plus(f, high, hlo_convert(f, hlo_compare(f, "LT", d.block[0], low), TPU_U32));
    return d;
}

rng_draw rng_at(hlo_fn *f, hlo seed, hlo block)
{
    return (rng_draw){.key = {word_of(f, seed, false), word_of(f, seed, true)}, .block = {word_of(f, block, false), word_of(f, block, true)}};
}

void rng_words(hlo_fn *f, const rng_draw *d, hlo round, hlo *w)
{
    tpu_type t = hlo_type(f, d->block[0]);
    hlo key[2] = {d->key[0], d->key[1]}, zero = hlo_zeros(f, t);
    hlo ctr[4] = {d->block[0], d->block[1], hlo_ok(round) ? hlo_broadcast_to(f, round, t) : zero, zero};
    for (int i = 0; i < 10; i++) {
        hlo h0 = high_product(f, ctr[0], 0xD2511F53u), h2 = high_product(f, ctr[2], 0xCD9E8D57u);
        hlo l0 = times(f, ctr[0], hlo_like_i(f, ctr[0], (int64_t)0xD2511F53u));
        hlo l2 = times(f, ctr[2], hlo_like_i(f, ctr[2], (int64_t)0xCD9E8D57u));
        hlo n0 = hlo_op2(f, "xor", hlo_op2(f, "xor", h2, ctr[1]), hlo_broadcast_to(f, key[0], t));
        hlo n2 = hlo_op2(f, "xor", hlo_op2(f, "xor", h0, ctr[3]), hlo_broadcast_to(f, key[1], t));
        ctr[0] = n0;
        ctr[1] = l2;
        ctr[2] = n2;
        ctr[3] = l0;
        key[0] = plus(f, key[0], hlo_like_i(f, key[0], (int64_t)0x9E3779B9u));
        key[1] = plus(f, key[1], hlo_like_i(f, key[1], (int64_t)0xBB67AE85u));
    }
    for (int i = 0; i < 4; i++) w[i] = ctr[i];
}

/* ---- numbers from words ---- */
static hlo shifted(hlo_fn *f, hlo w, int bits) { return hlo_op2(f, "shift_right_logical", w, hlo_like_i(f, w, bits)); }

/* The 24 or 53 leading bits as an integer in t; int32 on the way, for which processors have a conversion. */
static hlo leading_bits(hlo_fn *f, const hlo *w, tpu_dtype t)
{
    if (t != TPU_F64) return hlo_convert(f, hlo_convert(f, shifted(f, w[0], 8), TPU_I32), t);
    hlo high = hlo_convert(f, hlo_convert(f, shifted(f, w[0], 5), TPU_I32), t);
    hlo low = hlo_convert(f, hlo_convert(f, shifted(f, w[1], 6), TPU_I32), t);
    return plus(f, times_k(f, high, 67108864), low);
}

static double unit_step(tpu_dtype t) { return t == TPU_F64 ? 1.0 / 9007199254740992.0 : 1.0 / 16777216.0; }
hlo rng_unit(hlo_fn *f, const hlo *w, tpu_dtype t) { return times_k(f, leading_bits(f, w, t), unit_step(t)); }

hlo rng_unit_above(hlo_fn *f, const hlo *w, tpu_dtype t)
{
    return times_k(f, plus_k(f, leading_bits(f, w, t), 1), unit_step(t));
}

/* float32: the inverse error function in Giles's two polynomials, of u's distance from the nearer end, so that both
 * tails are alike; one word gives one number, and no sine slows a vector loop. */
static hlo gauss32(hlo_fn *f, hlo w)
{
    static const double middle[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941};
    static const double tail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                  -0.0076224613, 0.00943887047, 1.00167406, 2.83297682};
    hlo v = rng_unit_above(f, &w, TPU_F32);
    hlo far = negate(f, logarithm(f, times(f, v, k_minus(f, 2, v))));
    hlo a = polynomial(f, plus_k(f, far, -2.5), middle, (int)TPU_COUNT(middle));
    hlo b = polynomial(f, plus_k(f, root(f, far), -3), tail, (int)TPU_COUNT(tail));
    hlo x = times_k(f, times(f, hlo_select(f, compare_k(f, "LT", far, 5), a, b), k_minus(f, 1, v)), 1.41421356237309504880);
    hlo minus_bit = hlo_compare(f, "NE", both(f, w, hlo_like_i(f, w, 1)), hlo_like_i(f, w, 0));
    return hlo_select(f, minus_bit, negate(f, x), x);
}

/* float64: Box and Muller's pair. */
hlo rng_gauss(hlo_fn *f, const hlo *w, tpu_dtype t, hlo *second)
{
    if (t != TPU_F64) {
        if (second) *second = gauss32(f, w[1]);
        return gauss32(f, w[0]);
    }
    hlo r = root(f, times_k(f, logarithm(f, rng_unit_above(f, w, t)), -2));
    hlo angle = times_k(f, rng_unit(f, w + 2, t), 6.283185307179586476925);
    if (second) *second = times(f, r, hlo_op1(f, "sine", angle));
    return times(f, r, hlo_op1(f, "cosine", angle));
}

/* ---- a draw at once ---- */
static void draw(op_ctx *c, tpu_type t, hlo *w)
{
    rng_draw d = rng_begin(c, t);
    rng_words(op_fn(c), &d, HLO_NONE, w);
}

hlo rng_uniform(op_ctx *c, tpu_type t)
{
    hlo w[4];
    draw(c, t, w);
    return rng_unit(op_fn(c), w, (tpu_dtype)t.dtype);
}

hlo rng_normal(op_ctx *c, tpu_type t)
{
    hlo w[4];
    draw(c, t, w);
    return rng_gauss(op_fn(c), w, (tpu_dtype)t.dtype, NULL);
}

hlo rng_exponential(op_ctx *c, tpu_type t)
{
    hlo_fn *f = op_fn(c);
    hlo w[4];
    draw(c, t, w);
    hlo e = negate(f, logarithm(f, rng_unit_above(f, w, (tpu_dtype)t.dtype)));
    return hlo_max(f, e, hlo_like_f(f, e, unit_step((tpu_dtype)t.dtype) / 2));
}

hlo rng_bits(op_ctx *c, tpu_type shape)
{
    hlo w[4];
    draw(c, shape, w);
    return w[0];
}

static hlo join(hlo_fn *f, hlo high, hlo low)
{
    high = hlo_convert(f, high, TPU_U64);
    return either(f, hlo_op2(f, "shift_left", high, hlo_like_i(f, high, 32)), hlo_convert(f, low, TPU_U64));
}

hlo rng_bits64(op_ctx *c, tpu_type shape)
{
    hlo w[4];
    draw(c, shape, w);
    return join(op_fn(c), w[0], w[1]);
}

hlo rng_keep(op_ctx *c, tpu_type shape, hlo p)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = type_as(shape, hlo_dtype(f, p));
    return hlo_compare(f, "GE", rng_uniform(c, t), hlo_broadcast_to(f, p, t));
}

hlo rng_below(op_ctx *c, tpu_type shape, uint64_t range)
{
    hlo_fn *f = op_fn(c);
    hlo w[4];
    draw(c, shape, w);
    /* 2^28: the unevenness of 32 bits stays under a sixteenth, as PyTorch has it; the scaled product needs no division */
    if (range && range < 1u << 28) return hlo_convert(f, high_product(f, w[0], (uint32_t)range), TPU_I64);
    hlo x = join(f, w[0], w[1]);
    if (range) x = hlo_op2(f, "remainder", x, hlo_like_i(f, x, (int64_t)range));
    return hlo_convert(f, x, TPU_I64);
}
