/* attention.c - scaled dot product attention without a buffer of queries by keys: blocks of queries against blocks of
 * keys, with running maxima and sums, and the blocks made again on the way back. Queries are [n, g, tq, d] and keys [n,
 * tk, d]: n samples and heads of keys, g heads of queries that share one of keys. What dropout keeps depends on an
 * element's place in [batch, head, query, key] alone, as in the unfused form [R1]. SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>

#include "arith.h"
#include "rng.h"

typedef struct attention {
    op_ctx *c;
    hlo_fn *f;
    int64_t batch, heads, n, g, tq, tk, d, dv, bq, bk, nq, nk; /* bq, bk: rows of a block; nq, nk: how many blocks */
    bool causal;
    double drop;
    tpu_dtype type, work;           /* of the sums, of what products multiply */
    hlo q, k, v, bias, scale;       /* padded to whole blocks; bias [b, h, tq or 1, tk or 1] or HLO_NONE */
    hlo seed, offset;               /* int64 scalars */
} attention;

/* ---- reading ---- */
static bool fits(op_ctx *c, tpu_type q, tpu_type k, tpu_type v)
{
    if (!dtype_is_float((tpu_dtype)q.dtype) || q.dtype != k.dtype || q.dtype != v.dtype) refuse(c);
    else if (q.rank != 4 || k.rank != 4 || v.rank != 4)
        op_fail(c, TPU_INVALID, "scaled_dot_product_attention: expected 4 dims, got %d, %d and %d", q.rank, k.rank,
                v.rank);
    else if (q.dim[0] != k.dim[0] || q.dim[0] != v.dim[0] || k.dim[1] != v.dim[1] || k.dim[1] < 1 ||
             q.dim[1] % k.dim[1] || q.dim[3] != k.dim[3] || k.dim[2] != v.dim[2])
        op_fail(c, TPU_INVALID, "scaled_dot_product_attention: query, key and value do not fit each other");
    else if (!type_count(&q) || !type_count(&k) || !type_count(&v)) refuse(c);
    return !hlo_failed(op_fn(c));
}

/* Blocks are small enough that one tile of scores for all heads stays under 64 MB. */
static void choose_blocks(attention *a)
{
    int64_t b = 512, heads = a->n * a->g;
    while (b > 64 && heads * b * b * 4 > (64 << 20)) b /= 2;
    a->bq = a->tq < b ? a->tq : b;
    a->bk = a->tk < b ? a->tk : b;
    a->nq = (a->tq + a->bq - 1) / a->bq;
    a->nk = (a->tk + a->bk - 1) / a->bk;
}

/* x with dim d padded to n elements of value v */
static hlo filled(hlo_fn *f, hlo x, int d, int64_t n, double v)
{
    int64_t lo[TYPE_MAX_RANK] = {0}, hi[TYPE_MAX_RANK] = {0};
    hi[d] = n - hlo_dim(f, x, d);
    return hlo_pad(f, x, hlo_const_f(f, type_scalar(hlo_dtype(f, x)), v), lo, hi, NULL);
}

/* [batch, heads, t, d] of queries to [n, g, whole blocks, d] */
static hlo rows_of(const attention *a, hlo x)
{
    hlo_fn *f = a->f;
    x = hlo_reshape(f, x, 4, (int64_t[]){a->n, a->g, a->tq, hlo_dim(f, x, 3)});
    return filled(f, x, 2, a->nq * a->bq, 0);
}

static hlo keys_of(const attention *a, hlo x)
{
    hlo_fn *f = a->f;
    x = hlo_reshape(f, x, 3, (int64_t[]){a->n, a->tk, hlo_dim(f, x, 3)});
    return filled(f, x, 1, a->nk * a->bk, 0);
}

/* The bias with 4 dims, each whole or 1. */
static bool read_bias(attention *a, int arg)
{
    hlo_fn *f = a->f;
    a->bias = HLO_NONE;
    if (!op_has(a->c, arg)) return true;
    hlo x = op_in(a->c, arg);
    int64_t want[4] = {a->batch, a->heads, a->tq, a->tk};
    if (hlo_dtype(f, x) == TPU_BOOL)
        x = hlo_select(f, x, hlo_zeros(f, type_as(hlo_type(f, x), a->type)),
                       hlo_const_f(f, type_as(hlo_type(f, x), a->type), -INFINITY));
    while (hlo_rank(f, x) < 4) x = hlo_unsqueeze(f, x, 0);
    for (int d = 0; d < 4; d++)
        if (hlo_rank(f, x) != 4 || (hlo_dim(f, x, d) != want[d] && hlo_dim(f, x, d) != 1)) {
            op_fail(a->c, TPU_INVALID, "scaled_dot_product_attention: the mask does not fit the scores");
            return false;
        }
    if (hlo_dim(f, x, 2) > 1) x = filled(f, x, 2, a->nq * a->bq, 0);
    if (hlo_dim(f, x, 3) > 1) x = filled(f, x, 3, a->nk * a->bk, 0);
    a->bias = x;
    return true;
}

