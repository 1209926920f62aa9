/* pjrt_run.c - executables, buffers and events.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pjrt_internal.h"

#include <string.h>

/* ---- executables ---- */
PJRT_Program pjrt_program(const char *code, size_t len)
{
    return (PJRT_Program){.struct_size = sizeof(PJRT_Program), .code = (char *)(uintptr_t)code, .code_size = len, .format = "mlir", .format_size = 4};
}

tpu_error *pjrt_compile(pjrt *p, const char *code, size_t len, const char *options, size_t noptions, PJRT_LoadedExecutable **out)
{
    PJRT_Program prog = pjrt_program(code, len);
    ARGS(PJRT_Client_Compile, a);
    a.client = p->client;
    a.program = &prog;
    a.compile_options = options;
    a.compile_options_size = noptions;
    TPU_TRY(CALL(p, PJRT_Client_Compile, &a));
    *out = a.executable;
    return NULL;
}

tpu_error *pjrt_compiled(pjrt *p, PJRT_LoadedExecutable *x, PJRT_Executable **out)
{
    ARGS(PJRT_LoadedExecutable_GetExecutable, g);
    g.loaded_executable = x;
    TPU_TRY(CALL(p, PJRT_LoadedExecutable_GetExecutable, &g));
    *out = g.executable;
    return NULL;
}

void pjrt_compiled_free(pjrt *p, PJRT_Executable *x)
{
    if (!x || pjrt_forked()) return;
    ARGS(PJRT_Executable_Destroy, d);
    d.executable = x;
    tpu_error_free(CALL(p, PJRT_Executable_Destroy, &d));
}

tpu_error *pjrt_compiled_bytes(pjrt *p, const PJRT_Executable *x, text *out)
{
    ARGS(PJRT_Executable_Serialize, s);
    s.executable = x;
    TPU_TRY(CALL(p, PJRT_Executable_Serialize, &s));
    text_put(out, s.serialized_bytes, s.serialized_bytes_size);
    if (s.serialized_executable_deleter) s.serialized_executable_deleter(s.serialized_executable);
    return out->failed ? tpu_fail_memory() : NULL;
}

tpu_error *pjrt_serialize(pjrt *p, PJRT_LoadedExecutable *x, text *out)
{
    PJRT_Executable *inner;
    TPU_TRY(pjrt_compiled(p, x, &inner));
    tpu_error *e = pjrt_compiled_bytes(p, inner, out);
    pjrt_compiled_free(p, inner);
    return e;
}

tpu_error *pjrt_load(pjrt *p, const char *blob, size_t len, PJRT_LoadedExecutable **out)
{
    ARGS(PJRT_Executable_DeserializeAndLoad, a);
    a.client = p->client;
    a.serialized_executable = blob;
    a.serialized_executable_size = len;
    TPU_TRY(CALL(p, PJRT_Executable_DeserializeAndLoad, &a));
    *out = a.loaded_executable;
    return NULL;
}

void pjrt_executable_free(pjrt *p, PJRT_LoadedExecutable *x)
{
    if (!x || pjrt_forked()) return;
    ARGS(PJRT_LoadedExecutable_Destroy, d);
    d.executable = x;
    tpu_error_free(CALL(p, PJRT_LoadedExecutable_Destroy, &d));
}

tpu_error *pjrt_num_outputs(pjrt *p, PJRT_LoadedExecutable *x, size_t *out_n)
{
    PJRT_Executable *inner;
    TPU_TRY(pjrt_compiled(p, x, &inner));
    ARGS(PJRT_Executable_NumOutputs, n);
    n.executable = inner;
    tpu_error *e = CALL(p, PJRT_Executable_NumOutputs, &n);
    *out_n = n.num_outputs;
    pjrt_compiled_free(p, inner);
    return e;
}

