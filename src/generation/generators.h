// Generates texts for lists of prompts or sources: loops around an engine (engine.h).
#pragma once
#include "generation/engine.h"

namespace linnet {
class CausalGenerator {
 public:
  // Like CausalSlots, call before store.allocate().
  CausalGenerator(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
      const CausalOptions& options)
      : engine_(model, layout, store, shared, options) {}

  void bind() { engine_.bind(); }  // call after store.allocate()

  // Hears each picked token except ends; false ends everything. Beam search reports (-1, -1) after each step.
  using Listener = std::function<bool(int64_t row, int32_t token)>;

  // Continues each prompt (user error if one is empty), as many at once as there are slots; with options.beams > 1 by
  // beam search. A row stops at an end token, after max_tokens, or where the cache is full.
  std::vector<Continuation> generate(std::span<const std::vector<int32_t>> prompts, const GenerateSettings& settings,
      ThreadPool& pool, const Listener& listener = {});

  // Inside a listener: the logits that the token was picked from.
  std::span<const float> last_logits() const { return last_logits_; }
  std::vector<const Plan*> plans() const { return engine_.plans(); }  // for reports

 private:
  Engine engine_;
  std::span<const float> last_logits_;
};

// Search settings. A text has at most length_ratio * source tokens + length_margin tokens, its end included, and at
// most what the engine was planned for, so that a model that has not learned to stop does not fill the cache.
struct SearchSettings {
  double length_ratio = 2.0;
  int64_t length_margin = 20;
  GenerateSettings generate = {};  // except max_tokens
};

class SourceGenerator {
 public:
  // Like SourceSlots, call before store.allocate(). Every search has options.beams beams; 1 is greedy search.
  SourceGenerator(EncoderDecoder& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
      const SourceOptions& options, SearchSettings settings)
      : engine_(model, layout, store, shared, options), settings_(std::move(settings)) {}

  void bind() { engine_.bind(); }  // call after store.allocate()

  // The `n_best` <= beams best hypotheses for each source, best first, in source order. Sources include the end token;
  // user error beyond the longest planned length. `progress` hears the number of finished sources after each step.
  std::vector<std::vector<Hypothesis>> generate(std::span<const std::vector<int32_t>> sources, int64_t n_best,
      ThreadPool& pool, const std::function<void(int64_t done)>& progress = {});

  std::vector<const Plan*> plans() const { return engine_.plans(); }  // for reports
  std::vector<Plan*> packable_plans() { return engine_.packable_plans(); }

 private:
  Engine engine_;
  const SearchSettings settings_;
};
}  // namespace linnet
