// boxed.h - the kernel that serves every overload with a row, and its arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "glue.h"

namespace glue {

// A call's arguments as the engine takes them; borrows the stack's tensors and lists.
struct Args {
  c10::SmallVector<call_tensor, 8> tensors;
  c10::SmallVector<int64_t, 24> ints;
  c10::SmallVector<call_num, 8> nums;
  c10::SmallVector<at::Tensor, 2> kept;                 // made for the call
  void count(const torch::jit::Stack& s, size_t begin); // so that nothing moves while pointers are handed out
  void value(const c10::IValue& v, call_arg* a, const call_param& p, bool index);
  static void number(const c10::IValue& v, call_num* n);

 private:
  const at::Tensor& on_device(const at::Tensor& t, int device);
  void tensor(const at::Tensor& t, bool index);
  void list(const c10::IValue& v, call_arg* a, const call_param& p, bool index);
};

using Check = void (*)(const torch::jit::Stack& s, size_t begin); // throws what PyTorch's own kernel does
Check check_of(const char* name);                       // nullptr: none (checks.cc)

struct Row final : c10::OperatorKernel {
  call_op* op = nullptr;                                // lives for ever
  c10::OperatorHandle handle;
  static constexpr int RET_INT = -2;
  std::vector<int> ret_alias;                           // a return is argument ret_alias[i], fresh (-1) or an int that rows do not use
  uint64_t writes = 0;
  Check check_numbers = nullptr;
  bool ret_list = false, is_device_arg = false, takes_indices = false, contracts = false;
  Row(const c10::OperatorHandle& h, call_form form, const char* functional);
  void operator()(const c10::OperatorHandle& h, c10::DispatchKeySet, torch::jit::Stack* stack) const;

 private:
  void check_overlap(const torch::jit::Stack& s, size_t begin) const;
  void resize_outs(const call_arg* args, torch::jit::Stack& s, size_t begin, Args& a) const;
  [[noreturn]] void explain(tpu_error* take_e, const torch::jit::Stack& s, size_t begin) const;
  void give_back(const engine_result& r, torch::jit::Stack* stack, size_t begin) const;
};

bool expand_masks(torch::jit::Stack* stack, size_t begin); // of index and index_put; false: there are none (sized.cc)
void to_meta(torch::jit::Stack& s);                     // device tensors become Meta tensors (fallback.cc)

}  // namespace glue
