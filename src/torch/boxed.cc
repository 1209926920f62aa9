// boxed.cc - one boxed kernel: IValues in, call_args to the engine, tensors out; and which overloads it serves.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/library.h>

#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "boxed.h"
#include "glue.h"
#include "torch_abi.h"

using namespace c10;
using torch::jit::Stack;

namespace glue {

// ---- whose trace ----
namespace {
struct Owner final : DebugInfoBase {
  void* owner = engine_owner_new();
  ~Owner() override { engine_owner_free(owner); }
};
thread_local std::shared_ptr<Owner> mine;
}  // namespace

// Autograd hands a thread's debug info on to its own threads, so a backward pass finds its caller's owner there.  Where
// another info lies on top already (a profiler's, which must be the one it takes off), ours is not pushed.
void use_owner() {
  const auto kind = DebugInfoKind::MOBILE_RUNTIME_INFO;
  if (auto* at = static_cast<Owner*>(ThreadLocalDebugInfo::get(kind))) {
    engine_owner_use(at->owner);
    return;
  }
  if (!mine) mine = std::make_shared<Owner>();
  if (!ThreadLocalDebugInfo::current()) ThreadLocalDebugInfo::_push(kind, mine);
  engine_owner_use(mine->owner);
}

// ---- arguments ----
void Args::number(const IValue& v, call_num* n) {
  if (v.isInt()) *n = {TPU_I64, v.toInt(), 0, 0};
  else if (v.isDouble()) *n = {TPU_F64, 0, v.toDouble(), 0};
  else if (v.isBool()) *n = {TPU_BOOL, v.toBool(), 0, 0};
  else if (v.isComplexDouble()) *n = {TPU_C128, 0, v.toComplexDouble().real(), v.toComplexDouble().imag()};
  else if (v.isSymInt()) *n = {TPU_I64, v.toSymInt().guard_int(__FILE__, __LINE__), 0, 0};
  else if (v.isSymFloat()) *n = {TPU_F64, 0, v.toSymFloat().guard_float(__FILE__, __LINE__), 0};
  else if (v.isSymBool()) *n = {TPU_BOOL, v.toSymBool().guard_bool(__FILE__, __LINE__), 0, 0};
  else TORCH_CHECK(false, "tpu: a number was expected, got ", v.tagKind());
}

// Index tensors may live on the CPU: x[cpu_indices] works as it does on CUDA.
const at::Tensor& Args::on_device(const at::Tensor& t, int device) {
  kept.push_back(t.to(Device(TPU, static_cast<DeviceIndex>(device))));
  return kept.back();
}

void Args::tensor(const at::Tensor& t, bool index) {
  const bool move = index && t.defined() && t.is_cpu() && t.dim() > 0;
  tensors.push_back(describe(move ? on_device(t, engine_device()) : t));
}

void Args::count(const Stack& s, size_t begin) {
  size_t nt = 0, ni = 0, nn = 0;
  for (size_t i = begin; i < s.size(); i++) {
    const IValue& v = s[i];
    if (v.isTensor()) nt++;
    else if (v.isList()) {
      const size_t n = v.toListRef().size();
      nt += n;
      ni += n;
      nn += n;
    }
  }
  tensors.reserve(nt);
  ints.reserve(ni);
  nums.reserve(nn);
}

void Args::list(const IValue& v, call_arg* a, const call_param& p, bool index) {
  const auto l = v.toListRef();
  a->n = static_cast<uint32_t>(l.size());
  if (p.kind == CALL_K_TENSORS) {
    a->tag = CALL_TENSORS;
    a->t = tensors.data() + tensors.size();
    for (const IValue& e : l) {
      if (e.isTensor()) tensor(e.toTensor(), index);
      else tensors.push_back(call_tensor{});
    }
  } else if (p.kind == CALL_K_SCALARS || p.kind == CALL_K_FLOATS) {
    a->tag = CALL_NUMS;
    a->nums = nums.data() + nums.size();
    for (const IValue& e : l) {
      nums.push_back({});
      number(e, &nums.back());
    }
  } else {
    a->tag = CALL_INTS;
    a->ints = ints.data() + ints.size();
    for (const IValue& e : l) {
      call_num n;
      number(e, &n);
      ints.push_back(n.i);
    }
  }
}

void Args::value(const IValue& v, call_arg* a, const call_param& p, bool index) {
  a->n = 0;
  a->tag = CALL_NONE;
  if (v.isTensor()) {
    a->tag = CALL_TENSOR;
    a->n = 1;
    a->t = tensors.data() + tensors.size();
    tensor(v.toTensor(), index);
  } else if (v.isNone() || v.isDevice()) {
  } else if (v.isList()) {
    list(v, a, p, index);
  } else if (v.isString()) {
    a->tag = CALL_STR;
    a->s = v.toStringRef().data();
    a->n = static_cast<uint32_t>(v.toStringRef().size());
  } else if (v.isGenerator()) {
    a->tag = CALL_GEN;
    a->gen = rng_of(v.toGenerator());
  } else {
    a->tag = CALL_NUM;
    number(v, &a->num);
  }
}

// ---- what an overload is ----
static call_kind kind_of(const TypePtr& type) {
  TypePtr t = type;
  if (auto o = t->cast<OptionalType>()) t = o->getElementType();
  if (t->kind() == TypeKind::TensorType) return CALL_K_TENSOR;
  if (t->kind() == TypeKind::NumberType) return CALL_K_SCALAR;
  if (t->kind() == TypeKind::IntType || t->kind() == TypeKind::SymIntType) return CALL_K_INT;
  if (t->kind() == TypeKind::FloatType) return CALL_K_FLOAT;
  if (t->kind() == TypeKind::BoolType) return CALL_K_BOOL;
  if (t->kind() == TypeKind::StringType) return CALL_K_STR;
  if (t->kind() == TypeKind::GeneratorType) return CALL_K_GENERATOR;
  if (auto l = t->cast<ListType>()) {
    switch (kind_of(l->getElementType())) {
      case CALL_K_TENSOR: return CALL_K_TENSORS;
      case CALL_K_SCALAR: return CALL_K_SCALARS;
      case CALL_K_FLOAT: return CALL_K_FLOATS;
      default: return CALL_K_INTS;
    }
  }
  return CALL_K_OTHER;
}

static bool written(const Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); }

