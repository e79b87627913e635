// An encoder-decoder and its tokenizers, from a configuration, a run folder or a model folder (T5, Marian).
#pragma once
#include "models/families/pretrained.h"
#include "models/modules/encoder_decoder.h"
#include "models/modules/transformer.h"
#include "tasks/translation/tokenizer_pair.h"
#include "training/run/pretrained_run.h"

namespace linnet {
struct TranslationModel {
  TokenizerPair tokenizers;
  std::shared_ptr<PretrainedModel> pretrained;  // null: a Transformer of the configuration's keys
  std::shared_ptr<EncoderDecoder> model;        // part of `pretrained`, if set

  // Saves what describes model and tokenizers, without the weights.
  void save_assets(const std::string& folder) const;
};

// A model of the configuration's sizes for trained tokenizers.
TranslationModel make_translation_model(const Config& config, TokenizerPair tokenizers);
// Opens config.model.from, or a run folder's model without its weights.
TranslationModel open_translation_folder(
    const Config& config, const std::string& folder, const std::vector<AdapterFolder>& adapters = {});
TranslationModel load_translation_run(const Config& config, const std::string& folder);

using OpenedTranslationModel = Opened<TranslationModel>;
// Adds the adapters of another folder, if any, to a model folder's weights.
OpenedTranslationModel open_translation_model(
    const std::string& folder, const std::vector<AdapterFolder>& adapters = {}, const Languages& languages = {});
// The configuration alone. `folder` holds a T5 or Marian.
Config translation_folder_config(const std::string& folder);
bool is_translation_folder(const std::string& folder);

// Writes a model folder for other programs. User error for a model that no family describes.
void export_translation_run(const std::string& folder, const std::string& out);
}  // namespace linnet
