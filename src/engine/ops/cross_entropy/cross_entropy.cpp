#include "engine/ops/cross_entropy/cross_entropy.h"
#include <algorithm>
#include <cmath>
#include "distributed/comm/tensor_group.h"
#include "engine/kernels/loss/cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
void check_targets(const TensorView& targets, int64_t classes) {
  for (const int32_t target : targets.numbers<int32_t>())
    if (target >= classes) fail_user("target id ", target, " is outside the vocabulary of ", classes);
}

std::vector<TensorType> infer_cross_entropy(const InferArgs& args) {
  const TensorType &logits = args.in[0], &targets = args.in[1];
  expect(logits.shape.rank() >= 1 && is_float(logits.dtype), "got logits ", logits);
  const Shape rows = leading_axes(logits.shape);
  expect(targets == TensorType{DType::kI32, rows}, "got logits ", logits, " and targets ", targets,
      ", expected i32 targets of shape ", rows);
  const DType full = full_type(logits.dtype);
  return {{full, {}}, {full, {rows.elements()}}};
}

std::vector<TensorType> infer_one_hot(const InferArgs& args) {
  expect(args.in[0].dtype == DType::kI32, "got ", args.in[0], ", expected i32");
  const auto& [classes, dtype] = args.attrs.as<OneHotAttrs>();
  expect(classes > 0, classes, " classes; there is at least one");
  return {{dtype, with_axes(args.in[0].shape, {classes})}};
}

// Multiplies rows without a target away.
std::vector<Tensor> decompose_cross_entropy(const DecomposeArgs& args) {
  const Tensor x = args.in[0];
  const double smoothing = args.attrs<CrossEntropyAttrs>().label_smoothing;
  const int64_t classes = x.dim(-1);
  const Tensor target = one_hot(args.in[1], classes, x.type().dtype), lse = log_sum_exp_last(x);
  const Shape row = lse.shape();
  const Tensor valid = sum_to(target, row), picked = sum_to(target * x, row);
  const Tensor mean = sum_to(x, row) * (1.0 / static_cast<double>(classes));
  const Tensor losses = valid * (lse - picked * (1 - smoothing) - mean * smoothing);
  return {sum_to(losses, {}), reshape(lse, {row.elements()})};
}

std::vector<TensorType> infer_cross_entropy_mask(const InferArgs& args) {
  const TensorType &targets = args.in[0], &lengths = args.in[1];
  expect(targets.dtype == DType::kI32 && targets.shape.rank() == 2, "got targets ", targets, ", expected i32 [B, T]");
  expect(lengths == TensorType{DType::kI32, {targets.shape[0]}}, "got lengths ", lengths);
  return {targets};
}

std::vector<TensorType> infer_count(const InferArgs& args) {
  expect(args.in[0].dtype == DType::kI32, "got ", args.in[0], ", expected i32");
  return {{args.attrs.as<CountAttrs>().dtype, {}}};
}

double smoothing_of(const KernelArgs& args) { return args.attrs<CrossEntropyAttrs>().label_smoothing; }

void run_cross_entropy_reference(const KernelArgs& args) {
  const int64_t classes = args.in[0].shape()[-1], rows = args.out[1].elements();
  const double smoothing = smoothing_of(args);
  check_targets(args.in[1], classes);
  for_float(args.in[0].type.dtype, [&]<class T>() {
    double total = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = args.in[0].as<T>() + r * classes;
      const int32_t target = args.in[1].as<int32_t>()[r];
      const double top = *std::max_element(x, x + classes);
      double sum = 0, mean = 0;
      for (int64_t j = 0; j < classes; ++j) sum += std::exp(x[j] - top), mean += x[j];
      const double lse = top + std::log(sum);
      args.out[1].as<T>()[r] = static_cast<T>(lse);
      if (target >= 0) total += lse - (1 - smoothing) * x[target] - smoothing * mean / static_cast<double>(classes);
    }
    args.out[0].as<T>()[0] = static_cast<T>(total);
  });
}

