// Elementwise operators.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include "engine/kernels/gemm/gemm.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "models/nn/trace.h"
#include "onnx/compose.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
namespace {
using compose::binary;
using compose::unary;
using formula::apply;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

OnnxOperator unary_of(Scalar function) {
  return unary([=](Number x) { return apply(function, {x}); });
}

// Narrow integers wrap around.
Tensor wrapped(const OnnxCall& call, Tensor y, OnnxElement element) {
  const auto dtype = element_dtype(element);
  if (!is_whole(element) || file_dtype_size(*dtype) > 4) return y;
  const double range = std::exp2(8.0 * static_cast<double>(file_dtype_size(*dtype)));
  const double low = is_signed(element) ? -range / 2 : 0;
  return elementwise(call, {y}, [=](Number x) { return x - floor((x - low) / range) * range; });
}

OnnxOperator arithmetic(Scalar function) {
  return [=](OnnxCall& call) {
    const Tensor y = elementwise(call, {call.tensor(0), call.tensor(1)}, [=](Number a, Number b) {
      return apply(function, {a, b});
    });
    call.set(wrapped(call, y, call.element()));
  };
}

// GELU as exporters write it, in five or more elementary operators in any order, recognized by values at some points.
// Its constants must be known while tracing.
class SpelledGelu {
 public:
  explicit SpelledGelu(Tensor y) : y_(y) { collect(y); }

  // gelu(x) or gelu_tanh(x) if y equals it, otherwise undefined.
  Tensor find() const {
    if (!has_curve_ || parts_.size() > kMostParts || y_.type().dtype != DType::kF32) return {};
    for (const Tensor& x : parts_) {
      if (x.id == y_.id || x.type() != y_.type()) continue;
      if (computes(x, GemmActivation::kGelu)) return gelu(x);
      if (computes(x, GemmActivation::kGeluTanh)) return gelu_tanh(x);
    }
    return {};
  }

 private:
  static constexpr size_t kMostParts = 16;

  void collect(Tensor t) {
    if (parts_.size() > kMostParts || contains(parts_, t.id, &Tensor::id)) return;
    parts_.push_back(t);
    const Node* node = producer_of(t);
    if (!is(node, kPointwise)) return;
    for (const Instruction& step : node->attrs.as<PointwiseAttrs>().expression.code)
      has_curve_ = has_curve_ || step.function == Scalar::kErf || step.function == Scalar::kTanh;
    for (const ValueId in : node->in) collect({t.graph, in});
  }

  // t at x = `value`; nullopt if it depends on something else.
  std::optional<double> at(Tensor t, Tensor x, double value) const {
    if (t.id == x.id) return value;
    const Node* node = producer_of(t);
    if (is(node, kReshape) && t.shape().elements() == 1) return at({t.graph, node->in[0]}, x, value);
    if (is(node, kFill)) return node->attrs.as<FillAttrs>().value;
    if (is(node, kLiteral) && t.type().dtype == DType::kF32 && t.shape().elements() == 1)
      return std::bit_cast<float>(static_cast<uint32_t>(node->attrs.as<LiteralAttrs>().words[0]));
    if (!is(node, kPointwise)) return std::nullopt;
    std::array<double, kMaxOperands> in{};
    for (size_t i = 0; i < node->in.size(); ++i) {
      const auto operand = at({t.graph, node->in[i]}, x, value);
      if (!operand) return std::nullopt;
      in[i] = *operand;
    }
    return evaluate_scalar(node->attrs.as<PointwiseAttrs>().expression, in.data());
  }

  bool computes(Tensor x, GemmActivation function) const {
    return std::ranges::all_of(std::array{-6.0, -2.7, -1.1, -0.6, -0.04, 0.0, 0.3, 0.9, 1.9, 3.3, 7.0}, [&](double v) {
      const auto y = at(y_, x, v);
      return y && std::abs(*y - gemm_activation(function, v)) < 2e-6 * (1 + std::abs(v));
    });
  }

