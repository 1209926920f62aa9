/* foreach.c - the _foreach_* ops: one short formula over lists.  A number is converted once a dtype, not once a tensor.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

/* The formula of one element; the word names it. */
static hlo formula(op_ctx *c, const char *word, hlo x, hlo y)
{
    hlo_fn *f = op_fn(c);
    if (word[0] == '<') return hlo_min(f, x, y);
    if (word[0] == '>') return hlo_max(f, x, y);
    if (word[0] == 's' && word[1] == 'u') return hlo_op2(f, "subtract", x, y);
    return hlo_op2(f, word, x, y);
}

static hlo wide(hlo_fn *f, hlo s, hlo like) { return hlo_broadcast_to(f, hlo_convert(f, s, hlo_dtype(f, like)), hlo_type(f, like)); }

/* Result dtype of tensor i of list a with a number or tensor of kind k. */
static tpu_dtype with_number(tpu_dtype t, tpu_dtype kind, bool divide)
{
    if (kind == TPU_F64 && dtype_is_integral(t)) return TPU_F32;
    if (kind == TPU_C128 && !dtype_is_complex(t)) return dtype_complex(op_to_float(t));
    if (kind == TPU_I64 && t == TPU_BOOL) t = TPU_I64;
    return divide ? op_to_float(t) : t;
}

static bool divides(const char *w) { return w[0] == 'd'; }

/* A number of the argument in dtype t, made once for all tensors of that dtype. */
typedef struct scalars { hlo of[TPU_DTYPE_COUNT]; bool made[TPU_DTYPE_COUNT]; } scalars;

static hlo number_in(op_ctx *c, scalars *s, int arg, tpu_dtype t)
{
    if (!s->made[t]) s->of[t] = op_scalar(c, arg, t);
    s->made[t] = true;
    return s->of[t];
}

/* .Scalar(self[], scalar) and .ScalarList(self[], scalars[]) */
static void by_number(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *w = op_row_of(c)->word;
    bool list = op_len(c, 1) > 0;
    scalars s = {0};
    for (int i = 0; i < op_len(c, 0); i++) {
        hlo x = op_elem(c, 0, i);
        tpu_dtype t = list ? hlo_dtype(f, x) : with_number(hlo_dtype(f, x), op_scalar_kind(c, 1), divides(w)), m = dtype_compute(t);
        if (list && divides(w)) t = op_to_float(t), m = dtype_compute(t);
        x = hlo_convert(f, x, m);
        hlo y = wide(f, list ? op_scalar_elem(c, 1, i, m) : number_in(c, &s, 1, m), x);
        op_out_as(c, formula(c, w, x, y), t);
    }
}

/* .List(self[], other[], alpha?) */
static void by_list(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *w = op_row_of(c)->word;
    bool alpha = op_has(c, 2) && !op_is_default(c, 2);
    if (op_len(c, 0) != op_len(c, 1)) op_fail(c, TPU_INVALID, "Tensor lists must have the same number of tensors, got %d and %d", op_len(c, 0), op_len(c, 1));
    scalars s = {0};
    for (int i = 0; i < op_len(c, 0) && !hlo_failed(f); i++) {
        hlo x = op_elem(c, 0, i), y = op_elem(c, 1, i);
        tpu_dtype t = dtype_promote(hlo_dtype(f, x), hlo_dtype(f, y));
        if (divides(w)) t = op_to_float(t);
        tpu_dtype m = dtype_compute(t);
        x = hlo_convert(f, x, m);
        y = hlo_convert(f, y, m);
        hlo_broadcast2(f, &x, &y);
        if (alpha) y = hlo_op2(f, "multiply", y, wide(f, number_in(c, &s, 2, m), y));
        op_out_as(c, formula(c, w, x, y), t);
    }
}

/* .Tensor(self[], other, alpha?): other has no dims */
static void by_tensor(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    const char *w = op_row_of(c)->word;
    hlo y = op_in(c, 1);
    for (int i = 0; i < op_len(c, 0); i++) {
        hlo x = op_elem(c, 0, i);
        tpu_dtype t = hlo_dtype(f, x), m = dtype_compute(t);
        x = hlo_convert(f, x, m);
        hlo v = wide(f, y, x);
        if (op_has(c, 2) && !op_is_default(c, 2)) v = hlo_op2(f, "multiply", v, wide(f, op_scalar(c, 2, m), x));
        op_out_as(c, formula(c, w, x, v), t);
    }
}

/* ---- unary ---- */
static hlo own_word(hlo_fn *f, const char *w, hlo x)
{
    if (w[0] != '=') return hlo_op1(f, w, x);
    hlo one = hlo_like_f(f, x, 1);
    switch (w[1]) {
    case 'r': return hlo_op2(f, "divide", one, x);                                       /* reciprocal */
    case 't': return hlo_select(f, hlo_compare(f, "LT", x, hlo_like_f(f, x, 0)), hlo_op1(f, "ceil", x), hlo_op1(f, "floor", x)); /* trunc */
    case 'f': return hlo_op2(f, "subtract", x, hlo_select(f, hlo_compare(f, "LT", x, hlo_like_f(f, x, 0)), hlo_op1(f, "ceil", x), hlo_op1(f, "floor", x)));
    case 'l': return hlo_op2(f, "divide", hlo_op1(f, "log", x), hlo_like_f(f, x, w[2] == '2' ? 0.69314718055994530942 : 2.30258509299404568402));
    default: return x;
    }
}

