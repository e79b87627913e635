#include "linnet/testing.h"
#include "base/fail.h"
#include "engine/exec/op_trial.h"

namespace linnet::testing {
std::vector<std::string> check_op(const OpCase& op) {
  if (!op.build) fail_user("an op is checked without a function that records it");
  OpTrial trial{.build = [&](Graph&, const std::vector<Tensor>& in) { return op.build(in); },
      .tolerance = op.tolerance,
      .differentiate = op.differentiate};
  for (const OpInput& input : op.inputs) {
    if (input.integer && input.low >= input.high)
      fail_user("an integer operand of a checked op is in [", input.low, ", ", input.high, "), which is empty");
    trial.inputs.push_back({.shape = input.shape,
        .integer = input.integer,
        .low = input.low,
        .high = input.high,
        .center = input.center,
        .spread = input.spread});
  }
  return trial_problems(trial);
}
}  // namespace linnet::testing
