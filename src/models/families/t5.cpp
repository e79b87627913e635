#include "models/families/t5.h"
#include <filesystem>
#include "base/files.h"
#include "formats/weight_files.h"
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

std::unique_ptr<Module> t5_make(const T5Config& config, const ConfigFile&, ModelHead) {
  return std::make_unique<T5>(config);
}

void add_attention(NameTable& table, const T5Config& config, const std::string& theirs, const std::string& ours,
                   bool cross) {
  const int64_t width = config.heads * config.head_size;
  if (cross) {
    table.add(theirs + ".q.weight", ours + ".q_proj.weight");
    table.add_stacked({theirs + ".k", theirs + ".v"}, {width, width}, ours + ".kv_proj", false);
  } else {
    table.add_stacked({theirs + ".q", theirs + ".k", theirs + ".v"}, {width, width, width}, ours + ".in_proj", false);
  }
  table.add(theirs + ".o.weight", ours + ".out_proj.weight");
}

void add_stack(NameTable& table, const T5Config& config, const std::string& stack, int64_t layers, bool decoder) {
  for (int64_t i = 0; i < layers; ++i) {
    const std::string block = stack + ".block." + std::to_string(i) + ".layer.",
                      ours = stack + ".layers." + std::to_string(i) + ".";
    add_attention(table, config, block + "0.SelfAttention", ours + "self_attn", false);
    if (i == 0) table.add(block + "0.SelfAttention.relative_attention_bias.weight", stack + ".bias");
    table.add(block + "0.layer_norm.weight", ours + "norm1.weight");
    if (decoder) {
      add_attention(table, config, block + "1.EncDecAttention", ours + "cross_attn", true);
      table.add(block + "1.layer_norm.weight", ours + "norm2.weight");
    }
    const std::string last = block + (decoder ? "2." : "1."), feed_forward = last + "DenseReluDense.";
    table.add(feed_forward + (config.gated ? "wi_0.weight" : "wi.weight"), ours + "linear1.weight");
    if (config.gated) table.add(feed_forward + "wi_1.weight", ours + "linear3.weight");
    table.add(feed_forward + "wo.weight", ours + "linear2.weight");
    table.add(last + "layer_norm.weight", ours + (decoder ? "norm3.weight" : "norm2.weight"));
  }
  table.add(stack + ".final_layer_norm.weight", stack + ".norm.weight");
}

NameTable t5_names(const T5Config& config, ModelHead) {
  NameTable table;
  table.add("shared.weight", "tokens.weight");
  table.add_copy("encoder.embed_tokens.weight", "tokens.weight");
  table.add_copy("decoder.embed_tokens.weight", "tokens.weight");
  add_stack(table, config, "encoder", config.encoder_layers, false);
  add_stack(table, config, "decoder", config.decoder_layers, true);
  if (config.tied_head) table.add_copy("lm_head.weight", "tokens.weight");
  else table.add("lm_head.weight", "head");
  // Old files have a bias that no version ever read.
  table.computed = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"};
  return table;
}

// Since version 5 of transformers "tie_word_embeddings" is always true in a file: a head is one of its own where the
// weights have it and "scale_decoder_outputs" (before: "tie_word_embeddings") is false.
bool has_own_head(const ConfigFile& config) {
  const std::string folder = std::filesystem::path(config.path()).parent_path().string();
  if (!has_weight_files(folder)) return !config.flag("tie_word_embeddings", true);
  return WeightFiles(folder).find("lm_head.weight") != nullptr;
}

// "relu", or "gated-gelu", which is the tanh formula.
void read_feed_forward(const ConfigFile& file, T5Config& config) {
  constexpr const char* kKey = "feed_forward_proj";
  const std::string kind = file.text(kKey, "relu");
  config.gated = kind.starts_with("gated-");
  if (kind == "gated-gelu") return void(config.activation = Activation::kGeluTanh);
  ConfigFile word = file;
  word.set(kKey, config.gated ? kind.substr(6) : kind);
  config.activation = read_word(word, kKey, kActivations, Activation::kRelu);
}
void write_feed_forward(const T5Config& config, ConfigFile& file) {
  const std::string word = config.gated && config.activation == Activation::kGeluTanh
                               ? "gelu"
                               : kActivations[index_of(kActivations, config.activation)].first;
  file.set("feed_forward_proj", (config.gated ? "gated-" : "") + word);
}

void read_head(const ConfigFile& file, T5Config& config) {
  const bool may_scale = file.text("model_type", "t5") != "mt5";
  config.scaled_head = file.flag("scale_decoder_outputs", may_scale && file.flag("tie_word_embeddings", true));
  config.tied_head = config.scaled_head || !has_own_head(file);
}
void write_head(const T5Config& config, ConfigFile& file) {
  file.set("tie_word_embeddings", config.tied_head);
  file.set("scale_decoder_outputs", config.scaled_head);
}

