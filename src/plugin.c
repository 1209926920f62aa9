/* plugin.c - which plugin, on what hardware, with which compile options.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- hardware ---- */
static bool word_of(const char *root, const char *device, const char *file, char out[16])
{
    char path[512];
    snprintf(path, sizeof path, "%.100s/sys/bus/pci/devices/%.100s/%s", root, device, file);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    bool ok = fgets(out, 16, f) != NULL;
    fclose(f);
    return ok;
}

/* A PCI device of Google's that is not a network card (class 02) or a disk (class 01): its virtual machines have those too. */
static bool is_tpu(const char *root, const char *device)
{
    char vendor[16], class[16];
    return word_of(root, device, "vendor", vendor) && !strncmp(vendor, "0x1ae0", 6) && word_of(root, device, "class", class)
        && strncmp(class, "0x02", 4) && strncmp(class, "0x01", 4);
}

static bool is_numbered(const char *root, const char *name)
{
    return name[0] >= '0' && name[0] <= '9';
}

static bool any_in(const char *root, const char *folder, bool (*is)(const char *root, const char *name))
{
    char path[256];
    snprintf(path, sizeof path, "%.100s%s", root, folder);
    DIR *d = opendir(path);
    if (!d) return false;
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(d));) found = e->d_name[0] != '.' && is(root, e->d_name);
    closedir(d);
    return found;
}

/* A device file must be there as well: a container may see the bus and own nothing of it. */
bool plugin_tpu_under(const char *root)
{
    char path[256];
    snprintf(path, sizeof path, "%.100s/dev/accel0", root);
    return !access(path, F_OK) || (any_in(root, "/dev/vfio", is_numbered) && any_in(root, "/sys/bus/pci/devices", is_tpu));
}

bool plugin_tpu_present(void) { return plugin_tpu_under(""); }

/* ---- identity ---- */
static hash128 hash_file(hash128 h, const char *path)
{
    struct stat st;
    if (stat(path, &st)) return h;
    h = hash_word(h, (uint64_t)st.st_size);
    FILE *f = fopen(path, "rb");
    if (!f) return h;
    /* Samples over the whole file: a build differs nearly everywhere, and 200 MB are not read at each start. */
    static const int samples = 64;
    char block[4096];
    for (int i = 0; i < samples; i++) {
        if (fseek(f, st.st_size / samples * i, SEEK_SET)) break;
        size_t n = fread(block, 1, sizeof block, f);
        h = hash_bytes(h, block, n);
    }
    fclose(f);
    return h;
}

static hash128 hash_cpu(hash128 h)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) return h;
    char line[8192];
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8)) {
            h = hash_bytes(h, line, strlen(line));
            break;
        }
    fclose(f);
    return h;
}

/* Flags that the plugin reads by itself change what it compiles.  Their order does not matter [C2]. */
static hash128 hash_flags(hash128 h, const char *variable)
{
    const char *at = getenv(variable);
    uint64_t lo = 0, hi = 0;
    while (at && *at) {
        size_t n = strcspn(at, " \t\n");
        hash128 one = n ? hash_bytes((hash128){0, 0}, at, n) : (hash128){0, 0};
        lo += one.lo;
        hi += one.hi;
        at += n + (at[n] != '\0');
    }
    return hash_word(hash_word(h, lo), hi);
}

/* ---- options ---- */
/* What each kind of plugin is told at every compile [N3].  XLA's fast max and min drop NaN; excess precision keeps bf16 and
 * f16 results of fused operations wider than their type; before API 0.100 the algebraic simplifier turned log(exp(x)) into
 * x and sqrt(x*x) into |x| past an overflow.  What it still does, and no other option changes: (x/y)/z may become x/(y*z),
 * products and sums contract to fused multiply-adds, numbers below 1.2e-38 are flushed to zero. */
typedef struct told { pjrt_option option; int before; } told; /* before: only for API versions below; 0: for all */
static const told cpu_options[] = {
    {{.name = "xla_cpu_enable_fast_min_max", .kind = 'b', .i = 0}, 0},
    {{.name = "xla_allow_excess_precision", .kind = 'b', .i = 0}, 0},
    {{.name = "xla_disable_hlo_passes", .kind = 's', .s = "algsimp"}, 100},
};
static const told tpu_options[] = {
    {{.name = "xla_allow_excess_precision", .kind = 'b', .i = 0}, 0},
};

static tpu_error *try_options(pjrt *p, const pjrt_options *o)
{
    static const char probe[] = "module @m { func.func public @main(%arg0: tensor<f32>) -> tensor<f32> { return %arg0 : tensor<f32> } }";
    text bytes = {0};
    PJRT_LoadedExecutable *x = NULL;
    pjrt_options_bytes(o, &bytes);
    tpu_error *e = bytes.failed ? tpu_fail_memory() : pjrt_compile(p, probe, sizeof probe - 1, bytes.at, bytes.len, &x);
    pjrt_executable_free(p, x);
    text_free(&bytes);
    return e;
}

