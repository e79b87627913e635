#include "models/families/decoder_family.h"
#include <algorithm>
#include <functional>
#include "base/error.h"

namespace linnet {
namespace {

// "attention_bias" and "mlp_bias": each of several linear layers.
Field<DecoderConfig> bias_field(const char* key, std::vector<bool Biases::*> members) {
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            for (bool Biases::*member : members) config.biases.*member = file.flag(key, false);
          },
          [=](const DecoderConfig& config, ConfigFile& file) { file.set(key, config.biases.*members[0]); }};
}

}  // namespace

std::vector<Architecture> decoder_architectures(const std::string& name) {
  return {{name + "ForCausalLM", ModelHead::kTokens}, {name + "Model", ModelHead::kNone}};
}

Fields<DecoderConfig> bias_fields() {
  return {bias_field("attention_bias", {&Biases::attention, &Biases::output}),
          bias_field("mlp_bias", {&Biases::feed_forward})};
}

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
          field("hidden_act", &C::activation, kActivations, Activation::kSilu),
          positive("rms_norm_eps", &C::epsilon, 1e-6),
          rotary_field(),
          whole_pairs_field(),
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

namespace {

constexpr const char *kWindow = "sliding_window", *kTypes = "layer_types", *kSliding = "sliding_attention",
                     *kFull = "full_attention";

// "layer_types", or what `is_sliding` says of each layer.
void read_layer_types(const ConfigFile& file, DecoderConfig& config, int64_t window,
                      const std::function<bool(int64_t layer)>& is_sliding) {
  std::vector<std::string> types = file.texts(kTypes);
  for (int64_t i = 0; !file.has(kTypes) && i < config.layers; ++i) types.push_back(is_sliding(i) ? kSliding : kFull);
  if (std::ssize(types) != config.layers) file.fail("\"layer_types\" does not name each layer once");
  config.layer_kinds.clear();
  for (const std::string& type : types) {
    if (type != kFull && type != kSliding) file.fail("\"layer_types\" holds \"" + type + "\"");
    config.layer_kinds.push_back({type == kSliding ? window : 0, config.rotary});
  }
}

void write_layer_types(const DecoderConfig& config, ConfigFile& file) {
  std::vector<std::string> types;
  int64_t size = 0;
  for (const LayerKind& kind : config.layer_kinds)
    types.emplace_back(kind.window > 0 ? kSliding : kFull), size = std::max(size, kind.window);
  file.set(kTypes, types);
  if (size > 0) file.set(kWindow, size);
}

}  // namespace

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

Fields<DecoderConfig> expert_fields(const char* count) {
  using C = DecoderConfig;
  const auto check = [=](const ConfigFile& file, C& config) {
    if (config.chosen_experts > config.experts)
      file.fail("\"num_experts_per_tok\" is more than \"" + std::string(count) + "\"");
  };
  // transformers writes either name.
  const auto name_in = [=](const ConfigFile& file) {
    constexpr const char* kOther = "num_local_experts";
    return !file.has(count) && file.has(kOther) ? kOther : count;
  };
  return {{[=](const ConfigFile& file, C& config) { config.experts = integer_in(file, name_in(file), kLayers); },
           [=](const C& config, ConfigFile& file) { file.set(name_in(file), config.experts); }},
          field("num_experts_per_tok", &C::chosen_experts, kLayers),
          {check},
          number("router_aux_loss_coef", &C::load_loss, 0.001)};
}

Field<DecoderConfig> layer_types_field(int64_t window, int64_t period) {
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            const int64_t size = file.has(kWindow) ? integer_in(file, kWindow, kSizes) : window;
            const int64_t every = file.size("sliding_window_pattern", period);
            read_layer_types(file, config, size, [&](int64_t layer) { return (layer + 1) % every != 0; });
          },
          write_layer_types};
}

namespace {

void add_experts(NameTable& table, const DecoderConfig& config, const DecoderNames& names, const std::string& theirs,
                 const std::string& ours) {
  table.add(theirs + names.router + ".weight", ours + "router.weight");
  std::vector<std::string> first, second;
  for (int64_t i = 0; i < config.experts; ++i) {
    const std::string expert = theirs + names.experts + std::to_string(i) + ".";
    first.insert(first.end(), {expert + names.expert[0], expert + names.expert[1]});
    second.push_back(expert + names.expert[2]);
  }
  table.add_stacked(first, std::vector(first.size(), config.hidden), ours + "linear1", false);
  table.add_stacked(second, std::vector(second.size(), config.width), ours + "linear2", false);
}

}  // namespace

