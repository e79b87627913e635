#include "models/families/decoder_family.h"

namespace linnet {
namespace {
using Kind = RopeScaling::Kind;
constexpr std::array<std::pair<const char*, Kind>, 7> kRopeTypes{
    {{"default", Kind::kNone}, {"linear", Kind::kLinear}, {"llama3", Kind::kLlama3}, {"longrope", Kind::kDivided},
        {"yarn", Kind::kYarn}, {"su", Kind::kDivided},  // what the first folders of Phi-3 call longrope
        {"dynamic", Kind::kNone}}};                     // which scales only texts longer than max_position_embeddings
constexpr const char* kOriginal = "original_max_position_embeddings";

// The default original length is the model's; the other defaults are Llama 3's.
Fields<RopeScaling> blended_fields(int64_t length, const char* low = "low_freq_factor", double low_standard = 1,
    const char* high = "high_freq_factor", double high_standard = 4) {
  return {positive(low, &RopeScaling::low_factor, low_standard),
      positive(high, &RopeScaling::high_factor, high_standard),
      {[=](const ConfigFile& file, RopeScaling& scaling) {
         scaling.original_length = static_cast<double>(file.size(kOriginal, length));
         if (!(scaling.high_factor > scaling.low_factor)) file.fail("\"", high, "\" is not larger than \"", low, "\"");
       },
          [](const RopeScaling& scaling, ConfigFile& file) {
            file.set(kOriginal, static_cast<int64_t>(scaling.original_length));
          }}};
}

Fields<RopeScaling> yarn_fields(int64_t length) {
  Fields<RopeScaling> fields = blended_fields(length, "beta_slow", 1, "beta_fast", 32);
  fields.push_back(field("truncate", &RopeScaling::whole_pairs, true));
  fields.push_back({[=](const ConfigFile& file, RopeScaling& scaling) {
                      scaling.factor =
                          positive_of(file, "factor", static_cast<double>(length) / scaling.original_length);
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
  if (keys.share && config.rotary->share != keys.standard_share) file.set(keys.share, config.rotary->share);
  const RopeScaling& scaling = config.rotary->scaling;
  if (scaling.kind == Kind::kNone) return;
  ConfigFile rope;
  rope.set("rope_type", kRopeTypes[index_of<Kind>(kRopeTypes, scaling.kind)].first);
  rope.set("factor", scaling.factor);
  if (scaling.kind == Kind::kLlama3) write_fields(blended_fields(config.max_seq_len), scaling, rope);
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

constexpr const char* kWindow = "sliding_window";

void read_layer_types(
    const ConfigFile& file, DecoderConfig& config, int64_t window, FunctionRef<bool(int64_t layer)> is_sliding) {
  config.layer_kinds.clear();
  for (const bool slides : sliding_layers(file, config.layers, is_sliding))
    config.layer_kinds.push_back({slides ? window : 0, config.rotary});
}

void write_layer_types(const DecoderConfig& config, ConfigFile& file) {
  std::vector<std::string> types;
  int64_t size = 0;
  for (const LayerKind& kind : config.layer_kinds)
    types.emplace_back(kind.window > 0 ? kSlidingLayer : kFullLayer), size = std::max(size, kind.window);
  file.set(kLayerTypes, types);
  if (size > 0) file.set(kWindow, size);
}
}  // namespace

std::shared_ptr<const Family> decoder_family(FamilyTable<DecoderConfig> table) {
  if (!table.names) table.names = DecoderNames{};
  return std::make_shared<DecoderFamily>(std::move(table));
}

std::vector<Architecture> decoder_architectures(const std::string& name) {
  return {{name + "ForCausalLM", ModelHead::kTokens}, {name + "Model", ModelHead::kNone}};
}

// A model without a head is treated as one with a tied head.
std::unique_ptr<Module> make_model(const DecoderConfig& config, const ConfigFile&, ModelHead head) {
  DecoderConfig with_head = config;
  with_head.tied_head = config.tied_head || head == ModelHead::kNone;
  return std::make_unique<TextDecoder>(with_head);
}

Field<DecoderConfig> bias_fields() {
  return all_of<DecoderConfig>(
      {biases("attention_bias", {&Biases::attention, &Biases::output}), biases("mlp_bias", {&Biases::feed_forward})});
}

Fields<DecoderConfig> llama_fields(const Fields<DecoderConfig>& more, const RotaryKeys& keys) {
  using C = DecoderConfig;
  return Fields<C>{field("vocab_size", &C::vocab_size, kSizes),
             field("max_position_embeddings", &C::max_seq_len, kSizes, 2048), field("hidden_size", &C::width, kWidths),
             field("intermediate_size", &C::hidden, kSizes), field("num_hidden_layers", &C::layers, kLayers),
             field("num_attention_heads", &C::heads, kSizes),
             multiple("hidden_size", &C::width, "num_attention_heads", &C::heads, /*unless=*/"head_dim"),
             field("num_key_value_heads", &C::kv_heads, kSizes, &C::heads),
             multiple("num_attention_heads", &C::heads, "num_key_value_heads", &C::kv_heads),
             field("head_dim", &C::head_size, kSizes, [](const C& config) { return config.width / config.heads; }),
             field("hidden_act", &C::activation, kActivations, Activation::kSilu),
             positive("rms_norm_eps", &C::epsilon, 1e-6), rotary_field(keys), whole_pairs_field(),
             probability("attention_dropout", &C::attention_dropout, 0, &C::dropout),
             number("initializer_range", &C::deviation, 0.02), field("tie_word_embeddings", &C::tied_head, false)} +
         more;
}

Field<DecoderConfig> window_field(int64_t standard) {
  constexpr const char* kKey = "sliding_window";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            config.window = file.has(kKey) ? integer_in(file, kKey, kSizes) : file.mentions(kKey) ? 0 : standard;
            if (config.window >= config.max_seq_len) config.window = 0;  // it hides nothing
          },
      [=](const DecoderConfig& config, ConfigFile& file) {
        config.window > 0 ? file.set(kKey, config.window) : file.set_null(kKey);
      }};
}

Field<DecoderConfig> upper_windows_field() {
  constexpr const char* kUsed = "use_sliding_window";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            if (!file.flag(kUsed, false)) return;
            const int64_t first = file.integer("max_window_layers", 28);
            read_layer_types(file, config, file.size(kWindow, 4096), [&](int64_t layer) { return layer >= first; });
            if (std::ranges::none_of(config.layer_kinds, [](const LayerKind& kind) { return kind.window > 0; }))
              config.layer_kinds.clear();
          },
      [=](const DecoderConfig& config, ConfigFile& file) {
        if (config.layer_kinds.empty()) return;
        file.set(kUsed, true);
        write_layer_types(config, file);
      }};
}

Field<DecoderConfig> expert_fields(const char* count) {
  using C = DecoderConfig;
  const auto check = [=](const ConfigFile& file, C& config) {
    if (config.chosen_experts > config.experts) file.fail("\"num_experts_per_tok\" is more than \"", count, "\"");
  };
  const auto name_in = [=](const ConfigFile& file) {
    constexpr const char* kOther = "num_local_experts";
    return !file.has(count) && file.has(kOther) ? kOther : count;
  };
  return all_of<C>(
      {{[=](const ConfigFile& file, C& config) { config.experts = integer_in(file, name_in(file), kLayers); },
           [=](const C& config, ConfigFile& file) { file.set(name_in(file), config.experts); }},
          field("num_experts_per_tok", &C::chosen_experts, kLayers), {check},
          number("router_aux_loss_coef", &C::load_loss, 0.001)});
}

Field<DecoderConfig> layer_types_field(int64_t window, int64_t period) {
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            const int64_t size = file.has(kWindow) ? integer_in(file, kWindow, kSizes) : window;
            const int64_t every = file.size("sliding_window_pattern", period);
            read_layer_types(file, config, size, [&](int64_t layer) { return (layer + 1) % every != 0; });
          },
      write_layer_types};
}

