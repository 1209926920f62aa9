/* call.c - the memo of calls.  A key is a run of words: the op, then what each argument contributes; entries live for ever
 * and are published with one atomic store, so a hit takes no lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "op_ctx.h"
#include "view.h"

/* ---- overloads ---- */
/* "add_.Tensor" and "add.out" run the row of their functional overload; a row may also bear the in-place name itself. */
static const op_row *row_for(const char *name, const char *functional, call_form *form)
{
    const op_row *row = ops_find(name);
    if (row) {
        *form = CALL_FUNCTIONAL;                        /* the row says itself what it writes */
        return row;
    }
    row = functional ? ops_find(functional) : NULL;
    return row && !(row->flags & OP_NO_FORMS) ? row : NULL;
}

tpu_error *call_op_new(const char *name, int nargs, const call_param *params, call_form form, const char *functional, call_op **out)
{
    *out = NULL;
    if (nargs > CALL_MAX_ARGS) return tpu_fail(TPU_UNIMPLEMENTED, "%s has %d arguments", name, nargs);
    call_op *op = mem_keep(sizeof *op + strlen(name) + 1);
    if (!op) return tpu_fail_memory();
    op->name = memcpy(op + 1, name, strlen(name) + 1);
    op->form = form;
    op->row = row_for(name, functional, &op->form);
    op->nargs = nargs;
    for (int i = 0; i < nargs; i++) {
        op->param[i] = params[i];
        if (op->row && i < 32 && op->row->data >> i & 1) op->param[i].kind = CALL_K_SCALARS;
        if (params[i].written) {
            op->written |= 1ull << i;
            op->nouts += form == CALL_OUT && op->form == CALL_OUT;
        }
    }
    if (op->row) op->written |= op->row->mutates;
    const char *identity = op->row ? op->row->name : name;
    op->id = hash_bytes((hash128){0, 0}, identity, strlen(identity)).lo;
    *out = op;
    return NULL;
}

/* ---- keys ---- */
typedef struct key { uint64_t word[512], *more; size_t n, cap; bool failed; } key;

static inline void key_put(key *k, uint64_t w)
{
    if (k->n < TPU_COUNT(k->word) && !k->more) {
        k->word[k->n++] = w;
        return;
    }
    if (!k->more) {
        if (!mem_reserve(&k->more, &k->cap, 2 * TPU_COUNT(k->word), 8)) { k->failed = true; return; }
        memcpy(k->more, k->word, sizeof k->word);
    } else if (!mem_reserve(&k->more, &k->cap, k->n + 1, 8)) {
        k->failed = true;
        return;
    }
    k->more[k->n++] = w;
}

static const uint64_t *key_words(const key *k) { return k->more ? k->more : k->word; }

static bool same_num(const call_num *a, const call_num *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == TPU_F64 || a->kind == TPU_C128) return !memcmp(&a->re, &b->re, 8) && !memcmp(&a->im, &b->im, 8);
    return a->i == b->i;
}

/* Is this number part of the program? */
static bool is_fixed(const call_op *op, int i, const call_arg *a, bool *is_default)
{
    const call_param *p = &op->param[i];
    *is_default = a->tag == CALL_NUM && p->has_default && same_num(&a->num, &p->def);
    if (op->row->flags & OP_FIXED || op->row->fixed >> (i < 32 ? i : 31) & 1) return true;
    if (*is_default) return true;
    return p->kind != CALL_K_SCALAR && p->kind != CALL_K_SCALARS && p->kind != CALL_K_FLOAT && p->kind != CALL_K_FLOATS;
}

static void key_num(key *k, const call_num *n)
{
    uint64_t re, im;
    key_put(k, n->kind);
    if (n->kind == TPU_F64 || n->kind == TPU_C128) {
        memcpy(&re, &n->re, 8);
        memcpy(&im, &n->im, 8);
        key_put(k, re);
        key_put(k, im);
    } else {
        key_put(k, (uint64_t)n->i);
    }
}

/* Only rows that ask for it are told whether a tensor is contiguous. */
static inline bool is_strided(const call_op *op, const call_tensor *t)
{
    return op->row->flags & OP_STRIDES && t->st && !view_is_contiguous(t->rank, t->size, t->stride);
}

static inline void key_tensor(key *k, const call_op *op, const call_tensor *t, const tpu_type *const **in)
{
    if (!t->defined) {
        key_put(k, 1);
    } else if (!t->st) {
        key_put(k, 2 | (uint64_t)t->dtype << 8 | (uint64_t)(t->flags & CALL_WRAPPED) << 16);
    } else {
        key_put(k, (uint64_t)(uintptr_t)*(*in)++ | (t->flags & CALL_WRAPPED) | (is_strided(op, t) ? 2u : 0u));  /* interned: 8-aligned, so low bits are free */
    }
}

