// Activations in bf16, for devices whose kernels read and write them so: half the memory and half the traffic. Each
// op's row below says which operands and results its kernels take in bf16; casts go between those that do and those
// that do not. Parameters, optimizer state, gradients of parameters, statistics, losses and whatever leaves the graph
// stay fp32; products read a bf16 copy of the parameters, made once at the start of the step.
#include <map>

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul.h"
#include "ops/movement/movement.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/residual_norm/residual_norm.h"
#include "ops/rope/rope.h"
#include "ops/softmax/softmax.h"
#include "passes/passes.h"
#include "passes/rewriter.h"

namespace linnet {
namespace {

enum class Storage {
  kWide,    // fp32
  kNarrow,  // bf16
  kEither,  // an operand: as it comes; a result: as its readers want it
  kMoved,   // of ops that only move elements: results are what operands are
  kResult,  // an operand that is what result 0 is: an accumulator
};

constexpr unsigned bit(size_t i) { return 1u << i; }

// Operands and results by position; beyond the last bit and where no bit is set: wide.
struct Row {
  unsigned narrow_in = 0, narrow_out = 0;
  Storage rest = Storage::kWide;  // kEither or kMoved: of all operands and results
};

Row row_of(const Node& node) {
  const OpDef* op = node.op;
  if (op == &kReshape || op == &kSplit || op == &kConcat || op == &kPermute || op == &kBroadcast)
    return {.rest = Storage::kMoved};
  if (op == &kPointwise || op == &kReduce) return {.rest = Storage::kEither};
  if (op == &kDropout || op == &kRope || op == &kSoftmax) return {bit(0), bit(0)};
  if (op == &kSoftmaxGrad) return {bit(0) | bit(1), bit(0)};
  if (op == &kLayerNorm) return {bit(0), bit(0)};
  if (op == &kLayerNormGrad) return {bit(0) | bit(1), bit(0)};
  if (op == &kResidualNorm) return {bit(0) | bit(1), bit(0) | bit(1)};
  if (op == &kResidualNormGrad) {
    const auto& attrs = node.attrs.as<ResidualNormAttrs>();
    const unsigned dsum = attrs.dsum ? bit(static_cast<size_t>(attrs.dsum_input())) : 0;
    const unsigned df = attrs.probability > 0 ? bit(node.out.size() - 1) : 0;
    return {bit(0) | bit(1) | dsum, bit(0) | df};
  }
  if (op == &kAttention) return {bit(0) | bit(1) | bit(2), bit(0)};
  if (op == &kAttentionGrad) return {bit(0) | bit(1) | bit(2) | bit(3) | bit(5), bit(0) | bit(1) | bit(2)};
  if (op == &kCrossEntropy) return {bit(0), 0};
  if (op == &kCrossEntropyGrad) return {bit(0), bit(0)};
  if (op == &kLinearCrossEntropy) return {bit(0) | bit(1), 0};
  if (op == &kLinearCrossEntropyGrad) return {bit(0) | bit(1), bit(0)};
  return {};
}

Storage result_storage(const Node& node, size_t i) {
  if (node.op == &kMatmul) {
    const auto& attrs = node.attrs.as<MatmulAttrs>();
    return attrs.has_aux() || attrs.before ? Storage::kNarrow : Storage::kEither;
  }
  if (node.op == &kEmbedding) return Storage::kEither;
  const Row row = row_of(node);
  if (row.rest != Storage::kWide) return row.rest;
  return row.narrow_out & bit(i) ? Storage::kNarrow : Storage::kWide;
}

Storage operand_storage(const Node& node, size_t i) {
  if (node.op == &kMatmul) {
    const auto& attrs = node.attrs.as<MatmulAttrs>();
    if (i < 2) return Storage::kNarrow;
    if (attrs.bias && i == 2) return Storage::kWide;
    if (attrs.accumulate && i + 1 == node.in.size()) return Storage::kResult;
    return Storage::kNarrow;  // aux
  }
  if (node.op == &kEmbeddingGrad) return i == 0 ? Storage::kEither : Storage::kWide;
  const Row row = row_of(node);
  if (row.rest != Storage::kWide) return row.rest;
  return row.narrow_in & bit(i) ? Storage::kNarrow : Storage::kWide;
}

class Narrow {
 public:
  explicit Narrow(const Graph& old) : old_(old), rewriter_(old), wants_(values()), stored_(values()), made_(values()) {}

  Graph run() {
    for (const GraphOutput& output : old_.outputs()) wants_[at(output.value)].wide = true;
    for (const StateUpdate& update : old_.updates()) wants_[at(update.value)].wide = true;
    for (NodeId id = old_.node_count() - 1; id >= 0; --id) choose(old_.node(id));
    for (const GraphInput& input : old_.inputs()) made_[at(input.value)].wide = rewriter_[input.value];
    for (const Node& node : old_.nodes()) add(node);
    for (const GraphOutput& output : old_.outputs()) rewriter_.map(output.value, get(output.value, false));
    for (const StateUpdate& update : old_.updates()) rewriter_.map(update.value, get(update.value, false));
    return rewriter_.finish();
  }

