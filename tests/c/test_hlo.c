/* test_hlo.c - the builder: types, errors, text.  That plugins accept and run the text is tested elsewhere.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "hlo.h"
#include "test.h"

static tpu_type f32(int rank, int64_t a, int64_t b)
{
    return type_make(TPU_F32, rank, (int64_t[]){a, b});
}

/* The body of the function: what stands between "{" and the end of `return`. */
static void check_body(hlo_fn *f, const hlo *results, int n, const char *want, const char *file, int line)
{
    const char *s;
    size_t len;
    tpu_error *e = hlo_finish(f, results, n, &s, &len);
    if (e) {
        test_check_ok(e, file, line);
        return;
    }
    test_check(strlen(s) == len, "the length is the text's", file, line);
    const char *body = strstr(s, ") {\n"), *end = strstr(s, "\n}\n}\n");
    text t = {0};
    if (body && end) text_put(&t, body + 4, (size_t)(end - body - 4));
    test_check_str(t.at, want, file, line);
    text_free(&t);
}
#define CHECK_BODY(f, results, n, want) check_body(f, results, n, want, __FILE__, __LINE__)

static void check_fails(hlo_fn *f, const char *words, const char *file, int line)
{
    hlo none = HLO_NONE;
    const char *s;
    size_t len;
    tpu_error *e = hlo_finish(f, &none, 1, &s, &len);
    test_check(e && !s && strstr(tpu_error_message(e), words), words, file, line);
    tpu_error_free(e);
    hlo_free(f);
}
#define CHECK_FAILS(f, words) check_fails(f, words, __FILE__, __LINE__)

TEST(a_module_names_its_parameters_results_and_aliases)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo x = hlo_param(f, f32(2, 2, 3)), y = hlo_param(f, f32(2, 2, 3));
    hlo_param_alias(f, y, 1);
    hlo r[2] = {hlo_op2(f, "add", x, y), x};
    const char *s = NULL;
    size_t len = 0;
    CHECK_OK(hlo_finish(f, r, 2, &s, &len));
    CHECK_STR(s, "module @m {\n"
                 "func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32> {tf.aliasing_output = 1 : i32}) "
                 "-> (tensor<2x3xf32>, tensor<2x3xf32>) {\n"
                 "%0 = stablehlo.add %arg0, %arg1 : tensor<2x3xf32>\n"
                 "return %0, %arg0 : tensor<2x3xf32>, tensor<2x3xf32>\n}\n}\n");
    hlo_free(f);
}

TEST(what_no_result_needs_is_not_printed)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo x = hlo_param(f, f32(1, 4, 0));
    hlo_op1(f, "tanh", x);
    hlo last = hlo_op1(f, "negate", x);
    CHECK_BODY(f, &last, 1, "%0 = stablehlo.negate %arg0 : tensor<4xf32>\nreturn %0 : tensor<4xf32>");
    hlo_free(f);
}

TEST(values_are_numbered_by_first_use_not_by_age)
{
    text one = {0};
    for (int turn = 0; turn < 2; turn++) {
        hlo_fn *f = hlo_new(HLO_CPU);
        if (!f) break;
        hlo x = hlo_param(f, f32(1, 4, 0)), a = HLO_NONE, b = HLO_NONE;
        if (turn) b = hlo_op1(f, "tanh", x);
        a = hlo_op1(f, "sine", x);
        if (!turn) b = hlo_op1(f, "tanh", x);
        hlo r = hlo_op2(f, "add", a, b);
        const char *s = NULL;
        size_t len = 0;
        CHECK_OK(hlo_finish(f, &r, 1, &s, &len));
        if (!turn && s) text_puts(&one, s);
        else CHECK_STR(s, one.at);
        hlo_free(f);
    }
    text_free(&one);
}

