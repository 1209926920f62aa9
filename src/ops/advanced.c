/* advanced.c - indexing with several index tensors: index, index_put and their kin.
 * Bool masks have sizes that depend on the data; where a mask only writes one value it is a select.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

typedef struct plan {
    int k, dim[TYPE_MAX_RANK];      /* indexed dims */
    int nrest; int64_t rest[TYPE_MAX_RANK]; /* the others */
    int before;                     /* how many of the others stand before the index dims in the result */
    tpu_type batch;                 /* broadcast shape of the index tensors */
    hlo at;                         /* [batch..., k] */
} plan;

static hlo checked(op_ctx *c, hlo index, int64_t size)
{
    hlo_fn *f = op_fn(c);
    index = hlo_convert(f, index, TPU_I64);
    hlo zero = hlo_like_i(f, index, 0), n = hlo_like_i(f, index, size);
    index = hlo_select(f, hlo_compare(f, "LT", index, zero), hlo_op2(f, "add", index, n), index);
    op_guard(c, hlo_op2(f, "or", hlo_compare(f, "LT", index, zero), hlo_compare(f, "GE", index, n)), "index is out of bounds for its dimension");
    tpu_type one = type_scalar(TPU_I64);
    return hlo_clamp(f, hlo_const_i(f, one, 0), index, hlo_const_i(f, one, size > 0 ? size - 1 : 0));
}

static bool make_plan(op_ctx *c, hlo x, int list, plan *p)
{
    hlo_fn *f = op_fn(c);
    hlo index[TYPE_MAX_RANK];
    int rank = hlo_rank(f, x), n = op_len(c, list);
    *p = (plan){.batch = type_scalar(TPU_I64)};
    if (n > rank) {
        op_fail(c, TPU_OUT_OF_RANGE, "too many indices for tensor of dimension %d", rank);
        return false;
    }
    bool gap = false;
    for (int d = 0; d < rank; d++) {
        hlo i = d < n ? op_elem(c, list, d) : HLO_NONE;
        if (!hlo_ok(i)) {
            p->rest[p->nrest++] = d;
            continue;
        }
        tpu_dtype t = hlo_dtype(f, i);
        if (t == TPU_BOOL || t == TPU_U8) {
            op_fail(c, TPU_UNIMPLEMENTED, "a mask has a size that depends on its data");
            return false;
        }
        if (!dtype_is_int(t)) {
            op_fail(c, TPU_OUT_OF_RANGE, "tensors used as indices must be long, int, byte or bool tensors");
            return false;
        }
        gap |= p->k && p->dim[p->k - 1] != d - 1;
        if (!p->k) p->before = p->nrest;
        index[p->k] = i;
        p->dim[p->k++] = d;
        p->batch = hlo_broadcast_type(f, p->batch, hlo_type(f, i));
    }
    if (gap) p->before = 0;
    if (hlo_failed(f) || !p->k) return false;
    p->batch.dtype = TPU_I64;
    for (int i = 0; i < p->k; i++)
        index[i] = hlo_unsqueeze(f, hlo_broadcast_to(f, checked(c, index[i], hlo_dim(f, x, p->dim[i])), p->batch), p->batch.rank);
    p->at = hlo_concat(f, index, p->k, p->batch.rank);
    return true;
}

/* x with its indexed dims first. */
static hlo indexed_first(hlo_fn *f, hlo x, const plan *p, bool back)
{
    int64_t perm[TYPE_MAX_RANK], inverse[TYPE_MAX_RANK];
    int n = 0;
    for (int i = 0; i < p->k; i++) perm[n++] = p->dim[i];
    for (int i = 0; i < p->nrest; i++) perm[n++] = p->rest[i];
    for (int i = 0; i < n; i++) inverse[perm[i]] = i;
    return hlo_transpose(f, x, back ? inverse : perm);
}

/* [batch..., rest...] into PyTorch's order, and back. */
static hlo place(hlo_fn *f, hlo x, const plan *p, bool back)
{
    int64_t perm[TYPE_MAX_RANK], inverse[TYPE_MAX_RANK];
    int b = p->batch.rank, n = 0;
    for (int i = 0; i < p->before; i++) perm[n++] = b + i;
    for (int i = 0; i < b; i++) perm[n++] = i;
    for (int i = p->before; i < p->nrest; i++) perm[n++] = b + i;
    for (int i = 0; i < n; i++) inverse[perm[i]] = i;
    return hlo_transpose(f, x, back ? inverse : perm);
}

