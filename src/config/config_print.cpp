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

}  // namespace

std::string to_toml(const Config& config, bool comments) {
  std::string text, section;
  for (const ConfigKey& key : config_keys()) {
    if (section != key.section) {
      if (!text.empty()) text += "\n";
      section = key.section;
      text += "[" + section + "]\n";
    }
    if (comments) text += comment(key);
    text += key.name;
    text += " = " + value_text(field_value(key, config)) + "\n";
  }
  return text;
}

std::vector<std::string> changed_keys(const Config& a, const Config& b) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys())
    if (field_value(key, a) != field_value(key, b)) names.push_back(key.name);
  return names;
}

bool may_change_on_resume(const std::string& name) {
  for (const ConfigKey& key : config_keys())
    if (name == key.name) return key.may_change_on_resume;
  return false;
}

}  // namespace linnet
