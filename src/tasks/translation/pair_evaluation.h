// How good a model is on a set of sentence pairs: loss, BLEU, chrF and exact match.
#pragma once
#include "data/examples/text/pair_dataset.h"
#include "data/examples/text/parallel_text.h"
#include "tasks/translation/translation_session.h"
#include "training/run/training_task.h"

namespace linnet {

// Pairs to evaluate on: tokens for the loss, text for the translations.
struct EvaluationSet {
  EvaluationSet(ParallelText text, const TokenizerPair& tokenizers, int64_t max_seq_len);

  ParallelText text;
  PairDataset dataset;  // pair i is line i; too long sides are cut
};

double mean_loss(TranslationSession& session, const EvaluationSet& set, const Buckets& buckets, SharedWork& ranks);

// Translates the first `pairs` lines with the session's generator.
std::vector<std::string> translate(TranslationSession& session, const EvaluationSet& set, int64_t pairs,
                                   SharedWork& ranks);

// BLEU, chrF and exact match of translations of the set's first lines.
Evaluation score(const EvaluationSet& set, const std::vector<std::string>& translations, double loss);

}  // namespace linnet
