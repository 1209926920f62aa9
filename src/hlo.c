/* hlo.c - the graph of one StableHLO function: life, errors, nodes.
 * Equal pure nodes are made once: programs get shorter, and equal subexpressions of a trace cost nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "hlo_internal.h"

static const tpu_type no_type; /* what a value has whose type could not be kept */

/* ---- life ---- */

static int scope_new(hlo_fn *f, int parent)
{
    if (!mem_reserve(&f->scopes, &f->scopes_cap, f->nscopes + 1, sizeof *f->scopes)) return -1;
    int depth = parent < 0 ? 0 : f->scopes[parent].depth + 1;
    f->scopes[f->nscopes] = (hlo_scope){.parent = parent, .depth = depth, .last_effect = -1, .open = true};
    return (int)f->nscopes++;
}

hlo_fn *hlo_new(hlo_target target)
{
    hlo_fn *f = mem_new(sizeof *f);
    if (!f) return NULL;
    f->target = target;
    f->precision = HLO_HIGHEST;
    f->arena = arena_new();
    if (!f->arena || scope_new(f, -1) < 0) {
        hlo_free(f);
        return NULL;
    }
    return f;
}

void hlo_free(hlo_fn *f)
{
    if (!f) return;
    tpu_error_free(f->error);
    arena_free(f->arena);
    mem_free(f->nodes);
    mem_free(f->values);
    mem_free(f->scopes);
    mem_free(f->opens);
    mem_free(f->shared);
    mem_free(f->stack);
    mem_free(f->params);
    text_free(&f->mid);
    text_free(&f->out);
    mem_free(f);
}

hlo_target hlo_target_of(const hlo_fn *f)
{
    return f->target;
}

void hlo_loc(hlo_fn *f, const char *aten)
{
    if (f->error) return;
    f->loc = NULL;
    if (aten && !(f->loc = arena_dup(f->arena, aten, strlen(aten)))) hlo_fail_memory(f);
}

void hlo_loc_in_text(hlo_fn *f, bool on)
{
    f->loc_in_text = on;
}

void hlo_precision(hlo_fn *f, hlo_prec p)
{
    f->precision = p;
}

/* ---- errors ---- */

void hlo_fail(hlo_fn *f, tpu_code code, const char *fmt, ...)
{
    if (f->error) return;
    va_list ap;
    va_start(ap, fmt);
    f->error = tpu_fail_v(code, fmt, ap);
    va_end(ap);
}

void hlo_fail_memory(hlo_fn *f)
{
    if (!f->error) f->error = tpu_fail_memory();
}

bool hlo_failed(const hlo_fn *f)
{
    return f->error != NULL;
}

tpu_error *hlo_error(hlo_fn *f)
{
    return tpu_error_copy(f->error);
}

void *hlo_arena(hlo_fn *f, size_t bytes)
{
    void *p = f->error ? NULL : arena_get(f->arena, bytes);
    if (!p) hlo_fail_memory(f);
    return p;
}

/* ---- values ---- */

static bool known(const hlo_fn *f, hlo x)
{
    return x.id >= 0 && (size_t)x.id < f->nvalues;
}

tpu_type hlo_type(const hlo_fn *f, hlo x)
{
    return known(f, x) ? *f->values[x.id].type : (tpu_type){0};
}

const tpu_type *hlo_type_at(const hlo_fn *f, hlo x)
{
    return f->values[x.id].type;
}

tpu_dtype hlo_dtype(const hlo_fn *f, hlo x)
{
    return known(f, x) ? (tpu_dtype)f->values[x.id].type->dtype : TPU_NONE;
}

int hlo_rank(const hlo_fn *f, hlo x)
{
    return known(f, x) ? f->values[x.id].type->rank : 0;
}

int64_t hlo_dim(const hlo_fn *f, hlo x, int d)
{
    int rank = hlo_rank(f, x);
    if (d < 0) d += rank;
    return d >= 0 && d < rank ? f->values[x.id].type->dim[d] : 1;
}

int64_t hlo_count(const hlo_fn *f, hlo x)
{
    return known(f, x) ? type_count(f->values[x.id].type) : 1;
}

