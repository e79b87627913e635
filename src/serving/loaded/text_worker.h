// A resident text model whose own thread drives its engine: any thread may submit texts, which begin in the next step
// with a free slot. Clients take turns, and so do a client's orders, so that many texts of one do not delay others.
// Weights whose checksums were not compared yet are checked after the first step, before any text is finished.
#pragma once
#include <chrono>
#include <condition_variable>
#include <stop_token>
#include "base/stopping_threads.h"
#include "serving/loaded/fair_queue.h"
#include "tasks/generation/text_model.h"
#include "tasks/generation/text_writer.h"

namespace linnet {
struct TokenChance {
  int32_t token;
  std::string piece;  // its own text
  double log_probability;
};

// A token whose probabilities were requested.
struct WrittenToken : TokenChance {
  std::vector<TokenChance> likeliest;  // best first, by the model's own distribution
};

struct TextOutcome {
  WrittenText text;
  std::vector<WrittenToken> tokens;  // if probabilities were requested
  std::string error;                 // of the model or of the request; "" if none
  bool bad_request = false;          // the error is the request's, or a damaged model's
};

// Called in the model's thread, without locks. `sample` numbers the texts of a request. Neither may throw.
struct TextEvents {
  // What a token added to a text; "" while characters or stop texts are incomplete. A search calls it once, at its end.
  std::function<void(int64_t sample, const std::string& piece, const WrittenToken* token)> token = {};
  // Once for each sample, last.
  std::function<void(int64_t sample, TextOutcome&& outcome)> finished;
};

// Passes one text's events to a reader in another thread. Shared with the model's thread, which may outlive the reader.
class HeardText : public std::enable_shared_from_this<HeardText> {
 public:
  TextEvents events();
  // Waits up to `patience` for a piece; false if none came. An empty `piece`: the text has ended, with an outcome().
  bool next(std::optional<std::string>& piece, std::chrono::milliseconds patience);
  bool ended() const;
  TextOutcome& outcome() { return *outcome_; }  // of a text that has ended

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> pieces_;
  std::optional<TextOutcome> outcome_;
};

struct TextOrder {
  TextJob job;
  int64_t samples = 1;
  int64_t alternatives = -1;  // likeliest tokens reported with each token; -1: no probabilities
  TextEvents events;
};

struct TextWorkerLimits {
  int64_t waiting = 64;  // waiting texts of a client while all slots are taken; of all clients kClients times that
  static constexpr int64_t kClients = 16;
};

class TextWorker {
 public:
  // `model` has been planned. The destructor, which must not run in the model's own thread, finishes submitted texts.
  TextWorker(std::unique_ptr<TextModel> model, const TextWorkerLimits& limits);
  ~TextWorker();

  const TextModel& model() const { return *model_; }
  // Takes all orders of a client, or none if too many texts wait. Calls `begin` with each number for cancel() first.
  bool submit(std::vector<TextOrder> orders, const std::string& client, const std::function<void(int64_t)>& begin = {});
  // The same for one order; -1 if it was not taken.
  int64_t submit(TextOrder order);
  // Ends an order's texts; finished() is called for the unfinished ones, with TextEnd::kInterrupted.
  void cancel(int64_t order);

  struct Load {
    int64_t slots, running, waiting;  // texts
    EngineCounts counts;
  };
  Load load() const;

 private:
  struct Sample;

  void work(const std::stop_token& stop);
  void take_orders();
  void cancel_orders(const std::vector<int64_t>& orders);
  std::unique_ptr<Sample> next_sample();
  int64_t slots_of(const TextOrder& order) const;
  int64_t slots_taken() const;
  void begin(std::unique_ptr<Sample> sample);
  void forget(const Sample& sample);
  void hear(Sample& sample, const GeneratedToken& heard);
  void collect();
  void finish(Sample& sample, FinishedRequest finished);
  void fail_all(const std::string& why, bool is_user_error);

  const std::unique_ptr<TextModel> model_;
  const TextWorkerLimits limits_;

  // Used by the thread alone.
  std::map<RequestId, std::unique_ptr<Sample>> samples_;

  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  // An order with texts that have not begun.
  struct Waiting {
    int64_t id;
    std::shared_ptr<const TextOrder> order;
    std::shared_ptr<const std::string> client;
    int64_t begun = 0;  // texts
  };
  FairQueue<Waiting> waiting_;
  std::vector<int64_t> cancelled_;
  int64_t next_order_ = 0;
  int64_t texts_ = 0;                        // submitted and unfinished
  std::map<std::string, int64_t> texts_of_;  // by client
  EngineCounts counts_;

  StoppingThreads thread_{1, [this](const std::stop_token& stop) { work(stop); }};
};
}  // namespace linnet
