#include "config/config_keys.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <type_traits>
#include "base/fail.h"
#include "base/functions.h"
#include "base/numbers.h"
#include "base/text.h"
#include "config/hints.h"

namespace linnet {
namespace {
constexpr std::array kSections = {
    "model", "data", "lora", "embeddings", "answers", "preferences", "distillation", "train"};

struct ShortForm {
  const char* section;
  const char* name;
  std::array<const char*, 2> keys;  // the second may be null
};
constexpr ShortForm kShortForms[] = {
    {"model", "num_layers", {"num_encoder_layers", "num_decoder_layers"}}, {"data", "dir", {"data_dir", nullptr}}};

// Names in other programs, too different from ours for edit distance.
constexpr std::array<const char*, 2> kElsewhere[] = {{"lr", "learning_rate"}, {"bs", "batch_size"},
    {"nhead", "num_heads"}, {"n_heads", "num_heads"}, {"hidden_size", "d_model"}, {"dim", "d_model"},
    {"epochs", "max_epochs"}, {"steps", "max_steps"}, {"num_epochs", "max_epochs"}, {"num_steps", "max_steps"},
    {"beam_size", "beam"}, {"max_length", "max_seq_len"}, {"wd", "weight_decay"}, {"grad_clip", "clip_norm"},
    {"num_threads", "threads"}, {"warmup", "warmup_steps"}, {"minutes", "max_minutes"}, {"max_time", "max_minutes"}};

const ConfigKey* find_key(std::string_view name) { return find_item(config_keys(), name, &ConfigKey::name); }

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

// Bounds of whole numbers must not read 1e+15.
std::string bound_text(const ConfigKey& key, double bound) {
  Config scratch;
  if (!std::holds_alternative<int64_t*>(key.field(scratch))) return shortest(bound);
  return std::to_string(static_cast<int64_t>(bound));
}

bool key_belongs(const ConfigKey& key, const Config& config) {
  return key.owners.empty() || std::ranges::any_of(key.owners, [&](const std::string_view owner) {
    return owner == config.data.task || owner == task_row(config).owner || owner == config.model.architecture;
  });
}

std::string comment(const ConfigKey& key) {
  const std::string meaning = std::string("# ") + key.meaning + "\n";
  return key.choices.empty() ? meaning : meaning + "# O" + range_text(key).substr(1) + ".\n";
}

std::string quoted(const std::string& text) { return value_text(FieldValue(text)); }

std::string group_text(const GroupConfig& group) {
  std::string text = "\n[[train.groups]]\nparameters = [" + joined(group.parameters, ", ", quoted) + "]\n";
  const GroupConfig usual;
  if (group.frozen) text += "frozen = true\n";
  if (group.storage != usual.storage) text += "storage = " + quoted(group.storage) + "\n";
  if (group.learning_rate_factor != usual.learning_rate_factor)
    text += "learning_rate_factor = " + value_text(FieldValue(group.learning_rate_factor)) + "\n";
  if (group.weight_decay) text += "weight_decay = " + value_text(FieldValue(*group.weight_decay)) + "\n";
  if (group.optimizer) text += "optimizer = " + quoted(*group.optimizer) + "\n";
  return text;
}

// Lists the section's keys for the task; but not of [train], which has too many.
[[noreturn]] void fail_key(const std::string& where, const ConfigKey& missing, const Config& config) {
  const std::string section = missing.section;
  std::string others;
  for (const ConfigKey& key : config_keys())
    if (section != "train" && section == key.section && key_belongs(key, config))
      others += (others.empty() ? "; in [" + section + "] it has " : ", ") + key.name;
  fail_user(where, "task = \"", config.data.task, "\" with architecture = \"", config.model.architecture,
      "\" has no \"", missing.name, "\"", others);
}

// Whether the configuration of model.from takes the key's place. Of translations max_seq_len is the user's limit.
bool folder_decides(const ConfigKey& key, const Config& config) {
  const std::string_view name = key.name;
  return !config.model.from.empty() && key.section == std::string_view("model") && name != "architecture" &&
         name != "from" && (name != "max_seq_len" || task_kind(config) != TaskKind::kTranslation);
}

// A default or no limit. num_layers sets both stacks, even if the model has one.
bool asks_for_nothing(const ConfigKey& key, const Config& config) {
  const std::string_view name = key.name;
  const bool is_layers = name == "num_encoder_layers" || name == "num_decoder_layers";
  return (name == "batch_tokens" && config.data.batch_tokens == 0) ||
         (is_layers && (task_kind(config) != TaskKind::kImages || config.model.architecture == "vit")) ||
         field_value(key, config) == field_value(key, Config{});
}
}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names{"adam", "adamw", "adamw8bit", "sgd", "lion", "muon", "adafactor"};
  return names;
}

FieldValue field_value(const ConfigKey& key, const Config& config) {
  // Table entries return writable addresses; a const Config is only read.
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
    accepted = contains(key.choices, *text);
  if (!accepted) {
    std::string problem = name + " must be " + range_text(key) + ", got " + value_text(value);
    if (!key.choices.empty()) problem += did_you_mean(std::get<std::string>(value), key.choices);
    return problem;
  }
  std::visit([&](auto* pointer) { *pointer = std::get<std::remove_pointer_t<decltype(pointer)>>(value); }, target);
  return "";
}

