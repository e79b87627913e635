#include "models/families/generation_config.h"
#include <filesystem>
#include "base/files.h"
#include "models/families/config_file.h"

namespace linnet {
namespace {

void check_range(const ConfigFile& file, const std::string& key, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) file.fail("\"", key, "\" is ", value, ", expected ", low, " to ", high);
}

std::optional<int64_t> optional_integer(const ConfigFile& file, const std::string& key, int64_t low, int64_t high) {
  if (!file.has(key)) return std::nullopt;
  const int64_t value = file.integer(key);
  check_range(file, key, value, low, high);
  return value;
}

// -1: none, as some files write it.
std::optional<int64_t> optional_token(const ConfigFile& file, const std::string& key) {
  const std::optional<int64_t> token = optional_integer(file, key, -1, INT32_MAX);
  return token == -1 ? std::nullopt : token;
}

std::vector<int64_t> tokens(const ConfigFile& file, const std::string& key) {
  std::vector<int64_t> ids = file.integers(key);
  for (const int64_t id : ids) check_range(file, key, id, -1, INT32_MAX);
  std::erase(ids, -1);
  return ids;
}

std::optional<int64_t> optional_size(const ConfigFile& file, const std::string& key) {
  if (!file.has(key)) return std::nullopt;
  return file.size(key);
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
  constexpr std::pair<const char*, double> kNumbers[] = {{"encoder_no_repeat_ngram_size", 0},
                                                         {"num_beam_groups", 1},
                                                         {"diversity_penalty", 0},
                                                         {"penalty_alpha", 0},
                                                         {"typical_p", 1},
                                                         {"top_h", 1},
                                                         {"epsilon_cutoff", 0},
                                                         {"eta_cutoff", 0},
                                                         {"guidance_scale", 1},
                                                         {"encoder_repetition_penalty", 1}};
  std::vector<std::string> keys;
  for (const auto& [key, neutral] : kNumbers)
    if (file.number(key, neutral) != neutral) keys.emplace_back(key);
  for (const char* key : {"suppress_tokens", "begin_suppress_tokens", "sequence_bias", "stop_strings",
                          "force_words_ids", "exponential_decay_length_penalty"})
    if (file.has(key)) keys.emplace_back(key);
  return keys;
}

}  // namespace

GenerationConfig read_generation_config(const std::string& folder) {
  const auto inside = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  const std::string own = inside("generation_config.json");
  const ConfigFile file(file_exists(own) ? own : inside("config.json"));
  GenerationConfig config;
  config.ends = tokens(file, "eos_token_id");
  config.begin = optional_token(file, "bos_token_id");
  config.pad = optional_token(file, "pad_token_id");
  config.decoder_start = optional_token(file, "decoder_start_token_id");
  config.forced_begin = optional_token(file, "forced_bos_token_id");
  config.forced_end = optional_token(file, "forced_eos_token_id");
  config.forbidden = file.integer_lists("bad_words_ids");
  config.max_length = optional_size(file, "max_length");
  config.max_new_tokens = optional_size(file, "max_new_tokens");
  config.min_length = optional_integer(file, "min_length", 0, INT32_MAX);
  config.min_new_tokens = optional_integer(file, "min_new_tokens", 0, INT32_MAX);
  config.no_repeat_ngram = optional_integer(file, "no_repeat_ngram_size", 0, INT32_MAX);
  if (file.has("do_sample")) config.sample = file.flag("do_sample", false);
  config.temperature = optional_number(file, "temperature");
  if (config.temperature.value_or(0) < 0) file.fail("\"temperature\" is negative");
  config.top_p = optional_positive(file, "top_p");
  if (config.top_p.value_or(1) > 1) file.fail("\"top_p\" is above 1");
  config.min_p = optional_number(file, "min_p");
  if (!(config.min_p.value_or(0) >= 0 && config.min_p.value_or(0) <= 1)) file.fail("\"min_p\" is not between 0 and 1");
  config.repetition_penalty = optional_positive(file, "repetition_penalty");
  config.length_penalty = optional_number(file, "length_penalty");
  config.top_k = optional_integer(file, "top_k", 0, INT32_MAX);
  config.beams = optional_integer(file, "num_beams", 1, 1024);  // as --beam
  config.early_stopping = early_stopping(file);
  config.unsupported = unsupported_keys(file);
  return config;
}

}  // namespace linnet
