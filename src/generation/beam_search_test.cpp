#include "generation/beam_search.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace linnet {
namespace {
using Ids = std::vector<int32_t>;

TEST(BeamSearch, TiesGoToTheLowerTokenAndABrokenModelStillEnds) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float logit : {0.0f, nan}) {
    BeamSearch search(2, 4, {.ends = {3}});
    const std::vector<int32_t> tokens{4, 5, 6, 7, 4, 5, 6, 7};
    const std::vector<float> logits(8, logit), log_sum_exp(2, std::log(4.0f));
    int steps = 0;
    for (; !search.done() && steps < 10; ++steps) search.advance(4, tokens.data(), logits.data(), log_sum_exp.data());
    EXPECT_EQ(steps, 4);
    const auto result = search.result(2);
    ASSERT_EQ(result.size(), 2u);
    EXPECT_EQ(result[0].ids, (Ids{4, 4, 4, 4}));
    EXPECT_FALSE(result[0].finished);
  }
}

// A search by a table: what follows depends on the last token alone, as probabilities [from][to] of tokens 4 (also what
// begins), 5 and the end 3.
std::vector<Hypothesis> search_table(
    BeamOptions options, int64_t beams, int64_t limit, const std::map<int32_t, std::vector<float>>& table) {
  options.ends = {3};
  BeamSearch search(beams, limit, options);
  while (!search.done()) {
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    const std::vector<float> log_sum_exp(static_cast<size_t>(beams), 0);
    for (int64_t row = 0; row < beams; ++row) {
      const std::vector<float>& next = table.at(std::max(search.tokens()[static_cast<size_t>(row)], 3));
      std::vector<std::pair<float, int32_t>> order{{next[0], 3}, {next[1], 4}, {next[2], 5}};
      std::ranges::sort(order, std::greater{});
      for (const auto& [probability, token] : order) logits.push_back(std::log(probability)), tokens.push_back(token);
    }
    search.advance(3, tokens.data(), logits.data(), log_sum_exp.data());
  }
  return search.result(beams);
}

TEST(BeamSearch, AtTheLimitTheBestScoreWinsFinishedOrNot) {
  const std::map<int32_t, std::vector<float>> table{
      {3, {0.3f, 0.6f, 0.1f}}, {4, {0.05f, 0.9f, 0.05f}}, {5, {0.1f, 0.1f, 0.8f}}};
  const auto mean = search_table({}, 2, 3, table);
  EXPECT_EQ(mean[0].ids, (Ids{4, 4, 4}));
  EXPECT_FALSE(mean[0].finished);
  EXPECT_NEAR(mean[0].score, std::log(0.6 * 0.9 * 0.9) / 3, 1e-6);
  EXPECT_EQ(search_table({.length_penalty = -1}, 2, 3, table)[0].ids, Ids{});
  EXPECT_TRUE(search_table({.length_penalty = -1}, 2, 3, table)[0].finished);
}

TEST(BeamSearch, AForcedEndFinishesEveryBeamAtTheLimit) {
  const std::map<int32_t, std::vector<float>> table{
      {3, {0.1f, 0.6f, 0.3f}}, {4, {0.1f, 0.8f, 0.1f}}, {5, {0.1f, 0.1f, 0.8f}}};
  for (const Hypothesis& found : search_table({.forced_end = true}, 2, 3, table)) {
    EXPECT_TRUE(found.finished);
    EXPECT_EQ(found.ids.size(), 2u);
    EXPECT_NEAR(found.score, found.log_probability / 3, 1e-9);
  }
}

TEST(BeamSearch, TheFirstTokensMayBeCertain) {
  const std::map<int32_t, std::vector<float>> table{
      {3, {0.9f, 0.06f, 0.04f}}, {4, {0.1f, 0.8f, 0.1f}}, {5, {0.1f, 0.3f, 0.6f}}};
  const auto found = search_table({.first = {5}}, 2, 3, table);
  EXPECT_EQ(found[0].ids, (Ids{5, 5, 5}));
  EXPECT_NEAR(found[0].log_probability, std::log(0.6 * 0.6), 1e-6);  // of the others
  EXPECT_EQ(found[1].ids, (Ids{5, 4, 4}));
}

// Two texts end early; a third would beat them when it has grown.
TEST(BeamSearch, EarlyStoppingSaysHowLongToGoOn) {
  const std::map<int32_t, std::vector<float>> table{
      {3, {0.5f, 0.4f, 0.1f}}, {4, {0.3f, 0.698f, 0.002f}}, {5, {0.5f, 0.25f, 0.25f}}};
  const auto found = [&](EarlyStopping early_stopping) {
    return search_table({.length_penalty = 1, .early_stopping = early_stopping}, 2, 9, table);
  };
  EXPECT_EQ(found(EarlyStopping::kFull)[0].ids, Ids{});
  EXPECT_EQ(found(EarlyStopping::kNever)[0].ids.size(), 9u);
  EXPECT_GE(found(EarlyStopping::kLikely)[0].score, found(EarlyStopping::kFull)[0].score);
}

// The text begins with what all beams go on from; sequences of it do not come again either.
TEST(BeamSearch, RulesForbidEarlyEndsAndRepeats) {
  const std::map<int32_t, std::vector<float>> table{
      {3, {0.9f, 0.06f, 0.04f}}, {4, {0.6f, 0.3f, 0.1f}}, {5, {0.7f, 0.2f, 0.1f}}};
  const auto written = [&](const TextRules& rules, const Ids& before) {
    return search_table({.length_penalty = 0, .rules = rules, .before = before}, 2, 6, table)[0].ids;
  };
  EXPECT_EQ(written({}, {}), Ids{});
  EXPECT_EQ(written({.min_tokens = 3}, {}).size(), 3u);
  EXPECT_EQ(written({.min_tokens = 3}, {}), (Ids{4, 4, 4}));
  EXPECT_EQ(written({.min_tokens = 3, .no_repeat_ngram = 2}, {}), (Ids{5, 4, 4}));
  EXPECT_EQ(written({.min_tokens = 2, .no_repeat_ngram = 2}, {4, 4}), (Ids{5, 4}));
}
}  // namespace
}  // namespace linnet
