// Chooses what a training step recomputes to fit into a given memory.
#pragma once
#include "engine/ops/kernel.h"
#include "engine/passes/passes.h"
#include "engine/plan/plan.h"

namespace linnet {
enum class RecomputeMode : uint8_t {
  kNone,
  kAttention,  // recomputes attention in every layer
  kBlock,      // recomputes every layer
  kAuto,       // as much as the memory limit requires; nothing without a limit
};

struct Fit {
  bool fits = true;  // false: not even the smallest choice does
  std::vector<BlockChoice> choices = {};
  double extra_work = 0;     // recomputation's share of the step's estimated time
  size_t planned_bytes = 0;  // arena and workspace
  std::string text() const;  // "computes 5 of 12 layers again, about 8% more work"; empty: nothing
};

using FitsMemory = FunctionRef<bool(const PlanSize&)>;

Fit fit_by_mode(const Graph& traced, const PassOptions& passes, RecomputeMode mode);

// Returns the first choice that fits from a list with ever more work and less memory: nothing; then, layer by layer,
// what frees most bytes for its work; last, chains of layers. The list depends on the graph alone, so less memory never
// means less work. If nothing fits, returns the choice that takes least.
Fit fit_to_memory(const Graph& traced, const PassOptions& passes, const PlanOptions& planning, const FitsMemory& fits);
}  // namespace linnet
