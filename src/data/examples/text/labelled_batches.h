// Batches of labelled token sequences, padded to one of a few lengths: sequences of like length go together, in an
// order that is a pure function of (seed, epoch).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/examples/batch_source.h"

namespace linnet {

struct LabelledSequences {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<int32_t> labels;  // -1: unknown

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
};

// A file of "text<TAB>label" lines; a first line whose label reads "label" is a heading. Spaces around a label do not
// count; an empty label is a user error that names the line.
struct LabelledText {
  std::vector<std::string> texts, labels;
};
LabelledText read_labelled_text(const std::string& path);
// Takes a share of each label out (data/examples/held_out.h).
LabelledText split_off(LabelledText& text, double share, uint64_t seed);

// Whole numbers 0..n-1 stand for themselves; other labels are numbered in the order of their bytes.
std::vector<std::string> label_names(const std::vector<std::string>& labels);
// User error that names the file and what to do, where labels are no classes: numbers with fractions, or several labels
// in one, such as "a,b" where others are "a" and "b".
void check_are_classes(const std::vector<std::string>& labels, const std::string& path);

// The arrays of a batch: tokens [rows, length], lengths and labels [rows]. Rows past the last have label -1.
std::vector<BatchInput> labelled_inputs(int64_t rows, int64_t longest);

class LabelledBatches : public BatchSource {
 public:
  // `lengths`: the padded lengths there are, ascending; sequences must fit the last. Data must outlive this.
  LabelledBatches(const LabelledSequences& data, int64_t rows, std::vector<int64_t> lengths, uint64_t seed);

  // Shapes are indices into `lengths`.
  const Batch& next() override;
  void seek(int64_t epoch, int64_t index) override { cursor_.seek(epoch, index, batches_per_epoch()); }
  void take_share(BatchShare share) override { cursor_.take_share(share); }
  int64_t shape_count() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t batches_per_epoch() const override { return (data_.size() + rows_ - 1) / rows_; }

  // For evaluation: every sequence once, shortest first; `order` are the sequences of the rows. Valid as of next().
  const Batch& sorted_batch(int64_t index, std::vector<int64_t>& order);

 private:
  void shuffle(int64_t epoch);
  void fill(const int64_t* order, int64_t count);

  const LabelledSequences& data_;
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
