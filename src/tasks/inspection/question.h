// A model with tokens and possible answers, and the findings: attention maps, and tokens' shares in each answer.
#pragma once
#include "models/modules/causal_model.h"
#include "models/modules/encoder_decoder.h"
#include "models/modules/text_encoder.h"
#include "models/nn/parameter_layout.h"
#include "models/nn/trace.h"
#include "training/report/report_page.h"
#include "training/run/pretrained_run.h"

namespace linnet {
struct QuestionSequence {
  std::string input;  // of the graph: "tokens", "source"
  std::vector<int32_t> ids;
};

// One of the model's classes or tokens.
struct QuestionAnswer {
  int64_t position = 0;            // of the states; 0 with one state for all of a sequence
  std::optional<int32_t> id = {};  // empty: the likeliest
};

struct Question {
  const Module* model;
  std::vector<QuestionSequence> sequences;  // the encoder's before the decoder's
  // Traces the model on token ids, i32 [rows, length] for each sequence. Returns states of the last one, [rows,
  // positions, width], or [rows, width] if there is one state for all of it.
  std::function<Tensor(std::span<const Tensor> sequences)> states;
  // Logits of all answers, [rows, answers], from states [rows, width]. Empty: the states are logits.
  std::function<Tensor(Tensor states)> head;
  std::vector<QuestionAnswer> answers;  // empty: only attention is inspected
  LoadWeights load;
};

struct FoundAnswer {
  int32_t id;
  std::vector<double> log_probabilities;    // of all answers
  double baseline = 0;                      // log probability of `id` with all embeddings set to the table's mean
  std::vector<std::vector<double>> shares;  // [sequences][tokens], engine/passes/passes.h
};

struct Findings {
  std::vector<InspectedAttention> attention;
  std::vector<FoundAnswer> answers;
};

// `steps`: points on the path from the mean embedding where gradients are taken; `threads` 0: all there are.
Findings look_inside(const Question& question, int64_t steps, int threads = 0);

// Questions to each kind of model, without answers and weights.

// The model outlives the question.
Question ask(CausalModel& model, std::vector<int32_t> tokens);
Question ask(SequenceClassifier& model, std::vector<int32_t> tokens);
Question ask(MaskedLanguageModel& model, std::vector<int32_t> tokens);
Question ask(SentenceEncoder& model, std::vector<int32_t> tokens);
// target_in: begin, then the target without its last token.
Question ask(EncoderDecoder& model, std::vector<int32_t> source, std::vector<int32_t> target_in);
}  // namespace linnet
