/* launch.c - cuts traces into batches, finds or makes their programs, launches them in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "launch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "program.h"
#include "storage.h"

struct batch {
    program *p;
    int device;
    value **in, **out;              /* shared, by the program's order */
    trace_num *num;                 /* by class */
    batch *next;
};

static pthread_cond_t work = PTHREAD_COND_INITIALIZER;  /* something is queued */
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;  /* something has been launched */
static batch *head, *tail;
static int queued;
static bool running, worker_started, stopping;
static pthread_t worker;
static tpu_error *first_error;
static uint64_t launches, dropped, merged;

#define QUEUE 2                     /* programs that may wait while Python builds the next */
#define FLIGHT 2                    /* launches that may be unfinished */
#define FLIGHTS 16
#define LARGE (16 << 20)            /* bytes in and out */
static buffer *flight[FLIGHTS];     /* shared: one output of each of the last launches */
static unsigned flight_at;

void launch_count_merged(void) { merged++; }

/* ---- cutting ---- */
static void batch_free(batch *b)
{
    for (int i = 0; i < b->p->nin; i++) value_release(b->in[i]);
    for (int i = 0; i < b->p->nout; i++) {
        if (b->out[i]->from == b) b->out[i]->from = NULL;
        value_release(b->out[i]);
    }
    mem_free(b->in);
    mem_free(b->num);
    mem_free(b);
}

static batch *batch_new(program *p, const trace *tr, const program_cut *cut)
{
    batch *b = mem_new(sizeof *b);
    if (!b) return NULL;
    size_t values = (size_t)(p->nin + p->nout) + 1, nums = (size_t)program_numbers_of(p) + 1;
    b->in = mem_new(values * sizeof *b->in);
    b->num = mem_new(nums * sizeof *b->num);
    if (!b->in || !b->num) {
        mem_free(b->in);
        mem_free(b->num);
        mem_free(b);
        return NULL;
    }
    b->p = p;
    b->device = tr->device;
    b->out = b->in + p->nin;
    for (int i = 0; i < p->nin; i++) b->in[i] = value_retain(tr->local[cut->in[i]]);
    for (int i = 0; i < p->nout; i++) {
        b->out[i] = value_retain(tr->local[cut->out[i]]);
        b->out[i]->from = b;
        b->out[i]->tr = NULL;
    }
    program_numbers(tr, cut, b->num);
    return b;
}

/* Zeros that a later value of the trace takes over (an optimizer's fresh state) become buffers of their own, so that the
 * first step is the program that every step is. */
static tpu_error *lend_zeros(trace *tr)
{
    for (size_t o = 0; o < tr->nlocal; o++) {
        if (!tr->made[o] || !tr->local[o]->holders || tr->prev[o] < 0) continue;
        uint32_t root = (uint32_t)o;
        while (tr->prev[root] >= 0) root = (uint32_t)tr->prev[root];
        if (!tr->made[root] || !storage_is_zeros(tr->call[tr->made[root] - 1].m)) continue;
        value *v = tr->local[root];
        void *zeros = mem_new((size_t)type_bytes(v->type) + 1);
        tpu_error *e = zeros ? device_upload(tr->device, v->type, zeros, NULL, &v->buf) : tpu_fail_memory();
        mem_free(zeros);
        if (e) return e;
        v->tr = NULL;
        tr->made[root] = 0;
    }
    return NULL;
}

tpu_error *launch_cut(trace *tr)
{
    if (!tr->ncall) {
        trace_reset(tr);
        return NULL;
    }
    program_cut cut = {0};
    program *p = NULL;
    tpu_error *e = lend_zeros(tr);
    if (!e) e = program_cut_of(tr, &cut);
    dropped += tr->ncall - cut.ncall;
    if (!e && cut.ncall) e = program_find(tr, &cut, &p);
    batch *b = p ? batch_new(p, tr, &cut) : NULL;
    if (!e && p && !b) e = tpu_fail_memory();
    if (b) {
        if (tail) tail->next = b;
        else head = b;
        tail = b;
        queued++;
    }
    for (size_t i = 0; e && i < tr->nlocal; i++)        /* nothing is lost silently: who reads these is told */
        if (tr->made[i] && tr->local[i]->holders && !tr->local[i]->err) tr->local[i]->err = tpu_error_copy(e);
    trace_reset(tr);
    return e;
}

/* ---- launching; the caller has taken `running` ---- */
static tpu_error *input_error(const batch *b)
{
    for (int i = 0; i < b->p->nin; i++)
        if (b->in[i]->err) return tpu_error_copy(b->in[i]->err);
    return NULL;
}

static void fail_batch(batch *b, tpu_error *take_e)
{
    for (int i = 0; i < b->p->nout; i++)
        if (!b->out[i]->err) b->out[i]->err = tpu_error_copy(take_e);
    if (!first_error) first_error = take_e;
    else tpu_error_free(take_e);
}

/* Inputs that only this batch still holds are given away where the program can use them. */
static void take_donations(batch *b, buffer **in, uint8_t *keep)
{
    for (int i = 0; i < b->p->nin; i++) {
        value *v = b->in[i];
        in[i] = buffer_retain(v->buf);
        if (b->p->alias[i] < 0) continue;
        bool twice = false;
        for (int j = 0; j < b->p->nin && !twice; j++) twice = j != i && b->in[j]->buf == v->buf;
        keep[i] = twice || v->refs > 1 || v->holders > 0 || buffer_refs(v->buf) > 2;
        if (!keep[i]) {
            buffer_release(v->buf);
            v->buf = NULL;
        }
    }
}

