#include "generation/beam_search.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include "base/functions.h"

namespace linnet {
namespace {
constexpr double kNoBeam = -std::numeric_limits<double>::infinity();
constexpr double kUnlikely = std::numeric_limits<double>::lowest();
constexpr int64_t kRepeated = 32;  // most different tokens that have followed a beam's last ones
}  // namespace

std::vector<int32_t> TextRules::forbidden(
    std::span<const int32_t> text, int64_t written, std::span<const int32_t> ends) const {
  std::vector<int32_t> tokens;
  if (written < min_tokens) tokens.assign(ends.begin(), ends.end());
  if (no_repeat_ngram == 0) return tokens;
  const auto before = static_cast<size_t>(no_repeat_ngram - 1);  // tokens of a sequence except its last
  if (text.size() <= before) return tokens;
  const auto last = text.last(before);
  for (size_t i = 0; i + before < text.size(); ++i)
    if (std::ranges::equal(text.subspan(i, before), last)) tokens.push_back(text[i + before]);
  return tokens;
}

BeamSearch::BeamSearch(int64_t beams, int64_t limit, BeamOptions options)
    : options_(std::move(options)), beams_(beams), limit_(limit),
      log_probabilities_(static_cast<size_t>(beams), kNoBeam), tokens_(static_cast<size_t>(beams)),
      parents_(static_cast<size_t>(beams)) {
  log_probabilities_[0] = 0;  // all beams begin alike: use one
  std::iota(parents_.begin(), parents_.end(), 0);
  ended_.reserve(static_cast<size_t>(beams) + 1);
}

int64_t BeamSearch::candidates() const {
  const int64_t repeated = options_.rules.no_repeat_ngram > 0 ? kRepeated : 0;
  return looked_at() + static_cast<int64_t>(options_.never.size()) + repeated;
}

void BeamSearch::append_history(int64_t steps, int64_t beam, std::vector<int32_t>& text) const {
  const size_t before = text.size();
  text.resize(before + static_cast<size_t>(steps));
  for (int64_t step = steps - 1; step >= 0; --step) {
    const auto location = static_cast<size_t>(step * beams_ + beam);
    text[before + static_cast<size_t>(step)] = history_tokens_[location];
    beam = history_parents_[location];
  }
}

void BeamSearch::advance(int64_t count, const int32_t* tokens, const float* logits, const float* log_sum_exp) {
  if (options_.forced_end && !options_.ends.empty() && steps_ + 1 == limit_) force(options_.ends[0]);
  else if (steps_ < std::ssize(options_.first)) force(options_.first[steps_]);
  else collect_candidates(count, tokens, logits, log_sum_exp);
  choose();
  ++steps_;
}

void BeamSearch::collect_candidates(
    int64_t count, const int32_t* tokens, const float* logits, const float* log_sum_exp) {
  candidates_.clear();
  for (int64_t beam = 0; beam < beams_; ++beam) {
    const double so_far = log_probabilities_[beam];
    if (so_far == kNoBeam) continue;
    int64_t taken = 0;
    std::vector<int32_t> forbidden;
    if (options_.rules.any()) {
      std::vector<int32_t> text = options_.before;
      append_history(steps_, beam, text);
      forbidden = options_.rules.forbidden(text, steps_, options_.ends);
    }
    for (int64_t i = beam * count; i < (beam + 1) * count && taken < looked_at(); ++i) {
      if (contains(options_.never, tokens[i]) || contains(forbidden, tokens[i])) continue;
      const double candidate = so_far + (static_cast<double>(logits[i]) - static_cast<double>(log_sum_exp[beam]));
      // NaN or -inf becomes very unlikely: even a broken model gives some result.
      candidates_.push_back({candidate > kUnlikely ? candidate : kUnlikely, tokens[i], beam});
      ++taken;
    }
  }
  const auto kept = std::min(candidates_.size(), static_cast<size_t>(looked_at()));
  std::partial_sort(
      candidates_.begin(), candidates_.begin() + kept, candidates_.end(), [](const Candidate& a, const Candidate& b) {
        if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
        return a.token != b.token ? a.token < b.token : a.beam < b.beam;
      });
  candidates_.resize(kept);
}

// Candidates if only this token may follow: each beam, with its own probability.
void BeamSearch::force(int32_t token) {
  candidates_.clear();
  for (int64_t beam = 0; beam < beams_; ++beam)
    if (const double so_far = log_probabilities_[beam]; so_far != kNoBeam) candidates_.push_back({so_far, token, beam});
  std::ranges::stable_sort(candidates_, std::ranges::greater{}, &Candidate::log_probability);
}

void BeamSearch::choose() {
  const int64_t length = steps_ + 1;
  chosen_.clear();
  for (size_t rank = 0; rank < candidates_.size() && static_cast<int64_t>(chosen_.size()) < beams_; ++rank) {
    const Candidate& c = candidates_[rank];
    if (!contains(options_.ends, c.token)) chosen_.push_back(c);
    else if (static_cast<int64_t>(rank) < beams_)
      add_ended({score(c.log_probability, length), c.log_probability, length, steps_ == 0 ? -1 : c.beam, true});
  }
  place_beams();
  if (chosen_.empty() || !may_improve(length)) {
    done_ = true;
  } else if (length == limit_) {
    for (int64_t beam = 0; beam < beams_; ++beam) {
      const double log_probability = log_probabilities_[beam];
      if (log_probability != kNoBeam) add_ended({score(log_probability, length), log_probability, length, beam, false});
    }
    done_ = true;
  }
}

// Whether beams of `length` tokens can still beat the hypotheses.
bool BeamSearch::may_improve(int64_t length) const {
  if (static_cast<int64_t>(ended_.size()) < beams_) return true;
  if (beams_ == 1 || options_.early_stopping == EarlyStopping::kFull) return false;
  const bool at_limit = options_.early_stopping == EarlyStopping::kNever && options_.length_penalty > 0;
  return score(chosen_.front().log_probability, at_limit ? limit_ : length) > ended_.back().score;
}

// Gives each chosen continuation a slot: a beam's first one stays, the others move to slots of dead beams.
void BeamSearch::place_beams() {
  std::ranges::fill(log_probabilities_, kNoBeam);
  std::iota(parents_.begin(), parents_.end(), 0);
  const auto take = [&](int64_t beam, const Candidate& c) {
    const auto i = static_cast<size_t>(beam);
    log_probabilities_[i] = c.log_probability, tokens_[i] = c.token, parents_[i] = static_cast<int32_t>(c.beam);
  };
  const auto empty = [&](int64_t beam) { return log_probabilities_[beam] == kNoBeam; };
  for (Candidate& c : chosen_) {
    if (!empty(c.beam)) continue;
    take(c.beam, c);
    c.token = -1;  // placed
  }
  int64_t beam = 0;
  for (const Candidate& c : chosen_) {
    if (c.token == -1) continue;
    while (!empty(beam)) ++beam;
    take(beam, c);
  }
  history_tokens_.insert(history_tokens_.end(), tokens_.begin(), tokens_.end());
  history_parents_.insert(history_parents_.end(), parents_.begin(), parents_.end());
}

void BeamSearch::add_ended(const Ended& ended) {
  const auto worse = [&](const Ended& other) { return ended.score > other.score; };
  ended_.insert(std::ranges::find_if(ended_, worse), ended);
  if (static_cast<int64_t>(ended_.size()) > beams_) ended_.pop_back();
}

double BeamSearch::score(double log_probability, int64_t length) const {
  return log_probability / std::pow(static_cast<double>(length), options_.length_penalty);
}

std::vector<Hypothesis> BeamSearch::result(int64_t n_best) const {
  std::vector<Hypothesis> hypotheses;
  for (const Ended& ended : ended_) {
    if (static_cast<int64_t>(hypotheses.size()) == n_best) break;
    Hypothesis h{{}, ended.score, ended.log_probability, ended.finished};
    append_history(ended.length - (ended.finished ? 1 : 0), ended.beam, h.ids);
    hypotheses.push_back(std::move(h));
  }
  return hypotheses;
}
}  // namespace linnet
