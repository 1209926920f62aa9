// tensor.cc - tensors made, described, viewed, resized and copied.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "glue.h"
#include "torch_abi.h"

using namespace c10;

namespace glue {

int dtype_of(at::ScalarType t) {
  const tpu_dtype d = dtype_from_torch(static_cast<int>(t));
  TORCH_CHECK_NOT_IMPLEMENTED(d != TPU_NONE, "tpu: the dtype ", t, " is not supported");
  return d;
}

static call_num number(const at::Tensor& x) {
  const at::Scalar s = x.item();
  if (s.isComplex()) return {TPU_C128, 0, s.toComplexDouble().real(), s.toComplexDouble().imag()};
  if (s.isFloatingPoint()) return {TPU_F64, 0, s.toDouble(), 0};
  if (s.isBoolean()) return {TPU_BOOL, s.toBool(), 0, 0};
  return {TPU_I64, s.toLong(), 0, 0};
}

call_tensor describe(const at::Tensor& x) {
  call_tensor t{};
  if (!x.defined()) return t;
  auto* p = x.unsafeGetTensorImpl();
  t.defined = true;
  t.dtype = static_cast<uint8_t>(dtype_of(c10::typeMetaToScalarType(p->dtype())));
  if (p->is_wrapped_number()) t.flags |= CALL_WRAPPED;
  if (C10_LIKELY(p->device().type() == TPU)) {
    const auto sizes = p->sizes(), strides = p->strides();
    TORCH_CHECK_NOT_IMPLEMENTED(sizes.size() <= TYPE_MAX_RANK, "tpu: tensors have at most ", TYPE_MAX_RANK, " dims");
    t.size = sizes.data();
    t.stride = strides.data();
    t.rank = static_cast<uint8_t>(sizes.size());
    t.offset = p->storage_offset();
    t.st = storage_of(p->unsafe_storage().unsafeGetStorageImpl(), &t.byte_delta);
    TORCH_CHECK(t.st, "tpu: the tensor has no storage");
    const auto keys = p->key_set();
    if (C10_UNLIKELY(keys.has_any(DispatchKeySet({DispatchKey::Conjugate, DispatchKey::Negative})))) {
      if (x.is_conj()) t.flags |= CALL_CONJ;
      if (x.is_neg()) t.flags |= CALL_NEG;
    }
    return t;
  }
  TORCH_CHECK(p->device().is_cpu() && p->dim() == 0,
              "Expected all tensors to be on the same device, but found at least two devices, ", p->device(), " and tpu:", engine_device(), "!");
  t.num = number(x);
  return t;
}

at::Tensor make_tensor(const engine_out& o) {
  if (!o.st) return {};
  Storage st(Storage::use_byte_size_t{}, storage_nbytes(o.st), data_ptr_of(o.st), allocator(), true);
  auto t = at::detail::make_tensor<TensorImpl>(std::move(st), KEYS, scalarTypeToTypeMeta(static_cast<ScalarType>(dtype_to_torch(static_cast<tpu_dtype>(o.type->dtype)))));
  auto* p = t.unsafeGetTensorImpl();
  const size_t rank = o.type->rank;
  if (rank != 1 || o.type->dim[0] != 0) p->set_sizes_and_strides(IntArrayRef(o.type->dim, rank), IntArrayRef(o.stride, rank));
  return t;
}

// ---- creation ----
using Dtype = std::optional<ScalarType>;
using Lay = std::optional<Layout>;
using Dev = std::optional<Device>;
using Flag = std::optional<bool>;
using Format = std::optional<MemoryFormat>;

static int index(const Dev& d) { return d && d->index() >= 0 ? d->index() : -1; }

static at::Tensor empty(IntArrayRef size, Dtype t, Lay, Dev d, Flag pin, Format m) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  DeviceScope scope(index(d));
  dtype_of(dtype_or_default(t));
  return at::detail::empty_generic(size, allocator(), KEYS, dtype_or_default(t), m);
}

