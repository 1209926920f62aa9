// glue.h - what the parts of the glue share.  The glue links libtorch_cpu, libc10 and the C core, and nothing of Python.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>

extern "C" {
#include "engine.h"
}

namespace glue {

constexpr auto TPU = c10::DeviceType::PrivateUse1;
constexpr c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

// device.cc
c10::Allocator* allocator();
c10::DataPtr data_ptr_of(storage* take_st);             // owns the storage from here on
storage* storage_of(c10::StorageImpl* s, int64_t* delta); // borrowed; nullptr: none.  delta: bytes from its start
rng* rng_of(const at::Generator& g);                    // borrowed from g
const at::Generator& default_generator(c10::DeviceIndex i);
void resize_bytes(c10::StorageImpl* s, size_t nbytes);

// tensor.cc
int dtype_of(at::ScalarType t);                         // a tpu_dtype; throws NotImplementedError where there is none
call_tensor describe(const at::Tensor& t);              // borrows t's sizes; device tensors and 0-dim CPU tensors
at::Tensor make_tensor(const engine_out& o);            // takes o.st
const at::Tensor& resize(const at::Tensor& x, c10::IntArrayRef size, std::optional<at::MemoryFormat> m);

// error.cc
[[noreturn]] void raise(tpu_error* take_e);
inline void check(tpu_error* take_e) { if (C10_UNLIKELY(take_e != nullptr)) raise(take_e); }

// boxed.cc
void use_owner();                                       // the engine's trace is the calling user thread's, in autograd's threads too
void use_precision();
void boxed_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);
bool has_row(const char* name);

struct DeviceScope {                                    // current device for the length of a scope; -1 leaves it
  int old;
  explicit DeviceScope(int d) : old(engine_set_device(d)) {}
  ~DeviceScope() { engine_set_device(old); }
};

}  // namespace glue
