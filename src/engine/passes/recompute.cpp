#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include "base/numbers.h"
#include "base/text.h"
#include "engine/ir/op.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
std::string_view block_path(std::string_view scope) {
  for (size_t begin = 0; begin < scope.size();) {
    const size_t end = std::min(scope.find('.', begin), scope.size());
    if (is_digits(scope.substr(begin, end - begin))) return scope.substr(0, end);
    begin = end + 1;
  }
  return {};
}

namespace {
constexpr const char* kLoss = "loss_sum";
constexpr double kOperationsPerByte = 8;  // a CPU core does about 80 GFLOP/s and reads about 10 GB/s

// By value: the value whose memory it lies in, through reshapes and parts.
std::vector<ValueId> owners_of(const Graph& graph) {
  std::vector<ValueId> owner = numbers_below<ValueId>(graph.value_count());
  for (const Node& node : graph.nodes())
    if (renames(node))
      for (const ValueId out : node.out) owner[out] = owner[node.in[0]];
  return owner;
}

bool is_below(std::string_view scope, std::string_view path) {
  return scope.starts_with(path) && (scope.size() == path.size() || scope[path.size()] == '.');
}

// The block, and the attention module in it, of each node. Gradient nodes have their forward node's scope.
class BlockMap {
 public:
  explicit BlockMap(const Graph& graph) : graph_(graph), loss_(find_loss(graph)) {
    if (loss_ == kNone) return;
    for (NodeId id = 0; id <= loss_; ++id) {
      const Node& node = graph.node(id);
      const std::string_view scope = graph.scope_path(node.scope), path = block_path(scope);
      if (path.empty()) continue;
      if (index_.emplace(path, static_cast<int>(paths_.size())).second) paths_.emplace_back(path);
      if (node.op->product == ProductKind::kAttention && scope.size() > path.size()) attentions_.emplace(scope);
    }
  }

  NodeId loss() const { return loss_; }
  const std::vector<std::string>& paths() const { return paths_; }

  int block(const Node& node) const {  // -1: none
    return find_or(index_, block_path(graph_.scope_path(node.scope)), -1);
  }

  std::string_view attention(const Node& node) const {  // empty: none
    const std::string_view scope = graph_.scope_path(node.scope);
    for (const std::string_view path : attentions_)
      if (is_below(scope, path)) return path;
    return {};
  }

 private:
  const Graph& graph_;
  const NodeId loss_;
  std::vector<std::string> paths_;
  std::map<std::string_view, int> index_;  // keys are the graph's scope paths
  std::set<std::string_view> attentions_;
};

class RecomputeBlocks {
 public:
  RecomputeBlocks(const Graph& graph, std::span<const BlockChoice> choices)
      : graph_(graph), blocks_(graph), rewriter_(graph), dropped_(graph.value_count()), outlives_(dropped_.size()) {
    mark(choices);
  }

  Graph run() {
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      const Node& node = graph_.node(id);
      if (id > blocks_.loss()) {
        enter(blocks_.block(node));
        for (const ValueId in : node.in) compute_again(in);
      }
      rewriter_.copy(node);
    }
    restore([](ValueId) { return true; });  // what leaves the graph is the first computation
    return rewriter_.finish();
  }

 private:
  // Nodes of one unit are recomputed together; empty: not recomputed. A chain of joined blocks is one unit.
  std::string unit(const Node& node, std::span<const BlockChoice> choices) const {
    int block = blocks_.block(node);
    if (block < 0 || block >= std::ssize(choices)) return "";
    const std::string attention(blocks_.attention(node));
    switch (choices[block].what) {
      case Recomputation::kNone: return "";
      case Recomputation::kAttention: return attention;
      case Recomputation::kPart: return blocks_.paths()[block];
      case Recomputation::kBlock:
        while (block > 0 && choices[block].joined) --block;
        return blocks_.paths()[block];
    }
    return "";
  }

