// `linnet inspect`: attention and attributions of a model for one text.
#pragma once
#include <optional>
#include <string>
#include "training/report/report_page.h"

namespace linnet {
struct InspectOptions {
  std::string text;
  // To attribute: a class, a continuation, a translation, or a word for each mask. Empty: the model's own answer.
  std::optional<std::string> answer = {};
  int64_t steps = 32;  // points where gradients are taken for attributions
  int threads = 0;     // 0 uses all
};

// User error for a model without text input, and for texts without tokens or with more than kMostInspectedTokens.
Inspection inspect_model(const std::string& folder, const InspectOptions& options);
constexpr int64_t kMostInspectedTokens = 256;  // a page of GPT-2 with so many has 25 MB

Inspection inspect_language_model(const std::string& folder, const InspectOptions& options);
Inspection inspect_translation(const std::string& folder, const InspectOptions& options);
Inspection inspect_classifier(const std::string& folder, const InspectOptions& options);
Inspection inspect_masked_model(const std::string& folder, const InspectOptions& options);
Inspection inspect_encoder(const std::string& folder, const InspectOptions& options);
}  // namespace linnet