/* A value may be used where its scope is still open and no closed-off region lies between. */
static bool visible(const hlo_fn *f, int scope)
{
    if (scope == f->scope) return true;
    if (!f->scopes[scope].open) return false;
    for (int s = f->scope; s != scope && s >= 0; s = f->scopes[s].parent)
        if (f->scopes[s].closed_off) return false;
    return true;
}

bool hlo_usable(hlo_fn *f, const char *op, const hlo *xs, int n)
{
    if (f->error) return false;
    for (int i = 0; i < n; i++) {
        if (!known(f, xs[i])) {
            hlo_fail(f, TPU_INTERNAL, "%s: operand %d has no value", op, i);
            return false;
        }
        int scope = f->nodes[f->values[xs[i].id].node].scope;
        if (scope != f->scope && !visible(f, scope)) {
            hlo_fail(f, TPU_INTERNAL, "%s: operand %d belongs to a region that is not open here", op, i);
            return false;
        }
    }
    return true;
}

const tpu_type *hlo_intern(hlo_fn *f, const tpu_type *t)
{
    if (f->error) return NULL;
    if (t->dtype == TPU_NONE) {
        hlo_fail(f, TPU_INTERNAL, "a type without a dtype");
        return NULL;
    }
    for (int d = 0; d < t->rank; d++) {
        if (t->dim[d] >= 0) continue;
        hlo_fail(f, TPU_PRECONDITION, "negative size %lld in dimension %d", (long long)t->dim[d], d);
        return NULL;
    }
    const tpu_type *r = type_intern(t);
    if (!r) hlo_fail_memory(f);
    return r;
}

/* ---- attributes ---- */

text *hlo_mid(hlo_fn *f)
{
    text_clear(&f->mid);
    return &f->mid;
}

void hlo_list(text *t, const char *before, const int64_t *v, int n, const char *after)
{
    text_puts(t, before);
    for (int i = 0; i < n; i++) {
        if (i) text_put(t, ", ", 2);
        text_int(t, v[i]);
    }
    text_puts(t, after);
}

void hlo_array(text *t, const char *name, const int64_t *v, int n)
{
    text_puts(t, name);
    hlo_list(t, n ? " = array<i64: " : " = array<i64", v, n, ">");
}

/* ---- nodes ---- */

/* A node with its values, in the current scope; takes f->mid.  NULL after recording the failure. */
static hlo_node *node_new(hlo_fn *f, node_form form, const char *op, const hlo *in, int nin, int nout)
{
    if (f->mid.failed || !mem_reserve(&f->nodes, &f->nodes_cap, f->nnodes + 1, sizeof *f->nodes) ||
        !mem_reserve(&f->values, &f->values_cap, f->nvalues + (size_t)nout, sizeof *f->values)) {
        hlo_fail_memory(f);
        return NULL;
    }
    hlo_node *n = &f->nodes[f->nnodes];
    *n = (hlo_node){.loc = f->loc, .nin = nin, .out = (int)f->nvalues, .nout = nout, .scope = f->scope,
                    .before = -1, .number = -1, .form = (uint8_t)form};
    if (!(n->op = arena_dup(f->arena, op, strlen(op)))) {
        hlo_fail_memory(f);
        return NULL;
    }
    if (nin && !(n->in = hlo_arena(f, (size_t)nin * sizeof *n->in))) return NULL;
    for (int i = 0; i < nin; i++) n->in[i] = in[i].id;
    if (f->mid.len) {
        n->nmid = f->mid.len;
        if (!(n->mid = arena_dup(f->arena, f->mid.at, f->mid.len))) {
            hlo_fail_memory(f);
            return NULL;
        }
    }
    text_clear(&f->mid);
    f->nnodes++;
    f->nvalues += (size_t)nout;
    return n;
}

