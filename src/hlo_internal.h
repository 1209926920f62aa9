/* hlo_internal.h - what the hlo*.c files share; nobody else includes it.
 * A function is a graph: nodes with operands, each node with one or more values (an `hlo` is the index of a value).
 * Every node lives in the scope where it was made: scope 0 is the function's body, each region is a scope below another.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_HLO_INTERNAL_H
#define TPUTORCH_HLO_INTERNAL_H

#include "hlo.h"

typedef enum node_form {
    NODE_PARAM,   /* a parameter of the function, or an argument of a region: never printed as an op */
    NODE_CONST,   /* stablehlo.constant dense<mid> : T */
    NODE_SAME,    /* stablehlo.op %a, %b : T, all of one type */
    NODE_GENERIC, /* "stablehlo.op"(%a, %b) ({regions}) {attributes} : (A, B) -> R */
} node_form;

typedef struct hlo_node {
    const char *op;     /* StableHLO's word; owned by the arena or static */
    const char *mid;    /* text between operands and types: attributes, a canned region; or a constant's elements */
    const char *loc;    /* NULL: none */
    int *in;            /* operands */
    const int *region;  /* scopes of the regions */
    int *captures;      /* values from outside that the regions use; filled by hlo_finish */
    uint64_t hash;      /* of a node that can be shared */
    size_t nmid;
    int nin, nregion, ncaptures;
    int out, nout;      /* its values are out .. out + nout - 1 */
    int scope;
    int before;         /* the node with an effect that must come first, -1: none */
    int number;         /* SSA number when printed, -1 before */
    int mark;           /* of the walk that met it last */
    uint8_t form;       /* node_form */
    uint8_t state;      /* of printing: 0 unseen, 1 on the stack, 2 printed */
    bool effect;
} hlo_node;

typedef struct hlo_value {
    const tpu_type *type; /* interned */
    int node;
} hlo_value;

typedef struct hlo_scope {
    int parent, depth;
    int first_arg, nargs; /* values */
    int *results;
    int nresults;
    int last_effect;      /* node, -1: none */
    bool open;            /* being built: its values may be used */
    bool closed_off;      /* nothing from outside may be used inside (bodies of reduce, sort, scatter) */
} hlo_scope;

/* A region op that is being built. */
typedef struct hlo_open {
    const char *op;
    int *in;
    int nin, condition; /* `condition` is the scope of a loop's condition or of a then-branch */
} hlo_open;

struct hlo_fn {
    arena *arena;
    tpu_error *error; /* the first */
    hlo_node *nodes;
    hlo_value *values;
    hlo_scope *scopes;
    hlo_open *opens;
    int *shared;       /* hash table of nodes that may be used again; -1: empty */
    struct { int node, next; } *stack;
    size_t nnodes, nodes_cap, nvalues, values_cap, nscopes, scopes_cap, nopens, opens_cap, shared_cap, nshared;
    size_t nstack, stack_cap;
    text mid;          /* the attributes of the op that is being made */
    text out;          /* the module */
    struct { int value, alias; } *params; /* alias: output + 1 */
    size_t params_cap, nparams;
    const char *loc;
    int scope;         /* the innermost open one */
    int walk;          /* counts walks, for hlo_node.mark */
    int next_number;
    hlo_target target;
    hlo_prec precision;
    bool loc_in_text;
};

/* True if nothing has failed and all n values may be used here; records the failure otherwise. */
bool hlo_usable(hlo_fn *f, const char *op, const hlo *xs, int n);
const tpu_type *hlo_type_at(const hlo_fn *f, hlo x); /* borrowed for ever, interned; x must be usable */
const tpu_type *hlo_intern(hlo_fn *f, const tpu_type *t); /* borrowed for ever; NULL after recording the failure */
void hlo_fail_memory(hlo_fn *f);
void *hlo_arena(hlo_fn *f, size_t bytes);            /* borrowed from f; NULL after recording the failure */

/* Starts the attributes of the next op; hlo_emit takes what was written. */
text *hlo_mid(hlo_fn *f);                            /* borrowed from f */
void hlo_list(text *t, const char *before, const int64_t *v, int n, const char *after); /* "before1, 2after" */
void hlo_array(text *t, const char *name, const int64_t *v, int n);                     /* "name = array<i64: 1, 2>" */

/* A pure op with one result; equal ones are shared. */
hlo hlo_emit(hlo_fn *f, node_form form, const char *op, const hlo *in, int nin, const tpu_type *type);
hlo hlo_emit_type(hlo_fn *f, const char *op, const hlo *in, int nin, const tpu_type *type); /* generic; type is interned here */
/* Any op: several results, regions, effects.  out is left alone on failure, and may be NULL when nout is 0. */
void hlo_emit_many(hlo_fn *f, const char *op, const hlo *in, int nin, const int *region, int nregion, bool effect,
                   const tpu_type *types, int nout, hlo *out);

/* Regions.  begin opens a scope with arguments of these types; end closes the innermost and returns its number, -1 on failure. */
void hlo_region_begin(hlo_fn *f, const tpu_type *types, int n, bool closed_off, hlo *args);
int hlo_region_end(hlo_fn *f, const hlo *results, int n);

/* "({^bb0(%a: T, %b: T): ... stablehlo.return %r : T}) "; "assign" gives the second argument. */
void hlo_put_body(text *m, const char *op, tpu_dtype d);

/* Prints scope's ops and its return into f->out (hlo_print.c). */
void hlo_print_module(hlo_fn *f, const hlo *results, int n);

/* Bits of a number in a floating dtype, rounded as PyTorch does. */
uint64_t hlo_float_bits(tpu_dtype t, double v);

#endif