/* query, key, value, attn_bias from argument `first` on */
static bool read_attention(op_ctx *c, int first, int causal, int drop, int scale, attention *a)
{
    hlo_fn *f = op_fn(c);
    hlo q = op_in(c, first), k = op_in(c, first + 1), v = op_in(c, first + 2);
    tpu_type t = hlo_type(f, q);
    if (!fits(c, t, hlo_type(f, k), hlo_type(f, v))) return false;
    *a = (attention){.c = c, .f = f, .batch = t.dim[0], .heads = t.dim[1], .tq = t.dim[2], .d = t.dim[3]};
    a->n = t.dim[0] * hlo_dim(f, k, 1);
    a->g = t.dim[1] / hlo_dim(f, k, 1);
    a->tk = hlo_dim(f, k, 2);
    a->dv = hlo_dim(f, v, 3);
    a->causal = op_bool(c, causal);
    a->drop = op_number(c, drop);
    a->type = dtype_compute((tpu_dtype)t.dtype);
    a->work = hlo_target_of(f) == HLO_TPU ? (tpu_dtype)t.dtype : a->type;
    a->scale =
        op_has(c, scale) ? op_scalar(c, scale, a->type) : hlo_const_f(f, type_scalar(a->type), 1 / sqrt((double)a->d));
    choose_blocks(a);
    a->q = rows_of(a, hlo_convert(f, q, a->work));
    a->k = keys_of(a, hlo_convert(f, k, a->work));
    a->v = keys_of(a, hlo_convert(f, v, a->work));
    return read_bias(a, first + 3);
}

/* ---- blocks ---- */
static hlo number(hlo_fn *f, int64_t v) { return hlo_const_i(f, type_scalar(TPU_I32), v); }

/* `size` elements of x's dim d, from block i on; and putting them there. */
static hlo block(hlo_fn *f, hlo x, int d, hlo i, int64_t size)
{
    tpu_type t = hlo_type(f, x);
    hlo at[TYPE_MAX_RANK];
    for (int k = 0; k < t.rank; k++) at[k] = k == d ? times_k(f, i, (double)size) : number(f, 0);
    t.dim[d] = size;
    return hlo_dynamic_slice(f, x, at, t.dim);
}

static hlo with_block(hlo_fn *f, hlo x, int d, hlo i, hlo v)
{
    hlo at[TYPE_MAX_RANK];
    for (int k = 0; k < hlo_rank(f, x); k++) at[k] = k == d ? times_k(f, i, (double)hlo_dim(f, v, d)) : number(f, 0);
    return hlo_dynamic_update_slice(f, x, v, at);
}

/* The type of a tile of scores: [n, g, bq, bk]. */
static tpu_type tile(const attention *a, tpu_dtype t) { return type_make(t, 4, (int64_t[]){a->n, a->g, a->bq, a->bk}); }
static hlo over_rows(hlo_fn *f, hlo v, tpu_type t) { return hlo_broadcast_in_dim(f, v, t, (int64_t[]){0, 1, 2}); }

/* Numbers of the queries (dim 2) or keys (dim 3) of a tile whose block has number i. */
static hlo places(const attention *a, hlo i, int dim)
{
    hlo_fn *f = a->f;
    tpu_type t = tile(a, TPU_I32);
    return plus(f, hlo_iota(f, t, dim), hlo_broadcast_to(f, times_k(f, i, (double)(dim == 2 ? a->bq : a->bk)), t));
}

/* [n, g, bq, x] by [n, bk, x]: a tile */
static hlo tile_of(const attention *a, hlo rows, hlo keys)
{ return hlo_dot(a->f, rows, keys, 1, (int64_t[]){0}, (int64_t[]){0}, 1, (int64_t[]){3}, (int64_t[]){2}, a->type); }

/* A tile by [n, bk, x]: [n, g, bq, x] */
static hlo rows_from(const attention *a, hlo t, hlo keys)
{
    return hlo_dot(a->f, hlo_convert(a->f, t, a->work), keys, 1, (int64_t[]){0}, (int64_t[]){0}, 1, (int64_t[]){3},
                   (int64_t[]){1}, a->type);
}