/* What the plugin's kind is told; how many. */
static int wanted_options(const plugin *pl, pjrt_option all[8])
{
    const told *list = pl->target == HLO_TPU ? tpu_options : cpu_options;
    size_t listed = pl->target == HLO_TPU ? TPU_COUNT(tpu_options) : TPU_COUNT(cpu_options);
    int n = 0;
    for (size_t i = 0; i < listed; i++)
        if (!list[i].before || pjrt_minor(pl->p) < list[i].before) all[n++] = list[i].option;
    return n;
}

static tpu_error *write_options(const plugin *pl, const pjrt_option *list, int n, text *out)
{
    pjrt_options o = {.portable = pl->target == HLO_CPU && pjrt_device_count(pl->p) > 1, .override = list, .noverride = n};
    pjrt_options_bytes(&o, out);
    return out->failed ? tpu_fail_memory() : NULL;
}

static tpu_error *choose_options(plugin *pl)
{
    pjrt_option all[8];
    return write_options(pl, all, wanted_options(pl, all), &pl->options);
}

/* Leaves out what this plugin does not know, one option after the other. */
static tpu_error *probe_options(plugin *pl, text *out)
{
    pjrt_option all[8], keep[8];
    int n = wanted_options(pl, all), kept = 0;
    pjrt_options o = {.portable = pl->target == HLO_CPU && pjrt_device_count(pl->p) > 1, .override = keep};
    for (int i = 0; i < n; i++) {
        keep[kept] = all[i];
        o.noverride = kept + 1;
        tpu_error *e = try_options(pl->p, &o);
        if (!e) kept++;
        tpu_error_free(e);
    }
    return write_options(pl, keep, kept, out);
}

tpu_error *plugin_compile(plugin *pl, const char *code, size_t len, PJRT_LoadedExecutable **out_x)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    const text *o = pl->known.len ? &pl->known : &pl->options;
    pthread_mutex_unlock(&mutex);
    tpu_error *e = pjrt_compile(pl->p, code, len, o->at, o->len, out_x);
    if (!e || o == &pl->known || !strstr(tpu_error_message(e), "No such compile option")) return e;
    tpu_error_free(e);
    pthread_mutex_lock(&mutex);
    e = pl->known.len ? NULL : probe_options(pl, &pl->known);
    pthread_mutex_unlock(&mutex);
    return e ? e : pjrt_compile(pl->p, code, len, pl->known.at, pl->known.len, out_x);
}

/* ---- the search ---- */
static tpu_error *start(const char *path, int cpu_devices, plugin *pl)
{
    *pl = (plugin){0};
    TPU_TRY(pjrt_open(path, &pl->p));
    tpu_error *e = pjrt_client(pl->p, cpu_devices);
    if (!e) {
        pl->target = strcmp(pjrt_platform(pl->p), "cpu") ? HLO_TPU : HLO_CPU;
        pl->direct = pl->target == HLO_CPU;
        const char *version = pjrt_platform_version(pl->p);
        hash128 h = hash_bytes((hash128){0, 0}, version, strlen(version));
        h = hash_flags(hash_flags(hash_file(h, path), "XLA_FLAGS"), "LIBTPU_INIT_ARGS");
        pl->identity = pl->target == HLO_CPU ? hash_cpu(h) : h;
        e = choose_options(pl);
    }
    if (e) plugin_close(pl);
    return e;
}

/* The next "kind=path" line of the wanted kind; false at the end. */
static bool next_candidate(const char **at, const char *kind, char *path, size_t size)
{
    size_t n = strlen(kind);
    while (*at && **at) {
        const char *end = strchr(*at, '\n'), *line = *at;
        size_t len = end ? (size_t)(end - line) : strlen(line);
        *at = end ? end + 1 : NULL;
        if (len > n + 1 && !strncmp(line, kind, n) && line[n] == '=') {
            snprintf(path, size, "%.*s", (int)(len - n - 1), line + n + 1);
            return true;
        }
    }
    return false;
}

tpu_error *plugin_find(const char *candidates, int cpu_devices, plugin *out)
{
    char path[4096];
    const char *named = getenv("TPUTORCH_PLUGIN"), *at = candidates;
    if (!plugin_tpu_present()) setenv("TPU_SKIP_MDS_QUERY", "1", 0);    /* else libtpu asks a metadata server for half a minute */
    if (named && *named) return start(named, cpu_devices, out);
    if (plugin_tpu_present()) {
        if (!next_candidate(&at, "libtpu", path, sizeof path))
            return tpu_fail(TPU_NOT_FOUND, "a TPU is in this machine but libtpu is not installed: `pip install libtpu`");
        tpu_error *e = start(path, 0, out);
        return e ? tpu_error_prefix(e, "the TPU of this machine does not answer (is another process using it?)") : NULL;
    }
    tpu_error *first = NULL;
    while (next_candidate(&at, "cpu", path, sizeof path)) {
        tpu_error *e = start(path, cpu_devices, out);
        if (!e) {
            tpu_error_free(first);
            return NULL;
        }
        if (first) tpu_error_free(e);
        else first = e;
    }
    return first ? first : tpu_fail(TPU_NOT_FOUND, "no PJRT plugin was found: `pip install --no-deps lammps-jax-pjrt-cpu`, or set TPUTORCH_PLUGIN to a plugin file");
}

void plugin_close(plugin *pl)
{
    pjrt_close(pl->p);
    text_free(&pl->options);
    text_free(&pl->known);
    *pl = (plugin){0};
}
