/* random.c - rows that draw.  An in-place row (normal_) writes its argument, a functional one (uniform) returns.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/arith.h"
#include "ops/rng.h"

/* bfloat16, float16 and integers draw in float32. */
static tpu_type drawn(hlo_fn *f, hlo x)
{
    tpu_dtype t = dtype_real(hlo_dtype(f, x));
    return type_as(hlo_type(f, x), t == TPU_F64 ? TPU_F64 : TPU_F32);
}

static bool in_place(op_ctx *c)
{
    const char *name = op_row_of(c)->name, *dot = strchr(name, '.');
    return name[(dot ? (size_t)(dot - name) : strlen(name)) - 1] == '_';
}

static void give(op_ctx *c, hlo x)
{
    x = hlo_convert(op_fn(c), x, arg_dtype(c, 0));
    if (in_place(c)) op_write(c, 0, x);
    else op_out(c, x);
}

/* mean + std * x, both of them scalars or of x's shape */
static hlo located(hlo_fn *f, hlo x, hlo mean, hlo std)
{
    tpu_type t = hlo_type(f, x);
    return plus(f, times(f, x, hlo_broadcast_to(f, std, t)), hlo_broadcast_to(f, mean, t));
}

/* normal_(self, mean, std): the halves of a complex number have half the variance each */
static void normal(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = drawn(f, op_in(c, 0));
    tpu_dtype m = (tpu_dtype)t.dtype;
    hlo mean = op_scalar(c, 1, m), std = op_scalar(c, 2, m);
    if (!dtype_is_complex(arg_dtype(c, 0))) {
        give(c, located(f, rng_normal(c, t), mean, std));
        return;
    }
    hlo w[4], im;
    rng_draw d = rng_begin(c, t);
    rng_words(f, &d, HLO_NONE, w);
    hlo re = rng_gauss(f, w, m, &im);
    std = times_k(f, std, 0.70710678118654752440);
    give(c, hlo_op2(f, "complex", located(f, re, mean, std), times(f, im, hlo_broadcast_to(f, std, t))));
}

static void log_normal(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = drawn(f, op_in(c, 0));
    tpu_dtype m = (tpu_dtype)t.dtype;
    give(c, exponential(f, located(f, rng_normal(c, t), op_scalar(c, 1, m), op_scalar(c, 2, m))));
}

/* normal.Tensor_float(mean, std), .float_Tensor, .Tensor_Tensor */
static void normal_of(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *w = op_row_of(c)->word;
    tpu_dtype own = arg_dtype(c, w[0] == 'm' ? 0 : 1);
    tpu_dtype m = dtype_real(own) == TPU_F64 ? TPU_F64 : TPU_F32;
    hlo mean = op_in_as(c, 0, m), std = op_in_as(c, 1, m);
    hlo_broadcast2(f, &mean, &std);
    op_out_as(c, located(f, rng_normal(c, hlo_type(f, mean)), mean, std), dtype_is_float(own) ? own : TPU_F32);
}

/* uniform_(self, from, to): never `to`, also after rounding to the argument's dtype */
static void uniform(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo self = op_in(c, 0);
    tpu_type t = drawn(f, self);
    tpu_dtype m = (tpu_dtype)t.dtype, own = hlo_dtype(f, self);
    hlo u = rng_uniform(c, t);
    if (op_is_default(c, 1) && op_is_default(c, 2)) {
        if (own != m) {                                 /* as many bits as the dtype holds, so that none rounds to 1 */
            double steps = own == TPU_BF16 ? 256 : own == TPU_F16 ? 2048 : 16777216.0;
            u = times_k(f, hlo_op1(f, "floor", times_k(f, u, steps)), 1 / steps);
        }
        give(c, u);
        return;
    }
    hlo from = op_scalar(c, 1, m), to = op_scalar(c, 2, m);
    hlo x = hlo_convert(f, located(f, u, from, minus(f, to, from)), own);
    hlo start = hlo_broadcast_to(f, hlo_convert(f, from, own), hlo_type(f, x));
    hlo end = hlo_broadcast_to(f, hlo_convert(f, to, own), hlo_type(f, x));
    give(c, hlo_select(f, hlo_compare(f, "EQ", x, end), start, x));
}

