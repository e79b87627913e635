// How good a model is on a set of sentence pairs: loss, BLEU and exact match, with the translations themselves.
#pragma once
#include "app/session.h"
#include "data/evaluation_batches.h"
#include "metrics/bleu.h"

namespace linnet {

// Pairs to evaluate on: tokens for the loss, text for the translations.
struct EvaluationSet {
  EvaluationSet(ParallelText text, const TokenizerPair& tokenizers, int64_t max_seq_len);

  ParallelText text;
  PairDataset dataset;  // pair i is line i; too long sides are cut
};

struct EvaluationResult {
  double loss = 0;  // mean over the target tokens
  Bleu bleu;
  double exact_match = 0;
  std::vector<std::string> translations;  // of the first `pairs` lines
};

double mean_loss(Session& session, const EvaluationSet& set, const Buckets& buckets);

// Translates the first `pairs` lines with a generator of the session.
std::vector<std::string> translate(Session& session, Generator& generator, const EvaluationSet& set, int64_t pairs);

EvaluationResult score(const EvaluationSet& set, std::vector<std::string> translations, double loss);

}  // namespace linnet