tpu_error *pjrt_launch_one(pjrt *p, const pjrt_launch *l)
{
    PJRT_ExecuteOptions o = {.struct_size = sizeof o, .launch_id = l->launch_id, .non_donatable_input_indices = l->keep,
                             .num_non_donatable_input_indices = l->nkeep};
    PJRT_Buffer *const *ins[1] = {l->in};
    PJRT_Buffer **outs[1] = {l->out};
    ARGS(PJRT_LoadedExecutable_Execute, a);
    a.executable = l->x;
    a.options = &o;
    a.argument_lists = ins;
    a.num_devices = 1;
    a.num_args = l->nin;
    a.output_lists = outs;
    a.device_complete_events = l->out_done;
    a.execute_device = p->ndevice > 1 ? p->device[l->device] : NULL;
    return CALL(p, PJRT_LoadedExecutable_Execute, &a);
}

tpu_error *pjrt_execute(pjrt *p, PJRT_LoadedExecutable *x, int device, PJRT_Buffer *const *in, size_t nin, const int64_t *keep, size_t nkeep,
                        PJRT_Buffer **out)
{
    return pjrt_launch_one(p, &(pjrt_launch){.x = x, .device = device, .in = in, .nin = nin, .keep = keep, .nkeep = nkeep, .out = out});
}

/* ---- events ---- */
void pjrt_event_free(pjrt *p, PJRT_Event *ev)
{
    if (!ev || pjrt_forked()) return;
    ARGS(PJRT_Event_Destroy, d);
    d.event = ev;
    tpu_error_free(CALL(p, PJRT_Event_Destroy, &d));
}

tpu_error *pjrt_event_wait(pjrt *p, PJRT_Event *take_ev)
{
    ARGS(PJRT_Event_Await, w);
    w.event = take_ev;
    tpu_error *e = CALL(p, PJRT_Event_Await, &w);
    pjrt_event_free(p, take_ev);
    return e;
}

typedef struct waiter { pjrt *p; void (*then)(tpu_error *take_e, void *ctx); void *ctx; } waiter;

static void fire(PJRT_Error *e, void *arg)
{
    waiter w = *(waiter *)arg;
    mem_free(arg);
    w.then(pjrt_error_of(w.p, e), w.ctx);
}

tpu_error *pjrt_event_then(pjrt *p, PJRT_Event *take_ev, void (*then)(tpu_error *take_e, void *ctx), void *ctx)
{
    waiter *w = mem_new(sizeof *w);
    tpu_error *e = w ? NULL : tpu_fail_memory();
    if (w) {
        *w = (waiter){p, then, ctx};
        ARGS(PJRT_Event_OnReady, a);
        a.event = take_ev;
        a.callback = fire;
        a.user_arg = w;
        e = CALL(p, PJRT_Event_OnReady, &a);
        if (e) mem_free(w);
    }
    pjrt_event_free(p, take_ev);                        /* the callback comes all the same */
    return e;
}

/* ---- buffers ---- */
int pjrt_buffer_type(tpu_dtype t)
{
    static const int8_t of[TPU_DTYPE_COUNT] = {
        [TPU_NONE] = -1, [TPU_BOOL] = 1, [TPU_I8] = 2, [TPU_I16] = 3, [TPU_I32] = 4, [TPU_I64] = 5, [TPU_U8] = 6, [TPU_U16] = 7, [TPU_U32] = 8,
        [TPU_U64] = 9, [TPU_F16] = 10, [TPU_F32] = 11, [TPU_F64] = 12, [TPU_BF16] = 13, [TPU_C64] = 14, [TPU_C128] = 15, [TPU_F8E5M2] = 16,
        [TPU_F8E4M3FN] = 17, [TPU_F8E5M2FNUZ] = 19, [TPU_F8E4M3FNUZ] = 20, [TPU_F8E8M0FNU] = 28,
    };
    return of[t];
}

static tpu_error *from_host(pjrt *p, int device, const void *host, const tpu_type *type, const int64_t *byte_strides, int semantics,
                            PJRT_Event **out_done, PJRT_Buffer **out_b)
{
    int t = pjrt_buffer_type((tpu_dtype)type->dtype);
    if (t < 0) return tpu_fail(TPU_UNIMPLEMENTED, "a TPU has no such dtype");
    ARGS(PJRT_Client_BufferFromHostBuffer, a);
    a.client = p->client;
    a.data = host;
    a.type = t;
    a.dims = type->dim;
    a.num_dims = type->rank;
    a.byte_strides = byte_strides;
    a.num_byte_strides = byte_strides ? type->rank : 0;
    a.host_buffer_semantics = semantics;
    a.device = p->device[device];
    TPU_TRY(CALL(p, PJRT_Client_BufferFromHostBuffer, &a));
    *out_done = a.done_with_host_buffer;
    *out_b = a.buffer;
    return NULL;
}

