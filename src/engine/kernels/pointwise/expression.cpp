#include "engine/kernels/pointwise/expression.h"
#include <array>
#include <string>
#include "base/error.h"

namespace linnet {
namespace {

struct Row {
  const char* name;
  int arity;
};

// In the order of Scalar.
constexpr Row kRows[] = {
    {"input", 0},  {"constant", 0},   {"add", 2},   {"sub", 2},     {"mul", 2},     {"div", 2},
    {"max", 2},    {"min", 2},        {"neg", 1},   {"exp", 1},     {"log", 1},     {"sqrt", 1},
    {"rsqrt", 1},  {"reciprocal", 1}, {"tanh", 1},  {"sigmoid", 1}, {"erf", 1},     {"relu", 1},
    {"square", 1}, {"abs", 1},        {"sin", 1},   {"cos", 1},     {"greater", 2}, {"select", 3},
    {"equal", 2},  {"floor", 1},      {"round", 1}, {"pow", 2},     {"atan", 1},    {"to_bf16", 1},
};
static_assert(std::size(kRows) == static_cast<size_t>(kLastScalar) + 1);

}  // namespace

const char* scalar_name(Scalar function) { return kRows[static_cast<size_t>(function)].name; }

std::span<const char* const> enum_names(Scalar) {
  static const auto kNames = [] {
    std::array<const char*, std::size(kRows)> names{};
    for (size_t i = 0; i < names.size(); ++i) names[i] = kRows[i].name;
    return names;
  }();
  return kNames;
}

int scalar_arity(Scalar function) { return kRows[static_cast<size_t>(function)].arity; }

void check_expression(const Expression& expression, int operands) {
  const auto count = static_cast<int>(expression.code.size());
  if (count < 1 || count > kMaxInstructions)
    fail_internal("a pointwise expression of " + std::to_string(count) + " instructions; 1 to " +
                  std::to_string(kMaxInstructions) + " are possible");
  if (operands > kMaxOperands)
    fail_internal("a pointwise expression of " + std::to_string(operands) + " operands; at most " +
                  std::to_string(kMaxOperands) + " are possible");
  for (int i = 0; i < count; ++i) {
    const Instruction& in = expression.code[static_cast<size_t>(i)];
    const int arguments[3] = {in.a, in.b, in.c};
    const int arity = in.function == Scalar::kInput ? 1 : scalar_arity(in.function);
    const int limit = in.function == Scalar::kInput ? operands : i;
    for (int k = 0; k < arity; ++k)
      if (arguments[k] < 0 || arguments[k] >= limit)
        fail_internal("pointwise instruction " + std::to_string(i) + " (" + scalar_name(in.function) + ") refers to " +
                      std::to_string(arguments[k]) + ", which is not in [0, " + std::to_string(limit) + ")");
  }
}

}  // namespace linnet
