// A decoder-only model that goes on from prompts.
#pragma once
#include <string>
#include <vector>

#include "tasks/generation/text_writer.h"
#include "tasks/language/language_model.h"

namespace linnet {

class TextGeneration : public EngineWriter {
 public:
  // Loads the model. User error, which names the request, for a prompt that does not fit.
  TextGeneration(const std::string& folder, const std::vector<TextRequest>& requests);

 private:
  CausalOptions plan() const;

  OpenedLanguageModel opened_;
};

}  // namespace linnet
