#include "engine/plan/state_names.h"
#include "linnet/tracer.h"

#include <array>

#include "base/error.h"
#include "models/nn/trace.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {

// Inputs of graphs that the trainer fills.
bool is_reserved(const std::string& name) {
  constexpr std::array kNames{state::kParameters, state::kConstants, "control",  "random",   state::kMoment1,
                              state::kMoment2,    state::kAverage,       state::kGradient, "loss_sum", "token_count"};
  for (const char* reserved : kNames)
    if (name == reserved || name.starts_with(std::string(reserved) + ".")) return true;
  return false;
}

}  // namespace

Tensor Tracer::input(const std::string& name) {
  if (!types_) fail_user("input \"" + name + "\" has no type: give it one, or construct the learner with batch shapes");
  const auto found = types_->find(name);
  if (found != types_->end()) return input(name, found->second);
  std::string names;
  for (const auto& [known, type] : *types_) names += (names.empty() ? "" : ", ") + known;
  fail_user("the batches have no \"" + name + "\"; they have " + (names.empty() ? "nothing" : names));
}

Tensor Tracer::input(const std::string& name, const TensorType& type) {
  if (name.empty()) fail_user("an input has no name");
  if (is_reserved(name)) fail_user("an input cannot be called \"" + name + "\", a name that the trainer uses");
  for (const int64_t size : type.shape.sizes())
    if (size < 1) throw Error(ErrorKind::kShape, "input \"" + name + "\" is " + type.text() + "; sizes are at least 1");
  return trace_->input(name, type);
}

Tensor Tracer::number(double value, SourceLine where) { return trace_->number(value, where); }

Tensor Tracer::full(const TensorType& type, double value, SourceLine where) {
  return fill(trace_->graph(), type, value, where);
}

void Tracer::output(const std::string& name, At value) {
  if (is_reserved(name)) fail_user("an output cannot be called \"" + name + "\", a name that the trainer uses");
  if (!value.value.defined()) fail_user(value.where.text() + ": output \"" + name + "\" is an undefined tensor");
  (void)value.value.type();  // an Error when its recording has ended
  if (value.value.graph != &trace_->graph())
    fail_user(value.where.text() + ": output \"" + name + "\" is a tensor of another graph");
  if (training()) return;
  for (const GraphOutput& output : trace_->graph().outputs())
    if (output.name == name) fail_user(value.where.text() + ": there is an output \"" + name + "\" already");
  trace_->graph().output(name, value.value);
}

bool Tracer::training() const { return trace_->options().training; }

}  // namespace linnet
