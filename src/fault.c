/* fault.c - flags that programs raise about their data, looked at when a value is read [E4].
 * A launch whose guards may have tripped, or whose inputs stand under such a doubt, gives its values a fault: its own
 * flags and the faults it came from.  Once looked at it is clean for ever, or an error that every dependent value shares.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "device.h"
#include "program.h"

struct fault {
    int32_t refs;
    bool clean;
    tpu_error *err;                 /* owned */
    buffer *flags;                  /* shared; one bool a guard */
    int n; const char *const *msg;
    const uint64_t *bits; size_t skip; /* guard g counts when bit skip + g is set; the program's, for ever */
    fault **from; size_t nfrom, from_cap; /* shared */
};

fault *fault_retain(fault *f)
{
    if (f) f->refs++;
    return f;
}

static void forget(fault *f)
{
    buffer_release(f->flags);
    f->flags = NULL;
    for (size_t i = 0; i < f->nfrom; i++) fault_release(f->from[i]);
    mem_free(f->from);
    f->from = NULL;
    f->nfrom = f->from_cap = 0;
}

void fault_release(fault *f)
{
    if (!f || --f->refs > 0) return;
    forget(f);
    tpu_error_free(f->err);
    mem_free(f);
}

static tpu_error *flagged(const char *msg)
{
    return *msg == '!' ? tpu_fail(TPU_INVALID, "%s", msg + 1) : tpu_fail(TPU_OUT_OF_RANGE, "%s", msg);
}

/* Reads ready flags. */
static void look(fault *f)
{
    const char *at;
    char *copy = NULL;
    tpu_error *e = device_host_view(f->flags, &at, &copy);
    for (int i = 0; !e && i < f->n; i++)
        if (at[i] && f->bits[(f->skip + (size_t)i) / 64] >> (f->skip + (size_t)i) % 64 & 1) e = flagged(f->msg[i]);
    mem_free(copy);
    f->err = e;
}

/* Settles what can be settled without waiting. */
static bool settled(fault *f)
{
    if (f->clean || f->err) return true;
    for (size_t i = 0; i < f->nfrom; i++) {
        if (!settled(f->from[i])) return false;
        if (f->from[i]->err && !f->err) f->err = tpu_error_copy(f->from[i]->err);
    }
    if (!f->err && f->flags) {
        if (!buffer_ready(f->flags)) return false;
        look(f);
    }
    f->clean = !f->err;
    forget(f);
    return true;
}

static bool add_from(fault *f, fault *from)
{
    for (size_t i = 0; i < f->nfrom; i++)
        if (f->from[i] == from) return true;
    if (!mem_reserve(&f->from, &f->from_cap, f->nfrom + 1, sizeof *f->from)) return false;
    f->from[f->nfrom++] = fault_retain(from);
    return true;
}

static bool bit_of(const uint64_t *bits, size_t i) { return bits[i / 64] >> i % 64 & 1; }

/* The fault of the outputs with these dependencies; NULL: nothing to doubt, or no memory to doubt it with. */
static fault *fault_for(const program *p, value *const *in, buffer *flags, const uint64_t *bits)
{
    bool guarded = false, doubted = false;
    for (int g = 0; g < p->nguard; g++) guarded |= bit_of(bits, (size_t)(p->nin + g));
    for (int i = 0; i < p->nin; i++) doubted |= in[i]->fault && bit_of(bits, (size_t)i);
    fault *f = guarded || doubted ? mem_new(sizeof *f) : NULL;
    if (!f) return NULL;
    *f = (fault){.refs = 1, .n = p->nguard, .msg = p->guard, .bits = bits, .skip = (size_t)p->nin};
    if (guarded) f->flags = buffer_retain(flags);
    for (int i = 0; i < p->nin; i++)
        if (in[i]->fault && bit_of(bits, (size_t)i)) (void)add_from(f, in[i]->fault);
    return f;
}

void fault_of_launch(const program *p, value *const *in, buffer *take_flags, value *const *out)
{
    for (int i = 0; i < p->nin; i++) {
        fault *from = in[i]->fault;
        if (!from || !settled(from) || !from->clean) continue;
        fault_release(from);
        in[i]->fault = NULL;
    }
    fault *last = NULL;
    const uint64_t *last_bits = NULL;
    for (int o = 0; o < p->nout; o++) {
        const uint64_t *bits = p->dep + (size_t)o * p->dep_words;
        if (!last_bits || memcmp(bits, last_bits, p->dep_words * sizeof *bits)) {
            fault_release(last);
            last = fault_for(p, in, take_flags, bits);
            last_bits = bits;
        }
        out[o]->fault = fault_retain(last);
    }
    fault_release(last);
    buffer_release(take_flags);
}

/* The first of a chain that is not settled, its ancestors before it; NULL when all are. */
static fault *open_one(fault *f)
{
    if (settled(f)) return NULL;
    for (size_t i = 0; i < f->nfrom; i++) {
        fault *o = open_one(f->from[i]);
        if (o) return o;
    }
    return f;
}

tpu_error *fault_check(fault *take_f)
{
    engine_lock();
    tpu_error *e = NULL;
    for (fault *o = open_one(take_f); o && !e; o = open_one(take_f)) {
        buffer *b = o->flags ? buffer_retain(o->flags) : NULL;
        engine_unlock();
        if (b) e = buffer_wait(b);
        buffer_release(b);
        engine_lock();
    }
    if (!e && take_f->err) e = tpu_error_copy(take_f->err);
    fault_release(take_f);
    engine_unlock();
    return e;
}
