#include "engine/ops/reduce/reduce.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include "base/functions.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/reduce/reduce.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_reduce(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ReduceAttrs>();
  expect(find_broadcast(attrs.shape, args.in[0].shape).has_value(), "cannot reduce ", args.in[0].shape, " to ",
      attrs.shape);
  expect(is_float(args.in[0].dtype), "got ", args.in[0], ", expected a float type");
  return {{args.in[0].dtype, attrs.shape}};
}

std::vector<Tensor> reduce_gradient(const GradientArgs& args) {
  const Tensor x = args.in[0], y = args.out[0], dy = args.out_grad[0];
  const auto shares = [&] {  // the largest elements share the gradient equally
    const Tensor largest = apply_scalar(Scalar::kEqual, x, broadcast_to(y, x.shape()));
    return largest * broadcast_to(dy / sum_to(largest, y.shape()), x.shape());
  };
  switch (args.attrs<ReduceAttrs>().kind) {
    case Reduction::kSum: return {broadcast_to(dy, x.shape())};
    case Reduction::kMax: return {shares()};
    case Reduction::kLogSumExp: return {exp(x - y) * dy};
  }
  return {};
}

std::vector<TensorType> infer_cumsum(const InferArgs& args) {
  const int axis = args.attrs.as<CumsumAttrs>().axis;
  expect(is_float(args.in[0].dtype) && axis >= 0 && axis < args.in[0].shape.rank(), "got ", args.in[0], " and axis ",
      axis);
  return {args.in[0]};
}

std::vector<Tensor> cumsum_gradient(const GradientArgs& args) {
  const auto& attrs = args.attrs<CumsumAttrs>();
  return {cumsum(args.out_grad[0], attrs.axis, !attrs.reverse)};
}

// One run of axes at a time, the last first.
Tensor reduce(At x, Reduction kind, const Shape& shape) {
  Tensor y = x.value;
  if (y.shape() == shape) return y;
  const std::vector<Shape> steps = broadcast_steps(shape, y.shape());
  for (size_t i = steps.size() - 1; i-- > 0;) y = op_result(kReduce, At(y, x.where), {}, ReduceAttrs{kind, steps[i]});
  return y;
}

template <class T> T reduce_line(Reduction kind, const T* x, int64_t count, int64_t stride) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  if (kind != Reduction::kSum)
    for (int64_t i = 0; i < count; ++i)
      top = std::isnan(x[i * stride]) ? x[i * stride] : std::max<double>(top, x[i * stride]);
  if (kind == Reduction::kMax) return static_cast<T>(top);
  if (kind == Reduction::kLogSumExp && std::isinf(top)) return static_cast<T>(top);
  for (int64_t i = 0; i < count; ++i) sum += kind == Reduction::kSum ? x[i * stride] : std::exp(x[i * stride] - top);
  return static_cast<T>(kind == Reduction::kSum ? sum : top + std::log(sum));
}

void run_reduce_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<ReduceAttrs>();
  const auto [outer, rows, width] = reduction_sizes(attrs.shape, args.in[0].shape());
  for_float(args.in[0].type.dtype, [&, rows = rows, width = width]<class T>() {
    for (int64_t i = 0; i < args.out[0].elements(); ++i) {
      const T* x = args.in[0].as<const T>() + i / width * rows * width + i % width;
      args.out[0].as<T>()[i] = reduce_line(attrs.kind, x, rows, width);
    }
  });
}

ReductionSizes sizes_of(const KernelQuery& query) { return reduction_sizes(query.out[0].shape, query.in[0].shape); }
ReductionSizes sizes_of(const KernelArgs& args) { return reduction_sizes(args.out[0].shape(), args.in[0].shape()); }

bool is_sum(const KernelQuery& query) {
  return all_f32_or_bf16(query) && query.out[0].dtype == DType::kF32 &&
         query.attrs<ReduceAttrs>().kind == Reduction::kSum;
}

size_t sum_bytes(const KernelQuery& query) {
  const auto [outer, rows, width] = sizes_of(query);
  return sums_leading_axes(query.out[0].shape, query.in[0].shape) ? sum_rows_workspace(rows, width)
                                                                  : pointwise_sum_workspace(outer, rows, width);
}

void run_sum(const KernelArgs& args) {
  const auto [outer, rows, width] = sizes_of(args);
  auto* out = args.out[0].as<float>();
  if (sums_leading_axes(args.out[0].shape(), args.in[0].shape()))
    return sum_rows(rows, width, stored(args.in[0]), out, args.workspace, args.pool);
  static const Expression operand{{{.function = Scalar::kInput, .a = 0}}};
  const PointwiseOperand x{stored(args.in[0]), args.in[0].elements(), Broadcast::kFull};
  pointwise_sum(outer, rows, width, operand, std::span(&x, 1), out, args.workspace, args.pool);
}

