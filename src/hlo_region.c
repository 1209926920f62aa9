/* hlo_region.c - ops with regions: reductions, windows, scans, scatter, sort, loops, branches.
 * Reductions by one word carry a canned region as text, so that equal ones are shared; everything else builds its
 * region with the same calls as the rest of the function.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "hlo_internal.h"

/* ---- reductions ---- */

static hlo neutral(hlo_fn *f, const char *op, tpu_dtype d)
{
    tpu_type t = type_scalar(d);
    if (!strcmp(op, "add") || !strcmp(op, "or") || !strcmp(op, "xor")) return hlo_const_i(f, t, 0);
    if (!strcmp(op, "multiply")) return hlo_const_i(f, t, 1);
    if (!strcmp(op, "maximum")) return hlo_lowest(f, t);
    if (!strcmp(op, "minimum")) return hlo_highest(f, t);
    if (!strcmp(op, "and")) return hlo_const_i(f, t, -1);
    hlo_fail(f, TPU_INTERNAL, "no reduction \"%s\"", op);
    return HLO_NONE;
}

void hlo_put_body(text *m, const char *op, tpu_dtype d)
{
    const char *name = dtype_name(d);
    text_puts(m, "({\n^bb0(%a: tensor<");
    text_puts(m, name);
    text_puts(m, ">, %b: tensor<");
    text_puts(m, name);
    text_puts(m, ">):\n");
    bool assign = !strcmp(op, "assign");
    if (!assign) {
        text_puts(m, "%r = stablehlo.");
        text_puts(m, op);
        text_puts(m, " %a, %b : tensor<");
        text_puts(m, name);
        text_puts(m, ">\n");
    }
    text_puts(m, assign ? "stablehlo.return %b : tensor<" : "stablehlo.return %r : tensor<");
    text_puts(m, name);
    text_puts(m, ">\n}) ");
}

/* The greater or a NaN, by compare and select: XLA:CPU hands a large reduction by a plain maximum to code that drops
 * NaN [N3]; this region it compiles as it stands. */
static void put_extreme_body(text *m, const char *op, const char *dtype)
{
    const char *dir = op[1] == 'a' ? "GE" : "LE";
    text_add(m, "({\n^bb0(%%a: tensor<%s>, %%b: tensor<%s>):\n", dtype, dtype);
    text_add(m, "%%p = stablehlo.compare %s, %%a, %%b : (tensor<%s>, tensor<%s>) -> tensor<i1>\n", dir, dtype, dtype);
    text_add(m, "%%n = stablehlo.compare NE, %%a, %%a : (tensor<%s>, tensor<%s>) -> tensor<i1>\n", dtype, dtype);
    text_add(m, "%%q = stablehlo.or %%p, %%n : tensor<i1>\n");
    text_add(m, "%%r = stablehlo.select %%q, %%a, %%b : tensor<i1>, tensor<%s>\n", dtype);
    text_add(m, "stablehlo.return %%r : tensor<%s>\n}) ", dtype);
}

/* The type with the dims of the mask gone; list receives them. */
static tpu_type without_dims(const tpu_type *t, uint32_t dims, int64_t *list, int *n)
{
    tpu_type r = {.dtype = t->dtype};
    *n = 0;
    for (int d = 0; d < t->rank; d++) {
        if (dims >> d & 1) {
            list[(*n)++] = d;
            continue;
        }
        if (t->bounded >> d & 1) r.bounded |= (uint16_t)(1u << r.rank);
        r.dim[r.rank++] = t->dim[d];
    }
    return r;
}

hlo hlo_reduce(hlo_fn *f, const char *op, hlo x, uint32_t dims)
{
    if (!hlo_usable(f, "reduce", &x, 1)) return HLO_NONE;
    const tpu_type *t = hlo_type_at(f, x);
    int64_t list[TYPE_MAX_RANK];
    int n;
    tpu_type r = without_dims(t, dims, list, &n);
    if (!n) return x;
    hlo in[2] = {x, neutral(f, op, (tpu_dtype)t->dtype)};
    if (!hlo_usable(f, "reduce", in, 2)) return HLO_NONE;
    text *m = hlo_mid(f);
    if (f->target == HLO_CPU && dtype_is_float((tpu_dtype)t->dtype) && (!strcmp(op, "maximum") || !strcmp(op, "minimum")))
        put_extreme_body(m, op, dtype_name((tpu_dtype)t->dtype));
    else
        hlo_put_body(m, op, (tpu_dtype)t->dtype);
    hlo_array(m, "{dimensions", list, n);
    text_put(m, "}", 1);
    return hlo_emit_type(f, "reduce", in, 2, &r);
}

