// What is known of a plan's nodes before any of them has run: what they are called, which part of a step they belong
// to, how much they compute and move.
#pragma once
#include <string>
#include <vector>

#include "engine/plan/memory_map.h"

namespace linnet {

// kBoth: one node computes a loss and its gradient.
enum class StepPhase { kForward, kBoth, kBackward, kUpdate, kEvaluation };
const char* phase_name(StepPhase phase);  // "forward"
// Of the operations of a node of kBoth: the logits' product, and those of the two gradients.
constexpr double kForwardShare = 1.0 / 3;

// Of a training graph: forward is what the loss depends on, update begins with the norm of the gradients or the
// optimizer, backward is all else. Of other graphs all is evaluation.
std::vector<StepPhase> node_phases(const Graph& graph);

struct NodeProfile {
  std::string label;   // "matmul+bias"
  std::string module;  // "encoder.layers.0.self_attention"; empty outside of modules
  std::string source;  // "layers.cpp:41"
  StepPhase phase;
  double bytes;       // read and written: all of its operands and results, of a table only the rows that are looked up
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
