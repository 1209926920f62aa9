/* ops.c - finds rows by ATen name and answers what lowerings ask.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "op_ctx.h"

#define FAMILY(x) extern const op_row ops_##x[];
#include "ops/families.h"
#undef FAMILY
#define FAMILY(x) ops_##x,
static const op_row *const families[] = {
#include "ops/families.h"
    NULL,
};
#undef FAMILY

/* ---- look-up ---- */
#define TABLE 4096
static const op_row *table[TABLE];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static size_t slot_of(const char *name)
{
    uint64_t h = 1469598103934665603ull;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 1099511628211ull;
    return (size_t)(h ^ (h >> 29)) % TABLE;
}

static void fill_table(void)
{
    for (size_t i = 0; ops_at(i); i++) {
        size_t at = slot_of(ops_at(i)->name);
        while (table[at]) at = (at + 1) % TABLE;
        table[at] = ops_at(i);
    }
}

const op_row *ops_find(const char *name)
{
    pthread_once(&table_once, fill_table);
    for (size_t at = slot_of(name); table[at]; at = (at + 1) % TABLE)
        if (!strcmp(table[at]->name, name)) return table[at];
    return NULL;
}

const op_row *ops_at(size_t i)
{
    for (const op_row *const *family = families; *family; family++) {
        size_t n = 0;
        while ((*family)[n].name) n++;
        if (i < n) return &(*family)[i];
        i -= n;
    }
    return NULL;
}

/* ---- arguments ---- */
hlo_fn *op_fn(op_ctx *c) { return c->f; }
const op_row *op_row_of(op_ctx *c) { return c->row; }
int op_nargs(op_ctx *c) { return c->nargs; }

void op_fail(op_ctx *c, tpu_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char line[512];
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    hlo_fail(c->f, code, "%s", line);
}

static const op_arg *arg_at(op_ctx *c, int arg)
{
    static const op_arg none = {.tag = OP_T_NONE};
    return arg >= 0 && arg < c->nargs ? &c->arg[arg] : &none;
}

static const op_tensor *tensor_at(op_ctx *c, int arg, int elem)
{
    const op_arg *a = arg_at(c, arg);
    if (a->tag == OP_T_TENSOR && elem == 0) return a->t;
    if (a->tag == OP_T_TENSORS && elem >= 0 && elem < (int)a->n) return &a->t[elem];
    return NULL;
}

bool op_has(op_ctx *c, int arg)
{
    const op_arg *a = arg_at(c, arg);
    return a->tag == OP_T_TENSOR ? a->t->in != -1 : a->tag != OP_T_NONE;
}

/* The hlo value of a run-time scalar; when learning, a stand-in of the right type. */
static hlo slot_value(op_ctx *c, uint8_t cls, uint8_t what, int arg, int elem)
{
    for (; c->outer; c = c->outer) {
        elem = arg < 0 ? elem : c->pick[arg].elem;
        arg = arg < 0 ? arg : c->pick[arg].arg;
    }
    static const tpu_dtype type_of[] = {TPU_F32, TPU_I64, TPU_F64};
    for (int i = 0; i < c->nslot; i++) {
        const op_slot *s = &c->slot[i];
        if (s->cls == cls && s->what == what && s->arg == arg && s->elem == elem)
            return c->learning ? hlo_const_f(c->f, type_scalar(type_of[cls]), 1) : c->slot_in[i];
    }
    if (!c->learning) {
        op_fail(c, TPU_INTERNAL, "%s: the lowering asked for other scalars than the first time", c->row->name);
        return HLO_NONE;
    }
    size_t cap = (size_t)c->slot_cap;
    if (!mem_reserve(&c->slot, &cap, (size_t)c->nslot + 1, sizeof *c->slot)) {
        op_fail(c, TPU_EXHAUSTED, "out of memory");
        return HLO_NONE;
    }
    c->slot_cap = (int)cap;
    c->slot[c->nslot++] = (op_slot){.cls = cls, .what = what, .arg = (int16_t)arg, .elem = elem};
    return hlo_const_f(c->f, type_scalar(type_of[cls]), 1);
}

static uint8_t class_for(tpu_dtype t)
{
    if (t == TPU_F64 || t == TPU_C128) return OP_SLOT_F64;
    return dtype_is_integral(t) ? OP_SLOT_I64 : OP_SLOT_F32;
}

