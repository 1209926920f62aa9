/* type.h - dtypes, tensor types, PyTorch's type promotion.
 * A tpu_type is a plain value.  type_intern makes a pointer that is equal exactly when the types are.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_TYPE_H
#define TPUTORCH_TYPE_H

#include "base.h"

#define TYPE_MAX_RANK 16

typedef enum tpu_dtype {
    TPU_NONE = 0,
    TPU_BOOL, TPU_I8, TPU_I16, TPU_I32, TPU_I64, TPU_U8, TPU_U16, TPU_U32, TPU_U64,
    TPU_F16, TPU_BF16, TPU_F32, TPU_F64, TPU_C64, TPU_C128,
    TPU_F8E4M3FN, TPU_F8E5M2, TPU_F8E4M3FNUZ, TPU_F8E5M2FNUZ, TPU_F8E8M0FNU,
    TPU_DTYPE_COUNT,
} tpu_dtype;

typedef struct tpu_type {
    uint8_t dtype, rank;
    uint16_t bounded;               /* bit d: dim[d] is a bucket size, its true size is run-time data */
    int64_t dim[TYPE_MAX_RANK];     /* elements; unused entries are 0 */
} tpu_type;

TPU_API const char *dtype_name(tpu_dtype t);            /* borrowed, static: StableHLO's ("f32", "i1", "complex<f32>") */
TPU_API const char *dtype_torch_name(tpu_dtype t);      /* borrowed, static: PyTorch's C++ word ("Float", "Long") */
TPU_API size_t dtype_size(tpu_dtype t);                 /* bytes of one element in memory (bool: 1) */
TPU_API tpu_dtype dtype_from_torch(int scalar_type);    /* c10::ScalarType -> ours; TPU_NONE if there is none */
TPU_API int dtype_to_torch(tpu_dtype t);
static inline bool dtype_is_complex(tpu_dtype t) { return t == TPU_C64 || t == TPU_C128; }
static inline bool dtype_is_float(tpu_dtype t) { return (t >= TPU_F16 && t <= TPU_F64) || t >= TPU_F8E4M3FN; } /* real floats */
static inline bool dtype_is_signed_int(tpu_dtype t) { return t >= TPU_I8 && t <= TPU_I64; }
static inline bool dtype_is_unsigned(tpu_dtype t) { return t >= TPU_U8 && t <= TPU_U64; }
static inline bool dtype_is_int(tpu_dtype t) { return t >= TPU_I8 && t <= TPU_U64; }     /* without bool */
static inline bool dtype_is_integral(tpu_dtype t) { return t >= TPU_BOOL && t <= TPU_U64; } /* with bool */
tpu_dtype dtype_real(tpu_dtype t);                      /* C64 -> F32, C128 -> F64, else t */
tpu_dtype dtype_complex(tpu_dtype t);                   /* F32 -> C64, F64 -> C128, F16/BF16 -> C64 */
tpu_dtype dtype_compute(tpu_dtype t);                   /* opmath: F16, BF16, F8* -> F32, else t */
tpu_dtype dtype_promote(tpu_dtype a, tpu_dtype b);      /* c10::promoteTypes [P1]; TPU_NONE is neutral */
TPU_API bool dtype_can_cast(tpu_dtype from, tpu_dtype to); /* c10::canCast: what in-place and out= allow */

TPU_API tpu_type type_make(tpu_dtype t, int rank, const int64_t *dim);
static inline tpu_type type_scalar(tpu_dtype t) { return (tpu_type){.dtype = (uint8_t)t}; }
TPU_API bool type_equal(const tpu_type *a, const tpu_type *b);
bool type_same_shape(const tpu_type *a, const tpu_type *b);
TPU_API int64_t type_count(const tpu_type *t);          /* elements, bounded dims at their bucket size */
static inline int64_t type_bytes(const tpu_type *t) { return type_count(t) * (int64_t)dtype_size((tpu_dtype)t->dtype); }
static inline tpu_type type_as(tpu_type t, tpu_dtype d) { t.dtype = (uint8_t)d; return t; }
TPU_API const tpu_type *type_intern(const tpu_type *t); /* borrowed for ever; NULL if out of memory */
const char *type_interned_text(const tpu_type *interned, size_t *out_len); /* borrowed for ever: type_text of an interned type */
void type_text(const tpu_type *t, text *out);           /* StableHLO: "tensor<2x3xf32>" */
TPU_API void type_words(const tpu_type *t, text *out);  /* for messages: "float32[2, 3]" */

#endif