TEST(equal_ops_are_made_once)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo x = hlo_param(f, f32(2, 2, 3)), y = hlo_param(f, f32(2, 2, 3));
    hlo a = hlo_op2(f, "add", x, y), b = hlo_op2(f, "add", x, y), c = hlo_op2(f, "add", y, x);
    CHECK(a.id == b.id && a.id != c.id);
    CHECK(hlo_like_f(f, x, 2).id == hlo_like_f(f, y, 2).id);
    CHECK(hlo_like_f(f, x, 2).id != hlo_like_f(f, y, 3).id);
    CHECK(hlo_reduce(f, "add", x, 1).id == hlo_reduce(f, "add", x, 1).id);
    CHECK(hlo_reduce(f, "add", x, 1).id != hlo_reduce(f, "maximum", x, 1).id);
    hlo_free(f);
}

static const char *constant_text(hlo_fn *f, hlo x, text *t)
{
    const char *s;
    size_t len;
    text_clear(t);
    tpu_error *e = hlo_finish(f, &x, 1, &s, &len);
    const char *a = e ? NULL : strstr(s, "dense<"), *b = a ? strstr(a, "> :") : NULL;
    if (b) text_put(t, a + 6, (size_t)(b - a - 6));
    tpu_error_free(e);
    return t->at;
}

TEST(constants_are_exact_in_every_dtype)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    text t = {0};
    struct { tpu_dtype d; double v; const char *want; } rows[] = {
        {TPU_F32, 1, "0x3F800000"}, {TPU_F32, NAN, "0x7FC00000"}, {TPU_F32, -INFINITY, "0xFF800000"},
        {TPU_F32, -0.0, "0x80000000"}, {TPU_F64, 0.1, "0x3FB999999999999A"}, {TPU_F16, 65520, "0x7C00"},
        {TPU_F16, 0.1, "0x2E66"}, {TPU_F16, 6e-8, "0x0001"}, {TPU_F16, 2e-8, "0x0000"}, {TPU_BF16, 1.00390625, "0x3F80"},
        {TPU_BF16, 1.01171875, "0x3F82"}, {TPU_BF16, -3.4e38, "0xFF80"}, {TPU_F8E4M3FN, 448, "0x7E"},
        {TPU_F8E4M3FN, 1e9, "0x7F"}, {TPU_F8E5M2, -1.5, "0xBE"}, {TPU_F8E5M2, 1e9, "0x7C"}, {TPU_F8E4M3FNUZ, -0.0, "0x00"},
        {TPU_F8E5M2FNUZ, NAN, "0x80"}, {TPU_F8E8M0FNU, 4, "0x81"}, {TPU_C64, 2, "(0x40000000, 0x00000000)"},
        {TPU_I8, 300, "44"}, {TPU_I32, -7.9, "-7"}, {TPU_U8, -1, "255"}, {TPU_BOOL, NAN, "true"}, {TPU_BOOL, 0, "false"},
    };
    for (size_t i = 0; i < TPU_COUNT(rows); i++)
        CHECK_STR(constant_text(f, hlo_const_f(f, type_scalar(rows[i].d), rows[i].v), &t), rows[i].want);
    CHECK_STR(constant_text(f, hlo_const_i(f, type_scalar(TPU_U64), -1), &t), "18446744073709551615");
    CHECK_STR(constant_text(f, hlo_lowest(f, type_scalar(TPU_I64)), &t), "-9223372036854775808");
    CHECK_STR(constant_text(f, hlo_const_data(f, f32(1, 2, 0), (float[]){1, 2}), &t), "\"0x0000803F00000040\"");
    CHECK_STR(constant_text(f, hlo_const_data(f, f32(1, 2, 0), (float[]){1, 1}), &t), "0x3F800000");
    CHECK_STR(constant_text(f, hlo_const_i(f, type_make(TPU_F32, 1, (int64_t[]){0}), 3), &t), "");
    text_free(&t);
    hlo_free(f);
}

TEST(broadcasts_fail_in_pytorchs_words)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo x = hlo_param(f, f32(2, 2, 3)), y = hlo_param(f, f32(2, 2, 4));
    hlo_broadcast2(f, &x, &y);
    CHECK_FAILS(f, "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1");
}

