/* launch.h - from a cut trace to buffers: programs by content, their executables, the worker that compiles and launches.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_LAUNCH_H
#define TPUTORCH_LAUNCH_H

#include <pthread.h>

#include "engine.h"
#include "trace.h"

/* All with the engine's lock held. */
tpu_error *launch_cut(trace *tr) TPU_MUST_USE;          /* the pending calls become a batch of the worker's queue; never waits */
void launch_throttle(void);                             /* waits until the queue is short enough; gives the lock up meanwhile */
/* Waits until v has a buffer or an error, cutting its trace first; launches by itself when nothing is queued.  Gives the
 * lock up meanwhile. */
void launch_kick(void);                                 /* lets the worker see what is queued */
tpu_error *launch_need(value *v) TPU_MUST_USE;
tpu_error *launch_drain(int device) TPU_MUST_USE;       /* everything queued is launched and finished; first error since the last drain [E3] */
tpu_error *fault_check(fault *take_f) TPU_MUST_USE;     /* waits without the lock held by the caller; the IndexError it flags, or NULL */
fault *fault_retain(fault *f);
void fault_release(fault *f);
void launch_count_merged(void);
void launch_settle(void);                               /* waits until nothing is queued; gives the lock up meanwhile */
void launch_stats(engine_stats *out);
pthread_mutex_t *launch_mutex(void);                    /* the engine's lock, for conditions */
void launch_stop(void);                                 /* at exit, without the lock */

#endif
