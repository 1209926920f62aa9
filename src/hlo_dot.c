/* hlo_dot.c - contraction, gather, linear algebra, Fourier transforms, custom calls.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "hlo_internal.h"

/* ---- contraction ---- */

static bool is_listed(const int64_t *v, int n, int64_t d)
{
    for (int i = 0; i < n; i++)
        if (v[i] == d) return true;
    return false;
}

static bool dims_fit(const int64_t *v, int n, int rank)
{
    for (int i = 0; i < n; i++)
        if (v[i] < 0 || v[i] >= rank || is_listed(v, i, v[i])) return false;
    return true;
}

/* float32 is multiplied in float32 grade unless told otherwise [N1]; other dtypes have one way only. */
static void put_precision(hlo_fn *f, text *m, tpu_dtype d)
{
    static const char *const word[] = {[HLO_DEFAULT] = "DEFAULT", [HLO_HIGH] = "HIGH", [HLO_HIGHEST] = "HIGHEST"};
    if (d != TPU_F32 && d != TPU_C64) return;
    text_puts(m, ", precision_config = [#stablehlo<precision ");
    text_puts(m, word[f->precision]);
    text_puts(m, ">, #stablehlo<precision ");
    text_puts(m, word[f->precision]);
    text_puts(m, ">]");
}

static void add_free_dims(tpu_type *r, const tpu_type *t, const int64_t *batch, int nb, const int64_t *contract, int nc)
{
    for (int d = 0; d < t->rank; d++) {
        if (is_listed(batch, nb, d) || is_listed(contract, nc, d)) continue;
        if (r->rank == TYPE_MAX_RANK) {
            r->dtype = TPU_NONE;
            return;
        }
        if (t->bounded >> d & 1) r->bounded |= (uint16_t)(1u << r->rank);
        r->dim[r->rank++] = t->dim[d];
    }
}

static void fail_operands(hlo_fn *f, const char *op, hlo x, hlo y)
{
    text a = {0}, b = {0};
    type_words(hlo_type_at(f, x), &a);
    type_words(hlo_type_at(f, y), &b);
    hlo_fail(f, TPU_PRECONDITION, "%s: operands do not fit: %s and %s", op, a.at ? a.at : "?", b.at ? b.at : "?");
    text_free(&a);
    text_free(&b);
}

/* One operand as [batch, free, contract], spread over [batch, x's free, y's free, contract]; `at` is where its free
 * dims go. */
static hlo spread(hlo_fn *f, hlo x, int nbatch, const int64_t *batch, int ncontract, const int64_t *contract, int at,
                  const tpu_type *all)
{
    int64_t perm[TYPE_MAX_RANK], to[TYPE_MAX_RANK];
    int n = 0;
    for (int i = 0; i < nbatch; i++, n++) perm[n] = batch[i], to[n] = n;
    for (int d = 0; d < hlo_rank(f, x); d++)
        if (!is_listed(batch, nbatch, d) && !is_listed(contract, ncontract, d)) perm[n] = d, to[n++] = at++;
    for (int i = 0; i < ncontract; i++, n++) perm[n] = contract[i], to[n] = all->rank - ncontract + i;
    return hlo_broadcast_in_dim(f, hlo_transpose(f, x, perm), *all, to);
}

/* A TPU has no 64-bit integer dot: multiply and add up, which XLA fuses. */
static hlo dot_by_sum(hlo_fn *f, hlo x, hlo y, int nbatch, const int64_t *xbatch, const int64_t *ybatch, int ncontract,
                      const int64_t *xcontract, const int64_t *ycontract, const tpu_type *result)
{
    tpu_type all = type_as(*result, hlo_dtype(f, x));
    if (all.rank + ncontract > TYPE_MAX_RANK) {
        hlo_fail(f, TPU_UNIMPLEMENTED, "dot: too many dimensions");
        return HLO_NONE;
    }
    for (int i = 0; i < ncontract; i++) all.dim[all.rank++] = hlo_dim(f, x, (int)xcontract[i]);
    hlo a = spread(f, x, nbatch, xbatch, ncontract, xcontract, nbatch, &all);
    int xfree = hlo_rank(f, x) - nbatch - ncontract;
    hlo b = spread(f, y, nbatch, ybatch, ncontract, ycontract, nbatch + xfree, &all);
    uint32_t dims = ((1u << ncontract) - 1) << (all.rank - ncontract);
    return hlo_convert(f, hlo_reduce(f, "add", hlo_op2(f, "multiply", a, b), dims), (tpu_dtype)result->dtype);
}

