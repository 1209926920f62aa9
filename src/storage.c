/* storage.c - addresses, accounting, and views read and written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "storage.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "view.h"

#define DEVICES 64

/* ---- addresses: power-of-two slots of one range that nobody may touch ---- */
#define SMALLEST 9                  /* 512 bytes */
#define LARGEST 44
static uint64_t range_at, range_end;
static uint64_t *spare[LARGEST + 1];
static size_t nspare[LARGEST + 1], spare_cap[LARGEST + 1];

static void reserve_range(void)
{
    for (int bits = 46; bits > 38; bits--) {            /* a machine with few address bits or a limit takes less */
        void *p = mmap(NULL, 1ull << bits, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) continue;
        range_at = (uint64_t)(uintptr_t)p;
        range_end = range_at + (1ull << bits);
        return;
    }
}

static int class_of(size_t nbytes)
{
    int cls = SMALLEST;
    while (cls < LARGEST && (1ull << cls) < nbytes) cls++;
    return cls;
}

static uint64_t take_address(int cls)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, reserve_range);
    if (nspare[cls]) return spare[cls][--nspare[cls]];
    uint64_t size = 1ull << cls;
    if (range_end - range_at < size) return 0;
    uint64_t at = range_at;
    range_at += size;
    return at;
}

static void give_address(int cls, uint64_t addr)
{
    if (mem_reserve(&spare[cls], &spare_cap[cls], nspare[cls] + 1, sizeof **spare)) spare[cls][nspare[cls]++] = addr;
}

/* ---- the living, and how much they hold ---- */
static storage *living;
static storage *free_storages;
static engine_memory memory[DEVICES];

static int64_t limit_of(int device)
{
    if (!memory[device].limit) memory[device].limit = storage_device_bytes(device);
    return memory[device].limit ? memory[device].limit : INT64_MAX;
}

static void largest(int device, text *out)
{
    const storage *top[5] = {0};
    for (const storage *st = living; st; st = st->next) {
        if (st->device != device) continue;
        for (size_t i = 0; i < TPU_COUNT(top); i++)
            if (!top[i] || st->nbytes > top[i]->nbytes) {
                memmove(&top[i + 1], &top[i], (TPU_COUNT(top) - 1 - i) * sizeof *top);
                top[i] = st;
                break;
            }
    }
    for (size_t i = 0; i < TPU_COUNT(top) && top[i]; i++) {
        text_add(out, "%s%.2f MiB", i ? ", " : "", (double)top[i]->nbytes / 1048576);
        if (!top[i]->val) continue;
        text_puts(out, " ");
        type_words(top[i]->val->type, out);
    }
}

static tpu_error *over_limit(size_t nbytes, int device)
{
    const engine_memory *m = &memory[device];
    text t = {0};
    largest(device, &t);
    tpu_error *e = tpu_fail(TPU_EXHAUSTED, "tpu out of memory. Tried to allocate %.2f MiB. tpu:%d has a total capacity of %.2f MiB of which "
                            "%.2f MiB are in use. The largest live tensors: %s. Free some of them, or use a smaller batch.",
                            (double)nbytes / 1048576, device, (double)limit_of(device) / 1048576, (double)m->allocated / 1048576,
                            t.at && t.len ? t.at : "none");
    text_free(&t);
    return e;
}

static void account(int device, int64_t bytes)
{
    engine_memory *m = &memory[device];
    m->allocated += bytes;
    if (m->allocated > m->peak) m->peak = m->allocated;
}

tpu_error *storage_new_locked(size_t nbytes, int device, storage **out_st)
{
    *out_st = NULL;
    if (device < 0 || device >= DEVICES) return tpu_fail(TPU_INVALID, "no device tpu:%d", device);
    if ((int64_t)nbytes < 0 || memory[device].allocated + (int64_t)nbytes > limit_of(device)) return over_limit(nbytes, device);
    int cls = class_of(nbytes);
    uint64_t addr = nbytes > 1ull << LARGEST ? 0 : take_address(cls);
    if (!addr) return over_limit(nbytes, device);
    storage *st = free_storages;
    if (st) free_storages = st->next;
    else if (!(st = mem_new(sizeof *st))) {
        give_address(cls, addr);
        return tpu_fail_memory();
    }
    *st = (storage){.addr = addr, .nbytes = nbytes, .device = device, .cls = cls, .next = living};
    if (living) living->prev = st;
    living = st;
    account(device, (int64_t)nbytes);
    memory[device].allocs++;
    memory[device].live++;
    *out_st = st;
    return NULL;
}

