// Trains an encoder to predict masked tokens, from scratch or from a model folder.
#pragma once
#include "config/config.h"
#include "data/examples/text/token_chunks.h"
#include "data/text/pretrained_tokenizer.h"
#include "models/families/pretrained.h"
#include "models/modules/text_encoder.h"
#include "tasks/session_task.h"
#include "training/run/training_run.h"

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

// `linnet eval` of a run or model folder, on the file `path`, or if empty on the split that the configuration names.
TaskEvaluation evaluate_masked_model(
    const std::string& folder, const Config& config, const std::string& path, const std::string& split);

// The documents of a text, as tokens.
struct MaskedText {
  TokenStream tokens;
  std::vector<TokenSpan> documents;
};

struct MaskedData {
  MaskedText train, valid;
};

// `text` and `valid_text`, or the end of the former.
MaskedData load_masked_data(const Config& config, const PretrainedTokenizer& tokenizer);
MaskedText load_masked_text(const Config& config, const PretrainedTokenizer& tokenizer, const std::string& path);
}  // namespace linnet
