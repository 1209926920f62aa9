/* cache.c - key -> executable.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <pthread.h>
#include <string.h>

#include "cache_disk.h"

#define TRIM_SECONDS 0.2            /* compiles that took longer are followed by mem_trim, which costs milliseconds */

/* A key that some thread is at work on; lives on that thread's stack. */
typedef struct work { hash128 key; struct work *next; } work;

struct cache {
    plugin *pl;                     /* borrowed */
    disk disk;
    pthread_mutex_t mutex;          /* guards the rest; never held while compiling or reading */
    pthread_cond_t done;
    work *busy;
    cache_stats stats;
};

cache *cache_new(plugin *pl, const char *dir)
{
    cache *c = mem_new(sizeof *c);
    if (!c) return NULL;
    c->pl = pl;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->done, NULL);
    disk_open(&c->disk, dir);
    return c;
}

void cache_free(cache *c)
{
    if (!c) return;
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->done);
    mem_free(c);
}

const char *cache_dir(const cache *c) { return c->disk.dir; }

void cache_set_bound(cache *c, int64_t bytes)
{
    c->disk.most = bytes;
    c->disk.room = 0;
}

void cache_get_stats(cache *c, cache_stats *out)
{
    pthread_mutex_lock(&c->mutex);
    *out = c->stats;
    pthread_mutex_unlock(&c->mutex);
}

static PJRT_LoadedExecutable *load(cache *c, hash128 key, bool *out_damaged)
{
    char *file;
    const char *blob = NULL;
    size_t len = 0;
    if (!disk_read(&c->disk, key, &file, &blob, &len, out_damaged)) return NULL;
    PJRT_LoadedExecutable *x = NULL;
    tpu_error *e = pjrt_load(c->pl->p, blob, len, &x);
    mem_free(file);
    if (e && tpu_error_code(e) != TPU_EXHAUSTED && !pjrt_forked()) {
        *out_damaged = true;
        disk_drop(&c->disk, key, "the plugin does not load it");
    }
    tpu_error_free(e);
    return x;
}

static bool store(cache *c, hash128 key, PJRT_LoadedExecutable *x)
{
    text blob = {0};
    if (!c->disk.dir[0] || c->disk.full) return false;
    tpu_error *e = pjrt_serialize(c->pl->p, x, &blob);
    bool ok = !e && disk_write(&c->disk, key, blob.at, blob.len);
    tpu_error_free(e);
    text_free(&blob);
    return ok;
}

/* One thread works on a key; who comes second waits and then finds it on disk. */
static void begin(cache *c, work *w)
{
    pthread_mutex_lock(&c->mutex);
    for (work *at = c->busy; at;) {
        if (hash_equal(at->key, w->key)) {
            pthread_cond_wait(&c->done, &c->mutex);
            at = c->busy;
        } else {
            at = at->next;
        }
    }
    w->next = c->busy;
    c->busy = w;
    pthread_mutex_unlock(&c->mutex);
}

/* Counted when it begins, so that who asks between two steps is not told too little. */
static void count_compile(cache *c)
{
    pthread_mutex_lock(&c->mutex);
    c->stats.compiles++;
    pthread_mutex_unlock(&c->mutex);
}

static void end(cache *c, work *w, const cache_stats *more)
{
    pthread_mutex_lock(&c->mutex);
    work **at = &c->busy;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    c->stats.disk_hits += more->disk_hits;
    c->stats.disk_misses += more->disk_misses;
    c->stats.damaged += more->damaged;
    c->stats.written += more->written;
    c->stats.compile_seconds += more->compile_seconds;
    pthread_cond_broadcast(&c->done);
    pthread_mutex_unlock(&c->mutex);
}

tpu_error *cache_get(cache *c, const char *code, size_t len, PJRT_LoadedExecutable **out, char *out_how)
{
    const text *o = &c->pl->options;
    work w = {.key = hash_bytes(hash_bytes(c->pl->identity, o->at, o->len), code, len)};
    cache_stats more = {0};
    bool damaged = false;
    tpu_error *e = NULL;
    begin(c, &w);
    PJRT_LoadedExecutable *x = load(c, w.key, &damaged);
    *out_how = x ? 'd' : 'c';
    more.disk_hits = x != NULL;
    more.damaged = damaged;
    if (!x) {
        double t = time_now();
        count_compile(c);
        e = plugin_compile(c->pl, code, len, &x);
        more.compile_seconds = time_now() - t;
        more.disk_misses = c->disk.dir[0] != '\0';
        more.written = !e && store(c, w.key, x);
    }
    end(c, &w, &more);
    if (more.compile_seconds > TRIM_SECONDS) mem_trim();
    *out = x;
    return e;
}
