/* test.h - C tests that list themselves.  TEST(name) { ... } registers; CHECK_* record a failure and go on.
 * The runner (test_main.c): `tests` lists, `tests NAME...` runs those, `tests --all` runs all; with --faults every test is
 * run again with its n-th allocation failing, n = 1, 2, ..., until it gets through.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_TEST_H
#define TPUTORCH_TEST_H

#include <string.h>

#include "base.h"

typedef struct test { const char *name; void (*run)(void); struct test *next; } test;
void test_register(test *t);
void test_check(bool ok, const char *what, const char *file, int line);
void test_check_str(const char *got, const char *want, const char *file, int line);
void test_check_ok(tpu_error *take, const char *file, int line);
bool test_faulting(void); /* an allocation was made to fail in this run: values are not checked then, only survival */

#define TEST(n) \
    static void test_##n(void); \
    __attribute__((constructor)) static void register_##n(void) { \
        static test t = {#n, test_##n, NULL}; \
        test_register(&t); \
    } \
    static void test_##n(void)

#define CHECK(x) test_check((x), #x, __FILE__, __LINE__)
#define CHECK_STR(got, want) test_check_str((got), (want), __FILE__, __LINE__)
#define CHECK_OK(call) test_check_ok((call), __FILE__, __LINE__)

#endif