TEST(the_first_error_stays)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo x = hlo_param(f, f32(1, 2, 0)), y = hlo_param(f, type_make(TPU_I32, 1, (int64_t[]){2}));
    hlo bad = hlo_op2(f, "add", x, y);
    CHECK(!hlo_ok(bad) && hlo_failed(f));
    hlo_fail(f, TPU_INTERNAL, "later");
    CHECK(!hlo_ok(hlo_op1(f, "negate", x)));
    hlo out[2];
    hlo_while_begin(f, &x, 1, out);
    hlo_while_body(f, x, out);
    hlo_while_end(f, &x, out);
    hlo_sort(f, &x, 1, 0, false, out);
    CHECK(!hlo_ok(out[0]) && hlo_rank(f, bad) == 0 && hlo_dtype(f, bad) == TPU_NONE);
    CHECK_FAILS(f, "add: operands differ in dtype: Float and Int");
}

TEST(shapes_are_inferred)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo x = hlo_param(f, type_make(TPU_F32, 4, (int64_t[]){2, 8, 9, 10}));
    hlo k = hlo_param(f, type_make(TPU_F32, 4, (int64_t[]){6, 4, 3, 3}));
    hlo_conv c = {.nspatial = 2, .stride = {2, 1}, .pad_lo = {1, 1}, .pad_hi = {1, 1}, .feature_groups = 2};
    hlo r = hlo_convolution(f, x, k, &c, TPU_F32);
    CHECK(hlo_dim(f, r, 0) == 2 && hlo_dim(f, r, 1) == 6 && hlo_dim(f, r, 2) == 5 && hlo_dim(f, r, -1) == 10);
    hlo_window w = {.size = {1, 1, 3, 3}, .stride = {1, 1, 2, 2}, .dilation = {1, 1, 2, 1}};
    r = hlo_reduce_window(f, "maximum", x, &w);
    CHECK(hlo_dim(f, r, 2) == 3 && hlo_dim(f, r, 3) == 4);
    r = hlo_take(f, x, hlo_param(f, type_make(TPU_I64, 2, (int64_t[]){5, 7})), 1);
    CHECK(hlo_rank(f, r) == 5 && hlo_dim(f, r, 0) == 2 && hlo_dim(f, r, 1) == 5 && hlo_dim(f, r, 2) == 7 && hlo_dim(f, r, 3) == 9);
    CHECK(hlo_dtype(f, hlo_argmax(f, x, 2, false)) == TPU_I64 && hlo_rank(f, hlo_argmax(f, x, 2, false)) == 3);
    r = hlo_fft(f, x, "RFFT", 2, (int64_t[]){9, 10});
    CHECK(hlo_dtype(f, r) == TPU_C64 && hlo_dim(f, r, 3) == 6);
    r = hlo_pad(f, x, hlo_zeros(f, type_scalar(TPU_F32)), (int64_t[]){0, -1, 0, 2}, (int64_t[]){0, 0, 0, 0}, (int64_t[]){0, 0, 1, 0});
    CHECK(hlo_dim(f, r, 1) == 7 && hlo_dim(f, r, 2) == 17 && hlo_dim(f, r, 3) == 12);
    r = hlo_dot(f, x, x, 1, (int64_t[]){0}, (int64_t[]){0}, 1, (int64_t[]){3}, (int64_t[]){3}, TPU_F32);
    CHECK(hlo_rank(f, r) == 5 && hlo_dim(f, r, 3) == 8 && hlo_dim(f, r, 4) == 9);
    CHECK(hlo_count(f, hlo_bitcast(f, x, TPU_I8)) == 4 * hlo_count(f, x));
    hlo_free(f);
}