NameTable DecoderNames::operator()(const DecoderConfig& config, ModelHead, const Module& model) const {
  static const NamePatterns kLlama = {{"tokens", "^embed_tokens"}, {"positions", "^embed_positions"},
      {"project_in", "^project_in"}, {"project_out", "^project_out"}, {"*.norm1", "input_layernorm"},
      {"*.norm2", "post_attention_layernorm"}, {"*.result_norm1", "post_attention_layernorm"},
      {"*.result_norm2", "post_feedforward_layernorm"},
      {"*.self_attn.in_proj", "self_attn.q_proj self_attn.k_proj self_attn.v_proj"},
      {"*.self_attn.query_norm", "self_attn.q_norm"}, {"*.self_attn.key_norm", "self_attn.k_norm"},
      {"*.self_attn.out_proj", "self_attn.o_proj"}, {"*.experts.router", "mlp.gate"},
      {"*.experts.linear1", "mlp.experts.#.gate_proj mlp.experts.#.up_proj"},
      {"*.experts.linear2", "mlp.experts.#.down_proj"}, {"*.linear1", "mlp.gate_proj"}, {"*.linear3", "mlp.up_proj"},
      {"*.linear2", "mlp.down_proj"}, {"norm", "^norm"},
      {"head", "lm_head.weight", TensorForm::kSame, TensorRole::kHead},
      {"tokens.weight", "lm_head.weight", TensorForm::kSame, TensorRole::kCopy}};
  NameTable table{.prefix = prefix, .old_beginnings = old_beginnings, .computed = computed, .other_heads = other_heads};
  const int64_t size = config.head_size > 0 ? config.head_size : config.width / config.heads;
  table.add(model, in_full(with(kLlama, own), prefix + inside, "layers.*.", "^" + layers),
      {.query_width = config.heads * size, .heads = config.heads, .width = config.width, .experts = config.experts});
  return table;
}

DecoderConfig decoder_config(const ConfigFile& file) { return find_family_as<DecoderFamily>(file).read(file); }

ConfigFile decoder_config_file(const std::string& model_type, const DecoderConfig& config) {
  DecoderConfig written = config;
  if (written.kv_heads == 0) written.kv_heads = written.heads;  // families differ in what an absent key means
  return find_family_as<DecoderFamily>(model_type).write(written, ModelHead::kTokens);
}

RotaryConfig read_rotary(const ConfigFile& rope, DecoderConfig& config, const RotaryConfig& standard) {
  RotaryConfig rotary = standard;
  rotary.theta = positive_of(rope, "rope_theta", standard.theta);
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
  if (scaling.kind == Kind::kLlama3) read_fields(blended_fields(config.max_seq_len), rope, scaling);
  return rotary;
}

Field<DecoderConfig> rotary_field(const RotaryKeys& keys) {
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            ConfigFile rope = file.object(file.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
            if (file.has(kOriginal) && !rope.has(kOriginal)) rope.set(kOriginal, integer_in(file, kOriginal, kSizes));
            config.rotary = read_rotary(rope, config, {.theta = positive_of(file, keys.theta, keys.standard_theta)});
            if (!keys.share) return;
            const double share = positive_of(file, keys.share, keys.standard_share);
            config.rotary->share = positive_of(rope, "partial_rotary_factor", share);
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
      if (2 * std::ssize(*divisors) != turned) file.fail("\"", key, "\" needs ", turned / 2, " numbers");
  }};
}
}  // namespace linnet
