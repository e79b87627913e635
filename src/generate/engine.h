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
// On the CPU a request gets the same tokens from the same bits of logits whatever else is running, in any slot and with
// any number of slots: prompts are computed one by one, rows of a decode step do not depend on each other (SlotModel),
// and a random draw depends on the request's seed, its sample and the number of the token alone. Its prompt must be
// padded to the same length, though: engines with equal prompt_lengths do that.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "generate/generate_settings.h"
#include "generate/slot_model.h"

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
  // Hears each token except the end token; false ends the request. May call submit() and cancel().
  std::function<bool(const GeneratedToken&)> listener = {};
};

enum class EndReason { kEndToken, kMaxTokens, kCacheFull, kListener, kCancelled };

struct FinishedRequest {
  RequestId id;
  Continuation result;  // of a cancelled request, as far as it came
  EndReason reason;
};

class Engine {
 public:
  // As SlotModel: before store.allocate().
  Engine(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
         const CausalOptions& options);
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

  const CausalOptions& options() const { return model_.options(); }
  const std::vector<const Plan*>& plans() const { return model_.plans(); }  // for reports

 private:
  struct Job;

  void decode_running(ThreadPool& pool);
  void begin_waiting(ThreadPool& pool);
  int64_t find_slots(int64_t count) const;
  void feed(const Job& job);
  void begin(Job& job, ThreadPool& pool);
  void pick(Job& job, std::span<const float> logits) const;
  void accept(Job& job, std::span<const float> logits);
  void advance_search(Job& job, const SlotModel::Output& output, ThreadPool& pool);
  void finish(Job& job, EndReason reason);

  SlotModel model_;
  RequestId next_id_ = 0;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<std::unique_ptr<Job>> running_;  // in the order in which they began; finished ones until the step's end
  std::vector<bool> taken_;                    // by slot
  std::vector<FinishedRequest> finished_;
};

}  // namespace linnet
