#include "engine/ops/pointwise/pointwise.h"
#include <numbers>
#include "base/numbers.h"
#include "base/text.h"
#include "engine/kernels/parallel.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/formula.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_pointwise(const InferArgs& args) {
  expect(!args.in.empty(), "no operands");
  const auto full = broadcast_shape(mapped<Shape>(args.in, [](const TensorType& in) { return in.shape; }));
  for (const TensorType& in : args.in) {
    if (!is_float(in.dtype) || in.dtype != args.in[0].dtype)
      throw ShapeProblem(
          "got " + joined(args.in, " and ", &TensorType::text) + ", expected one float type; cast() changes the type");
    const auto pair = broadcast_shape(std::array{args.in[0].shape, in.shape});
    if (!pair || (full && !find_broadcast(in.shape, *full)))
      throw ShapeProblem("cannot broadcast " + args.in[0].shape.text() + " with " + in.shape.text());
  }
  expect(full.has_value(), "cannot broadcast ", joined(args.in, " with ", &TensorType::text));
  return {{args.in[0].dtype, *full}};
}

Tensor pruned(Expression expression, const std::vector<Tensor>& operands, SourceLine where) {
  std::vector<int> location(operands.size(), -1);
  std::vector<Tensor> kept;
  for (Instruction& instruction : expression.code) {
    if (instruction.function != Scalar::kInput) continue;
    int& index = location[instruction.a];
    if (index < 0) {
      index = static_cast<int>(kept.size());
      kept.push_back(operands[instruction.a]);
    }
    instruction.a = static_cast<int16_t>(index);
  }
  return pointwise(std::move(expression), kept, where);
}

std::vector<Tensor> pointwise_gradient(const GradientArgs& args) {
  const auto& expression = args.attrs<PointwiseAttrs>().expression;
  const int count = static_cast<int>(args.in.size());
  const std::vector<Tensor> operands = with_more(with_more({args.in.begin(), args.in.end()}, args.out), args.out_grad);
  std::vector<Tensor> gradients;
  for (int k = 0; k < count; ++k) {
    const Expression d = derivative(expression, k, count);
    const Instruction& result = d.code.back();
    if (result.function == Scalar::kConstant && result.constant == 0) {
      gradients.emplace_back();
      continue;
    }
    // An expression that is the incoming gradient itself needs no node.
    const bool is_dy = d.code.size() == 1 && result.function == Scalar::kInput && result.a == count + 1;
    const Tensor full = is_dy ? args.out_grad[0] : pruned(d, operands, args.node.where);
    gradients.push_back(sum_to(full, args.in[k].shape()));
  }
  return gradients;
}

Algebra algebra(const Node& node) {
  const Expression& expression = node.attrs.as<PointwiseAttrs>().expression;
  const size_t count = expression.code.size() - (is_rounded_to_bf16(expression) ? 1 : 0);
  const bool is_add = count == 3 && expression.code[2].function == Scalar::kAdd && node.in.size() == 2;
  return is_add ? Algebra::kAdd : Algebra::kElementwise;
}

// The functions, as in "mul+add+tanh"; without any it copies an operand.
template <class A> std::string pointwise_label(const Node& node) {
  std::string text;
  for (const Instruction& instruction : node.attrs.as<A>().expression.code)
    if (instruction.function != Scalar::kInput && instruction.function != Scalar::kConstant)
      text += (text.empty() ? "" : "+") + std::string(scalar_name(instruction.function));
  return std::is_same_v<A, PointwiseSumAttrs> ? text + "+sum" : text.empty() ? "copy" : text;
}

std::array<PointwiseOperand, kMaxOperands> operands_of(const KernelArgs& args, const Shape& full) {
  std::array<PointwiseOperand, kMaxOperands> operands;
  for (size_t k = 0; k < args.in.size(); ++k) {
    const TensorView& in = args.in[k];
    const Broadcast kind = *find_broadcast(in.shape(), full);
    operands[k] = {stored(in), in.elements(), kind, kind == Broadcast::kMiddle ? middle_row(in.shape(), full) : 0};
  }
  return operands;
}

int64_t operand_index(const PointwiseOperand& operand, int64_t i, int64_t n) {
  const auto& [data, size, kind, row] = operand;
  switch (kind) {
    case Broadcast::kFull: return i;
    case Broadcast::kSuffix: return i % size;
    case Broadcast::kPrefix: return i / (n / size);
    case Broadcast::kMiddle: return i / (n / size * row) * row + i % row;
    case Broadcast::kScalar: return 0;
  }
  return 0;
}

// The expression's value at element i of n.
template <class T> T value_at(const KernelArgs& args, const Expression& expression,
    const std::array<PointwiseOperand, kMaxOperands>& operands, int64_t i, int64_t n) {
  std::array<T, kMaxOperands> inputs;
  for (size_t k = 0; k < args.in.size(); ++k) inputs[k] = args.in[k].as<const T>()[operand_index(operands[k], i, n)];
  return evaluate_scalar(expression, inputs.data());
}

