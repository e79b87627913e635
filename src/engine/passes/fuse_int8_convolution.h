// A pass of passes.h that networks for images alone have use for.
#pragma once
#include "engine/ir/graph.h"

namespace linnet {

// Convolutions whose filters are quantized to int8 multiply bytes. Where the scale of what they read is known
// beforehand (static int8), one that is read by others of them alone, or added by them, writes the codes that they
// would round its result to: its floats are never stored.
Graph fuse_int8_convolution(const Graph& graph);

}  // namespace linnet
