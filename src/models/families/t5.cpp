#include <filesystem>
#include "base/files.h"
#include "formats/weight_files.h"
#include "models/families/encoder_family.h"
#include "models/families/transformer_family.h"

namespace linnet {
namespace {
NameTable t5_names(const T5Config& config, ModelHead, const Module& model) {
  using enum TensorForm;
  using enum TensorRole;
  NameTable table;
  table.add(model, {{"tokens", "shared"}, {"tokens.weight", "encoder.embed_tokens.weight", kSame, kCopy},
                       {"tokens.weight", "decoder.embed_tokens.weight", kSame, kCopy}});
  for (const std::string stack : {"encoder", "decoder"}) {
    const bool is_decoder = stack == "decoder";
    const std::string block = stack + ".block.", last = is_decoder ? "2" : "1", attention = "0.SelfAttention.",
                      feed_forward = last + ".DenseReluDense.";
    table.add(model, in_full({{stack + ".bias", block + "0.layer." + attention + "relative_attention_bias.weight"},
                                 {"*.self_attn.in_proj", attention + "q " + attention + "k " + attention + "v"},
                                 {"*.self_attn.out_proj", attention + "o"}, {"*.norm1", "0.layer_norm"},
                                 {"*.cross_attn.q_proj", "1.EncDecAttention.q"},
                                 {"*.cross_attn.kv_proj", "1.EncDecAttention.k 1.EncDecAttention.v"},
                                 {"*.cross_attn.out_proj", "1.EncDecAttention.o"},
                                 {"*.norm2", "1.layer_norm"},  // of the encoder the last one
                                 {"*.linear1", feed_forward + (config.gated ? "wi_0" : "wi")},
                                 {"*.linear3", feed_forward + "wi_1"}, {"*.linear2", feed_forward + "wo"},
                                 {"*.norm3", "2.layer_norm"}, {stack + ".norm", stack + ".final_layer_norm"}},
                         "", stack + ".layers.*.", block + "*.layer."));
  }
  table.add(model, {{"head", "lm_head.weight"}, {"tokens.weight", "lm_head.weight", kSame, kCopy}});
  // Old files have a bias that was never read.
  table.computed = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"};
  return table;
}

// "tie_word_embeddings" is always true in files of transformers 5. A head is separate if the weights have one and
// "scale_decoder_outputs" (before: "tie_word_embeddings") is false.
bool has_own_head(const ConfigFile& config) {
  const std::string folder = std::filesystem::path(config.path()).parent_path().string();
  if (!has_weight_files(folder)) return !config.flag("tie_word_embeddings", true);
  return WeightFiles(folder).find("lm_head.weight") != nullptr;
}

// "relu", or "gated-gelu", the tanh formula.
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
    file.fail("\"relative_attention_num_buckets\" ", config.buckets,
        " is not a multiple of 4 below twice \"relative_attention_max_distance\"");
}

Fields<T5Config> t5_fields() {
  using C = T5Config;
  return {written("is_encoder_decoder", true), field("vocab_size", &C::vocab_size, kSizes),
      field("d_model", &C::width, kWidths), field("d_kv", &C::head_size, kWidths), field("d_ff", &C::hidden, kSizes),
      field("num_heads", &C::heads, kSizes), field("num_layers", &C::encoder_layers, kLayers),
      field("num_decoder_layers", &C::decoder_layers, kLayers, &C::encoder_layers),
      field("relative_attention_num_buckets", &C::buckets, kSizes, 32),
      field("relative_attention_max_distance", &C::max_distance, kSizes, 128), {check_buckets},
      {read_feed_forward, write_feed_forward}, probability("dropout_rate", &C::dropout, 0.1),
      positive("layer_norm_epsilon", &C::epsilon, 1e-6), {read_head, write_head}, {read_start, write_start},
      written("eos_token_id", 1)};
}

const EncoderConfig kT5Encoder{.token_types = 0,
    .embedding_norm = false,
    .learned_positions = false,
    .norm_place = NormPlace::kInput,
    .norms = NormKind::kRms,
    .biases = kNoBiases,
    .attention_scale = 1,
    .final_norm = true,
    .has_pooler = false};

// Distances have no limit: "n_positions" is the training texts' length.
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

NameTable t5_encoder_names(const EncoderConfig& config, ModelHead head, const Module& model) {
  using enum TensorForm;
  const EncoderNames names{.layers = "encoder.block.*.layer.",
      .own = {{"bert.words", "shared"}, {"bert.words.weight", "encoder.embed_tokens.weight", kSame, TensorRole::kCopy},
          {"bert.distance_bias", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
          {"bert.norm", "encoder.final_layer_norm"},
          {"*.self_attn.in_proj", "0.SelfAttention.q 0.SelfAttention.k 0.SelfAttention.v"},
          {"*.self_attn.out_proj", "0.SelfAttention.o"}, {"*.norm1", "0.layer_norm"},
          {"*.linear1", config.gated ? "1.DenseReluDense.wi_0" : "1.DenseReluDense.wi"},
          {"*.linear3", "1.DenseReluDense.wi_1"}, {"*.linear2", "1.DenseReluDense.wo"}, {"*.norm2", "1.layer_norm"}},
      .heads = {"decoder.*", "lm_head.*"}};
  return names(config, head, model);
}

std::shared_ptr<const Family> t5_encoder(const char* type, const char* architecture) {
  return encoder_family({.model_type = type,
      .architectures = {{architecture, ModelHead::kNone}},
      .base = kT5Encoder,
      .fields = {encoder_sizes()},
      .names = t5_encoder_names});
}

std::shared_ptr<const Family> whole_t5(const char* type, std::vector<Architecture> architectures) {
  return std::make_shared<T5Family>(FamilyTable<T5Config>{
      .model_type = type, .architectures = std::move(architectures), .fields = t5_fields(), .names = t5_names});
}
}  // namespace

std::unique_ptr<Module> make_model(const T5Config& config, const ConfigFile&, ModelHead) {
  return std::make_unique<T5>(config);
}

// mT5 (Xue et al. 2021): gated T5 with a multilingual vocabulary.
FamilyList families_of_t5() {
  using enum ModelHead;
  return {whole_t5("t5", {{"T5ForConditionalGeneration", kTokens}, {"T5WithLMHeadModel", kTokens}}),
      whole_t5("mt5", {{"MT5ForConditionalGeneration", kTokens}}), t5_encoder("t5", "T5EncoderModel"),
      t5_encoder("mt5", "MT5EncoderModel")};
}
}  // namespace linnet