void read_start(const ConfigFile& file, T5Config& config) {
  config.start_token = static_cast<int32_t>(file.integer("decoder_start_token_id", file.integer("pad_token_id", 0)));
}
void write_start(const T5Config& config, ConfigFile& file) {
  file.set("decoder_start_token_id", static_cast<int64_t>(config.start_token));
  file.set("pad_token_id", static_cast<int64_t>(config.start_token));
}

void check_buckets(const ConfigFile& file, T5Config& config) {
  if (config.buckets % 4 != 0 || config.max_distance <= config.buckets / 2)
    file.fail("\"relative_attention_num_buckets\" " + std::to_string(config.buckets) +
              " is not a multiple of 4 below twice \"relative_attention_max_distance\"");
}

Fields<T5Config> t5_fields() {
  using C = T5Config;
  return {written("is_encoder_decoder", true),
          field("vocab_size", &C::vocab_size, kSizes),
          field("d_model", &C::width, kWidths),
          field("d_kv", &C::head_size, kWidths),
          field("d_ff", &C::hidden, kSizes),
          field("num_heads", &C::heads, kSizes),
          field("num_layers", &C::encoder_layers, kLayers),
          field("num_decoder_layers", &C::decoder_layers, kLayers, &C::encoder_layers),
          field("relative_attention_num_buckets", &C::buckets, kSizes, 32),
          field("relative_attention_max_distance", &C::max_distance, kSizes, 128),
          {check_buckets},
          {read_feed_forward, write_feed_forward},
          probability("dropout_rate", &C::dropout, 0.1),
          positive("layer_norm_epsilon", &C::epsilon, 1e-6),
          {read_head, write_head},
          {read_start, write_start},
          written("eos_token_id", 1)};
}

// The encoder alone, in the layers of encoders.
EncoderConfig t5_encoder_kind() {
  EncoderConfig config;
  config.norm_place = NormPlace::kInput, config.norms = NormKind::kRms, config.final_norm = true;
  config.token_types = 0, config.learned_positions = config.embedding_norm = config.has_pooler = false;
  config.biases = kNoBiases, config.attention_scale = 1;
  return config;
}

// Distances have no end: "n_positions" is how long the texts were that it was trained on.
Field<EncoderConfig> encoder_sizes() {
  return {[](const ConfigFile& file, EncoderConfig& config) {
    T5Config t5;
    read_fields(t5_fields(), file, t5);
    config.vocab_size = t5.vocab_size, config.max_seq_len = file.size("n_positions", 512);
    config.width = t5.width, config.heads = t5.heads, config.head_size = t5.head_size;
    config.layers = t5.encoder_layers, config.hidden = t5.hidden;
    config.dropout = config.hidden_dropout = t5.dropout, config.epsilon = t5.epsilon;
    config.activation = t5.activation, config.gated = t5.gated;
    config.distance_buckets = t5.buckets, config.max_distance = t5.max_distance;
  }};
}

NameTable t5_encoder_table(const EncoderConfig& config, ModelHead head) {
  return encoder_names(
      config, head,
      {.words = "shared",
       .distance_bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
       .final_norm = "encoder.final_layer_norm",
       .words_copy = "encoder.embed_tokens",
       .layers = "encoder.block.",
       .queries_keys_values = {"layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v"},
       .linear3 = "layer.1.DenseReluDense.wi_1",
       .output = "layer.0.SelfAttention.o",
       .norm1 = "layer.0.layer_norm",
       .linear1 = config.gated ? "layer.1.DenseReluDense.wi_0" : "layer.1.DenseReluDense.wi",
       .linear2 = "layer.1.DenseReluDense.wo",
       .norm2 = "layer.1.layer_norm",
       .heads = {"decoder.*", "lm_head.*"}});
}

}  // namespace

const T5Family kT5Family("t5", FamilyKind::kEncoderDecoder,
                         {{"T5ForConditionalGeneration", ModelHead::kTokens},
                          {"T5WithLMHeadModel", ModelHead::kTokens}},
                         T5Config{}, t5_fields(), t5_make, t5_names);

// mT5 (Xue et al. 2021) has T5's layers, gated, and a vocabulary of many languages.
FamilyList families_of_t5() {
  static const T5Family mt5("mt5", FamilyKind::kEncoderDecoder, {{"MT5ForConditionalGeneration", ModelHead::kTokens}},
                            T5Config{}, t5_fields(), t5_make, t5_names);
  static const EncoderFamily encoder("t5", FamilyKind::kEncoder, {{"T5EncoderModel", ModelHead::kNone}},
                                     t5_encoder_kind(), {encoder_sizes()}, make_encoder, t5_encoder_table);
  static const EncoderFamily mt5_encoder("mt5", FamilyKind::kEncoder, {{"MT5EncoderModel", ModelHead::kNone}},
                                         t5_encoder_kind(), {encoder_sizes()}, make_encoder, t5_encoder_table);
  return {&kT5Family, &mt5, &encoder, &mt5_encoder};
}

}  // namespace linnet
