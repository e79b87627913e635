// Models that the ranks of a tensor group train together, with threads as ranks: they train as one rank does, with the
// same dropout masks, and checkpoints do not tell how many ranks wrote them.
#include <algorithm>
#include <string>
#include <vector>
#include "layouts_testing.h"

namespace linnet {
namespace {
using testing::expect_as_alone;
using testing::kSteps;
using testing::Layout;
using testing::LayoutResult;
using testing::train_layout;

// Steps of one micro-batch, whose gradient is never added up in memory.
Layout tensor_ranks(int ranks) { return {.tensor = ranks, .micro_batches = 1}; }

class TensorParallelTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(TensorParallelTraining, TrainsAsOneRankDoes) {
  const LayoutResult alone = train_layout(GetParam(), tensor_ranks(1));
  EXPECT_LT(alone.losses[kSteps - 1], alone.losses[0]);
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const LayoutResult together = train_layout(GetParam(), tensor_ranks(ranks));
    expect_as_alone(together, alone);
    EXPECT_LT(*std::ranges::max_element(together.trained), alone.trained[0] * 6 / 10);
    EXPECT_LE(*std::ranges::max_element(together.bytes), alone.bytes[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallelTraining,
    ::testing::Values("gpt", "llama", "bert", "transformer", "t5"),
    [](const auto& param) { return std::string(param.param); });

// Sums between ranks are computed again with the layers that have them.
TEST(TensorParallel, RecomputationDoesNotChangeABit) {
  Layout layout = tensor_ranks(2);
  const LayoutResult kept = train_layout("gpt", layout);
  layout.recompute = RecomputeMode::kBlock;
  const LayoutResult again = train_layout("gpt", layout);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_EQ(again.norms, kept.norms);
}

TEST(TensorParallel, CheckpointsDoNotTellHowManyRanksWroteThem) {
  const Layout one = tensor_ranks(1), two = tensor_ranks(2), four = tensor_ranks(4);
  const LayoutResult alone = train_layout("gpt", one, 12);
  for (const std::vector<Layout>& layouts : {std::vector{two, one, four}, {one, two, one}})
    testing::expect_layouts_go_on("gpt", layouts, one, alone);
}

// Four ranks: two models of two ranks each, which train on different shards; ranks divide nothing, moments, and
// gradients too.
TEST(TensorParallel, TensorGroupsTrainOnDifferentData) {
  Layout layout{.data = 2, .tensor = 2, .shards = 2, .micro_batches = 1};
  const LayoutResult alone = train_layout("gpt", {.shards = 2, .micro_batches = 1}, 5);
  const LayoutResult both = train_layout("gpt", layout, 5);
  expect_as_alone(both, alone);
  const auto expect_same_bits = [&](const Layout& other) {
    const LayoutResult found = train_layout("gpt", other, 5);
    EXPECT_EQ(found.losses, both.losses);
    EXPECT_EQ(found.norms, both.norms);
  };
  layout.divides_moments = true;
  expect_same_bits(layout);
  layout.divides_gradients = true;
  expect_same_bits(layout);
  expect_same_bits({.tensor = 2, .shards = 2, .micro_batches = 1});
}
}  // namespace
}  // namespace linnet
