#include "engine/ops/argmax/argmax.h"
#include <cmath>
#include "engine/kernels/parallel.h"
#include "engine/ops/graph_of.h"

namespace linnet {

namespace {

std::vector<TensorType> infer_argmax(const InferArgs& args) {
  expect_inputs(args, 1);
  const TensorType& x = args.in[0];
  expect(is_float(x.dtype) && x.shape.rank() >= 1 && x.shape[-1] >= 1, "got " + x.text());
  return {{DType::kI32, Shape(x.shape.sizes().first(static_cast<size_t>(x.shape.rank() - 1)))}};
}

template <class T>
int32_t argmax_row(const T* x, int64_t width) {
  int64_t best = 0;
  for (int64_t j = 0; j < width; ++j) {
    if (std::isnan(x[j])) return static_cast<int32_t>(j);
    if (x[j] > x[best]) best = j;
  }
  return static_cast<int32_t>(best);
}

void run_argmax_reference(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1];
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for_ranges(args.pool, args.out[0].elements(), width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        args.out[0].as<int32_t>()[row] = argmax_row(args.in[0].as<const T>() + row * width, width);
    });
  });
}

}  // namespace

const OpDef kArgmax{.name = "argmax", .infer = infer_argmax};

Tensor argmax_last(At x) { return graph_of(x)->add_one(kArgmax, std::array{x.value}, {}, x.where); }

LINNET_KERNELS(argmax, {"reference", nullptr, nullptr, run_argmax_reference})

}  // namespace linnet