/* a is before b: a > b (or a < b), or a is NaN and b is not [N3].  Equal zeros of either sign are equal. */
static hlo beats(hlo_fn *f, hlo a, hlo b, bool least)
{
    hlo better = hlo_compare(f, least ? "LT" : "GT", a, b);
    if (!dtype_is_float(hlo_dtype(f, a))) return better;
    hlo nan = hlo_op2(f, "and", hlo_compare(f, "NE", a, a), hlo_compare(f, "EQ", b, b));
    return hlo_op2(f, "or", better, nan);
}

/* The region (value, index, value, index) -> the winner; of equals the lesser index.  Its number, -1 on failure. */
static int pick_region(hlo_fn *f, tpu_dtype d, tpu_dtype di, bool least)
{
    tpu_type args[4] = {type_scalar(d), type_scalar(di), type_scalar(d), type_scalar(di)};
    hlo a[4];
    hlo_region_begin(f, args, 4, true, a);
    hlo wins = beats(f, a[0], a[2], least), loses = beats(f, a[2], a[0], least);
    hlo first = hlo_op2(f, "and", hlo_op1(f, "not", loses), hlo_compare(f, "LT", a[1], a[3]));
    hlo pick = hlo_op2(f, "or", wins, first);
    hlo result[2] = {hlo_select(f, pick, a[0], a[2]), hlo_select(f, pick, a[1], a[3])};
    return hlo_region_end(f, result, 2);
}

hlo hlo_argmax(hlo_fn *f, hlo x, int dim, bool least)
{
    if (!hlo_usable(f, "argmax", &x, 1)) return HLO_NONE;
    const tpu_type *t = hlo_type_at(f, x);
    if (dim < 0 || dim >= t->rank || dtype_is_complex((tpu_dtype)t->dtype)) {
        hlo_fail(f, TPU_PRECONDITION, "argmax: no dimension %d, or a complex operand", dim);
        return HLO_NONE;
    }
    tpu_dtype d = (tpu_dtype)t->dtype;
    tpu_dtype di = t->dim[dim] <= INT32_MAX ? TPU_I32 : TPU_I64; /* int64 is emulated on a TPU */
    int64_t list[TYPE_MAX_RANK];
    int n;
    tpu_type types[2] = {without_dims(t, 1u << dim, list, &n)};
    types[1] = type_as(types[0], di);
    hlo start = least ? hlo_highest(f, type_scalar(d)) : hlo_lowest(f, type_scalar(d));
    hlo in[4] = {x, hlo_iota(f, type_as(*t, di), dim), start, hlo_highest(f, type_scalar(di))};
    hlo out[2] = {HLO_NONE, HLO_NONE};
    int region = pick_region(f, d, di, least);
    text *m = hlo_mid(f);
    hlo_array(m, "{dimensions", list, 1);
    text_put(m, "}", 1);
    hlo_emit_many(f, "reduce", in, 4, &region, 1, false, types, 2, out);
    return hlo_convert(f, out[1], TPU_I64);
}

/* ---- windows ---- */

static hlo_window window_filled(const hlo_window *w, int rank)
{
    hlo_window r = *w;
    for (int d = 0; d < rank; d++) {
        if (!r.size[d]) r.size[d] = 1;
        if (!r.stride[d]) r.stride[d] = 1;
        if (!r.base_dilation[d]) r.base_dilation[d] = 1;
        if (!r.dilation[d]) r.dilation[d] = 1;
    }
    return r;
}

static int64_t window_count(const hlo_window *w, int d, int64_t n)
{
    int64_t wide = (n ? (n - 1) * w->base_dilation[d] + 1 : 0) + w->pad_lo[d] + w->pad_hi[d];
    int64_t size = (w->size[d] - 1) * w->dilation[d] + 1;
    return wide < size ? 0 : (wide - size) / w->stride[d] + 1;
}

