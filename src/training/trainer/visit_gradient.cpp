// Trainer::visit_gradient(), which looks at the gradient that a step has left behind.
#include <algorithm>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/plan/memory_map.h"
#include "engine/plan/state_names.h"
#include "training/trainer/trainer.h"

namespace linnet {
namespace {

size_t gradient_bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

bool is_norm(const Node& node) { return std::string_view(node.op->name) == "sum_of_squares"; }

// Whether the bytes of a flat gradient still hold it when the plan has run: nothing that is computed after its norm may
// lie there.
bool is_intact(const Plan& plan, RegionId arena, const Location& location, size_t bytes) {
  if (location.region != arena) return true;
  const auto first_norm = std::ranges::find_if(plan.graph.nodes(), is_norm);
  const auto norm = static_cast<NodeId>(first_norm - plan.graph.nodes().begin());
  return std::ranges::none_of(arena_tenants(plan, arena), [&](const ArenaTenant& tenant) {
    return tenant.first >= norm && tenant.offset < location.offset + bytes &&
           location.offset < tenant.offset + tenant.bytes;
  });
}

}  // namespace

bool Trainer::visit_gradient(int shape, GradientVisitor visit) {
  if (pipeline_) return false;
  if (accumulates() && !has_whole_gradient()) return visit_buckets(shape, visit);
  if (accumulates()) {
    shapes_[static_cast<size_t>(shape)]->run_train->run(pool_);
    for (const TrainedRange& range : layout_.ranges()) {
      const std::string name = state::kGradient + range.suffix;
      store_.pull(name);
      float* values = store_.as<float>(name);
      visit(range, {values, static_cast<size_t>(range.count)});
      std::fill_n(values, range.count, 0.0F);
      store_.push(name);
    }
    const float zero = 0;
    for (const char* name : {"loss_sum", "token_count"}) store_.fill(name, &zero, sizeof zero);
    return true;
  }
  const Plan& plan = shapes_[static_cast<size_t>(shape)]->train;
  std::vector<Location> slots;
  for (const Node& node : plan.graph.nodes())
    if (is_norm(node)) slots.push_back(plan.location[static_cast<size_t>(node.in[0])]);
  for (size_t i = 0; i < layout_.ranges().size(); ++i) {
    const TrainedRange& range = layout_.ranges()[i];
    if (!is_intact(plan, shared_.arena, slots[i], gradient_bytes(range.count))) return false;
    const auto count = static_cast<size_t>(range.count);
    const std::byte* from = store_.location(slots[i].region) + slots[i].offset;
    if (store_.device().is_host()) {
      visit(range, {reinterpret_cast<const float*>(from), count});
      continue;
    }
    std::vector<float> copy(count);
    store_.device().download(reinterpret_cast<std::byte*>(copy.data()), from, gradient_bytes(range.count));
    store_.device().wait();
    visit(range, copy);
  }
  return true;
}

bool Trainer::visit_buckets(int shape, GradientVisitor visit) {
  const Executor& executor = *shapes_[static_cast<size_t>(shape)]->run_train;
  const std::vector<HeldBucket> held = held_buckets(executor.plan());
  std::vector<float> gradient(static_cast<size_t>(layout_.trained_count()));
  size_t next = 0;
  executor.run(pool_, [&](NodeId node) {
    for (; next < held.size() && held[next].ready <= node; ++next) {
      const GradientBucket& bucket = buckets_[next];
      const int64_t first = layout_.ranges()[bucket.range].offset + bucket.first;
      std::copy_n(held[next].values(store_), bucket.count, gradient.begin() + first);
    }
  });
  for (const TrainedRange& range : layout_.ranges())
    visit(range, std::span(gradient).subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.count)));
  const float zero = 0;
  for (const char* name : {"loss_sum", "token_count"}) store_.fill(name, &zero, sizeof zero);
  return true;
}

}  // namespace linnet
