#include "engine/passes/tensor_parallel.h"
#include <algorithm>
#include "base/fail.h"
#include "engine/ir/op.h"

namespace linnet {
namespace {
bool is_all_whole(std::span<const Sharding> shardings) {
  return std::ranges::all_of(shardings, [](const Sharding& sharding) { return sharding.is_whole(); });
}

ShardedNode whole_node(const Node& node) {
  return {
      .attrs = node.attrs, .in = std::vector<Sharding>(node.in.size()), .out = std::vector<Sharding>(node.out.size())};
}

// The rank's node for `node`. `sharding`: of the operands.
ShardedNode ask_rule(const Graph& graph, const Node& node, std::span<const Sharding> sharding, const TensorRank& rank,
    std::span<const int64_t> parts) {
  const ShardRule rule = shard_rule(*node.op);
  if (!rule || is_all_whole(sharding)) return whole_node(node);
  const NodeTypes types = types_of(graph, node);
  std::optional<ShardedNode> found = rule({node, types.in, types.out, sharding, rank, parts});
  return found ? std::move(*found) : whole_node(node);
}

// A search: parameters begin undecided, and the first op that reads one decides its division. If an op wants the whole
// of a divided value, the nodes that began to divide it are forbidden to, and the walk restarts.
class Chooser {
 public:
  Chooser(const Graph& graph, std::span<const ValueId> results, const std::set<std::string>& parameters,
      const TensorRank& rank)
      : graph_(graph), results_(results), parameters_(parameters), rank_(rank) {}

  ModelDivision run() {
    while (!walk()) {
    }
    ModelDivision division{.rank = rank_, .parameters = {}, .stages = nullptr};
    for (const GraphInput& input : graph_.inputs())
      if (const Sharding& sharding = of(input.value).sharding; sharding.is_cut())
        division.parameters.emplace(input.name, sharding);
    return division;
  }

 private:
  struct State {
    Sharding sharding;
    std::set<NodeId> origins;  // the nodes that began to cut it
  };
  State& of(ValueId id) { return states_[id]; }

  // False if something new is forbidden or known, so that all has to be decided again.
  bool walk() {
    states_.assign(graph_.value_count(), {});
    for (const GraphInput& input : graph_.inputs())
      if (parameters_.contains(input.name)) of(input.value).sharding.kind = Sharding::Kind::kFree;
    for (NodeId id = 0; id < graph_.node_count(); ++id)
      if (!decide(id)) return false;
    for (const ValueId id : results_)
      if (!take(kNone, id, Sharding::whole())) return false;
    for (const GraphOutput& output : graph_.outputs())
      if (!take(kNone, output.value, Sharding::whole())) return false;
    return true;
  }

  bool decide(NodeId id) {
    const Node& node = graph_.node(id);
    const std::vector<Sharding> operands = mapped(node.in, [&](ValueId in) {
      const Sharding& sharding = of(in).sharding;
      return sharding.kind == Sharding::Kind::kFree && forbidden_.contains(id) ? Sharding{} : sharding;
    });
    const ShardedNode decided = ask_rule(graph_, node, operands, rank_, parts_[id]);
    std::set<NodeId> origins;
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (!take(id, node.in[i], decided.in[i])) return false;
      if (decided.in[i].is_cut()) origins.merge(std::set(of(node.in[i]).origins));
    }
    for (size_t i = 0; i < node.out.size(); ++i)
      of(node.out[i]) = {decided.out[i], decided.out[i].is_cut() ? origins : std::set<NodeId>{}};
    return true;
  }

  // Lets a node read a value in the division `wanted`.
  bool take(NodeId node, ValueId value, const Sharding& wanted) {
    State& state = of(value);
    if (state.sharding.kind == Sharding::Kind::kFree) {
      state = {wanted, wanted.is_cut() ? std::set{node} : std::set<NodeId>{}};
      return true;
    }
    if (!state.sharding.is_cut() || state.sharding == wanted) return true;
    const bool other_parts = wanted.is_cut() && wanted.axis == state.sharding.axis;
    for (const NodeId origin : state.origins)
      if (!other_parts || std::exchange(parts_[origin], wanted.parts) == wanted.parts) forbidden_.insert(origin);
    return false;
  }

