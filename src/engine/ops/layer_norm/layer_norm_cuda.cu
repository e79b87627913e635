#include "engine/kernels/cuda/norm_backward.cuh"
#include "engine/ops/layer_norm/norm_operands.h"

namespace linnet {
namespace {

template <class Call>
void set_dropout(Call& call, const NormDropout& dropout) {
  if (dropout.probability == 0) return;
  call.dropout = dropout_site_of(dropout.random, dropout.site, dropout.probability);
  call.rows_per_sample = static_cast<unsigned>(dropout.rows_per_sample);
}

template <bool kResidual>
void run(const KernelArgs& args) {
  const NormOperands<kResidual> o(args);
  for_storage(o.y.type.dtype, [&]<class T>() {
    NormForward<T> call;
    call.rows = o.rows, call.width = o.width, call.x = o.x.template as<T>(), call.f = elements_of<T>(o.f);
    call.weight = elements_of<float>(o.weight), call.bias = elements_of<float>(o.bias);
    call.epsilon = static_cast<float>(o.attrs.norm.epsilon), call.centered = o.attrs.norm.centered;
    set_dropout(call, o.dropout);
    call.sum = elements_of<T>(o.sum), call.y = o.y.template as<T>();
    call.mean = o.mean.template as<float>(), call.rstd = o.rstd.template as<float>();
    norm_forward<kResidual>(args.device, call);
  });
}

size_t grad_workspace(const KernelQuery& query) {
  return norm_backward_workspace(query.in[3].shape.elements(), query.in[0].shape[-1]);
}

template <bool kResidual>
void run_grad(const KernelArgs& args) {
  const NormGradOperands<kResidual> o(args);
  for_storage(o.dx.type.dtype, [&]<class T>() {
    NormBackward<T> call;
    call.rows = o.rows, call.width = o.width, call.centered = o.attrs.norm.centered;
    call.dy = o.dy.template as<T>(), call.sum = o.x.template as<T>(), call.dsum = elements_of<T>(o.dsum);
    call.weight = elements_of<float>(o.weight);
    call.mean = o.mean.template as<float>(), call.rstd = o.rstd.template as<float>();
    set_dropout(call, o.dropout);
    call.dx = o.dx.template as<T>(), call.df = elements_of<T>(o.df);
    call.dweight = elements_of<float>(o.dweight), call.dbias = elements_of<float>(o.dbias);
    call.parts = reinterpret_cast<float*>(args.workspace);
    norm_backward<kResidual>(args.device, call);
  });
}

}  // namespace

LINNET_KERNELS(layer_norm_cuda, {"rows", nullptr, nullptr, run<false>})
LINNET_KERNELS(layer_norm_grad_cuda, {"rows", nullptr, grad_workspace, run_grad<false>})
LINNET_KERNELS(residual_norm_cuda, {"rows", nullptr, nullptr, run<true>})
LINNET_KERNELS(residual_norm_grad_cuda, {"rows", nullptr, grad_workspace, run_grad<true>})

}  // namespace linnet
