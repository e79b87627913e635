// Translations from a trained model: greedy or beam search over two kinds of plans, one of each per declared source
// length. Prefill encodes a batch of sentences; decode feeds one token per row on caches of fixed size. Searching
// (beam_search.h) is host code between two decode steps.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "generate/beam_search.h"
#include "generate/causal_generator.h"
#include "models/encoder_decoder.h"
#include "nn/parameter_layout.h"
#include "text/tokenizer.h"

namespace linnet {

struct GenerateOptions {
  int64_t sentences = 32;  // decoded at once; rows of a step are sentences * beams
  int64_t beams = 1;       // 1 is greedy search
  // Generated tokens of a sentence, its end included, are at most
  //   min(max_length, the model's longest, length_ratio * source tokens + length_margin),
  // so that a model that has not learned to stop does not fill the cache.
  int64_t max_length = 256;
  double length_ratio = 2.0;
  int64_t length_margin = 20;
  std::vector<int64_t> source_lengths;  // the closed set of padded lengths, ascending
  // score = log probability / length^penalty over the generated tokens, end included (as Hugging Face does): 0 compares
  // probabilities, 1 the mean per token; above that, longer translations are favoured.
  double length_penalty = 1.0;
  EarlyStopping early_stopping = EarlyStopping::kLikely;
  bool forced_end = false;               // a sentence that reaches its limit ends there for certain
  std::string flat_name = "parameters";  // or "ema"
  // What begins and ends a sentence; padding and begin are never generated.
  SpecialTokens special = {};
  std::vector<int32_t> other_ends = {};  // of a search: these end a sentence, too
  int threads = 1;                       // the most a pool given to generate() may have
  bool verify_plans = true;              // see PlanOptions
};

class Generator {
 public:
  // Declares memory (a batch region and the cache) and makes every plan, so that store and shared regions have grown to
  // what generation takes. Before store.allocate(). "constants" and options.flat_name must be bound.
  // Generators of one store share the first one's cache, so make the largest first; they never run at once.
  Generator(EncoderDecoder& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
            const GenerateOptions& options);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // After store.allocate().
  void bind();

  // The best `n_best` <= beams hypotheses for each source, best first, in the order of the sources. A source is token
  // ids with the end token, at most the longest declared length (user error beyond it). Sentences of similar length are
  // decoded together; `progress` hears after each batch how many sentences are done.
  std::vector<std::vector<Hypothesis>> generate(std::span<const std::vector<int32_t>> sources, int n_best,
                                                ThreadPool& pool,
                                                const std::function<void(int64_t done)>& progress = {});

  // Draws each token instead of searching; options.beams must be 1. For at most options.sentences sources; `listener`
  // as for a decoder. Padding and begin are never drawn.
  std::vector<Continuation> sample(std::span<const std::vector<int32_t>> sources, const GenerateSettings& settings,
                                   ThreadPool& pool, const CausalGenerator::Listener& listener = {});
  // From now on asked after each step of a search whether to go on; what it has not found by then stays empty.
  void set_stop(std::function<bool()> stop) { stop_ = std::move(stop); }

  const GenerateOptions& options() const { return options_; }
  const std::vector<const Plan*>& plans() const { return plan_list_; }  // for reports

 private:
  struct Bucket;  // the plans of one source length
  struct Inputs;  // where the graphs' inputs lie

  const Bucket& bucket_for(int64_t source_length) const;
  void decode_batch(std::span<const std::vector<int32_t>* const> sources, ThreadPool& pool);
  void fill_sources(std::span<const std::vector<int32_t>* const> sources, int64_t padded_length);
  int64_t generated_limit(size_t source_length) const;

  GenerateOptions options_;
  Store& store_;
  SharedRegions shared_;
  int64_t vocab_, candidates_;  // candidates_: looked at per row
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<const Plan*> plan_list_;
  std::unique_ptr<Inputs> inputs_;
  BeamSearch search_;
  std::function<bool()> stop_;
  std::vector<float> top_values_;
  std::vector<int32_t> top_ids_;
};

}  // namespace linnet
