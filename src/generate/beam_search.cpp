#include "generate/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace linnet {
namespace {

constexpr double kNoBeam = -std::numeric_limits<double>::infinity();
constexpr double kUnlikely = std::numeric_limits<double>::lowest();

}  // namespace

BeamSearch::BeamSearch(int64_t sentences, int64_t beams, int64_t max_length, BeamOptions options)
    : options_(std::move(options)), beams_(beams), max_length_(max_length), sentences_(static_cast<size_t>(sentences)) {
  const auto rows = static_cast<size_t>(sentences * beams), slots = rows * static_cast<size_t>(max_length);
  log_probabilities_.resize(rows);
  tokens_.resize(rows);
  parents_.resize(rows);
  history_tokens_.resize(slots);
  history_parents_.resize(slots);
  for (Sentence& sentence : sentences_) sentence.ended.reserve(static_cast<size_t>(beams) + 1);
}

void BeamSearch::start(std::span<const int64_t> limits) {
  step_ = 0;
  active_ = static_cast<int64_t>(limits.size());
  for (size_t i = 0; i < sentences_.size(); ++i) {
    const bool used = i < limits.size();
    sentences_[i].limit = used ? std::min(limits[i], max_length_) : 0;
    sentences_[i].done = !used;
    sentences_[i].ended.clear();
  }
  // All beams of a sentence begin alike, so only its first row takes part in the first step.
  for (size_t row = 0; row < tokens_.size(); ++row) {
    log_probabilities_[row] = static_cast<int64_t>(row) % beams_ == 0 ? 0.0 : kNoBeam;
    tokens_[row] = std::max(options_.special.begin, 0);
    parents_[row] = static_cast<int32_t>(row);
  }
}

void BeamSearch::advance(int64_t count, const int32_t* tokens, const float* logits, const float* log_sum_exp) {
  for (int64_t i = 0; i < static_cast<int64_t>(sentences_.size()); ++i) {
    if (done(i)) continue;
    if (options_.forced_end && step_ + 1 == sentences_[static_cast<size_t>(i)].limit)
      end_all(i);
    else
      collect_candidates(i, count, tokens, logits, log_sum_exp);
    advance_sentence(i);
  }
  ++step_;
}

// The likeliest candidates() continuations of the sentence, best first.
void BeamSearch::collect_candidates(int64_t sentence, int64_t count, const int32_t* tokens, const float* logits,
                                    const float* log_sum_exp) {
  candidates_.clear();
  for (int64_t row = sentence * beams_; row < (sentence + 1) * beams_; ++row) {
    const double so_far = log_probabilities_[static_cast<size_t>(row)];
    if (so_far == kNoBeam) continue;
    int64_t taken = 0;
    for (int64_t i = row * count; i < (row + 1) * count && taken < candidates(); ++i) {
      if (tokens[i] == options_.special.pad || tokens[i] == options_.special.begin) continue;
      const double candidate = so_far + (static_cast<double>(logits[i]) - static_cast<double>(log_sum_exp[row]));
      // NaN or -inf becomes very unlikely: even a broken model gives some result.
      candidates_.push_back({candidate > kUnlikely ? candidate : kUnlikely, tokens[i], row});
      ++taken;
    }
  }
  const auto kept = std::min(candidates_.size(), static_cast<size_t>(candidates()));
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept), candidates_.end(),
                    [](const Candidate& a, const Candidate& b) {
                      if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
                      return a.token != b.token ? a.token < b.token : a.row < b.row;
                    });
  candidates_.resize(kept);
}

// Candidates when nothing but the end may follow: each beam, with its own probability.
void BeamSearch::end_all(int64_t sentence) {
  candidates_.clear();
  for (int64_t row = sentence * beams_; row < (sentence + 1) * beams_; ++row)
    if (const double so_far = log_probabilities_[static_cast<size_t>(row)]; so_far != kNoBeam)
      candidates_.push_back({so_far, options_.special.end, row});
  std::ranges::stable_sort(candidates_, std::ranges::greater{}, &Candidate::log_probability);
}