/* x without its batch dims, which are 1, and where the contracted ones then stand. */
static hlo drop_batch(hlo_fn *f, hlo x, int nbatch, const int64_t *batch, int ncontract, const int64_t *contract, int64_t *out_contract)
{
    tpu_type t = hlo_type(f, x);
    int64_t dim[TYPE_MAX_RANK], at[TYPE_MAX_RANK];
    int n = 0;
    for (int d = 0; d < t.rank; d++) {
        at[d] = n;
        if (!is_listed(batch, nbatch, d)) dim[n++] = t.dim[d];
    }
    for (int i = 0; i < ncontract; i++) out_contract[i] = at[contract[i]];
    return hlo_reshape(f, x, n, dim);
}

/* XLA:CPU fails when it runs a bfloat16 dot whose only batch dim is 1 and whose left side is transposed: no such dim
 * reaches it. */
static bool batch_is_one(const tpu_type *a, int nbatch, const int64_t *xbatch)
{
    for (int i = 0; i < nbatch; i++)
        if (a->dim[xbatch[i]] != 1) return false;
    return nbatch > 0;
}

hlo hlo_dot(hlo_fn *f, hlo x, hlo y, int nbatch, const int64_t *xbatch, const int64_t *ybatch, int ncontract,
            const int64_t *xcontract, const int64_t *ycontract, tpu_dtype out)
{
    hlo in[2] = {x, y};
    if (!hlo_usable(f, "dot_general", in, 2)) return HLO_NONE;
    const tpu_type *a = hlo_type_at(f, x), *b = hlo_type_at(f, y);
    bool fits = a->dtype == b->dtype && dims_fit(xbatch, nbatch, a->rank) && dims_fit(ybatch, nbatch, b->rank) &&
                dims_fit(xcontract, ncontract, a->rank) && dims_fit(ycontract, ncontract, b->rank);
    tpu_type r = {.dtype = (uint8_t)out};
    for (int i = 0; i < nbatch && fits; i++) {
        fits = a->dim[xbatch[i]] == b->dim[ybatch[i]];
        if (a->bounded >> xbatch[i] & 1) r.bounded |= (uint16_t)(1u << r.rank);
        r.dim[r.rank++] = a->dim[xbatch[i]];
    }
    for (int i = 0; i < ncontract && fits; i++) fits = a->dim[xcontract[i]] == b->dim[ycontract[i]];
    if (!fits) {
        fail_operands(f, "dot", x, y);
        return HLO_NONE;
    }
    add_free_dims(&r, a, xbatch, nbatch, xcontract, ncontract);
    add_free_dims(&r, b, ybatch, nbatch, ycontract, ncontract);
    if (f->target == HLO_TPU && (a->dtype == TPU_I64 || a->dtype == TPU_U64) && r.dtype != TPU_NONE)
        return dot_by_sum(f, x, y, nbatch, xbatch, ybatch, ncontract, xcontract, ycontract, &r);
    if (!a->bounded && !b->bounded && batch_is_one(a, nbatch, xbatch)) {
        int64_t xc[TYPE_MAX_RANK], yc[TYPE_MAX_RANK];
        hlo u = drop_batch(f, x, nbatch, xbatch, ncontract, xcontract, xc), v = drop_batch(f, y, nbatch, ybatch, ncontract, ycontract, yc);
        return hlo_reshape(f, hlo_dot(f, u, v, 0, NULL, NULL, ncontract, xc, yc, out), r.rank, r.dim);
    }
    text *m = hlo_mid(f);
    text_puts(m, "{dot_dimension_numbers = #stablehlo.dot<");
    if (nbatch) {
        hlo_list(m, "lhs_batching_dimensions = [", xbatch, nbatch, "], ");
        hlo_list(m, "rhs_batching_dimensions = [", ybatch, nbatch, "], ");
    }
    hlo_list(m, "lhs_contracting_dimensions = [", xcontract, ncontract, "], ");
    hlo_list(m, "rhs_contracting_dimensions = [", ycontract, ncontract, "]>");
    put_precision(f, m, (tpu_dtype)a->dtype);
    text_put(m, "}", 1);
    return hlo_emit_type(f, "dot_general", in, 2, &r);
}

