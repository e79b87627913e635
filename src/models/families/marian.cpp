#include "models/families/marian.h"

#include <algorithm>

#include "base/error.h"

namespace linnet {
namespace {

// Ours: others that read the folder find the same in the embedding of the padding token, which decoding begins with.
constexpr const char* kZeroStart = "start_from_zero_embedding";
// Bias of the padding token: exp() of it is 0 beside any other logit.
constexpr float kNever = -100;

std::unique_ptr<Module> make(const TransformerConfig& config, const ConfigFile&, ModelHead) {
  return std::make_unique<Transformer>(config);
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

NameTable names(const TransformerConfig& config, ModelHead) {
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
Field<TransformerConfig> common(const char* encoder, const char* decoder, int64_t TransformerConfig::*member) {
  return {[=](const ConfigFile& file, TransformerConfig& config) {
            const int64_t size = config.*member = integer_in(file, encoder, kSizes);
            if (const int64_t other = integer_in(file, decoder, kSizes); other != size)
              file.fail("\"" + std::string(encoder) + "\" is " + std::to_string(size) + " and \"" + decoder + "\" is " +
                        std::to_string(other) + ", Linnet supports only the same in both");
          },
          [=](const TransformerConfig& config, ConfigFile& file) {
            file.set(encoder, config.*member);
            file.set(decoder, config.*member);
          }};
}

void read_vocabularies(const ConfigFile& file, TransformerConfig& config) {
  if (config.share_embeddings && file.has("decoder_vocab_size")) {
    common("vocab_size", "decoder_vocab_size", &TransformerConfig::source_vocab).read(file, config);
    return void(config.target_vocab = config.source_vocab);
  }
  config.source_vocab = integer_in(file, "vocab_size", kSizes);
  config.target_vocab =
      file.has("decoder_vocab_size") ? integer_in(file, "decoder_vocab_size", kSizes) : config.source_vocab;
}
void write_vocabularies(const TransformerConfig& config, ConfigFile& file) {
  file.set("vocab_size", config.source_vocab);
  file.set("decoder_vocab_size", config.target_vocab);
}

Field<TransformerConfig> zero_start() {
  return {[](const ConfigFile& file, TransformerConfig& config) { config.zero_start = file.flag(kZeroStart, false); },
          [](const TransformerConfig& config, ConfigFile& file) {
            if (config.zero_start) file.set(kZeroStart, true);
          }};
}

Fields<TransformerConfig> fields() {
  using C = TransformerConfig;
  return {fixed("normalize_before", false),
          fixed("normalize_embedding", false),
          fixed("add_final_layer_norm", false),
          fixed("static_position_embeddings", true),
          fixed("tie_word_embeddings", true),
          written("is_encoder_decoder", true),
          field("share_encoder_decoder_embeddings", &C::share_embeddings, true),
          {read_vocabularies, write_vocabularies},
          field("d_model", &C::d_model, kWidths),
          common("encoder_attention_heads", "decoder_attention_heads", &C::num_heads),
          multiple("d_model", &C::d_model, "encoder_attention_heads", &C::num_heads),
          common("encoder_ffn_dim", "decoder_ffn_dim", &C::d_ff),
          field("encoder_layers", &C::num_encoder_layers, kLayers),
          field("decoder_layers", &C::num_decoder_layers, kLayers),
          field("max_position_embeddings", &C::max_seq_len, kSizes),
          probability("dropout", &C::dropout, 0.1),
          probability("attention_dropout", &C::attention_dropout, 0, &C::dropout),
          probability("activation_dropout", &C::hidden_dropout, 0, &C::dropout),
          field("activation_function", &C::activation, kActivations, Activation::kGelu),
          field("scale_embedding", &C::scale_embedding, false),
          field("pad_token_id", &C::pad_token, kIds, -1),
          zero_start()};
}

}  // namespace

ConfigFile marian_config_file(const TransformerConfig& config, int64_t pad_token, int64_t end_token) {
  if (config.norm_first || config.final_norm || !config.tie_head || !config.halved_positions)
    fail_user(
        "a model with norms before its sub-layers, a final norm, a head of its own or alternating positions has no "
        "form in Marian's layout");
  ConfigFile file = kMarianFamily.write(config, ModelHead::kTokens);
  for (const char* key : {"pad_token_id", "decoder_start_token_id"}) file.set(key, pad_token);
  for (const char* key : {"eos_token_id", "forced_eos_token_id"}) file.set(key, end_token);
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

const MarianFamily kMarianFamily("marian", FamilyKind::kEncoderDecoder, {{"MarianMTModel", ModelHead::kTokens}},
                                 {.tie_head = true, .halved_positions = true}, fields(), make, names);

FamilyList families_of_marian() { return {&kMarianFamily}; }

}  // namespace linnet
