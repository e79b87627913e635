// Run folders of models that a family describes (models/families/family.h); they hold config.json and tokenizers too.
#pragma once
#include "config/config.h"
#include "data/text/pretrained_tokenizer.h"
#include "models/families/generation_config.h"
#include "models/families/pretrained.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
class TrainingState;

// The best weights of the run in `folder`; with `model`, those of the folder that `model` was opened from.
LoadWeights weights_of(const std::string& folder, const PretrainedModel* model = nullptr);
// The configuration of a run folder; empty for a model folder. User error for a folder that is neither.
std::optional<Config> run_config(const std::string& folder);
bool is_run_of(const std::string& folder, TaskKind kind);
// Whether it is a model folder, not a run, of that kind and, unless they are empty, with one of these heads.
bool is_model_folder(const std::string& folder, FamilyKind kind, std::initializer_list<ModelHead> heads = {});

// A model for use: a run's, or a model folder's. `Model` has the parts `model` and `pretrained`.
template <class Model> struct Opened : Model {
  Config config;  // of the run, or made for a model folder
  std::string folder;
  bool is_run = false;
  // The model folder's contents; null for a run.
  const PretrainedModel* of_folder() const { return is_run ? nullptr : this->pretrained.get(); }
  const Module& module() const { return *this->model; }
  LoadWeights weights() const { return weights_of(folder, of_folder()); }
};

// All of a model's parameters in one buffer, as exports take them.
struct FlatWeights {
  FlatWeights(ParameterLayout of_model, const LoadWeights& load)
      : layout(std::move(of_model)), parameters(static_cast<size_t>(layout.parameter_count())) {
    load(layout, parameters.data());
  }
  FlatWeights(const Module& module, const LoadWeights& load) : FlatWeights(ParameterLayout(module), load) {}

  ParameterLayout layout;
  std::vector<float> parameters;
};

void save_pretrained_assets(
    const std::string& folder, const PretrainedModel& model, const PretrainedTokenizer& tokenizer);

// The folder within a run that describes its model like a model folder.
std::string model_description(const std::string& run);
// Saves `config` there, with the generation_config.json of the initial model for the run's generation and exports.
void save_description(const PretrainedModel& model, const ConfigFile& config, const std::string& run);
GenerationConfig run_generation_config(const std::string& run);
std::map<std::string, std::string> generation_files(const std::string& run);
PretrainedModel open_run_model(const std::string& folder);
// User error if adapters are given for a run, which has its own trained weights.
void refuse_adapters(const std::string& run, const std::vector<AdapterFolder>& adapters);
std::unique_ptr<PretrainedTokenizer> open_run_tokenizer(const std::string& folder);

// Exports the run's model as a model folder; adapters are merged into the weights.
void export_pretrained_run(const std::string& folder, const std::string& out);
// Exports the run's adapters as a PEFT folder. User error for a run without any.
void export_adapters(const std::string& folder, const std::string& out);

// Initial weights from a model folder; missing ones are drawn from the seed. No-op where ranks share the layers: see
// load_divided_weights() (training/run/run_checkpoints.cpp).
void load_initial_weights(TrainingState& states, const PretrainedModel& model, const Config& config);
}  // namespace linnet
