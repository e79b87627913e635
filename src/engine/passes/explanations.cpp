#include <algorithm>
#include "base/fail.h"
#include "engine/ir/op.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
constexpr int kNoSequence = -1;

// By value: the last sequence that it was computed from.
std::vector<int> last_sequences(const Graph& graph, std::span<const std::string> sequences) {
  std::vector<int> last(graph.value_count(), kNoSequence);
  for (size_t i = 0; i < sequences.size(); ++i)
    if (const auto input = graph.find_input(sequences[i])) last[*input] = static_cast<int>(i);
  for (const Node& node : graph.nodes()) {
    int latest = kNoSequence;
    for (const ValueId in : node.in) latest = std::max(latest, last[in]);
    for (const ValueId out : node.out) last[out] = latest;
  }
  return last;
}

struct Lookup {
  std::string sequence;
  Tensor moved, difference;  // m + alpha (e - m), and e - m: [B, T, D]
};

std::vector<Lookup> move_lookups(Rewriter& rewriter, std::span<const std::string> sequences) {
  std::vector<Lookup> lookups;
  for (const Node& node : rewriter.old().nodes()) {
    rewriter.copy(node);
    if (!is(node, kEmbedding)) continue;
    const auto is_looked_up = [&](const std::string& name) { return rewriter.old().find_input(name) == node.in[1]; };
    const auto sequence = std::ranges::find_if(sequences, is_looked_up);
    if (sequence == sequences.end()) continue;
    const Tensor row = rewriter[node.out[0]], table = rewriter[node.in[0]];
    const Tensor alpha = rewriter.graph().input("alpha", {row.type().dtype, {row.dim(0), 1, 1}});
    const Tensor mean = sum_to(table, {table.dim(1)}) * (1 / static_cast<double>(table.dim(0)));
    const Tensor difference = row - mean;
    lookups.push_back({*sequence, difference * alpha + mean, difference});
    rewriter.map(node.out[0], lookups.back().moved);
  }
  return lookups;
}
}  // namespace

std::vector<TracedAttention> add_attention_maps(Graph& graph, std::span<const std::string> sequences) {
  const std::vector<int> last = last_sequences(graph, sequences);
  std::vector<TracedAttention> found;
  const ScopeId scope = graph.scope();
  for (NodeId id = 0, count = graph.node_count(); id < count; ++id) {
    const Node node = graph.node(id);  // a copy: the graph grows below
    if (!is(node, kAttention)) continue;
    const int queries = last[node.in[0]], keys = last[node.in[1]];
    if (queries == kNoSequence || keys == kNoSequence) continue;
    const std::vector<Tensor> in = mapped(node.in, [&](ValueId value) { return Tensor{&graph, value}; });
    graph.set_scope(node.scope);
    const std::string output = "attention." + std::to_string(found.size());
    graph.output(output, attention_probabilities({graph, node, in}));
    found.push_back({output, graph.scope_path(node.scope), static_cast<size_t>(queries), static_cast<size_t>(keys)});
  }
  graph.set_scope(scope);
  return found;
}

Graph attribute_tokens(Tensor score, std::span<const std::string> sequences) {
  Rewriter rewriter(*score.graph);
  const std::vector<Lookup> lookups = move_lookups(rewriter, sequences);
  const std::vector<Tensor> towards = gradients(rewriter[score.id], mapped(lookups, &Lookup::moved));
  for (const std::string& sequence : sequences) {
    Tensor sum;
    for (size_t i = 0; i < lookups.size(); ++i) {
      if (lookups[i].sequence != sequence) continue;
      const Tensor products = towards[i] * lookups[i].difference;
      const int64_t rows = products.dim(0), length = products.dim(1);
      const Tensor part = reshape(sum_to(products, {rows, length, 1}), {rows, length});
      sum = sum.defined() ? sum + part : part;
    }
    if (!sum.defined()) fail_internal("no embedding is looked up by the input \"", sequence, "\"");
    rewriter.graph().output("attribution." + sequence, sum);
  }
  return rewriter.finish();
}
}  // namespace linnet
