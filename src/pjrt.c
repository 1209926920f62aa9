/* pjrt.c - loads a plugin and calls it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pjrt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_DEVICES 64

struct pjrt {
    const PJRT_Api *api;
    char *path, *platform, *version;
    PJRT_Client *client;
    int ndevice;
    PJRT_Device *device[MAX_DEVICES];
    char *kind[MAX_DEVICES];
};

typedef PJRT_Error *(*entry)(void *);
#define ARGS(T, v) T##_Args v; memset(&v, 0, sizeof v); v.struct_size = sizeof v

/* ---- fork ---- */
static atomic_bool loaded, forked;

static void in_child(void) { if (loaded) forked = true; }
bool pjrt_forked(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

static tpu_error *forked_error(void)
{
    return tpu_fail(TPU_PRECONDITION, "Cannot re-initialize tpu in forked subprocess. To use tpu with multiprocessing, you must use the 'spawn' start method");
}

/* ---- calls ---- */
bool pjrt_has(const pjrt *p, int slot)
{
    return p->api->struct_size >= offsetof(PJRT_Api, slot) + 8 * ((size_t)slot + 1) && p->api->slot[slot];
}

/* The plugin's first line, without the noise after it. */
static tpu_error *error_of(const pjrt *p, PJRT_Error *e)
{
    if (!e) return NULL;
    ARGS(PJRT_Error_Message, m);
    m.error = e;
    ((void (*)(void *))p->api->slot[PJRT_Error_Message])(&m);
    ARGS(PJRT_Error_GetCode, c);
    c.error = e;
    PJRT_Error *bad = ((entry)p->api->slot[PJRT_Error_GetCode])(&c);
    size_t n = m.message_size;
    const char *noise = n ? memmem(m.message, n, "\nFailed to parse using StableHLO", 32) : NULL;
    if (noise) n = (size_t)(noise - m.message);
    if (n > 4000) n = 4000;
    tpu_error *out = tpu_fail(bad || !c.code ? TPU_UNKNOWN : (tpu_code)c.code, "%.*s", (int)n, m.message ? m.message : "");
    ARGS(PJRT_Error_Destroy, d);
    d.error = e;
    ((void (*)(void *))p->api->slot[PJRT_Error_Destroy])(&d);
    return out;
}

static tpu_error *call(const pjrt *p, int slot, const char *name, void *args)
{
    if (pjrt_forked()) return forked_error();
    if (!pjrt_has(p, slot)) return tpu_fail(TPU_UNIMPLEMENTED, "the plugin %s (PJRT API 0.%d) has no %s", p->path, pjrt_minor(p), name);
    return error_of(p, ((entry)p->api->slot[slot])(args));
}

#define CALL(p, name, args) call((p), name, #name, (args))

/* ---- load ---- */
static tpu_error *not_a_plugin(const char *path, const char *why)
{
    return tpu_fail(TPU_INVALID, "%s is not a PJRT plugin: %s; install one with `pip install --no-deps lammps-jax-pjrt-cpu`, or set TPUTORCH_PLUGIN to one",
                    path, why);
}

tpu_error *pjrt_open(const char *path, pjrt **out)
{
    *out = NULL;
    if (access(path, R_OK))
        return tpu_fail(TPU_NOT_FOUND, "the PJRT plugin %s cannot be read; install one with `pip install --no-deps lammps-jax-pjrt-cpu`, or set TPUTORCH_PLUGIN", path);
    setenv("TF_CPP_MIN_LOG_LEVEL", "3", 0);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) return not_a_plugin(path, dlerror());
    const PJRT_Api *(*get)(void) = NULL;
    *(void **)&get = dlsym(so, "GetPjrtApi");
    if (!get) return not_a_plugin(path, "it has no GetPjrtApi");
    const PJRT_Api *api = get();
    if (!api || api->struct_size < offsetof(PJRT_Api, slot) + 8 * 60) return not_a_plugin(path, "its function table is empty or too short");
    if (api->pjrt_api_version.major_version != 0 || api->pjrt_api_version.minor_version < 55) {
        char why[96];
        snprintf(why, sizeof why, "PJRT API %d.%d, 0.57 or newer is needed", api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version);
        return not_a_plugin(path, why);
    }
    pjrt *p = mem_new(sizeof *p);
    if (!p || !(p->path = mem_dup(path, strlen(path)))) {
        mem_free(p);
        return tpu_fail_memory();
    }
    p->api = api;
    static atomic_bool hooked;
    if (!atomic_exchange(&hooked, true)) pthread_atfork(NULL, NULL, in_child);
    loaded = true;
    PJRT_Plugin_Initialize_Args init = {.struct_size = sizeof init};
    tpu_error *e = CALL(p, PJRT_Plugin_Initialize, &init);
    if (e) pjrt_close(p);
    else *out = p;
    return e;
}