  const Tensor y_;
  std::vector<Tensor> parts_;  // y and what it is computed of
  bool has_curve_ = false;
};

void product(OnnxCall& call) {
  arithmetic(Scalar::kMul)(call);
  const Tensor y = call.out()[0].tensor;
  const auto from = compose::moved(y);
  const Tensor known = SpelledGelu(from ? from->before : y).find();
  if (known.defined()) call.set(from ? compose::move_axes(known, from->order) : known);
}

Tensor fold(OnnxCall& call, Scalar function) {
  Tensor y = call.tensor(0);
  for (size_t i = 1; i < call.operands(); ++i)
    y = elementwise(call, {y, call.tensor(i)}, [=](Number a, Number b) { return apply(function, {a, b}); });
  return y;
}
OnnxOperator of_all(Scalar function) {
  return [=](OnnxCall& call) { call.set(fold(call, function)); };
}
void mean(OnnxCall& call) {
  const double scale = 1.0 / static_cast<double>(call.operands());
  call.set(elementwise(call, {fold(call, Scalar::kAdd)}, [=](Number x) { return x * scale; }));
}

Number quotient(Number a, Number b, const OnnxCall& call) {
  return is_whole(call.element()) ? truncated(a / b) : a / b;
}

// With fmod the result has the dividend's sign, else that of the divisor, which may be infinite.
Number modulo(Number a, Number b, const OnnxCall& call) {
  const Number turns = truncated(a / b), rest = select(equal(turns, 0), a, a - turns * b);
  return call.flag("fmod") ? rest : select(0 > rest * b, rest + b, rest);
}

// The exponent may have its own type; known exponents get short forms that differentiate well.
void power(OnnxCall& call) {
  const bool whole = is_whole(call.element());
  if (call.is_known(1) && call.shape(1).elements() == 1 && !whole &&
      compose::broadcast_shape(call, {call.shape(0), call.shape(1)}) == call.shape(0)) {
    const double exponent = call.number(1, 1);
    if (exponent == 1) return unary([](Number x) { return x; })(call);
    if (exponent == 2) return unary_of(Scalar::kSquare)(call);
    if (exponent == 0.5) return unary_of(Scalar::kSqrt)(call);
    if (exponent == -1) return unary_of(Scalar::kReciprocal)(call);
  }
  const Tensor exponents = call.tensor(1, traced_dtype(call.element()));
  call.set(elementwise(
      call, {call.tensor(0), exponents}, [=](Number a, Number b) { return whole ? truncated(pow(a, b)) : pow(a, b); }));
}

template <class F> OnnxOperator comparison(F formula) { return binary(formula, OnnxElement::kBool); }

Number is_infinite(Number x, const OnnxCall& call) {
  return equal(x, kInfinity) * call.flag("detect_positive", true) +
         equal(x, -kInfinity) * call.flag("detect_negative", true);
}

void where(OnnxCall& call) {
  const OnnxElement element = call.element(1);
  const Tensor condition = call.tensor(0, traced_dtype(element));
  call.set(0, elementwise(call, {condition, call.tensor(1), call.tensor(2)}, formula::select), element);
}

Number clipped(Number x, const OnnxCall& call) {
  const bool attributes = call.opset() < 11;
  const double low = attributes ? call.real("min", -kInfinity) : call.number(1, -kInfinity);
  const double high = attributes ? call.real("max", kInfinity) : call.number(2, kInfinity);
  if (low > -kInfinity) x = max(low, x);  // a bound has no gradient, as in PyTorch
  return high < kInfinity ? min(high, x) : x;
}

Number arcsine(Number x) { return apply(Scalar::kAtan, {x / sqrt((1 - x) * (1 + x))}); }

// Series where the sum of a small number and 1 would lose its digits, and no squares or powers that overflow early.
Number inverse_sinh(Number x) {
  const Number a = abs(x), b = min(a, 1e9), s = square(x);
  const Number size = select(a > 1e9, log(a) + std::numbers::ln2, log(b + sqrt(square(b) + 1)));
  const Number series = x * (1 - s * (1.0 / 6 - s * (3.0 / 40 - s * (15.0 / 336 - s * (105.0 / 3456)))));
  return select(0.05 > a, series, select(0 > x, -size, size));
}
Number inverse_cosh(Number x) { return inverse_sinh(sqrt(x - 1) * sqrt(x + 1)); }
Number inverse_tanh(Number x) {
  const Number s = square(x), series = x * (1 + s * (1.0 / 3 + s * (1.0 / 5 + s * (1.0 / 7 + s * (1.0 / 9)))));
  return select(0.05 > abs(x), series, 0.5 * log((1 + x) / (1 - x)));
}
Number half_exp(Number x) { return exp(abs(x) + -std::numbers::ln2); }
Number hyperbolic_sine(Number x) {
  const Number s = square(x), half = half_exp(x), size = half - 0.25 / half;
  const Number series = x * (1 + s * (1.0 / 6) * (1 + s * (1.0 / 20) * (1 + s * (1.0 / 42) * (1 + s * (1.0 / 72)))));
  return select(0.25 > abs(x), series, select(0 > x, -size, size));
}
Number hyperbolic_cosine(Number x) {
  const Number half = half_exp(x);
  return half + 0.25 / half;
}

// A slope with fewer axes than x has one for channels.
void prelu(OnnxCall& call) {
  const Tensor x = call.tensor(0);
  Tensor slope = call.tensor(1);
  const int rank = x.shape().rank();
  if (call.opset() < 7 && slope.shape().rank() == 1 && rank > 2 && slope.dim(0) == x.dim(1))  // one per channel
    slope = compose::by_channel(slope, rank);
  call.set(elementwise(call, {x, slope}, [](Number x, Number slope) { return select(x > 0, x, x * slope); }));
}

// x > 0 ? scale * x : scale * alpha * (exp(x / beta) - 1)
Number exponential(Number x, double scale, double alpha, double beta) {
  const Number curve = exp(min(x, 0) * (1 / beta)) - 1;  // min: no overflow on the other side
  return select(x > 0, x * scale, curve * (scale * alpha));
}
Number hard_sigmoid(Number x, double alpha, double beta) { return max(0, min(1, x * alpha + beta)); }
Number softplus(Number x) { return max(x, 0) + log(1 + exp(-max(x, -x))); }  // has the derivative 1/2 at 0
Number shrunk(Number x, const OnnxCall& call) {
  const double bias = call.real("bias", 0), lambda = call.real("lambd", 0.5);
  return select(x > lambda, x + -bias, select(-lambda > x, x + bias, 0));
}

void cast_to(OnnxCall& call, OnnxElement to) {
  const OnnxElement from = call.element();
  const auto dtype = element_dtype(to);
  if (!dtype) call.fail("of ", element_name(to), " is not supported");
  Tensor x = call.tensor(0);
  if (to == OnnxElement::kBool) {
    x = elementwise(call, {x}, [](Number x) { return !equal(x, 0); });
  } else if (is_whole(to)) {
    if (is_float(from)) x = elementwise(call, {x}, formula::truncated);
    x = wrapped(call, cast(x, DType::kF64), to);
  } else if ((to == OnnxElement::kFloat16 || to == OnnxElement::kBFloat16) && from != to) {
    if (!call.is_known(0)) return call.set(0, x, to);  // computed in 32 bits
    const std::vector<double> rounded = mapped<double>(call.numbers(0), [&](double value) {
      const auto number = static_cast<float>(value);
      std::byte bits[2];
      float back = 0;
      write_floats(*dtype, &number, 1, bits);
      read_floats(*dtype, bits, 1, &back);
      return back;
    });
    return call.set(0, known_numbers(to, call.shape(), rounded));
  }
  call.set(0, x, to);
}

// Networks in training mode drop elements during training. The second result says which are left.
void dropout_operator(OnnxCall& call) {
  const double ratio = call.number(1, 0.5);
  Trace* const trace = Trace::find();
  if (call.number(2, 0) == 0 || ratio <= 0 || !trace || !trace->options().training) {
    call.set(0, call.in(0));
    if (call.is_wanted(1)) call.set(1, call.uniform(1, call.shape(), DType::kF32), OnnxElement::kBool);
    return;
  }
  // Names may be missing or equal: the number of earlier ones tells them apart.
  const auto before = std::ranges::count(call.graph().nodes(), &kDropout, &Node::op);
  const uint64_t site = dropout_site("onnx", call.node().name + "." + std::to_string(before));
  const auto dropped = [&](Tensor x) { return dropout(x, trace->random(), static_cast<float>(ratio), site); };
  call.set(dropped(call.tensor(0)));
  if (!call.is_wanted(1)) return;
  const Tensor left = dropped(call.uniform(1, call.shape(), call.tensor(0).type().dtype));
  call.set(1, elementwise(call, {left}, [](Number x) { return x > 0; }), OnnxElement::kBool);
}
}  // namespace

