/* cache_disk.c - the cache's folder [C1] [C3].
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"

#define MAGIC 0x32303063707574ull   /* "tupc002": another layout gets another word */
#define DEFAULT_BYTES (4ll << 30)
#define STALE 3600                  /* seconds after which an unfinished file of somebody is rubbish */
#define NAME 32                     /* an entry's name: its key in hex */

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

static void use_no_disk(disk *d, const char *why)
{
    log_warn("the compile cache %s is not used: %s", d->dir, why);
    d->dir[0] = '\0';
}

void disk_open(disk *d, const char *dir)
{
    const char *home = getenv("HOME"), *xdg = getenv("XDG_CACHE_HOME");
    d->most = DEFAULT_BYTES;
    if (!dir || !*dir) dir = getenv("TPUTORCH_CACHE");
    if (dir && (!strcmp(dir, "off") || !strcmp(dir, "0"))) return;
    if (dir && *dir) snprintf(d->dir, sizeof d->dir, "%s", dir);
    else if (xdg && *xdg) snprintf(d->dir, sizeof d->dir, "%s/tputorch", xdg);
    else if (home && *home) snprintf(d->dir, sizeof d->dir, "%s/.cache/tputorch", home);
    else return;
    struct stat st;
    if (!make_dirs(d->dir) || stat(d->dir, &st)) {
        use_no_disk(d, strerror(errno));
        return;
    }
    if (!S_ISDIR(st.st_mode)) use_no_disk(d, "it is not a folder");
    else if (st.st_uid != geteuid()) use_no_disk(d, "it belongs to another user");
    else if (st.st_mode & 077) use_no_disk(d, "others may enter it; chmod 700 makes it private");
    else if (access(d->dir, R_OK | W_OK | X_OK)) use_no_disk(d, strerror(errno));
}

static void entry_path(const disk *d, hash128 key, char out[PATH_MAX + 64])
{
    char hex[33];
    hash_hex(key, hex);
    snprintf(out, PATH_MAX + 64, "%s/%s", d->dir, hex);
}

static void warn_once(disk *d, const char *what, const char *why)
{
    if (!atomic_exchange(&d->warned, true)) log_warn("%s (%s)", what, why);
}

/* ---- reading ---- */
static char *read_open(int fd, size_t *len)
{
    struct stat st;
    char *at = NULL;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0 && (at = mem_new((size_t)st.st_size))) {
        size_t got = 0;
        ssize_t n;
        while (got < (size_t)st.st_size && (n = read(fd, at + got, (size_t)st.st_size - got)) > 0) got += (size_t)n;
        *len = got;
    }
    return at;
}

static const char *damage(const char *file, size_t len, hash128 key)
{
    header h;
    if (len < sizeof h) return "truncated";
    memcpy(&h, file, sizeof h);
    if (h.magic != MAGIC || !hash_equal(h.key, key)) return "foreign";
    if (h.len != len - sizeof h) return "truncated";
    return hash_equal(h.sum, hash_bytes(key, file + sizeof h, h.len)) ? NULL : "damaged";
}

void disk_drop(disk *d, hash128 key, const char *why)
{
    char path[PATH_MAX + 64];
    entry_path(d, key, path);
    unlink(path);
    warn_once(d, "an entry of the compile cache is compiled anew", why);
}

bool disk_read(disk *d, hash128 key, char **out_file, const char **out_blob, size_t *out_len, bool *out_damaged)
{
    char path[PATH_MAX + 64];
    *out_file = NULL;
    *out_damaged = false;
    if (!d->dir[0]) return false;
    entry_path(d, key, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return false;
    size_t len = 0;
    char *file = read_open(fd, &len);
    const char *bad = file ? damage(file, len, key) : NULL;
    if (file && !bad) futimens(fd, NULL);               /* the time of its last use: who is pruned first */
    struct stat st;
    if (!file && !fstat(fd, &st) && !st.st_size) bad = "empty";
    close(fd);
    if (bad) {
        *out_damaged = true;
        disk_drop(d, key, bad);
    }
    if (bad || !file) {
        mem_free(file);
        return false;
    }
    *out_file = file;
    *out_blob = file + sizeof(header);
    *out_len = len - sizeof(header);
    return true;
}

/* ---- the bound ---- */
typedef struct aged { char name[NAME + 1]; int64_t bytes; time_t used; } aged;

static int older(const void *a, const void *b)
{
    const aged *x = a, *y = b;
    return (x->used > y->used) - (x->used < y->used);
}

static bool is_key(const char *name)
{
    return strspn(name, "0123456789abcdef") == NAME && !name[NAME];
}

/* Lists the entries; what a process that died left behind is removed on the way. */
static aged *list_entries(DIR *dir, size_t *out_n, int64_t *out_total)
{
    aged *list = NULL;
    size_t n = 0, cap = 0;
    *out_total = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (strlen(e->d_name) < NAME || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) continue;
        if (!is_key(e->d_name)) {
            if (e->d_name[NAME] == '.' && st.st_mtime + STALE < time(NULL)) unlinkat(dirfd(dir), e->d_name, 0);
            continue;
        }
        if (!mem_reserve(&list, &cap, n + 1, sizeof *list)) break;
        memcpy(list[n].name, e->d_name, NAME + 1);
        list[n].bytes = st.st_size;
        list[n++].used = st.st_mtime;
        *out_total += st.st_size;
    }
    *out_n = n;
    return list;
}

