// Generates many texts at once with a resident model on a fixed number of slots, each with its own position in the
// key-value cache. Requests wait for free slots:
//
//   const RequestId id = engine.submit({.prompt = ids, .settings = {.max_tokens = 50}});
//   while (engine.busy()) engine.step(pool);
//   for (FinishedRequest& finished : engine.take_finished()) ...
//
// A step decodes one token for every running request, then begins waiting ones in order. A sampled request (beams == 1)
// takes one slot, a beam search `beams` adjacent slots.
//
// For an encoder-decoder the prompt is a source to encode, and each request takes the slots of a whole search.
//
// On the CPU a request's tokens and logits do not depend, to the bit, on other requests or its slot: prompts are
// computed apart, rows of a step are independent (SlotModel), and random draws only depend on seed,
// sample and token number. In decoder-only models, slot count, prefix cache and draft do not matter either.
//
// A draft model is smaller, with the same vocabulary, and guesses the next tokens (Leviathan et al. 2023, Chen et al.
// 2023). The model computes all guesses in one step; tokens are picked from its logits with the usual random draws as
// long as guesses were right, and one beyond. So results stay the same. The draft has the same settings and draws.
#pragma once
#include "generation/beam_search.h"
#include "generation/sampling.h"
#include "generation/slot_model.h"
#include "generation/text_grammar.h"

namespace linnet {
struct GenerateSettings {
  int64_t max_tokens = 100;                               // generated tokens of each row, the end included
  SamplingOptions sampling;                               // with one beam
  double length_penalty = 1;                              // of beam search: score = log probability / length^penalty
  EarlyStopping early_stopping = EarlyStopping::kLikely;  // of beam search
  bool forced_end = false;                                // of a search: forces ends[0] at the limit
  std::vector<int32_t> ends;                              // tokens that end a text
  // Encoder-decoder: first tokens instead of SourceOptions::begin, and tokens forced after them.
  std::vector<int32_t> begin = {};
  std::vector<int32_t> never = {};  // tokens that are never generated
  TextRules rules = {};
  // If the cache is full: false stops; true continues from the last half of the text. Not with beams.
  bool slide = false;
  uint64_t first_sample = 0;  // row i uses the random draws of sample first_sample + i
  // If set, a sampled text is one of the grammar, and ends where it is complete; `texts` are the vocabulary's.
  std::shared_ptr<const TextGrammar> grammar = {};
  std::shared_ptr<const TokenTexts> texts = {};
  bool log_probabilities = false;  // see Continuation; takes a pass over the vocabulary for each token
};

struct Continuation {
  std::vector<int32_t> tokens;  // without the end
  bool ended = false;           // by an end token, not at a limit
  int32_t end_token = -1;       // of a sampled text that ended
  // Of each token and the end, by the model's own distribution before temperature and filters; empty for searches.
  std::vector<float> log_probabilities = {};
  double log_probability = 0;  // sum of them; for searches always set

  void add(double value) { log_probabilities.push_back(static_cast<float>(value)), log_probability += value; }
};

using RequestId = int64_t;

struct GeneratedToken {
  int32_t token;                  // -1 after a step of a beam search, which only knows its tokens at the end
  std::span<const float> logits;  // empty for a beam search
};

struct GenerateRequest {
  std::vector<int32_t> prompt;
  GenerateSettings settings = {};  // the sample is settings.first_sample
  int64_t beams = 1;               // > 1: beam search
  bool search = false;             // with one beam: greedy search instead of sampling
  int64_t n_best = 1;              // wanted hypotheses of a search, at most beams
  int64_t adapter = -1;            // the set of adapters of CausalOptions::adapters; -1: none
  // Hears each token except the end; false ends the request. May call submit() and cancel().
  std::function<bool(const GeneratedToken&)> listener = {};
};

enum class EndReason { kEndToken, kMaxTokens, kCacheFull, kListener, kCancelled };

struct FinishedRequest {
  RequestId id;
  Continuation result;  // of a canceled request, as far as generated
  EndReason reason;
  std::vector<Hypothesis> hypotheses = {};  // of a search, best first; the first is the result
};

struct DraftModel {
  CausalModel& model;
  const ParameterLayout& layout;
  Store& store;  // not the model's
  SharedRegions shared;
  int64_t tokens = 4;  // guesses at once for each request
};

struct EngineCounts : SlotCounts {
  int64_t guessed = 0;   // tokens, by the draft model
  int64_t accepted = 0;  // of these, picked tokens
};

class Engine {
 public:
  // Like make_causal_slots() and make_source_slots(): call before store.allocate(), also of the draft's store. User
  // error for a draft model with another vocabulary, with beams, or without cache.
  Engine(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
      CausalOptions options, const std::optional<DraftModel>& draft = {});
  Engine(EncoderDecoder& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
      const SourceOptions& options);
  ~Engine();

