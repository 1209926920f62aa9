/* base.c - errors, memory, text, hashes, log.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- memory ---- */

static _Atomic int64_t live_blocks;
static _Atomic int64_t fail_in; /* 0: allocations are not made to fail */
static _Atomic bool faulted;

/* The fast path is one relaxed load; counting down happens only in tests. */
static bool fault(void)
{
    if (atomic_load_explicit(&fail_in, memory_order_relaxed) == 0) return false;
    if (atomic_fetch_sub(&fail_in, 1) != 1) return false;
    atomic_store(&faulted, true);
    return true;
}

void *mem_new(size_t bytes)
{
    void *p = fault() ? NULL : calloc(1, bytes ? bytes : 1);
    if (p) atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return p;
}

void *mem_resize(void *p, size_t bytes)
{
    void *q = fault() ? NULL : realloc(p, bytes ? bytes : 1);
    if (q && !p) atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return q;
}

char *mem_dup(const char *s, size_t n)
{
    char *p = mem_new(n + 1);
    if (p && n) memcpy(p, s, n);
    return p;
}

void mem_free(void *p)
{
    if (!p) return;
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(p);
}

void *mem_keep(size_t bytes)
{
    return fault() ? NULL : calloc(1, bytes ? bytes : 1);
}

void mem_fail_after(int64_t n)
{
    atomic_store(&faulted, false);
    atomic_store(&fail_in, n);
}

bool mem_faulted(void)
{
    return atomic_load(&faulted);
}

int64_t mem_live(void)
{
    return atomic_load_explicit(&live_blocks, memory_order_relaxed);
}

bool mem_reserve(void *at, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap) return true;
    size_t n = *cap ? *cap : 8;
    while (n < need) {
        if (n > SIZE_MAX / 2) return false;
        n *= 2;
    }
    if (size && n > SIZE_MAX / size) return false;
    void *old;
    memcpy(&old, at, sizeof old); /* `at` points at a pointer of any type */
    void *p = mem_resize(old, n * size);
    if (!p) return false;
    memcpy(at, &p, sizeof p);
    *cap = n;
    return true;
}

/* A compiler leaves hundreds of MB of free pages behind, in heaps of threads that come back to them rarely. */
void mem_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* ---- errors ---- */

struct tpu_error {
    tpu_code code;
    char *message; /* stands in the same block */
};

static tpu_error memory_error = {TPU_EXHAUSTED, (char[]){"out of host memory"}};

tpu_error *tpu_fail_memory(void)
{
    return &memory_error;
}

/* A block with room for n characters and the end; the static error when there is none. */
static tpu_error *error_new(tpu_code code, size_t n)
{
    tpu_error *e = mem_new(sizeof *e + n + 1);
    if (!e) return &memory_error;
    e->code = code == TPU_OK ? TPU_INTERNAL : code;
    e->message = (char *)(e + 1);
    return e;
}

tpu_error *tpu_fail_v(tpu_code code, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    size_t len = n < 0 ? 0 : (size_t)n;
    tpu_error *e = error_new(code, len);
    if (e != &memory_error && n > 0) vsnprintf(e->message, len + 1, fmt, ap);
    return e;
}

tpu_error *tpu_fail(tpu_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tpu_error *e = tpu_fail_v(code, fmt, ap);
    va_end(ap);
    return e;
}

tpu_error *tpu_error_copy(const tpu_error *e)
{
    if (!e) return NULL;
    if (e == &memory_error) return &memory_error;
    size_t n = strlen(e->message);
    tpu_error *c = error_new(e->code, n);
    if (c != &memory_error) memcpy(c->message, e->message, n + 1);
    return c;
}

tpu_error *tpu_error_prefix(tpu_error *take, const char *fmt, ...)
{
    if (!take) return NULL;
    text t = {0};
    va_list ap;
    va_start(ap, fmt);
    tpu_error *head = tpu_fail_v(take->code, fmt, ap);
    va_end(ap);
    if (head != &memory_error) {
        text_puts(&t, head->message);
        text_puts(&t, ": ");
        text_puts(&t, take->message);
        tpu_error_free(head);
    }
    tpu_error *e = t.failed || !t.at ? take : tpu_fail(take->code, "%s", t.at);
    text_free(&t);
    if (e != take) tpu_error_free(take);
    return e;
}

tpu_code tpu_error_code(const tpu_error *e)
{
    return e ? e->code : TPU_OK;
}

const char *tpu_error_message(const tpu_error *e)
{
    return e ? e->message : "";
}

void tpu_error_free(tpu_error *e)
{
    if (e != &memory_error) mem_free(e);
}

/* ---- arena ---- */

/* Chunks double from 4 KiB, so a small function costs one block and a large one few. */
typedef struct chunk {
    struct chunk *next;
    size_t pad;
} chunk;

struct arena {
    chunk *chunks;
    char *at, *end;
    size_t next_size;
};

enum { ARENA_FIRST = 4096, ARENA_LARGEST = 1 << 20 };

arena *arena_new(void)
{
    arena *a = mem_new(sizeof *a);
    if (a) a->next_size = ARENA_FIRST;
    return a;
}

void arena_free(arena *a)
{
    if (!a) return;
    for (chunk *c = a->chunks; c;) {
        chunk *next = c->next;
        mem_free(c);
        c = next;
    }
    mem_free(a);
}

