// Run folders of models that a family describes (models/families/family.h): beside the weights they hold config.json
// and the tokenizer as model folders have them.
#pragma once
#include "config/config.h"
#include "data/text/pretrained_tokenizer.h"
#include "models/families/generation_config.h"
#include "models/families/pretrained.h"
#include "models/nn/parameter_layout.h"

namespace linnet {

class TrainingState;

// Fills a buffer with a model's weights, in the order of the layout.
using LoadWeights = std::function<void(const ParameterLayout& layout, const ParameterTarget& parameters)>;
// The best weights of the run in `folder`; with `model`, those of the model folder that it was opened from.
LoadWeights weights_of(const std::string& folder, const PretrainedModel* model = nullptr);
std::vector<float> flat_weights(const ParameterLayout& layout, const LoadWeights& load);

void save_pretrained_assets(const std::string& folder, const PretrainedModel& model,
                            const PretrainedTokenizer& tokenizer);

// The folder within a run that says what its model is, as a model folder does.
std::string model_description(const std::string& run);
// How the author of the model that a run began with lets it write: kept beside that description, for what the run
// writes and for the folders that are made of it.
void keep_generation_config(const PretrainedModel& model, const std::string& run);
GenerationConfig run_generation_config(const std::string& run);
std::map<std::string, std::string> generation_files(const std::string& run);
// What those hold, without the weights.
PretrainedModel open_run_model(const std::string& folder);
// User error where there are adapters to read beside a run, whose weights are those that it trained.
void refuse_adapters(const std::string& run, const std::vector<AdapterFolder>& adapters);
std::unique_ptr<PretrainedTokenizer> open_run_tokenizer(const std::string& folder);

// Writes the run's model as a folder that other programs load; adapters are merged into the weights.
void export_pretrained_run(const std::string& folder, const std::string& out);
// Writes the adapters of a run that has some as a folder that PEFT reads. User error for a run without.
void export_adapters(const std::string& folder, const std::string& out);

// The weights that training begins from: those of a model folder, what it lacks drawn from the configuration's seed.
// Nothing where ranks share the layers of a model: load_divided_weights() (training/run/run_checkpoints.cpp).
void load_initial_weights(TrainingState& states, const PretrainedModel& model, const Config& config);

}  // namespace linnet
