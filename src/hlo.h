/* hlo.h - builds one StableHLO function, with type inference, and prints it as text.
 * An hlo_fn owns everything made with it; an hlo value is valid until hlo_free.  Errors stick: after the first, every
 * call does nothing and returns HLO_NONE, and hlo_finish reports it - so a lowering checks nothing.  Where a primitive
 * takes several operands they must have one type unless the comment says otherwise; nothing is broadcast or converted
 * in silence except by the functions under "Convenience".  `dims` arrays are borrowed for the call; an array of results
 * may be the array of operands.  One thread a function.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_HLO_H
#define TPUTORCH_HLO_H

#include "type.h"

typedef struct hlo_fn hlo_fn;
typedef struct hlo { int id; } hlo;
#define HLO_NONE ((hlo){-1})
static inline bool hlo_ok(hlo x) { return x.id >= 0; }

typedef enum hlo_target { HLO_CPU, HLO_TPU } hlo_target;

/* ---- life ---- */
hlo_fn *hlo_new(hlo_target target);                     /* owned; NULL if out of memory */
void hlo_free(hlo_fn *f);
hlo_target hlo_target_of(const hlo_fn *f);
hlo hlo_param(hlo_fn *f, tpu_type type);                /* at any time, outside of regions */
void hlo_param_alias(hlo_fn *f, hlo param, int output); /* may be donated to that output (tf.aliasing_output) */
void hlo_loc(hlo_fn *f, const char *aten);              /* ops from here on carry loc("aten::name"); copied; NULL: none */
void hlo_fail(hlo_fn *f, tpu_code code, const char *fmt, ...) TPU_PRINTF(3, 4); /* keeps the first */
bool hlo_failed(const hlo_fn *f);
tpu_error *hlo_error(hlo_fn *f) TPU_MUST_USE;           /* owned copy of the first error, NULL if none */
/* Ends the function with these results and gives the module's text ("module @m { func.func public @main ..."),
 * borrowed from f.  Values that no result needs are not printed, and values are numbered in the order of first use,
 * so equal programs print equally.  An op inside is printed once. */
tpu_error *hlo_finish(hlo_fn *f, const hlo *results, int n, const char **out_text, size_t *out_len) TPU_MUST_USE;
void hlo_loc_in_text(hlo_fn *f, bool on);               /* default off: keys hash the text without loc [C2] */

/* ---- types ---- */
tpu_type hlo_type(const hlo_fn *f, hlo x);              /* dtype TPU_NONE for HLO_NONE */
tpu_dtype hlo_dtype(const hlo_fn *f, hlo x);
int hlo_rank(const hlo_fn *f, hlo x);                   /* 0 for HLO_NONE */
int64_t hlo_dim(const hlo_fn *f, hlo x, int d);         /* d < 0 counts from the end; 1 out of range */
int64_t hlo_count(const hlo_fn *f, hlo x);

/* ---- constants ---- */
hlo hlo_const_f(hlo_fn *f, tpu_type t, double v);       /* splat; any dtype, converted like a C cast; complex: v + 0i */
hlo hlo_const_i(hlo_fn *f, tpu_type t, int64_t v);      /* splat */
hlo hlo_const_data(hlo_fn *f, tpu_type t, const void *data); /* elements in row-major order, copied; printed as hex */
hlo hlo_zeros(hlo_fn *f, tpu_type t);
hlo hlo_lowest(hlo_fn *f, tpu_type t);                  /* splat: -inf, or the least integer, or false */
hlo hlo_highest(hlo_fn *f, tpu_type t);                 /* splat: +inf, or the greatest integer, or true */
hlo hlo_iota(hlo_fn *f, tpu_type t, int dim);

/* ---- elementwise: `op` is StableHLO's word and is kept verbatim ---- */
/* abs cbrt ceil convert? no (see hlo_convert) cosine count_leading_zeros exponential exponential_minus_one floor imag
 * is_finite log log_plus_one logistic negate not popcnt real round_nearest_afz round_nearest_even rsqrt sign sine sqrt
 * tan tanh; abs, real and imag of complex give the real type; is_finite gives bool.  chlo.* words are passed through. */
