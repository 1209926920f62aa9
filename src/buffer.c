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

#define DEVICES 64
static struct counts { _Atomic int64_t live, peak, count; } counts[DEVICES];

static struct counts *counts_of(int device) { return &counts[device >= 0 && device < DEVICES ? device : 0]; }

static void count(int device, int64_t bytes, int one)
{
    struct counts *c = counts_of(device);
    int64_t now = atomic_fetch_add_explicit(&c->live, bytes, memory_order_relaxed) + bytes;
    atomic_fetch_add_explicit(&c->count, one, memory_order_relaxed);
    int64_t peak = atomic_load_explicit(&c->peak, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak_explicit(&c->peak, &peak, now, memory_order_relaxed, memory_order_relaxed)) {}
}

void buffer_memory_stats(int device, buffer_memory *out)
{
    const struct counts *c = counts_of(device);
    *out = (buffer_memory){.live = c->live, .peak = c->peak, .count = c->count};
}

void buffer_memory_reset_peak(int device) { counts_of(device)->peak = (int64_t)counts_of(device)->live; }

int64_t buffer_live_bytes(void)
{
    int64_t n = 0;
    for (int d = 0; d < DEVICES; d++) n += counts[d].live;
    return n;
}

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
    count(device, type_bytes(type), 1);
    *out = b;
    return NULL;
}

tpu_error *buffer_from_host(pjrt *p, int device, const tpu_type *type, const void *host, const int64_t *byte_strides, buffer **out)
{
    PJRT_Buffer *raw;
    TPU_TRY(pjrt_to_device(p, device, host, type, byte_strides, &raw));
    return buffer_adopt(p, raw, type, device, out);
}

tpu_error *buffer_lend(pjrt *p, int device, const tpu_type *type, const void *host, void (*done)(tpu_error *take_e, void *ctx), void *ctx, buffer **out)
{
    /* The wrapper first: once the plugin has the memory, `done` is called in any case. */
    TPU_TRY(buffer_adopt(p, NULL, type, device, out));
    tpu_error *e = pjrt_lend(p, device, host, type, done, ctx, &(*out)->raw);
    if (e) {
        buffer_release(*out);
        *out = NULL;
    }
    return e;
}

tpu_error *buffer_copy(buffer *b, int device, buffer **out)
{
    PJRT_Buffer *raw;
    TPU_TRY(pjrt_copy(b->p, b->raw, device, &raw));
    return buffer_adopt(b->p, raw, b->type, device, out);
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
    count(b->device, -type_bytes(b->type), -1);
    mem_free(b);
}

int buffer_refs(const buffer *b) { return b->refs; }
const tpu_type *buffer_type(const buffer *b) { return b->type; }
PJRT_Buffer *buffer_raw(const buffer *b) { return b->raw; }

tpu_error *buffer_check(const buffer *b, const tpu_type *want)
{
    if (b->type == want || type_equal(b->type, want)) return NULL;
    text got = {0}, need = {0};
    type_words(b->type, &got);
    type_words(want, &need);
    tpu_error *e = got.failed || need.failed ? tpu_fail_memory() : tpu_fail(TPU_INTERNAL, "a program wants %s, its input is %s", need.at, got.at);
    text_free(&got);
    text_free(&need);
    return e;
}

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
