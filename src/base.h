/* base.h - errors, memory, text, hashes, log: what every other file stands on.
 * Owner words, used in every header: owned - you must free or release it; borrowed - valid while the named object
 * lives; shared - retained for you, release it.  Arguments are borrowed unless the name says `take`.  Free and release
 * accept NULL.  Any thread, unless said otherwise.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_BASE_H
#define TPUTORCH_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TPU_API __attribute__((visibility("default")))
#define TPU_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define TPU_MUST_USE __attribute__((warn_unused_result))
#define TPU_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Codes are PJRT's. */
typedef enum tpu_code {
    TPU_OK = 0, TPU_CANCELLED = 1, TPU_UNKNOWN = 2, TPU_INVALID = 3, TPU_DEADLINE = 4, TPU_NOT_FOUND = 5,
    TPU_ALREADY_EXISTS = 6, TPU_PERMISSION = 7, TPU_EXHAUSTED = 8, TPU_PRECONDITION = 9, TPU_ABORTED = 10,
    TPU_OUT_OF_RANGE = 11, TPU_UNIMPLEMENTED = 12, TPU_INTERNAL = 13, TPU_UNAVAILABLE = 14, TPU_DATA_LOSS = 15,
} tpu_code;

/* NULL is success. */
typedef struct tpu_error tpu_error;

TPU_API tpu_error *tpu_fail(tpu_code code, const char *fmt, ...) TPU_PRINTF(2, 3) TPU_MUST_USE; /* owned; never NULL */
TPU_API tpu_error *tpu_fail_v(tpu_code code, const char *fmt, va_list ap) TPU_MUST_USE;         /* owned; never NULL */
tpu_error *tpu_fail_memory(void) TPU_MUST_USE;          /* a static object, allocates nothing; freeing it does nothing */
TPU_API tpu_error *tpu_error_copy(const tpu_error *e) TPU_MUST_USE;                             /* owned */
TPU_API tpu_error *tpu_error_prefix(tpu_error *take, const char *fmt, ...) TPU_PRINTF(2, 3) TPU_MUST_USE; /* owned: "prefix: old" */
TPU_API tpu_code tpu_error_code(const tpu_error *e);    /* TPU_OK for NULL */
TPU_API const char *tpu_error_message(const tpu_error *e); /* borrowed from e; "" for NULL */
TPU_API void tpu_error_free(tpu_error *e);

#define TPU_TRY(call) do { tpu_error *e_ = (call); if (e_) return e_; } while (0)

/* Memory.  mem_* return NULL when there is none, or when the test hook says so; mem_fail_after(n) lets the n-th
 * allocation from now fail (0: none), which is how tests walk every out-of-memory path.  mem_live counts blocks. */
TPU_API void *mem_new(size_t bytes);                    /* owned, zeroed; NULL if out of memory */
void *mem_resize(void *p, size_t bytes);                /* owned; NULL leaves p as it was */
char *mem_dup(const char *s, size_t n);                 /* owned, ends in '\0'; NULL if out of memory */
TPU_API void mem_free(void *p);
void *mem_keep(size_t bytes);                           /* zeroed, lives as long as the process, not in mem_live */
TPU_API void mem_fail_after(int64_t n);
TPU_API bool mem_faulted(void);                          /* the failure that mem_fail_after asked for has happened */
TPU_API int64_t mem_live(void);

/* Grows *at to hold at least `need` items of `size` bytes, doubling; false if out of memory, then *at is unchanged. */
bool mem_reserve(void *at, size_t *cap, size_t need, size_t size);
void mem_trim(void);                                    /* free pages of the heap go back to the system */

/* Arena: many small objects with one end.  One thread at a time. */
typedef struct arena arena;
arena *arena_new(void);                                 /* owned; NULL if out of memory */
void arena_free(arena *a);
void *arena_get(arena *a, size_t bytes);                /* borrowed from a, zeroed, 16-aligned; NULL if out of memory */
char *arena_dup(arena *a, const char *s, size_t n);     /* borrowed from a; NULL if out of memory */

/* Text that grows.  After the first failed allocation `failed` stays true and every call does nothing. */
typedef struct text { char *at; size_t len, cap; bool failed; } text;
TPU_API void text_add(text *t, const char *fmt, ...) TPU_PRINTF(2, 3);
void text_put(text *t, const char *s, size_t n);
void text_puts(text *t, const char *s);
void text_int(text *t, int64_t v);                      /* decimal, faster than text_add */
void text_clear(text *t);
TPU_API void text_free(text *t);                        /* frees the characters, not t */

/* 128-bit hash, for keys on disk and in memory.  Not against an enemy. */
typedef struct hash128 { uint64_t lo, hi; } hash128;
hash128 hash_bytes(hash128 seed, const void *p, size_t n);
static inline bool hash_equal(hash128 a, hash128 b) { return a.lo == b.lo && a.hi == b.hi; }
/* Mixes one word in: a few cycles, for keys that are built call by call. */
static inline hash128 hash_word(hash128 h, uint64_t w)
{
    __uint128_t m = (__uint128_t)(h.lo ^ w) * 0x9e3779b97f4a7c15ull;
    uint64_t lo = (uint64_t)m ^ h.hi, hi = (uint64_t)(m >> 64) + (h.hi ^ w) * 0xc2b2ae3d27d4eb4full;
    return (hash128){lo ^ (hi >> 29), hi ^ (lo << 7)};
}
void hash_hex(hash128 h, char out[33]);

/* Where the user's program stands, told by whoever knows (the Python module). */
TPU_API void place_set(void (*fn)(char *out, size_t room));
TPU_API void place_words(char *out, size_t room);       /* "file.py:12"; "a backward pass" without a Python frame; "" if nobody knows */

/* Log lines go to stderr as "tputorch: ...".  Level from TPUTORCH_LOG: 0 quiet, 1 warnings (default), 2 info, 3 debug. */
TPU_API void log_warn(const char *fmt, ...) TPU_PRINTF(1, 2);
TPU_API void log_info(const char *fmt, ...) TPU_PRINTF(1, 2);
int log_level(void);

double time_now(void);                                  /* seconds, monotonic */

#endif
