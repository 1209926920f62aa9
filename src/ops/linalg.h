/* linalg.h - what the files of linear algebra share: matrices as [batch, rows, columns], one batch dim for all.
 * Loops go over columns or pairs of columns inside hlo_while, never unrolled, so that a program does not grow with the matrix.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_OPS_LINALG_H
#define TPUTORCH_OPS_LINALG_H

#include "ops/arith.h"

/* A tensor's last two dims as matrices, the dims before them as one batch; false, with PyTorch's error, if there are none. */
bool linalg_matrices(op_ctx *c, hlo x, const char *who, hlo *out);
bool linalg_square(op_ctx *c, hlo x, const char *who);
/* y [b, r, s] back in the batch dims of x [..., m, n]. */
hlo linalg_batch_like(hlo_fn *f, hlo y, hlo x);
hlo linalg_vectors_like(hlo_fn *f, hlo y, hlo x);       /* the same for y [b, r] */
hlo linalg_scalars_like(hlo_fn *f, hlo y, hlo x);       /* the same for y [b] */

hlo linalg_conj(hlo_fn *f, hlo x);                      /* of real ones: x */
hlo linalg_adjoint(hlo_fn *f, hlo x);                   /* of the last two dims */
hlo linalg_eye(hlo_fn *f, tpu_type t);                  /* ones where the last two places are equal */
/* Elements with row - column >= k (lower) or <= k; the rest is 0. */
hlo linalg_triangle(hlo_fn *f, hlo x, bool lower, int k);
hlo linalg_diagonal(hlo_fn *f, hlo x);                  /* [b, m, n] -> [b, min(m, n)] */
hlo linalg_place(hlo_fn *f, hlo like, int dim);         /* int32 of like's shape: each element's place along dim */
hlo linalg_at(hlo_fn *f, hlo x, int dim, hlo j);        /* x at a run-time place j (int32 scalar) along dim, which vanishes */
hlo linalg_spread(hlo_fn *f, hlo y, hlo like, int dim); /* y without dim, repeated along it */
hlo linalg_outer(hlo_fn *f, hlo x, hlo y);              /* [b, m], [b, n] -> [b, m, n] */
hlo linalg_rows(hlo_fn *f, hlo x, hlo index);           /* x [b, m, n], int32 index [b, k] -> [b, k, n] */
hlo linalg_real(hlo_fn *f, hlo x);
hlo linalg_as(hlo_fn *f, hlo x, tpu_dtype t);           /* a real value in a possibly complex type */
hlo linalg_norm2(hlo_fn *f, hlo x, int dim);            /* sum of |x|^2 along dim, real */

#endif
