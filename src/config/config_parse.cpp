// Reads TOML and --set into a Config.
#include <algorithm>
#include <array>
#include <map>
#include "base/fail.h"
#include "base/files.h"
#include "base/functions.h"
#include "base/numbers.h"
#include "base/text.h"
#include "config/config.h"
#include "config/config_keys.h"
#include "config/hints.h"
#include "data/text/unicode/utf8.h"

#define TOML_ENABLE_FORMATTERS 0
#if __has_include(<toml++/impl/unicode.hpp>)  // 3.4
#include <toml++/impl/forward_declarations.hpp>
#else
#include <toml++/impl/forward_declarations.h>
#endif
// toml++ treats U+00A1 to U+0499 outside strings as unreachable (is_non_ascii_horizontal_whitespace), so that an umlaut
// in a key would be undefined behavior. Here they are "no white space".
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#if __has_include(<toml++/impl/unicode.hpp>)
#include <toml++/impl/unicode.hpp>
#else
#include <toml++/impl/unicode.h>
#endif
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE __builtin_unreachable()
#include <toml++/toml.h>

namespace linnet {
namespace {
std::string near_preset(const std::string& name) {
  const std::string near = nearest(name, mapped<std::string>(presets(), &Preset::name));
  return near.empty() ? " (`linnet presets` lists the presets)" : " (did you mean the preset \"" + near + "\"?)";
}

class TomlReader {
 public:
  TomlReader(const std::string& name, Config& config) : name_(name), config_(config) {}

  // Short forms first: num_layers = 6 beside num_decoder_layers = 2 sets the latter in any line order.
  void read(const toml::table& table) {
    for (const bool short_forms : {true, false})
      for (const auto& [key, node] : table) {
        const toml::table* section = is_section(key.str()) ? node.as_table() : nullptr;
        if (!section) read_key("", key, node, short_forms);
        else
          for (const auto& [inner, value] : *section)
            if (key.str() != "train" || inner.str() != "groups")
              read_key(std::string(key.str()), inner, value, short_forms);
            else if (short_forms) read_groups(value, inner.source().begin.line);
      }
  }

  // Takes the line `preset = "classify"`, if any, out of the table: its values are the defaults of the others.
  bool begin_with_preset(toml::table& table) {
    const toml::node* node = table.get("preset");
    if (!node) return false;
    const std::string preset = node->value_or<std::string>("");
    if (!find_preset(preset))
      fail(node->source().begin.line, "there is no preset \"" + preset + "\"" + near_preset(preset));
    config_ = load_config(preset);
    table.erase("preset");
    return true;
  }

  bool sets(const char* key) const { return lines_.contains(key); }

  // Sets the model and metric to those of another task, unless given.
  void follow_task() {
    const TaskRow& task = task_row(config_);
    const std::string model = config_.model.from + "/config.json";  // for images, of transformers: a ViT's alone
    const bool is_vit = task.kind == TaskKind::kImages && file_exists(model) &&
                        read_input(model).find("\"model_type\"") != std::string::npos;
    if (!sets("architecture")) config_.model.architecture = is_vit ? "vit" : task.architectures.front();
    if (!sets("metric")) config_.train.metric = task.metrics.empty() ? "loss" : task.metrics.front();
  }

 private:
  [[noreturn]] void fail(toml::source_index line, const std::string& problem) const {
    fail_user(name_, ":", line, ": ", problem);
  }

  void read_key(const std::string& section, const toml::key& key, const toml::node& node, bool short_forms) {
    const toml::source_index line = key.source().begin.line;
    if (short_forms != is_short_form(section, key.str())) return;
    if (section.empty() && node.is_table()) {
      const std::vector<std::string> sections(section_names().begin(), section_names().end());
      fail(line, "unknown section [" + std::string(key.str()) + "]" + did_you_mean(key.str(), sections, "[", "]"));
    }
    std::string problem;
    const std::vector<const ConfigKey*> targets = find_keys(section, key.str(), problem);
    if (!problem.empty()) fail(line, problem);
    for (const ConfigKey* target : targets) {
      if (!short_forms) {
        const auto [earlier, first] = lines_.emplace(target->name, line);
        if (!first)
          fail(std::max(line, earlier->second), std::string("\"") + target->name + "\" is already set in line " +
                                                    std::to_string(std::min(line, earlier->second)));
      }
      problem = assign_field(*target, config_, value_of(*target, node, line));
      if (!problem.empty()) fail(line, problem);
    }
  }

  FieldValue value_of(const ConfigKey& key, const toml::node& node, toml::source_index line) const {
    if (const auto* whole = node.as_integer()) return FieldValue(std::in_place_type<int64_t>, whole->get());
    if (const auto* real = node.as_floating_point()) return FieldValue(std::in_place_type<double>, real->get());
    if (const auto* truth = node.as_boolean()) return FieldValue(std::in_place_type<bool>, truth->get());
    if (const auto* text = node.as_string()) return FieldValue(text->get());
    const char* what = node.is_array() ? "a list" : node.is_table() ? "a section" : "a date or time";
    fail(line, std::string("\"") + key.name + "\" must be a single value, not " + what);
  }

  void read_groups(const toml::node& node, toml::source_index line) {
    if (!node.is_array_of_tables() && !(node.is_array() && node.as_array()->empty()))
      fail(line, "\"groups\" must be written as [[train.groups]]");
    for (const toml::node& group : *node.as_array()) read_group(*group.as_table());
  }

