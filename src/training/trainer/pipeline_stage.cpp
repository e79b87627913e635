#include "training/trainer/pipeline_stage.h"
#include "base/error.h"
#include "base/numbers.h"
#include "base/timeline.h"
#include "engine/kernels/reduce/reduce.h"
#include "engine/passes/rewriter.h"
#include "engine/passes/tensor_parallel.h"
#include "engine/plan/store.h"
#include "training/trainer/trainer.h"

namespace linnet {
namespace {
size_t aligned(size_t bytes) { return round_up(bytes, 64); }

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
}  // namespace

PipelineStage::PipelineStage(
    const ParameterLayout& layout, Store& store, const SharedRegions& shared, int64_t micro_batches, uint64_t seed)
    : layout_(layout), stages_(*stages_of(layout)), store_(store), shared_(shared),
      slots_(static_cast<size_t>(stages_.rank.chunks)),
      steps_(
          micro_batches > 0 ? pipeline_steps(order_of(micro_batches), stages_.rank.rank) : std::vector<PipelineStep>{}),
      seed_(seed) {
  messages_ = store.add_region("stage messages", MemoryKind::kActivations, 0);
  if (is_interleaved()) {
    outbox_ = store.add_region("stage results", MemoryKind::kActivations, 0);
    waiting_ = store.add_region("batches of a pipeline", MemoryKind::kBatch, 0);
  }
  if (micro_batches == 0) return;
  const std::vector<int64_t> count = pipeline_slots(order_of(micro_batches), stages_.rank.rank);
  for (int chunk = 0; chunk < stages_.rank.chunks; ++chunk)
    for (int64_t i = 0; !is_last(chunk) && i < count[chunk]; ++i)
      slots_[chunk].push_back(store.add_region(
          "saved for backward " + (is_interleaved() ? std::to_string(chunk) + "." : "") + std::to_string(i),
          MemoryKind::kActivations, 0));
  begun_.reserve(micro_batches);
}

PipelineStage::ChunkPlans& PipelineStage::at(int shape, int chunk) {
  while (shapes_.size() <= static_cast<size_t>(shape)) {
    auto& chunks = shapes_.emplace_back();
    for (int i = 0; i < stages_.rank.chunks; ++i) chunks.push_back(std::make_unique<ChunkPlans>());
  }
  return *shapes_[shape][chunk];
}

// A name of plans and store entries: "3", for the second chunk "3.chunk1".
std::string PipelineStage::name_of(int shape, int chunk) const {
  return std::to_string(shape) + (is_interleaved() ? ".chunk" + std::to_string(chunk) : "");
}

// Gives inputs from neighbors names of their own, as plans of other shapes have them at other locations. With slots,
// these and the batch lie in the first slot.
Graph PipelineStage::take_ends(const Graph& graph, const std::string& prefix, int chunk, bool uses_slots, Ends& ends) {
  std::set<std::string> names;
  const auto take = [&](std::vector<End>& list, const std::string& name, bool in_slot) {
    const auto value = graph.find_input(name);
    if (!value) return false;
    names.insert(name);
    const RegionId region = in_slot ? slots_[chunk][0] : messages_;
    list.push_back({name, {region, 0}, graph.value(*value).type});
    return true;
  };
  for (size_t i = 0; take(ends.in, stage_input(i), uses_slots);) ++i;
  for (size_t i = 0; take(ends.gradient_in, stage_gradient_input(i), false);) ++i;
  for (const GraphOutput& output : graph.outputs()) take(ends.shared, stage_shared_input(output.name), false);
  for (const GraphInput& input : graph.inputs())
    if (uses_slots && is_of_batch(input.name)) take(ends.batch, input.name, true);
  const auto has_output = [&](const std::string& name) { return contains(graph.outputs(), name, &GraphOutput::name); };
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

Graph PipelineStage::with_ends(int shape, int chunk, const Graph& traced, bool training) {
  if (training) keep_batch(traced);
  const std::string prefix = (training ? "train." : "evaluate.") + name_of(shape, chunk) + ".";
  ChunkPlans& plans = at(shape, chunk);
  return take_ends(traced, prefix, chunk, false, training ? plans.training : plans.evaluation);
}

void PipelineStage::plan_evaluation(
    int shape, int chunk, const Graph& traced, const PassOptions& passes, const PlanOptions& options) {
  Graph graph = with_ends(shape, chunk, traced, false);
  at(shape, chunk).evaluate = make_plan(optimize(std::move(graph), passes), store_, shared_, options);
}

void PipelineStage::plan_training(int index, int chunk, const Graph& traced, const PassOptions& passes,
    const PlanOptions& options, std::vector<PassReport>* report) {
  constexpr const char* kViews = "make_views";
  const std::string prefix = "train." + name_of(index, chunk) + ".";
  const std::vector<RegionId>& regions = slots_[chunk];
  ChunkPlans& plans = at(index, chunk);
  keep_batch(traced);
  PassOptions without_views = passes;
  without_views.off.insert(kViews);
  const Graph graph = optimize(take_ends(traced, prefix, chunk, true, plans.training), without_views, report);
  SplitStage split = split_stage(graph, [&](size_t i) { return prefix + "saved." + std::to_string(i); });
  size_t bytes = 0, sent_bytes = 0;
  for (const std::vector<End>* list : {&plans.training.in, &plans.training.batch})
    for (const End& end : *list) bytes = std::max(bytes, end.location.offset + aligned(end.type.bytes()));
  for (const auto& [name, type] : split.saved) {
    const size_t offset = std::exchange(bytes, bytes + aligned(type.bytes()));
    for (const RegionId slot : regions) store_.grow_region(slot, bytes);
    store_.bind(name, {regions[0], offset}, type.bytes());
  }
  for (const RegionId slot : regions) store_.grow_region(slot, bytes);
  if (is_interleaved()) {
    for (const GraphOutput& output : split.forward.outputs())
      sent_bytes += aligned(split.forward.value(output.value).type.bytes());
    store_.grow_region(outbox_, sent_bytes);
  }
  if (!passes.off.contains(kViews))
    for (Graph* part : {&split.forward, &split.backward}) *part = make_views(*part);
  Slot& first = plans.slots.emplace_back();
  first.forward = make_plan(std::move(split.forward), store_, shared_, options);
  first.backward = make_plan(std::move(split.backward), store_, shared_, options);
  for (size_t i = 1; i < regions.size(); ++i)
    plans.slots.push_back({in_slot(plans.slots[0].forward, regions[0], regions[i]),
        in_slot(plans.slots[0].backward, regions[0], regions[i]), {}, {}});
}

// Whether each micro-batch has its own values, which both of its passes read.
bool PipelineStage::is_of_batch(const std::string& input) const {
  const auto found = store_.bindings().find(input);
  if (found == store_.bindings().end()) return false;
  const RegionId region = found->second.location.region;
  const bool is_of_step = region == store_.bindings().at(state::kRandom).location.region;
  return store_.regions()[region].kind == MemoryKind::kBatch && !is_of_step;
}

// Memory for the batches of a group of micro-batches (distributed/comm/pipeline_order.h).
void PipelineStage::keep_batch(const Graph& graph) {
  if (!is_interleaved()) return;
  for (const GraphInput& input : graph.inputs())
    if (is_of_batch(input.name))
      batch_bytes_[input.name] = std::max(batch_bytes_[input.name], graph.value(input.value).type.bytes());
  waiting_bytes_ = 0;
  for (const auto& [name, bytes] : batch_bytes_) waiting_bytes_ += aligned(bytes);
  store_.grow_region(waiting_, waiting_bytes_ * static_cast<size_t>(stages_.rank.ranks));
}

void PipelineStage::bind() {
  for (auto& chunks : shapes_)
    for (auto& plans : chunks) {
      if (!plans->evaluate.kernels.empty())
        plans->run_evaluate = std::make_unique<Executor>(plans->evaluate, store_, shared_);
      for (Slot& slot : plans->slots) {
        slot.run_forward = std::make_unique<Executor>(slot.forward, store_, shared_);
        slot.run_backward = std::make_unique<Executor>(slot.backward, store_, shared_);
      }
    }
}

void PipelineStage::add_plans(NamedPlans& plans) const {
  for (size_t i = 0; i < shapes_.size(); ++i)
    for (size_t chunk = 0; chunk < shapes_[i].size(); ++chunk) {
      const ChunkPlans& of_chunk = *shapes_[i][chunk];
      const std::string name = "." + name_of(static_cast<int>(i), static_cast<int>(chunk));
      if (!of_chunk.evaluate.kernels.empty()) plans["evaluate" + name] = &of_chunk.evaluate;
      for (size_t slot = 0; slot < of_chunk.slots.size(); ++slot) {
        const std::string of_slot = name + (slot > 0 ? ".slot" + std::to_string(slot) : "");
        plans["train.forward" + of_slot] = &of_chunk.slots[slot].forward;
        plans["train.backward" + of_slot] = &of_chunk.slots[slot].backward;
      }
    }
}

StepPlans PipelineStage::training_plans(int shape, int chunk) const {
  const Slot& slot = shapes_[shape][chunk]->slots[0];
  return {&slot.forward, &slot.backward};
}

PlanSize PipelineStage::training_size(int shape, int chunk) const {
  const auto [forward, backward] = training_plans(shape, chunk);
  return {std::max(forward->arena_bytes, backward->arena_bytes),
      std::max(forward->workspace_bytes, backward->workspace_bytes)};
}

size_t PipelineStage::slot_of(const PipelinePass& pass) const {
  const size_t count = slots_[pass.chunk].size();
  return count == 0 ? 0 : static_cast<size_t>(pass.micro) % count;
}

std::span<std::byte> PipelineStage::bytes_of(const End& end, int chunk, size_t slot) const {
  const std::vector<RegionId>& slots = slots_[chunk];
  const bool in_slot = !slots.empty() && end.location.region == slots[0];
  return {store_.location(in_slot ? slots[slot] : end.location.region) + end.location.offset, end.type.bytes()};
}

void PipelineStage::receive(const std::vector<End>& ends, int chunk, size_t slot, int from) {
  for (const End& end : ends) incoming_.push_back({from, bytes_of(end, chunk, slot)});
}

void PipelineStage::send(const Executor& executor, const std::vector<std::string>& outputs, int to) {
  for (const std::string& name : outputs) {
    const TensorView& value = executor.output(name);
    outgoing_.push_back({to, {static_cast<const std::byte*>(value.data), value.type.bytes()}});
  }
}

// A pass's result lies where its plan left it, or in the outbox.
void PipelineStage::send_result(const PipelinePass& pass) {
  const ChunkPlans& plans = plans_of(pass);
  const int to = pipeline_receiver(order_of(1), stages_.rank.rank, pass);
  if (!pass.is_forward)
    return send(is_last(pass.chunk) ? *batch_of(pass).last : *plans.slots[slot_of(pass)].run_backward,
        plans.training.gradient_out, to);
  const Executor& forward = *plans.slots[slot_of(pass)].run_forward;
  if (!is_interleaved()) return send(forward, plans.training.out, to);
  const std::byte* from = store_.location(outbox_);
  for (const std::string& name : plans.training.out) {
    const size_t bytes = forward.output(name).type.bytes();
    outgoing_.push_back({to, {from, bytes}});
    from += aligned(bytes);
  }
}

void PipelineStage::exchange() {
  if (outgoing_.empty() && incoming_.empty()) return;
  const HostSpan span("exchange with stages", SpanKind::kSharing);
  group().exchange(outgoing_, incoming_, Communicator::Wait::kSoon);
  outgoing_.clear(), incoming_.clear();
}

// Copies between the loss's inputs and the group's batches kept for the rank's later chunks.
void PipelineStage::copy_batch(int64_t micro, bool to_store) const {
  std::byte* waiting = store_.location(waiting_) + static_cast<size_t>(micro % stages_.rank.ranks) * waiting_bytes_;
  for (const auto& [name, bytes] : batch_bytes_) {
    std::byte* array = store_.data(name);
    std::memcpy(to_store ? array : waiting, to_store ? waiting : array, bytes);
    waiting += aligned(bytes);
  }
}

// Whether the shapes of all micro-batches that the step computes or receives are known.
bool PipelineStage::has_begun(const PipelineStep& step) const {
  const auto begun = [&](const PipelinePass& pass) { return pass.micro < static_cast<int64_t>(begun_.size()); };
  return std::ranges::all_of(step.receives, begun) && (!step.pass || begun(*step.pass));
}

void PipelineStage::accumulate(int shape, int64_t step, int64_t micro, const Executor* last, ThreadPool& pool) {
  if (next_ == steps_.size()) fail_internal("a pipeline gets more micro-batches than a step has");
  if (is_interleaved()) copy_batch(static_cast<int64_t>(begun_.size()), /*to_store=*/false);
  begun_.push_back({shape, step, micro, last});
  run_begun(steps_, pool);
}

void PipelineStage::run_begun(const std::vector<PipelineStep>& steps, ThreadPool& pool) {
  for (; next_ < steps.size() && has_begun(steps[next_]); ++next_) {
    const PipelineStep& now = steps[next_];
    for (const PipelinePass& pass : now.sends) send_result(pass);
    for (const PipelinePass& pass : now.receives) {
      const Ends& ends = plans_of(pass).training;
      receive(pass.is_forward ? ends.in : ends.gradient_in, pass.chunk, slot_of(pass),
          pipeline_sender(order_of(1), stages_.rank.rank, pass));
    }
    exchange();
    if (now.pass) run_pass(now, pool);
  }
}

void PipelineStage::run_pass(const PipelineStep& step, ThreadPool& pool) {
  const PipelinePass& pass = *step.pass;
  const MicroBatch& batch = batch_of(pass);
  const HostSpan span(step.with_backward ? "forward and backward"
                      : pass.is_forward  ? "forward"
                                         : "backward",
      SpanKind::kStagePass, pass.micro);
  if (pass.is_forward && is_interleaved()) copy_batch(pass.micro, /*to_store=*/true);
  write_random(store_.as<int32_t>(state::kRandom), seed_, batch.step, batch.micro);
  if (step.with_backward) return void(batch.last->run(pool));
  const ChunkPlans& plans = plans_of(pass);
  const Slot& slot = plans.slots[slot_of(pass)];
  if (!pass.is_forward) return void(slot.run_backward->run(pool));
  for (const End& end : plans.training.batch) {
    const std::span<std::byte> to = bytes_of(end, pass.chunk, slot_of(pass));
    std::memcpy(to.data(), store_.data(end.name), to.size());
  }
  slot.run_forward->run(pool);
  if (!is_interleaved()) return;
  std::byte* to = store_.location(outbox_);
  for (const std::string& name : plans.training.out) {
    const TensorView& value = slot.run_forward->output(name);
    std::memcpy(to, value.data, value.type.bytes());
    to += aligned(value.type.bytes());
  }
}

// The last step of an epoch may have fewer micro-batches than steps_. What has run is also the beginning of the shorter
// list (distributed/comm/pipeline_order_test.cpp), whose rest completes the step.
void PipelineStage::finish(ThreadPool& pool) {
  if (begun_.empty()) return;
  if (next_ < steps_.size()) {
    const auto count = static_cast<int64_t>(begun_.size());
    run_begun(pipeline_steps(order_of(count), stages_.rank.rank), pool);
  }
  begun_.clear(), next_ = 0;
  const HostSpan span("share between stages", SpanKind::kSharing);
  add_shared_gradients(pool);
  float totals[] = {*store_.as<float>(state::kLossSum), *store_.as<float>(state::kTokenCount)};
  broadcast(group(), stages_.rank.ranks - 1, std::span(totals));
  set_totals(store_, totals[0], totals[1]);
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
          std::make_unique<Shared>(group(), of, std::span(store_.as<float>(state::kGradient) + own->offset, count)));
      scratch_.resize(std::max(scratch_.size(), sum_scratch_size(count, static_cast<int>(of.size()))));
    }
  for (const auto& tied : tied_) sum_over_ranks(tied->stages, tied->gradient, scratch_, pool);
}

