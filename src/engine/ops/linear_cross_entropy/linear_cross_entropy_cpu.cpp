#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
#include "distributed/comm/tensor_group.h"
#include "engine/kernels/loss/linear_cross_entropy.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"

namespace linnet {
namespace {

void check_linear_cross_entropy_targets(const TensorView& targets, int64_t classes) {
  const int32_t* target = targets.as<const int32_t>();
  for (int64_t i = 0; i < targets.elements(); ++i)
    if (target[i] >= classes)
      fail_user("target id " + std::to_string(target[i]) + " is outside the vocabulary of " + std::to_string(classes));
}

const TensorView* accumulator(const KernelArgs& args) {
  return args.attrs<LinearCrossEntropyAttrs>().accumulate ? &args.in.back() : nullptr;
}

// An operand as the products see it.
double linear_cross_entropy_rounded(float x, Precision precision) {
  return precision == Precision::kBf16 ? round_to_bf16(x) : x;
}
double linear_cross_entropy_rounded(double x, Precision) { return x; }

const Shape& weight_shape(const KernelArgs& args) {
  return args.attrs<LinearCrossEntropyAttrs>().weight_shape(args.in[1].type);
}

PackedWeight packed_weight(const KernelArgs& args) {
  return {args.attrs<LinearCrossEntropyAttrs>().weight.packed(), args.in[1].as<const std::byte>()};
}

// The weight's numbers, unpacked for a reference.
template <class T>
class Weight {
 public:
  explicit Weight(const KernelArgs& args) : data_(args.in[1].as<T>()) {
    if (!args.attrs<LinearCrossEntropyAttrs>().packed) return;
    const PackedWeight weight = packed_weight(args);
    std::vector<float> row(static_cast<size_t>(weight.shape.columns));
    for (int64_t i = 0; i < weight.shape.rows; ++i) {
      dequantize_row(weight, i, row.data());
      unpacked_.insert(unpacked_.end(), row.begin(), row.end());
    }
    data_ = unpacked_.data();
  }
  const T* data() const { return data_; }

 private:
  std::vector<T> unpacked_;
  const T* data_;
};

// The logits of one row, in double, and what follows from them.
struct RowLoss {
  double* x;  // [classes]
  double lse, loss;