/* A run-time number as an hlo scalar of dtype t; `what` is the real part's, the imaginary part's follows it. */
static hlo number_as(op_ctx *c, int arg, int elem, tpu_dtype t, uint8_t what, bool complex_value)
{
    uint8_t cls = class_for(t);
    hlo re = slot_value(c, cls, what, arg, elem);
    if (!dtype_is_complex(t)) return hlo_convert(c->f, re, t);
    re = hlo_convert(c->f, re, dtype_real(t));
    hlo im = complex_value ? hlo_convert(c->f, slot_value(c, cls, (uint8_t)(what + 1), arg, elem), dtype_real(t))
                           : hlo_const_f(c->f, type_scalar(dtype_real(t)), 0);
    return hlo_op2(c->f, "complex", re, im);
}

static hlo tensor_value(op_ctx *c, const op_tensor *t, int arg, int elem)
{
    if (!t || t->in == -1) return HLO_NONE;
    if (t->in >= 0) return c->in[t->in];
    return number_as(c, arg, elem, (tpu_dtype)t->dtype, OP_SLOT_HOST, dtype_is_complex((tpu_dtype)t->dtype));
}

hlo op_in(op_ctx *c, int arg) { return tensor_value(c, tensor_at(c, arg, 0), arg, 0); }
hlo op_elem(op_ctx *c, int arg, int i) { return tensor_value(c, tensor_at(c, arg, i), arg, i); }

int op_len(op_ctx *c, int arg)
{
    const op_arg *a = arg_at(c, arg);
    return a->tag == OP_T_TENSORS || a->tag == OP_T_NUMS || a->tag == OP_T_INTS ? (int)a->n : 0;
}

static const op_num *num_at(op_ctx *c, int arg, int elem)
{
    const op_arg *a = arg_at(c, arg);
    if (a->tag == OP_T_NUM && elem == 0) return a->num;
    if (a->tag == OP_T_NUMS && elem >= 0 && elem < (int)a->n) return &a->num[elem];
    return NULL;
}

static double num_double(const op_num *n) { return n->kind == TPU_F64 || n->kind == TPU_C128 ? n->re : (double)n->i; }
static int64_t num_int(const op_num *n) { return n->kind == TPU_F64 || n->kind == TPU_C128 ? (int64_t)n->re : n->i; }

int64_t op_int(op_ctx *c, int arg)
{
    const op_num *n = num_at(c, arg, 0);
    if (!n || !arg_at(c, arg)->fixed) {
        op_fail(c, TPU_INVALID, "%s: argument %d: expected an integer", c->row->name, arg);
        return 0;
    }
    return num_int(n);
}

int64_t op_int_or(op_ctx *c, int arg, int64_t other) { return op_has(c, arg) ? op_int(c, arg) : other; }
bool op_bool(op_ctx *c, int arg) { return op_has(c, arg) && op_int(c, arg) != 0; }

const int64_t *op_ints(op_ctx *c, int arg, int *n)
{
    const op_arg *a = arg_at(c, arg);
    *n = a->tag == OP_T_INTS ? (int)a->n : 0;
    return a->tag == OP_T_INTS ? a->ints : NULL;
}

const char *op_str(op_ctx *c, int arg) { return arg_at(c, arg)->tag == OP_T_STR ? arg_at(c, arg)->s : NULL; }

tpu_dtype op_dtype(op_ctx *c, int arg, tpu_dtype other)
{
    if (!op_has(c, arg)) return other;
    tpu_dtype t = dtype_from_torch((int)op_int(c, arg));
    if (t == TPU_NONE) op_fail(c, TPU_UNIMPLEMENTED, "%s: a TPU has no such dtype", c->row->name);
    return t;
}

hlo op_scalar_elem(op_ctx *c, int arg, int elem, tpu_dtype t)
{
    const op_tensor *host = tensor_at(c, arg, elem);
    if (host) return hlo_convert(c->f, op_elem(c, arg, elem), t);
    const op_num *n = num_at(c, arg, elem);
    if (!n || n->kind == TPU_NONE) {
        op_fail(c, TPU_INVALID, "%s: argument %d: expected a number", c->row->name, arg);
        return HLO_NONE;
    }
    if (!arg_at(c, arg)->fixed) return number_as(c, arg, elem, t, OP_SLOT_NUMBER, n->kind == TPU_C128);
    if (n->kind == TPU_C128 && dtype_is_complex(t)) {
        tpu_type real = type_scalar(dtype_real(t));
        return hlo_op2(c->f, "complex", hlo_const_f(c->f, real, n->re), hlo_const_f(c->f, real, n->im));
    }
    if (dtype_is_integral(t)) {
        if (t == TPU_BOOL) return hlo_const_i(c->f, type_scalar(t), num_double(n) != 0);
        return hlo_const_i(c->f, type_scalar(t), num_int(n));
    }
    return hlo_const_f(c->f, type_scalar(t), num_double(n));
}

hlo op_scalar(op_ctx *c, int arg, tpu_dtype t) { return op_scalar_elem(c, arg, 0, t); }