static void put_window(text *m, const hlo_window *w, int rank, bool dilations)
{
    text_puts(m, "{padding = dense<[");
    for (int d = 0; d < rank; d++) {
        int64_t pair[2] = {w->pad_lo[d], w->pad_hi[d]};
        hlo_list(m, d ? ", [" : "[", pair, 2, "]");
    }
    text_puts(m, "]> : tensor<");
    text_int(m, rank);
    text_puts(m, "x2xi64>");
    if (dilations) {
        hlo_array(m, ", base_dilations", w->base_dilation, rank);
        hlo_array(m, ", window_dilations", w->dilation, rank);
    }
    hlo_array(m, ", window_dimensions", w->size, rank);
    hlo_array(m, ", window_strides", w->stride, rank);
    text_put(m, "}", 1);
}

hlo hlo_reduce_window(hlo_fn *f, const char *op, hlo x, const hlo_window *w)
{
    if (!hlo_usable(f, "reduce_window", &x, 1)) return HLO_NONE;
    tpu_type t = *hlo_type_at(f, x);
    if (!t.rank) return x;
    hlo in[2] = {x, neutral(f, op, (tpu_dtype)t.dtype)};
    if (!hlo_usable(f, "reduce_window", in, 2)) return HLO_NONE;
    hlo_window full = window_filled(w, t.rank);
    for (int d = 0; d < t.rank; d++) {
        int64_t n = window_count(&full, d, t.dim[d]);
        if (n != t.dim[d]) t.bounded &= (uint16_t)~(1u << d);
        t.dim[d] = n;
    }
    text *m = hlo_mid(f);
    hlo_put_body(m, op, (tpu_dtype)t.dtype);
    put_window(m, &full, t.rank, true);
    return hlo_emit_type(f, "reduce_window", in, 2, &t);
}

void hlo_argmax_window(hlo_fn *f, hlo x, hlo index, const hlo_window *w, hlo *out)
{
    hlo given[2] = {x, index};
    out[0] = out[1] = HLO_NONE;
    if (!hlo_usable(f, "argmax_window", given, 2)) return;
    tpu_type types[2] = {hlo_type(f, x), hlo_type(f, index)};
    tpu_dtype d = (tpu_dtype)types[0].dtype, di = (tpu_dtype)types[1].dtype;
    hlo_window full = window_filled(w, types[0].rank);
    if (!types[0].rank || !type_same_shape(&types[0], &types[1]) || !dtype_is_int(di) || dtype_is_complex(d)) {
        hlo_fail(f, TPU_PRECONDITION, "argmax_window: expected real numbers and an integer index of one shape");
        return;
    }
    for (int i = 0; i < types[0].rank; i++)
        types[0].dim[i] = types[1].dim[i] = window_count(&full, i, types[0].dim[i]);
    types[0].bounded = types[1].bounded = 0;
    hlo in[4] = {x, index, hlo_lowest(f, type_scalar(d)), hlo_highest(f, type_scalar(di))};
    int region = pick_region(f, d, di, false);
    put_window(hlo_mid(f), &full, types[0].rank, true);
    hlo_emit_many(f, "reduce_window", in, 4, &region, 1, false, types, 2, out);
}

/* The elements that place `k` of each window sees. */
static hlo window_place(hlo_fn *f, hlo padded, const hlo_window *w, const tpu_type *out, const int64_t *k)
{
    int64_t limit[TYPE_MAX_RANK];
    for (int d = 0; d < out->rank; d++) limit[d] = k[d] + (out->dim[d] - 1) * w->stride[d] + 1;
    return hlo_slice(f, padded, k, limit, w->stride);
}

static bool next_place(int64_t *k, const hlo_window *w, int rank)
{
    for (int d = rank - 1; d >= 0; d--) {
        if (++k[d] < w->size[d]) return true;
        k[d] = 0;
    }
    return false;
}

/* The same place by place, for what a TPU's own op refuses (64-bit elements): find the winner of each window, then add
 * the source where it stands. */
