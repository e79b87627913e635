// Which token comes next, given the logits of all of them.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace linnet {

// Tokens that may be picked, a bit each.
using TokenMask = std::vector<bool>;

// Applied in this order, as Hugging Face's generate and OpenAI's API do.
struct SamplingOptions {
  std::vector<std::pair<int32_t, double>> bias = {};  // added to the logits of these tokens
  // > 1: tokens that have been seen (prompt included) are less likely: a positive logit is divided by it, a negative
  // one multiplied (Keskar et al. 2019).
  double repetition_penalty = 1;
  // Subtracted from a token's logit: for each time that it was written, and once if it was. The prompt does not count.
  double frequency_penalty = 0, presence_penalty = 0;
  double temperature = 1;  // logits are divided by it; 0: the likeliest token, the lowest of equals
  int64_t top_k = 0;       // only the k likeliest; 0: all
  double top_p = 1;        // only the fewest likeliest whose probabilities reach p (Holtzman et al. 2020)
  double min_p = 0;        // only tokens of at least min_p times the largest probability
  uint64_t seed = 1;
};

class Sampler {
 public:
  // User error for options out of range. Tokens of `never` are picked only where there is no other.
  Sampler(const SamplingOptions& options, int64_t vocab_size, std::vector<int32_t> never = {});

  // Picks one token, of those in `allowed` if it is given (at least one). `seen`: the text so far, whose last `step`
  // tokens were written. What is drawn depends on (seed, sample, step) and the logits alone, so that a row of a batch
  // goes as it would by itself. NaN counts as least likely.
  int32_t pick(std::span<const float> logits, std::span<const int32_t> seen, uint64_t sample, uint64_t step,
               const TokenMask* allowed = nullptr);

  // After pick(): the tokens that were in question, and their probabilities.
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
  std::vector<Candidate> candidates_;  // [0, count_) are in question
  size_t count_ = 0;
};

// What a token's logit less this is the logarithm of its probability.
double log_sum_exp_of(std::span<const float> logits);

}  // namespace linnet
