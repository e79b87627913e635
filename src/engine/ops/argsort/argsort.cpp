#include "engine/ops/argsort/argsort.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include "engine/kernels/parallel.h"
#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_argsort(const InferArgs& args) {
  expect_inputs(args, 1);
  const TensorType& x = args.in[0];
  expect(is_float(x.dtype) && x.shape.rank() >= 1 && x.shape.elements() <= std::numeric_limits<int32_t>::max(),
         "got " + x.text());
  return {{DType::kI32, x.shape}};
}

template <class T>
void sort_row(const T* x, int64_t width, bool descending, int32_t* order) {
  std::iota(order, order + width, 0);
  const auto less = [](T a, T b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
  std::stable_sort(order, order + width,
                   [&](int32_t a, int32_t b) { return descending ? less(x[b], x[a]) : less(x[a], x[b]); });
}

void run_argsort_reference(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<ArgsortAttrs>();
  const int64_t width = args.in[0].shape()[-1];
  const int64_t rows = width > 0 ? args.in[0].elements() / width : 0;
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

const OpDef kArgsort{.name = "argsort", .infer = infer_argsort};

Tensor argsort_last(At x, bool descending, bool flat) {
  return graph_of(x)->add_one(kArgsort, std::array{x.value}, ArgsortAttrs{descending, flat}, x.where);
}

LINNET_KERNELS(argsort, {"reference", nullptr, nullptr, run_argsort_reference})

}  // namespace linnet
