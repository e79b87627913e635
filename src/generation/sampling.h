// Picks the next token from logits.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace linnet {
// One bit a token: whether it may be picked.
using TokenMask = std::vector<bool>;

// Applied in this order, like in Hugging Face's generate and OpenAI's API.
struct SamplingOptions {
  std::vector<std::pair<int32_t, double>> bias = {};  // added to the logits of these tokens
  // > 1: tokens seen, also in the prompt, get positive logits divided, negative ones multiplied (Keskar et al. 2019).
  double repetition_penalty = 1;
  // Subtracted from logits of generated tokens: for each occurrence, and once. The prompt does not count.
  double frequency_penalty = 0, presence_penalty = 0;
  double temperature = 1;  // divides logits; 0: the likeliest token, the lowest of equals
  int64_t top_k = 0;       // 0: all
  double top_p = 1;        // only the likeliest tokens whose probabilities reach p (Holtzman et al. 2020)
  double min_p = 0;        // only tokens of at least min_p times the largest probability
  uint64_t seed = 1;
};

class Sampler {
 public:
  // User error for options out of range. Tokens of `never` are picked only if there is no other.
  Sampler(const SamplingOptions& options, int64_t vocab_size, std::vector<int32_t> never = {});

  // Picks one token, among `allowed` if given (at least one). `seen`: the text so far, whose last `step` tokens were
  // generated. The draw only depends on (seed, sample, step) and the logits, not on the batch. NaN is least likely.
  int32_t pick(std::span<const float> logits, std::span<const int32_t> seen, uint64_t sample, uint64_t step,
      const TokenMask* allowed = nullptr);

  // After pick(): the remaining candidates and their probabilities.
  struct Candidate {
    float logit;
    int32_t token;
    double probability;
  };
  std::span<const Candidate> candidates() const { return {candidates_.data(), count_}; }

 private:
  int32_t pick_likeliest(std::span<const float> logits, const TokenMask* allowed);
  void penalize(std::span<const int32_t> seen, size_t written);
  void keep_likeliest(size_t count);
  void normalize();
  void keep_nucleus();
  void drop_unlikely();

  const SamplingOptions options_;
  const bool changes_logits_;
  const std::vector<int32_t> never_;
  std::vector<Candidate> candidates_;  // [0, count_) remain
  size_t count_ = 0;
};

// Subtracted from a logit it gives the log probability.
double log_sum_exp_of(std::span<const float> logits);
}  // namespace linnet
