/* device.h - the process's plugin, client and devices, started at first use; bytes in and out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_DEVICE_H
#define TPUTORCH_DEVICE_H

#include "buffer.h"
#include "cache.h"
#include "engine.h"

cache *device_cache(void);                              /* borrowed for ever; NULL before engine_start */
pjrt *device_pjrt(void);                                /* borrowed for ever */
hlo_target device_target(void);
/* Copies host memory to the device; byte_strides NULL: contiguous [A4]. */
tpu_error *device_upload(int device, const tpu_type *type, const void *host, const int64_t *byte_strides, buffer **out_b) TPU_MUST_USE; /* shared */
/* The bytes of a ready buffer: in place where the device's memory is the host's, else a copy in *out_copy (owned, mem_free). */
bool device_is_host(void);                              /* its memory is the host's */
tpu_error *device_host_view(buffer *b, const char **out_at, char **out_copy) TPU_MUST_USE;
tpu_error *device_number(const void *raw, tpu_dtype t, call_num *out_num) TPU_MUST_USE;

#endif
