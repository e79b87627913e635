// Writes activations in a storage type shorter than fp32: half the memory and traffic. OpDef::storage says which
// operands and results an op's kernels take so; casts go between different types. Parameters and their gradients,
// optimizer state, statistics, losses and all outputs of the graph stay fp32.
//
// On a GPU, kernels support whatever an op's rule allows, and products read a copy of the parameters in the storage
// type, made once at the start of the step. On the CPU:
//   - a node for which the table has no kernel computes in fp32 between casts;
//   - parameters and other inputs stay fp32: products round them while packing; a copy would cost 2 bytes per
//   parameter.
#include <algorithm>
#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"
#include "engine/passes/tensor_parallel.h"

namespace linnet {
namespace {
class CastToStorageType {
 public:
  CastToStorageType(const Graph& old, DType storage_type, const Backend& backend)
      : old_(old), storage_type_(storage_type), backend_(backend), on_host_(backend.device->is_host()), rewriter_(old),
        is_input_(values()), wants_(values()), is_reduced_(values()), made_(values()) {
    // A pipeline stage's input from the stage before it is an activation.
    for (const GraphInput& input : old.inputs()) is_input_[input.value] = !is_stage_input(input.name);
    for (const Node& node : old.nodes()) {
      const bool moves_inputs =
          moves(node) && !node.in.empty() && std::ranges::all_of(node.in, [&](ValueId id) { return is_input_[id]; });
      for (const ValueId out : node.out) is_input_[out] = moves_inputs;
      rules_.push_back(rule_of(node));
    }
  }

  Graph run() {
    for (const ValueId result : results_of(old_)) wants_[result].f32 = true;
    for (NodeId id = old_.node_count() - 1; id >= 0; --id) choose(old_.node(id), rules_[id]);
    for (const GraphInput& input : old_.inputs()) made_[input.value].f32 = rewriter_[input.value];
    for (NodeId id = 0; id < old_.node_count(); ++id) add(old_.node(id), rules_[id]);
    for (const ValueId result : results_of(old_)) rewriter_.map(result, get(result, false));
    return rewriter_.finish();
  }

 private:
  struct Versions {
    Tensor f32, reduced;
  };
  size_t values() const { return old_.value_count(); }
  bool is_f32(ValueId id) const { return old_.value(id).type.dtype == DType::kF32; }

  // The op's rule, limited to what the backend's kernels support.
  StorageRule rule_of(const Node& node) const {
    StorageRule rule = storage_of(node);
    for (size_t i = 0; i < rule.in.size(); ++i)
      if (rule.in[i] == Storage::kCopied)
        rule.in[i] = !on_host_ && is_input_[node.in[i]] ? Storage::kAsResult : Storage::kF32;
    if (!on_host_ || moves(node)) return rule;
    if (is_among_f32(node, rule)) return {};
    StorageRule taken{.in = std::vector<Storage>(node.in.size()), .out = std::vector<Storage>(node.out.size())};
    NodeTypes types;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const bool stays = is_input_[node.in[i]] && rule.operand(i) == Storage::kReduced;
      taken.in[i] = stays ? Storage::kF32 : rule.operand(i);
      types.in.push_back(type_of(node.in[i], is_f32(node.in[i]) && taken.in[i] != Storage::kF32));
    }
    for (size_t i = 0; i < node.out.size(); ++i) {
      taken.out[i] = rule.result(i);
      types.out.push_back(type_of(node.out[i], is_f32(node.out[i]) && taken.out[i] != Storage::kF32));
    }
    if (has_kernel(node, types)) return taken;
    // For sums some kernels write fp32 alone.
    for (size_t i = 0; i < node.out.size(); ++i)
      if (taken.out[i] == Storage::kAny) taken.out[i] = Storage::kF32, types.out[i] = old_.value(node.out[i]).type;
    return has_kernel(node, types) ? taken : StorageRule{};
  }

  // Whether more operands come from ops that write fp32 alone than from ops that write the storage type. For example,
  // casts around a batch norm between convolutions would not pay.
  bool is_among_f32(const Node& node, const StorageRule& rule) const {
    int f32 = 0, reduced = 0;
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (rule.operand(i) != Storage::kReduced || !is_f32(node.in[i])) continue;
      const Storage written = written_as(node.in[i]);
      f32 += written == Storage::kF32, reduced += written == Storage::kReduced;
    }
    return f32 > reduced;
  }

  // The rule of the value's producer, through nodes that only move it. Inputs of the graph are kAny.
  Storage written_as(ValueId id) const {
    for (;;) {
      const NodeId producer = old_.value(id).producer;
      if (producer == kNone || is_input_[id]) return Storage::kAny;
      const Node& node = old_.node(producer);
      if (!moves(node)) return rules_[producer].result(old_.value(id).output);
      if (node.in.empty()) return Storage::kAny;
      id = node.in[0];
    }
  }

  bool has_kernel(const Node& node, const NodeTypes& types) const {
    return has_fast_kernel(node, types.in, types.out, backend_);
  }

