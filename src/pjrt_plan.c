/* pjrt_plan.c - compiling for a machine that is not there, and what a compiled program tells of itself.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pjrt_internal.h"

#include <string.h>

tpu_error *pjrt_topology(pjrt *p, const char *name, PJRT_TopologyDescription **out)
{
    ARGS(PJRT_TopologyDescription_Create, a);
    a.topology_name = name;
    a.topology_name_size = strlen(name);
    TPU_TRY(CALL(p, PJRT_TopologyDescription_Create, &a));
    *out = a.topology;
    return NULL;
}

void pjrt_topology_free(pjrt *p, PJRT_TopologyDescription *t)
{
    if (!t || pjrt_forked()) return;
    ARGS(PJRT_TopologyDescription_Destroy, d);
    d.topology = t;
    tpu_error_free(CALL(p, PJRT_TopologyDescription_Destroy, &d));
}

tpu_error *pjrt_compile_for(pjrt *p, const PJRT_TopologyDescription *t, const char *code, size_t len, const char *options, size_t noptions,
                            PJRT_Executable **out)
{
    PJRT_Program prog = pjrt_program(code, len);
    ARGS(PJRT_Compile, a);
    a.topology = t;
    a.program = &prog;
    a.compile_options = options;
    a.compile_options_size = noptions;
    TPU_TRY(CALL(p, PJRT_Compile, &a));
    *out = a.executable;
    return NULL;
}

tpu_error *pjrt_topology_devices(pjrt *p, PJRT_TopologyDescription *t, int *out_n, int64_t *out_bytes_each)
{
    ARGS(PJRT_TopologyDescription_GetDeviceDescriptions, a);
    a.topology = t;
    TPU_TRY(CALL(p, PJRT_TopologyDescription_GetDeviceDescriptions, &a));
    *out_n = (int)a.num_descriptions;
    *out_bytes_each = 0;
    if (!a.num_descriptions) return NULL;
    ARGS(PJRT_DeviceDescription_Attributes, d);
    d.device_description = a.descriptions[0];
    TPU_TRY(CALL(p, PJRT_DeviceDescription_Attributes, &d));
    static const char name[] = "device_memory_bytes_limit";
    for (size_t i = 0; i < d.num_attributes; i++) {
        const PJRT_NamedValue *v = &d.attributes[i];
        if (v->type == PJRT_NamedValue_kInt64 && v->name_size == sizeof name - 1 && !memcmp(v->name, name, sizeof name - 1)) *out_bytes_each = v->int64_value;
    }
    return NULL;
}

tpu_error *pjrt_topology_bytes(pjrt *p, PJRT_TopologyDescription *t, text *out)
{
    ARGS(PJRT_TopologyDescription_Serialize, a);
    a.topology = t;
    TPU_TRY(CALL(p, PJRT_TopologyDescription_Serialize, &a));
    text_put(out, a.serialized_bytes, a.serialized_bytes_size);
    if (a.serialized_topology_deleter) a.serialized_topology_deleter(a.serialized_topology);
    return out->failed ? tpu_fail_memory() : NULL;
}

tpu_error *pjrt_compiled_memory(pjrt *p, PJRT_Executable *x, pjrt_memory *out)
{
    ARGS(PJRT_Executable_GetCompiledMemoryStats, a);
    a.executable = x;
    TPU_TRY(CALL(p, PJRT_Executable_GetCompiledMemoryStats, &a));
    *out = (pjrt_memory){.code = a.generated_code_size_in_bytes, .arguments = a.argument_size_in_bytes, .outputs = a.output_size_in_bytes,
                         .aliased = a.alias_size_in_bytes, .temporary = a.temp_size_in_bytes, .peak = a.peak_memory_in_bytes};
    return NULL;
}

tpu_error *pjrt_compiled_cost(pjrt *p, PJRT_Executable *x, void (*each)(const char *name, size_t n, double value, void *ctx), void *ctx)
{
    ARGS(PJRT_Executable_GetCostAnalysis, a);
    a.executable = x;
    TPU_TRY(CALL(p, PJRT_Executable_GetCostAnalysis, &a));
    for (size_t i = 0; i < a.num_properties; i++) {
        const PJRT_NamedValue *v = &a.properties[i];
        if (v->type == PJRT_NamedValue_kFloat) each(v->name, v->name_size, (double)v->float_value, ctx);
        else if (v->type == PJRT_NamedValue_kInt64) each(v->name, v->name_size, (double)v->int64_value, ctx);
    }
    return NULL;
}

tpu_error *pjrt_compiled_fingerprint(pjrt *p, PJRT_Executable *x, text *out)
{
    ARGS(PJRT_Executable_Fingerprint, a);
    a.executable = x;
    TPU_TRY(CALL(p, PJRT_Executable_Fingerprint, &a));
    text_put(out, a.executable_fingerprint, a.executable_fingerprint_size);
    return out->failed ? tpu_fail_memory() : NULL;
}

/* The plugin is asked twice: for the size, then for the bytes. */
tpu_error *pjrt_compiled_program(pjrt *p, PJRT_Executable *x, text *out)
{
    PJRT_Program prog = {.struct_size = sizeof prog};
    ARGS(PJRT_Executable_OptimizedProgram, a);
    a.executable = x;
    a.program = &prog;
    TPU_TRY(CALL(p, PJRT_Executable_OptimizedProgram, &a));
    char *at = prog.code_size ? mem_new(prog.code_size) : NULL;
    if (prog.code_size && !at) return tpu_fail_memory();
    prog.code = at;
    tpu_error *e = CALL(p, PJRT_Executable_OptimizedProgram, &a);
    if (!e) text_put(out, at, prog.code_size);
    mem_free(at);
    return e ? e : out->failed ? tpu_fail_memory() : NULL;
}
