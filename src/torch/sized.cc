// sized.cc - ops whose result has a size that depends on the data: a row computes it padded, the count is read, the rest
// is cut off [S2].  The read waits for the device, as it does on every accelerator.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "boxed.h"
#include "glue.h"

using namespace c10;

namespace glue {

// ---- a row of our own, called by name: tensors first, then at most one int ----
static std::vector<at::Tensor> own_row(const char* name, std::initializer_list<at::Tensor> in, std::optional<int64_t> flag = {}) {
  static std::mutex mutex;
  static std::map<std::string, call_op*> ops;
  call_op* op;
  const size_t n = in.size() + flag.has_value();
  {
    std::lock_guard<std::mutex> lock(mutex);
    call_op*& made = ops[name];
    if (!made) {
      call_param p[4] = {};
      for (size_t i = 0; i < n; i++) p[i].kind = i < in.size() ? CALL_K_TENSOR : CALL_K_INT;
      check(call_op_new(name, static_cast<int>(n), p, CALL_FUNCTIONAL, nullptr, &made));
    }
    op = made;
  }
  use_owner();
  call_tensor t[4];
  call_arg args[4] = {};
  size_t i = 0;
  for (const at::Tensor& x : in) {
    t[i] = describe(x);
    args[i].tag = CALL_TENSOR;
    args[i].n = 1;
    args[i].t = &t[i];
    i++;
  }
  if (flag) {
    args[i].tag = CALL_NUM;
    args[i].num = {TPU_I64, *flag, 0, 0};
  }
  engine_result r{};
  check(engine_call(op, args, &r));
  std::vector<at::Tensor> out;
  for (int k = 0; k < r.n; k++) out.push_back(make_tensor(r.out[k]));
  return out;
}

// The first `count` rows as a tensor of its own: nothing of the padding is kept alive or saved.
static at::Tensor cut(const at::Tensor& padded, int64_t count) { return padded.narrow(0, 0, count).clone(at::MemoryFormat::Contiguous); }

static at::Tensor& give(at::Tensor value, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == value.scalar_type(), "Expected out tensor to have dtype ", value.dtype(), ", but got ", out.dtype(), " instead");
  at::assert_no_internal_overlap(out);
  at::native::resize_output(out, value.sizes());
  return out.copy_(value);
}

// ---- places and masks ----
static at::Tensor places(const at::Tensor& x) {
  TORCH_CHECK(x.numel() < std::numeric_limits<int>::max(), "nonzero is not supported for tensors with more than INT_MAX elements, See https://github.com/pytorch/pytorch/issues/51871");
  if (x.numel() == 0) return at::empty({0, x.dim()}, x.options().dtype(kLong));
  if (x.dim() == 0) return at::empty({x.item().toComplexDouble() != 0.0 ? 1 : 0, 0}, x.options().dtype(kLong));
  auto r = own_row("tpu::nonzero", {x});
  return cut(r[0], r[1].item<int64_t>());
}
static at::Tensor& places_out(const at::Tensor& x, at::Tensor& out) { return give(places(x), out); }

static at::Tensor select_by(const at::Tensor& x, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(x.device() == mask.device() || mask.dim() == 0, "Expected all tensors to be on the same device, but found at least two devices, ", x.device(), " and ", mask.device(), "!");
  auto [a, m] = at::expand_outplace(x, mask.device() == x.device() ? mask : mask.to(x.device()));
  if (a->numel() == 0) return at::empty({0}, x.options());
  auto r = own_row("tpu::masked_select", {*a, *m});
  return cut(r[0], r[1].item<int64_t>());
}
static at::Tensor& select_by_out(const at::Tensor& x, const at::Tensor& mask, at::Tensor& out) {
  at::assert_no_overlap(out, x);
  at::assert_no_overlap(out, mask);
  return give(select_by(x, mask), out);
}

// Masks among index tensors become the places they select, in PyTorch's own way.
bool expand_masks(torch::jit::Stack* stack, size_t begin) {
  const IValue& list = (*stack)[begin + 1];
  bool any = false;
  List<std::optional<at::Tensor>> index;
  for (const IValue& e : list.toListRef()) {
    index.push_back(e.isTensor() ? std::optional<at::Tensor>(e.toTensor()) : std::nullopt);
    any |= e.isTensor() && e.toTensor().defined() && (e.toTensor().scalar_type() == kBool || e.toTensor().scalar_type() == kByte);
  }
  if (!any) return false;
  const at::Tensor& self = (*stack)[begin].toTensor();
  List<std::optional<at::Tensor>> wide;
  for (at::Tensor& t : at::native::expandTensors(self, index, true)) {
    if (t.defined() && t.device() != self.device()) t = t.to(self.device());
    wide.push_back(t.defined() ? std::optional<at::Tensor>(std::move(t)) : std::nullopt);
  }
  (*stack)[begin + 1] = std::move(wide);
  return true;
}

// ---- sets ----
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

static at::Tensor nothing(const at::Tensor& x) { return at::empty({0}, x.options().dtype(kLong)); }

// The distinct rows along dim 0 of x [n, ...].
static Three distinct(const at::Tensor& x, bool sorted, bool inverse, bool counts) {
  const int64_t n = x.size(0), width = n ? x.numel() / n : 0;
  at::Tensor rows = x.reshape({n, width ? width : 1});
  auto r = own_row("tpu::unique", {rows}, sorted);
  const auto k = r[3].item<int64_t>();
  std::vector<int64_t> size(x.sizes().begin(), x.sizes().end());
  size[0] = k;
  return {cut(r[0], k).view(size), inverse ? r[1] : nothing(x), counts ? cut(r[2], k) : nothing(x)};
}