static void publish(batch *b, buffer **out)
{
    for (int i = 0; i < b->p->nout; i++) b->out[i]->buf = out[i];
    fault_of_launch(b->p, b->in, b->p->nguard ? out[b->p->nout] : NULL, b->out);
    if (b->p->nout) {
        unsigned at = flight_at++ % FLIGHTS;
        buffer_release(flight[at]);
        flight[at] = buffer_retain(out[0]);
    }
    launches++;
}

/* At most FLIGHT launches are unfinished, so that memory stays bounded; one, where the host's memory is the device's and
 * the program large: the next would only hold its buffers while it waits for the same cores. */
static void wait_flight(const program *p)
{
    unsigned most = device_is_host() && p->bytes > LARGE ? 1 : FLIGHT;
    engine_lock();
    buffer *old = flight_at >= most ? buffer_retain(flight[(flight_at - most) % FLIGHTS]) : NULL;
    engine_unlock();
    if (old) tpu_error_free(buffer_wait(old));
    buffer_release(old);
}

static tpu_error *launch(batch *b)
{
    program *p = b->p;
    TPU_TRY(program_ready(p));
    engine_lock();
    tpu_error *e = input_error(b);
    engine_unlock();
    if (e) return e;
    wait_flight(p);
    int nin = p->nin + program_numbers_of(p), nout = p->nout + 1;
    buffer **in = mem_new((size_t)(nin + nout) * sizeof *in), **out = in + nin;
    uint8_t *keep = mem_new((size_t)nin + 1);
    if (!in || !keep) {
        mem_free(in);
        mem_free(keep);
        return tpu_fail_memory();
    }
    e = program_upload(p, b->num, b->device, in + p->nin);
    if (!e) {
        engine_lock();
        take_donations(b, in, keep);
        engine_unlock();
        e = program_run(p, b->device, in, keep, out);
    }
    if (!e) {
        engine_lock();
        publish(b, out);
        engine_unlock();
    }
    for (int i = 0; i < nin; i++) buffer_release(in[i]);
    mem_free(in);
    mem_free(keep);
    return e;
}

/* Takes the first batch of the queue and launches it.  Called and left with the lock held; `running` is ours. */
static void launch_first(void)
{
    batch *b = head;
    head = b->next;
    if (!head) tail = NULL;
    engine_unlock();
    tpu_error *e = launch(b);
    engine_lock();
    queued--;
    if (e) fail_batch(b, e);
    batch_free(b);
}

static void *work_on(void *unused)
{
    engine_lock();
    while (!stopping) {
        if (!head || running) {
            pthread_cond_wait(&work, launch_mutex());
            continue;
        }
        running = true;
        launch_first();
        running = false;
        pthread_cond_broadcast(&done);
    }
    engine_unlock();
    return NULL;
}

void launch_kick(void)
{
    if (!head) return;
    if (!worker_started) worker_started = !pthread_create(&worker, NULL, work_on, NULL);
    pthread_cond_signal(&work);
}

/* Launches what is queued by itself, or waits for the worker that is at it. */
static void step(void)
{
    if (running || !head) {
        pthread_cond_wait(&done, launch_mutex());
        return;
    }
    running = true;
    launch_first();
    running = false;
    pthread_cond_broadcast(&done);
    if (head) launch_kick();
}

void launch_settle(void)
{
    while (head || running) step();
}

void launch_throttle(void)
{
    launch_kick();
    while (queued > QUEUE) step();
}

tpu_error *launch_need(value *v)
{
    if (v->tr) TPU_TRY(launch_cut(v->tr));
    while (v->from) step();
    if (v->err) return tpu_error_copy(v->err);
    return v->buf ? NULL : tpu_fail(TPU_INTERNAL, "a value was lost before it was launched");
}

tpu_error *launch_drain(int device)
{
    tpu_error *e = NULL;
    for (trace *tr = trace_list(); tr; tr = tr->next)
        if (tr->device == device && !e) e = launch_cut(tr);
    launch_settle();
    buffer *last[FLIGHTS];
    for (int i = 0; i < FLIGHTS; i++) last[i] = flight[i] ? buffer_retain(flight[i]) : NULL;
    if (!e) {
        e = first_error;
        first_error = NULL;
    }
    engine_unlock();
    for (int i = 0; i < FLIGHTS; i++) {
        tpu_error *w = last[i] ? buffer_wait(last[i]) : NULL;
        if (!e) e = w;
        else tpu_error_free(w);
        buffer_release(last[i]);
    }
    engine_lock();
    return e;
}

void launch_stats(engine_stats *s)
{
    s->launches = launches;
    s->dropped = dropped;
    s->merged = merged;
    program_stats(s);
}

/* What is queued is finished; what comes later is launched by its reader. */
void launch_stop(void)
{
    engine_lock();
    stopping = true;
    launch_settle();
    pthread_cond_broadcast(&work);
    bool join = worker_started;
    worker_started = true;
    engine_unlock();
    if (join) pthread_join(worker, NULL);
}
