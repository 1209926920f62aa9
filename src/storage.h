/* storage.h - what a tensor's storage points at: one value, pending in a trace or on the device [A1].
 * Everything here is called with the engine's lock held (trace.h), but for the functions of engine.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_STORAGE_H
#define TPUTORCH_STORAGE_H

#include "engine.h"
#include "trace.h"

struct storage {
    uint64_t addr;                  /* never dereferenceable, unique among the living */
    size_t nbytes;
    int device, cls;                /* cls: size class of the address range */
    value *val;                     /* shared; NULL: never written, reads as zeros */
    storage *prev, *next;           /* the living, newest first */
};

tpu_error *storage_new_locked(size_t nbytes, int device, storage **out_st) TPU_MUST_USE; /* owned */
/* The storage's value becomes v, which the storage then shares. */
void storage_set(storage *st, value *v);
/* The values to feed for a tensor as it stands, and the way back. */
tpu_error *storage_read(trace *tr, const call_tensor *t, value **out_v) TPU_MUST_USE;    /* shared */
/* v: shape of t, any dtype that casts; t sees the new elements and so does every alias. */
tpu_error *storage_write(trace *tr, const call_tensor *t, value *v) TPU_MUST_USE;
tpu_error *storage_copy_value(trace *tr, value *v, const tpu_type *as, value **out_v) TPU_MUST_USE; /* shared; converts and broadcasts */
tpu_error *storage_transpose_value(trace *tr, value *v, const int64_t *perm, value **out_v) TPU_MUST_USE; /* shared */
tpu_error *storage_zero(trace *tr, const call_tensor *t) TPU_MUST_USE;   /* t reads as zeros from here on */
bool storage_is_zeros(const call_memo *m);              /* the call makes zeros of nothing */
int64_t storage_device_bytes(int device);               /* the device's own size in bytes, for the limit; 0 unknown */

#endif
