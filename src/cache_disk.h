/* cache_disk.h - the cache's folder: whole files in, whole files out, nothing believed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_CACHE_DISK_H
#define TPUTORCH_CACHE_DISK_H

#include <limits.h>
#include <stdatomic.h>

#include "base.h"

typedef struct disk {
    char dir[PATH_MAX];             /* "": no disk */
    int64_t most;                   /* bytes of all entries together */
    _Atomic int64_t room;           /* bytes that may still be written before the folder is measured again */
    atomic_bool warned, full;       /* full: writing is over for this process */
} disk;

void disk_open(disk *d, const char *dir);               /* NULL: the environment's folder, as cache_new says */
/* The entry's blob, inside *out_file (owned, mem_free).  False: there is none that can be used; a damaged one is removed. */
bool disk_read(disk *d, hash128 key, char **out_file, const char **out_blob, size_t *out_len, bool *out_damaged); /* owned: *out_file */
bool disk_write(disk *d, hash128 key, const char *blob, size_t len); /* false: not kept; never fails the caller */
void disk_drop(disk *d, hash128 key, const char *why);  /* removes a bad entry, says so once */

/* ---- a folder as such, for the command line ---- */
TPU_API int64_t folder_prune(const char *dir, int64_t keep_bytes); /* entries removed */
/* out_bad: a line "name why" for every entry that would not be used. */
TPU_API tpu_error *folder_verify(const char *dir, int64_t *out_good, text *out_bad) TPU_MUST_USE;

#endif
