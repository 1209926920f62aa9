// fallback.cc - ops without a row run on the CPU and say so [F1]; Meta copies for PyTorch's words.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "boxed.h"
#include "glue.h"
#include "torch_abi.h"

using namespace c10;
using torch::jit::Stack;

namespace glue {

static at::Tensor meta_of(const at::Tensor& x) {
  if (!x.defined() || x.device().type() != TPU) return x;
  static Storage none(Storage::use_byte_size_t{}, 0, GetAllocator(DeviceType::Meta), true);
  auto t = at::detail::make_tensor<TensorImpl>(Storage(none), DispatchKeySet(DispatchKey::Meta), x.dtype());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  return t;
}

void to_meta(Stack& s) {
  for (IValue& v : s) {
    if (v.isTensor()) {
      v = meta_of(v.toTensor());
    } else if (v.isTensorList()) {
      List<at::Tensor> l;
      for (const at::Tensor& t : v.toTensorList()) l.push_back(meta_of(t));
      v = l;
    } else if (v.isList() && v.to<List<IValue>>().elementType()->kind() == TypeKind::OptionalType) {
      List<std::optional<at::Tensor>> l;
      for (const IValue& e : v.toListRef()) l.push_back(e.isTensor() ? std::optional<at::Tensor>(meta_of(e.toTensor())) : std::nullopt);
      v = l;
    } else if (v.isDevice() && v.toDevice().type() == TPU) {
      v = Device(DeviceType::Meta);
    } else if (v.isGenerator()) {
      v = IValue();
    }
  }
}

// ---- counting ----
static std::mutex mutex;
static std::map<std::string, std::map<std::string, uint64_t>> counts;   // by op, then by line
enum class Mode { Warn, Quiet, Error };

static Mode mode_from(const char* s) {
  if (s && !strcmp(s, "error")) return Mode::Error;
  return s && !strcmp(s, "quiet") ? Mode::Quiet : Mode::Warn;
}
static Mode mode = mode_from(std::getenv("TPUTORCH_FALLBACK"));

static std::string name_of(const OperatorHandle& op) {
  const auto& s = op.schema();
  return s.overload_name().empty() ? s.name() : s.name() + "." + s.overload_name();
}

static void count_call(const OperatorHandle& op) {
  const std::string name = name_of(op);
  char line[512];
  place_words(line, sizeof line);
  bool first;
  {
    std::lock_guard<std::mutex> lock(mutex);
    first = counts.count(name) == 0;
    counts[name][line]++;
  }
  if (first && mode == Mode::Warn)
    TORCH_WARN(name, " has no tpu form for these arguments and runs on the CPU: its inputs are copied there and back at each call (torch.tpu.fallbacks() counts them)");
}

// A CPU generator that goes on where the device's stands; the CPU's own is left alone [R3].
static at::Generator stand_in(rng* r) {
  auto g = at::make_generator<at::CPUGeneratorImpl>(r->seed * 0x9e3779b97f4a7c15ull + r->offset);
  r->offset += 4;
  return g;
}

static void replace_generator(const OperatorHandle& op, Stack* stack, size_t begin) {
  const auto& args = op.schema().arguments();
  for (size_t i = 0; i < args.size(); i++) {
    if (args[i].type()->str().find("Generator") == std::string::npos) continue;
    IValue& v = (*stack)[begin + i];
    v = stand_in(v.isGenerator() && v.toGenerator().device().type() == TPU ? rng_of(v.toGenerator()) : engine_default_rng(engine_device()));
  }
}

// Random ops without a generator argument draw from the CPU's default one, which is put back afterwards.
struct Borrowed {
  bool on;
  at::Tensor saved;
  explicit Borrowed(const OperatorHandle& op) : on(op.hasTag(at::Tag::nondeterministic_seeded)) {
    if (!on) return;
    for (const auto& a : op.schema().arguments())
      if (a.type()->str().find("Generator") != std::string::npos) on = false;
    if (!on) return;
    at::Generator g = at::detail::getDefaultCPUGenerator();
    saved = at::Tensor::wrap_tensor_impl(g.get_state().getIntrusivePtr());
    rng* r = engine_default_rng(engine_device());
    g.set_current_seed(r->seed * 0x9e3779b97f4a7c15ull + r->offset);
    r->offset += 4;
  }
  ~Borrowed() {
    if (!on) return;
    at::Generator g = at::detail::getDefaultCPUGenerator();
    g.set_state(saved);
  }
};

void boxed_fallback(const OperatorHandle& op, Stack* stack) {
  use_owner();
  TORCH_CHECK_NOT_IMPLEMENTED(mode != Mode::Error, name_of(op), " has no tpu form for these arguments and TPUTORCH_FALLBACK=error forbids the CPU; unset it, or write "
                              "a row (docs/adding-an-op.md)");
  const size_t begin = stack->size() - op.schema().arguments().size();
  replace_generator(op, stack, begin);
  Borrowed cpu_generator(op);
  at::native::cpu_fallback(op, stack);
  count_call(op);                                       // not before: what the CPU refuses has not run there
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>()); }

// ---- for Python: torch.ops.tpu.fallbacks() and set_fallback_mode(mode) ----
static std::vector<std::string> list_fallbacks() {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<std::string> out;
  for (const auto& [name, lines] : counts)
    for (const auto& [line, n] : lines) out.push_back(name + "=" + std::to_string(n) + "=" + line);
  return out;
}

static void reset_fallbacks() {
  std::lock_guard<std::mutex> lock(mutex);
  counts.clear();
}

static void set_mode(const std::string& m) {
  TORCH_CHECK_VALUE(m == "warn" || m == "quiet" || m == "error", "expected 'warn', 'quiet' or 'error', got '", m, "'");
  mode = mode_from(m.c_str());
}

TORCH_LIBRARY_FRAGMENT(tpu, m) {
  m.def("fallbacks", list_fallbacks);
  m.def("reset_fallbacks", reset_fallbacks);
  m.def("set_fallback_mode", set_mode);
}

}  // namespace glue
