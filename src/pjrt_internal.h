/* pjrt_internal.h - what the pjrt files share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_PJRT_INTERNAL_H
#define TPUTORCH_PJRT_INTERNAL_H

#include "pjrt.h"

#define MAX_DEVICES 64

struct pjrt {
    const PJRT_Api *api;
    char *path, *platform, *version;    /* owned */
    PJRT_Client *client;                /* owned; NULL until pjrt_client */
    int ndevice;
    PJRT_Device *device[MAX_DEVICES];   /* borrowed from the client */
    char *kind[MAX_DEVICES];            /* owned */
};

/* A zeroed argument struct of the newest size: a plugin takes one that is larger than its own, never a smaller one. */
#define ARGS(T, v) T##_Args v; memset(&v, 0, sizeof v); v.struct_size = sizeof v
#define CALL(p, name, args) pjrt_call((p), name, #name, (args))

/* Fails in a forked child and where the table has no such entry. */
tpu_error *pjrt_call(const pjrt *p, int slot, const char *name, void *args) TPU_MUST_USE; /* owned */
tpu_error *pjrt_error_of(const pjrt *p, PJRT_Error *take_e) TPU_MUST_USE;                 /* owned */

PJRT_Program pjrt_program(const char *code, size_t len);                                    /* borrows code */

#endif
