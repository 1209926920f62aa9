/* trace.c - values and the calls that will make them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <pthread.h>
#include <string.h>

#include "launch.h"
#include "op_ctx.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static trace *traces;
static uint64_t epochs;

void engine_lock(void) { pthread_mutex_lock(&lock); }
void engine_unlock(void) { pthread_mutex_unlock(&lock); }
pthread_mutex_t *launch_mutex(void) { return &lock; }

/* ---- values: a free list, since one is made and dropped for nearly every call ---- */
static value *free_values;

value *value_new(const tpu_type *t)
{
    value *v = free_values;
    if (v) free_values = (value *)(void *)v->tr;
    else if (!(v = mem_new(sizeof *v))) return NULL;
    *v = (value){.refs = 1, .type = t};
    return v;
}

value *value_of_buffer(buffer *take_b)
{
    value *v = value_new(buffer_type(take_b));
    if (v) v->buf = take_b;
    else buffer_release(take_b);
    return v;
}

value *value_retain(value *v)
{
    v->refs++;
    return v;
}

void value_release(value *v)
{
    if (!v || --v->refs > 0) return;
    buffer_release(v->buf);
    tpu_error_free(v->err);
    fault_release(v->fault);
    v->tr = (trace *)(void *)free_values;
    free_values = v;
}

/* ---- traces ---- */
#define SEEN 4096                   /* a power of two */

static _Thread_local void *here;
static _Thread_local int own;       /* its address names a thread without an owner */
static _Thread_local trace *last;

void engine_owner_use(void *owner) { here = owner; }

static trace *trace_make(int device, void *owner)
{
    trace *tr = mem_new(sizeof *tr);
    if (!tr) return NULL;
    tr->seen = mem_new(SEEN * sizeof *tr->seen);
    tr->seen_epoch = mem_new(SEEN * sizeof *tr->seen_epoch);
    if (!tr->seen || !tr->seen_epoch) {
        mem_free(tr->seen);
        mem_free(tr->seen_epoch);
        mem_free(tr);
        return NULL;
    }
    tr->device = device;
    tr->owner = owner;
    tr->epoch = ++epochs;
    tr->next = traces;
    traces = tr;
    return tr;
}

trace *trace_here(int device)
{
    void *owner = here ? here : &own;
    if (last && last->owner == owner && last->device == device) return last;
    for (trace *tr = traces; tr; tr = tr->next)
        if (tr->owner == owner && tr->device == device) return last = tr;
    trace *tr = trace_make(device, owner);
    if (tr) last = tr;
    return tr;
}

trace *trace_list(void) { return traces; }

void trace_reset(trace *tr)
{
    for (size_t i = 0; i < tr->nlocal; i++) {
        if (tr->local[i]->tr == tr) tr->local[i]->tr = NULL;
        value_release(tr->local[i]);
    }
    tr->ncall = tr->nin = tr->nnum = tr->nlocal = 0;
    tr->boundary = false;
    tr->epoch = ++epochs;
    memset(tr->recent, 0, sizeof tr->recent);
}

uint64_t trace_context(const trace *tr)
{
    uint64_t h = 0;
    for (size_t i = 0; i < TPU_COUNT(tr->recent); i++) h = (h ^ tr->recent[(tr->ncall + i) % TPU_COUNT(tr->recent)]) * 0x9e3779b97f4a7c15ull;
    return h;
}

static bool room(trace *tr, size_t nin, size_t nnum, size_t nlocal)
{
    size_t want = tr->nlocal + nlocal;
    return mem_reserve(&tr->call, &tr->call_cap, tr->ncall + 1, sizeof *tr->call) &&
           mem_reserve(&tr->in, &tr->in_cap, tr->nin + nin, sizeof *tr->in) &&
           mem_reserve(&tr->num, &tr->num_cap, tr->nnum + nnum, sizeof *tr->num) &&
           mem_reserve(&tr->local, &tr->local_cap, want, sizeof *tr->local) &&
           mem_reserve(&tr->made, &tr->made_cap, want, sizeof *tr->made) &&
           mem_reserve(&tr->prev, &tr->prev_cap, want, sizeof *tr->prev);
}

static void add_local(trace *tr, value *v, uint32_t made)
{
    v->epoch = tr->epoch;
    v->local = (uint32_t)tr->nlocal;
    tr->local[tr->nlocal] = value_retain(v);
    tr->made[tr->nlocal] = made;
    tr->prev[tr->nlocal++] = -1;
}

/* The local of an input.  Two traces that use one value in turn overwrite its note; then a search finds it. */
static uint32_t local_of(trace *tr, value *v)
{
    if (v->epoch == tr->epoch) return v->local;
    if (v->epoch && traces->next)
        for (size_t i = 0; i < tr->nlocal; i++)
            if (tr->local[i] == v) {
                v->epoch = tr->epoch;
                return v->local = (uint32_t)i;
            }
    add_local(tr, v, 0);
    return v->local;
}

/* An equal call made before in this trace: its index, or -1 and the free place for this one.  By content, never by address,
 * and exact: what is merged decides which program a trace is, in every process alike [C2]. */
static int64_t merge(trace *tr, const call_memo *m, size_t in0, uint64_t *out_slot)
{
    uint64_t h = m->hash.lo;
    for (int i = 0; i < m->nin; i++) h = (h ^ tr->in[in0 + (size_t)i]) * 0x9e3779b97f4a7c15ull;
    uint64_t at = (h ^ h >> 31) & (SEEN - 1);
    for (; tr->seen_epoch[at] == tr->epoch; at = (at + 1) & (SEEN - 1)) {
        const trace_call *c = &tr->call[tr->seen[at]];
        if (c->m == m && !memcmp(&tr->in[c->in0], &tr->in[in0], (size_t)m->nin * sizeof *tr->in)) return tr->seen[at];
    }
    *out_slot = at;
    return -1;
}

