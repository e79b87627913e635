#include <algorithm>
#include <array>
#include <numeric>
#include "base/error.h"
#include "base/timeline.h"
#include "engine/ir/op.h"
#include "engine/ops/collective/collective.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {

namespace {

struct Pass {
  const char* name;
  Graph (*run)(const Graph&, const PassOptions&);
  bool (*wanted)(const PassOptions&) = [](const PassOptions&) { return true; };
};

template <Graph (*rewrite)(const Graph&)>
Graph plain(const Graph& graph, const PassOptions&) {
  return rewrite(graph);
}

// What is rounded is said before anything is computed again. Blocks are computed again next: all other passes then
// treat both computations alike, so both are fused. A loss before anything could come between it and its gradient.
// Norms take their sums before products add to them. Epilogues before sums: a bias belongs to its product before the
// product joins a sum. Quantized weights after both, so that those fusions know plain products alone. Views last: they
// fix layouts.
constexpr std::array kPasses{
    Pass{"round_shared", plain<round_shared>, [](const PassOptions& o) { return o.storage_type == DType::kBF16; }},
    Pass{"recompute_blocks", [](const Graph& g, const PassOptions& o) { return recompute_blocks(g, o.blocks); },
         [](const PassOptions& o) { return !o.blocks.empty(); }},
    Pass{"lower_precision",
         [](const Graph& g, const PassOptions& o) {
           return lower_precision(g, o.precision, o.attention_precision.value_or(o.precision));
         },
         [](const PassOptions& o) {
           return o.precision != Precision::kF32 || o.attention_precision.value_or(o.precision) != Precision::kF32;
         }},
    Pass{"independent_rows", plain<independent_rows>, [](const PassOptions& o) { return o.independent_rows; }},
    Pass{"fuse_loss", plain<fuse_loss>},
    Pass{"recompute", [](const Graph& g, const PassOptions& o) { return recompute(g, *o.backend); },
         [](const PassOptions& o) { return o.recompute; }},
    Pass{"fuse_residual_norm", plain<fuse_residual_norm>},
    Pass{"fuse_batch_norm", [](const Graph& g, const PassOptions& o) { return fuse_batch_norm(g, *o.backend); }},
    Pass{"fuse_pool_gradient", [](const Graph& g, const PassOptions& o) { return fuse_pool_gradient(g, *o.backend); }},
    Pass{"fuse_epilogue", plain<fuse_epilogue>},
    Pass{"fuse_convolution", [](const Graph& g, const PassOptions& o) { return fuse_convolution(g, *o.backend); }},
    Pass{"pack_filters", [](const Graph& g, const PassOptions& o) { return pack_filters(g, o.filters); },
         [](const PassOptions& o) { return !o.filters.empty(); }},
    Pass{"fuse_embedding_scale",
         [](const Graph& g, const PassOptions& o) { return fuse_embedding_scale(g, *o.backend); }},
    Pass{"fuse_accumulate", plain<fuse_accumulate>},
    Pass{"fuse_bias_gradient", [](const Graph& g, const PassOptions& o) { return fuse_bias_gradient(g, *o.backend); }},
    Pass{"quantize_products", plain<quantize_products>, [](const PassOptions& o) { return o.int8; }},
    Pass{"fuse_quantized", [](const Graph& g, const PassOptions& o) { return fuse_quantized(g, *o.backend); }},
    Pass{"fuse_int8_convolution", plain<fuse_int8_convolution>},
    Pass{"fuse_pointwise", [](const Graph& g, const PassOptions& o) { return fuse_pointwise(g, *o.backend); }},
    Pass{"cast_to_storage_type",
         [](const Graph& g, const PassOptions& o) { return cast_to_storage_type(g, *o.storage_type, *o.backend); },
         [](const PassOptions& o) { return o.storage_type.has_value(); }},
    Pass{"make_views", plain<make_views>}};

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) names.emplace_back(pass.name);
  return names;
}

