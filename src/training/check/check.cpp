#include "training/check/check.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "engine/plan/state_names.h"
#include "training/check/checks.h"

namespace linnet {

std::string text_of(const char* format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

CheckLine verdict(const char* name, bool passes, std::string figure) {
  return {name, passes ? Verdict::kPass : Verdict::kFail, std::move(figure)};
}

CheckLine skipped(const char* name, std::string why) { return {name, Verdict::kSkipped, std::move(why)}; }

const Graph& evaluation_graph(const CheckSubject& subject) {
  return subject.trainer.plans().at("evaluate." + std::to_string(subject.shape))->graph;
}

TensorType input_type(const CheckSubject& subject, const std::string& name) {
  const Graph& graph = evaluation_graph(subject);
  const std::optional<ValueId> input = graph.find_input(name);
  return input ? graph.value(*input).type : TensorType{};
}

std::span<int32_t> ids(CheckBatch& batch, const std::string& name) {
  std::vector<std::byte>& bytes = batch.at(name);
  return {reinterpret_cast<int32_t*>(bytes.data()), bytes.size() / sizeof(int32_t)};
}

int64_t rows_of(const CheckSubject& subject) {
  for (const auto& [name, bytes] : subject.batch)
    if (name != subject.flat_positions)
      if (const TensorType type = input_type(subject, name); type.shape.rank() > 1) return type.shape[0];
  return 0;
}

void restart(CheckSubject& subject) {
  subject.reset();
  for (const std::string& state : subject.trainer.states())
    if (state != state::kParameters)
      std::fill_n(subject.trainer.state(state), subject.trainer.layout().trained_count(), 0.0F);
  for (const PackedState& state : subject.trainer.packed_states())
    std::memset(subject.store.data(state.name), 0, state.type.bytes());
  subject.trainer.push_states();
}

void load(const CheckSubject& subject, const CheckBatch& batch) {
  Batch views;
  views.shape_index = subject.shape;
  for (const auto& [name, bytes] : batch) views.arrays.push_back({name.c_str(), bytes});
  subject.trainer.load(views);
}

LossTotal loss_of(const CheckSubject& subject, const CheckBatch& batch) {
  load(subject, batch);
  return subject.trainer.evaluate(subject.shape);
}

double difference(double a, double b) {
  const double larger = std::max(std::abs(a), std::abs(b));
  return larger > 0 ? std::abs(a - b) / larger : a == b ? 0 : INFINITY;
}

NamedTensors graph_inputs(const CheckSubject& subject, const Graph& graph) {
  NamedTensors inputs;
  subject.trainer.pull_states();
  for (const GraphInput& input : graph.inputs()) {
    HostTensor tensor(graph.value(input.value).type);
    std::memcpy(tensor.data(), subject.store.data(input.name), tensor.type().bytes());
    inputs[input.name] = std::move(tensor);
  }
  return inputs;
}

std::vector<CheckLine> run_checks(CheckSubject& subject, const std::function<void(const CheckLine&)>& on_line) {
  std::vector<CheckLine> lines;
  const auto add = [&](const CheckLine& line) {
    lines.push_back(line);
    if (on_line) on_line(line);
  };
  add(check_initial_loss(subject));
  add(check_gradient_norms(subject));
  add(check_finite_differences(subject));
  add(check_dead_units(subject));
  add(check_attention(subject));
  add(check_causality(subject));
  add(check_context(subject));
  add(check_padding(subject));
  add(check_rows(subject));
  add(check_lengths(subject));
  add(check_determinism(subject));
  add(check_drift(subject));
  std::vector<CheckLine> more;
  add(check_overfitting(subject, more));
  for (const CheckLine& line : more) add(line);
  return lines;
}

}  // namespace linnet