static void give_results(trace *tr, const call_memo *m, uint32_t out0, value **out)
{
    for (int i = 0, k = 0; i < m->nresult; i++) out[i] = m->result[i] ? value_retain(tr->local[out0 + (uint32_t)k++]) : NULL;
}

tpu_error *trace_append(trace *tr, const call_memo *m, value *const *in, const trace_num *num, value **out)
{
    if (!room(tr, (size_t)m->nin, (size_t)m->nslot, (size_t)(m->nin + m->nresult))) return tpu_fail_memory();
    size_t in0 = tr->nin;
    for (int i = 0; i < m->nin; i++) {
        if (in[i]->tr && in[i]->tr != tr) TPU_TRY(launch_cut(in[i]->tr));
        tr->in[in0 + (size_t)i] = local_of(tr, in[i]);
    }
    uint64_t slot = 0;
    if (m->pure && m->nin && tr->ncall < SEEN / 2) {                            /* each tensor of zeros is its own: it may become an input */
        int64_t twin = merge(tr, m, in0, &slot);
        if (twin >= 0) {
            launch_count_merged();
            give_results(tr, m, tr->call[twin].out0, out);
            return NULL;
        }
        tr->seen_epoch[slot] = tr->epoch;
        tr->seen[slot] = (uint32_t)tr->ncall;
    }
    uint32_t out0 = (uint32_t)tr->nlocal;
    for (int i = 0; i < m->nresult; i++) {
        if (!m->result[i]) continue;
        value *v = value_new(m->result[i]);
        if (!v) return tpu_fail_memory();               /* locals without a call: dropped at the cut */
        v->tr = tr;
        add_local(tr, v, (uint32_t)tr->ncall + 1);
        value_release(v);                               /* the trace's reference stays */
    }
    if (m->nslot) memcpy(&tr->num[tr->nnum], num, (size_t)m->nslot * sizeof *num);
    tr->recent[tr->ncall % TPU_COUNT(tr->recent)] = m->hash.lo;
    tr->call[tr->ncall++] = (trace_call){.m = m, .in0 = (uint32_t)in0, .out0 = out0, .num0 = (uint32_t)tr->nnum};
    tr->nin += (size_t)m->nin;
    tr->nnum += (size_t)m->nslot;
    give_results(tr, m, out0, out);
    return NULL;
}

void trace_took_over(trace *tr, value *old, value *v)
{
    if (!old || old == v || v->epoch != tr->epoch || old->epoch != tr->epoch || old->type != v->type) return;
    if (tr->prev[v->local] < 0 && tr->made[v->local] > tr->made[old->local]) tr->prev[v->local] = (int32_t)old->local;
}

/* ---- numbers ---- */
static double as_double(const call_num *n, bool imag)
{
    if (n->kind == TPU_C128) return imag ? n->im : n->re;
    return imag ? 0 : n->kind == TPU_F64 ? n->re : (double)n->i;
}

static trace_num number(const call_num *n, uint8_t cls, bool imag)
{
    if (cls == OP_SLOT_F32) return (trace_num){.f = (float)as_double(n, imag)};
    if (cls == OP_SLOT_F64) return (trace_num){.d = as_double(n, imag)};
    bool real = n->kind == TPU_F64 || n->kind == TPU_C128;
    return (trace_num){.i = real ? (int64_t)as_double(n, imag) : n->i};
}

static trace_num slot_number(const call_slot *s, const call_arg *args, const rng *gen)
{
    static const call_num none = {.kind = TPU_I64};
    switch (s->what) {
    case OP_SLOT_SEED: return (trace_num){.i = (int64_t)gen->seed};
    case OP_SLOT_OFFSET: return (trace_num){.i = (int64_t)gen->offset};
    case OP_SLOT_HOST:
    case OP_SLOT_HOST_IMAG: return number(&args[s->arg].t[s->elem].num, s->cls, s->what == OP_SLOT_HOST_IMAG);
    default: break;
    }
    const call_arg *a = &args[s->arg];
    return number(a->tag == CALL_NUM ? &a->num : a->tag == CALL_NUMS ? &a->nums[s->elem] : &none, s->cls, s->what == OP_SLOT_IMAG);
}

/* Scratch of the thread, grown as needed and kept. */
static _Thread_local trace_num *nums;
static _Thread_local size_t num_room;
static _Thread_local value **results;
static _Thread_local size_t result_room;
static _Thread_local const tpu_type **types;
static _Thread_local size_t type_room;

tpu_error *trace_apply(trace *tr, const call_op *op, const call_arg *args, value *const *in, int nin, rng *gen, const call_memo **out_m,
                       value ***out)
{
    if (!mem_reserve(&types, &type_room, (size_t)nin + 1, sizeof *types)) return tpu_fail_memory();
    for (int i = 0; i < nin; i++) types[i] = in[i]->type;
    const call_memo *m;
    TPU_TRY(call_lookup(op, args, types, &m));
    if (!mem_reserve(&nums, &num_room, (size_t)m->nslot + 1, sizeof *nums)) return tpu_fail_memory();
    if (!mem_reserve(&results, &result_room, (size_t)m->nresult + 1, sizeof *results)) return tpu_fail_memory();
    if (m->draws && !gen) gen = engine_default_rng(tr->device);
    for (int i = 0; i < m->nslot; i++) nums[i] = slot_number(&m->slot[i], args, gen);
    TPU_TRY(trace_append(tr, m, in, nums, results));
    if (m->draws) gen->offset += ((uint64_t)m->draws + 3) / 4 * 4;
    *out_m = m;
    *out = results;
    return NULL;
}
