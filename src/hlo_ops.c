/* hlo_ops.c - elementwise ops, conversions and shape ops.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "hlo_internal.h"

/* Two operands must agree in shape; says so otherwise. */
static bool same_shape(hlo_fn *f, const char *op, hlo x, hlo y)
{
    const tpu_type *a = hlo_type_at(f, x), *b = hlo_type_at(f, y);
    if (a == b || type_same_shape(a, b)) return true;
    text ta = {0}, tb = {0};
    type_words(a, &ta);
    type_words(b, &tb);
    hlo_fail(f, TPU_PRECONDITION, "%s: operands differ in shape: %s and %s", op, ta.at ? ta.at : "?", tb.at ? tb.at : "?");
    text_free(&ta);
    text_free(&tb);
    return false;
}

static bool same_type(hlo_fn *f, const char *op, hlo x, hlo y)
{
    const tpu_type *a = hlo_type_at(f, x), *b = hlo_type_at(f, y);
    if (a == b) return true;
    if (a->dtype != b->dtype) {
        hlo_fail(f, TPU_PRECONDITION, "%s: operands differ in dtype: %s and %s", op, dtype_torch_name((tpu_dtype)a->dtype),
                 dtype_torch_name((tpu_dtype)b->dtype));
        return false;
    }
    return same_shape(f, op, x, y);
}

/* x's type with the bounded dims of y too. */
static const tpu_type *joined(hlo_fn *f, const tpu_type *a, const tpu_type *b)
{
    if (a->bounded == b->bounded) return a;
    tpu_type t = *a;
    t.bounded |= b->bounded;
    return hlo_intern(f, &t);
}

/* ---- elementwise ---- */

hlo hlo_op1(hlo_fn *f, const char *op, hlo x)
{
    if (!hlo_usable(f, op, &x, 1)) return HLO_NONE;
    const tpu_type *t = hlo_type_at(f, x), *r = t;
    bool complex = dtype_is_complex((tpu_dtype)t->dtype);
    tpu_type changed = *t;
    bool without_sign = dtype_is_unsigned((tpu_dtype)t->dtype) || t->dtype == TPU_BOOL;
    if (without_sign && !strcmp(op, "abs")) return x; /* StableHLO has these for signed numbers only */
    if (without_sign && !strcmp(op, "sign"))
        return hlo_convert(f, hlo_convert(f, x, TPU_BOOL), (tpu_dtype)t->dtype);
    if (complex && (!strcmp(op, "abs") || !strcmp(op, "real") || !strcmp(op, "imag")))
        changed.dtype = (uint8_t)dtype_real((tpu_dtype)t->dtype);
    else if (!strcmp(op, "is_finite") || !strncmp(op, "chlo.is_", 8))
        changed.dtype = TPU_BOOL;
    if (changed.dtype != t->dtype) r = hlo_intern(f, &changed);
    hlo_mid(f);
    return hlo_emit(f, r == t && !strchr(op, '.') ? NODE_SAME : NODE_GENERIC, op, &x, 1, r);
}

hlo hlo_op2(hlo_fn *f, const char *op, hlo x, hlo y)
{
    hlo in[2] = {x, y};
    if (!hlo_usable(f, op, in, 2) || !same_type(f, op, x, y)) return HLO_NONE;
    const tpu_type *t = joined(f, hlo_type_at(f, x), hlo_type_at(f, y));
    hlo_mid(f);
    if (!t || strcmp(op, "complex") != 0) return hlo_emit(f, strchr(op, '.') ? NODE_GENERIC : NODE_SAME, op, in, 2, t);
    tpu_type c = type_as(*t, dtype_complex((tpu_dtype)t->dtype));
    if (t->dtype != TPU_F32 && t->dtype != TPU_F64) {
        hlo_fail(f, TPU_PRECONDITION, "complex: expected Float or Double, got %s", dtype_torch_name((tpu_dtype)t->dtype));
        return HLO_NONE;
    }
    return hlo_emit_type(f, op, in, 2, &c);
}

