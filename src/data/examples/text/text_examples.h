// Examples for learning from whole texts or their tokens. Batches pad texts to one of a few lengths and join texts of
// similar length, in an order that is a pure function of (seed, epoch).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>
#include "base/functions.h"
#include "data/examples/batch.h"
#include "data/examples/text/token_chunks.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {
// The label of an example, and the form of "labels" in a batch.
struct LabelForm {
  enum class Kind {
    kClass,         // classes: i32 [rows, numbers], -1 for rows without an example
    kNumbers,       // f32 [rows, numbers]; "weights" f32 [rows] is 0 for rows without an example, else 1
    kTokenClasses,  // a class of each token: i32 [rows, length], -1 for tokens that do not count
  };
  Kind kind = Kind::kClass;
  int64_t numbers = 1;
  int64_t parts = 1;  // texts of an example; the rows of a batch are the first ones of all examples, then the second
};

struct TextExamples {
  explicit TextExamples(LabelForm form = {}) : form(form) {}

  LabelForm form;
  std::vector<std::vector<int32_t>> tokens;  // those of an example's parts follow each other
  std::vector<std::vector<uint8_t>> types;   // 0 or 1 for each token; empty: all tokens are of type 0
  // For examples that are windows of records: the record, and the text range of each token ({0, 0}: none).
  std::vector<int64_t> records;
  std::vector<std::vector<TextRange>> offsets;

  int64_t size() const { return std::ssize(label_ends_); }
  size_t length(int64_t example) const;  // tokens of its longest part
  // `labels`: form.numbers, or one per token; classes are whole numbers. For the first part; tokens takes the others.
  void add(std::vector<int32_t> ids, std::span<const float> labels);
  std::span<const float> labels(size_t example) const;

 private:
  std::vector<float> labels_;
  std::vector<size_t> label_ends_;
};

// The arrays of a batch of `rows` examples, rows * form.parts texts: "tokens" i32 [texts, length], "lengths" i32
// [texts], "labels"; with `types` also "types" i32 [texts, length]. Bytes are those of the longest batch.
std::vector<BatchInput> text_inputs(int64_t rows, int64_t longest, const LabelForm& form, bool types);

class LengthBatches : public SingleBatchSource {
 public:
  // Shapes are indices into the padded lengths.
  int64_t shape_count() const override { return std::ssize(lengths_); }
  int64_t batches_per_epoch() const override { return (std::ssize(sizes_) + rows_ - 1) / rows_; }

  // For evaluation: every example once, shortest first. Valid as long as next()'s.
  const Batch& sorted_batch(int64_t index);
  std::span<const int64_t> sorted_rows(int64_t index) const;  // its examples

 protected:
  // size_of(i): tokens of example i of `count`. `lengths`: the padded lengths, ascending; examples must fit the last.
  LengthBatches(int64_t count, FunctionRef<int64_t(int64_t)> size_of, int64_t rows, std::vector<int64_t> lengths,
      uint64_t seed, const std::vector<BatchInput>& inputs);
  // Fills the arrays with these examples, padded to `length`.
  virtual void fill(std::span<const int64_t> examples, int64_t length) = 0;

  const int64_t rows_;

 private:
  void make(int64_t epoch, int64_t index) override;
  void fill_padded(std::span<const int64_t> examples);

  const std::vector<int64_t> lengths_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> sorted_, order_;  // order_: of ordered_epoch_, rows_ a batch
  std::vector<int64_t> starts_;          // of the batches in order_
  int64_t ordered_epoch_ = -1;
};

class TextBatches : public LengthBatches {
 public:
  // Data must outlive this.
  TextBatches(const TextExamples& data, int64_t rows, const std::vector<int64_t>& lengths, uint64_t seed);

 private:
  void fill(std::span<const int64_t> examples, int64_t length) override;

  const TextExamples& data_;
};

// A prompt with two answers; only the answers' tokens are learned.

struct PreferencePair {
  std::array<TargetedTokens, 2> answers;  // the chosen one, the rejected one
  std::array<float, 2> reference = {};    // log probabilities of the answers that others are compared with

  int64_t size() const { return std::max(std::ssize(answers[0].tokens), std::ssize(answers[1].tokens)); }
};

// The arrays of a batch: "tokens", "targets" i32 [2 pairs, length], all chosen answers before the rejected ones,
// "reference" f32 [2 pairs], "weights" f32 [pairs], 0 for rows without a pair, which have one token. Bytes: at most.
std::vector<BatchInput> preference_inputs(int64_t pairs, int64_t longest);

class PreferenceBatches : public LengthBatches {
 public:
  // Data must outlive this; its references may still change.
  PreferenceBatches(
      const std::vector<PreferencePair>& data, int64_t pairs, const std::vector<int64_t>& lengths, uint64_t seed);

 private:
  void fill(std::span<const int64_t> examples, int64_t length) override;

  const std::vector<PreferencePair>& data_;
};
}  // namespace linnet