void pjrt_close(pjrt *p)
{
    if (!p) return;
    if (p->client && !pjrt_forked()) {
        ARGS(PJRT_Client_Destroy, d);
        d.client = p->client;
        tpu_error_free(CALL(p, PJRT_Client_Destroy, &d));
    }
    for (int i = 0; i < p->ndevice; i++) mem_free(p->kind[i]);
    mem_free(p->platform);
    mem_free(p->version);
    mem_free(p->path);
    mem_free(p);
}

int pjrt_minor(const pjrt *p) { return p->api->pjrt_api_version.minor_version; }
const char *pjrt_path(const pjrt *p) { return p->path; }

/* ---- self check ---- */
#define SIZED(name) {name, #name, sizeof(name##_Args)}
static const struct { int slot; const char *name; size_t size; } sized[] = {
    SIZED(PJRT_Plugin_Initialize), SIZED(PJRT_Plugin_Attributes), SIZED(PJRT_Event_Destroy), SIZED(PJRT_Event_IsReady), SIZED(PJRT_Event_Await),
    SIZED(PJRT_Event_OnReady), SIZED(PJRT_Client_Create), SIZED(PJRT_Client_Destroy), SIZED(PJRT_Client_PlatformName),
    SIZED(PJRT_Client_ProcessIndex), SIZED(PJRT_Client_PlatformVersion), SIZED(PJRT_Client_Devices), SIZED(PJRT_Client_AddressableDevices),
    SIZED(PJRT_Client_Compile), SIZED(PJRT_Client_BufferFromHostBuffer), SIZED(PJRT_DeviceDescription_Id), SIZED(PJRT_DeviceDescription_Attributes),
    SIZED(PJRT_DeviceDescription_Kind), SIZED(PJRT_Device_GetDescription), SIZED(PJRT_Device_DefaultMemory), SIZED(PJRT_Device_MemoryStats),
    SIZED(PJRT_Executable_Destroy), SIZED(PJRT_Executable_NumOutputs), SIZED(PJRT_Executable_GetCostAnalysis),
    SIZED(PJRT_Executable_OptimizedProgram), SIZED(PJRT_Executable_Serialize), SIZED(PJRT_LoadedExecutable_Destroy),
    SIZED(PJRT_LoadedExecutable_GetExecutable), SIZED(PJRT_LoadedExecutable_Execute), SIZED(PJRT_Executable_DeserializeAndLoad),
    SIZED(PJRT_Buffer_Destroy), SIZED(PJRT_Buffer_OnDeviceSizeInBytes), SIZED(PJRT_Buffer_Delete), SIZED(PJRT_Buffer_IsDeleted),
    SIZED(PJRT_Buffer_CopyToDevice), SIZED(PJRT_Buffer_ToHostBuffer), SIZED(PJRT_Buffer_ReadyEvent),
    SIZED(PJRT_Buffer_OpaqueDeviceMemoryDataPointer), SIZED(PJRT_TopologyDescription_Create), SIZED(PJRT_TopologyDescription_Destroy),
    SIZED(PJRT_TopologyDescription_PlatformVersion), SIZED(PJRT_TopologyDescription_GetDeviceDescriptions),
    SIZED(PJRT_TopologyDescription_Serialize), SIZED(PJRT_Compile), SIZED(PJRT_Executable_OutputElementTypes),
    SIZED(PJRT_Executable_OutputDimensions), SIZED(PJRT_Executable_Fingerprint), SIZED(PJRT_Client_TopologyDescription),
    SIZED(PJRT_Executable_GetCompiledMemoryStats),
};

