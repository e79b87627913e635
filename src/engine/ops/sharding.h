// How the values of a graph are divided between the ranks of a tensor group, and what each op does with divided
// operands: the rules by which the pass of engine/passes/tensor_parallel.h makes a rank's graph from the whole one. An
// op without one takes whole operands alone.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>
#include "base/function_ref.h"
#include "engine/ir/graph.h"

namespace linnet {

// One of the ranks that compute a model together.
struct TensorRank {
  int rank = 0, ranks = 1;
  bool operator==(const TensorRank&) const = default;
};

// The elements [first, first + count) of an axis of `size` that a rank has.
struct AxisPart {
  int64_t first, count;
};
AxisPart part_of_axis(int64_t size, const TensorRank& rank);

struct Sharding {
  enum class Kind : uint8_t {
    kFree,   // of a parameter that a rule may divide as it likes
    kWhole,  // every rank has all of it
    kCut,    // each rank has a part of `axis`
    kSum,    // each rank has a summand of the value's shape
  };
  Kind kind = Kind::kWhole;
  int axis = 0;
  // Sizes that add up to the axis, each of which is divided between the ranks for itself: those of queries, keys and
  // values in a fused projection, so that each rank has the same heads of all three.
  std::vector<int64_t> parts = {};
  bool operator==(const Sharding&) const = default;
  bool is_whole() const { return kind == Kind::kWhole; }
  bool is_cut() const { return kind == Kind::kCut; }

  static Sharding whole() { return {}; }
  static Sharding sum() { return {.kind = Kind::kSum}; }
  static Sharding cut(int axis, std::vector<int64_t> parts) { return {Kind::kCut, axis, std::move(parts)}; }
};

// The shape of what a rank has of a value.
Shape local_shape(const Shape& whole, const Sharding& sharding, const TensorRank& rank);

// Calls visit(first in the whole value, first in the rank's part, count) for the runs of elements that follow each
// other in both.
void for_runs(const Shape& whole, const Sharding& sharding, const TensorRank& rank,
              FunctionRef<void(int64_t in_whole, int64_t in_part, int64_t count)> visit);

// What a rule is told: a node of the whole graph, its types there, and how its operands are divided.
struct ShardArgs {
  const Node& node;
  std::span<const TensorType> in, out;
  std::span<const Sharding> sharding;  // of the operands
  TensorRank rank;
  // How an axis that the node begins to divide is to be cut where readers have asked for several parts; else empty.
  std::span<const int64_t> parts = {};

  template <class T>
  const T& attrs() const {
    return node.attrs.as<T>();
  }
  std::vector<int64_t> parts_or(int64_t size) const {
    return parts.empty() ? std::vector<int64_t>{size} : std::vector<int64_t>(parts.begin(), parts.end());
  }
};

// The rank's node: its attributes, how its operands have to be divided, and how its results are. Where an operand is
// divided in another way the pass converts it; an operand that was kFree may be asked for in any way.
struct ShardedNode {
  Attrs attrs;
  std::vector<Sharding> in, out;
  // The rank writes the results whole, though it has computed them from divided operands.
  bool exchanges = false;
};
// Empty: the op takes whole operands alone.
using ShardRule = std::optional<ShardedNode> (*)(const ShardArgs&);

// The op's rule; null: it has none.
ShardRule shard_rule(const OpDef& op);

}  // namespace linnet
