/* matmul.c - products of matrices and vectors.  float32 at full precision [N1]; integers exactly; bfloat16 and float16
 * accumulate in float32 and round once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

static tpu_type shape_of(op_ctx *c, hlo x) { return hlo_type(op_fn(c), x); }

static bool rank_is(op_ctx *c, hlo x, int rank, const char *name)
{
    if (hlo_rank(op_fn(c), x) == rank) return true;
    op_fail(c, TPU_INVALID, "%s must be a %s", name, rank == 2 ? "matrix" : rank == 3 ? "3D tensor" : "vector");
    return false;
}

/* x [..., m, k] and y [..., k, n] of one dtype; the result has it too. */
static hlo product(op_ctx *c, hlo x, hlo y)
{
    hlo_fn *f = op_fn(c);
    tpu_type a = shape_of(c, x), b = shape_of(c, y);
    int r = a.rank;
    if (a.dtype != b.dtype) {
        op_fail(c, TPU_INVALID, "expected m1 and m2 to have the same dtype, but got: %s != %s", dtype_torch_name((tpu_dtype)a.dtype),
                dtype_torch_name((tpu_dtype)b.dtype));
        return HLO_NONE;
    }
    if (a.dim[r - 1] != b.dim[r - 2] || (r == 3 && a.dim[0] != b.dim[0])) {
        if (r == 2)
            op_fail(c, TPU_INVALID, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)", (long long)a.dim[0],
                    (long long)a.dim[1], (long long)b.dim[0], (long long)b.dim[1]);
        else
            op_fail(c, TPU_INVALID, "Expected size for first two dimensions of batch2 tensor to be: [%lld, %lld] but got: [%lld, %lld].",
                    (long long)a.dim[0], (long long)a.dim[2], (long long)b.dim[0], (long long)b.dim[1]);
        return HLO_NONE;
    }
    return hlo_matmul(f, x, y, dtype_compute((tpu_dtype)a.dtype));
}

static void mm(op_ctx *c)
{
    hlo x = op_in(c, 0), y = op_in(c, 1);
    if (!rank_is(c, x, 2, "self") || !rank_is(c, y, 2, "mat2")) return;
    op_out_as(c, product(c, x, y), hlo_dtype(op_fn(c), x));
}

static void bmm(op_ctx *c)
{
    hlo x = op_in(c, 0), y = op_in(c, 1);
    if (!rank_is(c, x, 3, "batch1") || !rank_is(c, y, 3, "batch2")) return;
    op_out_as(c, product(c, x, y), hlo_dtype(op_fn(c), x));
}

/* beta * input + alpha * p in p's dtype; beta 0 ignores input, NaN and all.  beta and alpha are constants when they are 1. */
static hlo accumulate(op_ctx *c, int input, hlo p, int beta, int alpha)
{
    hlo_fn *f = op_fn(c);
    tpu_type t = hlo_type(f, p);
    if (!op_is_default(c, alpha)) p = hlo_op2(f, "multiply", p, hlo_broadcast_to(f, op_scalar(c, alpha, (tpu_dtype)t.dtype), t));
    hlo x = hlo_broadcast_to(f, op_in_as(c, input, (tpu_dtype)t.dtype), t);
    if (op_is_default(c, beta)) return hlo_op2(f, "add", x, p);
    hlo b = hlo_broadcast_to(f, op_scalar(c, beta, (tpu_dtype)t.dtype), t);
    hlo scaled = hlo_op2(f, "multiply", x, b);
    hlo zero = hlo_zeros(f, t);
    return hlo_op2(f, "add", hlo_select(f, hlo_compare(f, "EQ", b, zero), zero, scaled), p);
}

static hlo gelu_of(hlo_fn *f, hlo x)
{
    hlo inner = hlo_op2(f, "multiply", x, hlo_like_f(f, x, 0.70710678118654752440));
    hlo cdf = hlo_op2(f, "multiply", hlo_like_f(f, x, 0.5), hlo_op2(f, "add", hlo_like_f(f, x, 1), hlo_op1(f, "chlo.erf", inner)));
    return hlo_op2(f, "multiply", x, cdf);
}

/* addmm(input, mat1, mat2, beta, alpha), _addmm_activation(..., use_gelu) */
static void addmm(op_ctx *c)
{
    hlo x = op_in(c, 1), y = op_in(c, 2);
    if (!rank_is(c, x, 2, "mat1") || !rank_is(c, y, 2, "mat2")) return;
    hlo_fn *f = op_fn(c);
    hlo r = accumulate(c, 0, product(c, x, y), 3, 4);
    if (op_row_of(c)->word) r = op_bool(c, 5) ? gelu_of(f, r) : hlo_max(f, r, hlo_like_f(f, r, 0));
    op_out_as(c, r, hlo_dtype(f, x));
}

static void baddbmm(op_ctx *c)
{
    hlo x = op_in(c, 1), y = op_in(c, 2);
    if (!rank_is(c, x, 3, "batch1") || !rank_is(c, y, 3, "batch2")) return;
    op_out_as(c, accumulate(c, 0, product(c, x, y), 3, 4), hlo_dtype(op_fn(c), x));
}

