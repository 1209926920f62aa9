/* trace.h - the pending program of a (device, owner): calls, values, and where it is cut.
 * One lock guards every trace, value and storage of the process (engine_lock); it is held for about a microsecond a call,
 * never while something compiles, runs or waits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_TRACE_H
#define TPUTORCH_TRACE_H

#include "buffer.h"
#include "call.h"

typedef struct trace trace;
typedef struct value value;
typedef struct batch batch;         /* launch.h */
typedef struct fault fault;         /* launch.h */

struct value {
    int32_t refs;                   /* everyone who points here */
    int32_t holders;                /* storages: while there is one, the value must come to be */
    const tpu_type *type;
    trace *tr;                      /* pending there; NULL once cut */
    uint64_t epoch;                 /* the trace (by its epoch) that last saw it as ... */
    uint32_t local;                 /* ... this local */
    batch *from;                    /* borrowed: cut, not yet launched; NULL once launched */
    buffer *buf;                    /* shared; NULL until launched */
    tpu_error *err;                 /* owned: the value will never be */
    fault *fault;                   /* shared: flags to look at before the value is believed [E4] */
};

/* A number of one launch, by its slot's class. */
typedef union trace_num { float f; int64_t i; double d; } trace_num;

typedef struct trace_call { const call_memo *m; uint32_t in0, out0, num0; } trace_call;

struct trace {
    int device;
    void *owner;
    uint64_t epoch;                 /* unique to the run from one cut to the next */
    trace_call *call; size_t ncall, call_cap;
    uint32_t *in; size_t nin, in_cap;              /* locals, call after call */
    trace_num *num; size_t nnum, num_cap;
    value **local; size_t nlocal, local_cap;       /* shared; inputs and results as they came */
    uint32_t *made; size_t made_cap;               /* call + 1 that gives the local; 0: an input */
    int32_t *prev; size_t prev_cap;                /* the local whose storage this one took over; -1 */
    uint64_t recent[8];                            /* hashes of the last calls: where we are in the program */
    uint32_t *seen; uint64_t *seen_epoch;          /* calls by content, to merge equal ones */
    bool boundary;                  /* an optimizer's step has just been recorded */
    uint64_t anchor;                /* the least context of a stretch of calls: where a long trace is cut */
    trace *next;
};

void engine_lock(void);
void engine_unlock(void);

value *value_new(const tpu_type *t);                    /* shared; NULL if out of memory */
value *value_of_buffer(buffer *take_b);                 /* shared; NULL if out of memory (b is released) */
value *value_retain(value *v);
void value_release(value *v);

trace *trace_here(int device);                          /* borrowed: of the thread's owner; NULL if out of memory */
/* Appends a call; results (shared, one a memo result, NULL for undefined) are given in out_results[m->nresult].
 * Inputs may be pending in another trace: that one is cut first. */
tpu_error *trace_append(trace *tr, const call_memo *m, value *const *in, const trace_num *num, value **out_results) TPU_MUST_USE;
/* Looks the call up, collects its run-time numbers and appends it.  in: the defined device tensors' values in argument order.
 * gen: NULL takes
 * the device's own generator. */
tpu_error *trace_apply(trace *tr, const call_op *op, const call_arg *args, value *const *in, int nin, rng *gen,
                       const call_memo **out_m, value ***out_results) TPU_MUST_USE; /* results: shared values, array borrowed until the next apply of the thread */
uint64_t trace_context(const trace *tr);                /* where in the program we are: equal in each step of a loop */
void trace_took_over(trace *tr, value *old, value *v);  /* v stands where old stood: may use its memory */
trace *trace_list(void);                                /* borrowed: all traces, for synchronize */
void trace_reset(trace *tr);                            /* forgets the calls (after a cut) */

#endif
