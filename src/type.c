/* type.c - dtypes, tensor types, promotion, interning.
 * SPDX-License-Identifier: Apache-2.0 */
#include "type.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* ---- dtypes ---- */

typedef struct dtype_row {
    const char *name, *torch, *words; /* StableHLO, c10::toString, Python */
    uint8_t size;
    int8_t scalar_type; /* c10::ScalarType */
    uint8_t real, cplx, compute;
} dtype_row;

/* clang-format off */
static const dtype_row dtypes[TPU_DTYPE_COUNT] = {
    /*                 StableHLO        c10               Python           size  c10  real            complex    compute */
    [TPU_NONE]       = {"none",         "Undefined",      "none",             0, -1, TPU_NONE,       TPU_NONE, TPU_NONE},
    [TPU_BOOL]       = {"i1",           "Bool",           "bool",             1, 11, TPU_BOOL,       TPU_NONE, TPU_BOOL},
    [TPU_I8]         = {"i8",           "Char",           "int8",             1,  1, TPU_I8,         TPU_NONE, TPU_I8},
    [TPU_I16]        = {"i16",          "Short",          "int16",            2,  2, TPU_I16,        TPU_NONE, TPU_I16},
    [TPU_I32]        = {"i32",          "Int",            "int32",            4,  3, TPU_I32,        TPU_NONE, TPU_I32},
    [TPU_I64]        = {"i64",          "Long",           "int64",            8,  4, TPU_I64,        TPU_NONE, TPU_I64},
    [TPU_U8]         = {"ui8",          "Byte",           "uint8",            1,  0, TPU_U8,         TPU_NONE, TPU_U8},
    [TPU_U16]        = {"ui16",         "UInt16",         "uint16",           2, 27, TPU_U16,        TPU_NONE, TPU_U16},
    [TPU_U32]        = {"ui32",         "UInt32",         "uint32",           4, 28, TPU_U32,        TPU_NONE, TPU_U32},
    [TPU_U64]        = {"ui64",         "UInt64",         "uint64",           8, 29, TPU_U64,        TPU_NONE, TPU_U64},
    [TPU_F16]        = {"f16",          "Half",           "float16",          2,  5, TPU_F16,        TPU_C64,  TPU_F32},
    [TPU_BF16]       = {"bf16",         "BFloat16",       "bfloat16",         2, 15, TPU_BF16,       TPU_C64,  TPU_F32},
    [TPU_F32]        = {"f32",          "Float",          "float32",          4,  6, TPU_F32,        TPU_C64,  TPU_F32},
    [TPU_F64]        = {"f64",          "Double",         "float64",          8,  7, TPU_F64,        TPU_C128, TPU_F64},
    [TPU_C64]        = {"complex<f32>", "ComplexFloat",   "complex64",        8,  9, TPU_F32,        TPU_C64,  TPU_C64},
    [TPU_C128]       = {"complex<f64>", "ComplexDouble",  "complex128",      16, 10, TPU_F64,        TPU_C128, TPU_C128},
    [TPU_F8E4M3FN]   = {"f8E4M3FN",     "Float8_e4m3fn",  "float8_e4m3fn",    1, 24, TPU_F8E4M3FN,   TPU_NONE, TPU_F32},
    [TPU_F8E5M2]     = {"f8E5M2",       "Float8_e5m2",    "float8_e5m2",      1, 23, TPU_F8E5M2,     TPU_NONE, TPU_F32},
    [TPU_F8E4M3FNUZ] = {"f8E4M3FNUZ",   "Float8_e4m3fnuz", "float8_e4m3fnuz", 1, 26, TPU_F8E4M3FNUZ, TPU_NONE, TPU_F32},
    [TPU_F8E5M2FNUZ] = {"f8E5M2FNUZ",   "Float8_e5m2fnuz", "float8_e5m2fnuz", 1, 25, TPU_F8E5M2FNUZ, TPU_NONE, TPU_F32},
    [TPU_F8E8M0FNU]  = {"f8E8M0FNU",    "Float8_e8m0fnu",  "float8_e8m0fnu",  1, 44, TPU_F8E8M0FNU,  TPU_NONE, TPU_F32},
};
/* clang-format on */

static const dtype_row *row_of(tpu_dtype t)
{
    return &dtypes[(unsigned)t < TPU_DTYPE_COUNT ? t : TPU_NONE];
}

const char *dtype_name(tpu_dtype t)
{
    return row_of(t)->name;
}

