/* hlo_print.c - prints a function: only what its results need, each op once, before its first use.
 * The walk is iterative, since a chain of ops may be as long as a program; it recurses only into regions.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "hlo_internal.h"

static void print_scope(hlo_fn *f, int scope);

static const hlo_node *node_of(const hlo_fn *f, int value)
{
    return &f->nodes[f->values[value].node];
}

/* Parameters are %arg0, ...; arguments of regions take one number each; an op with several results takes one: %5#1. */
static void put_value(hlo_fn *f, int value)
{
    const hlo_node *n = node_of(f, value);
    int index = value - n->out;
    if (n->form == NODE_PARAM && n->scope == 0) {
        text_put(&f->out, "%arg", 4);
        text_int(&f->out, n->number);
    } else if (n->form == NODE_PARAM) {
        text_put(&f->out, "%", 1);
        text_int(&f->out, n->number + index);
    } else {
        text_put(&f->out, "%", 1);
        text_int(&f->out, n->number);
        if (n->nout > 1) {
            text_put(&f->out, "#", 1);
            text_int(&f->out, index);
        }
    }
}

static void put_values(hlo_fn *f, const int *v, int n)
{
    for (int i = 0; i < n; i++) {
        if (i) text_put(&f->out, ", ", 2);
        put_value(f, v[i]);
    }
}

static void put_type(hlo_fn *f, int value)
{
    size_t len;
    const char *s = type_interned_text(f->values[value].type, &len);
    text_put(&f->out, s, len);
}

static void put_types(hlo_fn *f, const int *v, int n)
{
    for (int i = 0; i < n; i++) {
        if (i) text_put(&f->out, ", ", 2);
        put_type(f, v[i]);
    }
}

static void put_quoted(text *t, const char *s)
{
    text_put(t, "\"", 1);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') text_put(t, "\\", 1);
        if ((unsigned char)*s >= 32) text_put(t, s, 1);
    }
    text_put(t, "\"", 1);
}

static void put_op(hlo_fn *f, const char *op)
{
    if (!strchr(op, '.')) text_put(&f->out, "stablehlo.", 10);
    text_puts(&f->out, op);
}

static void print_region(hlo_fn *f, int scope)
{
    const hlo_scope *s = &f->scopes[scope];
    text_put(&f->out, "{\n", 2);
    if (s->nargs) {
        hlo_node *args = &f->nodes[f->values[s->first_arg].node];
        args->number = f->next_number;
        f->next_number += s->nargs;
        text_put(&f->out, "^bb0(", 5);
        for (int i = 0; i < s->nargs; i++) {
            if (i) text_put(&f->out, ", ", 2);
            put_value(f, s->first_arg + i);
            text_put(&f->out, ": ", 2);
            put_type(f, s->first_arg + i);
        }
        text_put(&f->out, "):\n", 3);
    }
    print_scope(f, scope);
    text_puts(&f->out, s->nresults ? "stablehlo.return " : "stablehlo.return");
    put_values(f, s->results, s->nresults);
    if (s->nresults) text_put(&f->out, " : ", 3);
    put_types(f, s->results, s->nresults);
    text_put(&f->out, "\n}", 2);
}

static void print_generic(hlo_fn *f, const hlo_node *n)
{
    text *t = &f->out;
    text_put(t, "\"", 1);
    put_op(f, n->op);
    text_put(t, "\"(", 2);
    put_values(f, n->in, n->nin);
    text_put(t, ")", 1);
    for (int i = 0; i < n->nregion; i++) {
        text_puts(t, i ? ", " : " (");
        print_region(f, n->region[i]);
    }
    if (n->nregion) text_put(t, ")", 1);
    if (n->nmid) {
        text_put(t, " ", 1);
        text_put(t, n->mid, n->nmid);
    }
    text_put(t, " : (", 4);
    put_types(f, n->in, n->nin);
    text_put(t, ") -> ", 5);
    if (n->nout != 1) text_put(t, "(", 1);
    for (int i = 0; i < n->nout; i++) {
        if (i) text_put(t, ", ", 2);
        put_type(f, n->out + i);
    }
    if (n->nout != 1) text_put(t, ")", 1);
}

static void print_node(hlo_fn *f, hlo_node *n)
{
    text *t = &f->out;
    n->number = f->next_number++;
    if (n->nout) {
        text_put(t, "%", 1);
        text_int(t, n->number);
        if (n->nout > 1) {
            text_put(t, ":", 1);
            text_int(t, n->nout);
        }
        text_put(t, " = ", 3);
    }
    switch ((node_form)n->form) {
    case NODE_CONST:
        text_put(t, "stablehlo.constant dense<", 25);
        text_put(t, n->mid, n->nmid);
        text_put(t, "> : ", 4);
        put_type(f, n->out);
        break;
    case NODE_SAME:
        put_op(f, n->op);
        text_put(t, " ", 1);
        put_values(f, n->in, n->nin);
        text_put(t, " : ", 3);
        put_type(f, n->out);
        break;
    case NODE_GENERIC:
        print_generic(f, n);
        break;
    case NODE_PARAM:
        break;
    }
    if (n->loc && f->loc_in_text) {
        text_put(t, " loc(", 5);
        put_quoted(t, n->loc);
        text_put(t, ")", 1);
    }
    text_put(t, "\n", 1);
}

/* ---- the walk ---- */

static bool inside(const hlo_fn *f, int scope, int region)
{
    while (scope >= 0 && f->scopes[scope].depth > f->scopes[region].depth) scope = f->scopes[scope].parent;
    return scope == region;
}

