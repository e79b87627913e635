// Elementwise expressions as ONNX nodes, one for each instruction. ONNX broadcasts as numpy does, which covers ours.
#include "io/onnx/lowering.h"
#include "ops/pointwise/pointwise.h"

namespace linnet {
namespace {

// The operator of a function that is one node; null for the others.
const char* operator_of(Scalar function) {
  switch (function) {
    case Scalar::kAdd:
      return "Add";
    case Scalar::kSub:
      return "Sub";
    case Scalar::kMul:
      return "Mul";
    case Scalar::kDiv:
      return "Div";
    case Scalar::kMax:
      return "Max";
    case Scalar::kMin:
      return "Min";
    case Scalar::kNeg:
      return "Neg";
    case Scalar::kExp:
      return "Exp";
    case Scalar::kLog:
      return "Log";
    case Scalar::kSqrt:
      return "Sqrt";
    case Scalar::kReciprocal:
      return "Reciprocal";
    case Scalar::kTanh:
      return "Tanh";
    case Scalar::kSigmoid:
      return "Sigmoid";
    case Scalar::kErf:
      return "Erf";
    case Scalar::kRelu:
      return "Relu";
    case Scalar::kAbs:
      return "Abs";
    case Scalar::kSin:
      return "Sin";
    case Scalar::kCos:
      return "Cos";
    case Scalar::kFloor:
      return "Floor";
    case Scalar::kRound:
      return "Round";
    case Scalar::kPow:
      return "Pow";
    case Scalar::kAtan:
      return "Atan";
    default:
      return nullptr;
  }
}

std::string lower(OnnxBuilder& builder, Scalar function, const std::vector<std::string>& in) {
  if (const char* op = operator_of(function)) return builder.add(op, in);
  if (function == Scalar::kSquare) return builder.add("Mul", {in[0], in[0]});
  if (function == Scalar::kRsqrt) return builder.add("Reciprocal", {builder.add("Sqrt", in)});
  if (function == Scalar::kGreater) return builder.cast(builder.add("Greater", in), OnnxElement::kFloat);
  if (function == Scalar::kEqual) return builder.cast(builder.add("Equal", in), OnnxElement::kFloat);
  if (function == Scalar::kSelect) return builder.add("Where", {builder.cast(in[0], OnnxElement::kBool), in[1], in[2]});
  fail_internal(std::string("ONNX: no operator for ") + scalar_name(function));
}

}  // namespace

void pointwise_to_onnx(OnnxLowering& to) {
  std::vector<std::string> values;
  for (const Instruction& in : to.node().attrs.as<PointwiseAttrs>().expression.code) {
    if (in.function == Scalar::kInput) {
      values.push_back(to.in(static_cast<size_t>(in.a)));
    } else if (in.function == Scalar::kConstant) {
      values.push_back(to.builder.number(in.constant));
    } else {
      std::vector<std::string> operands;
      for (const int16_t operand : {in.a, in.b, in.c})
        if (operand >= 0) operands.push_back(values[static_cast<size_t>(operand)]);
      values.push_back(lower(to.builder, in.function, operands));
    }
  }
  to.set(0, values.back());
}

}  // namespace linnet
