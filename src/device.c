/* device.c - the process's plugin, client and devices.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "launch.h"
#include "storage.h"

#define DEVICES 64

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *candidates, *cache_folder;
static plugin pl;
static cache *programs;
static atomic_bool started, stopped;
static _Thread_local int current;
static rng generators[DEVICES];

void engine_configure(const char *plugin_candidates, const char *cache_dir)
{
    pthread_mutex_lock(&mutex);
    mem_free(candidates);
    mem_free(cache_folder);
    candidates = plugin_candidates ? mem_dup(plugin_candidates, strlen(plugin_candidates)) : NULL;
    cache_folder = cache_dir ? mem_dup(cache_dir, strlen(cache_dir)) : NULL;
    pthread_mutex_unlock(&mutex);
}

/* How many devices the CPU plugin shall have [G2]. */
static int cpu_devices(void)
{
    const char *n = getenv("TPUTORCH_CPU_DEVICES");
    int want = n ? atoi(n) : 1;
    return want < 1 ? 1 : want > DEVICES ? DEVICES : want;
}

static tpu_error *start_locked(void)
{
    if (started) return NULL;
    TPU_TRY(plugin_find(candidates ? candidates : "", cpu_devices(), &pl));
    programs = cache_new(&pl, cache_folder);
    if (!programs) {
        plugin_close(&pl);
        return tpu_fail_memory();
    }
    call_set_target(pl.target);
    started = true;
    return NULL;
}

tpu_error *engine_start(void)
{
    if (atomic_load_explicit(&started, memory_order_acquire) && !pjrt_forked()) return NULL;
    if (pjrt_forked())
        return tpu_fail(TPU_PRECONDITION, "Cannot re-initialize tpu in forked subprocess. To use tpu with multiprocessing, you must use the 'spawn' start method");
    pthread_mutex_lock(&mutex);
    tpu_error *e = start_locked();
    pthread_mutex_unlock(&mutex);
    return e;
}

bool engine_started(void) { return started; }
bool engine_forked(void) { return pjrt_forked(); }

void engine_stop(void)
{
    if (!started || pjrt_forked() || atomic_exchange(&stopped, true)) return;
    launch_stop();
}

/* ---- devices ---- */
int engine_device_count(void)
{
    if (started) return pjrt_device_count(pl.p);
    if (getenv("TPUTORCH_PLUGIN")) return cpu_devices();
    if (!plugin_tpu_present()) return candidates && !strstr(candidates, "cpu=") ? 0 : cpu_devices();
    tpu_error *e = engine_start();
    if (e) log_warn("%s", tpu_error_message(e));
    tpu_error_free(e);
    return started ? pjrt_device_count(pl.p) : 0;
}

int engine_device(void) { return current; }

int engine_set_device(int d)
{
    int old = current;
    if (d >= 0) current = d;
    return old;
}

const char *engine_device_name(int d)
{
    if (!started) {
        tpu_error *e = engine_start();
        tpu_error_free(e);
        if (e) return "";
    }
    if (pl.target == HLO_CPU) return "XLA:CPU";
    return d >= 0 && d < pjrt_device_count(pl.p) ? pjrt_device_kind(pl.p, d) : "";
}

bool engine_on_tpu(void) { return started && pl.target == HLO_TPU; }
const char *engine_plugin_path(void) { return started ? pjrt_path(pl.p) : ""; }
const char *engine_plugin_version(void) { return started ? pjrt_platform_version(pl.p) : ""; }
int engine_plugin_api(void) { return started ? pjrt_minor(pl.p) : 0; }
const char *engine_cache_dir(void) { return started ? cache_dir(programs) : ""; }

int64_t storage_device_bytes(int device)
{
    if (!started) return 0;
    int64_t told = pl.target == HLO_TPU ? pjrt_device_memory(pl.p, device) : 0;
    struct sysinfo si;
    if (told || pl.target == HLO_TPU || sysinfo(&si)) return told;
    return (int64_t)si.totalram * si.mem_unit;
}