static at::Tensor empty_strided(IntArrayRef size, IntArrayRef stride, Dtype t, Lay, Dev d, Flag) {
  DeviceScope scope(index(d));
  dtype_of(dtype_or_default(t));
  return at::detail::empty_strided_generic(size, stride, allocator(), KEYS, dtype_or_default(t));
}

static at::Tensor zero_tensor(IntArrayRef size, Dtype t, Lay l, Dev d, Flag p) { return empty(size, t, l, d, p, std::nullopt).zero_(); }

// ---- shape and storage ----
static void grow(TensorImpl* p) {
  const size_t need = at::detail::computeStorageNbytes(p->sizes(), p->strides(), p->itemsize(), static_cast<size_t>(p->storage_offset()));
  auto* s = p->unsafe_storage().unsafeGetStorageImpl();
  if (p->numel() && need > s->nbytes()) {
    TORCH_CHECK(s->resizable(), "Trying to resize storage that is not resizable");
    resize_bytes(s, need);
  }
}

const at::Tensor& resize(const at::Tensor& x, IntArrayRef size, Format m) {
  auto* p = x.unsafeGetTensorImpl();
  p->set_sizes_contiguous(size);
  if (m && *m != MemoryFormat::Preserve) p->empty_tensor_restride(*m);
  grow(p);
  return x;
}

static at::Tensor& set_sized(at::Tensor& x, Storage s, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  auto* p = x.unsafeGetTensorImpl();
  p->set_storage_keep_dtype(std::move(s));
  if (stride.data() && stride.size() == size.size()) {
    p->set_sizes_and_strides(size, stride, offset);
  } else {
    p->set_sizes_contiguous(size);
    p->set_storage_offset(offset);
  }
  grow(p);
  return x;
}

static at::Tensor& set_storage(at::Tensor& x, Storage s) {
  const auto n = static_cast<int64_t>(s.nbytes() / x.itemsize());
  return set_sized(x, std::move(s), 0, {n}, {});
}

static at::Tensor& set_tensor(at::Tensor& x, const at::Tensor& y) { return set_sized(x, y.storage(), y.storage_offset(), y.sizes(), y.strides()); }

static at::Tensor& set_nothing(at::Tensor& x) { return set_sized(x, Storage(Storage::use_byte_size_t{}, 0, allocator(), true), 0, {0}, {}); }

static bool is_set_to(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() && a.storage_offset() == b.storage_offset() &&
         a.sizes() == b.sizes() && a.strides() == b.strides();
}

// ---- copies [A4] ----
static void upload(const at::Tensor& from, const at::Tensor& dst) {
  at::Tensor src = from.resolve_conj().resolve_neg();
  if (src.scalar_type() != dst.scalar_type()) src = src.to(dst.scalar_type());
  src = src.expand(dst.sizes());
  const call_tensor d = describe(dst);
  check(engine_upload(&d, src.const_data_ptr(), src.strides().data(), static_cast<tpu_dtype>(d.dtype)));
}

static void download(const at::Tensor& src, const at::Tensor& dst) {
  const call_tensor s = describe(src);
  const bool plain = src.scalar_type() == dst.scalar_type() && src.sizes() == dst.sizes() && !dst.is_conj() && !dst.is_neg();
  if (plain) {
    check(engine_download(&s, dst.mutable_data_ptr(), dst.strides().data()));
    return;
  }
  at::Tensor host = at::Tensor(at::detail::empty_cpu(src.sizes(), src.scalar_type(), std::nullopt, std::nullopt, std::nullopt, std::nullopt));
  check(engine_download(&s, host.mutable_data_ptr(), host.strides().data()));
  dst.copy_(host);
}

