// A decoder-only model on slots. A prompt is computed by itself, padded at its right end, by the plan of the smallest
// planned length that it fits. One decode plan feeds one token to every slot, with products whose rows do not depend on
// each other (the pass independent_rows). So on the CPU the logits of a slot have the same bits whatever the other
// slots do and however many there are.
#pragma once
#include <string>

#include "generate/slot_model.h"
#include "models/causal_model.h"
#include "nn/parameter_layout.h"

namespace linnet {

struct CausalOptions {
  int64_t rows = 1;        // there are rows * beams slots: so many searches at once, or so many sampled texts
  int64_t beams = 1;       // the most of a request; > 1 plans for beam search
  int64_t max_length = 0;  // prompt and generated tokens of a request; 0: what the model can
  // Padded lengths of prompts, ascending; the last is at most max_length. Empty: powers of two.
  std::vector<int64_t> prompt_lengths = {};
  bool cache = true;                 // false: every token computes the whole sequence again, for comparison
  bool independent_prompts = false;  // prompts by the pass independent_rows, too: the same bits with and without cache
  std::string flat_name = "parameters";  // or "ema"
  int threads = 1;                       // the most a pool may have
  bool verify_plans = true;              // see PlanOptions
  bool cache_in_arena = false;           // see SlotOptions
};

class CausalSlots : public SlotModel {
 public:
  // Declares memory (a batch region and the cache) and makes every plan. Before store.allocate(). "constants" and
  // options.flat_name must be bound.
  CausalSlots(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
              const CausalOptions& options);

  void bind() override;
  void begin(std::span<const Prompt> prompts, ThreadPool& pool, const PromptListener& hear) override;
  void check_prompt(std::span<const int32_t> prompt) const override;
  std::vector<int32_t> first_tokens(const std::vector<int32_t>& prompt) const override { return prompt; }
  int64_t room() const override { return options_.max_length; }
  bool computes_again() const override { return !options_.cache; }

 private:
  CausalOptions options_;
  std::vector<std::unique_ptr<Plan>> prefills_;  // by prompt length
  std::vector<Executor> run_prefills_;
  int32_t *prompt_ = nullptr, *last_ = nullptr, *slot_ = nullptr;  // inputs of the prefill plans
};

}  // namespace linnet