// dlogits = dloss * (softmax - (1 - s) * onehot(target) - s / V)
void run_cross_entropy_grad_reference(const KernelArgs& args) {
  const int64_t classes = args.in[0].shape()[-1], rows = args.in[2].elements();
  const double smoothing = smoothing_of(args);
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const double scale = args.in[3].as<T>()[0];
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = args.in[0].as<T>() + r * classes;
      T* dx = args.out[0].as<T>() + r * classes;
      const int32_t target = args.in[1].as<int32_t>()[r];
      const double lse = args.in[2].as<T>()[r];
      for (int64_t j = 0; j < classes; ++j) {
        const double goal = (j == target ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
        dx[j] = static_cast<T>(target < 0 ? 0 : scale * (std::exp(x[j] - lse) - goal));
      }
    }
  });
}

size_t cross_entropy_workspace(const KernelQuery& query) { return bytes_for<float>(query.out[1].shape.elements()); }

void run_cross_entropy(const KernelArgs& args) {
  const int64_t classes = args.in[0].shape()[-1], rows = args.out[1].elements();
  check_targets(args.in[1], classes);
  float* losses = reinterpret_cast<float*>(args.workspace);
  cross_entropy_forward(rows, classes, stored(args.in[0]), args.in[1].as<int32_t>(),
      static_cast<float>(smoothing_of(args)), losses, args.out[1].as<float>(), args.pool);
  args.out[0].as<float>()[0] = static_cast<float>(sum_of<double>(rows, [&](int64_t r) { return losses[r]; }));
}

void run_cross_entropy_grad(const KernelArgs& args) {
  cross_entropy_backward(args.in[2].elements(), args.in[0].shape()[-1], stored(args.in[0]), args.in[1].as<int32_t>(),
      static_cast<float>(smoothing_of(args)), args.in[2].as<float>(), args.in[3].as<float>()[0],
      mutable_stored(args.out[0]), args.pool);
}

void run_cross_entropy_mask(const KernelArgs& args) {
  const int64_t batch = args.in[0].shape()[0], length = args.in[0].shape()[1];
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < length; ++t)
      args.out[0].as<int32_t>()[b * length + t] =
          t < args.in[1].as<int32_t>()[b] ? args.in[0].as<int32_t>()[b * length + t] : -1;
}

void run_count(const KernelArgs& args) {
  const int32_t* target = args.in[0].as<int32_t>();
  const auto count = std::count_if(target, target + args.in[0].elements(), [](int32_t t) { return t >= 0; });
  for_float(args.out[0].type.dtype, [&]<class T>() { args.out[0].as<T>()[0] = static_cast<T>(count); });
}

void run_one_hot(const KernelArgs& args) {
  const int64_t classes = args.out[0].shape()[-1];
  check_targets(args.in[0], classes);
  std::memset(args.out[0].data, 0, args.out[0].type.bytes());
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < args.in[0].elements(); ++i)
      if (const int32_t target = args.in[0].as<int32_t>()[i]; target >= 0)
        args.out[0].as<T>()[i * classes + target] = 1;
  });
}

void linear_cross_entropy_expect_operands(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LinearCrossEntropyAttrs>();
  const TensorType &hidden = args.in[0], &targets = args.in[2];
  if (attrs.packed) expect_packed(args.in[1], attrs.weight);
  const TensorType weight = attrs.packed ? TensorType{hidden.dtype, attrs.weight.weight.shape} : args.in[1];
  const std::string both = "got " + hidden.text() + " and weight " + weight.text();
  expect(is_float(hidden.dtype) && hidden.dtype == weight.dtype && hidden.shape.rank() >= 1, both);
  expect(weight.shape.rank() == 2 && weight.shape[1] == hidden.shape[-1], both, ", expected [V, D]");
  const Shape rows = leading_axes(hidden.shape);
  expect(targets == TensorType{DType::kI32, rows}, "got ", hidden, " and targets ", targets,
      ", expected i32 targets of shape ", rows);
  if (attrs.bias)
    expect(args.in[3] == TensorType{weight.dtype, {weight.shape[0]}}, "got weight ", weight, " and bias ", args.in[3]);
}