TEST(bounded_dims_stay_through_ops_that_keep_them)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    tpu_type t = f32(2, 2, 3), full = t;
    t.bounded = 2;
    hlo x = hlo_param(f, t), y = hlo_param(f, full);
    CHECK(hlo_type(f, hlo_op2(f, "add", y, x)).bounded == 2);
    CHECK(hlo_type(f, hlo_op1(f, "negate", x)).bounded == 2);
    CHECK(hlo_type(f, hlo_transpose(f, x, (int64_t[]){1, 0})).bounded == 1);
    CHECK(hlo_type(f, hlo_reduce(f, "add", x, 1)).bounded == 1);
    CHECK(hlo_type(f, hlo_reduce(f, "add", x, 2)).bounded == 0);
    CHECK(hlo_type(f, hlo_compare(f, "LT", x, y)).bounded == 2);
    CHECK(hlo_type(f, hlo_slice_dim(f, x, 0, 0, 1, 1)).bounded == 2);
    CHECK(hlo_type(f, hlo_slice_dim(f, x, 1, 0, 1, 1)).bounded == 0);
    CHECK(hlo_broadcast_type(f, t, full).bounded == 2);
    hlo_free(f);
}

TEST(identities_cost_nothing)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo x = hlo_param(f, f32(2, 2, 3));
    CHECK(hlo_reshape(f, x, 2, (int64_t[]){2, 3}).id == x.id);
    CHECK(hlo_transpose(f, x, (int64_t[]){0, 1}).id == x.id);
    CHECK(hlo_convert(f, x, TPU_F32).id == x.id && hlo_bitcast(f, x, TPU_F32).id == x.id);
    CHECK(hlo_slice_dim(f, x, 0, 0, 2, 1).id == x.id && hlo_reverse(f, x, 0).id == x.id);
    CHECK(hlo_reduce(f, "add", x, 0).id == x.id && hlo_concat(f, &x, 1, 0).id == x.id);
    CHECK(hlo_reshape(f, hlo_flatten(f, x), 2, (int64_t[]){2, 3}).id == x.id);
    CHECK(hlo_broadcast_to(f, x, f32(2, 2, 3)).id == x.id);
    hlo_free(f);
}

TEST(float32_is_multiplied_in_full_precision)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo x = hlo_param(f, f32(2, 2, 2)), r[2] = {hlo_matmul(f, x, x, TPU_F32)};
    hlo_precision(f, HLO_DEFAULT);
    r[1] = hlo_matmul(f, x, x, TPU_F32);
    const char *s = NULL;
    size_t len;
    CHECK_OK(hlo_finish(f, r, 2, &s, &len));
    CHECK(s && strstr(s, "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]")); /* [N1] */
    CHECK(s && strstr(s, "precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]"));
    hlo_free(f);
}

TEST(a_loop_uses_values_from_outside)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo n = hlo_param(f, type_scalar(TPU_I32)), step = hlo_op2(f, "add", n, n), i, r;
    hlo_op1(f, "negate", n); /* dead */
    hlo zero = hlo_const_i(f, type_scalar(TPU_I32), 0);
    hlo_while_begin(f, &zero, 1, &i);
    hlo_while_body(f, hlo_compare(f, "LT", i, n), &i);
    hlo_op2(f, "multiply", i, i); /* dead */
    hlo next = hlo_op2(f, "add", i, step);
    hlo_while_end(f, &next, &r);
    CHECK_BODY(f, &r, 1,
               "%0 = stablehlo.constant dense<0> : tensor<i32>\n"
               "%1 = stablehlo.add %arg0, %arg0 : tensor<i32>\n"
               "%2 = \"stablehlo.while\"(%0) ({\n^bb0(%3: tensor<i32>):\n"
               "%4 = \"stablehlo.compare\"(%3, %arg0) {comparison_direction = #stablehlo<comparison_direction LT>, "
               "compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
               "stablehlo.return %4 : tensor<i1>\n}, {\n^bb0(%5: tensor<i32>):\n"
               "%6 = stablehlo.add %5, %1 : tensor<i32>\nstablehlo.return %6 : tensor<i32>\n}) : (tensor<i32>) -> tensor<i32>\n"
               "return %2 : tensor<i32>");
    hlo_free(f);
}

