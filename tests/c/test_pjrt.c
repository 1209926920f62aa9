/* test_pjrt.c - every plugin at hand keeps to what pjrt.h promises.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugins.h"

static void check_words(tpu_error *take_e, tpu_code code, const char *part)
{
    CHECK(tpu_error_code(take_e) == code);
    CHECK(strstr(tpu_error_message(take_e), part) != NULL);
    if (!strstr(tpu_error_message(take_e), part) && !test_faulting()) fprintf(stderr, "  got: %s\n", tpu_error_message(take_e));
    tpu_error_free(take_e);
}

TEST(every_entry_of_a_plugin_wants_no_more_than_our_structs_have)
{
    EACH_PLUGIN(pl) {
        text report = {0};
        CHECK_OK(pjrt_self_check(pl->p, &report));
        if (!test_faulting()) CHECK(strstr(report.at, "PJRT_LoadedExecutable_Execute wants 80, ours is 80\n") != NULL);
        text_free(&report);
    }
    const char *libtpu = getenv("TPUTORCH_TEST_LIBTPU");
    if (!libtpu) return;
    static pjrt *p;
    text report = {0};
    if (!p) CHECK_OK(pjrt_open(libtpu, &p));
    if (p) CHECK_OK(pjrt_self_check(p, &report));
    text_free(&report);
}

TEST(a_file_that_is_no_plugin_is_named_in_one_sentence)
{
    pjrt *p = NULL;
    char path[] = "/tmp/tputorch_not_a_plugin_XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "hello", 5) == 5);
    close(fd);
    check_words(pjrt_open("/nowhere/plugin.so", &p), TPU_NOT_FOUND, "/nowhere/plugin.so");
    check_words(pjrt_open(path, &p), TPU_INVALID, "is not a PJRT plugin");
    check_words(pjrt_open("/lib/x86_64-linux-gnu/libm.so.6", &p), access("/lib/x86_64-linux-gnu/libm.so.6", R_OK) ? TPU_NOT_FOUND : TPU_INVALID, "libm");
    CHECK(!p);
    unlink(path);
}

TEST(a_program_is_compiled_run_written_and_loaded)
{
    EACH_PLUGIN(pl) {
        PJRT_LoadedExecutable *x = NULL, *again = NULL;
        text blob = {0};
        float sum = 0;
        size_t n = 0;
        CHECK_OK(plugins_compile(pl, plugins_add_text, &x));
        if (!x) continue;
        CHECK_OK(pjrt_num_outputs(pl->p, x, &n));
        CHECK(n == 1);
        CHECK_OK(plugins_add(pl, x, 1, 2, &sum));
        CHECK(sum == 10);
        CHECK_OK(pjrt_serialize(pl->p, x, &blob));
        if (!blob.failed && blob.len) CHECK_OK(pjrt_load(pl->p, blob.at, blob.len, &again));
        if (again) CHECK_OK(plugins_add(pl, again, 2, 2, &sum));
        if (again) CHECK(sum == 11);
        pjrt_executable_free(pl->p, x);
        pjrt_executable_free(pl->p, again);
        text_free(&blob);
    }
}

TEST(a_parse_error_is_one_line_with_its_place)
{
    EACH_PLUGIN(pl) {
        PJRT_LoadedExecutable *x = NULL;
        tpu_error *e = plugins_compile(pl, "func.func public @main() -> tensor<f32> {\n  %0 = stablehlo.nope : tensor<f32>\n  return %0 : tensor<f32>\n}", &x);
        CHECK(e && !strchr(tpu_error_message(e), '\n'));
        check_words(e, TPU_UNKNOWN, "2:8: error: ");
        CHECK(!x);
    }
}

TEST(a_wrong_option_is_named)
{
    EACH_PLUGIN(pl) {
        PJRT_LoadedExecutable *x = NULL;
        text bytes = {0};
        pjrt_option o = {.name = "xla_no_such_option", .kind = 'b', .i = 1};
        pjrt_options_bytes(&(pjrt_options){.override = &o, .noverride = 1}, &bytes);
        if (bytes.failed) continue;
        check_words(pjrt_compile(pl->p, plugins_add_text, strlen(plugins_add_text), bytes.at, bytes.len, &x), TPU_INVALID, "xla_no_such_option");
        text_free(&bytes);
    }
}

TEST(compile_options_are_the_bytes_that_plugins_read)
{
    text t = {0};
    int devices[4] = {0, 1, 2, 3};
    pjrt_option o[2] = {{.name = "a", .kind = 'i', .i = 300}, {.name = "b", .kind = 's', .s = "xy"}};
    pjrt_options_bytes(&(pjrt_options){0}, &t);
    CHECK(t.len == 6 && !memcmp(t.at, "\x1a\x04\x20\x01\x28\x01", 6));
    text_clear(&t);
    pjrt_options_bytes(&(pjrt_options){.replicas = 4, .devices = devices}, &t);
    CHECK(t.len == 20 && !memcmp(t.at, "\x1a\x12\x20\x04\x28\x01\x4a\x0c\x08\x04\x10\x01\x1a\x06\x0a\x04\x00\x01\x02\x03", 20));
    text_clear(&t);
    pjrt_options_bytes(&(pjrt_options){.portable = true, .override = o, .noverride = 2}, &t);
    CHECK(t.len == 29 && !memcmp(t.at + 6, "\x20\x01\x3a\x08\x0a\x01" "a\x12\x03\x18\xac\x02\x3a\x09\x0a\x01" "b\x12\x04\x0a\x02xy", 23));
    text_free(&t);
}

/* f(x, y) of 64 equal floats. */
static float one_value(plugin *pl, const char *body, float x, float y)
{
    text code = {0};
    PJRT_LoadedExecutable *f = NULL;
    PJRT_Buffer *in[2] = {NULL, NULL}, *out[1] = {NULL};
    float a[64], b[64], got[64] = {0};
    tpu_type t = type_make(TPU_F32, 1, (int64_t[]){64});
    for (int i = 0; i < 64; i++) {
        a[i] = x;
        b[i] = y;
    }
    text_add(&code, "func.func public @main(%%arg0: tensor<64xf32>, %%arg1: tensor<64xf32>) -> tensor<64xf32> {\n%s\nreturn %%r : tensor<64xf32>\n}\n", body);
    tpu_error *e = code.failed ? tpu_fail_memory() : plugins_compile(pl, code.at, &f);
    if (!e) e = pjrt_to_device(pl->p, 0, a, &t, NULL, &in[0]);
    if (!e) e = pjrt_to_device(pl->p, 0, b, &t, NULL, &in[1]);
    if (!e) e = pjrt_execute(pl->p, f, 0, in, 2, NULL, 0, out);
    if (!e) e = pjrt_to_host(pl->p, out[0], got, sizeof got);
    CHECK_OK(e);
    for (int i = 0; i < 2; i++) pjrt_buffer_free(pl->p, in[i]);
    pjrt_buffer_free(pl->p, out[0]);
    pjrt_executable_free(pl->p, f);
    text_free(&code);
    return got[63];
}

