#include "engine/ops/round_half/round_half.h"

#include <array>

#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

std::vector<TensorType> infer(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(is_float(args.in[0].dtype), "got " + args.in[0].text());
  return {args.in[0]};
}

}  // namespace

const OpDef kRoundHalf{.name = "round_half",
                       .infer = infer,
                       .may_overwrite = [](const Node&, int, int) { return true; },
                       .algebra = always<Algebra::kElementwise>,
                       .cheap = true};

Tensor round_half(At x) { return graph_of(x)->add_one(kRoundHalf, std::array{x.value}, {}, x.where); }

}  // namespace linnet