OnnxOperatorRows elementwise_operators() {
  using Call = const OnnxCall&;
  OnnxOperatorRows rows{
      {"Acos", unary([](Number x) { return std::numbers::pi / 2 - arcsine(x); })},
      {"Acosh", unary(inverse_cosh)},
      {"Add", arithmetic(Scalar::kAdd)},
      {"And", comparison([](Number a, Number b) { return a * b; })},
      {"Asin", unary(arcsine)},
      {"Asinh", unary(inverse_sinh)},
      {"Atanh", unary(inverse_tanh)},
      {"Cast", [](OnnxCall& call) { cast_to(call, static_cast<OnnxElement>(call.integer("to", 0))); },
          "float8 and strings are not there; float16 and bfloat16 are computed in 32 bits"},
      {"CastLike", [](OnnxCall& call) { cast_to(call, call.element(1)); }},
      {"Ceil", unary([](Number x) { return -floor(-x); })},
      {"Celu", unary([](Number x, Call c) { return exponential(x, 1, c.real("alpha", 1), c.real("alpha", 1)); })},
      {"Clip", unary(clipped), "bounds must be known", {1, 2}},
      {"Cosh", unary(hyperbolic_cosine)},
      {"Div", binary(quotient)},
      {"Dropout", dropout_operator, "as the identity, but in training mode while the network is trained"},
      {"Elu", unary([](Number x, Call c) { return exponential(x, 1, c.real("alpha", 1), 1); })},
      {"Equal", comparison(formula::equal)},
      {"Gelu",
          [](OnnxCall& call) {
            call.set(call.text("approximate", "none") == "tanh" ? gelu_tanh(call.tensor(0)) : gelu(call.tensor(0)));
          }},
      {"Greater", comparison([](Number a, Number b) { return a > b; })},
      {"GreaterOrEqual", comparison([](Number a, Number b) { return select(a > b, 1, equal(a, b)); })},
      {"HardSigmoid",
          unary([](Number x, Call c) { return hard_sigmoid(x, c.real("alpha", 0.2), c.real("beta", 0.5)); })},
      {"HardSwish", unary([](Number x) { return x * hard_sigmoid(x, 1.0 / 6, 0.5); })},
      {"Identity", [](OnnxCall& call) { call.set(0, call.in(0)); }},
      {"IsInf", unary(is_infinite, OnnxElement::kBool)},
      {"IsNaN", unary([](Number x) { return !equal(x, x); }, OnnxElement::kBool)},
      {"LeakyRelu", unary([](Number x, Call c) { return select(x > 0, x, x * c.real("alpha", 0.01)); })},
      {"Less", comparison([](Number a, Number b) { return b > a; })},
      {"LessOrEqual", comparison([](Number a, Number b) { return select(b > a, 1, equal(a, b)); })},
      {"Max", of_all(Scalar::kMax)},
      {"Mean", mean},
      {"Min", of_all(Scalar::kMin)},
      {"Mish", unary([](Number x) { return x * tanh(softplus(x)); })},
      {"Mod", binary(modulo), "of floats with quotients below 2^24"},
      {"Mul", product},
      {"Not", unary([](Number x) { return !x; })},
      {"Or", comparison([](Number a, Number b) { return max(a, b); })},
      {"Pow", power, "", {1}},
      {"PRelu", prelu},
      {"Selu", unary([](Number x, Call c) {
         return exponential(x, c.real("gamma", 1.0507010221481323), c.real("alpha", 1.6732631921768188), 1);
       })},
      {"Shrink", unary(shrunk)},
      {"Sign", unary([](Number x) { return (x > 0) - (0 > x); })},
      {"Sinh", unary(hyperbolic_sine)},
      {"Softplus", unary([](Number x) { return softplus(x); })},
      {"Softsign", unary([](Number x) { return x / (1 + abs(x)); })},
      {"Sub", arithmetic(Scalar::kSub)},
      {"Sum", of_all(Scalar::kAdd)},
      {"Swish", unary([](Number x, Call c) { return x * sigmoid(x * c.real("alpha", 1)); })},
      {"Tan", unary([](Number x) { return sin(x) / cos(x); })},
      {"ThresholdedRelu", unary([](Number x, Call c) { return select(x > c.real("alpha", 1), x, 0); })},
      {"Where", where},
      {"Xor", comparison([](Number a, Number b) { return !equal(a, b); })},
  };
  for (const OnnxFunctionRow& row : kOnnxFunctions)
    if (row.operands == 1) rows.push_back({row.name, unary_of(row.function)});
  return rows;
}
}  // namespace linnet
