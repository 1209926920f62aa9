/* random.c - draws.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rng.h"

/* ---- Philox 4x32-10 ---- */
static hlo u32(hlo_fn *f, tpu_type shape, uint32_t v) { return hlo_const_i(f, type_as(shape, TPU_U32), (int64_t)v); }

/* High and low half of x * m, in 64 bits. */
static void wide_mul(hlo_fn *f, hlo x, uint32_t m, hlo *hi, hlo *lo)
{
    hlo w = hlo_convert(f, x, TPU_U64);
    hlo p = hlo_op2(f, "multiply", w, hlo_like_i(f, w, (int64_t)m));
    *lo = hlo_convert(f, hlo_op2(f, "and", p, hlo_like_i(f, p, 0xffffffffll)), TPU_U32);
    *hi = hlo_convert(f, hlo_op2(f, "shift_right_logical", p, hlo_like_i(f, p, 32)), TPU_U32);
}

static void philox(hlo_fn *f, hlo ctr[4], hlo key0, hlo key1)
{
    for (int round = 0; round < 10; round++) {
        hlo h0, l0, h1, l1;
        wide_mul(f, ctr[0], 0xD2511F53u, &h0, &l0);
        wide_mul(f, ctr[2], 0xCD9E8D57u, &h1, &l1);
        hlo n0 = hlo_op2(f, "xor", hlo_op2(f, "xor", h1, ctr[1]), key0), n2 = hlo_op2(f, "xor", hlo_op2(f, "xor", h0, ctr[3]), key1);
        ctr[1] = l1;
        ctr[3] = l0;
        ctr[0] = n0;
        ctr[2] = n2;
        key0 = hlo_op2(f, "add", key0, hlo_like_i(f, key0, (int64_t)0x9E3779B9u));
        key1 = hlo_op2(f, "add", key1, hlo_like_i(f, key1, (int64_t)0xBB67AE85u));
    }
}

static hlo low32(hlo_fn *f, hlo x64) { return hlo_convert(f, hlo_op2(f, "and", x64, hlo_like_i(f, x64, 0xffffffffll)), TPU_U32); }

static hlo high32(hlo_fn *f, hlo x64)
{
    return low32(f, hlo_op2(f, "shift_right_logical", x64, hlo_like_i(f, x64, 32)));
}

/* n words: blocks of four, laid side by side.  The host counts offsets in multiples of four. */
static hlo words(op_ctx *c, int64_t n)
{
    hlo_fn *f = op_fn(c);
    int64_t blocks = (n + 3) / 4;
    hlo seed, offset;
    op_seed(c, blocks * 4, &seed, &offset);
    tpu_type t = type_make(TPU_I64, 1, &blocks);
    hlo first = hlo_op2(f, "divide", offset, hlo_like_i(f, offset, 4));
    hlo at = hlo_op2(f, "add", hlo_broadcast_to(f, first, t), hlo_iota(f, t, 0));
    hlo ctr[4] = {low32(f, at), high32(f, at), u32(f, t, 0), u32(f, t, 0)};
    philox(f, ctr, hlo_broadcast_to(f, low32(f, seed), type_as(t, TPU_U32)), hlo_broadcast_to(f, high32(f, seed), type_as(t, TPU_U32)));
    for (int i = 0; i < 4; i++) ctr[i] = hlo_unsqueeze(f, ctr[i], 1);
    hlo all = hlo_flatten(f, hlo_concat(f, ctr, 4, 1));
    return n == blocks * 4 ? all : hlo_slice_dim(f, all, 0, 0, n, 1);
}

hlo rng_bits(op_ctx *c, tpu_type shape)
{
    hlo_fn *f = op_fn(c);
    int64_t n = type_count(&shape);
    if (n == 0) return hlo_zeros(f, type_as(shape, TPU_U32));
    return hlo_reshape(f, words(c, n), shape.rank, shape.dim);
}

