/* plugin.h - which plugin, on what hardware, with which compile options.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_PLUGIN_H
#define TPUTORCH_PLUGIN_H

#include "hlo.h"
#include "pjrt.h"

typedef struct plugin {
    pjrt *p;                        /* owned, with a client */
    hlo_target target;
    bool direct;                    /* device memory is host memory */
    hash128 identity;               /* of the plugin's content, platform and host features; no path in it [C2] */
    text options;                   /* owned: the compile options asked of every program, as bytes: part of every key */
    text known;                     /* owned: those of them that the plugin knows; empty while it has refused none */
} plugin;

/* TPUTORCH_PLUGIN, else a TPU in this machine, else the CPU plugin.  candidates: "libtpu=PATH" and "cpu=PATH" lines in the
 * order to try.  A TPU that is there but does not answer is an error, never the CPU [E5].  waits */
tpu_error *plugin_find(const char *candidates, int cpu_devices, plugin *out_pl) TPU_MUST_USE;
/* Compiles with the options; the first refusal finds out which of them this plugin knows.  waits */
tpu_error *plugin_compile(plugin *pl, const char *code, size_t len, PJRT_LoadedExecutable **out_x) TPU_MUST_USE; /* owned */
void plugin_close(plugin *pl);
bool plugin_tpu_present(void);      /* looks at PCI and device files only */
bool plugin_tpu_under(const char *root); /* the same in a tree that looks like "/", for tests */

#endif