void run_pointwise_reference(const KernelArgs& args) {
  const Expression& expression = args.attrs<PointwiseAttrs>().expression;
  const TensorView& out = args.out[0];
  const int64_t n = out.elements();
  const auto operands = operands_of(args, out.shape());
  for_float(out.type.dtype, [&]<class T>() {
    for_each_index(args.pool, n, 16 * std::ssize(expression.code),
        [&](int64_t i) { out.as<T>()[i] = value_at<T>(args, expression, operands, i, n); });
  });
}

void run_pointwise(const KernelArgs& args) {
  const auto operands = operands_of(args, args.out[0].shape());
  pointwise(args.out[0].elements(), args.attrs<PointwiseAttrs>().expression, {operands.data(), args.in.size()},
      mutable_stored(args.out[0]), args.pool);
}

std::vector<TensorType> infer_pointwise_sum(const InferArgs& args) {
  const auto& attrs = args.attrs.as<PointwiseSumAttrs>();
  for (const TensorType& in : args.in)
    expect(is_float(in.dtype) && find_broadcast(in.shape, attrs.full), "got ", in, " for values of ", attrs.full);
  expect(!args.in.empty() && find_broadcast(attrs.shape, attrs.full), "cannot sum ", attrs.full, " to ", attrs.shape);
  return {{args.in[0].dtype, attrs.shape}};
}

void run_pointwise_sum_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<PointwiseSumAttrs>();
  const auto [outer, rows, width] = reduction_sizes(attrs.shape, attrs.full);
  const auto operands = operands_of(args, attrs.full);
  for_float(args.out[0].type.dtype, [&, rows = rows, width = width]<class T>() {
    for (int64_t i = 0; i < args.out[0].elements(); ++i)
      args.out[0].as<T>()[i] = static_cast<T>(sum_of<double>(rows, [&](int64_t row) {
        const int64_t at = (i / width * rows + row) * width + i % width;
        return value_at<T>(args, attrs.expression, operands, at, attrs.full.elements());
      }));
  });
}

bool sums_to_f32(const KernelQuery& query) { return all_f32_or_bf16(query) && query.out[0].dtype == DType::kF32; }

size_t pointwise_sum_bytes(const KernelQuery& query) {
  const auto& attrs = query.attrs<PointwiseSumAttrs>();
  const auto [outer, rows, width] = reduction_sizes(attrs.shape, attrs.full);
  return pointwise_sum_workspace(outer, rows, width);
}

void run_pointwise_sum(const KernelArgs& args) {
  const auto& attrs = args.attrs<PointwiseSumAttrs>();
  const auto [outer, rows, width] = reduction_sizes(attrs.shape, attrs.full);
  const auto operands = operands_of(args, attrs.full);
  pointwise_sum(outer, rows, width, attrs.expression, {operands.data(), args.in.size()}, args.out[0].as<float>(),
      args.workspace, args.pool);
}

// Repeats the operands to their common shape if not all kernels would. Inference reports shapes that do not fit.
std::vector<Tensor> broadcast_operands(std::span<const Tensor> operands, SourceLine where) {
  std::vector<Shape> shapes;
  for (const Tensor& operand : operands) shapes.push_back((void(graph_of(At(operand, where))), operand.shape()));
  std::vector<Tensor> fitting(operands.begin(), operands.end());
  const auto full = broadcast_shape(shapes);
  if (!full) return fitting;
  size_t largest = 0;
  for (size_t i = 0; i < shapes.size(); ++i)
    if (shapes[i].elements() > shapes[largest].elements()) largest = i;
  const bool has_full = shapes[largest].elements() == full->elements();
  for (size_t i = 0; i < shapes.size(); ++i)
    if ((i == largest && !has_full) ||
        find_broadcast(shapes[i], *full).value_or(Broadcast::kMiddle) == Broadcast::kMiddle)
      fitting[i] = broadcast_to(At(operands[i], where), *full);
  return fitting;
}
}  // namespace

const OpDef kPointwise{.name = "pointwise",
    .infer = infer_pointwise,
    .gradient = pointwise_gradient,
    .may_overwrite = overwrites_any,
    .algebra = algebra,
    .storage = [](const Node&) { return StorageRule{.rest = Storage::kAny}; },
    .cheap = true,
    .by_gpu_library = true,
    .label = pointwise_label<PointwiseAttrs>};

const OpDef kPointwiseSum{.name = "pointwise_sum",
    .infer = infer_pointwise_sum,
    .storage = [](const Node& node) { return StorageRule{.in = std::vector(node.in.size(), Storage::kAny)}; },
    .label = pointwise_label<PointwiseSumAttrs>};

