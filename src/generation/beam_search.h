// Beam search for one text, independent of models: it gets each beam's likeliest next tokens, and says which token to
// feed each beam and which beam's history that continues. Of the 2 * beams best continuations (more with several end
// tokens), ends among the first `beams` become hypotheses, and others fill the beams. At the length limit beams become
// hypotheses too; the highest score wins, finished or cut off. EarlyStopping decides when to stop before. All as in
// transformers. One beam is greedy search, up to the first end. Ties go to the lower token, then the lower beam.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace linnet {
struct Hypothesis {
  std::vector<int32_t> ids;  // without begin and end
  double score;              // log_probability / length^penalty, with the end token in the length
  double log_probability;    // of ids and, when finished, the end token
  bool finished;             // false: cut off at the length limit
};

// When a search with `beams` hypotheses is done (transformers' early_stopping: false, true, "never").
enum class EarlyStopping {
  kLikely,  // once its likeliest beam, finished as it is, would not beat the worst hypothesis
  kFull,    // at once
  kNever,   // like kLikely; with length_penalty > 0 as if the beam kept its probability up to the limit
};

// Restrictions on the text, whatever is likely.
struct TextRules {
  int64_t min_tokens = 0;       // generated tokens before an end (min_new_tokens)
  int64_t no_repeat_ngram = 0;  // n: no sequence of n tokens twice, prompt included; 0: any

  bool any() const { return min_tokens > 0 || no_repeat_ngram > 0; }
  // Tokens that may not follow `text`, whose last `written` tokens are new.
  std::vector<int32_t> forbidden(std::span<const int32_t> text, int64_t written, std::span<const int32_t> ends) const;
};

struct BeamOptions {
  double length_penalty = 1;  // score = log probability / length^length_penalty
  EarlyStopping early_stopping = EarlyStopping::kLikely;
  bool forced_end = false;          // forces ends[0] at the length limit (forced_eos_token_id)
  std::vector<int32_t> first = {};  // forced first tokens (forced_bos_token_id)
  std::vector<int32_t> ends = {};   // tokens that end a text
  std::vector<int32_t> never = {};  // tokens that are never generated
  TextRules rules = {};
  std::vector<int32_t> before = {};  // the context of all beams, for the rules
};

class BeamSearch {
 public:
  // Generates up to `limit` tokens, the end included.
  BeamSearch(int64_t beams, int64_t limit, BeamOptions options);

  // One step. Beam b's candidates are tokens[b * count ...] with logits[...] in descending order, candidates() or the
  // whole vocabulary. log_sum_exp[b] turns logits into log probabilities. The first step only reads beam 0.
  void advance(int64_t count, const int32_t* tokens, const float* logits, const float* log_sum_exp);

  // Candidates of each beam: enough for `beams` that continue, even if all ends, all never-generated tokens and some
  // tokens that would repeat a sequence are among the likeliest.
  int64_t candidates() const;

  bool done() const { return done_; }
  int64_t steps() const { return steps_; }

  // Tokens to feed after a step. If no beam continues, some token that was fed before.
  std::span<const int32_t> tokens() const { return tokens_; }
  // Beam b continues beam parents()[b]. Beams stay in place if possible, so that few caches move.
  std::span<const int32_t> parents() const { return parents_; }

  std::vector<Hypothesis> result(int64_t n_best) const;

 private:
  struct Ended {
    double score, log_probability;
    int64_t length;  // generated tokens, end included
    int64_t beam;    // of the last token before the end, or of the last token if unfinished; -1: none
    bool finished;
  };
  struct Candidate {
    double log_probability;
    int32_t token;
    int64_t beam;
  };

  void collect_candidates(int64_t count, const int32_t* tokens, const float* logits, const float* log_sum_exp);
  void force(int32_t token);
  void choose();
  bool may_improve(int64_t length) const;
  void place_beams();
  void add_ended(const Ended& ended);
  double score(double log_probability, int64_t length) const;
  // Ranked continuations of all beams together.
  int64_t looked_at() const { return (1 + static_cast<int64_t>(std::max<size_t>(1, options_.ends.size()))) * beams_; }
  // Appends the tokens of a beam after so many steps.
  void append_history(int64_t steps, int64_t beam, std::vector<int32_t>& text) const;

  const BeamOptions options_;
  const int64_t beams_, limit_;
  int64_t steps_ = 0;
  bool done_ = false;
  std::vector<Ended> ended_;                               // best first, at most `beams`
  std::vector<Candidate> candidates_, chosen_;             // of a step
  std::vector<double> log_probabilities_;                  // by beam; -inf without a beam
  std::vector<int32_t> tokens_, parents_;                  // by beam
  std::vector<int32_t> history_tokens_, history_parents_;  // [steps, beams]
};
}  // namespace linnet
