#include "exec/executor.h"

#include <cstring>

#include "ir/op.h"

namespace linnet {

Executor::Executor(const Plan& plan, const Store& store, const SharedRegions& shared)
    : plan_(&plan), workspace_(store.data(shared.workspace)) {
  for (ValueId id = 0; id < plan.graph.value_count(); ++id) {
    const Location& location = plan.location[static_cast<size_t>(id)];
    values_.push_back({store.data(location.region) + location.offset, plan.graph.value(id).type, root_of(plan.graph, id).strides});
  }
  for (NodeId id = 0; id < plan.graph.node_count(); ++id) {
    const Node& node = plan.graph.node(id);
    const size_t in = operands_.size();
    for (ValueId value : node.in) operands_.push_back(values_[static_cast<size_t>(value)]);
    for (ValueId value : node.out) operands_.push_back(values_[static_cast<size_t>(value)]);
    steps_.push_back({&node, plan.kernels[static_cast<size_t>(id)], in, node.in.size(), in + node.in.size(), node.out.size()});
  }
  for (const StateUpdate& copy : plan.copies)
    copies_.push_back({values_[static_cast<size_t>(copy.value)], values_[static_cast<size_t>(copy.state)]});
}

void Executor::run(ThreadPool& pool) const {
  for (const Step& step : steps_)
    step.kernel->run({*step.node, {operands_.data() + step.in, step.in_count}, {operands_.data() + step.out, step.out_count}, workspace_, pool});
  for (const Copy& copy : copies_) std::memcpy(copy.to.data, copy.from.data, copy.to.type.bytes());
}

const TensorView& Executor::output(const std::string& name) const {
  return values_[static_cast<size_t>(plan_->graph.find_output(name))];
}

}  // namespace linnet
