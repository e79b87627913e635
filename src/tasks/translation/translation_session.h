// An encoder-decoder in planned memory, with tokenizers and a generator.
#pragma once
#include "data/examples/batch_stream.h"
#include "data/examples/text/parallel_text.h"
#include "generation/engine.h"
#include "tasks/session_task.h"
#include "tasks/translation/translation_model.h"
#include "training/run/training_run.h"

namespace linnet {
// The size of searches: sentences at once, and tokens of the longest source.
struct GenerationNeeds {
  int64_t beams = 1, sentences = 32, longest_source = 0;
};

struct SessionOptions {
  bool training = true;
  std::vector<BatchShape> shapes;             // of batches to train on (or only evaluate)
  std::optional<GenerationNeeds> generation;  // none: no translations
  bool verify_plans = true;                   // false: only sizes are wanted
};

int64_t longest_source(const std::vector<BatchShape>& shapes);

class TranslationSession : public Session {
 public:
  // Plans everything; takes no memory yet, so that its size can be printed or refused.
  TranslationSession(const Config& config, const TranslationModel& model, SessionOptions options);

  void allocate() override;
  std::vector<Plan*> inference_plans() override;

  const Config config;
  const TokenizerPair tokenizers;
  const std::shared_ptr<EncoderDecoder> model;
  std::unique_ptr<SourceGenerator> generator;  // null without options.generation
  const std::vector<BatchShape> shapes;
};

// Evaluation on sentence pairs: loss, BLEU, chrF and exact match.

// Pairs to evaluate on: tokens for the loss, text for the translations.
struct EvaluationSet {
  EvaluationSet(ParallelText text, const TokenizerPair& tokenizers, int64_t max_seq_len);

  ParallelText text;
  PairDataset dataset;  // pair i is line i; too long sides are cut
};

double mean_loss(
    TranslationSession& session, const EvaluationSet& set, const Buckets& buckets, const SharedWork& ranks);

// Translates the first `pairs` lines with the session's generator.
std::vector<std::string> translate(
    TranslationSession& session, const EvaluationSet& set, int64_t pairs, const SharedWork& ranks);

// BLEU, chrF and exact match of translations of the set's first lines.
TaskEvaluation score(const EvaluationSet& set, const std::vector<std::string>& translations, double loss);
}  // namespace linnet