/* A tile by [n, g, bq, x]: [n, bk, x] */
static hlo keys_from(const attention *a, hlo t, hlo rows)
{
    return hlo_dot(a->f, hlo_convert(a->f, t, a->work), rows, 1, (int64_t[]){0}, (int64_t[]){0}, 2, (int64_t[]){1, 2},
                   (int64_t[]){1, 2}, a->type);
}

/* The scores of a block of queries with a block of keys; -inf where the key may not be seen. */
static hlo scores(const attention *a, hlo q, hlo k, hlo qi, hlo kj)
{
    hlo_fn *f = a->f;
    tpu_type t = tile(a, a->type);
    hlo s = tile_of(a, q, k), key = places(a, kj, 3);
    s = times(f, s, hlo_broadcast_to(f, a->scale, t));
    if (hlo_ok(a->bias)) {
        hlo b = a->bias;
        if (hlo_dim(f, b, 2) > 1) b = block(f, b, 2, qi, a->bq);
        if (hlo_dim(f, b, 3) > 1) b = block(f, b, 3, kj, a->bk);
        b = hlo_broadcast_to(f, b, type_make(hlo_dtype(f, b), 4, (int64_t[]){a->batch, a->heads, a->bq, a->bk}));
        s = plus(f, s, hlo_convert(f, hlo_reshape(f, b, 4, t.dim), a->type));
    }
    hlo seen = compare_k(f, "LT", key, (double)a->tk);
    if (a->causal) seen = both(f, seen, hlo_compare(f, "LE", key, places(a, qi, 2)));
    return hlo_select(f, seen, s, hlo_const_f(f, t, -INFINITY));
}

/* What dropout makes of a tile: elements kept are scaled up, the others 0. */
static hlo dropped(const attention *a, hlo x, hlo qi, hlo kj)
{
    hlo_fn *f = a->f;
    if (a->drop == 0) return x;
    tpu_type t = tile(a, TPU_I64);
    hlo head = plus(f, times_k(f, hlo_iota(f, t, 0), (double)a->g), hlo_iota(f, t, 1));
    hlo row = plus(f, times_k(f, head, (double)a->tq), hlo_convert(f, places(a, qi, 2), TPU_I64));
    hlo at = plus(f, times_k(f, row, (double)a->tk), hlo_convert(f, places(a, kj, 3), TPU_I64));
    rng_draw d = rng_at(f, a->seed, plus(f, at, hlo_broadcast_to(f, a->offset, t)));
    hlo w[4];
    rng_words(f, &d, HLO_NONE, w);
    tpu_dtype unit = a->type == TPU_F64 ? TPU_F64 : TPU_F32;
    hlo keep = compare_k(f, "GE", rng_unit(f, w, unit), unit == TPU_F64 ? a->drop : (double)(float)a->drop);
    double up = a->drop < 1 ? 1 / (1 - a->drop) : 0;
    return hlo_select(f, keep, times_k(f, x, up), hlo_like_f(f, x, 0));
}

static hlo sums(hlo_fn *f, hlo t) { return hlo_reduce(f, "add", t, 8); }

/* Blocks of keys that block qi of queries sees end here; blocks of queries that see block kj of keys begin here. */
static hlo key_end(const attention *a, hlo qi)
{
    hlo_fn *f = a->f;
    if (!a->causal) return number(f, a->nk);
    hlo last = plus_k(f, times_k(f, qi, (double)a->bq), (double)(a->bq - 1));
    return hlo_op2(f, "minimum", number(f, a->nk), plus_k(f, over_k(f, last, (double)a->bk), 1));
}

static hlo query_begin(const attention *a, hlo kj)
{
    hlo_fn *f = a->f;
    if (!a->causal) return number(f, 0);
    return over_k(f, times_k(f, kj, (double)a->bk), (double)a->bq);
}

/* ---- forward ---- */
enum { AT, TOP, SUM, OUT };                             /* loop values: block, running maximum, sum and output */

