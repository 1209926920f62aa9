/* hlo_collective.c - collectives.  They are effects [D1]: a program keeps them, in call order, whoever reads the result.
 * collective_broadcast is missing on purpose: neither XLA:CPU nor a TPU has it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hlo_internal.h"

static hlo emit_effect(hlo_fn *f, const char *op, const hlo *in, int nin, tpu_type t)
{
    hlo out = HLO_NONE;
    hlo_emit_many(f, op, in, nin, NULL, 0, true, &t, 1, &out);
    return f->error ? HLO_NONE : out;
}

/* The end of the attributes: ", channel_handle = ..., use_global_device_ids}" or "}". */
static void put_channel(text *m, int64_t channel, bool global_ids)
{
    if (channel) {
        text_puts(m, ", channel_handle = #stablehlo.channel_handle<handle = ");
        text_int(m, channel);
        text_puts(m, global_ids ? ", type = 1>, use_global_device_ids" : ", type = 1>");
    }
    text_put(m, "}", 1);
}

/* "replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>" */
static void put_rows(text *m, const char *name, const int64_t *v, int rows, int columns)
{
    text_puts(m, name);
    text_puts(m, " = dense<[");
    for (int r = 0; r < rows; r++) hlo_list(m, r ? ", [" : "[", v + (size_t)r * (size_t)columns, columns, "]");
    text_puts(m, "]> : tensor<");
    text_int(m, rows);
    text_put(m, "x", 1);
    text_int(m, columns);
    text_puts(m, "xi64>");
}

static bool groups_fit(hlo_fn *f, const char *op, hlo x, int dim, const hlo_groups *g)
{
    if (!hlo_usable(f, op, &x, 1)) return false;
    if (g->ngroups > 0 && g->size > 0 && dim >= 0 && dim < (hlo_rank(f, x) ? hlo_rank(f, x) : 1)) return true;
    hlo_fail(f, TPU_PRECONDITION, "%s: no group, or no dimension %d", op, dim);
    return false;
}

hlo hlo_all_reduce(hlo_fn *f, const char *op, hlo x, const hlo_groups *g)
{
    if (!groups_fit(f, "all_reduce", x, 0, g)) return HLO_NONE;
    text *m = hlo_mid(f);
    hlo_put_body(m, op, hlo_dtype(f, x));
    put_rows(m, "{replica_groups", g->rank, g->ngroups, g->size);
    put_channel(m, g->channel, true);
    return emit_effect(f, "all_reduce", &x, 1, hlo_type(f, x));
}

hlo hlo_all_gather(hlo_fn *f, hlo x, int dim, const hlo_groups *g)
{
    if (!groups_fit(f, "all_gather", x, dim, g)) return HLO_NONE;
    tpu_type t = hlo_type(f, x);
    if (!t.rank) return hlo_all_gather(f, hlo_reshape(f, x, 1, (int64_t[]){1}), 0, g);
    t.dim[dim] *= g->size;
    t.bounded &= (uint16_t)~(1u << dim);
    text *m = hlo_mid(f);
    text_puts(m, "{all_gather_dim = ");
    text_int(m, dim);
    put_rows(m, " : i64, replica_groups", g->rank, g->ngroups, g->size);
    put_channel(m, g->channel, true);
    return emit_effect(f, "all_gather", &x, 1, t);
}

static bool divides(hlo_fn *f, const char *op, hlo x, int dim, const hlo_groups *g)
{
    if (hlo_rank(f, x) && hlo_dim(f, x, dim) % g->size == 0) return true;
    hlo_fail(f, TPU_PRECONDITION, "%s: dimension %d has %lld elements, which %d ranks do not divide", op, dim,
             (long long)hlo_dim(f, x, dim), g->size);
    return false;
}

hlo hlo_reduce_scatter(hlo_fn *f, const char *op, hlo x, int dim, const hlo_groups *g)
{
    if (!groups_fit(f, "reduce_scatter", x, dim, g) || !divides(f, "reduce_scatter", x, dim, g)) return HLO_NONE;
    tpu_type t = hlo_type(f, x);
    t.dim[dim] /= g->size;
    t.bounded &= (uint16_t)~(1u << dim);
    text *m = hlo_mid(f);
    hlo_put_body(m, op, hlo_dtype(f, x));
    text_puts(m, "{scatter_dimension = ");
    text_int(m, dim);
    put_rows(m, " : i64, replica_groups", g->rank, g->ngroups, g->size);
    put_channel(m, g->channel, true);
    return emit_effect(f, "reduce_scatter", &x, 1, t);
}

hlo hlo_all_to_all(hlo_fn *f, hlo x, int split, int concat, const hlo_groups *g)
{
    if (!groups_fit(f, "all_to_all", x, split, g) || !groups_fit(f, "all_to_all", x, concat, g) ||
        !divides(f, "all_to_all", x, split, g))
        return HLO_NONE;
    tpu_type t = hlo_type(f, x);
    t.dim[split] /= g->size;
    t.dim[concat] *= g->size;
    t.bounded &= (uint16_t)~(1u << split | 1u << concat);
    text *m = hlo_mid(f);
    text_puts(m, "{concat_dimension = ");
    text_int(m, concat);
    put_rows(m, " : i64, replica_groups", g->rank, g->ngroups, g->size);
    text_puts(m, ", split_count = ");
    text_int(m, g->size);
    text_puts(m, " : i64, split_dimension = ");
    text_int(m, split);
    text_puts(m, " : i64");
    put_channel(m, g->channel, false);
    return emit_effect(f, "all_to_all", &x, 1, t);
}

hlo hlo_collective_permute(hlo_fn *f, hlo x, const int64_t *pairs, int n, int64_t channel)
{
    if (!hlo_usable(f, "collective_permute", &x, 1)) return HLO_NONE;
    if (n < 1) {
        hlo_fail(f, TPU_PRECONDITION, "collective_permute: no pairs");
        return HLO_NONE;
    }
    text *m = hlo_mid(f);
    put_rows(m, "{source_target_pairs", pairs, n, 2);
    put_channel(m, channel, false);
    return emit_effect(f, "collective_permute", &x, 1, hlo_type(f, x));
}

hlo hlo_rank_id(hlo_fn *f, bool partition)
{
    if (f->error) return HLO_NONE;
    tpu_type t = type_scalar(TPU_U32);
    hlo_mid(f);
    return hlo_emit_type(f, partition ? "partition_id" : "replica_id", NULL, 0, &t);
}
