// A decoder-only model on slots. A decode plan feeds tokens to slots, one or several to each, with products whose rows
// do not depend on each other (the pass independent_rows). A prompt is computed by itself, in chunks of the planned
// lengths, each of which is a step of so many tokens of its slot, with the products of prompts.
//
// Bits on the CPU. The logits after a generated token have the same bits whatever the other slots do, however many
// there are, and whether its step had more tokens of its slot. What the cache holds of a token of a prompt has the same
// bits however the prompt is cut into chunks: products of more than 8 rows compute each row alike (gemm_test.cpp holds
// them to it), and attention each token apart (engine/ops/attention/cached_attention.h). So beginnings of prompts can
// be kept and reused (the prefix cache), and a prompt gives the same logits with and without them. A generated token
// and the same token in a prompt differ in their last bits, so only what was computed of prompts is kept.
//
// On a GPU a prompt is computed whole, padded at its right end, by the plan of the smallest planned length that it
// fits.
#pragma once
#include "engine/plan/state_names.h"
#include "generation/prefix_cache.h"
#include "generation/slot_model.h"
#include "models/modules/causal_model.h"
#include "models/nn/parameter_layout.h"

namespace linnet {

constexpr int64_t kPrefixAsCache = -1;

struct CausalOptions {
  int64_t rows = 1;        // there are rows * beams slots: so many searches at once, or so many sampled texts
  int64_t beams = 1;       // the most of a request; > 1 plans for beam search
  int64_t max_length = 0;  // prompt and generated tokens of a request; 0: what the model can
  // Lengths of prompts, ascending; no prompt is longer than the last, which is at most max_length. Those computed whole
  // are padded to one of them. Empty: powers of two.
  std::vector<int64_t> prompt_lengths = {};
  bool cache = true;                 // false: every token computes the whole sequence again, for comparison
  bool independent_prompts = false;  // prompts by the pass independent_rows, too: the same bits with and without cache
  std::string flat_name = state::kParameters;  // or "ema"
  int threads = 1;                             // the most a pool may have
  bool verify_plans = true;                    // see PlanOptions
  bool cache_in_arena = false;                 // see SlotOptions
  int64_t adapters = 0;                        // see SlotOptions
  // Tokens that a slot may be fed in a step. More than one: on the CPU, without beams.
  int64_t tokens_per_step = 1;
  // Bytes in which beginnings of prompts are kept for later ones (PrefixCache); 0: none. On the CPU. kPrefixAsCache: as
  // many as the key-value cache has, at most 256 MiB, where they can be kept.
  int64_t prefix_bytes = 0;
  // Where prompts are computed in chunks: the largest steps alone are planned at once, and decide the memory; each
  // other one when it is first needed. Bits do not depend on it.
  bool plan_on_demand = false;
};

class CausalSlots : public SlotModel {
 public:
  // Declares memory (a batch region, the cache and the prefix cache) and makes the plans. Before store.allocate().
  // "constants" and options.flat_name must be bound.
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
  // Tokens of the longest prompt that can be computed.
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
  // body(what the slot's cache holds from token `first` on, where the block keeps it, bytes) for each layer.
  template <class Body>
  void for_each_layer(int64_t slot, int64_t first, int64_t block, const Body& body);

  CausalModel& model_;
  const ParameterLayout& layout_;
  CausalOptions options_;
  // By prompt length, or by length of a chunk; null where it is not planned yet.
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
