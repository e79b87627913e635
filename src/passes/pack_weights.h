// Weights of linear layers that are packed once, in their place, where parameters do not change between runs: otherwise
// every product packs its weight again, which costs the more the fewer rows there are (7 to 12% of an encoder's time).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "kernels/gemm/panels.h"
#include "kernels/precision.h"
#include "ops/kernel.h"

namespace linnet {

struct PackedMatrix {
  std::string flat;  // the input of the graph that the weight is a part of
  int64_t offset;    // elements, in it
  PanelsOf panels;
};

// The parameters that nothing but products reads, in any of the graphs, of which each can read panels
// (kernels/gemm/panels.h): no embeddings, no heads that share their weight with one, and nothing that a product of few
// rows reads. None where the backend is no CPU. For graphs as they were traced; `precision` is what they will be
// optimized with.
std::vector<PackedMatrix> packable_weights(std::span<const Graph> graphs, Precision precision, const Backend& backend);

// The products with these weights read them as panels, which whoever runs the plan makes of them by pack(). For graphs
// after all passes of optimize() but make_views().
Graph pack_weights(const Graph& graph, std::span<const PackedMatrix> weights);

// In place. flat: the flat input.
void pack(const PackedMatrix& weight, float* flat, ThreadPool& pool);

}  // namespace linnet
