// Adds what explains a trained model to its graph: attention probabilities, and the share of each token in a score.
#pragma once
#include <span>
#include <string>
#include <vector>
#include "engine/ir/graph.h"

namespace linnet {
struct TracedAttention {
  std::string output;  // of the graph: f32 [B, heads, queries, keys], rows that sum to 1
  std::string module;  // "layers.0.self_attn"
  // The last sequence that queries and keys were computed from: a decoder's queries depend on the source too, while the
  // keys of its attention to the source depend on nothing else.
  size_t queries, keys;
};

// Adds an output for each attention in the graph, in node order. `sequences`: the graph's inputs of token ids, an
// encoder's before a decoder's. Attention whose queries or keys depend on none of them is left out.
std::vector<TracedAttention> add_attention_maps(Graph& graph, std::span<const std::string> sequences);

// How much each token of a model's input adds to a score, by integrated gradients (Sundararajan, Taly & Yan 2017):
//
//   attribution[t] = (e[t] - m) . mean over alpha in (0, 1) of d score / d e[t]  at  m + alpha (e - m)
//
// e[t] is the row of the embedding table for token t, m the mean of all rows. The attributions add up to the score of
// the text minus the score of a text whose embeddings are all m. The path does not start at zero, as models that begin
// with an RMS norm (Llama, T5) are discontinuous there.
//
// Returns a graph that computes the score at a point of that path for each row of the batch, and the products whose
// means over alpha are the attributions. It has
//
//   one more input: "alpha" f32 [B, 1, 1], in [0, 1]
//   an output "attribution.NAME" f32 [B, T] for each input NAME of `sequences`, token ids i32 [B, T]
//
// `score` is a scalar, a sum over the rows of the batch. Internal error if no table is looked up by a sequence.
Graph attribute_tokens(Tensor score, std::span<const std::string> sequences);
}  // namespace linnet