 private:
  struct Wants {
    bool narrow = false, wide = false;
  };
  struct Versions {
    Tensor wide, narrow;
  };
  static size_t at(ValueId id) { return static_cast<size_t>(id); }
  size_t values() const { return at(old_.value_count()); }
  bool is_f32(ValueId id) const { return old_.value(id).type.dtype == DType::kF32; }

  // Backward over the graph: how each result is stored, once all its readers have said what they want.
  void choose(const Node& node) {
    for (size_t i = 0; i < node.out.size(); ++i) {
      const ValueId out = node.out[i];
      const Wants wants = wants_[at(out)];
      const Storage storage = is_f32(out) ? result_storage(node, i) : Storage::kWide;
      const bool free = storage == Storage::kEither || storage == Storage::kMoved;
      stored_[at(out)] = storage == Storage::kNarrow || (free && (wants.narrow || !wants.wide));
    }
    for (size_t i = 0; i < node.in.size(); ++i) {
      Wants& wants = wants_[at(node.in[i])];
      switch (operand_storage(node, i)) {
        case Storage::kNarrow:
          wants.narrow = true;
          break;
        case Storage::kWide:
          wants.wide = true;
          break;
        case Storage::kEither:
          break;
        case Storage::kMoved:  // each version of the result wants one of the operand
          for (const ValueId out : node.out) wants.narrow |= wants_[at(out)].narrow, wants.wide |= wants_[at(out)].wide;
          break;
        case Storage::kResult:
          (stored_[at(node.out[0])] ? wants.narrow : wants.wide) = true;
          break;
      }
    }
  }

  void add(const Node& node) {
    if (row_of(node).rest == Storage::kMoved) return;  // get() makes the versions that are wanted
    std::vector<Tensor> in;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const ValueId id = node.in[i];
      const Storage storage = is_f32(id) ? operand_storage(node, i) : Storage::kWide;
      const bool narrow = storage == Storage::kNarrow || (storage == Storage::kEither && is_stored_narrow(id)) ||
                          (storage == Storage::kResult && stored_[at(node.out[0])]);
      in.push_back(get(id, narrow));
    }
    std::vector<TensorType> types;
    for (const ValueId out : node.out) types.push_back(type_of(out, stored_[at(out)]));
    keep(node, rewriter_.add_stored(node, in, types), [&](ValueId out) { return stored_[at(out)]; });
  }

  // Inputs are wide; what is only moved is as its readers want it, and here nobody says: as it was made first.
  bool is_stored_narrow(ValueId id) {
    const Versions& made = made_[at(id)];
    if (made.narrow.defined() != made.wide.defined()) return made.narrow.defined();
    return stored_[at(id)];
  }

  TensorType type_of(ValueId id, bool narrow) const {
    TensorType type = old_.value(id).type;
    if (narrow) type.dtype = DType::kBF16;
    return type;
  }

  template <class IsNarrow>
  void keep(const Node& node, const std::vector<Tensor>& out, IsNarrow&& is_narrow) {
    for (size_t i = 0; i < out.size(); ++i)
      (is_narrow(node.out[i]) ? made_[at(node.out[i])].narrow : made_[at(node.out[i])].wide) = out[i];
  }

  // The new value that stands for an old one, stored as asked.
  Tensor get(ValueId id, bool narrow) {
    const auto made = [&] { return narrow ? made_[at(id)].narrow : made_[at(id)].wide; };
    if (made().defined()) return made();
    const NodeId producer = old_.value(id).producer;
    if (producer != kNone && row_of(old_.node(producer)).rest == Storage::kMoved) {
      const Node& node = old_.node(producer);
      std::vector<Tensor> in;
      for (const ValueId operand : node.in) in.push_back(is_f32(operand) ? get(operand, narrow) : get(operand, false));
      std::vector<TensorType> types;
      for (const ValueId out : node.out) types.push_back(type_of(out, narrow && is_f32(out)));
      keep(node, rewriter_.add_stored(node, in, types), [&](ValueId out) { return narrow && is_f32(out); });
      return made();
    }
    const Tensor other = narrow ? made_[at(id)].wide : made_[at(id)].narrow;
    if (!other.defined()) fail_internal("a value is read before it is made");
    (narrow ? made_[at(id)].narrow : made_[at(id)].wide) = cast(other, narrow ? DType::kBF16 : DType::kF32);
    return made();
  }

  const Graph& old_;
  Rewriter rewriter_;
  std::vector<Wants> wants_;    // by old value
  std::vector<bool> stored_;    // by old value: its producer writes bf16
  std::vector<Versions> made_;  // by old value
};

}  // namespace

Graph narrow(const Graph& graph) { return Narrow(graph).run(); }

}  // namespace linnet
