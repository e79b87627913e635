// A language model and its tokenizer, from a configuration, a run folder or a Hugging Face model folder.
#pragma once
#include "models/families/pretrained.h"
#include "models/modules/causal_model.h"
#include "tasks/text_coder.h"
#include "training/run/pretrained_run.h"

namespace linnet {
struct LanguageModel {
  std::shared_ptr<PretrainedModel> pretrained;  // null: described by the configuration's keys
  std::shared_ptr<CausalModel> model;           // part of `pretrained`, if set
  std::string model_type;                       // of the family for exports
  std::shared_ptr<const TextCoder> coder;

  // The coder's encode(); null unless `known`, as the coder may only be assumed.
  EncodeText encoding(bool known) const;
  std::vector<int32_t> ends() const;
  // Saves what describes the model beside its weights: the tokenizer and, of a pretrained model, config.json.
  void save_assets(const std::string& folder) const;
};

// For training: `from` (config.model.from) or the configuration's sizes. `assets`: a run folder that describes the
// model, or empty. With `to_plan` the folder `from` needs only config.json.
LanguageModel make_language_model(
    const Config& config, std::shared_ptr<const TextCoder> coder, const std::string& assets, bool to_plan = false);

using OpenedLanguageModel = Opened<LanguageModel>;
// Adds the adapters of other folders, if any, to a model folder's weights.
OpenedLanguageModel open_language_model(const std::string& folder, const std::vector<AdapterFolder>& adapters = {});
// The folder of the tokenizer: that of adapters without a name, if they were saved with theirs, else the model's.
std::string tokenizer_folder(const std::string& folder, const std::vector<AdapterFolder>& adapters);

// Writes a model folder for other programs. User error for a model that no family describes.
void export_language_model(const OpenedLanguageModel& opened, const std::string& out);
}  // namespace linnet
