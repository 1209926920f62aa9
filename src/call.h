/* call.h - a row applied to arguments: what the dispatcher hands over, and the memo of what such a call is.
 * (row, argument types, attributes) -> output types, hash, run-time slots.  A miss runs the lowering once.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_CALL_H
#define TPUTORCH_CALL_H

#include "ops.h"

typedef struct storage storage;                         /* storage.h */
typedef struct rng rng;                                 /* engine.h: a torch.Generator's seed and offset */

/* ---- an ATen overload, made once from PyTorch's schema ---- */
typedef enum call_kind { CALL_K_OTHER, CALL_K_TENSOR, CALL_K_TENSORS, CALL_K_SCALAR, CALL_K_SCALARS, CALL_K_INT, CALL_K_INTS,
    CALL_K_FLOAT, CALL_K_FLOATS, CALL_K_BOOL, CALL_K_STR, CALL_K_DTYPE, CALL_K_GENERATOR } call_kind;
typedef enum call_form { CALL_FUNCTIONAL, CALL_INPLACE, CALL_OUT } call_form;

typedef op_num call_num;                                /* a Python number, ops.h */

typedef struct call_param {
    uint8_t kind;                                       /* call_kind */
    bool written;                                       /* the schema says (a!) */
    bool has_default;
    call_num def;                                       /* when has_default and a number */
} call_param;

#define CALL_MAX_ARGS 40
typedef struct call_op {
    const op_row *row;                                  /* NULL: no row, the glue falls back to the CPU */
    const char *name;                                   /* "add_.Tensor"; owned */
    call_form form;
    int nargs, nouts;                                   /* out= arguments stand last and are not in the row's numbering */
    uint64_t written;                                   /* bit i: argument i is written (schema or row) */
    call_param param[CALL_MAX_ARGS];
    uint64_t id;                                        /* row identity for hashes: depends on the name only */
} call_op;
/* nargs counts all schema arguments, out= ones included.  Finds the row: "add_.Tensor" and "add.out" find "add.Tensor". */
TPU_API tpu_error *call_op_new(const char *name, int nargs, const call_param *params, call_form form, const char *functional_name,
                               call_op **out_op) TPU_MUST_USE;  /* owned, lives for ever */

/* ---- arguments, borrowed from the caller for the length of the call ---- */
enum { CALL_WRAPPED = 1, CALL_CONJ = 2, CALL_NEG = 4, CALL_LEAF = 8 /* a leaf that requires grad: a parameter */ };
typedef struct call_tensor {
    storage *st;                                        /* NULL: a CPU tensor without dims, its value is num; or undefined */
    const int64_t *size, *stride;                       /* elements */
    int64_t offset;                                     /* elements of dtype; byte_delta comes on top */
    int64_t byte_delta;                                 /* of a storage rebuilt from an interior address, mostly 0 */
    uint8_t rank, dtype, flags;
    bool defined;
    call_num num;
} call_tensor;

typedef enum call_tag { CALL_NONE, CALL_TENSOR, CALL_TENSORS, CALL_NUM, CALL_NUMS, CALL_INTS, CALL_STR, CALL_GEN } call_tag;
typedef struct call_arg {
    uint8_t tag;                                        /* call_tag; ints, bools, dtypes (PyTorch's number), Scalars are CALL_NUM */
    uint32_t n;                                         /* list or string length */
    union {
        const call_tensor *t;                           /* CALL_TENSOR, CALL_TENSORS */
        call_num num;
        const call_num *nums;
        const int64_t *ints;
        const char *s;                                  /* not '\0'-ended */
        rng *gen;
    };
} call_arg;

/* ---- the memo ---- */
#define CALL_SLOT_CLASSES 3                             /* packed buffers of a launch: f32, i64, f64 */
typedef struct op_slot call_slot;                       /* op_ctx.h: class, what, argument, element */
typedef struct call_write { int16_t arg; int32_t elem; int32_t result; } call_write; /* result: index into results below */

typedef struct call_memo {
    const call_op *op;
    hash128 hash;                                       /* of row, types, attributes: part of program keys */
    int nin;                                            /* tensor inputs with a value, in argument order (lists flattened) */
    const tpu_type **in_type;
    int nresult;                                        /* everything the lowering gives: returns, then writes, then guards */
    const tpu_type **result;                            /* NULL: undefined */
    int nret;                                           /* results[0..nret) are the returns (some undefined) */
    int nwrite; call_write *write;
    int nguard; const char **guard;                     /* results[nresult - nguard ..): bool, any true: raise guard[i] */
    int nslot; call_slot *slot;
    int64_t draws;                                      /* numbers reserved from the generator */
    bool pure;                                          /* equal calls may be merged: no slots, not random */
    void *args;                                         /* private: the frozen attributes for lowering again */
    uint64_t calls;
} call_memo;

/* The memo entry of this call.  `in` are the types of the tensor inputs as the trace will feed them (views already read):
 * interned, one a defined tensor in argument order, lists flattened; host scalars have a rank-0 type and wrapped flag from args.
 * A shape or dtype error is raised here, once, at the user's line. */
tpu_error *call_lookup(const call_op *op, const call_arg *args, const tpu_type *const *in, const call_memo **out_memo) TPU_MUST_USE;
/* Lowers the call into f: in[] are the inputs, slot[] the run-time scalars (hlo scalars of their class's dtype), results[nresult]. */
void call_lower(const call_memo *m, hlo_fn *f, const hlo *in, const hlo *slot, hlo *results);
TPU_API hlo_target call_target(void);                   /* of the default device, for inference; set by the engine */
void call_set_target(hlo_target t);
void call_set_precision(hlo_prec p);                    /* part of every memo key of ops that contract */
TPU_API void call_stats(uint64_t *hits, uint64_t *misses);

#endif
