/* cache.c - executables on disk.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x31303063707574ull   /* "tupc001" */
#define DEFAULT_BYTES (4ll << 30)

struct cache {
    plugin *pl;
    char dir[PATH_MAX];             /* "" : no disk */
    pthread_mutex_t mutex;
    cache_stats stats;
    int64_t room;                   /* bytes that may still be written before the folder is measured again */
    bool warned;
};

typedef struct header { uint64_t magic, len; hash128 sum, key; } header;

/* ---- the folder ---- */
static bool make_dirs(char *path)
{
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = '\0';
        bool ok = !mkdir(path, 0700) || errno == EEXIST;
        *at = '/';
        if (!ok) return false;
    }
    return !mkdir(path, 0700) || errno == EEXIST;
}

static void use_no_disk(cache *c, const char *why)
{
    log_warn("the compile cache %s is not used: %s", c->dir, why);
    c->dir[0] = '\0';
}

static void open_dir(cache *c, const char *dir)
{
    const char *home = getenv("HOME"), *xdg = getenv("XDG_CACHE_HOME");
    if (!dir || !*dir) dir = getenv("TPUTORCH_CACHE");
    if (dir && (!strcmp(dir, "off") || !strcmp(dir, "0"))) return;
    if (dir && *dir) snprintf(c->dir, sizeof c->dir, "%s", dir);
    else if (xdg && *xdg) snprintf(c->dir, sizeof c->dir, "%s/tputorch", xdg);
    else if (home && *home) snprintf(c->dir, sizeof c->dir, "%s/.cache/tputorch", home);
    else return;
    struct stat st;
    if (!make_dirs(c->dir) || stat(c->dir, &st)) {
        use_no_disk(c, strerror(errno));
        return;
    }
    if (!S_ISDIR(st.st_mode)) use_no_disk(c, "it is not a folder");
    else if (st.st_uid != geteuid()) use_no_disk(c, "it belongs to another user");
    else if (st.st_mode & 077) use_no_disk(c, "others may enter it; chmod 700 makes it private");
    else if (access(c->dir, R_OK | W_OK | X_OK)) use_no_disk(c, strerror(errno));
}

cache *cache_new(plugin *pl, const char *dir)
{
    cache *c = mem_new(sizeof *c);
    if (!c) return NULL;
    c->pl = pl;
    pthread_mutex_init(&c->mutex, NULL);
    open_dir(c, dir);
    return c;
}

void cache_free(cache *c)
{
    if (!c) return;
    pthread_mutex_destroy(&c->mutex);
    mem_free(c);
}

const char *cache_dir(const cache *c) { return c->dir; }

void cache_get_stats(cache *c, cache_stats *out)
{
    pthread_mutex_lock(&c->mutex);
    *out = c->stats;
    pthread_mutex_unlock(&c->mutex);
}

/* ---- reading ---- */
static void entry_path(const cache *c, hash128 key, const char *suffix, char out[PATH_MAX + 64])
{
    char hex[33];
    hash_hex(key, hex);
    snprintf(out, PATH_MAX + 64, "%s/%s%s", c->dir, hex, suffix);
}

static char *read_file(const char *path, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    char *at = NULL;
    if (fd < 0) return NULL;
    if (!fstat(fd, &st) && st.st_size > 0 && (at = mem_new((size_t)st.st_size))) {
        size_t got = 0;
        ssize_t n;
        while (got < (size_t)st.st_size && (n = read(fd, at + got, (size_t)st.st_size - got)) > 0) got += (size_t)n;
        *len = got;
    }
    close(fd);
    return at;
}

static const char *damage(const char *file, size_t len, hash128 key)
{
    header h;
    if (len < sizeof h) return "truncated";
    memcpy(&h, file, sizeof h);
    if (h.magic != MAGIC || !hash_equal(h.key, key)) return "foreign";
    if (h.len != len - sizeof h) return "truncated";
    if (!hash_equal(h.sum, hash_bytes(key, file + sizeof h, h.len))) return "damaged";
    return NULL;
}

/* NULL when there is no entry that can be used; a bad one is named once and will be replaced. */
static PJRT_LoadedExecutable *load(cache *c, hash128 key)
{
    char path[PATH_MAX + 64];
    size_t len = 0;
    entry_path(c, key, "", path);
    char *file = read_file(path, &len);
    if (!file) return NULL;
    PJRT_LoadedExecutable *x = NULL;
    const char *bad = damage(file, len, key);
    tpu_error *e = bad ? NULL : pjrt_load(c->pl->p, file + sizeof(header), len - sizeof(header), &x);
    if (bad || e) {
        log_warn("a compile cache entry is %s and is compiled anew", bad ? bad : "not loadable");
        c->stats.damaged++;
        unlink(path);
    }
    tpu_error_free(e);
    mem_free(file);
    return x;
}

