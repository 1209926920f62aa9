/* hlo_more.c - convenience in terms of the primitives.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hlo_internal.h"

hlo hlo_like_f(hlo_fn *f, hlo x, double v)
{
    if (!hlo_usable(f, "like", &x, 1)) return HLO_NONE;
    return hlo_const_f(f, hlo_type(f, x), v);
}

hlo hlo_like_i(hlo_fn *f, hlo x, int64_t v)
{
    if (!hlo_usable(f, "like", &x, 1)) return HLO_NONE;
    return hlo_const_i(f, hlo_type(f, x), v);
}

/* ---- broadcasting ---- */

static void fail_broadcast(hlo_fn *f, int64_t a, int64_t b, int dim)
{
    hlo_fail(f, TPU_INVALID,
             "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d",
             (long long)a, (long long)b, dim);
}

tpu_type hlo_broadcast_type(hlo_fn *f, tpu_type a, tpu_type b)
{
    tpu_type r = {.dtype = a.dtype, .rank = a.rank > b.rank ? a.rank : b.rank};
    for (int d = r.rank - 1; d >= 0; d--) {
        int da = d - (r.rank - a.rank), db = d - (r.rank - b.rank);
        int64_t na = da < 0 ? 1 : a.dim[da], nb = db < 0 ? 1 : b.dim[db];
        bool bound_a = da >= 0 && (a.bounded >> da & 1), bound_b = db >= 0 && (b.bounded >> db & 1);
        if (na != nb && na != 1 && nb != 1) {
            fail_broadcast(f, na, nb, d);
            return a;
        }
        r.dim[d] = na == 1 ? nb : na;
        if (na == nb ? bound_a || bound_b : na == 1 ? bound_b : bound_a) r.bounded |= (uint16_t)(1u << d);
    }
    return r;
}

hlo hlo_broadcast_to(hlo_fn *f, hlo x, tpu_type t)
{
    if (!hlo_usable(f, "broadcast", &x, 1)) return HLO_NONE;
    const tpu_type *from = hlo_type_at(f, x);
    if (from->rank > t.rank) {
        hlo_fail(f, TPU_INVALID,
                 "The number of sizes provided (%d) must be greater or equal to the number of dimensions in the tensor (%d)",
                 t.rank, from->rank);
        return HLO_NONE;
    }
    int64_t dims[TYPE_MAX_RANK];
    for (int d = 0; d < from->rank; d++) {
        int at = d + t.rank - from->rank;
        dims[d] = at;
        if (from->dim[d] == 1 || from->dim[d] == t.dim[at]) continue;
        fail_broadcast(f, from->dim[d], t.dim[at], at);
        return HLO_NONE;
    }
    return hlo_broadcast_in_dim(f, x, t, dims);
}

void hlo_broadcast2(hlo_fn *f, hlo *x, hlo *y)
{
    hlo in[2] = {*x, *y};
    if (!hlo_usable(f, "broadcast", in, 2)) return;
    if (hlo_type_at(f, *x) == hlo_type_at(f, *y)) return;
    tpu_type t = hlo_broadcast_type(f, hlo_type(f, *x), hlo_type(f, *y));
    *x = hlo_broadcast_to(f, *x, t);
    *y = hlo_broadcast_to(f, *y, t);
}

void hlo_broadcast3(hlo_fn *f, hlo *x, hlo *y, hlo *z)
{
    hlo in[3] = {*x, *y, *z};
    if (!hlo_usable(f, "broadcast", in, 3)) return;
    tpu_type t = hlo_broadcast_type(f, hlo_type(f, *x), hlo_type(f, *y));
    t = hlo_broadcast_type(f, t, hlo_type(f, *z));
    *x = hlo_broadcast_to(f, *x, t);
    *y = hlo_broadcast_to(f, *y, t);
    *z = hlo_broadcast_to(f, *z, t);
}

/* StableHLO's maximum propagates NaN; an XLA:CPU plugin does so with xla_cpu_enable_fast_min_max=false, which the
 * engine always asks for [N3]. */
hlo hlo_max(hlo_fn *f, hlo x, hlo y)
{
    return hlo_op2(f, "maximum", x, y);
}

hlo hlo_min(hlo_fn *f, hlo x, hlo y)
{
    return hlo_op2(f, "minimum", x, y);
}

hlo hlo_isnan(hlo_fn *f, hlo x)
{
    if (!hlo_usable(f, "isnan", &x, 1)) return HLO_NONE;
    if (dtype_is_integral(hlo_dtype(f, x))) return hlo_const_i(f, type_as(hlo_type(f, x), TPU_BOOL), 0);
    return hlo_compare(f, "NE", x, x);
}

/* ---- shape ---- */

hlo hlo_keepdims(hlo_fn *f, hlo reduced, hlo like, uint32_t dims)
{
    hlo in[2] = {reduced, like};
    if (!hlo_usable(f, "keepdims", in, 2)) return HLO_NONE;
    tpu_type t = hlo_type(f, like);
    for (int d = 0; d < t.rank; d++)
        if (dims >> d & 1) t.dim[d] = 1;
    return hlo_reshape(f, reduced, t.rank, t.dim);
}