tpu_error *storage_new(size_t nbytes, int device, storage **out_st)
{
    engine_lock();
    tpu_error *e = storage_new_locked(nbytes, device, out_st);
    engine_unlock();
    return e;
}

void storage_set(storage *st, value *v)
{
    value *old = st->val;
    if (v) value_retain(v)->holders++;
    st->val = v;
    if (old) {
        old->holders--;
        value_release(old);
    }
}

void storage_free(storage *st)
{
    if (!st || engine_forked()) return;
    engine_lock();
    storage_set(st, NULL);
    account(st->device, -(int64_t)st->nbytes);
    memory[st->device].frees++;
    memory[st->device].live--;
    if (st->prev) st->prev->next = st->next;
    else living = st->next;
    if (st->next) st->next->prev = st->prev;
    give_address(st->cls, st->addr);
    st->next = free_storages;
    free_storages = st;
    engine_unlock();
}

uint64_t storage_addr(const storage *st) { return st->addr; }
size_t storage_nbytes(const storage *st) { return st->nbytes; }
int storage_device(const storage *st) { return st->device; }

storage *storage_find(uint64_t addr, int64_t *out_delta)
{
    engine_lock();
    storage *st = living;
    while (st && !(addr >= st->addr && addr < st->addr + (1ull << st->cls))) st = st->next;
    engine_unlock();
    if (st) *out_delta = (int64_t)(addr - st->addr);
    return st;
}

/* ---- statistics ---- */
void engine_memory_stats(int device, engine_memory *out)
{
    *out = (engine_memory){0};
    if (device < 0 || device >= DEVICES) return;
    engine_lock();
    (void)limit_of(device);
    *out = memory[device];
    engine_unlock();
}

void engine_memory_reset_peak(int device)
{
    if (device < 0 || device >= DEVICES) return;
    engine_lock();
    memory[device].peak = memory[device].allocated;
    engine_unlock();
}

void engine_memory_set_limit(int device, int64_t bytes)
{
    if (device < 0 || device >= DEVICES) return;
    engine_lock();
    memory[device].limit = bytes;
    engine_unlock();
}

void engine_memory_words(int device, text *out)
{
    engine_memory m;
    engine_memory_stats(device, &m);
    text_add(out, "tpu:%d: %.2f MiB in %lld tensors, peak %.2f MiB, limit %.2f MiB; allocated %lld times. Largest: ", device,
             (double)m.allocated / 1048576, (long long)m.live, (double)m.peak / 1048576, (double)m.limit / 1048576, (long long)m.allocs);
    engine_lock();
    largest(device, out);
    engine_unlock();
}

/* ---- the engine's own calls ---- */
enum { VIEW, VIEW_AT, VIEW_WRITE, VIEW_WRITE_AT, ZEROS, COPY, TRANSPOSE, RESIZE, OWN };
static call_op *own[OWN];

static tpu_error *own_op(int which, const call_op **out)
{
    static const struct { const char *name; int n; uint8_t kind[8]; } spec[OWN] = {
        {"tpu::view", 6, {CALL_K_TENSOR, CALL_K_INTS, CALL_K_INTS, CALL_K_INT, CALL_K_DTYPE, CALL_K_INT}},
        {"tpu::view_at", 7, {CALL_K_TENSOR, CALL_K_INTS, CALL_K_INTS, CALL_K_SCALAR, CALL_K_DTYPE, CALL_K_INT, CALL_K_INT}},
        {"tpu::view_write", 7, {CALL_K_TENSOR, CALL_K_INTS, CALL_K_INTS, CALL_K_INT, CALL_K_DTYPE, CALL_K_INT, CALL_K_TENSOR}},
        {"tpu::view_write_at", 8, {CALL_K_TENSOR, CALL_K_INTS, CALL_K_INTS, CALL_K_SCALAR, CALL_K_DTYPE, CALL_K_INT, CALL_K_TENSOR, CALL_K_INT}},
        {"tpu::zeros", 2, {CALL_K_INTS, CALL_K_DTYPE}},
        {"tpu::copy", 3, {CALL_K_TENSOR, CALL_K_INTS, CALL_K_DTYPE}},
        {"tpu::transpose", 2, {CALL_K_TENSOR, CALL_K_INTS}},
        {"tpu::resize", 2, {CALL_K_TENSOR, CALL_K_INT}},
    };
    if (!own[which]) {
        call_param p[8] = {0};
        for (int i = 0; i < spec[which].n; i++) p[i].kind = spec[which].kind[i];
        TPU_TRY(call_op_new(spec[which].name, spec[which].n, p, CALL_FUNCTIONAL, NULL, &own[which]));
    }
    *out = own[which];
    return NULL;
}