/* One block of queries against all blocks of keys. */
static void one_block(const attention *a, hlo qi, hlo *out, hlo *lse)
{
    hlo_fn *f = a->f;
    tpu_type row = type_make(a->type, 3, (int64_t[]){a->n, a->g, a->bq}),
             wide = type_make(a->type, 4, (int64_t[]){a->n, a->g, a->bq, a->dv});
    tpu_type t = tile(a, a->type);
    hlo low = hlo_const_f(f, row, -INFINITY), zero = hlo_zeros(f, row), v[4], x[4];
    hlo q = block(f, a->q, 2, qi, a->bq), end = key_end(a, qi);
    v[AT] = number(f, 0);
    v[TOP] = low;
    v[SUM] = zero;
    v[OUT] = hlo_zeros(f, wide);
    hlo_while_begin(f, v, 4, x);
    hlo_while_body(f, hlo_compare(f, "LT", x[AT], end), x);
    hlo s = scores(a, q, block(f, a->k, 1, x[AT], a->bk), qi, x[AT]);
    v[TOP] = hlo_max(f, x[TOP], hlo_reduce(f, "maximum", s, 8));
    hlo base = hlo_select(f, hlo_compare(f, "EQ", v[TOP], low), zero, v[TOP]); /* nothing seen yet */
    hlo p = exponential(f, minus(f, s, over_rows(f, base, t))), shrink = exponential(f, minus(f, x[TOP], base));
    v[SUM] = plus(f, times(f, x[SUM], shrink), sums(f, p));
    hlo part = rows_from(a, dropped(a, p, qi, x[AT]), block(f, a->v, 1, x[AT], a->bk));
    v[OUT] = plus(f, times(f, x[OUT], over_rows(f, shrink, wide)), part);
    v[AT] = plus_k(f, x[AT], 1);
    hlo_while_end(f, v, v);
    hlo none = hlo_compare(f, "EQ", v[TOP], low);       /* a query that sees no key gets zeros */
    *out = over(f, v[OUT], over_rows(f, hlo_select(f, none, hlo_like_f(f, zero, 1), v[SUM]), wide));
    *lse = plus(f, v[TOP], logarithm(f, hlo_select(f, none, hlo_like_f(f, zero, 1), v[SUM])));
}

/* _scaled_dot_product_fused_attention_overrideable(query, key, value, attn_bias, dropout_p, is_causal,
 * return_debug_mask, scale) -> (output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, philox_seed, philox_offset,
 * debug_attn_mask) */
static void attend(op_ctx *c)
{
    attention a;
    if (!read_attention(c, 0, 5, 4, 7, &a)) return;
    hlo_fn *f = a.f;
    hlo v[3], x[3];
    if (a.drop > 0) op_seed(c, a.batch * a.heads * a.tq * a.tk, &a.seed, &a.offset);
    else a.seed = a.offset = hlo_zeros(f, type_scalar(TPU_I64));
    v[0] = number(f, 0);
    v[1] = hlo_zeros(f, type_make(a.type, 4, (int64_t[]){a.n, a.g, a.nq * a.bq, a.dv}));
    v[2] = hlo_zeros(f, type_make(a.type, 3, (int64_t[]){a.n, a.g, a.nq * a.bq}));
    hlo_while_begin(f, v, 3, x);
    hlo_while_body(f, compare_k(f, "LT", x[0], (double)a.nq), x);
    hlo out, lse;
    one_block(&a, x[0], &out, &lse);
    v[1] = with_block(f, x[1], 2, x[0], out);
    v[2] = with_block(f, x[2], 2, x[0], lse);
    v[0] = plus_k(f, x[0], 1);
    hlo_while_end(f, v, v);
    out = hlo_reshape(f, hlo_slice_dim(f, v[1], 2, 0, a.tq, 1), 4, (int64_t[]){a.batch, a.heads, a.tq, a.dv});
    op_out_as(c, out, arg_dtype(c, 0));
    op_out(c, hlo_reshape(f, hlo_slice_dim(f, v[2], 2, 0, a.tq, 1), 3, (int64_t[]){a.batch, a.heads, a.tq}));
    op_out_none(c);
    op_out_none(c);
    op_out(c, a.seed);
    op_out(c, a.offset);
    op_out_none(c);
}

/* ---- backward ---- */
typedef struct back {
    hlo g, lse, delta;
} back;        /* by rows: the output's gradient, and its product with the output */