hlo hlo_along(hlo_fn *f, hlo reduced, hlo like, uint32_t dims)
{
    hlo in[2] = {reduced, like};
    if (!hlo_usable(f, "along", in, 2)) return HLO_NONE;
    tpu_type t = hlo_type(f, like);
    int64_t kept[TYPE_MAX_RANK];
    int n = 0;
    for (int d = 0; d < t.rank; d++)
        if (!(dims >> d & 1)) kept[n++] = d;
    if (n != hlo_rank(f, reduced)) {
        hlo_fail(f, TPU_INTERNAL, "along: %d dimensions are left, the value has %d", n, hlo_rank(f, reduced));
        return HLO_NONE;
    }
    return hlo_broadcast_in_dim(f, reduced, t, kept);
}

hlo hlo_unsqueeze(hlo_fn *f, hlo x, int dim)
{
    if (!hlo_usable(f, "unsqueeze", &x, 1)) return HLO_NONE;
    tpu_type t = hlo_type(f, x), r = t;
    if (dim < 0) dim += t.rank + 1;
    if (dim < 0 || dim > t.rank || t.rank == TYPE_MAX_RANK) {
        hlo_fail(f, TPU_PRECONDITION, "unsqueeze: no dimension %d", dim);
        return HLO_NONE;
    }
    for (int d = t.rank; d > dim; d--) r.dim[d] = t.dim[d - 1];
    r.dim[dim] = 1;
    return hlo_reshape(f, x, t.rank + 1, r.dim);
}

hlo hlo_squeeze(hlo_fn *f, hlo x, int dim)
{
    if (!hlo_usable(f, "squeeze", &x, 1)) return HLO_NONE;
    tpu_type t = hlo_type(f, x);
    if (dim < 0) dim += t.rank;
    if (dim < 0 || dim >= t.rank || t.dim[dim] != 1) {
        hlo_fail(f, TPU_PRECONDITION, "squeeze: dimension %d is not 1", dim);
        return HLO_NONE;
    }
    for (int d = dim; d + 1 < t.rank; d++) t.dim[d] = t.dim[d + 1];
    return hlo_reshape(f, x, t.rank - 1, t.dim);
}

hlo hlo_swap(hlo_fn *f, hlo x, int a, int b)
{
    if (!hlo_usable(f, "transpose", &x, 1)) return HLO_NONE;
    int rank = hlo_rank(f, x);
    int64_t perm[TYPE_MAX_RANK];
    if (a < 0) a += rank;
    if (b < 0) b += rank;
    if (a < 0 || b < 0 || a >= rank || b >= rank) {
        hlo_fail(f, TPU_PRECONDITION, "transpose: no such dimension");
        return HLO_NONE;
    }
    for (int d = 0; d < rank; d++) perm[d] = d == a ? b : d == b ? a : d;
    return hlo_transpose(f, x, perm);
}

hlo hlo_slice_dim(hlo_fn *f, hlo x, int dim, int64_t start, int64_t limit, int64_t step)
{
    if (!hlo_usable(f, "slice", &x, 1)) return HLO_NONE;
    tpu_type t = hlo_type(f, x);
    int64_t lo[TYPE_MAX_RANK] = {0}, by[TYPE_MAX_RANK];
    if (dim < 0) dim += t.rank;
    if (dim < 0 || dim >= t.rank) {
        hlo_fail(f, TPU_PRECONDITION, "slice: no such dimension");
        return HLO_NONE;
    }
    for (int d = 0; d < t.rank; d++) by[d] = 1;
    lo[dim] = start;
    t.dim[dim] = limit;
    by[dim] = step;
    return hlo_slice(f, x, lo, t.dim, by);
}

hlo hlo_flatten(hlo_fn *f, hlo x)
{
    int64_t n = hlo_count(f, x);
    return hlo_reshape(f, x, 1, &n);
}

/* ---- contraction and access ---- */

hlo hlo_matmul(hlo_fn *f, hlo x, hlo y, tpu_dtype out)
{
    hlo in[2] = {x, y};
    if (!hlo_usable(f, "matmul", in, 2)) return HLO_NONE;
    int rank = hlo_rank(f, x);
    if (rank < 2 || hlo_rank(f, y) != rank) {
        hlo_fail(f, TPU_PRECONDITION, "matmul: expected two operands of one rank, 2 or more");
        return HLO_NONE;
    }
    int64_t batch[TYPE_MAX_RANK], cx = rank - 1, cy = rank - 2;
    for (int d = 0; d < rank - 2; d++) batch[d] = d;
    return hlo_dot(f, x, y, rank - 2, batch, batch, 1, &cx, &cy, out);
}

hlo hlo_take(hlo_fn *f, hlo x, hlo indices, int dim)
{
    hlo in[2] = {x, indices};
    if (!hlo_usable(f, "take", in, 2)) return HLO_NONE;
    tpu_type t = hlo_type(f, x), ti = hlo_type(f, indices);
    if (dim < 0) dim += t.rank;
    if (dim < 0 || dim >= t.rank || t.rank + ti.rank - 1 > TYPE_MAX_RANK) {
        hlo_fail(f, TPU_PRECONDITION, "take: no such dimension");
        return HLO_NONE;
    }
    hlo_gather_dims g = {.ncollapsed = 1, .nmap = 1, .index_vector_dim = ti.rank};
    g.collapsed[0] = g.map[0] = dim;
    for (int d = 0; d < t.rank; d++)
        if (d != dim) g.offset[g.noffset++] = d < dim ? d : d - 1 + ti.rank;
    int64_t sizes[TYPE_MAX_RANK];
    for (int d = 0; d < t.rank; d++) sizes[d] = d == dim ? 1 : t.dim[d];
    return hlo_gather(f, x, indices, &g, sizes);
}