static call_arg int_arg(int64_t i) { return (call_arg){.tag = CALL_NUM, .num = {.kind = TPU_I64, .i = i}}; }
static call_arg ints_arg(const int64_t *v, int n) { return (call_arg){.tag = CALL_INTS, .n = (uint32_t)n, .ints = v}; }
static call_arg dtype_arg(tpu_dtype t) { return int_arg(dtype_to_torch(t)); }
/* A tensor argument that stands for a value: only `defined` and `st` are looked at. */
static const call_tensor some = {.st = (storage *)(uintptr_t)8, .defined = true};
#define VALUE_ARG ((call_arg){.tag = CALL_TENSOR, .n = 1, .t = &some})

static tpu_error *run_own(trace *tr, int which, const call_arg *args, value *const *in, int nin, value **out)
{
    const call_op *op;
    const call_memo *m;
    value **r;
    TPU_TRY(own_op(which, &op));
    TPU_TRY(trace_apply(tr, op, args, in, nin, NULL, &m, &r));
    *out = r[0];
    return NULL;
}

tpu_error *storage_copy_value(trace *tr, value *v, const tpu_type *as, value **out)
{
    if (v->type == as || type_equal(v->type, as)) {
        *out = value_retain(v);
        return NULL;
    }
    return run_own(tr, COPY, (call_arg[]){VALUE_ARG, ints_arg(as->dim, as->rank), dtype_arg((tpu_dtype)as->dtype)}, &v, 1, out);
}

tpu_error *storage_transpose_value(trace *tr, value *v, const int64_t *perm, value **out)
{
    return run_own(tr, TRANSPOSE, (call_arg[]){VALUE_ARG, ints_arg(perm, v->type->rank)}, &v, 1, out);
}

static tpu_error *zeros_value(trace *tr, int rank, const int64_t *dims, tpu_dtype t, value **out)
{
    return run_own(tr, ZEROS, (call_arg[]){ints_arg(dims, rank), dtype_arg(t)}, NULL, 0, out);
}

bool storage_is_zeros(const call_memo *m) { return own[ZEROS] && m->op == own[ZEROS]; }

/* ---- offsets: static until one has differed at the same place of the program, then data ---- */
typedef struct seen_offset { uint64_t key; int64_t first; bool moving; } seen_offset;
#define OFFSETS 8192
static seen_offset offsets[OFFSETS];

static bool offset_moves(const trace *tr, const tpu_type *base, const call_tensor *t, int64_t offset, int64_t *out_first)
{
    uint64_t key = trace_context(tr) ^ base->dtype;     /* by content: which offsets collide must not differ between processes */
    for (int d = 0; d < base->rank; d++) key = (key ^ (uint64_t)base->dim[d]) * 0x9e3779b97f4a7c15ull;
    for (int d = 0; d < t->rank; d++) key = (key ^ (uint64_t)t->size[d] ^ (uint64_t)t->stride[d] << 20) * 0x9e3779b97f4a7c15ull;
    seen_offset *s = &offsets[(key ^ key >> 32) % OFFSETS];
    if (s->key != key) *s = (seen_offset){.key = key, .first = offset};
    s->moving |= offset != s->first;
    *out_first = s->first;
    return s->moving;
}

static int64_t offset_of(const call_tensor *t)
{
    return t->offset + t->byte_delta / (int64_t)dtype_size((tpu_dtype)t->dtype);
}

/* A box that takes everything has no offset to speak of. */
static bool whole_box(const view_box *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->size[i] != b->extent[i]) return false;
    return true;
}

