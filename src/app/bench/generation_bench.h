// Generation speed: GPT-2's 124M with random weights, one text, with and without the key-value cache.
#pragma once
#include "generation/generators.h"
#include "models/families/pretrained.h"
#include "models/modules/text_decoder.h"
#include "models/nn/model_store.h"
#include "models/nn/weight_quantization.h"
#include "tasks/inference.h"

namespace linnet {
// A folder's decoder, or if empty GPT-2's 124M with random weights, with a generator of one text.
struct BenchDecoder {
  BenchDecoder(const std::string& folder, const WeightQuantization& quantization, const CausalOptions& options);
  // Picks the likeliest tokens; the prompt repeats one token.
  void write(int64_t prompt, int64_t tokens, const CausalGenerator::Listener& listener);

  PretrainedModel opened;
  std::unique_ptr<TextDecoder> drawn;
  TextDecoder& model;
  ParameterLayout layout;
  Store store;
  ThreadPool pool;
  std::unique_ptr<CausalGenerator> generator;
};

struct GenerationRow {
  int64_t tokens;           // generated after a prompt of kGenerationPrompt
  double cached_seconds;    // includes the prompt
  double uncached_seconds;  // one timed pass for each padded length, times the tokens with that length
  double bound_seconds;     // reading weights and cache once a token at the measured bandwidth
};

struct GenerationMeasurement {
  double bandwidth;     // bytes a second, all threads reading memory
  double weight_bytes;  // read for a token
  std::vector<GenerationRow> rows;
};

constexpr int64_t kGenerationPrompt = 8;

GenerationMeasurement measure_generation(
    int threads, const std::vector<int64_t>& tokens, bool uncached = true, const WeightQuantization& quantization = {});

// Translation speed of an encoder-decoder on a file's lines, with loading and tokenization measured apart.

struct TranslationMeasurement {
  double load_seconds;   // reading, planning and packing
  double token_seconds;  // lines to tokens, and back
  double seconds;        // encoding and search
  int64_t beam;
  std::vector<std::string> translations;  // of the lines, in their order
};

// `model`: a run or model folder; `source`: a file of lines. User error for models without translation or bad files.
TranslationMeasurement measure_translation(
    const std::string& model, const std::string& source, const InferenceOptions& options);
}  // namespace linnet