bool is_column_maximum(const KernelQuery& query) {
  return all_f32(query) && query.attrs<ReduceAttrs>().kind == Reduction::kMax && sizes_of(query).width > 1;
}

bool is_of_rows(const KernelQuery& query) {
  return all_f32(query) && query.attrs<ReduceAttrs>().kind != Reduction::kSum && sizes_of(query).width == 1;
}

void run_of_rows(const KernelArgs& args) {
  const auto [rows, width, one] = sizes_of(args);
  (args.attrs<ReduceAttrs>().kind == Reduction::kMax ? row_maxima : log_sum_exp_rows)(
      rows, width, args.in[0].as<float>(), args.out[0].as<float>(), args.pool);
}

// Columns that are reduced together; sums in double.
constexpr int64_t kColumns = 64;

[[gnu::noinline]] void max_columns(const float* x, float* y, int64_t rows, int64_t stride, int64_t columns) {
  std::fill_n(y, columns, -std::numeric_limits<float>::infinity());
  for (int64_t k = 0; k < rows; ++k, x += stride)
    for (int64_t j = 0; j < columns; ++j) y[j] = x[j] > y[j] || x[j] != x[j] ? x[j] : y[j];
}

void run_column_maximum(const KernelArgs& args) {
  const auto [outer, rows, width] = sizes_of(args);
  const int64_t pieces = ceil_div(width, kColumns);
  for_each_index(
      args.pool, outer * pieces, rows * std::min(width, kColumns), [&, rows = rows, width = width](int64_t task) {
        const int64_t at = task / pieces, first = task % pieces * kColumns;
        max_columns(args.in[0].as<const float>() + at * rows * width + first,
            args.out[0].as<float>() + at * width + first, rows, width, std::min(kColumns, width - first));
      });
}

template <class T> void sum_columns(const T* x, T* y, int64_t size, int64_t stride, int64_t columns, bool reverse) {
  std::array<double, kColumns> sums{};
  for (int64_t k = 0; k < size; ++k) {
    const int64_t row = (reverse ? size - 1 - k : k) * stride;
    for (int64_t j = 0; j < columns; ++j) {
      sums[j] += static_cast<double>(x[row + j]);
      y[row + j] = static_cast<T>(sums[j]);
    }
  }
}

void run_cumsum(const KernelArgs& args) {
  const auto& attrs = args.attrs<CumsumAttrs>();
  const Shape& shape = args.in[0].shape();
  const int64_t size = shape[attrs.axis], outer = shape.elements(0, attrs.axis),
                inner = shape.elements(attrs.axis + 1, shape.rank()), pieces = ceil_div(inner, kColumns);
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for_each_index(args.pool, outer * pieces, size * std::min(inner, kColumns), [&](int64_t task) {
      const int64_t first = task % pieces * kColumns, at = task / pieces * size * inner + first;
      sum_columns(args.in[0].as<const T>() + at, args.out[0].as<T>() + at, size, inner,
          std::min(kColumns, inner - first), attrs.reverse);
    });
  });
}

std::vector<TensorType> infer_argmax(const InferArgs& args) {
  const TensorType& x = args.in[0];
  expect(is_float(x.dtype) && x.shape.rank() >= 1 && x.shape[-1] >= 1, "got ", x);
  return {{DType::kI32, leading_axes(x.shape)}};
}

std::vector<TensorType> infer_argsort(const InferArgs& args) {
  const TensorType& x = args.in[0];
  const auto& attrs = args.attrs.as<ArgsortAttrs>();
  expect(is_float(x.dtype) && x.shape.rank() >= 1 && x.shape.elements() <= std::numeric_limits<int32_t>::max() &&
             attrs.count <= x.shape[-1],
      "got ", x);
  return {{DType::kI32, with_size(x.shape, -1, attrs.count_of(x.shape))}};
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
    for_each_index(args.pool, args.out[0].elements(), width, [&](int64_t row) {
      args.out[0].as<int32_t>()[row] = argmax_row(args.in[0].as<const T>() + row * width, width);
    });
  });
}

// A number that is larger for larger x. Both zeros have the same, and so have all NaN, which are largest.
uint64_t place_of(double x) {
  if (std::isnan(x)) return ~uint64_t{0};
  const auto bits = std::bit_cast<uint64_t>(x + 0.0);  // -0 becomes 0
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}

