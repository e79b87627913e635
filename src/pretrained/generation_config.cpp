#include "pretrained/generation_config.h"

#include <filesystem>

#include "base/files.h"
#include "pretrained/config_file.h"

namespace linnet {
namespace {

std::optional<int64_t> optional_integer(const ConfigFile& file, const std::string& key) {
  if (!file.has(key)) return std::nullopt;
  return file.integer(key);
}

double positive(const ConfigFile& file, const std::string& key, double standard) {
  const double value = file.number(key, standard);
  if (!(value > 0)) file.fail("\"" + key + "\" is not a positive number");
  return value;
}

}  // namespace

GenerationConfig read_generation_config(const std::string& folder) {
  const auto inside = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  const std::string own = inside("generation_config.json");
  const ConfigFile file(file_exists(own) ? own : inside("config.json"));
  GenerationConfig config;
  config.ends = file.integers("eos_token_id");
  config.begin = optional_integer(file, "bos_token_id");
  config.pad = optional_integer(file, "pad_token_id");
  config.decoder_start = optional_integer(file, "decoder_start_token_id");
  config.forced_end = optional_integer(file, "forced_eos_token_id");
  config.forbidden = file.integer_lists("bad_words_ids");
  config.max_length = optional_integer(file, "max_length");
  config.max_new_tokens = optional_integer(file, "max_new_tokens");
  config.sample = file.flag("do_sample", false);
  config.temperature = positive(file, "temperature", 1);
  config.top_p = positive(file, "top_p", 1);
  config.repetition_penalty = positive(file, "repetition_penalty", 1);
  config.length_penalty = file.number("length_penalty", 1);
  config.top_k = file.integer("top_k", 50);
  config.beams = file.size("num_beams", 1);
  return config;
}

}  // namespace linnet
