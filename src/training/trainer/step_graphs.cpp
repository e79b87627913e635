#include "training/trainer/step_graphs.h"
#include "engine/ops/collective/collective.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "models/nn/pipeline_parallel.h"
#include "training/trainer/range_update.h"

namespace linnet {
namespace {
struct Traced {
  Loss loss;
  std::vector<Tensor> gradients;  // of the sum of losses, one flat tensor for each trained range, packed ones last
  NodeId flat;                    // the first node after the backward pass
};

Tensor flat_state(Graph& graph, const std::string& name, const TrainedRange& range, DType dtype) {
  return graph.input(name + range.suffix, {dtype, {range.count}});
}

// One range's gradients in layout order. With `start`, adds them to it piece by piece, each where it is computed.
Tensor flat_gradient(std::span<Tensor> parts, Tensor start) {
  const std::vector<int64_t> sizes = mapped(parts, [](const Tensor& part) { return part.shape().elements(); });
  const std::vector<Tensor> before = start.defined() ? split(start, 0, sizes) : std::vector<Tensor>{};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (start.defined()) parts[i] = reshape(before[i], parts[i].shape()) + parts[i];
    parts[i] = reshape(parts[i], {sizes[i]});
  }
  return concat(parts, 0);
}

Tensor loss_scale(Graph& graph, const StepOptions& options) {
  return graph.input(state::kLossScale, {options.dtype, {}});
}

// Gradients of the sum of losses: of ParameterLayout::trained(), then of packed ranges.
std::vector<Tensor> parameter_gradients(
    Trace& trace, const ParameterLayout& layout, const Loss& traced, const StepOptions& options) {
  const Tensor loss = options.scales_loss ? traced.sum * loss_scale(trace.graph(), options) : traced.sum;
  std::vector<Tensor> parameters =
      mapped(layout.trained(), [&](const ParameterSlot& slot) { return trace.parameter(slot.spec); });
  for (const PackedRange& packed : layout.packed_ranges())
    parameters.push_back(trace.parameter(layout.quantized()[packed.quantized].slot.spec));
  // Inputs from the previous pipeline stage, which receives their gradients.
  const size_t count = parameters.size();
  for (size_t i = 0; const auto value = trace.graph().find_input(stage_input(i)); ++i)
    parameters.push_back({&trace.graph(), *value});
  std::vector<Tensor> parts = gradients(loss, parameters);
  for (size_t i = count; i < parts.size(); ++i) trace.graph().output(stage_gradient_output(i - count), parts[i]);
  parts.resize(count);
  return parts;
}

// `starts`: what each range's gradient is added to, undefined where it is not wanted; or empty.
Traced trace_gradients(Trace& trace, const ParameterLayout& layout, const LossFunction& loss_function,
    const StepOptions& options, std::span<const Tensor> starts) {
  Traced traced{loss_function(trace), {}, 0};
  std::vector<Tensor> parts = parameter_gradients(trace, layout, traced.loss, options);
  traced.flat = trace.graph().node_count();
  for (size_t first = 0; first < parts.size();) {
    const size_t i = traced.gradients.size();
    const size_t count = i < layout.ranges().size() ? layout.slots_in(layout.ranges()[i]) : 1;
    const Tensor start = starts.empty() ? Tensor{} : starts[i];
    const bool is_wanted = starts.empty() || start.defined();
    traced.gradients.push_back(is_wanted ? flat_gradient(std::span(parts).subspan(first, count), start) : Tensor{});
    first += count;
  }
  return traced;
}

// The divisor of the gradient's sum: tokens times loss scale. It is NaN if the loss is not finite: even then the
// gradient may be finite, but the step must change nothing.
Tensor divisor_of(Graph& graph, const StepOptions& options, Tensor count, Tensor sum) {
  const Tensor counted = count + sum * 0.0;
  return options.scales_loss ? counted * loss_scale(graph, options) : counted;
}

Tensor unscaled_squares(Graph& graph, const StepOptions& options, Tensor squares) {
  if (!options.scales_loss) return squares;
  const Tensor scale = loss_scale(graph, options);
  return squares / scale / scale;
}

// Where ranks divide a range, each has the squares of its part.
Tensor squares_of(const ParameterLayout& layout, size_t range, Tensor gradient) {
  const Tensor squares = sum_of_squares(gradient);
  const bool is_divided = range < layout.ranges().size() && layout.ranges()[range].is_divided;
  return is_divided ? all_reduce(squares, layout.division()->rank) : squares;
}

// One update for each range; all are clipped by the norm of all gradients.
void add_updates(Graph& graph, const ParameterLayout& layout, const StepOptions& options,
    std::span<const Tensor> gradients, Tensor count, Tensor sum) {
  Tensor squares = squares_of(layout, 0, gradients[0]);
  for (size_t i = 1; i < gradients.size(); ++i) squares = squares + squares_of(layout, i, gradients[i]);
  const Tensor control = graph.input(state::kControl, {options.dtype, {2}});
  const Tensor divisor = divisor_of(graph, options, count, sum);
  const size_t ranges = layout.ranges().size();
  for (size_t i = 0; i < ranges; ++i)
    update_range(graph, layout, layout.ranges()[i], options.optimizer, {gradients[i], squares, divisor, control});
  for (size_t i = ranges; i < gradients.size(); ++i) {
    const auto& [range, quantized] = layout.packed_ranges()[i - ranges];
    const PackedParameters packed{layout.quantized()[quantized], graph.input(state::kRandom, {DType::kI32, {4}})};
    update_range(graph, layout, range, options.optimizer, {gradients[i], squares, divisor, control, packed});
  }
  graph.output(state::kSumOfSquares, unscaled_squares(graph, options, squares));
}

// For all ranges, packed ones last; undefined if a pipeline chunk has no parameters of the range.
std::vector<Tensor> gradient_states(
    Graph& graph, const ParameterLayout& layout, DType dtype, std::optional<int> chunk = {}) {
  std::vector<Tensor> states = mapped(layout.ranges(), [&](const TrainedRange& range) {
    return !chunk || is_in_chunk(layout, range, *chunk) ? flat_state(graph, state::kGradient, range, dtype) : Tensor{};
  });
  for (const PackedRange& packed : layout.packed_ranges())
    states.push_back(flat_state(graph, state::kGradient, packed.range, dtype));
  return states;
}

void output_totals(Graph& graph, const Tensor& sum, const Tensor& count) {
  graph.output(state::kLossSum, sum);
  graph.output(state::kTokenCount, count);
}

void add_totals(Graph& graph, const Loss& loss, DType dtype) {
  for (const auto& [name, value] : {std::pair{state::kLossSum, loss.sum}, {state::kTokenCount, loss.count}}) {
    const Tensor total = graph.input(name, {dtype, {}});
    graph.update(total, total + value);
  }
}

// A bucket's parameters, as indices of ParameterLayout::trained().
std::vector<size_t> slots_of(const ParameterLayout& layout, const GradientBucket& bucket) {
  std::vector<size_t> slots;
  const int64_t first = layout.ranges()[bucket.range].offset + bucket.first;
  for (size_t slot = 0; slot < layout.trained().size(); ++slot)
    if (const int64_t offset = layout.trained()[slot].offset; offset >= first && offset < first + bucket.count)
      slots.push_back(slot);
  return slots;
}

// Loss and tokens are copied out before they are cleared, with the gradients, for the next step.
Graph finish_apply(Trace& trace, std::vector<Tensor> gradients, Tensor count, Tensor sum) {
  Graph& graph = trace.graph();
  output_totals(graph, sum * 1.0, count * 1.0);
  gradients.insert(gradients.end(), {count, sum});
  for (const Tensor& state : gradients) graph.update(state, fill(graph, state.type(), 0));
  return trace.finish();
}
}  // namespace

