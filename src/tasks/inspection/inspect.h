// `linnet inspect`: a run or a model folder, a text, and what the model's attention and its answer make of the text.
#pragma once
#include <optional>
#include <string>
#include "training/report/report_page.h"

namespace linnet {

struct InspectOptions {
  std::string text;
  // What to attribute: of a classifier the name of a class, of a language model how the text goes on, of translation
  // the translation, of a masked model a word for each mask. Empty: what the model itself answers.
  std::optional<std::string> answer = {};
  int64_t steps = 32;  // points at which gradients are taken for attributions
  int threads = 0;     // 0: all there are
};

// User error that says so for a model that reads no text, and for texts without tokens or with more than
// kMostInspectedTokens.
Inspection inspect_model(const std::string& folder, const InspectOptions& options);
constexpr int64_t kMostInspectedTokens = 256;  // a page of GPT-2 with so many has 25 MB

// By what the folder holds.
Inspection inspect_language_model(const std::string& folder, const InspectOptions& options);
Inspection inspect_translation(const std::string& folder, const InspectOptions& options);
Inspection inspect_classifier(const std::string& folder, const InspectOptions& options);
Inspection inspect_masked_model(const std::string& folder, const InspectOptions& options);
Inspection inspect_encoder(const std::string& folder, const InspectOptions& options);

}  // namespace linnet