static hlo select_by_place(hlo_fn *f, hlo x, hlo source, const hlo_window *w)
{
    tpu_type t = hlo_type(f, x), s = hlo_type(f, source);
    hlo zero = hlo_const_i(f, type_scalar((tpu_dtype)t.dtype), 0);
    hlo padded = hlo_pad(f, x, hlo_lowest(f, type_scalar((tpu_dtype)t.dtype)), w->pad_lo, w->pad_hi, NULL);
    int64_t k[TYPE_MAX_RANK] = {0}, n = 0;
    hlo best = window_place(f, padded, w, &s, k), winner = hlo_zeros(f, type_as(s, TPU_I32));
    while (next_place(k, w, t.rank) && !f->error) {
        hlo here = window_place(f, padded, w, &s, k), wins = beats(f, here, best, false);
        best = hlo_select(f, wins, here, best);
        winner = hlo_select(f, wins, hlo_like_i(f, winner, ++n), winner);
    }
    hlo sum = hlo_zeros(f, t);
    n = 0;
    do {
        int64_t lo[TYPE_MAX_RANK], hi[TYPE_MAX_RANK], between[TYPE_MAX_RANK];
        for (int d = 0; d < t.rank; d++) {
            lo[d] = k[d] - w->pad_lo[d];
            hi[d] = t.dim[d] + w->pad_lo[d] - 1 - k[d] - (s.dim[d] - 1) * w->stride[d];
            between[d] = w->stride[d] - 1;
        }
        hlo chosen = hlo_compare(f, "EQ", winner, hlo_like_i(f, winner, n++));
        hlo part = hlo_select(f, chosen, source, hlo_like_i(f, source, 0));
        sum = hlo_op2(f, "add", sum, hlo_pad(f, part, zero, lo, hi, between));
    } while (next_place(k, w, t.rank) && !f->error);
    return sum;
}

static hlo select_and_scatter(hlo_fn *f, hlo x, hlo source, const hlo_window *w)
{
    tpu_dtype d = hlo_dtype(f, x);
    hlo in[3] = {x, source, hlo_const_i(f, type_scalar(d), 0)}, a[2], out = HLO_NONE;
    tpu_type args[2] = {type_scalar(d), type_scalar(d)}, r = hlo_type(f, x);
    int region[2];
    hlo_region_begin(f, args, 2, true, a);
    hlo keep = hlo_compare(f, "GE", a[0], a[1]);
    if (dtype_is_float(d)) keep = hlo_op2(f, "or", keep, hlo_compare(f, "NE", a[0], a[0]));
    region[0] = hlo_region_end(f, &keep, 1);
    hlo_region_begin(f, args, 2, true, a);
    hlo sum = hlo_op2(f, "add", a[0], a[1]);
    region[1] = hlo_region_end(f, &sum, 1);
    if (f->error) return HLO_NONE;
    put_window(hlo_mid(f), w, r.rank, false);
    hlo_emit_many(f, "select_and_scatter", in, 3, region, 2, false, &r, 1, &out);
    return out;
}

/* A TPU wants two dims that the window leaves alone: gives the operand leading ones until it has them. */
static int dims_to_add(const hlo_window *w, int rank)
{
    int free_dims = 0;
    for (int d = 0; d < rank; d++) free_dims += w->size[d] == 1 && w->stride[d] == 1;
    return free_dims >= 2 || rank + 2 > TYPE_MAX_RANK ? 0 : 2 - free_dims;
}

static hlo add_dims(hlo_fn *f, hlo x, int n)
{
    for (int i = 0; i < n; i++) x = hlo_unsqueeze(f, x, 0);
    return x;
}

static hlo_window window_shifted(const hlo_window *w, int n)
{
    hlo_window r = {0};
    for (int d = 0; d + n < TYPE_MAX_RANK; d++) {
        r.size[d + n] = w->size[d];
        r.stride[d + n] = w->stride[d];
        r.pad_lo[d + n] = w->pad_lo[d];
        r.pad_hi[d + n] = w->pad_hi[d];
    }
    return r;
}