tpu_error *pjrt_self_check(const pjrt *p, text *report)
{
    char blank[512];
    for (size_t i = 0; i < TPU_COUNT(sized); i++) {
        if (!pjrt_has(p, sized[i].slot)) continue;
        memset(blank, 0, sizeof blank);
        tpu_error *e = call(p, sized[i].slot, sized[i].name, blank);
        const char *at = strstr(tpu_error_message(e), "expected ");
        size_t want = at ? strtoul(at + 9, NULL, 10) : 0;
        bool named = strstr(tpu_error_message(e), sized[i].name) != NULL;
        tpu_error_free(e);
        text_add(report, "%s wants %zu, ours is %zu\n", sized[i].name, want, sized[i].size);
        if (!want || want > sized[i].size || !named)
            return tpu_fail(TPU_INTERNAL, "%s: slot %d of the plugin wants %zu bytes, ours is %s with %zu", p->path, sized[i].slot, want, sized[i].name, sized[i].size);
    }
    return NULL;
}

/* ---- client ---- */
static tpu_error *create(pjrt *p, const PJRT_NamedValue *options, size_t n)
{
    ARGS(PJRT_Client_Create, a);
    a.create_options = options;
    a.num_options = n;
    TPU_TRY(CALL(p, PJRT_Client_Create, &a));
    p->client = a.client;
    return NULL;
}

static tpu_error *learn_device(pjrt *p, int i, PJRT_Device *d)
{
    ARGS(PJRT_Device_GetDescription, g);
    g.device = d;
    TPU_TRY(CALL(p, PJRT_Device_GetDescription, &g));
    ARGS(PJRT_DeviceDescription_Kind, k);
    k.device_description = g.device_description;
    TPU_TRY(CALL(p, PJRT_DeviceDescription_Kind, &k));
    p->device[i] = d;
    p->kind[i] = mem_dup(k.device_kind, k.device_kind_size);
    return p->kind[i] ? NULL : tpu_fail_memory();
}

static tpu_error *learn_client(pjrt *p)
{
    ARGS(PJRT_Client_PlatformName, n);
    n.client = p->client;
    TPU_TRY(CALL(p, PJRT_Client_PlatformName, &n));
    ARGS(PJRT_Client_PlatformVersion, v);
    v.client = p->client;
    TPU_TRY(CALL(p, PJRT_Client_PlatformVersion, &v));
    p->platform = mem_dup(n.platform_name, n.platform_name_size);
    p->version = mem_dup(v.platform_version, v.platform_version_size);
    if (!p->platform || !p->version) return tpu_fail_memory();
    PJRT_Client_AddressableDevices_Args d = {.struct_size = sizeof d, .client = p->client};
    TPU_TRY(CALL(p, PJRT_Client_AddressableDevices, &d));
    for (size_t i = 0; i < d.num_devices && i < MAX_DEVICES; i++) {
        TPU_TRY(learn_device(p, (int)i, d.devices[i]));
        p->ndevice = (int)i + 1;
    }
    return p->ndevice ? NULL : tpu_fail(TPU_NOT_FOUND, "the plugin %s has no device", p->path);
}

tpu_error *pjrt_client(pjrt *p, int cpu_devices)
{
    if (p->client) return NULL;
    PJRT_NamedValue n = {.struct_size = sizeof n, .name = "cpu_device_count", .name_size = 16, .type = PJRT_NamedValue_kInt64,
                         .int64_value = cpu_devices, .value_size = 1};
    tpu_error *e = create(p, cpu_devices > 0 ? &n : NULL, cpu_devices > 0);
    if (tpu_error_code(e) == TPU_INVALID && cpu_devices > 0) {  /* a plugin that does not know the option */
        tpu_error_free(e);
        e = create(p, NULL, 0);
    }
    return e ? e : learn_client(p);
}

int pjrt_device_count(const pjrt *p) { return p->ndevice; }
const char *pjrt_platform(const pjrt *p) { return p->platform; }
const char *pjrt_platform_version(const pjrt *p) { return p->version; }
const char *pjrt_device_kind(const pjrt *p, int device) { return p->kind[device]; }

