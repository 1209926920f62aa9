/* program.c - traces by content: the cut, the table of programs, their StableHLO.
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <string.h>

#include "op_ctx.h"

/* ---- the cut ---- */
typedef struct scratch { uint32_t *call, *in, *out, *id; int32_t *alias; uint8_t *need; size_t call_cap, in_cap, out_cap, id_cap, alias_cap, need_cap; } scratch;
static scratch s;                   /* under the engine's lock */

#define UNNAMED UINT32_MAX

static bool scratch_room(const trace *tr)
{
    size_t n = tr->nlocal + 1;
    return mem_reserve(&s.call, &s.call_cap, tr->ncall + 1, sizeof *s.call) && mem_reserve(&s.in, &s.in_cap, n, sizeof *s.in) &&
           mem_reserve(&s.out, &s.out_cap, n, sizeof *s.out) && mem_reserve(&s.id, &s.id_cap, n, sizeof *s.id) &&
           mem_reserve(&s.alias, &s.alias_cap, n, sizeof *s.alias) && mem_reserve(&s.need, &s.need_cap, n, 1);
}

static int results_of(const call_memo *m)
{
    int n = 0;
    for (int i = 0; i < m->nresult; i++) n += m->result[i] != NULL;
    return n;
}

/* Calls whose results somebody will read, last to first. */
static size_t mark_live(const trace *tr)
{
    for (size_t i = 0; i < tr->nlocal; i++) s.need[i] = tr->made[i] && tr->local[i]->holders > 0;
    size_t n = 0;
    for (size_t i = tr->ncall; i-- > 0;) {
        const trace_call *c = &tr->call[i];
        bool live = c->m->op->row->flags & OP_KEEP;
        int nres = results_of(c->m);
        for (int r = 0; r < nres; r++) live |= s.need[c->out0 + (uint32_t)r] && tr->made[c->out0 + (uint32_t)r];
        if (!live) continue;
        for (int k = 0; k < c->m->nin; k++) s.need[tr->in[c->in0 + (uint32_t)k]] = 1;
        s.call[n++] = (uint32_t)i;
    }
    for (size_t i = 0; i < n / 2; i++) {
        uint32_t t = s.call[i];
        s.call[i] = s.call[n - 1 - i];
        s.call[n - 1 - i] = t;
    }
    return n;
}

/* The input whose memory this output may take: where its storage's earlier values lead to. */
static int64_t taken_input(const trace *tr, uint32_t local)
{
    const tpu_type *t = tr->local[local]->type;
    while (tr->prev[local] >= 0) local = (uint32_t)tr->prev[local];
    if (tr->made[local] || s.id[local] == UNNAMED || tr->local[local]->type != t) return -1;
    return s.id[local];
}

tpu_error *program_cut_of(trace *tr, program_cut *cut)
{
    *cut = (program_cut){0};
    if (!scratch_room(tr)) return tpu_fail_memory();
    size_t ncall = mark_live(tr);
    hash128 h = {ncall, 0x7470757472616365};
    memset(s.id, 0xff, (tr->nlocal + 1) * sizeof *s.id);
    uint32_t nin = 0, id;
    for (size_t i = 0; i < ncall; i++) {
        const trace_call *c = &tr->call[s.call[i]];
        for (int k = 0; k < c->m->nin; k++) {
            uint32_t l = tr->in[c->in0 + (uint32_t)k];
            if (!tr->made[l] && s.id[l] == UNNAMED) {
                s.in[nin] = l;
                s.id[l] = nin++;
            }
        }
    }
    id = nin;
    int nout = 0;
    for (size_t i = 0; i < ncall; i++) {
        const trace_call *c = &tr->call[s.call[i]];
        h = hash_word(hash_word(h, c->m->hash.lo), c->m->hash.hi);
        for (int k = 0; k < c->m->nin; k++) h = hash_word(h, s.id[tr->in[c->in0 + (uint32_t)k]]);
        int nres = results_of(c->m);
        for (int r = 0; r < nres; r++) {
            uint32_t l = c->out0 + (uint32_t)r;
            s.id[l] = id++;
            if (tr->local[l]->holders > 0) s.out[nout++] = l;
        }
    }
    for (uint32_t i = 0; i < nin; i++) s.alias[i] = -1;
    for (int o = 0; o < nout; o++) {
        int64_t in = taken_input(tr, s.out[o]);
        if (in >= 0 && s.alias[in] < 0) s.alias[in] = o;
        else in = -1;
        h = hash_word(hash_word(h, s.id[s.out[o]]), (uint64_t)in);
    }
    *cut = (program_cut){.key = h, .ncall = ncall, .call = s.call, .nin = (int)nin, .in = s.in, .nout = nout, .out = s.out, .id = s.id, .alias = s.alias};
    return NULL;
}

