/* engine.c - ATen calls in, storages out; and the ways data leaves and enters.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <stdatomic.h>
#include <string.h>

#include "device.h"
#include "launch.h"
#include "storage.h"
#include "view.h"

static _Atomic int mode = ENGINE_FUSED;
static _Atomic uint64_t calls, uploads, downloads;

/* Where a trace without reads or optimizer's steps is cut.  The least context between calls LONG / 2 and LONG is the
 * anchor, and the trace ends where that context comes again, or at LONGEST: a loop of up to LONG / 2 calls is then cut at
 * the same place of each round and repeats one program, wherever it began. */
#define LONG 1000
#define LONGEST 1500

/* Scratch of a thread: inputs and outs of its running call. */
static _Thread_local value **in_v;
static _Thread_local size_t in_room;
static _Thread_local engine_out *outs;
static _Thread_local size_t out_room;

/* ---- inputs ---- */
static tpu_error *read_one(trace *tr, const call_tensor *t, int *n)
{
    if (!t->defined || !t->st) return NULL;
    if (!mem_reserve(&in_v, &in_room, (size_t)*n + 1, sizeof *in_v)) return tpu_fail_memory();
    if (t->st->device != tr->device)
        return tpu_fail(TPU_INVALID, "Expected all tensors to be on the same device, but found at least two devices, tpu:%d and tpu:%d!",
                        tr->device, t->st->device);
    TPU_TRY(storage_read(tr, t, &in_v[*n]));
    ++*n;
    return NULL;
}

static tpu_error *read_inputs(trace *tr, const call_op *op, const call_arg *args, int *n)
{
    *n = 0;
    for (int i = 0; i < op->nargs - op->nouts; i++) {
        const call_arg *a = &args[i];
        if (a->tag == CALL_TENSOR) TPU_TRY(read_one(tr, a->t, n));
        else if (a->tag == CALL_TENSORS)
            for (uint32_t j = 0; j < a->n; j++) TPU_TRY(read_one(tr, &a->t[j], n));
    }
    return NULL;
}

static void drop_inputs(int n)
{
    for (int i = 0; i < n; i++) value_release(in_v[i]);
}

static int device_of(const call_op *op, const call_arg *args)
{
    for (int i = 0; i < op->nargs; i++) {
        if (args[i].tag != CALL_TENSOR && args[i].tag != CALL_TENSORS) continue;
        uint32_t n = args[i].tag == CALL_TENSOR ? 1 : args[i].n;
        for (uint32_t j = 0; j < n; j++)
            if (args[i].t[j].defined && args[i].t[j].st) return args[i].t[j].st->device;
    }
    return engine_device();
}

static rng *generator_of(const call_op *op, const call_arg *args)
{
    for (int i = 0; i < op->nargs; i++)
        if (args[i].tag == CALL_GEN) return args[i].gen;
    return NULL;
}

/* ---- outputs ---- */
/* Elementwise results of permuted inputs are permuted likewise, as TensorIterator has it: dims in order of falling stride. */
static bool follows(const call_op *op, const call_arg *args, const tpu_type *t, int64_t *perm)
{
    if (!(op->row->flags & OP_ELEMENTWISE) || t->rank < 2) return false;
    for (int i = 0; i < op->nargs - op->nouts; i++) {
        const call_tensor *x = args[i].t;
        if (args[i].tag != CALL_TENSOR || !x->defined || !x->st || x->rank != t->rank) continue;
        bool same = true, dense = true, sorted = true;
        for (int d = 0; d < t->rank; d++) same &= x->size[d] == t->dim[d];
        if (!same) continue;
        if (view_is_contiguous(x->rank, x->size, x->stride)) return false;
        for (int d = 0; d < t->rank; d++) {
            int at = d;
            while (at > 0 && x->stride[perm[at - 1]] < x->stride[d]) {
                perm[at] = perm[at - 1];
                at--;
            }
            perm[at] = d;
        }
        for (int d = 0; d < t->rank; d++) {
            sorted &= perm[d] == d;
            dense &= x->stride[d] != 0 || x->size[d] == 1;
        }
        return dense && !sorted;
    }
    return false;
}

