#include "engine/ops/cumsum/cumsum.h"
#include <array>
#include "engine/kernels/parallel.h"
#include "engine/ops/graph_of.h"

namespace linnet {

namespace {

std::vector<TensorType> infer_cumsum(const InferArgs& args) {
  expect_inputs(args, 1);
  const int axis = args.attrs.as<CumsumAttrs>().axis;
  expect(is_float(args.in[0].dtype) && axis >= 0 && axis < args.in[0].shape.rank(),
         "got " + args.in[0].text() + " and axis " + std::to_string(axis));
  return {args.in[0]};
}

std::vector<Tensor> cumsum_gradient(const GradientArgs& args) {
  const auto& attrs = args.node.attrs.as<CumsumAttrs>();
  return {cumsum(args.out_grad[0], attrs.axis, !attrs.reverse)};
}

// Sums are kept in double precision, for so many neighbors at a time.
constexpr int64_t kColumns = 64;

template <class T>
void sum_columns(const T* x, T* y, int64_t size, int64_t stride, int64_t columns, bool reverse) {
  std::array<double, kColumns> sums{};
  for (int64_t k = 0; k < size; ++k) {
    const int64_t row = (reverse ? size - 1 - k : k) * stride;
    for (int64_t j = 0; j < columns; ++j) {
      sums[static_cast<size_t>(j)] += static_cast<double>(x[row + j]);
      y[row + j] = static_cast<T>(sums[static_cast<size_t>(j)]);
    }
  }
}

void run_cumsum(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<CumsumAttrs>();
  const Shape& shape = args.in[0].shape();
  const int64_t size = shape[attrs.axis], outer = shape.elements(0, attrs.axis),
                inner = shape.elements(attrs.axis + 1, shape.rank()), pieces = (inner + kColumns - 1) / kColumns;
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for_ranges(args.pool, outer * pieces, size * std::min(inner, kColumns), [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % pieces * kColumns, at = task / pieces * size * inner + first;
        sum_columns(args.in[0].as<const T>() + at, args.out[0].as<T>() + at, size, inner,
                    std::min(kColumns, inner - first), attrs.reverse);
      }
    });
  });
}

}  // namespace

const OpDef kCumsum{.name = "cumsum",
                    .infer = infer_cumsum,
                    .gradient = cumsum_gradient,
                    .may_overwrite = [](const Node&, int, int input) { return input == 0; }};

Tensor cumsum(At x, int axis, bool reverse) {
  Graph* graph = graph_of(x);
  if (axis < 0) axis += x.value.shape().rank();
  return graph->add_one(kCumsum, std::array{x.value}, CumsumAttrs{axis, reverse}, x.where);
}

LINNET_KERNELS(cumsum, {"reference", nullptr, nullptr, run_cumsum})

}  // namespace linnet