void program_numbers(const trace *tr, const program_cut *cut, trace_num *out)
{
    for (uint8_t cls = 0; cls < CALL_SLOT_CLASSES; cls++)
        for (size_t i = 0; i < cut->ncall; i++) {
            const trace_call *c = &tr->call[cut->call[i]];
            for (int k = 0; k < c->m->nslot; k++)
                if (c->m->slot[k].cls == cls) *out++ = tr->num[c->num0 + (uint32_t)k];
        }
}

/* ---- the table ---- */
#define BUCKETS 4096
static program *bucket[BUCKETS];
static uint64_t programs;

void program_stats(engine_stats *st) { st->programs = programs; }

static program *lookup(hash128 key)
{
    program *p = bucket[key.lo % BUCKETS];
    while (p && !hash_equal(p->key, key)) p = p->next;
    return p;
}

static bool copy_calls(program *p, const trace *tr, const program_cut *cut)
{
    size_t nref = 0, at = 0;
    for (size_t i = 0; i < cut->ncall; i++) {
        const call_memo *m = tr->call[cut->call[i]].m;
        nref += (size_t)m->nin;
        p->nguard += m->nguard;
        for (int k = 0; k < m->nslot; k++) p->nnum[m->slot[k].cls]++;
    }
    p->call = arena_get(p->mem, (cut->ncall + 1) * sizeof *p->call);
    p->ref = arena_get(p->mem, (nref + 1) * sizeof *p->ref);
    p->guard = arena_get(p->mem, (size_t)(p->nguard + 1) * sizeof *p->guard);
    if (!p->call || !p->ref || !p->guard) return false;
    int g = 0;
    for (size_t i = 0; i < cut->ncall; i++) {
        const trace_call *c = &tr->call[cut->call[i]];
        p->call[i] = (program_call){.m = c->m, .in0 = (uint32_t)at, .out0 = 0};
        for (int k = 0; k < c->m->nin; k++) p->ref[at++] = cut->id[tr->in[c->in0 + (uint32_t)k]];
        if (results_of(c->m)) p->call[i].out0 = cut->id[c->out0];
        for (int k = 0; k < c->m->nguard; k++) p->guard[g++] = c->m->guard[k];
    }
    return true;
}

static bool copy_ends(program *p, const trace *tr, const program_cut *cut)
{
    p->in = arena_get(p->mem, (size_t)(cut->nin + 1) * sizeof *p->in);
    p->alias = arena_get(p->mem, (size_t)(cut->nin + 1) * sizeof *p->alias);
    p->out = arena_get(p->mem, (size_t)(cut->nout + 1) * sizeof *p->out);
    p->out_id = arena_get(p->mem, (size_t)(cut->nout + 1) * sizeof *p->out_id);
    if (!p->in || !p->alias || !p->out || !p->out_id) return false;
    for (int i = 0; i < cut->nin; i++) {
        p->in[i] = tr->local[cut->in[i]]->type;
        p->alias[i] = cut->alias[i];
        p->bytes += type_bytes(p->in[i]);
    }
    for (int i = 0; i < cut->nout; i++) {
        p->out[i] = tr->local[cut->out[i]]->type;
        p->out_id[i] = cut->id[cut->out[i]];
        p->bytes += type_bytes(p->out[i]);
    }
    p->nin = cut->nin;
    p->nout = cut->nout;
    return true;
}

static size_t value_count(const program *p)
{
    size_t n = (size_t)p->nin;
    for (size_t i = 0; i < p->ncall; i++) n += (size_t)results_of(p->call[i].m);
    return n;
}