static void key_arg(key *k, const call_op *op, int i, const call_arg *a, const tpu_type *const **in)
{
    bool dflt, fixed;
    key_put(k, a->tag | (uint64_t)a->n << 8);
    switch ((call_tag)a->tag) {
    case CALL_NONE:
    case CALL_GEN: break;
    case CALL_TENSOR: key_tensor(k, op, a->t, in); break;
    case CALL_TENSORS:
        for (uint32_t j = 0; j < a->n; j++) key_tensor(k, op, &a->t[j], in);
        break;
    case CALL_NUM:
        fixed = is_fixed(op, i, a, &dflt);
        key_put(k, (uint64_t)fixed | (uint64_t)dflt << 1 | (uint64_t)a->num.kind << 8);
        if (fixed) key_num(k, &a->num);
        break;
    case CALL_NUMS:
        fixed = is_fixed(op, i, a, &dflt);
        for (uint32_t j = 0; j < a->n; j++) {
            if (fixed) key_num(k, &a->nums[j]);
            else key_put(k, a->nums[j].kind);
        }
        break;
    case CALL_INTS:
        for (uint32_t j = 0; j < a->n; j++) key_put(k, (uint64_t)a->ints[j]);
        break;
    case CALL_STR:
        for (uint32_t j = 0; j < a->n; j++) key_put(k, (uint8_t)a->s[j]);
        break;
    }
}

/* ---- table ---- */
typedef struct entry {
    call_memo m;
    uint64_t h;
    size_t nkey;
    uint64_t *key;
    struct entry *next;
    op_arg *arg;
    arena *mem;
} entry;

#define BUCKETS 16384
static _Atomic(entry *) bucket[BUCKETS];
static pthread_mutex_t grow = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t hits, misses;
static hlo_target target = HLO_CPU;
static _Atomic int precision = HLO_HIGHEST;

hlo_target call_target(void) { return target; }
void call_set_target(hlo_target t) { target = t; }
void call_set_precision(hlo_prec p) { precision = (int)p; }

void call_stats(uint64_t *out_hits, uint64_t *out_misses)
{
    *out_hits = atomic_load_explicit(&hits, memory_order_relaxed);
    *out_misses = atomic_load_explicit(&misses, memory_order_relaxed);
}

static entry *find(uint64_t h, const uint64_t *words, size_t n)
{
    entry *e = atomic_load_explicit(&bucket[h % BUCKETS], memory_order_acquire);
    while (e && !(e->h == h && e->nkey == n && !memcmp(e->key, words, n * 8))) e = e->next;
    return e;
}

/* ---- freezing a call's arguments ---- */
static void freeze_tensors(op_arg *to, const call_op *op, const call_arg *a, int *nin)
{
    for (uint32_t j = 0; j < to->n; j++) {
        const call_tensor *t = &a->t[j];
        to->t[j] = (op_tensor){.in = !t->defined ? -1 : t->st ? (*nin)++ : -2, .dtype = t->dtype,
                               .wrapped = t->flags & CALL_WRAPPED, .strided = is_strided(op, t)};
    }
}

static bool freeze_arg(entry *e, const call_op *op, int i, const call_arg *a, int *nin)
{
    op_arg *to = &e->arg[i];
    bool dflt = false;
    to->n = a->n;
    switch ((call_tag)a->tag) {
    case CALL_NONE: to->tag = OP_T_NONE; return true;
    case CALL_GEN: to->tag = OP_T_GEN; return true;
    case CALL_TENSOR: to->n = 1;                        /* fall through */
    case CALL_TENSORS:
        to->tag = a->tag == CALL_TENSOR ? OP_T_TENSOR : OP_T_TENSORS;
        if (!(to->t = arena_get(e->mem, (to->n + 1) * sizeof *to->t))) return false;
        freeze_tensors(to, op, a, nin);
        return true;
    case CALL_NUM: to->n = 1;                           /* fall through */
    case CALL_NUMS:
        to->tag = a->tag == CALL_NUM ? OP_T_NUM : OP_T_NUMS;
        if (!(to->num = arena_get(e->mem, (to->n + 1) * sizeof *to->num))) return false;
        to->fixed = is_fixed(op, i, a, &dflt);
        to->is_default = dflt;
        for (uint32_t j = 0; j < to->n; j++) {
            to->num[j] = a->tag == CALL_NUM ? a->num : a->nums[j];
            if (!to->fixed) to->num[j] = (op_num){.kind = to->num[j].kind};
        }
        return true;
    case CALL_INTS:
        to->tag = OP_T_INTS;
        if (!(to->ints = arena_get(e->mem, (a->n + 1) * 8))) return false;
        if (a->n) memcpy(to->ints, a->ints, a->n * 8);
        return true;
    case CALL_STR:
        to->tag = OP_T_STR;
        return (to->s = arena_dup(e->mem, a->s, a->n)) != NULL;
    }
    return true;
}

