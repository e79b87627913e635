#include "generation/engine.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include "base/error.h"
#include "causal_testing.h"
#include "engine_testing.h"
#include "models/modules/text_decoder.h"

namespace linnet {
namespace {
using Ids = std::vector<int32_t>;

constexpr int32_t kVocab = 50;
constexpr int64_t kMostBeams = 4, kLongest = 300, kMostTokens = 12;

std::unique_ptr<CausalModel> make_model(bool llama) {
  if (!llama) {
    const DecoderConfig config{.vocab_size = kVocab, .max_seq_len = 320, .width = 72, .heads = 4, .layers = 2};
    return std::make_unique<TextDecoder>(config);
  }
  DecoderConfig config =
      llama_kind({.vocab_size = kVocab, .max_seq_len = 320, .width = 96, .heads = 4, .layers = 2, .hidden = 80});
  config.kv_heads = 2, config.head_size = 18, config.deviation = 0.05, config.window = 200;
  return std::make_unique<TextDecoder>(config);
}

struct EngineFixture : ModelFixture {
  explicit EngineFixture(const CausalOptions& options, bool llama = false) : ModelFixture(make_model(llama)) {
    engine.emplace(*model, layout, store, shared, with_threads(options));
    finish();
    engine->bind();
  }
  std::optional<Engine> engine;
};

GenerateRequest random_request(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  GenerateRequest request;
  request.prompt.resize(static_cast<size_t>(pick(0, 1) ? pick(1, kLongest) : pick(1, 20)));
  for (int32_t& id : request.prompt) id = static_cast<int32_t>(pick(0, kVocab - 1));
  GenerateSettings& settings = request.settings;
  settings.max_tokens = pick(1, kMostTokens);
  settings.ends = {static_cast<int32_t>(pick(0, kVocab - 1))};
  settings.first_sample = static_cast<uint64_t>(pick(0, 3));
  settings.log_probabilities = pick(0, 1);
  const int64_t kind = pick(0, 2);
  if (kind == 0) settings.sampling.temperature = 0;
  if (kind == 1) settings.sampling = {.temperature = 1.2, .top_k = pick(0, 1) * 20, .top_p = 0.95, .seed = random()};
  if (kind == 2) request.beams = pick(2, kMostBeams);
  return request;
}

class EngineOf : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(
    Model, EngineOf, testing::Bool(), [](const auto& info) { return info.param ? "Llama" : "Gpt"; });

TEST_P(EngineOf, ARequestGetsTheSameBitsAloneAndBesideOthersInAnySlot) {
  std::mt19937 random(5);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 200; ++i) requests.push_back(random_request(random));
  std::vector<size_t> order(requests.size()), sampled;
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  EngineFixture alone({.rows = 1, .beams = kMostBeams}, GetParam());
  const std::map<size_t, Written> want = write_all(*alone.engine, alone.pool, requests, order, 0, random);
  ASSERT_EQ(want.size(), requests.size());
  std::map<EndReason, int> reasons;
  for (const auto& [i, text] : want) ++reasons[text.finished.reason];
  EXPECT_GT(reasons[EndReason::kEndToken], 10);
  EXPECT_GT(reasons[EndReason::kMaxTokens], 10);
  for (const int64_t slots : {1, 4, 16}) {
    std::shuffle(order.begin(), order.end(), random);
    const bool searches = slots >= kMostBeams;  // one slot has no room for a search
    std::vector<size_t> chosen;
    for (const size_t i : order)
      if (searches || requests[i].beams == 1) chosen.push_back(i);
    EngineFixture beside(
        {.rows = searches ? slots / kMostBeams : slots, .beams = searches ? kMostBeams : 1}, GetParam());
    const std::map<size_t, Written> got = write_all(*beside.engine, beside.pool, requests, chosen, 5, random);
    ASSERT_EQ(got.size(), chosen.size());
    for (const auto& [i, text] : got) expect_same(text, want.at(i), i, std::to_string(slots) + " slots");
  }
}

GenerateRequest greedy(Ids prompt, int64_t tokens) {
  return {.prompt = std::move(prompt), .settings = {.max_tokens = tokens, .sampling = {.temperature = 0}}};
}

std::map<RequestId, FinishedRequest> run(EngineFixture& fixture) {
  std::map<RequestId, FinishedRequest> all;
  while (fixture.engine->busy()) fixture.engine->step(fixture.pool);
  for (FinishedRequest& finished : fixture.engine->take_finished()) all.emplace(finished.id, finished);
  return all;
}

// A step has a row for each slot of the groups that are in use, not for all that there are.
TEST(Engine, SearchesHavePlansForFewerGroups) {
  EngineFixture fixture({.rows = 5, .beams = 3});
  std::set<int64_t> rows;
  for (const Plan* plan : fixture.engine->plans())
    if (const auto parents = plan->graph.find_input("generate.parents"))
      rows.insert(plan->graph.value(*parents).type.shape[0]);
  EXPECT_EQ(rows, (std::set<int64_t>{3, 6, 12, 15}));
}

TEST(Engine, ACancelledRequestEndsWhereItIsAndGivesItsSlotToTheNext) {
  EngineFixture fixture({.rows = 2});
  Engine& engine = *fixture.engine;
  const RequestId whole = engine.submit(greedy({1, 2, 3}, 10));
  const Ids want = run(fixture).at(whole).result.tokens;
  const RequestId first = engine.submit(greedy({1, 2, 3}, 10)), second = engine.submit(greedy({4, 5}, 50)),
                  third = engine.submit(greedy({1, 2, 3}, 10)), fourth = engine.submit(greedy({7}, 5));
  for (int i = 0; i < 4; ++i) engine.step(fixture.pool);
  engine.cancel(second);
  engine.cancel(fourth);
  engine.cancel(second);  // finished: nothing happens
  auto all = run(fixture);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all.at(first).result.tokens, want);
  EXPECT_EQ(all.at(third).result.tokens, want);
  EXPECT_EQ(all.at(second).result.tokens.size(), 4u);
  EXPECT_EQ(all.at(second).reason, EndReason::kCancelled);
  EXPECT_TRUE(all.at(fourth).result.tokens.empty());
  EXPECT_EQ(all.at(fourth).reason, EndReason::kCancelled);
}

