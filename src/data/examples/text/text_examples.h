// Examples of what is learned of whole texts or of their tokens, and batches of them: texts are padded to one of a few
// lengths, and texts of like length go together, in an order that is a pure function of (seed, epoch).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/examples/batch.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {

// What an example is labelled with, and the form of "labels" in a batch.
struct LabelForm {
  enum class Kind {
    kClass,         // classes: i32 [rows, numbers], -1 for rows without an example
    kNumbers,       // f32 [rows, numbers]; "weights" f32 [rows] is 0 for rows without an example, else 1
    kTokenClasses,  // a class of each token: i32 [rows, length], -1 for tokens that do not count
  };
  Kind kind = Kind::kClass;
  int64_t numbers = 1;
  int64_t parts =
      1;  // texts of an example: the rows of a batch are the first ones of all examples, then the second ones
};

struct TextExamples {
  explicit TextExamples(LabelForm form = {}) : form(form) {}

  LabelForm form;
  std::vector<std::vector<int32_t>> tokens;  // those of an example's parts follow each other
  std::vector<std::vector<uint8_t>> types;   // 0 or 1 for each token; empty: all tokens are of type 0
  // Of examples that are windows of records: which record, and what each token covers of its text ({0, 0}: nothing).
  std::vector<int64_t> records;
  std::vector<std::vector<TextRange>> offsets;

  int64_t size() const { return std::ssize(label_ends_); }
  size_t length(int64_t example) const;  // tokens of its longest part
  // `labels`: form.numbers, or as many as tokens. Classes are whole numbers. The first part; tokens takes the others.
  void add(std::vector<int32_t> ids, std::span<const float> labels);
  std::span<const float> labels(size_t example) const;

 private:
  std::vector<float> labels_;
  std::vector<size_t> label_ends_;
};

// The arrays of a batch of `rows` examples, whose parts are rows * form.parts texts: "tokens" i32 [texts, length],
// "lengths" i32 [texts], "labels"; with `types` also "types" i32 [texts, length]. Bytes are those of the longest batch.
std::vector<BatchInput> text_inputs(int64_t rows, int64_t longest, const LabelForm& form, bool types);

class TextBatches : public BatchSource {
 public:
  // `lengths`: the padded lengths, ascending; texts must fit the last. Data must outlive this.
  TextBatches(const TextExamples& data, int64_t rows, std::vector<int64_t> lengths, uint64_t seed);

  // Shapes are indices into `lengths`.
  const Batch& next() override;
  void seek(int64_t epoch, int64_t index) override { cursor_.seek(epoch, index, batches_per_epoch()); }
  void take_share(BatchShare share) override { cursor_.take_share(share); }
  int64_t shape_count() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t batches_per_epoch() const override { return (data_.size() + rows_ - 1) / rows_; }

  // For evaluation: every text once, shortest first. The batch is valid as long as that of next().
  const Batch& sorted_batch(int64_t index);
  // Which examples it has.
  std::span<const int64_t> sorted_rows(int64_t index) const;

 private:
  void shuffle(int64_t epoch);
  void fill(std::span<const int64_t> examples);
  void fill_labels(size_t row, size_t example, size_t length);

  const TextExamples& data_;
  const int64_t rows_;
  const std::vector<int64_t> lengths_;
  const uint64_t seed_;
  std::vector<int64_t> sorted_, order_;  // order_: of ordered_epoch_, rows_ a batch
  std::vector<int64_t> starts_;          // of the batches in order_
  int64_t ordered_epoch_ = -1;
  BatchCursor cursor_;
  OwnedBatch owned_;
};

}  // namespace linnet