int64_t pjrt_device_memory(const pjrt *p, int device)
{
    ARGS(PJRT_Device_MemoryStats, m);
    m.device = p->device[device];
    tpu_error *e = CALL(p, PJRT_Device_MemoryStats, &m);
    tpu_error_free(e);
    return !e && m.bytes_limit.is_set ? m.bytes_limit.value : 0;
}

/* ---- executables ---- */
static PJRT_Program program_of(const char *code, size_t len)
{
    return (PJRT_Program){.struct_size = sizeof(PJRT_Program), .code = (char *)(uintptr_t)code, .code_size = len, .format = "mlir", .format_size = 4};
}

tpu_error *pjrt_compile(pjrt *p, const char *code, size_t len, const char *options, size_t noptions, PJRT_LoadedExecutable **out)
{
    PJRT_Program prog = program_of(code, len);
    ARGS(PJRT_Client_Compile, a);
    a.client = p->client;
    a.program = &prog;
    a.compile_options = options;
    a.compile_options_size = noptions;
    TPU_TRY(CALL(p, PJRT_Client_Compile, &a));
    *out = a.executable;
    return NULL;
}

static tpu_error *executable_of(pjrt *p, PJRT_LoadedExecutable *x, PJRT_Executable **out)
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

tpu_error *pjrt_serialize(pjrt *p, PJRT_LoadedExecutable *x, text *out)
{
    PJRT_Executable *inner;
    TPU_TRY(executable_of(p, x, &inner));
    ARGS(PJRT_Executable_Serialize, s);
    s.executable = inner;
    tpu_error *e = CALL(p, PJRT_Executable_Serialize, &s);
    if (!e) {
        text_put(out, s.serialized_bytes, s.serialized_bytes_size);
        if (s.serialized_executable_deleter) s.serialized_executable_deleter(s.serialized_executable);
        if (out->failed) e = tpu_fail_memory();
    }
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
    TPU_TRY(executable_of(p, x, &inner));
    ARGS(PJRT_Executable_NumOutputs, n);
    n.executable = inner;
    tpu_error *e = CALL(p, PJRT_Executable_NumOutputs, &n);
    *out_n = n.num_outputs;
    pjrt_compiled_free(p, inner);
    return e;
}

tpu_error *pjrt_execute(pjrt *p, PJRT_LoadedExecutable *x, int device, PJRT_Buffer *const *in, size_t nin, const int64_t *keep, size_t nkeep,
                        PJRT_Buffer **out)
{
    PJRT_ExecuteOptions o = {.struct_size = sizeof o, .non_donatable_input_indices = keep, .num_non_donatable_input_indices = nkeep};
    PJRT_Buffer *const *ins[1] = {in};
    PJRT_Buffer **outs[1] = {out};
    ARGS(PJRT_LoadedExecutable_Execute, a);
    a.executable = x;
    a.options = &o;
    a.argument_lists = ins;
    a.num_devices = 1;
    a.num_args = nin;
    a.output_lists = outs;
    a.execute_device = p->ndevice > 1 ? p->device[device] : NULL;
    return CALL(p, PJRT_LoadedExecutable_Execute, &a);
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

static void event_free(pjrt *p, PJRT_Event *ev)
{
    if (!ev) return;
    ARGS(PJRT_Event_Destroy, d);
    d.event = ev;
    tpu_error_free(CALL(p, PJRT_Event_Destroy, &d));
}

static tpu_error *event_wait(pjrt *p, PJRT_Event *take_ev)
{
    ARGS(PJRT_Event_Await, w);
    w.event = take_ev;
    tpu_error *e = CALL(p, PJRT_Event_Await, &w);
    event_free(p, take_ev);
    return e;
}

tpu_error *pjrt_to_device(pjrt *p, int device, const void *host, const tpu_type *type, const int64_t *byte_strides, PJRT_Buffer **out)
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
    a.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    a.device = p->device[device];
    TPU_TRY(CALL(p, PJRT_Client_BufferFromHostBuffer, &a));
    event_free(p, a.done_with_host_buffer);             /* the bytes were taken during the call */
    *out = a.buffer;
    return NULL;
}