std::vector<TensorType> infer_linear_cross_entropy(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LinearCrossEntropyAttrs>();
  expect_inputs(args, 3 + attrs.bias);
  linear_cross_entropy_expect_operands(args);
  return {{args.in[0].dtype, {}}};
}

std::vector<TensorType> infer_linear_cross_entropy_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LinearCrossEntropyAttrs>();
  expect_inputs(args, 4 + attrs.bias + attrs.accumulate);
  linear_cross_entropy_expect_operands(args);
  expect(attrs.weight_gradient || !attrs.accumulate, "a gradient of a weight that is frozen");
  const TensorType scalar{args.in[0].dtype, {}}, dloss = args.in[3 + attrs.bias];
  expect(dloss == scalar, "got a gradient of type ", dloss);
  const TensorType weight{args.in[0].dtype, attrs.weight_shape(args.in[1])};
  if (attrs.accumulate) expect(args.in.back() == weight, "accumulator of type ", args.in.back());
  std::vector<TensorType> out{args.in[0]};
  if (attrs.weight_gradient) out.push_back(weight);
  if (attrs.bias) out.push_back(args.in[3]);
  if (attrs.loss) out.push_back(scalar);
  return out;
}

// With p = dloss * (softmax(x) - (1 - s) * onehot(target) - s / V), 0 in skipped rows:
//   dhidden = p weight,  dweight = p^T hidden,  dbias = sum of p's rows
std::vector<Tensor> linear_cross_entropy_gradient(const GradientArgs& args) {
  auto attrs = args.attrs<LinearCrossEntropyAttrs>();
  attrs.weight_gradient = args.wanted[1] != 0;
  const auto out = args.add(kLinearCrossEntropyGrad, with_more({args.in.begin(), args.in.end()}, args.out_grad), attrs);
  std::vector<Tensor> gradients{out[0], attrs.weight_gradient ? out[1] : Tensor{}, Tensor{}};
  if (attrs.bias) gradients.push_back(out.back());
  return gradients;
}

std::vector<Tensor> decompose_linear_cross_entropy(const DecomposeArgs& args) {
  const auto& attrs = args.attrs<LinearCrossEntropyAttrs>();
  const Tensor weight =
      attrs.packed ? dequantize(args.in[1], attrs.weight.packed(), args.in[0].type().dtype) : args.in[1];
  Tensor logits = matmul(args.in[0], weight, false, true);
  if (attrs.bias) logits = logits + args.in[3];
  return {cross_entropy_sum(logits, args.in[2], attrs.label_smoothing)};
}

// A chunk's part of dhidden is written after its hidden states were read for the last time.
bool linear_cross_entropy_may_overwrite(const Node& node, int output, int input) {
  if (output == 0) return input == 0;
  return output == 1 && node.attrs.as<LinearCrossEntropyAttrs>().accumulate &&
         input + 1 == static_cast<int>(node.in.size());
}

double product_flops(const FlopsArgs& args) {
  const Shape& weight = args.attrs<LinearCrossEntropyAttrs>().weight_shape(args.in[1]);
  return 2.0 * static_cast<double>(args.in[2].shape.elements()) * static_cast<double>(weight.elements());
}

const TensorView* accumulator(const KernelArgs& args) {
  return args.attrs<LinearCrossEntropyAttrs>().accumulate ? &args.in.back() : nullptr;
}

const Shape& weight_shape(const KernelArgs& args) {
  return args.attrs<LinearCrossEntropyAttrs>().weight_shape(args.in[1].type);
}

PackedWeight packed_weight(const KernelArgs& args) {
  return {args.attrs<LinearCrossEntropyAttrs>().weight.packed(), args.in[1].as<const std::byte>()};
}

// The weight's numbers for a reference, unpacked into `room` if it is packed.
template <class T> const T* weight_numbers(const KernelArgs& args, std::vector<T>& room) {
  if (!args.attrs<LinearCrossEntropyAttrs>().packed) return args.in[1].as<T>();
  const PackedWeight weight = packed_weight(args);
  std::vector<float> row(weight.shape.columns);
  for (int64_t i = 0; i < weight.shape.rows; ++i) {
    dequantize_row(weight, i, row.data());
    room.insert(room.end(), row.begin(), row.end());
  }
  return room.data();
}

