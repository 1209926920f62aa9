/* pjrt_options.c - compile options: a CompileOptionsProto, written byte by byte.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pjrt_internal.h"

#include <string.h>

static void varint(text *t, uint64_t v)
{
    do {
        char c = (char)(v & 127);
        v >>= 7;
        if (v) c = (char)(c | 128);
        text_put(t, &c, 1);
    } while (v);
}

static void field_int(text *t, int field, int64_t v)
{
    varint(t, (uint64_t)field << 3);
    varint(t, (uint64_t)v);
}

static void field_bytes(text *t, int field, const char *at, size_t n)
{
    varint(t, (uint64_t)field << 3 | 2);
    varint(t, n);
    text_put(t, at, n);
}

static void field_text(text *t, int field, text *take)
{
    field_bytes(t, field, take->at ? take->at : "", take->len);
    text_free(take);
}

static void assignment(const pjrt_options *o, int replicas, int partitions, text *build)
{
    text d = {0};
    field_int(&d, 1, replicas);
    field_int(&d, 2, partitions);
    for (int part = 0; part < partitions; part++) {
        text ids = {0}, c = {0};
        for (int r = 0; r < replicas; r++) varint(&ids, (uint64_t)o->devices[r * partitions + part]);
        field_text(&c, 1, &ids);
        field_text(&d, 3, &c);
    }
    field_text(build, 9, &d);
}

static void override(const pjrt_option *v, text *out)
{
    text value = {0}, pair = {0};
    if (v->kind == 's') field_bytes(&value, 1, v->s, strlen(v->s));
    else if (v->kind == 'b') field_int(&value, 2, v->i);
    else if (v->kind == 'i') field_int(&value, 3, v->i);
    else {
        varint(&value, 4 << 3 | 1);
        text_put(&value, (const char *)&v->d, 8);
    }
    field_bytes(&pair, 1, v->name, strlen(v->name));
    field_text(&pair, 2, &value);
    field_text(out, 7, &pair);
}

void pjrt_options_bytes(const pjrt_options *o, text *out)
{
    int replicas = o->replicas ? o->replicas : 1, partitions = o->partitions ? o->partitions : 1;
    text build = {0};
    field_int(&build, 4, replicas);
    field_int(&build, 5, partitions);
    if (o->spmd) field_int(&build, 6, 1);
    if (o->devices) assignment(o, replicas, partitions, &build);
    if (o->shardy) field_int(&build, 19, 1);
    if (o->optimization_level) field_int(&build, 24, o->optimization_level);
    field_text(out, 3, &build);
    if (o->portable) field_int(out, 4, 1);
    for (int i = 0; i < o->noverride; i++) override(&o->override[i], out);
}