  const Graph& graph_;
  const std::span<const ValueId> results_;
  const std::set<std::string>& parameters_;
  const TensorRank rank_;
  std::vector<State> states_;  // by value
  std::set<NodeId> forbidden_;
  std::map<NodeId, std::vector<int64_t>> parts_;  // that readers have asked for, by the node that begins to cut
};

class Appender {
 public:
  Appender(const Graph& whole, const ModelDivision& division, Graph& graph)
      : whole_(whole), division_(division), graph_(graph), values_(whole.value_count()) {}

  std::vector<Tensor> run(std::span<const ValueId> results, InputByName input) {
    for (const GraphInput& each : whole_.inputs()) {
      Value& value = of(each.value);
      value.sharding = find_or(division_.parameters, each.name, {});
      const TensorType& type = whole_.value(each.value).type;
      value.tensor = input(each.name, {type.dtype, local_shape(type.shape, value.sharding, division_.rank)});
    }
    for (const Node& node : whole_.nodes()) append(node);
    for (const GraphOutput& output : whole_.outputs()) graph_.output(output.name, whole_of(output.value, where_));
    return mapped(results, [&](ValueId id) { return whole_of(id, where_); });
  }

 private:
  struct Value {
    Sharding sharding;
    Tensor tensor;
    Tensor whole, shared;  // made once for all readers; undefined: not yet
  };
  Value& of(ValueId id) { return values_[id]; }

  void append(const Node& node) {
    const std::vector<Sharding> operands = mapped(node.in, [&](ValueId in) { return of(in).sharding; });
    const ShardedNode rule = ask_rule(whole_, node, operands, division_.rank, {});
    const bool is_divided = rule.exchanges || !is_all_whole(rule.in) || !is_all_whole(rule.out);
    where_ = node.where;
    const ScopeId outer = graph_.enter_scope(whole_.scope_path(node.scope));
    std::vector<Tensor> in;
    for (size_t i = 0; i < node.in.size(); ++i) in.push_back(operand(node.in[i], rule.in[i], is_divided));
    const std::vector<Tensor> out = graph_.add(*node.op, in, rule.attrs, node.where);
    graph_.set_scope(outer);
    for (size_t i = 0; i < out.size(); ++i) {
      const TensorType& type = whole_.value(node.out[i]).type;
      if (out[i].shape() != local_shape(type.shape, rule.out[i], division_.rank))
        fail_internal("the sharding rule of ", node.op->name, " promises another shape than ", out[i].shape().text());
      of(node.out[i]) = {rule.out[i], out[i], {}, {}};
    }
  }

  // A value as a node reads it. A whole value read by a divided node gets a part of its gradient from each rank.
  Tensor operand(ValueId id, const Sharding& wanted, bool is_divided) {
    Value& value = of(id);
    if (value.sharding == wanted && !wanted.is_whole()) return value.tensor;
    const Tensor whole = whole_of(id, where_);
    if (!is_divided || !is_float(whole.type().dtype)) return whole;
    if (!value.shared.defined()) value.shared = share(At(whole, where_), division_.rank);
    return wanted.is_cut() ? cut(At(value.shared, where_), wanted, division_.rank) : value.shared;
  }

  Tensor whole_of(ValueId id, const SourceLine& where) {
    Value& value = of(id);
    if (value.sharding.is_whole()) return value.tensor;
    if (!value.whole.defined())
      value.whole = value.sharding.is_cut() ? all_gather(At(value.tensor, where), value.sharding, division_.rank)
                                            : all_reduce(At(value.tensor, where), division_.rank);
    return value.whole;
  }

  const Graph& whole_;
  const ModelDivision& division_;
  Graph& graph_;
  std::vector<Value> values_;  // by value of the whole graph
  SourceLine where_;
};
}  // namespace

ModelDivision choose_division(const Graph& forward, std::span<const ValueId> results,
    const std::set<std::string>& parameters, const TensorRank& rank) {
  return Chooser(forward, results, parameters, rank).run();
}

std::vector<Tensor> append_of_rank(const Graph& whole, std::span<const ValueId> results, const ModelDivision& division,
    Graph& graph, InputByName input) {
  return Appender(whole, division, graph).run(results, input);
}
}  // namespace linnet