void run_argsort_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<ArgsortAttrs>();
  const int64_t width = args.in[0].shape()[-1], rows = width > 0 ? args.in[0].elements() / width : 0;
  const int64_t count = attrs.count_of(args.in[0].shape());
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for_each_index(args.pool, rows, width * 8, [&](int64_t row) {
      const T* x = args.in[0].as<const T>() + row * width;
      std::vector<std::pair<uint64_t, int32_t>> places(width);
      for (int32_t k = 0; k < width; ++k) places[k] = {attrs.descending ? ~place_of(x[k]) : place_of(x[k]), k};
      if (count < width) std::partial_sort(places.begin(), places.begin() + count, places.end());
      else std::ranges::sort(places);
      const auto shift = static_cast<int32_t>(attrs.flat ? row * width : 0);
      for (int64_t k = 0; k < count; ++k) args.out[0].as<int32_t>()[row * count + k] = places[k].second + shift;
    });
  });
}

std::vector<TensorType> infer_softmax(const InferArgs& args) {
  expect(args.in[0].shape.rank() >= 1 && is_float(args.in[0].dtype), "got ", args.in[0]);
  return {args.in[0]};
}

std::vector<TensorType> infer_softmax_grad(const InferArgs& args) {
  expect(args.in[0] == args.in[1], "got ", args.in[0], " and ", args.in[1]);
  return {args.in[0]};
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
      const double sum = sum_of<double>(width, [&](int64_t j) { return static_cast<double>(dy[j]) * y[j]; });
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

const OpDef kReduce{
    .name = "reduce", .infer = takes<1, infer_reduce>, .gradient = reduce_gradient, .storage = [](const Node&) {
      return StorageRule{.rest = Storage::kAny};
    }};

const OpDef kCumsum{
    .name = "cumsum", .infer = takes<1, infer_cumsum>, .gradient = cumsum_gradient, .may_overwrite = overwrites_first};

Tensor sum_to(At x, const Shape& shape) { return reduce(x, Reduction::kSum, shape); }
Tensor sum_last(At x) { return sum_to(x, with_size(x.value.shape(), -1, 1)); }
Tensor max_to(At x, const Shape& shape) { return reduce(x, Reduction::kMax, shape); }
Tensor max_last(At x) { return reduce(x, Reduction::kMax, with_size(x.value.shape(), -1, 1)); }
Tensor log_sum_exp_last(At x) { return reduce(x, Reduction::kLogSumExp, with_size(x.value.shape(), -1, 1)); }

Tensor cumsum(At x, int axis, bool reverse) {
  return op_result(kCumsum, x, {}, CumsumAttrs{from_start(x, axis), reverse});
}

const OpDef kArgmax{.name = "argmax", .infer = takes<1, infer_argmax>};
const OpDef kArgsort{.name = "argsort", .infer = takes<1, infer_argsort>};

Tensor argmax_last(At x) { return op_result(kArgmax, x); }

Tensor argsort_last(At x, bool descending, bool flat, int64_t count) {
  return op_result(kArgsort, x, {}, ArgsortAttrs{descending, flat, count});
}

LINNET_KERNELS(cumsum, {"reference", run_cumsum})
LINNET_KERNELS(reduce, {"sum", run_sum, is_sum, sum_bytes}, {"column_maximum", run_column_maximum, is_column_maximum},
    {"of_rows", run_of_rows, is_of_rows}, {"reference", run_reduce_reference})
LINNET_KERNELS(argmax, {"reference", run_argmax_reference})
LINNET_KERNELS(argsort, {"reference", run_argsort_reference})

const OpDef kSoftmax{.name = "softmax",
    .infer = takes<1, infer_softmax>,
    .gradient =
        [](const GradientArgs& args) {
          return args.add(kSoftmaxGrad, {args.out_grad[0], args.out[0]});
        },
    .decompose = [](const DecomposeArgs& args) -> std::vector<Tensor> {
      const Tensor e = exp(args.in[0] - max_last(args.in[0]));
      return {e / sum_last(e)};
    },
    .may_overwrite = overwrites_any,
    .storage = reduced<0b1, 0b1>};

// dx = y * (dy - sum(dy * y))
const OpDef kSoftmaxGrad{.name = "softmax_grad", .infer = takes<2, infer_softmax_grad>, .storage = reduced<0b11, 0b1>};

Tensor softmax(At x) { return op_result(kSoftmax, x); }

LINNET_KERNELS(softmax, {"simd", run_softmax, f32_or_all_reduced}, {"reference", run_softmax_reference})
LINNET_KERNELS(softmax_grad, {"simd", run_softmax_grad, f32_or_all_reduced}, {"reference", run_softmax_grad_reference})
}  // namespace linnet