hlo hlo_compare(hlo_fn *f, const char *dir, hlo x, hlo y)
{
    hlo in[2] = {x, y};
    if (!hlo_usable(f, "compare", in, 2) || !same_type(f, "compare", x, y)) return HLO_NONE;
    const tpu_type *t = joined(f, hlo_type_at(f, x), hlo_type_at(f, y));
    if (!t) return HLO_NONE;
    tpu_dtype d = (tpu_dtype)t->dtype;
    const char *kind = dtype_is_signed_int(d) ? "SIGNED" : dtype_is_integral(d) ? "UNSIGNED" : "FLOAT";
    text *m = hlo_mid(f);
    text_puts(m, "{comparison_direction = #stablehlo<comparison_direction ");
    text_puts(m, dir);
    text_puts(m, ">, compare_type = #stablehlo<comparison_type ");
    text_puts(m, kind);
    text_puts(m, ">}");
    tpu_type r = type_as(*t, TPU_BOOL);
    return hlo_emit_type(f, "compare", in, 2, &r);
}

hlo hlo_select(hlo_fn *f, hlo pred, hlo x, hlo y)
{
    hlo in[3] = {pred, x, y};
    if (!hlo_usable(f, "select", in, 3) || !same_type(f, "select", x, y)) return HLO_NONE;
    const tpu_type *p = hlo_type_at(f, pred), *t = joined(f, hlo_type_at(f, x), hlo_type_at(f, y));
    if (p->dtype != TPU_BOOL) {
        hlo_fail(f, TPU_PRECONDITION, "select: expected a Bool predicate, got %s", dtype_torch_name((tpu_dtype)p->dtype));
        return HLO_NONE;
    }
    if (!t || (p->rank && !same_shape(f, "select", pred, x))) return HLO_NONE;
    hlo_mid(f);
    return hlo_emit(f, NODE_GENERIC, "select", in, 3, p->rank ? joined(f, t, p) : t);
}

hlo hlo_clamp(hlo_fn *f, hlo lo, hlo x, hlo hi)
{
    hlo in[3] = {lo, x, hi};
    if (!hlo_usable(f, "clamp", in, 3)) return HLO_NONE;
    const tpu_type *t = hlo_type_at(f, x), *l = hlo_type_at(f, lo), *h = hlo_type_at(f, hi);
    if (l->dtype != t->dtype || h->dtype != t->dtype) {
        hlo_fail(f, TPU_PRECONDITION, "clamp: operands differ in dtype");
        return HLO_NONE;
    }
    if ((l->rank && !same_shape(f, "clamp", lo, x)) || (h->rank && !same_shape(f, "clamp", hi, x))) return HLO_NONE;
    hlo_mid(f);
    return hlo_emit(f, NODE_GENERIC, "clamp", in, 3, t);
}

/* ---- conversions ---- */

static hlo convert_plain(hlo_fn *f, hlo x, tpu_dtype t)
{
    if (!hlo_usable(f, "convert", &x, 1)) return HLO_NONE;
    const tpu_type *from = hlo_type_at(f, x);
    if (from->dtype == t) return x;
    tpu_type r = type_as(*from, t);
    hlo_mid(f);
    return hlo_emit_type(f, "convert", &x, 1, &r);
}

/* A number passes through float32 on its way between a narrow float and anything else, as it does in PyTorch: the
 * roundings agree, and no plugin has to know every pair. */
static bool through_f32(tpu_dtype from, tpu_dtype to)
{
    bool narrow_from = dtype_compute(from) == TPU_F32 && from != TPU_F32;
    bool narrow_to = dtype_compute(to) == TPU_F32 && to != TPU_F32;
    if (narrow_to) return from != TPU_F32 && from != TPU_BOOL;
    return narrow_from && to != TPU_F32;
}

/* Float to a narrow integer goes by a wider one, so what does not fit wraps as it does on a CPU. */
static tpu_dtype int_between(tpu_dtype to)
{
    if (to == TPU_U32) return TPU_I64;
    return dtype_is_int(to) && dtype_size(to) < 4 ? TPU_I32 : to;
}