static int flags_of(const call_tensor *t) { return (t->flags & CALL_CONJ ? 1 : 0) | (t->flags & CALL_NEG ? 2 : 0); }

static int64_t base_count(const tpu_type *base, tpu_dtype as)
{
    return type_bytes(base) / (int64_t)dtype_size(as);
}

static bool moves(const trace *tr, const tpu_type *base, const call_tensor *t, int64_t *out_first)
{
    view_box b, first;
    int64_t total = base_count(base, (tpu_dtype)t->dtype), offset = offset_of(t);
    if (!view_box_of(total, t->rank, t->size, t->stride, offset, &b) || whole_box(&b)) return false;
    if (!offset_moves(tr, base, t, offset, out_first)) return false;
    return view_box_of(total, t->rank, t->size, t->stride, *out_first, &first);
}

static bool is_base(const tpu_type *base, const call_tensor *t)
{
    if (base->dtype != t->dtype || base->rank != t->rank || t->offset || t->byte_delta) return false;
    int64_t want = 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        if (t->size[d] != base->dim[d] || (t->stride[d] != want && t->size[d] != 1)) return false;
        want *= t->size[d];
    }
    return true;
}

static bool is_empty(const call_tensor *t)
{
    for (int d = 0; d < t->rank; d++)
        if (t->size[d] == 0) return true;
    return false;
}

static bool covers(const storage *st, const call_tensor *t)
{
    tpu_type ty = type_make((tpu_dtype)t->dtype, t->rank, t->size);
    return !t->offset && !t->byte_delta && (size_t)type_bytes(&ty) == st->nbytes;
}

/* The storage's value, made up of zeros when it was never written. */
static tpu_error *base_value(trace *tr, storage *st, const call_tensor *t, value **out)
{
    if (!st->val) {
        value *z;
        int64_t flat = (int64_t)(st->nbytes / dtype_size((tpu_dtype)t->dtype));
        bool whole = covers(st, t) && view_is_contiguous(t->rank, t->size, t->stride);
        TPU_TRY(whole ? zeros_value(tr, t->rank, t->size, (tpu_dtype)t->dtype, &z) : zeros_value(tr, 1, &flat, (tpu_dtype)t->dtype, &z));
        storage_set(st, z);
        value_release(z);
    }
    *out = st->val;
    return NULL;
}

tpu_error *storage_read(trace *tr, const call_tensor *t, value **out)
{
    value *base = t->st->val;
    if (base && is_base(base->type, t) && !(t->flags & (CALL_CONJ | CALL_NEG))) {
        *out = value_retain(base);
        return NULL;
    }
    if (is_empty(t)) return zeros_value(tr, t->rank, t->size, (tpu_dtype)t->dtype, out);
    int64_t offset = offset_of(t), first;
    if (view_end(t->rank, t->size, t->stride, offset) * (int64_t)dtype_size((tpu_dtype)t->dtype) > (int64_t)t->st->nbytes)
        return tpu_fail(TPU_INVALID, "the tensor reaches past the end of its storage of %zu bytes", t->st->nbytes);
    TPU_TRY(base_value(tr, t->st, t, &base));
    if (is_base(base->type, t) && !(t->flags & (CALL_CONJ | CALL_NEG))) {
        *out = value_retain(base);
        return NULL;
    }
    call_arg args[7] = {VALUE_ARG, ints_arg(t->size, t->rank), ints_arg(t->stride, t->rank), int_arg(offset),
                        dtype_arg((tpu_dtype)t->dtype), int_arg(flags_of(t))};
    bool at = moves(tr, base->type, t, &first);
    if (at) args[6] = int_arg(first);
    value_retain(base);
    tpu_error *e = run_own(tr, at ? VIEW_AT : VIEW, args, &base, 1, out);
    value_release(base);
    return e;
}

/* Every element is overwritten and no two dims overlap: the storage's value may simply be another one, in the shape that
 * falling strides give. */
static bool dense_order(const call_tensor *t, int64_t *perm)
{
    for (int d = 0; d < t->rank; d++) {
        int at = d;
        while (at > 0 && (t->stride[perm[at - 1]] < t->stride[d] || (t->size[perm[at - 1]] == 1 && t->size[d] != 1))) {
            perm[at] = perm[at - 1];
            at--;
        }
        perm[at] = d;
    }
    int64_t want = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->size[perm[i]] != 1 && t->stride[perm[i]] != want) return false;
        want *= t->size[perm[i]];
    }
    return true;
}

