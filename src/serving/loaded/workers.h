// Resident models, each with its own thread, to which any thread submits texts.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include "base/thread_pool.h"
#include "tasks/generation/text_model.h"
#include "tasks/generation/text_writer.h"
#include "tasks/model_load.h"

namespace linnet {
// A queue in which clients take turns, and so do a client's items. An item may take several turns. Not thread-safe.
template <class Item> class FairQueue {
 public:
  void push(const std::string& client, Item item) {
    const auto [found, is_new] = by_name_.try_emplace(client);
    if (is_new) found->second = clients_.insert(clients_.end(), {client, {}});
    found->second->items.push_back(std::move(item));
  }
  bool empty() const { return clients_.empty(); }
  Item& front() { return clients_.front().items.front(); }
  // Ends the turn of front(): removes it if done, else it waits for its next turn.
  void end_turn(bool done) {
    Client& client = clients_.front();
    if (!done) client.items.push_back(std::move(client.items.front()));
    client.items.pop_front();
    client.items.empty() ? erase(clients_.begin()) : clients_.splice(clients_.end(), clients_, clients_.begin());
  }
  // Removes the items for which visit(item) returns true.
  template <class Visit> void remove_if(const Visit& visit) {
    for (auto client = clients_.begin(); client != clients_.end();) {
      const auto next = std::next(client);
      std::erase_if(client->items, visit);
      if (client->items.empty()) erase(client);
      client = next;
    }
  }

 private:
  struct Client {
    std::string name;
    std::deque<Item> items;
  };
  using Location = typename std::list<Client>::iterator;

  void erase(Location client) {
    by_name_.erase(client->name);
    clients_.erase(client);
  }

  std::list<Client> clients_;  // next one first
  std::unordered_map<std::string, Location> by_name_;
};

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
  std::vector<WrittenToken> tokens;       // if probabilities were requested
  std::string error;                      // of the model or of the request; "" if none
  ErrorKind kind = ErrorKind::kInternal;  // of the error
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

// A resident text model whose own thread drives its engine: any thread may submit texts, which begin in the next step
// with a free slot. Clients take turns, and so do a client's orders, so that many texts of one do not delay others.
// Weights whose checksums were not compared yet are checked after the first step, before any text is finished.
class TextWorker {
 public:
  // `model` has been planned. The destructor, which must not run in the model's own thread, finishes submitted texts.
  TextWorker(std::unique_ptr<TextModel> model, const TextWorkerLimits& limits);
  ~TextWorker();

  const TextModel& model() const { return *model_; }
  // Takes all orders of a client, or none if too many texts wait. Calls `begin` with each number for cancel() first.
  bool submit(std::vector<TextOrder> orders, const std::string& client, const std::function<void(int64_t)>& begin = {});
  int64_t submit(TextOrder order);  // the same for one order; -1 if it was not taken
  // Ends an order's texts; finished() is called for the unfinished ones, with TextEnd::kInterrupted.
  void cancel(int64_t order);

  struct Load {
    int64_t slots, running, waiting;  // texts
    EngineCounts counts;
  };
  Load load() const;

 private:
  struct Order;   // a TextOrder that was taken
  struct Sample;  // one of its texts, from its begin on

  void work(const std::stop_token& stop);
  void cancel_orders();
  std::unique_ptr<Sample> next_sample();
  int64_t slots_of(const TextOrder& order) const;
  int64_t slots_taken() const;
  void begin(std::unique_ptr<Sample> sample);
  void forget(const Sample& sample);
  void hear(Sample& sample, const GeneratedToken& heard);
  void collect();
  void finish(Sample& sample, FinishedRequest finished);
  void fail_all(const std::string& why, ErrorKind kind);

  const std::unique_ptr<TextModel> model_;
  const TextWorkerLimits limits_;

