/* pjrt.c - loads a plugin and calls it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pjrt_internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef PJRT_Error *(*entry)(void *);

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

/* A parser's error is its first line; the rest repeats it.  Other messages (out of memory, by the compiler of a TPU) are
 * worth their lines. */
static size_t worth(const char *at, size_t n)
{
    const char *end = n ? memchr(at, '\n', n) : NULL;
    if (end && memmem(at, (size_t)(end - at), ": error: ", 9)) n = (size_t)(end - at);
    return n > 4000 ? 4000 : n;
}

tpu_error *pjrt_error_of(const pjrt *p, PJRT_Error *e)
{
    if (!e) return NULL;
    ARGS(PJRT_Error_Message, m);
    m.error = e;
    ((void (*)(void *))p->api->slot[PJRT_Error_Message])(&m);
    ARGS(PJRT_Error_GetCode, c);
    c.error = e;
    PJRT_Error *bad = ((entry)p->api->slot[PJRT_Error_GetCode])(&c);
    size_t n = worth(m.message, m.message_size);
    tpu_error *out = tpu_fail(bad || !c.code ? TPU_UNKNOWN : (tpu_code)c.code, "%.*s", (int)n, m.message ? m.message : "");
    ARGS(PJRT_Error_Destroy, d);
    d.error = e;
    ((void (*)(void *))p->api->slot[PJRT_Error_Destroy])(&d);
    return out;
}

tpu_error *pjrt_call(const pjrt *p, int slot, const char *name, void *args)
{
    if (pjrt_forked()) return forked_error();
    if (!pjrt_has(p, slot)) return tpu_fail(TPU_UNIMPLEMENTED, "the plugin %s (PJRT API 0.%d) has no %s", p->path, pjrt_minor(p), name);
    return pjrt_error_of(p, ((entry)p->api->slot[slot])(args));
}

/* ---- load ---- */
static void forget_client(pjrt *p)
{
    if (p->client && !pjrt_forked()) {
        ARGS(PJRT_Client_Destroy, d);
        d.client = p->client;
        tpu_error_free(CALL(p, PJRT_Client_Destroy, &d));
    }
    for (int i = 0; i < p->ndevice; i++) mem_free(p->kind[i]);
    mem_free(p->platform);
    mem_free(p->version);
    p->platform = p->version = NULL;
    p->client = NULL;
    p->ndevice = 0;
}

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
    forget_client(p);
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

/* Plugins misspell a name here and there, so one wrong name is let pass; a table in another order has many. */
tpu_error *pjrt_self_check(const pjrt *p, text *report)
{
    char blank[512];
    int strange = 0;
    for (size_t i = 0; i < TPU_COUNT(sized); i++) {
        if (!pjrt_has(p, sized[i].slot)) continue;
        memset(blank, 0, sizeof blank);
        tpu_error *e = pjrt_call(p, sized[i].slot, sized[i].name, blank);
        const char *at = strstr(tpu_error_message(e), ": expected ");
        size_t want = at ? strtoul(at + 11, NULL, 10) : 0;
        bool stub = tpu_error_code(e) == TPU_UNIMPLEMENTED;
        strange += !stub && !strcasestr(tpu_error_message(e), sized[i].name);
        tpu_error_free(e);
        if (stub) continue;
        text_add(report, "%s wants %zu, ours is %zu\n", sized[i].name, want, sized[i].size);
        if (!want || want > sized[i].size || strange > 1)
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
    if (!e) e = learn_client(p);
    if (e) forget_client(p);
    return e;
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
