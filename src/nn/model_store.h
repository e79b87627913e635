// The memory every model needs to run, declared in one call.
#pragma once
#include "nn/parameter_layout.h"
#include "plan/plan.h"

namespace linnet {

// Binds "parameters" and "constants" in regions of their own, and adds the arena and the workspace that plans share.
SharedRegions declare_model(Store& store, const ParameterLayout& layout);

// A region for a flat buffer in the order of the layout, bound by `name` as a whole and by the inputs of graphs: one
// for each trained range, and, for the parameters themselves (`with_untrained`), one for the frozen ones
// behind them and one for buffers.
void declare_flat(Store& store, const ParameterLayout& layout, const std::string& name, MemoryKind kind,
                  bool with_untrained);

}  // namespace linnet
