// Text of a decoder: prompts in, tokens out, on a key-value cache of fixed size. Prefill takes a batch of prompts at
// once, one plan for each padded length; decode feeds one token a row. Choosing tokens (sampling.h, beam_search.h) is
// host code between two decode steps.
//
// Prompts are padded at their right end; each row has its own position, so a batch of unequal prompts is what the
// prompts give one by one.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "generate/beam_search.h"
#include "generate/sampling.h"
#include "models/causal_model.h"
#include "nn/parameter_layout.h"

namespace linnet {

struct CausalOptions {
  int64_t rows = 1;        // prompts decoded at once
  int64_t beams = 1;       // > 1: beam search
  int64_t max_length = 0;  // prompt and generated tokens of a row; 0: what the model can
  // Padded lengths of prompts, ascending; the last is at most max_length. Empty: powers of two.
  std::vector<int64_t> prompt_lengths = {};
  bool cache = true;                     // false: every token computes the whole sequence again, for comparison
  std::string flat_name = "parameters";  // or "ema"
  int threads = 1;                       // the most a pool given to generate() may have
  bool verify_plans = true;              // see PlanOptions
};

struct GenerateSettings {
  int64_t max_tokens = 100;                               // generated of each row, its end included
  SamplingOptions sampling;                               // with beams == 1
  double length_penalty = 1;                              // of beam search: score = log probability / length^penalty
  EarlyStopping early_stopping = EarlyStopping::kLikely;  // of beam search
  std::vector<int32_t> ends;                              // tokens that end a text
  // Where the cache is full: false stops there; true goes on from the last half of the text. Not with beams.
  bool slide = false;
  uint64_t first_sample = 0;  // row i draws as sample first_sample + i
  // Asked after each token of a row: true ends that row there. Not with beams.
  std::function<bool(int64_t row, int32_t token)> ends_row = {};
  bool log_probabilities = false;  // see Continuation; takes a pass over the vocabulary for each token
};

struct Continuation {
  std::vector<int32_t> tokens;  // without the end
  bool ended = false;           // by an end token, not at a limit
  int32_t end_token = -1;       // of a sampled text that ended
  // By the model's own distribution, before temperature and the like. Of each token, the end token included; of a
  // search empty.
  std::vector<float> log_probabilities = {};
  double log_probability = 0;  // of all of them together; of a search always there

  void add(double value) { log_probabilities.push_back(static_cast<float>(value)), log_probability += value; }
};

// Of one token, given the logits of all.
double log_probability_of(std::span<const float> logits, int32_t token);

class CausalGenerator {
 public:
  // Declares memory (a batch region and the cache) and makes every plan. Before store.allocate(). "constants" and
  // options.flat_name must be bound.
  CausalGenerator(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
                  const CausalOptions& options);
  ~CausalGenerator();
  CausalGenerator(const CausalGenerator&) = delete;
  CausalGenerator& operator=(const CausalGenerator&) = delete;

  void bind();  // after store.allocate()

  // Hears each token as it is chosen; false ends everything. Beam search tells nothing before its end.
  using Listener = std::function<bool(int64_t row, int32_t token)>;

  // Continues each prompt (at most options.rows of them, none empty: user error). A row stops at an end token, after
  // max_tokens, or where the cache is full.
  std::vector<Continuation> generate(std::span<const std::vector<int32_t>> prompts, const GenerateSettings& settings,
                                     ThreadPool& pool, const Listener& listener = {});

  // For tests: the logits [rows, V] of the last plan that ran.
  std::span<const float> last_logits() const { return logits_; }
  const CausalOptions& options() const { return options_; }
  const std::vector<const Plan*>& plans() const { return plan_list_; }  // for reports

 private:
  struct Bucket;  // the prefill plan of one padded length
  struct Inputs;  // where the graphs' inputs lie

  void check(std::span<const std::vector<int32_t>> prompts) const;
  void prefill(std::span<const std::vector<int32_t>> sequences, ThreadPool& pool);
  void feed(std::span<const std::vector<int32_t>> windows, const std::vector<bool>& done, ThreadPool& pool);
  std::vector<Continuation> sample(std::span<const std::vector<int32_t>> prompts, const GenerateSettings& settings,
                                   ThreadPool& pool, const Listener& listener);
  std::vector<Continuation> search(std::span<const std::vector<int32_t>> prompts, const GenerateSettings& settings,
                                   ThreadPool& pool, const Listener& listener);
  void set_row(int64_t row, int32_t token, int64_t length);
  void decode(ThreadPool& pool);
  void check_logits() const;

  CausalOptions options_;
  Store& store_;
  SharedRegions shared_;
  int64_t vocab_, window_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  Plan decode_;
  std::optional<Executor> run_decode_;
  std::vector<const Plan*> plan_list_;
  std::unique_ptr<Inputs> inputs_;
  std::span<const float> logits_, log_sum_exp_;
};

}  // namespace linnet
