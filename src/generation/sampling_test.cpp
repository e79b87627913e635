#include "generation/sampling.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include "base/error.h"

namespace linnet {
namespace {
std::vector<float> some_logits(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(random);
  return logits;
}

// What each option means, written as plainly as can be: a probability for each token.
std::vector<double> reference(
    std::vector<float> logits, const std::vector<int32_t>& seen, const SamplingOptions& o, size_t written) {
  std::vector<double> x(logits.begin(), logits.end());
  for (const auto& [token, bias] : o.bias) x[static_cast<size_t>(token)] += bias;
  std::vector<bool> was_seen(x.size());
  for (const int32_t token : seen) was_seen[static_cast<size_t>(token)] = true;
  for (size_t i = 0; i < x.size(); ++i)
    if (was_seen[i]) x[i] = x[i] > 0 ? x[i] / o.repetition_penalty : x[i] * o.repetition_penalty;
  std::map<int32_t, int> counts;
  for (size_t i = seen.size() - written; i < seen.size(); ++i) ++counts[seen[i]];
  for (const auto& [token, count] : counts)
    x[static_cast<size_t>(token)] -= count * o.frequency_penalty + o.presence_penalty;
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  const size_t kept = o.top_k > 0 ? std::min<size_t>(order.size(), static_cast<size_t>(o.top_k)) : order.size();
  std::vector<double> p(x.size());
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) sum += std::exp(x[order[i]] / o.temperature);
  double before = 0, total = 0;
  for (size_t i = 0; i < kept && before < o.top_p; ++i) {
    p[order[i]] = std::exp(x[order[i]] / o.temperature) / sum;
    before += p[order[i]], total += p[order[i]];
  }
  const double least = o.min_p * *std::max_element(p.begin(), p.end());
  for (double& value : p)
    if (value < least) total -= value, value = 0;
  for (double& value : p) value /= total;
  return p;
}

void expect_probabilities(const SamplingOptions& options, const std::vector<int32_t>& seen = {}, size_t written = 0) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const std::vector<float> logits = some_logits(200, seed);
    const std::vector<double> want = reference(logits, seen, options, written);
    Sampler sampler(options, 200);
    const int32_t token = sampler.pick(logits, seen, 0, written);
    EXPECT_GT(want[static_cast<size_t>(token)], 0);
    std::vector<double> got(200);
    for (const auto& c : sampler.candidates()) got[static_cast<size_t>(c.token)] = c.probability;
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
  }
}

TEST(Sampling, ProbabilitiesAreThoseOfTheRules) {
  expect_probabilities({});
  expect_probabilities({.temperature = 0.3});
  expect_probabilities({.top_k = 7});
  expect_probabilities({.top_k = 1000});
  expect_probabilities({.top_p = 0.9});
  expect_probabilities({.top_p = 1e-9});
  expect_probabilities({.temperature = 1.7, .top_k = 50, .top_p = 0.8});
  expect_probabilities({.repetition_penalty = 1.5, .top_p = 0.95}, {3, 4, 4, 199});
  expect_probabilities({.frequency_penalty = 0.7, .presence_penalty = -0.4}, {3, 4, 4, 5, 4, 5, 199, 4}, 6);
  expect_probabilities({.bias = {{7, 3.5}, {8, -100}}, .repetition_penalty = 1.2, .presence_penalty = 1}, {7, 9, 7}, 1);
  expect_probabilities({.temperature = 0.8, .min_p = 0.1});
  expect_probabilities({.top_k = 50, .top_p = 0.9, .min_p = 0.05});
}

TEST(Sampling, OnlyAllowedTokensArePicked) {
  const std::vector<float> logits{1, 5, 4, 2};
  const TokenMask allowed{true, false, false, true};
  EXPECT_EQ(Sampler({.temperature = 0}, 4).pick(logits, {}, 0, 0, &allowed), 3);
  Sampler sampler({.bias = {{0, 2}}, .top_k = 3}, 4);
  for (uint64_t step = 0; step < 200; ++step)
    EXPECT_TRUE(allowed[static_cast<size_t>(sampler.pick(logits, {}, 0, step, &allowed))]);
}

TEST(Sampling, TemperatureZeroIsTheLikeliestAndTheFirstOfEquals) {
  Sampler greedy({.temperature = 0}, 4);
  EXPECT_EQ(greedy.pick(std::vector<float>{1, 5, 5, 2}, {}, 0, 0), 1);
  Sampler banned({.bias = {{1, -100}}, .temperature = 0}, 4);
  EXPECT_EQ(banned.pick(std::vector<float>{1, 5, 4, 2}, {}, 0, 0), 2);
  Sampler penalized({.repetition_penalty = 2, .temperature = 0}, 4);
  EXPECT_EQ(penalized.pick(std::vector<float>{1, 5, 4, 2}, std::vector<int32_t>{1}, 0, 0), 2);
  EXPECT_EQ(greedy.pick(std::vector<float>{NAN, -1, -INFINITY, NAN}, {}, 0, 0), 1);
}

TEST(Sampling, DrawsComeAsOftenAsTheirProbability) {
  const std::vector<float> logits{0, std::log(2.0f), std::log(5.0f)};
  Sampler sampler({}, 3);
  std::map<int32_t, int> counts;
  for (uint64_t step = 0; step < 8000; ++step) ++counts[sampler.pick(logits, {}, 3, step)];
  EXPECT_NEAR(counts[0], 1000, 120);
  EXPECT_NEAR(counts[1], 2000, 160);
  EXPECT_NEAR(counts[2], 5000, 200);
}

TEST(Sampling, SeedSampleAndStepDecide) {
  const std::vector<float> logits = some_logits(50, 9);
  const auto draw = [&](uint64_t seed, uint64_t sample) {
    Sampler sampler({.seed = seed}, 50);
    std::vector<int32_t> tokens;
    for (uint64_t step = 0; step < 30; ++step) tokens.push_back(sampler.pick(logits, {}, sample, step));
    return tokens;
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(2, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
}

TEST(Sampling, AnythingButNumbersStillGivesAToken) {
  Sampler sampler({.top_p = 0.5}, 3);
  const int32_t token = sampler.pick(std::vector<float>{NAN, NAN, -INFINITY}, {}, 0, 0);
  EXPECT_TRUE(token >= 0 && token < 3);
  EXPECT_EQ(Sampler({}, 3).pick(std::vector<float>{0, INFINITY, 0}, {}, 0, 0), 1);
}

TEST(Sampling, RefusesWhatMeansNothing) {
  EXPECT_THROW(Sampler({.repetition_penalty = 0}, 3), Error);
  EXPECT_THROW(Sampler({.temperature = -1}, 3), Error);
  EXPECT_THROW(Sampler({.top_k = -1}, 3), Error);
  EXPECT_THROW(Sampler({.top_p = 0}, 3), Error);
  EXPECT_THROW(Sampler({.top_p = 1.1}, 3), Error);
  EXPECT_THROW(Sampler({.min_p = 1.1}, 3), Error);
  EXPECT_THROW(Sampler({.bias = {{3, 1}}}, 3), Error);
}
}  // namespace
}  // namespace linnet
