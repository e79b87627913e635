#include "models/families/generation_config.h"
#include "base/files.h"
#include "models/families/config_file.h"

namespace linnet {
namespace {
void check_range(const ConfigFile& file, const std::string& key, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) file.fail("\"", key, "\" is ", value, ", expected ", low, " to ", high);
}

struct IntegerKey {
  const char* key;
  std::optional<int64_t> GenerationConfig::*member;
  int64_t least, most;  // least -1: none, as some files write it
};
constexpr IntegerKey kIntegers[] = {{"bos_token_id", &GenerationConfig::begin, -1, INT32_MAX},
    {"pad_token_id", &GenerationConfig::pad, -1, INT32_MAX},
    {"decoder_start_token_id", &GenerationConfig::decoder_start, -1, INT32_MAX},
    {"forced_bos_token_id", &GenerationConfig::forced_begin, -1, INT32_MAX},
    {"forced_eos_token_id", &GenerationConfig::forced_end, -1, INT32_MAX},
    {"min_length", &GenerationConfig::min_length, 0, INT32_MAX},
    {"min_new_tokens", &GenerationConfig::min_new_tokens, 0, INT32_MAX},
    {"no_repeat_ngram_size", &GenerationConfig::no_repeat_ngram, 0, INT32_MAX},
    {"top_k", &GenerationConfig::top_k, 0, INT32_MAX}, {"num_beams", &GenerationConfig::beams, 1, 1024}};  // as --beam

std::vector<int64_t> tokens(const ConfigFile& file, const std::string& key) {
  std::vector<int64_t> ids = file.integers(key);
  for (const int64_t id : ids) check_range(file, key, id, -1, INT32_MAX);
  std::erase(ids, -1);
  return ids;
}

std::optional<double> optional_number(const ConfigFile& file, const std::string& key) {
  if (!file.has(key)) return std::nullopt;
  return file.number(key, 0);
}

std::optional<double> optional_positive(const ConfigFile& file, const std::string& key) {
  const std::optional<double> value = optional_number(file, key);
  if (value && !(*value > 0)) file.fail("\"", key, "\" is not a positive number");
  return value;
}

std::string early_stopping(const ConfigFile& file) {
  constexpr const char* kKey = "early_stopping";
  if (!file.is_text(kKey)) return file.flag(kKey, false) ? "true" : "false";
  if (file.text(kKey) != "never") file.fail("\"early_stopping\" is neither true nor false nor \"never\"");
  return "never";
}

// Keys of transformers that would change a text, each with its neutral value.
std::vector<std::string> unsupported_keys(const ConfigFile& file) {
  constexpr std::pair<const char*, double> kNumbers[] = {{"encoder_no_repeat_ngram_size", 0}, {"num_beam_groups", 1},
      {"diversity_penalty", 0}, {"penalty_alpha", 0}, {"typical_p", 1}, {"top_h", 1}, {"epsilon_cutoff", 0},
      {"eta_cutoff", 0}, {"guidance_scale", 1}, {"encoder_repetition_penalty", 1}, {"max_time", 0}};
  std::vector<std::string> keys;
  for (const auto& [key, neutral] : kNumbers)
    if (file.number(key, neutral) != neutral) keys.emplace_back(key);
  for (const char* key : {"suppress_tokens", "begin_suppress_tokens", "sequence_bias", "stop_strings",
           "force_words_ids", "exponential_decay_length_penalty"})
    if (file.has(key)) keys.emplace_back(key);
  if (file.flag("token_healing", false)) keys.emplace_back("token_healing");
  return keys;
}
}  // namespace

GenerationConfig read_generation_config(const std::string& folder) {
  const std::string own = path_in(folder, "generation_config.json");
  const ConfigFile file(file_exists(own) ? own : path_in(folder, "config.json"));
  GenerationConfig config;
  config.ends = tokens(file, "eos_token_id");
  for (const auto& [key, member, least, most] : kIntegers) {
    if (!file.has(key)) continue;
    const int64_t value = file.integer(key);
    check_range(file, key, value, least, most);
    if (value >= 0) config.*member = value;
  }
  config.forbidden = file.integer_lists("bad_words_ids");
  if (file.has("max_length")) config.max_length = file.size("max_length");
  if (file.has("max_new_tokens")) config.max_new_tokens = file.size("max_new_tokens");
  if (file.has("do_sample")) config.sample = file.flag("do_sample", false);
  config.temperature = optional_number(file, "temperature");
  if (config.temperature.value_or(0) < 0) file.fail("\"temperature\" is negative");
  config.top_p = optional_positive(file, "top_p");
  if (config.top_p.value_or(1) > 1) file.fail("\"top_p\" is above 1");
  config.min_p = optional_number(file, "min_p");
  if (!(config.min_p.value_or(0) >= 0 && config.min_p.value_or(0) <= 1)) file.fail("\"min_p\" is not between 0 and 1");
  config.repetition_penalty = optional_positive(file, "repetition_penalty");
  config.length_penalty = optional_number(file, "length_penalty");
  config.early_stopping = early_stopping(file);
  config.unsupported = unsupported_keys(file);
  return config;
}
}  // namespace linnet
