// Small elementwise expressions: plain data, shared by every backend's pointwise kernel and the graph's passes.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>
#include "base/thread_pool.h"
#include "engine/kernels/precision.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
enum class Scalar : uint8_t {
  kInput,     // a is the operand's number
  kConstant,  // the instruction's constant
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,  // NaN if either is
  kMin,  // NaN if either is
  kNeg,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kTanh,
  kSigmoid,
  kErf,
  kRelu,  // x < 0 ? 0 : x
  kSquare,
  kAbs,
  kSin,
  kCos,
  kGreater,  // a > b ? 1 : 0
  kSelect,   // a != 0 ? b : c
  kEqual,    // a == b ? 1 : 0
  kFloor,
  kRound,  // to the nearest whole number, halves to the even one
  kPow,    // a to the power b
  kAtan,
  kToBf16,  // to the nearest number of bf16, halves to the even one: what storing in bf16 makes of it
};
constexpr Scalar kLastScalar = Scalar::kToBf16;

struct Instruction {
  Scalar function;
  int16_t a = -1, b = -1, c = -1;  // indices of earlier instructions; for kInput, a is the operand's number
  double constant = 0;
  bool operator==(const Instruction&) const = default;
  // For a FieldVisitor (engine/ir/attrs.h), which kernels do not know.
  template <class Visitor> void fields(Visitor& visit) {
    visit("function", function), visit("a", a), visit("b", b), visit("c", c), visit("constant", constant);
  }
};

struct Expression {
  std::vector<Instruction> code;  // the last instruction is the result
  bool operator==(const Expression&) const = default;
};

constexpr int kMaxInstructions = 64;
constexpr int kMaxOperands = 16;

// How operand element i follows from output element i of n.
enum class Broadcast : uint8_t {
  kFull,    // i
  kSuffix,  // i % size: a row vector, or [T, D] within [B, T, D]
  kPrefix,  // i / (n / size): a column
  kScalar,  // 0
  kMiddle,  // i / (n / size * row) * row + i % row: [B, 1, D] within [B, T, D], rows of D elements
};

const char* scalar_name(Scalar function);
std::span<const char* const> enum_names(Scalar);
int scalar_arity(Scalar function);            // 0 for kInput and kConstant
const char* scalar_formula(Scalar function);  // in CUDA, of a, b and c; stored_as_bf16() rounds

// Internal error unless the code has 1 to 64 instructions that refer to earlier ones and to operands in [0, operands).
void check_expression(const Expression& expression, int operands);

// The meaning of each function, for any floating-point type.
template <class T> T apply_scalar(Scalar function, T a, T b, T c) {
  switch (function) {
    case Scalar::kInput:
    case Scalar::kConstant: return a;
    case Scalar::kAdd: return a + b;
    case Scalar::kSub: return a - b;
    case Scalar::kMul: return a * b;
    case Scalar::kDiv: return a / b;
    case Scalar::kMax: return a > b || a != a ? a : b;
    case Scalar::kMin: return a < b || a != a ? a : b;
    case Scalar::kNeg: return -a;
    case Scalar::kExp: return std::exp(a);
    case Scalar::kLog: return std::log(a);
    case Scalar::kSqrt: return std::sqrt(a);
    case Scalar::kRsqrt: return 1 / std::sqrt(a);
    case Scalar::kReciprocal: return 1 / a;
    case Scalar::kTanh: return std::tanh(a);
    case Scalar::kSigmoid: return 1 / (1 + std::exp(-a));
    case Scalar::kErf: return std::erf(a);
    case Scalar::kRelu: return a < 0 ? T(0) : a;
    case Scalar::kSquare: return a * a;
    case Scalar::kAbs: return std::abs(a);
    case Scalar::kSin: return std::sin(a);
    case Scalar::kCos: return std::cos(a);
    case Scalar::kGreater: return a > b ? T(1) : T(0);
    case Scalar::kSelect: return a != 0 ? b : c;
    case Scalar::kEqual: return a == b ? T(1) : T(0);
    case Scalar::kFloor: return std::floor(a);
    case Scalar::kRound: return std::nearbyint(a);
    case Scalar::kPow: return std::pow(a, b);
    case Scalar::kAtan: return std::atan(a);
    case Scalar::kToBf16: return static_cast<T>(round_to_bf16(static_cast<float>(a)));
  }
  return a;
}

// The checked expression at one element; inputs[k] is operand k there.
template <class T> T evaluate_scalar(const Expression& expression, const T* inputs) {
  T values[kMaxInstructions];
  int count = 0;
  for (const Instruction& in : expression.code) {
    const auto value = [&](int16_t index) { return index < 0 ? T(0) : values[index]; };
    if (in.function == Scalar::kInput) {
      values[count++] = inputs[in.a];
    } else if (in.function == Scalar::kConstant) {
      values[count++] = static_cast<T>(in.constant);
    } else {
      values[count++] = apply_scalar<T>(in.function, value(in.a), value(in.b), value(in.c));
    }
  }
  return values[count - 1];
}

struct PointwiseOperand {
  StoredFloats data;
  int64_t size;  // elements of data: n when kFull, a divisor of n when kSuffix, kPrefix or kMiddle, 1 when kScalar
  Broadcast broadcast;
  int64_t row = 0;  // elements of a row, when kMiddle
};

// out[i] = expression(operands at i) for i in [0, n), computed in fp32 whatever is bf16 in memory. `out` may be the
// data of a kFull operand of its type, and overlaps no other. Allocates nothing. Internal error for an expression or
// operand that does not fit.
void pointwise(int64_t n, const Expression& expression, std::span<const PointwiseOperand> operands,
    MutableStoredFloats out, ThreadPool& pool);

// out[k, j] = the sum over i of expression(operands at (k, i, j)) for values of the shape [outer, rows, width], which
// are not stored; with `width` 1 the sums of rows. Added up in double, in an order that depends on the shape alone.
size_t pointwise_sum_workspace(int64_t outer, int64_t rows, int64_t width);  // in bytes, aligned for double
void pointwise_sum(int64_t outer, int64_t rows, int64_t width, const Expression& expression,
    std::span<const PointwiseOperand> operands, float* out, void* workspace, ThreadPool& pool);
}  // namespace linnet