  // A value is dropped if the forward pass reads it only inside its unit.
  void mark(std::span<const BlockChoice> choices) {
    if (blocks_.loss() == kNone) return;
    std::vector<std::string> units;
    std::vector<int> seen(choices.size());  // nodes of each block so far
    std::vector<bool> kept;
    for (NodeId id = 0; id <= blocks_.loss(); ++id) {
      units.push_back(unit(graph_.node(id), choices));
      const int block = blocks_.block(graph_.node(id));
      const bool chosen = block >= 0 && block < std::ssize(choices);
      kept.push_back(chosen && contains(choices[block].kept, seen[block]++));
    }
    const Matcher matcher(graph_);
    for (NodeId id = 0; id < blocks_.loss(); ++id) {
      if (units[id].empty()) continue;
      const int block = blocks_.block(graph_.node(id));
      for (const ValueId out : graph_.node(id).out) {
        bool inside = true;
        for (const NodeId reader : matcher.readers(out)) {
          if (reader == graph_.node_count()) inside = false;  // it leaves the graph
          if (reader > blocks_.loss()) continue;
          inside = inside && units[reader] == units[id];
          if (blocks_.block(graph_.node(reader)) != block) outlives_[out] = true;
        }
        dropped_[out] = inside && !kept[id];
      }
    }
  }

  // Called when the backward pass reaches a node of this block. Recomputed values of other blocks, except their inputs,
  // are forgotten, so that they take no memory until the pass reaches those blocks.
  void enter(int block) {
    if (block < 0 || block == current_) return;
    current_ = block;
    restore([&](ValueId value) { return !outlives_[value]; });
  }

  template <class Which> void restore(const Which& which) {
    std::erase_if(again_, [&](const auto& entry) {
      if (!which(entry.first)) return false;
      rewriter_.map(entry.first, entry.second);
      return true;
    });
  }

  void compute_again(ValueId value) {
    if (!dropped_[value] || again_.contains(value)) return;
    const Node& node = graph_.node(graph_.value(value).producer);
    for (const ValueId in : node.in) compute_again(in);
    const std::vector<Tensor> out = rewriter_.add(node, *node.op, rewriter_.inputs_of(node), node.attrs);
    for (size_t i = 0; i < out.size(); ++i) {
      if (!dropped_[node.out[i]]) continue;
      again_.emplace(node.out[i], rewriter_[node.out[i]]);
      rewriter_.map(node.out[i], out[i]);
    }
  }

  const Graph& graph_;
  const BlockMap blocks_;
  Rewriter rewriter_;
  std::vector<bool> dropped_;        // by value: not saved for the backward pass
  std::vector<bool> outlives_;       // by value: another block reads it
  std::map<ValueId, Tensor> again_;  // computed again for the block at hand; what the first computation gave
  int current_ = -1;
};

// See kept_parts(). Keeping a value saves its computation and that of values needed for it alone.
class KeptParts {
 public:
  KeptParts(const Graph& graph, const Block& block) : graph_(graph), place_(graph.node_count(), -1) {
    const BlockMap blocks(graph);
    const Matcher matcher(graph);
    for (NodeId id = 0; id <= blocks.loss(); ++id)
      if (block_path(graph.scope_path(graph.node(id).scope)) == block.path)
        place_[id] = static_cast<int>(ids_.size()), ids_.push_back(id);
    for (const NodeId id : ids_)
      for (const ValueId out : graph.node(id).out) {
        const auto readers = matcher.readers(out);
        const bool outlives = std::ranges::any_of(readers, [&](NodeId reader) {
          return reader == graph.node_count() || (reader <= blocks.loss() && place_[reader] < 0);
        });
        if (outlives) outlives_.insert(out);
        if (!outlives && std::ranges::any_of(readers, [&](NodeId reader) { return reader > blocks.loss(); }))
          needed_.push_back(out);
      }
  }

