// Generates texts with a decoder-only model: a loop around an engine (engine.h) for callers with a list of prompts.
#pragma once
#include "generation/engine.h"

namespace linnet {

class CausalGenerator {
 public:
  // As CausalSlots: before store.allocate().
  CausalGenerator(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
                  const CausalOptions& options)
      : engine_(model, layout, store, shared, options) {}

  void bind() { engine_.bind(); }  // after store.allocate()

  // Hears each token as it is picked, except end tokens; false ends everything. Of beam search it hears (-1, -1) after
  // each step.
  using Listener = std::function<bool(int64_t row, int32_t token)>;

  // Continues each prompt (none may be empty: user error), as many at once as there are slots. With options.beams > 1
  // each is a beam search. A row stops at an end token, after max_tokens, or where the cache is full.
  std::vector<Continuation> generate(std::span<const std::vector<int32_t>> prompts, const GenerateSettings& settings,
                                     ThreadPool& pool, const Listener& listener = {});

  // Inside a listener: what the token was picked from.
  std::span<const float> last_logits() const { return last_logits_; }
  std::vector<const Plan*> plans() const { return engine_.plans(); }  // for reports

 private:
  Engine engine_;
  std::span<const float> last_logits_;
};

// The likeliest texts of an encoder-decoder for lists of sources: a loop around an engine (engine.h).

// How sources are searched for. Generated tokens of a text, its end included, are at most
//   length_ratio * source tokens + length_margin,
// and what the engine was planned for, so that a model that has not learned to stop does not fill the cache.
struct SearchSettings {
  double length_ratio = 2.0;
  int64_t length_margin = 20;
  GenerateSettings generate = {};  // but for max_tokens
};

class SourceGenerator {
 public:
  // As SourceSlots: before store.allocate(). Every search has options.beams beams; 1 is greedy search.
  SourceGenerator(EncoderDecoder& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
                  const SourceOptions& options, SearchSettings settings)
      : engine_(model, layout, store, shared, options), settings_(std::move(settings)) {}

  void bind() { engine_.bind(); }  // after store.allocate()

  // The best `n_best` <= beams hypotheses for each source, best first, in the order of the sources. A source is token
  // ids with the end token, at most the longest planned length (user error beyond it). `progress` hears after each step
  // how many sources are done.
  std::vector<std::vector<Hypothesis>> generate(std::span<const std::vector<int32_t>> sources, int64_t n_best,
                                                ThreadPool& pool,
                                                const std::function<void(int64_t done)>& progress = {});

  std::vector<const Plan*> plans() const { return engine_.plans(); }  // for reports
  std::vector<Plan*> packable_plans() { return engine_.packable_plans(); }

 private:
  Engine engine_;
  const SearchSettings settings_;
};

}  // namespace linnet
