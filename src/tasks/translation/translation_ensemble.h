// One model of translation or several whose probabilities are averaged, opened for use.
#pragma once
#include <string>
#include <vector>
#include "tasks/translation/translation_model.h"

namespace linnet {

struct TranslationEnsemble : TranslationModel {
  // Run folders or model folders; adapters go with one model folder. User error for models whose vocabularies differ.
  explicit TranslationEnsemble(const std::vector<std::string>& folders, const std::vector<AdapterFolder>& adapters = {},
                               const Languages& languages = {});

  // Into a flat buffer in the order of `layout`, which is of `model`.
  LoadWeights weights() const;

  std::vector<OpenedTranslationModel> members;

 private:
  std::vector<ParameterLayout> layouts_;  // of the members, each by itself
};

}  // namespace linnet