hlo rng_bits64(op_ctx *c, tpu_type shape)
{
    hlo_fn *f = op_fn(c);
    int64_t n = type_count(&shape);
    if (n == 0) return hlo_zeros(f, type_as(shape, TPU_U64));
    hlo w = hlo_convert(f, hlo_reshape(f, words(c, 2 * n), 2, (int64_t[]){n, 2}), TPU_U64);
    hlo hi = hlo_reshape(f, hlo_slice_dim(f, w, 1, 0, 1, 1), shape.rank, shape.dim);
    hlo lo = hlo_reshape(f, hlo_slice_dim(f, w, 1, 1, 2, 1), shape.rank, shape.dim);
    return hlo_op2(f, "or", hlo_op2(f, "shift_left", hi, hlo_like_i(f, hi, 32)), lo);
}

hlo rng_uniform(op_ctx *c, tpu_type t)
{
    hlo_fn *f = op_fn(c);
    if (t.dtype == TPU_F64) {
        hlo b = rng_bits64(c, t);
        b = hlo_convert(f, hlo_op2(f, "shift_right_logical", b, hlo_like_i(f, b, 11)), TPU_F64);
        return hlo_op2(f, "multiply", b, hlo_like_f(f, b, 1.0 / 9007199254740992.0));
    }
    hlo b = rng_bits(c, t);
    b = hlo_convert(f, hlo_op2(f, "shift_right_logical", b, hlo_like_i(f, b, 8)), TPU_F32);
    return hlo_op2(f, "multiply", b, hlo_like_f(f, b, 1.0 / 16777216.0));
}

/* Box-Muller, both halves used: two uniforms give two normals. */
hlo rng_normal(op_ctx *c, tpu_type t)
{
    hlo_fn *f = op_fn(c);
    int64_t n = type_count(&t), half = (n + 1) / 2;
    if (n == 0) return hlo_zeros(f, t);
    tpu_type pair = type_make((tpu_dtype)t.dtype, 2, (int64_t[]){2, half});
    hlo u = rng_uniform(c, pair), one = hlo_const_f(f, type_make((tpu_dtype)t.dtype, 1, &half), 1);
    hlo a = hlo_reshape(f, hlo_slice_dim(f, u, 0, 0, 1, 1), 1, &half), b = hlo_reshape(f, hlo_slice_dim(f, u, 0, 1, 2, 1), 1, &half);
    hlo r = hlo_op1(f, "sqrt", hlo_op2(f, "multiply", hlo_like_f(f, a, -2), hlo_op1(f, "log", hlo_op2(f, "subtract", one, a))));
    hlo angle = hlo_op2(f, "multiply", b, hlo_like_f(f, b, 6.283185307179586476925));
    hlo both[2] = {hlo_op2(f, "multiply", r, hlo_op1(f, "cosine", angle)), hlo_op2(f, "multiply", r, hlo_op1(f, "sine", angle))};
    hlo all = hlo_concat(f, both, 2, 0);
    if (n != 2 * half) all = hlo_slice_dim(f, all, 0, 0, n, 1);
    return hlo_reshape(f, all, t.rank, t.dim);
}

/* ---- rows ---- */
static tpu_type drawn(hlo_fn *f, hlo x)
{
    tpu_type t = hlo_type(f, x);
    return type_as(t, t.dtype == TPU_F64 || t.dtype == TPU_C128 ? TPU_F64 : TPU_F32);
}

static hlo scaled(op_ctx *c, hlo x, int mul, int add)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, x);
    x = hlo_op2(f, "multiply", x, hlo_broadcast_to(f, op_scalar(c, mul, (tpu_dtype)t.dtype), t));
    return hlo_op2(f, "add", x, hlo_broadcast_to(f, op_scalar(c, add, (tpu_dtype)t.dtype), t));
}

static void write_self(op_ctx *c, hlo x) { op_write(c, 0, hlo_convert(op_fn(c), x, hlo_dtype(op_fn(c), op_in(c, 0)))); }

/* normal_(self, mean, std, generator): complex draws its halves with variance 1/2 */
static void normal(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo self = op_in(c, 0);
    tpu_type t = drawn(f, self);
    if (!dtype_is_complex(hlo_dtype(f, self))) {
        write_self(c, scaled(c, rng_normal(c, t), 2, 1));
        return;
    }
    hlo s = hlo_broadcast_to(f, op_scalar(c, 2, (tpu_dtype)t.dtype), t), h = hlo_const_f(f, t, 0.70710678118654752440);
    s = hlo_op2(f, "multiply", s, h);
    hlo re = hlo_op2(f, "multiply", rng_normal(c, t), s), im = hlo_op2(f, "multiply", rng_normal(c, t), s);
    re = hlo_op2(f, "add", re, hlo_broadcast_to(f, op_scalar(c, 1, (tpu_dtype)t.dtype), t));
    write_self(c, hlo_op2(f, "complex", re, im));
}

