// Beam search over a batch of sentences, apart from any model: it is told each row's likeliest next tokens and says
// which token to feed each row and which row's history that row continues.
//
// Of the 2 * beams best continuations of a sentence (more where several tokens end one), those that end it become
// hypotheses if they are among the first `beams`, the others fill the beams. A sentence is done when it has `beams`
// hypotheses and its likeliest beam, ended at the next step for certain, would not beat the worst of them; or at its
// length limit. One beam is greedy search: the first end is the result. All ties go to the lower token, then to the
// lower row.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace linnet {

struct Hypothesis {
  std::vector<int32_t> ids;  // without begin and end
  double score;              // log_probability / length^penalty, the end token counted in the length
  double log_probability;    // of ids and, when finished, the end token
  bool finished;             // false: cut off at the length limit
};

class BeamSearch {
 public:
  // `special`: what begins and ends a sentence, and that padding and begin are never generated; -1 where there is none.
  // `other_ends` end it too.
  BeamSearch(int64_t sentences, int64_t beams, int64_t max_length, double length_penalty, SpecialTokens special = {},
             std::vector<int32_t> other_ends = {});

  // Begins a batch: sentence i may generate up to limits[i] <= max_length tokens, end included. Fewer sentences than
  // declared is fine; the rest count as done.
  void start(std::span<const int64_t> limits);

  // One step. Row r's candidates are tokens[r * count ...] with logits[...] in falling order (at least `candidates()`
  // tokens that may be generated, or the whole vocabulary); log_sum_exp[r] turns a logit into a log probability.
  void advance(int64_t count, const int32_t* tokens, const float* logits, const float* log_sum_exp);

  // Of a row and of a sentence are looked at: beams that go on, though every end were among the likeliest.
  int64_t candidates() const { return (2 + static_cast<int64_t>(other_ends_.size())) * beams_; }

  bool done() const { return active_ == 0; }
  bool done(int64_t sentence) const { return sentences_[static_cast<size_t>(sentence)].done; }

  // What to feed at the next step. Rows without a beam are fed some valid token.
  std::span<const int32_t> tokens() const { return tokens_; }
  // Row r continues row parents()[r]. A beam stays in its row whenever it can, so that few caches move.
  std::span<const int32_t> parents() const { return parents_; }

  // Best first, finished ones before those that were cut off; at most n_best.
  std::vector<Hypothesis> result(int64_t sentence, int n_best) const;

 private:
  struct Ended {
    double score, log_probability;
    int64_t length;  // generated tokens, end included
    int64_t
        row;  // of the last token before the end, or of the last token of all when not finished; -1 when there is none
    bool finished;
  };
  struct Sentence {
    int64_t limit;
    bool done;
    std::vector<Ended> ended;  // best first, at most `beams`
  };
  struct Candidate {
    double log_probability;
    int32_t token;
    int64_t row;
  };

  void collect_candidates(int64_t sentence, int64_t count, const int32_t* tokens, const float* logits,
                          const float* log_sum_exp);
  void advance_sentence(int64_t sentence);
  void place_beams(int64_t sentence);
  void add_ended(Sentence& sentence, const Ended& ended) const;
  double score(double log_probability, int64_t length) const;
  bool ends(int32_t token) const;

  const SpecialTokens special_;
  const std::vector<int32_t> other_ends_;
  int64_t beams_, max_length_;
  double length_penalty_;
  int64_t step_ = 0, active_ = 0;
  std::vector<Sentence> sentences_;
  std::vector<Candidate> candidates_, chosen_;             // of one sentence
  std::vector<double> log_probabilities_;                  // by row; -inf without a beam
  std::vector<int32_t> tokens_, parents_;                  // by row
  std::vector<int32_t> history_tokens_, history_parents_;  // [max_length, rows]
};

}  // namespace linnet
