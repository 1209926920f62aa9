/* fft.c - discrete Fourier transforms over any dims.  StableHLO transforms up to three dims at a time, the last ones;
 * its inverse kinds divide by the number of points.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "arith.h"

typedef struct span {
    int n;
    int64_t dim[TYPE_MAX_RANK];
} span; /* the transformed dims, in the order asked for */

static bool read_span(op_ctx *c, int rank, span *s)
{
    const int64_t *v = op_ints(c, 1, &s->n);
    if (s->n > rank) op_fail(c, TPU_INVALID, "FFT over %d dims of a tensor with %d", s->n, rank);
    for (int i = 0; i < s->n && i < rank; i++) s->dim[i] = op_dim(c, v[i], rank);
    return !hlo_failed(op_fn(c));
}

static bool takes(op_ctx *c, bool complex_in)
{
    tpu_dtype t = arg_dtype(c, 0);
    bool ok = complex_in ? dtype_is_complex(t) : t == TPU_F32 || t == TPU_F64;
    if (!ok) refuse(c);
    return ok;
}

/* One transform of at most three dims; last: how many points the last dim gets, for IRFFT. */
static hlo transform(hlo_fn *f, hlo x, const char *kind, const int64_t *dims, int n, int64_t last)
{
    int64_t perm[TYPE_MAX_RANK], back[TYPE_MAX_RANK], length[3];
    int rank = hlo_rank(f, x), lead = 0;
    for (int d = 0; d < rank; d++) {
        bool in = false;
        for (int i = 0; i < n; i++) in |= dims[i] == d;
        if (!in) perm[lead++] = d;
    }
    for (int i = 0; i < n; i++) {
        perm[rank - n + i] = dims[i];
        length[i] = i == n - 1 && last ? last : hlo_dim(f, x, (int)dims[i]);
    }
    for (int d = 0; d < rank; d++) back[perm[d]] = d;
    return hlo_transpose(f, hlo_fft(f, hlo_transpose(f, x, perm), kind, n, length), back);
}

/* Of complex values, over any number of dims. */
static hlo transforms(hlo_fn *f, hlo x, const char *kind, const int64_t *dims, int n)
{
    for (; n > 0; n -= 3) x = transform(f, x, kind, dims + (n > 3 ? n - 3 : 0), n > 3 ? 3 : n, 0);
    return x;
}

/* normalization: 0 none, 1 by the root of the points, 2 by the points */
static hlo normalized(op_ctx *c, hlo x, double points, bool inverse)
{
    hlo_fn *f = op_fn(c);
    int64_t how = op_int(c, 2);
    double k = (inverse ? points : 1) / (how == 1 ? sqrt(points) : how == 2 ? points : 1);
    if (k == 1) return x;
    if (!dtype_is_complex(hlo_dtype(f, x))) return times_k(f, x, k);
    return hlo_op2(f, "complex", times_k(f, hlo_op1(f, "real", x), k), times_k(f, hlo_op1(f, "imag", x), k));
}

static double points_of(hlo_fn *f, hlo x, const span *s)
{
    double n = 1;
    for (int i = 0; i < s->n; i++) n *= (double)hlo_dim(f, x, (int)s->dim[i]);
    return n;
}

/* _fft_c2c(self, dim, normalization, forward) */
static void complex_to_complex(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    span s;
    bool forward = op_bool(c, 3);
    if (!takes(c, true) || !read_span(c, hlo_rank(f, x), &s)) return;
    if (hlo_count(f, x))
        x = normalized(c, transforms(f, x, forward ? "FFT" : "IFFT", s.dim, s.n), points_of(f, x, &s), !forward);
    op_out(c, x);
}

/* _fft_r2c(self, dim, normalization, onesided): the last of the dims is halved when onesided */
static void real_to_complex(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0), y = x;
    span s;
    bool half = op_bool(c, 3);
    if (!takes(c, false) || !read_span(c, hlo_rank(f, x), &s)) return;
    int k = s.n > 3 ? 3 : s.n;
    tpu_type t = type_as(hlo_type(f, x), dtype_complex(hlo_dtype(f, x)));
    if (s.n && half) t.dim[s.dim[s.n - 1]] = t.dim[s.dim[s.n - 1]] / 2 + 1;
    if (hlo_count(f, x) == 0) y = hlo_zeros(f, t);
    else if (half && s.n) y = transforms(f, transform(f, x, "RFFT", s.dim + s.n - k, k, 0), "FFT", s.dim, s.n - k);
    else y = transforms(f, hlo_convert(f, x, (tpu_dtype)t.dtype), "FFT", s.dim, s.n);
    op_out(c, normalized(c, y, points_of(f, x, &s), false));
}

/* x with `want` elements along d: cut, or zeros put after them */
static hlo fitted(hlo_fn *f, hlo x, int d, int64_t want)
{
    int64_t lo[TYPE_MAX_RANK] = {0}, hi[TYPE_MAX_RANK] = {0};
    hi[d] = want - hlo_dim(f, x, d);
    return hi[d] ? hlo_pad(f, x, hlo_zeros(f, type_scalar(hlo_dtype(f, x))), lo, hi, NULL) : x;
}

/* _fft_c2r(self, dim, normalization, last_dim_size): the last of the dims holds half of a symmetric signal */
static void complex_to_real(op_ctx *c)
{
    hlo_fn *f = op_fn(c);
    hlo x = op_in(c, 0);
    span s;
    int64_t last = op_int(c, 3);
    if (!takes(c, true) || !read_span(c, hlo_rank(f, x), &s)) return;
    if (s.n < 1 || last < 1) {
        op_fail(c, TPU_INVALID, "Invalid number of data points (%lld) specified", (long long)last);
        return;
    }
    int64_t final = s.dim[s.n - 1];
    x = fitted(f, x, (int) final, last / 2 + 1);
    tpu_type t = type_as(hlo_type(f, x), dtype_real(hlo_dtype(f, x)));
    double points = points_of(f, x, &s) / (double)(last / 2 + 1) * (double)last;
    t.dim[final] = last;
    int k = s.n > 3 ? 3 : s.n;
    if (type_count(&t) == 0) x = hlo_zeros(f, t);
    else x = transform(f, transforms(f, x, "IFFT", s.dim, s.n - k), "IRFFT", s.dim + s.n - k, k, last);
    op_out(c, normalized(c, x, points, true));
}

/* clang-format off */
const op_row ops_fft[] = {
    { "_fft_c2c", complex_to_complex },
    { "_fft_r2c", real_to_complex },
    { "_fft_c2r", complex_to_real },
    { NULL },
};
/* clang-format on */