static int64_t prune(const char *path, int64_t most, int64_t *out_left)
{
    DIR *dir = opendir(path);
    size_t n = 0;
    int64_t gone = 0;
    *out_left = 0;
    if (!dir) return 0;
    aged *list = list_entries(dir, &n, out_left);
    if (n) qsort(list, n, sizeof *list, older);
    for (size_t i = 0; i < n && *out_left > most; i++)
        if (!unlinkat(dirfd(dir), list[i].name, 0)) {
            *out_left -= list[i].bytes;
            gone++;
        }
    closedir(dir);
    mem_free(list);
    return gone;
}

/* Makes a tenth of the bound free at once, so that a full cache is not measured at every write. */
static void keep_bound(disk *d)
{
    int64_t left;
    prune(d->dir, d->most, &left);
    if (left > d->most - d->most / 10) prune(d->dir, d->most - d->most / 10, &left);
    d->room = (d->most - left) / 4 + 1;
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
static bool write_entry(int fd, const header *h, const char *blob)
{
    sigset_t over, old;
    sigemptyset(&over);
    sigaddset(&over, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &over, &old);
    bool ok = write_all(fd, h, sizeof *h) && write_all(fd, blob, h->len);
    int why = errno;
    struct timespec now = {0};
    if (!ok && !sigismember(&old, SIGXFSZ)) sigtimedwait(&over, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = why;
    return ok;
}

bool disk_write(disk *d, hash128 key, const char *blob, size_t len)
{
    static atomic_uint serial;
    char path[PATH_MAX + 64], temp[PATH_MAX + 128];
    struct timespec t;
    if (!d->dir[0] || d->full || (int64_t)len > d->most) return false;
    header h = {.magic = MAGIC, .len = len, .sum = hash_bytes(key, blob, len), .key = key};
    entry_path(d, key, path);
    clock_gettime(CLOCK_REALTIME, &t);                  /* containers that share a folder may share process numbers */
    snprintf(temp, sizeof temp, "%s.%ld.%u.%lx%lx", path, (long)getpid(), serial++, (unsigned long)t.tv_sec, (unsigned long)t.tv_nsec);
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write_entry(fd, &h, blob);
    int why = errno;
    if (fd >= 0 && close(fd) && ok) {
        why = errno;
        ok = false;
    }
    if (ok && rename(temp, path)) {
        why = errno;
        ok = false;
    }
    if (!ok) {
        if (why != EFBIG) d->full = true;               /* a smaller entry may still fit under a file size limit */
        warn_once(d, "the compile cache cannot be written; this process goes on without", strerror(why));
        if (fd >= 0) unlink(temp);
        return false;
    }
    if ((d->room -= (int64_t)(len + sizeof h)) < 0) keep_bound(d);
    return true;
}

/* ---- for the command line ---- */
int64_t folder_prune(const char *dir, int64_t keep_bytes)
{
    int64_t left;
    return prune(dir, keep_bytes, &left);
}

static bool hex_key(const char *name, hash128 *out)
{
    char half[17] = "";
    if (!is_key(name)) return false;
    memcpy(half, name, 16);
    uint64_t a = strtoull(half, NULL, 16);
    memcpy(half, name + 16, 16);
    uint64_t b = strtoull(half, NULL, 16);
    *out = (hash128){.lo = b, .hi = a};
    return true;
}

tpu_error *folder_verify(const char *dir, int64_t *out_good, text *out_bad)
{
    DIR *d = opendir(dir);
    if (!d) return tpu_fail(TPU_NOT_FOUND, "%s: %s", dir, strerror(errno));
    *out_good = 0;
    for (struct dirent *e; (e = readdir(d));) {
        hash128 key;
        if (!hex_key(e->d_name, &key)) continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        size_t len = 0;
        char *file = fd < 0 ? NULL : read_open(fd, &len);
        if (fd >= 0) close(fd);
        const char *bad = file ? damage(file, len, key) : "unreadable";
        if (bad) text_add(out_bad, "%s %s\n", e->d_name, bad);
        else ++*out_good;
        mem_free(file);
    }
    closedir(d);
    return out_bad->failed ? tpu_fail_memory() : NULL;
}
