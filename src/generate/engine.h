// A resident model that writes many texts at once. It is loaded once and has a fixed number of slots, each with its own
// position in the key-value cache. Requests wait in line until there are slots for them:
//
//   const RequestId id = engine.submit({.prompt = ids, .settings = {.max_tokens = 50}});
//   while (engine.busy()) engine.step(pool);
//   for (FinishedRequest& finished : engine.take_finished()) ...
//
// A step decodes one token for every running request and then begins those that wait, first come, first served. A
// sampled request (beams == 1) takes one slot, a beam search takes `beams` of them next to each other.
//
// Of an encoder-decoder the prompt is a source, which is encoded, and a request takes the slots of a whole search.
//
// On the CPU a request gets the same tokens from the same bits of logits whatever else is running and in any slot: a
// prompt is computed apart from the others, rows of a decode step do not depend on each other (CausalSlots,
// SourceSlots), and a random draw depends on the request's seed, its sample and the number of the token alone. Of a
// decoder-only model that holds for any number of slots, too, as long as its prompt is padded to the same length:
// engines with equal prompt_lengths do that.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "generate/causal_slots.h"
#include "generate/generate_settings.h"
#include "generate/source_slots.h"

namespace linnet {

using RequestId = int64_t;

struct GeneratedToken {
  int32_t token;                  // -1 after a step of a beam search, which knows its tokens at its end
  std::span<const float> logits;  // what the token was picked from; empty for a beam search
};

struct GenerateRequest {
  std::vector<int32_t> prompt;
  GenerateSettings settings = {};  // of settings.ends_row nothing is asked; the sample is settings.first_sample
  int64_t beams = 1;               // > 1: beam search
  bool search = false;             // with one beam: greedy search for the likeliest text, instead of sampling
  int64_t n_best = 1;              // hypotheses of a search that are wanted, at most beams
  // Hears each token except the end token; false ends the request. May call submit() and cancel().
  std::function<bool(const GeneratedToken&)> listener = {};
};

enum class EndReason { kEndToken, kMaxTokens, kCacheFull, kListener, kCancelled };

struct FinishedRequest {
  RequestId id;
  Continuation result;  // of a cancelled request, as far as it came
  EndReason reason;
  std::vector<Hypothesis> hypotheses = {};  // of a search, best first; the first is the result
};

class Engine {
 public:
  // As CausalSlots and SourceSlots: before store.allocate().
  Engine(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
         const CausalOptions& options);
  Engine(EncoderDecoder& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
         const SourceOptions& options);
  ~Engine();

  void bind();  // after store.allocate()

  // User error for a prompt that is empty, too long or not of this vocabulary, and for settings out of range.
  RequestId submit(GenerateRequest request);
  // Ends a request, whether it waits or runs. Nothing happens to one that is finished.
  void cancel(RequestId id);
  bool busy() const;  // whether any request waits or runs
  void step(ThreadPool& pool);
  // Those that have finished since the last call, in the order in which they did.
  std::vector<FinishedRequest> take_finished();

  int64_t slots() const { return model_->slots(); }
  int64_t beams() const { return model_->beams(); }                          // the most of a request
  const std::vector<const Plan*>& plans() const { return model_->plans(); }  // for reports

 private:
  struct Job;

  void decode_running(ThreadPool& pool);
  void begin_waiting(ThreadPool& pool);
  bool is_worth_beginning() const;
  int64_t find_slots(int64_t count) const;
  void feed(const Job& job);
  void begin(std::span<Job* const> jobs, ThreadPool& pool);
  void choose_next(Job& job, const SlotModel::Output& output) const;
  void accept_next(Job& job, const SlotModel::Output& output);
  void accept_token(Job& job, std::span<const float> logits);
  void accept_search_step(Job& job);
  void finish(Job& job, EndReason reason);

  const std::unique_ptr<SlotModel> model_;
  RequestId next_id_ = 0;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<std::unique_ptr<Job>> running_;  // in the order in which they began; finished ones until the step's end
  std::vector<bool> taken_;                    // by slot
  std::vector<FinishedRequest> finished_;
};

}  // namespace linnet