  // Walks the graph backward: decides how each result is stored, once all its readers have asked. Scalars, such as
  // losses and counts, are too few to be worth rounding.
  void choose(const Node& node, const StorageRule& rule) {
    for (size_t i = 0; i < node.out.size(); ++i) {
      const ValueId out = node.out[i];
      const StorageWants wants = wants_[out];
      const Storage storage = is_f32(out) ? rule.result(i) : Storage::kF32;
      const bool one = on_host_ && old_.value(out).type.shape.elements() == 1;
      const bool free = storage == Storage::kMoved || (storage == Storage::kAny && !one);
      is_reduced_[out] = storage == Storage::kReduced || (free && (wants.reduced || !wants.f32));
    }
    StorageRule chosen = rule;  // rule_of() leaves no kCopied
    const Storage result = !node.out.empty() && is_reduced_[node.out[0]] ? Storage::kReduced : Storage::kF32;
    std::ranges::replace(chosen.in, Storage::kAsResult, result);
    add_wants(node, chosen, wants_);
  }

  void add(const Node& node, const StorageRule& rule) {
    if (moves(node)) return;  // get() makes the versions that are wanted
    std::vector<bool> reduced(node.in.size());
    NodeTypes types;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const ValueId id = node.in[i];
      const Storage storage = is_f32(id) ? rule.operand(i) : Storage::kF32;
      reduced[i] = storage == Storage::kReduced || (storage == Storage::kAny && is_stored_reduced(id)) ||
                   (storage == Storage::kAsResult && is_reduced_[node.out[0]]);
      types.in.push_back(type_of(id, reduced[i]));
    }
    for (const ValueId out : node.out) types.out.push_back(type_of(out, is_reduced_[out]));
    // rule_of() used the types that the rule prefers; readers may want others.
    const bool any_reduced =
        contains(types.in, storage_type_, &TensorType::dtype) || contains(types.out, storage_type_, &TensorType::dtype);
    const bool in_f32 = on_host_ && any_reduced && !has_kernel(node, types);
    const auto in = mapped(node.in.size(), [&](size_t i) { return get(node.in[i], reduced[i] && !in_f32); });
    if (in_f32)
      for (size_t i = 0; i < node.out.size(); ++i) types.out[i] = old_.value(node.out[i]).type;
    keep(node, rewriter_.add_stored(without_rounding_twice(node, types.out), in, types.out),
        [&](ValueId out) { return is_reduced_[out] && !in_f32; });
  }

  // Removes an elementwise node's rounding to bf16 (lower_precision.cpp) if its result is stored so.
  static Node without_rounding_twice(Node node, const std::vector<TensorType>& out) {
    if (is(node, kPointwise) && out[0].dtype == DType::kBF16)
      node.attrs = PointwiseAttrs{without_rounding(node.attrs.as<PointwiseAttrs>().expression)};
    return node;
  }

  // A value that is only moved has the type that its readers ask for; others get the version made first. Inputs are
  // fp32, and not cast for a reader that takes either.
  bool is_stored_reduced(ValueId id) {
    if (on_host_ && is_input_[id]) return false;
    const Versions& made = made_[id];
    if (made.reduced.defined() != made.f32.defined()) return made.reduced.defined();
    return is_reduced_[id] && !is_input_[id];
  }

  TensorType type_of(ValueId id, bool reduced) const {
    TensorType type = old_.value(id).type;
    if (reduced) type.dtype = storage_type_;
    return type;
  }

  template <class IsReduced> void keep(const Node& node, const std::vector<Tensor>& out, IsReduced&& is_reduced) {
    for (size_t i = 0; i < out.size(); ++i)
      (is_reduced(node.out[i]) ? made_[node.out[i]].reduced : made_[node.out[i]].f32) = out[i];
  }

  Tensor get(ValueId id, bool reduced) {
    const auto made = [&] { return reduced ? made_[id].reduced : made_[id].f32; };
    if (made().defined()) return made();
    const NodeId producer = old_.value(id).producer;
    if (producer != kNone && moves(old_.node(producer))) {
      const Node& node = old_.node(producer);
      const auto has_reduced = [&](ValueId value) { return reduced && is_f32(value); };
      const std::vector<Tensor> in = mapped(node.in, [&](ValueId value) { return get(value, has_reduced(value)); });
      const auto types = mapped(node.out, [&](ValueId value) { return type_of(value, has_reduced(value)); });
      keep(node, rewriter_.add_stored(node, in, types), has_reduced);
      return made();
    }
    const Tensor other = reduced ? made_[id].f32 : made_[id].reduced;
    if (!other.defined()) fail_internal("a value is read before it is made");
    (reduced ? made_[id].reduced : made_[id].f32) = cast(other, reduced ? storage_type_ : DType::kF32);
    return made();
  }

  // Its results have its operands' type; get() makes each version that is read.
  static bool moves(const Node& node) { return storage_of(node).rest == Storage::kMoved; }

  const Graph& old_;
  const DType storage_type_;
  const Backend& backend_;
  const bool on_host_;
  Rewriter rewriter_;
  std::vector<StorageRule> rules_;   // by node
  std::vector<bool> is_input_;       // by old value: of the graph, or moved from one
  std::vector<StorageWants> wants_;  // by old value
  std::vector<bool> is_reduced_;     // by old value: its producer writes the storage type
  std::vector<Versions> made_;       // by old value
};
}  // namespace

Graph cast_to_storage_type(const Graph& graph, DType storage_type, const Backend& backend) {
  return CastToStorageType(graph, storage_type, backend).run();
}
}  // namespace linnet
