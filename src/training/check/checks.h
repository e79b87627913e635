// The checks behind check.h, each by itself, and what they share.
#pragma once
#include <optional>

#include "training/check/check.h"
#include "engine/exec/interpreter.h"

namespace linnet {

// printf's format.
std::string text_of(const char* format, ...) __attribute__((format(printf, 1, 2)));
CheckLine verdict(const char* name, bool passes, std::string figure);
CheckLine skipped(const char* name, std::string why);

const Graph& evaluation_graph(const CheckSubject& subject);
TensorType input_type(const CheckSubject& subject, const std::string& name);
std::span<int32_t> ids(CheckBatch& batch, const std::string& name);
int64_t rows_of(const CheckSubject& subject);
// The loss of a batch, summed, with the weights as they are.
LossTotal loss_of(const CheckSubject& subject, const CheckBatch& batch);
void load(const CheckSubject& subject, const CheckBatch& batch);
// The weights as they are at first, and an optimizer that has seen nothing.
void restart(CheckSubject& subject);
// |a - b| relative to the larger.
double difference(double a, double b);
// Everything that the graph reads, as it is in the store.
NamedTensors graph_inputs(const CheckSubject& subject, const Graph& graph);

// The beginning.
CheckLine check_initial_loss(CheckSubject& subject);
CheckLine check_overfitting(CheckSubject& subject, std::vector<CheckLine>& more);
CheckLine check_determinism(CheckSubject& subject);
CheckLine check_drift(CheckSubject& subject);
// Gradients.
CheckLine check_gradient_norms(CheckSubject& subject);
CheckLine check_finite_differences(CheckSubject& subject);
// Who sees what.
CheckLine check_padding(CheckSubject& subject);
CheckLine check_rows(CheckSubject& subject);
CheckLine check_causality(CheckSubject& subject);
CheckLine check_context(CheckSubject& subject);
CheckLine check_lengths(CheckSubject& subject);
// Inside the graph.
CheckLine check_attention(CheckSubject& subject);
CheckLine check_dead_units(CheckSubject& subject);

}  // namespace linnet