#define OP1(r, op, x) "%" r " = stablehlo." op " %" x " : tensor<64xf32>\n"
#define OP2(r, op, x, y) "%" r " = stablehlo." op " %" x ", %" y " : tensor<64xf32>\n"

TEST(nan_and_overflow_come_out_as_written) /* [N3] */
{
    EACH_PLUGIN(pl) {
        CHECK(isnan(one_value(pl, OP2("r", "maximum", "arg0", "arg1"), NAN, 1)));
        CHECK(isnan(one_value(pl, OP2("r", "minimum", "arg0", "arg1"), 1, NAN)));
        CHECK(isinf(one_value(pl, OP1("a", "exponential", "arg0") OP1("r", "log", "a"), 200, 0)));
        CHECK(isinf(one_value(pl, OP2("a", "multiply", "arg0", "arg0") OP1("b", "abs", "a") OP1("r", "sqrt", "b"), 3e38f, 0)));
        CHECK(isinf(one_value(pl, OP2("a", "multiply", "arg0", "arg1") OP2("r", "divide", "a", "arg1"), 3e38f, 3e38f)));
        CHECK(one_value(pl, OP2("a", "add", "arg0", "arg1") OP2("r", "subtract", "a", "arg1"), 1, 1e8f) == 0);
        CHECK(isnan(one_value(pl, OP2("r", "subtract", "arg0", "arg0"), INFINITY, 0)));
        CHECK(one_value(pl, "%a = stablehlo.convert %arg0 : (tensor<64xf32>) -> tensor<64xbf16>\n"
                            "%b = stablehlo.convert %arg1 : (tensor<64xf32>) -> tensor<64xbf16>\n"
                            "%c = stablehlo.add %a, %b : tensor<64xbf16>\n%d = stablehlo.subtract %c, %a : tensor<64xbf16>\n"
                            "%r = stablehlo.convert %d : (tensor<64xbf16>) -> tensor<64xf32>\n", 256, 1) == 0);
    }
}