TEST(a_value_of_a_region_cannot_leave_it)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo p = hlo_param(f, type_scalar(TPU_BOOL)), x = hlo_param(f, type_scalar(TPU_F32)), out;
    hlo_if_begin(f, p);
    hlo inner = hlo_op1(f, "negate", x);
    hlo_if_else(f, &inner, 1);
    CHECK(hlo_op1(f, "negate", x).id != inner.id); /* nor is it shared with the other branch */
    hlo_if_end(f, &x, 1, &out);
    CHECK(hlo_ok(out));
    hlo_op1(f, "negate", inner);
    CHECK_FAILS(f, "belongs to a region that is not open here");
}

TEST(parts_of_a_loop_out_of_order_are_an_error)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo x = hlo_param(f, type_scalar(TPU_F32)), r;
    hlo_while_end(f, &x, &r);
    CHECK_FAILS(f, "out of order");
    f = hlo_new(HLO_CPU);
    if (!f) return;
    x = hlo_param(f, type_scalar(TPU_BOOL));
    hlo_if_begin(f, x);
    CHECK_FAILS(f, "begun and not ended");
}

TEST(ops_with_effects_stay_in_order)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    tpu_type t = type_scalar(TPU_F32);
    hlo x = hlo_param(f, t), a, b;
    hlo_custom_call(f, "first", NULL, true, &x, 1, &t, 1, &a);
    hlo_custom_call(f, "pure", NULL, false, &x, 1, &t, 1, &b);
    hlo_custom_call(f, "second", "{k = 1 : i32}", true, &x, 1, &t, 0, NULL);
    CHECK_BODY(f, &x, 1,
               "%0 = \"stablehlo.custom_call\"(%arg0) {api_version = 4 : i32, backend_config = {}, call_target_name = "
               "\"first\", has_side_effect = true} : (tensor<f32>) -> tensor<f32>\n"
               "\"stablehlo.custom_call\"(%arg0) {api_version = 4 : i32, backend_config = {k = 1 : i32}, call_target_name = "
               "\"second\", has_side_effect = true} : (tensor<f32>) -> ()\n"
               "return %arg0 : tensor<f32>");
    hlo_free(f);
}

TEST(collectives_are_kept_and_know_their_types) /* [D1] */
{
    hlo_fn *f = hlo_new(HLO_TPU);
    if (!f) return;
    hlo x = hlo_param(f, f32(2, 8, 4));
    hlo_groups g = {1, 4, (int64_t[]){0, 1, 2, 3}, 0};
    CHECK(hlo_dim(f, hlo_all_gather(f, x, 1, &g), 1) == 16);
    CHECK(hlo_dim(f, hlo_reduce_scatter(f, "add", x, 0, &g), 0) == 2);
    hlo a = hlo_all_to_all(f, x, 0, 1, &g);
    CHECK(hlo_dim(f, a, 0) == 2 && hlo_dim(f, a, 1) == 16);
    CHECK(hlo_all_reduce(f, "add", x, &g).id != hlo_all_reduce(f, "add", x, &g).id);
    const char *s = NULL;
    size_t len;
    CHECK_OK(hlo_finish(f, &x, 1, &s, &len));
    int n = 0;
    for (const char *at = s; at && (at = strstr(at, "stablehlo.all_reduce")); at++) n++;
    CHECK(n == 2);
    CHECK(s && strstr(s, "{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}"));
    hlo_reduce_scatter(f, "add", x, 1, &(hlo_groups){1, 3, (int64_t[]){0, 1, 2}, 0});
    CHECK_FAILS(f, "dimension 1 has 4 elements, which 3 ranks do not divide");
}

TEST(locations_are_printed_on_demand)
{
    hlo_fn *f = hlo_new(HLO_CPU);
    if (!f) return;
    hlo x = hlo_param(f, type_scalar(TPU_F32));
    hlo_loc(f, "aten::neg");
    hlo r = hlo_op1(f, "negate", x);
    CHECK_BODY(f, &r, 1, "%0 = stablehlo.negate %arg0 : tensor<f32>\nreturn %0 : tensor<f32>"); /* [C2] */
    hlo_loc_in_text(f, true);
    CHECK_BODY(f, &r, 1, "%0 = stablehlo.negate %arg0 : tensor<f32> loc(\"aten::neg\")\nreturn %0 : tensor<f32>");
    hlo_free(f);
}

