// A decoder-only model on slots. A decode plan feeds one or more tokens to each slot, with products whose rows do not
// depend on each other (the pass independent_rows). A prompt is computed alone, in chunks of planned lengths, each a
// step of so many tokens of its slot, with the products of prompts.
//
// Bits on the CPU. Logits after a generated token do not depend on the other slots or their number, nor on further
// tokens of its slot in the step. Cache entries of prompts do not depend on how these are cut into chunks: products of
// more than 8 rows compute each row alike (gemm_test.cpp), and attention each token apart
// (engine/ops/attention/attention.h). So the prefix cache can reuse beginnings of prompts with the same logits.
// A token's last bits differ between generation and prompts, so only results of prompts are kept.
//
// On a GPU a whole prompt, right-padded, is computed by the plan of the smallest length that it fits.
#pragma once
#include "engine/plan/state_names.h"
#include "generation/prefix_cache.h"
#include "generation/slot_model.h"
#include "models/modules/causal_model.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
constexpr int64_t kPrefixAsCache = -1;

struct CausalOptions {
  int64_t rows = 1;        // rows * beams slots: so many searches, or sampled texts, at once
  int64_t beams = 1;       // most of a request; > 1 plans beam search
  int64_t max_length = 0;  // prompt and generated tokens of a request; 0: the model's limit
  // Prompt lengths, ascending, at most max_length; prompts computed whole are padded to one. Empty: powers of two.
  std::vector<int64_t> prompt_lengths = {};
  bool cache = true;                 // false: recomputes the whole sequence for each token, for comparison
  bool independent_prompts = false;  // also for prompts the pass independent_rows: the same bits with and without cache
  std::string flat_name = state::kParameters;  // or "ema"
  int threads = 1;                             // most threads of a pool
  bool verify_plans = true;                    // see PlanOptions
  bool cache_in_arena = false;                 // see SlotOptions
  int64_t adapters = 0;                        // see SlotOptions
  // Most tokens of a slot in a step. More than one: on the CPU, without beams.
  int64_t tokens_per_step = 1;
  // Size of the PrefixCache, on the CPU; 0: none. kPrefixAsCache: the key-value cache's, at most 256 MiB, if possible.
  int64_t prefix_bytes = 0;
  // For prompts in chunks: plans the largest steps, which decide the memory, others on demand. Bits do not change.
  bool plan_on_demand = false;
};

class CausalSlots : public SlotModel {
 public:
  // Declares memory and plans. Call before store.allocate(). "constants" and options.flat_name must be bound.
  CausalSlots(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
      const CausalOptions& options);

  void bind() override;
  void begin(std::span<const Prompt> prompts, ThreadPool& pool, const PromptListener& hear) override;
  void check_prompt(std::span<const int32_t> prompt) const override;
  std::vector<int32_t> first_tokens(const std::vector<int32_t>& prompt) const override { return prompt; }
  int64_t room() const override { return options_.max_length; }
  bool computes_again() const override { return !options_.cache; }
  // A step reads all weights with few rows.
  std::vector<Plan*> packable_plans() override { return {}; }
  int64_t longest_prompt() const { return std::min(options_.prompt_lengths.back(), options_.max_length - 1); }
  bool keeps_prefixes() const { return prefixes_.has_value(); }

 private:
  Graph prefill_graph(int64_t length) const;
  enum class Logits { kAll, kLast, kNone };
  Graph step_graph(int64_t rows, bool by_rows, Logits wanted) const;
  size_t planned_chunk(size_t chunk);
  bool in_chunks() const { return !chunk_lengths_.empty(); }
  void declare_prefixes();
  const Executor& compute_whole(const Prompt& prompt, ThreadPool& pool);
  const Executor& compute_in_chunks(const Prompt& prompt, ThreadPool& pool);
  int64_t reuse(const Prompt& prompt);
  void keep(const Prompt& prompt);
  int64_t block_bytes() const;
  // Calls body(the slot's cache from token `first` on, the block's copy, bytes) for each layer.
  template <class Body> void for_each_layer(int64_t slot, int64_t first, int64_t block, const Body& body);

  CausalModel& model_;
  const ParameterLayout& layout_;
  CausalOptions options_;
  // By prompt length, or chunk length; null until planned.
  std::vector<std::unique_ptr<Plan>> prefills_;
  std::vector<std::optional<Executor>> run_prefills_;
  std::vector<int64_t> chunk_lengths_;  // ascending; the last plan of prefills_ is a chunk of the last without logits
  int32_t *prompt_ = nullptr, *last_ = nullptr, *slot_ = nullptr;  // inputs of the prefill plans

  struct Layer {
    std::string name;
    int64_t width;  // floats of a token
    float* cache = nullptr;
  };
  std::vector<Layer> layers_;
  std::optional<PrefixCache> prefixes_;
  RegionId prefix_region_ = -1;
  std::byte* prefix_memory_ = nullptr;
};
}  // namespace linnet
