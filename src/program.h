/* program.h - what a trace is once cut: a list of calls by content, compiled once, launched often.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_PROGRAM_H
#define TPUTORCH_PROGRAM_H

#include "launch.h"

/* A trace seen as a program: live calls only, values renumbered (inputs in order of first use, then results). */
typedef struct program_cut {
    hash128 key;
    size_t ncall; uint32_t *call;                       /* live calls, indices into the trace */
    int nin; uint32_t *in;                              /* locals */
    int nout; uint32_t *out;                            /* locals */
    uint32_t *id;                                       /* local -> canonical number */
    int32_t *alias;                                     /* input -> output that may take its memory, or -1 */
} program_cut;                                          /* all arrays: scratch, borrowed until the next cut */

typedef struct program_call { const call_memo *m; uint32_t in0, out0; } program_call;

typedef struct program {
    hash128 key;
    struct program *next;
    arena *mem;
    size_t ncall; program_call *call; uint32_t *ref;    /* recipe: ref holds the calls' input numbers */
    int nin; const tpu_type **in; int32_t *alias;
    int nout; const tpu_type **out; uint32_t *out_id;
    int64_t bytes;                                      /* of inputs and outputs */
    int nnum[CALL_SLOT_CLASSES];
    int nguard; const char **guard;
    size_t dep_words; uint64_t *dep;                    /* an output's bits: the inputs, then the guards it depends on */
    PJRT_LoadedExecutable *exec;                        /* owned; NULL until compiled */
    tpu_error *err;                                     /* owned: it does not compile */
    uint64_t launches;
} program;

/* With the lock held. */
tpu_error *program_cut_of(trace *tr, program_cut *out_cut) TPU_MUST_USE;
tpu_error *program_find(const trace *tr, const program_cut *cut, program **out_p) TPU_MUST_USE; /* borrowed, lives for ever */
static inline int program_numbers_of(const program *p) { return p->nnum[0] + p->nnum[1] + p->nnum[2]; }
void program_numbers(const trace *tr, const program_cut *cut, trace_num *out_num);
void program_stats(engine_stats *s);
/* Gives each output value the faults it depends on: of the guards and of the inputs. */
void fault_of_launch(const program *p, value *const *in, buffer *take_flags, value *const *out);

/* Without the lock, by the one who launches. */
tpu_error *program_ready(program *p) TPU_MUST_USE;      /* compiles or loads; waits */
tpu_error *program_upload(const program *p, const trace_num *num, int device, buffer **out_number) TPU_MUST_USE; /* shared, one a number */
/* in: the inputs, then the numbers; keep[i]: may not be donated; out: nout buffers, then the flags of the guards. */
tpu_error *program_run(program *p, int device, buffer *const *in, const uint8_t *keep, buffer **out) TPU_MUST_USE; /* shared */
/* StableHLO of the program, for tests, plans and dumps. */
tpu_error *program_text(const program *p, hlo_target target, text *out) TPU_MUST_USE;

#endif