static Three flat_distinct(const at::Tensor& x, bool sorted, bool inverse, bool counts) {
  if (x.numel() == 0) {
    at::Tensor none = at::empty(x.sizes(), x.options().dtype(kLong));
    return {at::empty({0}, x.options()), inverse ? none : nothing(x), nothing(x)};
  }
  auto [v, i, n] = distinct(x.reshape({-1}), sorted, inverse, counts);
  return {v, inverse ? i.view(x.sizes()) : i, n};
}

static Three unique2(const at::Tensor& x, bool, bool inverse, bool counts) { return flat_distinct(x, true, inverse, counts); }

static std::tuple<at::Tensor, at::Tensor> unique1(const at::Tensor& x, bool, bool inverse) {
  auto [v, i, n] = flat_distinct(x, true, inverse, false);
  return {v, i};
}

static Three along(const at::Tensor& x, int64_t dim, bool sorted, bool inverse, bool counts) {
  const int64_t d = at::maybe_wrap_dim(dim, x.dim());
  int64_t zeros = 0;
  for (int64_t s : x.sizes()) zeros += s == 0;
  if (x.size(d) == 0) {
    TORCH_CHECK(zeros == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    return {at::empty(x.sizes(), x.options()), nothing(x), nothing(x)};
  }
  TORCH_CHECK(zeros == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  auto [v, i, n] = distinct(x.movedim(d, 0), sorted, inverse, counts);
  return {v.movedim(0, d), i, n};
}

static Three unique_dim(const at::Tensor& x, int64_t dim, bool, bool inverse, bool counts) { return along(x, dim, true, inverse, counts); }

static Three unique_consecutive(const at::Tensor& x, bool inverse, bool counts, std::optional<int64_t> dim) {
  return dim ? along(x, *dim, false, inverse, counts) : flat_distinct(x, false, inverse, counts);
}
static Three unique_dim_consecutive(const at::Tensor& x, int64_t dim, bool inverse, bool counts) { return along(x, dim, false, inverse, counts); }

// ---- counts ----
static at::Tensor bincount(const at::Tensor& x, const std::optional<at::Tensor>& weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK(isIntegralType(x.scalar_type(), false), "bincount only supports 1-d non-negative integral inputs.");
  const bool weighted = weights && weights->defined();
  const auto type = !weighted ? kLong : weights->scalar_type() == kFloat ? kFloat : kDouble;
  if (x.dim() == 1 && x.numel() == 0) return at::zeros({minlength}, x.options().dtype(kLong));
  TORCH_CHECK(x.dim() == 1 && x.min().item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == x.size(0)), "weights should be 1-d and have the same length as input");
  const int64_t bins = std::max(x.max().item<int64_t>() + 1, minlength);
  at::Tensor each = weighted ? weights->to(type) : at::ones_like(x, x.options().dtype(kLong));
  return at::zeros({bins}, each.options()).scatter_add(0, x.to(kLong), each);
}

// repeats [n] -> each index as often as it says.
static at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == kLong || repeats.scalar_type() == kInt, "repeats has to be Long or Int tensor");
  if (repeats.size(0) == 0) return at::empty_like(repeats);
  at::Tensor ends = repeats.cumsum(0);
  const auto total = ends[-1].item<int64_t>();
  TORCH_CHECK(repeats.min().item<int64_t>() >= 0, "repeats can not be negative");
  TORCH_CHECK(!size || *size == total, "allocated size does not match required size");
  at::Tensor passed = at::zeros({total + 1}, ends.options()).scatter_add(0, ends, at::ones_like(ends));   // how many end at each place
  return passed.cumsum(0).narrow(0, 0, total).to(repeats.scalar_type());
}

// PyTorch wants the indices on the CPU; a user who has them on the device gets what they say.
static std::vector<at::Tensor> tensor_split(const at::Tensor& x, const at::Tensor& where, int64_t dim) {
  TORCH_CHECK(where.scalar_type() == kLong, "tensor_split expected tensor_indices_or_sections to have dtype of long, but got ", where.scalar_type());
  TORCH_CHECK(where.dim() <= 1, "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but got a tensor with ", where.dim(), " dims");
  if (where.dim() == 0) return x.tensor_split(where.item<int64_t>(), dim);
  const at::Tensor at = where.cpu().contiguous();
  return x.tensor_split(IntArrayRef(at.const_data_ptr<int64_t>(), static_cast<size_t>(at.numel())), dim);
}

// Composite: without the kernel for autograd the views would have no gradient.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("tensor_split.tensor_indices_or_sections", tensor_split); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("tensor_split.tensor_indices_or_sections", tensor_split);
  m.impl("nonzero", places);
  m.impl("nonzero.out", places_out);
  m.impl("masked_select", select_by);
  m.impl("masked_select.out", select_by_out);
  m.impl("_unique2", unique2);
  m.impl("_unique", unique1);
  m.impl("unique_dim", unique_dim);
  m.impl("unique_consecutive", unique_consecutive);
  m.impl("unique_dim_consecutive", unique_dim_consecutive);
  m.impl("bincount", bincount);
  m.impl("repeat_interleave.Tensor", repeat_interleave);
}

}  // namespace glue
