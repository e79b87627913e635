#include "train/pipeline_stage.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/timeline.h"
#include "kernels/reduce/reduce.h"
#include "passes/rewriter.h"

namespace linnet {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Plan in_slot(const Plan& plan, RegionId from, RegionId to) {
  Plan copy{.graph = plan.graph.clone(),
            .location = plan.location,
            .kernels = plan.kernels,
            .workspace_in_arena = plan.workspace_in_arena,
            .copies = plan.copies,
            .arena_bytes = plan.arena_bytes,
            .arena_lower_bound = plan.arena_lower_bound,
            .workspace_bytes = plan.workspace_bytes,
            .threads = plan.threads};
  for (Location& location : copy.location)
    if (location.region == from) location.region = to;
  return copy;
}

bool is_loss(const std::string& output) { return output == "loss_sum" || output == "token_count"; }

}  // namespace

PipelineStage::PipelineStage(const ParameterLayout& layout, Store& store, const SharedRegions& shared,
                             int64_t micro_batches)
    : layout_(layout), stages_(*stages_of(layout)), store_(store), shared_(shared) {
  messages_ = store.add_region("stage messages", MemoryKind::kActivations, 0);
  const int64_t slots = is_last() ? 0 : std::min<int64_t>(stages_.rank.stages - stages_.rank.stage, micro_batches);
  for (int64_t i = 0; i < slots; ++i)
    slots_.push_back(store.add_region("saved for backward " + std::to_string(i), MemoryKind::kActivations, 0));
  begun_.reserve(static_cast<size_t>(micro_batches));
}

PipelineStage::Shape& PipelineStage::at(int shape) {
  while (shapes_.size() <= static_cast<size_t>(shape)) shapes_.push_back(std::make_unique<Shape>());
  return *shapes_[static_cast<size_t>(shape)];
}

// Inputs that the neighbors send get names of their own, as plans of other shapes find them elsewhere. With slots,
// those and the batch lie in the first slot.
Graph PipelineStage::take_ends(const Graph& graph, const std::string& prefix, bool uses_slots, Ends& ends) {
  std::set<std::string> names;
  const auto take = [&](std::vector<End>& list, const std::string& name, ValueId value, bool in_slot) {
    names.insert(name);
    list.push_back({name, {in_slot ? slots_[0] : messages_, 0}, graph.value(value).type});
  };
  for (size_t i = 0; const auto value = graph.find_input(stage_input(i)); ++i)
    take(ends.in, stage_input(i), *value, uses_slots);
  for (size_t i = 0; const auto value = graph.find_input(stage_gradient_input(i)); ++i)
    take(ends.gradient_in, stage_gradient_input(i), *value, false);
  for (const GraphOutput& output : graph.outputs())
    if (const auto value = graph.find_input(stage_shared_input(output.name)))
      take(ends.shared, stage_shared_input(output.name), *value, false);
  if (uses_slots)
    for (const GraphInput& input : graph.inputs())
      if (stages_.batch.contains(input.name)) take(ends.batch, input.name, input.value, true);
  const auto has_output = [&](const std::string& name) {
    return std::ranges::find(graph.outputs(), name, &GraphOutput::name) != graph.outputs().end();
  };
  for (size_t i = 0; has_output(stage_output_name(i)); ++i) ends.out.push_back(stage_output_name(i));
  for (size_t i = 0; has_output(stage_gradient_output(i)); ++i) ends.gradient_out.push_back(stage_gradient_output(i));

  Rewriter rewriter(graph, names);
  size_t message_bytes = 0, slot_bytes = 0;
  for (std::vector<End>* list : {&ends.in, &ends.gradient_in, &ends.shared, &ends.batch})
    for (End& end : *list) {
      size_t& used = end.location.region == messages_ ? message_bytes : slot_bytes;
      end.location.offset = std::exchange(used, used + aligned(end.type.bytes()));
      store_.grow_region(end.location.region, used);
      store_.bind(prefix + end.name, end.location, end.type.bytes());
      rewriter.map(*graph.find_input(end.name), rewriter.graph().input(prefix + end.name, end.type));
    }
  for (const Node& node : graph.nodes()) rewriter.copy(node);
  return rewriter.finish();
}

Graph PipelineStage::with_ends(int shape, const Graph& traced, bool training) {
  const std::string prefix = (training ? "train." : "evaluate.") + std::to_string(shape) + ".";
  return take_ends(traced, prefix, false, training ? at(shape).training : at(shape).evaluation);
}

