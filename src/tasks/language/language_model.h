// A language model and its tokenizer, from wherever they are: made by a configuration, kept in a run folder, or in a
// model folder in the layout of Hugging Face.
#pragma once
#include <memory>
#include <string>
#include "models/families/pretrained.h"
#include "models/modules/causal_model.h"
#include "models/nn/parameter_layout.h"
#include "tasks/text_coder.h"
#include "training/run/pretrained_run.h"

namespace linnet {

struct LanguageModel {
  std::shared_ptr<PretrainedModel> pretrained;  // null: described by our own keys
  std::shared_ptr<CausalModel> model;           // part of `pretrained`, when there is one
  std::string model_type;                       // of the family whose folder it is exported as
  std::shared_ptr<const TextCoder> coder;

  // The coder's encode(); null unless `known`: the coder may only be assumed.
  EncodeText encoding(bool known) const;
  // Tokens that end a text.
  std::vector<int32_t> ends() const;
  // What describes the model in a run folder, beside the weights: tokenizer and, of a pretrained one, config.json.
  void save_assets(const std::string& folder) const;
};

// For training: `from` (config.model.from) or a model of the configuration's sizes. `assets`: a run folder that
// describes it, or empty. With `to_plan` the folder `from` may have config.json alone.
LanguageModel make_language_model(const Config& config, std::shared_ptr<const TextCoder> coder,
                                  const std::string& assets, bool to_plan = false);

// For use: a run folder or a model folder.
struct OpenedLanguageModel : LanguageModel {
  Config config;  // of the run, or one made up for a model folder
  std::string folder;
  bool is_run = false;
  // Of a model folder, as its files have it; null: a run of ours.
  const PretrainedModel* of_folder() const { return is_run ? nullptr : pretrained.get(); }
  const Module& module() const { return *model; }
  LoadWeights weights() const { return weights_of(folder, of_folder()); }
};
// With the adapters of other folders, if any, beside the weights of a model folder.
OpenedLanguageModel open_language_model(const std::string& folder, const std::vector<AdapterFolder>& adapters = {});

// Writes a model folder that other programs load. User error for a model that no family describes.
void export_language_model(const OpenedLanguageModel& opened, const std::string& out);

}  // namespace linnet