static tpu_error *write_whole(trace *tr, const call_tensor *t, value *v, const int64_t *perm)
{
    bool sorted = true;
    for (int d = 0; d < t->rank; d++) sorted &= perm[d] == d;
    value *w = v;
    if (sorted) value_retain(v);
    else TPU_TRY(storage_transpose_value(tr, v, perm, &w));
    if (t->st->val) trace_took_over(tr, t->st->val, w);
    storage_set(t->st, w);
    value_release(w);
    return NULL;
}

static tpu_error *write_part(trace *tr, const call_tensor *t, value *v)
{
    int64_t offset = offset_of(t), first;
    if (view_end(t->rank, t->size, t->stride, offset) * (int64_t)dtype_size((tpu_dtype)t->dtype) > (int64_t)t->st->nbytes)
        return tpu_fail(TPU_INVALID, "the tensor reaches past the end of its storage of %zu bytes", t->st->nbytes);
    value *base, *out;
    TPU_TRY(base_value(tr, t->st, t, &base));
    call_arg args[8] = {VALUE_ARG, ints_arg(t->size, t->rank), ints_arg(t->stride, t->rank), int_arg(offset),
                        dtype_arg((tpu_dtype)t->dtype), int_arg(flags_of(t)), VALUE_ARG};
    bool at = moves(tr, base->type, t, &first);
    if (at) args[7] = int_arg(first);
    value_retain(base);
    tpu_error *e = run_own(tr, at ? VIEW_WRITE_AT : VIEW_WRITE, args, (value *[]){base, v}, 2, &out);
    if (!e) {
        trace_took_over(tr, base, out);
        storage_set(t->st, out);
        value_release(out);
    }
    value_release(base);
    return e;
}

tpu_error *storage_write(trace *tr, const call_tensor *t, value *v)
{
    if (is_empty(t)) return NULL;
    tpu_type as = type_make((tpu_dtype)t->dtype, t->rank, t->size);
    const tpu_type *want = type_intern(&as);
    if (!want) return tpu_fail_memory();
    value *w;
    TPU_TRY(storage_copy_value(tr, v, want, &w));
    int64_t perm[TYPE_MAX_RANK];
    bool whole = covers(t->st, t) && !(t->flags & (CALL_CONJ | CALL_NEG)) && dense_order(t, perm);
    tpu_error *e = whole ? write_whole(tr, t, w, perm) : write_part(tr, t, w);
    value_release(w);
    return e;
}

tpu_error *storage_zero(trace *tr, const call_tensor *t)
{
    value *z;
    TPU_TRY(zeros_value(tr, t->rank, t->size, (tpu_dtype)t->dtype, &z));
    tpu_error *e = storage_write(tr, t, z);
    value_release(z);
    return e;
}

tpu_error *storage_resize(storage *st, size_t nbytes)
{
    engine_lock();
    tpu_error *e = NULL;
    if (nbytes > st->nbytes && memory[st->device].allocated + (int64_t)(nbytes - st->nbytes) > limit_of(st->device))
        e = over_limit(nbytes - st->nbytes, st->device);
    trace *tr = e ? NULL : trace_here(st->device);
    if (!e && !tr) e = tpu_fail_memory();
    if (!e && st->val && nbytes != st->nbytes) {
        value *v;
        size_t size = dtype_size((tpu_dtype)st->val->type->dtype);
        value *old = value_retain(st->val);
        e = run_own(tr, RESIZE, (call_arg[]){VALUE_ARG, int_arg((int64_t)(nbytes / size))}, &old, 1, &v);
        if (!e) {
            storage_set(st, v);
            value_release(v);
        }
        value_release(old);
    }
    int cls = class_of(nbytes);
    if (!e && cls != st->cls) {
        uint64_t addr = take_address(cls);
        if (!addr) e = over_limit(nbytes, st->device);
        else {
            give_address(st->cls, st->addr);
            st->addr = addr;
            st->cls = cls;
        }
    }
    if (!e) {
        account(st->device, (int64_t)nbytes - (int64_t)st->nbytes);
        st->nbytes = nbytes;
    }
    engine_unlock();
    return e;
}