static uint64_t node_hash(const hlo_fn *f, node_form form, const char *op, const hlo *in, int nin, const tpu_type *type)
{
    hash128 h = hash_word((hash128){0, 0}, (uint64_t)(uintptr_t)type ^ (uint64_t)form << 56);
    h = hash_word(h, (uint64_t)op[0] | (uint64_t)op[1] << 8 | (uint64_t)strlen(op) << 16);
    for (int i = 0; i < nin; i++) h = hash_word(h, (uint64_t)in[i].id);
    if (f->mid.len) h = hash_bytes(h, f->mid.at, f->mid.len);
    h.lo ^= h.hi;
    return h.lo ^ h.lo >> 31;
}

static bool same_node(const hlo_fn *f, const hlo_node *n, node_form form, const char *op, const hlo *in, int nin,
                      const tpu_type *type)
{
    if (n->form != form || n->nin != nin || n->nmid != f->mid.len || f->values[n->out].type != type) return false;
    if (strcmp(n->op, op) != 0) return false;
    for (int i = 0; i < nin; i++)
        if (n->in[i] != in[i].id) return false;
    if (n->nmid && memcmp(n->mid, f->mid.at, n->nmid) != 0) return false;
    /* A constant from outside would make a region carry it; a new one is free. */
    return form == NODE_CONST ? n->scope == f->scope : visible(f, n->scope);
}

static bool shared_grow(hlo_fn *f)
{
    if (f->nshared * 2 < f->shared_cap) return true;
    size_t cap = f->shared_cap ? f->shared_cap * 4 : 64;
    int *table = mem_new(cap * sizeof *table);
    if (!table) {
        hlo_fail_memory(f);
        return false;
    }
    memset(table, -1, cap * sizeof *table);
    for (size_t i = 0; i < f->shared_cap; i++) {
        if (f->shared[i] < 0) continue;
        size_t at = f->nodes[f->shared[i]].hash & (cap - 1);
        while (table[at] >= 0) at = (at + 1) & (cap - 1);
        table[at] = f->shared[i];
    }
    mem_free(f->shared);
    f->shared = table;
    f->shared_cap = cap;
    return true;
}

hlo hlo_emit(hlo_fn *f, node_form form, const char *op, const hlo *in, int nin, const tpu_type *type)
{
    if (f->error || !type || !shared_grow(f)) return HLO_NONE;
    uint64_t hash = node_hash(f, form, op, in, nin, type);
    size_t at = hash & (f->shared_cap - 1);
    for (; f->shared[at] >= 0; at = (at + 1) & (f->shared_cap - 1)) {
        const hlo_node *n = &f->nodes[f->shared[at]];
        if (n->hash == hash && same_node(f, n, form, op, in, nin, type)) {
            text_clear(&f->mid);
            return (hlo){n->out};
        }
    }
    hlo_node *n = node_new(f, form, op, in, nin, 1);
    if (!n) return HLO_NONE;
    n->hash = hash;
    f->shared[at] = (int)(n - f->nodes);
    f->nshared++;
    f->values[n->out] = (hlo_value){type, (int)(n - f->nodes)};
    return (hlo){n->out};
}

hlo hlo_emit_type(hlo_fn *f, const char *op, const hlo *in, int nin, const tpu_type *type)
{
    return hlo_emit(f, NODE_GENERIC, op, in, nin, hlo_intern(f, type));
}

static bool region_has_effect(const hlo_fn *f, const int *region, int n)
{
    for (int i = 0; i < n; i++)
        if (f->scopes[region[i]].last_effect >= 0) return true;
    return false;
}

void hlo_emit_many(hlo_fn *f, const char *op, const hlo *in, int nin, const int *region, int nregion, bool effect,
                   const tpu_type *types, int nout, hlo *out)
{
    if (f->error) return;
    int *regions = NULL;
    if (nregion && !(regions = hlo_arena(f, (size_t)nregion * sizeof *regions))) return;
    for (int i = 0; i < nregion; i++) regions[i] = region[i];
    hlo_node *n = node_new(f, NODE_GENERIC, op, in, nin, nout);
    if (!n) return;
    int id = (int)(n - f->nodes);
    n->region = regions;
    n->nregion = nregion;
    n->effect = effect || region_has_effect(f, region, nregion);
    if (n->effect) {
        n->before = f->scopes[f->scope].last_effect;
        f->scopes[f->scope].last_effect = id;
    }
    for (int i = 0; i < nout; i++) f->values[n->out + i] = (hlo_value){NULL, id};
    for (int i = 0; i < nout; i++) {
        const tpu_type *t = hlo_intern(f, &types[i]);
        if (!t) t = &no_type;
        f->values[f->nodes[id].out + i].type = t;
    }
    for (int i = 0; i < nout; i++) out[i] = (hlo){f->nodes[id].out + i};
}