tpu_dtype op_scalar_kind(op_ctx *c, int arg)
{
    const op_num *n = num_at(c, arg, 0);
    return n ? (tpu_dtype)n->kind : TPU_NONE;
}

double op_number_elem(op_ctx *c, int arg, int elem)
{
    const op_num *n = num_at(c, arg, elem);
    if (!n || !arg_at(c, arg)->fixed) {
        op_fail(c, TPU_INTERNAL, "%s: argument %d is run-time data, not a constant", c->row->name, arg);
        return 0;
    }
    return num_double(n);
}

double op_number(op_ctx *c, int arg) { return op_number_elem(c, arg, 0); }
bool op_is_default(op_ctx *c, int arg) { return arg_at(c, arg)->is_default; }

bool op_wrapped(op_ctx *c, int arg)
{
    const op_tensor *t = tensor_at(c, arg, 0);
    return t && t->wrapped;
}

bool op_contiguous(op_ctx *c, int arg)
{
    const op_tensor *t = tensor_at(c, arg, 0);
    return t && !t->strided;
}

void op_seed(op_ctx *c, int64_t count, hlo *seed, hlo *offset)
{
    *seed = slot_value(c, OP_SLOT_I64, OP_SLOT_SEED, -1, 0);
    *offset = slot_value(c, OP_SLOT_I64, OP_SLOT_OFFSET, -1, 0);
    if (c->draws) *offset = hlo_op2(c->f, "add", *offset, hlo_const_i(c->f, type_scalar(TPU_I64), c->draws));
    c->draws += count;
}

/* ---- results ---- */
#define PUSH(c, list, n, cap, v) \
    do { \
        if (mem_reserve(&(c)->list, &(c)->cap, (c)->n + 1, sizeof *(c)->list)) (c)->list[(c)->n] = (v); \
        else op_fail((c), TPU_EXHAUSTED, "out of memory"); \
    } while (0)

void op_out(op_ctx *c, hlo x)
{
    PUSH(c, ret, nret, ret_cap, x);
    if (!hlo_failed(c->f)) c->nret++;
}

void op_out_none(op_ctx *c) { op_out(c, HLO_NONE); }

void op_write_elem(op_ctx *c, int arg, int elem, hlo x)
{
    PUSH(c, write, nwrite, write_cap, x);
    PUSH(c, written, nwrite, written_cap, ((op_written){.arg = (int16_t)arg, .elem = elem}));
    if (!hlo_failed(c->f)) c->nwrite++;
}

void op_write(op_ctx *c, int arg, hlo x) { op_write_elem(c, arg, 0, x); }

void op_guard(op_ctx *c, hlo bad, const char *msg)
{
    uint32_t all = (1u << hlo_rank(c->f, bad)) - 1;
    hlo any = all ? hlo_reduce(c->f, "or", bad, all) : bad;
    PUSH(c, guard, nguard, guard_cap, any);
    PUSH(c, guard_msg, nguard, guard_msg_cap, msg);
    if (!hlo_failed(c->f)) c->nguard++;
}

/* ---- one row in terms of another ---- */
#define DELEGATED_ARGS 8

static bool pick_arg(op_ctx *c, op_pick *p, op_arg *out)
{
    const op_arg *from = arg_at(c, p->arg);
    bool list = from->tag == OP_T_TENSORS || from->tag == OP_T_NUMS;
    *out = *from;
    if (!list) {
        p->elem = 0;
        return true;
    }
    if (p->elem >= (int)from->n) return false;
    out->n = 1;
    out->tag = from->tag == OP_T_TENSORS ? OP_T_TENSOR : OP_T_NUM;
    if (out->tag == OP_T_TENSOR) out->t = &from->t[p->elem];
    else out->num = &from->num[p->elem];
    return true;
}

void op_delegate(op_ctx *c, const char *name, const op_pick *pick, int n)
{
    const op_row *row = ops_find(name);
    op_pick at[DELEGATED_ARGS];
    op_arg arg[DELEGATED_ARGS];
    bool fits = row && n <= DELEGATED_ARGS;
    for (int i = 0; fits && i < n; i++) {
        at[i] = pick[i];
        fits = pick_arg(c, &at[i], &arg[i]);
    }
    if (!fits) {
        op_fail(c, TPU_INTERNAL, "%s: %s does not take these arguments", c->row->name, name);
        return;
    }
    op_ctx sub = {.f = c->f, .row = row, .nargs = n, .arg = arg, .in = c->in, .learning = c->learning, .outer = c, .pick = at};
    row->lower(&sub);
    for (size_t i = 0; i < sub.nret; i++) op_out(c, sub.ret[i]);
    for (size_t i = 0; i < sub.nguard; i++) op_guard(c, sub.guard[i], sub.guard_msg[i]);
    if (sub.nwrite || sub.draws) op_fail(c, TPU_INTERNAL, "%s: %s writes or draws", c->row->name, name);
    mem_free(sub.ret);
    mem_free(sub.write);
    mem_free(sub.written);
    mem_free(sub.guard);
    mem_free(sub.guard_msg);
}