std::span<const char* const> section_names() { return kSections; }
bool is_section(std::string_view name) { return contains(kSections, name); }

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
  problem += key ? " (\"" + std::string(name) + "\" belongs in [" + key->section + "])" : hint_for(section, name);
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
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ((text += "\\u00") += kHex[c >> 4]) += kHex[c & 15];
    else (text += c == '"' || c == '\\' ? "\\" : "") += c;
  }
  return text + "\"";
}

std::string choices_text(std::span<const std::string> choices) {
  return "one of " + joined(choices, ", ", [](const std::string& choice) { return "\"" + choice + "\""; });
}

std::string range_text(const ConfigKey& key) {
  if (!key.choices.empty()) return choices_text(key.choices);
  if (std::isinf(key.least)) return "";
  const std::string least = "at least " + bound_text(key, key.least);
  return least + (key.below_most ? " and below " : " and at most ") + bound_text(key, key.most);
}

const Preset* find_preset(std::string_view name) { return find_item(presets(), name, &Preset::name); }

std::string to_toml(const Config& config, bool comments) {
  std::string text, section;
  for (const ConfigKey& key : config_keys()) {
    // Commented output is for choosing: unrelated keys would mislead.
    if (comments && !key_belongs(key, config) && field_value(key, config) == field_value(key, Config{})) continue;
    if (section != key.section) {
      if (!text.empty()) text += "\n";
      section = key.section;
      text += "[" + section + "]\n";
    }
    if (comments) text += comment(key);
    text += key.name;
    text += " = " + value_text(field_value(key, config)) + "\n";
  }
  for (const GroupConfig& group : config.train.groups) text += group_text(group);
  return text;
}

std::vector<std::string> changed_keys(const Config& a, const Config& b) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys())
    if (field_value(key, a) != field_value(key, b)) names.push_back(key.name);
  if (a.train.groups != b.train.groups) names.emplace_back("groups");
  return names;
}

std::vector<std::string> keep_saved_values(const Config& saved, Config& wanted) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    const FieldValue value = field_value(key, wanted);
    if (key.may_change_on_resume || value == field_value(key, saved) || value != field_value(key, Config{}) ||
        contains(wanted.chosen, key.name))
      continue;
    assign_field(key, wanted, field_value(key, saved));
    names.push_back(key.name);
  }
  return names;
}

bool may_change_on_resume(const std::string& name) {
  return std::ranges::any_of(
      config_keys(), [&](const ConfigKey& key) { return name == key.name && key.may_change_on_resume; });
}

std::string data_path(const DataConfig& data, const std::string& path) {
  if (path.empty() || data.data_dir.empty()) return path;
  return (std::filesystem::path(data.data_dir) / path).string();  // an absolute `path` is unchanged
}

std::vector<std::string*> data_files(Config& config) {
  DataConfig& d = config.data;
  return {&d.train_source, &d.train_target, &d.valid_source, &d.valid_target, &d.test_source, &d.test_target,
      &d.train_tsv, &d.valid_tsv, &d.test_tsv, &d.text, &d.valid_text, &d.test_text};
}

std::vector<std::string> data_file_keys() {
  Config scratch;
  std::vector<std::string> names;
  for (const std::string* file : data_files(scratch))
    for (const ConfigKey& key : config_keys())
      if (key.field(scratch) == FieldPointer(const_cast<std::string*>(file))) names.emplace_back(key.name);
  return names;
}

Config with_absolute_paths(Config config) {
  const auto make_absolute = [](std::string& path) {
    if (!path.empty()) path = std::filesystem::absolute(path).lexically_normal().string();
  };
  for (std::string* folder :
      {&config.data.data_dir, &config.data.tokenizer_dir, &config.model.from, &config.distillation.teacher})
    make_absolute(*folder);
  if (config.data.data_dir.empty())  // otherwise they are below it
    for (std::string* file : data_files(config)) make_absolute(*file);
  return config;
}

void check_keys_belong(const Config& config) {
  for (const ConfigKey& key : config_keys())
    if (!key_belongs(key, config) && !asks_for_nothing(key, config)) fail_key("config: ", key, config);
}

void check_setting_belongs(const Config& config, const std::string& key_and_value) {
  const std::vector<const ConfigKey*> keys = keys_of_setting(key_and_value);
  for (const ConfigKey* key : keys)
    if (folder_decides(*key, config))
      fail_user(
          key_and_value, ": the model folder decides \"", key->name, "\" (model.from = \"", config.model.from, "\")");
  if (std::ranges::any_of(keys, [&](const ConfigKey* key) { return key_belongs(*key, config); })) return;
  for (const ConfigKey* key : keys)
    if (std::string_view(key->name) != "batch_tokens" || config.data.batch_tokens != 0)
      fail_key(key_and_value + ": ", *key, config);
}
}  // namespace linnet
