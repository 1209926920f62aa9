/* program_run.c - a program compiled and launched; without the engine's lock, by the one who launches.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "device.h"
#include "program.h"

static const tpu_dtype class_type[CALL_SLOT_CLASSES] = {TPU_F32, TPU_I64, TPU_F64};

tpu_error *program_ready(program *p)
{
    if (p->exec) return NULL;
    if (p->err) return tpu_error_copy(p->err);
    text code = {0};
    char how = 0;
    tpu_error *e = program_text(p, device_target(), &code);
    double t = time_now();
    if (!e) e = cache_get(device_cache(), code.at, code.len, &p->exec, &how);
    if (!e) log_info("%s a program of %zu calls, %d inputs, %d outputs in %.0f ms", how == 'd' ? "loaded" : "compiled", p->ncall, p->nin, p->nout, (time_now() - t) * 1e3);
    if (e && log_level() >= 3) log_info("%.*s", (int)code.len, code.at ? code.at : "");
    text_free(&code);
    if (e) {
        /* Only what will fail again is remembered: memory may come back. */
        if (tpu_error_code(e) != TPU_EXHAUSTED) p->err = tpu_error_copy(e);
        e = tpu_error_prefix(e, "a program of %zu operations does not compile", p->ncall);
    }
    return e;
}

/* Numbers on the device by value: most of a step's are those of the step before.  Only who launches comes here. */
#define NUMBERS 1024
static struct { uint64_t bits; buffer *b; int16_t device, cls; } numbers[NUMBERS];

static tpu_error *number_buffer(int device, int cls, trace_num num, buffer **out)
{
    uint64_t bits = 0;
    if (cls == 0) memcpy(&bits, &num.f, 4);
    else memcpy(&bits, &num, 8);
    uint64_t h = (bits ^ (uint64_t)(cls + 8 * device)) * 0x9e3779b97f4a7c15ull;
    size_t at = h >> 54;
    if (!numbers[at].b || numbers[at].bits != bits || numbers[at].cls != cls || numbers[at].device != device) {
        tpu_type t = type_scalar(class_type[cls]);
        const tpu_type *type = type_intern(&t);
        buffer *b;
        if (!type) return tpu_fail_memory();
        TPU_TRY(device_upload(device, type, &bits, NULL, &b));
        buffer_release(numbers[at].b);
        numbers[at].b = b;
        numbers[at].bits = bits;
        numbers[at].cls = (int16_t)cls;
        numbers[at].device = (int16_t)device;
    }
    *out = buffer_retain(numbers[at].b);
    return NULL;
}

tpu_error *program_upload(const program *p, const trace_num *num, int device, buffer **out)
{
    int n = 0;
    for (int cls = 0; cls < CALL_SLOT_CLASSES; cls++)
        for (int i = 0; i < p->nnum[cls]; i++, n++) {
            tpu_error *e = number_buffer(device, cls, num[n], &out[n]);
            if (!e) continue;
            while (n--) {
                buffer_release(out[n]);
                out[n] = NULL;
            }
            return e;
        }
    return NULL;
}

static tpu_error *adopt(const program *p, int device, PJRT_Buffer **raw, buffer **out)
{
    int n = p->nout + (p->nguard > 0);
    tpu_error *e = NULL;
    for (int i = 0; i < n; i++) {
        tpu_type flags = type_make(TPU_BOOL, 1, (int64_t[]){p->nguard});
        const tpu_type *type = i < p->nout ? p->out[i] : type_intern(&flags);
        out[i] = NULL;
        if (!e && type) e = buffer_adopt(device_pjrt(), raw[i], type, device, &out[i]);
        else pjrt_buffer_free(device_pjrt(), raw[i]);
    }
    if (e)
        for (int i = 0; i < n; i++) {
            buffer_release(out[i]);
            out[i] = NULL;
        }
    return e;
}

tpu_error *program_run(program *p, int device, buffer *const *in, const uint8_t *keep, buffer **out)
{
    size_t nin = (size_t)(p->nin + program_numbers_of(p)), nout = (size_t)p->nout + 1, n = 0, nkeep = 0;
    PJRT_Buffer *few[64], **raw = nin + nout <= 64 ? few : mem_new((nin + nout) * sizeof *raw), **got;
    int64_t few_keep[64], *kept = nin <= 64 ? few_keep : mem_new(nin * sizeof *kept);
    tpu_error *e = raw && kept ? NULL : tpu_fail_memory();
    if (!e) {
        got = raw + nin;
        for (size_t i = 0; i < nin; i++) {
            if (i < (size_t)p->nin && !e) e = buffer_check(in[i], p->in[i]);
            if (i < (size_t)p->nin && p->alias[i] >= 0 && keep[i]) kept[nkeep++] = (int64_t)n;
            raw[n++] = buffer_raw(in[i]);
        }
        if (!e) e = pjrt_execute(device_pjrt(), p->exec, device, raw, n, kept, nkeep, got);
        if (!e) e = adopt(p, device, got, out);
    }
    if (!e) p->launches++;
    if (raw != few) mem_free(raw);
    if (kept != few_keep) mem_free(kept);
    return e;
}
