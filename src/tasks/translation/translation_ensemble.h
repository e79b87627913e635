// One or several translation models, whose probabilities are averaged.
#pragma once
#include <string>
#include <vector>
#include "tasks/translation/translation_model.h"

namespace linnet {
struct TranslationEnsemble : TranslationModel {
  // Run or model folders; adapters go with one model folder. User error if vocabularies differ.
  explicit TranslationEnsemble(const std::vector<std::string>& folders, const std::vector<AdapterFolder>& adapters = {},
      const Languages& languages = {});

  // Fills a flat buffer in the order of the layout of `model`.
  LoadWeights weights() const;

  std::vector<OpenedTranslationModel> members;

 private:
  std::vector<ParameterLayout> layouts_;  // of the members, each by itself
};
}  // namespace linnet