/* ---- writing ---- */
static bool write_all(int fd, const void *at, size_t n)
{
    for (const char *p = at; n;) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* A file size limit must cost the entry, not the process: the signal is held back in this thread and taken off. */
static bool write_entry(int fd, const header *h, const text *blob)
{
    sigset_t over, old;
    sigemptyset(&over);
    sigaddset(&over, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &over, &old);
    bool ok = write_all(fd, h, sizeof *h) && write_all(fd, blob->at, blob->len);
    int why = errno;
    struct timespec now = {0};
    if (!ok && !sigismember(&old, SIGXFSZ)) sigtimedwait(&over, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = why;
    return ok;
}

typedef struct aged { char name[40]; int64_t bytes; time_t used; } aged;

static int older(const void *a, const void *b)
{
    const aged *x = a, *y = b;
    return (x->used > y->used) - (x->used < y->used);
}

/* Measures the folder; over the bound the entries that were used longest ago go. */
static void keep_bound(cache *c)
{
    DIR *d = opendir(c->dir);
    if (!d) return;
    aged *list = NULL;
    size_t n = 0, cap = 0;
    int64_t total = 0;
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (strlen(e->d_name) != 32 || fstatat(dirfd(d), e->d_name, &st, 0)) continue;
        if (!mem_reserve(&list, &cap, n + 1, sizeof *list)) break;
        snprintf(list[n].name, sizeof list[n].name, "%.39s", e->d_name);
        list[n].bytes = st.st_size;
        list[n++].used = st.st_atime > st.st_mtime ? st.st_atime : st.st_mtime;
        total += st.st_size;
    }
    if (n) qsort(list, n, sizeof *list, older);
    for (size_t i = 0; i < n && total > DEFAULT_BYTES; i++)
        if (!unlinkat(dirfd(d), list[i].name, 0)) total -= list[i].bytes;
    closedir(d);
    mem_free(list);
    c->room = (DEFAULT_BYTES - total) / 4 + (64 << 20);
}

static void store(cache *c, hash128 key, PJRT_LoadedExecutable *x)
{
    text blob = {0};
    tpu_error *e = pjrt_serialize(c->pl->p, x, &blob);
    if (!e) {
        char path[PATH_MAX + 64], temp[PATH_MAX + 96];
        header h = {.magic = MAGIC, .len = blob.len, .sum = hash_bytes(key, blob.at, blob.len), .key = key};
        entry_path(c, key, "", path);
        snprintf(temp, sizeof temp, "%s.%ld.%lx", path, (long)getpid(), (unsigned long)pthread_self());
        int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        bool ok = fd >= 0 && write_entry(fd, &h, &blob);
        ok = fd >= 0 && !close(fd) && ok && !rename(temp, path);
        if (!ok) {
            if (!c->warned) log_warn("the compile cache cannot be written (%s); this process goes on without", strerror(errno));
            c->warned = true;
            if (fd >= 0) unlink(temp);
        }
        c->stats.written += ok;
        c->room -= (int64_t)blob.len;
        if (c->room < 0) keep_bound(c);
    }
    tpu_error_free(e);
    text_free(&blob);
}

/* ---- both ---- */
tpu_error *cache_get(cache *c, const char *code, size_t len, PJRT_LoadedExecutable **out, char *out_how)
{
    const text *o = &c->pl->options;
    hash128 key = hash_bytes(hash_bytes(c->pl->identity, o->at, o->len), code, len);
    pthread_mutex_lock(&c->mutex);
    PJRT_LoadedExecutable *x = c->dir[0] ? load(c, key) : NULL;
    tpu_error *e = NULL;
    *out_how = 'd';
    if (x) {
        c->stats.disk_hits++;
    } else {
        double t = time_now();
        *out_how = 'c';
        c->stats.disk_misses += c->dir[0] != '\0';
        e = pjrt_compile(c->pl->p, code, len, o->at, o->len, &x);
        c->stats.compiles++;
        c->stats.compile_seconds += time_now() - t;
        if (!e && c->dir[0]) store(c, key, x);
    }
    pthread_mutex_unlock(&c->mutex);
    *out = x;
    return e;
}