// A listener ends its own request, cancels another, which then hears nothing more, and submits a new one.
TEST(Engine, AListenerMayCancelAndSubmit) {
  EngineFixture fixture({.rows = 3});
  Engine& engine = *fixture.engine;
  RequestId other = -1, added = -1;
  int64_t heard = 0, heard_by_other = 0;
  GenerateRequest request = greedy({1, 2, 3}, 20), victim = greedy({4}, 20);
  request.listener = [&](const GeneratedToken&) {
    if (++heard == 3) engine.cancel(other), added = engine.submit(greedy({9}, 2));
    return heard < 5;
  };
  victim.listener = [&](const GeneratedToken&) { return ++heard_by_other > 0; };
  const RequestId own = engine.submit(std::move(request));
  other = engine.submit(std::move(victim));
  const auto all = run(fixture);
  EXPECT_EQ(heard, 5);
  EXPECT_EQ(heard_by_other, 2);
  EXPECT_EQ(all.at(own).reason, EndReason::kListener);
  EXPECT_EQ(all.at(own).result.tokens.size(), 5u);
  EXPECT_EQ(all.at(other).reason, EndReason::kCancelled);
  EXPECT_EQ(all.at(other).result.tokens.size(), 2u);
  EXPECT_EQ(all.at(added).result.tokens.size(), 2u);
}

TEST(Engine, EndsWhereTheCacheIsFullAndSlidesApartFromOtherRequests) {
  EngineFixture fixture({.rows = 2, .max_length = 24});
  Engine& engine = *fixture.engine;
  GenerateRequest slides = greedy({3, 4}, 60);
  slides.settings.slide = true;
  const RequestId full = engine.submit(greedy({1, 2}, 60)), sliding = engine.submit(slides);
  const auto all = run(fixture);
  EXPECT_EQ(all.at(full).reason, EndReason::kCacheFull);
  EXPECT_EQ(all.at(full).result.tokens.size(), 22u);
  EXPECT_EQ(all.at(sliding).reason, EndReason::kMaxTokens);
  const RequestId again = engine.submit(slides);
  EXPECT_EQ(run(fixture).at(again).result.tokens, all.at(sliding).result.tokens);
}

// A model's folder may name them.
TEST(Engine, TokensBeyondTheVocabularyNeverEndAText) {
  EngineFixture fixture({.rows = 1});
  const auto written = [&](const Ids& unknown) {
    GenerateRequest request = greedy({1, 2, 3}, 6);
    request.settings.rules.min_tokens = 4;
    request.settings.ends = unknown, request.settings.never = unknown;
    const RequestId id = fixture.engine->submit(request);
    return run(fixture).at(id).result.tokens;
  };
  EXPECT_EQ(written({2'000'000'000, kVocab, -1}), written({}));
  GenerateRequest forced = greedy({1}, 2);
  forced.settings.begin = {kVocab};
  EXPECT_THROW(fixture.engine->submit(forced), Error);
}

TEST(Engine, ABadPromptIsRefusedWhenItIsSubmitted) {
  EngineFixture fixture({.rows = 1, .max_length = 24, .prompt_lengths = {16}});
  EXPECT_THROW(fixture.engine->submit(greedy({}, 1)), Error);
  EXPECT_THROW(fixture.engine->submit(greedy({kVocab}, 1)), Error);
  EXPECT_THROW(fixture.engine->submit(greedy(Ids(17, 1), 1)), Error);  // no plan is that long
  EXPECT_THROW(fixture.engine->submit(greedy(Ids(24, 1), 1)), Error);
  GenerateRequest hot = greedy({1}, 1);
  hot.settings.sampling.temperature = -1;
  EXPECT_THROW(fixture.engine->submit(hot), Error);
  EXPECT_FALSE(fixture.engine->busy());
}
}  // namespace
}  // namespace linnet