tpu_error *pjrt_to_host(pjrt *p, PJRT_Buffer *b, void *dst, size_t bytes)
{
    ARGS(PJRT_Buffer_ToHostBuffer, a);
    a.src = b;
    a.dst = dst;
    a.dst_size = bytes;
    TPU_TRY(CALL(p, PJRT_Buffer_ToHostBuffer, &a));
    return event_wait(p, a.event);
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
    return event_wait(p, ev);
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
    event_free(p, ev);
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

/* ---- topologies ---- */
tpu_error *pjrt_topology(pjrt *p, const char *name, PJRT_TopologyDescription **out)
{
    ARGS(PJRT_TopologyDescription_Create, a);
    a.topology_name = name;
    a.topology_name_size = strlen(name);
    TPU_TRY(CALL(p, PJRT_TopologyDescription_Create, &a));
    *out = a.topology;
    return NULL;
}

void pjrt_topology_free(pjrt *p, PJRT_TopologyDescription *t)
{
    if (!t || pjrt_forked()) return;
    ARGS(PJRT_TopologyDescription_Destroy, d);
    d.topology = t;
    tpu_error_free(CALL(p, PJRT_TopologyDescription_Destroy, &d));
}

tpu_error *pjrt_compile_for(pjrt *p, const PJRT_TopologyDescription *t, const char *code, size_t len, const char *options, size_t noptions,
                            PJRT_Executable **out)
{
    PJRT_Program prog = program_of(code, len);
    ARGS(PJRT_Compile, a);
    a.topology = t;
    a.program = &prog;
    a.compile_options = options;
    a.compile_options_size = noptions;
    TPU_TRY(CALL(p, PJRT_Compile, &a));
    *out = a.executable;
    return NULL;
}

/* ---- CompileOptionsProto ---- */
static void varint(text *t, uint64_t v)
{
    do {
        char c = (char)(v & 127);
        v >>= 7;
        if (v) c = (char)(c | 128);
        text_put(t, &c, 1);
    } while (v);
}

static void field_int(text *t, int field, int64_t v)
{
    varint(t, (uint64_t)field << 3);
    varint(t, (uint64_t)v);
}

static void field_bytes(text *t, int field, const char *at, size_t n)
{
    varint(t, (uint64_t)field << 3 | 2);
    varint(t, n);
    text_put(t, at, n);
}

static void field_text(text *t, int field, text *take)
{
    field_bytes(t, field, take->at ? take->at : "", take->len);
    text_free(take);
}

static void assignment(const pjrt_options *o, int replicas, int partitions, text *build)
{
    text d = {0};
    field_int(&d, 1, replicas);
    field_int(&d, 2, partitions);
    for (int part = 0; part < partitions; part++) {
        text ids = {0}, c = {0};
        for (int r = 0; r < replicas; r++) varint(&ids, (uint64_t)o->devices[r * partitions + part]);
        field_text(&c, 1, &ids);
        field_text(&d, 3, &c);
    }
    field_text(build, 9, &d);
}

static void override(const pjrt_option *v, text *out)
{
    text value = {0}, pair = {0};
    if (v->kind == 's') field_bytes(&value, 1, v->s, strlen(v->s));
    else if (v->kind == 'b') field_int(&value, 2, v->i);
    else if (v->kind == 'i') field_int(&value, 3, v->i);
    else {
        varint(&value, 4 << 3 | 1);
        text_put(&value, (const char *)&v->d, 8);
    }
    field_bytes(&pair, 1, v->name, strlen(v->name));
    field_text(&pair, 2, &value);
    field_text(out, 7, &pair);
}

void pjrt_options_bytes(const pjrt_options *o, text *out)
{
    int replicas = o->replicas ? o->replicas : 1, partitions = o->partitions ? o->partitions : 1;
    text build = {0};
    field_int(&build, 4, replicas);
    field_int(&build, 5, partitions);
    if (o->spmd) field_int(&build, 6, 1);
    if (o->devices) assignment(o, replicas, partitions, &build);
    if (o->shardy) field_int(&build, 19, 1);
    if (o->optimization_level) field_int(&build, 24, o->optimization_level);
    field_text(out, 3, &build);
    if (o->portable) field_int(out, 4, 1);
    for (int i = 0; i < o->noverride; i++) override(&o->override[i], out);
}
