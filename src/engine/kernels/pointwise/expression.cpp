#include "engine/kernels/pointwise/expression.h"
#include "base/fail.h"

namespace linnet {
namespace {
struct Row {
  const char* name;
  int arity;
  const char* formula;
};

// In the order of Scalar. Formulas have apply_scalar's special cases: NaN is larger and smaller than anything, passes
// relu and select, and is greater than nothing.
constexpr Row kRows[] = {
    {"input", 0, ""},
    {"constant", 0, ""},
    {"add", 2, "a + b"},
    {"sub", 2, "a - b"},
    {"mul", 2, "a * b"},
    {"div", 2, "a / b"},
    {"max", 2, "a > b || a != a ? a : b"},
    {"min", 2, "a < b || a != a ? a : b"},
    {"neg", 1, "-a"},
    {"exp", 1, "expf(a)"},
    {"log", 1, "logf(a)"},
    {"sqrt", 1, "sqrtf(a)"},
    {"rsqrt", 1, "rsqrtf(a)"},
    {"reciprocal", 1, "1.0f / a"},
    {"tanh", 1, "tanhf(a)"},
    {"sigmoid", 1, "1.0f / (1.0f + expf(-a))"},
    {"erf", 1, "erff(a)"},
    {"relu", 1, "a < 0.0f ? 0.0f : a"},
    {"square", 1, "a * a"},
    {"abs", 1, "fabsf(a)"},
    {"sin", 1, "sinf(a)"},
    {"cos", 1, "cosf(a)"},
    {"greater", 2, "a > b ? 1.0f : 0.0f"},
    {"select", 3, "a != 0.0f ? b : c"},
    {"equal", 2, "a == b ? 1.0f : 0.0f"},
    {"floor", 1, "floorf(a)"},
    {"round", 1, "rintf(a)"},
    {"pow", 2, "powf(a, b)"},
    {"atan", 1, "atanf(a)"},
    {"to_bf16", 1, "stored_as_bf16(a)"},
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
const char* scalar_formula(Scalar function) { return kRows[static_cast<size_t>(function)].formula; }

void check_expression(const Expression& expression, int operands) {
  const auto count = static_cast<int>(expression.code.size());
  if (count < 1 || count > kMaxInstructions)
    fail_internal("a pointwise expression of ", count, " instructions; 1 to ", kMaxInstructions, " are possible");
  if (operands > kMaxOperands)
    fail_internal("a pointwise expression of ", operands, " operands; at most ", kMaxOperands, " are possible");
  for (int i = 0; i < count; ++i) {
    const Instruction& in = expression.code[i];
    const int arguments[3] = {in.a, in.b, in.c};
    const int arity = in.function == Scalar::kInput ? 1 : scalar_arity(in.function);
    const int limit = in.function == Scalar::kInput ? operands : i;
    for (int k = 0; k < arity; ++k)
      if (arguments[k] < 0 || arguments[k] >= limit)
        fail_internal("pointwise instruction ", i, " (", scalar_name(in.function), ") refers to ", arguments[k],
            ", which is not in [0, ", limit, ")");
  }
}
}  // namespace linnet