hlo hlo_select_and_scatter(hlo_fn *f, hlo x, hlo source, const hlo_window *w)
{
    hlo in[2] = {x, source};
    if (!hlo_usable(f, "select_and_scatter", in, 2)) return HLO_NONE;
    tpu_type t = hlo_type(f, x), s = hlo_type(f, source);
    hlo_window full = window_filled(w, t.rank);
    bool fits = t.rank && t.rank == s.rank && t.dtype == s.dtype && !dtype_is_complex((tpu_dtype)t.dtype);
    for (int i = 0; i < t.rank && fits; i++)
        fits = full.dilation[i] == 1 && full.base_dilation[i] == 1 && window_count(&full, i, t.dim[i]) == s.dim[i];
    if (!fits) {
        hlo_fail(f, TPU_PRECONDITION, "select_and_scatter: the source does not fit the windows");
        return HLO_NONE;
    }
    if (type_count(&s) == 0) return hlo_zeros(f, t);
    bool tpu = f->target == HLO_TPU;
    if (tpu && dtype_size((tpu_dtype)t.dtype) == 8) return select_by_place(f, x, source, &full);
    int n = tpu ? dims_to_add(&full, t.rank) : 0;
    hlo_window shifted = window_shifted(&full, n);
    shifted = window_filled(&shifted, t.rank + n);
    hlo r = select_and_scatter(f, add_dims(f, x, n), add_dims(f, source, n), &shifted);
    return hlo_reshape(f, r, t.rank, t.dim);
}

hlo hlo_cumulative(hlo_fn *f, const char *op, hlo x, int dim, bool reverse)
{
    if (!hlo_usable(f, "cumulative", &x, 1)) return HLO_NONE;
    const tpu_type *t = hlo_type_at(f, x);
    if (dim < 0 || dim >= t->rank) {
        hlo_fail(f, TPU_PRECONDITION, "cumulative: no dimension %d", dim);
        return HLO_NONE;
    }
    hlo_window w = {0};
    w.size[dim] = t->dim[dim];
    *(reverse ? &w.pad_hi[dim] : &w.pad_lo[dim]) = t->dim[dim] - 1;
    return t->dim[dim] < 2 ? x : hlo_reduce_window(f, op, x, &w);
}

/* ---- scatter ---- */

static bool scatter_fits(const tpu_type *t, const tpu_type *ti, const tpu_type *tu, const hlo_gather_dims *d)
{
    int nbatch = ti->rank - (d->index_vector_dim < ti->rank);
    if (t->dtype != tu->dtype || !dtype_is_int((tpu_dtype)ti->dtype)) return false;
    if (nbatch + d->noffset != tu->rank || d->noffset + d->ncollapsed != t->rank) return false;
    return d->index_vector_dim >= 0 && d->index_vector_dim <= ti->rank;
}

hlo hlo_scatter(hlo_fn *f, const char *op, hlo x, hlo indices, hlo updates, const hlo_gather_dims *d)
{
    hlo in[3] = {x, indices, updates};
    if (!hlo_usable(f, "scatter", in, 3)) return HLO_NONE;
    const tpu_type *t = hlo_type_at(f, x);
    if (!scatter_fits(t, hlo_type_at(f, indices), hlo_type_at(f, updates), d)) {
        hlo_fail(f, TPU_PRECONDITION, "scatter: dimension numbers do not fit the operands");
        return HLO_NONE;
    }
    text *m = hlo_mid(f);
    hlo_put_body(m, op, (tpu_dtype)t->dtype);
    text_puts(m, d->sorted ? "{indices_are_sorted = true, " : "{indices_are_sorted = false, ");
    text_puts(m, "scatter_dimension_numbers = #stablehlo.scatter<");
    if (d->noffset) hlo_list(m, "update_window_dims = [", d->offset, d->noffset, "], ");
    if (d->ncollapsed) hlo_list(m, "inserted_window_dims = [", d->collapsed, d->ncollapsed, "], ");
    if (d->nmap) hlo_list(m, "scatter_dims_to_operand_dims = [", d->map, d->nmap, "], ");
    text_puts(m, "index_vector_dim = ");
    text_int(m, d->index_vector_dim);
    text_puts(m, d->unique ? ">, unique_indices = true}" : ">, unique_indices = false}");
    return hlo_emit(f, NODE_GENERIC, "scatter", in, 3, t);
}

/* ---- sort ---- */

