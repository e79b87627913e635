// Filters of convolutions that are packed once, before the runs of a plan whose parameters do not change: otherwise the
// kernel packs them in every run, which costs more the fewer pixels there are.
#pragma once
#include <span>
#include <string>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/kernels/conv/convolution.h"
#include "engine/ops/kernel.h"

namespace linnet {

struct PackedFilters {
  std::string flat;  // the input of the graph that the filters are a part of
  int64_t offset;    // elements, in it
  ConvolutionSizes sizes;
  int64_t floats = 0;  // packed

  std::string input() const { return "packed." + flat + "." + std::to_string(offset); }  // that holds them packed
};

// The parameters that convolutions of all graphs read and can take packed, in one way. None where the backend's kernels
// do not take packed filters. For graphs as they were traced.
std::vector<PackedFilters> packable_filters(std::span<const Graph> graphs, const Backend& backend);

// The convolutions read these filters packed, from inputs of their own that whoever runs the plan fills by
// pack().
Graph pack_filters(const Graph& graph, std::span<const PackedFilters> filters);

// flat: the flat input; packed: 64-byte aligned.
void pack(const PackedFilters& filters, const float* flat, float* packed, ThreadPool& pool);

}  // namespace linnet
