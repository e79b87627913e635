#include "distributed/simulate/training_step.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <limits>
#include "base/error.h"
#include "parsed_json.h"

namespace linnet {
namespace {
const Network kFree{.bytes_per_second = std::numeric_limits<double>::infinity()};

// Each rank computes for 3 s of a micro-batch, in so many stages.
TrainingStep pipeline_of(int ranks, int64_t micro_batches, int interleave = 1) {
  TrainingStep step{.layout = {.pipeline = ranks, .interleave = interleave}, .micro_batches = micro_batches};
  step.stages.assign(
      static_cast<size_t>(ranks * interleave), {.forward = {{.name = "forward", .seconds = 1.0 / interleave}},
                                                   .backward = {{.name = "backward", .seconds = 2.0 / interleave}}});
  return step;
}

// Data parallel: a forward pass of 1 s, a backward pass of four parts of 0.5 s, each of which completes a quarter of
// `values` gradients.
TrainingStep data_parallel(int ranks, size_t values, bool early) {
  TrainingStep step{.layout = {.data = ranks}, .adds_early = early, .divides_update = true};
  StageWork work{.forward = {{.name = "forward", .seconds = 1}}, .update_seconds = 0.1};
  const ShardShare share{ranks, 0, ranks};
  for (size_t i = 0; i < 4; ++i) {
    work.backward.push_back({.name = "backward", .seconds = 0.5});
    const Slice part{values / 4 * (3 - i), values / 4};
    work.gradients.push_back({.traffic = reduce_scatter_traffic(values, part, share), .after = i + 1});
  }
  work.gather = gather_slices_traffic(values, ranks);
  step.stages = {work};
  return step;
}

double efficiency(const TrainingStep& step, const Network& network) {
  return 3.1 / forecast_step(step, network).seconds;
}

TEST(TrainingStep, ThePipelinesBubbleIsStagesLessOneByMicroBatches) {
  for (const int stages : {1, 2, 4, 8})
    for (const int64_t micro_batches : {1, 3, 8, 32}) {
      const StepForecast forecast = forecast_step(pipeline_of(stages, micro_batches), kFree);
      const double work = 3.0 * static_cast<double>(micro_batches);
      EXPECT_NEAR(forecast.compute_seconds, work, 1e-9);
      EXPECT_NEAR(forecast.bubble_seconds / work, (stages - 1.0) / static_cast<double>(micro_batches), 1e-9)
          << stages << " stages, " << micro_batches << " micro-batches";
      EXPECT_NEAR(forecast.exposed_seconds, 0, 1e-9);
    }
}

TEST(TrainingStep, InterleavedStagesDivideTheBubble) {
  for (const int ranks : {2, 4, 8})
    for (const int interleave : {2, 3})
      for (const int64_t groups : {1, 4}) {
        const int64_t micro_batches = groups * ranks;
        const StepForecast forecast = forecast_step(pipeline_of(ranks, micro_batches, interleave), kFree);
        const double work = 3.0 * static_cast<double>(micro_batches);
        EXPECT_NEAR(forecast.compute_seconds, work, 1e-9);
        EXPECT_NEAR(
            forecast.bubble_seconds / work, (ranks - 1.0) / static_cast<double>(micro_batches * interleave), 1e-9)
            << ranks << " ranks with " << interleave << " stages each, " << micro_batches << " micro-batches";
      }
}

TEST(TrainingStep, InterleavedStagesSendOnceForEachOfThem) {
  TrainingStep one = pipeline_of(2, 4), two = pipeline_of(2, 4, 2);
  for (TrainingStep* step : {&one, &two})
    for (StageWork& stage : step->stages) stage.sent_bytes = 1000;
  const auto sent = [](const TrainingStep& step) {
    return forecast_step(step, kFree).sent_bytes[static_cast<size_t>(OperationKind::kPipeline)];
  };
  EXPECT_DOUBLE_EQ(sent(one), 4 * 1000.0);      // forward from the first rank, backward from the second
  EXPECT_DOUBLE_EQ(sent(two), 4 * 3 * 1000.0);  // three boundaries between four stages: forward 2 and back 1
}

TEST(TrainingStep, AStageKeepsNoMoreMicroBatchesThanThereAreStagesBehindIt) {
  constexpr int kStages = 4;
  const RankSchedule schedule = schedule_of(pipeline_of(kStages, 16), kFree);
  const std::vector<Interval> intervals = schedule.simulate();
  for (int stage = 0; stage < kStages; ++stage) {
    std::vector<std::pair<double, int>> events;  // a backward pass that ends before a forward pass begins comes first
    for (size_t i = 0; i < intervals.size(); ++i) {
      const Operation& operation = schedule.operations()[i];
      if (operation.seconds == 0 || operation.lanes[0].rank != stage) continue;
      if (operation.kind == OperationKind::kForward) events.emplace_back(intervals[i].begin + 1e-9, 1);
      if (operation.kind == OperationKind::kBackward) events.emplace_back(intervals[i].end, -1);
    }
    std::ranges::sort(events);
    int kept = 0, most = 0;
    for (const auto& [when, change] : events) most = std::max(most, kept += change);
    EXPECT_EQ(most, kStages - stage);
  }
}

TEST(TrainingStep, ASlowerStageHoldsUpTheOthers) {
  TrainingStep step = pipeline_of(2, 10);
  step.stages[1].backward[0].seconds = 3;
  EXPECT_NEAR(forecast_step(step, kFree).seconds, 10 * 4 + 1 + 2, 1e-9);  // its own work, and the other's ends
}

TEST(TrainingStep, MessagesBetweenStagesTakeTheirTime) {
  TrainingStep step = pipeline_of(2, 1);
  step.stages[0].sent_bytes = 5e8;
  const Network network{.bytes_per_second = 1e9, .latency = 0.1};
  const double norm = seconds_of(all_reduce_traffic(1, 2), network);
  EXPECT_NEAR(forecast_step(step, network).seconds, 6 + 2 * 0.6 + norm, 1e-9);
  EXPECT_DOUBLE_EQ(forecast_step(step, network).sent_bytes[static_cast<size_t>(OperationKind::kPipeline)], 5e8);
}

TEST(TrainingStep, AFastNetworkIsHiddenBehindTheBackwardPass) {
  const size_t values = size_t{kSliceUnit} * 64;
  const double bytes = 4.0 * static_cast<double>(values);
  const Network fast{.bytes_per_second = bytes * 20};
  // Of the gradients only the last quarter, to one rank, is left when the backward pass ends, and the parameters.
  const double exposed = forecast_step(data_parallel(2, values, true), fast).exposed_seconds;
  EXPECT_NEAR(exposed, (0.25 + 0.5) / 20, 1e-6);
  // After the backward pass all are: each quarter goes one way.
  EXPECT_NEAR(forecast_step(data_parallel(2, values, false), fast).exposed_seconds, (1 + 0.5) / 20, 1e-6);
}

TEST(TrainingStep, WithoutOverlapNothingIsHidden) {
  const size_t values = size_t{kSliceUnit} * 64;
  Network network{.bytes_per_second = 4.0 * static_cast<double>(values) * 20};
  network.overlaps = false;
  EXPECT_NEAR(forecast_step(data_parallel(2, values, true), network).exposed_seconds, (1 + 0.5) / 20, 1e-6);
}

TEST(TrainingStep, EfficiencyFallsWithTheNetworkAndTheNumberOfRanks) {
  const size_t values = size_t{kSliceUnit} * 1024;
  double before = 1.000001;
  for (const double bandwidth : {1e9, 1e8, 1e7, 1e6}) {
    const double now = efficiency(data_parallel(4, values, true), {.bytes_per_second = bandwidth, .latency = 1e-6});
    EXPECT_LT(now, before) << bandwidth;
    before = now;
  }
  const Network network{.bytes_per_second = 1e8, .latency = 1e-5};
  before = 1.000001;
  for (const int ranks : {2, 4, 8, 16}) {
    const double now = efficiency(data_parallel(ranks, values, true), network);
    EXPECT_LT(now, before) << ranks;
    before = now;
  }
}

TEST(TrainingStep, BytesAreThoseOfTheExchanges) {
  const size_t values = size_t{kSliceUnit} * 64;
  const double half = 2.0 * static_cast<double>(values);  // of 4-byte values
  const auto sent = forecast_step(data_parallel(2, values, true), kFree).sent_bytes;
  EXPECT_DOUBLE_EQ(sent[static_cast<size_t>(OperationKind::kGradients)], half);
  EXPECT_DOUBLE_EQ(sent[static_cast<size_t>(OperationKind::kParameters)], half);
  EXPECT_EQ(sent[static_cast<size_t>(OperationKind::kTensor)], 0);
}

// Exchanges of a tensor group stop its ranks; two such groups do not wait for each other.
TEST(TrainingStep, TensorExchangesAreWaitedFor) {
  TrainingStep step{.layout = {.data = 2, .tensor = 2}};
  const Traffic exchange = all_reduce_traffic(1 << 20, 2);
  step.stages = {{.forward = {{.name = "layer", .seconds = 1, .exchange = exchange}},
      .backward = {{.name = "layer", .seconds = 2, .exchange = exchange}}}};
  const Network network{.bytes_per_second = 1e9, .latency = 1e-5};
  const StepForecast forecast = forecast_step(step, network);
  const double norm = seconds_of(all_reduce_traffic(1, 2), network);
  EXPECT_NEAR(forecast.seconds, 3 + 2 * seconds_of(exchange, network) + norm, 1e-9);
  EXPECT_NEAR(forecast.compute_seconds, 3, 1e-9);
}

TEST(TrainingStep, AllThreeTogetherKeepEveryRankInItsGroups) {
  TrainingStep step{.layout = {.data = 2, .tensor = 2, .pipeline = 2}, .micro_batches = 4};
  const Traffic exchange = all_reduce_traffic(1 << 10, 2);
  StageWork work{.forward = {{.name = "layer", .seconds = 1, .exchange = exchange}},
      .backward = {{.name = "layer", .seconds = 2, .exchange = exchange}},
      .sent_bytes = 4096,
      .update_seconds = 0.5};
  const size_t values = size_t{kSliceUnit} * 8;
  work.gradients = {{.traffic = reduce_scatter_traffic(values, {0, values}, {2, 0, 2})}};
  work.gather = gather_slices_traffic(values, 2);
  step.stages = {work, work};
  const StepForecast forecast = forecast_step(step, kFree);
  EXPECT_NEAR(forecast.compute_seconds, 4 * 3 + 0.5, 1e-9);
  EXPECT_NEAR(forecast.bubble_seconds, 3, 1e-9);  // (2 - 1) / 4 of 12 s
  const RankSchedule schedule = schedule_of(step, kFree);
  const std::vector<Interval> intervals = schedule.simulate();
  const auto json = ParsedJson::parse(chrome_trace(schedule, intervals));
  std::vector<bool> seen(8);
  for (const auto& event : json["traceEvents"]) seen[event["pid"].get<size_t>()] = true;
  EXPECT_TRUE(std::ranges::all_of(seen, [](bool rank) { return rank; }));
  for (size_t i = 0; i < intervals.size(); ++i)
    for (const OperationId before : schedule.operations()[i].after)
      EXPECT_LE(intervals[static_cast<size_t>(before)].end, intervals[i].begin + 1e-12);
}

TEST(Layout, IsWritten) {
  EXPECT_EQ(layout_text({2, 4, 8}), "data=2,tensor=4,pipeline=8");
  EXPECT_EQ(layout_text({1, 1, 4, 2}), "data=1,pipeline=4,interleave=2");
  EXPECT_EQ(layout_text({.pipeline = 2, .splits_encoder = true}), "data=1,pipeline=encoder-decoder");
}

TEST(Layout, AllOfANumberOfRanks) {
  const std::vector<RankLayout> layouts = layouts_of(12, 4, 6);
  for (const RankLayout& layout : layouts) {
    EXPECT_EQ(layout.ranks(), 12);
    EXPECT_LE(layout.tensor, 4);
    EXPECT_LE(layout.pipeline, 6);
  }
  EXPECT_EQ(layouts.size(), 14U);
}
}  // namespace
}  // namespace linnet