/* Float math of each tensor (integers in float32), or of its own dtype where the word keeps it. */
static void each_float(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    for (int i = 0; i < op_len(c, 0); i++) {
        tpu_dtype t = op_to_float(hlo_dtype(f, op_elem(c, 0, i)));
        op_out_as(c, own_word(f, op_row_of(c)->word, hlo_convert(f, op_elem(c, 0, i), dtype_compute(t))), t);
    }
}

static void each_same(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    for (int i = 0; i < op_len(c, 0); i++) {
        hlo x = op_elem(c, 0, i);
        tpu_dtype t = hlo_dtype(f, x);
        bool keep = dtype_is_integral(t) && op_row_of(c)->word[0] != 'a' && op_row_of(c)->word[0] != 'n' && op_row_of(c)->word[0] != 's';
        if (keep) op_out(c, x);
        else if (dtype_is_complex(t)) op_out(c, own_word(f, op_row_of(c)->word, x));
        else op_out_as(c, own_word(f, op_row_of(c)->word, hlo_convert(f, x, dtype_compute(t))), t);
    }
}

static void each_zero(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    for (int i = 0; i < op_len(c, 0); i++) op_out(c, hlo_zeros(f, hlo_type(f, op_elem(c, 0, i))));
}

/* _foreach_copy(self[], src[], non_blocking) */
static void each_copy(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    for (int i = 0; i < op_len(c, 0); i++) op_out(c, wide(f, op_elem(c, 1, i), op_elem(c, 0, i)));
}

/* ---- three operands ---- */
/* addcmul/addcdiv(self[], t1[], t2[], value): .Scalar, .ScalarList, .Tensor (a 1-d tensor of values) */
static void addc(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool list = op_len(c, 3) > 0, tensor = op_scalar_kind(c, 3) == TPU_NONE && !list;
    scalars s = {0};
    for (int i = 0; i < op_len(c, 0); i++) {
        tpu_dtype t = hlo_dtype(f, op_elem(c, 0, i)), m = dtype_compute(t);
        hlo x = hlo_convert(f, op_elem(c, 0, i), m), a = hlo_convert(f, op_elem(c, 1, i), m), b = hlo_convert(f, op_elem(c, 2, i), m);
        hlo v;
        if (tensor) v = hlo_reshape(f, hlo_slice_dim(f, op_in(c, 3), 0, i, i + 1, 1), 0, NULL);
        else v = list ? op_scalar_elem(c, 3, i, m) : number_in(c, &s, 3, m);
        hlo_broadcast2(f, &a, &b);
        hlo r = hlo_op2(f, "multiply", wide(f, v, a), hlo_op2(f, op_row_of(c)->word, a, b));
        if (op_row_of(c)->word[0] == 'd') r = hlo_op2(f, "divide", hlo_op2(f, "multiply", wide(f, v, a), a), b);
        hlo_broadcast2(f, &x, &r);
        op_out_as(c, hlo_op2(f, "add", x, r), t);
    }
}

/* PyTorch's lerp: from the nearer end, so that weight 1 gives the end exactly. */
static hlo lerp(hlo_fn *f, hlo x, hlo end, hlo w)
{
    hlo d = hlo_op2(f, "subtract", end, x), one = hlo_like_f(f, w, 1);
    hlo near = hlo_op2(f, "add", x, hlo_op2(f, "multiply", w, d));
    hlo far = hlo_op2(f, "subtract", end, hlo_op2(f, "multiply", d, hlo_op2(f, "subtract", one, w)));
    hlo mag = dtype_is_complex(hlo_dtype(f, w)) ? hlo_op1(f, "abs", w) : hlo_op1(f, "abs", w);
    return hlo_select(f, hlo_compare(f, "LT", mag, hlo_like_f(f, mag, 0.5)), near, far);
}

/* lerp.Scalar(self[], end[], weight), .List(self[], end[], weight[]), .ScalarList */
static void each_lerp(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    bool scalar = op_scalar_kind(c, 2) != TPU_NONE, list = op_row_of(c)->word != NULL;
    scalars s = {0};
    for (int i = 0; i < op_len(c, 0); i++) {
        tpu_dtype t = hlo_dtype(f, op_elem(c, 0, i)), m = dtype_compute(t);
        hlo x = hlo_convert(f, op_elem(c, 0, i), m), e = hlo_convert(f, op_elem(c, 1, i), m);
        hlo w = scalar ? number_in(c, &s, 2, m) : list ? op_scalar_elem(c, 2, i, m) : op_elem(c, 2, i);
        op_out_as(c, lerp(f, x, e, wide(f, w, x)), t);
    }
}

