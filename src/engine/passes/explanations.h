// What a traced model looks at: its attention probabilities as outputs of its graph, and how much each token adds.
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

// How much each token of a model's input adds to a score, by integrated gradients (Sundararajan, Taly & Yan 2017):
//
//   attribution[t] = (e[t] - m) . mean over alpha in (0, 1) of d score / d e[t]  at  m + alpha (e - m)
//
// e[t] is the row of the embedding table for token t, m the mean of the table's rows. The attributions of all tokens
// add up to the score of the text less the score of a text all of whose embeddings are m. The path does not start at
// zero: models that begin with an RMS norm (Llama, T5) jump there.
//
// A graph that computes what the score's graph does, at a point of that path for each row of the batch, and the
// products of which the attributions are means. It has
//
//   one more input: "alpha" f32 [B, 1, 1], in [0, 1]
//   an output "attribution.NAME" f32 [B, T] for each input NAME of `sequences`, token ids i32 [B, T]: (e - m) .
//   gradient
//
// `score` is a scalar: a sum over the rows of the batch. Internal error when no table is looked up by a sequence.
Graph attribute_tokens(Tensor score, std::span<const std::string> sequences);

}  // namespace linnet
