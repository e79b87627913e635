// A model on a fixed number of slots: decode plans, their memory and inputs. A slot is a row of the key-value caches
// with its own position. A decode plan's row is a slot, or with SlotOptions::fed_by_rows any token of any slot. Engine
// (engine.h) assigns slots to requests; this class computes. causal_slots.cpp is for decoder-only models,
// source_slots.cpp for encoder-decoders.
#pragma once
#include "data/text/tokenizer.h"
#include "engine/exec/executor.h"
#include "engine/ir/graph.h"
#include "engine/plan/store.h"
#include "models/modules/attention_block.h"
#include "models/modules/causal_model.h"
#include "models/modules/encoder_decoder.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
struct SlotOptions {
  int64_t rows = 1;          // rows * beams slots: so many searches at once
  int64_t beams = 1;         // most of a request
  int threads = 1;           // most threads of a pool
  bool log_sum_exp = false;  // for searches
  int64_t window = 0;        // > 0: a position only sees the last `window` ones, itself included
  bool verify_plans = true;  // see PlanOptions
  // A decode plan's rows are the fed tokens, several of a slot if wanted; otherwise a row is a slot. Not with beams.
  bool fed_by_rows = false;
  // Puts the caches in the arena behind memory of generation's plans: for a session that also trains. Its steps need a
  // larger arena, and neither reads the other's leftovers.
  bool cache_in_arena = false;
  int64_t adapters = 0;  // sets of adapters that slots choose among (models/nn/low_rank.h)
  int64_t slots() const { return rows * beams; }
};

struct SlotCounts {
  int64_t prompt_tokens = 0;  // of prompts
  int64_t reused_tokens = 0;  // of these, tokens from the prefix cache
  int64_t prefix_hits = 0;    // prompts longer than a block with tokens from the prefix cache
  int64_t prefix_misses = 0;
  int64_t prefix_bytes = 0;  // used bytes of the prefix cache
};

class SlotModel {
 public:
  SlotModel(Store& store, const SharedRegions& shared, int64_t vocab_size, const SlotOptions& options);
  virtual ~SlotModel() = default;
  SlotModel(const SlotModel&) = delete;
  SlotModel& operator=(const SlotModel&) = delete;

  virtual void bind();  // after store.allocate()

  struct Output {
    std::span<const float> logits;            // [rows, V]
    std::span<const float> log_sum_exp = {};  // of each row's logits; empty without options.log_sum_exp
  };
  struct Prompt {
    int64_t slot;  // the first of the request's
    std::span<const int32_t> ids;
  };
  using PromptListener = std::function<void(size_t prompt, const Output& after)>;
  // Computes prompts and leaves in their slots what decoding needs. The listener gets the logits after each prompt,
  // valid until it returns; nothing for sources, which texts do not begin with.
  virtual void begin(std::span<const Prompt> prompts, ThreadPool& pool, const PromptListener& hear) = 0;
  // The number of prompts that begin() computes together.
  virtual int64_t prompts_at_once() const { return 1; }
  // User error for a prompt that cannot be computed or leaves no room for a token.
  virtual void check_prompt(std::span<const int32_t> prompt) const = 0;
  // The first tokens of a prompt's text, and the most tokens of both them and the generated ones.
  virtual std::vector<int32_t> first_tokens(const std::vector<int32_t>& prompt) const = 0;
  virtual int64_t room() const = 0;
  // The adjacent slots of a request, in one group of options.beams slots.
  virtual int64_t slots_for(int64_t beams) const { return beams; }
  // Whether each token recomputes the whole text, for comparison.
  virtual bool computes_again() const { return false; }
  // The longest prompt that it can compute, and whether it keeps beginnings of prompts.
  virtual int64_t longest_prompt() const { return room() - 1; }
  virtual bool keeps_prefixes() const { return false; }

  // Sets the adapters of a slot that is about to begin a prompt; -1: none.
  void use_adapter(int64_t slot, int64_t set);

  // Set the input of the next decode(). feed_nothing() clears all slots. feed() gives a slot token number `length`,
  // after which its history is that of slot `parent` of its group, and returns the token's row of decoded(). With
  // `fed_by_rows` a slot may get several consecutive tokens; one decode() takes at most most_rows() in total.
  virtual void feed_nothing();
  virtual int64_t feed(int64_t slot, int32_t token, int64_t length, int64_t parent);
  void decode(ThreadPool& pool);
  Output decoded(int64_t first_row, int64_t count) const;  // valid until the next decode()
  int64_t most_rows() const { return decodes_.back().rows; }

