// Operators that compute each element from those at its place in the operands.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "onnx/compose.h"
#include "onnx/operators.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

using compose::E;
using compose::elementwise;
using compose::Formula;
using compose::Ref;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Ref call1(E& e, Scalar function, Ref a) { return e.apply(function, a); }
Ref call2(E& e, Scalar function, Ref a, Ref b) { return e.apply(function, a, b); }
Ref sum(E& e, Ref a, Ref b) { return e.apply(Scalar::kAdd, a, b); }
Ref product(E& e, Ref a, Ref b) { return e.apply(Scalar::kMul, a, b); }
Ref choose(E& e, Ref condition, Ref yes, Ref no) { return e.apply(Scalar::kSelect, condition, yes, no); }
Ref is_greater(E& e, Ref a, Ref b) { return e.apply(Scalar::kGreater, a, b); }

void of_one(OnnxCall& call, const Formula& formula) { call.set(elementwise(call, {call.tensor(0)}, formula)); }
template <Scalar function>
void scalar1(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) { return e.apply(function, x[0]); });
}

// Sums and products of narrow integers wrap around.
Tensor wrapped(OnnxCall& call, Tensor y, OnnxElement element) {
  const auto dtype = element_dtype(element);
  if (!is_whole(element) || file_dtype_size(*dtype) > 4) return y;
  const double range = std::exp2(8.0 * static_cast<double>(file_dtype_size(*dtype)));
  const bool is_signed =
      element == OnnxElement::kInt8 || element == OnnxElement::kInt16 || element == OnnxElement::kInt32;
  const double low = is_signed ? -range / 2 : 0;
  return elementwise(call, {y}, [=](E& e, const std::vector<Ref>& x) {
    const Ref turns = call1(e, Scalar::kFloor,
                            e.apply(Scalar::kDiv, e.apply(Scalar::kSub, x[0], e.constant(low)), e.constant(range)));
    return e.apply(Scalar::kSub, x[0], product(e, turns, e.constant(range)));
  });
}

template <Scalar function>
void arithmetic(OnnxCall& call) {
  const Tensor y = elementwise(call, {call.tensor(0), call.tensor(1)},
                               [](E& e, const std::vector<Ref>& x) { return e.apply(function, x[0], x[1]); });
  call.set(wrapped(call, y, call.element()));
}

void divide(OnnxCall& call) {
  const bool whole = is_whole(call.element());
  call.set(elementwise(call, {call.tensor(0), call.tensor(1)}, [=](E& e, const std::vector<Ref>& x) {
    const Ref quotient = e.apply(Scalar::kDiv, x[0], x[1]);
    return whole ? compose::truncated(e, quotient) : quotient;
  }));
}

// With fmod the result has the sign of the number, else that of the divisor, which may be infinite.
void modulo(OnnxCall& call) {
  const bool fmod = call.integer("fmod", 0) != 0;
  call.set(elementwise(call, {call.tensor(0), call.tensor(1)}, [=](E& e, const std::vector<Ref>& x) {
    const Ref turns = compose::truncated(e, e.apply(Scalar::kDiv, x[0], x[1])), zero = e.constant(0);
    const Ref is_less = e.apply(Scalar::kEqual, turns, zero);
    const Ref rest = e.apply(Scalar::kSelect, is_less, x[0], e.apply(Scalar::kSub, x[0], product(e, turns, x[1])));
    if (fmod) return rest;
    const Ref is_opposite = is_greater(e, zero, product(e, rest, x[1]));
    return e.apply(Scalar::kSelect, is_opposite, e.apply(Scalar::kAdd, rest, x[1]), rest);
  }));
}

// The exponent may have a type of its own; numbers that are known become the short forms that differentiate well.
void power(OnnxCall& call) {
  const DType dtype = traced_dtype(call.element());
  const bool whole = is_whole(call.element());
  if (call.is_known(1) && call.in(1).known->type().shape.elements() == 1) {
    const double exponent = (*call.in(1).known)[0];
    const Shape full = compose::broadcast_shape(call, {call.shape(0), call.shape(1)});
    if (full == call.shape(0) && (exponent == 2 || exponent == 0.5 || exponent == 1 || exponent == -1) && !whole)
      return of_one(call, [=](E& e, const std::vector<Ref>& x) {
        if (exponent == 1) return x[0];
        return call1(e, exponent == 2 ? Scalar::kSquare : exponent == 0.5 ? Scalar::kSqrt : Scalar::kReciprocal, x[0]);
      });
  }
  call.set(elementwise(call, {call.tensor(0), call.tensor(1, dtype)}, [=](E& e, const std::vector<Ref>& x) {
    const Ref y = e.apply(Scalar::kPow, x[0], x[1]);
    return whole ? compose::truncated(e, y) : y;
  }));
}