/* The dims of one operand: which letter stands where. */
static void put_layout(text *m, int rank, char first, int64_t first_dim, char second, int64_t second_dim,
                       const int64_t *spatial)
{
    text_put(m, "[", 1);
    for (int d = 0; d < rank; d++) {
        if (d) text_put(m, ", ", 2);
        if (d == first_dim) text_put(m, &first, 1);
        else if (d == second_dim) text_put(m, &second, 1);
        for (int s = 0; s < rank - 2; s++)
            if (spatial[s] == d) text_int(m, s);
    }
    text_put(m, "]", 1);
}

static hlo_conv conv_filled(const hlo_conv *conv)
{
    hlo_conv c = *conv;
    for (int s = 0; s < 3; s++) {
        if (!c.stride[s]) c.stride[s] = 1;
        if (!c.lhs_dilation[s]) c.lhs_dilation[s] = 1;
        if (!c.rhs_dilation[s]) c.rhs_dilation[s] = 1;
    }
    if (!c.feature_groups) c.feature_groups = 1;
    if (!c.batch_groups) c.batch_groups = 1;
    bool plain = !c.in_batch && !c.in_feature && !c.k_in && !c.k_out && !c.out_batch && !c.out_feature;
    if (plain) {
        c.in_feature = c.out_feature = c.k_in = 1;
        for (int s = 0; s < 3; s++) c.in_spatial[s] = c.k_spatial[s] = c.out_spatial[s] = s + 2;
    }
    return c;
}

static bool layout_fits(int rank, int64_t a, int64_t b, const int64_t *spatial)
{
    int64_t all[5] = {a, b};
    for (int s = 0; s < rank - 2; s++) all[s + 2] = spatial[s];
    return dims_fit(all, rank, rank);
}

/* The result's type; dtype TPU_NONE if the operands do not fit. */
static tpu_type conv_type(const hlo_conv *c, const tpu_type *x, const tpu_type *k, tpu_dtype out)
{
    int rank = c->nspatial + 2;
    tpu_type r = {.dtype = (uint8_t)out, .rank = (uint8_t)rank};
    if (c->nspatial < 1 || c->nspatial > 3 || x->rank != rank || k->rank != rank || x->dtype != k->dtype ||
        !layout_fits(rank, c->in_batch, c->in_feature, c->in_spatial) ||
        !layout_fits(rank, c->k_in, c->k_out, c->k_spatial) ||
        !layout_fits(rank, c->out_batch, c->out_feature, c->out_spatial) ||
        x->dim[c->in_feature] != k->dim[c->k_in] * c->feature_groups || k->dim[c->k_out] % c->feature_groups ||
        x->dim[c->in_batch] % c->batch_groups || k->dim[c->k_out] % c->batch_groups)
        return (tpu_type){0};
    r.dim[c->out_batch] = x->dim[c->in_batch] / c->batch_groups;
    r.dim[c->out_feature] = k->dim[c->k_out];
    for (int s = 0; s < c->nspatial; s++) {
        int64_t n = x->dim[c->in_spatial[s]], w = k->dim[c->k_spatial[s]];
        int64_t wide = (n ? (n - 1) * c->lhs_dilation[s] + 1 : 0) + c->pad_lo[s] + c->pad_hi[s];
        int64_t window = w ? (w - 1) * c->rhs_dilation[s] + 1 : 0;
        r.dim[c->out_spatial[s]] = wide < window || wide < 0 ? 0 : (wide - window) / c->stride[s] + 1;
    }
    return r;
}

static void put_padding(text *m, const int64_t *lo, const int64_t *hi, int n)
{
    text_puts(m, ", padding = dense<[");
    for (int s = 0; s < n; s++) {
        int64_t pair[2] = {lo[s], hi[s]};
        hlo_list(m, s ? ", [" : "[", pair, 2, "]");
    }
    text_puts(m, "]> : tensor<");
    text_int(m, n);
    text_puts(m, "x2xi64>");
}