hlo hlo_convert(hlo_fn *f, hlo x, tpu_dtype t)
{
    if (!hlo_usable(f, "convert", &x, 1)) return HLO_NONE;
    tpu_dtype from = hlo_dtype(f, x);
    if (from == t) return x;
    if (t == TPU_NONE || t >= TPU_DTYPE_COUNT) {
        hlo_fail(f, TPU_INTERNAL, "convert: no such dtype");
        return HLO_NONE;
    }
    if (t == TPU_BOOL) return hlo_compare(f, "NE", x, hlo_like_i(f, x, 0)); /* NaN != 0 holds */
    if (dtype_is_complex(from)) {
        if (dtype_is_complex(t)) return convert_plain(f, x, t);
        return hlo_convert(f, hlo_op1(f, "real", x), t);
    }
    if (dtype_is_complex(t)) {
        hlo re = hlo_convert(f, x, dtype_real(t));
        return hlo_op2(f, "complex", re, hlo_like_i(f, re, 0));
    }
    if (through_f32(from, t)) return hlo_convert(f, convert_plain(f, x, TPU_F32), t);
    if (dtype_is_float(from)) x = convert_plain(f, x, int_between(t));
    return convert_plain(f, x, t);
}

static hlo bitcast_plain(hlo_fn *f, hlo x, tpu_type r)
{
    if (!hlo_usable(f, "bitcast_convert", &x, 1)) return HLO_NONE;
    if (hlo_dtype(f, x) == (tpu_dtype)r.dtype) return hlo_reshape(f, x, r.rank, r.dim);
    hlo_mid(f);
    return hlo_emit_type(f, "bitcast_convert", &x, 1, &r);
}

/* [..., n] complex -> [..., n, 2] real. */
static hlo complex_parts(hlo_fn *f, hlo x)
{
    int rank = hlo_rank(f, x);
    hlo part[2] = {hlo_unsqueeze(f, hlo_op1(f, "real", x), rank), hlo_unsqueeze(f, hlo_op1(f, "imag", x), rank)};
    return hlo_concat(f, part, 2, rank);
}

/* [..., 2] real -> [...] complex. */
static hlo complex_join(hlo_fn *f, hlo x)
{
    int last = hlo_rank(f, x) - 1;
    hlo re = hlo_squeeze(f, hlo_slice_dim(f, x, last, 0, 1, 1), last);
    return hlo_op2(f, "complex", re, hlo_squeeze(f, hlo_slice_dim(f, x, last, 1, 2, 1), last));
}

/* `lead` with one more dim of n, unless n is 1. */
static tpu_type with_last(tpu_type lead, tpu_dtype d, int64_t n)
{
    lead.dtype = (uint8_t)d;
    if (n != 1 && lead.rank < TYPE_MAX_RANK) lead.dim[lead.rank++] = n;
    return lead;
}

/* Complex numbers and bools have no bits of their own in StableHLO: they go by their parts and by bytes. */
hlo hlo_bitcast(hlo_fn *f, hlo x, tpu_dtype t)
{
    if (!hlo_usable(f, "bitcast", &x, 1)) return HLO_NONE;
    tpu_type lead = hlo_type(f, x);
    tpu_dtype from = (tpu_dtype)lead.dtype;
    if (from == t) return x;
    int64_t ws = (int64_t)dtype_size(from), wt = (int64_t)dtype_size(t), group = ws > wt ? ws : wt;
    if (wt > ws) {
        if (!lead.rank || lead.dim[lead.rank - 1] * ws != wt) {
            hlo_fail(f, TPU_PRECONDITION, "bitcast: the last dim must hold one %s", dtype_torch_name(t));
            return HLO_NONE;
        }
        lead.dim[--lead.rank] = 0;
        lead.bounded &= (uint16_t)~(1u << lead.rank);
    }
    tpu_dtype rs = from == TPU_BOOL ? TPU_U8 : dtype_real(from), rt = t == TPU_BOOL ? TPU_U8 : dtype_real(t);
    x = from == TPU_BOOL ? hlo_convert(f, x, TPU_U8) : dtype_is_complex(from) ? complex_parts(f, x) : x;
    int64_t ns = group / (int64_t)dtype_size(rs), nt = group / (int64_t)dtype_size(rt);
    if (lead.rank + 2 > TYPE_MAX_RANK) {
        hlo_fail(f, TPU_UNIMPLEMENTED, "bitcast: too many dimensions");
        return HLO_NONE;
    }
    /* One element on the wider side, a last dim of elements on the narrower. */
    int64_t common = ns < nt ? ns : nt;
    tpu_type a = with_last(with_last(lead, rs, common), rs, ns / common);
    tpu_type b = with_last(with_last(lead, rt, common), rt, nt / common);
    x = bitcast_plain(f, hlo_reshape(f, x, a.rank, a.dim), b);
    if (t == TPU_BOOL) x = hlo_convert(f, x, TPU_BOOL);
    tpu_type out = with_last(lead, t, group / wt);
    if (!dtype_is_complex(t)) return hlo_reshape(f, x, out.rank, out.dim);
    tpu_type parts = with_last(out, rt, 2);
    return complex_join(f, hlo_reshape(f, x, parts.rank, parts.dim));
}

