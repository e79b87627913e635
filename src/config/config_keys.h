// The table of all configuration keys with names, types, ranges and meaning.
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
  bool below_most = false;                // the range excludes `most`
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
const std::vector<std::string>& optimizer_names();
FieldValue field_value(const ConfigKey& key, const Config& config);
// Checks type, range and choices. Returns a message without location, or "" once stored. Whole numbers are valid reals.
std::string assign_field(const ConfigKey& key, Config& config, FieldValue value);

// The keys that a user's name stands for: several for short forms such as num_layers. `section` may be empty. For an
// unknown name sets `problem`, with the nearest name.
std::vector<const ConfigKey*> find_keys(std::string_view section, std::string_view name, std::string& problem);
// The same for "key=value" after --set, as set_value() reads it. Empty if there is no such key.
std::vector<const ConfigKey*> keys_of_setting(const std::string& key_and_value);
std::span<const char* const> section_names();
bool is_section(std::string_view name);
bool is_short_form(std::string_view section, std::string_view name);

std::string value_text(const FieldValue& value);                 // as in TOML and messages: 1e-09, "text", true
std::string choices_text(std::span<const std::string> choices);  // one of "bleu", "loss"
// "at least 1", "one of "bleu", "loss"", or empty if any value of the type is valid.
std::string range_text(const ConfigKey& key);
}  // namespace linnet
