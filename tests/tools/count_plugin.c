/* A PJRT plugin that passes every call to the plugin named by COUNT_PLUGIN and counts, in the file named by COUNT_FILE
 * (four uint64, shared by all processes that name the same file): compiles, loads of serialized executables, launches,
 * elements uploaded.  An outside witness: what a program says of its own compiles is checked against it.
 *   cc -shared -fPIC -O1 -Isrc -o count_plugin.so tests/tools/count_plugin.c
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pjrt_abi.h"

typedef PJRT_Error *(*slot_fn)(void *args);
static PJRT_Api *api, *real;
static uint64_t *count, nowhere[4];

/* Slot n of the table: PJRT's own order, which src/pjrt_abi.h names. */
static slot_fn *slot_at(PJRT_Api *table, int n) { return (slot_fn *)((char *)table + 40 + 8 * n); }

static void add(int i, uint64_t n) { __atomic_fetch_add(&count[i], n, __ATOMIC_RELAXED); }

static PJRT_Error *client_compile(void *a)
{
    add(0, 1);
    return (*slot_at(real, PJRT_Client_Compile))(a);
}

static PJRT_Error *compile(void *a)
{
    add(0, 1);
    return (*slot_at(real, PJRT_Compile))(a);
}

static PJRT_Error *load(void *a)
{
    add(1, 1);
    return (*slot_at(real, PJRT_Executable_DeserializeAndLoad))(a);
}

static PJRT_Error *execute(void *a)
{
    add(2, 1);
    return (*slot_at(real, PJRT_LoadedExecutable_Execute))(a);
}

static PJRT_Error *upload(void *args)
{
    const PJRT_Client_BufferFromHostBuffer_Args *a = args;
    uint64_t n = 1;
    for (size_t i = 0; i < a->num_dims; i++) n *= (uint64_t)a->dims[i];
    add(3, n); /* elements */
    return (*slot_at(real, PJRT_Client_BufferFromHostBuffer))(args);
}

static uint64_t *open_counts(const char *path)
{
    int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0 || ftruncate(fd, 32)) return nowhere;
    void *p = mmap(0, 32, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? nowhere : p;
}

__attribute__((visibility("default"))) PJRT_Api *GetPjrtApi(void)
{
    if (api) return api;
    const char *path = getenv("COUNT_PLUGIN");
    void *so = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!so) {
        fprintf(stderr, "count_plugin: COUNT_PLUGIN: %s\n", path ? dlerror() : "not set");
        return NULL;
    }
    PJRT_Api *(*get)(void) = (PJRT_Api * (*)(void)) dlsym(so, "GetPjrtApi");
    if (!get || !(real = get())) return NULL;
    count = open_counts(getenv("COUNT_FILE"));
    api = malloc(real->struct_size);
    memcpy(api, real, real->struct_size);
    *slot_at(api, PJRT_Client_Compile) = client_compile;
    *slot_at(api, PJRT_Compile) = compile;
    *slot_at(api, PJRT_Executable_DeserializeAndLoad) = load;
    *slot_at(api, PJRT_LoadedExecutable_Execute) = execute;
    *slot_at(api, PJRT_Client_BufferFromHostBuffer) = upload;
    return api;
}