static void run_lowering(op_ctx *c)
{
    char name[128];
    const char *dot = strchr(c->row->name, '.');
    snprintf(name, sizeof name, "%.*s", dot ? (int)(dot - c->row->name) : 100, c->row->name);
    hlo_loc(c->f, name);
    hlo_precision(c->f, (hlo_prec)precision);
    c->row->lower(c);
}

static void ctx_done(op_ctx *c)
{
    mem_free(c->ret);
    mem_free(c->write);
    mem_free(c->written);
    mem_free(c->guard);
    mem_free(c->guard_msg);
}

static bool keep_results(entry *e, const op_ctx *c)
{
    call_memo *m = &e->m;
    m->nret = (int)c->nret;
    m->nwrite = (int)c->nwrite;
    m->nguard = (int)c->nguard;
    m->nresult = m->nret + m->nwrite + m->nguard;
    m->result = arena_get(e->mem, (size_t)(m->nresult + 1) * sizeof *m->result);
    m->write = arena_get(e->mem, (size_t)(m->nwrite + 1) * sizeof *m->write);
    m->guard = arena_get(e->mem, (size_t)(m->nguard + 1) * sizeof *m->guard);
    m->slot = arena_get(e->mem, (size_t)(c->nslot + 1) * sizeof *m->slot);
    if (!m->result || !m->write || !m->guard || !m->slot) return false;
    for (int i = 0; i < m->nresult; i++) {
        hlo x = i < m->nret ? c->ret[i] : i < m->nret + m->nwrite ? c->write[i - m->nret] : c->guard[i - m->nret - m->nwrite];
        if (!hlo_ok(x)) continue;
        tpu_type t = hlo_type(c->f, x);
        if (!(m->result[i] = type_intern(&t))) return false;
    }
    for (int i = 0; i < m->nwrite; i++)
        m->write[i] = (call_write){.arg = c->written[i].arg, .elem = c->written[i].elem, .result = m->nret + i};
    for (int i = 0; i < m->nguard; i++) m->guard[i] = c->guard_msg[i];
    m->nslot = c->nslot;
    if (c->nslot) memcpy(m->slot, c->slot, (size_t)c->nslot * sizeof *m->slot);
    m->draws = c->draws;
    m->pure = !c->nslot && !c->draws && !(c->row->flags & (OP_RANDOM | OP_KEEP));
    return true;
}

/* Runs the lowering once, to learn what the call gives. */
static tpu_error *learn(entry *e, const tpu_type *const *in)
{
    call_memo *m = &e->m;
    hlo_fn *f = hlo_new(target);
    hlo *params = arena_get(e->mem, (size_t)(m->nin + 1) * sizeof *params);
    if (!f || !params) {
        hlo_free(f);
        return tpu_fail_memory();
    }
    for (int i = 0; i < m->nin; i++) params[i] = hlo_param(f, *in[i]);
    op_ctx c = {.f = f, .row = m->op->row, .nargs = m->op->nargs, .arg = e->arg, .in = params, .learning = true};
    run_lowering(&c);
    tpu_error *err = hlo_error(f);
    if (!err && !keep_results(e, &c)) err = tpu_fail_memory();
    mem_free(c.slot);
    ctx_done(&c);
    hlo_free(f);
    return err;
}

/* Field by field: padding bytes must not enter a hash. */
static hash128 hash_num(hash128 h, const op_num *n)
{
    uint64_t re, im;
    memcpy(&re, &n->re, 8);
    memcpy(&im, &n->im, 8);
    return hash_word(hash_word(hash_word(hash_word(h, n->kind), (uint64_t)n->i), re), im);
}

static hash128 hash_type(hash128 h, const tpu_type *t)
{
    h = hash_word(h, t->dtype | (uint64_t)t->rank << 8 | (uint64_t)t->bounded << 16);
    for (int d = 0; d < t->rank; d++) h = hash_word(h, (uint64_t)t->dim[d]);
    return h;
}