  std::vector<std::vector<int>> run() const {
    std::vector<std::vector<int>> lists;
    const double whole = cost({});
    double last = whole;
    for (std::set<int> kept; lists.size() < kMost;) {
      const double now = cost(kept);
      int best = -1;
      double best_gain = 0;
      for (const NodeId id : ids_) {
        const int place = place_[id];
        if (kept.contains(place) || renames(graph_.node(id)) || bytes(id) == 0) continue;
        std::set<int> with = kept;
        with.insert(place);
        if (const double gain = (now - cost(with)) / bytes(id); gain > best_gain) best = place, best_gain = gain;
      }
      if (best < 0) break;
      kept.insert(best);
      if (const double next = cost(kept); last - next >= kLeastStep * whole) {
        lists.emplace_back(kept.begin(), kept.end());
        last = next;
      }
    }
    return lists;
  }

 private:
  static constexpr size_t kMost = 8;              // lists
  static constexpr double kLeastStep = 1.0 / 16;  // of the work of computing the whole block again

  double bytes(NodeId id) const {
    return sum_of<double>(
        graph_.node(id).out, [&](ValueId out) { return outlives_.contains(out) ? 0 : graph_.value(out).type.bytes(); });
  }

  // The cost of recomputing what the backward pass needs and is not kept.
  double cost(const std::set<int>& kept) const {
    std::set<NodeId> again;
    std::vector<ValueId> open = needed_;
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      const NodeId producer = graph_.value(value).producer;
      if (producer == kNone || place_[producer] < 0 || outlives_.contains(value)) continue;
      if (kept.contains(place_[producer]) || !again.insert(producer).second) continue;
      const Node& node = graph_.node(producer);
      open.insert(open.end(), node.in.begin(), node.in.end());
    }
    return sum_of<double>(again, [&](NodeId id) { return node_work(graph_, graph_.node(id)); });
  }

  const Graph& graph_;
  std::vector<int> place_;       // by node: its number in the block's forward pass; -1: it is not there
  std::vector<NodeId> ids_;      // by that number
  std::set<ValueId> outlives_;   // other blocks read them: they are kept anyway
  std::vector<ValueId> needed_;  // the backward pass reads them
};

// Saved activations are live at the step's memory peak. A cheap result (an activation function, a normalization) of
// values that are live there anyway is recomputed where the backward pass first reads it: same bits, less memory.

// Recomputing smaller results costs more than it frees: on a GPU it costs a launch, in which some MiB could be moved.
// Sizes are those of fp32, even if values are stored as bf16 later.
constexpr size_t kLeastBytes = size_t{2} << 20, kLeastBytesOnGpu = size_t{32} << 20;

class Recompute {
 public:
  Recompute(const Graph& graph, const Backend& backend)
      : graph_(graph), least_bytes_(backend.device->is_host() ? kLeastBytes : kLeastBytesOnGpu),
        owner_(owners_of(graph)), rewriter_(graph) {
    find_peak();
    mark();
  }

  Graph run() {
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      if (id > peak_)
        for (const ValueId in : graph_.node(id).in) compute_again(in);
      rewriter_.copy(graph_.node(id));
    }
    return rewriter_.finish();
  }

 private:
  bool is_input(ValueId value) const { return graph_.value(value).producer == kNone; }

  void find_peak() {
    last_use_.assign(owner_.size(), kNone);
    for (NodeId id = 0; id < graph_.node_count(); ++id)
      for (const ValueId in : graph_.node(id).in) last_use_[owner_[in]] = id;
    std::vector<int64_t> change(graph_.node_count() + 1);
    for (ValueId value = 0; value < graph_.value_count(); ++value) {
      if (owner_[value] != value || is_input(value) || last_use_[value] == kNone) continue;
      const auto bytes = static_cast<int64_t>(graph_.value(value).type.bytes());
      change[graph_.value(value).producer] += bytes;
      change[last_use_[value] + 1] -= bytes;
    }
    int64_t alive = 0, most = -1;
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      alive += change[id];
      if (alive > most) most = alive, peak_ = id;
    }
  }

  bool is_live_at_peak(ValueId value) const {
    const ValueId owner = owner_[value];
    return is_input(owner) || last_use_[owner] > peak_;
  }

  // Marks saved activations whose operands are all live at the peak or marked.
  void mark() {
    again_.assign(owner_.size(), false);
    for (NodeId id = 0; id <= peak_; ++id) {
      const Node& node = graph_.node(id);
      if (algebra_of(node) == Algebra::kReshape) again_[node.out[0]] = again_[node.in[0]];
      if (!node.op->cheap) continue;
      const bool possible = std::ranges::all_of(node.in, [&](ValueId in) { return is_live_at_peak(in) || again_[in]; });
      for (const ValueId out : node.out)
        again_[out] = possible && is_live_at_peak(out) && graph_.value(out).type.bytes() >= least_bytes_;
    }
  }

  // From here on the value is read from its recomputation.
  void compute_again(ValueId value) {
    if (!again_[value]) return;
    again_[value] = false;
    const Node& node = graph_.node(graph_.value(value).producer);
    for (const ValueId in : node.in) compute_again(in);
    const std::vector<Tensor> out = rewriter_.add(node, *node.op, rewriter_.inputs_of(node), node.attrs);
    rewriter_.map(value, out[graph_.value(value).output]);
  }

  const Graph& graph_;
  const size_t least_bytes_;
  const std::vector<ValueId> owner_;
  Rewriter rewriter_;
  std::vector<NodeId> last_use_;  // of an owner or any part of it
  NodeId peak_ = 0;
  std::vector<bool> again_;
};
}  // namespace