/* uniform_(self, from, to, generator): [from, to) even after rounding */
static void uniform(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo self = op_in(c, 0);
    tpu_type t = drawn(f, self);
    tpu_dtype m = (tpu_dtype)t.dtype, own = hlo_dtype(f, self);
    hlo from = op_scalar(c, 1, m), to = op_scalar(c, 2, m), span = hlo_op2(f, "subtract", to, from);
    hlo u = rng_uniform(c, t);
    hlo x = hlo_op2(f, "add", hlo_op2(f, "multiply", u, hlo_broadcast_to(f, span, t)), hlo_broadcast_to(f, from, t));
    x = hlo_convert(f, x, own);
    hlo end = hlo_broadcast_to(f, hlo_convert(f, to, own), hlo_type(f, x)), start = hlo_broadcast_to(f, hlo_convert(f, from, own), hlo_type(f, x));
    op_write(c, 0, hlo_select(f, hlo_compare(f, "EQ", x, end), start, x));
}

/* An integer in [low, low + range) from 64 random bits. */
static hlo integers(op_ctx *c, tpu_type shape, hlo low, hlo range)
{
    hlo_fn *f = op_fn(c);
    hlo b = rng_bits64(c, shape), r = hlo_broadcast_to(f, hlo_convert(f, range, TPU_U64), hlo_type(f, b));
    hlo v = hlo_convert(f, hlo_op2(f, "remainder", b, r), TPU_I64);
    return hlo_op2(f, "add", v, hlo_broadcast_to(f, low, hlo_type(f, v)));
}

static double highest_integer(tpu_dtype t)
{
    switch (t) {
    case TPU_BOOL: return 1;
    case TPU_U8: return 255;
    case TPU_I8: return 127;
    case TPU_I16: return 32767;
    case TPU_U16: return 65535;
    case TPU_I32: return 2147483647.0;
    case TPU_U32: return 4294967295.0;
    case TPU_F16: return 2048;
    case TPU_BF16: return 256;
    case TPU_F32: return 16777216.0;
    default: return 9007199254740992.0;
    }
}

/* random_(self), random_.to(self, to), random_.from(self, from, to?) */
static void random_int(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo self = op_in(c, 0), low = hlo_const_i(f, type_scalar(TPU_I64), 0), range;
    tpu_dtype t = hlo_dtype(f, self);
    double top = highest_integer(t);
    if (t == TPU_I64) range = hlo_const_i(f, type_scalar(TPU_I64), INT64_MAX);
    else range = hlo_const_i(f, type_scalar(TPU_I64), (int64_t)top + 1);
    const char *w = op_row_of(c)->word;
    if (w[0] == 't') range = op_scalar(c, 1, TPU_I64);
    if (w[0] == 'f') {
        low = op_scalar(c, 1, TPU_I64);
        if (op_has(c, 2)) range = hlo_op2(f, "subtract", op_scalar(c, 2, TPU_I64), low);
        else range = hlo_op2(f, "subtract", range, low);
    }
    write_self(c, integers(c, hlo_type(f, self), low, range));
}

static hlo below(op_ctx *c, tpu_type t, hlo p)
{
    hlo_fn *f = op_fn(c);
    return hlo_compare(f, "LT", rng_uniform(c, t), p);
}

/* bernoulli_.float(self, p), bernoulli.p(self, p), bernoulli_.Tensor(self, p), bernoulli(self): self is p */
static void bernoulli(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *w = op_row_of(c)->word;
    hlo self = op_in(c, 0);
    tpu_type t = type_as(hlo_type(f, self), hlo_dtype(f, self) == TPU_F64 ? TPU_F64 : TPU_F32);
    hlo p = w[0] == 's' ? self : op_in_as(c, 1, (tpu_dtype)t.dtype);
    hlo r = below(c, t, hlo_broadcast_to(f, hlo_convert(f, p, (tpu_dtype)t.dtype), t));
    if (w[1] == '_') write_self(c, hlo_convert(f, r, hlo_dtype(f, self)));
    else op_out_as(c, r, hlo_dtype(f, self));
}

