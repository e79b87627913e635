#include "exec/executor.h"

#include <chrono>
#include <cstring>

#include "base/error.h"
#include "ir/op.h"

namespace linnet {

Executor::Executor(const Plan& plan, const Store& store, const SharedRegions& shared)
    : plan_(&plan), workspace_(store.data(shared.workspace)) {
  const Graph& graph = plan.graph;
  const auto view = [&](ValueId id) -> TensorView {
    const Location& location = plan.location[static_cast<size_t>(id)];
    return {store.data(location.region) + location.offset, graph.value(id).type, root_of(graph, id).strides};
  };
  size_t operands = 0;
  for (const Node& node : graph.nodes()) operands += node.in.size() + node.out.size();
  operands_.reserve(operands);
  steps_.reserve(graph.nodes().size());
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    const size_t in = operands_.size();
    for (ValueId value : node.in) operands_.push_back(view(value));
    for (ValueId value : node.out) operands_.push_back(view(value));
    steps_.push_back(
        {&node, plan.kernels[static_cast<size_t>(id)], in, node.in.size(), in + node.in.size(), node.out.size()});
  }
  for (const StateUpdate& copy : plan.copies) copies_.push_back({view(copy.value), view(copy.state)});
  for (const GraphOutput& output : graph.outputs()) outputs_[output.name] = view(output.value);
}

void Executor::run_step(const Step& step, ThreadPool& pool) const {
  step.kernel->run({*step.node,
                    {operands_.data() + step.in, step.in_count},
                    {operands_.data() + step.out, step.out_count},
                    workspace_,
                    pool});
}

void Executor::check(const ThreadPool& pool) const {
  if (pool.size() > plan_->threads)
    fail_internal("a plan for " + std::to_string(plan_->threads) + " threads was given " + std::to_string(pool.size()));
}

void Executor::run(ThreadPool& pool) const {
  check(pool);
  for (const Step& step : steps_) run_step(step, pool);
  for (const Copy& copy : copies_) std::memcpy(copy.to.data, copy.from.data, copy.to.type.bytes());
}

void Executor::run_timed(ThreadPool& pool, std::vector<double>& seconds) const {
  check(pool);
  seconds.resize(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    run_step(steps_[i], pool);
    seconds[i] += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  for (const Copy& copy : copies_) std::memcpy(copy.to.data, copy.from.data, copy.to.type.bytes());
}

const TensorView& Executor::output(const std::string& name) const {
  const auto found = outputs_.find(name);
  if (found == outputs_.end()) fail_internal("the plan has no output " + name);
  return found->second;
}

}  // namespace linnet
