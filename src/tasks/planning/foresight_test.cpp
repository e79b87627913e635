#include <gtest/gtest.h>
#include <algorithm>
#include <numeric>
#include "base/error.h"
#include "tasks/planning/plan_memory.h"

namespace linnet {
namespace {
constexpr int64_t kLayers = 6, kWidth = 64, kLength = 32, kRows = 16;

// A GPT whose text is assumed.
Config small_gpt(const std::vector<std::string>& settings = {}) {
  Config config = load_config("mini-gpt");
  for (const std::string& setting : {"d_model=" + std::to_string(kWidth), std::string("num_heads=4"),
           "num_layers=" + std::to_string(kLayers), std::string("d_ff=256"), "max_seq_len=" + std::to_string(kLength),
           "context=" + std::to_string(kLength), "batch_size=" + std::to_string(kRows), std::string("batch_tokens=0"),
           std::string("accumulate_steps=1"), std::string("sample_length=0"), std::string("vocab_size=600"),
           std::string("threads=1"), std::string("precision=fp32")})
    set_value(config, setting);
  for (const std::string& setting : settings) set_value(config, setting);
  return config;
}

ForesightRequest request_for(
    const Config& config, const Network& network = {.bytes_per_second = 1e10, .latency = 1e-6}) {
  return {.config = config, .network = network, .speed = {1e11, 1e10}, .memory = uint64_t{1} << 40};
}

// Without what the process holds, which changes.
std::vector<std::pair<std::string, uint64_t>> planned_items(const MemoryForecast& forecast) {
  std::vector<std::pair<std::string, uint64_t>> items;
  for (size_t i = 1; i < forecast.items.size(); ++i)
    items.emplace_back(forecast.items[i].name, forecast.items[i].bytes);
  return items;
}

double sent(const Foresight& f, OperationKind kind) { return f.step.sent_bytes[static_cast<size_t>(kind)]; }

TEST(Foresight, MemoryIsThatOfTheRanksOwnPlan) {
  for (const RankLayout& layout : {RankLayout{4, 1, 1}, RankLayout{2, 2, 1}, RankLayout{1, 4, 1}}) {
    Config config = small_gpt();
    const Foresight f = foresee(request_for(config), layout);
    config.process = {0, layout.ranks()};
    config.train.parallel = "tensor=" + std::to_string(layout.tensor);
    config.train.data_shards = layout.data;
    validate(config);
    const PlanAnswer answer = plan_memory({.config = of_one_shard(config), .memory = uint64_t{1} << 40});
    EXPECT_EQ(planned_items(f.plan.forecast), planned_items(answer.forecast)) << layout_text(layout);
  }
}

// Of a pipeline it is that of the rank that takes most.
TEST(Foresight, MemoryOfAPipelineIsThatOfItsRanksPlans) {
  for (const RankLayout& layout : {RankLayout{1, 1, 3}, RankLayout{1, 2, 2}, RankLayout{2, 1, 2, 2}}) {
    Config config = small_gpt({"micro_batches=4", "data_shards=2"});
    const Foresight f = foresee(request_for(config), layout);
    PlanAnswer most;
    for (int rank = 0; rank < layout.pipeline; ++rank) {
      config.process = {rank * layout.tensor, layout.ranks()};
      config.train.parallel = layout_text(layout);
      validate(config);
      PlanAnswer answer = plan_memory({.config = of_one_shard(config),
          .memory = uint64_t{1} << 40,
          .resident = f.plan.forecast.resident,
          .visit = [](const Trainer&) {}});
      if (rank == 0 || answer.forecast.peak() > most.forecast.peak()) most = std::move(answer);
    }
    EXPECT_EQ(planned_items(f.plan.forecast), planned_items(most.forecast)) << layout_text(layout);
    EXPECT_EQ(f.plan.stage, most.stage);
  }
}

TEST(Foresight, InterleavingShrinksTheBubbleAndSendsMore) {
  const Config config = small_gpt({"micro_batches=4", "num_layers=14"});
  const Foresight one = foresee(request_for(config), {1, 1, 2}), two = foresee(request_for(config), {1, 1, 2, 4});
  EXPECT_LT(two.step.bubble_seconds, 0.7 * one.step.bubble_seconds);
  EXPECT_GT(sent(two, OperationKind::kPipeline), 3 * sent(one, OperationKind::kPipeline));
  EXPECT_THROW(foresee(request_for(small_gpt({"micro_batches=1"})), {1, 1, 2, 2}), Error);
}

TEST(Foresight, OneRankAloneLosesNothing) {
  const Foresight f = foresee(request_for(small_gpt()), {});
  EXPECT_NEAR(f.efficiency, 1, 1e-9);
  EXPECT_NEAR(f.step.exposed_seconds, 0, 1e-9);
  EXPECT_EQ(std::accumulate(f.step.sent_bytes.begin(), f.step.sent_bytes.end(), 0.0), 0);
}

TEST(Foresight, DataParallelSendsEachGradientAndParameterOnce) {
  const Foresight one = foresee(request_for(small_gpt()), {});
  for (const int ranks : {2, 4, 8}) {
    const Foresight f = foresee(request_for(small_gpt()), {ranks, 1, 1});
    const double all = 4.0 * static_cast<double>(one.plan.parameters) * (ranks - 1) / ranks;
    EXPECT_NEAR(sent(f, OperationKind::kGradients), all, 0.02 * all) << ranks;  // and counts, and padding
    EXPECT_NEAR(sent(f, OperationKind::kParameters), all, 0.02 * all) << ranks;
  }
  const Foresight whole = foresee(request_for(small_gpt({"zero=0"})), {4, 1, 1});
  EXPECT_EQ(sent(whole, OperationKind::kParameters), 0);
  EXPECT_GT(sent(whole, OperationKind::kGradients), 1.9 * 4 * static_cast<double>(one.plan.parameters) * 3 / 4);
}

TEST(Foresight, DividedGradientsTakeLessMemoryAndSendAsMuch) {
  const Foresight moments = foresee(request_for(small_gpt({"zero=1"})), {4, 1, 1});
  const Foresight gradients = foresee(request_for(small_gpt({"zero=2"})), {4, 1, 1});
  for (const OperationKind kind : {OperationKind::kGradients, OperationKind::kParameters})
    EXPECT_NEAR(sent(gradients, kind), sent(moments, kind), 0.01 * sent(moments, kind));
  EXPECT_LT(gradients.plan.forecast.peak() - gradients.plan.forecast.resident,
      moments.plan.forecast.peak() - moments.plan.forecast.resident);
  // Buckets leave during the backward pass of either, in about the same time.
  EXPECT_NEAR(gradients.step.exposed_seconds, moments.step.exposed_seconds, 0.3 * moments.step.exposed_seconds);
}

// docs/many_processes.md: the ranks exchange sums of activations, two for each layer in each direction.
TEST(Foresight, TensorParallelSendsTwoSumsALayerInEachDirection) {
  const Foresight f = foresee(request_for(small_gpt()), {1, 2, 1});
  const double activations = 4.0 * kRows * kLength * kWidth;
  const double expected = 4 * kLayers * activations;  // each sum moves 2 (n - 1) / n of its values
  EXPECT_GT(sent(f, OperationKind::kTensor), expected);
  EXPECT_LT(sent(f, OperationKind::kTensor), expected + 3 * activations);  // embeddings and loss
  EXPECT_EQ(sent(f, OperationKind::kGradients), 0);
}

TEST(Foresight, EfficiencyFallsWhenTheNetworkIsSlower) {
  for (const RankLayout& layout : {RankLayout{4, 1, 1}, RankLayout{1, 2, 1}, RankLayout{2, 1, 2}}) {
    double before = 1.2;
    for (const double bandwidth : {1e12, 1e10, 1e9, 1e8}) {
      const Foresight f = foresee(request_for(small_gpt(), {.bytes_per_second = bandwidth, .latency = 1e-6}), layout);
      EXPECT_LT(f.efficiency, before) << layout_text(layout) << " at " << bandwidth;
      before = f.efficiency;
    }
  }
}

TEST(Foresight, APipelinesBubbleShrinksWithMicroBatches) {
  const auto bubble = [](const char* micro_batches) {
    const Config config = small_gpt({std::string("micro_batches=") + micro_batches});
    const Foresight f = foresee(request_for(config), {1, 1, 2});
    return f.step.bubble_seconds / f.step.compute_seconds;
  };
  // Of stages that are not quite equal.
  EXPECT_NEAR(bubble("2"), 0.5, 0.2);
  EXPECT_NEAR(bubble("8"), 0.125, 0.1);
  EXPECT_LT(bubble("8"), bubble("4"));
  EXPECT_LT(bubble("4"), bubble("2"));
}

TEST(Foresight, AStageOfAPipelineTakesLessThanTheModel) {
  const Config config = small_gpt({"micro_batches=4"});
  const Foresight whole = foresee(request_for(config), {}), half = foresee(request_for(config), {1, 1, 2});
  const auto bytes = [](const Foresight& f, MemoryKind kind) {
    double sum = 0;
    for (const MemoryItem& item : f.plan.forecast.items)
      if (item.name == enum_name(kind)) sum += static_cast<double>(item.bytes);
    return sum;
  };
  for (const MemoryKind kind : {MemoryKind::kParameters, MemoryKind::kOptimizer}) {
    EXPECT_LT(bytes(half, kind), 0.75 * bytes(whole, kind));
    EXPECT_GE(bytes(half, kind), 0.5 * bytes(whole, kind));
  }
  // Each boundary passes the residual stream of a micro-batch forward, and its gradient back.
  EXPECT_DOUBLE_EQ(sent(half, OperationKind::kPipeline), 4.0 * kRows * kLength * kWidth);
}

TEST(Foresight, TheSearchKeepsToTheMemory) {
  ForesightRequest request = request_for(small_gpt({"num_heads=2", "num_layers=2"}));
  const LayoutSearch all = search_layouts(request, 4);
  ASSERT_FALSE(all.found.empty());
  for (const Foresight& f : all.found) {
    EXPECT_EQ(f.layout.ranks(), 4);
    EXPECT_TRUE(f.fits);
    EXPECT_LE(f.groups_per_second, all.found.front().groups_per_second);
  }
  // 2 heads: no 4 tensor ranks.
  EXPECT_GT(all.refused, 0);
  EXPECT_NE(all.why_refused.find("heads = 2 cannot be divided between 4 tensor ranks"), std::string::npos)
      << all.why_refused;
  // Less than the fastest takes.
  uint64_t least = UINT64_MAX;
  for (const Foresight& f : all.found) least = std::min(least, f.plan.forecast.peak());
  ASSERT_LT(least, all.found.front().plan.forecast.peak());
  request.memory = (least + all.found.front().plan.forecast.peak()) / 2;
  request.resident = all.found.front().plan.forecast.resident;
  const LayoutSearch some = search_layouts(request, 4);
  EXPECT_TRUE(some.found.front().fits);
  EXPECT_LE(some.found.front().plan.forecast.peak(), request.memory);
  for (const Foresight& f : some.found) EXPECT_EQ(f.fits, f.plan.forecast.peak() <= request.memory);
  // Less than anything takes.
  request.memory = 1 << 20;
  EXPECT_FALSE(search_layouts(request, 4).found.front().fits);
}

TEST(Foresight, EachRankMayHaveTheWholeBatch) {
  ForesightRequest request = request_for(small_gpt());
  const Foresight divided = foresee(request, {4, 1, 1});
  request.batch_per_group = true;
  const Foresight whole = foresee(request, {4, 1, 1});
  EXPECT_GT(whole.step.compute_seconds, 2 * divided.step.compute_seconds);
  EXPECT_GT(whole.efficiency, divided.efficiency);  // as many bytes beside more work
  EXPECT_NE(whole.plan.batches.find(std::to_string(kRows) + " x"), std::string::npos) << whole.plan.batches;
}

TEST(Foresight, WhatCannotBeDividedIsAUsersError) {
  EXPECT_THROW(foresee(request_for(small_gpt()), {3, 1, 1}), Error);   // 16 rows
  EXPECT_THROW(foresee(request_for(small_gpt()), {1, 3, 1}), Error);   // 4 heads
  EXPECT_THROW(foresee(request_for(small_gpt()), {1, 1, 12}), Error);  // 6 layers
}
}  // namespace
}  // namespace linnet