/* exponential_(lambd), geometric_(p), cauchy_(median, sigma), log_normal_(mean, std) */
static void other_law(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = drawn(f, op_in(c, 0));
    tpu_dtype m = (tpu_dtype)t.dtype;
    char law = op_row_of(c)->word[0];
    if (law == 'n') {
        write_self(c, hlo_op1(f, "exponential", scaled(c, rng_normal(c, t), 2, 1)));
        return;
    }
    hlo u = rng_uniform(c, t), one = hlo_like_f(f, u, 1), a = hlo_broadcast_to(f, op_scalar(c, 1, m), t);
    hlo e = hlo_op1(f, "negate", hlo_op1(f, "log", hlo_op2(f, "subtract", one, u)));
    if (law == 'e') write_self(c, hlo_op2(f, "divide", e, a));
    if (law == 'g') {
        hlo k = hlo_op2(f, "divide", e, hlo_op1(f, "negate", hlo_op1(f, "log_plus_one", hlo_op1(f, "negate", a))));
        write_self(c, hlo_max(f, hlo_op1(f, "ceil", k), one));
    }
    if (law == 'c') {
        hlo angle = hlo_op2(f, "multiply", hlo_op2(f, "subtract", u, hlo_like_f(f, u, 0.5)), hlo_like_f(f, u, 3.14159265358979323846));
        hlo s = hlo_broadcast_to(f, op_scalar(c, 2, m), t);
        write_self(c, hlo_op2(f, "add", a, hlo_op2(f, "multiply", s, hlo_op1(f, "tan", angle))));
    }
}

/* normal.Tensor_float(mean, std), .float_Tensor, .Tensor_Tensor */
static void normal_of(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype own = op_promote2(c, 0, 1);
    if (!dtype_is_float(own)) own = TPU_F32;
    tpu_dtype m = own == TPU_F64 ? TPU_F64 : TPU_F32;
    hlo mean = op_in_as(c, 0, m), std = op_in_as(c, 1, m);
    hlo_broadcast2(f, &mean, &std);
    op_out_as(c, hlo_op2(f, "add", mean, hlo_op2(f, "multiply", std, rng_normal(c, hlo_type(f, mean)))), own);
}

/* native_dropout(input, p, train?) -> (output, mask) */
static void dropout(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo in = op_in(c, 0), x = op_in_math(c, 0);
    tpu_type t = hlo_type(f, x);
    if (op_has(c, 2) && !op_bool(c, 2)) {
        op_out(c, in);
        op_out(c, hlo_const_i(f, type_as(t, TPU_BOOL), 1));
        return;
    }
    tpu_type draw = type_as(t, t.dtype == TPU_F64 ? TPU_F64 : TPU_F32);
    hlo p = op_scalar(c, 1, (tpu_dtype)draw.dtype), one = hlo_like_f(f, p, 1), q = hlo_op2(f, "subtract", one, p), zero = hlo_like_f(f, p, 0);
    hlo keep = hlo_compare(f, "GE", rng_uniform(c, draw), hlo_broadcast_to(f, p, draw));
    hlo scale = hlo_select(f, hlo_compare(f, "EQ", q, zero), zero, hlo_op2(f, "divide", one, q));
    hlo y = hlo_op2(f, "multiply", x, hlo_broadcast_to(f, hlo_convert(f, scale, (tpu_dtype)t.dtype), t));
    op_out_as(c, hlo_select(f, keep, y, hlo_zeros(f, t)), hlo_dtype(f, in));
    op_out(c, keep);
}

/* native_dropout_backward(grad, mask, scale) */
static void dropout_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo g = op_in_math(c, 0);
    tpu_type t = hlo_type(f, g);
    hlo y = hlo_op2(f, "multiply", g, hlo_broadcast_to(f, op_scalar(c, 2, (tpu_dtype)t.dtype), t));
    op_out_as(c, hlo_select(f, hlo_convert(f, op_in(c, 1), TPU_BOOL), y, hlo_zeros(f, t)), hlo_dtype(f, op_in(c, 0)));
}