hlo hlo_reduce_precision(hlo_fn *f, hlo x, int exponent_bits, int mantissa_bits)
{
    if (!hlo_usable(f, "reduce_precision", &x, 1)) return HLO_NONE;
    text *m = hlo_mid(f);
    text_puts(m, "{exponent_bits = ");
    text_int(m, exponent_bits);
    text_puts(m, " : i32, mantissa_bits = ");
    text_int(m, mantissa_bits);
    text_puts(m, " : i32}");
    return hlo_emit(f, NODE_GENERIC, "reduce_precision", &x, 1, hlo_type_at(f, x));
}

/* ---- shape ---- */

hlo hlo_broadcast_in_dim(hlo_fn *f, hlo x, tpu_type t, const int64_t *dims)
{
    if (!hlo_usable(f, "broadcast_in_dim", &x, 1)) return HLO_NONE;
    const tpu_type *from = hlo_type_at(f, x);
    bool same = from->rank == t.rank;
    t.dtype = from->dtype;
    for (int d = 0; d < from->rank; d++) {
        if (dims[d] < 0 || dims[d] >= t.rank || (from->dim[d] != 1 && from->dim[d] != t.dim[dims[d]]) ||
            (d && dims[d] <= dims[d - 1])) {
            hlo_fail(f, TPU_PRECONDITION, "broadcast_in_dim: dim %d does not fit", d);
            return HLO_NONE;
        }
        same = same && dims[d] == d && from->dim[d] == t.dim[d];
        if (from->bounded >> d & 1) t.bounded |= (uint16_t)(1u << dims[d]);
    }
    if (same) return x;
    text *m = hlo_mid(f);
    hlo_array(m, "{broadcast_dimensions", dims, from->rank);
    text_put(m, "}", 1);
    return hlo_emit_type(f, "broadcast_in_dim", &x, 1, &t);
}

hlo hlo_reshape(hlo_fn *f, hlo x, int rank, const int64_t *dims)
{
    if (!hlo_usable(f, "reshape", &x, 1)) return HLO_NONE;
    const tpu_type *from = hlo_type_at(f, x);
    tpu_type t = type_make((tpu_dtype)from->dtype, rank, dims);
    if (t.dtype == TPU_NONE || type_count(&t) != type_count(from)) {
        text a = {0}, b = {0};
        type_words(from, &a);
        type_words(&t, &b);
        hlo_fail(f, TPU_PRECONDITION, "reshape: %s does not fit %s", a.at ? a.at : "?", b.at ? b.at : "?");
        text_free(&a);
        text_free(&b);
        return HLO_NONE;
    }
    if (type_same_shape(&t, from)) return x;
    for (int d = 0; d < rank && d < from->rank && t.dim[d] == from->dim[d]; d++)
        t.bounded |= from->bounded & (uint16_t)(1u << d); /* leading dims that stay */
    const hlo_node *n = &f->nodes[f->values[x.id].node];
    if (n->form == NODE_GENERIC && !strcmp(n->op, "reshape")) { /* only the last of several reshapes counts */
        hlo inner = {n->in[0]};
        const tpu_type *before = hlo_type_at(f, inner);
        if (type_same_shape(before, &t)) return inner;
        if (!before->bounded) x = inner;
    }
    hlo_mid(f);
    return hlo_emit_type(f, "reshape", &x, 1, &t);
}

hlo hlo_transpose(hlo_fn *f, hlo x, const int64_t *perm)
{
    if (!hlo_usable(f, "transpose", &x, 1)) return HLO_NONE;
    const tpu_type *from = hlo_type_at(f, x);
    tpu_type t = type_make((tpu_dtype)from->dtype, from->rank, from->dim);
    bool same = true;
    uint32_t seen = 0;
    for (int d = 0; d < from->rank; d++) {
        if (perm[d] < 0 || perm[d] >= from->rank || (seen >> perm[d] & 1)) {
            hlo_fail(f, TPU_PRECONDITION, "transpose: not a permutation");
            return HLO_NONE;
        }
        seen |= 1u << perm[d];
        t.dim[d] = from->dim[perm[d]];
        if (from->bounded >> perm[d] & 1) t.bounded |= (uint16_t)(1u << d);
        same = same && perm[d] == d;
    }
    if (same) return x;
    text *m = hlo_mid(f);
    hlo_array(m, "{permutation", perm, from->rank);
    text_put(m, "}", 1);
    return hlo_emit_type(f, "transpose", &x, 1, &t);
}

