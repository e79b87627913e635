#include <array>
#include <vector>
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
struct Known {
  bool fixed = false;  // it depends on parameters and on numbers of the graph alone
  bool of_parameters = false;
  bool computed = false;  // by arithmetic on them
};

std::vector<Known> known_values(const Graph& graph, const std::set<std::string>& fixed) {
  std::vector<Known> known(graph.value_count());
  for (const GraphInput& input : graph.inputs())
    if (fixed.contains(input.name)) known[input.value] = {.fixed = true, .of_parameters = true};
  for (const Node& node : graph.nodes()) {
    Known result{.fixed = true};
    for (const ValueId in : node.in) {
      result.fixed = result.fixed && known[in].fixed;
      result.of_parameters = result.of_parameters || known[in].of_parameters;
      result.computed = result.computed || known[in].computed;
    }
    const Algebra algebra = algebra_of(node);
    const bool is_arithmetic =
        algebra == Algebra::kOther || algebra == Algebra::kElementwise || algebra == Algebra::kAdd;
    result.computed = result.fixed && result.of_parameters && (result.computed || is_arithmetic);
    for (const ValueId out : node.out) known[out] = result;
  }
  return known;
}
}  // namespace

std::optional<ComputedOnce> compute_once(
    const Graph& graph, const std::set<std::string>& fixed, const std::string& prefix) {
  const std::vector<Known> known = known_values(graph, fixed);
  std::set<ValueId> wanted;  // computed, or arranged for a kernel, and read by what is not fixed
  for (const Node& node : graph.nodes())
    for (size_t i = 0; i < node.in.size() && !known[node.out[0]].fixed; ++i)
      if (const Known& in = known[node.in[i]];
          in.computed || (in.fixed && in.of_parameters && node.op->arranged_inputs >> i & 1))
        wanted.insert(node.in[i]);
  if (wanted.empty() || !graph.updates().empty()) return std::nullopt;
  ComputedOnce result;
  Rewriter rest(graph);
  for (const Node& node : graph.nodes()) {
    rest.copy(node);
    for (const ValueId out : node.out) {
      if (!wanted.contains(out)) continue;
      const std::string name = kComputedOnce + prefix + "." + std::to_string(result.first.size());
      Graph& first = result.first.emplace_back();
      first.output(name, copy_computation(graph, std::array{out}, first)[out]);
      rest.map(out, rest.graph().input(name, graph.value(out).type));
    }
  }
  result.rest = remove_dead_code(rest.finish());
  return result;
}
}  // namespace linnet
