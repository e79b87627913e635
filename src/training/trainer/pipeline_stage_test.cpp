// Models whose layers the stages of a pipeline share, with threads as ranks: they train as one rank does, with the same
// dropout masks, and checkpoints do not tell how many stages wrote them.
#include "training/trainer/pipeline_stage.h"
#include "base/timeline.h"
#include "layouts_testing.h"

namespace linnet {
namespace {
using testing::expect_as_alone;
using testing::kSteps;
using testing::Layout;
using testing::LayoutRank;
using testing::LayoutResult;
using testing::train_layout;

Layout stages(int count, int64_t micro_batches = 3) {
  return {.pipeline = {.ranks = count}, .micro_batches = micro_batches};
}

class PipelineTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(PipelineTraining, TrainsAsOneRankDoes) {
  const LayoutResult alone = train_layout(GetParam(), stages(1));
  EXPECT_LT(alone.losses[kSteps - 2], alone.losses[0]);
  for (const int count : {2, 3, 4}) {
    SCOPED_TRACE(count);
    const LayoutResult together = train_layout(GetParam(), stages(count));
    expect_as_alone(together, alone);
    for (const int64_t trained : together.trained) EXPECT_LT(trained, alone.trained[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineTraining, ::testing::Values("gpt", "llama", "bert", "transformer", "t5"),
    [](const auto& param) { return std::string(param.param); });

// One micro-batch, fewer than there are stages, and more: slots are used again.
TEST(Pipeline, TakesAnyNumberOfMicroBatches) {
  for (const int64_t count : {1, 2, 7}) {
    SCOPED_TRACE(count);
    const LayoutResult alone = train_layout("gpt", stages(1, count), 4);
    for (const int ranks : {2, 4}) expect_as_alone(train_layout("gpt", stages(ranks, count), 4), alone);
  }
}

TEST(Pipeline, RecomputationDoesNotChangeABit) {
  Layout layout = stages(2);
  const LayoutResult kept = train_layout("gpt", layout, 5);
  layout.recompute = RecomputeMode::kBlock;
  const LayoutResult again = train_layout("gpt", layout, 5);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_EQ(again.norms, kept.norms);
  EXPECT_LT(again.bytes[0], kept.bytes[0]);  // what the first stage saves
}

// Copies of a tied embedding are updated alike, and the norm counts it once (TrainsAsOneRankDoes).
TEST(Pipeline, TiedParametersStayEqual) {
  std::vector<std::vector<float>> copies(2);
  testing::run_ranks(2, [&](Communicator& world) {
    LayoutRank rank("gpt", stages(2), world);
    for (int64_t step = 1; step <= 5; ++step) rank.step(step);
    const ParameterLayout& layout = rank.learner.trainer().state().layout();
    for (const TrainedRange& range : layout.ranges()) {
      for (const ParameterSlot& slot : layout.trained()) {
        if (slot.offset != range.offset || stages_of(layout)->of.at(slot.spec.name).size() == 1) continue;
        EXPECT_EQ(is_copy(layout, range), world.rank() == 1);
        const std::span<float> values = rank.learner.parameter(slot.spec.name);
        copies[static_cast<size_t>(world.rank())].assign(values.begin(), values.end());
      }
    }
  });
  EXPECT_FALSE(copies[0].empty());
  EXPECT_EQ(copies[0], copies[1]);
}

// What the last stage has found besides the loss is on every stage.
TEST(Pipeline, EveryStageHasTheEvaluation) {
  const auto predictions = [](int ranks) {
    std::vector<std::vector<int32_t>> found(static_cast<size_t>(ranks));
    testing::run_ranks(ranks, [&](Communicator& world) {
      LayoutRank rank("bert", stages(ranks), world);
      rank.evaluate();
      const TensorView& view = rank.learner.trainer().plans().evaluate_executor(0).output("predictions");
      found[static_cast<size_t>(world.rank())].assign(view.as<int32_t>(), view.as<int32_t>() + view.elements());
    });
    return found;
  };
  const std::vector<int32_t> alone = predictions(1)[0];
  EXPECT_FALSE(alone.empty());
  for (const std::vector<int32_t>& each : predictions(3)) EXPECT_EQ(each, alone);
}

// What is saved for the backward pass is computed where it is saved: only sums of losses and tokens are copied.
TEST(Pipeline, ActivationsAreNotCopiedToBeSaved) {
  for (const char* family : {"gpt", "llama", "bert", "transformer", "t5"})
    testing::run_ranks(3, [&](Communicator& world) {
      LayoutRank rank(family, stages(3), world);
      for (const auto& [name, plan] : rank.learner.trainer().plans().by_name())
        for (const StateUpdate& copy : plan->copies)
          EXPECT_EQ(plan->graph.value(copy.value).type.shape.elements(), 1) << family << " " << name;
    });
}

// What each stage has done, in order: "F0 F1 B0 ...". The last stage does both passes at once.
TEST(Pipeline, ForwardAndBackwardPassesAlternate) {
  constexpr int kStages = 3;
  std::vector<std::string> order(kStages);
  testing::run_ranks(kStages, [&](Communicator& world) {
    Timeline::name_thread("stage " + std::to_string(world.rank()));
    LayoutRank rank("gpt", stages(kStages, 4), world);
    barrier(world);
    if (world.rank() == 0) Timeline::start();
    barrier(world);
    rank.step(1);
    barrier(world);
  });
  Timeline::stop();
  for (const Track& track : Timeline::take()) {
    if (!track.thread.starts_with("stage ")) continue;
    std::string& text = order[static_cast<size_t>(track.thread.back() - '0')];
    for (const Span& span : track.spans) {
      const std::string_view name = span.name ? span.name : "";
      const std::string number = std::to_string(span.index) + " ";
      if (name == "forward") text += "F" + number;
      if (name == "backward") text += "B" + number;
      if (name == "forward and backward") text += "FB" + number;
    }
  }
  EXPECT_EQ(order[0], "F0 F1 F2 B0 F3 B1 B2 B3 ");
  EXPECT_EQ(order[1], "F0 F1 B0 F2 B1 F3 B2 B3 ");
  EXPECT_EQ(order[2], "FB0 FB1 FB2 FB3 ");
}

TEST(Pipeline, CheckpointsDoNotTellHowManyStagesWroteThem) {
  const LayoutResult alone = train_layout("gpt", stages(1), 12);
  for (const std::vector<Layout>& layouts :
      {std::vector{stages(2), stages(1), stages(4)}, {stages(1), stages(3), stages(1)}})
    testing::expect_layouts_go_on("gpt", layouts, stages(1), alone);
}

// Four ranks: two models of two stages each, which train on different shards.
TEST(Pipeline, PipelinesTrainOnDifferentData) {
  Layout layout{.data = 2, .pipeline = {.ranks = 2}, .shards = 2};
  const LayoutResult alone = train_layout("gpt", {.shards = 2}, 5);
  const LayoutResult both = train_layout("gpt", layout, 5);
  expect_as_alone(both, alone);
  layout.divides_moments = true;
  EXPECT_EQ(train_layout("gpt", layout, 5).losses, both.losses);
  EXPECT_EQ(train_layout("gpt", {.pipeline = {.ranks = 2}, .shards = 2}, 5).losses, both.losses);
}

TEST(Pipeline, StagesTakeLessMemory) {
  const LayoutResult alone = train_layout("gpt", stages(1, 4), 1), together = train_layout("gpt", stages(2, 4), 1);
  EXPECT_LT(together.trained[0] + together.trained[1], alone.trained[0] * 18 / 10);  // the tied embedding is on both
  for (const uint64_t bytes : together.bytes) EXPECT_LE(bytes, alone.bytes[0]);
}
}  // namespace
}  // namespace linnet
