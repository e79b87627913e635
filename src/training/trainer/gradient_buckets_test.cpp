#include <gtest/gtest.h>
#include <algorithm>
#include <memory>
#include <string>
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/layers.h"
#include "training/trainer/learner.h"
#include "training/trainer/step_graphs.h"

namespace linnet {
namespace {
constexpr int64_t kRows = 3, kWidth = 150, kLayers = 6;

struct Net : Module {
  std::vector<std::unique_ptr<Linear>> layers;
  Net() {
    for (int64_t i = 0; i < kLayers; ++i)
      layers.push_back(std::make_unique<Linear>(this, "layer" + std::to_string(i), kWidth, kWidth));
  }
};

LossFunction loss_of(Net& net) {
  return [&net](Trace& trace) -> Loss {
    Tensor x = trace.input("x", {DType::kF32, {kRows, kWidth}});
    for (const auto& layer : net.layers) x = tanh((*layer)(x));
    return {sum_to(square(x), {}), trace.number(kRows)};
  };
}

struct Step {
  Net net;
  SingleShapeLearner learner{net, loss_of(net), {.optimizer = {.weight_decay = 0.1}, .shards = {2, 0, 1}}};
  Trainer& trainer = learner.trainer();
  std::vector<GradientBucket> buckets = gradient_buckets(trainer.state().layout());
  std::vector<NodeId> last = last_writers(trainer.plans().train_executor(0).plan(), trainer.state().layout(), buckets);

  std::vector<float> values(const GradientBucket& bucket) const {
    const TrainingState& state = trainer.state();
    const float* gradient = state.flat("gradient") + state.layout().ranges()[bucket.range].offset + bucket.first;
    return {gradient, gradient + bucket.count};
  }
};

TEST(GradientBuckets, CoverEveryTrainedParameterOnce) {
  Step step;
  ASSERT_GT(step.buckets.size(), 3u);
  int64_t next = 0;
  for (const GradientBucket& bucket : step.buckets) {
    EXPECT_EQ(bucket.first, next);
    next += bucket.count;
  }
  EXPECT_EQ(next, step.trainer.state().layout().trained_count());
}

// Otherwise another rank would get a gradient that is not whole.
TEST(GradientBuckets, NothingChangesThemAfterTheirLastWriter) {
  Step step;
  std::vector<float> x(kRows * kWidth, 0.3F);
  step.learner.set<float>("x", x);
  std::vector<std::vector<float>> found(step.buckets.size());
  step.trainer.accumulate(0, 1, 0, [&](NodeId node) {
    for (size_t i = 0; i < found.size(); ++i)
      if (step.last[i] == node) found[i] = step.values(step.buckets[i]);
  });
  for (size_t i = 0; i < found.size(); ++i) {
    if (step.last[i] == step.trainer.plans().train_executor(0).plan().graph.node_count()) continue;
    EXPECT_EQ(found[i], step.values(step.buckets[i])) << "bucket " << i;
    EXPECT_NE(found[i], std::vector<float>(found[i].size())) << "bucket " << i;
  }
}

// The backward pass begins with the last layer, so its gradient can leave while the others are computed.
TEST(GradientBuckets, LastLayersAreCompleteFirst) {
  Step step;
  sort_by_completion(step.buckets, step.last, single_process());
  std::vector<NodeId> last =
      last_writers(step.trainer.plans().train_executor(0).plan(), step.trainer.state().layout(), step.buckets);
  EXPECT_TRUE(std::ranges::is_sorted(last));
  EXPECT_LT(last.front() + kLayers, last.back()) << "between the two lies the backward pass of the other layers";
  const auto offset_of = [&](const std::string& name) {
    return std::ranges::find(step.trainer.state().layout().trained(), name, [](const ParameterSlot& slot) {
      return slot.spec.name;
    })->offset;
  };
  EXPECT_EQ(step.buckets.front().first, offset_of("layer" + std::to_string(kLayers - 1) + ".weight"));
}

// As rank 0 of four that divide the moments, or the gradient too.
TrainerOptions options_of_rank(bool divides_gradients) {
  return {.optimizer = {.weight_decay = 0.1},
      .shards = {4, 0, 4},
      .divide_moments = true,
      .divide_gradients = divides_gradients};
}

// Where ranks divide the gradient, buckets lie in the plan's memory: with the same bits as in a whole gradient, and
// until the node that waits for them to be sent.
TEST(GradientBuckets, AreHeldUntilTheyWereSent) {
  Net net;
  SingleShapeLearner whole(net, loss_of(net), options_of_rank(false)),
      divided(net, loss_of(net), options_of_rank(true));
  for (SingleShapeLearner* learner : {&whole, &divided})
    learner->set<float>("x", std::vector<float>(kRows * kWidth, 0.3F));
  whole.trainer().accumulate(0, 1, 0);
  const float* gradient = whole.store().as<float>("gradient");
  const std::vector<GradientBucket>& buckets = divided.trainer().plans().buckets();
  const std::vector<HeldBucket> held = held_buckets(divided.trainer().plans().train_executor(0).plan());
  ASSERT_EQ(held.size(), buckets.size());
  size_t checked = 0;
  divided.trainer().accumulate(0, 1, 0, [&](NodeId node) {
    for (size_t i = 0; i < held.size(); ++i) {
      if (node != held[i].ready && node != held[i].hold) continue;
      const float* values = held[i].values(divided.store());
      EXPECT_TRUE(std::equal(values, values + buckets[i].count, gradient + buckets[i].first)) << "bucket " << i;
      ++checked;
    }
  });
  EXPECT_EQ(checked, 2 * held.size());
  for (size_t i = 0; i + 1 < held.size(); ++i)
    EXPECT_LT(held[i + 1].ready, held[i].hold) << "computed while it is sent";
}

TEST(GradientBuckets, AWholeGradientIsNeverInMemory) {
  const auto bytes = [](bool divides_gradients) {
    Net net;
    SingleShapeLearner learner(net, loss_of(net), options_of_rank(divides_gradients));
    size_t all = 0;
    for (const Store::Region& region : learner.store().regions()) all += region.bytes;
    return all;
  };
  const size_t gradient = static_cast<size_t>(kLayers * (kWidth + 1) * kWidth) * sizeof(float);
  EXPECT_LT(bytes(true) + gradient / 4, bytes(false));
}
}  // namespace
}  // namespace linnet