/* ---- type promotion, c10's result_type: tensors with dims, then without, then wrapped numbers [P1] ---- */
static tpu_dtype combine(tpu_dtype higher, tpu_dtype lower)
{
    if (dtype_is_complex(higher)) return higher;
    if (dtype_is_float(higher)) return dtype_is_complex(lower) ? dtype_complex(higher) : higher;
    if (higher == TPU_BOOL || dtype_is_float(lower) || dtype_is_complex(lower)) return dtype_promote(higher, lower);
    return higher != TPU_NONE ? higher : lower;
}

static tpu_dtype number_dtype(tpu_dtype kind)
{
    return kind == TPU_F64 ? TPU_F32 : kind == TPU_C128 ? TPU_C64 : kind;
}

tpu_dtype op_promote(op_ctx *c, const int *args, int n)
{
    tpu_dtype dim = TPU_NONE, zero = TPU_NONE, wrapped = TPU_NONE;
    for (int i = 0; i < n; i++) {
        const op_num *num = num_at(c, args[i], 0);
        if (num) {
            wrapped = dtype_promote(wrapped, number_dtype((tpu_dtype)num->kind));
            continue;
        }
        int len = arg_at(c, args[i])->tag == OP_T_TENSORS ? op_len(c, args[i]) : 1;
        for (int e = 0; e < len; e++) {
            const op_tensor *t = tensor_at(c, args[i], e);
            if (!t || t->in == -1) continue;
            tpu_dtype d = (tpu_dtype)t->dtype;
            if (t->wrapped) {
                d = dtype_is_complex(d) ? TPU_C64 : dtype_is_float(d) ? TPU_F32 : d;
                wrapped = dtype_promote(wrapped, d);
            } else if (t->in >= 0 && hlo_rank(c->f, c->in[t->in]) > 0) {
                dim = dtype_promote(dim, d);
            } else {
                zero = dtype_promote(zero, d);
            }
        }
    }
    return combine(dim, combine(zero, wrapped));
}

tpu_dtype op_promote2(op_ctx *c, int a, int b) { return op_promote(c, (int[]){a, b}, 2); }
tpu_dtype op_to_float(tpu_dtype t) { return dtype_is_integral(t) ? TPU_F32 : t; }

hlo op_in_as(op_ctx *c, int arg, tpu_dtype t)
{
    const op_tensor *x = tensor_at(c, arg, 0);
    if (!x) return op_scalar(c, arg, t);
    /* A host scalar goes straight to the class of the wanted dtype: a Python 2.0 must not bring float64 into the program. */
    if (x->in == -2) {
        bool complex_value = dtype_is_complex((tpu_dtype)x->dtype);
        if (dtype_is_integral((tpu_dtype)x->dtype) || x->wrapped || complex_value == dtype_is_complex(t))
            return number_as(c, arg, 0, t, OP_SLOT_HOST, complex_value);
    }
    return hlo_convert(c->f, op_in(c, arg), t);
}

hlo op_in_math(op_ctx *c, int arg)
{
    hlo x = op_in(c, arg);
    return hlo_convert(c->f, x, dtype_compute(hlo_dtype(c->f, x)));
}

void op_out_as(op_ctx *c, hlo x, tpu_dtype t) { op_out(c, hlo_convert(c->f, x, t)); }

int op_dim(op_ctx *c, int64_t dim, int rank)
{
    int64_t r = rank ? rank : 1;
    if (dim < -r || dim >= r) {
        op_fail(c, TPU_OUT_OF_RANGE, "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)", (long long)-r,
                (long long)(r - 1), (long long)dim);
        return 0;
    }
    return (int)(dim < 0 ? dim + r : dim);
}

uint32_t op_dims(op_ctx *c, int arg, int rank)
{
    int n;
    const int64_t *dims = op_ints(c, arg, &n);
    int64_t one;
    if (!dims && arg_at(c, arg)->tag == OP_T_NUM) {     /* a single int */
        one = op_int(c, arg);
        dims = &one;
        n = 1;
    }
    if (!n) return rank ? (1u << rank) - 1 : 0;
    uint32_t mask = 0;
    for (int i = 0; i < n; i++) {
        int d = op_dim(c, dims[i], rank);
        if (mask >> d & 1 && rank) op_fail(c, TPU_INVALID, "dim %d appears multiple times in the list of dims", d);
        if (rank) mask |= 1u << d;
    }
    return mask;
}
