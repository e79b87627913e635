// Exchanges between the ranks of a tensor group (distributed/comm/tensor_group.h), which all run the same nodes in
// order. The gradient of a whole value is the same on every rank; a summand's gradient is the sum's; a value that each
// rank uses for its part of the layers gets a part of its gradient from each.
//
//   all_reduce   the sum of all ranks' x; its gradient is passed through
//   share        x itself, for nodes that are divided; its gradient is the sum of all ranks'
//   all_gather   the whole of a value whose axis is divided; its gradient is cut
//   hold         0, once all operands are computed: keeps their memory for readers outside of the graph
//                (training/trainer/sharded_step.h); no gradient
//
// CPU only. A single rank has no such nodes.
#pragma once
#include <optional>
#include <vector>
#include "base/functions.h"
#include "engine/ops/kernel.h"

namespace linnet {
// How a tensor group's ranks divide a graph's values, and the rules for ops on divided operands, by which
// engine/passes/tensor_parallel.h makes a rank's graph. An op without a rule takes whole operands alone.

// One of the ranks that compute a model together.
struct TensorRank {
  int rank = 0, ranks = 1;
  bool operator==(const TensorRank&) const = default;
};

struct Sharding {
  enum class Kind : uint8_t {
    kFree,   // of a parameter that a rule may divide as it likes
    kWhole,  // every rank has all of it
    kCut,    // each rank has a part of `axis`
    kSum,    // each rank has a summand of the value's shape
  };
  Kind kind = Kind::kWhole;
  int axis = 0;
  // Sizes that add up to the axis, each divided between the ranks separately: queries, keys and values in a fused
  // projection, so that each rank has the same heads of all three.
  std::vector<int64_t> parts = {};
  bool operator==(const Sharding&) const = default;
  bool is_whole() const { return kind == Kind::kWhole; }
  bool is_cut() const { return kind == Kind::kCut; }

  static Sharding whole() { return {}; }
  static Sharding sum() { return {.kind = Kind::kSum}; }
  static Sharding cut(int axis, std::vector<int64_t> parts) { return {Kind::kCut, axis, std::move(parts)}; }
};

// The shape of a rank's part of a value.
Shape local_shape(const Shape& whole, const Sharding& sharding, const TensorRank& rank);

// Calls visit(first in the whole value, first in the rank's part, count) for runs that are contiguous in both.
void for_runs(const Shape& whole, const Sharding& sharding, const TensorRank& rank,
    FunctionRef<void(int64_t in_whole, int64_t in_part, int64_t count)> visit);

// The arguments of a rule: a node of the whole graph, its types there, and its operands' division.
struct ShardArgs {
  const Node& node;
  std::span<const TensorType> in, out;
  std::span<const Sharding> sharding;  // of the operands
  TensorRank rank;
  // How an axis that the node begins to divide must be cut for readers that want several parts; else empty.
  std::span<const int64_t> parts = {};

  template <class T> const T& attrs() const { return node.attrs.as<T>(); }
  std::vector<int64_t> parts_or(int64_t size) const {
    return parts.empty() ? std::vector<int64_t>{size} : std::vector<int64_t>(parts.begin(), parts.end());
  }
};

// The rank's node: its attributes, and the divisions it needs of its operands and gives its results. The pass converts
// operands in other divisions; a kFree operand may be asked for in any.
struct ShardedNode {
  Attrs attrs;
  std::vector<Sharding> in, out;
  // The rank writes whole results, though computed from divided operands.
  bool exchanges = false;
};
// Empty: the op takes whole operands alone.
using ShardRule = std::optional<ShardedNode> (*)(const ShardArgs&);

ShardRule shard_rule(const OpDef& op);  // null if it has none

struct CollectiveAttrs {
  int ranks = 1;
  void fields(FieldVisitor& visit) { visit("ranks", ranks); }
};

struct AllGatherAttrs {
  int axis = 0;
  std::vector<int64_t> parts = {};  // as Sharding::parts
  int rank = 0, ranks = 1;
  void fields(FieldVisitor& visit) {
    visit("axis", axis), visit("parts", parts), visit("rank", rank), visit("ranks", ranks);
  }
};

extern const OpDef kAllReduce, kShare, kAllGather, kHold, kStageOutput;

Tensor all_reduce(At x, const TensorRank& rank);
Tensor share(At x, const TensorRank& rank);
// `sharding`: how x is divided.
Tensor all_gather(At x, const Sharding& sharding, const TensorRank& rank);
Tensor hold(At x, std::span<const Tensor> others);
// The rank's part of a whole value, without an exchange.
Tensor cut(At x, const Sharding& sharding, const TensorRank& rank);

// The end of a pipeline stage's forward pass (engine/passes/tensor_parallel.h): a scalar in place of the loss, which
// only later stages know. Operands are the values for the next stage and their gradients, which come from there:
//
//   forward:   0
//   backward:  d(value[i]) = gradient[i]
//
// Those gradients include the loss's scale, so the result's gradient is not read. gradients[i] has the type of
// values[i]; there is at least one. Result: fp32 [].
Tensor stage_output(
    std::span<const Tensor> values, std::span<const Tensor> gradients, SourceLine where = SourceLine::current());

// For sums over ranks on a GPU: into[i] += from[i]; queued.
void add_values_cuda(Device* device, float* into, const float* from, int64_t count);
}  // namespace linnet
