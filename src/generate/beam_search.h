// Beam search over a batch of sentences, apart from any model: it is told each row's likeliest next tokens and says
// which token to feed each row and which row's history that row continues.
//
// Of the 2 * beams best continuations of a sentence (more where several tokens end one), those that end it become
// hypotheses if they are among the first `beams`, the others fill the beams. At the length limit the beams become
// hypotheses too, and what is best has the highest score, whether it was finished or cut off. When a sentence with
// `beams` hypotheses is done before, says EarlyStopping. All of it is as transformers has it. One beam is greedy
// search: the first end is the result. All ties go to the lower token, then to the lower row.
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

// When a sentence with `beams` hypotheses is done (transformers' early_stopping: false, true, "never").
enum class EarlyStopping {
  kLikely,  // as soon as its likeliest beam, were it finished as it is, would not beat the worst hypothesis
  kFull,    // at once
  kNever,   // as kLikely; but with length_penalty > 0 the beam might still grow to the limit without losing probability
};

struct BeamOptions {
  double length_penalty = 1;  // score = log probability / length^length_penalty
  EarlyStopping early_stopping = EarlyStopping::kLikely;
  bool forced_end = false;  // the token at the length limit is the end for certain (forced_eos_token_id)
  // What begins and ends a sentence, and that padding and begin are never generated; -1 where there is none.
  SpecialTokens special = {};
  std::vector<int32_t> other_ends = {};  // these end it too
};

class BeamSearch {
 public:
  BeamSearch(int64_t sentences, int64_t beams, int64_t max_length, BeamOptions options);

  // Begins a batch: sentence i may generate up to limits[i] <= max_length tokens, end included. Fewer sentences than
  // declared is fine; the rest count as done.
  void start(std::span<const int64_t> limits);

  // One step. Row r's candidates are tokens[r * count ...] with logits[...] in falling order (at least `candidates()`
  // tokens that may be generated, or the whole vocabulary); log_sum_exp[r] turns a logit into a log probability.
  void advance(int64_t count, const int32_t* tokens, const float* logits, const float* log_sum_exp);

  // Of a row and of a sentence are looked at: beams that go on, though every end were among the likeliest.
  int64_t candidates() const { return (2 + static_cast<int64_t>(options_.other_ends.size())) * beams_; }

  bool done() const { return active_ == 0; }
  bool done(int64_t sentence) const { return sentences_[static_cast<size_t>(sentence)].done; }

  // What to feed at the next step. Rows without a beam are fed some valid token.
  std::span<const int32_t> tokens() const { return tokens_; }
  // Row r continues row parents()[r]. A beam stays in its row whenever it can, so that few caches move.
  std::span<const int32_t> parents() const { return parents_; }

  // Best first; at most n_best.
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
  void end_all(int64_t sentence);
  void advance_sentence(int64_t sentence);
  bool may_improve(const Sentence& sentence, int64_t length) const;
  void place_beams(int64_t sentence);
  void add_ended(Sentence& sentence, const Ended& ended) const;
  double score(double log_probability, int64_t length) const;
  bool ends(int32_t token) const;

  const BeamOptions options_;
  int64_t beams_, max_length_;
  int64_t step_ = 0, active_ = 0;
  std::vector<Sentence> sentences_;
  std::vector<Candidate> candidates_, chosen_;             // of one sentence
  std::vector<double> log_probabilities_;                  // by row; -inf without a beam
  std::vector<int32_t> tokens_, parents_;                  // by row
  std::vector<int32_t> history_tokens_, history_parents_;  // [max_length, rows]
};

}  // namespace linnet
