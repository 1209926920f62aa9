/* test_buffer.c - device memory: copies, loans, counts, errors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "buffer.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "plugins.h"

static const tpu_type *floats(int64_t n)
{
    tpu_type t = type_make(TPU_F32, 1, &n);
    return type_intern(&t);
}

TEST(a_copy_is_a_copy) /* [A4] */
{
    EACH_PLUGIN(pl) {
        float v[16] __attribute__((aligned(64))) = {1, 2, 3};
        buffer *b = NULL, *c = NULL;
        const char *at = NULL;
        char *copy = NULL;
        const tpu_type *t = floats(16);
        if (!t) continue;
        CHECK_OK(buffer_from_host(pl->p, 0, t, v, NULL, &b));
        v[0] = 9;
        if (!b) continue;
        CHECK_OK(buffer_bytes(b, pl->direct, &at, &copy));
        CHECK(at && ((const float *)at)[0] == 1 && ((uintptr_t)at & 63) == 0 && !copy);
        CHECK_OK(buffer_bytes(b, false, &at, &copy));
        CHECK(at && ((const float *)at)[2] == 3);
        mem_free(copy);
        CHECK_OK(buffer_copy(b, 1, &c));
        if (c) CHECK_OK(buffer_bytes(c, pl->direct, &at, &copy));
        if (c && at) CHECK(((const float *)at)[1] == 2);
        mem_free(copy);
        buffer_release(c);
        buffer_release(b);
    }
}

TEST(strided_host_memory_is_read_as_it_lies)
{
    EACH_PLUGIN(pl) {
        int32_t v[6] = {1, 2, 3, 4, 5, 6};
        const char *at = NULL;
        char *copy = NULL;
        buffer *b = NULL;
        tpu_type t = type_make(TPU_I32, 2, (int64_t[]){3, 2});
        static const int64_t turned[2] = {4, 12}, stretched[2] = {0, 4}, backward[2] = {-8, -4};
        static const struct { const int64_t *stride; int first; int32_t want[6]; } cases[] = {
            {turned, 0, {1, 4, 2, 5, 3, 6}}, {stretched, 0, {1, 2, 1, 2, 1, 2}}, {backward, 5, {6, 5, 4, 3, 2, 1}}};
        const tpu_type *type = type_intern(&t);
        for (size_t i = 0; type && i < TPU_COUNT(cases); i++) {
            CHECK_OK(buffer_from_host(pl->p, 0, type, v + cases[i].first, cases[i].stride, &b));
            if (!b) break;
            tpu_error *e = buffer_bytes(b, pl->direct, &at, &copy);
            if (!e) CHECK(!memcmp(at, cases[i].want, sizeof v));
            CHECK_OK(e);
            mem_free(copy);
            copy = NULL;
            buffer_release(b);
            b = NULL;
        }
    }
}

static void given_back(tpu_error *take_e, void *ctx)
{
    CHECK_OK(take_e);
    __atomic_store_n((int *)ctx, 1, __ATOMIC_RELEASE);
}

TEST(lent_memory_is_not_copied_and_comes_back)
{
    EACH_PLUGIN(pl) {
        const tpu_type *t = floats(1024);
        float *v = aligned_alloc(64, 4096);
        const char *at = NULL;
        char *copy = NULL;
        buffer *b = NULL;
        int back = 0;
        if (!t || !v) {
            free(v);
            continue;
        }
        for (int i = 0; i < 1024; i++) v[i] = (float)i;
        tpu_error *e = buffer_lend(pl->p, 0, floats(1023), v + 1, given_back, &back, &b);
        CHECK(tpu_error_code(e) == TPU_INVALID && !b);
        tpu_error_free(e);
        CHECK_OK(buffer_lend(pl->p, 0, t, v, given_back, &back, &b));
        if (b) {
            CHECK_OK(buffer_bytes(b, pl->direct, &at, &copy));
            CHECK(at == (const char *)v && !back);
            buffer_release(b);
            for (int i = 0; i < 2000 && !__atomic_load_n(&back, __ATOMIC_ACQUIRE); i++) usleep(1000);
            CHECK(back);
        } else {
            CHECK(!back);
        }
        free(v);
    }
}

TEST(live_bytes_and_their_peak_are_counted_a_device)
{
    EACH_PLUGIN(pl) {
        static const float v[1024];
        const tpu_type *t = floats(1024);
        buffer_memory before, now;
        buffer *b = NULL;
        if (!t) continue;
        buffer_memory_reset_peak(1);
        buffer_memory_stats(1, &before);
        CHECK_OK(buffer_from_host(pl->p, 1, t, v, NULL, &b));
        if (!b) continue;
        buffer_memory_stats(1, &now);
        CHECK(now.live == before.live + 4096 && now.count == before.count + 1 && now.peak == now.live);
        buffer_release(buffer_retain(b));
        buffer_release(b);
        buffer_memory_stats(1, &now);
        CHECK(now.live == before.live && now.count == before.count && now.peak == before.live + 4096);
    }
}