/* Independent of addresses, so that it may enter keys on disk and agree between ranks [C2]. */
static hash128 content_hash(const entry *e, const call_arg *args, const tpu_type *const *in)
{
    const call_op *op = e->m.op;
    hash128 h = hash_word((hash128){op->id, (uint64_t)target}, (uint64_t)precision);
    for (int i = 0; i < e->m.nin; i++) h = hash_type(h, in[i]);
    for (int i = 0; i < op->nargs; i++) {
        const op_arg *a = &e->arg[i];
        h = hash_word(h, a->tag | (uint64_t)a->fixed << 8 | (uint64_t)a->is_default << 9 | (uint64_t)a->n << 16);
        for (uint32_t j = 0; j < a->n; j++) {
            if (a->tag == OP_T_TENSOR || a->tag == OP_T_TENSORS)
                h = hash_word(h, (uint64_t)(a->t[j].in < 0 ? -a->t[j].in : 0) | (uint64_t)a->t[j].dtype << 8 | (uint64_t)a->t[j].wrapped << 16 |
                                 (uint64_t)a->t[j].strided << 17);
            else if (a->tag == OP_T_INTS) h = hash_word(h, (uint64_t)a->ints[j]);
            else if (a->tag == OP_T_NUM || a->tag == OP_T_NUMS) h = hash_num(h, &a->num[j]);
            else if (a->tag == OP_T_STR) h = hash_word(h, (uint8_t)a->s[j]);
        }
    }
    return h;
}

static tpu_error *make(const call_op *op, const call_arg *args, const tpu_type *const *in, const key *k, uint64_t h, entry **out)
{
    arena *mem = arena_new();
    entry *e = mem ? arena_get(mem, sizeof *e) : NULL;
    if (!e) {
        arena_free(mem);
        return tpu_fail_memory();
    }
    *e = (entry){.h = h, .nkey = k->n, .mem = mem, .m.op = op};
    int nin = 0;
    e->key = arena_get(mem, k->n * 8);
    e->arg = arena_get(mem, (size_t)(op->nargs + 1) * sizeof *e->arg);
    bool ok = e->key && e->arg;
    for (int i = 0; ok && i < op->nargs - op->nouts; i++) ok = freeze_arg(e, op, i, &args[i], &nin);
    e->m.nin = nin;
    e->m.in_type = ok ? arena_get(mem, (size_t)(nin + 1) * sizeof *e->m.in_type) : NULL;
    tpu_error *err = ok && e->m.in_type ? NULL : tpu_fail_memory();
    if (!err) {
        memcpy(e->key, key_words(k), k->n * 8);
        for (int i = 0; i < nin; i++) e->m.in_type[i] = in[i];
        e->m.args = e;
        err = learn(e, in);
    }
    if (err) {
        arena_free(mem);
        return err;
    }
    e->m.hash = content_hash(e, args, in);
    *out = e;
    return NULL;
}

tpu_error *call_lookup(const call_op *op, const call_arg *args, const tpu_type *const *in, const call_memo **out)
{
    key k;
    k.n = k.cap = 0;
    k.more = NULL;
    k.failed = false;
    key_put(&k, (uint64_t)(uintptr_t)op->row ^ (uint64_t)op->form << 1);
    key_put(&k, (uint64_t)atomic_load_explicit(&precision, memory_order_relaxed));
    const tpu_type *const *at = in;
    for (int i = 0; i < op->nargs - op->nouts; i++) key_arg(&k, op, i, &args[i], &at);
    if (k.failed) {
        mem_free(k.more);
        return tpu_fail_memory();
    }
    const uint64_t *words = key_words(&k);
    uint64_t h = k.n;
    for (size_t i = 0; i < k.n; i++) {
        __uint128_t p = (__uint128_t)(h ^ words[i]) * 0x9e3779b97f4a7c15ull;
        h = (uint64_t)p ^ (uint64_t)(p >> 64);
    }
    entry *e = find(h, words, k.n);
    tpu_error *err = NULL;
    if (e) {
        atomic_fetch_add_explicit(&hits, 1, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&misses, 1, memory_order_relaxed);
        err = make(op, args, in, &k, h, &e);
        if (!err) {
            pthread_mutex_lock(&grow);
            e->next = atomic_load(&bucket[h % BUCKETS]);
            atomic_store_explicit(&bucket[h % BUCKETS], e, memory_order_release);
            pthread_mutex_unlock(&grow);
        }
    }
    mem_free(k.more);
    *out = err ? NULL : &e->m;
    return err;
}

void call_lower(const call_memo *m, hlo_fn *f, const hlo *in, const hlo *slot, hlo *results)
{
    const entry *e = m->args;
    op_ctx c = {.f = f, .row = m->op->row, .nargs = m->op->nargs, .arg = e->arg, .in = in, .slot = m->slot, .nslot = m->nslot, .slot_in = slot};
    run_lowering(&c);
    if ((int)(c.nret + c.nwrite + c.nguard) != m->nresult) {
        hlo_fail(f, TPU_INTERNAL, "%s: the lowering gave other results than the first time", m->op->row->name);
    } else {
        for (int i = 0; i < m->nresult; i++)
            results[i] = i < m->nret ? c.ret[i] : i < m->nret + m->nwrite ? c.write[i - m->nret] : c.guard[i - m->nret - m->nwrite];
    }
    ctx_done(&c);
}