  // Used by the thread alone.
  std::map<RequestId, std::unique_ptr<Sample>> samples_;

  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  FairQueue<std::shared_ptr<Order>> waiting_;  // those with texts that have not begun
  std::vector<int64_t> cancelled_;
  int64_t next_order_ = 0;
  int64_t texts_ = 0;                        // submitted and unfinished
  std::map<std::string, int64_t> texts_of_;  // by client
  EngineCounts counts_;

  StoppingThreads thread_{1, [this](const std::stop_token& stop) { work(stop); }};
};

// A text, or a pair to judge together.
struct RowText {
  std::vector<int32_t> tokens;
  std::vector<int32_t> segments = {};  // for pairs: 0 for the first text's tokens, 1 for the second's
};

// The computation. For one thread at a time, except encode() and constants.
class RowModel {
 public:
  virtual ~RowModel() = default;
  // Embeddings: the prefix of texts of a kind ("": the usual kind). User error for an unknown kind.
  virtual std::string prompt(const std::string&) const { return ""; }
  // Tokens of a text or, with `pair`, of two, cut to the model's length; thread-safe. User error for a pair where a
  // single text is required, or the reverse.
  virtual RowText encode(const std::string& text, const std::string* pair = nullptr) const = 0;
  virtual int64_t padded_length(int64_t tokens) const = 0;
  // Consecutive rows of texts with one padded length, all single or all pairs.
  virtual std::vector<float> compute(const std::vector<RowText>& texts) = 0;
  // User error unless compute() accepts these tokens of a caller.
  void check(const std::vector<int32_t>& tokens) const;

  std::vector<std::string> classes = {};   // empty for embeddings
  size_t width = 0;                        // numbers in a row
  int64_t vocab_size = 0, max_tokens = 0;  // encode() cuts texts at max_tokens
  bool is_normalized = false;              // embeddings have the length 1
  bool is_reranker = false;                // gives one number for a pair
};

// `folder`: from sentence-transformers (BERT), a run of a masked language model, or a text classifier.
std::unique_ptr<RowModel> open_embedder(const std::string& folder, const ModelLoad& options);
std::unique_ptr<RowModel> open_row_classifier(const std::string& folder, const ModelLoad& options);

struct RowOutcome {
  std::vector<float> rows;
  std::string error;  // "" if none
};

// A resident model with its own thread that computes a row of numbers for each text: an embedding or class
// probabilities. Batches texts of several callers; a text's numbers do not depend on the others. Orders take turns as
// in TextWorker, kTogether texts at a time; those without a client ("") are computed at once.
class RowWorker {
 public:
  // `waiting`: most waiting texts of a client. The destructor finishes submitted ones.
  RowWorker(std::unique_ptr<RowModel> model, int64_t waiting) : model_(std::move(model)), limit_(waiting) {}

  const RowModel& model() const { return *model_; }
  using Finished = std::function<void(RowOutcome&&)>;  // called in the model's thread; must not throw
  // Returns false if too many texts wait. A client with none waiting may submit any number.
  bool submit(std::vector<RowText> texts, Finished finished, const std::string& client = "");
  int64_t waiting() const;  // texts, including those being computed

 private:
  static constexpr size_t kTogether = 32;  // texts of a turn
  struct Order {
    std::vector<RowText> texts;
    Finished finished;
    std::string client;
    std::vector<size_t> by_length = {};  // order of the texts: similar lengths are computed together
    size_t begun = 0, done = 0;          // texts
    RowOutcome outcome = {};
  };
  using Turn = std::vector<std::pair<std::shared_ptr<Order>, size_t>>;  // texts computed together

  void work(const std::stop_token& stop);
  Turn next_turn();
  void compute(const Turn& turn);

  const std::unique_ptr<RowModel> model_;
  const int64_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  FairQueue<std::shared_ptr<Order>> orders_;
  int64_t texts_ = 0;
  std::map<std::string, int64_t> texts_of_;  // by client
  StoppingThreads thread_{1, [this](const std::stop_token& stop) { work(stop); }};
};
}  // namespace linnet