  void bind();  // call after store.allocate()
  EngineCounts counts() const;

  // User error for an empty or too long prompt, unknown tokens, and settings out of range.
  RequestId submit(GenerateRequest request);
  // Ends a waiting or running request. No-op for a finished one.
  void cancel(RequestId id);
  bool busy() const;  // whether any request waits or runs
  void step(ThreadPool& pool);
  // Requests finished since the last call, in the order in which they finished.
  std::vector<FinishedRequest> take_finished();

  int64_t slots() const { return model_->slots(); }
  int64_t beams() const { return model_->beams(); }                   // the most of a request
  std::vector<const Plan*> plans() const { return model_->plans(); }  // for reports
  std::vector<Plan*> packable_plans() { return model_->packable_plans(); }

 private:
  struct Job;

  void decode_running(ThreadPool& pool);
  void begin_waiting(ThreadPool& pool);
  int64_t worth_beginning() const;
  int64_t find_slots(int64_t count) const;
  void guess(std::span<Job* const> jobs, ThreadPool& pool);
  int64_t guesses_wanted(const Job& job) const;
  void feed(Job& job);
  void take_tokens(std::vector<Job*> jobs, ThreadPool& pool);
  void begin_draft(std::span<Job* const> jobs, ThreadPool& pool);
  void begin(std::span<Job* const> jobs, ThreadPool& pool);
  void choose_next(Job& job, const SlotModel::Output& output) const;
  void accept_next(Job& job, const SlotModel::Output& output);
  void accept_token(Job& job, std::span<const float> logits);
  void accept_search_step(Job& job);
  void finish(Job& job, EndReason reason);

  std::unique_ptr<SlotModel> model_;
  std::unique_ptr<SlotModel> draft_;  // with the same slots
  int64_t draft_tokens_ = 0;
  int64_t guessed_ = 0, accepted_ = 0;
  RequestId next_id_ = 0;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<std::unique_ptr<Job>> running_;  // in order of their beginning; finished ones until the step's end
  std::vector<bool> taken_;                    // by slot
  std::vector<FinishedRequest> finished_;
};

// Generates texts for lists of prompts: a loop around an engine.
class CausalGenerator {
 public:
  // Like make_causal_slots(), call before store.allocate().
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
  // Like make_source_slots(), call before store.allocate(). Every search has options.beams beams; 1 is greedy search.
  SourceGenerator(EncoderDecoder& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
      const SourceOptions& options, SearchSettings settings)
      : engine_(model, layout, store, shared, options), settings_(std::move(settings)) {}

  void bind() { engine_.bind(); }  // call after store.allocate()

  // The `n_best` <= beams best hypotheses for each source, best first, in source order. Sources include the end token;
  // user error beyond the longest planned length.
  std::vector<std::vector<Hypothesis>> generate(
      std::span<const std::vector<int32_t>> sources, int64_t n_best, ThreadPool& pool);

  std::vector<const Plan*> plans() const { return engine_.plans(); }  // for reports
  std::vector<Plan*> packable_plans() { return engine_.packable_plans(); }

 private:
  Engine engine_;
  const SearchSettings settings_;
};
}  // namespace linnet
