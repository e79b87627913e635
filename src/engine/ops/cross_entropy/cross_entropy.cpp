#include "engine/ops/cross_entropy/cross_entropy.h"
#include <algorithm>
#include <cmath>
#include "engine/kernels/loss/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
void check_targets(const TensorView& targets, int64_t classes) {
  const int32_t* target = targets.as<const int32_t>();
  for (int64_t i = 0; i < targets.elements(); ++i)
    if (target[i] >= classes) fail_user("target id ", target[i], " is outside the vocabulary of ", classes);
}

namespace {
std::vector<TensorType> infer_cross_entropy(const InferArgs& args) {
  expect_inputs(args, 2);
  const TensorType &logits = args.in[0], &targets = args.in[1];
  expect(logits.shape.rank() >= 1 && is_float(logits.dtype), "got logits ", logits);
  const Shape rows = leading_axes(logits.shape);
  expect(targets == TensorType{DType::kI32, rows}, "got logits ", logits, " and targets ", targets);
  const DType full = full_type(logits.dtype);
  return {{full, {}}, {full, {rows.elements()}}};
}

std::vector<TensorType> infer_cross_entropy_grad(const InferArgs& args) {  // logits, targets, lse, dloss -> dlogits
  expect_inputs(args, 4);
  return {args.in[0]};
}

std::vector<Tensor> cross_entropy_gradient(const GradientArgs& args) {
  return {args.add(kCrossEntropyGrad, {args.in[0], args.in[1], args.out[1], args.out_grad[0]})[0], Tensor{}};
}

std::vector<TensorType> infer_one_hot(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(args.in[0].dtype == DType::kI32, "got ", args.in[0], ", expected i32");
  const auto& [classes, dtype] = args.attrs.as<OneHotAttrs>();
  expect(classes > 0, classes, " classes; there is at least one");
  Shape shape = args.in[0].shape;
  shape.push_back(classes);
  return {{dtype, shape}};
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
  expect_inputs(args, 2);
  const TensorType &targets = args.in[0], &lengths = args.in[1];
  expect(targets.dtype == DType::kI32 && targets.shape.rank() == 2, "got targets ", targets, ", expected i32 [B, T]");
  expect(lengths == TensorType{DType::kI32, {targets.shape[0]}}, "got lengths ", lengths);
  return {targets};
}

std::vector<TensorType> infer_count(const InferArgs& args) {
  expect_inputs(args, 1);
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

size_t cross_entropy_workspace(const KernelQuery& query) {
  return static_cast<size_t>(query.out[1].shape.elements()) * sizeof(float);
}

void run_cross_entropy(const KernelArgs& args) {
  const int64_t classes = args.in[0].shape()[-1], rows = args.out[1].elements();
  check_targets(args.in[1], classes);
  float* losses = reinterpret_cast<float*>(args.workspace);
  cross_entropy_forward(rows, classes, stored(args.in[0]), args.in[1].as<int32_t>(),
      static_cast<float>(smoothing_of(args)), losses, args.out[1].as<float>(), args.pool);
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) total += losses[r];
  args.out[0].as<float>()[0] = static_cast<float>(total);
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
}  // namespace

const OpDef kCrossEntropy{.name = "cross_entropy",
    .infer = infer_cross_entropy,
    .gradient = cross_entropy_gradient,
    .decompose = decompose_cross_entropy,
    .storage = reduced<0b1, 0>};
const OpDef kCrossEntropyGrad{.name = "cross_entropy_grad",
    .infer = infer_cross_entropy_grad,
    .may_overwrite = overwrites_first,
    .storage = reduced<0b1, 0b1>};
const OpDef kMaskTargets{.name = "mask_targets", .infer = infer_cross_entropy_mask};
const OpDef kOneHot{.name = "one_hot", .infer = infer_one_hot};
const OpDef kCountTargets{.name = "count_targets", .infer = infer_count};

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
}  // namespace linnet
