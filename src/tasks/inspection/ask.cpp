#include "tasks/inspection/ask.h"

#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

Question about(const Module& model, std::vector<int32_t> tokens) {
  return {.model = &model,
          .sequences = {{"tokens", std::move(tokens)}},
          .states = {},
          .head = {},
          .answers = {},
          .load = {}};
}

}  // namespace

Question ask(CausalModel& model, std::vector<int32_t> tokens) {
  Question question = about(model, std::move(tokens));
  question.states = [&model](std::span<const Tensor> in) { return model.hidden({.tokens = in[0]}); };
  question.head = [&model](Tensor states) { return model.logits(states); };
  return question;
}

Question ask(SequenceClassifier& model, std::vector<int32_t> tokens) {
  Question question = about(model, std::move(tokens));
  question.states = [&model](std::span<const Tensor> in) { return model.logits(in[0], {}); };
  return question;
}

Question ask(MaskedLanguageModel& model, std::vector<int32_t> tokens) {
  Question question = about(model, std::move(tokens));
  question.states = [&model](std::span<const Tensor> in) { return model.encoder(in[0], {}); };
  question.head = [&model](Tensor states) { return model.logits_of(model.head(states)); };
  return question;
}

Question ask(SentenceEncoder& model, std::vector<int32_t> tokens) {
  Question question = about(model, std::move(tokens));
  question.states = [&model](std::span<const Tensor> in) { return model.encoder(in[0], {}); };
  return question;
}

Question ask(EncoderDecoder& model, std::vector<int32_t> source, std::vector<int32_t> target_in) {
  Question question = about(model, {});
  question.sequences = {{"source", std::move(source)}, {"target_in", std::move(target_in)}};
  question.states = [&model](std::span<const Tensor> in) { return model.target_logits(in[0], {}, in[1], {}); };
  return question;
}

}  // namespace linnet
