#include "tasks/language/language_model.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "config/config.h"
#include "models/families/decoder_family.h"
#include "models/modules/text_decoder.h"
#include "training/run/memory_report.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
DecoderConfig decoder_config(const Config& config, int64_t vocab_size) {
  const ModelConfig& m = config.model;
  const DecoderConfig sizes{.vocab_size = vocab_size,
      .max_seq_len = m.max_seq_len,
      .width = m.d_model,
      .heads = m.num_heads,
      .layers = m.num_decoder_layers,
      .hidden = m.d_ff,
      .attention_dropout = m.dropout};
  DecoderConfig decoder = m.architecture == "llama" ? llama_kind(sizes) : sizes;
  if (m.architecture == "llama") decoder.tied_head = m.tie_head;
  else decoder.dropout = m.dropout;
  return decoder;
}

void set_language_model(LanguageModel& language, PretrainedModel pretrained) {
  language.pretrained = std::make_shared<PretrainedModel>(std::move(pretrained));
  language.model = std::shared_ptr<CausalModel>(language.pretrained, &language.pretrained->as<CausalModel>());
  language.model_type = language.pretrained->family->model_type;
}

// Models may round their vocabulary up. Tokenizers may have more tokens (for pictures), which texts must not use.
void check_language_vocabulary(const LanguageModel& language, const std::string& folder) {
  constexpr int64_t kMostMore = 64;
  if (language.coder->vocab_size() > language.model->vocab_size() + kMostMore)
    fail_user("the tokenizer has ", language.coder->vocab_size(), " tokens, the model in '", folder, "' only ",
        language.model->vocab_size());
}
}  // namespace

EncodeText LanguageModel::encoding(bool known) const {
  if (!known) return nullptr;
  return [coder = coder](std::string_view text, std::vector<int32_t>& ids) { coder->encode(text, ids); };
}

std::vector<int32_t> LanguageModel::ends() const {
  std::vector<int32_t> ends;
  if (coder->separator() >= 0) ends.push_back(coder->separator());
  if (pretrained)
    for (const int64_t token : pretrained->config.integers("eos_token_id"))
      if (!contains(ends, token)) ends.push_back(static_cast<int32_t>(token));
  return ends;
}

void LanguageModel::save_assets(const std::string& folder) const {
  coder->save(folder);
  if (pretrained) save_description(*pretrained, pretrained->config, folder);
}

LanguageModel make_language_model(
    const Config& config, std::shared_ptr<const TextCoder> coder, const std::string& assets, bool to_plan) {
  LanguageModel language;
  language.coder = std::move(coder);
  const std::string kept = model_description(assets) + "/config.json";
  if (!assets.empty() && file_exists(kept)) {
    set_language_model(language, new_pretrained(ConfigFile(kept)));
  } else if (!config.model.from.empty()) {
    set_language_model(
        language, open_pretrained(config.model.from, {.lora = lora_options(config), .may_lack_weights = to_plan}));
  } else {
    language.model = std::make_shared<TextDecoder>(decoder_config(config, language.coder->vocab_size()));
    language.model_type = config.model.architecture == "llama" ? "llama" : "gpt2";
  }
  if (language.pretrained && !to_plan)
    check_language_vocabulary(language, config.model.from);  // else the tokenizer is assumed
  return language;
}

std::string tokenizer_folder(const std::string& folder, const std::vector<AdapterFolder>& adapters) {
  const bool is_own = adapters.size() == 1 && !are_chosen(adapters) && has_pretrained_tokenizer(adapters[0].folder);
  return is_own ? adapters[0].folder : folder;
}

OpenedLanguageModel open_language_model(const std::string& folder, const std::vector<AdapterFolder>& adapters) {
  OpenedLanguageModel opened;
  opened.folder = folder;
  opened.is_run = RunFolder(folder).has_config() || !is_pretrained_folder(folder);
  if (opened.is_run) {
    refuse_adapters(folder, adapters);
    opened.config = RunFolder(folder).load_config();
    if (task_kind(opened.config) != TaskKind::kLanguage)
      fail_user("run '", folder, "' is not a language model: its task is \"", opened.config.data.task, "\"");
    static_cast<LanguageModel&>(opened) = make_language_model(opened.config, load_text_coder(folder), folder);
    return opened;
  }
  PretrainedModel pretrained = open_with_adapters(folder, adapters, {});
  if (pretrained.family->kind != FamilyKind::kDecoder)
    fail_user("'", folder, "' is a ", pretrained.architecture,
        ", which does not predict the next token of a text, as models of type ", names_of_kind(FamilyKind::kDecoder),
        " do");
  if (pretrained.head == ModelHead::kNone && !decoder_config(pretrained.config).tied_head)
    fail_user("'", folder, "' is a ", pretrained.architecture,
        " without an output layer, and its \"tie_word_embeddings\" is false: it predicts no tokens");
  set_language_model(opened, std::move(pretrained));
  if (const std::string files = tokenizer_folder(folder, adapters); has_pretrained_tokenizer(files)) {
    opened.coder = open_text_coder(files);
  } else {
    log_info("'" + folder + "' has no tokenizer: its text is token numbers with spaces between");
    opened.coder = make_number_coder(opened.model->vocab_size());
  }
  check_language_vocabulary(opened, folder);
  opened.config.data.task = "language";
  opened.config.model.max_seq_len = opened.model->max_length();
  opened.config.data.batch_size = 1;
  return opened;
}
}  // namespace linnet
