/* linalg_qr.h - QR by Householder reflections, for other files too.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_OPS_LINALG_QR_H
#define TPUTORCH_OPS_LINALG_QR_H

#include "ops/linalg.h"

/* a [b, m, n]: R on and above the diagonal, the reflections below; tau [b, min(m, n)]. */
void qr_factor(hlo_fn *f, hlo a, hlo *packed, hlo *tau);
/* Q x, or Q^H x, for x [b, m, r]. */
hlo qr_apply(hlo_fn *f, hlo packed, hlo tau, hlo x, bool adjoint);
hlo qr_columns(hlo_fn *f, hlo packed, hlo tau, int64_t n); /* the first n columns of Q */

#endif
