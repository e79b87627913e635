// Generates texts with a decoder-only model: a loop around an engine (engine.h) for callers with a list of prompts.
#pragma once
#include <functional>
#include <span>
#include <vector>

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

}  // namespace linnet