/* Every kind of op once, so that the walk over failing allocations meets each path. */
static hlo everything(hlo_fn *f, hlo x)
{
    tpu_type t = hlo_type(f, x);
    hlo out[2], i = hlo_iota(f, type_as(t, TPU_I32), 0), xs[2] = {x, i};
    hlo_sort(f, xs, 2, 0, true, out);
    hlo y = hlo_op2(f, "add", out[0], hlo_convert(f, out[1], TPU_F32));
    y = hlo_op2(f, "add", y, hlo_cumulative(f, "add", x, 1, false));
    y = hlo_op2(f, "add", y, hlo_along(f, hlo_convert(f, hlo_argmax(f, x, 1, true), TPU_F32), x, 2));
    hlo_window w = {.size = {2, 2}, .stride = {1, 1}};
    hlo pooled = hlo_reduce_window(f, "maximum", x, &w);
    y = hlo_op2(f, "add", y, hlo_select_and_scatter(f, x, pooled, &w));
    hlo_argmax_window(f, x, i, &w, out);
    y = hlo_op2(f, "add", y, hlo_select_and_scatter(f, x, hlo_convert(f, out[1], TPU_F32), &w));
    hlo_gather_dims g = {.noffset = 1, .offset = {1}, .ncollapsed = 1, .nmap = 1, .index_vector_dim = 1};
    hlo at = hlo_const_data(f, type_make(TPU_I32, 2, (int64_t[]){2, 1}), (int32_t[]){1, 0});
    y = hlo_scatter(f, "add", y, at, hlo_slice_dim(f, x, 0, 0, 2, 1), &g);
    y = hlo_op2(f, "multiply", y, hlo_matmul(f, y, x, TPU_F32));
    hlo_if_begin(f, hlo_reshape(f, hlo_slice_dim(f, hlo_flatten(f, hlo_isnan(f, x)), 0, 0, 1, 1), 0, NULL));
    hlo then = hlo_op1(f, "negate", y);
    hlo_if_else(f, &then, 1);
    hlo_if_end(f, &y, 1, &y);
    hlo_barrier(f, &y, 1, &y);
    y = hlo_all_reduce(f, "add", y, &(hlo_groups){1, 1, (int64_t[]){0}, 7});
    y = hlo_reshape(f, y, 3, (int64_t[]){4, 2, 2});
    return hlo_bitcast(f, hlo_bitcast(f, y, TPU_C64), TPU_F32);
}

TEST(every_kind_of_op_survives_failing_allocations)
{
    for (int target = HLO_CPU; target <= HLO_TPU; target++) {
        hlo_fn *f = hlo_new((hlo_target)target);
        if (!f) return;
        hlo r = everything(f, hlo_param(f, f32(2, 4, 4)));
        const char *s = NULL;
        size_t len;
        tpu_error *e = hlo_error(f);
        CHECK(!e);
        tpu_error_free(e);
        CHECK_OK(hlo_finish(f, &r, 1, &s, &len));
        hlo_free(f);
    }
}

TEST(five_thousand_ops_take_milliseconds)
{
    if (test_faulting()) return;
    double best = 1;
    for (int round = 0; round < 3; round++) {
        double start = time_now();
        hlo_fn *f = hlo_new(HLO_CPU);
        if (!f) return;
        hlo x = hlo_param(f, f32(2, 64, 128));
        for (int i = 0; i < 1000 && !hlo_failed(f); i++) {
            hlo a = hlo_op2(f, "add", x, hlo_like_f(f, x, i % 7));
            hlo s = hlo_reduce(f, "maximum", hlo_op1(f, "tanh", a), 2);
            x = hlo_op2(f, "subtract", a, hlo_along(f, s, a, 2));
        }
        const char *s;
        size_t len;
        CHECK_OK(hlo_finish(f, &x, 1, &s, &len));
        hlo_free(f);
        double took = time_now() - start;
        if (took < best) best = took;
    }
    CHECK(best < 0.1); /* about 4 ms; the bound leaves room for sanitizers and a loaded machine */
}
