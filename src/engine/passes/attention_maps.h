// The attention probabilities of a traced model as outputs of its graph.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace linnet {

struct TracedAttention {
  std::string output;  // of the graph: f32 [B, heads, queries, keys], rows that sum to 1
  std::string module;  // "layers.0.self_attn"
  // Which of the sequences the queries and the keys belong to: the last one that they were computed from. A decoder's
  // queries depend on the source too, the keys of its attention to the source on nothing else.
  size_t queries, keys;
};

// Adds an output for each attention in the graph, in the order of the nodes. `sequences`: the graph's inputs of token
// ids, an encoder's before a decoder's. An attention of which queries or keys depend on none of them is left out.
std::vector<TracedAttention> add_attention_maps(Graph& graph, std::span<const std::string> sequences);

}  // namespace linnet