void PipelineStage::plan_training(int index, const Graph& traced, const PassOptions& passes, const PlanOptions& options,
                                  std::vector<PassReport>* report) {
  constexpr const char* kViews = "make_views";
  const std::string prefix = "train." + std::to_string(index) + ".";
  Shape& shape = at(index);
  PassOptions without_views = passes;
  without_views.off.insert(kViews);
  const Graph graph = optimize(take_ends(traced, prefix, true, shape.training), without_views, report);
  SplitStage split = split_stage(graph, [&](size_t i) { return prefix + "saved." + std::to_string(i); });
  size_t bytes = 0;
  for (const std::vector<End>* list : {&shape.training.in, &shape.training.batch})
    for (const End& end : *list) bytes = std::max(bytes, end.location.offset + aligned(end.type.bytes()));
  for (const auto& [name, type] : split.saved) {
    const size_t offset = std::exchange(bytes, bytes + aligned(type.bytes()));
    for (const RegionId slot : slots_) store_.grow_region(slot, bytes);
    store_.bind(name, {slots_[0], offset}, type.bytes());
  }
  for (const RegionId slot : slots_) store_.grow_region(slot, bytes);
  if (!passes.off.contains(kViews))
    for (Graph* part : {&split.forward, &split.backward}) *part = make_views(*part);
  Slot& first = shape.slots.emplace_back();
  first.forward = make_plan(std::move(split.forward), store_, shared_, options);
  first.backward = make_plan(std::move(split.backward), store_, shared_, options);
  for (size_t i = 1; i < slots_.size(); ++i) {
    Slot slot;
    slot.forward = in_slot(shape.slots[0].forward, slots_[0], slots_[i]);
    slot.backward = in_slot(shape.slots[0].backward, slots_[0], slots_[i]);
    shape.slots.push_back(std::move(slot));
  }
}

void PipelineStage::bind() {
  for (auto& shape : shapes_)
    for (Slot& slot : shape->slots) {
      slot.run_forward = std::make_unique<Executor>(slot.forward, store_, shared_);
      slot.run_backward = std::make_unique<Executor>(slot.backward, store_, shared_);
    }
}

void PipelineStage::add_plans(NamedPlans& plans) const {
  for (size_t i = 0; i < shapes_.size(); ++i)
    for (size_t slot = 0; slot < shapes_[i]->slots.size(); ++slot) {
      const std::string name = "." + std::to_string(i) + (slot > 0 ? ".slot" + std::to_string(slot) : "");
      plans["train.forward" + name] = &shapes_[i]->slots[slot].forward;
      plans["train.backward" + name] = &shapes_[i]->slots[slot].backward;
    }
}

PlanSize PipelineStage::training_size(int shape) const {
  const Slot& slot = shapes_[static_cast<size_t>(shape)]->slots[0];
  return {std::max(slot.forward.arena_bytes, slot.backward.arena_bytes),
          std::max(slot.forward.workspace_bytes, slot.backward.workspace_bytes)};
}

std::span<std::byte> PipelineStage::bytes_of(const End& end, size_t slot) const {
  const bool in_slot = !slots_.empty() && end.location.region == slots_[0];
  return {store_.location(in_slot ? slots_[slot] : end.location.region) + end.location.offset, end.type.bytes()};
}

void PipelineStage::receive(const std::vector<End>& ends, size_t slot, int from) {
  for (const End& end : ends) incoming_.push_back({from, bytes_of(end, slot)});
}

void PipelineStage::send(const Executor& executor, const std::vector<std::string>& outputs, int to) {
  for (const std::string& name : outputs) {
    const TensorView& value = executor.output(name);
    outgoing_.push_back({to, {static_cast<const std::byte*>(value.data), value.type.bytes()}});
  }
}

void PipelineStage::send_pending() {
  if (const Executor* executor = std::exchange(pending_, nullptr)) send(*executor, *pending_names_, before());
}

void PipelineStage::exchange() {
  if (outgoing_.empty() && incoming_.empty()) return;
  const HostSpan span("exchange with stages");
  group().exchange(outgoing_, incoming_, Communicator::Wait::kSoon);
  outgoing_.clear(), incoming_.clear();
}

void PipelineStage::load_batch(const Ends& ends, size_t slot) const {
  for (const End& end : ends.batch) {
    const std::span<std::byte> to = bytes_of(end, slot);
    std::memcpy(to.data(), store_.data(end.name), to.size());
  }
}

