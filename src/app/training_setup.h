// Everything a training run stands on, made in order: text, tokenizers, batches, planned memory.
#pragma once
#include "app/evaluation.h"
#include "app/memory_report.h"
#include "data/batch_stream.h"

namespace linnet {

constexpr int kPrefetchDepth = 2;

class TrainingSetup {
 public:
  // With `tokenizers` empty they are trained. Plans and binds everything; takes no planned memory yet.
  // Throws Error(kUser), with the figures, for what the machine cannot hold.
  TrainingSetup(const Config& config, TokenizerPair tokenizers);

  void take_memory() { session->store.touch(); }

  Config config;
  TokenizerPair tokenizers;
  std::unique_ptr<PairDataset> train;
  std::unique_ptr<EvaluationSet> valid;
  std::unique_ptr<Buckets> buckets;
  std::unique_ptr<Session> session;
  MemoryForecast forecast;
  std::unique_ptr<BatchStream> stream;
};

// The shapes of a configuration's batches, for (source, target) lengths of all pairs that are to fit.
Buckets choose_buckets(const Config& config, const std::vector<std::pair<int, int>>& lengths);
// What training with these buckets, and evaluating on the way, takes.
SessionOptions training_session_options(const Config& config, const Buckets& buckets);

}  // namespace linnet
