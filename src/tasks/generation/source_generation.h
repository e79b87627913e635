// An encoder-decoder that answers prompts: T5, Marian, or a run of translation.
#pragma once
#include <string>
#include <vector>

#include "tasks/generation/text_writer.h"
#include "tasks/translation/translation_model.h"

namespace linnet {

class SourceGeneration : public EngineWriter {
 public:
  // Loads the model. User error, which names the request, for a prompt that does not fit, or settings that such a model
  // does not have.
  SourceGeneration(const std::string& folder, const std::vector<TextRequest>& requests);

 private:
  SourceOptions plan() const;

  OpenedTranslationModel opened_;
};

}  // namespace linnet