/* Results may stand where the operands stood, so nothing is written before those are read. */
static void none_if_failed(const hlo_fn *f, hlo *out, int n)
{
    for (int i = 0; i < n && f->error; i++) out[i] = HLO_NONE;
}

static void sort(hlo_fn *f, const hlo *xs, int n, int dim, bool descending, hlo *out)
{
    if (!hlo_usable(f, "sort", xs, n)) return;
    tpu_type *types = n > 0 ? hlo_arena(f, (size_t)n * 3 * sizeof *types) : NULL;
    hlo *args = types ? hlo_arena(f, (size_t)n * 2 * sizeof *args) : NULL;
    if (!args) return;
    for (int i = 0; i < n; i++) {
        types[2 * n + i] = *hlo_type_at(f, xs[i]);
        types[2 * i] = types[2 * i + 1] = type_scalar(hlo_dtype(f, xs[i]));
        if (type_same_shape(hlo_type_at(f, xs[i]), hlo_type_at(f, xs[0]))) continue;
        hlo_fail(f, TPU_PRECONDITION, "sort: operand %d has another shape", i);
        return;
    }
    if (dim < 0 || dim >= hlo_rank(f, xs[0]) || dtype_is_complex(hlo_dtype(f, xs[0]))) {
        hlo_fail(f, TPU_PRECONDITION, "sort: no dimension %d, or a complex key", dim);
        return;
    }
    hlo_region_begin(f, types, 2 * n, true, args);
    /* Ascending: a < b, or only b is NaN; descending the same with a and b exchanged. */
    hlo before = descending ? beats(f, args[0], args[1], false) : beats(f, args[1], args[0], false);
    int region = hlo_region_end(f, &before, 1);
    text *m = hlo_mid(f);
    text_puts(m, "{dimension = ");
    text_int(m, dim);
    text_puts(m, " : i64, is_stable = true}");
    hlo_emit_many(f, "sort", xs, n, &region, 1, false, types + 2 * n, n, out);
}

void hlo_sort(hlo_fn *f, const hlo *xs, int n, int dim, bool descending, hlo *out)
{
    sort(f, xs, n, dim, descending, out);
    none_if_failed(f, out, n);
}

/* ---- loops and branches ---- */

static hlo_open *open_new(hlo_fn *f, const char *op, const hlo *in, int n)
{
    int *ids = hlo_arena(f, (size_t)(n ? n : 1) * sizeof *ids);
    if (!ids) return NULL;
    if (!mem_reserve(&f->opens, &f->opens_cap, f->nopens + 1, sizeof *f->opens)) {
        hlo_fail_memory(f);
        return NULL;
    }
    for (int i = 0; i < n; i++) ids[i] = in[i].id;
    hlo_open *o = &f->opens[f->nopens++];
    *o = (hlo_open){.op = op, .in = ids, .nin = n, .condition = -1};
    return o;
}

/* The innermost op being built, if it is what the caller thinks. */
static hlo_open *open_top(hlo_fn *f, const char *op, bool has_condition)
{
    if (f->error) return NULL;
    hlo_open *o = f->nopens ? &f->opens[f->nopens - 1] : NULL;
    if (o && !strcmp(o->op, op) && (o->condition >= 0) == has_condition) return o;
    hlo_fail(f, TPU_INTERNAL, "%s: its parts are called out of order", op);
    return NULL;
}

static void begin_with(hlo_fn *f, const hlo_open *o, hlo *args)
{
    tpu_type *types = hlo_arena(f, (size_t)(o->nin ? o->nin : 1) * sizeof *types);
    if (!types) return;
    int n = o->nin;
    for (int i = 0; i < n; i++) types[i] = *f->values[o->in[i]].type;
    hlo_region_begin(f, types, n, false, args);
}

static bool same_types(hlo_fn *f, const char *op, const hlo *xs, const tpu_type *want, int n)
{
    for (int i = 0; i < n; i++) {
        const tpu_type *t = hlo_type_at(f, xs[i]);
        if (t->dtype == want[i].dtype && type_same_shape(t, &want[i])) continue;
        hlo_fail(f, TPU_PRECONDITION, "%s: value %d has another type than it began with", op, i);
        return false;
    }
    return true;
}