/* ---- integers ---- */
/* The greatest integer of random_: the dtype's own, or the last before floats skip one. */
static int64_t greatest(tpu_dtype t)
{
    switch (t) {
    case TPU_BOOL: return 1;
    case TPU_F16: return 1 << 11;
    case TPU_BF16: return 1 << 8;
    case TPU_F32: return 1 << 24;
    case TPU_F64: return 1ll << 53;
    default: break;
    }
    int bits = 8 * (int)dtype_size(t) - (dtype_is_unsigned(t) ? 0 : 1);
    return bits >= 63 ? INT64_MAX : (1ll << bits) - 1;
}

static int64_t least(tpu_dtype t)
{
    if (t == TPU_BOOL || dtype_is_unsigned(t)) return 0;
    return dtype_is_int(t) ? -greatest(t) - 1 : -greatest(t);
}

/* random_(self), random_.to(self, to), random_.from(self, from, to?) */
static void random_int(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = arg_dtype(c, 0);
    if (dtype_is_complex(t)) {
        refuse(c);
        return;
    }
    const char *w = op_row_of(c)->word;
    int64_t from = w[0] == 'f' ? op_int(c, 1) : 0, top = greatest(t);
    bool bounded = w[0] == 't' || (w[0] == 'f' && op_has(c, 2));
    if (bounded) {
        int64_t to = op_int(c, w[0] == 't' ? 1 : 2);
        if (from >= to) {
            op_fail(c, TPU_INVALID, "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld", (long long)from,
                    (long long)to);
            return;
        }
        if (from < least(t) || to - 1 > top) {
            op_fail(c, TPU_INVALID, "%s is out of bounds for %s", from < least(t) ? "from" : "to - 1", dtype_torch_name(t));
            return;
        }
        top = to - 1;
    }
    hlo x = rng_below(c, hlo_type(f, op_in(c, 0)), (uint64_t)top - (uint64_t)from + 1);
    if (from) x = plus(f, x, hlo_like_i(f, x, from));
    give(c, x);
}

static hlo permutation(op_ctx *c, int64_t n)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = type_make(TPU_I64, 1, &n);
    /* 64-bit keys: equal ones, which would keep their order, do not happen */
    hlo pair[2] = {rng_bits64(c, t), hlo_iota(f, type_as(t, n < INT32_MAX ? TPU_I32 : TPU_I64), 0)};
    if (n > 1) hlo_sort(f, pair, 2, 0, false, pair);
    return pair[1];
}

/* randperm(n, dtype), randperm.generator(n, generator, dtype) */
static void randperm(op_ctx *c)
{
    if (op_int(c, 0) < 0) op_fail(c, TPU_INVALID, "n must be non-negative, got %lld", (long long)op_int(c, 0));
    else op_out_as(c, permutation(c, op_int(c, 0)), op_dtype(c, op_row_of(c)->word ? 2 : 1, TPU_I64));
}

/* ---- coins ---- */
/* bernoulli(self), bernoulli.p(self, p), bernoulli.Tensor(self, p), bernoulli_.float */
static void bernoulli(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo self = op_in(c, 0);
    bool own = op_row_of(c)->word != NULL;
    hlo given = own ? self : op_in(c, 1);
    tpu_dtype m = hlo_ok(given) && hlo_dtype(f, given) == TPU_F64 ? TPU_F64 : TPU_F32;
    tpu_type t = type_as(hlo_type(f, self), m);
    hlo p = own ? hlo_convert(f, self, m) : op_in_as(c, 1, m);
    give(c, hlo_compare(f, "LT", rng_uniform(c, t), hlo_broadcast_to(f, p, t)));
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
    tpu_dtype m = dtype_real((tpu_dtype)t.dtype);
    hlo p = op_scalar(c, 1, m), q = k_minus(f, 1, p);
    hlo scale = hlo_select(f, compare_k(f, "EQ", q, 0), hlo_like_f(f, q, 0), k_over(f, 1, q));
    hlo keep = rng_keep(c, t, p);
    hlo_barrier(f, &keep, 1, &keep);                    /* else each of the two results computes the numbers anew */
    tpu_type r = type_as(t, m);
    hlo factor = hlo_select(f, keep, hlo_broadcast_to(f, scale, r), hlo_zeros(f, r));
    op_out_as(c, times(f, x, hlo_convert(f, factor, (tpu_dtype)t.dtype)), hlo_dtype(f, in));
    op_out(c, keep);
}

