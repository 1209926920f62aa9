/* buffer.h - device memory with a count of its owners.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_BUFFER_H
#define TPUTORCH_BUFFER_H

#include "pjrt.h"

typedef struct buffer buffer;

/* All need the plugin that made the buffer; it outlives every buffer. */
tpu_error *buffer_adopt(pjrt *p, PJRT_Buffer *take_b, const tpu_type *type, int device, buffer **out_b) TPU_MUST_USE; /* shared; type interned */
/* Copies; byte_strides NULL: contiguous [A4]. */
tpu_error *buffer_from_host(pjrt *p, int device, const tpu_type *type, const void *host, const int64_t *byte_strides, buffer **out_b) TPU_MUST_USE; /* shared */
/* No copy: the device reads `host`, which starts at a multiple of 64, until `done` is called; not called if this fails. */
tpu_error *buffer_lend(pjrt *p, int device, const tpu_type *type, const void *host, void (*done)(tpu_error *take_e, void *ctx), void *ctx, buffer **out_b) TPU_MUST_USE; /* shared */
tpu_error *buffer_copy(buffer *b, int device, buffer **out_b) TPU_MUST_USE; /* shared; to another or the same device */
buffer *buffer_retain(buffer *b);                       /* shared */
void buffer_release(buffer *b);
int buffer_refs(const buffer *b);
const tpu_type *buffer_type(const buffer *b);           /* borrowed for ever */
PJRT_Buffer *buffer_raw(const buffer *b);               /* borrowed */
tpu_error *buffer_wait(buffer *b) TPU_MUST_USE;         /* waits until the bytes are there, or the error that took their place */
bool buffer_ready(buffer *b);                           /* does not wait; an error counts as ready */
/* The bytes of a ready buffer.  direct: the device's memory is the host's, so they are read in place; else a copy is made
 * in *out_copy (owned, mem_free).  waits */
tpu_error *buffer_bytes(buffer *b, bool direct, const char **out_at, char **out_copy) TPU_MUST_USE;
int64_t buffer_live_bytes(void);                        /* of all devices */
/* A plugin takes any buffer of the right size: whoever launches a program asks this first. */
tpu_error *buffer_check(const buffer *b, const tpu_type *want) TPU_MUST_USE;
typedef struct buffer_memory { int64_t live, peak, count; } buffer_memory; /* bytes, bytes, buffers */
void buffer_memory_stats(int device, buffer_memory *out);
void buffer_memory_reset_peak(int device);

#endif
