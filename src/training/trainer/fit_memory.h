// What of a training step to compute again so that it fits into a given memory.
#pragma once
#include "engine/ops/kernel.h"
#include "engine/passes/passes.h"
#include "engine/plan/plan.h"

namespace linnet {

enum class RecomputeMode : uint8_t {
  kNone,
  kAttention,  // of every layer
  kBlock,      // every layer
  kAuto,       // as much as the memory asks for; without a limit nothing
};

struct Fit {
  bool fits = true;  // false: not even the choice that takes least does
  std::vector<BlockChoice> choices = {};
  double extra_work = 0;     // share of the step's estimated time that computing again adds
  size_t planned_bytes = 0;  // arena and workspace
  std::string text() const;  // "computes 5 of 12 layers again, about 8% more work"; empty: nothing
};

using FitsMemory = FunctionRef<bool(const PlanSize&)>;

// The choice for a mode other than kAuto.
Fit fit_by_mode(const Graph& traced, const PassOptions& passes, RecomputeMode mode);

// Of a list of choices, each with more work and less memory than the one before, the first whose plan fits: nothing,
// then for one layer after another what frees most bytes for its work, last chains of layers. The list depends on the
// graph alone, so less memory never means less work. When nothing fits, the choice that takes least.
Fit fit_to_memory(const Graph& traced, const PassOptions& passes, const PlanOptions& planning, const FitsMemory& fits);

}  // namespace linnet
