// Filters of convolutions that are packed once, before the runs of a plan whose parameters do not change: otherwise the
// kernel packs them in every run, which costs more the fewer pixels there are.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "kernels/conv/convolution.h"
#include "ops/kernel.h"

namespace linnet {

struct PackedFilters {
  std::string flat;  // the input of the graph that the filters are a part of
  int64_t offset;    // elements, in it
  ConvolutionSizes sizes;

  std::string input() const { return "packed." + flat + "." + std::to_string(offset); }  // that holds them packed
  int64_t floats() const { return packed_filter_floats(sizes); }
  // What is packed for one serves the other.
  bool is_like(const PackedFilters& other) const {
    return flat == other.flat && offset == other.offset && convolution_method(sizes) == convolution_method(other.sizes);
  }
};

// The parameters that convolutions read which can take them packed. None where the backend's kernels do not take packed
// filters. For a graph as it was traced.
std::vector<PackedFilters> packable_filters(const Graph& graph, const Backend& backend);

// The convolutions read these filters packed, from inputs of their own that whoever runs the plan fills by
// pack_convolution_filters().
Graph pack_filters(const Graph& graph, std::span<const PackedFilters> filters);

}  // namespace linnet