const char *dtype_torch_name(tpu_dtype t)
{
    return row_of(t)->torch;
}

size_t dtype_size(tpu_dtype t)
{
    return row_of(t)->size;
}

tpu_dtype dtype_from_torch(int scalar_type)
{
    static const uint8_t known[] = {
        TPU_U8, TPU_I8, TPU_I16, TPU_I32, TPU_I64, TPU_F16, TPU_F32, TPU_F64, TPU_NONE, TPU_C64, TPU_C128, TPU_BOOL,
        [15] = TPU_BF16, [23] = TPU_F8E5M2, TPU_F8E4M3FN, TPU_F8E5M2FNUZ, TPU_F8E4M3FNUZ, TPU_U16, TPU_U32, TPU_U64,
        [44] = TPU_F8E8M0FNU,
    };
    return scalar_type >= 0 && scalar_type < (int)sizeof known ? (tpu_dtype)known[scalar_type] : TPU_NONE;
}

int dtype_to_torch(tpu_dtype t)
{
    return row_of(t)->scalar_type;
}

tpu_dtype dtype_real(tpu_dtype t)
{
    return (tpu_dtype)row_of(t)->real;
}

tpu_dtype dtype_complex(tpu_dtype t)
{
    return (tpu_dtype)row_of(t)->cplx;
}

tpu_dtype dtype_compute(tpu_dtype t)
{
    return (tpu_dtype)row_of(t)->compute;
}

/* ---- promotion [P1] ---- */

static bool is_f8(tpu_dtype t)
{
    return t >= TPU_F8E4M3FN && t <= TPU_F8E8M0FNU;
}

/* uint16, uint32 and uint64 came late to PyTorch: they promote with real floats and nothing else. */
static bool is_late_unsigned(tpu_dtype t)
{
    return t >= TPU_U16 && t <= TPU_U64;
}

static tpu_dtype promote_integral(tpu_dtype a, tpu_dtype b)
{
    if (a == TPU_BOOL) return b;
    if (b == TPU_BOOL) return a;
    if (b == TPU_U8) b = a, a = TPU_U8;
    if (a == TPU_U8) return b == TPU_I8 ? TPU_I16 : b;
    return a > b ? a : b;
}

tpu_dtype dtype_promote(tpu_dtype a, tpu_dtype b)
{
    if (a == b || b == TPU_NONE) return a;
    if (a == TPU_NONE) return b;
    if (is_f8(a) || is_f8(b)) return TPU_NONE;
    if (is_late_unsigned(a) || is_late_unsigned(b)) {
        tpu_dtype other = is_late_unsigned(a) ? b : a;
        return dtype_is_float(other) ? other : TPU_NONE;
    }
    if (dtype_is_integral(a) && dtype_is_integral(b)) return promote_integral(a, b);
    if (dtype_is_complex(a) || dtype_is_complex(b)) {
        bool wide = a == TPU_F64 || b == TPU_F64 || a == TPU_C128 || b == TPU_C128;
        return wide ? TPU_C128 : TPU_C64;
    }
    if (dtype_is_integral(a)) return b;
    if (dtype_is_integral(b)) return a;
    if (a == TPU_F64 || b == TPU_F64) return TPU_F64;
    return TPU_F32; /* two different ones of float16, bfloat16, float32 */
}

bool dtype_can_cast(tpu_dtype from, tpu_dtype to)
{
    if (dtype_is_complex(from) && !dtype_is_complex(to)) return false;
    if (dtype_is_float(from) && dtype_is_int(to)) return false;
    return from == TPU_BOOL || to != TPU_BOOL;
}

/* ---- tensor types ---- */

tpu_type type_make(tpu_dtype t, int rank, const int64_t *dim)
{
    tpu_type r = {.dtype = (uint8_t)t};
    if (rank < 0 || rank > TYPE_MAX_RANK) return (tpu_type){0};
    r.rank = (uint8_t)rank;
    for (int d = 0; d < rank; d++) r.dim[d] = dim[d];
    return r;
}

bool type_same_shape(const tpu_type *a, const tpu_type *b)
{
    if (a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dim[d] != b->dim[d]) return false;
    return true;
}

bool type_equal(const tpu_type *a, const tpu_type *b)
{
    return a->dtype == b->dtype && a->bounded == b->bounded && type_same_shape(a, b);
}

int64_t type_count(const tpu_type *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++) n *= t->dim[d];
    return n;
}

