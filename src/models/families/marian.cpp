#include "models/families/marian.h"

#include <algorithm>

#include "base/error.h"
#include "models/families/activations.h"
#include "models/families/family.h"

namespace linnet {
namespace {

// Ours: others that read the folder find the same in the embedding of the padding token, which decoding begins with.
constexpr const char* kZeroStart = "start_from_zero_embedding";
// Bias of the padding token: exp() of it is 0 beside any other logit.
constexpr float kNever = -100;

std::unique_ptr<Module> construct(const ConfigFile& config, const std::string&) {
  return std::make_unique<Transformer>(marian_config(config));
}

void add_self_attention(NameTable& table, int64_t width, const std::string& theirs, const std::string& ours) {
  const std::string from = theirs + "self_attn.", to = ours + "self_attn.";
  table.add_stacked({from + "q_proj", from + "k_proj", from + "v_proj"}, {width, width, width}, to + "in_proj");
  table.add_linear(from + "out_proj", to + "out_proj");
  table.add_linear(theirs + "self_attn_layer_norm", ours + "norm1");
}

void add_feed_forward(NameTable& table, const std::string& theirs, const std::string& ours, const std::string& norm) {
  table.add_linear(theirs + "fc1", ours + "linear1");
  table.add_linear(theirs + "fc2", ours + "linear2");
  table.add_linear(theirs + "final_layer_norm", ours + norm);
}

void add_cross_attention(NameTable& table, int64_t width, const std::string& theirs, const std::string& ours) {
  const std::string from = theirs + "encoder_attn.", to = ours + "cross_attn.";
  table.add_linear(from + "q_proj", to + "q_proj");
  table.add_stacked({from + "k_proj", from + "v_proj"}, {width, width}, to + "kv_proj");
  table.add_linear(from + "out_proj", to + "out_proj");
  table.add_linear(theirs + "encoder_attn_layer_norm", ours + "norm2");
}

void add_embeddings(NameTable& table, const TransformerConfig& config) {
  const std::string source = "model.encoder.embed_tokens.weight", target = "model.decoder.embed_tokens.weight";
  if (config.share_embeddings) {
    table.add("model.shared.weight", "shared_embedding.weight");
    for (const std::string& copy : {source, target, std::string("lm_head.weight")})
      table.add_copy(copy, "shared_embedding.weight");
  } else {
    table.add(source, "source_embedding.weight");
    table.add(target, "target_embedding.weight");
    table.add_copy("lm_head.weight", "target_embedding.weight");
  }
}

NameTable names(const ConfigFile& file, const std::string&) {
  const TransformerConfig config = marian_config(file);
  NameTable table;
  add_embeddings(table, config);
  for (int64_t i = 0; i < config.num_encoder_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".", theirs = "model.encoder." + layer,
                      ours = "encoder." + layer;
    add_self_attention(table, config.d_model, theirs, ours);
    add_feed_forward(table, theirs, ours, "norm2");
  }
  for (int64_t i = 0; i < config.num_decoder_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".", theirs = "model.decoder." + layer,
                      ours = "decoder." + layer;
    add_self_attention(table, config.d_model, theirs, ours);
    add_cross_attention(table, config.d_model, theirs, ours);
    add_feed_forward(table, theirs, ours, "norm3");
  }
  table.add("final_logits_bias", "head.bias", TensorForm::kOneRow);
  table.computed = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"};
  return table;
}

// Both stacks alike.
int64_t common(const ConfigFile& config, const std::string& encoder, const std::string& decoder) {
  if (config.size(encoder) != config.size(decoder))
    config.fail("\"" + encoder + "\" is " + std::to_string(config.size(encoder)) + " and \"" + decoder + "\" is " +
                std::to_string(config.size(decoder)) + ", Linnet supports only the same in both");
  return config.size(encoder);
}

}  // namespace

TransformerConfig marian_config(const ConfigFile& config) {
  config.require_flag("normalize_before", false);
  config.require_flag("normalize_embedding", false);
  config.require_flag("add_final_layer_norm", false);
  config.require_flag("static_position_embeddings", true);
  config.require_flag("tie_word_embeddings", true);
  check_heads(config, "d_model", "encoder_attention_heads");
  const double dropout = probability_of(config, "dropout", 0.1);
  const int64_t vocab = config.size("vocab_size");
  const bool shared = config.flag("share_encoder_decoder_embeddings", true);
  return {.source_vocab = vocab,
          .target_vocab = shared && config.has("decoder_vocab_size")
                              ? common(config, "vocab_size", "decoder_vocab_size")
                              : config.size("decoder_vocab_size", vocab),
          .d_model = config.size("d_model"),
          .num_heads = common(config, "encoder_attention_heads", "decoder_attention_heads"),
          .d_ff = common(config, "encoder_ffn_dim", "decoder_ffn_dim"),
          .num_encoder_layers = config.layers("encoder_layers"),
          .num_decoder_layers = config.layers("decoder_layers"),
          .max_seq_len = config.size("max_position_embeddings"),
          .dropout = dropout,
          .activation = activation_of(config, "activation_function", Activation::kGelu),
          .share_embeddings = shared,
          .tie_head = true,
          .attention_dropout = probability_of(config, "attention_dropout", 0),
          .hidden_dropout = probability_of(config, "activation_dropout", 0),
          .scale_embedding = config.flag("scale_embedding", false),
          .halved_positions = true,
          .pad_token = config.integer("pad_token_id", -1),
          .zero_start = config.flag(kZeroStart, false)};
}

ConfigFile marian_config_file(const TransformerConfig& config, int64_t pad_token, int64_t end_token) {
  if (config.norm_first || config.final_norm || !config.tie_head || !config.halved_positions)
    fail_user(
        "a model with norms before its sub-layers, a final norm, a head of its own or alternating positions has no "
        "form in Marian's layout");
  ConfigFile file;
  file.set("architectures", std::vector<std::string>{"MarianMTModel"});
  file.set("model_type", "marian");
  file.set("is_encoder_decoder", true);
  file.set("vocab_size", config.source_vocab);
  file.set("decoder_vocab_size", config.target_vocab);
  file.set("d_model", config.d_model);
  file.set("encoder_layers", config.num_encoder_layers);
  file.set("decoder_layers", config.num_decoder_layers);
  for (const std::string stack : {"encoder", "decoder"}) {
    file.set(stack + "_attention_heads", config.num_heads);
    file.set(stack + "_ffn_dim", config.d_ff);
  }
  file.set("max_position_embeddings", config.max_seq_len);
  file.set("dropout", config.dropout);
  file.set("attention_dropout", config.attention_dropout.value_or(config.dropout));
  file.set("activation_dropout", config.hidden_dropout.value_or(config.dropout));
  file.set("activation_function", activation_name(config.activation));
  file.set("share_encoder_decoder_embeddings", config.share_embeddings);
  file.set("scale_embedding", config.scale_embedding);
  if (config.zero_start) file.set(kZeroStart, true);
  file.set("pad_token_id", pad_token);
  file.set("decoder_start_token_id", pad_token);
  file.set("eos_token_id", end_token);
  file.set("forced_eos_token_id", end_token);
  file.set("dtype", "float32");
  return file;
}

void clear_start_embedding(const TransformerConfig& config, const ParameterLayout& layout, float* parameters) {
  if (!config.zero_start || config.pad_token < 0) return;
  for (const ParameterSlot& slot : layout.parameters()) {
    float* const values = parameters + slot.offset;
    if (slot.spec.name == "head.bias") values[config.pad_token] = kNever;
    if (slot.spec.name == (config.share_embeddings ? "shared_embedding.weight" : "target_embedding.weight"))
      std::fill_n(values + config.pad_token * config.d_model, config.d_model, 0.0f);
  }
}

const Family kMarianFamily{"marian", {"MarianMTModel"}, construct, names};

}  // namespace linnet
