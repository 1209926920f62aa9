/* ops.h - rows of operators, and what a lowering may ask.
 * A row holds the ATen name of the functional overload (the in-place one where no functional form exists: "normal_",
 * "_fused_adamw_") and its lowering.  In-place and out= forms follow from PyTorch's schema, never written here.
 * A lowering is a pure function from the call's arguments to hlo values: it is run once in a scratch function to learn
 * the output types, and again whenever the call is part of a program; both runs must ask for the same things in the
 * same order.  It sees neither PJRT nor PyTorch.  Errors stick in the hlo_fn: check nothing, return early if you like.
 * To add an op: a row in one file under src/ops/, and a function above it if no family function fits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_OPS_H
#define TPUTORCH_OPS_H

#include "hlo.h"

typedef struct op_ctx op_ctx;                           /* one call being lowered */
typedef struct op_row op_row;
typedef void (*op_lower)(op_ctx *c);

/* A Python number: kind is TPU_BOOL, TPU_I64 (i), TPU_F64 (re) or TPU_C128 (re, im); TPU_NONE: none. */
typedef struct op_num { uint8_t kind; int64_t i; double re, im; } op_num;

/* Row flags. */
enum {
    OP_FIXED = 1,       /* every number is part of the program: op_number works on all of them, none is run-time data */
    OP_RANDOM = 2,      /* draws: op_seed may be asked; never merged with an equal call */
    OP_ELEMENTWISE = 4, /* result strides follow the inputs' as TensorIterator has it (else contiguous) */
    OP_CPU_ONLY = 8,    /* the program holds a host call; no TPU form */
    OP_KEEP = 16,       /* never dropped when its result is unused (collectives) */
    OP_COMPOSITE = 32,  /* PyTorch has a composite kernel; register ours over it all the same */
    OP_NO_FORMS = 64,   /* only the named overload, no in-place or out= form is derived */
    OP_STRIDES = 128,   /* op_contiguous may be asked: a call with other strides is another call */
};

struct op_row {
    const char *name;   /* "add.Tensor", without "aten::"; another namespace is spelled out ("tpu::collective") */
    op_lower lower;
    const char *word;   /* what the family function needs: mostly StableHLO's op ("add"), kept verbatim */
    int flags;
    uint32_t fixed;     /* bit i: the number at argument i is part of the program (as if OP_FIXED for that one) */
    uint32_t mutates;   /* bit i: argument i is written although the schema does not say so (batch norm's statistics) */
    uint32_t data;      /* bit i: the int[] at argument i is run-time data, read by op_scalar_elem (lengths of a batch) */
};

/* ---- the call's arguments, by schema position (0 = first; the same for all forms of the op) ---- */
hlo_fn *op_fn(op_ctx *c);
const op_row *op_row_of(op_ctx *c);
int op_nargs(op_ctx *c);
bool op_has(op_ctx *c, int arg);                        /* given and not None (a tensor: defined) */
hlo op_in(op_ctx *c, int arg);                          /* tensor; HLO_NONE if None.  A 0-dim CPU tensor comes as a run-time scalar. */
int op_len(op_ctx *c, int arg);                         /* length of a list argument (tensors, ints, numbers); 0 for None */
hlo op_elem(op_ctx *c, int arg, int i);                 /* element of Tensor[] or Tensor?[]; HLO_NONE if None */
int64_t op_int(op_ctx *c, int arg);                     /* int, bool, SymInt: part of the program */
int64_t op_int_or(op_ctx *c, int arg, int64_t other);   /* other if None */
bool op_bool(op_ctx *c, int arg);
const int64_t *op_ints(op_ctx *c, int arg, int *n);     /* int[], SymInt[], bool[]; borrowed; NULL and 0 for None */
const char *op_str(op_ctx *c, int arg);                 /* borrowed; NULL for None */
tpu_dtype op_dtype(op_ctx *c, int arg, tpu_dtype other);/* ScalarType?; other if None */
/* Scalar and float arguments are run-time data: the value comes as an hlo scalar converted to dtype t, and changing it
 * compiles nothing.  (A number that equals its schema default, or that the row calls fixed, is a constant.)
 * elem: position in Scalar[]/float[]; 0 for a single one. */
