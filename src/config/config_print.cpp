#include <algorithm>
#include <filesystem>
#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "config/config_keys.h"

namespace linnet {

namespace {

// The lines above a key: what it means, and what it may be.
std::string comment(const ConfigKey& key) {
  std::string text = std::string("# ") + key.meaning;
  if (!key.choices.empty()) {
    std::string choices = range_text(key);
    choices[0] = 'O';
    text += "\n# " + choices + ".";
  }
  return text + "\n";
}

// Text in quotation marks.
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

}  // namespace

std::string to_toml(const Config& config, bool comments) {
  std::string text, section;
  for (const ConfigKey& key : config_keys()) {
    // Who reads the comments is choosing: keys that mean nothing for the task would mislead.
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
    if (key.may_change_on_resume || value == field_value(key, saved) || value != field_value(key, Config{})) continue;
    assign_field(key, wanted, field_value(key, saved));
    names.push_back(key.name);
  }
  return names;
}

bool may_change_on_resume(const std::string& name) {
  for (const ConfigKey& key : config_keys())
    if (name == key.name) return key.may_change_on_resume;
  return false;
}

// The keys that name files and folders.

std::string data_path(const DataConfig& data, const std::string& path) {
  if (path.empty() || data.data_dir.empty()) return path;
  return (std::filesystem::path(data.data_dir) / path).string();  // an absolute `path` stays as it is
}

std::vector<std::string*> data_files(Config& config) {
  DataConfig& d = config.data;
  return {&d.train_source, &d.train_target, &d.valid_source, &d.valid_target, &d.test_source, &d.test_target,
          &d.train_tsv,    &d.valid_tsv,    &d.test_tsv,     &d.text,         &d.valid_text,  &d.test_text};
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

// Which keys mean something for a configuration's task and architecture. A key that would be ignored is more likely a
// mistake than a wish.

bool key_belongs(const ConfigKey& key, const Config& config) {
  return key.owners.empty() || std::ranges::any_of(key.owners, [&](const std::string_view owner) {
           return owner == config.data.task || owner == task_row(config).owner || owner == config.model.architecture;
         });
}

namespace {

// The keys of a section that belong to the configuration's task. In a training section nearly all do, so that there
// is nothing to be learned from a list.
std::string others(const ConfigKey& missing, const Config& config) {
  const std::string section = missing.section;
  if (section == "train") return "";
  std::string text;
  for (const ConfigKey& key : config_keys())
    if (section == key.section && key_belongs(key, config)) text += (text.empty() ? "" : ", ") + std::string(key.name);
  return text.empty() ? "" : "; in [" + section + "] it has " + text;
}

[[noreturn]] void fail_key(const std::string& where, const ConfigKey& key, const Config& config) {
  fail_user(where + "task = \"" + config.data.task + "\" with architecture = \"" + config.model.architecture +
            "\" has no \"" + key.name + "\"" + others(key, config));
}

// A value that asks for nothing: the default, or no limit. num_layers sets both stacks, also where a model has one.
bool asks_for_nothing(const ConfigKey& key, const Config& config) {
  const std::string_view name = key.name;
  if (name == "batch_tokens" && config.data.batch_tokens == 0) return true;
  if (name == "num_encoder_layers" || name == "num_decoder_layers")
    if (task_kind(config) != TaskKind::kImages || config.model.architecture == "vit") return true;
  return field_value(key, config) == field_value(key, Config{});
}

}  // namespace

void check_keys_belong(const Config& config) {
  for (const ConfigKey& key : config_keys())
    if (!key_belongs(key, config) && !asks_for_nothing(key, config)) fail_key("config: ", key, config);
}

void check_setting_belongs(const Config& config, const std::string& key_and_value) {
  const std::vector<const ConfigKey*> keys = keys_of_setting(key_and_value);
  if (std::ranges::any_of(keys, [&](const ConfigKey* key) { return key_belongs(*key, config); })) return;
  for (const ConfigKey* key : keys)
    if (std::string_view(key->name) != "batch_tokens" || config.data.batch_tokens != 0)
      fail_key("--set " + key_and_value + ": ", *key, config);
}

}  // namespace linnet