hlo hlo_slice(hlo_fn *f, hlo x, const int64_t *start, const int64_t *limit, const int64_t *step)
{
    if (!hlo_usable(f, "slice", &x, 1)) return HLO_NONE;
    tpu_type t = *hlo_type_at(f, x);
    int64_t ones[TYPE_MAX_RANK];
    bool whole = true;
    for (int d = 0; d < t.rank; d++) {
        int64_t s = step ? step[d] : 1, n = t.dim[d];
        ones[d] = 1;
        if (start[d] < 0 || limit[d] < start[d] || limit[d] > n || s < 1) {
            hlo_fail(f, TPU_OUT_OF_RANGE, "slice: [%lld:%lld:%lld] of dimension %d with %lld elements",
                     (long long)start[d], (long long)limit[d], (long long)s, d, (long long)n);
            return HLO_NONE;
        }
        if (start[d] == 0 && limit[d] == n && s == 1) continue;
        whole = false;
        t.dim[d] = (limit[d] - start[d] + s - 1) / s;
        t.bounded &= (uint16_t)~(1u << d);
    }
    if (whole) return x;
    text *m = hlo_mid(f);
    hlo_array(m, "{limit_indices", limit, t.rank);
    hlo_array(m, ", start_indices", start, t.rank);
    hlo_array(m, ", strides", step ? step : ones, t.rank);
    text_put(m, "}", 1);
    return hlo_emit_type(f, "slice", &x, 1, &t);
}

hlo hlo_pad(hlo_fn *f, hlo x, hlo value, const int64_t *lo, const int64_t *hi, const int64_t *interior)
{
    hlo in[2] = {x, value};
    if (!hlo_usable(f, "pad", in, 2)) return HLO_NONE;
    tpu_type t = *hlo_type_at(f, x), v = *hlo_type_at(f, value);
    if (v.rank != 0 || v.dtype != t.dtype) {
        hlo_fail(f, TPU_PRECONDITION, "pad: the value must be a scalar of the operand's dtype");
        return HLO_NONE;
    }
    int64_t zeros[TYPE_MAX_RANK] = {0};
    bool nothing = true;
    if (!interior) interior = zeros;
    for (int d = 0; d < t.rank; d++) {
        int64_t n = t.dim[d];
        if (lo[d] == 0 && hi[d] == 0 && interior[d] == 0) continue;
        nothing = false;
        t.dim[d] = n + lo[d] + hi[d] + (n > 1 ? (n - 1) * interior[d] : 0);
        t.bounded &= (uint16_t)~(1u << d);
        if (t.dim[d] < 0 || interior[d] < 0) {
            hlo_fail(f, TPU_PRECONDITION, "pad: dimension %d would have %lld elements", d, (long long)t.dim[d]);
            return HLO_NONE;
        }
    }
    if (nothing) return x;
    text *m = hlo_mid(f);
    hlo_array(m, "{edge_padding_high", hi, t.rank);
    hlo_array(m, ", edge_padding_low", lo, t.rank);
    hlo_array(m, ", interior_padding", interior, t.rank);
    text_put(m, "}", 1);
    return hlo_emit_type(f, "pad", in, 2, &t);
}

hlo hlo_concat(hlo_fn *f, const hlo *xs, int n, int dim)
{
    if (!hlo_usable(f, "concatenate", xs, n)) return HLO_NONE;
    if (n < 1 || dim < 0 || dim >= hlo_rank(f, xs[0])) {
        hlo_fail(f, TPU_PRECONDITION, "concatenate: no dimension %d", dim);
        return HLO_NONE;
    }
    tpu_type t = *hlo_type_at(f, xs[0]);
    for (int i = 1; i < n; i++) {
        tpu_type a = *hlo_type_at(f, xs[i]);
        int64_t more = a.dim[dim];
        a.dim[dim] = t.dim[dim];
        if (a.dtype != t.dtype || !type_same_shape(&a, &t)) {
            hlo_fail(f, TPU_PRECONDITION, "concatenate: operand %d differs in dtype or in another dimension", i);
            return HLO_NONE;
        }
        t.dim[dim] += more;
        t.bounded |= a.bounded;
    }
    if (n == 1) return xs[0];
    t.bounded &= (uint16_t)~(1u << dim);
    text *m = hlo_mid(f);
    text_puts(m, "{dimension = ");
    text_int(m, dim);
    text_puts(m, " : i64}");
    return hlo_emit_type(f, "concatenate", xs, n, &t);
}

