// generation_config.json: generation defaults by the model's author.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace linnet {
// Empty members are not set in the file.
struct GenerationConfig {
  std::vector<int64_t> ends;  // eos_token_id: any of them ends a text
  std::optional<int64_t> begin, pad, decoder_start, forced_begin, forced_end;
  std::vector<std::vector<int64_t>> forbidden;  // bad_words_ids: sequences that must not be written
  std::optional<int64_t> max_length, max_new_tokens, min_length, min_new_tokens, no_repeat_ngram;
  std::optional<bool> sample;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, length_penalty;
  std::optional<int64_t> top_k, beams;
  std::string early_stopping = "false";  // "true", "never"
  std::vector<std::string> unsupported;  // keys that Linnet does not support
};

// From generation_config.json, or config.json if there is none. User error naming file and key for an invalid value.
GenerationConfig read_generation_config(const std::string& folder);
}  // namespace linnet