static const char donates[] =
    "func.func public @main(%arg0: tensor<8xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<8xf32>) -> tensor<8xf32> {\n"
    "  %0 = stablehlo.add %arg0, %arg1 : tensor<8xf32>\n  return %0 : tensor<8xf32>\n}\n";

TEST(an_input_is_donated_unless_it_is_kept)
{
    EACH_PLUGIN(pl) {
        PJRT_LoadedExecutable *x = NULL;
        PJRT_Buffer *in[2] = {NULL, NULL}, *kept[1] = {NULL}, *gone[1] = {NULL}, *bad[1] = {NULL};
        float v[8] = {1, 2, 3, 4, 5, 6, 7, 8}, got[8] = {0};
        static const int64_t keep[1] = {0};
        tpu_type t = type_make(TPU_F32, 1, (int64_t[]){8});
        CHECK_OK(plugins_compile(pl, donates, &x));
        if (!x) continue;
        for (int i = 0; i < 2; i++) CHECK_OK(pjrt_to_device(pl->p, 0, v, &t, NULL, &in[i]));
        if (in[0] && in[1]) {
            CHECK_OK(pjrt_execute(pl->p, x, 0, in, 2, keep, 1, kept));
            CHECK_OK(pjrt_execute(pl->p, x, 0, in, 2, NULL, 0, gone));
            if (gone[0]) CHECK_OK(pjrt_to_host(pl->p, gone[0], got, sizeof got));
            CHECK(got[7] == 16);
            check_words(pjrt_execute(pl->p, x, 0, in, 2, NULL, 0, bad), TPU_INVALID, "deleted or donated");
            check_words(pjrt_execute(pl->p, x, 0, in, 1, NULL, 0, bad), TPU_INVALID, "");
        }
        for (int i = 0; i < 2; i++) pjrt_buffer_free(pl->p, in[i]);
        pjrt_buffer_free(pl->p, kept[0]);
        pjrt_buffer_free(pl->p, gone[0]);
        pjrt_executable_free(pl->p, x);
    }
}

static void count_event(tpu_error *take_e, void *ctx)
{
    CHECK_OK(take_e);
    __atomic_fetch_add((int *)ctx, 1, __ATOMIC_RELEASE);
}

TEST(a_launch_can_be_waited_for_by_its_event)
{
    EACH_PLUGIN(pl) {
        PJRT_LoadedExecutable *x = NULL;
        PJRT_Buffer *in[2] = {NULL, NULL}, *out[1] = {NULL};
        PJRT_Event *done[1] = {NULL};
        float v[8] = {0};
        int fired = 0;
        tpu_type t = type_make(TPU_F32, 1, (int64_t[]){8});
        CHECK_OK(plugins_compile(pl, plugins_add_text, &x));
        for (int i = 0; i < 2; i++) CHECK_OK(pjrt_to_device(pl->p, 1, v, &t, NULL, &in[i]));
        if (x && in[0] && in[1]) {
            pjrt_launch l = {.x = x, .device = 1, .launch_id = 7, .in = in, .nin = 2, .out = out, .out_done = done};
            CHECK_OK(pjrt_launch_one(pl->p, &l));
            CHECK_OK(pjrt_event_wait(pl->p, done[0]));
            CHECK_OK(pjrt_buffer_wait(pl->p, out[0]));
            CHECK(pjrt_buffer_ready(pl->p, out[0]));
            pjrt_buffer_free(pl->p, out[0]);
            CHECK_OK(pjrt_launch_one(pl->p, &l));
            tpu_error *e = pjrt_event_then(pl->p, done[0], count_event, &fired);
            bool asked = !e;
            CHECK_OK(e);
            CHECK_OK(pjrt_buffer_wait(pl->p, out[0]));
            for (int i = 0; asked && i < 2000 && !__atomic_load_n(&fired, __ATOMIC_ACQUIRE); i++) usleep(1000);
            CHECK(!asked || fired == 1);
        }
        for (int i = 0; i < 2; i++) pjrt_buffer_free(pl->p, in[i]);
        pjrt_buffer_free(pl->p, out[0]);
        pjrt_executable_free(pl->p, x);
    }
}

