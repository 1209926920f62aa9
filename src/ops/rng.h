/* rng.h - random numbers for lowerings: Philox 4x32-10 spelled out in StableHLO [R1].
 * The key is the generator's seed; element e of a draw has block offset + e for itself, e being its row-major index.  So
 * the numbers depend on seed, offset and place alone: not on mode, sharding or target.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_OPS_RNG_H
#define TPUTORCH_OPS_RNG_H

#include "ops.h"

/* A draw of some shape: the key and each element's block number.  More than four words an element come by `round`. */
typedef struct rng_draw { hlo key[2], block[2]; } rng_draw;
rng_draw rng_begin(op_ctx *c, tpu_type shape);
/* The same for block numbers given as int64 of any shape, with a seed kept from an earlier op_seed. */
rng_draw rng_at(hlo_fn *f, hlo seed, hlo block);
/* Four words (u32 of the shape) of each element's block; round is a u32 scalar, HLO_NONE for 0.  Fine inside a loop. */
void rng_words(hlo_fn *f, const rng_draw *d, hlo round, hlo *words);

/* From words: in t (F32 or F64) with 24 or 53 bits. */
hlo rng_unit(hlo_fn *f, const hlo *words, tpu_dtype t);         /* [0, 1) */
hlo rng_unit_above(hlo_fn *f, const hlo *words, tpu_dtype t);   /* (0, 1] */
/* Mean 0, deviation 1; *second, unless NULL, is independent of the first. */
hlo rng_gauss(hlo_fn *f, const hlo *words, tpu_dtype t, hlo *second);

/* A draw and its numbers at once: t.dtype is F32 or F64. */
hlo rng_uniform(op_ctx *c, tpu_type t);                 /* [0, 1) */
hlo rng_normal(op_ctx *c, tpu_type t);                  /* mean 0, deviation 1 */
hlo rng_exponential(op_ctx *c, tpu_type t);             /* rate 1, never 0 */
hlo rng_bits(op_ctx *c, tpu_type shape);                /* u32 of that shape */
hlo rng_bits64(op_ctx *c, tpu_type shape);              /* u64 of that shape */
/* bool, true with probability 1 - p; p is a scalar, F32 or F64: what dropout keeps. */
hlo rng_keep(op_ctx *c, tpu_type shape, hlo p);
/* Integers in [0, range) as int64; range 0 stands for 2^64. */
hlo rng_below(op_ctx *c, tpu_type shape, uint64_t range);

#endif