hlo hlo_reverse(hlo_fn *f, hlo x, uint32_t dims)
{
    if (!hlo_usable(f, "reverse", &x, 1)) return HLO_NONE;
    int64_t list[TYPE_MAX_RANK];
    int n = 0;
    for (int d = 0; d < hlo_rank(f, x); d++)
        if ((dims >> d & 1) && hlo_dim(f, x, d) > 1) list[n++] = d;
    if (!n) return x;
    text *m = hlo_mid(f);
    hlo_array(m, "{dimensions", list, n);
    text_put(m, "}", 1);
    return hlo_emit(f, NODE_GENERIC, "reverse", &x, 1, hlo_type_at(f, x));
}

/* Start indices: one integer scalar a dim, all of one dtype. */
static bool starts_fit(hlo_fn *f, const char *op, const hlo *starts, int rank)
{
    if (!hlo_usable(f, op, starts, rank)) return false;
    for (int d = 0; d < rank; d++) {
        if (hlo_rank(f, starts[d]) == 0 && dtype_is_int(hlo_dtype(f, starts[d])) &&
            hlo_dtype(f, starts[d]) == hlo_dtype(f, starts[0]))
            continue;
        hlo_fail(f, TPU_PRECONDITION, "%s: starts must be integer scalars of one dtype", op);
        return false;
    }
    return true;
}

hlo hlo_dynamic_slice(hlo_fn *f, hlo x, const hlo *starts, const int64_t *sizes)
{
    if (!hlo_usable(f, "dynamic_slice", &x, 1)) return HLO_NONE;
    tpu_type t = *hlo_type_at(f, x);
    if (!t.rank) return x;
    if (!starts_fit(f, "dynamic_slice", starts, t.rank)) return HLO_NONE;
    hlo in[TYPE_MAX_RANK + 1] = {x};
    for (int d = 0; d < t.rank; d++) {
        in[d + 1] = starts[d];
        if (sizes[d] < 0 || sizes[d] > t.dim[d]) {
            hlo_fail(f, TPU_OUT_OF_RANGE, "dynamic_slice: %lld elements of dimension %d with %lld", (long long)sizes[d],
                     d, (long long)t.dim[d]);
            return HLO_NONE;
        }
        if (sizes[d] != t.dim[d]) t.bounded &= (uint16_t)~(1u << d);
        t.dim[d] = sizes[d];
    }
    text *m = hlo_mid(f);
    hlo_array(m, "{slice_sizes", sizes, t.rank);
    text_put(m, "}", 1);
    return hlo_emit_type(f, "dynamic_slice", in, t.rank + 1, &t);
}

hlo hlo_dynamic_update_slice(hlo_fn *f, hlo x, hlo update, const hlo *starts)
{
    hlo in[TYPE_MAX_RANK + 2] = {x, update};
    if (!hlo_usable(f, "dynamic_update_slice", in, 2)) return HLO_NONE;
    const tpu_type *t = hlo_type_at(f, x), *u = hlo_type_at(f, update);
    bool fits = t->dtype == u->dtype && t->rank == u->rank;
    for (int d = 0; d < t->rank && fits; d++) fits = u->dim[d] <= t->dim[d];
    if (!fits) {
        hlo_fail(f, TPU_PRECONDITION, "dynamic_update_slice: the update does not fit the operand");
        return HLO_NONE;
    }
    if (!t->rank) return update;
    if (!starts_fit(f, "dynamic_update_slice", starts, t->rank)) return HLO_NONE;
    for (int d = 0; d < t->rank; d++) in[d + 2] = starts[d];
    hlo_mid(f);
    return hlo_emit(f, NODE_GENERIC, "dynamic_update_slice", in, t->rank + 2, t);
}
