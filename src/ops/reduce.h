/* reduce.h - reductions that other families use too.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_OPS_REDUCE_H
#define TPUTORCH_OPS_REDUCE_H

#include "ops.h"

/* The p-norm of x (real or complex, in its compute type) over the dims of the mask; a real value, dims vanish. */
hlo reduce_norm(hlo_fn *f, hlo x, double p, uint32_t dims);
/* The sum of |x|^p, the norm before its root; p is finite and not 0. */
hlo reduce_powsum(hlo_fn *f, hlo x, double p, uint32_t dims);
/* reduce by maximum or minimum for every real dtype, bool included. */
hlo reduce_extreme(hlo_fn *f, const char *op, hlo x, uint32_t dims);
static inline uint32_t reduce_all_dims(hlo_fn *f, hlo x) { return (1u << hlo_rank(f, x)) - 1; }

#endif