static void permutation(op_ctx *c, int64_t n, hlo *out)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = type_make(TPU_I64, 1, &n);
    hlo pair[2] = {rng_bits64(c, t), hlo_iota(f, t, 0)}, sorted[2];
    hlo_sort(f, pair, 2, 0, false, sorted);
    *out = sorted[1];
}


/* randperm.generator_out(n, generator, out) */
static void randperm_out(op_ctx *c)
{
    hlo p;
    permutation(c, op_int(c, 0), &p);
    op_write(c, 2, hlo_convert(op_fn(c), p, hlo_dtype(op_fn(c), op_in(c, 2))));
}

/* multinomial(self, num_samples, replacement): the k greatest of log p plus Gumbel noise; with replacement each sample draws anew */
static void multinomial(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo p = op_in_math(c, 0);
    int64_t k = op_int(c, 1), n = hlo_dim(f, p, -1);
    bool flat = hlo_rank(f, p) == 1, again = op_bool(c, 2);
    int64_t rows = flat ? 1 : hlo_dim(f, p, 0);
    if (!again && k > n) {
        op_fail(c, TPU_INVALID, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
        return;
    }
    p = hlo_op1(f, "log", hlo_reshape(f, p, 2, (int64_t[]){rows, n}));
    tpu_type t = type_make(hlo_dtype(f, p), again ? 3 : 2, again ? (int64_t[]){rows, k, n} : (int64_t[]){rows, n});
    hlo u = rng_uniform(c, type_as(t, t.dtype == TPU_F64 ? TPU_F64 : TPU_F32)), tiny = hlo_like_f(f, u, 1e-20);
    hlo gumbel = hlo_op1(f, "negate", hlo_op1(f, "log", hlo_op2(f, "add", hlo_op1(f, "negate", hlo_op1(f, "log", hlo_max(f, u, tiny))), tiny)));
    hlo logits = again ? hlo_broadcast_in_dim(f, p, t, (int64_t[]){0, 2}) : p;
    hlo score = hlo_op2(f, "add", logits, gumbel), r;
    if (again) {
        r = hlo_argmax(f, score, 2, false);
    } else {
        hlo pair[2] = {score, hlo_iota(f, type_as(t, TPU_I64), 1)}, sorted[2];
        hlo_sort(f, pair, 2, 1, true, sorted);
        r = hlo_slice_dim(f, sorted[1], 1, 0, k, 1);
    }
    op_out(c, hlo_reshape(f, r, flat ? 1 : 2, flat ? (int64_t[]){k} : (int64_t[]){rows, k}));
}

/* clang-format off */
const op_row ops_random[] = {
    { "normal_",               normal,        .flags = OP_RANDOM },
    { "uniform_",              uniform,       .flags = OP_RANDOM },
    { "random_",               random_int,    "all",   OP_RANDOM },
    { "random_.to",            random_int,    "to",    OP_RANDOM },
    { "random_.from",          random_int,    "from",  OP_RANDOM },
    { "bernoulli_.float",      bernoulli,     "f_",    OP_RANDOM },
    { "bernoulli_.Tensor",     bernoulli,     "t_",    OP_RANDOM },
    { "bernoulli.p",           bernoulli,     "p",     OP_RANDOM },
    { "bernoulli",             bernoulli,     "s",     OP_RANDOM },
    { "exponential_",          other_law,     "e",     OP_RANDOM },
    { "geometric_",            other_law,     "g",     OP_RANDOM },
    { "cauchy_",               other_law,     "c",     OP_RANDOM },
    { "log_normal_",           other_law,     "n",     OP_RANDOM },
    { "normal.Tensor_float",   normal_of,     NULL,    OP_RANDOM },
    { "normal.float_Tensor",   normal_of,     NULL,    OP_RANDOM },
    { "normal.Tensor_Tensor",  normal_of,     NULL,    OP_RANDOM },
    { "native_dropout",        dropout,       NULL,    OP_RANDOM },
    { "native_dropout_backward", dropout_backward },
    { "randperm.generator_out", randperm_out, NULL,    OP_RANDOM },
    { "multinomial",           multinomial,   NULL,    OP_RANDOM },
    { NULL },
};
/* clang-format on */