void set_truth(OnnxCall& call, Tensor y) { call.set(0, y, OnnxElement::kBool); }

void compare(OnnxCall& call, const Formula& formula) {
  set_truth(call, elementwise(call, {call.tensor(0), call.tensor(1)}, formula));
}
void equal(OnnxCall& call) {
  compare(call, [](E& e, const std::vector<Ref>& x) { return call2(e, Scalar::kEqual, x[0], x[1]); });
}
void greater(OnnxCall& call) {
  compare(call, [](E& e, const std::vector<Ref>& x) { return is_greater(e, x[0], x[1]); });
}
void less(OnnxCall& call) {
  compare(call, [](E& e, const std::vector<Ref>& x) { return is_greater(e, x[1], x[0]); });
}
void greater_or_equal(OnnxCall& call) {
  compare(call, [](E& e, const std::vector<Ref>& x) {
    return choose(e, is_greater(e, x[0], x[1]), e.constant(1), call2(e, Scalar::kEqual, x[0], x[1]));
  });
}
void less_or_equal(OnnxCall& call) {
  compare(call, [](E& e, const std::vector<Ref>& x) {
    return choose(e, is_greater(e, x[1], x[0]), e.constant(1), call2(e, Scalar::kEqual, x[0], x[1]));
  });
}

// Truth values are 0 and 1.
void logical_and(OnnxCall& call) {
  compare(call, [](E& e, const std::vector<Ref>& x) { return product(e, x[0], x[1]); });
}
void logical_or(OnnxCall& call) {
  compare(call, [](E& e, const std::vector<Ref>& x) { return call2(e, Scalar::kMax, x[0], x[1]); });
}
void logical_xor(OnnxCall& call) {
  compare(call, [](E& e, const std::vector<Ref>& x) {
    return compose::negated_truth(e, call2(e, Scalar::kEqual, x[0], x[1]));
  });
}
void logical_not(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) { return compose::negated_truth(e, x[0]); });
}

void is_nan(OnnxCall& call) {
  set_truth(call, elementwise(call, {call.tensor(0)}, [](E& e, const std::vector<Ref>& x) {
              return compose::negated_truth(e, call2(e, Scalar::kEqual, x[0], x[0]));
            }));
}
void is_inf(OnnxCall& call) {
  const bool negative = call.integer("detect_negative", 1) != 0, positive = call.integer("detect_positive", 1) != 0;
  set_truth(call, elementwise(call, {call.tensor(0)}, [=](E& e, const std::vector<Ref>& x) {
              const Ref up = call2(e, Scalar::kEqual, x[0], e.constant(kInfinity));
              const Ref down = call2(e, Scalar::kEqual, x[0], e.constant(-kInfinity));
              return sum(e, product(e, up, e.constant(positive)), product(e, down, e.constant(negative)));
            }));
}

void where(OnnxCall& call) {
  const OnnxElement element = call.element(1);
  const Tensor y = elementwise(call, {call.tensor(0, traced_dtype(element)), call.tensor(1), call.tensor(2)},
                               [](E& e, const std::vector<Ref>& x) { return choose(e, x[0], x[1], x[2]); });
  call.set(0, y, element);
}

void clip(OnnxCall& call) {
  const bool attributes = call.opset() < 11;
  const double low = attributes ? call.real("min", -kInfinity) : call.number(1, -kInfinity);
  const double high = attributes ? call.real("max", kInfinity) : call.number(2, kInfinity);
  of_one(call, [=](E& e, const std::vector<Ref>& x) {
    Ref y = x[0];
    if (low > -kInfinity) y = call2(e, Scalar::kMax, y, e.constant(low));
    if (high < kInfinity) y = call2(e, Scalar::kMin, y, e.constant(high));
    return y;
  });
}

// Of any number of operands.
template <Scalar function>
void of_all(OnnxCall& call) {
  Tensor y = call.tensor(0);
  for (size_t i = 1; i < call.operands(); ++i)
    y = elementwise(call, {y, call.tensor(i)},
                    [](E& e, const std::vector<Ref>& x) { return e.apply(function, x[0], x[1]); });
  call.set(y);
}
void mean(OnnxCall& call) {
  Tensor y = call.tensor(0);
  for (size_t i = 1; i < call.operands(); ++i)
    y = elementwise(call, {y, call.tensor(i)}, [](E& e, const std::vector<Ref>& x) { return sum(e, x[0], x[1]); });
  const double scale = 1.0 / static_cast<double>(call.operands());
  call.set(
      elementwise(call, {y}, [=](E& e, const std::vector<Ref>& x) { return product(e, x[0], e.constant(scale)); }));
}