/* Which inputs and guards each output depends on, by passing bits along the calls. */
static bool find_dependencies(program *p, size_t nvalue)
{
    size_t w = p->dep_words = (size_t)(p->nin + p->nguard + 63) / 64, bit = (size_t)p->nin;
    uint64_t *all = mem_new((nvalue + 1) * (w ? w : 1) * sizeof *all);
    p->dep = arena_get(p->mem, ((size_t)p->nout + 1) * (w ? w : 1) * sizeof *p->dep);
    if (!all || !p->dep) {
        mem_free(all);
        return false;
    }
    for (size_t i = 0; i < (size_t)p->nin; i++) all[i * w + i / 64] |= 1ull << i % 64;
    for (size_t i = 0; i < p->ncall; i++) {
        const program_call *c = &p->call[i];
        uint64_t *mine = all + nvalue * w;              /* the last row is scratch */
        memset(mine, 0, w * sizeof *mine);
        for (int k = 0; k < c->m->nin; k++)
            for (size_t j = 0; j < w; j++) mine[j] |= all[p->ref[c->in0 + (uint32_t)k] * w + j];
        for (int g = 0; g < c->m->nguard; g++, bit++) mine[bit / 64] |= 1ull << bit % 64;
        for (int r = 0; r < results_of(c->m); r++) memcpy(all + (c->out0 + (size_t)r) * w, mine, w * sizeof *mine);
    }
    for (size_t o = 0; o < (size_t)p->nout; o++) memcpy(p->dep + o * w, all + p->out_id[o] * w, w * sizeof *all);
    mem_free(all);
    return true;
}

tpu_error *program_find(const trace *tr, const program_cut *cut, program **out)
{
    program *p = lookup(cut->key);
    if (!p) {
        arena *mem = arena_new();
        p = mem ? arena_get(mem, sizeof *p) : NULL;
        if (p) {
            p->mem = mem;
            p->key = cut->key;
            p->ncall = cut->ncall;
        }
        if (!p || !copy_calls(p, tr, cut) || !copy_ends(p, tr, cut) || !find_dependencies(p, value_count(p))) {
            arena_free(mem);
            return tpu_fail_memory();
        }
        p->next = bucket[cut->key.lo % BUCKETS];
        bucket[cut->key.lo % BUCKETS] = p;
        programs++;
    }
    *out = p;
    return NULL;
}

/* ---- StableHLO ---- */
static const tpu_dtype class_type[] = {TPU_F32, TPU_I64, TPU_F64};

typedef struct lowering { hlo_fn *f; hlo *val, *slot, *result, *guard; hlo *number[CALL_SLOT_CLASSES]; /* the next of each class */ int nguard; } lowering;

static void lower_call(const program *p, const program_call *c, lowering *l, const hlo *in)
{
    const call_memo *m = c->m;
    for (int k = 0; k < m->nslot; k++) l->slot[k] = *l->number[m->slot[k].cls]++;
    call_lower(m, l->f, in, l->slot, l->result);
    if (hlo_failed(l->f)) return;
    for (int r = 0, at = 0; r < m->nresult; r++)
        if (m->result[r]) l->val[c->out0 + (uint32_t)at++] = l->result[r];
    for (int g = 0; g < m->nguard; g++) l->guard[l->nguard++] = hlo_reshape(l->f, l->result[m->nresult - m->nguard + g], 1, (int64_t[]){1});
}

/* Big enough for any call's slots, results and inputs. */
static size_t widest(const program *p)
{
    size_t w = 1;
    for (size_t i = 0; i < p->ncall; i++) {
        const call_memo *m = p->call[i].m;
        size_t n = (size_t)(m->nslot > m->nresult ? m->nslot : m->nresult);
        if ((size_t)m->nin > n) n = (size_t)m->nin;
        if (n > w) w = n;
    }
    return w;
}

/* XLA:CPU fuses a long chain into one kernel in time that grows with its square; every so many calls everything that is
 * still needed goes through a barrier. */
#define STRETCH 400

