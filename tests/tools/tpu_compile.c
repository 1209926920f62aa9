/* tpu_compile LIBTPU TOPOLOGY FILE...: compiles StableHLO texts for a TPU that is not there, prints "ok FILE" or
 * "error FILE: words" a line; exit code 1 if one did not compile.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pjrt.h"

static tpu_error *read_file(const char *path, text *out)
{
    char part[65536];
    size_t n;
    FILE *f = fopen(path, "rb");
    if (!f) return tpu_fail(TPU_NOT_FOUND, "%s cannot be read", path);
    while ((n = fread(part, 1, sizeof part, f)) > 0) text_put(out, part, n);
    fclose(f);
    return NULL;
}

static tpu_error *compile(pjrt *p, PJRT_TopologyDescription *t, const text *options, const char *path)
{
    text code = {0};
    PJRT_Executable *x = NULL;
    tpu_error *e = read_file(path, &code);
    if (!e) e = pjrt_compile_for(p, t, code.at, code.len, options->at, options->len, &x);
    pjrt_compiled_free(p, x);
    text_free(&code);
    return e;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: tpu_compile LIBTPU TOPOLOGY FILE...\n");
        return 2;
    }
    pjrt *p = NULL;
    PJRT_TopologyDescription *t = NULL;
    tpu_error *e = pjrt_open(argv[1], &p);
    if (!e) e = pjrt_topology(p, argv[2], &t);
    if (e) {
        fprintf(stderr, "%s\n", tpu_error_message(e));
        return 2;
    }
    int device = 0, bad = 0;
    text options = {0};
    pjrt_options_bytes(&(pjrt_options){.devices = &device}, &options);
    for (int i = 3; i < argc; i++) {
        e = compile(p, t, &options, argv[i]);
        if (e) bad = 1, printf("error %s: %s\n", argv[i], tpu_error_message(e));
        else printf("ok %s\n", argv[i]);
        tpu_error_free(e);
        fflush(stdout);
    }
    _exit(bad); /* the plugin's own destructors may hang */
}