static hlo_gather_dims dims_of(const plan *p)
{
    hlo_gather_dims g = {.ncollapsed = p->k, .nmap = p->k, .noffset = p->nrest, .index_vector_dim = p->batch.rank};
    for (int i = 0; i < p->k; i++) g.collapsed[i] = g.map[i] = i;
    for (int i = 0; i < p->nrest; i++) g.offset[i] = p->batch.rank + i;
    return g;
}

static tpu_type result_type(hlo_fn *f, hlo x, const plan *p)
{
    int64_t dim[TYPE_MAX_RANK];
    int n = 0;
    for (int i = 0; i < p->batch.rank; i++) dim[n++] = p->batch.dim[i];
    for (int i = 0; i < p->nrest; i++) dim[n++] = hlo_dim(f, x, (int)p->rest[i]);
    return type_make(hlo_dtype(f, x), n, dim);
}

static void index_read(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    plan p;
    if (!make_plan(c, x, 1, &p)) {
        if (!hlo_failed(f)) op_out(c, x);
        return;
    }
    tpu_type t = result_type(f, x, &p);
    if (type_count(&t) == 0) {
        op_out(c, place(f, hlo_zeros(f, t), &p, false));
        return;
    }
    int64_t size[TYPE_MAX_RANK];
    for (int i = 0; i < p.k; i++) size[i] = 1;
    for (int i = 0; i < p.nrest; i++) size[p.k + i] = hlo_dim(f, x, (int)p.rest[i]);
    hlo_gather_dims g = dims_of(&p);
    op_out(c, place(f, hlo_gather(f, indexed_first(f, x, &p, false), p.at, &g, size), &p, false));
}

/* x[mask] = one value */
static bool masked_value(op_ctx *c, hlo x, hlo values)
{
    hlo_fn *f = op_fn(c);
    if (op_len(c, 1) != 1 || hlo_count(f, values) != 1 || op_bool(c, 3)) return false;
    hlo m = op_elem(c, 1, 0);
    tpu_type t = hlo_type(f, x), mt = hlo_type(f, m);
    if (mt.dtype != TPU_BOOL || mt.rank > t.rank || mt.rank == 0) return false;
    int64_t at[TYPE_MAX_RANK];
    for (int i = 0; i < mt.rank; i++) {
        at[i] = i;
        if (mt.dim[i] != t.dim[i]) return false;
    }
    hlo wide = hlo_broadcast_in_dim(f, m, type_as(t, TPU_BOOL), at);
    op_out(c, hlo_select(f, wide, hlo_broadcast_to(f, hlo_reshape(f, values, 0, NULL), t), x));
    return true;
}

/* index_put(self, indices, values, accumulate) */
static void index_write(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), values = op_in(c, 2);
    if (hlo_dtype(f, values) != hlo_dtype(f, x)) {
        op_fail(c, TPU_INVALID, "Index put requires the source and destination dtypes match, got %s for the destination and %s for the source.",
                dtype_torch_name(hlo_dtype(f, x)), dtype_torch_name(hlo_dtype(f, values)));
        return;
    }
    if (masked_value(c, x, values)) return;
    plan p;
    if (!make_plan(c, x, 1, &p)) {
        if (!hlo_failed(f)) op_out(c, hlo_broadcast_to(f, values, hlo_type(f, x)));
        return;
    }
    tpu_type t = result_type(f, x, &p);
    hlo shown = place(f, hlo_zeros(f, t), &p, false);
    hlo updates = place(f, hlo_broadcast_to(f, values, hlo_type(f, shown)), &p, true);
    hlo_gather_dims g = dims_of(&p);
    hlo r = type_count(&t) ? hlo_scatter(f, op_bool(c, 3) ? "add" : "assign", indexed_first(f, x, &p, false), p.at, updates, &g) : indexed_first(f, x, &p, false);
    op_out(c, indexed_first(f, r, &p, true));
}

/* clang-format off */
const op_row ops_advanced[] = {
    { "index.Tensor",          index_read },
    { "_unsafe_index.Tensor",  index_read },
    { "index_put",             index_write },
    { "_index_put_impl",       index_write },
    { "_unsafe_index_put",     index_write },
    { NULL },
};
/* clang-format on */
