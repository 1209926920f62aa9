/* rng.h - random bits for lowerings: Philox 4x32-10 spelled out in StableHLO [R1].
 * Element e of a draw uses 32-bit word (offset + e) mod 4 of block (offset + e) / 4, so numbers depend on seed, offset and
 * place alone: not on mode, sharding or target.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_RNG_H
#define TPUTORCH_RNG_H

#include "ops.h"

hlo rng_bits(op_ctx *c, tpu_type shape);                /* u32 of that shape */
hlo rng_bits64(op_ctx *c, tpu_type shape);              /* u64 of that shape */
hlo rng_uniform(op_ctx *c, tpu_type t);                 /* [0, 1); t.dtype F32 or F64 */
hlo rng_normal(op_ctx *c, tpu_type t);                  /* mean 0, deviation 1; t.dtype F32 or F64 */

#endif