/* native_dropout_backward(grad, mask, scale) */
static void dropout_backward(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    tpu_dtype t = op_to_float(arg_dtype(c, 0));
    hlo g = hlo_convert(f, op_in(c, 0), dtype_compute(t));
    hlo factor = times(f, hlo_convert(f, op_in(c, 1), hlo_dtype(f, g)), number_like(c, 2, g));
    op_out_as(c, times(f, g, factor), t);
}

/* ---- laws that are a function of one uniform or exponential number ---- */
/* exponential_(self, lambd) */
static void exponential_law(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo e = rng_exponential(c, drawn(f, op_in(c, 0)));
    give(c, over(f, e, number_like(c, 1, e)));
}

/* geometric_(self, p): 1, 2, ... */
static void geometric(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo e = rng_exponential(c, drawn(f, op_in(c, 0)));
    hlo rate = negate(f, hlo_op1(f, "log_plus_one", negate(f, op_scalar(c, 1, hlo_dtype(f, e)))));
    hlo k = hlo_op1(f, "ceil", over(f, e, hlo_broadcast_to(f, rate, hlo_type(f, e))));
    give(c, hlo_max(f, k, hlo_like_f(f, k, 1)));
}

/* cauchy_(self, median, sigma) */
static void cauchy(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo u = rng_uniform(c, drawn(f, op_in(c, 0)));
    hlo x = hlo_op1(f, "tan", times_k(f, plus_k(f, u, -0.5), 3.14159265358979323846));
    tpu_dtype m = hlo_dtype(f, u);
    give(c, located(f, x, op_scalar(c, 1, m), op_scalar(c, 2, m)));
}

/* ---- multinomial(self, num_samples, replacement) ---- */
/* Each sample is the first place where the running sum passes a uniform number: categories of weight 0 are never met. */
static hlo by_running_sum(op_ctx *c, hlo p, int64_t k)
{
    hlo_fn *f = op_fn(c);
    int64_t rows = hlo_dim(f, p, 0), n = hlo_dim(f, p, 1);
    hlo sum = hlo_cumulative(f, "add", p, 1, false);
    hlo total = hlo_slice_dim(f, sum, 1, n - 1, n, 1);
    sum = over(f, sum, hlo_broadcast_to(f, total, hlo_type(f, sum)));
    tpu_type t = type_make(hlo_dtype(f, p), 3, (int64_t[]){rows, k, n});
    hlo u = rng_uniform(c, type_make(hlo_dtype(f, p), 2, (int64_t[]){rows, k}));
    hlo passed = hlo_compare(f, "LE", hlo_broadcast_in_dim(f, sum, t, (int64_t[]){0, 2}),
                             hlo_broadcast_in_dim(f, u, t, (int64_t[]){0, 1}));
    hlo at = hlo_reduce(f, "add", hlo_convert(f, passed, TPU_I32), 1u << 2);
    return hlo_min(f, at, hlo_like_i(f, at, n - 1));
}

/* The k greatest weights over exponential numbers are k draws without replacement. */
static hlo by_race(op_ctx *c, hlo p, int64_t k)
{
    hlo_fn *f = op_fn(c);
    hlo score = over(f, p, rng_exponential(c, hlo_type(f, p)));
    if (k == 1) return hlo_unsqueeze(f, hlo_argmax(f, score, 1, false), 1);
    hlo pair[2] = {score, hlo_iota(f, type_as(hlo_type(f, p), TPU_I32), 1)};
    hlo_sort(f, pair, 2, 1, true, pair);
    return hlo_slice_dim(f, pair[1], 1, 0, k, 1);
}

