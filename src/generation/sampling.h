// Which token comes next, given the logits of all of them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace linnet {

// Applied in this order, as Hugging Face's generate does.
struct SamplingOptions {
  // > 1: tokens that have been seen (prompt included) are less likely: a positive logit is divided by it, a negative
  // one multiplied (Keskar et al. 2019).
  double repetition_penalty = 1;
  double temperature = 1;  // logits are divided by it; 0: the likeliest token, the lowest of equals
  int64_t top_k = 0;       // only the k likeliest; 0: all
  double top_p = 1;        // only the fewest likeliest whose probabilities reach p (Holtzman et al. 2020)
  uint64_t seed = 1;
};

class Sampler {
 public:
  // User error for options out of range. Tokens of `never` are picked only where there is no other.
  Sampler(const SamplingOptions& options, int64_t vocab_size, std::vector<int32_t> never = {});

  // Picks one token. `seen`: what the penalty is for. What is drawn depends on (seed, sample, step) and the logits
  // alone, so that a row of a batch goes as it would by itself. NaN counts as least likely.
  int32_t pick(std::span<const float> logits, std::span<const int32_t> seen, uint64_t sample, uint64_t step);

  // After pick(): the tokens that were in question, and their probabilities.
  struct Candidate {
    float logit;
    int32_t token;
    double probability;
  };
  std::span<const Candidate> candidates() const { return {candidates_.data(), count_}; }

 private:
  int32_t pick_likeliest(std::span<const float> logits);
  void penalize(std::span<const int32_t> seen);
  void keep_likeliest(size_t count);
  void normalize();
  void keep_nucleus();

  const SamplingOptions options_;
  const std::vector<int32_t> never_;
  std::vector<Candidate> candidates_;  // [0, count_) are in question
  size_t count_ = 0;
};

// Of one token, given the logits of all.
double log_probability_of(std::span<const float> logits, int32_t token);

}  // namespace linnet
