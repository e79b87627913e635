// An encoder-decoder and its tokenizers, from wherever they are: made by a configuration, kept in a run folder, or in a
// model folder in the layout of Hugging Face (T5, Marian).
#pragma once
#include <memory>
#include <string>
#include "models/families/pretrained.h"
#include "models/modules/encoder_decoder.h"
#include "models/modules/transformer.h"
#include "models/nn/parameter_layout.h"
#include "tasks/translation/languages.h"
#include "tasks/translation/tokenizer_pair.h"
#include "training/run/pretrained_run.h"

namespace linnet {

struct TranslationModel {
  TokenizerPair tokenizers;
  std::shared_ptr<PretrainedModel> pretrained;  // null: a Transformer of our own keys
  std::shared_ptr<EncoderDecoder> model;        // part of `pretrained`, when there is one

  // What describes both in a run folder, beside the weights.
  void save_assets(const std::string& folder) const;
};

TransformerConfig transformer_config(const Config& config, const TokenizerPair& tokenizers);

// A model of the configuration's sizes around tokenizers that were trained.
TranslationModel make_translation_model(const Config& config, TokenizerPair tokenizers);
// The one config.model.from names, or that of a run folder (without its weights).
TranslationModel open_translation_folder(const Config& config, const std::string& folder,
                                         const std::vector<AdapterFolder>& adapters = {});
TranslationModel load_translation_run(const Config& config, const std::string& folder);

// For use: a run folder or a model folder.
struct OpenedTranslationModel : TranslationModel {
  Config config;  // of the run, or one made up for a model folder
  std::string folder;
  bool is_run = false;
  // Of a model folder, as its files have it; null: a run of ours.
  const PretrainedModel* of_folder() const { return is_run ? nullptr : pretrained.get(); }
  const Module& module() const { return *model; }
  LoadWeights weights() const { return weights_of(folder, of_folder()); }
};
// With the adapters of another folder, if any, beside the weights of a model folder.
OpenedTranslationModel open_translation_model(const std::string& folder,
                                              const std::vector<AdapterFolder>& adapters = {},
                                              const Languages& languages = {});
// The configuration alone. `folder` holds a T5 or Marian.
Config translation_folder_config(const std::string& folder);
// Whether a model folder holds an encoder-decoder.
bool is_translation_folder(const std::string& folder);

// Writes a model folder that other programs load. User error for a model that no family describes.
void export_translation_run(const std::string& folder, const std::string& out);

}  // namespace linnet