void sign(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) {
    return e.apply(Scalar::kSub, is_greater(e, x[0], e.constant(0)), is_greater(e, e.constant(0), x[0]));
  });
}
void ceil(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) {
    return call1(e, Scalar::kNeg, call1(e, Scalar::kFloor, call1(e, Scalar::kNeg, x[0])));
  });
}
void tan(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) {
    return e.apply(Scalar::kDiv, call1(e, Scalar::kSin, x[0]), call1(e, Scalar::kCos, x[0]));
  });
}
Ref arcsine(E& e, Ref x) {  // atan(x / sqrt((1 - x)(1 + x)))
  const Ref rest = product(e, e.apply(Scalar::kSub, e.constant(1), x), sum(e, e.constant(1), x));
  return call1(e, Scalar::kAtan, e.apply(Scalar::kDiv, x, call1(e, Scalar::kSqrt, rest)));
}
void asin(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) { return arcsine(e, x[0]); });
}
void acos(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) {
    return e.apply(Scalar::kSub, e.constant(std::numbers::pi / 2), arcsine(e, x[0]));
  });
}
// (exp(x) + sign * exp(-x)) / 2
template <int sign>
void hyperbolic(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) {
    const Ref up = call1(e, Scalar::kExp, x[0]), down = call1(e, Scalar::kExp, call1(e, Scalar::kNeg, x[0]));
    return product(e, e.constant(0.5), e.apply(sign > 0 ? Scalar::kAdd : Scalar::kSub, up, down));
  });
}
void asinh(OnnxCall& call) {  // sign(x) log(|x| + sqrt(x^2 + 1))
  of_one(call, [](E& e, const std::vector<Ref>& x) {
    const Ref size = call1(e, Scalar::kAbs, x[0]);
    const Ref root = call1(e, Scalar::kSqrt, sum(e, call1(e, Scalar::kSquare, x[0]), e.constant(1)));
    const Ref y = call1(e, Scalar::kLog, sum(e, size, root));
    return choose(e, is_greater(e, e.constant(0), x[0]), call1(e, Scalar::kNeg, y), y);
  });
}
void acosh(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) {
    const Ref root = call1(e, Scalar::kSqrt, e.apply(Scalar::kSub, call1(e, Scalar::kSquare, x[0]), e.constant(1)));
    return call1(e, Scalar::kLog, sum(e, x[0], root));
  });
}
void atanh(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) {
    const Ref ratio = e.apply(Scalar::kDiv, sum(e, e.constant(1), x[0]), e.apply(Scalar::kSub, e.constant(1), x[0]));
    return product(e, e.constant(0.5), call1(e, Scalar::kLog, ratio));
  });
}

