// Batches of labelled token sequences, padded to one of a few lengths: sequences of like length go together, in an
// order that is a pure function of (seed, epoch).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace linnet {

struct LabelledSequences {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<int32_t> labels;  // -1: unknown

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
};

// A file of "text<TAB>label" lines; a first line whose label reads "label" is a heading.
struct LabelledText {
  std::vector<std::string> texts, labels;
};
LabelledText read_labelled_text(const std::string& path);
// Takes a share of each label out (data/held_out.h).
LabelledText split_off(LabelledText& text, double share, uint64_t seed);

// Whole numbers 0..n-1 stand for themselves; other labels are numbered in the order of their bytes.
std::vector<std::string> label_names(const std::vector<std::string>& labels);

// Where a batch goes: tokens [rows, length], lengths and labels [rows]. Rows past the last have label -1.
struct LabelledBatch {
  int32_t *tokens, *lengths, *labels;
};

class LabelledBatches {
 public:
  // `lengths`: the padded lengths there are, ascending; sequences must fit the last. Data must outlive this.
  LabelledBatches(const LabelledSequences& data, int64_t rows, std::vector<int64_t> lengths, uint64_t seed);

  struct Place {
    int64_t epoch, index;
    int shape;  // index into `lengths`
    bool last_of_epoch;
  };
  Place next(const LabelledBatch& batch);
  void seek(int64_t epoch, int64_t index);
  int64_t batches_per_epoch() const { return (data_.size() + rows_ - 1) / rows_; }

  // For evaluation: every sequence once, shortest first. Returns the shape; `order` are the sequences of the rows.
  int fill_sorted(int64_t index, const LabelledBatch& batch, std::vector<int64_t>& order) const;

 private:
  void shuffle();
  int fill(const int64_t* order, int64_t count, const LabelledBatch& batch) const;

  const LabelledSequences& data_;
  const int64_t rows_;
  const std::vector<int64_t> lengths_;
  const uint64_t seed_;
  std::vector<int64_t> sorted_, order_;  // order_: of ordered_epoch_, rows_ a batch
  std::vector<int64_t> starts_;          // of the batches in order_
  int64_t ordered_epoch_ = -1, epoch_ = 0, index_ = 0;
};

}  // namespace linnet
