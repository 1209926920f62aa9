/* pjrt.h - a loaded plugin and its client, one thin wrapper a call.
 * Every failure carries the plugin's code and words.  After a fork every call fails with one sentence [G1].
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_PJRT_H
#define TPUTORCH_PJRT_H

#include "pjrt_abi.h"
#include "type.h"

typedef struct pjrt pjrt;

/* Loads the plugin file; makes no client.  NOT_FOUND: no such file; INVALID: not a plugin. */
tpu_error *pjrt_open(const char *path, pjrt **out_p) TPU_MUST_USE;      /* owned */
void pjrt_close(pjrt *p);                               /* the library stays loaded: plugins do not survive dlclose */
int pjrt_minor(const pjrt *p);                          /* API version 0.N */
const char *pjrt_path(const pjrt *p);                   /* borrowed */
bool pjrt_has(const pjrt *p, int slot);                 /* the plugin's table reaches that far and it is filled */
/* Asks every entry we call with a size of 0: each must name the size it wants, and none may be larger than ours.  The
 * answers go to `report`, a line each. */
tpu_error *pjrt_self_check(const pjrt *p, text *report) TPU_MUST_USE;
bool pjrt_forked(void);                                 /* in a child of a process that had loaded a plugin */

/* ---- client ---- */
tpu_error *pjrt_client(pjrt *p, int cpu_devices) TPU_MUST_USE;          /* creates it; cpu_devices 0: a TPU's own number */
int pjrt_device_count(const pjrt *p);
const char *pjrt_platform(const pjrt *p);               /* borrowed: "cpu", "tpu" */
const char *pjrt_platform_version(const pjrt *p);       /* borrowed */
const char *pjrt_device_kind(const pjrt *p, int device);/* borrowed: "cpu", "TPU v5 lite" */
int64_t pjrt_device_memory(const pjrt *p, int device);  /* bytes; 0: the plugin does not tell */

/* ---- compile options: a CompileOptionsProto, never empty (an empty one aborts the process) ---- */
typedef struct pjrt_option { const char *name; char kind; /* 's' 'b' 'i' 'd' */ const char *s; int64_t i; double d; } pjrt_option;
typedef struct pjrt_options {
    int replicas, partitions;                           /* 0 means 1 */
    bool spmd, shardy, portable;                        /* portable: one executable for any device of the client */
    const int *devices;                                 /* replicas x partitions ids, or NULL */
    int optimization_level;                             /* 0: the compiler's own; 9, 19, 29: O0, O1, O2 */
    const pjrt_option *override; int noverride;
} pjrt_options;
void pjrt_options_bytes(const pjrt_options *o, text *out);

/* ---- executables ---- */
tpu_error *pjrt_compile(pjrt *p, const char *code, size_t len, const char *options, size_t noptions, PJRT_LoadedExecutable **out_x) TPU_MUST_USE; /* owned; waits */
tpu_error *pjrt_serialize(pjrt *p, PJRT_LoadedExecutable *x, text *out) TPU_MUST_USE;
tpu_error *pjrt_load(pjrt *p, const char *blob, size_t len, PJRT_LoadedExecutable **out_x) TPU_MUST_USE; /* owned; waits */
void pjrt_executable_free(pjrt *p, PJRT_LoadedExecutable *x);
tpu_error *pjrt_num_outputs(pjrt *p, PJRT_LoadedExecutable *x, size_t *out_n) TPU_MUST_USE;
/* One device.  keep[nkeep]: inputs that must not be donated.  out receives owned buffers. */
tpu_error *pjrt_execute(pjrt *p, PJRT_LoadedExecutable *x, int device, PJRT_Buffer *const *in, size_t nin, const int64_t *keep, size_t nkeep,
                        PJRT_Buffer **out) TPU_MUST_USE;
/* The same with what is rarely asked: one launch_id for the devices that meet in a collective; an event at the end. */
typedef struct pjrt_launch {
    PJRT_LoadedExecutable *x;
    int device, launch_id;
    PJRT_Buffer *const *in; size_t nin;
    const int64_t *keep; size_t nkeep;
    PJRT_Buffer **out;                                  /* receives owned buffers */
    PJRT_Event **out_done;                              /* receives an owned event; NULL: not asked */
} pjrt_launch;
tpu_error *pjrt_launch_one(pjrt *p, const pjrt_launch *l) TPU_MUST_USE;