/* ---- parameters, regions ---- */

hlo hlo_param(hlo_fn *f, tpu_type type)
{
    const tpu_type *t = hlo_intern(f, &type);
    if (!t) return HLO_NONE;
    if (f->scope != 0) {
        hlo_fail(f, TPU_INTERNAL, "a region cannot have the function's parameters");
        return HLO_NONE;
    }
    if (!mem_reserve(&f->params, &f->params_cap, f->nparams + 1, sizeof *f->params)) {
        hlo_fail_memory(f);
        return HLO_NONE;
    }
    hlo_mid(f);
    hlo_node *n = node_new(f, NODE_PARAM, "param", NULL, 0, 1);
    if (!n) return HLO_NONE;
    n->number = (int)f->nparams;
    f->params[f->nparams].value = n->out;
    f->params[f->nparams++].alias = 0;
    f->values[n->out] = (hlo_value){t, (int)(n - f->nodes)};
    return (hlo){n->out};
}

void hlo_param_alias(hlo_fn *f, hlo param, int output)
{
    if (f->error) return;
    const hlo_node *n = known(f, param) ? &f->nodes[f->values[param.id].node] : NULL;
    if (!n || n->form != NODE_PARAM || n->scope != 0 || output < 0)
        hlo_fail(f, TPU_INTERNAL, "only a parameter can be donated to an output");
    else
        f->params[n->number].alias = output + 1;
}

void hlo_region_begin(hlo_fn *f, const tpu_type *types, int n, bool closed_off, hlo *args)
{
    for (int i = 0; i < n; i++) args[i] = HLO_NONE;
    if (f->error) return;
    int scope = scope_new(f, f->scope);
    if (scope < 0) {
        hlo_fail_memory(f);
        return;
    }
    f->scope = scope;
    f->scopes[scope].closed_off = closed_off;
    f->scopes[scope].nargs = n;
    f->scopes[scope].first_arg = (int)f->nvalues;
    text_clear(&f->mid);
    hlo_node *node = node_new(f, NODE_PARAM, "argument", NULL, 0, n);
    if (!node) return;
    int id = (int)(node - f->nodes), first = node->out;
    for (int i = 0; i < n; i++) f->values[first + i] = (hlo_value){NULL, id};
    for (int i = 0; i < n; i++) {
        const tpu_type *t = hlo_intern(f, &types[i]);
        f->values[first + i].type = t ? t : &no_type;
    }
    for (int i = 0; i < n && !f->error; i++) args[i] = (hlo){first + i};
}

int hlo_region_end(hlo_fn *f, const hlo *results, int n)
{
    if (!hlo_usable(f, "return", results, n)) return -1;
    int *r = hlo_arena(f, (size_t)(n ? n : 1) * sizeof *r);
    if (!r) return -1;
    for (int i = 0; i < n; i++) r[i] = results[i].id;
    int scope = f->scope;
    f->scopes[scope].results = r;
    f->scopes[scope].nresults = n;
    f->scopes[scope].open = false;
    f->scope = f->scopes[scope].parent;
    return scope;
}

tpu_error *hlo_finish(hlo_fn *f, const hlo *results, int n, const char **out_text, size_t *out_len)
{
    *out_text = NULL;
    *out_len = 0;
    if (f->scope != 0) hlo_fail(f, TPU_INTERNAL, "a region was begun and not ended");
    if (hlo_usable(f, "return", results, n)) hlo_print_module(f, results, n);
    if (f->error) return tpu_error_copy(f->error);
    *out_text = f->out.at;
    *out_len = f->out.len;
    return NULL;
}