static void put_conv(hlo_fn *f, text *m, const hlo_conv *c, tpu_dtype d)
{
    int n = c->nspatial;
    text_puts(m, "{batch_group_count = ");
    text_int(m, c->batch_groups);
    text_puts(m, " : i64, dimension_numbers = #stablehlo.conv<");
    put_layout(m, n + 2, 'b', c->in_batch, 'f', c->in_feature, c->in_spatial);
    text_puts(m, "x");
    put_layout(m, n + 2, 'i', c->k_in, 'o', c->k_out, c->k_spatial);
    text_puts(m, "->");
    put_layout(m, n + 2, 'b', c->out_batch, 'f', c->out_feature, c->out_spatial);
    text_puts(m, ">, feature_group_count = ");
    text_int(m, c->feature_groups);
    text_puts(m, " : i64");
    hlo_array(m, ", lhs_dilation", c->lhs_dilation, n);
    put_padding(m, c->pad_lo, c->pad_hi, n);
    put_precision(f, m, d);
    hlo_array(m, ", rhs_dilation", c->rhs_dilation, n);
    text_puts(m, ", window_reversal = array<i1: ");
    for (int s = 0; s < n; s++) {
        if (s) text_put(m, ", ", 2);
        text_puts(m, c->reversal[s] ? "true" : "false");
    }
    text_puts(m, ">");
    hlo_array(m, ", window_strides", c->stride, n);
    text_put(m, "}", 1);
}

hlo hlo_convolution(hlo_fn *f, hlo x, hlo kernel, const hlo_conv *conv, tpu_dtype out)
{
    hlo in[2] = {x, kernel};
    if (!hlo_usable(f, "convolution", in, 2)) return HLO_NONE;
    hlo_conv c = conv_filled(conv);
    tpu_type r = conv_type(&c, hlo_type_at(f, x), hlo_type_at(f, kernel), out);
    if (r.dtype == TPU_NONE) {
        fail_operands(f, "convolution", x, kernel);
        return HLO_NONE;
    }
    if (f->target == HLO_TPU && (hlo_dtype(f, x) == TPU_I64 || hlo_dtype(f, x) == TPU_U64)) {
        hlo_fail(f, TPU_UNIMPLEMENTED, "convolution: a TPU has none for 64-bit integers; use int32 or a float dtype");
        return HLO_NONE;
    }
    put_conv(f, hlo_mid(f), &c, hlo_dtype(f, x));
    return hlo_emit_type(f, "convolution", in, 2, &r);
}

/* ---- gather ---- */

hlo hlo_gather(hlo_fn *f, hlo x, hlo indices, const hlo_gather_dims *d, const int64_t *slice_sizes)
{
    hlo in[2] = {x, indices};
    if (!hlo_usable(f, "gather", in, 2)) return HLO_NONE;
    const tpu_type *t = hlo_type_at(f, x), *ti = hlo_type_at(f, indices);
    int nbatch = ti->rank - (d->index_vector_dim < ti->rank), rank = nbatch + d->noffset;
    bool fits = dtype_is_int((tpu_dtype)ti->dtype) && rank <= TYPE_MAX_RANK && dims_fit(d->offset, d->noffset, rank) &&
                dims_fit(d->collapsed, d->ncollapsed, t->rank) && dims_fit(d->map, d->nmap, t->rank) &&
                d->noffset + d->ncollapsed == t->rank && d->index_vector_dim >= 0 && d->index_vector_dim <= ti->rank;
    for (int i = 0; i < t->rank && fits; i++) fits = slice_sizes[i] >= 0 && slice_sizes[i] <= t->dim[i];
    if (!fits) {
        hlo_fail(f, TPU_PRECONDITION, "gather: dimension numbers do not fit the operands");
        return HLO_NONE;
    }
    tpu_type r = {.dtype = t->dtype, .rank = (uint8_t)rank};
    int from = 0, batch = 0;
    for (int i = 0; i < rank; i++) {
        if (is_listed(d->offset, d->noffset, i)) {
            while (is_listed(d->collapsed, d->ncollapsed, from)) from++;
            r.dim[i] = slice_sizes[from++];
            continue;
        }
        if (batch == d->index_vector_dim) batch++;
        if (ti->bounded >> batch & 1) r.bounded |= (uint16_t)(1u << i);
        r.dim[i] = ti->dim[batch++];
    }
    text *m = hlo_mid(f);
    text_puts(m, "{dimension_numbers = #stablehlo.gather<");
    if (d->noffset) hlo_list(m, "offset_dims = [", d->offset, d->noffset, "], ");
    if (d->ncollapsed) hlo_list(m, "collapsed_slice_dims = [", d->collapsed, d->ncollapsed, "], ");
    if (d->nmap) hlo_list(m, "start_index_map = [", d->map, d->nmap, "], ");
    text_puts(m, "index_vector_dim = ");
    text_int(m, d->index_vector_dim);
    text_puts(m, d->sorted ? ">, indices_are_sorted = true" : ">, indices_are_sorted = false");
    hlo_array(m, ", slice_sizes", slice_sizes, t->rank);
    text_put(m, "}", 1);
    return hlo_emit_type(f, "gather", in, 2, &r);
}

