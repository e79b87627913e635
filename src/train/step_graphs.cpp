#include "train/step_graphs.h"

#include "ops/movement/movement.h"
#include "ops/pointwise/pointwise.h"
#include "passes/gradient.h"

namespace linnet {
namespace {

struct Traced {
  Loss loss;
  Tensor gradient;  // [P], of the sum of losses
};

// The gradient of every parameter, one after another in the order of the layout. With `start`, added to it piece by
// piece, so that each contribution can be computed where it lies.
Traced trace_gradient(Trace& trace, const ParameterLayout& layout, const LossFunction& loss_function, Tensor start) {
  const Loss loss = loss_function(trace);
  std::vector<Tensor> parameters;
  std::vector<int64_t> sizes;
  for (const ParameterPlace& place : layout.trainable()) {
    parameters.push_back(trace.parameter(place.spec));
    sizes.push_back(place.spec.shape.elements());
  }
  std::vector<Tensor> parts = gradients(loss.sum, parameters);
  const std::vector<Tensor> before = start.defined() ? split(start, 0, sizes) : std::vector<Tensor>{};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (start.defined()) parts[i] = reshape(before[i], parts[i].shape()) + parts[i];
    parts[i] = reshape(parts[i], {sizes[i]});
  }
  return {loss, concat(parts[0], std::span(parts).subspan(1), 0)};
}

Tensor flat_state(Graph& graph, const char* name, DType dtype, int64_t count) {
  return graph.input(name, {dtype, {count}});
}

void add_update(Graph& graph, const ParameterLayout& layout, const StepOptions& options, Tensor gradient,
                Tensor count) {
  const int64_t n = layout.parameter_count();
  OptimizerAttrs attrs = options.optimizer;
  attrs.decay_count = layout.decay_count();
  OptimizerState state{flat_state(graph, "parameters", options.dtype, n),
                       flat_state(graph, "moment1", options.dtype, n)};
  if (attrs.kind == OptimizerAttrs::Kind::kAdam) state.moment2 = flat_state(graph, "moment2", options.dtype, n);
  if (attrs.ema_decay > 0) state.ema = flat_state(graph, "ema", options.dtype, n);
  const Tensor squares = sum_of_squares(gradient);
  const Tensor control = graph.input("control", {options.dtype, {2}});
  const OptimizerState next = optimizer_step(state, gradient, squares, count, control, attrs);
  graph.update(state.parameters, next.parameters);
  graph.update(state.moment1, next.moment1);
  if (state.moment2.defined()) graph.update(state.moment2, next.moment2);
  if (state.ema.defined()) graph.update(state.ema, next.ema);
  graph.output("sum_of_squares", squares);
}

}  // namespace

Graph single_graph(const ParameterLayout& layout, const LossFunction& loss, const StepOptions& options) {
  Trace trace({.dtype = options.dtype, .training = true, .layout = &layout});
  const Traced traced = trace_gradient(trace, layout, loss, {});
  add_update(trace.graph(), layout, options, traced.gradient, traced.loss.count);
  trace.graph().output("loss_sum", traced.loss.sum);
  trace.graph().output("token_count", traced.loss.count);
  return trace.finish();
}

Graph accumulate_graph(const ParameterLayout& layout, const LossFunction& loss, const StepOptions& options) {
  Trace trace({.dtype = options.dtype, .training = true, .layout = &layout});
  Graph& graph = trace.graph();
  const Tensor gradient = flat_state(graph, "gradient", options.dtype, layout.parameter_count());
  const Traced traced = trace_gradient(trace, layout, loss, gradient);
  graph.update(gradient, traced.gradient);
  for (const auto& [name, value] : {std::pair{"loss_sum", traced.loss.sum}, {"token_count", traced.loss.count}}) {
    const Tensor total = graph.input(name, {options.dtype, {}});
    graph.update(total, total + value);
  }
  return trace.finish();
}

Graph apply_graph(const ParameterLayout& layout, const StepOptions& options) {
  Trace trace({.dtype = options.dtype});
  Graph& graph = trace.graph();
  const Tensor gradient = flat_state(graph, "gradient", options.dtype, layout.parameter_count());
  const Tensor count = graph.input("token_count", {options.dtype, {}}),
               sum = graph.input("loss_sum", {options.dtype, {}});
  add_update(graph, layout, options, gradient, count);
  // Copied out before they are cleared for the next step.
  graph.output("loss_sum", sum * 1.0);
  graph.output("token_count", count * 1.0);
  for (const Tensor& state : {gradient, count, sum}) graph.update(state, fill(graph, state.type(), 0));
  return trace.finish();
}

Graph evaluate_graph(const ParameterLayout& layout, const LossFunction& loss_function, const std::string& flat_name,
                     DType dtype) {
  Trace trace({.dtype = dtype, .layout = &layout, .flat_name = flat_name});
  const Loss loss = loss_function(trace);
  trace.graph().output("loss_sum", loss.sum);
  trace.graph().output("token_count", loss.count);
  return trace.finish();
}

}  // namespace linnet
