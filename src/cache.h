/* cache.h - key -> executable: disk, else compile.  Rules C1 to C3 of docs/design.md.
 * A folder holds one file an entry: a header (magic, length, checksum, key) and the serialized executable.  Entries are
 * written to a name of their own and renamed, so readers of any process see whole files; a damaged one is compiled anew.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_CACHE_H
#define TPUTORCH_CACHE_H

#include "plugin.h"

typedef struct cache cache;
typedef struct cache_stats { uint64_t compiles, disk_hits, disk_misses, damaged, written; double compile_seconds; } cache_stats;

/* dir NULL: $TPUTORCH_CACHE, else $XDG_CACHE_HOME/tputorch, else ~/.cache/tputorch; "off" or "0": no disk.  A folder that is
 * not ours alone is refused with one warning (it holds native code), and the cache goes on in memory. */
cache *cache_new(plugin *pl, const char *dir);          /* owned; NULL if out of memory; pl must outlive it */
void cache_free(cache *c);
/* The executable of this program text.  *out_how: 'c' compiled, 'd' from disk.  waits */
tpu_error *cache_get(cache *c, const char *code, size_t len, PJRT_LoadedExecutable **out_x, char *out_how) TPU_MUST_USE; /* owned */
void cache_get_stats(cache *c, cache_stats *out);
const char *cache_dir(const cache *c);                  /* borrowed; "" without a disk */
void cache_set_bound(cache *c, int64_t bytes);          /* default 4 GB; beyond it what was used longest ago is removed */

#endif
