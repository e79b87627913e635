// A model that makes a row of numbers of each text, an embedding or the probabilities of classes, kept loaded with a
// thread of its own. Texts of several callers are computed together; a text's numbers do not depend on the others.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace linnet {

// What computes. Used by one thread at a time, but for encode().
class RowModel {
 public:
  virtual ~RowModel() = default;
  virtual const std::vector<std::string>& classes() const = 0;  // empty for embeddings
  virtual size_t width() const = 0;                             // numbers of a row
  // The tokens of a text, as many as the model takes; safe from several threads.
  virtual std::vector<int32_t> encode(const std::string& text) const = 0;
  // What a text of so many tokens is padded to.
  virtual int64_t padded_length(int64_t tokens) const = 0;
  // The row of one text after another, texts that are padded to the same length.
  virtual std::vector<float> compute(const std::vector<std::vector<int32_t>>& texts) = 0;
};

struct RowOptions {
  int threads = 0;  // 0: all there are
  std::string device = "cpu";
  std::string quantize = {};  // folder_quantization()
  std::vector<std::string> keep = {};
  std::vector<std::string> adapters = {};  // parse_adapters()
};

// `folder`: a BERT folder as sentence-transformers writes them, or a classifier of texts.
std::unique_ptr<RowModel> open_embedder(const std::string& folder, const RowOptions& options);
std::unique_ptr<RowModel> open_row_classifier(const std::string& folder, const RowOptions& options);

struct RowOutcome {
  std::vector<float> rows;
  std::string error;  // "" if none
};

class RowWorker {
 public:
  // `waiting`: texts that may wait.
  RowWorker(std::unique_ptr<RowModel> model, int64_t waiting);
  ~RowWorker();  // finishes what was submitted
  RowWorker(const RowWorker&) = delete;
  RowWorker& operator=(const RowWorker&) = delete;

  const RowModel& model() const { return *model_; }
  using Finished = std::function<void(RowOutcome&&)>;  // called in the model's thread; must not throw
  // Returns false when too many texts wait. Many texts at once are taken if none wait.
  bool submit(std::vector<std::vector<int32_t>> texts, Finished finished);
  int64_t waiting() const;  // texts, those that are being computed included

 private:
  struct Order {
    std::vector<std::vector<int32_t>> texts;
    Finished finished;
  };

  void work();
  void compute(std::vector<Order> orders);

  const std::unique_ptr<RowModel> model_;
  const int64_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Order> orders_;
  int64_t texts_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace linnet
