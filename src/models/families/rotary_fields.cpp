// What config.json says of rotary positions.
#include <array>
#include <cmath>
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

using Kind = RopeScaling::Kind;
constexpr std::array<std::pair<const char*, Kind>, 7> kRopeTypes{
    {{"default", Kind::kNone},
     {"linear", Kind::kLinear},
     {"llama3", Kind::kLlama3},
     {"longrope", Kind::kDivided},
     {"yarn", Kind::kYarn},
     {"su", Kind::kDivided},      // what the first folders of Phi-3 call longrope
     {"dynamic", Kind::kNone}}};  // which scales only texts longer than max_position_embeddings
constexpr const char* kOriginal = "original_max_position_embeddings";

// The numbers of turns in the original context between which frequencies are blended.
Fields<RopeScaling> blended_fields(const char* low, double low_standard, const char* high, double high_standard,
                                   int64_t original) {
  return {positive(low, &RopeScaling::low_factor, low_standard),
          positive(high, &RopeScaling::high_factor, high_standard),
          {[=](const ConfigFile& file, RopeScaling& scaling) {
             scaling.original_length =
                 static_cast<double>(file.has(kOriginal) ? integer_in(file, kOriginal, kSizes) : original);
             if (!(scaling.high_factor > scaling.low_factor))
               file.fail("\"" + std::string(high) + "\" is not larger than \"" + low + "\"");
           },
           [](const RopeScaling& scaling, ConfigFile& file) {
             file.set(kOriginal, static_cast<int64_t>(scaling.original_length));
           }}};
}

Fields<RopeScaling> llama3_fields() { return blended_fields("low_freq_factor", 1, "high_freq_factor", 4, 8192); }

// Without the original length in the file, it is the model's.
Fields<RopeScaling> yarn_fields(int64_t length) {
  Fields<RopeScaling> fields = blended_fields("beta_slow", 1, "beta_fast", 32, length);
  fields.push_back(field("truncate", &RopeScaling::whole_pairs, true));
  fields.push_back(
      {[=](const ConfigFile& file, RopeScaling& scaling) {
         scaling.factor = positive_of(file, "factor", static_cast<double>(length) / scaling.original_length);
         const auto magnitude = [&](double share) {
           return scaling.factor <= 1 ? 1 : 0.1 * share * std::log(scaling.factor) + 1;
         };
         const double some = file.number("mscale", 0), all = file.number("mscale_all_dim", 0);
         scaling.magnitude = some != 0 && all != 0 ? magnitude(some) / magnitude(all) : magnitude(1);
         scaling.magnitude = positive_of(file, "attention_factor", scaling.magnitude);
       },
       [](const RopeScaling& scaling, ConfigFile& file) { file.set("attention_factor", scaling.magnitude); }});
  return fields;
}

void read_longrope(const ConfigFile& rope, const DecoderConfig& config, RotaryConfig& rotary) {
  RopeScaling& scaling = rotary.scaling;
  const int64_t original = rope.has(kOriginal) ? integer_in(rope, kOriginal, kSizes) : config.max_seq_len;
  for (const double divisor : rope.numbers("short_factor")) scaling.divisors.push_back(static_cast<float>(divisor));
  for (const double divisor : rope.numbers("long_factor")) rotary.long_divisors.push_back(static_cast<float>(divisor));
  const double longer = rope.number("factor", static_cast<double>(config.max_seq_len) / static_cast<double>(original));
  scaling.magnitude = longer <= 1 ? 1 : std::sqrt(1 + std::log(longer) / std::log(static_cast<double>(original)));
  scaling.magnitude = rope.number("attention_factor", scaling.magnitude);
  scaling.original_length = static_cast<double>(original);
}

void write_rotary(const DecoderConfig& config, const RotaryKeys& keys, ConfigFile& file) {
  file.set(keys.theta, config.rotary->theta);
  if (config.rotary->share != keys.standard_share) file.set(keys.share, config.rotary->share);
  const RopeScaling& scaling = config.rotary->scaling;
  if (scaling.kind == Kind::kNone) return;
  ConfigFile rope;
  rope.set("rope_type", kRopeTypes[index_of<Kind>(kRopeTypes, scaling.kind)].first);
  rope.set("factor", scaling.factor);
  if (scaling.kind == Kind::kLlama3) write_fields(llama3_fields(), scaling, rope);
  if (scaling.kind == Kind::kYarn) write_fields(yarn_fields(config.max_seq_len), scaling, rope);
  if (scaling.kind == Kind::kDivided) {
    const auto set = [&rope](const char* key, const std::vector<float>& divisors) {
      rope.set(key, std::vector<double>(divisors.begin(), divisors.end()));
    };
    set("short_factor", scaling.divisors), set("long_factor", config.rotary->long_divisors);
    rope.set("attention_factor", scaling.magnitude);
    rope.set(kOriginal, static_cast<int64_t>(scaling.original_length));
  }
  file.set("rope_scaling", rope);
}

}  // namespace

RotaryConfig read_rotary(const ConfigFile& rope, DecoderConfig& config, const RotaryConfig& standard) {
  RotaryConfig rotary = standard;
  rotary.theta = positive_of(rope, "rope_theta", standard.theta);
  rotary.share = positive_of(rope, "partial_rotary_factor", standard.share);
  RopeScaling& scaling = rotary.scaling;
  scaling.kind = read_word<Kind>(rope, rope.has("rope_type") ? "rope_type" : "type", kRopeTypes, Kind::kNone);
  if (scaling.kind == Kind::kNone) return rotary;
  if (scaling.kind == Kind::kDivided) {
    read_longrope(rope, config, rotary);
    return rotary;
  }
  if (scaling.kind == Kind::kYarn) {
    read_fields(yarn_fields(config.max_seq_len), rope, scaling);
    return rotary;
  }
  scaling.factor = positive_of(rope, "factor", 1);
  if (scaling.kind == Kind::kLlama3) read_fields(llama3_fields(), rope, scaling);
  return rotary;
}

Field<DecoderConfig> rotary_field(const RotaryKeys& keys) {
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            ConfigFile rope = file.object(file.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
            if (file.has(kOriginal) && !rope.has(kOriginal)) rope.set(kOriginal, integer_in(file, kOriginal, kSizes));
            const RotaryConfig standard{.theta = positive_of(file, keys.theta, keys.standard_theta),
                                        .share = positive_of(file, keys.share, keys.standard_share)};
            config.rotary = read_rotary(rope, config, standard);
          },
          [=](const DecoderConfig& config, ConfigFile& file) { write_rotary(config, keys, file); }};
}

Field<DecoderConfig> whole_pairs_field() {
  return {[](const ConfigFile& file, DecoderConfig& config) {
    const auto size = static_cast<double>(config.head_size);
    const auto turned = static_cast<int64_t>(size * config.rotary->share);
    if (turned % 2 != 0 || turned < 2 || turned > config.head_size)
      file.fail(turned == config.head_size
                    ? "heads of " + std::to_string(turned) + " elements have no two halves to turn"
                    : std::to_string(turned) + " elements of each head have no two halves to turn");
    config.rotary->share = static_cast<double>(turned) / size;
    if (config.rotary->scaling.kind != RopeScaling::Kind::kDivided) return;
    for (const auto& [key, divisors] : {std::pair("short_factor", &config.rotary->scaling.divisors),
                                        std::pair("long_factor", &config.rotary->long_divisors)})
      if (2 * std::ssize(*divisors) != turned)
        file.fail("\"" + std::string(key) + "\" needs " + std::to_string(turned / 2) + " numbers");
  }};
}

}  // namespace linnet
