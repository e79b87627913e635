#include "tasks/translation/translation_model.h"
#include "base/fail.h"
#include "models/families/generation_config.h"
#include "models/families/transformer_family.h"
#include "models/modules/t5.h"
#include "training/run/memory_report.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
constexpr int64_t kFolderLength = 512;  // most tokens of a side, for model folders without a limit

ConfigFile t5_file(const Config& config, const TokenizerPair& tokenizers) {
  const ModelConfig& m = config.model;
  const T5Config t5{.vocab_size = tokenizers.source->vocab_size(),
      .width = m.d_model,
      .heads = m.num_heads,
      .head_size = m.d_model / m.num_heads,
      .hidden = m.d_ff,
      .encoder_layers = m.num_encoder_layers,
      .decoder_layers = m.num_decoder_layers,
      .activation = m.activation == "gelu" ? Activation::kGeluTanh : Activation::kRelu,
      .dropout = m.dropout,
      .tied_head = m.tie_head,
      .scaled_head = m.tie_head,
      .start_token = tokenizers.special.pad};
  ConfigFile file = find_family_as<T5Family>("t5").write(t5, ModelHead::kTokens);
  file.set("eos_token_id", static_cast<int64_t>(tokenizers.special.end));
  return file;
}

TransformerConfig transformer_config(const Config& config, const TokenizerPair& tokenizers) {
  const ModelConfig& m = config.model;
  TransformerConfig t;
  t.source_vocab = tokenizers.source->vocab_size(), t.target_vocab = tokenizers.target->vocab_size();
  t.d_model = m.d_model, t.num_heads = m.num_heads, t.d_ff = m.d_ff;
  t.num_encoder_layers = m.num_encoder_layers, t.num_decoder_layers = m.num_decoder_layers;
  t.max_seq_len = m.max_seq_len;
  t.dropout = m.dropout;
  t.norm_first = m.norm == "pre", t.final_norm = m.final_norm;
  t.activation = m.activation == "gelu" ? Activation::kGelu : Activation::kRelu;
  t.share_embeddings = m.share_embeddings, t.tie_head = m.tie_head;
  return t;
}

ConfigFile marian_file(const Config& config, const TokenizerPair& tokenizers) {
  TransformerConfig t = transformer_config(config, tokenizers);
  t.positions = Positions::kHalved, t.pad_token = tokenizers.special.pad, t.zero_start = true;
  return marian_config_file(t, tokenizers.special.pad, tokenizers.special.end);
}

void set_translation_model(TranslationModel& model, PretrainedModel pretrained) {
  model.pretrained = std::make_shared<PretrainedModel>(std::move(pretrained));
  model.model = std::shared_ptr<EncoderDecoder>(model.pretrained, &model.pretrained->as<EncoderDecoder>());
}

// The model decides which tokens begin and end a sentence.
void set_special(TranslationModel& model, const Config& run) {
  const ConfigFile& config = model.pretrained->config;
  SpecialTokens& special = model.tokenizers.special;
  const auto token = [&](const char* key, TokenId other) {
    const std::vector<int64_t> ids = config.integers(key);
    if (ids.empty()) return other;
    const int64_t vocab = model.model->output_vocab_size();
    if (ids[0] >= vocab)
      config.fail("\"" + std::string(key) + "\" is " + std::to_string(ids[0]) + ", and the vocabulary ends at " +
                  std::to_string(vocab - 1));
    return static_cast<TokenId>(std::max<int64_t>(ids[0], -1));
  };
  special.pad = token("pad_token_id", special.pad);
  special.begin = token("decoder_start_token_id", special.pad);
  special.end = token("eos_token_id", special.end);
  if (special.begin < 0 || special.end < 0)
    config.fail(std::string("there is no \"") + (special.end < 0 ? "eos" : "decoder_start") + "_token_id\"");
  frame_sentences(model.tokenizers, config, languages_of(run));
}