  int64_t slots() const { return options_.slots(); }
  int64_t beams() const { return options_.beams; }
  int64_t vocab_size() const { return vocab_; }
  std::vector<const Plan*> plans() const { return {plan_list_.begin(), plan_list_.end()}; }  // for reports
  // All plans whose weights may be packed (engine/plan/plan.h); none if some are planned later.
  virtual std::vector<Plan*> packable_plans() { return plan_list_; }
  const SlotCounts& counts() const { return counts_; }

 protected:
  // Inputs of a step whose rows are slots, or with `by_rows` tokens of any slots; the caller adds a memory.
  DecodeStep step_inputs(Graph& graph, int64_t rows, int64_t max_length, bool by_rows) const;
  Tensor token_input(Graph& graph, int64_t rows) const;
  // The input that selects adapters by row, if there are several sets. One row: all tokens are of one slot.
  void add_adapter_choice(Graph& graph, int64_t rows) const;
  // Sets row `row` of that input to the slot's adapters.
  void choose_adapter(int64_t row, int64_t slot);
  int64_t adapter_of(int64_t slot) const { return adapters_[slot]; }
  void give_logits(Graph& graph, Tensor logits) const;
  struct Step {
    std::function<Graph()> graph = nullptr;  // until it is planned
    int64_t rows = 0;                        // that it computes; decode() chooses by it
    bool later = false;                      // planned when first needed
    std::unique_ptr<Plan> plan = nullptr;
    std::unique_ptr<Executor> run = nullptr;  // after bind()
  };
  // Binds the inputs of all steps but those for later, and plans these steps. `decodes` have ascending numbers of rows.
  void make_plans(std::vector<Step> prefills, std::vector<Step> decodes);
  // Whether a step can run. Plans a step for later now, in the memory of make_plans(); false if that is too small.
  bool is_ready(Step& step);
  bool is_bound() const { return inputs_.has_value(); }
  int32_t* input(const char* name) const;  // null if no graph has it
  // Inputs of a step: a row with token number `length` of a slot, and empty rows.
  void set_row(int64_t row, int64_t slot, int32_t token, int64_t length);
  void clear_rows(int64_t begin, int64_t end);
  Output output_of(const Executor& run, int64_t rows) const;

  Store& store_;
  const SharedRegions shared_;
  SlotCounts counts_;
  std::vector<Step> prefills_;

 private:
  // Locations of inputs; null if no graph has them.
  struct Inputs {
    int32_t *tokens, *positions, *lengths, *starts, *parents, *cache_rows;
    float* adapters;
  };
  void plan(Step& step, Graph graph);
  void bind(Step& step) const;

  const SlotOptions options_;
  const PlanOptions planning_;
  const int64_t vocab_;
  std::vector<Step> decodes_;  // by rows, ascending; the last has all
  std::vector<Plan*> plan_list_;
  std::optional<Inputs> inputs_;
  std::vector<int64_t> adapters_;  // of each slot
  int64_t choice_rows_ = 0;        // of the input by which rows choose their adapters
  int64_t fed_ = 0;                // rows up to the last fed one
  Output decoded_;
};

// The index of the first of ascending lengths that is at least `length`; the number of lengths if none is.
size_t padded_to(std::span<const int64_t> lengths, int64_t length);

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

struct SourceOptions {
  int64_t rows = 32;                      // texts at once
  int64_t beams = 1;                      // most of a request; there are rows * beams slots
  int64_t max_length = 256;               // generated tokens of a text, the end included; at most the model's limit
  std::vector<int64_t> source_lengths;    // padded lengths of sources, ascending
  int32_t begin = SpecialTokens{}.begin;  // first token of texts
  std::string flat_name = state::kParameters;  // or "ema"
  int threads = 1;                             // most threads of a pool
  bool verify_plans = true;                    // see PlanOptions
  bool cache_in_arena = false;                 // see SlotOptions
};

// Make a decoder-only model and an encoder-decoder on slots. They declare memory and plans: call before
// store.allocate(). "constants" and options.flat_name must be bound.
std::unique_ptr<SlotModel> make_causal_slots(CausalModel& model, const ParameterLayout& layout, Store& store,
    const SharedRegions& shared, const CausalOptions& options);
std::unique_ptr<SlotModel> make_source_slots(EncoderDecoder& model, const ParameterLayout& layout, Store& store,
    const SharedRegions& shared, const SourceOptions& options);
}  // namespace linnet
