// Gradients of several linear layers' weights and biases, in one launch on a GPU.
#include "engine/ops/matmul/matmul.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_weight_gradients(const InferArgs& args) {
  std::vector<TensorType> out;
  for (size_t i = 0; i + 1 < args.in.size(); i += 2) {
    const TensorType &dy = args.in[i], &x = args.in[i + 1];
    expect(dy.dtype == x.dtype && dy.shape.rank() == 2 && x.shape.rank() == 2 && dy.shape[0] == x.shape[0], "got ", dy,
        " and ", x, ", expected two matrices of as many rows");
    out.push_back({dy.dtype, {dy.shape[1], x.shape[1]}});
    if (args.attrs.as<WeightGradientsAttrs>().has_bias(i / 2)) out.push_back({dy.dtype, {dy.shape[1]}});
  }
  return out;
}

double weight_gradients_flops(const FlopsArgs& args) {
  double flops = 0;
  for (size_t i = 0; i < args.in.size(); i += 2)
    flops += 2.0 * static_cast<double>(args.in[i].shape.elements()) * static_cast<double>(args.in[i + 1].shape[1]);
  return flops;
}

void run_weight_gradients_reference(const KernelArgs& args) {
  for_float(args.out[0].type.dtype, [&]<class T>() {
    auto out = args.out.begin();
    for (size_t i = 0; i < args.in.size(); i += 2) {
      const T *dy = args.in[i].as<T>(), *x = args.in[i + 1].as<T>();
      const int64_t rows = args.in[i].shape()[0], m = args.in[i].shape()[1], n = args.in[i + 1].shape()[1];
      const auto sum = [&](int64_t row_of_weight, const auto& factor) {
        return sum_of<T>(rows, [&](int64_t r) { return dy[r * m + row_of_weight] * factor(r); });
      };
      for (int64_t at = 0; at < m * n; ++at)
        out->as<T>()[at] = sum(at / n, [&](int64_t r) { return x[r * n + at % n]; });
      ++out;
      if (!args.attrs<WeightGradientsAttrs>().has_bias(i / 2)) continue;
      for (int64_t j = 0; j < m; ++j) out->as<T>()[j] = sum(j, [](int64_t) { return T(1); });
      ++out;
    }
  });
}
}  // namespace

const OpDef kWeightGradients{.name = "weight_gradients",
    .infer = infer_weight_gradients,
    .storage =
        [](const Node& node) {
          return StorageRule{.out = std::vector(node.out.size(), Storage::kF32), .rest = Storage::kReduced};
        },
    .flops = weight_gradients_flops};

LINNET_KERNELS(weight_gradients, {"reference", run_weight_gradients_reference})
}  // namespace linnet