static tpu_error *give(trace *tr, const call_op *op, const call_arg *args, value *v, engine_out *o)
{
    int64_t perm[TYPE_MAX_RANK];
    o->type = v->type;
    TPU_TRY(storage_new_locked((size_t)type_bytes(v->type), tr->device, &o->st));
    view_contiguous(v->type->rank, v->type->dim, o->stride);
    if (!follows(op, args, v->type, perm)) {
        storage_set(o->st, v);
        return NULL;
    }
    int64_t step = 1;
    for (int i = v->type->rank - 1; i >= 0; i--) {
        o->stride[perm[i]] = step;
        step *= v->type->dim[perm[i]] > 1 ? v->type->dim[perm[i]] : 1;
    }
    value *w;
    TPU_TRY(storage_transpose_value(tr, v, perm, &w));
    storage_set(o->st, w);
    value_release(w);
    return NULL;
}

static tpu_error *give_all(trace *tr, const call_op *op, const call_arg *args, const call_memo *m, value *const *r, engine_result *res)
{
    if (!mem_reserve(&outs, &out_room, (size_t)m->nret + 1, sizeof *outs)) return tpu_fail_memory();
    for (int i = 0; i < m->nret; i++) {
        outs[i].type = NULL;
        outs[i].st = NULL;
        if (r[i]) {
            tpu_error *e = give(tr, op, args, r[i], &outs[i]);
            if (e) {
                engine_unlock();
                for (int k = 0; k <= i; k++) storage_free(outs[k].st);
                engine_lock();
                return e;
            }
        }
    }
    *res = (engine_result){.n = m->nret, .out = outs};
    return NULL;
}

/* ---- writes ---- */
static void shape_words(const int64_t *size, int rank, text *out)
{
    text_puts(out, "[");
    for (int d = 0; d < rank; d++) text_add(out, "%s%lld", d ? ", " : "", (long long)size[d]);
    text_puts(out, "]");
}

static tpu_error *bad_shape(const call_tensor *t, const tpu_type *r)
{
    text a = {0}, b = {0};
    shape_words(t->size, t->rank, &a);
    shape_words(r->dim, r->rank, &b);
    tpu_error *e = tpu_fail(TPU_INVALID, "output with shape %s doesn't match the broadcast shape %s", a.at ? a.at : "", b.at ? b.at : "");
    text_free(&a);
    text_free(&b);
    return e;
}

static tpu_error *check_write(const call_tensor *t, const tpu_type *r)
{
    if (!dtype_can_cast((tpu_dtype)r->dtype, (tpu_dtype)t->dtype))
        return tpu_fail(TPU_INVALID, "result type %s can't be cast to the desired output type %s", dtype_torch_name((tpu_dtype)r->dtype),
                        dtype_torch_name((tpu_dtype)t->dtype));
    bool same = t->rank == r->rank;
    for (int d = 0; same && d < t->rank; d++) same = t->size[d] == r->dim[d];
    return same ? NULL : bad_shape(t, r);
}

static tpu_error *write_to(trace *tr, const call_tensor *t, value *v)
{
    if (!v || !t->defined) return NULL;
    if (!t->st) return tpu_fail(TPU_INVALID, "a CPU tensor cannot be written by an operation on tpu");
    TPU_TRY(check_write(t, v->type));
    return storage_write(tr, t, v);
}

/* The results of a functional row go to the arguments that this form writes, in order. */
static tpu_error *write_forms(trace *tr, const call_op *op, const call_arg *args, const call_memo *m, value *const *r)
{
    int first = op->form == CALL_OUT ? op->nargs - op->nouts : 0, k = 0;
    for (int i = first; i < op->nargs && k < m->nret; i++) {
        if (!(op->written >> i & 1)) continue;
        uint32_t n = args[i].tag == CALL_TENSOR ? 1 : args[i].tag == CALL_TENSORS ? args[i].n : 0;
        for (uint32_t j = 0; j < n && k < m->nret; j++) TPU_TRY(write_to(tr, &args[i].t[j], r[k++]));
    }
    return NULL;
}

static tpu_error *write_declared(trace *tr, const call_arg *args, const call_memo *m, value *const *r)
{
    for (int i = 0; i < m->nwrite; i++) {
        const call_write *w = &m->write[i];
        const call_arg *a = &args[w->arg];
        if (a->tag == CALL_TENSOR || a->tag == CALL_TENSORS) TPU_TRY(write_to(tr, &a->t[w->elem], r[w->result]));
    }
    return NULL;
}

/* ---- where traces end ---- */
static bool is_foreach(const call_op *op) { return !strncmp(op->name, "_foreach", 8) || !strncmp(op->name, "_fused_", 7); }

/* A list of parameters is written at once: an optimizer's step.  The trace ends before the next call of another kind, so
 * that a training loop gives one program a step, cut by what it does and not by a count that drifts. */