static int alias_of(const Argument& ret, const FunctionSchema& s) {
  if (!ret.alias_info()) return -1;
  for (size_t i = 0; i < s.arguments().size(); i++) {
    const auto* a = s.arguments()[i].alias_info();
    if (a && a->beforeSets() == ret.alias_info()->beforeSets()) return static_cast<int>(i);
  }
  return -1;
}

Row::Row(const OperatorHandle& h, call_form form, const char* functional) : handle(h) {
  const FunctionSchema& s = h.schema();
  const size_t n = s.arguments().size();
  std::vector<call_param> params(n);
  for (size_t i = 0; i < n; i++) {
    const Argument& a = s.arguments()[i];
    params[i].kind = static_cast<uint8_t>(kind_of(a.type()));
    params[i].written = written(a);
    is_device_arg |= a.name() == "device";
    if (a.default_value() && (a.default_value()->isScalar() || a.default_value()->isInt() || a.default_value()->isDouble() || a.default_value()->isBool())) {
      params[i].has_default = true;
      Args::number(*a.default_value(), &params[i].def);
    }
  }
  std::string name = s.name().substr(6);
  if (!s.overload_name().empty()) name += "." + s.overload_name();
  check(call_op_new(name.c_str(), static_cast<int>(n), params.data(), form, functional, &op));
  check_numbers = check_of(name.c_str());
  for (const Argument& r : s.returns()) ret_alias.push_back(kind_of(r.type()) == CALL_K_INT ? RET_INT : alias_of(r, s));
  ret_list = s.returns().size() == 1 && s.returns()[0].type()->kind() == TypeKind::ListType;
  for (size_t i = 0; i < n; i++) writes |= static_cast<uint64_t>(written(s.arguments()[i])) << i;
  for (const char* w : {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "convolution", "_thnn", "_scaled_dot", "_addmm", "dot", "vdot"})
    contracts |= name.rfind(w, 0) == 0;
  takes_indices = name == "index.Tensor" || name.rfind("index_put", 0) == 0 || name.rfind("_index_put", 0) == 0 || name.rfind("_unsafe_index", 0) == 0;
}

// ---- before the call ----
// An in-place or out= form must not write one element twice, nor read what it has just written.
void Row::check_overlap(const Stack& s, size_t begin) const {
  for (size_t i = 0; i < static_cast<size_t>(op->nargs); i++) {
    if (!(writes >> i & 1) || !s[begin + i].isTensor() || !s[begin + i].toTensor().defined()) continue;
    const at::Tensor& w = s[begin + i].toTensor();
    if (C10_LIKELY(w.unsafeGetTensorImpl()->is_non_overlapping_and_dense_default()) && op->form != CALL_OUT) continue;
    at::assert_no_internal_overlap(w);
    if (op->form != CALL_OUT) continue;
    for (size_t k = 0; k < i; k++)
      if (s[begin + k].isTensor() && s[begin + k].toTensor().defined() && s[begin + k].toTensor().is_privateuseone())
        at::assert_no_partial_overlap(w, s[begin + k].toTensor());
  }
}