Graph single_graph(const ParameterLayout& layout, const LossFunction& loss, const StepOptions& options) {
  Trace trace({.dtype = options.dtype, .training = true, .layout = &layout});
  const Traced traced = trace_gradients(trace, layout, loss, options, {});
  add_updates(trace.graph(), layout, options, traced.gradients, traced.loss.count, traced.loss.sum);
  output_totals(trace.graph(), traced.loss.sum, traced.loss.count);
  trace.finish_buffers();
  return trace.finish();
}

Graph accumulate_graph(const ParameterLayout& layout, const LossFunction& loss, const StepOptions& options) {
  Trace trace({.dtype = options.dtype, .training = true, .layout = &layout});
  Graph& graph = trace.graph();
  const std::vector<Tensor> states = gradient_states(graph, layout, options.dtype, options.chunk);
  const Traced traced = trace_gradients(trace, layout, loss, options, states);
  for (size_t i = 0; i < states.size(); ++i)
    if (states[i].defined()) graph.update(states[i], traced.gradients[i]);
  add_totals(graph, traced.loss, options.dtype);
  trace.finish_buffers();
  // Each gradient is added as soon as it is computed, to free its activations early.
  return run_early(trace.finish(), traced.flat);
}

Graph bucket_graph(const ParameterLayout& layout, const LossFunction& loss_function, const StepOptions& options,
    std::vector<GradientBucket>& buckets, bool sorts) {
  Trace trace({.dtype = options.dtype, .training = true, .layout = &layout});
  Graph& graph = trace.graph();
  const Loss loss = loss_function(trace);
  const std::vector<Tensor> parts = parameter_gradients(trace, layout, loss, options);
  if (sorts)
    std::ranges::stable_sort(buckets, {}, [&](const GradientBucket& bucket) {
      NodeId last = kNone;
      for (const size_t slot : slots_of(layout, bucket)) last = std::max(last, graph.value(parts[slot].id).producer);
      return last;
    });
  const NodeId flat = graph.node_count();
  std::vector<Tensor> sums;
  for (const GradientBucket& bucket : buckets) {
    std::vector<Tensor> flat_parts;
    for (const size_t slot : slots_of(layout, bucket)) {
      const Tensor start = fill(graph, parts[slot].type(), 0);
      flat_parts.push_back(reshape(start + parts[slot], {parts[slot].shape().elements()}));
    }
    sums.push_back(concat(flat_parts, 0));
  }
  Tensor held;
  for (size_t i = 0; i < sums.size(); ++i) {
    const Tensor next = i + 1 < sums.size() ? sums[i + 1] : Tensor{};
    held = hold(sums[i], with_defined({}, {next, held}));
  }
  graph.output("gradients_sent", held);
  add_totals(graph, loss, options.dtype);
  trace.finish_buffers();
  return run_early(trace.finish(), flat);
}

