/* test_cache.c - executables on disk: found again, never believed when damaged, shared by threads and processes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"
#include "cache_disk.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "plugins.h"

static char folder[64];

static bool fresh(void)
{
    strcpy(folder, "/tmp/tputorch_cache_XXXXXX");
    return mkdtemp(folder) != NULL;
}

/* Calls `each` with the path of every file; how many there are. */
static int files(void (*each)(const char *path))
{
    DIR *d = opendir(folder);
    int n = 0;
    if (!d) return -1;
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (each) each(path);
        n++;
    }
    closedir(d);
    return n;
}

static void remove_file(const char *path) { unlink(path); }

static void clean(void)
{
    files(remove_file);
    CHECK(rmdir(folder) == 0);
}

static void halve(const char *path)
{
    struct stat st;
    CHECK(!stat(path, &st) && !truncate(path, st.st_size / 2));
}

static void make_empty(const char *path) { CHECK(!truncate(path, 0)); }

static void flip_at(const char *path, long from_end)
{
    FILE *f = fopen(path, "r+b");
    if (!f) return;
    fseek(f, from_end, from_end < 0 ? SEEK_END : SEEK_SET);
    int c = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(c ^ 1, f);
    fclose(f);
}

static void flip_end(const char *path) { flip_at(path, -7); }
static void flip_start(const char *path) { flip_at(path, 3); }
static void flip_key(const char *path) { flip_at(path, 40); }

/* Adds a number of its own, so that each n is another program. */
static void program(text *t, int n)
{
    text_add(t, "func.func public @main(%%arg0: tensor<8xf32>, %%arg1: tensor<8xf32>) -> tensor<8xf32> {\n"
                "  %%c = stablehlo.constant dense<%d.0> : tensor<8xf32>\n  %%0 = stablehlo.add %%arg0, %%arg1 : tensor<8xf32>\n"
                "  %%1 = stablehlo.add %%0, %%c : tensor<8xf32>\n  return %%1 : tensor<8xf32>\n}\n", n);
}

/* Gets program n and runs it; how it was got, or 0 if that failed. */
static char get(cache *c, plugin *pl, int n)
{
    text code = {0};
    PJRT_LoadedExecutable *x = NULL;
    char how = 0;
    float sum = 0;
    program(&code, n);
    tpu_error *e = code.failed ? tpu_fail_memory() : cache_get(c, code.at, code.len, &x, &how);
    if (!e) e = plugins_add(pl, x, 1, 2, &sum);
    if (!e) CHECK(sum == (float)(10 + n));
    bool ok = !e;
    CHECK_OK(e);
    pjrt_executable_free(pl->p, x);
    text_free(&code);
    return ok ? how : 0;
}

TEST(what_one_cache_compiled_the_next_finds)
{
    EACH_PLUGIN(pl) {
        if (!fresh()) return;
        cache *a = cache_new(pl, folder), *b = cache_new(pl, folder);
        cache_stats s = {0};
        if (a && b) {
            CHECK(get(a, pl, 1) == 'c' && get(a, pl, 1) == 'd' && get(b, pl, 1) == 'd' && get(b, pl, 2) == 'c');
            cache_get_stats(b, &s);
            CHECK(s.compiles == 1 && s.disk_hits == 1 && s.disk_misses == 1 && s.damaged == 0 && s.written == 1);
            CHECK(files(NULL) == 2);
        }
        cache_free(a);
        cache_free(b);
        clean();
    }
}

TEST(a_damaged_entry_is_compiled_anew_and_replaced)
{
    static void (*const harm[])(const char *) = {halve, make_empty, flip_end, flip_start, flip_key};
    EACH_PLUGIN(pl) {
        if (!fresh()) return;
        for (size_t i = 0; i < TPU_COUNT(harm); i++) {
            cache *c = cache_new(pl, folder);
            cache_stats s = {0};
            if (!c) continue;
            char first = get(c, pl, 1);
            files(harm[i]);
            if (first) {
                CHECK(get(c, pl, 1) == 'c');
                CHECK(get(c, pl, 1) == 'd');
                cache_get_stats(c, &s);
                CHECK(s.damaged == 1 && files(NULL) == 1);
            }
            cache_free(c);
        }
        clean();
    }
}

TEST(another_plugin_or_option_is_another_entry)
{
    EACH_PLUGIN(pl) {
        if (!fresh()) return;
        plugin twin = *pl;
        twin.identity = hash_word(pl->identity, 1);
        cache *a = cache_new(pl, folder), *b = cache_new(&twin, folder);
        if (a && b) CHECK(get(a, pl, 1) == 'c' && get(b, pl, 1) == 'c' && files(NULL) == 2);
        cache_free(a);
        cache_free(b);
        clean();
    }
}

