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
  std::string names;
  for (const std::string& pattern : group.parameters) names += (names.empty() ? "" : ", ") + quoted(pattern);
  std::string text = "\n[[train.groups]]\nparameters = [" + names + "]\n";
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

}  // namespace linnet
