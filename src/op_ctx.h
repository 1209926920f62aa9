/* op_ctx.h - one call being lowered: what stands behind op_ctx.  Private to ops.c and call.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_OP_CTX_H
#define TPUTORCH_OP_CTX_H

#include "ops.h"

typedef enum op_tag { OP_T_NONE, OP_T_TENSOR, OP_T_TENSORS, OP_T_NUM, OP_T_NUMS, OP_T_INTS, OP_T_STR, OP_T_GEN } op_tag;

/* A tensor argument: where its value comes from. */
typedef struct op_tensor {
    int32_t in;                     /* index into op_ctx.in; -1: undefined; -2: a host scalar of this dtype */
    uint8_t dtype;
    bool wrapped, strided;          /* strided: not contiguous, only for rows with OP_STRIDES */
} op_tensor;

typedef struct op_arg {
    uint8_t tag;                    /* op_tag */
    bool fixed;                     /* numbers: part of the program, value in num / nums */
    bool is_default;
    uint32_t n;
    union {
        op_tensor *t;               /* one for TENSOR, n for TENSORS */
        op_num *num;                /* one for NUM, n for NUMS; run-time ones carry only the kind */
        int64_t *ints;
        char *s;
    };
} op_arg;

/* A run-time scalar that the lowering asked for. */
typedef struct op_slot { uint8_t cls, what; int16_t arg; int32_t elem; } op_slot;
enum { OP_SLOT_F32, OP_SLOT_I64, OP_SLOT_F64 };                         /* cls */
enum { OP_SLOT_NUMBER, OP_SLOT_IMAG, OP_SLOT_SEED, OP_SLOT_OFFSET, OP_SLOT_HOST, OP_SLOT_HOST_IMAG }; /* what */
typedef struct op_written { int16_t arg; int32_t elem; } op_written;

struct op_ctx {
    hlo_fn *f;
    const op_row *row;
    int nargs;
    const op_arg *arg;
    const hlo *in;
    /* Learning (first run): slots are collected.  Later: slot values are given. */
    bool learning;
    op_slot *slot; int nslot, slot_cap;
    const hlo *slot_in;
    hlo *ret; size_t nret, ret_cap;
    hlo *write; op_written *written; size_t nwrite, write_cap, written_cap;
    hlo *guard; const char **guard_msg; size_t nguard, guard_cap, guard_msg_cap;
    int64_t draws;
    op_ctx *outer;                  /* op_delegate: the call whose arguments these are, and which */
    const op_pick *pick;
};

#endif
