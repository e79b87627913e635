// A model that writes, kept loaded with a thread of its own that drives its engine: texts may be asked for from any
// thread, at any time, and enter at the engine's next step. Weights that were not compared with their checksums when
// the model was opened are compared behind the first step: tokens may be heard before, but no text is finished.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tasks/generation/text_model.h"
#include "tasks/generation/written_row.h"

namespace linnet {

struct TokenChance {
  int32_t token;
  std::string piece;  // its text by itself
  double log_probability;
};

// A token of a text whose probabilities were asked for.
struct WrittenToken : TokenChance {
  std::vector<TokenChance> likeliest;  // best first, by the model's own distribution
};

struct TextOutcome {
  WrittenText text;
  std::vector<WrittenToken> tokens;  // if probabilities were asked for
  std::string error;                 // of the model or of the request; "" if none
  bool bad_request = false;          // the error is the request's, or that of a damaged model
};

// Called in the model's thread, without locks. `sample` counts the texts of a request. Neither may throw.
struct TextEvents {
  // What a token added to a text; the piece is "" while characters or stop texts are incomplete. Of a search it is
  // called once, at its end.
  std::function<void(int64_t sample, const std::string& piece, const WrittenToken* token)> token = {};
  // Once for each sample, last.
  std::function<void(int64_t sample, TextOutcome&& outcome)> finished;
};

struct TextOrder {
  TextJob job;
  int64_t samples = 1;
  int64_t alternatives = -1;  // likeliest tokens that are told with each token; -1: no probabilities are asked for
  TextEvents events;
};

struct TextWorkerLimits {
  int64_t waiting = 64;  // texts that may wait while all slots are taken
};

class TextWorker {
 public:
  // `model` has been planned.
  TextWorker(std::unique_ptr<TextModel> model, const TextWorkerLimits& limits);
  // Finishes what was submitted, then ends the thread. Must not run in the model's own thread.
  ~TextWorker();
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  const TextModel& model() const { return *model_; }
  // Takes an order, or returns -1 when too many texts wait. The number is for cancel().
  int64_t submit(TextOrder order);
  // Ends the texts of an order; finished() is called for those that were not finished, with TextEnd::kInterrupted.
  void cancel(int64_t order);

  struct Load {
    int64_t slots, running, waiting;  // texts
    EngineCounts counts;
  };
  Load load() const;

 private:
  struct Sample;

  void work();
  void take_orders();
  void begin(int64_t id, TextOrder order);
  void hear(Sample& sample, const GeneratedToken& heard);
  void collect();
  void finish(Sample& sample, FinishedRequest finished);
  void fail_all(const std::string& why, bool is_user_error);

  const std::unique_ptr<TextModel> model_;
  const TextWorkerLimits limits_;

  // The thread's own.
  std::map<RequestId, std::unique_ptr<Sample>> samples_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::pair<int64_t, TextOrder>> orders_;
  std::vector<int64_t> cancelled_;
  int64_t next_order_ = 0;
  int64_t texts_ = 0;  // submitted and not finished
  EngineCounts counts_;
  bool stop_ = false;

  std::thread thread_;
};

}  // namespace linnet