tpu_error *pjrt_to_device(pjrt *p, int device, const void *host, const tpu_type *type, const int64_t *byte_strides, PJRT_Buffer **out)
{
    PJRT_Event *done = NULL;
    TPU_TRY(from_host(p, device, host, type, byte_strides, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall, &done, out));
    pjrt_event_free(p, done);                           /* the bytes were taken during the call */
    return NULL;
}

tpu_error *pjrt_lend(pjrt *p, int device, const void *host, const tpu_type *type, void (*done)(tpu_error *take_e, void *ctx), void *ctx, PJRT_Buffer **out)
{
    PJRT_Event *ev = NULL;
    if ((uintptr_t)host % 64) return tpu_fail(TPU_INVALID, "memory that a device reads in place starts at a multiple of 64 bytes");
    TPU_TRY(from_host(p, device, host, type, NULL, PJRT_HostBufferSemantics_kImmutableZeroCopy, &ev, out));
    tpu_error *e = pjrt_event_then(p, ev, done, ctx);
    if (e) {
        pjrt_buffer_free(p, *out);
        *out = NULL;
    }
    return e;
}

tpu_error *pjrt_copy(pjrt *p, PJRT_Buffer *b, int device, PJRT_Buffer **out)
{
    ARGS(PJRT_Buffer_CopyToDevice, a);
    a.buffer = b;
    a.dst_device = p->device[device];
    TPU_TRY(CALL(p, PJRT_Buffer_CopyToDevice, &a));
    *out = a.dst_buffer;
    return NULL;
}

tpu_error *pjrt_to_host(pjrt *p, PJRT_Buffer *b, void *dst, size_t bytes)
{
    ARGS(PJRT_Buffer_ToHostBuffer, a);
    a.src = b;
    a.dst = dst;
    a.dst_size = bytes;
    TPU_TRY(CALL(p, PJRT_Buffer_ToHostBuffer, &a));
    return pjrt_event_wait(p, a.event);
}

static tpu_error *ready_event(pjrt *p, PJRT_Buffer *b, PJRT_Event **out)
{
    ARGS(PJRT_Buffer_ReadyEvent, a);
    a.buffer = b;
    TPU_TRY(CALL(p, PJRT_Buffer_ReadyEvent, &a));
    *out = a.event;
    return NULL;
}

tpu_error *pjrt_buffer_wait(pjrt *p, PJRT_Buffer *b)
{
    PJRT_Event *ev;
    TPU_TRY(ready_event(p, b, &ev));
    return pjrt_event_wait(p, ev);
}

bool pjrt_buffer_ready(pjrt *p, PJRT_Buffer *b)
{
    PJRT_Event *ev;
    tpu_error *e = ready_event(p, b, &ev);
    if (e) {
        tpu_error_free(e);
        return true;
    }
    ARGS(PJRT_Event_IsReady, r);
    r.event = ev;
    e = CALL(p, PJRT_Event_IsReady, &r);
    tpu_error_free(e);
    pjrt_event_free(p, ev);
    return e || r.is_ready;
}

tpu_error *pjrt_buffer_pointer(pjrt *p, PJRT_Buffer *b, void **out_at)
{
    ARGS(PJRT_Buffer_OpaqueDeviceMemoryDataPointer, a);
    a.buffer = b;
    TPU_TRY(CALL(p, PJRT_Buffer_OpaqueDeviceMemoryDataPointer, &a));
    *out_at = a.device_memory_ptr;
    return NULL;
}

void pjrt_buffer_free(pjrt *p, PJRT_Buffer *b)
{
    if (!b || pjrt_forked()) return;
    ARGS(PJRT_Buffer_Destroy, d);
    d.buffer = b;
    tpu_error_free(CALL(p, PJRT_Buffer_Destroy, &d));
}
