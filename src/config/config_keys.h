// The table of all configuration keys: the one place that knows their names, types, ranges and meaning.
#pragma once
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>
#include "config/config.h"

namespace linnet {

using FieldPointer = std::variant<int64_t*, double*, bool*, std::string*>;
using FieldValue = std::variant<int64_t, double, bool, std::string>;

struct KeyLimits {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  bool below_most = false;                // `most` itself is too large
  std::vector<std::string> choices = {};  // of a text; empty: any text
};

struct ConfigKey : KeyLimits {
  const char* section;
  const char* name;
  FieldPointer (*field)(Config&);
  const char* meaning;
  bool may_change_on_resume;
  std::vector<const char*> owners;  // architectures and tasks that have the key; empty: all
};

std::span<const ConfigKey> config_keys();
// The values of `optimizer`, of the training and of its groups.
const std::vector<std::string>& optimizer_names();
FieldValue field_value(const ConfigKey& key, const Config& config);
// Checks type, range and choices; a message without place, or "" when the value is stored. Whole numbers are real, too.
std::string assign_field(const ConfigKey& key, Config& config, FieldValue value);

// The keys that a name of the user stands for: one, or several for a short form such as num_layers. `section` is empty
// for a name given without one. An unknown name sets `problem`, which holds the nearest right one.
std::vector<const ConfigKey*> find_keys(std::string_view section, std::string_view name, std::string& problem);
// The same for what was given after --set, "key=value", as set_value() reads it. Empty when there is no such key.
std::vector<const ConfigKey*> keys_of_setting(const std::string& key_and_value);
std::span<const char* const> section_names();
bool is_section(std::string_view name);
bool is_short_form(std::string_view section, std::string_view name);

// As TOML and messages write it: 1e-09, "text", true.
std::string value_text(const FieldValue& value);
std::string choices_text(std::span<const std::string> choices);  // one of "bleu", "loss"
// "at least 1", "one of "bleu", "loss"", or empty when any value of the type will do.
std::string range_text(const ConfigKey& key);

}  // namespace linnet
