#include "linnet/tracer.h"
#include <algorithm>
#include "api/cpp/helpers.h"
#include "api/cpp/learner_state.h"
#include "base/fail.h"
#include "base/text.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
void check_traced_name(const std::string& what, const std::string& name) {
  for (const char c : name)
    if (static_cast<unsigned char>(c) < ' ') fail_user("a name of an ", what, " has a control character");
}
}  // namespace

bool is_reserved(const std::string& name) {
  constexpr std::array kNames{state::kParameters, state::kConstants, "control", "random", state::kMoment1,
      state::kMoment2, state::kAverage, state::kGradient, "loss_sum", "token_count", "loss_scale", "quantized",
      kRowMask};
  for (const char* reserved : kNames)
    if (name == reserved || name.starts_with(std::string(reserved) + ".")) return true;
  return false;
}

Tensor Tracer::input(const std::string& name) {
  if (!types_) fail_user("input \"", name, "\" has no type: give it one, or construct the learner with batch shapes");
  const auto found = types_->find(name);
  if (found != types_->end()) return input(name, found->second);
  const std::string names = joined(*types_, ", ", [](const auto& entry) { return entry.first; });
  fail_user("the batches have no \"", name, "\"; they have ", names.empty() ? "nothing" : names);
}

Tensor Tracer::input(const std::string& name, const TensorType& type) {
  if (name.empty()) fail_user("an input has no name");
  check_traced_name("input", name);
  if (is_reserved(name)) fail_user("an input cannot be called \"", name, "\", a name that the trainer uses");
  for (const int64_t size : type.shape.sizes())
    if (size < 1) throw Error(ErrorKind::kShape, "input \"" + name + "\" is " + type.text() + "; sizes are at least 1");
  checked_bytes("input \"" + name + "\"", type);
  return trace_->input(name, type);
}

Tensor Tracer::row_mask() {
  int64_t rows = 0;
  const auto count = [&](const TensorType& type) {
    if (type.shape.rank() > 0) rows = std::max(rows, type.shape[0]);
  };
  if (types_)
    for (const auto& [name, type] : *types_) count(type);
  else
    for (const GraphInput& input : trace_->graph().inputs())
      if (!is_reserved(input.name)) count(trace_->graph().value(input.value).type);
  if (rows == 0) fail_user("row_mask() and sample_count() come after an input that has rows");
  return trace_->input(kRowMask, {trace_->options().dtype, {rows}});
}

Tensor Tracer::sample_count() { return sum_to(row_mask(), {}); }

Tensor Tracer::number(double value, SourceLine where) { return trace_->number(value, where); }

Tensor Tracer::full(const TensorType& type, double value, SourceLine where) {
  return fill(trace_->graph(), type, value, where);
}

void Tracer::output(const std::string& name, At value, const OutputOptions& options) {
  check_traced_name("output", name);
  if (is_reserved(name)) fail_user("an output cannot be called \"", name, "\", a name that the trainer uses");
  if (!value.value.defined()) fail_user(value.where.text(), ": output \"", name, "\" is an undefined tensor");
  (void)value.value.type();  // an Error when its recording has ended
  if (value.value.graph != &trace_->graph())
    fail_user(value.where.text(), ": output \"", name, "\" is a tensor of another graph");
  if (training() && !options.training) return;
  for (const GraphOutput& output : trace_->graph().outputs())
    if (output.name == name) fail_user(value.where.text(), ": there is an output \"", name, "\" already");
  trace_->graph().output(name, value.value);
}

bool Tracer::training() const { return trace_->options().training; }
}  // namespace linnet
