#include "engine/kernels/cuda/norm_backward.cuh"
#include "engine/ops/layer_norm/layer_norm.h"

namespace linnet {
namespace {

void run(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<LayerNormAttrs>();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    NormForward<T> call;
    call.rows = args.out[1].elements(), call.width = args.in[0].shape()[-1];
    call.x = args.in[0].as<T>(), call.y = args.out[0].as<T>();
    if (attrs.has_weight) call.weight = args.in[1].as<float>();
    if (attrs.has_bias) call.bias = args.in.back().as<float>();
    call.epsilon = static_cast<float>(attrs.epsilon), call.centered = attrs.centered;
    call.mean = args.out[1].as<float>(), call.rstd = args.out[2].as<float>();
    norm_forward<false>(args.device, call);
  });
}

size_t grad_workspace(const KernelQuery& query) {
  return norm_backward_workspace(query.in[3].shape.elements(), query.in[0].shape[-1]);
}

void run_grad(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<LayerNormAttrs>();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    NormBackward<T> call;
    call.rows = args.in[3].elements(), call.width = args.in[0].shape()[-1];
    call.dy = args.in[0].as<T>(), call.sum = args.in[1].as<T>(), call.dx = args.out[0].as<T>();
    call.mean = args.in[2].as<float>(), call.rstd = args.in[3].as<float>();
    call.centered = attrs.centered;
    if (attrs.has_weight) call.weight = args.in[4].as<float>(), call.dweight = args.out[1].as<float>();
    if (attrs.has_bias) call.dbias = args.out.back().as<float>();
    call.parts = reinterpret_cast<float*>(args.workspace);
    norm_backward<false>(args.device, call);
  });
}

}  // namespace

LINNET_KERNELS(layer_norm_cuda, {"rows", nullptr, nullptr, run})
LINNET_KERNELS(layer_norm_grad_cuda, {"rows", nullptr, grad_workspace, run_grad})

}  // namespace linnet
