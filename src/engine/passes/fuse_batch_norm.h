// A pass of passes.h that networks for images alone have use for.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

// batch_norm [+ add] + relu becomes one batch_norm, and relu's gradient a part of the norm's, where the backend has a
// kernel for it.
Graph fuse_batch_norm(const Graph& graph, const Backend& backend);

}  // namespace linnet