/* ---- linear algebra, Fourier transforms ---- */

static bool square(hlo_fn *f, const char *op, hlo x)
{
    if (hlo_rank(f, x) >= 2 && hlo_dim(f, x, -1) == hlo_dim(f, x, -2)) return true;
    hlo_fail(f, TPU_PRECONDITION, "%s: expected square matrices", op);
    return false;
}

hlo hlo_cholesky(hlo_fn *f, hlo x, bool lower)
{
    if (!hlo_usable(f, "cholesky", &x, 1) || !square(f, "cholesky", x)) return HLO_NONE;
    text_puts(hlo_mid(f), lower ? "{lower = true}" : "{lower = false}");
    return hlo_emit(f, NODE_GENERIC, "cholesky", &x, 1, hlo_type_at(f, x));
}

hlo hlo_triangular_solve(hlo_fn *f, hlo a, hlo b, bool left, bool lower, bool unit, const char *transpose)
{
    hlo in[2] = {a, b};
    if (!hlo_usable(f, "triangular_solve", in, 2) || !square(f, "triangular_solve", a)) return HLO_NONE;
    const tpu_type *ta = hlo_type_at(f, a), *tb = hlo_type_at(f, b);
    bool fits = ta->dtype == tb->dtype && ta->rank == tb->rank && hlo_dim(f, a, -1) == hlo_dim(f, b, left ? -2 : -1);
    for (int d = 0; d < ta->rank - 2 && fits; d++) fits = ta->dim[d] == tb->dim[d];
    if (!fits) {
        hlo_fail(f, TPU_PRECONDITION, "triangular_solve: operands do not fit");
        return HLO_NONE;
    }
    text *m = hlo_mid(f);
    text_puts(m, left ? "{left_side = true" : "{left_side = false");
    text_puts(m, lower ? ", lower = true" : ", lower = false");
    text_puts(m, ", transpose_a = #stablehlo<transpose ");
    text_puts(m, transpose);
    text_puts(m, unit ? ">, unit_diagonal = true}" : ">, unit_diagonal = false}");
    return hlo_emit(f, NODE_GENERIC, "triangular_solve", in, 2, hlo_type_at(f, b));
}

/* The matrix exp(sign * 2 pi i j k / n), of a complex dtype; j k is reduced mod n first, so the angle stays exact. */
static hlo dft_matrix(hlo_fn *f, int64_t n, tpu_dtype d, bool inverse)
{
    tpu_type ti = type_make(TPU_I64, 2, (int64_t[]){n, n});
    hlo jk = hlo_op2(f, "multiply", hlo_iota(f, ti, 0), hlo_iota(f, ti, 1));
    jk = hlo_convert(f, hlo_op2(f, "remainder", jk, hlo_like_i(f, jk, n)), dtype_real(d));
    double step = (inverse ? 1 : -1) * 6.283185307179586476925 / (double)n;
    hlo angle = hlo_op2(f, "multiply", jk, hlo_like_f(f, jk, step));
    return hlo_op2(f, "complex", hlo_op1(f, "cosine", angle), hlo_op1(f, "sine", angle));
}

static hlo dft_dim(hlo_fn *f, hlo x, int dim, bool inverse)
{
    int64_t n = hlo_dim(f, x, dim), last = hlo_rank(f, x) - 1, zero = 0;
    x = hlo_swap(f, x, dim, (int)last);
    x = hlo_dot(f, x, dft_matrix(f, n, hlo_dtype(f, x), inverse), 0, NULL, NULL, 1, &last, &zero, hlo_dtype(f, x));
    if (inverse) x = hlo_op2(f, "divide", x, hlo_like_f(f, x, (double)n));
    return hlo_swap(f, x, dim, (int)last);
}

