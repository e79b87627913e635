// Questions to each kind of model, without answers and weights.
#pragma once
#include "models/modules/causal_model.h"
#include "models/modules/encoder_decoder.h"
#include "models/modules/text_encoder.h"
#include "tasks/inspection/question.h"

namespace linnet {

// The model outlives the question.
Question ask(CausalModel& model, std::vector<int32_t> tokens);
Question ask(SequenceClassifier& model, std::vector<int32_t> tokens);
Question ask(MaskedLanguageModel& model, std::vector<int32_t> tokens);
Question ask(SentenceEncoder& model, std::vector<int32_t> tokens);
// target_in: begin, then the target without its last token.
Question ask(EncoderDecoder& model, std::vector<int32_t> source, std::vector<int32_t> target_in);

}  // namespace linnet