// Some folders only have these tokens in generation_config.json.
void take_generation_tokens(ConfigFile& config, const GenerationConfig& author) {
  const auto take = [&](const char* key, const std::optional<int64_t>& token) {
    if (token && !config.has(key)) config.set(key, *token);
  };
  take("bos_token_id", author.begin);
  take("decoder_start_token_id", author.decoder_start);
  take("forced_bos_token_id", author.forced_begin);
}
}  // namespace

void TranslationModel::save_assets(const std::string& folder) const {
  tokenizers.save(folder);
  if (!pretrained) return;
  ConfigFile file = pretrained->config;
  if (const T5* t5 = dynamic_cast<const T5*>(model.get())) {  // some folders only show it in the weights
    file.set("tie_word_embeddings", t5->config.tied_head);
    file.set("scale_decoder_outputs", t5->config.scaled_head);
  }
  save_description(*pretrained, file, folder);
}

TranslationModel make_translation_model(const Config& config, TokenizerPair tokenizers) {
  TranslationModel model;
  model.tokenizers = std::move(tokenizers);
  if (config.model.architecture == "t5")
    set_translation_model(model, new_pretrained(t5_file(config, model.tokenizers)));
  else if (config.model.architecture == "marian")
    set_translation_model(model, new_pretrained(marian_file(config, model.tokenizers)));
  else model.model = std::make_shared<Transformer>(transformer_config(config, model.tokenizers));
  return model;
}

TranslationModel open_translation_folder(
    const Config& config, const std::string& folder, const std::vector<AdapterFolder>& adapters) {
  refuse_names(adapters);
  TranslationModel model;
  set_translation_model(model, open_with_adapters(folder, adapters, {.lora = lora_options(config)}));
  model.tokenizers = open_tokenizers(folder);
  take_generation_tokens(model.pretrained->config, read_generation_config(folder));
  set_special(model, config);
  const int64_t have = std::max(model.tokenizers.source->vocab_size(), model.tokenizers.target->vocab_size());
  if (const int64_t takes = model.model->output_vocab_size(); have > takes)
    fail_user("the tokenizer has ", have, " tokens, the model in '", folder, "' only ", takes);
  if (const int64_t most = model.model->max_length(); config.model.max_seq_len > most)
    fail_user("max_seq_len = ", config.model.max_seq_len, ", and the model takes ", most,
        " tokens (--set max_seq_len=", most, ")");
  return model;
}

TranslationModel load_translation_run(const Config& config, const std::string& folder) {
  TokenizerPair tokenizers = load_tokenizers(config, folder);
  if (!file_exists(model_description(folder) + "/config.json"))
    return make_translation_model(config, std::move(tokenizers));
  TranslationModel model;
  model.tokenizers = std::move(tokenizers);
  set_translation_model(model, open_run_model(folder));
  set_special(model, config);
  return model;
}

bool is_translation_folder(const std::string& folder) { return is_model_folder(folder, FamilyKind::kEncoderDecoder); }

Config translation_folder_config(const std::string& folder) {
  Config config;
  const ConfigFile file(folder + "/config.json");
  config.model.architecture = file.text("model_type");
  config.model.max_seq_len = std::min(kFolderLength, file.size("max_position_embeddings", kFolderLength));
  config.model.from = folder;
  const GenerationConfig author = read_generation_config(folder);
  config.train.beam = author.beams.value_or(config.train.beam);
  config.train.length_penalty = author.length_penalty.value_or(config.train.length_penalty);
  return config;
}

OpenedTranslationModel open_translation_model(
    const std::string& folder, const std::vector<AdapterFolder>& adapters, const Languages& languages) {
  OpenedTranslationModel opened;
  opened.folder = folder;
  opened.is_run = !is_translation_folder(folder);
  if (opened.is_run) refuse_adapters(folder, adapters);
  opened.config = opened.is_run ? RunFolder(folder).load_config() : translation_folder_config(folder);
  if (!languages.source.empty()) opened.config.data.source_language = languages.source;
  if (!languages.target.empty()) opened.config.data.target_language = languages.target;
  static_cast<TranslationModel&>(opened) = opened.is_run ? load_translation_run(opened.config, folder)
                                                         : open_translation_folder(opened.config, folder, adapters);
  return opened;
}
}  // namespace linnet
