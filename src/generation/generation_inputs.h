// Memory for what generation alone reads: its batch and its caches.
#pragma once
#include <optional>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/plan/store.h"

namespace linnet {

// Binds the inputs of these graphs that have no place yet, each as large as its largest use: integers ("generate.*") in
// a batch region, states ("cache.*", "memory.*") in a cache. Parameters and constants are the caller's.
// `cache`: where the states begin, in a region that grows to hold them; without it they get a region of their own.
void bind_generation_inputs(Store& store, const std::vector<const Graph*>& graphs, std::optional<Location> cache = {});

}  // namespace linnet