TEST(only_a_folder_of_our_own_is_used) /* [C1] */
{
    EACH_PLUGIN(pl) {
        if (!fresh()) return;
        CHECK(!chmod(folder, 0770));
        cache *c = cache_new(pl, folder);
        if (c) CHECK(!*cache_dir(c) && get(c, pl, 1) == 'c' && files(NULL) == 0);
        cache_free(c);
        CHECK(!chmod(folder, 0700));
        c = cache_new(pl, "off");
        if (c) CHECK(!*cache_dir(c));
        cache_free(c);
        char inner[128];
        struct stat st;
        snprintf(inner, sizeof inner, "%s/a", folder);
        c = cache_new(pl, inner);
        if (c) CHECK(!strcmp(cache_dir(c), inner) && !stat(inner, &st) && (st.st_mode & 0777) == 0700);
        cache_free(c);
        rmdir(inner);
        clean();
        return;                                         /* the folder does not depend on the plugin */
    }
}

TEST(a_file_size_limit_costs_the_entry_not_the_process)
{
    EACH_PLUGIN(pl) {
        struct rlimit old, small;
        if (!fresh()) return;
        cache *c = cache_new(pl, folder);
        getrlimit(RLIMIT_FSIZE, &old);
        small = old;
        small.rlim_cur = 1000;
        setrlimit(RLIMIT_FSIZE, &small);
        if (c) CHECK(get(c, pl, 1) == 'c' && get(c, pl, 1) == 'c');
        setrlimit(RLIMIT_FSIZE, &old);
        CHECK(files(NULL) == 0);
        if (c) CHECK(get(c, pl, 1) == 'c' && get(c, pl, 1) == 'd');
        cache_free(c);
        clean();
    }
}

TEST(beyond_the_bound_the_least_used_goes)
{
    EACH_PLUGIN(pl) {
        struct stat st = {0};
        char *first = NULL;
        if (!fresh()) return;
        cache *c = cache_new(pl, folder);
        if (c && get(c, pl, 1) == 'c') {
            DIR *d = opendir(folder);
            for (struct dirent *e; d && (e = readdir(d));)
                if (e->d_name[0] != '.') {
                    first = strdup(e->d_name);
                    fstatat(dirfd(d), e->d_name, &st, 0);
                }
            char path[512], stray[600];
            snprintf(path, sizeof path, "%s/%s", folder, first);
            snprintf(stray, sizeof stray, "%s.1.2.3", path);
            CHECK(!link(path, stray) && !utime(path, &(struct utimbuf){1000, 1000}));
            cache_set_bound(c, st.st_size * 5 / 2);
            bool ran = get(c, pl, 2) && get(c, pl, 3);
            CHECK(!ran || (access(path, F_OK) && access(stray, F_OK) && files(NULL) == 2));
            CHECK(!ran || (get(c, pl, 3) == 'd' && get(c, pl, 1) == 'c'));
            if (d) closedir(d);
        }
        free(first);
        cache_free(c);
        clean();
    }
}

TEST(a_folder_is_verified_and_pruned)
{
    EACH_PLUGIN(pl) {
        if (!fresh()) return;
        cache *c = cache_new(pl, folder);
        int64_t good = 0;
        text bad = {0};
        if (c && get(c, pl, 1) && get(c, pl, 2)) {
            CHECK_OK(folder_verify(folder, &good, &bad));
            CHECK(good == 2 && !bad.len);
            files(flip_end);
            tpu_error *e = folder_verify(folder, &good, &bad);
            if (!e) CHECK(good == 0 && bad.len == 2 * (32 + sizeof " damaged"));
            CHECK_OK(e);
            int64_t gone = folder_prune(folder, 0);
            CHECK(gone == 2 && files(NULL) == 0);
        }
        text_free(&bad);
        cache_free(c);
        clean();
    }
}

typedef struct crowd { cache *c; plugin *pl; int bad; } crowd;

static void *ask_all(void *ctx)
{
    crowd *w = ctx;
    for (int i = 0; i < 12; i++)
        if (!get(w->c, w->pl, 100 + i % 6)) __atomic_fetch_add(&w->bad, 1, __ATOMIC_RELAXED);
    return NULL;
}

TEST(four_threads_compile_a_program_once)
{
    if (test_faulting()) return;
    EACH_PLUGIN(pl) {
        if (!fresh()) return;
        crowd w = {cache_new(pl, folder), pl, 0};
        pthread_t thread[4];
        cache_stats s = {0};
        int n = 0;
        if (w.c) {
            while (n < 4 && !pthread_create(&thread[n], NULL, ask_all, &w)) n++;
            while (n) pthread_join(thread[--n], NULL);
            cache_get_stats(w.c, &s);
            CHECK(!w.bad && s.compiles == 6 && s.disk_hits == 42 && !s.damaged && files(NULL) == 6);
        }
        cache_free(w.c);
        clean();
    }
}
