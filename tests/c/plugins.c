/* plugins.c - the plugins at hand.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plugins.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST 8

const char plugins_add_text[] =
    "module @add { func.func public @main(%arg0: tensor<8xf32>, %arg1: tensor<8xf32>) -> tensor<8xf32> {\n"
    "  %0 = stablehlo.add %arg0, %arg1 : tensor<8xf32>\n  return %0 : tensor<8xf32>\n} }\n";

const char *plugins_path(int i)
{
    static char path[4096];
    const char *at = getenv("TPUTORCH_TEST_PLUGINS");
    while (at && *at) {
        size_t n = strcspn(at, ":");
        if (n && !i--) {
            snprintf(path, sizeof path, "%.*s", (int)n, at);
            return path;
        }
        at += n + (at[n] == ':');
    }
    return NULL;
}

plugin *plugins_get(int i)
{
    static plugin started[MOST];
    static bool said;
    const char *path = i < MOST ? plugins_path(i) : NULL;
    if (!path) {
        if (!i && !said) fprintf(stderr, "skipped: TPUTORCH_TEST_PLUGINS names no plugin\n");
        said = true;
        return NULL;
    }
    if (!started[i].p) {
        setenv("TPUTORCH_PLUGIN", path, 1);
        CHECK_OK(plugin_find("", 2, &started[i]));
    }
    return started[i].p ? &started[i] : NULL;
}

tpu_error *plugins_compile(plugin *pl, const char *code, PJRT_LoadedExecutable **out_x)
{
    return pjrt_compile(pl->p, code, strlen(code), pl->options.at, pl->options.len, out_x);
}

tpu_error *plugins_add(plugin *pl, PJRT_LoadedExecutable *x, float first, float second, float *out_sum)
{
    float a[8], b[8], sum[8];
    PJRT_Buffer *in[2] = {NULL, NULL}, *out[1] = {NULL};
    tpu_type t = type_make(TPU_F32, 1, (int64_t[]){8});
    for (int i = 0; i < 8; i++) {
        a[i] = first + (float)i;
        b[i] = second;
    }
    tpu_error *e = pjrt_to_device(pl->p, 0, a, &t, NULL, &in[0]);
    if (!e) e = pjrt_to_device(pl->p, 0, b, &t, NULL, &in[1]);
    if (!e) e = pjrt_execute(pl->p, x, 0, in, 2, NULL, 0, out);
    if (!e) e = pjrt_to_host(pl->p, out[0], sum, sizeof sum);
    if (!e) *out_sum = sum[7];
    pjrt_buffer_free(pl->p, in[0]);
    pjrt_buffer_free(pl->p, in[1]);
    pjrt_buffer_free(pl->p, out[0]);
    return e;
}
