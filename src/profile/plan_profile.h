// What is known of a plan's nodes before any of them has run: what they are called, which part of a step they belong
// to, how much they compute and move.
#pragma once
#include <string>
#include <vector>

#include "plan/memory_map.h"

namespace linnet {

enum class StepPhase { kForward, kBackward, kUpdate, kEvaluation };
const char* phase_name(StepPhase phase);  // "forward"

// Of a training graph: forward is what the loss depends on, update begins with the norm of the gradients, backward is
// all else. A node that computes loss and gradient together counts as forward. Of other graphs all is evaluation.
std::vector<StepPhase> node_phases(const Graph& graph);

struct NodeProfile {
  std::string label;   // "matmul+bias"
  std::string module;  // "encoder.layers.0.self_attention"; empty outside of modules
  std::string source;  // "layers.cpp:41"
  StepPhase phase;
  double bytes;       // of all operands and results
  double flops;       // OpDef::flops
  double kept_bytes;  // of the arena that its results take until the backward pass, if it is of the forward pass
};

struct PlanProfile {
  std::string name;  // "train.0"
  std::vector<NodeProfile> nodes;
  std::vector<ArenaTenant> tenants;
  std::vector<size_t> live;  // bytes of the arena in use, by node
  size_t arena_bytes = 0;
};

PlanProfile describe_plan(std::string name, const Plan& plan, RegionId arena);

}  // namespace linnet