struct RowLoss {  // in double
  double* x;      // [classes]
  double lse, loss;

  template <class T> RowLoss(const KernelArgs& args, const T* weight, const T* hidden, int32_t target)
      : x(reinterpret_cast<double*>(args.workspace)) {
    const auto& attrs = args.attrs<LinearCrossEntropyAttrs>();
    const int64_t classes = weight_shape(args)[0], width = weight_shape(args)[1];
    double sum = 0, mean = 0;
    for (int64_t j = 0; j < classes; ++j) {
      x[j] = attrs.bias ? static_cast<double>(args.in[3].as<T>()[j]) : 0.0;
      for (int64_t d = 0; d < width; ++d)
        x[j] += rounded_operand(hidden[d], attrs.precision) * rounded_operand(weight[j * width + d], attrs.precision);
      mean += x[j] / static_cast<double>(classes);
    }
    const double top = *std::max_element(x, x + classes);
    for (int64_t j = 0; j < classes; ++j) sum += std::exp(x[j] - top);
    lse = top + std::log(sum);
    loss = lse - (1 - attrs.label_smoothing) * x[target] - attrs.label_smoothing * mean;
  }
};

size_t reference_workspace(const KernelQuery& query) {
  return bytes_for<double>(query.attrs<LinearCrossEntropyAttrs>().weight_shape(query.in[1])[0]);
}

// The references compute a row by itself.
void check_reference(const KernelArgs& args) {
  if (args.attrs<LinearCrossEntropyAttrs>().all_classes > 0)
    fail_internal("the reference of linear_cross_entropy was given classes that ranks divide");
  check_targets(args.in[2], weight_shape(args)[0]);
}

void run_linear_cross_entropy_reference(const KernelArgs& args) {
  check_reference(args);
  for_float(args.out[0].type.dtype, [&]<class T>() {
    std::vector<T> room;
    const T* weight = weight_numbers(args, room);
    double total = 0;
    for (int64_t r = 0; r < args.in[2].elements(); ++r)
      if (const int32_t target = args.in[2].as<int32_t>()[r]; target >= 0)
        total += RowLoss(args, weight, args.in[0].as<T>() + r * weight_shape(args)[1], target).loss;
    args.out[0].as<T>()[0] = static_cast<T>(total);
  });
}

template <class T> void linear_cross_entropy_grad_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<LinearCrossEntropyAttrs>();
  const int64_t classes = weight_shape(args)[0], width = weight_shape(args)[1];
  std::vector<T> room;
  const T *weight = weight_numbers(args, room), dloss = args.in[3 + attrs.bias].as<T>()[0];
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
      row.x[j] = rounded_operand(slope, attrs.precision);
      for (int64_t d = 0; dweight && d < width; ++d)
        dweight[j * width + d] += static_cast<T>(row.x[j] * rounded_operand(hidden[d], attrs.precision));
    }
    for (int64_t d = 0; d < width; ++d) {  // may be written over the row of hidden
      double sum = 0;
      for (int64_t j = 0; j < classes; ++j) sum += row.x[j] * rounded_operand(weight[j * width + d], attrs.precision);
      dhidden[d] = static_cast<T>(sum);
    }
  }
  if (attrs.loss) args.out.back().as<T>()[0] = static_cast<T>(total);
}

void run_linear_cross_entropy_grad_reference(const KernelArgs& args) {
  check_reference(args);
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
  check_targets(args.in[2], std::max(call.classes, attrs.all_classes));
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
    copy_operand(*start, args.out[1]);
  }
  run_call(call, args);
}

// Parameters, and so the weight, are fp32.
bool supports_linear_cross_entropy(const KernelQuery& query) {
  return f32_or_reduced(query) && query.in[1].dtype != DType::kBF16;
}
}  // namespace