Graph apply_graph(const ParameterLayout& layout, const StepOptions& options) {
  Trace trace({.dtype = options.dtype});
  Graph& graph = trace.graph();
  const std::vector<Tensor> gradients = gradient_states(graph, layout, options.dtype);
  const Tensor count = graph.input(state::kTokenCount, {options.dtype, {}}),
               sum = graph.input(state::kLossSum, {options.dtype, {}});
  add_updates(graph, layout, options, gradients, count, sum);
  return finish_apply(trace, gradients, count, sum);
}

TrainedRange part_of(const TrainedRange& range, const RangeSlice& part) {
  TrainedRange own = range;
  own.offset += part.first, own.count = part.count;
  own.decay_count = std::clamp<int64_t>(range.decay_count - part.first, 0, part.count);
  own.suffix += kOwnSuffix;
  return own;
}

Graph apply_slices_graph(const ParameterLayout& layout, std::span<const RangeSlice> slices, const StepOptions& options,
    bool has_whole_gradient) {
  Trace trace({.dtype = options.dtype});
  Graph& graph = trace.graph();
  const TensorType scalar{options.dtype, {}};
  std::vector<Tensor> gradients;
  if (has_whole_gradient) gradients = gradient_states(graph, layout, options.dtype);
  const Tensor count = graph.input(state::kTokenCount, scalar), sum = graph.input(state::kLossSum, scalar),
               squares = graph.input(state::kSumOfSquares, scalar),
               control = graph.input(state::kControl, {options.dtype, {2}});
  const Tensor divisor = divisor_of(graph, options, count, sum);
  for (const RangeSlice& part : slices) {
    const TrainedRange own = part_of(layout.ranges()[part.range], part);
    const Tensor gradient = has_whole_gradient ? slice(gradients[part.range], 0, part.first, own.count)
                                               : flat_state(graph, state::kGradient, own, options.dtype);
    update_range(graph, layout, own, options.optimizer, {gradient, squares, divisor, control});
  }
  graph.output(state::kSumOfSquares, unscaled_squares(graph, options, squares * 1.0));
  return finish_apply(trace, gradients, count, sum);
}

