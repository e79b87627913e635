// What the parts of plan_memory() share.
#pragma once
#include <functional>

#include "app/plan_memory.h"

namespace linnet {

// The largest value for which fits(value), a multiple of nothing in particular: doubled until it does not fit, then
// halved in. 0 when not even `step` fits.
int64_t largest_fit(int64_t step, int64_t most, const std::function<bool(int64_t)>& fits);

PlanAnswer plan_masked(const Config& config, uint64_t memory);
PlanAnswer plan_classification(const Config& config, uint64_t memory);

}  // namespace linnet