static void *arena_grow(arena *a, size_t bytes)
{
    bool large = bytes > a->next_size / 2; /* gets a chunk of its own; the open chunk stays open */
    size_t room = large ? bytes : a->next_size;
    if (room > SIZE_MAX - sizeof(chunk)) return NULL;
    chunk *c = mem_new(sizeof *c + room);
    if (!c) return NULL;
    c->next = a->chunks;
    a->chunks = c;
    char *start = (char *)(c + 1);
    if (large) return start;
    if (a->next_size < ARENA_LARGEST) a->next_size *= 2;
    a->at = start + bytes;
    a->end = start + room;
    return start;
}

void *arena_get(arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX - 16) return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (a->at && bytes <= (size_t)(a->end - a->at)) {
        char *p = a->at;
        a->at += bytes;
        return p;
    }
    return arena_grow(a, bytes);
}

char *arena_dup(arena *a, const char *s, size_t n)
{
    char *p = arena_get(a, n + 1);
    if (p && n) memcpy(p, s, n);
    return p;
}

/* ---- text ---- */

static bool text_room(text *t, size_t n)
{
    if (t->failed) return false;
    if (t->len + n + 1 <= t->cap) return true;
    if (!t->cap && n < 120 && mem_reserve(&t->at, &t->cap, 128, 1)) return true;
    if (t->cap && mem_reserve(&t->at, &t->cap, t->len + n + 1, 1)) return true;
    if (!t->cap && mem_reserve(&t->at, &t->cap, n + 1, 1)) return true;
    t->failed = true;
    return false;
}

void text_put(text *t, const char *s, size_t n)
{
    if (!text_room(t, n)) return;
    if (n) memcpy(t->at + t->len, s, n);
    t->len += n;
    t->at[t->len] = '\0';
}

void text_puts(text *t, const char *s)
{
    text_put(t, s, strlen(s));
}

void text_int(text *t, int64_t v)
{
    char buf[24], *p = buf + sizeof buf;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do *--p = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0) *--p = '-';
    text_put(t, p, (size_t)(buf + sizeof buf - p));
}

void text_add(text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !text_room(t, (size_t)n)) return;
    va_start(ap, fmt);
    vsnprintf(t->at + t->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->len += (size_t)n;
}

void text_clear(text *t)
{
    t->len = 0;
    t->failed = false;
    if (t->at) t->at[0] = '\0';
}

void text_free(text *t)
{
    mem_free(t->at);
    *t = (text){0};
}

/* ---- hash ---- */

static uint64_t word_at(const char *s)
{
    uint64_t w;
    memcpy(&w, s, sizeof w);
    return w;
}

/* Four chains side by side, since one waits for its multiplications: executables are megabytes. */
static hash128 hash_long(hash128 h, const char *s, size_t blocks)
{
    hash128 a = h, b = {h.lo ^ 1, h.hi}, c = {h.lo ^ 2, h.hi}, d = {h.lo ^ 3, h.hi};
    for (; blocks; blocks--, s += 32) {
        a = hash_word(a, word_at(s));
        b = hash_word(b, word_at(s + 8));
        c = hash_word(c, word_at(s + 16));
        d = hash_word(d, word_at(s + 24));
    }
    a = hash_word(hash_word(a, b.lo), b.hi);
    a = hash_word(hash_word(a, c.lo), c.hi);
    return hash_word(hash_word(a, d.lo), d.hi);
}

hash128 hash_bytes(hash128 seed, const void *p, size_t n)
{
    const char *s = p;
    hash128 h = seed;
    size_t left = n;
    if (left >= 256) {
        h = hash_long(h, s, left / 32);
        s += left / 32 * 32;
        left %= 32;
    }
    for (; left >= 8; left -= 8, s += 8) h = hash_word(h, word_at(s));
    uint64_t w = 0;
    if (left) memcpy(&w, s, left);
    h = hash_word(h, w);
    /* Two more rounds, so that the last bytes reach every bit; the length keeps "a" and "a\0" apart. */
    h = hash_word(h, (uint64_t)n ^ 0xd6e8feb86659fd93ull);
    return hash_word(h, h.hi);
}

void hash_hex(hash128 h, char out[33])
{
    static const char digit[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        out[i] = digit[h.hi >> (60 - 4 * i) & 15];
        out[16 + i] = digit[h.lo >> (60 - 4 * i) & 15];
    }
    out[32] = '\0';
}

/* ---- place ---- */
static void (*place)(char *out, size_t room);

void place_set(void (*fn)(char *out, size_t room)) { place = fn; }

void place_words(char *out, size_t room)
{
    if (room) *out = '\0';
    if (place && room) place(out, room);
}

/* ---- log ---- */

int log_level(void)
{
    static _Atomic int cached = -1;
    int level = atomic_load_explicit(&cached, memory_order_relaxed);
    if (level >= 0) return level;
    const char *s = getenv("TPUTORCH_LOG");
    level = s && s[0] >= '0' && s[0] <= '9' ? s[0] - '0' : 1;
    atomic_store_explicit(&cached, level, memory_order_relaxed);
    return level;
}

/* One write a line, so lines of several threads do not mix. */
static void log_line(const char *fmt, va_list ap)
{
    char line[2048];
    int n = vsnprintf(line, sizeof line, fmt, ap);
    if (n >= 0) fprintf(stderr, "tputorch: %s\n", line);
}

void log_warn(const char *fmt, ...)
{
    if (log_level() < 1) return;
    va_list ap;
    va_start(ap, fmt);
    log_line(fmt, ap);
    va_end(ap);
}

void log_info(const char *fmt, ...)
{
    if (log_level() < 2) return;
    va_list ap;
    va_start(ap, fmt);
    log_line(fmt, ap);
    va_end(ap);
}

double time_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
