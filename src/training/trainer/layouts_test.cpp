// Tensor, pipeline and data parallel together, with threads as ranks: each family trains as one rank does, with the
// same dropout masks, and checkpoints do not tell how ranks shared the model.
#include <string>
#include <vector>
#include "error_of.h"
#include "layouts_testing.h"

namespace linnet {
namespace {
using testing::expect_as_alone;
using testing::kSteps;
using testing::Layout;
using testing::LayoutRank;
using testing::LayoutResult;
using testing::train_layout;

class CombinedLayouts : public ::testing::TestWithParam<const char*> {};

TEST_P(CombinedLayouts, TrainAsOneRankDoes) {
  const LayoutResult alone = train_layout(GetParam(), {});
  EXPECT_LT(alone.losses[kSteps - 1], alone.losses[1]);
  for (const Layout& layout :
      {Layout{.tensor = 2, .pipeline = {.ranks = 2}}, Layout{.tensor = 2, .pipeline = {.ranks = 3}}}) {
    SCOPED_TRACE(layout.pipeline.ranks);
    const LayoutResult together = train_layout(GetParam(), layout);
    expect_as_alone(together, alone);
    for (size_t i = 0; i < together.trained.size(); ++i) {
      EXPECT_LT(together.trained[i], alone.trained[0] * 6 / 10) << "rank " << i;
      EXPECT_LT(together.bytes[i], alone.bytes[0]) << "rank " << i;
    }
  }
}

// Eight ranks: two models of four ranks each, which train on different shards; moments whole and divided.
TEST_P(CombinedLayouts, TrainOnDifferentData) {
  const LayoutResult alone = train_layout(GetParam(), {.shards = 2});
  const LayoutResult eight = train_layout(GetParam(), {.data = 2, .tensor = 2, .pipeline = {.ranks = 2}, .shards = 2});
  expect_as_alone(eight, alone);
  const Layout divided{.data = 2, .tensor = 2, .pipeline = {.ranks = 2}, .divides_moments = true, .shards = 2};
  EXPECT_EQ(train_layout(GetParam(), divided).losses, eight.losses);
  const Layout four{.tensor = 2, .pipeline = {.ranks = 2}, .shards = 2};
  EXPECT_EQ(train_layout(GetParam(), four).losses, eight.losses);
}

// Each rank has two stages; a step is one group of micro-batches or two.
TEST_P(CombinedLayouts, TrainInterleavedStages) {
  const PipelineRank interleaved{.ranks = 2, .chunks = 2};
  for (const int64_t micro_batches : {2, 4}) {
    SCOPED_TRACE(micro_batches);
    const LayoutResult alone = train_layout(GetParam(), {.micro_batches = micro_batches});
    const LayoutResult together = train_layout(GetParam(), {.pipeline = interleaved, .micro_batches = micro_batches});
    expect_as_alone(together, alone);
    for (const int64_t trained : together.trained) EXPECT_LT(trained, alone.trained[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CombinedLayouts, ::testing::Values("gpt", "llama", "bert", "transformer", "t5"),
    [](const auto& param) { return std::string(param.param); });

TEST(Layouts, InterleavedStagesAreCombinedWithTheOthers) {
  const LayoutResult alone = train_layout("transformer", {.shards = 2});
  Layout layout{.data = 2, .tensor = 2, .pipeline = {.ranks = 2, .chunks = 3}, .divides_moments = true, .shards = 2};
  const LayoutResult together = train_layout("transformer", layout);
  expect_as_alone(together, alone);
  layout.recompute = RecomputeMode::kBlock;
  EXPECT_EQ(train_layout("transformer", layout).losses, together.losses);
}

// Steps at the end of an epoch, with fewer micro-batches than others.
TEST(Layouts, InterleavedStepsMayEndEarly) {
  for (const int64_t begun : {1, 3}) {
    SCOPED_TRACE(begun);
    const LayoutResult alone = train_layout("gpt", {.micro_batches = 4, .begun = begun}, 5);
    const Layout layout{.pipeline = {.ranks = 2, .chunks = 2}, .micro_batches = 4, .begun = begun};
    expect_as_alone(train_layout("gpt", layout, 5), alone);
  }
}

TEST(Layouts, InterleavedStagesTakeGroupsOfMicroBatches) {
  testing::run_ranks(2, [](Communicator& world) {
    const Layout layout{.pipeline = {.ranks = 2, .chunks = 2}, .micro_batches = 3};
    EXPECT_EQ(error_of([&] { LayoutRank("gpt", layout, world); }),
        "interleaved stages take micro-batches in groups of one for each rank: set accumulate_steps to a "
        "multiple of 2, not 3");
  });
}

// Norms and embeddings go with their stack, whatever would be balanced.
TEST(Layouts, EncoderAndDecoderOnARankEach) {
  for (const char* family : {"transformer", "t5"}) {
    SCOPED_TRACE(family);
    const LayoutResult alone = train_layout(family, {});
    for (const int tensor : {1, 2}) {
      const Layout layout{.tensor = tensor, .pipeline = {.ranks = 2, .splits_encoder = true}};
      const LayoutResult together = train_layout(family, layout);
      expect_as_alone(together, alone);
      EXPECT_TRUE(together.stages[0].starts_with("stage 0: encoder.layers.0 to encoder.layers.1, "))
          << together.stages[0];
      EXPECT_TRUE(together.stages.back().starts_with("stage 1: decoder.layers.0 to decoder.layers.1, "))
          << together.stages.back();
    }
  }
}

TEST(Layouts, RecomputationDoesNotChangeABit) {
  Layout layout{.tensor = 2, .pipeline = {.ranks = 2}};
  const LayoutResult kept = train_layout("transformer", layout, 5);
  layout.recompute = RecomputeMode::kBlock;
  const LayoutResult again = train_layout("transformer", layout, 5);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_EQ(again.norms, kept.norms);
}

TEST(Layouts, CheckpointsDoNotTellWhichOneWroteThem) {
  const Layout one{.shards = 2}, four{.tensor = 2, .pipeline = {.ranks = 2}, .shards = 2};
  const Layout data{.data = 2, .divides_moments = true, .shards = 2};
  const Layout eight{.data = 2, .tensor = 2, .pipeline = {.ranks = 2}, .divides_moments = true, .shards = 2};
  const Layout interleaved{.tensor = 2, .pipeline = {.ranks = 2, .chunks = 2}, .shards = 2};
  const LayoutResult alone = train_layout("transformer", one, 12);
  for (const std::vector<Layout>& layouts :
      {std::vector{four, one, data}, {data, eight, four}, {eight, interleaved, one}, {interleaved, data, four}})
    testing::expect_layouts_go_on("transformer", layouts, one, alone);
}
}  // namespace
}  // namespace linnet
