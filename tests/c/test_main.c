/* test_main.c - runs the C tests; see test.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "test.h"

static test *tests;
static int failures; /* of the test that runs */
static bool armed;

void test_register(test *t)
{
    test **at = &tests;
    while (*at && strcmp((*at)->name, t->name) < 0) at = &(*at)->next;
    t->next = *at;
    *at = t;
}

bool test_faulting(void)
{
    return armed && mem_faulted();
}

static void failed(const char *file, int line, const char *what)
{
    failures++;
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
}

void test_check(bool ok, const char *what, const char *file, int line)
{
    if (!ok && !test_faulting()) failed(file, line, what);
}

void test_check_str(const char *got, const char *want, const char *file, int line)
{
    if (test_faulting() || (got && want && strcmp(got, want) == 0) || (!got && !want)) return;
    failed(file, line, "texts differ");
    fprintf(stderr, "  got:  %s\n  want: %s\n", got ? got : "(null)", want ? want : "(null)");
}

void test_check_ok(tpu_error *take, const char *file, int line)
{
    if (take && !test_faulting()) failed(file, line, tpu_error_message(take));
    tpu_error_free(take);
}

/* What a first run leaves behind may be a table that is kept; what the second leaves too is a leak. */
static void run_once(const test *t)
{
    int64_t before = mem_live();
    t->run();
    if (mem_live() == before) return;
    before = mem_live();
    t->run();
    if (mem_live() != before) failed(t->name, 0, "memory is still alive at the end");
}

enum { FAULTS_MOST = 20000 };

static void run_faults(const test *t)
{
    for (int n = 1; n <= FAULTS_MOST && !failures; n++) {
        int64_t before = mem_live();
        armed = true;
        mem_fail_after(n);
        t->run();
        bool through = !mem_faulted();
        mem_fail_after(0);
        armed = false;
        if (mem_live() > before) {
            char what[80];
            snprintf(what, sizeof what, "memory is still alive after failure %d", n);
            failed(t->name, n, what);
        }
        if (through) return;
    }
}

static int run_test(const test *t, bool faults)
{
    failures = 0;
    run_once(t);
    if (faults && !failures) run_faults(t);
    printf("%s %s\n", failures ? "FAIL" : "ok", t->name);
    fflush(stdout);
    return failures != 0;
}

static const test *find(const char *name)
{
    for (const test *t = tests; t; t = t->next)
        if (!strcmp(t->name, name)) return t;
    return NULL;
}

int main(int argc, char **argv)
{
    bool all = false, faults = false;
    int ran = 0, bad = 0, named = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--all")) all = true;
        else if (!strcmp(argv[i], "--faults")) faults = true;
        else named++;
    }
    if (!all && !named) {
        for (const test *t = tests; t; t = t->next) puts(t->name);
        return 0;
    }
    for (const test *t = tests; t && all; t = t->next, ran++) bad += run_test(t, faults);
    for (int i = 1; i < argc && !all; i++) {
        if (argv[i][0] == '-') continue;
        const test *t = find(argv[i]);
        if (!t) fprintf(stderr, "no test \"%s\"\n", argv[i]);
        bad += t ? run_test(t, faults) : 1;
        ran++;
    }
    printf("%d passed, %d failed\n", ran - bad, bad);
    return bad != 0;
}
