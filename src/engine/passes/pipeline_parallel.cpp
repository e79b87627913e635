#include <algorithm>
#include <limits>
#include <string_view>
#include "base/fail.h"
#include "engine/ir/op.h"
#include "engine/passes/passes.h"
#include "engine/passes/tensor_parallel.h"

namespace linnet {
namespace {
constexpr const char* kStageInput = "pipeline.in.";

// The nodes of a graph in the order of the forward pass, and where its blocks begin and end.
class Model {
 public:
  Model(const Graph& graph, std::span<const ValueId> results, const std::set<std::string>& trained)
      : graph_(graph), depends_(graph.value_count()), last_reader_(depends_.size(), kNone) {
    for (const GraphInput& input : graph.inputs())
      if (trained.contains(input.name)) depends_[input.value] = true;
    for (NodeId id = 0; id < graph.node_count(); ++id) {
      const Node& node = graph.node(id);
      const bool depends = std::ranges::any_of(node.in, [&](ValueId in) { return depends_[in]; });
      for (const ValueId out : node.out) depends_[out] = depends;
      if (depends)
        for (const ValueId in : node.in) last_reader_[in] = id;
    }
    for (const ValueId id : results) last_reader_[id] = graph.node_count();
    for (const GraphOutput& output : graph.outputs()) last_reader_[output.value] = graph.node_count();
    find_runs();
  }

  const Graph& graph() const { return graph_; }
  int gap_count() const { return static_cast<int>(runs_.size()) + 1; }
  // Whether the value may come from an earlier stage; each stage computes all others itself.
  bool is_passed(ValueId id) const { return depends_[id] && graph_.value(id).producer != kNone; }
  bool is_own(const Node& node) const {
    return std::ranges::any_of(node.out, [&](ValueId v) { return is_passed(v); });
  }

  // The node before which a gap cuts the graph. It does not depend on sizes, so that graphs of all batch shapes are cut
  // alike. Between two blocks, it is where the fewest values cross, the first such node. Before the first block of a
  // stack it is the last one, so embeddings stay together and an encoder keeps its norm; behind the last block, what
  // follows belongs to the head.
  NodeId place(int gap) const {
    const bool begins_stack = gap == 0 || (gap < static_cast<int>(runs_.size()) && stack_of(gap - 1) != stack_of(gap));
    const NodeId begin = gap == 0 ? 0 : runs_[static_cast<size_t>(gap) - 1].last + 1;
    if (gap == static_cast<int>(runs_.size())) return begin;
    NodeId best = runs_[gap].first;
    size_t least = crossing(best).size();
    for (NodeId id = best - 1; id >= begin; --id) {
      const size_t count = crossing(id).size();
      if (count > 0 && (count < least || (count == least && !begins_stack))) best = id, least = count;
    }
    return best;
  }

  // The gap before the first block under "decoder" that follows one under "encoder".
  int gap_before_decoder() const {
    const auto is_of = [&](size_t run, std::string_view stack) {
      return stack_of(static_cast<int>(run)).find(stack) != std::string_view::npos;
    };
    for (size_t run = 1; run < runs_.size(); ++run)
      if (is_of(run - 1, "encoder") && is_of(run, "decoder")) return static_cast<int>(run);
    fail_user("pipeline=encoder-decoder is for models with an encoder and a decoder: write pipeline=2 for this one");
  }

  // The values computed before a node and read from it on.
  std::vector<ValueId> crossing(NodeId node) const {
    std::vector<ValueId> values;
    for (ValueId id = 0; id < graph_.value_count(); ++id)
      if (is_passed(id) && graph_.value(id).producer < node && last_reader_[id] >= node) values.push_back(id);
    return values;
  }

  // Products of nodes [first, last), and their bytes except parameters, as an embedding reads few of its rows.
  double work(NodeId first, NodeId last) const {
    double work = 0;
    for (NodeId id = first; id < last; ++id)
      if (const Node& node = graph_.node(id); is_own(node)) work += node_work(graph_, node, false);
    return work;
  }

 private:
  struct Run {
    std::string_view path;
    NodeId first, last;
  };

  // "decoder.layers" of the block "decoder.layers.3".
  std::string_view stack_of(int run) const {
    const std::string_view path = runs_[run].path;
    return path.substr(0, path.rfind('.'));
  }

  void find_runs() {
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      const Node& node = graph_.node(id);
      if (!is_own(node)) continue;
      const std::string_view path = block_path(graph_.scope_path(node.scope));
      if (path.empty()) continue;
      if (runs_.empty() || runs_.back().path != path) runs_.push_back({path, id, id});
      runs_.back().last = id;
    }
  }