static bool ends_step(const call_op *op, const call_arg *args)
{
    if (!op->written || !is_foreach(op)) return false;
    return args[0].tag == CALL_TENSORS && args[0].n && args[0].t[0].defined && args[0].t[0].flags & CALL_LEAF;
}

static bool long_enough(trace *tr)
{
    if (tr->ncall < LONG / 2) {
        tr->anchor = UINT64_MAX;
        return false;
    }
    uint64_t here = trace_context(tr);
    if (tr->ncall < LONG) {
        if (here < tr->anchor) tr->anchor = here;
        return false;
    }
    return here == tr->anchor || tr->ncall >= LONGEST;
}

static tpu_error *before_call(trace *tr, const call_op *op)
{
    bool longest = long_enough(tr);
    if ((tr->boundary && !is_foreach(op)) || longest) {
        TPU_TRY(launch_cut(tr));
        launch_throttle();
    }
    return NULL;
}

static tpu_error *after_call(trace *tr, const call_op *op, const call_arg *args)
{
    tr->boundary |= ends_step(op, args);
    if (mode == ENGINE_FUSED) return NULL;
    TPU_TRY(launch_cut(tr));
    launch_throttle();
    return mode == ENGINE_DEBUG ? launch_drain(tr->device) : NULL;
}

/* ---- the call ---- */
static tpu_error *call_locked(trace *tr, const call_op *op, const call_arg *args, engine_result *res)
{
    int nin;
    const call_memo *m;
    value **scratch;
    tpu_error *e = read_inputs(tr, op, args, &nin);
    if (!e) e = trace_apply(tr, op, args, in_v, nin, generator_of(op, args), &m, &scratch);
    drop_inputs(nin);
    if (e) return e;
    /* Writes and transposes append calls of their own, which use the same scratch. */
    value *few[16], **r = m->nresult <= 16 ? few : mem_new((size_t)m->nresult * sizeof *r);
    if (!r) {
        for (int i = 0; i < m->nresult; i++) value_release(scratch[i]);
        return tpu_fail_memory();
    }
    memcpy(r, scratch, (size_t)m->nresult * sizeof *r);
    if (op->form == CALL_FUNCTIONAL) e = give_all(tr, op, args, m, r, res);
    else e = write_forms(tr, op, args, m, r);
    if (!e) e = write_declared(tr, args, m, r);
    for (int i = 0; i < m->nresult; i++) value_release(r[i]);
    if (r != few) mem_free(r);
    return e;
}

tpu_error *engine_call(const call_op *op, const call_arg *args, engine_result *res)
{
    res->n = 0;
    if (!op->row) return tpu_fail(TPU_UNIMPLEMENTED, "aten::%s has no row", op->name);
    TPU_TRY(engine_start());
    engine_lock();
    trace *tr = trace_here(device_of(op, args));
    tpu_error *e = tr ? before_call(tr, op) : tpu_fail_memory();
    if (!e && !strcmp(op->name, "zero_") && args[0].t->st) e = storage_zero(tr, args[0].t);
    else if (!e) e = call_locked(tr, op, args, res);
    if (!e) e = after_call(tr, op, args);
    engine_unlock();
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    return e;
}

tpu_error *engine_infer(const call_op *op, const call_arg *args, int max, const tpu_type **types, int *out_n)
{
    *out_n = 0;
    if (!op->row) return tpu_fail(TPU_UNIMPLEMENTED, "aten::%s has no row", op->name);
    TPU_TRY(engine_start());
    engine_lock();
    trace *tr = trace_here(device_of(op, args));
    int nin = 0;
    const call_memo *m = NULL;
    tpu_error *e = tr ? read_inputs(tr, op, args, &nin) : tpu_fail_memory();
    const tpu_type **in = e ? NULL : mem_new((size_t)(nin + 1) * sizeof *in);
    if (!e && !in) e = tpu_fail_memory();
    for (int i = 0; !e && i < nin; i++) in[i] = in_v[i]->type;
    if (!e) e = call_lookup(op, args, in, &m);
    drop_inputs(nin);
    mem_free(in);
    engine_unlock();
    for (int i = 0; !e && i < m->nret && i < max; i++) types[(*out_n)++] = m->result[i];
    return e;
}

/* ---- modes ---- */
engine_mode engine_get_mode(void) { return (engine_mode)mode; }

tpu_error *engine_set_mode(engine_mode m)
{
    if (engine_started()) TPU_TRY(engine_sync(engine_device()));
    mode = (int)m;
    return NULL;
}