hlo op_scalar(op_ctx *c, int arg, tpu_dtype t);
hlo op_scalar_elem(op_ctx *c, int arg, int elem, tpu_dtype t);
/* What kind of Python number it is, for type promotion: TPU_BOOL, TPU_I64, TPU_F64 or TPU_C128; TPU_NONE if None. */
tpu_dtype op_scalar_kind(op_ctx *c, int arg);
/* The value, only where the row says so (OP_FIXED, fixed bit) or it equals the schema's default; else it sticks an error. */
double op_number(op_ctx *c, int arg);
double op_number_elem(op_ctx *c, int arg, int elem);
bool op_is_default(op_ctx *c, int arg);                 /* the number equals its schema default: a constant of the program */
/* Was this tensor a wrapped Python number (torch.add(x, 2.0) arrives so)?  It ranks lowest in type promotion. */
bool op_wrapped(op_ctx *c, int arg);
bool op_contiguous(op_ctx *c, int arg);                 /* the tensor's strides are those of a fresh one; OP_STRIDES only */

/* Random rows: seed and offset of the generator as i64 scalars (run-time data), and `count` numbers are reserved: element
 * index e of the draw uses counter offset + e [R1].  Ask once a draw. */
void op_seed(op_ctx *c, int64_t count, hlo *seed, hlo *offset);

/* ---- results ---- */
void op_out(op_ctx *c, hlo x);                          /* the next return value; Tensor[] returns: one call an element */
void op_out_none(op_ctx *c);                            /* the next return value is an undefined tensor */
/* Writes to an argument, in rows named after an in-place form, or declared with .mutates: the new value of the whole
 * argument in its own shape and dtype. */
void op_write(op_ctx *c, int arg, hlo x);
void op_write_elem(op_ctx *c, int arg, int elem, hlo x);
void op_fail(op_ctx *c, tpu_code code, const char *fmt, ...) TPU_PRINTF(3, 4); /* in PyTorch's words where known */
/* Flags a device-side fault [E4]: where `bad` (a bool of any shape) is true anywhere, reading this call's results, or
 * anything that depends on them, raises IndexError with this message.  Clamp the index yourself.
 * msg: a static string; with a '!' before the words it is a RuntimeError. */
void op_guard(op_ctx *c, hlo bad, const char *msg);

/* ---- what most families share (ops.c) ---- */
/* Result dtype of PyTorch's promotion over these arguments (tensors, or Scalars: give their positions) [P1]. */
tpu_dtype op_promote(op_ctx *c, const int *args, int n);
tpu_dtype op_promote2(op_ctx *c, int a, int b);
tpu_dtype op_to_float(tpu_dtype t);                     /* integral -> F32 (the default dtype), else t */
hlo op_in_as(op_ctx *c, int arg, tpu_dtype t);          /* op_in converted; Scalars too */
/* The argument in its compute type (bfloat16 and float16 in float32): compute there, then op_out_as rounds once. */
hlo op_in_math(op_ctx *c, int arg);
void op_out_as(op_ctx *c, hlo x, tpu_dtype t);          /* op_out of x converted */
int op_dim(op_ctx *c, int64_t dim, int rank);           /* wraps a negative dim; PyTorch's message when out of range */
uint32_t op_dims(op_ctx *c, int arg, int rank);         /* int[]? dims as a mask; none, None or empty: all dims */

/* Another row on arguments of this call; what it returns are this call's next results.  pick[i] says which of ours its
 * argument i is (-1: None), in a list which element.  Numbers that are part of its program must be part of this one. */
typedef struct op_pick { int arg, elem; } op_pick;
void op_delegate(op_ctx *c, const char *row, const op_pick *pick, int n);

/* ---- look-up ---- */
/* Every family file ends with `const op_row ops_<file>[] = { ..., {0} };` and stands once in ops.c's list. */
TPU_API const op_row *ops_find(const char *name);       /* borrowed, static; NULL if there is no row */
TPU_API const op_row *ops_at(size_t i);                 /* walk all rows; NULL at the end */

#endif
