// How a text is generated, and what comes of it.
#pragma once
#include <functional>
#include <vector>

#include "generation/beam_search.h"
#include "generation/sampling.h"
#include "generation/token_filter.h"

namespace linnet {

struct GenerateSettings {
  int64_t max_tokens = 100;                               // generated of each row, its end included
  SamplingOptions sampling;                               // with one beam
  double length_penalty = 1;                              // of beam search: score = log probability / length^penalty
  EarlyStopping early_stopping = EarlyStopping::kLikely;  // of beam search
  bool forced_end = false;                                // of a search: the token at the limit is ends[0] for certain
  std::vector<int32_t> ends;                              // tokens that end a text
  std::vector<int32_t> never = {};                        // tokens that are not generated
  // Where the cache is full: false stops there; true goes on from the last half of the text. Not with beams.
  bool slide = false;
  uint64_t first_sample = 0;  // row i draws as sample first_sample + i
  // Asked after each token of a row: true ends that row there. Not with beams. An engine's request has a listener
  // instead.
  std::function<bool(int64_t row, int32_t token)> ends_row = {};
  // If set, a sampled text is one of the grammar, and ends where it is whole; `texts` are those of the vocabulary.
  std::shared_ptr<const TextGrammar> grammar = {};
  std::shared_ptr<const TokenTexts> texts = {};
  bool log_probabilities = false;  // see Continuation; takes a pass over the vocabulary for each token
};

struct Continuation {
  std::vector<int32_t> tokens;  // without the end
  bool ended = false;           // by an end token, not at a limit
  int32_t end_token = -1;       // of a sampled text that ended
  // By the model's own distribution, before temperature and the like. Of each token, the end token included; of a
  // search empty.
  std::vector<float> log_probabilities = {};
  double log_probability = 0;  // of all of them together; of a search always there

  void add(double value) { log_probabilities.push_back(static_cast<float>(value)), log_probability += value; }
};

}  // namespace linnet
