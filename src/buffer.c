/* buffer.c - device memory with a count of its owners.
 * SPDX-License-Identifier: Apache-2.0 */
#include "buffer.h"

#include <stdatomic.h>

struct buffer {
    pjrt *p;
    PJRT_Buffer *raw;
    const tpu_type *type;
    int device;
    atomic_int refs;
    atomic_bool ready;
    _Atomic(const char *) at;       /* host address, once asked for */
};

static _Atomic int64_t live;

tpu_error *buffer_adopt(pjrt *p, PJRT_Buffer *take_b, const tpu_type *type, int device, buffer **out)
{
    buffer *b = mem_new(sizeof *b);
    if (!b) {
        pjrt_buffer_free(p, take_b);
        return tpu_fail_memory();
    }
    b->p = p;
    b->raw = take_b;
    b->type = type;
    b->device = device;
    b->refs = 1;
    live += type_bytes(type);
    *out = b;
    return NULL;
}

tpu_error *buffer_from_host(pjrt *p, int device, const tpu_type *type, const void *host, const int64_t *byte_strides, buffer **out)
{
    PJRT_Buffer *raw;
    TPU_TRY(pjrt_to_device(p, device, host, type, byte_strides, &raw));
    return buffer_adopt(p, raw, type, device, out);
}

buffer *buffer_retain(buffer *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void buffer_release(buffer *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
    pjrt_buffer_free(b->p, b->raw);
    live -= type_bytes(b->type);
    mem_free(b);
}

int buffer_refs(const buffer *b) { return b->refs; }
const tpu_type *buffer_type(const buffer *b) { return b->type; }
PJRT_Buffer *buffer_raw(const buffer *b) { return b->raw; }
int64_t buffer_live_bytes(void) { return live; }

tpu_error *buffer_wait(buffer *b)
{
    if (b->ready) return NULL;
    TPU_TRY(pjrt_buffer_wait(b->p, b->raw));
    b->ready = true;
    return NULL;
}

bool buffer_ready(buffer *b) { return b->ready || pjrt_buffer_ready(b->p, b->raw); }

tpu_error *buffer_bytes(buffer *b, bool direct, const char **out_at, char **out_copy)
{
    *out_copy = NULL;
    if (b->at) {
        *out_at = b->at;
        return NULL;
    }
    TPU_TRY(buffer_wait(b));
    if (direct) {
        void *at;
        TPU_TRY(pjrt_buffer_pointer(b->p, b->raw, &at));
        *out_at = b->at = at;
        return NULL;
    }
    size_t n = (size_t)type_bytes(b->type);
    char *copy = mem_new(n + 1);
    if (!copy) return tpu_fail_memory();
    tpu_error *e = pjrt_to_host(b->p, b->raw, copy, n);
    if (e) {
        mem_free(copy);
        return e;
    }
    *out_at = *out_copy = copy;
    return NULL;
}
