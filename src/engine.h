/* engine.h - THE path: call -> trace -> key -> executable -> buffers.  What the glue, the Python module and tests use.
 * Any thread.  Functions marked `waits` may block on the device and must be called without PyTorch's GIL.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_ENGINE_H
#define TPUTORCH_ENGINE_H

#include "call.h"

/* ---- start ---- */
/* Candidates are plugin files in the order to try, as Python found them in site-packages: "libtpu=...", "cpu=..." lines
 * separated by '\n'.  Remembers only; the plugin loads at the first use of the device. */
TPU_API void engine_configure(const char *plugin_candidates, const char *cache_dir);
TPU_API tpu_error *engine_start(void) TPU_MUST_USE;     /* loads plugin and client, once; called by everything that needs it; waits */
TPU_API bool engine_started(void);
TPU_API void engine_stop(void);                         /* at exit: finishes queued work, stops workers; later reads still work */
TPU_API bool engine_forked(void);                       /* in a child of a process that had started [G1] */

/* ---- devices ---- */
TPU_API int engine_device_count(void);                  /* never fails: 0 if no plugin; starts nothing when TPUTORCH_CPU_DEVICES tells */
TPU_API int engine_device(void);                        /* current, of this thread */
TPU_API int engine_set_device(int d);                   /* the previous one; d < 0 only asks */
TPU_API const char *engine_device_name(int d);          /* borrowed: "XLA:CPU", "TPU v5 lite" */
TPU_API bool engine_on_tpu(void);                       /* a TPU, not the CPU plugin; false before the start */
TPU_API const char *engine_plugin_path(void);           /* borrowed; "" before the start, as the next ones */
TPU_API const char *engine_plugin_version(void);
TPU_API int engine_plugin_api(void);                    /* N of PJRT API 0.N */
TPU_API const char *engine_cache_dir(void);             /* "": no disk */
TPU_API tpu_error *engine_sync(int device) TPU_MUST_USE;/* everything done; raises the first pending error [E3]; waits */
TPU_API tpu_error *engine_flush(int device) TPU_MUST_USE; /* hands the pending trace to the worker, does not wait for it */

/* ---- modes ---- */
typedef enum engine_mode { ENGINE_FUSED, ENGINE_STRICT, ENGINE_DEBUG } engine_mode;
TPU_API engine_mode engine_get_mode(void);
TPU_API tpu_error *engine_set_mode(engine_mode m) TPU_MUST_USE; /* flushes */

/* ---- storages: what c10::DataPtr's context points to ---- */
/* addr: unique among live storages, never null, in a PROT_NONE range of at least nbytes.  Over the memory limit: TPU_EXHAUSTED. */
TPU_API tpu_error *storage_new(size_t nbytes, int device, storage **out_st) TPU_MUST_USE; /* owned */
TPU_API void storage_free(storage *st);
TPU_API uint64_t storage_addr(const storage *st);
TPU_API size_t storage_nbytes(const storage *st);
TPU_API int storage_device(const storage *st);
TPU_API storage *storage_find(uint64_t addr, int64_t *out_delta); /* borrowed; the live storage that holds this address; NULL */
TPU_API tpu_error *storage_resize(storage *st, size_t nbytes) TPU_MUST_USE; /* keeps what fits; the address may change */

/* ---- operations ---- */
typedef struct engine_out {
    const tpu_type *type;                               /* NULL: undefined tensor */
    storage *st;                                        /* owned by the caller from here on */
    int64_t stride[TYPE_MAX_RANK];                      /* PyTorch's strides */
} engine_out;
typedef struct engine_result { int n; engine_out *out; } engine_result; /* borrowed: this thread, until its next engine_call */
/* Runs one ATen call.  Functional: res has the returns.  In-place and mutating: the written arguments' storages get new
 * values, res has what the schema returns besides its written arguments.  out=: the out tensors must have the right shape
 * already (engine_infer, then the glue resizes them).  Does not wait, except in strict and debug mode. */
TPU_API tpu_error *engine_call(const call_op *op, const call_arg *args, engine_result *res) TPU_MUST_USE;
/* Only the output types, for out= and Meta: borrowed interned types; n written to out_n. */
TPU_API tpu_error *engine_infer(const call_op *op, const call_arg *args, int max, const tpu_type **out_types, int *out_n) TPU_MUST_USE;

/* ---- whose trace: a user thread makes one owner and autograd's threads use their caller's ---- */
TPU_API void *engine_owner_new(void);                   /* owned; NULL if out of memory: then this thread's own is used */
TPU_API void engine_owner_use(void *owner);             /* sets a thread-local; NULL: this thread's own */
TPU_API void engine_owner_free(void *owner);            /* its pending trace is handed to the worker */

/* ---- data ---- */
TPU_API tpu_error *engine_upload(const call_tensor *dst, const void *host, const int64_t *host_stride, tpu_dtype host_dtype) TPU_MUST_USE;
/* host has dst's sizes; strides in elements; converts nothing: dtypes are equal.  waits */
TPU_API tpu_error *engine_download(const call_tensor *src, void *host, const int64_t *host_stride) TPU_MUST_USE;
TPU_API tpu_error *engine_copy(const call_tensor *src, const call_tensor *dst) TPU_MUST_USE; /* same or other device; converts dtype */
TPU_API tpu_error *engine_item(const call_tensor *src, call_num *out_num) TPU_MUST_USE;      /* waits */

/* ---- random numbers ---- */
struct rng { uint64_t seed, offset; };                  /* of one torch.Generator; counted on the host [R1] */
TPU_API rng *engine_default_rng(int device);            /* borrowed for ever */

/* ---- memory [own counters; the plugin's are not relied on] ---- */
typedef struct engine_memory { int64_t allocated, peak, limit, live, allocs, frees; } engine_memory; /* bytes, bytes, bytes, storages, ... */
TPU_API void engine_memory_stats(int device, engine_memory *out);
TPU_API void engine_memory_reset_peak(int device);
TPU_API void engine_memory_set_limit(int device, int64_t bytes); /* 0: the device's own size */
TPU_API void engine_memory_words(int device, text *out);/* memory_summary: totals and the largest live storages */

/* ---- counters, for torch.tpu.compile_stats() and tests ---- */
typedef struct engine_stats { uint64_t calls, memo_misses, programs, launches, compiles, disk_hits, memory_hits, disk_misses,
    merged, dropped, uploads, downloads, promotions; double compile_seconds; } engine_stats;
TPU_API void engine_get_stats(engine_stats *out);       /* waits for what is queued to be launched */
/* StableHLO of the i-th program so far, as it would be for that target; nothing past the last one. */
TPU_API tpu_error *engine_program_text(size_t i, hlo_target target, text *out) TPU_MUST_USE;
TPU_API void engine_set_precision(hlo_prec p);          /* torch.set_float32_matmul_precision [N1] */

#endif
