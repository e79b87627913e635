#include "models/families/decoder_family.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace linnet {
namespace {

constexpr std::array<std::pair<const char*, RopeScaling::Kind>, 3> kRopeTypes{{{"default", RopeScaling::Kind::kNone},
                                                                               {"linear", RopeScaling::Kind::kLinear},
                                                                               {"llama3", RopeScaling::Kind::kLlama3}}};

const Fields<RopeScaling>& llama3_fields() {
  static const Fields<RopeScaling> fields{
      number("low_freq_factor", &RopeScaling::low_factor, 1),
      number("high_freq_factor", &RopeScaling::high_factor, 4),
      {[](const ConfigFile& file, RopeScaling& scaling) {
         constexpr const char* kKey = "original_max_position_embeddings";
         scaling.original_length = static_cast<double>(file.has(kKey) ? integer_in(file, kKey, kSizes) : 8192);
         if (!(scaling.high_factor > scaling.low_factor))
           file.fail("\"high_freq_factor\" is not larger than \"low_freq_factor\"");
       },
       [](const RopeScaling& scaling, ConfigFile& file) {
         file.set("original_max_position_embeddings", static_cast<int64_t>(scaling.original_length));
       }}};
  return fields;
}

// "rope_parameters" since version 5 of transformers; before that "rope_theta" and, where positions are scaled,
// "rope_scaling". Written in the older form, which all versions read.
void read_rotary(const ConfigFile& file, DecoderConfig& config) {
  const bool one = file.has("rope_parameters");
  const ConfigFile rope = file.object(one ? "rope_parameters" : "rope_scaling");
  config.rotary.emplace();
  config.rotary->theta = positive_of(one ? rope : file, "rope_theta", 1e4);
  RopeScaling& scaling = config.rotary->scaling;
  scaling.kind = read_word<RopeScaling::Kind>(rope, rope.has("rope_type") ? "rope_type" : "type", kRopeTypes,
                                              RopeScaling::Kind::kNone);
  if (scaling.kind == RopeScaling::Kind::kNone) return;
  scaling.factor = positive_of(rope, "factor", 1);
  if (scaling.kind == RopeScaling::Kind::kLlama3) read_fields(llama3_fields(), rope, scaling);
}

void write_rotary(const DecoderConfig& config, ConfigFile& file) {
  file.set("rope_theta", config.rotary->theta);
  const RopeScaling& scaling = config.rotary->scaling;
  if (scaling.kind == RopeScaling::Kind::kNone) return;
  ConfigFile rope;
  rope.set("rope_type", kRopeTypes[index_of<RopeScaling::Kind>(kRopeTypes, scaling.kind)].first);
  rope.set("factor", scaling.factor);
  if (scaling.kind == RopeScaling::Kind::kLlama3) write_fields(llama3_fields(), scaling, rope);
  file.set("rope_scaling", rope);
}

void check_halves(const ConfigFile& file, DecoderConfig& config) {
  if (config.head_size % 2 != 0)
    file.fail("heads of " + std::to_string(config.head_size) + " elements have no two halves to turn");
}

}  // namespace

std::vector<Architecture> decoder_architectures(const char* with_head, const char* bare) {
  return {{with_head, ModelHead::kTokens}, {bare, ModelHead::kNone}};
}

bool has_tied_head(const DecoderConfig& config, ModelHead head) { return config.tied_head || head == ModelHead::kNone; }

std::unique_ptr<Module> make_decoder(const DecoderConfig& config, const ConfigFile&, ModelHead head) {
  DecoderConfig with_head = config;
  with_head.tied_head = has_tied_head(config, head);
  return std::make_unique<TextDecoder>(with_head);
}

