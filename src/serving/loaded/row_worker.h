// A resident model with its own thread that computes a row of numbers for each text: an embedding or class
// probabilities. Batches texts of several callers; a text's numbers do not depend on the others. Orders take turns as
// in TextWorker, kTogether texts at a time; those without a client ("") are computed at once.
#pragma once
#include <condition_variable>
#include <map>
#include <stop_token>
#include "base/stopping_threads.h"
#include "serving/loaded/fair_queue.h"
#include "tasks/model_load.h"

namespace linnet {
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
