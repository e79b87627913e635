// How fast an encoder-decoder translates the lines of a file, loading and tokenization apart.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tasks/inference.h"

namespace linnet {

struct TranslationBenchOptions {
  std::string model;                // a run or a model folder
  std::string source;               // the file of lines
  InferenceOptions inference = {};  // beams, threads, quantization
};

struct TranslationMeasurement {
  double load_seconds;   // reading, planning and packing
  double token_seconds;  // lines to tokens, and back
  double seconds;        // encoding and search
  int64_t beam;
  std::vector<std::string> translations;  // of the lines, in their order
};

// User error for a model that does not translate and for a file that cannot be read or has no lines.
TranslationMeasurement measure_translation(const TranslationBenchOptions& options);

}  // namespace linnet
