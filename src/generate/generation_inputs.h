// Memory for what generation alone reads: its batch and its caches.
#pragma once
#include <vector>

#include "ir/graph.h"
#include "plan/store.h"

namespace linnet {

// Binds the inputs of these graphs that have no place yet, each as large as its largest use: integers ("generate.*") in
// a batch region, states ("cache.*", "memory.*") in a cache. Parameters and constants are the caller's.
void bind_generation_inputs(Store& store, const std::vector<const Graph*>& graphs);

}  // namespace linnet