void PipelineStage::accumulate(int index, int64_t step, int64_t micro, const Executor* last, SetRandom set_random,
                               ThreadPool& pool) {
  Shape& shape = at(index);
  const auto number = static_cast<int64_t>(begun_.size());
  const size_t slot = is_last() ? 0 : begun_.size() % slots_.size();
  send_pending();
  receive(shape.training.in, slot, before());
  exchange();
  begun_.push_back({index, step, micro});
  if (is_last()) {
    const HostSpan span("forward and backward", number);
    set_random(step, micro);
    last->run(pool);
    pending_ = last, pending_names_ = &shape.training.gradient_out;
    ++done_;
    return;
  }
  const Executor& forward = *shape.slots[slot].run_forward;
  {
    const HostSpan span("forward", number);
    load_batch(shape.training, slot);
    set_random(step, micro);
    forward.run(pool);
  }
  send(forward, shape.training.out, behind());
  if (number + 1 < stages_.rank.stages - stages_.rank.stage) return exchange();
  receive(at(begun_[done_].shape).training.gradient_in, 0, behind());
  exchange();
  run_backward(set_random, pool);
}

void PipelineStage::run_backward(SetRandom set_random, ThreadPool& pool) {
  const MicroBatch& batch = begun_[done_];
  Shape& shape = at(batch.shape);
  const Executor& backward = *shape.slots[done_ % slots_.size()].run_backward;
  const HostSpan span("backward", static_cast<int64_t>(done_));
  set_random(batch.step, batch.micro);
  backward.run(pool);
  if (!stages_.rank.is_first()) pending_ = &backward, pending_names_ = &shape.training.gradient_out;
  ++done_;
}

void PipelineStage::finish(SetRandom set_random, ThreadPool& pool) {
  if (begun_.empty()) return;
  send_pending();
  exchange();
  while (done_ < begun_.size()) {
    receive(at(begun_[done_].shape).training.gradient_in, 0, behind());
    exchange();
    run_backward(set_random, pool);
    send_pending();
    exchange();
  }
  begun_.clear(), done_ = 0;
  const HostSpan span("share between stages");
  add_shared_gradients(pool);
  float totals[] = {*store_.as<float>("loss_sum"), *store_.as<float>("token_count")};
  broadcast(group(), stages_.rank.stages - 1, std::span(totals));
  store_.fill("loss_sum", &totals[0], sizeof(float));
  store_.fill("token_count", &totals[1], sizeof(float));
}

// In the order of the model's parameters, which is the same on all stages.
void PipelineStage::add_shared_gradients(ThreadPool& pool) {
  if (!std::exchange(has_tied_, true))
    for (const ParameterSlot& slot : of_all_stages(layout_).trained()) {
      const std::vector<int>& of = stages_.of.at(slot.spec.name);
      const ParameterSlot* own = of.size() > 1 ? find_parameter(layout_, slot.spec.name) : nullptr;
      if (!own) continue;
      const auto count = static_cast<size_t>(own->spec.shape.elements());
      tied_.push_back(
          std::make_unique<Shared>(group(), of, std::span(store_.as<float>("gradient") + own->offset, count)));
      scratch_.resize(std::max(scratch_.size(), sum_scratch_size(count, static_cast<int>(of.size()))));
    }
  for (const auto& tied : tied_) sum_over_ranks(tied->stages, tied->gradient, scratch_, pool);
}

float PipelineStage::sum_over_stages(float own, ThreadPool& pool) {
  scratch_.resize(std::max(scratch_.size(), sum_scratch_size(1, stages_.rank.stages)));
  sum_over_ranks(group(), {&own, 1}, scratch_, pool);
  return own;
}

float PipelineStage::sum_of_squares(ThreadPool& pool) {
  double sum = 0;
  for (const TrainedRange& range : layout_.ranges()) {
    if (is_copy(layout_, range)) continue;
    squares_.resize(static_cast<size_t>((range.count + kSumBlock - 1) / kSumBlock));
    block_squares(range.count, store_.as<float>("gradient") + range.offset, squares_.data(), pool);
    for (const double block : squares_) sum += block;
  }
  return sum_over_stages(static_cast<float>(sum), pool);
}

PipelineStage::Totals PipelineStage::evaluate(int index, const Executor& executor, ThreadPool& pool) {
  const Ends& ends = shapes_[static_cast<size_t>(index)]->evaluation;
  receive(ends.in, 0, before());
  exchange();
  executor.run(pool);
  send(executor, ends.out, behind());
  exchange();
  const int last = stages_.rank.stages - 1;
  if (is_last()) {
    for (const GraphOutput& output : executor.plan().graph.outputs()) {
      if (is_loss(output.name)) continue;
      const TensorView& value = executor.output(output.name);
      broadcast(group(), last, std::span(static_cast<std::byte*>(value.data), value.type.bytes()));
    }
  } else {
    for (const End& end : ends.shared) broadcast(group(), last, bytes_of(end, 0));
  }
  float totals[] = {executor.output("loss_sum").as<float>()[0], executor.output("token_count").as<float>()[0]};
  broadcast(group(), last, std::span(totals));
  return {totals[0], totals[1]};
}

}  // namespace linnet
