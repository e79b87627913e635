// Activations saved for the backward pass are live at the step's memory peak. A result that is cheap to compute again
// (an activation function, a normalization) from values that are live there anyway is computed a second time where the
// backward pass first reads it: the same bits, less memory.
#include <algorithm>
#include "engine/ir/op.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

// Smaller results stay saved: computing them again costs more than it frees. On a GPU it costs a launch, in which
// some MiB could be moved. Sizes are those of fp32, also where values are stored as bf16 later.
constexpr size_t kLeastBytes = size_t{2} << 20, kLeastBytesOnGpu = size_t{32} << 20;

class Recompute {
 public:
  Recompute(const Graph& graph, const Backend& backend)
      : graph_(graph), least_bytes_(backend.device->is_host() ? kLeastBytes : kLeastBytesOnGpu), rewriter_(graph) {
    find_owners();
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
  size_t index(ValueId value) const { return static_cast<size_t>(value); }
  bool is_input(ValueId value) const { return graph_.value(value).producer == kNone; }

  // A reshaped value, or a part of one, lies in the memory of what it is made of.
  void find_owners() {
    for (ValueId value = 0; value < graph_.value_count(); ++value) owner_.push_back(value);
    for (const Node& node : graph_.nodes())
      if (algebra_of(node) == Algebra::kReshape || algebra_of(node) == Algebra::kSplit)
        for (const ValueId out : node.out) owner_[index(out)] = owner_[index(node.in[0])];
  }

  // The node during which most bytes are alive.
  void find_peak() {
    last_use_.assign(owner_.size(), kNone);
    for (NodeId id = 0; id < graph_.node_count(); ++id)
      for (const ValueId in : graph_.node(id).in) last_use_[index(owner_[index(in)])] = id;
    std::vector<int64_t> change(static_cast<size_t>(graph_.node_count()) + 1);
    for (ValueId value = 0; value < graph_.value_count(); ++value) {
      if (owner_[index(value)] != value || is_input(value) || last_use_[index(value)] == kNone) continue;
      const auto bytes = static_cast<int64_t>(graph_.value(value).type.bytes());
      change[static_cast<size_t>(graph_.value(value).producer)] += bytes;
      change[static_cast<size_t>(last_use_[index(value)]) + 1] -= bytes;
    }
    int64_t alive = 0, most = -1;
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      alive += change[static_cast<size_t>(id)];
      if (alive > most) most = alive, peak_ = id;
    }
  }

  bool is_live_at_peak(ValueId value) const {
    const ValueId owner = owner_[index(value)];
    return is_input(owner) || last_use_[index(owner)] > peak_;
  }

  // Marks the saved activations that can be computed again: all they are computed from is live at the peak or marked.
  void mark() {
    again_.assign(owner_.size(), false);
    for (NodeId id = 0; id <= peak_; ++id) {
      const Node& node = graph_.node(id);
      if (algebra_of(node) == Algebra::kReshape) again_[index(node.out[0])] = again_[index(node.in[0])];
      if (!node.op->cheap) continue;
      const bool possible =
          std::ranges::all_of(node.in, [&](ValueId in) { return is_live_at_peak(in) || again_[index(in)]; });
      for (const ValueId out : node.out)
        again_[index(out)] = possible && is_live_at_peak(out) && graph_.value(out).type.bytes() >= least_bytes_;
    }
  }

  // From here on the value is read from a second computation of it.
  void compute_again(ValueId value) {
    if (!again_[index(value)]) return;
    again_[index(value)] = false;
    const Node& node = graph_.node(graph_.value(value).producer);
    for (const ValueId in : node.in) compute_again(in);
    const std::vector<Tensor> out = rewriter_.add(node, *node.op, rewriter_.inputs_of(node), node.attrs);
    rewriter_.map(value, out[static_cast<size_t>(graph_.value(value).output)]);
  }

  const Graph& graph_;
  const size_t least_bytes_;
  Rewriter rewriter_;
  std::vector<ValueId> owner_;
  std::vector<NodeId> last_use_;  // of an owner or any part of it
  NodeId peak_ = 0;
  std::vector<bool> again_;
};

}  // namespace

Graph recompute(const Graph& graph, const Backend& backend) { return Recompute(graph, backend).run(); }

}  // namespace linnet
