// shallow.cc - `param.data = other` crosses between tpu and the other dense devices, as it does among PyTorch's own: so
// module.to("tpu") keeps each Parameter object, and with it tied weights and optimizers [A2].  PyTorch asks this op, and by
// itself knows only its own devices.
// SPDX-License-Identifier: Apache-2.0
#include <torch/library.h>

#include "glue.h"

namespace glue {

// A strided tensor of a device that holds data: what TensorImpl calls dense, with ours among them.
static bool dense(const at::Tensor& x) {
  return x.defined() && x.unsafeGetTensorImpl()->key_set().has_all(c10::DispatchKeySet(c10::DispatchKey::Dense)) && !x.is_meta();
}

static bool compatible(const at::Tensor& self, const at::Tensor& from) { return dense(self) && dense(from); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_has_compatible_shallow_copy_type", compatible); }

}  // namespace glue