Graph evaluate_graph(
    const ParameterLayout& layout, const LossFunction& loss_function, const std::string& flat_name, DType dtype) {
  Trace trace({.dtype = dtype, .layout = &layout, .flat_name = flat_name});
  const Loss loss = loss_function(trace);
  output_totals(trace.graph(), loss.sum, loss.count);
  return trace.finish();
}

std::vector<GradientBucket> gradient_buckets(const ParameterLayout& layout) {
  constexpr int64_t kLeast = int64_t{1} << 14, kMost = int64_t{1} << 22;  // elements of a full bucket
  const int64_t enough = std::clamp(layout.trained_count() / 16, kLeast, kMost);
  std::vector<GradientBucket> buckets;
  size_t slot = 0;
  for (size_t range = 0; range < layout.ranges().size(); ++range) {
    const TrainedRange& trained = layout.ranges()[range];
    GradientBucket bucket{range, 0, 0};
    for (const size_t end = slot + layout.slots_in(trained); slot < end; ++slot) {
      // Includes the padding before the next parameter.
      const int64_t next = slot + 1 < end ? layout.trained()[slot + 1].offset - trained.offset : trained.count;
      bucket.count = next - bucket.first;
      if (bucket.count < enough && next < trained.count) continue;
      buckets.push_back(bucket);
      bucket = {range, next, 0};
    }
  }
  return buckets;
}

std::vector<NodeId> last_writers(
    const Plan& plan, const ParameterLayout& layout, const std::vector<GradientBucket>& buckets) {
  std::vector<NodeId> last(buckets.size(), -1);
  const StorageMap storages(plan.graph);
  for (const GraphInput& input : plan.graph.inputs())
    for (size_t i = 0; i < buckets.size(); ++i) {
      const GradientBucket& bucket = buckets[i];
      if (input.name != state::kGradient + layout.ranges()[bucket.range].suffix) continue;
      const size_t begin = float_bytes(bucket.first), end = begin + float_bytes(bucket.count);
      for (const Access& write : storages.writes(storages.storage_of(input.value)))
        if (write.begin < end && write.end > begin) last[i] = std::max(last[i], write.node);
      for (const StateUpdate& copy : plan.copies)
        if (copy.state == input.value) last[i] = plan.graph.node_count();
    }
  return last;
}

void sort_by_completion(
    std::vector<GradientBucket>& buckets, const std::vector<NodeId>& last_writers, Communicator& world) {
  std::vector<int32_t> order = numbers_below<int32_t>(buckets.size());
  std::ranges::stable_sort(order, {}, [&](int32_t i) { return last_writers[i]; });
  broadcast(world, 0, std::as_writable_bytes(std::span(order)));
  std::vector<GradientBucket> sorted = mapped(order, [&](int32_t i) { return buckets[i]; });
  buckets = std::move(sorted);
}

std::vector<HeldBucket> held_buckets(const Plan& plan) {
  std::vector<HeldBucket> held;
  for (NodeId id = 0; id < plan.graph.node_count(); ++id) {
    const Node& node = plan.graph.node(id);
    if (node.op != &kHold) continue;
    const ValueId bucket = node.in[0];
    held.push_back({plan.graph.value(bucket).producer, id, plan.location[bucket]});
  }
  return held;
}
}  // namespace linnet