NodeId find_loss(const Graph& graph) {
  for (const GraphOutput& output : graph.outputs())
    if (output.name == kLoss) return graph.value(output.value).producer;
  const StateUpdate* update = find_item(graph.updates(), graph.find_input(kLoss), &StateUpdate::state);
  const Node* sum = update ? producer_of(graph, update->value) : nullptr;
  NodeId last = kNone;  // which the sum may include
  if (sum)
    for (const ValueId in : sum->in) last = std::max(last, graph.value(in).producer);
  return last;
}

std::vector<Block> find_blocks(const Graph& graph) {
  const BlockMap map(graph);
  std::vector<Block> blocks = mapped(map.paths(), [](const std::string& path) { return Block{path, 0}; });
  for (NodeId id = 0; id <= map.loss(); ++id) {
    const Node& node = graph.node(id);
    const int index = map.block(node);
    if (index < 0) continue;
    Block& block = blocks[index];
    std::string text = node.op->name;
    for (const ValueId out : node.out) text += graph.value(out).type.text();
    block.kind = fnv1a(text, block.kind);
  }
  return blocks;
}

Graph recompute_blocks(const Graph& graph, std::span<const BlockChoice> choices) {
  return RecomputeBlocks(graph, choices).run();
}

size_t saved_bytes(const Graph& graph) {
  const NodeId loss = find_loss(graph);
  const std::vector<ValueId> owner = owners_of(graph);
  std::set<ValueId> saved;
  for (NodeId id = loss + 1; id < graph.node_count(); ++id)
    if (const Node& node = graph.node(id); !renames(node)) saved.insert(node.in.begin(), node.in.end());
  std::set<ValueId> owners;
  for (const ValueId value : saved)
    if (const NodeId producer = graph.value(owner[value]).producer; producer != kNone && producer < loss)
      owners.insert(owner[value]);
  return sum_of<size_t>(owners, [&](ValueId value) { return graph.value(value).type.bytes(); });
}

double node_work(const Graph& graph, const Node& node, bool with_parameters) {
  if (renames(node) || algebra_of(node) == Algebra::kConcat) return 0;
  double work = node_flops(graph, node);
  for (const auto* values : {&node.in, &node.out})
    for (const ValueId id : *values)
      if (const Value& value = graph.value(id); with_parameters || value.producer != kNone)
        work += kOperationsPerByte * static_cast<double>(value.type.bytes());
  return work;
}

double estimated_work(const Graph& graph) {
  return sum_of<double>(graph.nodes(), [&](const Node& node) { return node_work(graph, node); });
}

std::vector<std::vector<int>> kept_parts(const Graph& graph, const Block& block) {
  return KeptParts(graph, block).run();
}

Graph recompute(const Graph& graph, const Backend& backend) { return Recompute(graph, backend).run(); }
}  // namespace linnet
