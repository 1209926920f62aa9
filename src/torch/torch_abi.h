// torch_abi.h - where PyTorch releases differ.  From 2.11 to 2.14 the glue's source needs no difference; the compiled file
// does, since virtual tables move, so one is built for each release.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/headeronly/version.h>

#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 11)
#error "tputorch needs PyTorch 2.11 or newer"
#endif