// out= tensors of another shape are resized first; PyTorch warns by itself.
void Row::resize_outs(const call_arg* args, Stack& s, size_t begin, Args& a) const {
  const tpu_type* types[64];
  int n = 0;
  const size_t first = static_cast<size_t>(op->nargs - op->nouts);
  check(engine_infer(op, args, 64, types, &n));
  for (size_t i = first, k = 0; i < static_cast<size_t>(op->nargs); i++) {
    if (!s[begin + i].isTensor()) {
      k += s[begin + i].isTensorList() ? s[begin + i].toListRef().size() : 0;
      continue;
    }
    const at::Tensor& t = s[begin + i].toTensor();
    if (k >= static_cast<size_t>(n) || !t.defined() || !types[k]) { k++; continue; }
    const tpu_type* want = types[k++];
    TORCH_CHECK(t.is_privateuseone(), "Expected out tensor to have device tpu:", engine_device(), ", but got ", t.device(), " instead");
    at::native::resize_output(t, IntArrayRef(want->dim, want->rank));
    *const_cast<call_tensor*>(args[i].t) = describe(t);
  }
}

// ---- failure: a lowering speaks in PyTorch's words; where only the builder balked, the op's Meta kernel is asked for them ----
void Row::explain(tpu_error* take_e, const Stack& s, size_t begin) const {
  if (tpu_error_code(take_e) != TPU_PRECONDITION) raise(take_e);
  Stack meta(s.begin() + static_cast<int64_t>(begin), s.end());
  try {
    to_meta(meta);
    handle.callBoxed(meta);
  } catch (const c10::NotImplementedError&) {
  } catch (...) {
    tpu_error_free(take_e);
    throw;
  }
  raise(take_e);
}

// ---- after the call ----
void Row::give_back(const engine_result& r, Stack* stack, size_t begin) const {
  int k = 0;
  if (ret_alias.size() == 1 && !ret_list) {
    IValue v = ret_alias[0] >= 0 ? std::move((*stack)[begin + static_cast<size_t>(ret_alias[0])]) : IValue(k < r.n ? make_tensor(r.out[0]) : at::Tensor());
    torch::jit::drop(*stack, static_cast<size_t>(op->nargs));
    stack->push_back(std::move(v));
    return;
  }
  SmallVector<IValue, 8> out;
  for (const int alias : ret_alias) {
    if (alias == RET_INT) {
      out.emplace_back(int64_t{0});
    } else if (alias >= 0) {
      out.push_back((*stack)[begin + static_cast<size_t>(alias)]);
    } else if (ret_list) {
      List<at::Tensor> l;
      l.reserve(static_cast<size_t>(r.n));
      while (k < r.n) l.push_back(make_tensor(r.out[k++]));
      out.emplace_back(std::move(l));
    } else {
      out.emplace_back(k < r.n ? make_tensor(r.out[k]) : at::Tensor());
      k++;
    }
  }
  torch::jit::drop(*stack, static_cast<size_t>(op->nargs));
  for (IValue& v : out) stack->push_back(std::move(v));
}

void Row::operator()(const OperatorHandle& h, DispatchKeySet keys, Stack* stack) const {
  const size_t n = static_cast<size_t>(op->nargs), begin = stack->size() - n;
  use_owner();
  if (contracts) use_precision();
  int device = -1;
  if (C10_UNLIKELY(is_device_arg))
    for (size_t i = begin; i < stack->size(); i++)
      if ((*stack)[i].isDevice()) device = (*stack)[i].toDevice().index();
  DeviceScope scope(device);
  Args a;
  call_arg args[CALL_MAX_ARGS];
  a.count(*stack, begin);
  for (size_t i = 0; i < n; i++) a.value((*stack)[begin + i], &args[i], op->param[i], takes_indices);
  if (n && args[0].tag == CALL_TENSORS && args[0].n && writes & 1) {
    const at::Tensor& first = (*stack)[begin].toListRef()[0].toTensor();
    if (first.defined() && first.requires_grad()) const_cast<call_tensor*>(args[0].t)->flags |= CALL_LEAF;
  }
  if (writes) check_overlap(*stack, begin);
  if (C10_UNLIKELY(check_numbers != nullptr)) check_numbers(*stack, begin);
  engine_result r{};
  tpu_error* e = nullptr;
  if (op->form == CALL_OUT) resize_outs(args, *stack, begin, a);
  e = engine_call(op, args, &r);
  if (C10_UNLIKELY(e != nullptr)) {
    if (tpu_error_code(e) == TPU_UNIMPLEMENTED) {       // the row does not take these arguments; the CPU may
      tpu_error_free(e);
      if (takes_indices && expand_masks(stack, begin)) operator()(h, keys, stack);
      else boxed_fallback(h, stack);
      return;
    }
    explain(e, *stack, begin);
  }
  give_back(r, stack, begin);
}