const OpDef kCrossEntropy{.name = "cross_entropy",
    .infer = takes<2, infer_cross_entropy>,
    .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      return {args.add(kCrossEntropyGrad, {args.in[0], args.in[1], args.out[1], args.out_grad[0]})[0], Tensor{}};
    },
    .decompose = decompose_cross_entropy,
    .storage = reduced<0b1, 0>};
const OpDef kCrossEntropyGrad{.name = "cross_entropy_grad",
    .infer = takes<4, infer_first>,
    .may_overwrite = overwrites_first,
    .storage = reduced<0b1, 0b1>};
const OpDef kMaskTargets{.name = "mask_targets", .infer = takes<2, infer_cross_entropy_mask>};
const OpDef kOneHot{.name = "one_hot", .infer = takes<1, infer_one_hot>};
const OpDef kCountTargets{.name = "count_targets", .infer = takes<1, infer_count>};

Tensor cross_entropy_sum(At logits, Tensor targets, double label_smoothing) {
  return op_result(kCrossEntropy, logits, {targets}, CrossEntropyAttrs{label_smoothing});
}

Tensor mask_targets(At targets, Tensor lengths) { return op_result(kMaskTargets, targets, {lengths}); }

Tensor one_hot(At targets, int64_t classes, DType dtype) {
  return op_result(kOneHot, targets, {}, OneHotAttrs{classes, dtype});
}

Tensor count_targets(At targets, DType dtype) { return op_result(kCountTargets, targets, {}, CountAttrs{dtype}); }

LINNET_KERNELS(cross_entropy, {"simd", run_cross_entropy, f32_or_reduced, cross_entropy_workspace},
    {"reference", run_cross_entropy_reference})
LINNET_KERNELS(cross_entropy_grad, {"simd", run_cross_entropy_grad, f32_or_reduced},
    {"reference", run_cross_entropy_grad_reference})
LINNET_KERNELS(mask_targets, {"reference", run_cross_entropy_mask})
LINNET_KERNELS(one_hot, {"reference", run_one_hot})
LINNET_KERNELS(count_targets, {"reference", run_count})

const OpDef kLinearCrossEntropy{.name = "linear_cross_entropy",
    .infer = infer_linear_cross_entropy,
    .gradient = linear_cross_entropy_gradient,
    .decompose = decompose_linear_cross_entropy,
    .storage = reduced<0b11, 0>,
    .product = ProductKind::kMatrix,
    .with_precision = set_precision<LinearCrossEntropyAttrs>,
    .by_gpu_library = true,
    .flops = product_flops};
const OpDef kLinearCrossEntropyGrad{.name = "linear_cross_entropy_grad",
    .infer = infer_linear_cross_entropy_grad,
    .may_overwrite = linear_cross_entropy_may_overwrite,
    .storage = reduced<0b11, 0b1>,
    .product = ProductKind::kMatrix,
    .with_precision = set_precision<LinearCrossEntropyAttrs>,
    .by_gpu_library = true,
    .flops = [](const FlopsArgs& args) {
      const auto& attrs = args.attrs<LinearCrossEntropyAttrs>();
      return (1 + attrs.loss + attrs.weight_gradient) * product_flops(args);
    }};

Tensor linear_cross_entropy_sum(
    At hidden, Tensor weight, std::optional<Tensor> bias, Tensor targets, double label_smoothing) {
  std::vector<Tensor> in{hidden.value, weight, targets};
  if (bias) in.push_back(*bias);
  return graph_of(hidden)->add_one(kLinearCrossEntropy, in,
      LinearCrossEntropyAttrs{.label_smoothing = label_smoothing, .bias = bias.has_value()}, hidden.where);
}

LINNET_KERNELS(linear_cross_entropy,
    {"chunked", run_linear_cross_entropy, supports_linear_cross_entropy, linear_cross_entropy_workspace},
    {"reference", run_linear_cross_entropy_reference, nullptr, reference_workspace})
LINNET_KERNELS(linear_cross_entropy_grad,
    {"chunked", run_linear_cross_entropy_grad, supports_linear_cross_entropy, linear_cross_entropy_workspace},
    {"reference", run_linear_cross_entropy_grad_reference, nullptr, reference_workspace})
}  // namespace linnet