/* addbmm sums the products over the batch: one contraction over batch and k. */
static void addbmm(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 1), y = op_in(c, 2);
    if (!rank_is(c, x, 3, "batch1") || !rank_is(c, y, 3, "batch2")) return;
    tpu_dtype t = hlo_dtype(f, x);
    hlo p = hlo_reduce(f, "add", product(c, x, y), 1);
    op_out_as(c, accumulate(c, 0, p, 3, 4), t);
}

static hlo as_column(hlo_fn *f, hlo v) { return hlo_unsqueeze(f, v, 1); }

static hlo mat_vec(op_ctx *c, int mat, int vec)
{
    hlo_fn *f = op_fn(c);
    hlo m = op_in(c, mat), v = op_in(c, vec);
    if (!rank_is(c, m, 2, "mat") || !rank_is(c, v, 1, "vec")) return HLO_NONE;
    if (hlo_dim(f, m, 1) != hlo_dim(f, v, 0)) {
        op_fail(c, TPU_INVALID, "size mismatch, got input (%lld), mat (%lldx%lld), vec (%lld)", (long long)hlo_dim(f, m, 0),
                (long long)hlo_dim(f, m, 0), (long long)hlo_dim(f, m, 1), (long long)hlo_dim(f, v, 0));
        return HLO_NONE;
    }
    return hlo_squeeze(f, product(c, m, as_column(f, v)), 1);
}

static void mv(op_ctx *c)
{
    tpu_dtype t = hlo_dtype(op_fn(c), op_in(c, 0));
    op_out_as(c, mat_vec(c, 0, 1), t);
}

static void addmv(op_ctx *c)
{
    tpu_dtype t = hlo_dtype(op_fn(c), op_in(c, 1));
    op_out_as(c, accumulate(c, 0, mat_vec(c, 1, 2), 3, 4), t);
}

static hlo conj_of(hlo_fn *f, hlo x)
{
    if (!dtype_is_complex(hlo_dtype(f, x))) return x;
    return hlo_op2(f, "complex", hlo_op1(f, "real", x), hlo_op1(f, "negate", hlo_op1(f, "imag", x)));
}

/* dot, and vdot that conjugates its first argument (word "conj") */
static void dot(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), y = op_in(c, 1);
    if (hlo_rank(f, x) != 1 || hlo_rank(f, y) != 1) {
        op_fail(c, TPU_INVALID, "1D tensors expected, but got %dD and %dD tensors", hlo_rank(f, x), hlo_rank(f, y));
        return;
    }
    if (hlo_count(f, x) != hlo_count(f, y)) {
        op_fail(c, TPU_INVALID, "inconsistent tensor size, expected tensor [%lld] and src [%lld] to have the same number of elements, but got %lld and %lld elements respectively",
                (long long)hlo_count(f, x), (long long)hlo_count(f, y), (long long)hlo_count(f, x), (long long)hlo_count(f, y));
        return;
    }
    if (op_row_of(c)->word) x = conj_of(f, x);
    hlo r = product(c, hlo_unsqueeze(f, x, 0), as_column(f, y));
    op_out_as(c, hlo_reshape(f, r, 0, NULL), hlo_dtype(f, x));
}

/* addr(self, vec1, vec2, beta, alpha) */
static void addr(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    if (!rank_is(c, op_in(c, 1), 1, "vec1") || !rank_is(c, op_in(c, 2), 1, "vec2")) return;
    tpu_dtype t = op_promote(c, (int[]){0, 1, 2}, 3), m = dtype_compute(t);
    hlo x = op_in_as(c, 1, m), y = op_in_as(c, 2, m);
    op_out_as(c, accumulate(c, 0, hlo_matmul(f, as_column(f, x), hlo_unsqueeze(f, y, 0), m), 3, 4), t);
}

/* _compute_linear_combination(input [n, ...], coefficients [m, n]) -> [m, ...] */
static void linear_combination(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), k = op_in(c, 1);
    tpu_type t = hlo_type(f, x);
    int64_t n = hlo_dim(f, x, 0);
    hlo rows = hlo_reshape(f, x, 2, (int64_t[]){n, n ? hlo_count(f, x) / n : 0});
    t.dim[0] = hlo_dim(f, k, 0);
    op_out(c, hlo_reshape(f, hlo_matmul(f, k, rows, (tpu_dtype)t.dtype), t.rank, t.dim));
}

/* clang-format off */
const op_row ops_matmul[] = {
    { "mm",                mm },
    { "bmm",               bmm },
    { "addmm",             addmm },
    { "_addmm_activation", addmm, "activation" },
    { "baddbmm",           baddbmm },
    { "addbmm",            addbmm },
    { "mv",                mv },
    { "addmv",             addmv },
    { "dot",               dot },
    { "vdot",              dot, "conj" },
    { "addr",              addr },
    { "_compute_linear_combination", linear_combination },
    { NULL },
};
/* clang-format on */