void BeamSearch::advance_sentence(int64_t index) {
  Sentence& sentence = sentences_[static_cast<size_t>(index)];
  const int64_t length = step_ + 1;
  chosen_.clear();
  for (size_t rank = 0; rank < candidates_.size() && static_cast<int64_t>(chosen_.size()) < beams_; ++rank) {
    const Candidate& c = candidates_[rank];
    if (!ends(c.token)) {
      chosen_.push_back(c);
    } else if (static_cast<int64_t>(rank) < beams_) {
      const int64_t last_row = step_ == 0 ? -1 : c.row;
      add_ended(sentence, {score(c.log_probability, length), c.log_probability, length, last_row, true});
    }
  }
  place_beams(index);
  if (chosen_.empty() || !may_improve(sentence, length)) {
    sentence.done = true;
  } else if (length == sentence.limit) {
    for (int64_t row = index * beams_; row < (index + 1) * beams_; ++row) {
      const double log_probability = log_probabilities_[static_cast<size_t>(row)];
      if (log_probability != kNoBeam)
        add_ended(sentence, {score(log_probability, length), log_probability, length, row, false});
    }
    sentence.done = true;
  }
  if (sentence.done) --active_;
}

// Whether beams of `length` tokens may still matter beside the hypotheses.
bool BeamSearch::may_improve(const Sentence& sentence, int64_t length) const {
  if (static_cast<int64_t>(sentence.ended.size()) < beams_) return true;
  if (beams_ == 1 || options_.early_stopping == EarlyStopping::kFull) return false;
  const bool at_limit = options_.early_stopping == EarlyStopping::kNever && options_.length_penalty > 0;
  return score(chosen_.front().log_probability, at_limit ? sentence.limit : length) > sentence.ended.back().score;
}

// Gives each chosen continuation a row: the first of a row stays there, the others move to rows whose beam died.
void BeamSearch::place_beams(int64_t index) {
  const int64_t first = index * beams_, last = first + beams_;
  for (int64_t row = first; row < last; ++row) {
    log_probabilities_[static_cast<size_t>(row)] = kNoBeam;
    parents_[static_cast<size_t>(row)] = static_cast<int32_t>(row);
  }
  const auto take = [&](int64_t row, const Candidate& c) {
    log_probabilities_[static_cast<size_t>(row)] = c.log_probability;
    tokens_[static_cast<size_t>(row)] = c.token;
    parents_[static_cast<size_t>(row)] = static_cast<int32_t>(c.row);
  };
  const auto empty = [&](int64_t row) { return log_probabilities_[static_cast<size_t>(row)] == kNoBeam; };
  for (Candidate& c : chosen_) {
    if (!empty(c.row)) continue;
    take(c.row, c);
    c.token = -1;  // placed
  }
  int64_t row = first;
  for (const Candidate& c : chosen_) {
    if (c.token == -1) continue;
    while (!empty(row)) ++row;
    take(row, c);
  }
  const auto slot = static_cast<size_t>(step_) * tokens_.size();
  for (row = first; row < last; ++row) {
    history_tokens_[slot + static_cast<size_t>(row)] = tokens_[static_cast<size_t>(row)];
    history_parents_[slot + static_cast<size_t>(row)] = parents_[static_cast<size_t>(row)];
  }
}

void BeamSearch::add_ended(Sentence& sentence, const Ended& ended) const {
  const auto worse = [&](const Ended& other) { return ended.score > other.score; };
  sentence.ended.insert(std::find_if(sentence.ended.begin(), sentence.ended.end(), worse), ended);
  if (static_cast<int64_t>(sentence.ended.size()) > beams_) sentence.ended.pop_back();
}

bool BeamSearch::ends(int32_t token) const {
  return token == options_.special.end || std::ranges::find(options_.other_ends, token) != options_.other_ends.end();
}

double BeamSearch::score(double log_probability, int64_t length) const {
  return log_probability / std::pow(static_cast<double>(length), options_.length_penalty);
}

std::vector<Hypothesis> BeamSearch::result(int64_t index, int n_best) const {
  const Sentence& sentence = sentences_[static_cast<size_t>(index)];
  std::vector<Hypothesis> hypotheses;
  for (const Ended& ended : sentence.ended) {
    if (static_cast<int>(hypotheses.size()) == n_best) break;
    Hypothesis h{{}, ended.score, ended.log_probability, ended.finished};
    const int64_t count = ended.length - (ended.finished ? 1 : 0);
    h.ids.resize(static_cast<size_t>(count));
    for (int64_t step = count - 1, row = ended.row; step >= 0; --step) {
      const auto slot = static_cast<size_t>(step) * tokens_.size() + static_cast<size_t>(row);
      h.ids[static_cast<size_t>(step)] = history_tokens_[slot];
      row = history_parents_[slot];
    }
    hypotheses.push_back(std::move(h));
  }
  return hypotheses;
}

}  // namespace linnet
