/* test_type.c - dtypes, promotion, interning.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "test.h"
#include "type.h"

TEST(dtypes_go_to_torch_and_back)
{
    for (int t = TPU_BOOL; t < TPU_DTYPE_COUNT; t++)
        CHECK(dtype_from_torch(dtype_to_torch((tpu_dtype)t)) == (tpu_dtype)t);
    CHECK(dtype_from_torch(8) == TPU_NONE); /* ComplexHalf */
    CHECK(dtype_from_torch(-1) == TPU_NONE && dtype_from_torch(99) == TPU_NONE);
    CHECK_STR(dtype_torch_name(TPU_I64), "Long");
    CHECK_STR(dtype_name(TPU_C64), "complex<f32>");
    CHECK(dtype_size(TPU_BOOL) == 1 && dtype_size(TPU_C128) == 16);
}

TEST(dtypes_have_real_complex_and_compute_partners)
{
    CHECK(dtype_real(TPU_C128) == TPU_F64 && dtype_real(TPU_I8) == TPU_I8);
    CHECK(dtype_complex(TPU_F64) == TPU_C128 && dtype_complex(TPU_BF16) == TPU_C64);
    CHECK(dtype_compute(TPU_F16) == TPU_F32 && dtype_compute(TPU_F8E5M2) == TPU_F32 && dtype_compute(TPU_F64) == TPU_F64);
}

/* What torch.promote_types says; one row a dtype, in the order of the enum, '-' where it refuses. [P1] */
static const char *const promotion[] = {
    /*        b c s i l h j k m  e f r d  z w */
    "b" "bcsilh---efrdzw", "c" "ccsils---efrdzw", "s" "sssils---efrdzw", "i" "iiiili---efrdzw",
    "l" "llllll---efrdzw", "h" "hssilh---efrdzw", "j" "------j--efrd--", "k" "-------k-efrd--",
    "m" "--------mefrd--", "e" "eeeeeeeeeerrdzw", "f" "fffffffffrfrdzw", "r" "rrrrrrrrrrrrdzw",
    "d" "dddddddddddddww", "z" "zzzzzz---zzzwzw", "w" "wwwwww---wwwwww",
};

TEST(promotion_is_pytorchs)
{
    const char *letter = "bcsilhjkmefrdzw";
    for (int a = 0; a < 15; a++) {
        for (int b = 0; b < 15; b++) {
            tpu_dtype r = dtype_promote((tpu_dtype)(a + 1), (tpu_dtype)(b + 1));
            char want = promotion[a][b + 1];
            CHECK(r == TPU_NONE ? want == '-' : letter[r - 1] == want);
        }
        CHECK(dtype_promote((tpu_dtype)(a + 1), TPU_NONE) == (tpu_dtype)(a + 1));
        CHECK(dtype_promote((tpu_dtype)(a + 1), TPU_F8E5M2) == TPU_NONE);
    }
    CHECK(dtype_promote(TPU_F8E5M2, TPU_F8E5M2) == TPU_F8E5M2);
}

TEST(casts_never_lose_a_category)
{
    CHECK(dtype_can_cast(TPU_F64, TPU_F16) && dtype_can_cast(TPU_I64, TPU_U8) && dtype_can_cast(TPU_BOOL, TPU_I8));
    CHECK(!dtype_can_cast(TPU_F32, TPU_I64) && !dtype_can_cast(TPU_C64, TPU_F32) && !dtype_can_cast(TPU_I8, TPU_BOOL));
    CHECK(dtype_can_cast(TPU_BOOL, TPU_BOOL) && !dtype_can_cast(TPU_F8E4M3FN, TPU_I8));
}

TEST(types_print_for_stablehlo_and_for_people)
{
    tpu_type t = type_make(TPU_F32, 2, (int64_t[]){2, 3});
    text s = {0};
    type_text(&t, &s);
    CHECK_STR(s.at, "tensor<2x3xf32>");
    text_clear(&s);
    type_words(&t, &s);
    CHECK_STR(s.at, "float32[2, 3]");
    text_clear(&s);
    t = type_scalar(TPU_BOOL);
    type_text(&t, &s);
    CHECK_STR(s.at, "tensor<i1>");
    text_free(&s);
    CHECK(type_make(TPU_F32, 17, NULL).dtype == TPU_NONE);
}

TEST(equal_types_have_one_pointer)
{
    tpu_type a = type_make(TPU_I32, 2, (int64_t[]){4, 5}), b = a, c = type_as(a, TPU_I64);
    b.dim[9] = 77; /* beyond the rank: not looked at */
    const tpu_type *pa = type_intern(&a), *pb = type_intern(&b), *pc = type_intern(&c);
    CHECK(pa && pa == pb && pc && pc != pa);
    b.bounded = 1;
    CHECK(type_intern(&b) != pa);
    for (int64_t n = 0; n < 2000; n++) { /* the table grows */
        tpu_type t = type_make(TPU_F32, 1, &n);
        const tpu_type *p = type_intern(&t);
        CHECK(p && p->dim[0] == n && p == type_intern(&t));
    }
    size_t len = 0;
    if (pa) CHECK_STR(type_interned_text(pa, &len), "tensor<4x5xi32>");
    CHECK(len == 15 && pa == type_intern(&a));
}

static void *intern_many(void *out)
{
    const tpu_type **p = out;
    for (int64_t n = 0; n < 500; n++) {
        tpu_type t = type_make(TPU_F16, 2, (int64_t[]){n, 3});
        p[n] = type_intern(&t);
    }
    return NULL;
}

TEST(threads_intern_the_same_pointers)
{
    static const tpu_type *seen[4][500];
    pthread_t thread[4];
    int n = 0;
    while (n < 4 && !pthread_create(&thread[n], NULL, intern_many, seen[n])) n++;
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    for (int i = 1; i < n; i++) CHECK(!memcmp(seen[i], seen[0], sizeof seen[0]));
}

TEST(interning_is_fast)
{
    tpu_type t = type_make(TPU_F32, 3, (int64_t[]){8, 128, 768});
    const tpu_type *p = type_intern(&t);
    double best = 1;
    for (int round = 0; round < 5; round++) {
        double start = time_now();
        for (int i = 0; i < 10000; i++)
            if (type_intern(&t) != p) break;
        double took = (time_now() - start) / 10000;
        if (took < best) best = took;
    }
    CHECK(best < 500e-9); /* about 10 ns; the bound leaves room for sanitizers and a loaded machine */
}
