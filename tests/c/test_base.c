/* test_base.c - errors, memory, text, hashes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

TEST(an_error_carries_its_code_and_words)
{
    tpu_error *e = tpu_fail(TPU_INVALID, "expected %d, got %s", 3, "four");
    CHECK(tpu_error_code(e) == TPU_INVALID);
    CHECK_STR(tpu_error_message(e), "expected 3, got four");
    tpu_error *c = tpu_error_copy(e);
    tpu_error_free(e);
    c = tpu_error_prefix(c, "aten::%s", "add");
    CHECK(tpu_error_code(c) == TPU_INVALID);
    CHECK_STR(tpu_error_message(c), "aten::add: expected 3, got four");
    tpu_error_free(c);
}

TEST(no_error_is_null_everywhere)
{
    CHECK(tpu_error_code(NULL) == TPU_OK);
    CHECK_STR(tpu_error_message(NULL), "");
    CHECK(tpu_error_copy(NULL) == NULL);
    CHECK(tpu_error_prefix(NULL, "x") == NULL);
    tpu_error_free(NULL);
}

TEST(the_memory_error_allocates_nothing)
{
    int64_t live = mem_live();
    tpu_error *e = tpu_fail_memory();
    CHECK(tpu_error_code(e) == TPU_EXHAUSTED);
    CHECK(tpu_error_copy(e) == e);
    tpu_error_free(e);
    CHECK(mem_live() == live);
}

TEST(an_allocation_can_be_made_to_fail)
{
    if (test_faulting()) return;
    mem_fail_after(2);
    void *a = mem_new(8), *b = mem_new(8), *c = mem_new(8);
    CHECK(a && !b && c);
    CHECK(mem_faulted());
    mem_fail_after(0);
    mem_free(a);
    mem_free(c);
}

TEST(a_list_doubles_and_keeps_its_items)
{
    int *list = NULL;
    size_t cap = 0;
    for (int i = 0; i < 100; i++) {
        if (!mem_reserve(&list, &cap, (size_t)i + 1, sizeof *list)) break;
        list[i] = i;
    }
    CHECK(cap == 128 && list && list[0] == 0 && list[99] == 99);
    CHECK(!mem_reserve(&list, &cap, SIZE_MAX / 2, sizeof *list));
    mem_free(list);
}

TEST(an_arena_gives_zeroed_aligned_memory)
{
    arena *a = arena_new();
    if (!a) return;
    for (size_t n = 1; n < 30000; n = n * 3 + 1) {
        char *p = arena_get(a, n);
        if (!p) break;
        CHECK(((uintptr_t)p & 15) == 0 && p[0] == 0 && p[n - 1] == 0);
        memset(p, 255, n);
    }
    char *s = arena_dup(a, "words", 3);
    CHECK_STR(s, "wor");
    arena_free(a);
}

TEST(text_grows_and_formats)
{
    text t = {0};
    text_puts(&t, "a");
    text_int(&t, INT64_MIN);
    text_int(&t, 0);
    text_add(&t, "[%s]", "b");
    text_put(&t, "cdef", 2);
    CHECK_STR(t.at, "a-92233720368547758080[b]cd");
    for (int i = 0; i < 1000; i++) text_int(&t, i);
    CHECK(t.len == 27 + 2890);
    text_clear(&t);
    CHECK(t.len == 0 && !t.failed);
    text_free(&t);
}

TEST(a_hash_sees_every_byte_and_the_length)
{
    char buf[600] = {0};
    hash128 seed = {1, 2}, last = hash_bytes(seed, buf, 0);
    for (size_t n = 1; n <= sizeof buf; n++) { /* zeros of each length */
        hash128 h = hash_bytes(seed, buf, n);
        CHECK(!hash_equal(h, last));
        last = h;
    }
    for (size_t i = 0; i < sizeof buf; i++) {
        buf[i] ^= 1;
        CHECK(!hash_equal(hash_bytes(seed, buf, sizeof buf), last));
        buf[i] ^= 1;
    }
    CHECK(hash_equal(hash_bytes(seed, buf, sizeof buf), last));
    char hex[33];
    hash_hex((hash128){0x0123456789abcdefull, 0xfedcba9876543210ull}, hex);
    CHECK_STR(hex, "fedcba98765432100123456789abcdef");
}

TEST(time_goes_on)
{
    double a = time_now();
    CHECK(time_now() >= a);
}