  template <class T>
  RowLoss(const KernelArgs& args, const T* weight, const T* hidden, int32_t target)
      : x(reinterpret_cast<double*>(args.workspace)) {
    const auto& attrs = args.attrs<LinearCrossEntropyAttrs>();
    const int64_t classes = weight_shape(args)[0], width = weight_shape(args)[1];
    double sum = 0, mean = 0;
    for (int64_t j = 0; j < classes; ++j) {
      x[j] = attrs.bias ? static_cast<double>(args.in[3].as<T>()[j]) : 0.0;
      for (int64_t d = 0; d < width; ++d)
        x[j] += linear_cross_entropy_rounded(hidden[d], attrs.precision) *
                linear_cross_entropy_rounded(weight[j * width + d], attrs.precision);
      mean += x[j] / static_cast<double>(classes);
    }
    const double top = *std::max_element(x, x + classes);
    for (int64_t j = 0; j < classes; ++j) sum += std::exp(x[j] - top);
    lse = top + std::log(sum);
    loss = lse - (1 - attrs.label_smoothing) * x[target] - attrs.label_smoothing * mean;
  }
};

size_t reference_workspace(const KernelQuery& query) {
  const auto& attrs = query.attrs<LinearCrossEntropyAttrs>();
  return static_cast<size_t>(attrs.weight_shape(query.in[1])[0]) * sizeof(double);
}

// The reference computes a row by itself.
void expect_all_classes(const KernelArgs& args) {
  if (args.attrs<LinearCrossEntropyAttrs>().all_classes > 0)
    fail_internal("the reference of linear_cross_entropy was given classes that ranks divide");
}

void run_linear_cross_entropy_reference(const KernelArgs& args) {
  expect_all_classes(args);
  check_linear_cross_entropy_targets(args.in[2], weight_shape(args)[0]);
  for_float(args.out[0].type.dtype, [&]<class T>() {
    const Weight<T> weight(args);
    double total = 0;
    for (int64_t r = 0; r < args.in[2].elements(); ++r)
      if (const int32_t target = args.in[2].as<int32_t>()[r]; target >= 0)
        total += RowLoss(args, weight.data(), args.in[0].as<T>() + r * weight_shape(args)[1], target).loss;
    args.out[0].as<T>()[0] = static_cast<T>(total);
  });
}

template <class T>
void linear_cross_entropy_grad_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<LinearCrossEntropyAttrs>();
  const int64_t classes = weight_shape(args)[0], width = weight_shape(args)[1];
  const Weight<T> unpacked(args);
  const T *weight = unpacked.data(), dloss = args.in[3 + attrs.bias].as<T>()[0];
  T* dweight = attrs.weight_gradient ? args.out[1].as<T>() : nullptr;
  T* dbias = attrs.bias ? args.out[1 + attrs.weight_gradient].as<T>() : nullptr;
  if (const TensorView* start = accumulator(args)) std::copy_n(start->as<T>(), classes * width, dweight);
  else if (dweight) std::fill_n(dweight, classes * width, T(0));
  if (dbias) std::fill_n(dbias, classes, T(0));
  double total = 0;
  for (int64_t r = 0; r < args.in[2].elements(); ++r) {
    const T* hidden = args.in[0].as<T>() + r * width;
    T* dhidden = args.out[0].as<T>() + r * width;
    const int32_t target = args.in[2].as<int32_t>()[r];
    if (target < 0) {
      std::fill_n(dhidden, width, T(0));
      continue;
    }
    const RowLoss row(args, weight, hidden, target);
    total += row.loss;
    for (int64_t j = 0; j < classes; ++j) {
      const double goal =
          (j == target ? 1 - attrs.label_smoothing : 0) + attrs.label_smoothing / static_cast<double>(classes);
      const T slope = static_cast<T>(dloss * (std::exp(row.x[j] - row.lse) - goal));
      if (dbias) dbias[j] += slope;
      row.x[j] = linear_cross_entropy_rounded(slope, attrs.precision);
      for (int64_t d = 0; dweight && d < width; ++d)
        dweight[j * width + d] += static_cast<T>(row.x[j] * linear_cross_entropy_rounded(hidden[d], attrs.precision));
    }
    for (int64_t d = 0; d < width; ++d) {  // may be written over the row of hidden
      double sum = 0;
      for (int64_t j = 0; j < classes; ++j)
        sum += row.x[j] * linear_cross_entropy_rounded(weight[j * width + d], attrs.precision);
      dhidden[d] = static_cast<T>(sum);
    }
  }
  if (attrs.loss) args.out.back().as<T>()[0] = static_cast<T>(total);
}

void run_linear_cross_entropy_grad_reference(const KernelArgs& args) {
  expect_all_classes(args);
  check_linear_cross_entropy_targets(args.in[2], weight_shape(args)[0]);
  for_float(args.out[0].type.dtype, [&]<class T>() { linear_cross_entropy_grad_reference<T>(args); });
}

ClassDivision division_of(const LinearCrossEntropyAttrs& attrs) {
  return {attrs.all_classes, attrs.first_class, attrs.ranks};
}

size_t linear_cross_entropy_workspace(const KernelQuery& query) {
  const auto& attrs = query.attrs<LinearCrossEntropyAttrs>();
  const Shape& weight = attrs.weight_shape(query.in[1]);
  const std::optional<PackedShape> packed = attrs.packed ? std::optional(attrs.weight.packed()) : std::nullopt;
  return linear_cross_entropy_workspace(query.in[2].shape.elements(), weight[1], weight[0], packed, attrs.precision,
                                        query.in[0].dtype == DType::kBF16, query.threads, division_of(attrs));
}

LinearCrossEntropyArgs operands(const KernelArgs& args) {
  const auto& attrs = args.attrs<LinearCrossEntropyAttrs>();
  LinearCrossEntropyArgs call;
  call.rows = args.in[2].elements(), call.width = weight_shape(args)[1], call.classes = weight_shape(args)[0];
  call.hidden = stored(args.in[0]), call.targets = args.in[2].as<int32_t>();
  if (attrs.packed) call.packed = packed_weight(args);
  else call.weight = args.in[1].as<float>();
  call.bias = attrs.bias ? args.in[3].as<float>() : nullptr;
  call.precision = attrs.precision;
  call.smoothing = static_cast<float>(attrs.label_smoothing);
  call.division = division_of(attrs);
  check_linear_cross_entropy_targets(args.in[2], std::max(call.classes, attrs.all_classes));
  return call;
}

void run_call(LinearCrossEntropyArgs& call, const KernelArgs& args) {
  const auto gather = [&](std::span<const float> mine, std::span<float> all) {
    all_gather(checked_group(args.tensor_group, call.division.ranks), std::as_bytes(std::span(mine)),
               std::as_writable_bytes(std::span(all)));
  };
  const GatherNumbers gather_numbers(gather);
  call.gather = &gather_numbers;
  linear_cross_entropy(call, args.workspace, args.pool);
}

void run_linear_cross_entropy(const KernelArgs& args) {
  LinearCrossEntropyArgs call = operands(args);
  call.loss = args.out[0].as<float>();
  run_call(call, args);
}

void run_linear_cross_entropy_grad(const KernelArgs& args) {
  const auto& attrs = args.attrs<LinearCrossEntropyAttrs>();
  LinearCrossEntropyArgs call = operands(args);
  call.dloss = args.in[3 + attrs.bias].as<float>()[0];
  call.dhidden = mutable_stored(args.out[0]);
  call.dweight = attrs.weight_gradient ? args.out[1].as<float>() : nullptr;
  call.dbias = attrs.bias ? args.out[1 + attrs.weight_gradient].as<float>() : nullptr;
  call.loss = attrs.loss ? args.out.back().as<float>() : nullptr;
  if (const TensorView* start = accumulator(args)) {
    call.accumulate = true;
    if (start->data != args.out[1].data) std::memcpy(args.out[1].data, start->data, start->type.bytes());
  }
  run_call(call, args);
}

// The weight is fp32: the parameters are.
bool supports_linear_cross_entropy(const KernelQuery& query) {
  return f32_or_reduced(query) && query.in[1].dtype != DType::kBF16;
}

}  // namespace

LINNET_KERNELS(linear_cross_entropy,
               {"chunked", supports_linear_cross_entropy, linear_cross_entropy_workspace, run_linear_cross_entropy},
               {"reference", nullptr, reference_workspace, run_linear_cross_entropy_reference})
LINNET_KERNELS(linear_cross_entropy_grad,
               {"chunked", supports_linear_cross_entropy, linear_cross_entropy_workspace,
                run_linear_cross_entropy_grad},
               {"reference", nullptr, reference_workspace, run_linear_cross_entropy_grad_reference})

}  // namespace linnet
