#include <algorithm>
#include "engine/kernels/cuda/norm_backward.cuh"
#include "engine/ops/residual_norm/residual_norm.h"

namespace linnet {
namespace {

// The mask's samples are the first axis, as for the op dropout.
template <class Call>
void set_dropout(Call& call, const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<ResidualNormAttrs>();
  const Shape& shape = args.out[0].shape();
  if (attrs.probability == 0) return;
  call.dropout = dropout_site_of(args.in.back().as<int32_t>(), attrs.site, attrs.probability);
  call.rows_per_sample = static_cast<unsigned>(std::max<int64_t>(shape.elements(1, shape.rank() - 1), 1));
}

void run(const KernelArgs& args) {
  const LayerNormAttrs& norm = args.node.attrs.as<ResidualNormAttrs>().norm;
  for_storage(args.out[0].type.dtype, [&]<class T>() {
    NormForward<T> call;
    call.rows = args.out[2].elements(), call.width = args.out[0].shape()[-1];
    call.x = args.in[0].as<T>(), call.f = args.in[1].as<T>();
    if (norm.has_weight) call.weight = args.in[2].as<float>();
    if (norm.has_bias) call.bias = args.in[2u + norm.has_weight].as<float>();
    call.epsilon = static_cast<float>(norm.epsilon), call.centered = norm.centered;
    set_dropout(call, args);
    call.sum = args.out[0].as<T>(), call.y = args.out[1].as<T>();
    call.mean = args.out[2].as<float>(), call.rstd = args.out[3].as<float>();
    norm_forward<true>(args.device, call);
  });
}

size_t grad_workspace(const KernelQuery& query) {
  return norm_backward_workspace(query.in[3].shape.elements(), query.in[0].shape[-1]);
}

void run_grad(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<ResidualNormAttrs>();
  for_storage(args.out[0].type.dtype, [&]<class T>() {
    NormBackward<T> call;
    call.rows = args.in[3].elements(), call.width = args.in[0].shape()[-1];
    call.dy = args.in[0].as<T>(), call.sum = args.in[1].as<T>(), call.dx = args.out[0].as<T>();
    call.mean = args.in[2].as<float>(), call.rstd = args.in[3].as<float>();
    call.centered = attrs.norm.centered;
    if (attrs.norm.has_weight) call.weight = args.in[4].as<float>(), call.dweight = args.out[1].as<float>();
    if (attrs.norm.has_bias) call.dbias = args.out[1u + attrs.norm.has_weight].as<float>();
    if (attrs.dsum) call.dsum = args.in[static_cast<size_t>(attrs.dsum_input())].as<T>();
    if (attrs.probability > 0) call.df = args.out.back().as<T>();
    set_dropout(call, args);
    call.parts = reinterpret_cast<float*>(args.workspace);
    norm_backward<true>(args.device, call);
  });
}

}  // namespace

LINNET_KERNELS(residual_norm_cuda, {"rows", nullptr, nullptr, run})
LINNET_KERNELS(residual_norm_grad_cuda, {"rows", nullptr, grad_workspace, run_grad})

}  // namespace linnet