static void multinomial(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo p = op_in_math(c, 0);
    int rank = hlo_rank(f, p);
    bool again = op_bool(c, 2);
    int64_t k = op_int(c, 1), n = hlo_dim(f, p, -1), rows = rank == 2 ? hlo_dim(f, p, 0) : 1;
    if (!dtype_is_float(hlo_dtype(f, p)))
        op_fail(c, TPU_INVALID, "multinomial only supports floating-point dtypes for input, got: %s", dtype_torch_name(arg_dtype(c, 0)));
    if (rank < 1 || rank > 2) op_fail(c, TPU_INVALID, "prob_dist must be 1 or 2 dim");
    if (k <= 0) op_fail(c, TPU_INVALID, "cannot sample n_sample <= 0 samples");
    if (!again && k > n) op_fail(c, TPU_INVALID, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    if (hlo_failed(f)) return;
    p = hlo_reshape(f, p, 2, (int64_t[]){rows, n});
    hlo wrong = either(f, compare_k(f, "LT", p, 0), hlo_op1(f, "not", hlo_op1(f, "is_finite", p)));
    op_guard(c, wrong, "!probability tensor contains either `inf`, `nan` or element < 0");
    op_guard(c, compare_k(f, "LE", hlo_reduce(f, "maximum", p, 2), 0), "!invalid multinomial distribution (sum of probabilities <= 0)");
    hlo at = again && k > 1 ? by_running_sum(c, p, k) : by_race(c, p, k);
    op_out_as(c, hlo_reshape(f, at, rank, rank == 2 ? (int64_t[]){rows, k} : (int64_t[]){k}), TPU_I64);
}

/* clang-format off */
#define DRAW(name, lower, word) { name, lower, word, OP_RANDOM }
const op_row ops_random[] = {
    DRAW("normal_",               normal,          NULL),
    DRAW("normal_functional",     normal,          NULL),
    DRAW("normal.Tensor_float",   normal_of,       "mean"),
    DRAW("normal.float_Tensor",   normal_of,       "std"),
    DRAW("normal.Tensor_Tensor",  normal_of,       "mean"),
    DRAW("log_normal_",           log_normal,      NULL),
    DRAW("log_normal",            log_normal,      NULL),
    DRAW("uniform_",              uniform,         NULL),
    DRAW("uniform",               uniform,         NULL),
    DRAW("random_",               random_int,      "all"),
    DRAW("random",                random_int,      "all"),
    DRAW("random_.to",            random_int,      "to"),
    DRAW("random.to",             random_int,      "to"),
    DRAW("random_.from",          random_int,      "from"),
    DRAW("random.from",           random_int,      "from"),
    DRAW("randperm",              randperm,        NULL),
    DRAW("randperm.generator",    randperm,        "generator"),
    DRAW("bernoulli_.float",      bernoulli,       NULL),
    DRAW("bernoulli_.Tensor",     bernoulli,       NULL),
    DRAW("bernoulli.Tensor",      bernoulli,       NULL),
    DRAW("bernoulli.p",           bernoulli,       NULL),
    DRAW("bernoulli",             bernoulli,       "own"),
    DRAW("native_dropout",        dropout,         NULL),
    DRAW("exponential_",          exponential_law, NULL),
    DRAW("exponential",           exponential_law, NULL),
    DRAW("geometric_",            geometric,       NULL),
    DRAW("geometric",             geometric,       NULL),
    DRAW("cauchy_",               cauchy,          NULL),
    DRAW("cauchy",                cauchy,          NULL),
    DRAW("multinomial",           multinomial,     NULL),
    { "native_dropout_backward",  dropout_backward },
    { NULL },
};
/* clang-format on */