static bool push(hlo_fn *f, int node)
{
    if (!mem_reserve(&f->stack, &f->stack_cap, f->nstack + 1, sizeof *f->stack)) {
        hlo_fail_memory(f);
        return false;
    }
    f->stack[f->nstack].node = node;
    f->stack[f->nstack++].next = 0;
    return true;
}

/* What a walk through a region has met outside it. */
typedef struct captured { int region; int *value; int count, cap; } captured;

static void need_inside(hlo_fn *f, int node)
{
    if (node < 0 || f->nodes[node].mark == f->walk) return;
    f->nodes[node].mark = f->walk;
    push(f, node);
}

/* One more value that a region needs: walked if it stands inside, else captured. */
static void need(hlo_fn *f, captured *c, int value)
{
    int id = f->values[value].node;
    if (f->nodes[id].mark == f->walk) return;
    if (inside(f, f->nodes[id].scope, c->region)) {
        need_inside(f, id);
    } else if (c->count < c->cap) {
        f->nodes[id].mark = f->walk;
        c->value[c->count++] = value;
    }
}

static void need_results(hlo_fn *f, captured *c, int scope)
{
    const hlo_scope *s = &f->scopes[scope];
    for (int i = 0; i < s->nresults; i++) need(f, c, s->results[i]);
    need_inside(f, s->last_effect);
}

/* Values from outside that the regions of a node use: it needs them as it needs its operands. */
static void find_captures(hlo_fn *f, int id)
{
    captured c = {.cap = (int)f->nnodes};
    c.value = mem_new((size_t)c.cap * sizeof *c.value);
    if (!c.value) {
        hlo_fail_memory(f);
        return;
    }
    size_t base = f->nstack;
    f->walk++;
    for (int r = 0; r < f->nodes[id].nregion; r++) {
        c.region = f->nodes[id].region[r];
        need_results(f, &c, c.region);
        while (f->nstack > base && !f->error) {
            const hlo_node *n = &f->nodes[f->stack[--f->nstack].node];
            for (int i = 0; i < n->nin; i++) need(f, &c, n->in[i]);
            need_inside(f, n->before);
            for (int i = 0; i < n->nregion; i++) need_results(f, &c, n->region[i]);
        }
    }
    f->nstack = base;
    int *kept = c.count ? hlo_arena(f, (size_t)c.count * sizeof *kept) : NULL;
    if (kept) memcpy(kept, c.value, (size_t)c.count * sizeof *kept);
    f->nodes[id].captures = kept;
    f->nodes[id].ncaptures = kept ? c.count : 0;
    mem_free(c.value);
}

static void visit(hlo_fn *f, int scope, int node)
{
    hlo_node *n = &f->nodes[node];
    if (n->scope != scope || n->state || n->form == NODE_PARAM || !push(f, node)) return;
    n->state = 1;
    if (n->nregion && !f->scopes[n->region[0]].closed_off) find_captures(f, node);
}

static void print_scope(hlo_fn *f, int scope)
{
    size_t base = f->nstack;
    int nroots = f->scopes[scope].nresults + 1;
    for (int r = 0; r < nroots && !f->error; r++) {
        int root = r < nroots - 1 ? f->values[f->scopes[scope].results[r]].node : f->scopes[scope].last_effect;
        if (root >= 0) visit(f, scope, root);
        while (f->nstack > base && !f->error) {
            int id = f->stack[f->nstack - 1].node, next = f->stack[f->nstack - 1].next++;
            const hlo_node *n = &f->nodes[id];
            if (next < n->nin) {
                visit(f, scope, f->values[n->in[next]].node);
            } else if (next < n->nin + n->ncaptures) {
                visit(f, scope, f->values[n->captures[next - n->nin]].node);
            } else if (next == n->nin + n->ncaptures) {
                if (n->before >= 0) visit(f, scope, n->before);
            } else {
                f->nstack--;
                print_node(f, &f->nodes[id]);
            }
        }
    }
    f->nstack = base;
}

/* ---- the module ---- */

static void print_params(hlo_fn *f, int nresults)
{
    text *t = &f->out;
    for (int p = 0; p < (int)f->nparams; p++) {
        text_puts(t, p ? ", %arg" : "%arg");
        text_int(t, p);
        text_put(t, ": ", 2);
        put_type(f, f->params[p].value);
        int output = f->params[p].alias - 1;
        if (output < 0) continue;
        if (output >= nresults) {
            hlo_fail(f, TPU_INTERNAL, "parameter %d is donated to output %d of %d", p, output, nresults);
            return;
        }
        text_puts(t, " {tf.aliasing_output = ");
        text_int(t, output);
        text_puts(t, " : i32}");
    }
}

void hlo_print_module(hlo_fn *f, const hlo *results, int n)
{
    int *r = hlo_arena(f, (size_t)(n ? n : 1) * sizeof *r);
    if (!r) return;
    for (int i = 0; i < n; i++) r[i] = results[i].id;
    f->scopes[0].results = r;
    f->scopes[0].nresults = n;
    for (size_t i = 0; i < f->nnodes; i++) f->nodes[i].state = 0;
    f->next_number = 0;
    text *t = &f->out;
    text_clear(t);
    text_puts(t, "module @m {\nfunc.func public @main(");
    print_params(f, n);
    text_puts(t, ") -> (");
    put_types(f, r, n);
    text_puts(t, ") {\n");
    print_scope(f, 0);
    text_puts(t, n ? "return " : "return");
    put_values(f, r, n);
    if (n) text_puts(t, " : ");
    put_types(f, r, n);
    text_puts(t, "\n}\n}\n");
    if (t->failed) hlo_fail_memory(f);
}
