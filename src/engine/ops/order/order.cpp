#include "engine/ops/order/order.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include "engine/kernels/parallel.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_argmax(const InferArgs& args) {
  expect_inputs(args, 1);
  const TensorType& x = args.in[0];
  expect(is_float(x.dtype) && x.shape.rank() >= 1 && x.shape[-1] >= 1, "got ", x);
  return {{DType::kI32, leading_axes(x.shape)}};
}

std::vector<TensorType> infer_argsort(const InferArgs& args) {
  expect_inputs(args, 1);
  const TensorType& x = args.in[0];
  expect(
      is_float(x.dtype) && x.shape.rank() >= 1 && x.shape.elements() <= std::numeric_limits<int32_t>::max(), "got ", x);
  return {{DType::kI32, x.shape}};
}

template <class T> int32_t argmax_row(const T* x, int64_t width) {
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

template <class T> void sort_row(const T* x, int64_t width, bool descending, int32_t* order) {
  std::iota(order, order + width, 0);
  const auto less = [](T a, T b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
  std::stable_sort(
      order, order + width, [&](int32_t a, int32_t b) { return descending ? less(x[b], x[a]) : less(x[a], x[b]); });
}

void run_argsort_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<ArgsortAttrs>();
  const int64_t width = args.in[0].shape()[-1], rows = width > 0 ? args.in[0].elements() / width : 0;
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for_ranges(args.pool, rows, width * 8, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int32_t* order = args.out[0].as<int32_t>() + row * width;
        sort_row(args.in[0].as<const T>() + row * width, width, attrs.descending, order);
        if (attrs.flat)
          for (int64_t k = 0; k < width; ++k) order[k] += static_cast<int32_t>(row * width);
      }
    });
  });
}
}  // namespace

const OpDef kArgmax{.name = "argmax", .infer = infer_argmax};
const OpDef kArgsort{.name = "argsort", .infer = infer_argsort};

Tensor argmax_last(At x) { return op_result(kArgmax, x); }

Tensor argsort_last(At x, bool descending, bool flat) {
  return op_result(kArgsort, x, {}, ArgsortAttrs{descending, flat});
}

LINNET_KERNELS(argmax, {"reference", nullptr, nullptr, run_argmax_reference})
LINNET_KERNELS(argsort, {"reference", nullptr, nullptr, run_argsort_reference})
}  // namespace linnet