tpu_error *engine_sync(int device)
{
    if (!engine_started() || engine_forked()) return NULL;
    engine_lock();
    tpu_error *e = launch_drain(device);
    engine_unlock();
    return e;
}

tpu_error *engine_flush(int device)
{
    if (!engine_started() || engine_forked()) return NULL;
    engine_lock();
    tpu_error *e = NULL;
    for (trace *tr = trace_list(); tr; tr = tr->next)
        if (tr->device == device && !e) e = launch_cut(tr);
    launch_kick();
    engine_unlock();
    return e;
}

void *engine_owner_new(void) { return mem_new(16); }

void engine_owner_free(void *owner)
{
    if (!owner || !engine_started() || engine_forked()) return;
    engine_lock();
    for (trace *tr = trace_list(); tr; tr = tr->next)
        if (tr->owner == owner) {
            tpu_error_free(launch_cut(tr));
            tr->owner = tr;                             /* nobody's: the next owner at this address starts afresh */
        }
    launch_kick();
    engine_unlock();
    mem_free(owner);
}

/* ---- data ---- */
static tpu_error *write_value(const call_tensor *dst, value *v)
{
    trace *tr = trace_here(dst->st->device);
    return tr ? storage_write(tr, dst, v) : tpu_fail_memory();
}

tpu_error *engine_upload(const call_tensor *dst, const void *host, const int64_t *host_stride, tpu_dtype host_dtype)
{
    TPU_TRY(engine_start());
    tpu_type t = type_make(host_dtype, dst->rank, dst->size);
    if (type_count(&t) == 0) return NULL;
    const tpu_type *type = type_intern(&t);
    if (!type) return tpu_fail_memory();
    int64_t bytes[TYPE_MAX_RANK];
    for (int d = 0; d < dst->rank; d++) bytes[d] = host_stride[d] * (int64_t)dtype_size(host_dtype);
    bool plain = view_is_contiguous(dst->rank, dst->size, host_stride);
    buffer *b;
    TPU_TRY(device_upload(dst->st->device, type, host, plain ? NULL : bytes, &b));
    atomic_fetch_add_explicit(&uploads, 1, memory_order_relaxed);
    engine_lock();
    value *v = value_of_buffer(b);
    tpu_error *e = v ? write_value(dst, v) : tpu_fail_memory();
    value_release(v);
    engine_unlock();
    return e;
}

/* The buffer behind a storage, once it is there; NULL for one that was never written. */
static tpu_error *settle(storage *st, buffer **out)
{
    *out = NULL;
    engine_lock();
    value *v = st->val ? value_retain(st->val) : NULL;
    tpu_error *e = v ? launch_need(v) : NULL;
    fault *f = NULL;
    if (!e && v) {
        *out = buffer_retain(v->buf);
        f = fault_retain(v->fault);
    }
    value_release(v);
    engine_unlock();
    if (!e && *out) e = buffer_wait(*out);
    if (f) {
        tpu_error *bad = fault_check(f);
        if (e) tpu_error_free(bad);
        else e = bad;
    }
    if (e) {
        buffer_release(*out);
        *out = NULL;
    }
    return e;
}

static void copy_strided(char *to, const int64_t *to_stride, const char *from, const int64_t *from_stride, const int64_t *size, int rank,
                         size_t item)
{
    if (rank == 0) {
        memcpy(to, from, item);
        return;
    }
    if (rank == 1 && to_stride[0] == 1 && from_stride[0] == 1) {
        memcpy(to, from, (size_t)size[0] * item);
        return;
    }
    for (int64_t i = 0; i < size[0]; i++)
        copy_strided(to + i * to_stride[0] * (int64_t)item, to_stride + 1, from + i * from_stride[0] * (int64_t)item, from_stride + 1,
                     size + 1, rank - 1, item);
}

static tpu_error *conj_neg_in_place(void *host, const int64_t *stride, const call_tensor *t);

