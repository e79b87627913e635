// A decoder-only model on a key-value cache of a fixed number of slots: its plans, their memory and their inputs.
// Engine (engine.h) decides which request has which slot; this class only computes.
//
// A prompt is computed by itself, padded at its right end, by the plan of the smallest planned length that it fits. One
// decode plan feeds one token to every slot, each at its own position, with products whose rows do not depend on each
// other (the pass independent_rows). So on the CPU the logits of a slot have the same bits whatever the other slots do
// and however many there are.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "models/causal_model.h"
#include "nn/parameter_layout.h"

namespace linnet {

struct CausalOptions {
  int64_t rows = 1;        // there are rows * beams slots: so many searches at once, or so many sampled texts
  int64_t beams = 1;       // the most of a request; > 1 plans for beam search
  int64_t max_length = 0;  // prompt and generated tokens of a request; 0: what the model can
  // Padded lengths of prompts, ascending; the last is at most max_length. Empty: powers of two.
  std::vector<int64_t> prompt_lengths = {};
  bool cache = true;                     // false: every token computes the whole sequence again, for comparison
  std::string flat_name = "parameters";  // or "ema"
  int threads = 1;                       // the most a pool may have
  bool verify_plans = true;              // see PlanOptions

  int64_t slots() const { return rows * beams; }
};

class SlotModel {
 public:
  // Declares memory (a batch region and the cache) and makes every plan. Before store.allocate(). "constants" and
  // options.flat_name must be bound.
  SlotModel(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
            const CausalOptions& options);
  ~SlotModel();
  SlotModel(const SlotModel&) = delete;
  SlotModel& operator=(const SlotModel&) = delete;

  void bind();  // after store.allocate()

  struct Output {
    std::span<const float> logits;            // [slots, V]
    std::span<const float> log_sum_exp = {};  // of each slot's logits; empty unless options.beams > 1
  };
  // Computes a whole sequence, leaves its keys and values in the slot, and returns what follows its last token. Valid
  // until the next prefill.
  Output prefill(int64_t slot, std::span<const int32_t> sequence, ThreadPool& pool);

  // Say what the next decode() feeds: to every slot nothing; then to some slots their token number `length`, after
  // which the slot's history is that of slot `parent` (of the same group of options.beams slots).
  void feed_nothing();
  void feed(int64_t slot, int32_t token, int64_t length) { feed(slot, token, length, slot); }
  void feed(int64_t slot, int32_t token, int64_t length, int64_t parent);
  void decode(ThreadPool& pool);
  Output decoded(int64_t first_slot, int64_t count) const;  // valid until the next decode()

  // User error for a prompt that cannot be computed or leaves no room for a token.
  void check_prompt(std::span<const int32_t> prompt) const;
  int64_t vocab_size() const { return vocab_; }
  const CausalOptions& options() const { return options_; }
  const std::vector<const Plan*>& plans() const { return plan_list_; }  // for reports

 private:
  struct Bucket;  // the prefill plan of one padded length
  struct Inputs;  // where the graphs' inputs lie
  const Bucket& bucket_for(int64_t length) const;

  CausalOptions options_;
  Store& store_;
  SharedRegions shared_;
  int64_t vocab_, window_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  Plan decode_;
  std::optional<Executor> run_decode_;
  std::vector<const Plan*> plan_list_;
  std::unique_ptr<Inputs> inputs_;
  std::span<const float> logits_, log_sum_exp_;  // of the last decode()
};

}  // namespace linnet
