// Which keys mean something for a configuration's task and architecture. A key that would be ignored is more likely a
// mistake than a wish.
#include <algorithm>

#include "base/error.h"
#include "config/config.h"
#include "config/config_keys.h"
#include "config/task_rows.h"

namespace linnet {

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
  return "; in [" + section + "] it has " + text;
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
