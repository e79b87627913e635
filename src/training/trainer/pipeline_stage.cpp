#include "training/trainer/pipeline_stage.h"

#include <algorithm>
#include <set>

#include "base/rounding.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

constexpr size_t kSentAlignment = 64;

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

PipelineStage::PipelineStage(const ParameterLayout& layout, Store& store, const SharedRegions& shared,
                             int64_t micro_batches)
    : layout_(layout),
      stages_(*stages_of(layout)),
      store_(store),
      shared_(shared),
      slots_(static_cast<size_t>(stages_.rank.chunks)),
      steps_(micro_batches > 0 ? pipeline_steps(order_of(micro_batches), stages_.rank.rank)
                               : std::vector<PipelineStep>{}) {
  messages_ = store.add_region("stage messages", MemoryKind::kActivations, 0);
  if (is_interleaved()) {
    outbox_ = store.add_region("stage results", MemoryKind::kActivations, 0);
    waiting_ = store.add_region("batches of a pipeline", MemoryKind::kBatch, 0);
  }
  if (micro_batches == 0) return;
  const std::vector<int64_t> count = pipeline_slots(order_of(micro_batches), stages_.rank.rank);
  for (int chunk = 0; chunk < stages_.rank.chunks; ++chunk)
    for (int64_t i = 0; !is_last(chunk) && i < count[static_cast<size_t>(chunk)]; ++i)
      slots_[static_cast<size_t>(chunk)].push_back(store.add_region(
          "saved for backward " + (is_interleaved() ? std::to_string(chunk) + "." : "") + std::to_string(i),
          MemoryKind::kActivations, 0));
  begun_.reserve(static_cast<size_t>(micro_batches));
}

PipelineStage::ChunkPlans& PipelineStage::at(int shape, int chunk) {
  while (shapes_.size() <= static_cast<size_t>(shape)) {
    auto& chunks = shapes_.emplace_back();
    for (int i = 0; i < stages_.rank.chunks; ++i) chunks.push_back(std::make_unique<ChunkPlans>());
  }
  return *shapes_[static_cast<size_t>(shape)][static_cast<size_t>(chunk)];
}

// Of plans and of names in the store: "3", of the second chunk "3.chunk1".
std::string PipelineStage::name_of(int shape, int chunk) const {
  return std::to_string(shape) + (is_interleaved() ? ".chunk" + std::to_string(chunk) : "");
}

// Inputs that the neighbors send get names of their own, as plans of other shapes find them elsewhere. With slots,
// those and the batch lie in the first slot.
Graph PipelineStage::take_ends(const Graph& graph, const std::string& prefix, int chunk, bool uses_slots, Ends& ends) {
  std::set<std::string> names;
  const auto take = [&](std::vector<End>& list, const std::string& name, ValueId value, bool in_slot) {
    names.insert(name);
    const RegionId region = in_slot ? slots_[static_cast<size_t>(chunk)][0] : messages_;
    list.push_back({name, {region, 0}, graph.value(value).type});
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
      end.location.offset = std::exchange(used, used + round_up(end.type.bytes(), kSentAlignment));
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

void PipelineStage::plan_evaluation(int shape, int chunk, const Graph& traced, const PassOptions& passes,
                                    const PlanOptions& options) {
  Graph graph = with_ends(shape, chunk, traced, false);
  at(shape, chunk).evaluate = make_plan(optimize(std::move(graph), passes), store_, shared_, options);
}

void PipelineStage::plan_training(int index, int chunk, const Graph& traced, const PassOptions& passes,
                                  const PlanOptions& options, std::vector<PassReport>* report) {
  constexpr const char* kViews = "make_views";
  const std::string prefix = "train." + name_of(index, chunk) + ".";
  const std::vector<RegionId>& regions = slots_[static_cast<size_t>(chunk)];
  ChunkPlans& plans = at(index, chunk);
  keep_batch(traced);
  PassOptions without_views = passes;
  without_views.off.insert(kViews);
  const Graph graph = optimize(take_ends(traced, prefix, chunk, true, plans.training), without_views, report);
  SplitStage split = split_stage(graph, [&](size_t i) { return prefix + "saved." + std::to_string(i); });
  size_t bytes = 0, sent_bytes = 0;
  for (const std::vector<End>* list : {&plans.training.in, &plans.training.batch})
    for (const End& end : *list) bytes = std::max(bytes, end.location.offset + round_up(end.type.bytes(), kSentAlignment));
  for (const auto& [name, type] : split.saved) {
    const size_t offset = std::exchange(bytes, bytes + round_up(type.bytes(), kSentAlignment));
    for (const RegionId slot : regions) store_.grow_region(slot, bytes);
    store_.bind(name, {regions[0], offset}, type.bytes());
  }
  for (const RegionId slot : regions) store_.grow_region(slot, bytes);
  if (is_interleaved()) {
    for (const GraphOutput& output : split.forward.outputs())
      sent_bytes += round_up(split.forward.value(output.value).type.bytes(), kSentAlignment);
    store_.grow_region(outbox_, sent_bytes);
  }
  if (!passes.off.contains(kViews))
    for (Graph* part : {&split.forward, &split.backward}) *part = make_views(*part);
  Slot& first = plans.slots.emplace_back();
  first.forward = make_plan(std::move(split.forward), store_, shared_, options);
  first.backward = make_plan(std::move(split.backward), store_, shared_, options);
  for (size_t i = 1; i < regions.size(); ++i) {
    Slot slot;
    slot.forward = in_slot(plans.slots[0].forward, regions[0], regions[i]);
    slot.backward = in_slot(plans.slots[0].backward, regions[0], regions[i]);
    plans.slots.push_back(std::move(slot));
  }
}

// Room for the batches of a group of micro-batches (distributed/comm/pipeline_order.h).
void PipelineStage::keep_batch(const Graph& graph) {
  if (!is_interleaved()) return;
  for (const GraphInput& input : graph.inputs())
    if (stages_.batch.contains(input.name)) {
      size_t& bytes = batch_bytes_[input.name];
      bytes = std::max(bytes, graph.value(input.value).type.bytes());
    }
  waiting_bytes_ = 0;
  for (const auto& [name, bytes] : batch_bytes_) waiting_bytes_ += round_up(bytes, kSentAlignment);
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

std::pair<const Plan&, const Plan&> PipelineStage::training_plans(int shape, int chunk) const {
  const Slot& slot = shapes_[static_cast<size_t>(shape)][static_cast<size_t>(chunk)]->slots[0];
  return {slot.forward, slot.backward};
}

PlanSize PipelineStage::training_size(int shape, int chunk) const {
  const auto& [forward, backward] = training_plans(shape, chunk);
  return {std::max(forward.arena_bytes, backward.arena_bytes),
          std::max(forward.workspace_bytes, backward.workspace_bytes)};
}

}  // namespace linnet
