#include "ir/op.h"

namespace linnet {

void expect_inputs(const InferArgs& args, size_t count) {
  if (args.in.size() != count)
    throw ShapeProblem("got " + std::to_string(args.in.size()) + " operands, expected " + std::to_string(count));
}

void expect(bool condition, const std::string& problem) {
  if (!condition) throw ShapeProblem(problem);
}

}  // namespace linnet
