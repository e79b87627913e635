#include "models/families/config_file.h"
#include "base/text.h"

namespace linnet {
namespace {
// Takes the text part of a model of texts and pictures, with defaults that published files leave out.
void take_text_part(Json& config) {
  const Json *type = config.find("model_type"), *own = config.find("text_config");
  if (!type || !type->is_string() || type->text() != "gemma3" || !own || !own->is_object()) return;
  Json text = {{"vocab_size", 262208}, {"num_attention_heads", 8}, {"num_key_value_heads", 4}, {"head_dim", 256},
      {"max_position_embeddings", 131072}};
  text.update(*own);
  text["model_type"] = "gemma3_text";
  text["architectures"] = std::vector<std::string>{"Gemma3ForCausalLM"};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype"})
    if (config.contains(key)) text[key] = config.at(key);
  config = std::move(text);
}

constexpr const char *kProblemKey = "problem_type", *kPairsKey = "linnet_text_pairs",
                     *kNoAnswerKey = "linnet_may_lack_answers";
}  // namespace

std::string quoted(const std::string& key) { return "\"" + key + "\""; }

ConfigFile::ConfigFile(const std::string& path) : ConfigFile(parse(read_file(path), path)) {}

ConfigFile ConfigFile::parse(const std::string& text, const std::string& name) {
  ConfigFile file;
  file.path_ = name;
  file.json_ = Json::parse(text, "'" + name + "'", JsonLimits::settings());
  if (!file.json_.is_object()) file.fail("not a JSON object");
  take_text_part(file.json_);
  return file;
}

const Json* ConfigFile::find(const std::string& key) const {
  const Json* found = json_.find(key);
  return found && found->is_null() ? nullptr : found;
}

const Json* ConfigFile::find(const std::string& key, bool (Json::*is)() const, const char* expected) const {
  const Json* found = find(key);
  if (found && !(found->*is)()) fail(quoted(key), " is ", shown(*found), ", expected ", expected);
  return found;
}

const Json& ConfigFile::at(const std::string& key) const {
  if (const Json* found = find(key)) return *found;
  fail("has no ", quoted(key));
}

ConfigFile ConfigFile::part(const Json& object) const {
  ConfigFile result;
  result.path_ = path_, result.json_ = object;
  return result;
}

int64_t ConfigFile::integer(const std::string& key) const {
  const Json& value = at(key);
  if (const auto number = value.whole_number()) return *number;
  fail(quoted(key), " is ", shown(value), ", expected an integer");
}

int64_t ConfigFile::size(const std::string& key) const {
  const int64_t value = integer(key);
  if (value < 1 || value > INT64_C(1) << 30) fail(quoted(key), " is ", value, ", out of range");
  return value;
}

double ConfigFile::number(const std::string& key, double fallback) const {
  const Json* value = find(key, &Json::is_number, "a number");
  return value ? value->get<double>() : fallback;
}

bool ConfigFile::flag(const std::string& key, bool fallback) const {
  const Json* value = find(key, &Json::is_boolean, "true or false");
  return value ? value->get<bool>() : fallback;
}

bool ConfigFile::is_text(const std::string& key) const {
  const Json* value = find(key);
  return value && value->is_string();
}

std::string ConfigFile::text(const std::string& key) const {
  at(key);
  return find(key, &Json::is_string, "a string")->text();
}

template <class T> std::vector<T> ConfigFile::list_of(
    const std::string& key, const Json& value, bool (Json::*is)() const, const char* expected) const {
  for (const Json& item : value)
    if (!(item.*is)()) fail(quoted(key), " holds ", shown(item), ", expected ", expected);
  return value.get<std::vector<T>>();
}

std::vector<std::string> ConfigFile::texts(const std::string& key) const {
  const Json* value = find(key, &Json::is_array, "a list of strings");
  return value ? list_of<std::string>(key, *value, &Json::is_string, "strings") : std::vector<std::string>();
}

std::vector<int64_t> ConfigFile::integers(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return {};
  if (!value->is_array()) return {integer(key)};
  return list_of<int64_t>(key, *value, &Json::is_integer, "integers");
}

std::vector<double> ConfigFile::numbers(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return {};
  if (!value->is_array()) return {number(key, 0)};
  return list_of<double>(key, *value, &Json::is_number, "numbers");
}

std::vector<std::vector<int64_t>> ConfigFile::integer_lists(const std::string& key) const {
  constexpr const char* kExpected = "lists of integers";
  const Json* value = find(key, &Json::is_array, kExpected);
  std::vector<std::vector<int64_t>> result;
  for (size_t i = 0; value && i < value->size(); ++i) {
    const Json& list = (*value)[i];
    if (!list.is_array() || !std::ranges::all_of(list, [](const Json& item) { return item.is_integer(); }))
      fail(quoted(key), " is ", shown(*value), ", expected ", kExpected);
    result.push_back(list.get<std::vector<int64_t>>());
  }
  return result;
}

ConfigFile ConfigFile::object(const std::string& key) const {
  const Json* value = find(key, &Json::is_object, "an object");
  return part(value ? *value : Json::object());
}

std::vector<ConfigFile> ConfigFile::objects(const std::string& key) const {
  const Json* value = find(key, &Json::is_array, "a list of objects");
  std::vector<ConfigFile> result;
  for (size_t i = 0; value && i < value->size(); ++i) {
    const Json& item = (*value)[i];
    if (!item.is_object()) fail(quoted(key), " holds ", shown(item), ", expected objects");
    result.push_back(part(item));
  }
  return result;
}

bool ConfigFile::is_empty(const std::string& key) const {
  const Json* value = find(key);
  return value && (value->is_object() || value->is_array()) && value->size() == 0;
}

std::vector<std::string> ConfigFile::keys() const { return mapped(json_.items(), &Json::Member::key); }

size_t ConfigFile::count(const std::string& key) const {
  const Json* value = find(key);
  return value && (value->is_object() || value->is_array()) ? value->size() : 0;
}

void ConfigFile::require_flag(const std::string& key, bool supported) const {
  if (flag(key, supported) == supported) return;
  const auto name = [](bool value) { return value ? "true" : "false"; };
  fail(quoted(key), " is ", name(!supported), ", Linnet supports only ", name(supported));
}

std::string ConfigFile::choice(const std::string& key, std::initializer_list<const char*> supported) const {
  const std::string value = text(key, *supported.begin());
  if (contains(supported, value)) return value;
  fail(quoted(key), " is ", shown(value), ", Linnet supports ", joined(supported, ", ", quoted));
}

void ConfigFile::save(const std::string& path) const { write_file_atomically(path, dump()); }

int64_t label_count(const ConfigFile& config) {
  if (config.has("num_labels")) return config.size("num_labels");
  const auto named = static_cast<int64_t>(config.count("id2label"));
  return named > 0 ? named : 2;
}

std::vector<std::string> label_names(const ConfigFile& config) {
  const ConfigFile names = config.object("id2label");
  std::vector<std::string> result;
  for (int64_t i = 0; i < label_count(config); ++i) {
    const std::string number = std::to_string(i);
    result.push_back(names.text(number, "LABEL_" + number));
  }
  return result;
}

void name_labels(ConfigFile& config, const std::vector<std::string>& classes) {
  ConfigFile names, numbers;
  for (size_t i = 0; i < classes.size(); ++i) {
    names.set(std::to_string(i), classes[i]);
    numbers.set(classes[i], static_cast<int64_t>(i));
  }
  config.set("id2label", names);
  config.set("label2id", numbers);
}

std::string problem_type(const ConfigFile& config) { return config.text(kProblemKey, ""); }
void set_problem_type(ConfigFile& config, const std::string& type) { config.set(kProblemKey, type); }
// The other keys are those of sentence-transformers' cross-encoders.
bool has_pairs(const ConfigFile& config) {
  return config.flag(kPairsKey, false) || config.has("sentence_transformers") ||
         config.has("sbert_ce_default_activation_function");
}
bool is_cross_encoder(const std::string& folder) {
  return ConfigFile::if_exists(folder + "/config_sentence_transformers.json").text("model_type", "") == "CrossEncoder";
}
void set_pairs(ConfigFile& config, bool pairs) {
  if (pairs) config.set(kPairsKey, true);
}
bool may_lack_answers(const ConfigFile& config) { return config.flag(kNoAnswerKey, false); }
void set_may_lack_answers(ConfigFile& config) { config.set(kNoAnswerKey, true); }
}  // namespace linnet