float PipelineStage::sum_of_squares(ThreadPool& pool) {
  double sum = 0;
  for (const TrainedRange& range : layout_.ranges()) {
    if (is_copy(layout_, range)) continue;
    squares_.resize(ceil_div(range.count, kSumBlock));
    block_squares(range.count, store_.as<float>(state::kGradient) + range.offset, squares_.data(), pool);
    auto of_range = sum_of<double>(squares_);
    if (range.is_divided)
      of_range = sum_over_ranks(checked_group(store_.groups().tensor, layout_.division()->rank.ranks),
          static_cast<float>(of_range), scratch_, pool);
    sum += of_range;
  }
  return sum_over_stages(static_cast<float>(sum), pool);
}

PipelineStage::Totals PipelineStage::evaluate(int shape, const Executor& executor, ThreadPool& pool) {
  const PipelineRank& rank = stages_.rank;
  for (int chunk = 0; chunk < rank.chunks; ++chunk) {
    const ChunkPlans& plans = at(shape, chunk);
    const PipelinePass pass{true, chunk, 0};
    receive(plans.evaluation.in, chunk, 0, pipeline_sender(order_of(1), rank.rank, pass));
    exchange();
    const Executor& of_chunk = chunk + 1 < rank.chunks ? *plans.run_evaluate : executor;
    of_chunk.run(pool);
    send(of_chunk, plans.evaluation.out, pipeline_receiver(order_of(1), rank.rank, pass));
    exchange();
  }
  const int last = rank.ranks - 1;
  if (rank.is_last()) {
    for (const GraphOutput& output : executor.plan().graph.outputs()) {
      if (output.name == state::kLossSum || output.name == state::kTokenCount) continue;
      const TensorView& value = executor.output(output.name);
      broadcast(group(), last, std::span(static_cast<std::byte*>(value.data), value.type.bytes()));
    }
  } else {
    const int chunk = rank.chunks - 1;
    for (const End& end : at(shape, chunk).evaluation.shared) broadcast(group(), last, bytes_of(end, chunk, 0));
  }
  float totals[] = {
      executor.output(state::kLossSum).as<float>()[0], executor.output(state::kTokenCount).as<float>()[0]};
  broadcast(group(), last, std::span(totals));
  return {totals[0], totals[1]};
}
}  // namespace linnet