void hlo_while_begin(hlo_fn *f, const hlo *init, int n, hlo *args)
{
    hlo_open *o = hlo_usable(f, "while", init, n) ? open_new(f, "while", init, n) : NULL;
    if (o) begin_with(f, o, args);
    none_if_failed(f, args, n);
}

void hlo_while_body(hlo_fn *f, hlo condition, hlo *args)
{
    hlo_open *o = open_top(f, "while", false);
    if (!o) return;
    if (hlo_usable(f, "while", &condition, 1) && (hlo_dtype(f, condition) != TPU_BOOL || hlo_rank(f, condition) != 0))
        hlo_fail(f, TPU_PRECONDITION, "while: the condition must be a Bool scalar");
    o->condition = hlo_region_end(f, &condition, 1);
    if (o->condition >= 0) begin_with(f, o, args);
    none_if_failed(f, args, o->nin);
}

void hlo_while_end(hlo_fn *f, const hlo *next, hlo *results)
{
    hlo_open *o = open_top(f, "while", true);
    if (!o) return;
    int n = o->nin;
    tpu_type *types = hlo_arena(f, (size_t)(n ? n : 1) * sizeof *types);
    hlo *init = hlo_arena(f, (size_t)(n ? n : 1) * sizeof *init);
    for (int i = 0; i < n && types && init; i++) {
        types[i] = *f->values[o->in[i]].type;
        init[i].id = o->in[i];
    }
    if (hlo_usable(f, "while", next, n) && same_types(f, "while", next, types, n)) {
        int region[2] = {o->condition, hlo_region_end(f, next, n)};
        f->nopens--;
        hlo_mid(f);
        hlo_emit_many(f, "while", init, n, region, 2, false, types, n, results);
    }
    none_if_failed(f, results, n);
}

void hlo_if_begin(hlo_fn *f, hlo pred)
{
    if (!hlo_usable(f, "if", &pred, 1)) return;
    if (hlo_dtype(f, pred) != TPU_BOOL || hlo_rank(f, pred) != 0) {
        hlo_fail(f, TPU_PRECONDITION, "if: the predicate must be a Bool scalar");
        return;
    }
    if (open_new(f, "if", &pred, 1)) hlo_region_begin(f, NULL, 0, false, NULL);
}

void hlo_if_else(hlo_fn *f, const hlo *results, int n)
{
    hlo_open *o = open_top(f, "if", false);
    if (!o) return;
    o->condition = hlo_region_end(f, results, n);
    if (o->condition >= 0) hlo_region_begin(f, NULL, 0, false, NULL);
}

static void if_end(hlo_fn *f, const hlo *results, int n, hlo *out)
{
    hlo_open *o = open_top(f, "if", true);
    if (!o || !hlo_usable(f, "if", results, n)) return;
    const hlo_scope *then = &f->scopes[o->condition];
    tpu_type *types = hlo_arena(f, (size_t)(n ? n : 1) * sizeof *types);
    if (!types) return;
    for (int i = 0; i < n && i < then->nresults; i++) types[i] = *f->values[then->results[i]].type;
    if (then->nresults != n) hlo_fail(f, TPU_PRECONDITION, "if: its branches give %d and %d values", then->nresults, n);
    if (f->error || !same_types(f, "if", results, types, n)) return;
    hlo pred = {o->in[0]};
    int region[2] = {o->condition, hlo_region_end(f, results, n)};
    f->nopens--;
    hlo_mid(f);
    hlo_emit_many(f, "if", &pred, 1, region, 2, false, types, n, out);
}

void hlo_if_end(hlo_fn *f, const hlo *results, int n, hlo *out)
{
    if_end(f, results, n, out);
    none_if_failed(f, out, n);
}

void hlo_barrier(hlo_fn *f, const hlo *xs, int n, hlo *out)
{
    tpu_type *types = n && hlo_usable(f, "barrier", xs, n) ? hlo_arena(f, (size_t)n * sizeof *types) : NULL;
    for (int i = 0; i < n && types; i++) types[i] = *hlo_type_at(f, xs[i]);
    hlo_mid(f);
    if (types) hlo_emit_many(f, "optimization_barrier", xs, n, NULL, 0, false, types, n, out);
    none_if_failed(f, out, n);
}