/* A TPU has no transform of 64-bit floats: matrix products instead. */
static hlo fft_by_dot(hlo_fn *f, hlo x, const char *kind, int n, const int64_t *lengths)
{
    bool inverse = kind[0] == 'I', to_real = !strcmp(kind, "IRFFT"), real = kind[0] == 'R';
    int last = hlo_rank(f, x) - 1;
    int64_t half = lengths[n - 1] / 2 + 1;
    for (int i = 0; i < n; i++) {
        if (lengths[i] <= 4096) continue;
        hlo_fail(f, TPU_UNIMPLEMENTED, "fft: a TPU has none for 64-bit floats longer than 4096; use float32");
        return HLO_NONE;
    }
    x = hlo_convert(f, x, dtype_complex(hlo_dtype(f, x)));
    for (int i = 0; i < n - 1; i++) x = dft_dim(f, x, last - n + 1 + i, inverse);
    if (to_real && lengths[n - 1] > 2) { /* the other half is the mirror image, conjugated */
        hlo rest = hlo_reverse(f, hlo_slice_dim(f, x, last, 1, lengths[n - 1] - half + 1, 1), 1u << last);
        hlo parts[2] = {x, hlo_op2(f, "complex", hlo_op1(f, "real", rest), hlo_op1(f, "negate", hlo_op1(f, "imag", rest)))};
        x = hlo_concat(f, parts, 2, last);
    }
    if (to_real) x = hlo_slice_dim(f, x, last, 0, lengths[n - 1], 1);
    x = dft_dim(f, x, last, inverse);
    if (to_real) return hlo_op1(f, "real", x);
    return real ? hlo_slice_dim(f, x, last, 0, half, 1) : x;
}

hlo hlo_fft(hlo_fn *f, hlo x, const char *kind, int n, const int64_t *lengths)
{
    if (!hlo_usable(f, "fft", &x, 1)) return HLO_NONE;
    tpu_type t = *hlo_type_at(f, x);
    bool to_complex = !strcmp(kind, "RFFT"), to_real = !strcmp(kind, "IRFFT");
    bool fits = n >= 1 && n <= 3 && n <= t.rank && (to_complex ? t.dtype == TPU_F32 || t.dtype == TPU_F64 :
                                                    dtype_is_complex((tpu_dtype)t.dtype));
    for (int i = 0; i < n && fits; i++) {
        int64_t have = t.dim[t.rank - n + i], want = to_real && i == n - 1 ? lengths[i] / 2 + 1 : lengths[i];
        fits = have == want;
    }
    if (!fits) {
        hlo_fail(f, TPU_PRECONDITION, "fft: lengths or dtype do not fit the operand");
        return HLO_NONE;
    }
    if (f->target == HLO_TPU && dtype_real((tpu_dtype)t.dtype) == TPU_F64 && type_count(&t))
        return fft_by_dot(f, x, kind, n, lengths);
    if (to_complex) t.dim[t.rank - 1] = lengths[n - 1] / 2 + 1;
    if (to_real) t.dim[t.rank - 1] = lengths[n - 1];
    if (to_complex) t.dtype = (uint8_t)dtype_complex((tpu_dtype)t.dtype);
    if (to_real) t.dtype = (uint8_t)dtype_real((tpu_dtype)t.dtype);
    text *m = hlo_mid(f);
    hlo_array(m, "{fft_length", lengths, n);
    text_puts(m, ", fft_type = #stablehlo<fft_type ");
    text_puts(m, kind);
    text_puts(m, ">}");
    return hlo_emit_type(f, "fft", &x, 1, &t);
}

/* ---- custom calls ---- */

void hlo_custom_call(hlo_fn *f, const char *target, const char *backend_config, bool side_effect, const hlo *xs, int n,
                     const tpu_type *types, int nresults, hlo *out)
{
    hlo_usable(f, "custom_call", xs, n);
    text *m = hlo_mid(f);
    bool words = backend_config && backend_config[0] == '"';
    text_puts(m, words ? "{api_version = 1 : i32, backend_config = " : "{api_version = 4 : i32, backend_config = ");
    text_puts(m, backend_config ? backend_config : "{}");
    text_puts(m, ", call_target_name = \"");
    for (const char *s = target; *s; s++) {
        if (*s == '"' || *s == '\\') text_put(m, "\\", 1);
        text_put(m, s, 1);
    }
    text_puts(m, side_effect ? "\", has_side_effect = true}" : "\", has_side_effect = false}");
    hlo_emit_many(f, "custom_call", xs, n, NULL, 0, side_effect, types, nresults, out);
    for (int i = 0; i < nresults && f->error; i++) out[i] = HLO_NONE;
}
