/* test_call.c - the memo: hits, run-time numbers, errors at the call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include "op_ctx.h"
#include "test.h"

static const call_tensor some = {.st = (storage *)8, .defined = true};

static call_arg number(int64_t i) { return (call_arg){.tag = CALL_NUM, .num = {.kind = TPU_I64, .i = i}}; }

/* tpu::view_at(base, size, stride, offset, dtype, flags, shown offset): the offset is run-time data. */
static call_op *view_at(void)
{
    static call_op *op;
    call_param p[7] = {{.kind = CALL_K_TENSOR}, {.kind = CALL_K_INTS}, {.kind = CALL_K_INTS}, {.kind = CALL_K_SCALAR},
                       {.kind = CALL_K_DTYPE}, {.kind = CALL_K_INT}, {.kind = CALL_K_INT}};
    if (!op) CHECK_OK(call_op_new("tpu::view_at", 7, p, CALL_FUNCTIONAL, NULL, &op));
    return op;
}

static tpu_error *look_up(int64_t offset, int64_t rows, const call_memo **m)
{
    static const int64_t stride[2] = {4, 1};
    int64_t size[2] = {rows, 4};
    tpu_type t = type_make(TPU_F32, 2, (int64_t[]){6, 4});
    const tpu_type *in[1] = {type_intern(&t)};
    call_arg args[7] = {{.tag = CALL_TENSOR, .n = 1, .t = &some}, {.tag = CALL_INTS, .n = 2, .ints = size},
                        {.tag = CALL_INTS, .n = 2, .ints = stride}, number(offset), number(dtype_to_torch(TPU_F32)), number(0), number(0)};
    if (!in[0]) return tpu_fail_memory();
    const call_op *op = view_at();
    return op ? call_lookup(op, args, in, m) : tpu_fail_memory();
}

TEST(a_run_time_number_does_not_make_a_new_entry)
{
    const call_memo *a = NULL, *b = NULL, *c = NULL;
    CHECK_OK(look_up(4, 2, &a));
    CHECK_OK(look_up(8, 2, &b));
    CHECK_OK(look_up(8, 3, &c));
    if (test_faulting()) return;
    CHECK(a && a == b && a != c);
    CHECK(a->nslot == 1 && a->slot[0].cls == OP_SLOT_I64 && a->slot[0].arg == 3 && !a->pure);
    CHECK(a->nresult == 1 && a->result[0]->rank == 2 && a->result[0]->dim[0] == 2);
    CHECK(!hash_equal(a->hash, c->hash));
}

TEST(a_wrong_call_is_an_error_and_is_asked_again)
{
    static call_op *op;
    call_param p[3] = {{.kind = CALL_K_TENSOR}, {.kind = CALL_K_INTS}, {.kind = CALL_K_DTYPE}};
    if (!op) CHECK_OK(call_op_new("tpu::copy", 3, p, CALL_FUNCTIONAL, NULL, &op));
    tpu_type t = type_make(TPU_F32, 1, (int64_t[]){3});
    const tpu_type *in[1] = {type_intern(&t)};
    static const int64_t size[1] = {4};
    call_arg args[3] = {{.tag = CALL_TENSOR, .n = 1, .t = &some}, {.tag = CALL_INTS, .n = 1, .ints = size}, number(dtype_to_torch(TPU_F32))};
    const call_memo *m = NULL;
    if (!op || !in[0]) return;
    for (int i = 0; i < 2; i++) {
        tpu_error *e = call_lookup(op, args, in, &m);
        CHECK(e != NULL && m == NULL);
        tpu_error_free(e);
    }
}

TEST(an_op_without_a_row_says_so)
{
    static call_op *op;                                 /* an op lives for ever: somebody must point at it */
    CHECK_OK(call_op_new("no_such_op", 0, NULL, CALL_FUNCTIONAL, NULL, &op));
    CHECK(test_faulting() || (op && !op->row));
}