rng *engine_default_rng(int device) { return &generators[device >= 0 && device < DEVICES ? device : 0]; }

/* ---- bytes ---- */
cache *device_cache(void) { return programs; }
pjrt *device_pjrt(void) { return pl.p; }
hlo_target device_target(void) { return pl.target; }

tpu_error *device_upload(int device, const tpu_type *type, const void *host, const int64_t *byte_strides, buffer **out)
{
    return buffer_from_host(pl.p, device, type, host, byte_strides, out);
}

bool device_is_host(void) { return pl.direct; }
tpu_error *device_host_view(buffer *b, const char **at, char **copy) { return buffer_bytes(b, pl.direct, at, copy); }

static double half(uint16_t h)
{
    _Float16 f;
    memcpy(&f, &h, 2);
    return (double)f;
}

static double brain(uint16_t h)
{
    uint32_t w = (uint32_t)h << 16;
    float f;
    memcpy(&f, &w, 4);
    return (double)f;
}

/* An 8-bit float by its field widths; nan_only: no infinities (the "fn" kinds). */
static double small_float(uint8_t v, int mantissa, int bias, bool fnuz)
{
    int e = v >> mantissa & ((1 << (7 - mantissa)) - 1), m = v & ((1 << mantissa) - 1), top = (1 << (7 - mantissa)) - 1;
    double sign = v & 128 ? -1 : 1;
    if (fnuz && v == 128) return __builtin_nan("");
    if (!fnuz && mantissa == 3 && (v & 127) == 127) return __builtin_nan("");
    if (!fnuz && mantissa == 2 && e == top) return m ? __builtin_nan("") : sign * __builtin_inf();
    double x = e ? 1 + (double)m / (1 << mantissa) : (double)m / (1 << mantissa);
    return sign * __builtin_ldexp(x, (e ? e : 1) - bias);
}

#define READ(T) (*(const T *)raw)
#define INT(T) (*o = (call_num){.kind = TPU_I64, .i = (int64_t)READ(T)}, NULL)
#define REAL(x) (*o = (call_num){.kind = TPU_F64, .re = (x)}, NULL)
tpu_error *device_number(const void *raw, tpu_dtype t, call_num *o)
{
    switch (t) {
    case TPU_BOOL: *o = (call_num){.kind = TPU_BOOL, .i = READ(uint8_t) != 0}; return NULL;
    case TPU_I8: return INT(int8_t);
    case TPU_I16: return INT(int16_t);
    case TPU_I32: return INT(int32_t);
    case TPU_I64: return INT(int64_t);
    case TPU_U8: return INT(uint8_t);
    case TPU_U16: return INT(uint16_t);
    case TPU_U32: return INT(uint32_t);
    case TPU_U64: return INT(uint64_t);
    case TPU_F16: return REAL(half(READ(uint16_t)));
    case TPU_BF16: return REAL(brain(READ(uint16_t)));
    case TPU_F32: return REAL((double)READ(float));
    case TPU_F64: return REAL(READ(double));
    case TPU_C64: *o = (call_num){.kind = TPU_C128, .re = (double)((const float *)raw)[0], .im = (double)((const float *)raw)[1]}; return NULL;
    case TPU_C128: *o = (call_num){.kind = TPU_C128, .re = ((const double *)raw)[0], .im = ((const double *)raw)[1]}; return NULL;
    case TPU_F8E4M3FN: return REAL(small_float(READ(uint8_t), 3, 7, false));
    case TPU_F8E5M2: return REAL(small_float(READ(uint8_t), 2, 15, false));
    case TPU_F8E4M3FNUZ: return REAL(small_float(READ(uint8_t), 3, 8, true));
    case TPU_F8E5M2FNUZ: return REAL(small_float(READ(uint8_t), 2, 16, true));
    case TPU_F8E8M0FNU: return REAL(READ(uint8_t) == 255 ? __builtin_nan("") : __builtin_ldexp(1, READ(uint8_t) - 127));
    default: return tpu_fail(TPU_UNIMPLEMENTED, "a number of this dtype cannot be read");
    }
}
