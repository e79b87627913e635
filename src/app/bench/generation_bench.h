// How fast a decoder writes: GPT-2's 124M with random weights, one text, with the key-value cache and without.
#pragma once
#include <cstdint>
#include <vector>

#include "models/nn/weight_quantization.h"

namespace linnet {

struct GenerationRow {
  int64_t tokens;           // written behind a prompt of kGenerationPrompt
  double cached_seconds;    // the prompt included
  double uncached_seconds;  // from one timed pass over each padded length, times how many tokens take that length
  double bound_seconds;     // reading the weights and the cache once a token at the measured bandwidth
};

struct GenerationMeasurement {
  double bandwidth;     // bytes a second, all threads reading memory
  double weight_bytes;  // that a token reads
  std::vector<GenerationRow> rows;
};

constexpr int64_t kGenerationPrompt = 8;

GenerationMeasurement measure_generation(int threads, const std::vector<int64_t>& tokens, bool uncached = true,
                                         const WeightQuantization& quantization = {});

}  // namespace linnet