  const Graph& graph_;
  std::vector<bool> depends_;        // by value: on a trained parameter
  std::vector<NodeId> last_reader_;  // by value, of the nodes that depend; node_count(): it is a result
  std::vector<Run> runs_;
};

std::vector<NodeId> stage_bounds(const Model& model, std::span<const int> gaps) {
  std::vector<NodeId> bounds{0};
  for (const int gap : gaps) {
    if (gap >= model.gap_count()) fail_internal("a graph has fewer blocks than the model that was cut");
    bounds.push_back(model.place(gap));
  }
  bounds.push_back(model.graph().node_count());
  return bounds;
}

struct StagePart {
  std::vector<bool> kept;  // by node: the stage's own, and those each stage computes itself, if they are read
  std::vector<bool> read;  // by value: by these nodes, or as a result
};

StagePart part_of_stage(const Model& model, std::span<const ValueId> results, NodeId first, NodeId end) {
  const Graph& graph = model.graph();
  StagePart part{std::vector<bool>(graph.node_count()), std::vector<bool>(graph.value_count())};
  std::vector<bool>&kept = part.kept, &read = part.read;
  if (end == graph.node_count()) {
    for (const ValueId id : results) read[id] = true;
    for (const GraphOutput& output : graph.outputs()) read[output.value] = true;
  }
  for (NodeId id = graph.node_count() - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    const bool is_own = model.is_own(node);
    const bool is_read = std::ranges::any_of(node.out, [&](ValueId out) { return read[out]; });
    kept[id] = is_own ? id >= first && id < end : is_read;
    if (kept[id])
      for (const ValueId in : node.in) read[in] = true;
  }
  return part;
}

PipelineCut finish_cut(const Model& model, std::span<const ValueId> results, std::vector<int> gaps) {
  const Graph& forward = model.graph();
  PipelineCut cut{.gaps = std::move(gaps), .parameters = {}, .work = {}};
  const std::vector<NodeId> bounds = stage_bounds(model, cut.gaps);
  const double all = model.work(0, forward.node_count());
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    cut.work.push_back(model.work(bounds[s], bounds[s + 1]) / all);
    std::set<std::string>& names = cut.parameters.emplace_back();
    const std::vector<bool> read = part_of_stage(model, results, bounds[s], bounds[s + 1]).read;
    for (const GraphInput& input : forward.inputs())
      if (read[input.value]) names.insert(input.name);
  }
  return cut;
}
}  // namespace

std::string stage_input(size_t i) { return kStageInput + std::to_string(i); }
std::string stage_output_name(size_t i) { return "pipeline.out." + std::to_string(i); }
std::string stage_gradient_input(size_t i) { return "pipeline.gradient_in." + std::to_string(i); }
std::string stage_gradient_output(size_t i) { return "pipeline.gradient_out." + std::to_string(i); }
bool is_stage_input(const std::string& name) { return name.find(kStageInput) != std::string::npos; }

PipelineCut choose_cut(const Graph& forward, std::span<const ValueId> results, const std::set<std::string>& trained,
    int stages, bool splits_encoder) {
  const Model model(forward, results, trained);
  if (splits_encoder) return finish_cut(model, results, {model.gap_before_decoder()});
  const int gaps = model.gap_count();
  if (gaps < stages - 1 || gaps < 2)
    fail_user("pipeline=", stages, ": the model has ", gaps - 1, gaps == 2 ? " layer" : " layers", " to cut between");
  const std::vector<NodeId> bounds = stage_bounds(model, numbers_below<int>(gaps));  // pieces, one more than gaps
  std::vector<double> sum{0};                                                        // of the first pieces
  for (size_t i = 0; i + 1 < bounds.size(); ++i) sum.push_back(sum.back() + model.work(bounds[i], bounds[i + 1]));
  // least[s][n]: the largest work of s + 1 stages that share the first n pieces; from[s][n]: where the last begins.
  const size_t pieces = sum.size() - 1, count = static_cast<size_t>(stages);
  std::vector least(count, std::vector<double>(pieces + 1, std::numeric_limits<double>::infinity()));
  std::vector from(count, std::vector<size_t>(pieces + 1));
  least[0] = sum;
  for (size_t s = 1; s < count; ++s)
    for (size_t n = s + 1; n <= pieces; ++n)
      for (size_t begin = s; begin < n; ++begin)
        if (const double most = std::max(least[s - 1][begin], sum[n] - sum[begin]); most < least[s][n])
          least[s][n] = most, from[s][n] = begin;
  std::vector<int> chosen;
  for (size_t s = count - 1, n = pieces; s > 0; --s) {
    n = from[s][n];
    chosen.insert(chosen.begin(), static_cast<int>(n) - 1);
  }
  return finish_cut(model, results, std::move(chosen));
}

StageEnds append_of_stage(const Graph& whole, std::span<const ValueId> results, const std::set<std::string>& trained,
    const PipelineCut& cut, const StageRank& rank, Graph& graph, InputByName input) {
  const Model model(whole, results, trained);
  const std::vector<NodeId> bounds = stage_bounds(model, cut.gaps);
  const NodeId first = bounds[rank.stage], end = bounds[static_cast<size_t>(rank.stage) + 1];
  std::vector<Tensor> values(whole.value_count());
  StageEnds ends;
  if (!rank.is_first())
    for (const ValueId id : model.crossing(first)) {
      const TensorType& type = whole.value(id).type;
      if (!is_float(type.dtype)) fail_user("pipeline parallel cannot cut this model: a stage would hand on integers");
      ends.in.push_back(values[id] = input(stage_input(ends.in.size()), type));
    }
  const StagePart part = part_of_stage(model, results, first, end);
  for (const GraphInput& each : whole.inputs())
    if (part.read[each.value]) values[each.value] = input(each.name, whole.value(each.value).type);
  for (NodeId id = 0; id < whole.node_count(); ++id) {
    if (!part.kept[id]) continue;
    const Node& node = whole.node(id);
    std::vector<Tensor> in;
    for (const ValueId operand : node.in) {
      if (!values[operand].defined()) fail_internal("a stage of the pipeline lacks a value: ", whole.where_text(id));
      in.push_back(values[operand]);
    }
    const ScopeId outer = graph.enter_scope(whole.scope_path(node.scope));
    const std::vector<Tensor> out = graph.add(*node.op, in, node.attrs, node.where);
    graph.set_scope(outer);
    for (size_t i = 0; i < out.size(); ++i) values[node.out[i]] = out[i];
  }
  if (!rank.is_last()) {
    for (const ValueId id : model.crossing(end)) ends.out.push_back(values[id]);
    return ends;
  }
  for (const ValueId id : results) ends.results.push_back(values[id]);
  for (const GraphOutput& output : whole.outputs()) graph.output(output.name, values[output.value]);
  return ends;
}
}  // namespace linnet