tpu_error *engine_download(const call_tensor *src, void *host, const int64_t *host_stride)
{
    tpu_dtype dt = (tpu_dtype)src->dtype;
    tpu_type t = type_make(dt, src->rank, src->size);
    if (type_count(&t) == 0) return NULL;
    TPU_TRY(engine_start());
    buffer *b;
    TPU_TRY(settle(src->st, &b));
    atomic_fetch_add_explicit(&downloads, 1, memory_order_relaxed);
    size_t item = dtype_size(dt);
    int64_t skip = src->offset * (int64_t)item + src->byte_delta;
    static const int64_t nowhere[TYPE_MAX_RANK];        /* an unwritten storage reads as zeros: one zero element, stride 0 */
    static const char zero[16];
    bool plain = view_is_contiguous(src->rank, src->size, src->stride) && view_is_contiguous(src->rank, src->size, host_stride);
    tpu_error *e = NULL;
    const char *at = NULL;
    char *copy = NULL;
    if (b) {
        e = device_host_view(b, &at, &copy);
        if (!e && plain) memcpy(host, at + skip, (size_t)type_bytes(&t));
        else if (!e) copy_strided(host, host_stride, at + skip, src->stride, src->size, src->rank, item);
    } else {
        copy_strided(host, host_stride, zero, nowhere, src->size, src->rank, item);
    }
    mem_free(copy);
    buffer_release(b);
    if (!e && src->flags & (CALL_CONJ | CALL_NEG)) e = conj_neg_in_place(host, host_stride, src);
    return e;
}

static void conj_neg_at(char *p, tpu_dtype t, int flags)
{
    bool conj = flags & CALL_CONJ, neg = flags & CALL_NEG;
    if (t == TPU_C64 || t == TPU_F32) {
        float *x = (float *)(void *)p;
        if (neg) x[0] = -x[0];
        if (t == TPU_C64 && conj != neg) x[1] = -x[1];
    } else if (t == TPU_C128 || t == TPU_F64) {
        double *x = (double *)(void *)p;
        if (neg) x[0] = -x[0];
        if (t == TPU_C128 && conj != neg) x[1] = -x[1];
    }
}

static void conj_neg_walk(char *p, const int64_t *stride, const int64_t *size, int rank, tpu_dtype t, int flags)
{
    if (rank == 0) {
        conj_neg_at(p, t, flags);
        return;
    }
    for (int64_t i = 0; i < size[0]; i++)
        conj_neg_walk(p + i * stride[0] * (int64_t)dtype_size(t), stride + 1, size + 1, rank - 1, t, flags);
}

static tpu_error *conj_neg_in_place(void *host, const int64_t *stride, const call_tensor *t)
{
    conj_neg_walk(host, stride, t->size, t->rank, (tpu_dtype)t->dtype, t->flags);
    return NULL;
}

/* To another device: through a copy of the contiguous value. */
static tpu_error *copy_across(const call_tensor *src, const call_tensor *dst)
{
    tpu_type t = type_make((tpu_dtype)src->dtype, src->rank, src->size);
    void *host = mem_new((size_t)type_bytes(&t) + 1);
    if (!host) return tpu_fail_memory();
    int64_t stride[TYPE_MAX_RANK];
    view_contiguous(src->rank, src->size, stride);
    tpu_error *e = engine_download(src, host, stride);
    if (!e) e = engine_upload(dst, host, stride, (tpu_dtype)src->dtype);
    mem_free(host);
    return e;
}

tpu_error *engine_copy(const call_tensor *src, const call_tensor *dst)
{
    TPU_TRY(engine_start());
    if (src->st->device != dst->st->device) return copy_across(src, dst);
    engine_lock();
    trace *tr = trace_here(dst->st->device);
    value *v = NULL;
    tpu_error *e = tr ? storage_read(tr, src, &v) : tpu_fail_memory();
    if (!e) e = storage_write(tr, dst, v);
    value_release(v);
    if (!e && mode != ENGINE_FUSED) {
        e = launch_cut(tr);
        launch_throttle();
    }
    engine_unlock();
    return e;
}

tpu_error *engine_item(const call_tensor *src, call_num *out)
{
    char raw[16] = {0};
    static const int64_t one[TYPE_MAX_RANK];
    TPU_TRY(engine_download(src, raw, one));
    return device_number(raw, (tpu_dtype)src->dtype, out);
}

/* ---- counters ---- */
void engine_get_stats(engine_stats *out)
{
    *out = (engine_stats){0};
    engine_lock();
    launch_settle();                                    /* what is queued is counted, however slow its compile */
    launch_stats(out);
    engine_unlock();
    if (device_cache()) {
        cache_stats c;
        cache_get_stats(device_cache(), &c);
        out->compiles = c.compiles;
        out->disk_hits = c.disk_hits;
        out->disk_misses = c.disk_misses;
        out->compile_seconds = c.compile_seconds;
    }
    out->memory_hits = out->launches > out->programs ? out->launches - out->programs : 0;
    uint64_t hits;
    call_stats(&hits, &out->memo_misses);
    out->calls = calls;
    out->uploads = uploads;
    out->downloads = downloads;
}

void engine_set_precision(hlo_prec p) { call_set_precision(p); }
