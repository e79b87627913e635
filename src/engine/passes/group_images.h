// A convolutional network's large layers are computed for a few images at a time, so that what one layer writes is
// still in the processor's cache when the next one reads it: a batch of 8 images of 112 x 112 x 96 is 39 MB. It also
// takes less memory. Small layers keep the whole batch, which reads their filters once.
#pragma once
#include "engine/ir/graph.h"

namespace linnet {

// For graphs of forward passes as they were traced, on the CPU. The images are the first axis of what convolutions
// read.
Graph group_images(const Graph& graph);

}  // namespace linnet
