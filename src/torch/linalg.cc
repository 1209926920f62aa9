// linalg.cc - what linear algebra does with the device's answer: an error by its info.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/native/Resize.h>
#include <ATen/ops/linalg_cholesky.h>
#include <torch/library.h>

#include "glue.h"

namespace glue {

static at::Tensor cholesky(const at::Tensor& x, bool upper) { return at::linalg_cholesky(x, upper); }

static at::Tensor& cholesky_out(const at::Tensor& x, bool upper, at::Tensor& out) {
  at::Tensor r = at::linalg_cholesky(x, upper);
  at::native::resize_output(out, r.sizes());
  return out.copy_(r);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cholesky", cholesky);
  m.impl("cholesky.out", cholesky_out);
}

}  // namespace glue
