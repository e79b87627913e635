// Tables that map config.json's keys to members of a struct, for reading, checking and writing.
//
//   const Fields<DecoderConfig> kFields{
//       field("hidden_size", &DecoderConfig::width, kWidths),
//       field("num_key_value_heads", &DecoderConfig::kv_heads, kSizes, &DecoderConfig::heads),  // absent: as many
//       field("hidden_act", &DecoderConfig::activation, kActivations, Activation::kSilu),
//       positive("rms_norm_eps", &DecoderConfig::epsilon, 1e-6),
//       fixed("attention_bias", false)};  // any other value is refused
//
// Fields are read in the table's order, so defaults may depend on earlier ones. All errors are user errors that name
// file and key.
#pragma once
#include "models/families/config_file.h"
#include "models/modules/blocks.h"

namespace linnet {
template <class Config> struct Field {
  std::function<void(const ConfigFile&, Config&)> read;
  std::function<void(const Config&, ConfigFile&)> write = nullptr;  // none: the key is not written
};
template <class Config> using Fields = std::vector<Field<Config>>;

template <class Config> void read_fields(const Fields<Config>& fields, const ConfigFile& file, Config& config) {
  for (const Field<Config>& field : fields) field.read(file, config);
}
template <class Config> void write_fields(const Fields<Config>& fields, const Config& config, ConfigFile& file) {
  for (const Field<Config>& field : fields)
    if (field.write) field.write(config, file);
}
template <class Config>
Fields<Config> operator+(Fields<Config> fields, const std::type_identity_t<Fields<Config>>& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}
template <class Config> Field<Config> all_of(Fields<Config> fields) {
  return {[=](const ConfigFile& file, Config& config) { read_fields(fields, file, config); },
      [=](const Config& config, ConfigFile& file) { write_fields(fields, config, file); }};
}

struct Range {
  int64_t least, most;
};
constexpr Range kSizes{1, INT64_C(1) << 30}, kWidths{1, INT64_C(1) << 18};
constexpr Range kLayers{1, 1'000};           // each takes time and memory to make
constexpr Range kEncoderLayers{0, 1'000};    // 0: the embeddings alone
constexpr Range kIds{INT64_MIN, INT64_MAX};  // of tokens; negative: none, not written
int64_t integer_in(const ConfigFile& file, const std::string& key, const Range& range);

// The default for an absent key, computed from what was read before.
template <class Config> using Standard = std::type_identity_t<std::function<int64_t(const Config&)>>;

// A required integer.
template <class Config> Field<Config> field(const char* key, int64_t Config::*member, Range range) {
  return {[=](const ConfigFile& file, Config& config) { config.*member = integer_in(file, key, range); },
      [=](const Config& config, ConfigFile& file) { file.set(key, config.*member); }};
}
// An optional integer. An unset member (0) is written as the default.
template <class Config>
Field<Config> field(const char* key, int64_t Config::*member, Range range, Standard<Config> standard) {
  return {[=](const ConfigFile& file, Config& config) {
            config.*member = file.has(key) ? integer_in(file, key, range) : standard(config);
          },
      [=](const Config& config, ConfigFile& file) {
        const int64_t value = config.*member == 0 && range.least > 0 ? standard(config) : config.*member;
        if (value >= 0) file.set(key, value);
      }};
}
template <class Config>
Field<Config> field(const char* key, int64_t Config::*member, Range range, int64_t Config::*standard) {
  return field(key, member, range, Standard<Config>([=](const Config& config) { return config.*standard; }));
}
template <class Config> Field<Config> field(const char* key, int64_t Config::*member, Range range, int standard) {
  return field(key, member, range, Standard<Config>([=](const Config&) { return standard; }));
}

template <class Config> Field<Config> field(const char* key, bool Config::*member, bool standard) {
  return {[=](const ConfigFile& file, Config& config) { config.*member = file.flag(key, standard); },
      [=](const Config& config, ConfigFile& file) { file.set(key, config.*member); }};
}

// A flag of some biases, all of which have one or none.
struct BiasFlag {
  const char* key;
  std::vector<bool Biases::*> members;
  bool standard;
  template <class Config> operator Field<Config>() const {  // NOLINT: a row of any table
    return {[*this](const ConfigFile& file, Config& config) {
              for (bool Biases::*member : members) config.biases.*member = file.flag(key, standard);
            },
        [*this](const Config& config, ConfigFile& file) { file.set(key, config.biases.*members[0]); }};
  }
};
inline BiasFlag biases(const char* key, std::vector<bool Biases::*> members, bool standard = false) {
  return {key, std::move(members), standard};
}

// A width; 0 stands for that of the layers, which is then written.
template <class Config> Field<Config> other_width(
    const char* key, int64_t Config::*member, int64_t Config::*of_layers, Standard<Config> standard) {
  return {[=](const ConfigFile& file, Config& config) {
            const int64_t width = file.has(key) ? integer_in(file, key, kWidths) : standard(config);
            config.*member = width == config.*of_layers ? 0 : width;
          },
      [=](const Config& config, ConfigFile& file) {
        file.set(key, config.*member > 0 ? config.*member : config.*of_layers);
      }};
}

// A word for each value of an enumeration. Of several words for one value, the first is written.
template <class Value> using Words = std::span<const std::pair<const char*, Value>>;
extern const Words<Activation> kActivations;
// The index of the file's word among `words`; `standard` if the key is absent.
size_t word_index(
    const ConfigFile& file, const std::string& key, const std::vector<const char*>& words, size_t standard);

template <class Value> size_t index_of(Words<Value> words, Value value) {
  size_t i = 0;
  while (i + 1 < words.size() && words[i].second != value) ++i;
  return i;
}
template <class Value> Value read_word(const ConfigFile& file, const char* key, Words<Value> words, Value standard) {
  const auto names = mapped(words, [](const auto& word) { return word.first; });
  return words[word_index(file, key, names, index_of(words, standard))].second;
}
template <class Config, class Value> Field<Config> field(const char* key, Value Config::*member,
    std::type_identity_t<Words<Value>> words, std::type_identity_t<Value> standard) {
  return {[=](const ConfigFile& file, Config& config) { config.*member = read_word(file, key, words, standard); },
      [=](const Config& config, ConfigFile& file) { file.set(key, words[index_of(words, config.*member)].first); }};
}

double positive_of(const ConfigFile& file, const std::string& key, double standard);     // more than 0
double probability_of(const ConfigFile& file, const std::string& key, double standard);  // in [0, 1)

template <class Config> Field<Config> number(const char* key, double Config::*member, double standard,
    double (*of)(const ConfigFile&, const std::string&, double) = nullptr) {
  return {[=](const ConfigFile& file, Config& config) {
            config.*member = of ? of(file, key, standard) : file.number(key, standard);
          },
      [=](const Config& config, ConfigFile& file) { file.set(key, config.*member); }};
}
template <class Config> Field<Config> positive(const char* key, double Config::*member, double standard) {
  return number(key, member, standard, positive_of);
}
template <class Config> Field<Config> probability(const char* key, double Config::*member, double standard) {
  return number(key, member, standard, probability_of);
}
// An empty member stands for `common`.
template <class Config> Field<Config> probability(
    const char* key, std::optional<double> Config::*member, double standard, double Config::*common) {
  return {[=](const ConfigFile& file, Config& config) { config.*member = probability_of(file, key, standard); },
      [=](const Config& config, ConfigFile& file) { file.set(key, (config.*member).value_or(config.*common)); }};
}

// A key that must have this value or be absent. It is not written.
template <class Value> struct FixedKey {
  const char* key;
  Value value;
  template <class Config> operator Field<Config>() const {  // NOLINT: a row of any table
    return {[*this](const ConfigFile& file, Config&) {
      if constexpr (std::is_same_v<Value, bool>) file.require_flag(key, value);
      else file.choice(key, {value});
    }};
  }
};
template <class Value> FixedKey<Value> fixed(const char* key, Value value) { return {key, value}; }

// A key written for other programs and not read.
template <class Value> struct WrittenKey {
  const char* key;
  Value value;
  template <class Config> operator Field<Config>() const {  // NOLINT
    return {[](const ConfigFile&, Config&) {}, [*this](const Config&, ConfigFile& file) { file.set(key, value); }};
  }
};
template <class Value> WrittenKey<Value> written(const char* key, Value value) { return {key, value}; }

constexpr const char *kLayerTypes = "layer_types", *kSlidingLayer = "sliding_attention", *kFullLayer = "full_attention";
// Which layers have a window: by "layer_types" or, if it is absent, as `otherwise` says.
std::vector<bool> sliding_layers(const ConfigFile& file, int64_t layers, FunctionRef<bool(int64_t layer)> otherwise);

// A member must be a multiple of another one, read before from key `of`; not checked if the file has `unless`.
void check_multiple(const ConfigFile& file, const char* key, int64_t value, const char* of, int64_t divisor);
template <class Config> Field<Config> multiple(
    const char* key, int64_t Config::*member, const char* of, int64_t Config::*divisor, const char* unless = "") {
  return {[=](const ConfigFile& file, Config& config) {
    if (!file.has(unless)) check_multiple(file, key, config.*member, of, config.*divisor);
  }};
}

// The keys of a model's width, of its heads, which divide it, of its layers and, unless null, of the feed-forward.
struct SizeKeys {
  const char *width = "hidden_size", *heads = "num_attention_heads", *layers = "num_hidden_layers",
             *hidden = "intermediate_size";
};
template <class Config> Field<Config> size_fields(const SizeKeys& keys = {}, Range layers = kLayers) {
  Fields<Config> fields{field(keys.width, &Config::width, kWidths), field(keys.heads, &Config::heads, kSizes),
      multiple(keys.width, &Config::width, keys.heads, &Config::heads), field(keys.layers, &Config::layers, layers)};
  if (keys.hidden) fields.push_back(field(keys.hidden, &Config::hidden, kSizes));
  return all_of(std::move(fields));
}
}  // namespace linnet