// --- Activations ---
void leaky_relu(OnnxCall& call) {
  const double alpha = call.real("alpha", 0.01);
  of_one(call, [=](E& e, const std::vector<Ref>& x) {
    return choose(e, is_greater(e, e.constant(0), x[0]), product(e, x[0], e.constant(alpha)), x[0]);
  });
}
// The slope has one axis for channels where it has fewer axes than x.
void prelu(OnnxCall& call) {
  const Tensor x = call.tensor(0);
  Tensor slope = call.tensor(1);
  const int rank = x.shape().rank();
  if (call.opset() < 7 && slope.shape().rank() == 1 && rank > 2 && slope.dim(0) == x.dim(1)) {  // one for each channel
    Shape shape;
    for (int axis = 0; axis < rank; ++axis) shape.push_back(axis == 1 ? slope.dim(0) : 1);
    slope = reshape(slope, shape);
  }
  call.set(elementwise(call, {x, slope}, [](E& e, const std::vector<Ref>& x) {
    return choose(e, is_greater(e, e.constant(0), x[0]), product(e, x[0], x[1]), x[0]);
  }));
}
// x > 0 ? scale * x : scale * alpha * (exp(x / beta) - 1)
void exponential(OnnxCall& call, double scale, double alpha, double beta) {
  of_one(call, [=](E& e, const std::vector<Ref>& x) {
    const Ref low = call2(e, Scalar::kMin, x[0], e.constant(0));  // no overflow on the other side
    const Ref curve =
        e.apply(Scalar::kSub, call1(e, Scalar::kExp, product(e, low, e.constant(1 / beta))), e.constant(1));
    return choose(e, is_greater(e, x[0], e.constant(0)), product(e, x[0], e.constant(scale)),
                  product(e, curve, e.constant(scale * alpha)));
  });
}
void elu(OnnxCall& call) { exponential(call, 1, call.real("alpha", 1), 1); }
void celu(OnnxCall& call) {
  const double alpha = call.real("alpha", 1);
  exponential(call, 1, alpha, alpha);
}
void selu(OnnxCall& call) {
  exponential(call, call.real("gamma", 1.0507010221481323), call.real("alpha", 1.6732631921768188), 1);
}
Ref hard_sigmoid_of(E& e, Ref x, double alpha, double beta) {
  const Ref line = sum(e, product(e, x, e.constant(alpha)), e.constant(beta));
  return call2(e, Scalar::kMax, e.constant(0), call2(e, Scalar::kMin, e.constant(1), line));
}
void hard_sigmoid(OnnxCall& call) {
  const double alpha = call.real("alpha", 0.2), beta = call.real("beta", 0.5);
  of_one(call, [=](E& e, const std::vector<Ref>& x) { return hard_sigmoid_of(e, x[0], alpha, beta); });
}
void hard_swish(OnnxCall& call) {
  of_one(call,
         [](E& e, const std::vector<Ref>& x) { return product(e, x[0], hard_sigmoid_of(e, x[0], 1.0 / 6, 0.5)); });
}
void swish(OnnxCall& call) {
  const double alpha = call.real("alpha", 1);
  of_one(call, [=](E& e, const std::vector<Ref>& x) {
    return product(e, x[0], call1(e, Scalar::kSigmoid, product(e, x[0], e.constant(alpha))));
  });
}
Ref softplus_of(E& e, Ref x) {  // max(x, 0) + log(1 + exp(-|x|))
  const Ref tail = call1(e, Scalar::kExp, call1(e, Scalar::kNeg, call1(e, Scalar::kAbs, x)));
  return sum(e, call2(e, Scalar::kMax, x, e.constant(0)), call1(e, Scalar::kLog, sum(e, e.constant(1), tail)));
}
void softplus(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) { return softplus_of(e, x[0]); });
}
void mish(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) {
    return product(e, x[0], call1(e, Scalar::kTanh, softplus_of(e, x[0])));
  });
}
void softsign(OnnxCall& call) {
  of_one(call, [](E& e, const std::vector<Ref>& x) {
    return e.apply(Scalar::kDiv, x[0], sum(e, e.constant(1), call1(e, Scalar::kAbs, x[0])));
  });
}
void thresholded_relu(OnnxCall& call) {
  const double alpha = call.real("alpha", 1);
  of_one(call, [=](E& e, const std::vector<Ref>& x) {
    return choose(e, is_greater(e, x[0], e.constant(alpha)), x[0], e.constant(0));
  });
}
void shrink(OnnxCall& call) {
  const double bias = call.real("bias", 0), lambda = call.real("lambd", 0.5);
  of_one(call, [=](E& e, const std::vector<Ref>& x) {
    const Ref below =
        choose(e, is_greater(e, e.constant(-lambda), x[0]), sum(e, x[0], e.constant(bias)), e.constant(0));
    return choose(e, is_greater(e, x[0], e.constant(lambda)), sum(e, x[0], e.constant(-bias)), below);
  });
}
void gelu_operator(OnnxCall& call) {
  call.set(call.text("approximate", "none") == "tanh" ? gelu_tanh(call.tensor(0)) : gelu(call.tensor(0)));
}