NameTable decoder_names(const DecoderConfig& config, ModelHead head, const DecoderNames& names) {
  const int64_t size = config.head_size > 0 ? config.head_size : config.width / config.heads;
  const int64_t query_width = config.heads * size,
                key_width = (config.kv_heads > 0 ? config.kv_heads : config.heads) * size;
  NameTable table;
  table.prefix = names.prefix;
  const std::string all = names.prefix + names.inside;
  const auto add_norm = [&](const std::string& theirs, const std::string& ours) {
    table.add(theirs + ".weight", ours + ".weight");
    if (config.norms == NormKind::kLayer) table.add(theirs + ".bias", ours + ".bias");
  };
  const auto add_linear = [&](const std::string& theirs, const std::string& ours, bool bias) {
    table.add(theirs + ".weight", ours + ".weight");
    if (bias) table.add(theirs + ".bias", ours + ".bias");
  };
  table.add(all + names.tokens + ".weight", "tokens.weight");
  if (config.learned_positions) table.add(all + names.positions + ".weight", "positions.weight");
  if (config.embedding_width > 0) {
    table.add(all + names.project_in + ".weight", "project_in.weight");
    table.add(all + names.project_out + ".weight", "project_out.weight");
  }
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string number = std::to_string(i) + ".", theirs = all + "layers." + number, ours = "layers." + number;
    const std::string in_proj = ours + "self_attn.in_proj";
    if (config.norm_place == NormPlace::kResult) {
      add_norm(theirs + names.result_norm1, ours + "norm1");
      add_norm(theirs + names.result_norm2, ours + "norm2");
    } else {
      add_norm(theirs + names.norm1, ours + "norm1");
      add_norm(theirs + names.norm2, ours + "norm2");
    }
    if (config.norm_place == NormPlace::kInputAndResult) {
      add_norm(theirs + names.result_norm1, ours + "result_norm1");
      add_norm(theirs + names.result_norm2, ours + "result_norm2");
    }
    std::vector<std::string> projections;
    for (const std::string& name : names.queries_keys_values) projections.push_back(theirs + name);
    if (projections.size() > 1) {
      table.add_stacked(projections, {query_width, key_width, key_width}, in_proj, config.biases.attention);
    } else {
      const size_t first = table.rows.size();
      add_linear(projections[0], in_proj, config.biases.attention);
      for (size_t row = first; names.by_heads && row < table.rows.size(); ++row)
        table.rows[row].form = TensorForm::kByHeads, table.rows[row].heads = config.heads;
    }
    if (config.query_key_norms != QueryKeyNorms::kNone) {
      table.add(theirs + names.query_norm + ".weight", ours + "self_attn.query_norm.weight");
      table.add(theirs + names.key_norm + ".weight", ours + "self_attn.key_norm.weight");
    }
    add_linear(theirs + names.output, ours + "self_attn.out_proj", config.biases.output);
    if (config.experts > 0) {
      add_experts(table, config, names, theirs, ours + "experts.");
      continue;
    }
    add_linear(theirs + names.linear1, ours + "linear1", config.biases.feed_forward);
    if (config.gated && !config.fused_gate)
      add_linear(theirs + names.linear3, ours + "linear3", config.biases.feed_forward);
    add_linear(theirs + names.linear2, ours + "linear2", config.biases.feed_forward);
  }
  if (config.final_norm) add_norm(all + names.final_norm, "norm");
  if (has_tied_head(config, head)) table.add_copy(names.head + ".weight", "tokens.weight");
  else table.add(names.head + ".weight", "head", TensorForm::kSame, TensorRole::kHead);
  table.computed = names.computed;
  return table;
}

NameTable llama_names(const DecoderConfig& config, ModelHead head) { return decoder_names(config, head, {}); }

namespace {

const DecoderFamily& decoder_family(const Family& family) {
  if (family.kind != FamilyKind::kDecoder) fail_internal(std::string(family.model_type) + " is no decoder");
  return static_cast<const DecoderFamily&>(family);
}

}  // namespace

DecoderConfig decoder_config(const ConfigFile& file) { return decoder_family(find_family(file)).read(file); }

ConfigFile decoder_config_file(const std::string& model_type, const DecoderConfig& config) {
  DecoderConfig written = config;
  if (written.kv_heads == 0) written.kv_heads = written.heads;  // families differ in what an absent key means
  return decoder_family(find_family(model_type)).write(written, ModelHead::kTokens);
}

}  // namespace linnet