/* ---- events ---- */
tpu_error *pjrt_event_wait(pjrt *p, PJRT_Event *take_ev) TPU_MUST_USE; /* waits */
/* `then` is called once, at once or in a thread of the plugin; not at all if this fails. */
tpu_error *pjrt_event_then(pjrt *p, PJRT_Event *take_ev, void (*then)(tpu_error *take_e, void *ctx), void *ctx) TPU_MUST_USE;
void pjrt_event_free(pjrt *p, PJRT_Event *ev);

/* ---- buffers ---- */
int pjrt_buffer_type(tpu_dtype t);                      /* PJRT_Buffer_Type; -1: none */
/* Copies the host's bytes before it returns [A4]; byte_strides NULL: contiguous. */
tpu_error *pjrt_to_device(pjrt *p, int device, const void *host, const tpu_type *type, const int64_t *byte_strides, PJRT_Buffer **out_b) TPU_MUST_USE; /* owned */
/* No copy: the device reads `host`, which starts at a multiple of 64, until `done` is called [A4: only memory that we own].
 * If this fails, done is not called. */
tpu_error *pjrt_lend(pjrt *p, int device, const void *host, const tpu_type *type, void (*done)(tpu_error *take_e, void *ctx), void *ctx, PJRT_Buffer **out_b) TPU_MUST_USE; /* owned */
tpu_error *pjrt_copy(pjrt *p, PJRT_Buffer *b, int device, PJRT_Buffer **out_b) TPU_MUST_USE; /* owned; to another or the same device */
tpu_error *pjrt_to_host(pjrt *p, PJRT_Buffer *b, void *dst, size_t bytes) TPU_MUST_USE; /* waits */
tpu_error *pjrt_buffer_wait(pjrt *p, PJRT_Buffer *b) TPU_MUST_USE;      /* waits */
bool pjrt_buffer_ready(pjrt *p, PJRT_Buffer *b);        /* does not wait; an error counts as ready */
tpu_error *pjrt_buffer_pointer(pjrt *p, PJRT_Buffer *b, void **out_at) TPU_MUST_USE; /* borrowed: device memory of a ready buffer */
void pjrt_buffer_free(pjrt *p, PJRT_Buffer *b);

/* ---- compile-only topologies: a TPU's compiler without a TPU ---- */
tpu_error *pjrt_topology(pjrt *p, const char *name, PJRT_TopologyDescription **out_t) TPU_MUST_USE; /* owned */
void pjrt_topology_free(pjrt *p, PJRT_TopologyDescription *t);
tpu_error *pjrt_compile_for(pjrt *p, const PJRT_TopologyDescription *t, const char *code, size_t len, const char *options, size_t noptions,
                            PJRT_Executable **out_x) TPU_MUST_USE;      /* owned; waits */
void pjrt_compiled_free(pjrt *p, PJRT_Executable *x);
tpu_error *pjrt_topology_devices(pjrt *p, PJRT_TopologyDescription *t, int *out_n, int64_t *out_bytes_each) TPU_MUST_USE; /* bytes 0: not told */
tpu_error *pjrt_topology_bytes(pjrt *p, PJRT_TopologyDescription *t, text *out) TPU_MUST_USE;

/* ---- what a compiled program tells of itself ---- */
typedef struct pjrt_memory { int64_t code, arguments, outputs, aliased, temporary, peak; } pjrt_memory; /* bytes */
tpu_error *pjrt_compiled(pjrt *p, PJRT_LoadedExecutable *x, PJRT_Executable **out_x) TPU_MUST_USE; /* owned */
tpu_error *pjrt_compiled_memory(pjrt *p, PJRT_Executable *x, pjrt_memory *out) TPU_MUST_USE;
/* Calls `each` for every figure: "flops", "bytes accessed", "optimal_seconds" ...; the names are not terminated. */
tpu_error *pjrt_compiled_cost(pjrt *p, PJRT_Executable *x, void (*each)(const char *name, size_t n, double value, void *ctx), void *ctx) TPU_MUST_USE;
tpu_error *pjrt_compiled_fingerprint(pjrt *p, PJRT_Executable *x, text *out) TPU_MUST_USE;
tpu_error *pjrt_compiled_program(pjrt *p, PJRT_Executable *x, text *out) TPU_MUST_USE; /* protobuf "hlo_with_config" */
tpu_error *pjrt_compiled_bytes(pjrt *p, const PJRT_Executable *x, text *out) TPU_MUST_USE; /* serialized */

#endif
