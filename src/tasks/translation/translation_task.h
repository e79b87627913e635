// Training a Transformer on pairs of sentences. Everything it stands on is made in order: text, tokenizers, batches,
// planned memory.
#pragma once
#include "data/examples/batch_stream.h"
#include "training/run/training_task.h"
#include "tasks/translation/pair_evaluation.h"

namespace linnet {

class TranslationTask : public TrainingTask {
 public:
  // `from`: a run folder whose tokenizers and model are taken instead of new ones; empty: none.
  TranslationTask(const Config& config, const std::string& from, Capacity capacity = Capacity::kMustSuffice);

  Trainer& trainer() override { return *session->trainer; }
  const Store& store() const override { return session->store; }
  const MemoryForecast& forecast() const override { return forecast_; }
  BatchSource& batches() override { return *stream; }
  Evaluation evaluate(SharedWork& ranks) override;
  void initialize() override;
  const PretrainedModel* starts_from() const override;
  void save_assets(const std::string& folder) const override { model.save_assets(folder); }

  Config config;
  TranslationModel model;
  TokenizerPair tokenizers;
  std::unique_ptr<PairDataset> train;
  std::unique_ptr<EvaluationSet> valid;
  std::unique_ptr<Buckets> buckets;
  std::unique_ptr<TranslationSession> session;
  std::unique_ptr<BatchStream> stream;

 private:
  MemoryForecast forecast_;
  int64_t evaluations_ = 0;
};

// The shapes of a configuration's batches, for (source, target) lengths of all pairs that are to fit.
Buckets choose_buckets(const Config& config, const std::vector<std::pair<int, int>>& lengths);
// What training with these buckets, and evaluating on the way, takes.
SessionOptions training_session_options(const Config& config, const Buckets& buckets);

}  // namespace linnet
