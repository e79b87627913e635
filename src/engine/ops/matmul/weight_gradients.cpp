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
    out.insert(out.end(), {{dy.dtype, {dy.shape[1], x.shape[1]}}, {dy.dtype, {dy.shape[1]}}});
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
    for (size_t i = 0; i < args.in.size(); i += 2) {
      const T *dy = args.in[i].as<T>(), *x = args.in[i + 1].as<T>();
      T *dw = args.out[i].as<T>(), *db = args.out[i + 1].as<T>();
      const int64_t rows = args.in[i].shape()[0], m = args.in[i].shape()[1], n = args.in[i + 1].shape()[1];
      for (int64_t j = 0; j < m; ++j) {
        for (int64_t k = 0; k < n; ++k)
          dw[j * n + k] = sum_of<T>(rows, [&](int64_t r) { return dy[r * m + j] * x[r * n + k]; });
        db[j] = sum_of<T>(rows, [&](int64_t r) { return dy[r * m + j]; });
      }
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