/* ---- norm and max ---- */
/* _foreach_norm.Scalar(self[], ord, dtype): the row keeps ord in the program */
static void each_norm(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    double p = op_number(c, 1);
    for (int i = 0; i < op_len(c, 0); i++) {
        hlo x = op_elem(c, 0, i);
        tpu_dtype own = hlo_dtype(f, x), t = op_dtype(c, 2, dtype_real(own)), m = dtype_compute(t);
        hlo a = hlo_op1(f, "abs", dtype_is_complex(own) ? x : hlo_convert(f, x, m)), r;
        uint32_t all = (1u << hlo_rank(f, a)) - 1;
        if (p == 2) r = hlo_op1(f, "sqrt", hlo_reduce(f, "add", hlo_op2(f, "multiply", a, a), all));
        else if (p == 1) r = hlo_reduce(f, "add", a, all);
        else if (p == __builtin_inf()) r = hlo_count(f, a) ? hlo_reduce(f, "maximum", a, all) : hlo_zeros(f, type_scalar(m));
        else {
            r = hlo_reduce(f, "add", hlo_op2(f, "power", a, hlo_like_f(f, a, p)), all);
            r = hlo_op2(f, "power", r, hlo_like_f(f, r, 1 / p));
        }
        op_out_as(c, r, t);
    }
}

static void each_max(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    for (int i = 0; i < op_len(c, 0); i++) {
        hlo x = op_elem(c, 0, i);
        op_out(c, hlo_reduce(f, "maximum", x, (1u << hlo_rank(f, x)) - 1));
    }
}

/* pow: numbers stay in the program only where the row says so; here they are data. */
static void number_pow(op_ctx *c)                       /* _foreach_pow.ScalarAndTensor(self, exponent[]) */
{
    hlo_fn *f = op_fn(c);
    for (int i = 0; i < op_len(c, 1); i++) {
        hlo e = op_elem(c, 1, i);
        tpu_dtype t = with_number(hlo_dtype(f, e), op_scalar_kind(c, 0), false), m = dtype_compute(t);
        e = hlo_convert(f, e, m);
        op_out_as(c, hlo_op2(f, "power", wide(f, op_scalar(c, 0, m), e), e), t);
    }
}

/* clang-format off */
#define BINARY(op, word) \
    { "_foreach_" op ".Scalar",     by_number, word }, \
    { "_foreach_" op ".ScalarList", by_number, word }, \
    { "_foreach_" op ".List",       by_list,   word }
#define FLOATS(op, word) { "_foreach_" op, each_float, word }
#define SAMES(op, word)  { "_foreach_" op, each_same, word }
const op_row ops_foreach[] = {
    BINARY("add", "add"), BINARY("sub", "subtract"), BINARY("mul", "multiply"), BINARY("div", "divide"),
    BINARY("clamp_max", "<min"), BINARY("clamp_min", ">max"), BINARY("maximum", ">max"), BINARY("minimum", "<min"), BINARY("pow", "power"),
    { "_foreach_add.Tensor", by_tensor, "add" }, { "_foreach_mul.Tensor", by_tensor, "multiply" }, { "_foreach_div.Tensor", by_tensor, "divide" },
    { "_foreach_pow.ScalarAndTensor", number_pow },
    FLOATS("exp", "exponential"), FLOATS("expm1", "exponential_minus_one"), FLOATS("log", "log"), FLOATS("log1p", "log_plus_one"),
    FLOATS("log2", "=l2"), FLOATS("log10", "=l1"), FLOATS("sqrt", "sqrt"), FLOATS("rsqrt", "rsqrt"), FLOATS("sin", "sine"),
    FLOATS("cos", "cosine"), FLOATS("tan", "tan"), FLOATS("tanh", "tanh"), FLOATS("sigmoid", "logistic"), FLOATS("reciprocal", "=r"),
    SAMES("abs", "abs"), SAMES("neg", "negate"), SAMES("sign", "sign"), SAMES("floor", "floor"), SAMES("ceil", "ceil"),
    SAMES("round", "round_nearest_even"), SAMES("trunc", "=t"), SAMES("frac", "=f"),
    { "_foreach_zero", each_zero }, { "_foreach_copy", each_copy },
    { "_foreach_addcmul.Scalar", addc, "multiply" }, { "_foreach_addcmul.ScalarList", addc, "multiply" }, { "_foreach_addcmul.Tensor", addc, "multiply" },
    { "_foreach_addcdiv.Scalar", addc, "divide" },   { "_foreach_addcdiv.ScalarList", addc, "divide" },   { "_foreach_addcdiv.Tensor", addc, "divide" },
    { "_foreach_lerp.Scalar", each_lerp }, { "_foreach_lerp.List", each_lerp }, { "_foreach_lerp.ScalarList", each_lerp, "list" },
    { "_foreach_norm.Scalar", each_norm, .flags = OP_FIXED },
    { "_foreach_max", each_max },
    { NULL },
};
/* clang-format on */