TEST(a_compiled_program_tells_its_memory_and_fingerprint)
{
    EACH_PLUGIN(pl) {
        PJRT_LoadedExecutable *x = NULL;
        PJRT_Executable *inner = NULL;
        pjrt_memory m = {0};
        text print = {0}, prog = {0};
        CHECK_OK(plugins_compile(pl, plugins_add_text, &x));
        if (x) CHECK_OK(pjrt_compiled(pl->p, x, &inner));
        if (inner) {
            CHECK_OK(pjrt_compiled_memory(pl->p, inner, &m));
            CHECK(m.arguments == 64 && m.outputs == 32);
            CHECK_OK(pjrt_compiled_fingerprint(pl->p, inner, &print));
            CHECK(print.len > 0);
            CHECK_OK(pjrt_compiled_program(pl->p, inner, &prog));
            CHECK(prog.len > 0 && memmem(prog.at, prog.len, "add", 3));
        }
        text_free(&print);
        text_free(&prog);
        pjrt_compiled_free(pl->p, inner);
        pjrt_executable_free(pl->p, x);
    }
}

TEST(a_forked_child_is_refused_and_ends_cleanly) /* [G1] */
{
    EACH_PLUGIN(pl) {
        float v[8] = {0};
        PJRT_Buffer *b = NULL;
        tpu_type t = type_make(TPU_F32, 1, (int64_t[]){8});
        CHECK_OK(pjrt_to_device(pl->p, 0, v, &t, NULL, &b));
        pid_t child = fork();
        if (!child) {
            PJRT_Buffer *c = NULL;
            tpu_error *e = pjrt_to_device(pl->p, 0, v, &t, NULL, &c);
            bool ok = pjrt_forked() && (test_faulting() || (tpu_error_code(e) == TPU_PRECONDITION && strstr(tpu_error_message(e), "spawn")));
            pjrt_buffer_free(pl->p, b);
            _exit(ok && !c ? 0 : 1);
        }
        int status = 1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        CHECK(!pjrt_forked());
        pjrt_buffer_free(pl->p, b);
    }
}

TEST(libtpu_compiles_for_a_machine_that_is_not_there)
{
    const char *libtpu = getenv("TPUTORCH_TEST_LIBTPU");
    static pjrt *p;
    static PJRT_TopologyDescription *t;
    if (!libtpu) return;
    if (!p) CHECK_OK(pjrt_open(libtpu, &p));
    if (p && !t) CHECK_OK(pjrt_topology(p, "v5e:2x2", &t));
    if (!t) return;
    int n = 0;
    int64_t bytes = 0;
    text options = {0}, print = {0};
    PJRT_Executable *x = NULL;
    pjrt_memory m = {0};
    CHECK_OK(pjrt_topology_devices(p, t, &n, &bytes));
    CHECK(n == 4 && bytes > (int64_t)8 << 30);
    pjrt_options_bytes(&(pjrt_options){0}, &options);
    if (!options.failed) CHECK_OK(pjrt_compile_for(p, t, plugins_add_text, strlen(plugins_add_text), options.at, options.len, &x));
    if (x) {
        CHECK_OK(pjrt_compiled_memory(p, x, &m));
        CHECK(m.arguments > 0);
        CHECK_OK(pjrt_compiled_fingerprint(p, x, &print));
    }
    pjrt_compiled_free(p, x);
    text_free(&options);
    text_free(&print);
}