hlo hlo_op1(hlo_fn *f, const char *op, hlo x);
/* add and atan2 complex divide maximum minimum multiply or power remainder shift_left shift_right_arithmetic
 * shift_right_logical subtract xor */
hlo hlo_op2(hlo_fn *f, const char *op, hlo x, hlo y);
hlo hlo_compare(hlo_fn *f, const char *dir, hlo x, hlo y); /* EQ NE GE GT LE LT; bool result; kind by dtype */
hlo hlo_select(hlo_fn *f, hlo pred, hlo x, hlo y);      /* pred: bool, the shape of x or no dims */
hlo hlo_clamp(hlo_fn *f, hlo lo, hlo x, hlo hi);        /* lo, hi: the type of x or no dims; NaN as XLA has it */
hlo hlo_convert(hlo_fn *f, hlo x, tpu_dtype t);         /* PyTorch's cast: to bool is x != 0, float to int truncates,
                                                           complex to real drops the imaginary part; same dtype: x */
hlo hlo_bitcast(hlo_fn *f, hlo x, tpu_dtype t);         /* same width keeps the shape; narrower adds a last dim; wider folds it */
hlo hlo_reduce_precision(hlo_fn *f, hlo x, int exponent_bits, int mantissa_bits);

/* ---- shape ---- */
hlo hlo_broadcast_in_dim(hlo_fn *f, hlo x, tpu_type t, const int64_t *dims); /* dims[rank of x]; t.dtype is x's */
hlo hlo_reshape(hlo_fn *f, hlo x, int rank, const int64_t *dims);            /* same shape: x */
hlo hlo_transpose(hlo_fn *f, hlo x, const int64_t *perm);                    /* identity: x */
hlo hlo_slice(hlo_fn *f, hlo x, const int64_t *start, const int64_t *limit, const int64_t *step); /* step NULL: 1s */
hlo hlo_pad(hlo_fn *f, hlo x, hlo value, const int64_t *lo, const int64_t *hi, const int64_t *interior); /* lo, hi may be < 0; interior NULL: 0s */
hlo hlo_concat(hlo_fn *f, const hlo *xs, int n, int dim);
hlo hlo_reverse(hlo_fn *f, hlo x, uint32_t dims);                            /* bit d: reverse dim d */
hlo hlo_dynamic_slice(hlo_fn *f, hlo x, const hlo *starts, const int64_t *sizes);     /* starts: one integer scalar a dim */
hlo hlo_dynamic_update_slice(hlo_fn *f, hlo x, hlo update, const hlo *starts);

/* ---- contraction ---- */
/* Result dims: batch, then x's free, then y's free dims.  `out` is the result's dtype; x and y have one dtype.
 * float32 runs at precision HIGHEST unless hlo_precision says otherwise [N1]. */
hlo hlo_dot(hlo_fn *f, hlo x, hlo y, int nbatch, const int64_t *xbatch, const int64_t *ybatch,
            int ncontract, const int64_t *xcontract, const int64_t *ycontract, tpu_dtype out);
typedef enum hlo_prec { HLO_DEFAULT, HLO_HIGH, HLO_HIGHEST } hlo_prec;
void hlo_precision(hlo_fn *f, hlo_prec p);              /* of float32 dots and convolutions from here on; starts HIGHEST */
typedef struct hlo_conv {
    int nspatial;                                       /* 1, 2 or 3 */
    int64_t stride[3], pad_lo[3], pad_hi[3], lhs_dilation[3], rhs_dilation[3]; /* 0 in a dilation or stride means 1 */
    bool reversal[3];                                   /* window reversal */
    int64_t feature_groups, batch_groups;               /* 0 means 1 */
    /* which dim of the operand is what: input [batch, feature, spatial...], kernel [in, out, spatial...], output
     * [batch, feature, spatial...]; all zero (in_spatial[0] == 0): NCHW, OIHW, NCHW */
    int64_t in_batch, in_feature, in_spatial[3], k_in, k_out, k_spatial[3], out_batch, out_feature, out_spatial[3];
} hlo_conv;
hlo hlo_convolution(hlo_fn *f, hlo x, hlo kernel, const hlo_conv *conv, tpu_dtype out);