static at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool) {
  use_owner();
  if (dst.numel() == 0 && src.numel() == 0) return dst;
  at::assert_no_internal_overlap(dst);
  if (src.device().type() != TPU) {
    upload(src, dst);
  } else if (dst.device().type() != TPU) {
    download(src, dst);
  } else {
    const at::Tensor wide = src.sizes() == dst.sizes() ? src : src.expand(dst.sizes());
    const call_tensor s = describe(wide), d = describe(dst);
    check(engine_copy(&s, &d));
  }
  return dst;
}

static at::Tensor copy_from_and_resize(const at::Tensor& src, const at::Tensor& dst) {
  if (dst.sizes() != src.sizes()) dst.resize_(src.sizes());
  return copy_from(src, dst, false);
}

static at::Scalar item(const at::Tensor& x) {
  use_owner();
  const call_tensor t = describe(x);
  call_num n{};
  check(engine_item(&t, &n));
  switch (n.kind) {
    case TPU_BOOL: return at::Scalar(n.i != 0);
    case TPU_F64: return at::Scalar(n.re);
    case TPU_C128: return at::Scalar(c10::complex<double>(n.re, n.im));
    default: return x.scalar_type() == ScalarType::UInt64 ? at::Scalar(static_cast<uint64_t>(n.i)) : at::Scalar(n.i);
  }
}

static bool equal(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.device() == b.device(), "Cannot compare two tensors on different devices. Got: ", a.device(), " and ", b.device());
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "Expected object of data type ", a.scalar_type(), " but got data type ", b.scalar_type(), " for argument 'other'");
  if (a.sizes() != b.sizes()) return false;
  return a.numel() == 0 || a.eq(b).all().item().toBool();
}

static void record_stream(at::Tensor&, Stream) {}

// ---- attention asks a stub, not the dispatcher ----
// The fused form keeps no buffer of queries by keys, but has no second derivative and no gradient of the mask: it is for
// long sequences, or for who switches the other one off.
static bool can_fuse(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& m, double p, bool gqa) {
  static const bool rows = has_row("_scaled_dot_product_fused_attention_overrideable") && has_row("_scaled_dot_product_fused_attention_overrideable_backward");
  if (!rows || !at::globalContext().userEnabledOverrideableSDP() || q.dim() != 4 || k.dim() != 4 || v.dim() != 4 || !q.is_floating_point()) return false;
  if (q.numel() == 0 || k.numel() == 0 || v.numel() == 0 || p < 0 || p >= 1 || (m && m->defined() && m->requires_grad())) return false;
  if (q.scalar_type() != k.scalar_type() || q.scalar_type() != v.scalar_type() || q.size(0) != k.size(0) || q.size(0) != v.size(0)) return false;
  if (q.size(3) != k.size(3) || k.size(2) != v.size(2) || k.size(1) != v.size(1)) return false;
  return q.size(1) == k.size(1) || (gqa && q.size(1) % k.size(1) == 0);
}

static int64_t sdp_choice(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& m, double p, bool,
                          std::optional<double>, bool gqa) {
  constexpr int64_t LONG = int64_t{1} << 22;            // scores a head
  const bool fuse = can_fuse(q, k, v, m, p, gqa) && (q.size(2) * k.size(2) >= LONG || !at::globalContext().userEnabledMathSDP());
  return static_cast<int64_t>(fuse ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

static int64_t sdp_stub(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& m, double p, bool c,
                        std::optional<double> s, bool g) {
  return sdp_choice(q, k, v, m, p, c, s, g);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_efficientzerotensor", zero_tensor);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set_sized);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_nothing);
  m.impl("is_set_to", is_set_to);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", item);
  m.impl("equal", equal);
  m.impl("record_stream", record_stream);
  m.impl("_fused_sdp_choice", sdp_choice);
}

// Without these, copying a conj or neg view asks for a clone, which asks for a copy, for ever.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

static at::Generator get_default_generator(int64_t i) { return default_generator(static_cast<DeviceIndex>(i)); }
TORCH_LIBRARY(tpu, m) { m.def("default_generator", get_default_generator); }

}  // namespace glue

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &::glue::sdp_stub)
}