Fields<DecoderConfig> llama_fields() {
  using C = DecoderConfig;
  return {field("vocab_size", &C::vocab_size, kSizes),
          field("max_position_embeddings", &C::max_seq_len, kSizes, 2048),
          field("hidden_size", &C::width, kWidths),
          field("intermediate_size", &C::hidden, kSizes),
          field("num_hidden_layers", &C::layers, kLayers),
          field("num_attention_heads", &C::heads, kSizes),
          multiple("hidden_size", &C::width, "num_attention_heads", &C::heads, /*unless=*/"head_dim"),
          field("num_key_value_heads", &C::kv_heads, kSizes, &C::heads),
          multiple("num_attention_heads", &C::heads, "num_key_value_heads", &C::kv_heads),
          field("head_dim", &C::head_size, kSizes, [](const C& config) { return config.width / config.heads; }),
          {check_halves},
          field("hidden_act", &C::activation, kActivations, Activation::kSilu),
          positive("rms_norm_eps", &C::epsilon, 1e-6),
          {read_rotary, write_rotary},
          probability("attention_dropout", &C::attention_dropout, 0, &C::dropout),
          number("initializer_range", &C::deviation, 0.02),
          field("tie_word_embeddings", &C::tied_head, false)};
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

// Layers from "max_window_layers" on would see a window only, those before it all.
Field<DecoderConfig> no_window_field() {
  return {[](const ConfigFile& file, DecoderConfig& config) {
    const std::vector<std::string> types = file.texts("layer_types");
    const bool windows = types.empty() ? file.integer("max_window_layers", 28) < config.layers
                                       : std::ranges::find(types, "sliding_attention") != types.end();
    if (windows) file.require_flag("use_sliding_window", false);
  }};
}

NameTable llama_names(const DecoderConfig& config, ModelHead head) {
  const int64_t size = config.head_size, query_width = config.heads * size, key_width = config.kv_heads * size;
  NameTable table;
  table.prefix = "model.";
  const auto add_linear = [&](const std::string& theirs, const std::string& ours, bool bias) {
    table.add(theirs + ".weight", ours + ".weight");
    if (bias) table.add(theirs + ".bias", ours + ".bias");
  };
  table.add("model.embed_tokens.weight", "tokens.weight");
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string theirs = "model.layers." + std::to_string(i) + ".", ours = "layers." + std::to_string(i) + ".";
    const std::string attention = theirs + "self_attn.";
    table.add(theirs + "input_layernorm.weight", ours + "norm1.weight");
    table.add_stacked({attention + "q_proj", attention + "k_proj", attention + "v_proj"},
                      {query_width, key_width, key_width}, ours + "self_attn.in_proj", config.biases.attention);
    if (config.head_norms) {
      table.add(attention + "q_norm.weight", ours + "self_attn.query_norm.weight");
      table.add(attention + "k_norm.weight", ours + "self_attn.key_norm.weight");
    }
    add_linear(attention + "o_proj", ours + "self_attn.out_proj", config.biases.output);
    table.add(theirs + "post_attention_layernorm.weight", ours + "norm2.weight");
    add_linear(theirs + "mlp.gate_proj", ours + "linear1", config.biases.feed_forward);
    add_linear(theirs + "mlp.up_proj", ours + "linear3", config.biases.feed_forward);
    add_linear(theirs + "mlp.down_proj", ours + "linear2", config.biases.feed_forward);
  }
  table.add("model.norm.weight", "norm.weight");
  if (has_tied_head(config, head))
    table.add_copy("lm_head.weight", "tokens.weight");
  else
    table.add("lm_head.weight", "head", TensorForm::kSame, TensorRole::kHead);
  table.computed = {"layers.*.self_attn.rotary_emb.inv_freq"};
  return table;
}

namespace {

const DecoderFamily& decoder_family(const Family& family) {
  if (family.kind != FamilyKind::kDecoder) fail_internal(std::string(family.model_type) + " is no decoder");
  return static_cast<const DecoderFamily&>(family);
}

}  // namespace

DecoderConfig decoder_config(const ConfigFile& file) { return decoder_family(find_family(file)).read(file); }

ConfigFile decoder_config_file(const std::string& model_type, const DecoderConfig& config) {
  return decoder_family(find_family(model_type)).write(config, ModelHead::kTokens);
}

}  // namespace linnet