static void cut_fusion(const program *p, size_t at, const uint32_t *last_use, size_t nvalue, lowering *l)
{
    hlo *live = mem_new(nvalue * sizeof *live);
    uint32_t *id = mem_new(nvalue * sizeof *id);
    int n = 0;
    for (size_t v = (size_t)p->nin; live && id && v < p->call[at].out0; v++)
        if (last_use[v] >= at && hlo_ok(l->val[v])) {
            id[n] = (uint32_t)v;
            live[n++] = l->val[v];
        }
    if (n) hlo_barrier(l->f, live, n, live);
    for (int i = 0; i < n; i++) l->val[id[i]] = live[i];
    mem_free(live);
    mem_free(id);
}

/* The last call that reads each value; outputs are read at the end. */
static uint32_t *last_uses(const program *p, size_t nvalue)
{
    uint32_t *last = mem_new((nvalue + 1) * sizeof *last);
    for (size_t i = 0; last && i < p->ncall; i++)
        for (int k = 0; k < p->call[i].m->nin; k++) last[p->ref[p->call[i].in0 + (uint32_t)k]] = (uint32_t)i;
    for (int o = 0; last && o < p->nout; o++) last[p->out_id[o]] = UINT32_MAX;
    return last;
}

/* A parameter a number, though few bytes: kernels that are equal but for their numbers are then one kernel to XLA, which
 * compiles it once; slices of a packed vector would differ by their offsets. */
static void number_params(const program *p, lowering *l, hlo *number)
{
    for (int cls = 0; cls < CALL_SLOT_CLASSES; cls++) {
        l->number[cls] = number;
        for (int i = 0; i < p->nnum[cls]; i++) *number++ = hlo_param(l->f, type_scalar(class_type[cls]));
    }
}

static void lower_all(const program *p, lowering *l, hlo *in, hlo *number)
{
    size_t nvalue = value_count(p);
    uint32_t *last = p->ncall > 2 * STRETCH ? last_uses(p, nvalue) : NULL;
    for (int i = 0; i < p->nin; i++) {
        l->val[i] = hlo_param(l->f, *p->in[i]);
        if (p->alias[i] >= 0) hlo_param_alias(l->f, l->val[i], p->alias[i]);
    }
    number_params(p, l, number);
    for (size_t i = 0; i < p->ncall && !hlo_failed(l->f); i++) {
        const program_call *c = &p->call[i];
        if (last && i && i % STRETCH == 0 && results_of(c->m)) cut_fusion(p, i, last, nvalue, l);
        for (int k = 0; k < c->m->nin; k++) in[k] = l->val[p->ref[c->in0 + (uint32_t)k]];
        lower_call(p, c, l, in);
    }
    mem_free(last);
}

tpu_error *program_text(const program *p, hlo_target target, text *out)
{
    size_t n = value_count(p) + 1, w = widest(p) + 1;
    hlo_fn *f = hlo_new(target);
    hlo *all = mem_new((n + 3 * w + (size_t)(p->nguard + p->nout + program_numbers_of(p)) + 2) * sizeof *all);
    if (!f || !all) {
        hlo_free(f);
        mem_free(all);
        return tpu_fail_memory();
    }
    lowering l = {.f = f, .val = all, .slot = all + n, .result = all + n + w, .guard = all + n + 3 * w};
    hlo *ends = l.guard + p->nguard;
    lower_all(p, &l, all + n + 2 * w, ends + p->nout + 1);
    int nend = 0;
    tpu_error *e = hlo_error(f);
    if (!e) {
        for (; nend < p->nout; nend++) ends[nend] = l.val[p->out_id[nend]];
        if (l.nguard) ends[nend++] = hlo_concat(f, l.guard, l.nguard, 0);
        const char *code;
        size_t len;
        e = hlo_finish(f, ends, nend, &code, &len);
        if (!e) text_put(out, code, len);
        if (!e && out->failed) e = tpu_fail_memory();
    }
    hlo_free(f);
    mem_free(all);
    return e;
}

tpu_error *engine_program_text(size_t i, hlo_target target, text *out)
{
    const program *p = NULL;
    pthread_mutex_lock(launch_mutex());
    for (size_t b = 0; b < BUCKETS && !p; b++)
        for (const program *q = bucket[b]; q && !p; q = q->next)
            if (i-- == 0) p = q;
    pthread_mutex_unlock(launch_mutex());
    return p ? program_text(p, target, out) : NULL;
}
