#include "config/config_keys.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>
#include "base/digits.h"
#include "config/config.h"
#include "config/hints.h"

namespace linnet {

namespace {

constexpr std::array kSections = {"model",   "data",        "lora",         "embeddings",
                                  "answers", "preferences", "distillation", "train"};

struct ShortForm {
  const char* section;
  const char* name;
  std::array<const char*, 2> keys;  // the second may be null
};
constexpr ShortForm kShortForms[] = {{"model", "num_layers", {"num_encoder_layers", "num_decoder_layers"}},
                                     {"data", "dir", {"data_dir", nullptr}}};

// Names of the same thing elsewhere, too far from ours in letters to be found by counting edits.
constexpr std::array<const char*, 2> kElsewhere[] = {
    {"lr", "learning_rate"},      {"bs", "batch_size"},       {"nhead", "num_heads"},     {"n_heads", "num_heads"},
    {"hidden_size", "d_model"},   {"dim", "d_model"},         {"epochs", "max_epochs"},   {"steps", "max_steps"},
    {"num_epochs", "max_epochs"}, {"num_steps", "max_steps"}, {"beam_size", "beam"},      {"max_length", "max_seq_len"},
    {"wd", "weight_decay"},       {"grad_clip", "clip_norm"}, {"num_threads", "threads"}, {"warmup", "warmup_steps"},
    {"minutes", "max_minutes"},   {"max_time", "max_minutes"}};

const ConfigKey* find_key(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (name == key.name) return &key;
  return nullptr;
}

std::string hint_for(std::string_view section, std::string_view name) {
  for (const auto& [other, ours] : kElsewhere)
    if (name == other) return std::string(" (did you mean \"") + ours + "\"?)";
  std::vector<std::string> candidates;
  for (const ConfigKey& key : config_keys())
    if (section.empty() || section == key.section) candidates.push_back(key.name);
  for (const ShortForm& form : kShortForms)
    if (section == form.section || (section.empty() && std::string_view(form.name) == "num_layers"))
      candidates.push_back(form.name);
  return did_you_mean(name, candidates);
}

const char* type_text(const FieldValue& value) {
  constexpr const char* kNames[] = {"a whole number", "a number", "true or false", "a text in quotes"};
  return kNames[value.index()];
}

// A bound of a whole number must not read 1e+15.
std::string bound_text(const ConfigKey& key, double bound) {
  Config scratch;
  if (!std::holds_alternative<int64_t*>(key.field(scratch))) return shortest(bound);
  return std::to_string(static_cast<int64_t>(bound));
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names{"adam", "adamw", "adamw8bit", "sgd", "lion", "muon", "adafactor"};
  return names;
}

FieldValue field_value(const ConfigKey& key, const Config& config) {
  // The table gives addresses to write to; through a const Config they are only read.
  return std::visit([](auto* pointer) -> FieldValue { return *pointer; }, key.field(const_cast<Config&>(config)));
}

std::string assign_field(const ConfigKey& key, Config& config, FieldValue value) {
  const FieldPointer target = key.field(config);
  if (std::holds_alternative<double*>(target) && std::holds_alternative<int64_t>(value))
    value = static_cast<double>(std::get<int64_t>(value));
  const std::string name = std::string("\"") + key.name + "\"";
  if (target.index() != value.index())
    return name + " must be " + type_text(field_value(key, config)) + ", got " + value_text(value);
  double number = key.least;
  if (std::holds_alternative<int64_t>(value)) number = static_cast<double>(std::get<int64_t>(value));
  if (std::holds_alternative<double>(value)) number = std::get<double>(value);
  bool accepted = number >= key.least && (key.below_most ? number < key.most : number <= key.most);
  if (const std::string* text = std::get_if<std::string>(&value); text && !key.choices.empty())
    accepted = std::ranges::find(key.choices, *text) != key.choices.end();
  if (!accepted) {
    std::string problem = name + " must be " + range_text(key) + ", got " + value_text(value);
    if (!key.choices.empty()) problem += did_you_mean(std::get<std::string>(value), key.choices);
    return problem;
  }
  std::visit([&](auto* pointer) { *pointer = std::get<std::remove_pointer_t<decltype(pointer)>>(value); }, target);
  return "";
}

std::span<const char* const> section_names() { return kSections; }
bool is_section(std::string_view name) { return std::ranges::find(kSections, name) != kSections.end(); }

bool is_short_form(std::string_view section, std::string_view name) {
  for (const ShortForm& form : kShortForms)
    if (name == form.name && (section.empty() || section == form.section)) return true;
  return false;
}

std::vector<const ConfigKey*> find_keys(std::string_view section, std::string_view name, std::string& problem) {
  for (const ShortForm& form : kShortForms) {
    // Without its section, "dir" could be any folder.
    if (name != form.name || (section.empty() ? form.keys[1] == nullptr : section != form.section)) continue;
    std::vector<const ConfigKey*> keys;
    for (const char* key : form.keys)
      if (key) keys.push_back(find_key(key));
    return keys;
  }
  const ConfigKey* key = find_key(name);
  if (key && (section.empty() || section == key->section)) return {key};
  const std::string full = section.empty() ? std::string(name) : std::string(section) + "." + std::string(name);
  problem = "unknown key " + value_text(full);
  if (key) {
    problem += " (\"" + std::string(name) + "\" belongs in [" + key->section + "])";
  } else {
    problem += hint_for(section, name);
  }
  return {};
}

std::string value_text(const FieldValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* real = std::get_if<double>(&value)) {
    std::string text = shortest(*real);
    if (text.find_first_of(".en") == text.npos) text += ".0";  // TOML tells 1.0 from 1; "inf" and "nan" have an n
    return text;
  }
  std::string text = "\"";
  for (const char c : std::get<std::string>(value)) {
    constexpr const char* kHex = "0123456789ABCDEF";
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      text += "\\u00";
      text += kHex[c >> 4];
      text += kHex[c & 15];
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string range_text(const ConfigKey& key) {
  if (!key.choices.empty()) {
    std::string text = "one of ";
    for (const std::string& choice : key.choices) text += (&choice == &key.choices[0] ? "\"" : ", \"") + choice + "\"";
    return text;
  }
  if (std::isinf(key.least)) return "";
  const std::string least = "at least " + bound_text(key, key.least);
  return least + (key.below_most ? " and below " : " and at most ") + bound_text(key, key.most);
}

const PresetText* find_preset(std::string_view name) {
  for (const PresetText& preset : preset_texts())
    if (name == preset.name) return &preset;
  return nullptr;
}

bool is_preset(const std::string& name) { return find_preset(name) != nullptr; }

std::vector<Preset> presets() {
  std::vector<Preset> result;
  for (const PresetText& preset : preset_texts()) result.push_back({preset.name, preset.description});
  return result;
}

}  // namespace linnet