void type_text(const tpu_type *t, text *out)
{
    text_put(out, "tensor<", 7);
    for (int d = 0; d < t->rank; d++) {
        text_int(out, t->dim[d]);
        text_put(out, "x", 1);
    }
    text_puts(out, dtype_name((tpu_dtype)t->dtype));
    text_put(out, ">", 1);
}

void type_words(const tpu_type *t, text *out)
{
    text_puts(out, row_of((tpu_dtype)t->dtype)->words);
    text_put(out, "[", 1);
    for (int d = 0; d < t->rank; d++) {
        if (d) text_put(out, ", ", 2);
        if (t->bounded >> d & 1) text_put(out, "<=", 2);
        text_int(out, t->dim[d]);
    }
    text_put(out, "]", 1);
}

/* ---- interning ---- */

/* Records are never freed or moved, tables only grow: a reader needs no lock.  It may miss a record that is being
 * added; then it takes the lock and looks again. */
typedef struct type_record {
    tpu_type type; /* first: an interned pointer is a record's */
    uint64_t hash;
    size_t len;
    char text[];
} type_record;

typedef struct type_table {
    size_t mask;
    struct type_table *older; /* keeps superseded tables reachable */
    _Atomic(type_record *) slot[];
} type_table;

static _Atomic(type_table *) interned;
static size_t interned_count;
static pthread_mutex_t intern_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t type_hash(const tpu_type *t)
{
    uint64_t h = (uint64_t)t->dtype | (uint64_t)t->rank << 8 | (uint64_t)t->bounded << 16;
    h = (h + 1) * 0x9e3779b97f4a7c15ull;
    for (int d = 0; d < t->rank; d++) h = (h ^ (h >> 29) ^ (uint64_t)t->dim[d]) * 0xff51afd7ed558ccdull;
    return h ^ h >> 32;
}

static const tpu_type *find_record(const type_table *table, const tpu_type *t, uint64_t hash)
{
    if (!table) return NULL;
    for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        type_record *r = atomic_load_explicit(&table->slot[i], memory_order_acquire);
        if (!r) return NULL;
        if (r->hash == hash && type_equal(&r->type, t)) return &r->type;
    }
}

static void put_record(type_table *table, type_record *r)
{
    size_t i = r->hash & table->mask;
    while (atomic_load_explicit(&table->slot[i], memory_order_relaxed)) i = (i + 1) & table->mask;
    atomic_store_explicit(&table->slot[i], r, memory_order_release);
}

/* Called with the lock held; the table with room for one more, or NULL. */
static type_table *room_for_record(void)
{
    type_table *old = atomic_load_explicit(&interned, memory_order_relaxed);
    size_t size = old ? old->mask + 1 : 0;
    if (interned_count * 2 < size) return old;
    size_t bigger = size ? size * 4 : 512;
    type_table *table = mem_keep(sizeof *table + bigger * sizeof table->slot[0]);
    if (!table) return NULL;
    table->mask = bigger - 1;
    table->older = old;
    for (size_t i = 0; i < size; i++) {
        type_record *r = atomic_load_explicit(&old->slot[i], memory_order_relaxed);
        if (r) put_record(table, r);
    }
    atomic_store_explicit(&interned, table, memory_order_release);
    return table;
}

static const tpu_type *add_record(const tpu_type *t, uint64_t hash)
{
    type_table *table = room_for_record();
    if (!table) return NULL;
    text name = {0};
    type_text(t, &name);
    type_record *r = name.failed ? NULL : mem_keep(sizeof *r + name.len + 1);
    if (r) {
        r->type = type_make((tpu_dtype)t->dtype, t->rank, t->dim);
        r->type.bounded = t->bounded;
        r->hash = hash;
        r->len = name.len;
        memcpy(r->text, name.at, name.len);
        put_record(table, r);
        interned_count++;
    }
    text_free(&name);
    return r ? &r->type : NULL;
}

const tpu_type *type_intern(const tpu_type *t)
{
    uint64_t hash = type_hash(t);
    const tpu_type *r = find_record(atomic_load_explicit(&interned, memory_order_acquire), t, hash);
    if (r) return r;
    pthread_mutex_lock(&intern_lock);
    r = find_record(atomic_load_explicit(&interned, memory_order_relaxed), t, hash);
    if (!r) r = add_record(t, hash);
    pthread_mutex_unlock(&intern_lock);
    return r;
}

const char *type_interned_text(const tpu_type *t, size_t *out_len)
{
    const type_record *r = (const type_record *)t;
    *out_len = r->len;
    return r->text;
}
