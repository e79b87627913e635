#include "models/nn/trace.h"
#include "base/fail.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/formula.h"
#include "engine/ops/quantized/quantized.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
namespace {
// Models are functions that users write, so layer(x) has no argument for the trace. Several threads may record at once.
thread_local Trace* t_current = nullptr;

// One split node cuts the whole flat input; the views pass makes each part a slot in it.
void cut(Graph& graph, DType dtype, const std::string& name, std::span<const ParameterSlot> slots,
    std::map<std::string, Tensor>& parts) {
  if (slots.empty()) return;
  std::vector<int64_t> sizes = mapped(slots, [&](const ParameterSlot& slot) { return slot.spec.shape.elements(); });
  const int64_t total = slots.back().offset + sizes.back() - slots.front().offset;
  const std::vector<Tensor> flat = split(graph.input(name, {dtype, {total}}), 0, sizes);
  for (size_t i = 0; i < slots.size(); ++i) parts[slots[i].spec.name] = reshape(flat[i], slots[i].spec.shape);
}
}  // namespace

Trace::Trace(const TraceOptions& options) : options_(options), outer_(t_current) {
  t_current = this;
  if (!options.layout) return;
  const ParameterLayout& layout = *options.layout;
  std::span<const ParameterSlot> slots = layout.trained();
  for (const TrainedRange& range : layout.ranges()) {
    const size_t count = layout.slots_in(range);
    cut(graph_, options.dtype, options.flat_name + range.suffix, slots.first(count), parts_);
    slots = slots.subspan(count);
  }
  if (layout.owner())
    for (const ParameterSlot& slot : layout.frozen())
      parts_[slot.spec.name] = graph_.input(shared_input(slot), {options.dtype, slot.spec.shape});
  else cut(graph_, options.dtype, kFrozenInput, layout.frozen(), parts_);
  cut(graph_, options.dtype, kBufferInput, layout.buffers(), parts_);
  cut(graph_, options.dtype, state::kConstants, layout.constants(), parts_);
  for (const QuantizedSlot& slot : layout.quantized()) {
    const Tensor matrix =
        dequantize(graph_.input(slot.input(), slot.type()), slot.shape, options.dtype, slot.input_scale);
    const Shape& shape = slot.slot.spec.shape;
    parts_[slot.slot.spec.name] = matrix.shape() == shape ? matrix : reshape(matrix, shape);
  }
}
Trace::~Trace() { t_current = outer_; }

Trace& Trace::current() {
  if (!t_current) fail_user("a module is used where nothing is traced; call it in the function that gives the loss");
  return *t_current;
}

Trace* Trace::find() { return t_current; }

Tensor Trace::parameter(const ParameterSpec& spec) {
  if (const auto next = next_buffers_.find(spec.name); next != next_buffers_.end())
    return stop_gradient(At(next->second));
  if (!options_.layout) return graph_.input(spec.name, {options_.dtype, spec.shape});
  const auto part = parts_.find(spec.name);
  if (part == parts_.end() || part->second.shape() != spec.shape)
    fail_user("the model that is traced has no parameter \"", spec.name, "\" of shape ", spec.shape.text(),
        ": its module is no part of the model");
  return part->second;
}

bool Trace::is_frozen(const ParameterSpec& spec) const {
  return options_.layout && contains(options_.layout->frozen(), spec.name, &ParameterSlot::name);
}

void Trace::update_buffer(const ParameterSpec& spec, Tensor next) {
  if (!options_.training) fail_user("buffer ", spec.name, " is updated in a graph that does not train");
  if (next.shape() != spec.shape)
    fail_user("buffer ", spec.name, " has the shape ", spec.shape.text(), ", its update ", next.shape().text());
  // What would not be finite stays as it was, as parameters do.
  // One node, as a value with several readers would be rounded to bf16 where activations are.
  FormulaBuilder f;
  const Number value = f[0], zero = f.constant(0), is_finite = equal(value - value, zero), old = f[1];
  next_buffers_[spec.name] = f.finish(select(is_finite, value, old), std::array{next, parameter(spec)});
}

void Trace::finish_buffers() {
  if (next_buffers_.empty()) return;
  if (!options_.layout) {
    for (const auto& [name, next] : next_buffers_) graph_.update(graph_.input(name, next.type()), next);
    return;
  }
  std::vector<Tensor> parts;
  for (const ParameterSlot& slot : options_.layout->buffers()) {
    const Tensor value = find_or(next_buffers_, slot.spec.name, parts_.at(slot.spec.name));
    parts.push_back(reshape(value, {slot.spec.shape.elements()}));
  }
  const int64_t count = options_.layout->stored_count() - options_.layout->buffer_offset();
  graph_.update(graph_.input(kBufferInput, {options_.dtype, {count}}), concat(parts, 0));
}

Tensor Trace::number(double value, SourceLine where) { return fill(graph_, {options_.dtype, {}}, value, where); }

Tensor Trace::random() { return graph_.input("random", {DType::kI32, {4}}); }
}  // namespace linnet
