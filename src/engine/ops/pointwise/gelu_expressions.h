// The two forms of gelu as expressions, by which a lowering recognizes them.
#pragma once
#include "engine/kernels/pointwise/expression.h"

namespace linnet {

Expression gelu_expression();       // x * (1 + erf(x / sqrt(2))) / 2
Expression gelu_tanh_expression();  // x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2

}  // namespace linnet