std::string PointwiseAttrs::text() const {
  std::string text;
  for (size_t i = 0; i < expression.code.size(); ++i) {
    const Instruction& instruction = expression.code[i];
    text += (i ? "; t" : "t") + std::to_string(i) + "=" + scalar_name(instruction.function);
    if (instruction.function == Scalar::kInput) text += std::to_string(instruction.a);
    else if (instruction.function == Scalar::kConstant) text += " " + shortest(instruction.constant);
    else
      for (int16_t operand : {instruction.a, instruction.b, instruction.c})
        if (operand >= 0) text += " t" + std::to_string(operand);
  }
  return text;
}

Tensor pointwise(Expression expression, std::span<const Tensor> given, SourceLine where) {
  const std::vector<Tensor> operands = broadcast_operands(given, where);
  return graph_of(At(operands[0], where))->add_one(kPointwise, operands, PointwiseAttrs{std::move(expression)}, where);
}

Expression join(const Expression& a, int a_operands, const Expression& b, int hole) {
  ExpressionBuilder e;
  const auto result = e.inline_all(a, mapped(a_operands, [&](int k) { return e.input(k); })).back();
  std::vector<ExpressionBuilder::Ref> second;
  const auto end_of = [](const Instruction& i) { return i.function == Scalar::kInput ? i.a + 1 : 0; };
  const int b_operands = max_of<int>(b.code, end_of);
  for (int k = 0, next = a_operands; k < b_operands; ++k) second.push_back(k == hole ? result : e.input(next++));
  return e.finish(e.inline_all(b, second).back());
}

Expression rounded_to_bf16(Expression expression) {
  const auto result = static_cast<int16_t>(expression.code.size() - 1);
  expression.code.push_back({.function = Scalar::kToBf16, .a = result});
  return expression;
}

bool is_rounded_to_bf16(const Expression& expression) {
  const Instruction& result = expression.code.back();
  return result.function == Scalar::kToBf16 && static_cast<size_t>(result.a) + 2 == expression.code.size();
}

Expression without_rounding(Expression expression) {
  if (is_rounded_to_bf16(expression)) expression.code.pop_back();
  return expression;
}

Tensor operator+(At a, Tensor b) { return apply_scalar(Scalar::kAdd, a, b); }
Tensor operator-(At a, Tensor b) { return apply_scalar(Scalar::kSub, a, b); }
Tensor operator*(At a, Tensor b) { return apply_scalar(Scalar::kMul, a, b); }
Tensor operator/(At a, Tensor b) { return apply_scalar(Scalar::kDiv, a, b); }
Tensor operator*(At a, double b) { return apply_scalar(Scalar::kMul, a, b); }
Tensor operator+(At a, double b) { return apply_scalar(Scalar::kAdd, a, b); }
Tensor exp(At x) { return apply_scalar(Scalar::kExp, x); }
Tensor rsqrt(At x) { return apply_scalar(Scalar::kRsqrt, x); }
Tensor square(At x) { return apply_scalar(Scalar::kSquare, x); }
Tensor relu(At x) { return apply_scalar(Scalar::kRelu, x); }
Tensor tanh(At x) { return apply_scalar(Scalar::kTanh, x); }

Tensor silu(At x) {
  FormulaBuilder f;
  const Number v = f[0];
  return f.finish(v * sigmoid(v), std::array{x.value}, x.where);
}

// softplus(x) = max(x, 0) + log(1 + exp(min(x, -x))), whose tabulated derivatives give 1/2 at 0; -|x| would not.
Tensor softplus(At x) {
  FormulaBuilder f;
  const Number v = f[0], rest = log(exp(min(v, -v)) + 1);
  return f.finish(relu(v) + rest, std::array{x.value}, x.where);
}

Expression gelu_expression() {
  FormulaBuilder f;
  const Number v = f[0], error = erf(v * (1 / std::numbers::sqrt2)), half = f.constant(0.5);
  return f.finish(v * ((error + 1) * half));
}

Expression gelu_tanh_expression() {
  FormulaBuilder f;
  const Number v = f[0], one = f.constant(1), factor = f.constant(0.044715), cubic = square(v) * factor + one;
  const Number scale = f.constant(std::numbers::sqrt2 * std::numbers::inv_sqrtpi), inner = v * cubic * scale;
  const Number half = f.constant(0.5);
  return f.finish(v * ((tanh(inner) + one) * half));
}

Tensor gelu(At x) { return pointwise(gelu_expression(), std::array{x.value}, x.where); }
Tensor gelu_tanh(At x) { return pointwise(gelu_tanh_expression(), std::array{x.value}, x.where); }

LINNET_KERNELS(pointwise, {"simd", run_pointwise, all_f32_or_bf16}, {"reference", run_pointwise_reference})
LINNET_KERNELS(pointwise_sum, {"simd", run_pointwise_sum, sums_to_f32, pointwise_sum_bytes},
    {"reference", run_pointwise_sum_reference})
}  // namespace linnet
