#include "base/error.h"
#include "models/families/transformer_family.h"

namespace linnet {
namespace {
// Linnet's own key: for others the embedding of the padding token, with which decoding begins, has the same effect.
constexpr const char* kZeroStart = "start_from_zero_embedding";
// Bias of the padding token: its exp() is 0 beside any other logit.
constexpr float kNever = -100;

void read_vocabularies(const ConfigFile& file, TransformerConfig& config) {
  if (config.share_embeddings && file.has("decoder_vocab_size")) {
    same_in_both("vocab_size", "decoder_vocab_size", &TransformerConfig::source_vocab).read(file, config);
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

Fields<TransformerConfig> marian_fields() {
  using C = TransformerConfig;
  return Fields<C>{fixed("normalize_before", false), fixed("normalize_embedding", false),
             fixed("add_final_layer_norm", false), fixed("static_position_embeddings", true),
             field("share_encoder_decoder_embeddings", &C::share_embeddings, true),
             {read_vocabularies, write_vocabularies}} +
         transformer_fields() + Fields<C>{zero_start()};
}
}  // namespace

ConfigFile marian_config_file(const TransformerConfig& config, int64_t pad_token, int64_t end_token) {
  if (config.norm_first || config.final_norm || !config.tie_head || config.positions != Positions::kHalved)
    fail_user(
        "a model with norms before its sub-layers, a final norm, a head of its own or alternating positions has no "
        "form in Marian's layout");
  ConfigFile file = find_family_as<TransformerFamily>("marian").write(config, ModelHead::kTokens);
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

FamilyList families_of_marian() {
  return {transformer_family({.model_type = "marian",
      .architectures = {{"MarianMTModel", ModelHead::kTokens}},
      .base = {.tie_head = true, .positions = Positions::kHalved},
      .fields = marian_fields(),
      .names = transformer_names})};
}
}  // namespace linnet
