#include "engine/ops/softmax/softmax.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include "engine/kernels/reduce/reduce.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_softmax(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(args.in[0].shape.rank() >= 1 && is_float(args.in[0].dtype), "got ", args.in[0]);
  return {args.in[0]};
}

std::vector<TensorType> infer_softmax_grad(const InferArgs& args) {
  expect_inputs(args, 2);
  expect(args.in[0] == args.in[1], "got ", args.in[0], " and ", args.in[1]);
  return {args.in[0]};
}

std::vector<Tensor> decompose_softmax(const DecomposeArgs& args) {
  const Tensor e = exp(args.in[0] - max_last(args.in[0]));
  return {e / sum_to(e, with_size(e.shape(), -1, 1))};
}

void run_softmax_reference(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1], rows = args.in[0].rows();
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = args.in[0].as<T>() + r * width;
      T* y = args.out[0].as<T>() + r * width;
      const double top = *std::max_element(x, x + width);
      double sum = 0;
      const bool empty = top == -std::numeric_limits<double>::infinity();
      for (int64_t j = 0; j < width; ++j) sum += y[j] = static_cast<T>(empty ? 0.0 : std::exp(x[j] - top));
      for (int64_t j = 0; j < width; ++j) y[j] = static_cast<T>(empty ? 0.0 : y[j] / sum);
    }
  });
}

void run_softmax_grad_reference(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1], rows = args.in[0].rows();
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      const T *dy = args.in[0].as<T>() + r * width, *y = args.in[1].as<T>() + r * width;
      double sum = 0;
      for (int64_t j = 0; j < width; ++j) sum += static_cast<double>(dy[j]) * y[j];
      for (int64_t j = 0; j < width; ++j) args.out[0].as<T>()[r * width + j] = static_cast<T>(y[j] * (dy[j] - sum));
    }
  });
}

void run_softmax(const KernelArgs& args) {
  softmax_forward(
      args.in[0].rows(), args.in[0].shape()[-1], stored(args.in[0]), mutable_stored(args.out[0]), args.pool);
}

void run_softmax_grad(const KernelArgs& args) {
  softmax_backward(args.in[0].rows(), args.in[0].shape()[-1], stored(args.in[0]), stored(args.in[1]),
      mutable_stored(args.out[0]), args.pool);
}
}  // namespace

const OpDef kSoftmax{.name = "softmax",
    .infer = infer_softmax,
    .gradient =
        [](const GradientArgs& args) {
          return args.add(kSoftmaxGrad, {args.out_grad[0], args.out[0]});
        },
    .decompose = decompose_softmax,
    .may_overwrite = overwrites_any,
    .storage = reduced<0b1, 0b1>};

// dx = y * (dy - sum(dy * y))
const OpDef kSoftmaxGrad{.name = "softmax_grad", .infer = infer_softmax_grad, .storage = reduced<0b11, 0b1>};

Tensor softmax(At x) { return op_result(kSoftmax, x); }

LINNET_KERNELS(softmax, {"simd", run_softmax, f32_or_all_reduced}, {"reference", run_softmax_reference})
LINNET_KERNELS(softmax_grad, {"simd", run_softmax_grad, f32_or_all_reduced}, {"reference", run_softmax_grad_reference})
}  // namespace linnet