// --- Types ---
void cast_to(OnnxCall& call, OnnxElement to) {
  const OnnxElement from = call.element();
  const auto dtype = element_dtype(to);
  if (!dtype) call.fail("of " + element_name(to) + " is not supported");
  Tensor x = call.tensor(0);
  if (to == OnnxElement::kBool) {
    x = elementwise(call, {x}, [](E& e, const std::vector<Ref>& v) {
      return compose::negated_truth(e, call2(e, Scalar::kEqual, v[0], e.constant(0)));
    });
  } else if (is_whole(to)) {
    x = cast(x, DType::kF64);
    if (is_float(from))
      x = elementwise(call, {x}, [](E& e, const std::vector<Ref>& v) { return compose::truncated(e, v[0]); });
    x = wrapped(call, x, to);
  } else if ((to == OnnxElement::kFloat16 || to == OnnxElement::kBFloat16) && from != to) {
    if (!call.is_known(0)) return call.set(0, x, to);  // computed in 32 bits
    std::vector<double> rounded;
    for (const double value : call.numbers(0)) {
      const auto number = static_cast<float>(value);
      std::byte bits[2];
      float back = 0;
      write_floats(*dtype, &number, 1, bits);
      read_floats(*dtype, bits, 1, &back);
      rounded.push_back(back);
    }
    return call.set(0, known_numbers(to, call.shape(), rounded));
  }
  call.set(0, x, to);
}
void cast_operator(OnnxCall& call) {
  cast_to(call, static_cast<OnnxElement>(static_cast<int32_t>(call.integer("to", 0))));
}
void cast_like(OnnxCall& call) { cast_to(call, call.element(1)); }

void identity(OnnxCall& call) { call.set(0, call.in(0)); }
// Not in training mode: as in an exported network.
void dropout_operator(OnnxCall& call) {
  if (call.has(2) && call.numbers(2)[0] != 0) call.fail("training_mode is true");
  call.set(0, call.in(0));
  if (call.is_wanted(1)) call.set(1, call.uniform(1, call.shape(), DType::kF32), OnnxElement::kBool);
}

}  // namespace

void add_elementwise_operators(std::vector<OnnxOperatorRow>& rows) {
  const OnnxOperatorRow list[] = {
      {"Abs", scalar1<Scalar::kAbs>},
      {"Acos", acos},
      {"Acosh", acosh},
      {"Add", arithmetic<Scalar::kAdd>},
      {"And", logical_and},
      {"Asin", asin},
      {"Asinh", asinh},
      {"Atan", scalar1<Scalar::kAtan>},
      {"Atanh", atanh},
      {"Cast", cast_operator, "float8 and strings are not there; float16 and bfloat16 are computed in 32 bits"},
      {"CastLike", cast_like},
      {"Ceil", ceil},
      {"Celu", celu},
      {"Clip", clip, "bounds must be known"},
      {"Cos", scalar1<Scalar::kCos>},
      {"Cosh", hyperbolic<1>},
      {"Div", divide},
      {"Dropout", dropout_operator, "as the identity"},
      {"Elu", elu},
      {"Equal", equal},
      {"Erf", scalar1<Scalar::kErf>},
      {"Exp", scalar1<Scalar::kExp>},
      {"Floor", scalar1<Scalar::kFloor>},
      {"Gelu", gelu_operator},
      {"Greater", greater},
      {"GreaterOrEqual", greater_or_equal},
      {"HardSigmoid", hard_sigmoid},
      {"HardSwish", hard_swish},
      {"Identity", identity},
      {"IsInf", is_inf},
      {"IsNaN", is_nan},
      {"LeakyRelu", leaky_relu},
      {"Less", less},
      {"LessOrEqual", less_or_equal},
      {"Log", scalar1<Scalar::kLog>},
      {"Max", of_all<Scalar::kMax>},
      {"Mean", mean},
      {"Min", of_all<Scalar::kMin>},
      {"Mish", mish},
      {"Mod", modulo},
      {"Mul", arithmetic<Scalar::kMul>},
      {"Neg", scalar1<Scalar::kNeg>},
      {"Not", logical_not},
      {"Or", logical_or},
      {"Pow", power},
      {"PRelu", prelu},
      {"Reciprocal", scalar1<Scalar::kReciprocal>},
      {"Relu", scalar1<Scalar::kRelu>},
      {"Round", scalar1<Scalar::kRound>},
      {"Selu", selu},
      {"Shrink", shrink},
      {"Sigmoid", scalar1<Scalar::kSigmoid>},
      {"Sign", sign},
      {"Sin", scalar1<Scalar::kSin>},
      {"Sinh", hyperbolic<-1>},
      {"Softplus", softplus},
      {"Softsign", softsign},
      {"Sqrt", scalar1<Scalar::kSqrt>},
      {"Sub", arithmetic<Scalar::kSub>},
      {"Sum", of_all<Scalar::kAdd>},
      {"Swish", swish},
      {"Tan", tan},
      {"Tanh", scalar1<Scalar::kTanh>},
      {"ThresholdedRelu", thresholded_relu},
      {"Where", where},
      {"Xor", logical_xor},
  };
  rows.insert(rows.end(), std::begin(list), std::end(list));
}

}  // namespace linnet
