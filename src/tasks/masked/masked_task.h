// Trains an encoder to predict masked tokens, from scratch or from a model folder.
#pragma once
#include <memory>
#include "models/families/pretrained.h"
#include "models/modules/text_encoder.h"
#include "tasks/masked/masked_data.h"
#include "tasks/session.h"
#include "training/run/training_task.h"

namespace linnet {
struct MaskedModel {
  PretrainedModel pretrained;
  std::unique_ptr<PretrainedTokenizer> tokenizer;
  MaskedLanguageModel& model() { return pretrained.as<MaskedLanguageModel>(); }
};

// For training: `from` is a run folder that describes both, or empty: config.model.from, or the configuration's sizes.
MaskedModel make_masked_model(const Config& config, const std::string& from);
// A config.json for a BERT of the configuration's sizes. Without layers a classifier takes the mean of the embeddings.
ConfigFile describe_encoder(const Config& config, int64_t vocab_size, int64_t pad_token, ModelHead head);
// Without a tokenizer, for plans.
PretrainedModel describe_masked_model(const Config& config, int64_t vocab_size, int64_t pad_token);

// `linnet eval` of a run or model folder, on the file `path`, or if empty on the split that the configuration names.
Evaluation evaluate_masked_model(
    const std::string& folder, const Config& config, const std::string& path, const std::string& split);
}  // namespace linnet
