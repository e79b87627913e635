// A model that makes a row of numbers of each text, an embedding or the probabilities of classes, kept loaded with a
// thread of its own. Texts of several callers are computed together; a text's numbers do not depend on the others.
// Orders take turns as those of TextWorker do, kTogether texts at a time; those of no client ("") are computed at once.
#pragma once
#include <condition_variable>
#include <map>
#include <stop_token>
#include "base/stopping_threads.h"
#include "serving/loaded/fair_queue.h"
#include "tasks/model_load.h"

namespace linnet {

// A text, or two of which one is judged beside the other.
struct RowText {
  std::vector<int32_t> tokens;
  std::vector<int32_t> segments = {};  // of two texts: 0 for the tokens of the first, 1 for those of the second
};

// What computes. Used by one thread at a time, but for encode() and what does not change.
class RowModel {
 public:
  virtual ~RowModel() = default;
  // Of embeddings: what texts of a kind begin with ("": the usual kind). User error for a kind that the model does not
  // have.
  virtual std::string prompt(const std::string&) const { return ""; }
  // The tokens of a text, or with `pair` of two, as many as the model takes; safe from several threads. User error
  // where it takes the one and the other is given.
  virtual RowText encode(const std::string& text, const std::string* pair = nullptr) const = 0;
  // What a text of so many tokens is padded to.
  virtual int64_t padded_length(int64_t tokens) const = 0;
  // The row of one text after another, texts that are padded to the same length and all single or all two.
  virtual std::vector<float> compute(const std::vector<RowText>& texts) = 0;
  // User error unless compute() takes these tokens of a caller, as they are.
  void check(const std::vector<int32_t>& tokens) const;

  std::vector<std::string> classes = {};   // empty for embeddings
  size_t width = 0;                        // numbers of a row
  int64_t vocab_size = 0, max_tokens = 0;  // where encode() cuts a text
  bool is_normalized = false;              // embeddings have the length 1
  bool is_reranker = false;                // gives one number for two texts
};

// `folder`: a BERT folder as sentence-transformers writes them, a run of a masked language model, or a classifier of
// texts.
std::unique_ptr<RowModel> open_embedder(const std::string& folder, const ModelLoad& options);
std::unique_ptr<RowModel> open_row_classifier(const std::string& folder, const ModelLoad& options);

struct RowOutcome {
  std::vector<float> rows;
  std::string error;  // "" if none
};

class RowWorker {
 public:
  // `waiting`: texts of a client that may wait. The end of the worker finishes what was submitted.
  RowWorker(std::unique_ptr<RowModel> model, int64_t waiting) : model_(std::move(model)), limit_(waiting) {}

  const RowModel& model() const { return *model_; }
  using Finished = std::function<void(RowOutcome&&)>;  // called in the model's thread; must not throw
  // Returns false when too many texts wait. Many texts at once are taken if the client has none that wait.
  bool submit(std::vector<RowText> texts, Finished finished, const std::string& client = "");
  int64_t waiting() const;  // texts, those that are being computed included

 private:
  static constexpr size_t kTogether = 32;  // texts of a turn
  struct Order {
    std::vector<RowText> texts;
    Finished finished;
    std::string client;
    std::vector<size_t> by_length = {};  // which text is the next one: alike ones are computed together
    size_t begun = 0, done = 0;          // texts
    RowOutcome outcome = {};
  };
  using Turn = std::vector<std::pair<std::shared_ptr<Order>, size_t>>;  // texts that are computed together

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