/* One block of keys against all blocks of queries; *dq grows. */
static void one_block_back(const attention *a, const back *b, hlo kj, hlo *dq, hlo *dk, hlo *dv)
{
    hlo_fn *f = a->f;
    tpu_type t = tile(a, a->type);
    hlo k = block(f, a->k, 1, kj, a->bk), val = block(f, a->v, 1, kj, a->bk), v[4], x[4];
    v[0] = query_begin(a, kj);
    v[1] = *dq;
    v[2] = hlo_zeros(f, type_make(a->type, 3, (int64_t[]){a->n, a->bk, a->d}));
    v[3] = hlo_zeros(f, type_make(a->type, 3, (int64_t[]){a->n, a->bk, a->dv}));
    hlo_while_begin(f, v, 4, x);
    hlo_while_body(f, compare_k(f, "LT", x[0], (double)a->nq), x);
    hlo q = block(f, a->q, 2, x[0], a->bq), g = block(f, b->g, 2, x[0], a->bq);
    hlo p = exponential(f, minus(f, scores(a, q, k, x[0], kj), over_rows(f, block(f, b->lse, 2, x[0], a->bq), t)));
    hlo dp = dropped(a, tile_of(a, g, val), x[0], kj);
    hlo ds = times(f, p, minus(f, dp, over_rows(f, block(f, b->delta, 2, x[0], a->bq), t)));
    ds = times(f, ds, hlo_broadcast_to(f, a->scale, t));
    v[3] = plus(f, x[3], keys_from(a, dropped(a, p, x[0], kj), g));
    v[2] = plus(f, x[2], keys_from(a, ds, q));
    v[1] = with_block(f, x[1], 2, x[0], plus(f, block(f, x[1], 2, x[0], a->bq), rows_from(a, ds, k)));
    v[0] = plus_k(f, x[0], 1);
    hlo_while_end(f, v, v);
    *dq = v[1];
    *dk = v[2];
    *dv = v[3];
}

static back read_back(op_ctx *c, const attention *a)
{
    hlo_fn *f = a->f;
    hlo g = hlo_convert(f, op_in(c, 0), a->type), out = hlo_convert(f, op_in(c, 6), a->type), lse = op_in(c, 7);
    int64_t rows[3] = {a->n, a->g, a->tq}, whole = a->nq * a->bq;
    back b;
    b.delta = filled(f, hlo_reshape(f, sums(f, times(f, g, out)), 3, rows), 2, whole, 0);
    lse = hlo_select(f, compare_k(f, "EQ", lse, -INFINITY), hlo_like_f(f, lse, INFINITY),
                     lse); /* such rows saw nothing */
    b.lse = filled(f, hlo_reshape(f, lse, 3, rows), 2, whole, INFINITY);
    b.g = rows_of(a, hlo_convert(f, g, a->work));
    return b;
}

/* (grad, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
 * is_causal, philox_seed, philox_offset, scale) -> (grad_query, grad_key, grad_value, grad_attn_bias) */
static void attend_backward(op_ctx *c)
{
    attention a;
    int n;
    const int64_t *want = op_ints(c, 5, &n);
    if (n == 4 && want[3] && op_has(c, 4)) {
        op_fail(c, TPU_INVALID, "fused attention has no gradient of the mask; use sdpa_kernel(SDPBackend.MATH)");
        return;
    }
    if (!read_attention(c, 1, 13, 12, 16, &a)) return;
    hlo_fn *f = a.f;
    if (a.drop > 0) {
        a.seed = op_in(c, 14);
        a.offset = op_in(c, 15);
    }
    back b = read_back(c, &a);
    hlo v[4], x[4], dk, dv;
    v[0] = number(f, 0);
    v[1] = hlo_zeros(f, type_as(hlo_type(f, a.q), a.type));
    v[2] = hlo_zeros(f, type_as(hlo_type(f, a.k), a.type));
    v[3] = hlo_zeros(f, type_as(hlo_type(f, a.v), a.type));
    hlo_while_begin(f, v, 4, x);
    hlo_while_body(f, compare_k(f, "LT", x[0], (double)a.nk), x);
    v[1] = x[1];
    one_block_back(&a, &b, x[0], &v[1], &dk, &dv);
    v[2] = with_block(f, x[2], 1, x[0], dk);
    v[3] = with_block(f, x[3], 1, x[0], dv);
    v[0] = plus_k(f, x[0], 1);
    hlo_while_end(f, v, v);
    for (int i = 0; i < 3; i++) {
        tpu_type t = hlo_type(f, op_in(c, 1 + i));
        int d = i ? 1 : 2;
        op_out_as(c, hlo_reshape(f, hlo_slice_dim(f, v[1 + i], d, 0, t.dim[2], 1), 4, t.dim), (tpu_dtype)t.dtype);
    }
    op_out_none(c);
}

/* clang-format off */
#define FUSED "_scaled_dot_product_fused_attention_overrideable"
const op_row ops_attention[] = {
    { FUSED,             attend,          .flags = OP_RANDOM | OP_COMPOSITE, .fixed = 1u << 4 },
    { FUSED "_backward", attend_backward, .flags = OP_COMPOSITE, .fixed = 1u << 12 },
    { NULL },
};
/* clang-format on */
