// autocast.cc - which ops run in the lower precision and which in float32 under torch.autocast("tpu"), as CUDA's lists have it.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "glue.h"
#include "torch_abi.h"

using namespace c10;
using torch::jit::Stack;

namespace glue {
namespace {

enum Policy { LOWER, FLOAT, OWN_DTYPE, WIDEST };

bool casts(const at::Tensor& t) {
  return t.defined() && t.device().type() == TPU && t.is_floating_point() && t.scalar_type() != ScalarType::Double;
}

ScalarType widest(const Stack& s, size_t begin, ScalarType low) {
  auto to = low;
  auto look = [&](const at::Tensor& t) {
    if (t.defined() && t.is_floating_point() && t.scalar_type() == ScalarType::Float) to = ScalarType::Float;
  };
  for (size_t i = begin; i < s.size(); i++) {
    if (s[i].isTensor()) look(s[i].toTensor());
    else if (s[i].isTensorList())
      for (const at::Tensor& t : s[i].toTensorList()) look(t);
  }
  return to;
}

void cast_all(Stack* s, size_t begin, ScalarType to) {
  auto cast = [&](const at::Tensor& t) { return casts(t) ? at::autocast::cached_cast(to, t, TPU) : t; };
  for (size_t i = begin; i < s->size(); i++) {
    IValue& v = (*s)[i];
    if (v.isTensor()) {
      v = cast(v.toTensor());
    } else if (v.isTensorList()) {
      List<at::Tensor> l;
      for (const at::Tensor& t : v.toTensorList()) l.push_back(cast(t));
      v = l;
    }
  }
}

// sum(x) and its kin: asked for no dtype, they are asked for float32.
bool set_dtype(const OperatorHandle& h, Stack* s, size_t begin) {
  const auto& args = h.schema().arguments();
  const bool low = (*s)[begin].isTensor() && casts((*s)[begin].toTensor()) && (*s)[begin].toTensor().scalar_type() != ScalarType::Float;
  for (size_t i = 0; low && i < args.size(); i++)
    if (args[i].name() == "dtype" && (*s)[begin + i].isNone()) (*s)[begin + i] = ScalarType::Float;
  return low;
}

template <Policy P>
void autocast(const OperatorHandle& h, Stack* s) {
  impl::ExcludeDispatchKeyGuard guard(DispatchKeySet(DispatchKey::AutocastPrivateUse1));
  const size_t begin = s->size() - h.schema().arguments().size();
  const auto low = at::autocast::get_autocast_dtype(TPU);
  if (P == LOWER) cast_all(s, begin, low);
  if (P == FLOAT) cast_all(s, begin, ScalarType::Float);
  if (P == WIDEST) cast_all(s, begin, widest(*s, begin, low));
  if (P == OWN_DTYPE) set_dtype(h, s, begin);
  h.callBoxed(s);
}

const char* const lower[] = {"conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "convolution",
    "prelu", "addmm", "addmv", "addr", "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul",
    "linalg_multi_dot", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "scaled_dot_product_attention"};
const char* const in_float[] = {"acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "tan",
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm", "group_norm", "frobenius_norm.dim",
    "nuclear_norm", "nuclear_norm.dim", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d",
    "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss",
    "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm",
    "logsumexp", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_trilinear3d", "upsample_bicubic2d"};
const char* const own_dtype[] = {"prod", "prod.dim_int", "prod.dim_Dimname", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "sum", "sum.dim_IntList"};
const char* const widest_type[] = {"addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot", "scatter_add",
    "cat", "stack"};

template <Policy P, size_t N>
void add(torch::Library& m, const char* const (&names)[N]) {
  for (const char* n : names) m.impl(n, torch::CppFunction::makeFromBoxedFunction<&autocast<P>>());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  add<LOWER>(m, lower);
  add<FLOAT>(m, in_float);
  add<OWN_DTYPE>(m, own_dtype);
  add<WIDEST>(m, widest_type);
}

}  // namespace
}  // namespace glue
