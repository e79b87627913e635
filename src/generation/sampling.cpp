#include "generation/sampling.h"
#include <algorithm>
#include <cmath>
#include "base/fail.h"
#include "base/numbers.h"
#include "engine/kernels/reduce/reduce.h"

namespace linnet {
namespace {
// Uniform in [0, 1) with 53 bits.
double uniform(uint64_t seed, uint64_t sample, uint64_t step) {
  const uint64_t bits = mix64(mix64(mix64(seed + 0x9e3779b97f4a7c15u) ^ sample) + step * 0xd1342543de82ef95u);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

bool likelier(const Sampler::Candidate& a, const Sampler::Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}
}  // namespace

Sampler::Sampler(const SamplingOptions& options, int64_t vocab_size, std::vector<int32_t> never)
    : options_(options), changes_logits_(!options.bias.empty() || options.repetition_penalty != 1 ||
                                         options.frequency_penalty != 0 || options.presence_penalty != 0),
      never_(std::move(never)), candidates_(static_cast<size_t>(vocab_size)) {
  if (!(options.temperature >= 0)) fail_user("the temperature must be 0 or more");
  if (options.top_k < 0) fail_user("top-k must be 0 (all) or more");
  if (!(options.top_p > 0 && options.top_p <= 1)) fail_user("top-p must be above 0 and at most 1");
  if (!(options.min_p >= 0 && options.min_p <= 1)) fail_user("min-p must be 0 or more and at most 1");
  if (!(options.repetition_penalty > 0)) fail_user("the repetition penalty must be above 0");
  for (const double penalty : {options.frequency_penalty, options.presence_penalty})
    if (!std::isfinite(penalty)) fail_user("the penalties for frequency and presence must be numbers");
  for (const auto& [token, bias] : options.bias)
    if (token < 0 || token >= vocab_size || !std::isfinite(bias))
      fail_user("there is no token ", token, " to bias; the model has ", vocab_size);
}

int32_t Sampler::pick(std::span<const float> logits, std::span<const int32_t> seen, uint64_t sample, uint64_t step,
    const TokenMask* allowed) {
  if (options_.temperature == 0 && !changes_logits_) return pick_likeliest(logits, allowed);
  count_ = logits.size();
  for (size_t i = 0; i < count_; ++i)
    candidates_[i] = {
        std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i], static_cast<int32_t>(i), 0};
  if (changes_logits_) penalize(seen, std::min(seen.size(), static_cast<size_t>(step)));
  for (const int32_t token : never_) candidates_[token].logit = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; allowed && i < count_; ++i)
    if (!(*allowed)[i]) candidates_[i].logit = -std::numeric_limits<float>::infinity();
  if (options_.temperature == 0) {
    keep_likeliest(1);
    candidates_[0].probability = 1;
    return candidates_[0].token;
  }
  if (options_.top_k > 0) keep_likeliest(std::min(count_, static_cast<size_t>(options_.top_k)));
  normalize();
  if (options_.top_p < 1) keep_nucleus();
  if (options_.min_p > 0) drop_unlikely();
  double left = uniform(options_.seed, sample, step);
  size_t last = 0;
  for (size_t i = 0; i < count_ && left >= 0; ++i)
    if (candidates_[i].probability > 0) last = i, left -= candidates_[i].probability;
  return candidates_[last].token;  // left >= 0 by rounding: probabilities sum to slightly less than 1
}

int32_t Sampler::pick_likeliest(std::span<const float> logits, const TokenMask* allowed) {
  int32_t best = 0;
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    if (!(logits[i] > largest) || (allowed && !(*allowed)[i]) || contains(never_, token)) continue;
    best = token, largest = logits[i];
  }
  count_ = 1;
  candidates_[0] = {largest, best, 1};
  return best;
}

void Sampler::penalize(std::span<const int32_t> seen, size_t written) {
  for (const auto& [token, bias] : options_.bias) candidates_[token].logit += static_cast<float>(bias);
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  constexpr double kSeen = -1, kWritten = -2;  // marks
  for (const int32_t token : seen) {
    Candidate& c = candidates_[token];
    if (c.probability == kSeen) continue;
    c.logit = c.logit > 0 ? c.logit / penalty : c.logit * penalty;
    c.probability = kSeen;
  }
  for (const int32_t token : seen.last(written)) {
    Candidate& c = candidates_[token];
    c.logit -= static_cast<float>(options_.frequency_penalty);
    if (std::exchange(c.probability, kWritten) != kWritten) c.logit -= static_cast<float>(options_.presence_penalty);
  }
}

void Sampler::keep_likeliest(size_t count) {
  const auto begin = candidates_.begin(), kept = begin + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(begin, kept, begin + static_cast<std::ptrdiff_t>(count_), likelier);
  count_ = count;
}

// Turns the logits over the temperature into probabilities.
void Sampler::normalize() {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (size_t i = 0; i < count_; ++i) largest = std::max(largest, static_cast<double>(candidates_[i].logit));
  for (size_t i = 0; i < count_; ++i) {
    const auto logit = static_cast<double>(candidates_[i].logit);
    // Avoids inf - inf, which is NaN.
    candidates_[i].probability = logit == largest ? 1 : std::exp((logit - largest) / options_.temperature);
    sum += candidates_[i].probability;
  }
  for (size_t i = 0; i < count_; ++i) candidates_[i].probability /= sum;
}

void Sampler::keep_nucleus() {
  // Sorts no further than needed: most of the vocabulary is never looked at.
  double reached = 0;
  size_t sorted = 0, kept = 0;
  while (kept < count_ && reached < options_.top_p) {
    if (kept == sorted) {
      const size_t next = std::min(count_, std::max<size_t>(64, 4 * sorted));
      std::partial_sort(
          candidates_.begin() + sorted, candidates_.begin() + next, candidates_.begin() + count_, likelier);
      sorted = next;
    }
    reached += candidates_[kept++].probability;
  }
  count_ = kept;
  for (size_t i = 0; i < count_; ++i) candidates_[i].probability /= reached;
}

void Sampler::drop_unlikely() {
  double largest = 0, sum = 0;
  for (size_t i = 0; i < count_; ++i) largest = std::max(largest, candidates_[i].probability);
  const auto kept = std::remove_if(candidates_.begin(), candidates_.begin() + count_,
      [&](const Candidate& c) { return c.probability < options_.min_p * largest; });
  count_ = static_cast<size_t>(kept - candidates_.begin());
  for (size_t i = 0; i < count_; ++i) sum += candidates_[i].probability;
  for (size_t i = 0; i < count_; ++i) candidates_[i].probability /= sum;
}

double log_sum_exp_of(std::span<const float> logits) {
  float result = 0;
  ThreadPool alone(1);
  log_sum_exp_rows(1, static_cast<int64_t>(logits.size()), logits.data(), &result, alone);
  return result;
}
}  // namespace linnet
