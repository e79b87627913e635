// The memory every model needs to run, declared in one call.
#pragma once
#include "nn/parameter_layout.h"
#include "plan/plan.h"

namespace linnet {

// Binds "parameters" and "constants" in regions of their own, and adds the arena and the workspace that plans share.
SharedRegions declare_model(Store& store, const ParameterLayout& layout);

}  // namespace linnet