/* ---- reductions: `op` is add multiply maximum minimum and or; the neutral element is implied ---- */
/* maximum and minimum of floats propagate NaN [N3].  dims is a bit mask; reduced dims vanish. */
hlo hlo_reduce(hlo_fn *f, const char *op, hlo x, uint32_t dims);
/* Index of the greatest (or least) element along dim: NaN wins, the first of equals wins [N3]; int64, dim vanishes. */
hlo hlo_argmax(hlo_fn *f, hlo x, int dim, bool least);
typedef struct hlo_window { int64_t size[TYPE_MAX_RANK], stride[TYPE_MAX_RANK], pad_lo[TYPE_MAX_RANK], pad_hi[TYPE_MAX_RANK],
    base_dilation[TYPE_MAX_RANK], dilation[TYPE_MAX_RANK]; } hlo_window;      /* 0 in size, stride, dilation means 1 */
hlo hlo_reduce_window(hlo_fn *f, const char *op, hlo x, const hlo_window *w); /* padding is the neutral element */
/* For each window of x the greatest element (NaN wins, the least index of equals) and its element of `index`, an integer
 * value of x's shape.  Writes out[0] and out[1].  Places in the padding never win over an element. */
void hlo_argmax_window(hlo_fn *f, hlo x, hlo index, const hlo_window *w, hlo *out);
/* For each window of x the greatest element's place receives (adds) source's element; NaN wins. */
hlo hlo_select_and_scatter(hlo_fn *f, hlo x, hlo source, const hlo_window *w);
hlo hlo_cumulative(hlo_fn *f, const char *op, hlo x, int dim, bool reverse);  /* inclusive scan, plain StableHLO, any target */

/* ---- indexed access ---- */
typedef struct hlo_gather_dims {
    int noffset, ncollapsed, nmap;                      /* lengths of the lists below */
    int64_t offset[TYPE_MAX_RANK], collapsed[TYPE_MAX_RANK], map[TYPE_MAX_RANK];
    int64_t index_vector_dim;
    bool sorted, unique;                                /* promises about the indices */
} hlo_gather_dims;
hlo hlo_gather(hlo_fn *f, hlo x, hlo indices, const hlo_gather_dims *d, const int64_t *slice_sizes);
/* `op`: what becomes of an element and its update: "assign" add multiply minimum maximum and or.  offset, collapsed, map
 * are StableHLO's update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims. */
hlo hlo_scatter(hlo_fn *f, const char *op, hlo x, hlo indices, hlo updates, const hlo_gather_dims *d);

/* ---- order and control ---- */
/* Sorts all xs (one shape) along dim by the first of them: stable, NaN greatest [N3]; in place of xs[i] out[i]. */
void hlo_sort(hlo_fn *f, const hlo *xs, int n, int dim, bool descending, hlo *out);
/* Loops: body is built between hlo_while_begin and hlo_while_end.  args receives the n loop values seen by the
 * condition; call hlo_while_body with the condition (a bool scalar), args then receives those seen by the body; end
 * takes the next values and fills results.  Loops nest; values from outside may be used inside. */
void hlo_while_begin(hlo_fn *f, const hlo *init, int n, hlo *args);
void hlo_while_body(hlo_fn *f, hlo condition, hlo *args);
void hlo_while_end(hlo_fn *f, const hlo *next, hlo *results);
void hlo_if_begin(hlo_fn *f, hlo pred);                 /* then-branch follows */
void hlo_if_else(hlo_fn *f, const hlo *results, int n); /* ends the then-branch */
void hlo_if_end(hlo_fn *f, const hlo *results, int n, hlo *out);
void hlo_barrier(hlo_fn *f, const hlo *xs, int n, hlo *out); /* optimization_barrier */
/* custom_call with api_version 4; backend_config is MLIR text of a dictionary ("{a = 1 : i32}") or NULL.  A config that
 * begins with a quote is a string: api_version 1, as Mosaic kernels have it.  More attributes may follow in the text. */
