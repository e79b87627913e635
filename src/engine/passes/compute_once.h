// What depends on parameters alone is computed once, before the runs of a plan whose parameters do not change: the
// factors of batch normalization, or filters that a network standardizes. What only moves numbers
// stays as it is, but for operands that a kernel wants in an order of its own (OpDef::arranged_inputs).
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>
#include "engine/ir/graph.h"

namespace linnet {

struct ComputedOnce {
  std::vector<Graph> first;  // each from the parameters to an output of a name that `rest` has as an input
  Graph rest;
};

// `fixed`: the inputs that do not change; `prefix`: what the names of the new inputs begin with, after "once.".
// nullopt: there is nothing of that kind. For graphs as they were traced.
std::optional<ComputedOnce> compute_once(const Graph& graph, const std::set<std::string>& fixed,
                                         const std::string& prefix);

inline constexpr const char* kComputedOnce = "once.";
inline bool is_computed_once(const std::string& input) { return input.starts_with(kComputedOnce); }

}  // namespace linnet