  void read_group(const toml::table& table) {
    GroupConfig group;
    for (const auto& [key, value_node] : table) {
      const toml::node& node = value_node;
      const toml::source_index line = key.source().begin.line;
      const std::string_view name = key.str();
      const auto expect = [&](bool holds, const std::string& what) {
        if (!holds) fail(line, "\"" + std::string(name) + "\" of a group must be " + what);
      };
      const auto choice = [&](std::span<const std::string> choices) {
        const auto text = node.value<std::string>();
        expect(text && std::ranges::count(choices, *text) > 0, choices_text(choices));
        return *text;
      };
      const auto number = [&] {
        const auto value = node.value<double>();
        expect(value && *value >= 0 && *value <= 1e6, "a number from 0 to 1e6");
        return *value;
      };
      if (name == "parameters") {
        group.parameters = texts_of(node);
        expect(!group.parameters.empty(), "a pattern of names, or a list of some");
      } else if (name == "frozen") {
        expect(node.is_boolean(), "true or false");
        group.frozen = node.as_boolean()->get();
      } else if (name == "storage") {
        group.storage = choice(std::array<std::string, 4>{"fp32", "bf16", "int8", "int4"});
      } else if (name == "learning_rate_factor") {
        group.learning_rate_factor = number();
      } else if (name == "weight_decay") {
        group.weight_decay = number();
      } else if (name == "optimizer") {
        group.optimizer = choice(optimizer_names());
      } else {
        const std::string keys[] = {
            "parameters", "frozen", "storage", "learning_rate_factor", "weight_decay", "optimizer"};
        fail(line, "unknown key \"" + std::string(name) + "\" in [[train.groups]]" + did_you_mean(name, keys));
      }
    }
    const toml::source_index first = table.source().begin.line;
    if (group.parameters.empty()) fail(first, "a group of [[train.groups]] has no \"parameters\"");
    if (group.storage.starts_with("int") && !group.frozen)
      fail(first, "\"storage\" = \"" + group.storage +
                      "\" is for groups with frozen = true: what is trained is stored in fp32 or bf16");
    config_.train.groups.push_back(std::move(group));
  }

  static std::vector<std::string> texts_of(const toml::node& node) {
    if (const auto* text = node.as_string()) return {text->get()};
    std::vector<std::string> texts;
    if (const auto* list = node.as_array())
      for (const toml::node& element : *list) {
        if (!element.is_string()) return {};
        texts.push_back(element.as_string()->get());
      }
    return texts;
  }

  const std::string& name_;
  Config& config_;
  std::map<std::string, toml::source_index> lines_;
};

std::string without_blanks(std::string_view text) { return std::string(trimmed(text, " \t\r\n")); }

// The text after '=' as the key's type. Other text stays text; assign_field() reports what was expected.
FieldValue typed(const ConfigKey& key, const Config& config, const std::string& text) {
  const FieldValue current = field_value(key, config);
  if (std::holds_alternative<bool>(current) && (text == "true" || text == "false")) return text == "true";
  if (!std::holds_alternative<bool>(current) && !std::holds_alternative<std::string>(current)) {
    const std::string_view digits = std::string_view(text).substr(text.starts_with('+') ? 1 : 0);
    if (const auto whole = parse_number<int64_t>(digits)) return *whole;
    if (const auto real = parse_number<double>(digits)) return *real;
  }
  const bool quoted = text.size() >= 2 && (text[0] == '"' || text[0] == '\'') && text.back() == text[0];
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// Keys by a name that may include its section.
std::vector<const ConfigKey*> keys_of(std::string name, std::string& problem) {
  std::string section;
  if (const size_t dot = name.find('.'); dot != name.npos && is_section(name.substr(0, dot))) {
    section = name.substr(0, dot);
    name = name.substr(dot + 1);
  }
  return find_keys(section, name, problem);
}
}  // namespace

std::vector<const ConfigKey*> keys_of_setting(const std::string& key_and_value) {
  std::string problem;
  return keys_of(without_blanks(key_and_value.substr(0, key_and_value.find('='))), problem);
}

Config parse_config(std::string_view toml, const std::string& name) {
  Config config;
  try {
    toml::table table = toml::parse(toml);
    TomlReader reader(name, config);
    const bool begun = reader.begin_with_preset(table);
    reader.read(table);
    if (!begun || reader.sets("task")) reader.follow_task();
  } catch (const toml::parse_error& error) {
    fail_user(name, ":", error.source().begin.line, ": ", error.description());
  }
  return config;
}

Config load_config(const std::string& path_or_preset) {
  if (const Preset* preset = find_preset(path_or_preset)) return parse_config(preset->toml, preset->name);
  // "dates" may be a preset; "./dates" and "dates.toml" are files.
  if (path_or_preset.find_first_of("/.") == path_or_preset.npos && !file_exists(path_or_preset))
    fail_user("no preset and no file is called \"", path_or_preset, "\"", near_preset(path_or_preset));
  return parse_config(read_input(path_or_preset), path_or_preset);
}

void set_value(Config& config, const std::string& key_and_value, const std::string& shown) {
  const std::string where = (shown.empty() ? key_and_value : shown) + ": ";
  if (const size_t bad = invalid_utf8_at(key_and_value); bad != std::string::npos)
    fail_user("--set: byte ", bad + 1, " of its argument is not valid UTF-8");
  const size_t equals = key_and_value.find('=');
  if (equals == key_and_value.npos) fail_user(where, "expected key=value");
  const std::string value = without_blanks(key_and_value.substr(equals + 1));
  std::string problem;
  for (const ConfigKey* key : keys_of(without_blanks(key_and_value.substr(0, equals)), problem)) {
    problem = assign_field(*key, config, typed(*key, config, value));
    if (!problem.empty()) break;
    config.chosen.emplace_back(key->name);
    // Without adapters, those of a preset have no other settings.
    if (key->field(config) == FieldPointer(&config.lora.rank) && config.lora.rank == 0) config.lora = {};
  }
  if (!problem.empty()) fail_user(where + problem);
}
}  // namespace linnet
