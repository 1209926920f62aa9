// checks.cc - what CPU kernels refuse by the value of a number or by where out= lies.  Rows do not see either: numbers are
// run-time data to them.  The words are PyTorch's.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/MemoryOverlap.h>

#include <cstring>

#include "boxed.h"

using namespace c10;
using torch::jit::Stack;

namespace glue {

static double real(const IValue& v) { return v.toScalar().isComplex() ? v.toScalar().toComplexDouble().real() : v.toScalar().toDouble(); }

static void cauchy(const Stack& s, size_t b) { TORCH_CHECK(real(s[b + 2]) > 0, "cauchy_ expects sigma > 0.0, but found sigma=", real(s[b + 2])); }
static void exponential(const Stack& s, size_t b) { TORCH_CHECK(real(s[b + 1]) > 0, "exponential_ expects lambda > 0.0, but found lambda=", real(s[b + 1])); }
static void geometric(const Stack& s, size_t b) {
  const double p = real(s[b + 1]);
  TORCH_CHECK(p > 0 && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
}
static void log_normal(const Stack& s, size_t b) { TORCH_CHECK(real(s[b + 2]) > 0, "log_normal_ expects std > 0.0, but found std=", real(s[b + 2])); }
static void normal(const Stack& s, size_t b) { TORCH_CHECK(real(s[b + 2]) >= 0, "normal expects std >= 0.0, but found std ", real(s[b + 2])); }
static void uniform(const Stack& s, size_t b) {
  const double from = real(s[b + 1]), to = real(s[b + 2]);
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
}
static void softshrink(const Stack& s, size_t b) {
  TORCH_CHECK(real(s[b + 1]) >= 0, "lambda must be in range [0, ", std::numeric_limits<float>::max(), "] for input dtype ", s[b].toTensor().scalar_type(), ", but found ", real(s[b + 1]));
}
static void huber(const Stack& s, size_t b) { TORCH_CHECK(real(s[b + 3]) > 0, "huber_loss does not support non-positive values for delta."); }
static void masked_fill(const Stack& s, size_t b) {
  const IValue& v = s[b + 2];
  const bool complex = v.isTensor() ? v.toTensor().is_complex() : v.isComplexDouble() && v.toComplexDouble().imag() != 0;
  TORCH_CHECK(!complex || s[b].toTensor().is_complex(), "value cannot be converted to type ", s[b].toTensor().scalar_type(), " without overflow");
}
static void complex_of(const Stack& s, size_t b) {
  const at::Tensor &x = s[b].toTensor(), &y = s[b + 1].toTensor();
  TORCH_CHECK(x.scalar_type() == y.scalar_type(), "Expected object of scalar type ", x.scalar_type(), " but got scalar type ", y.scalar_type(), " for second argument");
  if (s.size() > b + 2 && s[b + 2].isTensor()) {
    const auto want = toComplexType(x.scalar_type());
    TORCH_CHECK(s[b + 2].toTensor().scalar_type() == want, "Expected object of scalar type ", want, " but got scalar type ", s[b + 2].toTensor().scalar_type(), " for argument 'out'");
  }
}

// out= may be no part of an input, nor of another dtype than self.
static void apart(const Stack& s, size_t b) {
  const auto each = [](const IValue& v, const auto& f) {
    if (v.isTensor() && v.toTensor().defined()) f(v.toTensor());
    if (v.isTensorList())
      for (const at::Tensor& t : v.toTensorVector()) f(t);
  };
  const at::Tensor& out = s.back().toTensor();
  each(s[b], [&](const at::Tensor& x) { TORCH_CHECK(s[b].isTensorList() || x.scalar_type() == out.scalar_type(), "Expected out tensor to have dtype ", x.dtype(), ", but got ", out.dtype(), " instead"); });
  for (size_t i = b; i + 1 < s.size(); i++) each(s[i], [&](const at::Tensor& x) { if (x.is_privateuseone()) at::assert_no_overlap(out, x); });
}

static void apart_both(const Stack& s, size_t b) {
  for (size_t i = s.size() - 2; i < s.size(); i++) at::assert_no_overlap(s[i].toTensor(), s[b].toTensor());
}

static const struct { const char* name; Check check; } checks[] = {
    {"cauchy_", cauchy},         {"exponential_", exponential}, {"geometric_", geometric},       {"log_normal_", log_normal},
    {"normal_", normal},         {"uniform_", uniform},         {"softshrink", softshrink},      {"huber_loss", huber},
    {"masked_fill.Scalar", masked_fill},  {"masked_fill_.Scalar", masked_fill}, {"masked_fill.Tensor", masked_fill}, {"masked_fill_.Tensor", masked_fill},
    {"complex", complex_of},     {"complex.out", complex_of},   {"gather.out", apart},           {"take.out", apart},
    {"index_select.out", apart}, {"cat.out", apart},            {"kthvalue.values", apart_both},
};

Check check_of(const char* name) {
  for (const auto& c : checks)
    if (!strcmp(c.name, name)) return c.check;
  return nullptr;
}

}  // namespace glue