// torch.set_float32_matmul_precision, read where it matters [N1]: "highest" is float32, "high" three passes, "medium" one.
void use_precision() {
  static std::atomic<int> seen{-1};
  const auto p = at::globalContext().float32MatmulPrecision();
  if (seen.exchange(static_cast<int>(p), std::memory_order_relaxed) == static_cast<int>(p)) return;
  engine_set_precision(p == at::Float32MatmulPrecision::HIGHEST ? HLO_HIGHEST : p == at::Float32MatmulPrecision::HIGH ? HLO_HIGH : HLO_DEFAULT);
}

bool has_row(const char* name) { return ops_find(name) != nullptr; }

// ---- registration ----
namespace {

struct Family { std::vector<OperatorHandle> all; };

// An overload's arguments without out= ones, by name, to find its functional form.
std::string signature(const FunctionSchema& s, bool without_out) {
  std::string r;
  for (const Argument& a : s.arguments()) {
    if (without_out && written(a) && a.kwarg_only()) continue;
    r += a.name() + ":" + a.type()->str() + ",";
  }
  return r;
}

std::string full_name(const FunctionSchema& s) {
  std::string n = s.name().substr(6);
  return s.overload_name().empty() ? n : n + "." + s.overload_name();
}

bool is_out(const FunctionSchema& s) {
  for (const Argument& a : s.arguments())
    if (a.kwarg_only() && written(a)) return true;
  return false;
}

bool is_inplace(const FunctionSchema& s) {
  const std::string& n = s.name();
  return n.back() == '_' && n[n.size() - 2] != '_' && !s.arguments().empty() && written(s.arguments()[0]);
}

using Families = std::unordered_map<std::string, Family>;

// The functional overload of an in-place or out= one; empty: none.
std::string functional_of(const FunctionSchema& s, const Families& fam) {
  std::string base = s.name().substr(6);
  const bool inplace = is_inplace(s);
  if (inplace) base.pop_back();
  auto f = fam.find(base);
  if (f == fam.end()) return "";
  const std::string want = signature(s, true);
  for (const auto& h : f->second.all)
    if (!is_out(h.schema()) && !is_inplace(h.schema()) && signature(h.schema(), false) == want) return full_name(h.schema());
  if (inplace) return s.overload_name().empty() ? base : base + "." + s.overload_name();
  return "";
}

bool served(const OperatorHandle& h, const op_row* row) {
  if (row->flags & OP_COMPOSITE) return true;
  return !h.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
}

void register_rows(torch::Library& lib) {
  std::unordered_set<std::string> bases;
  for (size_t i = 0; ops_at(i); i++) {
    std::string n = ops_at(i)->name;
    bases.insert(n.substr(0, n.find('.')));
  }
  Families fam;
  for (const auto& name : Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    std::string base = name.name.substr(6), plain = base;
    if (plain.back() == '_') plain.pop_back();
    if (!bases.count(base) && !bases.count(plain)) continue;
    if (auto h = Dispatcher::singleton().findSchema(name)) fam[base].all.push_back(*h);
  }
  for (auto& [base, f] : fam)
    for (auto& h : f.all) {
      const FunctionSchema& s = h.schema();
      const std::string name = full_name(s);
      const bool out = is_out(s), inplace = is_inplace(s);
      const std::string functional = out || inplace ? functional_of(s, fam) : name;
      const op_row* row = ops_find(name.c_str());
      if (!row) row = ops_find(functional.c_str());
      if (!row || !served(h, row) || s.arguments().size() > CALL_MAX_ARGS) continue;
      auto k = std::make_unique<Row>(h, out ? CALL_OUT : inplace ? CALL_INPLACE : CALL_FUNCTIONAL, functional.c_str());
      if (!k->op->row) continue;
      lib.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(k)));
    }
}

struct Load {
  std::unique_ptr<torch::Library> lib;
  Load() : lib(new torch::Library(torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__)) {
    register_rows(*lib);
    use_owner();
  }
} load;

}  // namespace
}  // namespace glue
