// error.cc - the one place where a tpu_error becomes an exception [E2].
// SPDX-License-Identifier: Apache-2.0
#include <c10/util/Exception.h>

#include "glue.h"
#include "torch_abi.h"

namespace glue {

void raise(tpu_error* take_e) {
  const tpu_code code = tpu_error_code(take_e);
  const std::string words = tpu_error_message(take_e);
  tpu_error_free(take_e);
  switch (code) {
    case TPU_EXHAUSTED: TORCH_CHECK_WITH(OutOfMemoryError, false, words);
    case TPU_OUT_OF_RANGE: TORCH_CHECK_INDEX(false, words);
    case TPU_UNIMPLEMENTED: TORCH_CHECK_NOT_IMPLEMENTED(false, words);
    default: TORCH_CHECK(false, words);
  }
  TORCH_INTERNAL_ASSERT(false);
}

}  // namespace glue