Graph optimize(Graph graph, const PassOptions& options, std::vector<PassReport>* report) {
  const auto names = pass_names();
  for (const std::string& name : options.off)
    if (std::find(names.begin(), names.end(), name) == names.end()) fail_user("there is no pass " + name);
  graph = remove_dead_code(graph);
  for (const Pass& pass : kPasses) {
    const double start = now();
    const int before = graph.node_count();
    const bool run = pass.wanted(options) && !options.off.contains(pass.name);
    std::vector<std::string> fused;
    if (run) {
      Graph next = pass.run(graph, options);
      if (report) fused = new_nodes(graph, next);
      graph = std::move(next);
      if (options.verify) verify(graph);
    }
    const double seconds = now() - start;
    if (report) report->push_back({pass.name, run, before, graph.node_count(), seconds, fused});
  }
  return graph;
}

Graph remove_dead_code(const Graph& graph) {
  std::vector<bool> live(static_cast<size_t>(graph.value_count()));
  for (const GraphOutput& output : graph.outputs()) live[static_cast<size_t>(output.value)] = true;
  for (const StateUpdate& update : graph.updates()) live[static_cast<size_t>(update.value)] = true;
  std::vector<bool> kept(static_cast<size_t>(graph.node_count()));
  for (NodeId id = graph.node_count() - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    bool needed = false;
    for (ValueId out : node.out) needed = needed || live[static_cast<size_t>(out)];
    kept[static_cast<size_t>(id)] = needed;
    if (!needed) continue;
    for (ValueId in : node.in) live[static_cast<size_t>(in)] = true;
  }
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    if (!kept[static_cast<size_t>(id)]) continue;
    if (is(node, kShare))  // it has told the backward pass what it had to
      rewriter.map(node.out[0], rewriter[node.in[0]]);
    else rewriter.copy(node);
  }
  return rewriter.finish();
}

Graph decompose(const Graph& graph, bool (*keep)(const OpDef& op)) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (!node.op->decompose || (keep && keep(*node.op))) {
      rewriter.copy(node);
      continue;
    }
    rewriter.graph().set_scope(node.scope);
    const std::vector<Tensor> out = node.op->decompose({rewriter.graph(), node, rewriter.inputs_of(node)});
    for (size_t i = 0; i < out.size(); ++i) rewriter.map(node.out[i], out[i]);
  }
  return rewriter.finish();
}

// Products of a decoding graph, whose rows belong to requests that do not know each other: what a request gets must not
// depend on how many others there are.

Graph independent_rows(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const auto change = node.op->with_independent_rows;
    rewriter.replace(node, *node.op, rewriter.inputs_of(node), change ? change(node.attrs) : node.attrs);
  }
  return rewriter.finish();
}

Graph run_early(const Graph& graph, NodeId first) {
  // After which of the nodes before `first` each node comes.
  std::vector<NodeId> after(static_cast<size_t>(graph.node_count()));
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    NodeId& place = after[static_cast<size_t>(id)];
    place = id < first ? id : -1;
    if (id < first) continue;
    for (const ValueId in : graph.node(id).in)
      if (const NodeId producer = graph.value(in).producer; producer != kNone)
        place = std::max(place, after[static_cast<size_t>(producer)]);
  }
  // What has no operands stands before its first reader.
  for (NodeId id = first; id < graph.node_count(); ++id) {
    if (!graph.node(id).in.empty()) continue;
    NodeId place = graph.node_count();
    for (const Node& reader : graph.nodes()) {
      const bool reads = std::ranges::any_of(reader.in, [&](ValueId in) { return graph.value(in).producer == id; });
      if (reads) place = std::min(place, after[static_cast<size_t>(&reader - graph.nodes().data())]);
    }
    after[static_cast<size_t>(id)] = place;
  }
  std::vector<NodeId> order(after.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](NodeId id) { return after[static_cast<size_t>(id)]; });
  Rewriter rewriter(graph);
  for (const NodeId id : order) rewriter.copy(graph.node(id));
  return rewriter.finish();
}

}  // namespace linnet