void hlo_custom_call(hlo_fn *f, const char *target, const char *backend_config, bool side_effect,
                     const hlo *xs, int n, const tpu_type *types, int nresults, hlo *out);
hlo hlo_cholesky(hlo_fn *f, hlo x, bool lower);
hlo hlo_triangular_solve(hlo_fn *f, hlo a, hlo b, bool left, bool lower, bool unit, const char *transpose); /* NO_TRANSPOSE TRANSPOSE ADJOINT */
hlo hlo_fft(hlo_fn *f, hlo x, const char *kind, int n, const int64_t *lengths); /* FFT IFFT RFFT IRFFT over the last n dims */

/* ---- collectives: never dropped, never shared, kept in the order of the calls ---- */
/* Groups of equal size; rank[g * size + i].  channel 0: ranks are replicas; else ranks are global device ids (partitions). */
typedef struct hlo_groups { int ngroups, size; const int64_t *rank; int64_t channel; } hlo_groups;
hlo hlo_all_reduce(hlo_fn *f, const char *op, hlo x, const hlo_groups *g);
hlo hlo_all_gather(hlo_fn *f, hlo x, int dim, const hlo_groups *g);          /* dim grows by the group's size */
hlo hlo_reduce_scatter(hlo_fn *f, const char *op, hlo x, int dim, const hlo_groups *g); /* dim shrinks by it */
hlo hlo_all_to_all(hlo_fn *f, hlo x, int split, int concat, const hlo_groups *g);
hlo hlo_collective_permute(hlo_fn *f, hlo x, const int64_t *pairs, int n, int64_t channel); /* n pairs from, to; else zeros */
hlo hlo_rank_id(hlo_fn *f, bool partition);             /* replica_id or partition_id: uint32 scalar */

/* ---- convenience, in terms of the above ---- */
hlo hlo_like_f(hlo_fn *f, hlo x, double v);             /* splat of x's type */
hlo hlo_like_i(hlo_fn *f, hlo x, int64_t v);
hlo hlo_broadcast_to(hlo_fn *f, hlo x, tpu_type t);     /* PyTorch's rules, right-aligned; only t's shape is used; says
                                                           "The size of tensor a (3) must match ..." when it cannot */
/* The broadcast shape of two; an error in PyTorch's words when there is none.  dtype is a's. */
tpu_type hlo_broadcast_type(hlo_fn *f, tpu_type a, tpu_type b);
void hlo_broadcast2(hlo_fn *f, hlo *x, hlo *y);         /* both to their broadcast shape; dtypes are left alone */
void hlo_broadcast3(hlo_fn *f, hlo *x, hlo *y, hlo *z);
hlo hlo_max(hlo_fn *f, hlo x, hlo y);                   /* NaN propagates on every target [N3] */
hlo hlo_min(hlo_fn *f, hlo x, hlo y);
hlo hlo_keepdims(hlo_fn *f, hlo reduced, hlo like, uint32_t dims); /* puts 1s back where dims of `like` were reduced */
hlo hlo_along(hlo_fn *f, hlo reduced, hlo like, uint32_t dims);    /* broadcasts a reduced value back to like's shape */
hlo hlo_unsqueeze(hlo_fn *f, hlo x, int dim);
hlo hlo_squeeze(hlo_fn *f, hlo x, int dim);             /* the dim must be 1 */
hlo hlo_swap(hlo_fn *f, hlo x, int a, int b);           /* transposes two dims; negative counts from the end */
hlo hlo_slice_dim(hlo_fn *f, hlo x, int dim, int64_t start, int64_t limit, int64_t step);
hlo hlo_flatten(hlo_fn *f, hlo x);                      /* to one dim */
hlo hlo_matmul(hlo_fn *f, hlo x, hlo y, tpu_dtype out); /* [...,m,k] x [...,k,n], equal batch dims */
hlo hlo_take(hlo_fn *f, hlo x, hlo indices, int dim);   /* x at integer indices along dim; result: x's dims with dim
                                                           replaced by indices' dims; indices must be in range */
hlo hlo_isnan(hlo_fn *f, hlo x);                        /* false for integers */

#endif