TEST(a_wrong_type_of_the_right_size_is_refused)
{
    EACH_PLUGIN(pl) {
        static const float v[8];
        const tpu_type *t = floats(8);
        tpu_type other = type_make(TPU_I32, 1, (int64_t[]){8});
        buffer *b = NULL;
        if (t) CHECK_OK(buffer_from_host(pl->p, 0, t, v, NULL, &b));
        if (!b) continue;
        CHECK_OK(buffer_check(b, t));
        tpu_error *e = buffer_check(b, &other);
        CHECK_STR(tpu_error_message(e), "a program wants int32[8], its input is float32[8]");
        tpu_error_free(e);
        buffer_release(b);
    }
}

TEST(every_dtype_goes_there_and_back)
{
    EACH_PLUGIN(pl) {
        unsigned char v[64];
        for (int i = 0; i < 64; i++) v[i] = (unsigned char)(i & 1);
        for (int d = TPU_BOOL; d < TPU_DTYPE_COUNT; d++) {
            const char *at = NULL;
            char *copy = NULL;
            buffer *b = NULL;
            tpu_type t = type_make((tpu_dtype)d, 2, (int64_t[]){2, 2});
            const tpu_type *type = type_intern(&t);
            tpu_error *e = type ? buffer_from_host(pl->p, 0, type, v, NULL, &b) : tpu_fail_memory();
            if (!e) e = buffer_bytes(b, pl->direct, &at, &copy);
            if (!e) CHECK(!memcmp(at, v, (size_t)type_bytes(type)));
            CHECK_OK(e);
            mem_free(copy);
            buffer_release(b);
        }
    }
}

static const char too_much[] =
    "func.func public @main(%arg0: tensor<8xf32>) -> tensor<1099511627776x8xf32> {\n"
    "  %0 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<8xf32>) -> tensor<1099511627776x8xf32>\n"
    "  return %0 : tensor<1099511627776x8xf32>\n}\n";

TEST(too_much_memory_is_an_error_and_the_device_goes_on)
{
#ifdef __SANITIZE_ADDRESS__
    return;                                             /* its allocator ends the process instead of refusing */
#endif
    EACH_PLUGIN(pl) {
        static const float v[8];
        const tpu_type *t = floats(8);
        PJRT_LoadedExecutable *x = NULL;
        PJRT_Buffer *out[1] = {NULL}, *in[1];
        buffer *b = NULL;
        float sum = 0;
        if (t) CHECK_OK(buffer_from_host(pl->p, 0, t, v, NULL, &b));
        if (!b) continue;
        in[0] = buffer_raw(b);
        tpu_error *e = plugins_compile(pl, too_much, &x);
        if (!e) e = pjrt_execute(pl->p, x, 0, in, 1, NULL, 0, out);
        if (!e) e = pjrt_buffer_wait(pl->p, out[0]);
        CHECK(tpu_error_code(e) == TPU_EXHAUSTED);
        tpu_error_free(e);
        pjrt_buffer_free(pl->p, out[0]);
        pjrt_executable_free(pl->p, x);
        x = NULL;
        CHECK_OK(plugins_compile(pl, plugins_add_text, &x));
        if (x) CHECK_OK(plugins_add(pl, x, 1, 2, &sum));
        if (x) CHECK(sum == 10);
        pjrt_executable_free(pl->p, x);
        buffer_release(b);
    }
}

typedef struct pair { plugin *pl; const tpu_type *t; int bad; } pair;

static void *come_and_go(void *ctx)
{
    pair *p = ctx;
    for (int i = 0; i < 500; i++) {
        float v[64] = {(float)i};
        const char *at;
        char *copy = NULL;
        buffer *b = NULL;
        tpu_error *e = buffer_from_host(p->pl->p, i & 1, p->t, v, NULL, &b);
        if (!e) e = buffer_bytes(b, p->pl->direct, &at, &copy);
        if (e || *(const float *)at != (float)i) __atomic_fetch_add(&p->bad, 1, __ATOMIC_RELAXED);
        tpu_error_free(e);
        mem_free(copy);
        buffer_release(b);
    }
    return NULL;
}

TEST(four_threads_make_and_drop_buffers)
{
    if (test_faulting()) return;
    EACH_PLUGIN(pl) {
        pair p = {pl, floats(64), 0};
        buffer_memory before, now;
        pthread_t thread[4];
        int n = 0;
        buffer_memory_stats(0, &before);
        if (!p.t) continue;
        while (n < 4 && !pthread_create(&thread[n], NULL, come_and_go, &p)) n++;
        while (n) pthread_join(thread[--n], NULL);
        buffer_memory_stats(0, &now);
        CHECK(!p.bad && now.live == before.live && now.count == before.count);
    }
}
